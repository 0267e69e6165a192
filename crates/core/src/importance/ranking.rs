//! Samples in the order of their scores.
//!
//! Ties are broken by a hash of (seed, epoch, id): equal positions would bias the selected fraction, and a
//! fixed hash would drop the same ids every epoch. Samples without a score come last, as the most important.
//!
//! The order is made by a radix sort over the bits of the scores, which for numbers from zero up sort as they
//! do; its first order is the hashed one, and since it is stable, ties stay in it. O(n), 16 bytes a sample
//! while it runs and 4 afterwards.

use crate::Id;
use crate::rng::Scatter;

const DIGIT: u32 = 11;

/// Samples in the order of their scores.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranking {
    order: Vec<Id>,
    reported: usize,
}

impl Ranking {
    /// Orders `values`, where not a number means never reported.
    pub fn of(values: &[f32], seed: u64, epoch: u64) -> Self {
        let scatter = Scatter::new(values.len() as u32, seed, epoch, "ties");
        let scattered = || (0..values.len() as u32).map(|place| scatter.at(place));
        let known = |id: &Id| !values[*id as usize].is_nan();
        // Adding zero turns the negative zero, whose bits are large, into the other.
        let pair = |id: Id| u64::from((values[id as usize] + 0.0).to_bits()) << 32 | u64::from(id);
        let mut pairs: Vec<u64> = scattered().filter(known).map(pair).collect();
        sort_by_upper_half(&mut pairs);
        let reported = pairs.len();
        let mut order = Vec::with_capacity(values.len());
        order.extend(pairs.into_iter().map(|pair| pair as u32));
        order.extend(scattered().filter(|id| !known(id)));
        Self { order, reported }
    }

    /// Every id, the least important first, those never reported last.
    pub fn order(&self) -> &[Id] {
        &self.order
    }

    /// How many of them were reported.
    pub fn reported(&self) -> usize {
        self.reported
    }

    /// The percentile of the id at `place` of the order: (position - 1/2) / m, 1 for one never reported.
    pub fn percentile(&self, place: usize) -> f64 {
        if place < self.reported { (place as f64 + 0.5) / self.reported as f64 } else { 1.0 }
    }

    /// The percentile of every id.
    pub fn percentiles(&self) -> Vec<f32> {
        let mut percentiles = vec![0.0; self.order.len()];
        for (place, &id) in self.order.iter().enumerate() {
            percentiles[id as usize] = self.percentile(place) as f32;
        }
        percentiles
    }
}

/// Sorts by the upper 32 bits, keeping the order of equal ones.
fn sort_by_upper_half(pairs: &mut Vec<u64>) {
    let mut other = vec![0; pairs.len()];
    for shift in [32, 32 + DIGIT, 32 + 2 * DIGIT] {
        let digit = |pair: u64| (pair >> shift) as usize & ((1 << DIGIT) - 1);
        let mut ends = vec![0usize; 1 << DIGIT];
        for &pair in pairs.iter() {
            ends[digit(pair)] += 1;
        }
        let mut sum = 0;
        for end in &mut ends {
            sum += std::mem::replace(end, sum);
        }
        for &pair in pairs.iter() {
            let place = &mut ends[digit(pair)];
            other[*place] = pair;
            *place += 1;
        }
        std::mem::swap(pairs, &mut other);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percentiles_lie_in_the_middle_of_their_places_and_the_unknown_above_all() {
        let ranking = Ranking::of(&[3.0, f32::NAN, 1.0, 2.0, 0.5], 0, 0);
        assert_eq!(ranking.order(), [4, 2, 3, 0, 1]);
        assert_eq!(ranking.percentiles(), [0.875, 1.0, 0.375, 0.625, 0.125]);
    }

    #[test]
    fn equal_scores_stand_in_another_order_each_epoch_and_seed() {
        let orders: BTreeSet<Vec<Id>> = [(0, 0), (0, 1), (1, 0)]
            .into_iter()
            .map(|(seed, epoch)| Ranking::of(&[1.0; 50], seed, epoch).order().to_vec())
            .collect();
        assert_eq!(orders.len(), 3);
        assert_eq!(Ranking::of(&[1.0; 50], 3, 4), Ranking::of(&[1.0; 50], 3, 4));
    }

    #[test]
    fn nothing_and_one_have_an_order() {
        assert_eq!(Ranking::of(&[], 0, 0).order(), [] as [Id; 0]);
        let one = Ranking::of(&[2.0], 0, 0);
        assert_eq!((one.order(), one.percentile(0)), (&[0][..], 0.5));
    }

    proptest! {
        #[test]
        fn it_orders_as_a_plain_sort_does(
            values in proptest::collection::vec(prop_oneof![0.0f32..10.0, Just(0.0), Just(-0.0), 0.0f32..1e30], 0..200)
        ) {
            let ranking = Ranking::of(&values, 1, 2);
            let mut sorted = values.clone();
            sorted.sort_unstable_by(|a, b| (a + 0.0).total_cmp(&(b + 0.0)));
            let ordered: Vec<f32> = ranking.order().iter().map(|&id| values[id as usize]).collect();
            prop_assert_eq!(ordered, sorted);
            prop_assert_eq!(ranking.order().iter().collect::<BTreeSet<_>>().len(), values.len());
        }
    }
}
