//! A store whose bytes follow from their ids, and a reader that checks every one of them.
#![allow(clippy::unwrap_used, reason = "a test may fail")]
#![allow(dead_code, unreachable_pub, reason = "every test file uses a part")]

pub mod training;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use hotset_core::log::{Event, Recorder};
use hotset_core::sampling::{self, Plan};
use hotset_core::{Amount, Id, Index, Result, Rng};
use hotset_engine::{
    Asked, Concurrency, Config, Engine, GivenOrder, Grant, JobRequest, Logs, Packaging, Place, Purpose,
    SessionId,
};
use hotset_store::catalog::{Builder, Label, Sample, Shape};
use hotset_store::digest::Hashes;
use hotset_store::package::PackageStore;
use hotset_store::{Location, Opened, ReadError, Store};
use memmap2::Mmap;

/// The bytes of sample `id`.
pub fn content(id: u64, size: usize) -> Vec<u8> {
    let mut word = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x0123_4567_89ab_cdef;
    (0..size)
        .map(|_| {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            word as u8
        })
        .collect()
}

/// A store in memory that counts, fails by turns, and can be held up.
#[derive(Default)]
pub struct Memory {
    pub reads: AtomicU64,
    in_flight: AtomicUsize,
    pub most_in_flight: AtomicUsize,
    /// One read in so many fails transiently; 0 for none.
    pub fail_every: AtomicU64,
    /// Reads take a while that differs from one to the next, by this seed; 0 for none.
    pub jitter: AtomicU64,
    /// Ids that are gone.
    pub vanished: Mutex<Vec<u64>>,
    held: Mutex<bool>,
    released: Condvar,
}

impl Memory {
    pub fn hold(&self) {
        *self.held.lock().unwrap() = true;
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst)
    }

    pub fn let_go(&self) {
        *self.held.lock().unwrap() = false;
        self.released.notify_all();
    }
}

impl Store for Memory {
    fn read(&self, at: Location<'_>, into: &mut [u8]) -> std::result::Result<(), ReadError> {
        let now = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_in_flight.fetch_max(now, Ordering::SeqCst);
        let held = self.held.lock().unwrap();
        drop(self.released.wait_while(held, |held| *held).unwrap());
        let count = self.reads.fetch_add(1, Ordering::SeqCst) + 1;
        let jitter = self.jitter.load(Ordering::SeqCst);
        if jitter > 0 {
            (0..content(count ^ jitter, 1)[0] % 64).for_each(|_| std::thread::yield_now());
        }
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        let id: u64 = at.key.rsplit('/').next().unwrap().parse().unwrap();
        if self.vanished.lock().unwrap().contains(&id) {
            return Err(ReadError::Vanished);
        }
        let every = self.fail_every.load(Ordering::SeqCst);
        if every > 0 && count.is_multiple_of(every) {
            into.fill(0xee);
            return Err(ReadError::Transient("by turns".into()));
        }
        into.copy_from_slice(&content(id, into.len()));
        Ok(())
    }
}

/// A dataset of `sizes`, labelled by id modulo 10.
pub fn dataset(sizes: &[u64]) -> (Opened, Arc<Memory>) {
    let classes = (0..10).map(|class| class.to_string()).collect();
    let mut builder = Builder::new(classes);
    let directory = builder.directory("samples").unwrap();
    for (id, &size) in sizes.iter().enumerate() {
        builder.push(directory, &id.to_string(), size, 0, Some(id as u32 % 10)).unwrap();
    }
    let store = Arc::new(Memory::default());
    let opened = Opened {
        catalog: Arc::new(builder.finish()),
        store: Arc::clone(&store) as Arc<dyn Store>,
        cached: false,
        place: "memory".into(),
        identity: format!("memory-{}-{}", sizes.len(), sizes.iter().sum::<u64>()),
        hashes: None,
    };
    (opened, store)
}

/// The same samples at another place, with the hashes of their bytes.
pub fn copy(opened: Opened, place: &str) -> Opened {
    let hash = |id: u32| *blake3::hash(&content(id.into(), opened.catalog.size(id) as usize)).as_bytes();
    let hashes = (0..opened.catalog.len() as u32).map(|id| Some(hash(id))).collect();
    let identity = format!("{}-{place}", opened.identity);
    Opened { place: place.into(), identity, hashes: Some(Arc::new(Hashes::new(hashes))), ..opened }
}

