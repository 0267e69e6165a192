//! Carries out what the packer chose, as far as counting goes.
//!
//! Packages chosen when a plan begins are written during its epoch. A sample that passes through memory in
//! that epoch, because the plan serves it or it is resident, costs the packer no read; every other one does.

use super::Planner;
use crate::Id;
use crate::bits::Bits;
use crate::counters::Counters;
use crate::policy::{Policy, Sizes};
use crate::sampling::Plan;

/// The packages being written in this epoch.
#[derive(Debug, Default)]
pub(super) struct Work {
    packing: Vec<(u32, Vec<Id>)>,
}

impl Work {
    /// Begins to write `packing` during the epoch of `plan`, and counts what that costs.
    pub(super) fn begin(
        &mut self,
        packing: Vec<(u32, Vec<Id>)>,
        plan: &Plan,
        policy: &dyn Policy,
        sizes: &dyn Sizes,
        counters: &mut Counters,
    ) {
        let mut passing = Bits::new(if packing.is_empty() { 0 } else { sizes.len() });
        if !packing.is_empty() {
            plan.ids().iter().for_each(|&id| {
                passing.insert(id);
            });
        }
        for &id in packing.iter().flat_map(|(_, ids)| ids) {
            let size = sizes.size(id);
            counters.pack_bytes_written += size;
            if !passing.contains(id) && !policy.contains(id) {
                count_read(counters, size);
            }
        }
        counters.storage_requests += packing.len() as u64;
        self.packing = packing;
    }

    /// What was written is complete.
    pub(super) fn complete(&mut self, planner: &mut Planner) {
        for (number, ids) in std::mem::take(&mut self.packing) {
            planner.packed(number, &ids);
        }
    }
}

fn count_read(counters: &mut Counters, size: u64) {
    counters.pack_reads += 1;
    counters.pack_bytes_read += size;
    counters.storage_reads += 1;
    counters.storage_requests += 1;
    counters.storage_bytes += size;
}
