//! What is counted, for each job and epoch, everywhere.
//!
//! Two blocks. The *plan's* follows from plans, sizes and reports alone: every serving is one of `hit` (its plan asks
//! for no read), `packed` (its bytes come in a package) and `single` (a read of its own), and reads, requests and
//! bytes are those that the plan asks for. It is the same in the simulator and in a server, with prefetch or
//! without, for any number of workers, and after a kill. The *clock's* is everything else: waiting, and every read
//! that the plan did not ask for, or asked for and another read spared. What storage saw is
//! the plan's, recovery and [probes](crate::benefit), less what was joined or came from a shared cache.
//!
//! Counters change in [`crate::tally`] and nowhere else.

pub use crate::waits::{WaitReason, Waits};

/// A struct of counters that knows their names.
macro_rules! block {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$about])* pub $field: u64,)*
        }

        impl $name {
            /// Their names, in order.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($field)),*];

            /// Their values, in the order of their names.
            pub fn values(&self) -> impl Iterator<Item = u64> {
                [$(self.$field),*].into_iter()
            }

            /// Sets the one of that name; names that there are not are passed over.
            fn set(&mut self, name: &str, value: u64) {
                match name {
                    $(stringify!($field) => self.$field = value,)*
                    _ => {}
                }
            }

            pub(crate) fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

block! {
    /// What follows from plans, sizes and reports alone.
    PlanCounters {
        /// Slots of the plan, all ranks together.
        planned,
        /// Servings for which the plan asks for no read.
        hit,
        /// Those of them whose rank is on another node than the one that keeps the sample.
        hit_peer,
        /// Slots decided as hits on a sample that another job, which shares the cache, has brought.
        shared_hits,
        /// Servings whose bytes come in a package.
        packed,
        /// Servings with a read of their own.
        single,
        /// Slots in which the plan serves another id than the one selected.
        substituted,
        /// Different ids served.
        distinct,
        /// Samples that the plan reads.
        storage_reads,
        /// Samples read for other reasons than a serving; inside `storage_reads`.
        other_reads,
        /// Requests that the plan makes to storage.
        storage_requests,
        /// Bytes that the plan reads.
        storage_bytes,
        /// Packages that are read; inside `storage_requests`.
        package_reads,
        /// Bytes of the samples in packages that are read.
        package_bytes,
        /// Bytes of the servings that come in packages.
        package_bytes_served,
        /// Samples that the packer reads; inside `storage_reads`.
        pack_reads,
        /// Bytes that the packer reads; inside `storage_bytes`.
        pack_bytes_read,
        /// Bytes that the packer writes.
        pack_bytes_written,
    }
}

block! {
    /// What hangs on the clock, on faults, and on what others do.
    ClockCounters {
        /// Samples read that the plan did not ask for: their bytes were lost in a restart, found no room, could not be
        /// read before or did not come in their package.
        recovery_reads,
        /// Requests that the plan did not ask for; failed attempts included.
        recovery_requests,
        /// Bytes read that the plan did not ask for.
        recovery_bytes,
        /// Samples that the plan asked to read and storage did not have to deliver: another job reads or keeps them, or
        /// their slots were abandoned.
        joined,
        /// Requests that this spared.
        joined_requests,
        /// Bytes that this spared.
        joined_bytes,
        /// Samples that are kept and were read all the same, to measure what the job gains.
        probe_reads,
        /// Requests that this took.
        probe_requests,
        /// Bytes that this took.
        probe_bytes,
        /// Samples that came from a shared cache in place of storage.
        peer_reads,
        /// Requests that this spared.
        peer_requests,
        /// Bytes that this spared.
        peer_bytes,
        /// Samples that came from the nodes of a cluster that own them.
        node_reads,
        /// Their bytes.
        node_bytes,
        /// Samples that the nodes which own them were asked for and did not give. They were read from storage, as recovery.
        node_failed,
        /// Slots that no reader asked for.
        abandoned,
        /// Batches answered from memory of their own, because the arena had no room.
        spilled,
        /// Servings that a reader waited for.
        late,
        /// Batches that waited for reads from storage. One that waited for several things counts for each.
        storage_waits,
        /// Batches that waited for bytes of other nodes.
        node_waits,
        /// Batches that waited for memory.
        memory_waits,
        /// Batches that waited until what measures the job's gain was in memory.
        probe_waits,
        /// Ranks that began an epoch before its plan was there.
        plan_waits,
        /// Servings that ended in an error.
        failed,
        /// Scores taken.
        reported,
        /// Scores refused: not a number, infinite or negative.
        rejected_scores,
        /// Plans that were made without waiting longer for a rank, and packages that were not waited for longer.
        overdue,
        /// Packages that were found torn, damaged, foreign or gone, and were dropped.
        packages_lost,
    }
}

/// The counters of one job and epoch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counters {
    /// The plan's.
    pub plan: PlanCounters,
    /// The clock's.
    pub clock: ClockCounters,
    /// How long each rank's batches waited, by rank.
    pub waits: Vec<Waits>,
}