/// The order that a trainer of its own order gives for an epoch: as many ids as there are samples, drawn with
/// replacement, the first tenth of them four times as often.
pub fn order(samples: usize, epoch: u64) -> Vec<Id> {
    let mut rng = Rng::new(7, epoch, "order");
    let mut draw = |below: usize| (rng.unit() * below as f64) as Id;
    (0..samples).map(|_| if draw(13) < 4 { draw(samples / 10) } else { draw(samples) }).collect()
}

/// Begins an epoch as a trainer does, which gives the order of it where the strategy takes one.
pub fn begin(engine: &Engine, job: &str, epoch: u64, ranks: (u32, u32), start: u64) -> Arc<Plan> {
    let stats = engine.job_stats(Some(job)).remove(0);
    if !sampling::find(&stats.strategy).unwrap().takes_order() {
        return engine.begin_epoch(job, epoch, ranks, start, false).unwrap();
    }
    let order = GivenOrder::of(order(stats.samples as usize, epoch));
    let named = engine.begin_given(job, epoch, ranks, start, &GivenOrder::named(order.digest())).unwrap();
    named.unwrap_or_else(|| engine.begin_given(job, epoch, ranks, start, &order).unwrap().unwrap())
}

/// What lies between two samples of a shard.
pub const BETWEEN: u64 = 16;

/// A store in memory of shards, whose reads are counted; those that are broken cannot be read.
#[derive(Default)]
pub struct Shards {
    objects: HashMap<String, Vec<u8>>,
    pub reads: AtomicU64,
    pub broken: Mutex<Vec<String>>,
}

impl Store for Shards {
    fn read(&self, at: Location<'_>, into: &mut [u8]) -> std::result::Result<(), ReadError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        if self.broken.lock().unwrap().iter().any(|key| key == at.key) {
            return Err(ReadError::Vanished);
        }
        let from = &self.objects[at.key][at.offset as usize..];
        into.copy_from_slice(&from[..into.len()]);
        Ok(())
    }
}

/// A dataset of `sizes` in shards of `each` samples.
pub fn sharded(sizes: &[u64], each: usize) -> (Opened, Arc<Shards>) {
    let mut builder = Builder::of(Shape { classes: Vec::new(), labels: true, parts: Vec::new() });
    let mut store = Shards::default();
    for (shard, sizes) in sizes.chunks(each).enumerate() {
        let key = format!("shard-{shard}");
        let directory = builder.directory(&key).unwrap();
        let object = store.objects.entry(key).or_default();
        for (id, &size) in (shard * each..).zip(sizes) {
            object.extend([0xee; BETWEEN as usize]);
            let sample = Sample {
                offset: Some(object.len() as u64),
                size,
                version: 0,
                label: Some(Label::Whole(id as i32 % 10)),
                spans: &[],
            };
            builder.push_sample(directory, &id.to_string(), &sample).unwrap();
            object.extend(content(id as u64, size as usize));
        }
    }
    let store = Arc::new(store);
    let opened = Opened {
        catalog: Arc::new(builder.finish()),
        store: Arc::clone(&store) as Arc<dyn Store>,
        cached: false,
        place: "shards".into(),
        identity: format!("shards-{}-{}", sizes.len(), sizes.iter().sum::<u64>()),
        hashes: None,
    };
    (opened, store)
}

/// The logs of caches, in memory, in the order in which caches were opened.
#[derive(Default)]
pub struct MemoryLogs(Mutex<Vec<Arc<MemoryLog>>>);

/// One of them.
#[derive(Default)]
pub struct MemoryLog(Mutex<Vec<Event>>);

impl Logs for MemoryLogs {
    fn open(&self, _job: &str, _policy: &str) -> Option<Arc<dyn Recorder>> {
        let log = Arc::new(MemoryLog::default());
        self.0.lock().unwrap().push(Arc::clone(&log));
        Some(log)
    }
}

