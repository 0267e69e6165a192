//! When an epoch's reads that belong to no slot are made: before it, or spread over it.
//!
//! What is re-evaluated is read before the epoch. What the packer reads and writes goes beside the plan's own
//! reads, evenly over the slots; writing takes the same way as reading. Sizes are the means of what was
//! counted.

use hotset_core::counters::Counters;
use hotset_core::run::Packing;

/// Reads of an epoch that belong to no slot, spread over it.
pub(crate) struct OtherReads {
    other: (u64, u64),
    /// Requests of the packer: how many of which bytes, reads and writes.
    work: [(u64, u64); 2],
    slots: u64,
    done: u64,
}

impl OtherReads {
    /// Of an epoch of `slots` that was just begun, what is packed in it, and what was counted of it so far.
    pub(crate) fn new(counters: &Counters, packing: &Packing, slots: usize) -> Self {
        let mean = |bytes: u64, count: u64| bytes.checked_div(count).unwrap_or(0);
        let read = (packing.whole.len() + packing.single.len()) as u64;
        let written = packing.packages.len() as u64;
        Self {
            other: (
                counters.plan.other_reads,
                mean(counters.plan.storage_bytes - counters.plan.pack_bytes_read, counters.plan.other_reads),
            ),
            work: [
                (read, mean(counters.plan.pack_bytes_read, read)),
                (written, mean(counters.plan.pack_bytes_written, written)),
            ],
            slots: slots as u64,
            done: 0,
        }
    }

    /// The bytes of each read for the evaluation before the epoch.
    pub(crate) fn evaluation(&self) -> impl Iterator<Item = u64> + use<> {
        let (count, bytes) = self.other;
        (0..count).map(move |_| bytes)
    }

    /// The bytes of each request that the packer makes before `slot`.
    pub(crate) fn work(&mut self, slot: usize) -> impl Iterator<Item = u64> + use<> {
        let [(reads, read), (writes, written)] = self.work;
        let all = u128::from(reads + writes);
        let until = (all * (slot as u128 + 1) / u128::from(self.slots.max(1))) as u64;
        let from = std::mem::replace(&mut self.done, until);
        (from..until).map(move |at| if at < reads { read } else { written })
    }
}

#[cfg(test)]
mod tests {
    use hotset_core::counters::PlanCounters;

    use super::*;

    #[test]
    fn the_packers_requests_are_spread_over_the_epoch_and_none_is_left() {
        let plan = PlanCounters {
            other_reads: 3,
            storage_bytes: 3 * 50 + 40 * 100,
            pack_bytes_read: 4000,
            pack_bytes_written: 8000,
            ..PlanCounters::default()
        };
        let counters = Counters { plan, ..Counters::default() };
        let packing = Packing {
            packages: vec![(0, Vec::new()), (1, Vec::new())],
            whole: vec![(7, vec![1, 2])],
            single: (10..49).collect(),
        };
        let mut other_reads = OtherReads::new(&counters, &packing, 10);
        assert_eq!(other_reads.evaluation().collect::<Vec<_>>(), [50, 50, 50]);
        let each: Vec<Vec<u64>> = (0..10).map(|slot| other_reads.work(slot).collect()).collect();
        assert!(each.iter().all(|requests| (4..=5).contains(&requests.len())), "{each:?}");
        assert_eq!(each.concat().iter().sum::<u64>(), 4000 + 8000);
    }

    #[test]
    fn an_epoch_without_packing_makes_no_requests() {
        let mut other_reads = OtherReads::new(&Counters::default(), &Packing::default(), 0);
        assert_eq!((other_reads.evaluation().count(), other_reads.work(0).count()), (0, 0));
    }
}
