//! `quiver`, every id once, chunk after chunk (Quiver, FAST 2020, 4.2 and 4.3).
//!
//! The dataset is ten contiguous partitions, each cut into stripe units; chunk k is unit k of every
//! partition, so it holds something of every part of the dataset. There are at least ten chunks, and as many
//! more as keep each within 15 GB and a sixteenth of the cache (half of it with `bucket`). All jobs walk the
//! chunks in one circle, whatever their seeds, and shuffle within each chunk by their own. An epoch begins
//! where the other jobs of the cache are, so that what one of them reads serves all; without other jobs it
//! begins with the chunk of which most is resident. With `bucket` b every batch of b stays within one stripe
//! unit, except the last of each unit: what is left of a chunk's units fills batches of its own, and what
//! does not fill a batch goes with the next chunk, so no batch shifts the others.
//!
//! Plans are always padded; padded slots have weight 0. **A single job gains no more than with `minio`**:
//! chunks are for sharing between jobs.
//!
//! Differs from the paper: substitution at a miss is the order of chunks, settled when the plan is made; and
//! chunks are small compared with the cache, so that most of it can stand still.

use super::chunks::Chunks;
use super::uniform::shuffled;
use super::{Draw, Drawn, Entry, FULL_LAST, Residents, Setup, Strategy};
use crate::settings::{Domain, Parameter};
use crate::{Id, Rng};

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "bucket",
        default: "0",
        domain: Domain::Whole(0, 1 << 20),
        summary: "batch size whose batches stay within one stripe unit; 0 shuffles the whole chunk",
    },
    FULL_LAST,
];

pub(super) const ENTRY: Entry = Entry {
    name: "quiver",
    summary: "every sample once, chunk after chunk, where the other jobs are (Quiver)",
    policy: "quiver",
    parameters: PARAMETERS,
    build: |setup| Box::new(Quiver::new(setup)),
};

struct Quiver {
    setup: Setup,
    chunks: Chunks,
}

impl Quiver {
    fn new(mut setup: Setup) -> Self {
        setup.values = std::mem::take(&mut setup.values).or_defaults(PARAMETERS);
        let buckets = setup.values.whole("bucket") > 0;
        let chunks = Chunks::new(&*setup.sizes, setup.end(), setup.capacity, buckets);
        Self { setup, chunks }
    }

    /// The chunks in the order that all jobs share, from the one with which this epoch begins.
    fn circle(&self, draw: &Draw<'_>) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.chunks.count()).collect();
        Rng::new(0, 0, "quiver's circle").shuffle(&mut order);
        let resident = |residents: &Residents, chunk: usize| {
            let (mut all, mut here) = (0u64, 0u64);
            for id in self.chunks.units(chunk).flatten() {
                all += 1;
                here += u64::from(residents.contains(id));
            }
            here * 1000 / all.max(1)
        };
        let first = match (draw.others_at.and_then(|id| self.chunks.of(id)), draw.residents) {
            (Some(chunk), _) => order.iter().position(|&other| other == chunk),
            // Thousandths of a chunk; the first of those with the most.
            (None, Some(residents)) => {
                let most = |place: &usize| (resident(residents, order[*place]), std::cmp::Reverse(*place));
                (0..order.len()).max_by_key(most)
            }
            (None, None) => None,
        };
        order.rotate_left(first.unwrap_or(0));
        order
    }

    /// The order of one chunk's ids: whole batches of `bucket`, after what the chunks before left in `rest`, which
    /// then holds what this one leaves.
    fn walk(&self, chunk: usize, bucket: usize, rest: &mut Vec<Id>, rng: &mut Rng) -> Vec<Id> {
        if bucket == 0 {
            let mut ids: Vec<Id> = self.chunks.units(chunk).flatten().collect();
            rng.shuffle(&mut ids);
            return ids;
        }
        let mut units: Vec<Vec<Id>> = self.chunks.units(chunk).map(Iterator::collect).collect();
        rng.shuffle(&mut units);
        let mut batches = Vec::new();
        for mut ids in units {
            rng.shuffle(&mut ids);
            // What is left of a unit stays together, so that a batch of such rests is of few units.
            let whole = ids.len() - ids.len() % bucket;
            rest.extend(ids.split_off(whole));
            batches.extend(ids.chunks(bucket).map(<[Id]>::to_vec));
        }
        let whole = rest.len() - rest.len() % bucket;
        batches.extend(rest.drain(..whole).collect::<Vec<Id>>().chunks(bucket).map(<[Id]>::to_vec));
        rng.shuffle(&mut batches);
        batches.concat()
    }
}

impl Strategy for Quiver {
    fn draw(&mut self, draw: &Draw<'_>) -> Drawn {
        if self.setup.is_full_last(draw.epoch) {
            return shuffled(self.setup.end(), self.setup.seed, draw.number(), &[]).into();
        }
        let mut rng = Rng::new(self.setup.seed, draw.number(), "quiver");
        let order = self.circle(draw);
        // Ranks take turns, so the batches of all of them lie side by side.
        let bucket = self.setup.values.whole("bucket") as usize * draw.world.max(1) as usize;
        let (mut ids, mut rest) = (Vec::with_capacity(self.setup.samples), Vec::new());
        for chunk in order {
            ids.extend(self.walk(chunk, bucket, &mut rest, &mut rng));
        }
        ids.extend(rest);
        ids.into()
    }

    fn repeats(&self) -> bool {
        false
    }

    fn is_whole(&self) -> bool {
        true
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

    /// Of how many stripe units each batch of every rank is, and how many whole batches the units hold.
    fn units_of_batches(samples: usize, batch: usize, world: u32) -> (Vec<usize>, usize) {
        let mut quiver = quiver(samples, samples as u64 / 5, &batch.to_string());
        let drawn = quiver.draw(&Draw { epoch: 3, world, ..Draw::default() });
        let mut distinct = drawn.ids.clone();
        distinct.sort_unstable();
        assert_eq!(distinct, Vec::from_iter(0..samples as Id), "every id once");
        let (mut unit_of, mut whole) = (vec![0; samples], 0);
        for chunk in 0..quiver.chunks.count() {
            for (partition, unit) in quiver.chunks.units(chunk).enumerate() {
                whole += unit.len() / (batch * world as usize) * world as usize;
                unit.for_each(|id| unit_of[id as usize] = chunk * 10 + partition);
            }
        }
        let plan = crate::sampling::Plan::cut(3, world, true, drawn);
        let mut counts = Vec::new();
        for rank in 0..world {
            let ids: Vec<Id> = plan.rank_ids(rank).collect();
            let units = |batch: &[Id]| batch.iter().map(|&id| unit_of[id as usize]).collect::<BTreeSet<_>>();
            counts.extend(ids.chunks(batch).map(|batch| units(batch).len()));
        }
        (counts, whole)
    }

    #[test]
    fn every_batch_but_the_last_of_each_unit_stays_within_a_unit() {
        for (samples, batch, world) in [(4_000, 20, 1), (50_000, 256, 1), (50_000, 100, 2), (1_003, 7, 3)] {
            let (counts, whole) = units_of_batches(samples, batch, world);
            let within = counts.iter().filter(|&&units| units == 1).count();
            assert!(within >= whole, "{within} of {} batches, {whole} in whole units", counts.len());
        }
        let (counts, whole) = units_of_batches(50_000, 256, 1);
        assert_eq!((counts.len(), whole), (196, 100), "units of 500 hold one batch of 256 and a rest");
        assert!(counts.iter().all(|&units| units <= 3), "rests lie beside each other: {counts:?}");
    }
}
