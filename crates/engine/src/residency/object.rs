//! One sample's bytes in memory, and what holds them there.
//!
//! An object lives while a reader waits for it or leases it, or, as long as its sample's table entry names it, while
//! that entry has claims. It moves only when it is ready and not leased.

use hotset_core::Id;

use super::allocator::{Block, GRANULE};

/// How far an object's bytes have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
    /// Its read waits for a thread.
    Queued,
    /// A thread is writing it.
    Reading,
    /// Whole.
    Ready,
}

/// One sample's bytes.
#[derive(Debug)]
pub(crate) struct Object {
    pub(super) dataset: u32,
    pub(super) id: Id,
    /// The sample's bytes.
    pub(super) length: u64,
    pub(super) block: Block,
    pub(super) fill: Fill,
    /// Whether its table entry names it. A newer read of the same sample may have taken its place.
    pub(super) current: bool,
    /// Readers that wait for it.
    pub(super) holds: u32,
    pub(super) leases: u32,
}

impl Object {
    pub(crate) fn dataset(&self) -> u32 {
        self.dataset
    }

    pub(crate) fn id(&self) -> Id {
        self.id
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.fill == Fill::Ready
    }

    /// Its segment, and where in that it begins and how long it is.
    pub(crate) fn place(&self) -> (u32, u64, u64) {
        (self.block.segment, u64::from(self.block.start) * GRANULE, self.length)
    }

    /// The bytes it takes in memory.
    pub(crate) fn room(&self) -> u64 {
        u64::from(self.block.granules) * GRANULE
    }

    pub(super) fn movable(&self) -> bool {
        self.fill == Fill::Ready && self.leases == 0
    }

    #[cfg(feature = "shuttle")]
    pub(crate) fn is_queued(&self) -> bool {
        self.fill == Fill::Queued
    }

    #[cfg(feature = "shuttle")]
    pub(crate) fn leases(&self) -> u32 {
        self.leases
    }
}
