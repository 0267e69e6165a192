//! Locks, signals and threads.
//!
//! Everything in the engine that waits, or runs beside something else, goes through here. It is the standard library's;
//! with the feature `shuttle`, one that runs all threads one at a time in an order that a seed gives, so that
//! `tests/schedules.rs` can try many orders and repeat the one that fails. There waits end only when they are signalled: a
//! missed signal is a deadlock, which is found.

use std::sync::PoisonError;
use std::time::Duration;

#[cfg(not(feature = "shuttle"))]
mod used {
    pub(crate) use std::sync::atomic::AtomicBool;
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::thread;
}

#[cfg(feature = "shuttle")]
mod used {
    pub(crate) use shuttle::sync::atomic::AtomicBool;
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use shuttle::thread;
}

pub(crate) use used::{AtomicBool, Condvar, Mutex, MutexGuard, thread};

/// Takes a lock. A panic ends the server, so that no lock is found poisoned by one that goes on.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a signal, but no longer than `most`; whether that time is over.
pub(crate) fn wait<'a, T>(
    signal: &Condvar,
    guard: MutexGuard<'a, T>,
    most: Duration,
) -> (MutexGuard<'a, T>, bool) {
    let (guard, waited) = signal.wait_timeout(guard, most).unwrap_or_else(PoisonError::into_inner);
    (guard, waited.timed_out())
}
