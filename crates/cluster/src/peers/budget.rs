//! The most bytes of replies that are under way.
//!
//! Whoever fills a chunk takes its bytes from the budget first, waiting for others to be sent, and holds nothing else of
//! it meanwhile. They come back when the chunk's last byte has been handed to the connection. More than there is at all
//! is granted when nothing else is under way.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

pub(super) struct Budget {
    free: Mutex<Free>,
    freed: Condvar,
    all: usize,
}

struct Free {
    bytes: usize,
    closed: bool,
}

/// Bytes that were taken.
pub(super) struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Arc<Self> {
        let free = Mutex::new(Free { bytes, closed: false });
        Arc::new(Self { free, freed: Condvar::new(), all: bytes })
    }

    /// Takes bytes, by then.
    pub(super) fn take(self: &Arc<Self>, bytes: usize, deadline: Instant) -> Option<Charge> {
        let bytes = bytes.min(self.all);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while !free.closed && free.bytes < bytes {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            free = self.freed.wait_timeout(free, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        if free.closed {
            return None;
        }
        free.bytes -= bytes;
        Some(Charge { budget: Arc::clone(self), bytes })
    }

    /// Grants nothing any more.
    pub(super) fn close(&self) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.freed.notify_all();
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.free.lock().unwrap_or_else(PoisonError::into_inner).bytes += self.bytes;
        self.budget.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::Budget;
    use std::time::{Duration, Instant};

    #[test]
    fn what_is_taken_comes_back_and_more_than_all_is_taken_alone() {
        let budget = Budget::new(10);
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(60));
        let first = budget.take(6, now).expect("there is enough");
        assert!(budget.take(6, now).is_none());
        let waiting = std::thread::spawn({
            let budget = std::sync::Arc::clone(&budget);
            move || budget.take(25, later).is_some()
        });
        drop(first);
        assert!(waiting.join().expect("no panic"));
        let all = budget.take(10, now).expect("all came back");
        let waiting = std::thread::spawn({
            let budget = std::sync::Arc::clone(&budget);
            move || budget.take(1, later).is_some()
        });
        budget.close();
        assert!(!waiting.join().expect("no panic"));
        drop(all);
        assert!(budget.take(1, now).is_none(), "closed");
    }
}