impl Counters {
    /// Adds another epoch's figures to these.
    pub fn add(&mut self, other: &Self) {
        self.plan.add(&other.plan);
        self.clock.add(&other.clock);
        for (rank, waits) in other.waits.iter().enumerate() {
            self.waits_of(rank as u32).merge(waits);
        }
    }

    /// All servings.
    pub fn served(&self) -> u64 {
        self.plan.hit + self.plan.packed + self.plan.single
    }

    /// Samples that came from storage.
    pub fn storage_reads(&self) -> u64 {
        let asked = self.plan.storage_reads + self.clock.recovery_reads + self.clock.probe_reads;
        asked.saturating_sub(self.clock.peer_reads + self.clock.joined)
    }

    /// Requests that storage saw.
    pub fn storage_requests(&self) -> u64 {
        let asked = self.plan.storage_requests + self.clock.recovery_requests + self.clock.probe_requests;
        asked.saturating_sub(self.clock.peer_requests + self.clock.joined_requests)
    }

    /// Bytes that came from storage.
    pub fn storage_bytes(&self) -> u64 {
        let asked = self.plan.storage_bytes + self.clock.recovery_bytes + self.clock.probe_bytes;
        asked.saturating_sub(self.clock.peer_bytes + self.clock.joined_bytes)
    }

    /// The papers' hit ratio, which counts what came in packages: (hit + packed) / served.
    pub fn papers_hit_ratio(&self) -> f64 {
        (self.plan.hit + self.plan.packed) as f64 / self.served().max(1) as f64
    }

    /// The share of package bytes that are not served.
    pub fn package_waste(&self) -> f64 {
        if self.plan.package_bytes == 0 {
            return 0.0;
        }
        1.0 - self.plan.package_bytes_served as f64 / self.plan.package_bytes as f64
    }

    /// The counters that are not zero, by name: what outlives a server. How long batches waited does not.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let plan = PlanCounters::NAMES.iter().zip(self.plan.values());
        let clock = ClockCounters::NAMES.iter().zip(self.clock.values());
        plan.chain(clock).map(|(name, value)| (*name, value)).filter(|(_, value)| *value > 0)
    }

    /// The counters of these names and values.
    pub fn of_named<'a>(named: impl IntoIterator<Item = (&'a str, u64)>) -> Self {
        let mut counters = Self::default();
        for (name, value) in named {
            counters.plan.set(name, value);
            counters.clock.set(name, value);
        }
        counters
    }

    /// The waits of `rank`.
    pub(crate) fn waits_of(&mut self, rank: u32) -> &mut Waits {
        let rank = rank as usize;
        if self.waits.len() <= rank {
            self.waits.resize_with(rank + 1, Waits::default);
        }
        &mut self.waits[rank]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Counters {
        let plan =
            PlanCounters { hit: 1, single: 2, storage_reads: 2, storage_bytes: 7, ..Default::default() };
        let clock = ClockCounters { recovery_reads: 2, probe_reads: 1, joined: 1, ..Default::default() };
        let mut counters = Counters { plan, clock, waits: Vec::new() };
        counters.waits_of(1).add(0.5);
        counters
    }

    #[test]
    fn sums_are_those_of_the_parts() {
        let mut sum = some();
        sum.add(&some());
        assert_eq!((sum.served(), sum.storage_bytes(), sum.storage_reads()), (6, 14, 8));
        assert_eq!((sum.waits[1].batches(), sum.waits[0].batches()), (2, 0));
    }

    #[test]
    fn what_is_named_comes_back() {
        let counters = Counters { waits: Vec::new(), ..some() };
        assert_eq!(Counters::of_named(counters.named().chain([("of_another_version", 9)])), counters);
    }
}
