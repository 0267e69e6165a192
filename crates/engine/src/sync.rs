//! Locks, signals and threads.
//!
//! Everything in the engine that waits, or runs beside something else, goes through here. Locks are handed on fairly
//! where that is asked for: work in slices [gives way](give_way) between them, and a batch that waits for the lock comes next
//! and not after the last slice.
//!
//! With the feature `shuttle` all threads run one at a time in an order that a seed gives, so that `tests/schedules.rs` can
//! try many orders and repeat the one that fails. There waits end only when they are signalled: a missed signal is a
//! deadlock, which is found.

#[cfg(not(feature = "shuttle"))]
mod used {
    use std::time::Duration;

    pub(crate) use std::sync::atomic::AtomicBool;
    pub(crate) use std::thread;

    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};

    /// Takes a lock. A panic ends the server, so that no state is found that was left half changed.
    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock()
    }

    /// Takes a lock that nothing holds.
    pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        mutex.try_lock()
    }

    /// Lets what waits for a lock have it first, and takes it again.
    pub(crate) fn give_way<'a, T>(mut guard: MutexGuard<'a, T>, _: &'a Mutex<T>) -> MutexGuard<'a, T> {
        MutexGuard::bump(&mut guard);
        guard
    }

    /// Waits for a signal, but no longer than `most`; whether that time is over.
    pub(crate) fn wait<'a, T>(
        signal: &Condvar,
        mut guard: MutexGuard<'a, T>,
        most: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        let over = signal.wait_for(&mut guard, most).timed_out();
        (guard, over)
    }
}

#[cfg(feature = "shuttle")]
mod used {
    use std::sync::PoisonError;
    use std::time::Duration;

    pub(crate) use shuttle::sync::atomic::AtomicBool;
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use shuttle::thread;

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        mutex.try_lock().ok()
    }

    pub(crate) fn give_way<'a, T>(guard: MutexGuard<'a, T>, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        drop(guard);
        thread::yield_now();
        lock(mutex)
    }

    pub(crate) fn wait<'a, T>(
        signal: &Condvar,
        guard: MutexGuard<'a, T>,
        most: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        let (guard, waited) = signal.wait_timeout(guard, most).unwrap_or_else(PoisonError::into_inner);
        (guard, waited.timed_out())
    }
}

pub(crate) use used::{AtomicBool, Condvar, Mutex, MutexGuard, give_way, lock, thread, try_lock, wait};
