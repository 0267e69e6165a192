//! How well packages mix labels: whether a batch that is served from them looks like one of a shuffle.
//!
//! Easy samples come package after package, shuffled within a buffer of a few ([`crate::sampling`]). That is as good
//! as a shuffle where packages are random. Runs of shards are what their writer made them: where shards are sorted
//! by class, a batch holds a handful of labels, and training suffers without a word.
//!
//! So the number of different labels in a batch is worked out beforehand. Packages are put in random order and
//! gathered into buffers as a plan does; B samples drawn from a buffer of N, c of them with one label, miss that
//! label with probability C(N-c, B) / C(N, B). The sum over labels of one minus that, in the mean over buffers, is
//! held against the same for all packages together. A buffer of less than a batch goes on with the next.

use std::collections::HashMap;

use super::Packages;
use crate::{Id, Rng};

/// The batch that is asked about. Smaller ones suffer less, and larger ones more.
pub const BATCH: usize = 256;

/// The least share of a shuffle's labels with which packages are used.
const ENOUGH: f64 = 0.8;

/// Buffers that are looked at.
const BUFFERS: usize = 64;

/// The expected number of different labels in a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mixing {
    /// From packages, shuffled within the buffer.
    pub buffered: f64,
    /// From a shuffle of all that lies in them.
    pub shuffled: f64,
}

impl Mixing {
    /// Of `packages` that are shuffled within `buffer` bytes; none where a sample has no label.
    pub fn of(packages: &Packages, buffer: u64, label: impl Fn(Id) -> Option<i64>) -> Option<Self> {
        let mut all = Labels::default();
        for package in packages.living() {
            all.add(packages.members(package), &label)?;
        }
        let batch = BATCH.min(all.samples);
        let mut order: Vec<u32> = packages.living().collect();
        Rng::new(0, 0, "mixing").shuffle(&mut order);
        let (mut sum, mut buffers) = (0.0, 0);
        let (mut group, mut bytes) = (Labels::default(), 0u64);
        for package in order {
            if bytes + packages.bytes(package) > buffer && group.samples >= batch {
                sum += group.different(batch);
                buffers += 1;
                (group, bytes) = (Labels::default(), 0);
                if buffers == BUFFERS {
                    break;
                }
            }
            bytes += packages.bytes(package);
            group.add(packages.members(package), &label)?;
        }
        if buffers < BUFFERS && group.samples >= batch {
            sum += group.different(batch);
            buffers += 1;
        }
        let shuffled = all.different(batch);
        Some(Self { buffered: sum / buffers.max(1) as f64, shuffled })
    }

    /// Whether batches are mixed well enough to be trained with.
    pub fn is_enough(&self) -> bool {
        self.buffered >= ENOUGH * self.shuffled
    }
}

/// How often each label comes.
#[derive(Default)]
struct Labels {
    counts: HashMap<i64, usize>,
    samples: usize,
}

impl Labels {
    fn add(&mut self, ids: &[Id], label: impl Fn(Id) -> Option<i64>) -> Option<()> {
        for &id in ids {
            *self.counts.entry(label(id)?).or_default() += 1;
            self.samples += 1;
        }
        Some(())
    }

    /// The expected number of different labels among `batch` of them.
    fn different(&self, batch: usize) -> f64 {
        let samples = self.samples;
        let missed = |&count: &usize| {
            let (fewer, more) = (count.min(batch), count.max(batch));
            let one = |drawn: usize| (samples - drawn).saturating_sub(more) as f64 / (samples - drawn) as f64;
            (0..fewer).map(one).product::<f64>()
        };
        // In order of size, so that the sum does not hang on that of the table.
        let mut counts: Vec<usize> = self.counts.values().copied().collect();
        counts.sort_unstable();
        counts.iter().map(|count| 1.0 - missed(count)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::runs;
    use super::*;

    /// Ten thousand samples of 3,000 bytes, side by side, in runs of a mebibyte.
    fn shards() -> Packages {
        runs(&vec![3_000u64; 10_000], 1 << 20, |_| Some(0))
    }

    fn mixing(buffer: u64, label: impl Fn(Id) -> i64) -> Mixing {
        Mixing::of(&shards(), buffer, |id| Some(label(id))).unwrap()
    }

    #[test]
    fn sorted_shards_are_not_mixed_by_two_runs_and_are_by_many() {
        let sorted = |id: Id| i64::from(id / 500);
        let two = mixing(2 * shards().largest(), sorted);
        assert!((two.shuffled - 20.0).abs() < 0.01, "{two:?}");
        assert!((2.0..4.5).contains(&two.buffered) && !two.is_enough(), "{two:?}");
        let many = mixing(40 << 20, sorted);
        assert!(many.is_enough(), "{many:?}");
    }

    #[test]
    fn shards_in_random_order_are_mixed_whatever_the_number_of_labels() {
        for labels in [1, 2, 20, 1_000, 10_000] {
            let random = |id: Id| Rng::new(1, u64::from(id), "label").below(labels) as i64;
            let found = mixing(2 * shards().largest(), random);
            let share = found.buffered / found.shuffled;
            assert!((0.97..1.03).contains(&share) && found.is_enough(), "{labels}: {found:?}");
        }
    }

    #[test]
    fn what_is_expected_is_what_drawing_gives() {
        let mut labels = Labels::default();
        let ids: Vec<Id> = (0..700).collect();
        let label = |id: Id| Some(i64::from(id.isqrt()));
        labels.add(&ids, label).unwrap();
        let (mut sum, mut rng) = (0, Rng::new(3, 0, "test"));
        for _ in 0..400 {
            let mut drawn = ids.clone();
            rng.shuffle(&mut drawn);
            let found: std::collections::HashSet<_> = drawn[..BATCH].iter().map(|&id| label(id)).collect();
            sum += found.len();
        }
        let mean = sum as f64 / 400.0;
        assert!((labels.different(BATCH) - mean).abs() < 0.2, "{} {mean}", labels.different(BATCH));
    }

    #[test]
    fn buffers_of_less_than_a_batch_are_taken_together() {
        // Runs of ten samples with a label each: a batch takes 26 of them.
        let packages = runs(&vec![60_000u64; 1_000], 600_000, |_| Some(0));
        let found = Mixing::of(&packages, 1_200_000, |id| Some(i64::from(id / 10))).unwrap();
        assert!((25.0..27.0).contains(&found.buffered) && !found.is_enough(), "{found:?}");
    }

    #[test]
    fn without_labels_nothing_is_judged() {
        assert_eq!(Mixing::of(&shards(), 2 << 20, |id| (id != 7).then_some(0)), None);
    }
}
