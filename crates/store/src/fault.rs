//! A store made unreliable on purpose, to test what depends on it.
//!
//! What happens to a read is drawn from the seed, the key and how often that key was read before. So two runs
//! meet the same faults whatever order their reads come in, and a read that failed may pass when it is tried
//! again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::store::{Location, ReadError, Store};

/// Which faults a store has. Rates are shares of reads, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Fault {
    pub(crate) seed: u64,
    /// Reads that fail, and may pass when tried again.
    pub(crate) rate: f64,
    /// Reads that find an object shorter than it was listed.
    pub(crate) truncate: f64,
    /// Reads that find another version of their object than was listed.
    pub(crate) swap: f64,
    /// Reads that take `stall_for` longer.
    pub(crate) stall: f64,
    pub(crate) stall_for: Duration,
}

/// What another version differs in; not the lowest bit, which has a meaning of its own in object stores.
const SWAPPED: u32 = 1 << 31;

/// What happens to one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReadFaults {
    fails: bool,
    truncated: bool,
    stalls: bool,
    swapped: bool,
}

/// A store with faults.
pub(crate) struct Faulty<S> {
    store: S,
    fault: Fault,
    /// How often each key was read, by a hash of the key.
    attempts: Mutex<HashMap<u64, u32>>,
}

impl Fault {
    fn fate(&self, key: &str, attempt: u32) -> ReadFaults {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.seed.to_le_bytes()).update(&attempt.to_le_bytes()).update(key.as_bytes());
        let mut draws = hasher.finalize_xof();
        // The upper 53 bits of 64: every float from 0 up to, and without, 1.
        let mut draw = || {
            let mut bytes = [0; 8];
            draws.fill(&mut bytes);
            (u64::from_le_bytes(bytes) >> 11) as f64 / (1u64 << 53) as f64
        };
        ReadFaults {
            fails: draw() < self.rate,
            truncated: draw() < self.truncate,
            stalls: draw() < self.stall,
            swapped: draw() < self.swap,
        }
    }
}

impl<S: Store> Faulty<S> {
    pub(crate) fn new(store: S, fault: Fault) -> Self {
        Self { store, fault, attempts: Mutex::new(HashMap::new()) }
    }

    fn attempt(&self, key: &str) -> u32 {
        let digest = blake3::hash(key.as_bytes());
        let hash = digest.as_bytes()[..8].iter().fold(0, |hash, byte| hash << 8 | u64::from(*byte));
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let next = attempts.entry(hash).or_default();
        let attempt = *next;
        *next = next.wrapping_add(1);
        attempt
    }
}

impl<S: Store> Store for Faulty<S> {
    fn read(&self, at: Location<'_>, into: &mut [u8]) -> Result<(), ReadError> {
        let attempt = self.attempt(at.key);
        let fate = self.fault.fate(at.key, attempt);
        if fate.stalls {
            thread::sleep(self.fault.stall_for);
        }
        if fate.fails {
            return Err(ReadError::Transient(format!("`fault.rate` let attempt `{attempt}` fail")));
        }
        if fate.truncated && !into.is_empty() {
            let expected = into.len() as u64;
            return Err(ReadError::Resized { expected, found: expected / 2 });
        }
        if fate.swapped {
            // The store below is asked for a version that is not there: it is its own check that must find out.
            return match self.store.read(Location { version: at.version ^ SWAPPED, ..at }, into) {
                Ok(()) => Err(ReadError::Transient("another version was not told".into())),
                told => told,
            };
        }
        self.store.read(at, into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Ones;

    impl Store for Ones {
        fn read(&self, _: Location<'_>, into: &mut [u8]) -> Result<(), ReadError> {
            into.fill(1);
            Ok(())
        }
    }

    fn read(store: &impl Store, key: &str) -> Result<(), ReadError> {
        store.read(Location { key, offset: 0, version: 0, whole: true }, &mut [0; 4])
    }

    #[test]
    fn faults_follow_from_seed_key_and_attempt_in_whatever_order_reads_come() {
        let fault = Fault { seed: 3, rate: 0.5, truncate: 0.2, ..Fault::default() };
        let keys: Vec<String> = (0..200).map(|key| key.to_string()).collect();
        let forth = Faulty::new(Ones, fault);
        let back = Faulty::new(Ones, fault);
        for _ in 0..3 {
            let one: Vec<_> = keys.iter().map(|key| read(&forth, key)).collect();
            let mut other: Vec<_> = keys.iter().rev().map(|key| read(&back, key)).collect();
            other.reverse();
            assert_eq!(one, other);
        }
        let reseeded = Fault { seed: 4, ..fault };
        assert!(keys.iter().any(|key| fault.fate(key, 0) != reseeded.fate(key, 0)));
        assert!(keys.iter().any(|key| fault.fate(key, 0) != fault.fate(key, 1)));
    }

    #[test]
    fn rates_are_shares_of_reads() {
        let fault = Fault { rate: 0.05, truncate: 0.5, stall: 1.0, ..Fault::default() };
        let fates: Vec<ReadFaults> = (0..10_000).map(|key| fault.fate(&key.to_string(), 0)).collect();
        let count = |of: fn(&ReadFaults) -> bool| fates.iter().filter(|fate| of(fate)).count();
        assert!((400..600).contains(&count(|fate| fate.fails)));
        assert!((4_700..5_300).contains(&count(|fate| fate.truncated)));
        assert_eq!(count(|fate| fate.stalls), 10_000);
    }

    #[test]
    fn a_failure_may_pass_and_a_short_object_is_told() {
        let store = Faulty::new(Ones, Fault { rate: 0.5, ..Fault::default() });
        let reads: Vec<_> = (0..20).map(|_| read(&store, "a")).collect();
        assert!(reads.iter().any(Result::is_ok));
        assert!(reads.iter().flat_map(|read| read.as_ref().err()).any(ReadError::retriable));
        let short = Faulty::new(Ones, Fault { truncate: 1.0, ..Fault::default() });
        assert_eq!(read(&short, "a"), Err(ReadError::Resized { expected: 4, found: 2 }));
    }

    #[test]
    fn a_swapped_version_is_found_by_the_store_below() {
        struct Versioned(u32);
        impl Store for Versioned {
            fn read(&self, at: Location<'_>, _: &mut [u8]) -> Result<(), ReadError> {
                if at.version == self.0 { Ok(()) } else { Err(ReadError::Modified) }
            }
        }
        let swapping = Fault { swap: 0.5, ..Fault::default() };
        let store = Faulty::new(Versioned(0), swapping);
        let reads: Vec<_> = (0..40).map(|_| read(&store, "a")).collect();
        assert!(reads.contains(&Ok(())) && reads.contains(&Err(ReadError::Modified)));
        // A store that does not look is found out.
        assert!(
            read(&Faulty::new(Ones, Fault { swap: 1.0, ..Fault::default() }), "a").unwrap_err().retriable()
        );
    }
}
