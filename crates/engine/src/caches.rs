//! The caches of an engine: one for all jobs that train a dataset with the same policy and the same settings.
//!
//! A job joins its cache when it is opened and leaves when it ends; the last one takes the cache with it. Memory is
//! divided between caches by what their jobs ask for and what they gain, whichever came first: each has a *part*, and its
//! capacity moves there, at once where that is more, a slice a hold of the lock where residents must leave first.

use std::collections::BTreeMap;
use std::sync::Arc;

use hotset_core::cache::{Ask, Cache, Wish, divide};
use hotset_core::settings::Values;
use hotset_core::{Error, Id, Result};

use crate::dataset::Dataset;

/// Residents that leave a cache in one hold of the lock because it gets smaller.
const LEAVING: u64 = 4096;

/// What jobs must agree in to share a cache.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CacheKey {
    /// The dataset.
    pub(crate) dataset: u32,
    /// The policy and its settings.
    pub(crate) policy: &'static str,
    /// Whether the policy keeps within its capacity.
    pub(crate) bounded: bool,
    pub(crate) settings: Values,
    /// Whether jobs have plans.
    pub(crate) planned: bool,
    /// The job whose own it is, where its plans say what stays or packages are made for it alone.
    pub(crate) owner: Option<String>,
}

/// A cache and the jobs in it.
struct Entry {
    key: CacheKey,
    dataset: Arc<Dataset>,
    cache: Cache,
    /// What each job asks for.
    jobs: BTreeMap<u64, Wish>,
    /// The bytes that it is to have.
    part: u64,
}

impl Entry {
    /// What it may have at most, and what that is worth.
    fn ask(&self) -> Ask {
        Ask::of(self.key.policy, self.dataset.catalog.bytes(), self.jobs.values().copied())
    }

    /// The same, if `more` bytes are asked for besides.
    fn claim(&self, more: u64) -> Claim {
        let ask = self.ask();
        let bytes = ask.bytes.saturating_add(more).min(self.dataset.catalog.bytes());
        Claim { bounded: self.key.bounded, ask: Ask { bytes, ..ask } }
    }

    fn capacity(&self) -> u64 {
        self.cache.policy().capacity()
    }
}

/// What a cache asks for, and whether its policy keeps within that.
#[derive(Debug, Clone, Copy)]
struct Claim {
    bounded: bool,
    ask: Ask,
}

/// The parts of `budget` for caches that ask for so much. One whose policy lets nothing go (`bounded` is false) has its whole
/// dataset, or what is left for it and is not opened; the others divide the rest.
fn parts(budget: u64, claims: &[Claim]) -> Vec<u64> {
    let mut left = budget;
    let mut parts = vec![0; claims.len()];
    for (part, claim) in parts.iter_mut().zip(claims).filter(|(_, claim)| !claim.bounded) {
        *part = claim.ask.bytes.min(left);
        left -= *part;
    }
    let rest: Vec<Ask> = claims.iter().filter(|claim| claim.bounded).map(|claim| claim.ask).collect();
    let bounded = parts.iter_mut().zip(claims).filter(|(_, claim)| claim.bounded);
    bounded.zip(divide(left, &rest)).for_each(|((part, _), divided)| *part = divided);
    parts
}

/// What came and went of a dataset when its cache was resized, in order.
type Resized = (Arc<Dataset>, Vec<(Id, bool)>);

/// All caches.
#[derive(Default)]
pub(crate) struct Caches {
    open: BTreeMap<u64, Entry>,
    /// The cache of each job.
    jobs: BTreeMap<u64, u64>,
}

impl Caches {
    /// The cache of a job.
    pub(crate) fn of(&self, job: u64) -> Result<&Cache> {
        let serial = self.jobs.get(&job).ok_or_else(lost)?;
        self.open.get(serial).map(|entry| &entry.cache).ok_or_else(lost)
    }

    /// The cache of a job, to be asked.
    pub(crate) fn of_mut(&mut self, job: u64) -> Result<&mut Cache> {
        let serial = self.jobs.get(&job).ok_or_else(lost)?;
        self.open.get_mut(serial).map(|entry| &mut entry.cache).ok_or_else(lost)
    }

    /// The cache that jobs share by this key.
    pub(crate) fn find(&self, key: &CacheKey) -> Option<u64> {
        self.open.iter().find(|(_, entry)| entry.key == *key).map(|(&serial, _)| serial)
    }

    /// Opens a cache, which has nothing of the memory yet.
    pub(crate) fn open(&mut self, serial: u64, key: CacheKey, dataset: &Arc<Dataset>, cache: Cache) {
        let entry = Entry { key, dataset: Arc::clone(dataset), cache, jobs: BTreeMap::new(), part: 0 };
        self.open.insert(serial, entry);
    }

    /// A job that asks for so many bytes joins a cache.
    pub(crate) fn join(&mut self, serial: u64, job: u64, ask: u64) -> Result<&mut Cache> {
        let entry = self.open.get_mut(&serial).ok_or_else(lost)?;
        entry.jobs.insert(job, Wish { bytes: ask, benefit: None, gpus: 1 });
        self.jobs.insert(job, serial);
        Ok(&mut entry.cache)
    }

