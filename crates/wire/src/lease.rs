//! A promise of the server not to touch the bytes of a batch.
//!
//! It ends when the last clone of its `Arc` is dropped: the server can [see](crate::ends) that at once, and hears of it
//! with the next call; at once if it asks for that and it needs no waiting. Its connection stays open until then, even when the client is closed or gone,
//! because the server takes a closed connection for the end of all its leases. In a forked child nothing
//! happens: the lease is the parent's, and the child has copies ([`crate::before_fork`]).

use std::sync::Arc;

use crate::batch::Entry;
use crate::calls::Shared;
use crate::forked;
use crate::mapping::Mapping;

/// Held by everything that can still look at a batch's bytes.
#[derive(Debug)]
pub struct Lease {
    id: u64,
    shared: Arc<Shared>,
    /// The segments its samples lie in, each once.
    pub mappings: Vec<Arc<Mapping>>,
    /// Where its samples lie, one for each index asked for.
    pub entries: Vec<Entry>,
}

impl Lease {
    pub(crate) fn new(
        id: u64,
        shared: &Arc<Shared>,
        mappings: Vec<Arc<Mapping>>,
        entries: Vec<Entry>,
    ) -> Arc<Self> {
        shared.leased();
        let lease = Arc::new(Self { id, shared: Arc::clone(shared), mappings, entries });
        forked::register(&lease);
        lease
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
