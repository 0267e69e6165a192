//! A promise of the server not to touch the bytes of a batch.
//!
//! It ends when the last clone of its `Arc` is dropped: the server hears of it at once if that needs no waiting,
//! else before the next call. Its connection stays open until then, even when the client is closed or gone,
//! because the server takes a closed connection for the end of all its leases. In a forked child nothing
//! happens: the lease is the parent's.

use std::sync::Arc;

use crate::turn::Shared;

/// Held by everything that can still look at a batch's bytes.
#[derive(Debug)]
pub struct Lease {
    id: u64,
    shared: Arc<Shared>,
}

impl Lease {
    pub(crate) fn new(id: u64, shared: &Arc<Shared>) -> Arc<Self> {
        shared.leased();
        Arc::new(Self { id, shared: Arc::clone(shared) })
    }

    /// Its number at the server.
    pub fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.shared.release(self.id);
    }
}
