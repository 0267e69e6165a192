//! The slots of a job that are decided and not served: how many bytes they are, and which share a request.

use std::collections::HashMap;
use std::sync::Arc;

/// The decided slots of a job that were not served.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// Bytes of slots that wait for their samples.
    bytes: u64,
    /// Slots whose reads are one request that was not made: all of its slots, or none where the others were read
    /// without this one.
    shared: HashMap<(u64, usize), Arc<[usize]>>,
    /// The most samples asked for at once.
    largest_batch: usize,
    /// Whether reading ahead has ended for want of memory that others have.
    short: bool,
    /// Whether it has moved on, and what entered it was not read.
    behind: bool,
}

impl Window {
    /// So many bytes are waited for from now on.
    pub(crate) fn enter(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// So many bytes are waited for no longer.
    pub(crate) fn leave(&mut self, bytes: u64) {
        debug_assert!(self.bytes >= bytes, "more bytes leave the window than entered it");
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The reads of these slots are one request, made when the first of them is asked for.
    pub(crate) fn share(&mut self, epoch: u64, slots: Vec<usize>) {
        let all: Arc<[usize]> = slots.into();
        self.shared.extend(all.iter().map(|&slot| ((epoch, slot), Arc::clone(&all))));
    }

    /// The others of their request are read without these slots.
    pub(crate) fn leave_out(&mut self, epoch: u64, slots: &[usize]) {
        let none: Arc<[usize]> = Arc::new([]);
        self.shared.extend(slots.iter().map(|&slot| ((epoch, slot), Arc::clone(&none))));
    }

    /// The slots of the request that a slot's read is part of: none of them where the others were read without it.
    pub(crate) fn shared(&self, epoch: u64, slot: usize) -> Option<Arc<[usize]>> {
        self.shared.get(&(epoch, slot)).cloned()
    }

    /// A slot is read, or will not be.
    pub(crate) fn forget(&mut self, epoch: u64, slot: usize) {
        self.shared.remove(&(epoch, slot));
    }

    /// Reading ahead has ended for want of memory that others have, or goes on.
    pub(crate) fn set_short(&mut self, short: bool) {
        self.short = short;
    }

    /// It has moved on, or what entered it is read.
    pub(crate) fn set_behind(&mut self, behind: bool) {
        self.behind = behind;
    }

    /// Whether it has moved on, and what entered it was not read.
    pub(crate) fn is_behind(&self) -> bool {
        self.behind
    }

    /// Whether others must let go of memory before it is read on.
    pub(crate) fn is_short(&self) -> bool {
        self.short
    }

    /// So many samples are asked for at once.
    pub(crate) fn note_batch(&mut self, samples: usize) {
        self.largest_batch = self.largest_batch.max(samples);
    }

    pub(crate) fn largest_batch(&self) -> usize {
        self.largest_batch.max(1)
    }
}
