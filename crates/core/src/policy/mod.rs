//! Policies: which samples stay in the cache.
//!
//! A policy sees ids and sizes, importance, and when each id is next due; no bytes, no clock, no I/O.
//! It is asked once per slot, **in plan order**, when the slot enters the prefetch window, and its answer is
//! final: what it holds is *logical* residency, and whether the bytes have arrived changes only waiting. So
//! a simulator, a server, and a server that was restarted all count the same.
//!
//! Before a plan's first slot it is told the keys that this plan was made from ([`Policy::begin`]); between
//! slots a plan may have events for it: a package arrives, a sample leaves. No call does work that grows with
//! the dataset: what must be rebuilt is rebuilt a few samples at a time inside [`Policy::access`], so that it
//! comes at the same slot everywhere, however fast requests come.
//!
//! Adding one is a file and a line in [`REGISTRY`]. The name there is its name in Python, in the command
//! line, in metrics and in reports. One region is all that most have: they are an order in which residents leave
//! (`kept`). `conformance` runs over every registered one.

mod app;
mod belady;
mod carousel;
mod future;
mod heap;
mod icache;
mod impact;
mod kept;
mod lfu;
mod list;
mod lru;
mod minio;
mod oracle;
mod pq;
mod pq_lfu;
mod priority;
mod quiver;
mod random;
mod runs;
mod shelf;

#[cfg(test)]
mod conformance;
// The example of CONTRIBUTING.md.
#[cfg(test)]
mod fifo;

pub use future::Future;
pub use runs::NAME as RUNS;

use std::sync::Arc;

use crate::importance::{Keys, Score};
use crate::saved::Unsealed;
use crate::settings::{Parameter, Values};
use crate::{Error, Id, Result};

/// Every policy, by name.
pub static REGISTRY: &[Entry] = &[
    lru::ENTRY,
    lfu::ENTRY,
    random::ENTRY,
    minio::ENTRY,
    app::ENTRY,
    pq::ENTRY,
    pq_lfu::ENTRY,
    icache::ENTRY,
    impact::ENTRY,
    quiver::ENTRY,
    carousel::ENTRY,
    runs::ENTRY,
    belady::ENTRY,
    oracle::ENTRY,
    #[cfg(test)]
    fifo::ENTRY,
];

/// The name of the policy of a dataset that has no sampler and names none.
pub const DEFAULT: &str = minio::ENTRY.name;

/// A registered policy.
pub struct Entry {
    /// Its name everywhere.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Whether it keeps within its capacity. `oracle` does not, so a live server runs it only when the whole
    /// dataset fits.
    pub bounded: bool,
    /// Whether it needs every plan of the run beforehand, so that only a simulator can run it.
    pub offline: bool,
    /// Whether it goes by requests alone, so that a dataset without a sampler, which has no plans and no losses, can
    /// have it.
    pub plain: bool,
    /// Whether the jobs of a dataset share one cache of it. They do not where a job's plans say what stays.
    pub shared: bool,
    /// The settings it takes.
    pub parameters: &'static [Parameter],
    /// Makes one, empty.
    pub build: fn(Setup) -> Box<dyn Policy>,
}

impl Entry {
    /// The values of its settings, those given and the defaults of the others.
    pub fn values<'a>(&self, given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Values> {
        Values::resolve(self.name, self.parameters, given)
    }
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
    /// The bytes between sample `id` and the one after it, where one request can read both.
    fn gap_after(&self, _id: Id) -> Option<u64> {
        None
    }
    /// The class of sample `id`, where the catalog knows one.
    fn label(&self, _id: Id) -> Option<i64> {
        None
    }
    /// Whether some samples can be read together.
    fn has_neighbours(&self) -> bool {
        false
    }
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
    /// To how many of the jobs that share the cache `id` is due: it is served again in the epoch that the job is deciding.
    fn jobs_due(&self, id: Id) -> u32 {
        u32::from(self.next_due(id).is_some())
    }
    /// Whether it is due to any of them.
    fn due_in_epoch(&self, id: Id) -> bool {
        self.jobs_due(id) > 0
    }
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
    /// It is resident since a package was read in this epoch, and is served from it for the first time.
    Packed,
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
    /// Its settings; one that is not there has its default.
    pub values: Values,
}

impl Setup {
    /// With the defaults of the policy that is made from it.
    pub fn new(capacity: u64, sizes: Arc<dyn Sizes>, seed: u64) -> Self {
        Self { capacity, sizes, seed, values: Values::default() }
    }
}

/// What is told of a plan before its first slot is decided.
#[derive(Default)]
pub struct Begin<'a> {
    /// The plan's epoch.
    pub epoch: u64,
    /// What the plan was made from, if importance was known.
    pub keys: Option<&'a Arc<Keys>>,
    /// The bytes of a package, where there are packages.
    pub package: Option<u64>,
    /// Slots whose selected id is an H-sample, and all slots.
    pub selected: (u64, u64),
    /// Whether residents stay while it is decided, where the policy has a static phase.
    pub still: bool,
}

