//! Policies: who stays in the cache.
//!
//! A policy sees ids and sizes, later importance, and when each id is next due; no bytes, no clock, no I/O.
//! It is asked once per slot, **in plan order**, when the slot enters the prefetch window, and its answer is
//! final: what it holds is *logical* residency, and whether the bytes have arrived changes only waiting. So
//! a simulator, a server, and a server that was restarted all count the same.
//!
//! Adding one is a file and a line in [`REGISTRY`]. The name there is its name in Python, in the command
//! line, in metrics and in reports. `conformance` runs over every registered one.

mod lru;
mod minio;
mod oracle;

#[cfg(test)]
mod conformance;

use std::sync::Arc;

use crate::{Error, Id, Result};

/// Every policy, by name.
pub static REGISTRY: &[Entry] = &[lru::ENTRY, minio::ENTRY, oracle::ENTRY];

/// A registered policy.
pub struct Entry {
    /// Its name everywhere.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Whether it keeps within its capacity. `oracle` does not, so a live server runs it only when the whole
    /// dataset fits.
    pub bounded: bool,
    /// Makes one, empty.
    pub build: fn(Setup) -> Box<dyn Policy>,
}

/// The policy of that name, or an error that lists those there are.
pub fn find(name: &str) -> Result<&'static Entry> {
    REGISTRY.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let known: Vec<String> = REGISTRY.iter().map(|entry| format!("`{}`", entry.name)).collect();
        Error::invalid(format!("policy `{name}` is unknown; the policies are {}", known.join(", ")))
    })
}

/// The sizes of a catalog's samples.
pub trait Sizes: Send + Sync {
    /// How many samples there are.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The bytes of sample `id`, which must be below [`len`](Self::len).
    fn size(&self, id: Id) -> u64;
}

impl Sizes for Vec<u64> {
    fn len(&self) -> usize {
        self.as_slice().len()
    }

    fn size(&self, id: Id) -> u64 {
        self[id as usize]
    }
}

/// When samples are due, in the plans known now.
pub trait Due {
    /// How many slots from now `id` is served next; `None` if no known plan serves it again. The slot being
    /// decided does not count.
    fn next_due(&self, id: Id) -> Option<u64>;
}

/// Nothing is known of what is due.
pub struct NoDue;

impl Due for NoDue {
    fn next_due(&self, _id: Id) -> Option<u64> {
        None
    }
}

/// What a policy says of one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The sample is resident: no read.
    Hit,
    /// It is read, and stays.
    Admitted,
    /// It is read, served, and forgotten.
    Bypassed,
}

/// What a policy is made from.
#[derive(Clone)]
pub struct Setup {
    /// The bytes that residents may take together.
    pub capacity: u64,
    /// The size of every sample.
    pub sizes: Arc<dyn Sizes>,
    /// For policies that draw.
    pub seed: u64,
}

/// Who stays in the cache. See the module's head for when it is asked. Every id accessed lies in the catalog
/// that [`Setup::sizes`] describes.
pub trait Policy: Send {
    /// Decides the slot that serves `id`, and appends whoever leaves for it to `evicted`.
    fn access(&mut self, id: Id, due: &dyn Due, evicted: &mut Vec<Id>) -> Verdict;
    /// Whether `id` is resident.
    fn contains(&self, id: Id) -> bool;
    /// The bytes of all residents.
    fn used(&self) -> u64;
    /// The bytes residents may take.
    fn capacity(&self) -> u64;
    /// Changes the capacity, and appends whoever leaves for it to `evicted`.
    fn resize(&mut self, capacity: u64, evicted: &mut Vec<Id>);
    /// Calls `each` with every resident, in an order in which asking an empty policy for them restores this
    /// one.
    fn residents(&self, each: &mut dyn FnMut(Id));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_found_by_its_name_and_by_no_other() {
        for entry in REGISTRY {
            assert_eq!(find(entry.name).unwrap().summary, entry.summary, "two policies share a name");
        }
        let message = find("LRU").err().unwrap().message;
        assert_eq!(message, "policy `LRU` is unknown; the policies are `lru`, `minio`, `oracle`");
    }
}
