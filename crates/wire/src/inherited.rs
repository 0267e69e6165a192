//! Sockets that a forked child has inherited.
//!
//! A child's copy of its parent's socket would keep the connection open after the parent's death, so it is closed
//! there first thing. Another thread of the parent may have held any lock at the fork, so the open sockets stand
//! in a plain array of atomics: process id above, descriptor below.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

const FREE: u64 = 0;

/// More connections than this in one process are only missed by their children.
const MOST: usize = 512;

static SOCKETS: [AtomicU64; MOST] = [const { AtomicU64::new(FREE) }; MOST];

/// A socket's entry among those that a child closes; given up when dropped, **before** the socket is closed.
#[derive(Debug)]
pub(crate) struct InheritedEntry(Option<&'static AtomicU64>);

impl InheritedEntry {
    pub(crate) fn new(socket: BorrowedFd<'_>) -> Self {
        let entry = u64::from(process::id()) << 32 | u64::from(socket.as_raw_fd().unsigned_abs());
        let take = |slot: &&AtomicU64| {
            slot.compare_exchange(FREE, entry, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        };
        Self(SOCKETS.iter().find(take))
    }
}

impl Drop for InheritedEntry {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            slot.store(FREE, Ordering::SeqCst);
        }
    }
}

/// Closes this process's copies of its parent's connections; nothing happens to connections of the process itself.
pub(crate) fn close_sockets() {
    let own = u64::from(process::id());
    for place in &SOCKETS {
        let entry = place.load(Ordering::SeqCst);
        if entry == FREE || entry >> 32 == own {
            continue;
        }
        place.store(FREE, Ordering::SeqCst);
        // SAFETY: the descriptor is that of a `Connection` of the parent. `Shared` and `Turn` compare process ids
        // and never use nor drop that connection in another process, so here is its only close.
        unsafe { rustix::io::close((entry & u64::from(u32::MAX)) as i32) };
    }
}
