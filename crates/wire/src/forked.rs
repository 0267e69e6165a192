//! Leased bytes in a forked child: copies of its own.
//!
//! A child inherits its parent's maps and every view of them, but the leases are the parent's. It ends them when it has
//! no more use for them, and the server puts other samples into the same place. So the bytes under every lease are copied
//! before a fork, and in the child the copies take the place of the shared maps, at the same addresses. The parent holds
//! those leases until the fork is over, and leases that begin meanwhile wait. A process that leases nothing when it forks, as a
//! trainer that only starts loader workers, copies nothing.
//!
//! The three functions are called by the thread that forks: before it, and after it on either side.

use std::cell::RefCell;
use std::collections::{BTreeMap, btree_map};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use memmap2::{MmapMut, MmapOptions};

use crate::inherited;
use crate::lease::Lease;
use crate::mapping::Mapping;

/// The leases of this process; those that have ended are swept when the list would grow.
static LEASES: Mutex<Vec<Weak<Lease>>> = Mutex::new(Vec::new());

thread_local! {
    static FORK: RefCell<Option<Fork>> = const { RefCell::new(None) };
}

/// A fork that is under way in this thread.
struct Fork {
    leases: MutexGuard<'static, Vec<Weak<Lease>>>,
    copies: Vec<Copy>,
    /// For their ends: not before the fork is over.
    _held: Vec<Arc<Lease>>,
}

/// The leased bytes of a map, at the offsets they have in it.
struct Copy {
    of: Arc<Mapping>,
    bytes: MmapMut,
}

/// Takes a lease into the list.
pub(crate) fn register(lease: &Arc<Lease>) {
    let add = |leases: &mut Vec<Weak<Lease>>| {
        if leases.len() == leases.capacity() {
            leases.retain(|lease| lease.strong_count() > 0);
        }
        leases.push(Arc::downgrade(lease));
    };
    // A signal's handler may ask for a batch between the hooks of a fork.
    FORK.with_borrow_mut(|fork| match fork {
        Some(fork) => add(&mut fork.leases),
        None => add(&mut LEASES.lock().unwrap_or_else(PoisonError::into_inner)),
    });
}

/// Copies what this process leases, for the child that the calling thread is about to fork.
pub fn before_fork() {
    // Of a fork that never came to be.
    after_fork_in_parent();
    let leases = LEASES.lock().unwrap_or_else(PoisonError::into_inner);
    let held: Vec<Arc<Lease>> = leases.iter().filter_map(Weak::upgrade).collect();
    let mut copies = BTreeMap::new();
    for lease in &held {
        if !copied(lease, &mut copies) {
            // Without memory for copies they stay where they are, for as long as this process is connected.
            mem::forget(Arc::clone(lease));
        }
    }
    let copies = copies.into_values().collect();
    FORK.with_borrow_mut(|fork| *fork = Some(Fork { leases, copies, _held: held }));
}

/// Forgets the copies, after a fork or without one.
pub fn after_fork_in_parent() {
    // Out of the cell first: a lease may end here.
    let fork = FORK.with_borrow_mut(Option::take);
    drop(fork);
}

/// Closes this process's copies of its parent's connections, and puts copies in the place of what the parent leases. To be
/// called in a child directly after a fork; does nothing to connections of the process itself.
pub fn after_fork_in_child() {
    inherited::close_sockets();
    let Some(mut fork) = FORK.with_borrow_mut(Option::take) else { return };
    for copy in mem::take(&mut fork.copies) {
        copy.of.replace(copy.bytes);
    }
    fork.leases.clear();
}

/// Copies the bytes of a lease; `false` if there is no memory for them.
fn copied(lease: &Lease, copies: &mut BTreeMap<usize, Copy>) -> bool {
    for entry in lease.entries.iter().filter(|entry| entry.length > 0) {
        let Some(of) = lease.mappings.get(entry.mapping) else { continue };
        let copy = match copies.entry(of.as_ptr().addr()) {
            btree_map::Entry::Occupied(found) => found.into_mut(),
            btree_map::Entry::Vacant(new) => {
                // Pages that nothing is copied into are never taken.
                let map = MmapOptions::new().len(of.len()).no_reserve_swap().map_anon();
                let Ok(bytes) = map else { return false };
                new.insert(Copy { of: Arc::clone(of), bytes })
            }
        };
        let (begin, end) = (entry.offset as usize, (entry.offset + entry.length) as usize);
        if let Ok(bytes) = of.slice(entry.offset, entry.length) {
            copy.bytes[begin..end].copy_from_slice(bytes);
        }
    }
    true
}
