//! What requests wait for, and how long batches waited, as a histogram.
//!
//! Its buckets grow by an eighth, so that percentiles cost no memory that grows with the run.

/// What a request waits for. There is nothing else: a change of nodes, say, is waited for by none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitReason {
    /// Reads from storage.
    Storage,
    /// Bytes of another node.
    Node,
    /// Memory, because its reader leases all that there is.
    Memory,
    /// Samples of a batch that measures what a job gains.
    Probe,
    /// The plan of an epoch that a rank begins.
    Plan,
}

/// Waiting times of batches.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Waits {
    buckets: Vec<u32>,
    batches: u64,
    sum: f64,
}

/// Buckets for each doubling of the time.
const STEPS: f64 = 8.0;
/// The time below which all waits share the first bucket: less than a socket's round trip.
const FLOOR: f64 = 1e-6;

impl Waits {
    /// Adds one batch's wait, in seconds.
    pub fn add(&mut self, seconds: f64) {
        let seconds = seconds.max(0.0);
        let bucket = ((seconds / FLOOR).max(1.0).log2() * STEPS) as usize;
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.batches += 1;
        self.sum += seconds;
    }

    /// Adds other waits to these.
    pub fn merge(&mut self, other: &Self) {
        self.buckets.resize(self.buckets.len().max(other.buckets.len()), 0);
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.batches += other.batches;
        self.sum += other.sum;
    }

    /// How many batches there were.
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// All waits together, in seconds.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// The wait that a share of all batches did not exceed, to an eighth of its value.
    pub fn quantile(&self, share: f64) -> f64 {
        let mut left = (share * self.batches as f64).ceil().max(1.0) as u64;
        for (bucket, &count) in self.buckets.iter().enumerate() {
            left = left.saturating_sub(u64::from(count));
            if left == 0 {
                return if bucket == 0 { 0.0 } else { FLOOR * ((bucket as f64 + 0.5) / STEPS).exp2() };
            }
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_an_eighth_of_the_truth() {
        let mut waits = Waits::default();
        for millisecond in 1..=1000 {
            waits.add(f64::from(millisecond) / 1000.0);
        }
        for (share, truth) in [(0.5, 0.5), (0.95, 0.95), (0.99, 0.99)] {
            assert!((waits.quantile(share) / truth - 1.0).abs() < 0.125);
        }
        assert_eq!(waits.batches(), 1000);
        assert!((waits.sum() - 500.5).abs() < 1e-6);
    }

    #[test]
    fn no_wait_is_zero() {
        assert_eq!(Waits::default().quantile(0.99), 0.0);
        let mut waits = Waits::default();
        waits.add(0.0);
        assert_eq!(waits.quantile(0.5), 0.0);
    }
}