impl Recorder for MemoryLog {
    fn note(&self, event: Event) {
        let mut events = self.0.lock().unwrap();
        if !events.last_mut().is_some_and(|last| last.extend(&event)) {
            events.push(event);
        }
    }
}

impl MemoryLogs {
    /// What was noted so far of each cache.
    pub fn all(&self) -> Vec<Vec<Event>> {
        self.0.lock().unwrap().iter().map(|log| log.0.lock().unwrap().clone()).collect()
    }
}

pub fn engine() -> Engine {
    patient(Duration::from_secs(10))
}

/// An engine whose plans wait for ranks no longer than `patience`.
pub fn patient(patience: Duration) -> Engine {
    Engine::new(Config { patience, ..config() })
}

pub fn config() -> Config {
    Config {
        concurrency: Concurrency::Fixed(8),
        memory: None,
        machine: 8 << 30,
        available: || 8 << 30,
        retries: 5,
        linger: Duration::ZERO,
        logs: None,
        patience: Duration::from_secs(10),
    }
}

pub fn request(opened: &Opened, cache: &str, policy: &str) -> JobRequest {
    JobRequest {
        job: "job".into(),
        dataset: opened.identity.clone(),
        cache: cache.parse::<Amount>().unwrap(),
        strategy: Some("uniform".into()),
        policy: Some(policy.into()),
        seed: 7,
        prefetch: true,
        package_bytes: 1 << 20,
        ..JobRequest::default()
    }
}

/// Where a job's packages lie, with what lies there; what a killed one left unfinished is removed, as a server does.
pub fn packaging(opened: &Opened, place: &str) -> Packaging {
    let store = PackageStore::open(place, &BTreeMap::new(), opened.into(), "job").unwrap();
    store.sweep().unwrap();
    let scan = store.scan(&mut |_| {}).unwrap();
    let found = scan.packages.iter().map(|found| (found.number, found.ids())).collect();
    let next = scan.next().unwrap();
    Packaging { store: Arc::new(store), found, next, keep: true }
}

/// Where the packages come from that `request` asks for, as a server finds it.
pub fn place(opened: &Opened, request: &JobRequest) -> Option<Place> {
    if let Some(runs) = Place::of_plans(request, &opened.catalog).unwrap() {
        return Some(runs);
    }
    match request.packages.as_deref() {
        Some(place) => Some(Place::Store(packaging(opened, place))),
        None => opened.catalog.run_packages(request.package_bytes).map(|runs| Place::Runs(Arc::new(runs))),
    }
}

/// One reader: a session, the segments it has mapped, and what it expects to find in them.
pub struct Reader<'a> {
    pub engine: &'a Engine,
    pub session: SessionId,
    pub job: &'static str,
    /// How long after its last batch it asks for the next, as it tells.
    pub since: Option<Duration>,
    sizes: Vec<u64>,
    maps: HashMap<u32, Arc<Mmap>>,
}

/// A batch whose bytes can be looked at while it is leased.
pub struct Held {
    pub lease: u64,
    pub views: Vec<(Arc<Mmap>, usize, usize)>,
    pub labels: Vec<i64>,
}

impl Held {
    pub fn view(&self, position: usize) -> &[u8] {
        let (map, offset, length) = &self.views[position];
        &map[*offset..offset + length]
    }
}

impl<'a> Reader<'a> {
    pub fn new(engine: &'a Engine, opened: &Opened) -> Self {
        Self::attached(engine, opened, engine.attach())
    }

    /// One that has attached itself.
    pub fn attached(engine: &'a Engine, opened: &Opened, session: SessionId) -> Self {
        engine.open_dataset(session, opened);
        let sizes = (0..opened.catalog.len()).map(|id| opened.catalog.size(id as u32)).collect();
        Self { engine, session, job: "job", since: None, sizes, maps: HashMap::new() }
    }

    /// The same of another job.
    pub fn of_job(engine: &'a Engine, opened: &Opened, job: &'static str) -> Self {
        Self { job, ..Self::new(engine, opened) }
    }

    pub fn ask(&self, indices: &[u64]) -> Result<Grant> {
        self.ask_as(0, indices)
    }

