//! How much each sample's rank moves from epoch to epoch, and the set S of those that move most (ImPACT III-B).
//!
//! The variance of a sample's percentile over epochs is kept online (Welford), 12 bytes a sample. After each
//! epoch S holds the ids of highest variance that fit a number of bytes; once it shares more than 80 % of its
//! ids with the S of the epoch before, it is stable and is frozen.
//!
//! Differs from the paper: S is bounded in bytes, not in items; an epoch in which a sample was not reported
//! says nothing of it.

use std::sync::Arc;

use super::Ranking;
use crate::Id;
use crate::policy::Sizes;

/// The share of its ids that S must keep to be stable.
pub const OVERLAP: f64 = 0.8;

#[derive(Debug, Clone, Copy, Default)]
struct Moments {
    count: u32,
    mean: f32,
    squares: f32,
}

/// See the module's head.
#[derive(Debug, Clone, Default)]
pub struct Volatility {
    moments: Vec<Moments>,
    last: Vec<Id>,
    overlap: Option<f64>,
    frozen: Option<Arc<[Id]>>,
}

impl Volatility {
    /// Of `samples` that have not been seen yet.
    pub fn new(samples: usize) -> Self {
        Self { moments: vec![Moments::default(); samples], ..Self::default() }
    }

    /// Takes in one epoch's scores, not a number where a sample was not reported.
    pub fn observe(&mut self, values: &[f32], seed: u64, epoch: u64) {
        let ranking = Ranking::of(values, seed, epoch);
        for place in 0..ranking.reported() {
            let Some(moments) = self.moments.get_mut(ranking.order()[place] as usize) else { continue };
            let percentile = ranking.percentile(place) as f32;
            moments.count += 1;
            let from_old = percentile - moments.mean;
            moments.mean += from_old / moments.count as f32;
            moments.squares += from_old * (percentile - moments.mean);
        }
    }

    /// The variance of each sample's percentile.
    pub fn variances(&self) -> Vec<f32> {
        self.moments.iter().map(|moments| (moments.squares / moments.count.max(1) as f32).max(0.0)).collect()
    }

    /// Works S out anew: the ids of highest variance that fit `bytes`, ascending. Frozen once it is stable.
    pub fn settle(&mut self, sizes: &dyn Sizes, bytes: u64, seed: u64, epoch: u64) {
        if self.frozen.is_some() {
            return;
        }
        let ranking = Ranking::of(&self.variances(), seed, epoch);
        let (mut left, mut set) = (bytes, Vec::new());
        for &id in ranking.order().iter().rev() {
            let size = sizes.size(id);
            if size > bytes {
                continue;
            }
            let Some(rest) = left.checked_sub(size) else { break };
            left = rest;
            set.push(id);
        }
        set.sort_unstable();
        let shared = set.iter().filter(|id| self.last.binary_search(id).is_ok()).count();
        self.overlap = (!self.last.is_empty()).then(|| shared as f64 / set.len().max(1) as f64);
        self.last = set;
        if self.overlap.is_some_and(|overlap| overlap > OVERLAP) {
            self.freeze();
        }
    }

    /// Freezes S as it is, because the warm-up has lasted long enough.
    pub fn freeze(&mut self) {
        if self.frozen.is_none() {
            self.frozen = Some(std::mem::take(&mut self.last).into());
        }
    }

    /// S, once it is frozen.
    pub fn frozen(&self) -> Option<&Arc<[Id]>> {
        self.frozen.as_ref()
    }

    /// What share of S was in the S of the epoch before, when last worked out.
    pub fn overlap(&self) -> Option<f64> {
        self.overlap
    }

    /// All of it as bytes: for each sample its count, mean and squares, then S and whether it is frozen.
    pub fn save(&self, out: &mut Vec<u8>) {
        for moments in &self.moments {
            out.extend(moments.count.to_le_bytes());
            out.extend(moments.mean.to_le_bytes());
            out.extend(moments.squares.to_le_bytes());
        }
        out.push(u8::from(self.frozen.is_some()));
        let set = self.frozen.as_deref().unwrap_or(&self.last);
        out.extend(set.iter().flat_map(|id| id.to_le_bytes()));
    }

    /// What [`Self::save`] wrote for as many samples, or nothing if it cannot be that.
    pub fn restore(samples: usize, bytes: &[u8]) -> Option<Self> {
        let (moments, rest) = bytes.split_at_checked(samples.checked_mul(12)?)?;
        let (&frozen, set) = rest.split_first()?;
        let word = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_le_bytes);
        let mut restored = Self::new(samples);
        for (moment, bytes) in restored.moments.iter_mut().zip(moments.chunks_exact(12)) {
            let [mean, squares] = [word(&bytes[4..8])?, word(&bytes[8..])?].map(f32::from_bits);
            *moment = Moments { count: word(&bytes[..4])?, mean, squares };
        }
        let set: Option<Vec<Id>> = set.chunks(4).map(word).collect();
        restored.last = set.filter(|set| set.iter().all(|&id| (id as usize) < samples))?;
        if frozen == 1 {
            restored.freeze();
        }
        (frozen <= 1).then_some(restored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four samples of a steady rank and two that swap first and last.
    fn epoch(swapped: bool) -> [f32; 6] {
        if swapped { [9.0, 2.0, 3.0, 4.0, 5.0, 1.0] } else { [1.0, 2.0, 3.0, 4.0, 5.0, 9.0] }
    }

    fn after(epochs: u64) -> Volatility {
        let mut volatility = Volatility::new(6);
        for number in 0..epochs {
            volatility.observe(&epoch(number % 2 == 1), 0, number);
            volatility.settle(&vec![10u64; 6], 20, 0, number);
        }
        volatility
    }

    #[test]
    fn the_variance_is_that_of_the_percentiles() {
        let variances = after(2).variances();
        let expected = (5.0f32 / 6.0 / 2.0).powi(2);
        assert!((variances[0] - expected).abs() < 1e-6 && (variances[5] - expected).abs() < 1e-6);
        assert!(variances[1..5].iter().all(|variance| *variance < 1e-9));
    }

    #[test]
    fn the_set_is_frozen_when_it_repeats() {
        assert!(after(2).frozen().is_none());
        let stable = after(3);
        assert_eq!(
            (stable.frozen().map(|set| set.to_vec()), stable.overlap()),
            (Some(vec![0, 5]), Some(1.0))
        );
    }

    #[test]
    fn an_epoch_without_a_report_says_nothing() {
        let mut volatility = after(1);
        volatility.observe(&[f32::NAN; 6], 0, 1);
        assert!(volatility.moments.iter().all(|moments| moments.count == 1));
    }

    #[test]
    fn what_was_saved_goes_on_the_same() {
        for epochs in 0..4 {
            let before = after(epochs);
            let mut bytes = Vec::new();
            before.save(&mut bytes);
            let restored = Volatility::restore(6, &bytes).unwrap();
            assert_eq!(restored.variances(), before.variances());
            assert_eq!((restored.frozen(), &restored.last), (before.frozen(), &before.last));
            assert!(Volatility::restore(7, &bytes).is_none());
        }
        assert!(Volatility::restore(0, &[2]).is_none() && Volatility::restore(1, &[]).is_none());
    }
}
