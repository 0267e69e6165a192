//! `quiver`, every id once, chunk after chunk (Quiver, FAST 2020, 4.2 and 4.3).
//!
//! The dataset is ten contiguous partitions, each cut into stripe units; chunk k is unit k of every partition,
//! so that it holds something of every part of the dataset. There are at least ten chunks, and as many more as
//! keep each within 15 GB and half the cache. An epoch walks the chunks in a random order, beginning with those
//! that are resident, and shuffles within each chunk. With `bucket` b the chunk's stripe units follow each
//! other in random order and batches of b stay within a unit, as far as units are whole batches.
//!
//! Plans are always padded; the padded slots have weight 0. **A job alone gains no more than `minio` does**:
//! what chunks are for is sharing between jobs.
//!
//! Differs from the paper: substitution at a miss is the order of chunks, settled when the plan is made.

use super::{Draw, Drawn, Entry, Setup, Strategy};
use crate::settings::{Domain, Parameter};
use crate::{Id, Rng};

const PARTITIONS: usize = 10;
/// The most bytes of a chunk.
const MOST: u64 = 15_000_000_000;

const PARAMETERS: &[Parameter] = &[Parameter {
    name: "bucket",
    default: "0",
    domain: Domain::Whole(0, 1 << 20),
    summary: "batch size whose batches stay within one stripe unit; 0 shuffles the whole chunk",
}];

pub(super) const ENTRY: Entry = Entry {
    name: "quiver",
    summary: "every sample once, chunk after chunk, resident chunks first (Quiver)",
    policy: "quiver",
    parameters: PARAMETERS,
    build: |setup| Box::new(Quiver::new(setup)),
};

struct Quiver {
    setup: Setup,
    chunks: usize,
}

impl Quiver {
    fn new(mut setup: Setup) -> Self {
        setup.values = std::mem::take(&mut setup.values).or_defaults(PARAMETERS);
        let whole = (0..setup.end()).fold(0u64, |sum, id| sum.saturating_add(setup.sizes.size(id)));
        let half = if setup.capacity > 1 { setup.capacity / 2 } else { u64::MAX };
        let limit = (whole / 10).min(MOST).min(half).max(1);
        // Units of unequal bytes: a few more chunks until the largest keeps within the limit.
        let most = setup.samples.div_ceil(PARTITIONS).max(10);
        let mut quiver = Self { chunks: (whole.div_ceil(limit) as usize).clamp(10, most), setup };
        while quiver.chunks < most && (0..quiver.chunks).any(|chunk| quiver.bytes(chunk) > limit) {
            quiver.chunks = (quiver.chunks + quiver.chunks / 8 + 1).min(most);
        }
        quiver
    }

    /// The ids of unit `unit` of `partition`.
    fn unit(&self, partition: usize, unit: usize) -> std::ops::Range<Id> {
        let at =
            |whole: usize, parts: usize, part: usize| (whole as u128 * part as u128 / parts as u128) as usize;
        let samples = self.setup.end() as usize;
        let (begin, end) = (at(samples, PARTITIONS, partition), at(samples, PARTITIONS, partition + 1));
        let cut = |unit: usize| (begin + at(end - begin, self.chunks, unit)) as Id;
        cut(unit)..cut(unit + 1)
    }

    fn units(&self, chunk: usize) -> impl Iterator<Item = std::ops::Range<Id>> + '_ {
        (0..PARTITIONS).map(move |partition| self.unit(partition, chunk))
    }

    fn bytes(&self, chunk: usize) -> u64 {
        self.units(chunk).flatten().map(|id| self.setup.sizes.size(id)).sum()
    }

    /// The order of one chunk's ids.
    fn shuffled(&self, chunk: usize, bucket: usize, rng: &mut Rng) -> Vec<Id> {
        if bucket == 0 {
            let mut ids: Vec<Id> = self.units(chunk).flatten().collect();
            rng.shuffle(&mut ids);
            return ids;
        }
        let (mut batches, mut rest) = (Vec::new(), Vec::new());
        for unit in self.units(chunk) {
            let mut ids: Vec<Id> = unit.collect();
            rng.shuffle(&mut ids);
            let whole = ids.len() - ids.len() % bucket;
            rest.extend(ids.split_off(whole));
            batches.extend(ids.chunks(bucket).map(<[Id]>::to_vec));
        }
        rng.shuffle(&mut batches);
        rng.shuffle(&mut rest);
        batches.push(rest);
        batches.concat()
    }
}

impl Strategy for Quiver {
    fn draw(&mut self, draw: &Draw<'_>) -> Drawn {
        let mut rng = Rng::new(self.setup.seed, draw.number(), "quiver");
        let mut order: Vec<usize> = (0..self.chunks).collect();
        rng.shuffle(&mut order);
        if let Some(residents) = draw.residents {
            // The share of a chunk that is resident, in thousandths; those with the most come first.
            order.sort_by_cached_key(|&chunk| {
                let (mut all, mut here) = (0u64, 0u64);
                for id in self.units(chunk).flatten() {
                    all += 1;
                    here += u64::from(residents.contains(id));
                }
                std::cmp::Reverse(here * 1000 / all.max(1))
            });
        }
        // Ranks take turns, so the batches of all of them lie side by side.
        let bucket = self.setup.values.whole("bucket") as usize * draw.world.max(1) as usize;
        let mut ids = Vec::with_capacity(self.setup.samples);
        for chunk in order {
            ids.extend(self.shuffled(chunk, bucket, &mut rng));
        }
        ids.into()
    }

    fn repeats(&self) -> bool {
        false
    }

    fn needs_losses(&self) -> bool {
        false
    }

    fn looks_at_residents(&self, _packages: bool) -> bool {
        true
    }

    fn pads(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn quiver(samples: usize, capacity: u64, bucket: &str) -> Quiver {
        let values = ENTRY.values([("bucket", bucket)]).unwrap();
        Quiver::new(Setup { capacity, values, ..Setup::new(samples, 3) })
    }

    #[test]
    fn chunks_are_disjoint_small_enough_and_of_every_part() {
        for (samples, capacity) in [(1_000, 200), (1_003, 90), (7, 3), (0, 0), (50, 0)] {
            let quiver = quiver(samples, capacity, "0");
            let all: Vec<Id> = (0..quiver.chunks).flat_map(|chunk| quiver.units(chunk).flatten()).collect();
            assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), samples);
            assert_eq!(all.len(), samples);
            if samples >= 1_000 {
                assert!((0..quiver.chunks).all(|chunk| quiver.bytes(chunk) <= capacity / 2));
                assert!((0..quiver.chunks).all(|chunk| quiver.units(chunk).all(|unit| !unit.is_empty())));
            }
        }
    }

    #[test]
    fn a_batch_stays_within_a_stripe_unit() {
        let mut quiver = quiver(4_000, 800, "20");
        let drawn = quiver.draw(&Draw { world: 1, ..Draw::default() });
        let unit = |id: Id| {
            (0..PARTITIONS)
                .flat_map(|p| (0..10).map(move |k| (p, k)))
                .find(|&(p, k)| quiver.unit(p, k).contains(&id))
        };
        for batch in drawn.ids.chunks(20) {
            assert!(batch.iter().all(|&id| unit(id) == unit(batch[0])));
        }
    }
}
