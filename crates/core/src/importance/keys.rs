//! What the slots of one plan are decided with: every sample's IV when the plan was made, and its H-list.
//!
//! The H-list holds the ids with the highest IVs that fit the whole cache capacity in bytes (iCache III-A);
//! all others are L-samples. Every H IV is at least every L IV; only a sample larger than the whole cache is
//! passed over. Four bytes and a bit a sample, shared by the plan and the policy.

use std::sync::{Arc, OnceLock};

use super::Ranking;
use crate::Id;
use crate::bits::Bits;
use crate::policy::Sizes;
use crate::saved::{Reader, Writer};

/// Every sample's IV, and the H-list.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Keys {
    values: Vec<f32>,
    high: Bits,
    high_len: usize,
    percentiles: Percentiles,
    /// Those of several jobs, of which these are the sum.
    shares: Vec<Share>,
}

/// One job's part in what a sample is worth to several.
#[derive(Debug, Clone, PartialEq)]
pub struct Share {
    /// What the job gains from a cache: see [`crate::benefit`].
    pub benefit: f32,
    /// What its plan was made from; `None` for a job without scores.
    pub keys: Option<Arc<Keys>>,
}

impl Share {
    /// What it adds to the worth of `id`.
    fn of(&self, id: Id) -> f32 {
        self.benefit * self.keys.as_ref().map_or(0.5, |keys| keys.percentile(id))
    }
}

/// Every sample's percentile, worked out when it is first needed. It follows from the values.
#[derive(Debug, Clone, Default)]
struct Percentiles(OnceLock<Vec<f32>>);

impl PartialEq for Percentiles {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

/// What was never reported is above all else.
fn key(value: f32) -> f32 {
    if value.is_nan() { f32::INFINITY } else { value }
}

impl Keys {
    /// The keys of `values` in the order of `ranking`; not a number in `values` means never reported.
    pub fn new(mut values: Vec<f32>, ranking: &Ranking, sizes: &dyn Sizes, capacity: u64) -> Self {
        let mut high = Bits::new(values.len());
        let (mut left, mut high_len) = (capacity, 0);
        for &id in ranking.order().iter().rev() {
            let size = sizes.size(id);
            if size > capacity {
                continue;
            }
            let Some(rest) = left.checked_sub(size) else { break };
            left = rest;
            high.insert(id);
            high_len += 1;
        }
        for value in &mut values {
            *value = key(*value);
        }
        Self { values, high, high_len, ..Self::default() }
    }

    /// What a sample is worth to several jobs together: the sum of its percentiles, each times what its job gains (iCache's
    /// AIV, III-D). A job without scores, or whose percentiles were not [worked out](Self::rank), has a half for each.
    pub fn sum(shares: Vec<Share>) -> Self {
        Self { shares, ..Self::default() }
    }

    /// Works out the percentiles, which takes as long as sorting the values.
    pub fn rank(&self) {
        self.percentiles.0.get_or_init(|| {
            let mut sorted = self.values.clone();
            sorted.sort_unstable_by(f32::total_cmp);
            let below = |value: &f32| sorted.partition_point(|other| other <= value);
            self.values.iter().map(|value| (below(value) as f64 / sorted.len() as f64) as f32).collect()
        });
    }

    /// The percentile of `id` among all samples; a half while it was not worked out.
    fn percentile(&self, id: Id) -> f32 {
        self.percentiles.0.get().and_then(|all| all.get(id as usize)).copied().unwrap_or(0.5)
    }

    /// The IV of `id`: infinite if it was never reported.
    pub fn value(&self, id: Id) -> f32 {
        if !self.shares.is_empty() {
            return self.shares.iter().map(|share| share.of(id)).sum();
        }
        self.values.get(id as usize).copied().unwrap_or(f32::INFINITY)
    }

    /// The IV of `id` as a number that sorts as IVs do.
    pub fn sortable(&self, id: Id) -> u32 {
        (self.value(id) + 0.0).to_bits()
    }

    /// Whether `id` is an H-sample.
    pub fn is_high(&self, id: Id) -> bool {
        self.high.contains(id)
    }

