//! A batch that a reader has asked for: its samples while it is gathered, and the grant that answers it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use hotset_core::Id;
use hotset_core::schedule::Stage;
use hotset_store::LabelKind;

/// Why a sample is served.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Role {
    /// A plan says so; how its slot stood before.
    Planned { epoch: u64, slot: usize, before: Stage, generation: u64 },
    /// The dataset has no sampler and is kept as it is asked for; whether it was a hit.
    Kept { hit: bool },
    /// Beside the plan; whether it was a hit.
    Unplanned { hit: bool },
    /// To be re-evaluated: no serving.
    Reevaluated,
    /// To another node, for a slot that was served or left: no serving.
    Repeated,
}

/// One sample of a batch, whose object it holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    pub(crate) id: Id,
    pub(crate) object: u32,
    /// Whether the object was read for it alone, though the sample is kept.
    pub(crate) apart: bool,
    /// What is kept of the sample beside that.
    pub(crate) original: Option<u32>,
    /// Whether it came from another node, and no table names its object.
    pub(crate) visits: bool,
    pub(crate) role: Role,
}

/// Where one sample of a batch lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The segment's number.
    pub segment: u32,
    /// Where in it the sample begins.
    pub offset: u64,
    /// The sample's bytes.
    pub length: u64,
}

/// A segment that a reader has not been handed before.
#[derive(Debug, Clone)]
pub struct NewSegment {
    /// Its number.
    pub segment: u32,
    /// Its bytes.
    pub length: u64,
    /// What to map.
    pub descriptor: Arc<OwnedFd>,
}

/// A batch, leased to its reader until it is released.
#[derive(Debug)]
pub struct Grant {
    /// Names the lease.
    pub lease: u64,
    /// One for each index, in the order they were asked for.
    pub entries: Vec<Entry>,
    /// What labels are.
    pub label_kind: LabelKind,
    /// One for each index, unless the dataset has no labels; floats by their bits, lists one after the other.
    pub labels: Vec<i64>,
    /// How many of them belong to each index, where labels are lists.
    pub label_lengths: Vec<u32>,
    /// Begin and length of every part of every sample, in its bytes; empty unless samples have several parts.
    pub parts: Vec<u32>,
    /// Segments to map first.
    pub segments: Vec<NewSegment>,
    /// Segments that are gone.
    pub dropped: Vec<u32>,
    /// What the reader should tell its user.
    pub remark: Option<String>,
}

impl Item {
    /// The epoch its serving is counted in.
    pub(crate) fn epoch(&self) -> Option<u64> {
        self.plan().map(|(epoch, _)| epoch)
    }

    /// The epoch and the generation of the plan that serves it.
    pub(crate) fn plan(&self) -> Option<(u64, u64)> {
        match self.role {
            Role::Planned { epoch, generation, .. } => Some((epoch, generation)),
            Role::Kept { .. } | Role::Unplanned { .. } | Role::Reevaluated | Role::Repeated => None,
        }
    }

    /// Its slot there.
    pub(crate) fn slot(&self) -> Option<usize> {
        match self.role {
            Role::Planned { slot, .. } => Some(slot),
            Role::Kept { .. } | Role::Unplanned { .. } | Role::Reevaluated | Role::Repeated => None,
        }
    }
}

impl Grant {
    /// The descriptors of the segments to map first, in their order.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.segments.iter().map(|segment| segment.descriptor.as_fd())
    }
}
