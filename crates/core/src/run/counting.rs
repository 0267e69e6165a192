//! Counts one epoch, as every report does.

use std::sync::Arc;

use super::Outcome;
use crate::Id;
use crate::counters::Counters;
use crate::packages::Packages;
use crate::policy::Sizes;
use crate::sampling::Plan;

/// The counters of the epoch being decided.
pub(super) struct Tally {
    sizes: Arc<dyn Sizes>,
    counters: Counters,
}

impl Tally {
    pub(super) fn new(sizes: Arc<dyn Sizes>) -> Self {
        Self { sizes, counters: Counters::default() }
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(super) fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    pub(super) fn begin(&mut self) {
        self.counters = Counters::default();
    }

    pub(super) fn plan(&mut self, plan: &Plan) {
        self.counters.planned = plan.len() as u64;
    }

    /// A sample is read for no serving.
    pub(super) fn other_read(&mut self, id: Id) {
        self.counters.other_reads += 1;
        self.read(1, self.sizes.size(id));
    }

    /// A package is read.
    pub(super) fn package(&mut self, packages: &Packages, package: u32) {
        self.counters.read_package(packages, package);
    }

    /// A slot is served; the bytes of its own read.
    pub(super) fn serve(&mut self, id: Id, outcome: Outcome, fresh: bool, substituted: bool) -> u64 {
        self.counters.distinct += u64::from(fresh);
        self.counters.substituted += u64::from(substituted);
        let size = self.sizes.size(id);
        match outcome {
            Outcome::Hit => self.counters.hit += 1,
            Outcome::Packed => {
                self.counters.packed += 1;
                self.counters.package_bytes_served += size;
            }
            Outcome::Single => {
                self.counters.single += 1;
                self.read(1, size);
                return size;
            }
        }
        0
    }

    pub(super) fn reported(&mut self, taken: u64, rejected: u64) {
        self.counters.reported += taken;
        self.counters.rejected_scores += rejected;
    }

    fn read(&mut self, samples: u64, bytes: u64) {
        self.counters.storage_reads += samples;
        self.counters.storage_requests += samples;
        self.counters.storage_bytes += bytes;
    }
}