/// Where a resident lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In a cache of one region, or in the H region.
    High,
    /// In the L region, where packages come and go.
    Low,
    /// In the static buffer of re-evaluated samples.
    Buffer,
}

/// A part of the capacity. Regions add up to the capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Its name in reports.
    pub name: &'static str,
    /// The bytes it may hold.
    pub capacity: u64,
    /// The bytes it holds.
    pub used: u64,
}

/// Which samples stay in the cache. Every id accessed lies in the catalog
/// that [`Setup::sizes`] describes.
pub trait Policy: Send {
    /// Decides the slot that serves `id`, and appends what leaves for it to `evicted`.
    fn access(&mut self, id: Id, due: &dyn Due, evicted: &mut Vec<Id>) -> Verdict;
    /// Whether `id` is resident.
    fn contains(&self, id: Id) -> bool;
    /// The bytes of all residents.
    fn used(&self) -> u64;
    /// The bytes residents may take.
    fn capacity(&self) -> u64;
    /// Changes the capacity, and appends what leaves for it to `evicted`.
    fn resize(&mut self, capacity: u64, evicted: &mut Vec<Id>);
    /// Calls `each` with every resident, in any order.
    fn residents(&self, each: &mut dyn FnMut(Id));
    /// Lets `id` go, whatever it is worth, because another node owns it now: true if it was resident. What stays stands as
    /// it stood.
    fn remove(&mut self, id: Id) -> bool;
    /// All that it knows, as bytes: residents with their region and their order, counts, draws, scores, what is
    /// pinned, the capacity, and how far a rebuild has come. Only the keys of the plan being decided are not
    /// part of it: they are kept with that plan. It is sealed without the lock that a policy is under.
    fn save(&self) -> Unsealed;
    /// Takes what [`Self::save`] wrote for a policy of the same name and setup, and goes on as that one did, to
    /// the sample.
    ///
    /// This policy is new; if a plan had begun when the other was saved, it is told of the last that had, by
    /// [`Self::begin`], first. From there it has the keys, from `saved` all else. What is damaged or another's
    /// is an error, and a policy that gave one is not to be used.
    fn restore(&mut self, saved: &[u8]) -> Result<()>;

    /// A plan begins: every slot decided from now on is its, and is decided with its keys.
    fn begin(&mut self, _begin: &Begin<'_>) {}
    /// What the plans being decided were made from is worth something else now: a job that shares the cache has left.
    fn rekey(&mut self, _keys: Option<&Arc<Keys>>) {}
    /// Which scores it takes the moment they are reported; none for policies that wait for a plan's keys.
    fn takes(&self) -> Option<Score> {
        None
    }
    /// Takes reported scores, at most [`SLICE`](crate::importance::SLICE) in a call.
    fn scored(&mut self, _scores: &[(Id, f32)]) {}
    /// Whether it has a region for packages.
    fn takes_packages(&self) -> bool {
        false
    }
    /// The bytes that the region for packages gets when the next plan begins, if they are as much as two packages, and
    /// the most that it can have.
    fn low(&self) -> (u64, u64) {
        (0, 0)
    }
    /// The plan has a package read that holds `members`, which [stay](crate::sampling::Event::Keep) if it says so; those
    /// that are not kept are forgotten. False where it need not be read, because all of them are resident.
    fn load(&mut self, _members: &[Id], _stays: bool, _due: &dyn Due, _evicted: &mut Vec<Id>) -> bool {
        true
    }
    /// The plan says that `id` leaves now.
    fn leave(&mut self, _id: Id, _evicted: &mut Vec<Id>) {}
    /// `ids`, at most [`SLICE`](crate::importance::SLICE), are re-evaluated before every epoch from now on:
    /// those that must be read for it now are appended to `read`. Residents come first over all calls. A policy with a static buffer keeps them
    /// there; one without is asked again before every epoch.
    fn pin(&mut self, ids: &[Id], read: &mut Vec<Id>, _evicted: &mut Vec<Id>) {
        read.extend(ids.iter().copied().filter(|&id| !self.contains(id)));
    }
    /// Where `id` lies, if it is resident.
    fn place(&self, id: Id) -> Option<Place> {
        self.contains(id).then_some(Place::High)
    }
    /// Its regions, of which there is always one.
    fn regions(&self) -> Vec<Region> {
        vec![Region { name: "cache", capacity: self.capacity(), used: self.used() }]
    }
}

/// The error of a saved state that is not this policy's.
fn foreign() -> Error {
    Error::invalid(
        "the saved state is damaged, or of another policy or dataset: drop it, and the cache begins empty",
    )
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
        assert!(message.starts_with("policy `LRU` is unknown; the policies are `lru`, `lfu`"));
    }
}
