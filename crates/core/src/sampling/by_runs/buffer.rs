//! The buffer that mixes runs: they come whole, and samples are drawn from it at random.
//!
//! A run comes when there is room for all of it. A plan does not begin by filling the buffer, or its first batch would
//! wait for a part of the dataset: it begins with [`BEGIN`] runs and takes two in for each that it serves, until it is
//! full.

use std::ops::RangeInclusive;

use crate::packages::Packages;
use crate::policy::Sizes;
use crate::{Id, Rng};

/// The runs that a plan begins with: an eighth of those that the buffer holds, within these bounds.
const BEGIN: RangeInclusive<u64> = 32..=256;

/// Samples of the runs that have come and are not drawn yet.
pub(super) struct MixingBuffer<'a> {
    packages: &'a Packages,
    sizes: &'a dyn Sizes,
    /// The runs to come, the next one last.
    coming: Vec<u32>,
    ids: Vec<Id>,
    bytes: u64,
    /// The bytes that it may hold now, and when it is full.
    allowed: u64,
    limit: u64,
    /// The samples that are not drawn, here and to come.
    left: usize,
}

impl<'a> MixingBuffer<'a> {
    /// An empty one of `limit` bytes, which may be full `at_once`.
    pub(super) fn new(
        packages: &'a Packages,
        sizes: &'a dyn Sizes,
        mut coming: Vec<u32>,
        limit: u64,
        at_once: bool,
    ) -> Self {
        let left = coming.iter().map(|&run| packages.members(run).len()).sum();
        let largest = coming.iter().map(|&run| packages.bytes(run)).max().unwrap_or(0);
        let begin =
            (limit / 8).clamp(largest.saturating_mul(*BEGIN.start()), largest.saturating_mul(*BEGIN.end()));
        coming.reverse();
        let allowed = if at_once { limit } else { begin.min(limit) };
        Self { packages, sizes, coming, ids: Vec::new(), bytes: 0, allowed, limit, left }
    }

    /// The samples that are not drawn, here and to come.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Takes in the runs that there is room for, and says which.
    pub(super) fn fill(&mut self, mut came: impl FnMut(u32)) {
        while let Some(&run) = self.coming.last() {
            let bytes = self.packages.bytes(run);
            // A run that is larger than the buffer comes when nothing else is in it.
            if self.bytes + bytes > self.allowed && !self.ids.is_empty() {
                break;
            }
            self.coming.pop();
            self.ids.extend_from_slice(self.packages.members(run));
            self.bytes += bytes;
            came(run);
        }
    }

    /// Takes out any sample.
    pub(super) fn draw(&mut self, rng: &mut Rng) -> Option<Id> {
        if self.ids.is_empty() {
            return None;
        }
        let id = self.ids.swap_remove(rng.below(self.ids.len() as u64) as usize);
        let size = self.sizes.size(id);
        self.bytes = self.bytes.saturating_sub(size);
        self.allowed = self.allowed.saturating_add(size).min(self.limit);
        self.left -= 1;
        Some(id)
    }
}
