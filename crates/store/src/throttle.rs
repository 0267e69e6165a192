//! A store made slow on purpose: a fixed latency for every read, a bandwidth that all reads share, and a number
//! of requests that it works on at a time.
//!
//! Reads pass one after the other through one pipe. Each reserves its time there under a lock, reads while
//! that time passes, and sleeps until it has, so a slow store below is not made slower still. A read that
//! fails takes its time too.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::store::{Location, ReadError, Store};

/// How slow a store is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Throttle {
    /// Before the first byte of every read.
    pub(crate) latency: Duration,
    /// Bytes a second for all reads together; `None`: no limit.
    pub(crate) bandwidth: Option<u64>,
    /// Requests at a time; others wait. `None`: no limit.
    pub(crate) requests: Option<usize>,
}

/// A store that takes the time a [`Throttle`] says.
pub(crate) struct Throttled<S> {
    store: S,
    throttle: Throttle,
    started: Instant,
    /// When the last byte reserved so far has passed, since `started`.
    free: Mutex<Duration>,
    /// Requests being worked on.
    working: Mutex<usize>,
    done: Condvar,
}

impl Throttle {
    /// When a read of `bytes` that is asked for at `now` is done; moves `free` on.
    fn reserve(&self, free: &mut Duration, now: Duration, bytes: u64) -> Duration {
        let arrives = now.saturating_add(self.latency);
        let Some(bandwidth) = self.bandwidth.filter(|bandwidth| *bandwidth > 0) else {
            return arrives;
        };
        let nanoseconds = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(bandwidth));
        let passing = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        *free = arrives.max(*free).saturating_add(passing);
        *free
    }
}

impl<S: Store> Throttled<S> {
    pub(crate) fn new(store: S, throttle: Throttle) -> Self {
        Self {
            store,
            throttle,
            started: Instant::now(),
            free: Mutex::new(Duration::ZERO),
            working: Mutex::new(0),
            done: Condvar::new(),
        }
    }

    /// Waits until there are fewer than `most` requests.
    fn turn(&self, most: usize) -> Turn<'_> {
        let working = self.working.lock().unwrap_or_else(PoisonError::into_inner);
        let mut working =
            self.done.wait_while(working, |working| *working >= most).unwrap_or_else(PoisonError::into_inner);
        *working += 1;
        Turn { working: &self.working, done: &self.done }
    }
}

/// A request that is being worked on.
struct Turn<'a> {
    working: &'a Mutex<usize>,
    done: &'a Condvar,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.working.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.done.notify_one();
    }
}

impl<S: Store> Store for Throttled<S> {
    fn read(&self, at: Location<'_>, into: &mut [u8]) -> Result<(), ReadError> {
        let _turn = self.throttle.requests.map(|most| self.turn(most));
        let done = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            self.throttle.reserve(&mut free, self.started.elapsed(), into.len() as u64)
        };
        let read = self.store.read(at, into);
        thread::sleep(done.saturating_sub(self.started.elapsed()));
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn latencies_overlap_and_bytes_share_one_pipe() {
        let throttle = Throttle { latency: 5 * MS, bandwidth: Some(1_000_000), requests: None };
        let mut free = Duration::ZERO;
        // Two reads asked for at once: the second waits for the pipe and not for a second latency.
        assert_eq!(throttle.reserve(&mut free, Duration::ZERO, 2_000), 7 * MS);
        assert_eq!(throttle.reserve(&mut free, Duration::ZERO, 3_000), 10 * MS);
        // The pipe was idle for a while: nothing is saved up.
        assert_eq!(throttle.reserve(&mut free, 100 * MS, 1_000), 106 * MS);
        // Part of a nanosecond is a whole one, so the rate is never passed.
        let third = Throttle { latency: Duration::ZERO, bandwidth: Some(3), requests: None };
        assert_eq!(third.reserve(&mut Duration::ZERO.clone(), Duration::ZERO, 1).as_nanos(), 333_333_334);
    }

    #[test]
    fn without_a_bandwidth_size_does_not_count() {
        let throttle = Throttle { latency: 5 * MS, bandwidth: None, requests: None };
        let mut free = Duration::ZERO;
        assert_eq!(throttle.reserve(&mut free, MS, u64::MAX), 6 * MS);
        assert_eq!(throttle.reserve(&mut free, MS, 1), 6 * MS);
    }

    #[test]
    fn endless_reads_do_not_overflow() {
        let throttle = Throttle { latency: Duration::MAX, bandwidth: Some(1), requests: None };
        let mut free = Duration::ZERO;
        assert_eq!(throttle.reserve(&mut free, MS, u64::MAX), Duration::MAX);
        assert_eq!(throttle.reserve(&mut free, MS, u64::MAX), Duration::MAX);
    }

    #[test]
    fn a_read_takes_at_least_its_latency_even_if_it_fails() {
        struct Broken;
        impl Store for Broken {
            fn read(&self, _: Location<'_>, _: &mut [u8]) -> Result<(), ReadError> {
                Err(ReadError::Vanished)
            }
        }
        let store = Throttled::new(Broken, Throttle { latency: 3 * MS, bandwidth: None, requests: None });
        let asked = Instant::now();
        let read = store.read(Location { key: "a", offset: 0, version: 0, whole: true }, &mut []);
        assert_eq!(read, Err(ReadError::Vanished));
        assert!(asked.elapsed() >= 3 * MS);
    }

    #[test]
    fn no_more_requests_are_worked_on_than_the_limit() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        #[derive(Default)]
        struct Counting {
            now: AtomicUsize,
            most: AtomicUsize,
        }
        impl Store for Counting {
            fn read(&self, _: Location<'_>, _: &mut [u8]) -> Result<(), ReadError> {
                self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                thread::sleep(MS);
                self.now.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        }
        let throttle = Throttle { requests: Some(3), ..Throttle::default() };
        let store = Throttled::new(Counting::default(), throttle);
        thread::scope(|scope| {
            for _ in 0..12 {
                scope.spawn(|| {
                    let at = Location { key: "a", offset: 0, version: 0, whole: true };
                    (0..4).for_each(|_| store.read(at, &mut []).unwrap());
                });
            }
        });
        assert_eq!(store.store.most.load(Ordering::SeqCst), 3);
    }
}