    /// Writes them beside `known`, values that the reader knows too: only those that differ are written.
    pub(crate) fn write(&self, writer: &mut Writer, known: &[f32]) {
        let same = |id: usize| known.get(id).is_some_and(|known| key(*known) == self.values[id]);
        writer.bits((0..self.values.len()).map(same));
        for (_, value) in self.values.iter().enumerate().filter(|(id, _)| !same(*id)) {
            writer.fixed(u64::from(value.to_bits()), 4);
        }
        writer.bits((0..self.values.len() as Id).map(|id| self.high.contains(id)));
    }

    pub(crate) fn read(reader: &mut Reader<'_>, samples: usize, known: &[f32]) -> Option<Self> {
        let same: Vec<bool> = reader.bits(samples)?.collect();
        let mut values = Vec::with_capacity(samples);
        for (id, same) in same.into_iter().enumerate() {
            let value = if same { key(*known.get(id)?) } else { f32::from_bits(reader.fixed(4)? as u32) };
            values.push(Some(value).filter(|value| !value.is_nan())?);
        }
        let mut high = Bits::new(samples);
        (0..).zip(reader.bits(samples)?).filter(|(_, is_high)| *is_high).for_each(|(id, _)| {
            high.insert(id);
        });
        let high_len = high.count();
        Some(Self { values, high, high_len, ..Self::default() })
    }

    /// How many H-samples there are.
    pub fn high_len(&self) -> usize {
        self.high_len
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_high_value_is_at_least_every_low_one_and_the_high_ones_fit(
            values in proptest::collection::vec(prop_oneof![4 => 0.0f32..4.0, 1 => Just(1.0), 1 => Just(f32::NAN)], 1..80),
            sizes in proptest::collection::vec(0u64..30, 80),
            capacity in 30u64..600,
        ) {
            let ranking = Ranking::of(&values, 5, 6);
            let keys = Keys::new(values.clone(), &ranking, &sizes, capacity);
            let (high, low): (Vec<Id>, Vec<Id>) = (0..values.len() as Id).partition(|&id| keys.is_high(id));
            let least = high.iter().map(|&id| keys.value(id)).fold(f32::INFINITY, f32::min);
            prop_assert!(low.iter().all(|&id| keys.value(id) <= least));
            let bytes: u64 = high.iter().map(|&id| sizes[id as usize]).sum();
            prop_assert!(bytes <= capacity);
            prop_assert_eq!(high.len(), keys.high_len());
            // It ends only where the next one, of those that could ever fit, does not.
            let fits_alone = |id: &&Id| sizes[**id as usize] <= capacity;
            let next = ranking.order().iter().rev().filter(fits_alone).find(|id| !keys.is_high(**id));
            prop_assert!(next.is_none_or(|&next| bytes + sizes[next as usize] > capacity));
        }
    }

    #[test]
    fn what_a_job_gains_weighs_its_percentiles() {
        let keys = |values: [f32; 4]| {
            let keys = Keys::new(values.to_vec(), &Ranking::of(&values, 0, 0), &vec![10u64; 4], 20);
            keys.rank();
            Some(Arc::new(keys))
        };
        let one = Share { benefit: 2.0, keys: keys([1.0, 2.0, 3.0, f32::NAN]) };
        let two = Share { benefit: 4.0, keys: keys([4.0, 3.0, 2.0, 1.0]) };
        let silent = Share { benefit: 3.0, keys: None };
        let worth = |shares: &[&Share]| {
            let sum = Keys::sum(shares.iter().copied().cloned().collect());
            (0..4).map(|id| sum.value(id)).collect::<Vec<f32>>()
        };
        assert_eq!(
            worth(&[&one]),
            [0.5, 1.0, 1.5, 2.0],
            "what was never reported has the highest percentile"
        );
        assert_eq!(worth(&[&one, &two]), [4.5, 4.0, 3.5, 3.0]);
        assert_eq!(worth(&[&one, &silent]), [2.0, 2.5, 3.0, 3.5]);
    }

    #[test]
    fn a_sample_larger_than_the_cache_is_passed_over() {
        let values = vec![9.0, 2.0, 1.0];
        let keys = Keys::new(values.clone(), &Ranking::of(&values, 0, 0), &vec![100u64, 10, 10], 10);
        assert_eq!((keys.is_high(0), keys.is_high(1), keys.is_high(2)), (false, true, false));
    }
}
