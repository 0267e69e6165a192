//! Counts what the packer does.
//!
//! All of it is settled when a plan is made, and is counted then: what is read for packages, and what is written. When it
//! is read and written changes nothing.

use super::Packing;
use crate::counters::Counters;
use crate::packages::{Packages, length};
use crate::policy::Sizes;

impl Packing {
    /// Counts it, in the epoch whose plan it was chosen with and which was made from `packages`.
    pub fn count(&self, packages: Option<&Packages>, sizes: &dyn Sizes, counters: &mut Counters) {
        for (_, ids) in &self.packages {
            counters.pack_bytes_written += length(ids.len(), ids.iter().map(|&id| sizes.size(id)).sum());
            counters.storage_requests += 1;
        }
        for &(package, _) in &self.whole {
            let (samples, bytes) = packages
                .map_or((0, 0), |packages| (u64::from(packages.packed(package)), packages.extent(package)));
            count_read(counters, samples, bytes);
        }
        for &id in &self.single {
            count_read(counters, 1, sizes.size(id));
        }
    }
}

fn count_read(counters: &mut Counters, samples: u64, bytes: u64) {
    counters.pack_reads += samples;
    counters.pack_bytes_read += bytes;
    counters.storage_reads += samples;
    counters.storage_requests += 1;
    counters.storage_bytes += bytes;
}
