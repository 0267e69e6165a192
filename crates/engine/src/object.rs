//! One sample's bytes in the arena, and everything that holds them there.
//!
//! An object lives while any of three counts is above zero: policies that keep it, decided slots (and
//! waiting readers) that will need it, and leases on it. Eviction lowers the first at once; memory follows
//! the last. An object moves only when it is ready and not leased.

use hotset_core::Id;

use crate::allocator::Block;

/// How far an object's bytes have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
    /// Its read waits for a reader thread.
    Queued,
    /// A reader thread is writing it.
    Reading,
    /// Whole.
    Ready,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) dataset: u32,
    pub(crate) id: Id,
    pub(crate) block: Block,
    pub(crate) fill: Fill,
    /// Whether its dataset's table names it. A newer read of the same sample may have taken its place.
    pub(crate) current: bool,
    /// Jobs whose policy keeps it.
    pub(crate) keepers: u16,
    /// Decided slots that nobody has asked for yet, and readers that wait for it.
    pub(crate) holds: u32,
    pub(crate) leases: u32,
    /// Whether it was read alone because the package that should have brought it was lost.
    pub(crate) alone: bool,
}

impl Object {
    pub(crate) fn movable(&self) -> bool {
        self.fill == Fill::Ready && self.leases == 0
    }

    pub(crate) fn needed(&self) -> bool {
        self.keepers > 0 || self.holds > 0 || self.leases > 0
    }
}
