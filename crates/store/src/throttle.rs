//! A store made slow on purpose: a fixed latency for every read, and a bandwidth that all reads share.
//!
//! Reads pass one after the other through one pipe. Each reserves its time there under a lock, reads while
//! that time passes, and sleeps until it has, so a slow store below is not made slower still. A read that
//! fails takes its time too.

use std::sync::{Mutex, PoisonError};
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
}

/// A store that takes the time a [`Throttle`] says.
pub(crate) struct Throttled<S> {
    store: S,
    throttle: Throttle,
    started: Instant,
    /// When the last byte reserved so far has passed, since `started`.
    free: Mutex<Duration>,
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
        Self { store, throttle, started: Instant::now(), free: Mutex::new(Duration::ZERO) }
    }
}

impl<S: Store> Store for Throttled<S> {
    fn read(&self, at: Location<'_>, into: &mut [u8]) -> Result<(), ReadError> {
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
        let throttle = Throttle { latency: 5 * MS, bandwidth: Some(1_000_000) };
        let mut free = Duration::ZERO;
        // Two reads asked for at once: the second waits for the pipe and not for a second latency.
        assert_eq!(throttle.reserve(&mut free, Duration::ZERO, 2_000), 7 * MS);
        assert_eq!(throttle.reserve(&mut free, Duration::ZERO, 3_000), 10 * MS);
        // The pipe was idle for a while: nothing is saved up.
        assert_eq!(throttle.reserve(&mut free, 100 * MS, 1_000), 106 * MS);
        // Part of a nanosecond is a whole one, so the rate is never passed.
        let third = Throttle { latency: Duration::ZERO, bandwidth: Some(3) };
        assert_eq!(third.reserve(&mut Duration::ZERO.clone(), Duration::ZERO, 1).as_nanos(), 333_333_334);
    }

    #[test]
    fn without_a_bandwidth_size_does_not_count() {
        let throttle = Throttle { latency: 5 * MS, bandwidth: None };
        let mut free = Duration::ZERO;
        assert_eq!(throttle.reserve(&mut free, MS, u64::MAX), 6 * MS);
        assert_eq!(throttle.reserve(&mut free, MS, 1), 6 * MS);
    }

    #[test]
    fn endless_reads_do_not_overflow() {
        let throttle = Throttle { latency: Duration::MAX, bandwidth: Some(1) };
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
        let store = Throttled::new(Broken, Throttle { latency: 3 * MS, bandwidth: None });
        let asked = Instant::now();
        let read = store.read(Location { key: "a", offset: 0, version: 0 }, &mut []);
        assert_eq!(read, Err(ReadError::Vanished));
        assert!(asked.elapsed() >= 3 * MS);
    }
}
