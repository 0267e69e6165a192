//! What is counted, for each job and epoch, everywhere.
//!
//! Every serving is exactly one of `hit` (no storage read was made for it), `packed` (its bytes came in a
//! package) and `single` (a read of its own, prefetched or not), so `served = hit + packed + single`. How
//! long readers waited is kept as a histogram whose buckets grow by an eighth, so that percentiles cost no
//! memory that grows with the run.

use crate::packages::Packages;

/// The counters of one job and epoch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counters {
    /// Slots of the plan, all ranks together.
    pub planned: u64,
    /// Servings for which no storage read was made.
    pub hit: u64,
    /// Servings whose bytes came in a package.
    pub packed: u64,
    /// Servings with a read of their own.
    pub single: u64,
    /// Slots in which the plan serves another id than the one selected.
    pub substituted: u64,
    /// Different ids served.
    pub distinct: u64,
    /// Samples fetched from storage.
    pub storage_reads: u64,
    /// Samples fetched for other reasons than a serving.
    pub other_reads: u64,
    /// Requests made to storage, repeated ones included.
    pub storage_requests: u64,
    /// Bytes that came from storage.
    pub storage_bytes: u64,
    /// Packages that were read; inside `storage_requests`.
    pub package_reads: u64,
    /// Bytes of the packages that were read.
    pub package_bytes: u64,
    /// Bytes of the servings that came in packages.
    pub package_bytes_served: u64,
    /// Samples that the packer fetched; inside `storage_reads`.
    pub pack_reads: u64,
    /// Bytes that the packer fetched; inside `storage_bytes`.
    pub pack_bytes_read: u64,
    /// Bytes that the packer wrote.
    pub pack_bytes_written: u64,
    /// Servings whose sample the policy keeps but whose bytes were not there, because they were lost in a restart, found
    /// no room or could not be read before; inside `single`.
    pub refill: u64,
    /// Slots that no reader asked for.
    pub abandoned: u64,
    /// Batches answered from memory of their own, because the arena had no room.
    pub spilled: u64,
    /// Servings that a reader waited for.
    pub late: u64,
    /// Servings that ended in an error.
    pub failed: u64,
    /// Scores taken.
    pub reported: u64,
    /// Scores refused: not a number, infinite or negative.
    pub rejected_scores: u64,
    /// Plans that were made without waiting longer for a rank that had not come or not reported.
    pub overdue: u64,
    /// Packages that were found torn, damaged, foreign or gone, and were dropped.
    pub packages_lost: u64,
    /// How long each rank's batches waited, by rank.
    pub waits: Vec<Waits>,
}

impl Counters {
    /// Adds another epoch's figures to these.
    pub fn add(&mut self, other: &Self) {
        let Self {
            planned,
            hit,
            packed,
            single,
            substituted,
            distinct,
            storage_reads,
            other_reads,
            storage_requests,
            storage_bytes,
            refill,
            abandoned,
            spilled,
            late,
            failed,
            reported,
            rejected_scores,
            package_reads,
            package_bytes,
            package_bytes_served,
            pack_reads,
            pack_bytes_read,
            pack_bytes_written,
            overdue,
            packages_lost,
            waits,
        } = other;
        self.planned += planned;
        self.hit += hit;
        self.packed += packed;
        self.single += single;
        self.substituted += substituted;
        self.distinct += distinct;
        self.storage_reads += storage_reads;
        self.other_reads += other_reads;
        self.storage_requests += storage_requests;
        self.storage_bytes += storage_bytes;
        self.refill += refill;
        self.abandoned += abandoned;
        self.spilled += spilled;
        self.late += late;
        self.failed += failed;
        self.reported += reported;
        self.rejected_scores += rejected_scores;
        self.package_reads += package_reads;
        self.package_bytes += package_bytes;
        self.package_bytes_served += package_bytes_served;
        self.pack_reads += pack_reads;
        self.pack_bytes_read += pack_bytes_read;
        self.pack_bytes_written += pack_bytes_written;
        self.overdue += overdue;
        self.packages_lost += packages_lost;
        for (rank, waits) in waits.iter().enumerate() {
            self.waits_of(rank as u32).merge(waits);
        }
    }

    /// Counts the read of a package.
    pub fn read_package(&mut self, packages: &Packages, package: u32) {
        self.storage_reads += u64::from(packages.packed(package));
        self.package_reads += 1;
        self.package_bytes += packages.bytes(package);
        self.storage_bytes += packages.extent(package);
        self.storage_requests += 1;
    }

    /// All servings.
    pub fn served(&self) -> u64 {
        self.hit + self.packed + self.single
    }

    /// The papers' hit ratio, which counts what came in packages: (hit + packed) / served.
    pub fn papers_hit_ratio(&self) -> f64 {
        (self.hit + self.packed) as f64 / self.served().max(1) as f64
    }

    /// The share of package bytes that were served to nobody.
    pub fn package_waste(&self) -> f64 {
        if self.package_bytes == 0 {
            return 0.0;
        }
        1.0 - self.package_bytes_served as f64 / self.package_bytes as f64
    }

    /// The waits of `rank`.
    pub fn waits_of(&mut self, rank: u32) -> &mut Waits {
        let rank = rank as usize;
        if self.waits.len() <= rank {
            self.waits.resize_with(rank + 1, Waits::default);
        }
        &mut self.waits[rank]
    }
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
    fn sums_are_those_of_the_parts() {
        let mut one = Counters { hit: 1, single: 2, storage_bytes: 7, ..Counters::default() };
        one.waits_of(1).add(0.5);
        let mut sum = one.clone();
        sum.add(&one);
        assert_eq!((sum.served(), sum.storage_bytes), (6, 14));
        assert_eq!((sum.waits[1].batches(), sum.waits[0].batches()), (2, 0));
    }

    #[test]
    fn nothing_waited_is_zero() {
        assert_eq!(Waits::default().quantile(0.99), 0.0);
        let mut waits = Waits::default();
        waits.add(0.0);
        assert_eq!(waits.quantile(0.5), 0.0);
    }
}
