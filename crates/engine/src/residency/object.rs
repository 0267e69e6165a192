//! One sample's bytes in memory, and what holds them there.
//!
//! An object lives while a reader waits for it or leases it, or, as long as its sample's table entry names it, while
//! that entry has claims. It moves only when it is ready and not leased.

use hotset_core::Id;

use super::allocator::{Block, GRANULE};
use super::contents::ContentKey;

/// How far an object's bytes have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
    /// Its read waits for a thread.
    Queued,
    /// A thread is writing it.
    Reading,
    /// Whole, or never to be.
    Ready,
}

/// One sample's bytes.
#[derive(Debug)]
pub(crate) struct Object {
    pub(super) dataset: u32,
    pub(super) id: Id,
    /// Bytes of its room that are not the sample's.
    pub(super) slack: u8,
    /// Its own block, unless it has a content.
    pub(super) block: Block,
    pub(super) content: Option<ContentKey>,
    pub(super) fill: Fill,
    /// Whether its bytes did not come, and will not.
    pub(super) failed: bool,
    /// Whether its table entry names it. A newer read of the same sample may have taken its place.
    pub(super) current: bool,
    /// Readers that wait for it.
    pub(super) holds: u32,
    pub(super) leases: u32,
}

/// What a sample of so many bytes leaves of its block.
pub(super) fn slack(block: Block, length: u64) -> u8 {
    u8::try_from((u64::from(block.granules) * GRANULE).saturating_sub(length)).unwrap_or_default()
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

    /// Whether its bytes have come.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_ready() && !self.failed
    }

    /// The sample's bytes.
    pub(crate) fn length(&self) -> u64 {
        self.room() - u64::from(self.slack)
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
