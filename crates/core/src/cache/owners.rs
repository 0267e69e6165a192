//! What leaves a cache because another node owns it from now on.
//!
//! A plan has the owners of the view that it was made in. With the first slot of a plan whose owners are others than the
//! last one's, a *round* over all samples begins: each slot that is passed looks at a few of them, and what is kept and
//! not owned leaves. So no slot costs more than another, however much is kept; the same residents have left at the same
//! slot everywhere; and a round ends within a 32nd of an epoch over all samples. What has not left yet is never asked for,
//! since its slots are another node's: all that it costs is room.

use std::ops::Range;

use crate::cluster::Ownership;

/// Samples that each slot looks at.
const LOOKED_AT: u64 = 32;

/// Who owned samples last, and how far the round is.
#[derive(Default)]
pub(super) struct Owners {
    owners: Option<u64>,
    /// The first sample that was not looked at; none where no round is under way.
    next: Option<u64>,
}

impl Owners {
    /// A slot of a plan with these owners is passed: those of `samples` that it looks at, as long as a round is under way.
    pub(super) fn pass(&mut self, ownership: &Ownership, samples: u64) -> Option<Range<u64>> {
        let owners = ownership.digest();
        if self.owners.replace(owners) != Some(owners) {
            self.next = Some(0);
        }
        let first = self.next?;
        let end = samples.min(first + LOOKED_AT);
        self.next = Some(end).filter(|&end| end < samples);
        Some(first..end)
    }
}
