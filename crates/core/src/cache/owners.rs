//! What leaves a cache because another node owns it from now on.
//!
//! A plan has its owners for as long as it is carried out. With the first slot of a plan whose owners are others than the
//! last one's, a *round* over all samples begins: each slot that is passed looks at a few of them, and what is kept and
//! not owned leaves. So no slot costs more than another, however much is kept; the same residents have left at the same
//! slot everywhere; and a round ends within a 32nd of an epoch over all samples. What has not left yet is never asked for,
//! since its slots are another node's: all that it costs is room.
//!
//! By a directory owners change with every plan. A round that is not over then goes on from where it is, once round all
//! samples, so short plans one after the other look at all of them too.

use std::ops::Range;

use crate::cluster::Ownership;

/// Samples that each slot looks at.
const LOOKED_AT: u64 = 32;

/// Who owned samples last, and how far the round is.
#[derive(Default)]
pub(super) struct Owners {
    digest: Option<u64>,
    /// The sample that is looked at next.
    next: u64,
    /// How many are still to be looked at; none where no round is under way.
    left: u64,
}

impl Owners {
    /// A slot of a plan with these owners is passed: those of `samples` that it looks at, as long as a round is under way.
    pub(super) fn pass(&mut self, ownership: &Ownership, samples: u64) -> Option<Range<u64>> {
        let digest = ownership.digest();
        if self.digest.replace(digest) != Some(digest) {
            self.left = samples;
        }
        let first = self.next;
        let end = samples.min(first + self.left.min(LOOKED_AT));
        self.left -= end - first;
        self.next = if end < samples { end } else { 0 };
        (first < end).then_some(first..end)
    }
}
