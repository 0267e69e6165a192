//! The caches of an engine: one for all jobs that train a dataset with the same policy and the same settings.
//!
//! A job joins its cache when it is opened and leaves when it ends; the last one takes the cache with it. Memory is
//! divided between caches by what their jobs ask for and what they gain, whichever came first: each has a *part*, and its
//! capacity moves there, at once where that is more, a slice a hold of the lock where residents must leave first. What a
//! cache that is gone kept leaves in slices too.

use std::collections::BTreeMap;
use std::sync::Arc;

use hotset_core::cache::{Ask, Cache, Wish, divide};
use hotset_core::settings::Values;
use hotset_core::{Error, Id, Result};

use crate::dataset::Dataset;

/// Residents that leave a cache in one hold of the lock because it gets smaller, or goes.
const LEAVING: u64 = 4096;
/// Samples among which they are looked for in one hold, 64 at a step.
const LOOKED_AT: u64 = 1 << 22;

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

/// Of a job of which nothing is known yet.
fn newcomer(bytes: u64) -> Wish {
    Wish { bytes, benefit: None, gpus: 1 }
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

    /// The same, if a job comes in that asks for so much besides.
    fn claim(&self, asks: Option<u64>) -> Claim {
        let jobs = self.jobs.values().copied();
        Claim::of(&self.key, self.dataset.catalog.bytes(), jobs.chain(asks.map(newcomer)))
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

impl Claim {
    /// What a cache of that key asks for with these jobs, of a dataset of so many bytes.
    fn of(key: &CacheKey, whole: u64, jobs: impl Iterator<Item = Wish>) -> Self {
        Self { bounded: key.bounded, ask: Ask::of(key.policy, whole, jobs) }
    }
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

/// A cache whose last job has left: what it keeps is let go of.
pub(crate) struct Gone {
    dataset: Arc<Dataset>,
    cache: Cache,
    /// The first sample that was not looked at yet.
    next: u64,
    /// Residents that have not left.
    left: u64,
}

impl Gone {
    fn new(dataset: Arc<Dataset>, cache: Cache) -> Self {
        let left = cache.residents();
        Self { dataset, cache, next: 0, left }
    }

    fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// What leaves it next.
    fn leave(&mut self) -> Vec<(Id, bool)> {
        let end = self.next + LOOKED_AT;
        let leaving = self.cache.kept(self.next..end).take(LEAVING as usize);
        let leaving: Vec<(Id, bool)> = leaving.map(|id| (id, false)).collect();
        let full = leaving.last().filter(|_| leaving.len() as u64 == LEAVING);
        self.next = full.map_or(end, |&(last, _)| u64::from(last) + 1);
        self.left -= leaving.len() as u64;
        leaving
    }
}

/// All caches.
#[derive(Default)]
pub(crate) struct Caches {
    open: BTreeMap<u64, Entry>,
    gone: Vec<Gone>,
    /// Those of them that have let go of everything. To free them takes as long as their datasets are large.
    empty: Vec<Gone>,
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
        entry.jobs.insert(job, newcomer(ask));
        self.jobs.insert(job, serial);
        Ok(&mut entry.cache)
    }

    /// A job leaves its cache. If it was the last, what the cache keeps leaves when memory is [fitted](Self::settle).
    pub(crate) fn leave(&mut self, job: u64, member: u32) {
        let Some(serial) = self.jobs.remove(&job) else { return };
        let Some(entry) = self.open.get_mut(&serial) else { return };
        entry.jobs.remove(&job);
        entry.cache.leave(member);
        if !entry.jobs.is_empty() {
            return;
        }
        if let Some(Entry { dataset, cache, .. }) = self.open.remove(&serial) {
            self.gone.push(Gone::new(dataset, cache));
        }
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

    /// The same, and bytes of caches that are gone and have not let go of them.
    pub(crate) fn held(&self) -> u64 {
        self.capacity() + self.gone.iter().map(|gone| gone.cache.policy().used()).sum::<u64>()
    }

    /// Caches that are gone and keep nothing, to be freed without the lock.
    pub(crate) fn take_empty(&mut self) -> Vec<Gone> {
        std::mem::take(&mut self.empty)
    }

    /// How many caches of a dataset are gone and have not let go of all that they kept.
    pub(crate) fn leaving(&self, dataset: u32) -> usize {
        self.gone.iter().filter(|gone| gone.dataset.key == dataset).count()
    }

    /// Bytes that all jobs ask for, as far as their datasets are that large.
    pub(crate) fn asked(&self) -> u64 {
        self.open.values().map(|entry| entry.ask().bytes).fold(0, u64::saturating_add)
    }

    /// The part of `budget` that the cache of a job will have which asks for so much: one that is there, or a new one for a
    /// dataset of so many bytes.
    pub(crate) fn part_of(
        &self,
        budget: u64,
        (key, cache): (&CacheKey, Option<u64>),
        ask: u64,
        whole: u64,
    ) -> u64 {
        let claim = |(serial, entry): (&u64, &Entry)| entry.claim((Some(*serial) == cache).then_some(ask));
        let mut claims: Vec<Claim> = self.open.iter().map(claim).collect();
        let place = cache.and_then(|cache| self.open.keys().position(|&serial| serial == cache));
        let place = place.unwrap_or_else(|| {
            claims.push(Claim::of(key, whole, std::iter::once(newcomer(ask))));
            claims.len() - 1
        });
        parts(budget, &claims)[place]
    }

    /// Divides `budget` between all caches anew. True if one has another part than before.
    pub(crate) fn divide(&mut self, budget: u64) -> bool {
        let claims: Vec<Claim> = self.open.values().map(|entry| entry.claim(None)).collect();
        let mut changed = false;
        for (entry, part) in self.open.values_mut().zip(parts(budget, &claims)) {
            changed |= std::mem::replace(&mut entry.part, part) != part;
        }
        changed
    }

    /// Moves capacities towards their parts, and lets go of caches that are gone, a slice of residents of each at a time: what
    /// came and went of which dataset, and whether there is more to do. A cache gets larger only by what others have let go
    /// of.
    pub(crate) fn settle(&mut self, budget: u64) -> (Vec<Resized>, bool) {
        let (mut changes, mut more) = (Vec::new(), false);
        if let Some(gone) = self.gone.last_mut() {
            changes.push((Arc::clone(&gone.dataset), gone.leave()));
            if gone.is_empty() {
                self.empty.extend(self.gone.pop());
            }
            more = !self.gone.is_empty();
        }
        for entry in self.open.values_mut().filter(|entry| entry.part < entry.capacity()) {
            let mean = (entry.dataset.catalog.bytes() / entry.dataset.samples().max(1) as u64).max(1);
            let used = entry.cache.policy().used();
            let step = entry.part.max(used.saturating_sub(LEAVING * mean));
            let gone = entry.cache.resize(step);
            more |= step > entry.part && !gone.is_empty();
            changes.push((Arc::clone(&entry.dataset), gone));
        }
        let mut free = budget.saturating_sub(self.held());
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
        let gone = self
            .gone
            .iter()
            .filter(|gone| gone.dataset.key == dataset && u64::from(id) >= gone.next && gone.cache.keeps(id));
        (self.open.values().filter(keeps).count() + gone.count()) as u32
    }
}

fn lost() -> Error {
    Error::internal("a job has lost its cache")
}

#[cfg(test)]
mod tests {
    use hotset_core::policy::{self, Setup};
    use hotset_store::catalog::Builder;
    use hotset_store::{Location, ReadError, Store};

    use super::*;

    struct Nothing;

    impl Store for Nothing {
        fn read(&self, _: Location<'_>, _: &mut [u8]) -> std::result::Result<(), ReadError> {
            Err(ReadError::Vanished)
        }
    }

    /// A cache of 100,000 samples that keeps these, and has lost its last job.
    fn gone(kept: impl Iterator<Item = Id>) -> Gone {
        let mut builder = Builder::new(vec!["class".into()]);
        let directory = builder.directory("all").unwrap();
        for id in 0..100_000 {
            builder.push(directory, &id.to_string(), 10, 0, Some(0)).unwrap();
        }
        let catalog = Arc::new(builder.finish());
        let setup = Setup::new(u64::MAX, Arc::clone(&catalog) as _, 0);
        let mut cache = Cache::new((policy::find("lru").unwrap().build)(setup), 100_000);
        kept.for_each(|id| drop(cache.access(id)));
        let (name, place, store) = (String::new(), String::new(), Arc::new(Nothing));
        Gone::new(Arc::new(Dataset { key: 0, name, place, catalog, store, hashes: None }), cache)
    }

    #[test]
    fn a_cache_that_is_gone_goes_in_as_many_slices_as_its_residents_make() {
        for (every, slices) in [(1, 25), (10, 3), (50_000, 1)] {
            let (mut gone, mut left) = (gone((0..100_000).step_by(every)), Vec::new());
            for slice in 1..=slices {
                assert!(!gone.is_empty(), "in less than {slice} slices");
                let leaving = gone.leave();
                assert!(leaving.len() as u64 <= LEAVING);
                left.extend(leaving.into_iter().map(|(id, _)| id));
            }
            assert!(gone.is_empty(), "one sample in {every}: in more than {slices} slices");
            assert!(left.into_iter().eq((0..100_000).step_by(every)), "each once");
        }
        assert!(gone(std::iter::empty()).is_empty());
    }
}
