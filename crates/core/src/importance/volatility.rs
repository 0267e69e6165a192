//! How much each sample's rank moves from epoch to epoch, and the set S of those that move most (ImPACT III-B).
//!
//! The variance of a sample's percentile over epochs is kept online (Welford). After each epoch S holds the ids
//! of highest variance that fit a number of bytes; once it shares more than 80 % of its ids with the S of the
//! epoch before, it is stable and is frozen, and the variances are dropped.
//!
//! A sample has six bytes: how many epochs reported it, up to 255 (in more, the oldest fade), the mean in
//! 65,536ths and the variance in 2^-26. Memory and a saved state hold the same, so a restart changes nothing.
//!
//! Differs from the paper: S is bounded in bytes, not in items; an epoch in which a sample was not reported
//! says nothing of it.

use std::sync::Arc;

use super::Ranking;
use crate::Id;
use crate::policy::Sizes;
use crate::saved::{Reader, Writer};

/// The share of its ids that S must keep to be stable.
pub const OVERLAP: f64 = 0.8;

/// The steps in which means and variances are kept. No percentile reaches 1, and no variance 1/4.
const MEAN: f64 = (1u64 << 16) as f64;
const VARIANCE: f64 = (1u64 << 26) as f64;
/// The most of a variance of 24 bits.
const MOST: u32 = (1 << 24) - 1;

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Moments {
    variance: u32,
    mean: u16,
    count: u8,
}

impl Moments {
    fn take(&mut self, percentile: f64) {
        self.count = self.count.saturating_add(1);
        let count = f64::from(self.count);
        let from_old = percentile - f64::from(self.mean) / MEAN;
        let mean = percentile - from_old * (1.0 - 1.0 / count);
        let variance = f64::from(self.variance) / VARIANCE;
        let variance = variance + (from_old * (percentile - mean) - variance) / count;
        // Casts end at the largest number there is.
        self.mean = (mean * MEAN).round() as u16;
        self.variance = ((variance * VARIANCE).round() as u32).min(MOST);
    }
}

/// The variance of each sample's rank, and the set S.
#[derive(Debug, Clone, Default)]
pub struct Volatility {
    moments: Vec<Moments>,
    last: Vec<Id>,
    /// The share of its ids that the last S shared with the one before, where both are known.
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
            if let Some(moments) = self.moments.get_mut(ranking.order()[place] as usize) {
                moments.take(ranking.percentile(place));
            }
        }
    }

    /// The variance of each sample's percentile; nothing once S is frozen.
    pub fn variances(&self) -> Vec<f32> {
        self.moments.iter().map(|moments| moments.variance as f32 / VARIANCE as f32).collect()
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
        let stable = self.overlap.is_some_and(|overlap| overlap > OVERLAP);
        self.last = set;
        if stable {
            self.freeze();
        }
    }

    /// The share of its ids that the last S shared with the one before, where both are known: not in the first two
    /// epochs, nor in the first after a restart.
    pub fn overlap(&self) -> Option<f64> {
        self.overlap
    }

    /// Freezes S as it is, because the warm-up has lasted long enough.
    pub fn freeze(&mut self) {
        if self.frozen.is_none() {
            self.frozen = Some(std::mem::take(&mut self.last).into());
            self.moments = Vec::new();
        }
    }

    /// S, once it is frozen.
    pub fn frozen(&self) -> Option<&Arc<[Id]>> {
        self.frozen.as_ref()
    }

    /// Writes what [`Self::restore`] reads: six bytes a sample and S, or S alone once it is frozen.
    pub(crate) fn save(&self, out: &mut Writer) {
        out.bits(std::iter::once(self.frozen.is_some()));
        for moments in &self.moments {
            out.fixed(moments.count.into(), 1);
            out.fixed(moments.mean.into(), 2);
            out.fixed(moments.variance.into(), 3);
        }
        out.ids(self.frozen.as_deref().unwrap_or(&self.last).iter().copied());
    }

    /// What [`Self::save`] wrote for as many samples, or nothing if it cannot be that.
    pub(crate) fn restore(samples: usize, saved: &mut Reader<'_>) -> Option<Self> {
        let frozen = saved.bits(1)?.next()?;
        let mut restored = Self::new(if frozen { 0 } else { samples });
        for moments in &mut restored.moments {
            let (count, mean) = (saved.fixed(1)? as u8, saved.fixed(2)? as u16);
            *moments = Moments { count, mean, variance: saved.fixed(3)? as u32 };
        }
        restored.last = saved.ids()?;
        if frozen {
            restored.freeze();
        }
        // Ascending, as it is searched.
        let set = restored.frozen.as_deref().unwrap_or(&restored.last);
        set.is_sorted_by(|a, b| a < b).then_some(())?;
        Some(restored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

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
        assert!((variances[0] - expected).abs() < 1e-5 && (variances[5] - expected).abs() < 1e-5);
        assert!(variances[1..5].iter().all(|variance| *variance < 1e-9));
    }

    #[test]
    fn the_set_is_frozen_when_it_repeats() {
        assert!(after(2).frozen().is_none());
        assert_eq!((after(1).overlap(), after(2).overlap()), (None, Some(0.5)));
        let stable = after(3);
        assert_eq!(stable.frozen().map(|set| set.to_vec()), Some(vec![0, 5]));
    }

    #[test]
    fn an_epoch_without_a_report_says_nothing() {
        let mut volatility = after(1);
        volatility.observe(&[f32::NAN; 6], 0, 1);
        assert!(volatility.moments.iter().all(|moments| moments.count == 1));
    }

    #[test]
    fn variances_are_as_good_as_those_worked_out_at_once() {
        let mut volatility = Volatility::new(500);
        let mut percentiles = vec![Vec::new(); 500];
        for epoch in 0..40 {
            let loss = |id| Rng::new(id, epoch, "loss").unit() as f32 + id as f32 / 250.0;
            let losses: Vec<f32> = (0..500).map(loss).collect();
            volatility.observe(&losses, 0, epoch);
            let ranks = Ranking::of(&losses, 0, epoch).percentiles();
            percentiles.iter_mut().zip(ranks).for_each(|(all, rank)| all.push(f64::from(rank)));
        }
        for (own, all) in volatility.variances().into_iter().zip(percentiles) {
            let mean = all.iter().sum::<f64>() / 40.0;
            let exact = all.iter().map(|rank| (rank - mean).powi(2)).sum::<f64>() / 40.0;
            assert!((f64::from(own) - exact).abs() < 5e-6, "{own} beside {exact}");
        }
    }

    #[test]
    fn what_was_saved_goes_on_the_same() {
        for epochs in 0..4 {
            let before = after(epochs);
            let mut writer = Writer::new(6);
            before.save(&mut writer);
            let bytes = writer.seal("test");
            let restore = |samples| Volatility::restore(samples, &mut Reader::open(&bytes, "test", 6)?);
            let restored = restore(6).unwrap();
            assert_eq!(restored.moments, before.moments);
            assert_eq!((restored.frozen(), &restored.last), (before.frozen(), &before.last));
            assert!(epochs == 3 || restore(7).is_none());
            // A flag, three ids of which each takes a byte, and the checksum.
            assert!(epochs < 3 || bytes.len() == 1 + 3 + 8, "S alone is saved once it is frozen");
        }
    }
}