    pub fn ask_as(&self, rank: u32, indices: &[u64]) -> Result<Grant> {
        let asked = Asked { indices, purpose: Purpose::Served, since: self.since };
        let wait = Duration::from_secs(30);
        self.engine.get_batch_for(self.session, self.job, rank, asked, wait, &mut || true)
    }

    /// Asks for samples that are re-evaluated before `epoch`, and lets go of them.
    pub fn get_reevaluated(&mut self, indices: &[u64], epoch: u64) {
        let wait = Duration::from_secs(30);
        let asked = Asked { indices, purpose: Purpose::Reevaluated(epoch), since: None };
        let grant = self.engine.get_batch_for(self.session, self.job, 0, asked, wait, &mut || true).unwrap();
        for new in &grant.segments {
            // A later batch may lie in it, and is not told of it again.
            // SAFETY: the segment is sealed against shrinking, so the map stays valid.
            let map = unsafe { Mmap::map(&*new.descriptor) }.unwrap();
            self.maps.insert(new.segment, Arc::new(map));
        }
        self.engine.release(self.session, &[grant.lease]);
    }

    /// Asks for a batch and checks every byte and label of it.
    pub fn get(&mut self, indices: &[u64]) -> Result<Held> {
        self.get_as(0, indices)
    }

    /// The same for a reader of `rank`.
    pub fn get_as(&mut self, rank: u32, indices: &[u64]) -> Result<Held> {
        let grant = self.ask_as(rank, indices)?;
        for new in &grant.segments {
            // SAFETY: the segment is sealed against shrinking, so the map stays valid.
            let map = unsafe { Mmap::map(&*new.descriptor) }.unwrap();
            self.maps.insert(new.segment, Arc::new(map));
        }
        let views = grant
            .entries
            .iter()
            .map(|entry| {
                (Arc::clone(&self.maps[&entry.segment]), entry.offset as usize, entry.length as usize)
            })
            .collect();
        let held = Held { lease: grant.lease, views, labels: grant.labels };
        self.check(indices, &held);
        for dropped in grant.dropped {
            self.maps.remove(&dropped);
        }
        Ok(held)
    }

    pub fn check(&self, indices: &[u64], held: &Held) {
        for (position, &index) in indices.iter().enumerate() {
            let id = Index::from_raw(index).sample;
            assert!(
                held.view(position) == content(id, self.sizes[id as usize] as usize),
                "wrong bytes of {id}"
            );
            assert_eq!(held.labels[position], id as i64 % 10, "wrong label of {id}");
        }
    }

    pub fn release(&self, held: Held) {
        self.engine.release(self.session, &[held.lease]);
    }
}

/// The indices of an epoch, begun by rank 0 alone.
pub fn epoch_indices(engine: &Engine, epoch: u64) -> Vec<u64> {
    epoch_indices_of(engine, "job", epoch)
}

pub fn epoch_indices_of(engine: &Engine, job: &str, epoch: u64) -> Vec<u64> {
    let plan = engine.begin_epoch(job, epoch, (0, 1), 0, false).unwrap();
    plan.rank_ids(0).map(|id| Index { epoch: Some(epoch), sample: id.into() }.into_raw()).collect()
}

/// Serves an epoch to `readers` threads that take batches in turn, as loader workers do.
pub fn serve_epoch(engine: &Engine, opened: &Opened, readers: usize, indices: &[u64], batch: usize) {
    let batches: Vec<&[u64]> = indices.chunks(batch).collect();
    std::thread::scope(|scope| {
        for worker in 0..readers {
            let batches = &batches;
            scope.spawn(move || {
                let mut reader = Reader::new(engine, opened);
                for batch in batches.iter().skip(worker).step_by(readers) {
                    let held = reader.get(batch).unwrap();
                    reader.release(held);
                }
                engine.detach(reader.session, std::time::Instant::now());
            });
        }
    });
}

/// Ends the test's process if `work` does not come back: a hang is a failure.
pub fn within<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let (done, waits) = std::sync::mpsc::channel::<()>();
    let what = what.to_owned();
    let watch = std::thread::spawn(move || {
        if waits.recv_timeout(Duration::from_secs(60)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("stuck: {what}");
            std::process::exit(101);
        }
    });
    let made = work();
    drop(done);
    watch.join().unwrap();
    made
}