    /// A job leaves its cache; if it was the last, the cache and its dataset.
    pub(crate) fn leave(&mut self, job: u64, member: u32) -> Option<(Arc<Dataset>, Cache)> {
        let serial = self.jobs.remove(&job)?;
        let entry = self.open.get_mut(&serial)?;
        entry.jobs.remove(&job);
        entry.cache.leave(member);
        if !entry.jobs.is_empty() {
            return None;
        }
        self.open.remove(&serial).map(|entry| (entry.dataset, entry.cache))
    }

    /// The jobs that share the cache of a job, itself included.
    pub(crate) fn sharers(&self, job: u64) -> impl Iterator<Item = u64> {
        let entry = self.jobs.get(&job).and_then(|serial| self.open.get(serial));
        entry.into_iter().flat_map(|entry| entry.jobs.keys().copied())
    }

    /// Whether jobs compete for the cache of a job: several share it, and it is not to hold all of their dataset.
    pub(crate) fn is_contended(&self, job: u64) -> bool {
        let entry = self.jobs.get(&job).and_then(|serial| self.open.get(serial));
        entry.is_some_and(|entry| entry.jobs.len() > 1 && entry.part < entry.dataset.catalog.bytes())
    }

    fn wish(&mut self, job: u64) -> Option<&mut Wish> {
        self.open.get_mut(self.jobs.get(&job)?)?.jobs.get_mut(&job)
    }

    /// What a job gains was measured.
    pub(crate) fn weigh(&mut self, job: u64, benefit: f64) {
        self.wish(job).into_iter().for_each(|wish| wish.benefit = Some(benefit));
    }

    /// A job trains on so many GPUs. True if that is another number, and what it gains was measured.
    pub(crate) fn set_gpus(&mut self, job: u64, gpus: u32) -> bool {
        let Some(wish) = self.wish(job) else { return false };
        std::mem::replace(&mut wish.gpus, gpus) != gpus && wish.benefit.is_some()
    }

    /// Bytes that all caches may keep now.
    pub(crate) fn capacity(&self) -> u64 {
        self.open.values().map(Entry::capacity).sum()
    }

    /// Bytes that all jobs ask for, as far as their datasets are that large.
    pub(crate) fn asked(&self) -> u64 {
        self.open.values().map(|entry| entry.ask().bytes).fold(0, u64::saturating_add)
    }

    /// The part that a job would have of `budget` that asks for so much more, in a cache that is there or a new one: no less
    /// than in proportion, since its plans go by it for good, and what others were measured to gain is not its own.
    pub(crate) fn part_with(
        &self,
        budget: u64,
        (key, cache): (&CacheKey, Option<u64>),
        ask: u64,
        whole: u64,
    ) -> u64 {
        let with =
            |(serial, entry): (&u64, &Entry)| entry.claim(if Some(*serial) == cache { ask } else { 0 });
        let mut claims: Vec<Claim> = self.open.iter().map(with).collect();
        let place = match cache {
            Some(cache) => self.open.keys().position(|&serial| serial == cache).unwrap_or_default(),
            None => {
                let ask = Ask { bytes: ask.min(whole), gain: None, chunks: None };
                claims.push(Claim { bounded: key.bounded, ask });
                claims.len() - 1
            }
        };
        let unmeasured =
            |claim: &Claim| Claim { ask: Ask { gain: None, ..claim.ask }, bounded: claim.bounded };
        let proportional: Vec<Claim> = claims.iter().map(unmeasured).collect();
        parts(budget, &claims)[place].max(parts(budget, &proportional)[place])
    }

    /// Divides `budget` between all caches anew. True if one has another part than before.
    pub(crate) fn divide(&mut self, budget: u64) -> bool {
        let claims: Vec<Claim> = self.open.values().map(|entry| entry.claim(0)).collect();
        let mut changed = false;
        for (entry, part) in self.open.values_mut().zip(parts(budget, &claims)) {
            changed |= std::mem::replace(&mut entry.part, part) != part;
        }
        changed
    }

    /// Moves capacities towards their parts, a slice of residents at a time: what came and went of which dataset, and
    /// whether there is more to do. A cache gets larger only by what others have let go of.
    pub(crate) fn settle(&mut self, budget: u64) -> (Vec<Resized>, bool) {
        let (mut changes, mut more) = (Vec::new(), false);
        for entry in self.open.values_mut().filter(|entry| entry.part < entry.capacity()) {
            let mean = (entry.dataset.catalog.bytes() / entry.dataset.samples().max(1) as u64).max(1);
            let used = entry.cache.policy().used();
            let step = entry.part.max(used.saturating_sub(LEAVING * mean));
            let gone = entry.cache.resize(step);
            more |= step > entry.part && !gone.is_empty();
            changes.push((Arc::clone(&entry.dataset), gone));
        }
        let mut free = budget.saturating_sub(self.capacity());
        for entry in self.open.values_mut().filter(|entry| entry.part > entry.capacity()) {
            let grown = (entry.part - entry.capacity()).min(free);
            free -= grown;
            if grown > 0 {
                changes.push((Arc::clone(&entry.dataset), entry.cache.resize(entry.capacity() + grown)));
            }
        }
        (changes, more)
    }
}

#[cfg(feature = "shuttle")]
impl Caches {
    /// How many caches of a dataset keep a sample.
    pub(crate) fn keepers(&self, dataset: u32, id: Id) -> u32 {
        let keeps = |entry: &&Entry| entry.dataset.key == dataset && entry.cache.keeps(id);
        self.open.values().filter(keeps).count() as u32
    }
}

fn lost() -> Error {
    Error::internal("a job has lost its cache")
}
