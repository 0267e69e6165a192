//! A set of ids, one bit each.

use std::ops::Range;

use crate::Id;

/// A set of ids of a catalog.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// An empty set of ids below `samples`.
    pub fn new(samples: usize) -> Self {
        Self(vec![0; samples.div_ceil(64)])
    }

    /// Adds `id`, which must lie in the catalog. False if it was there.
    pub fn insert(&mut self, id: Id) -> bool {
        let (word, bit) = (&mut self.0[id as usize / 64], 1 << (id % 64));
        let fresh = *word & bit == 0;
        *word |= bit;
        fresh
    }

    /// Takes `id` out.
    pub fn remove(&mut self, id: Id) {
        if let Some(word) = self.0.get_mut(id as usize / 64) {
            *word &= !(1 << (id % 64));
        }
    }

    /// Whether `id` is in the set.
    pub fn contains(&self, id: Id) -> bool {
        self.0.get(id as usize / 64).is_some_and(|word| word & (1 << (id % 64)) != 0)
    }

    /// Adds all ids of another set.
    pub fn add(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word |= other);
    }

    /// As bytes, and back.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// What [`Self::to_bytes`] gave.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        Self(bytes.chunks(8).map(word).collect())
    }

    /// Bytes on the heap.
    pub fn memory(&self) -> usize {
        8 * self.0.len()
    }

    /// How many ids are in the set.
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The ids in the set, in their order.
    pub fn iter(&self) -> impl Iterator<Item = Id> + '_ {
        self.range(0..u64::MAX)
    }

    /// Those of them that lie in `ids`. It takes a step for each, and one for every 64 ids.
    pub fn range(&self, ids: Range<u64>) -> impl Iterator<Item = Id> + '_ {
        let words = self.0.len().min(ids.end.div_ceil(64) as usize);
        let first = words.min((ids.start / 64) as usize);
        let all = (first..words).flat_map(|at| {
            std::iter::successors(Some(self.0[at]), |left| Some(left & left.wrapping_sub(1)))
                .take_while(|left| *left != 0)
                .map(move |left| at as Id * 64 + left.trailing_zeros())
        });
        all.filter(move |&id| ids.contains(&u64::from(id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_and_go() {
        let mut bits = Bits::new(130);
        assert!(bits.insert(129) && bits.insert(0) && !bits.insert(0));
        bits.remove(0);
        bits.remove(1_000);
        assert_eq!(
            (bits.contains(0), bits.contains(129), bits.contains(1_000), bits.count()),
            (false, true, false, 1)
        );
        for id in [63, 64, 5, 128] {
            bits.insert(id);
        }
        assert_eq!(bits.iter().collect::<Vec<_>>(), [5, 63, 64, 128, 129]);
        assert_eq!(bits.range(63..129).collect::<Vec<_>>(), [63, 64, 128]);
        assert_eq!(bits.range(6..63).count() + bits.range(130..u64::MAX).count(), 0);
        let mut more = Bits::new(60);
        more.insert(7);
        more.add(&bits);
        assert_eq!(more.iter().collect::<Vec<_>>(), [5, 7, 63, 64, 128, 129]);
    }
}
