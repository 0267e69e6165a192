//! The server's mutex: with a signal of its own, and a count of those that a thread holds.
//!
//! No lock is held across file I/O. What reads or writes files says so with [`assert_unlocked`], so that every test that
//! comes there under a lock fails.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// Fails in tests and debug builds if this thread holds a lock. Called where files are read or written.
pub(crate) fn assert_unlocked() {
    if cfg!(any(test, debug_assertions)) {
        assert_eq!(HELD.get(), 0, "file I/O under a lock");
    }
}

/// A mutex, and the signal that what it guards has changed.
#[derive(Default)]
pub(crate) struct Lock<T> {
    value: Mutex<T>,
    changed: Condvar,
}

/// A lock that is held.
pub(crate) struct Guard<'a, T> {
    value: MutexGuard<'a, T>,
    changed: &'a Condvar,
    held: Held,
}

/// Counts while it lives.
struct Held;

impl Held {
    fn new() -> Self {
        HELD.set(HELD.get() + 1);
        Self
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
    }
}

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Condvar::new() }
    }

    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        Guard { value, changed: &self.changed, held: Held::new() }
    }
}

impl<T> Guard<'_, T> {
    /// Lets others have the lock until one of them signals a change.
    pub(crate) fn wait(self) -> Self {
        let Self { value, changed, held } = self;
        let value = changed.wait(value).unwrap_or_else(PoisonError::into_inner);
        Self { value, changed, held }
    }

    /// The same, for a time.
    pub(crate) fn wait_for(self, time: Duration) -> Self {
        let Self { value, changed, held } = self;
        let (value, _) = changed.wait_timeout(value, time).unwrap_or_else(PoisonError::into_inner);
        Self { value, changed, held }
    }

    /// Wakes all threads that wait for a change.
    pub(crate) fn signal(&self) {
        self.changed.notify_all();
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "file I/O under a lock")]
    fn file_io_under_a_lock_is_found() {
        let lock = Lock::new(());
        let _held = lock.lock();
        assert_unlocked();
    }

    #[test]
    fn a_lock_that_was_let_go_of_is_not_counted() {
        let lock = Lock::new(1);
        *lock.lock() += 1;
        assert_eq!(*lock.lock(), 2);
        assert_unlocked();
    }
}
