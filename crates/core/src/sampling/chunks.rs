//! The chunks of a dataset, which jobs of `quiver` walk one after the other (Quiver 4.3).
//!
//! A dataset is ten contiguous partitions, each cut into as many stripe units as there are chunks; chunk k is unit k of every
//! partition. Chunks differ by a few samples, and by what their samples differ in size.

use std::ops::Range;

use crate::Id;
use crate::policy::Sizes;

const PARTITIONS: usize = 10;
/// The most bytes of a chunk.
const MOST: u64 = 15_000_000_000;
/// The least samples of a chunk, where there are that many: what is shuffled together.
const LEAST: usize = 40;
/// Chunks that fit the cache at least: those under way take a small part of it.
const SHARE: u64 = 16;

/// The bytes of two chunks of a dataset, as the paper has them: the one that jobs walk through and the next.
pub fn two_chunks(dataset: u64) -> u64 {
    2 * (dataset / PARTITIONS as u64).min(MOST)
}

/// How a dataset is cut into chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunks {
    samples: usize,
    count: usize,
}

impl Chunks {
    /// Those that jobs with a cache of so many bytes walk. With `buckets` they are larger, so that their stripe units hold
    /// batches.
    pub fn new(sizes: &dyn Sizes, samples: Id, capacity: u64, buckets: bool) -> Self {
        let whole = (0..samples).fold(0u64, |sum, id| sum.saturating_add(sizes.size(id)));
        let parts = if buckets { 2 } else { SHARE };
        let share = if capacity >= parts { capacity / parts } else { u64::MAX };
        let limit = (whole / 10).min(MOST).min(share).max(1);
        let most = (samples as usize).div_ceil(LEAST).max(10);
        let count = (whole.div_ceil(limit) as usize).clamp(10, most);
        // Units of unequal bytes: a few more chunks until each keeps within the limit, one large sample aside.
        let largest = (0..samples).map(|id| sizes.size(id)).max().unwrap_or(0);
        let limit = limit.saturating_add(largest);
        let mut chunks = Self { samples: samples as usize, count };
        while chunks.count < most && (0..chunks.count).any(|chunk| chunks.bytes(chunk, sizes) > limit) {
            chunks.count = (chunks.count + chunks.count / 8 + 1).min(most);
        }
        chunks
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The chunk that `id` lies in.
    pub fn of(&self, id: Id) -> Option<usize> {
        (0..self.count).find(|&chunk| self.units(chunk).any(|unit| unit.contains(&id)))
    }

    /// The stripe units of a chunk, one of each partition.
    pub fn units(&self, chunk: usize) -> impl Iterator<Item = Range<Id>> + '_ {
        (0..PARTITIONS).map(move |partition| self.unit(partition, chunk))
    }

    /// The ids of unit `unit` of `partition`.
    fn unit(&self, partition: usize, unit: usize) -> Range<Id> {
        let at =
            |whole: usize, parts: usize, part: usize| (whole as u128 * part as u128 / parts as u128) as usize;
        let (begin, end) =
            (at(self.samples, PARTITIONS, partition), at(self.samples, PARTITIONS, partition + 1));
        let cut = |unit: usize| (begin + at(end - begin, self.count, unit)) as Id;
        cut(unit)..cut(unit + 1)
    }

    fn bytes(&self, chunk: usize, sizes: &dyn Sizes) -> u64 {
        self.units(chunk).flatten().map(|id| sizes.size(id)).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::sampling::Equal;

    #[test]
    fn chunks_are_disjoint_small_enough_and_of_every_part() {
        for (samples, capacity) in [(10_000, 2_000), (10_030, 900), (7, 3), (0, 0), (50, 0)] {
            let sizes = Equal { samples, size: 1 };
            let chunks = Chunks::new(&sizes, samples as Id, capacity, false);
            let all: Vec<Id> = (0..chunks.count()).flat_map(|chunk| chunks.units(chunk).flatten()).collect();
            assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), samples);
            assert_eq!(all.len(), samples);
            if samples >= 1_000 {
                assert!((0..chunks.count()).all(|chunk| chunks.bytes(chunk, &sizes) <= capacity / SHARE + 1));
                assert!((0..chunks.count()).all(|chunk| chunks.units(chunk).all(|unit| !unit.is_empty())));
                let third = chunks.units(3).nth(4).unwrap();
                assert_eq!(chunks.of(third.start), Some(3));
            }
        }
    }
}
