//! Readers, jobs, faults, kills and evictions in many orders, each given by a seed.
//!
//! With the feature `shuttle` all threads of the engine run one at a time, and the test chooses which is next whenever one
//! takes a lock, waits or starts. What must hold whenever the lock is free is checked each time that it is taken: bytes and
//! leases add up, everything that has not come is on its way, no batch waits for what has come. Waits have no time limit
//! here, so a missed signal is a deadlock.
//!
//! `HOTSET_SCHEDULES` says how many orders are tried of each test; a failure prints the one that failed, and
//! `HOTSET_SCHEDULE` repeats it.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;
#[path = "cluster/orders.rs"]
mod nodes;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{config, content, copy, request, sharded};
use hotset_core::{Id, Index};
use hotset_engine::{Asked, Concurrency, Config, Ends, Engine, JobRequest, Purpose, SessionId, Trained};
use hotset_store::catalog::Builder;
use hotset_store::{Location, Opened, ReadError, Store};
use memmap2::Mmap;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

/// Tries many orders of a test, or repeats one.
fn schedules(test: fn()) {
    let mut settings = shuttle::Config::new();
    settings.stack_size = 1 << 20;
    if let Ok(schedule) = std::env::var("HOTSET_SCHEDULE") {
        let scheduler = shuttle::scheduler::ReplayScheduler::new_from_encoded(&schedule);
        shuttle::Runner::new(scheduler, settings).run(test);
        return;
    }
    let tries = std::env::var("HOTSET_SCHEDULES").map_or(1000, |tries| tries.parse().unwrap());
    // Half of them at random, half with few changes between threads, at random places.
    let random = shuttle::scheduler::RandomScheduler::new(tries / 2);
    shuttle::Runner::new(random, settings.clone()).run(test);
    let few = shuttle::scheduler::PctScheduler::new(3, tries - tries / 2);
    shuttle::Runner::new(few, settings).run(test);
}

/// A store in memory whose reads give way to other threads, and fail now and then.
struct Flaky {
    one_in: u32,
}

impl Store for Flaky {
    fn read(&self, at: Location<'_>, into: &mut [u8]) -> Result<(), ReadError> {
        thread::yield_now();
        if self.one_in > 0 && thread_rng().gen_ratio(1, self.one_in) {
            into.fill(0xee);
            return Err(if thread_rng().gen_bool(0.5) {
                ReadError::Transient("now and then".into())
            } else {
                ReadError::Vanished
            });
        }
        let id: u64 = at.key.rsplit('/').next().unwrap().parse().unwrap();
        into.copy_from_slice(&content(id, into.len()));
        Ok(())
    }
}

/// A dataset of samples of so many bytes, of which one read in `one_in` fails.
fn dataset(samples: usize, size: u64, one_in: u32) -> Opened {
    let mut builder = Builder::new((0..10).map(|class| class.to_string()).collect());
    let directory = builder.directory("samples").unwrap();
    for id in 0..samples {
        builder.push(directory, &id.to_string(), size, 0, Some(id as u32 % 10)).unwrap();
    }
    Opened {
        catalog: Arc::new(builder.finish()),
        store: Arc::new(Flaky { one_in }),
        cached: false,
        place: "memory".into(),
        identity: format!("flaky-{samples}-{size}"),
        hashes: None,
    }
}

fn engine() -> Arc<Engine> {
    Arc::new(Engine::new(Config {
        concurrency: Concurrency::Fixed(2),
        retries: 1,
        patience: Duration::from_secs(600),
        ..config()
    }))
}

/// One client, with the segments that it has mapped.
struct Client {
    engine: Arc<Engine>,
    session: SessionId,
    job: &'static str,
    opened: Opened,
    maps: HashMap<u32, Mmap>,
    /// What it tells of how long its last batch took.
    since: Option<Duration>,
    page: Arc<Page>,
    /// The lease that it has noted there, and tells with its next request.
    untold: Option<u64>,
}

/// Where a client notes the lease that ended last, and sees whether it should tell it at once.
#[derive(Default)]
struct Page {
    ended: shuttle::sync::atomic::AtomicU64,
    urgent: shuttle::sync::atomic::AtomicBool,
}

impl Ends for Page {
    fn ended(&self) -> u64 {
        self.ended.load(Ordering::SeqCst)
    }

    fn set_urgent(&self, urgent: bool) {
        self.urgent.store(urgent, Ordering::SeqCst);
    }
}

impl Client {
    fn new(engine: &Arc<Engine>, opened: &Opened, job: &'static str) -> Self {
        let page = Arc::new(Page::default());
        let session = engine.attach_with(Some(Arc::clone(&page) as Arc<dyn Ends>));
        engine.open_dataset(session, opened);
        let opened = Opened {
            catalog: Arc::clone(&opened.catalog),
            store: Arc::clone(&opened.store),
            place: opened.place.clone(),
            identity: opened.identity.clone(),
            hashes: opened.hashes.clone(),
            cached: false,
        };
        let (engine, maps) = (Arc::clone(engine), HashMap::new());
        Self { engine, session, job, opened, maps, since: None, page, untold: None }
    }

    /// Lets go of a batch, as a client does: without a word if it may.
    fn release(&mut self, lease: u64) {
        let one = self.tell();
        self.page.ended.store(lease, Ordering::SeqCst);
        if one || self.page.urgent.load(Ordering::SeqCst) {
            self.engine.release(self.session, &[lease]);
        } else {
            self.untold = Some(lease);
        }
    }

    /// Tells of the lease that has ended. True if there was one.
    fn tell(&mut self) -> bool {
        let untold = self.untold.take();
        untold.inspect(|&lease| self.engine.release(self.session, &[lease])).is_some()
    }

    /// Gets a batch, looks at its bytes while others run, and lets go of it. False if it could not be had.
    fn read(&mut self, rank: u32, indices: &[u64], purpose: Purpose) -> bool {
        let lease = self.take(rank, indices, purpose);
        lease.inspect(|&lease| self.release(lease)).is_some()
    }

    /// Gets a batch and looks at its bytes while others run; its lease, if it could be had.
    fn take(&mut self, rank: u32, indices: &[u64], purpose: Purpose) -> Option<u64> {
        let wait = Duration::from_secs(600);
        self.tell();
        let asked = Asked { indices, purpose, since: self.since };
        let grant = match self.engine.get_batch_for(self.session, self.job, rank, asked, wait, &mut || true) {
            Ok(grant) => grant,
            Err(_) => return None,
        };
        for new in &grant.segments {
            // SAFETY: the segment is sealed against shrinking, so the map stays valid.
            self.maps.insert(new.segment, unsafe { Mmap::map(&*new.descriptor) }.unwrap());
        }
        for _ in 0..2 {
            for (entry, &index) in grant.entries.iter().zip(indices) {
                let id = Index::from_raw(index).sample;
                let (from, length) = (entry.offset as usize, entry.length as usize);
                let size = self.opened.catalog.size(id as Id) as usize;
                assert_eq!(length, size);
                assert!(
                    self.maps[&entry.segment][from..][..length] == content(id, size),
                    "wrong bytes of {id}"
                );
            }
            thread::yield_now();
        }
        for dropped in grant.dropped {
            self.maps.remove(&dropped);
        }
        Some(grant.lease)
    }

    /// Goes, as a process that is killed: what it leases ends with it.
    fn go(self) {
        self.engine.detach(self.session, Instant::now());
    }
}

fn open(client: &Client, asked: JobRequest) {
    client.engine.open_job(client.session, JobRequest { job: client.job.into(), ..asked }, None).unwrap();
}

/// Serves epochs of a rank to readers that take batches in turn.
fn train(
    main: &Client,
    (rank, world): (u32, u32),
    epochs: std::ops::Range<u64>,
    readers: usize,
    batch: usize,
) {
    for epoch in epochs {
        // Another may have ended the job.
        let Ok(plan) = main.engine.begin_epoch(main.job, epoch, (rank, world), 0, false) else { return };
        let ids: Vec<Id> = plan.rank_ids(rank).collect();
        let index = |&id: &Id| Index { epoch: Some(epoch), sample: id.into() }.into_raw();
        let batches: Vec<Vec<u64>> = ids.chunks(batch).map(|ids| ids.iter().map(index).collect()).collect();
        let batches = Arc::new(batches);
        let workers: Vec<_> = (0..readers)
            .map(|worker| {
                let mut client = Client::new(&main.engine, &main.opened, main.job);
                let batches = Arc::clone(&batches);
                thread::spawn(move || {
                    for batch in batches.iter().skip(worker).step_by(readers) {
                        client.read(rank, batch, Purpose::Served);
                        if thread_rng().gen_ratio(1, 8) {
                            break;
                        }
                    }
                    client.go();
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        let losses: Vec<f32> = ids.iter().map(|&id| id as f32 + epoch as f32).collect();
        let trained = Trained { epoch, rank, upto: ids.len() as u64, ids: &ids, losses: &losses };
        if main.engine.report(main.job, trained).is_err() {
            return;
        }
    }
}

/// After everything is over nothing is left.
fn is_quiet(engine: &Engine) {
    while engine.stats().reads_in_flight > 0 {
        thread::yield_now();
    }
    let stats = engine.stats();
    assert_eq!((stats.leases, stats.waiting), (0, 0), "{stats:?}");
}

#[test]
fn readers_of_one_job_and_a_store_that_fails() {
    schedules(|| {
        let opened = dataset(12, 300, 6);
        let engine = engine();
        let main = Client::new(&engine, &opened, "job");
        let policy = ["lru", "minio", "lfu"][thread_rng().gen_range(0..3)];
        open(&main, JobRequest { prefetch: thread_rng().gen_bool(0.7), ..request(&opened, "40%", policy) });
        train(&main, (0, 1), 0..2, 3, 2);
        is_quiet(&engine);
        engine.close_job(main.session, "job");
        main.go();
        engine.stop();
    });
}

#[test]
fn batches_larger_than_memory_and_readers_that_keep_them() {
    schedules(|| {
        // The reserve is 4 KiB here: a batch of four fills it.
        let opened = dataset(8, 1000, 0);
        let engine = engine();
        let main = Client::new(&engine, &opened, "job");
        open(&main, request(&opened, "25%", "lru"));
        let plan = engine.begin_epoch("job", 0, (0, 1), 0, false).unwrap();
        let index = |id: Id| Index { epoch: Some(0), sample: id.into() }.into_raw();
        let indices: Vec<u64> = plan.rank_ids(0).map(index).collect();
        let readers: Vec<_> = indices
            .chunks(4)
            .map(<[u64]>::to_vec)
            .map(|batch| {
                let mut client = Client::new(&engine, &opened, "job");
                thread::spawn(move || {
                    let kept =
                        client.take(0, &batch, Purpose::Served).expect("each reader has room for a batch");
                    // By hand, while the first is kept: it may have to wait until another lets go of something.
                    let second = client.take(0, &[(batch[0] + 1) & 7], Purpose::Served);
                    if thread_rng().gen_bool(0.7) {
                        client.release(kept);
                        second.inspect(|&second| client.release(second));
                        thread::yield_now();
                        assert!(client.read(0, &[5, 6, 7], Purpose::Served), "there is room again");
                    }
                    client.go();
                })
            })
            .collect();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        engine.end_job("job");
        is_quiet(&engine);
        main.go();
        engine.stop();
        assert_eq!(engine.stats().occupied, 0, "nothing is left of a job that has ended");
    });
}

#[test]
fn two_jobs_share_bytes_and_one_of_them_ends() {
    schedules(|| {
        let opened = dataset(10, 200, 10);
        let engine = engine();
        let jobs: Vec<_> = ["one", "two"]
            .into_iter()
            .map(|job| {
                let main = Client::new(&engine, &opened, job);
                open(&main, request(&opened, "30%", "lru"));
                thread::spawn(move || {
                    train(&main, (0, 1), 0..2, 2, 3);
                    if main.job == "one" {
                        main.engine.end_job("one");
                    }
                    main.go();
                })
            })
            .collect();
        // A job ends while its readers are at work.
        if thread_rng().gen_bool(0.3) {
            engine.end_job("two");
        }
        jobs.into_iter().for_each(|job| drop(job.join()));
        engine.end_jobs();
        is_quiet(&engine);
        engine.stop();
    });
}

#[test]
fn two_copies_share_bytes_and_reads_and_one_of_their_jobs_ends() {
    schedules(|| {
        let engine = engine();
        let jobs: Vec<_> = ["one", "two"]
            .into_iter()
            .map(|job| {
                let opened = copy(dataset(6, 200, 8), job);
                let main = Client::new(&engine, &opened, job);
                open(&main, request(&opened, "50%", "lru"));
                thread::spawn(move || {
                    train(&main, (0, 1), 0..2, 2, 2);
                    main.engine.end_job(main.job);
                    main.go();
                })
            })
            .collect();
        if thread_rng().gen_bool(0.3) {
            engine.end_job("two");
        }
        jobs.into_iter().for_each(|job| drop(job.join()));
        is_quiet(&engine);
        engine.stop();
        assert_eq!(engine.stats().occupied, 0, "nothing is left of jobs that have ended");
    });
}

#[test]
fn ranks_that_report_while_the_next_epoch_is_planned() {
    schedules(|| {
        let opened = dataset(12, 100, 0);
        let engine = engine();
        let main = Client::new(&engine, &opened, "job");
        open(&main, JobRequest { strategy: Some("iis".into()), ..request(&opened, "30%", "icache") });
        let ranks: Vec<_> = (0..2)
            .map(|rank| {
                let main = Client::new(&engine, &opened, "job");
                thread::spawn(move || {
                    train(&main, (rank, 2), 0..3, 1, 3);
                    main.go();
                })
            })
            .collect();
        ranks.into_iter().for_each(|rank| rank.join().unwrap());
        is_quiet(&engine);
        let stats = engine.job_stats(Some("job")).remove(0);
        assert_eq!(stats.total.clock.recovery_reads, 0, "no read that the plan did not ask for");
        engine.end_jobs();
        engine.stop();
    });
}

#[test]
fn ranks_that_re_evaluate_samples_read_what_was_asked_for() {
    schedules(|| {
        let opened = dataset(9, 100, 0);
        let engine = engine();
        let main = Client::new(&engine, &opened, "job");
        open(&main, JobRequest { strategy: Some("realtime".into()), ..request(&opened, "30%", "minio") });
        let ranks: Vec<_> = (0..2)
            .map(|rank| {
                let mut main = Client::new(&engine, &opened, "job");
                thread::spawn(move || {
                    for epoch in 0..2 {
                        let own = main.engine.reevaluation("job", epoch, (rank, 2)).unwrap();
                        for ids in own.chunks(3) {
                            let indices: Vec<u64> = ids.iter().map(|&id| id.into()).collect();
                            assert!(main.read(rank, &indices, Purpose::Reevaluated(epoch)));
                            let losses: Vec<f32> = ids.iter().map(|&id| id as f32).collect();
                            main.engine.reevaluated("job", epoch, rank, (ids, &losses), false).unwrap();
                        }
                        main.engine.reevaluated("job", epoch, rank, (&[], &[]), true).unwrap();
                        train(&main, (rank, 2), epoch..epoch + 1, 1, 4);
                    }
                    main.go();
                })
            })
            .collect();
        ranks.into_iter().for_each(|rank| rank.join().unwrap());
        let stats = engine.job_stats(Some("job")).remove(0);
        assert_eq!(stats.total.clock.recovery_reads, 0, "no read that the plan did not ask for");
        engine.end_jobs();
        is_quiet(&engine);
        engine.stop();
    });
}

#[test]
fn neighbours_of_shards_in_one_request() {
    schedules(|| {
        let (opened, _) = sharded(&[60; 12], 6);
        let engine = engine();
        let main = Client::new(&engine, &opened, "job");
        open(&main, request(&opened, "30%", "lru"));
        train(&main, (0, 1), 0..2, 2, 4);
        // By hand: neighbours that no plan reads become one request when they wait together.
        let others: Vec<_> = (0..3u64)
            .map(|id| {
                let mut client = Client::new(&engine, &opened, "job");
                thread::spawn(move || {
                    assert!(client.read(0, &[id, id + 1], Purpose::Served));
                    client.go();
                })
            })
            .collect();
        others.into_iter().for_each(|other| other.join().unwrap());
        is_quiet(&engine);
        engine.close_job(main.session, "job");
        main.go();
        engine.stop();
    });
}

#[test]
fn a_job_that_is_measured_while_reads_fail_and_another_ends_it() {
    static PROBED: AtomicU64 = AtomicU64::new(0);
    schedules(|| {
        let opened = dataset(48, 60, 9);
        let engine = engine();
        let asked = JobRequest { epochs: Some(1000), ..request(&opened, "40%", "minio") };
        let main = Client::new(&engine, &opened, "one");
        open(&main, asked.clone());
        let epoch = |epoch: u64| {
            let plan = engine.begin_epoch("one", epoch, (0, 1), 0, false).unwrap();
            let index = |id: Id| Index { epoch: Some(epoch), sample: id.into() }.into_raw();
            plan.rank_ids(0).map(index).collect::<Vec<u64>>()
        };
        // What is there to be hit, in the second epoch.
        let mut first = Client::new(&engine, &opened, "one");
        for index in epoch(0) {
            first.read(0, &[index], Purpose::Served);
        }
        first.go();
        let other = Client::new(&engine, &opened, "two");
        open(&other, asked);
        let indices = Arc::new(epoch(1));
        let readers: Vec<_> = (0..2)
            .map(|worker| {
                let (mut client, indices) = (Client::new(&engine, &opened, "one"), Arc::clone(&indices));
                client.since = Some(Duration::from_millis(10));
                thread::spawn(move || {
                    for index in indices.iter().skip(worker).step_by(2) {
                        client.read(0, &[*index], Purpose::Served);
                    }
                    client.go();
                })
            })
            .collect();
        if thread_rng().gen_bool(0.3) {
            engine.end_job("one");
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        let stats = engine.job_stats(Some("one")).pop();
        PROBED.fetch_add(stats.map_or(0, |stats| stats.total.clock.probe_requests), Ordering::Relaxed);
        engine.end_jobs();
        is_quiet(&engine);
        engine.stop();
        assert_eq!(engine.stats().occupied, 0, "nothing is left of a job that has ended");
        [main, other].into_iter().for_each(Client::go);
    });
    assert!(PROBED.load(Ordering::Relaxed) > 0, "it was measured in none of these orders");
}

#[test]
fn packages_are_made_while_readers_pass_reads_fail_and_the_job_ends() {
    static PACKED: AtomicU64 = AtomicU64::new(0);
    schedules(|| {
        let (one_in, prefetch) =
            (if thread_rng().gen_bool(0.5) { 0 } else { 20 }, thread_rng().gen_bool(0.5));
        let (opened, engine) = (dataset(64, 60, one_in), engine());
        let folder = tempfile::tempdir().unwrap();
        let asked = JobRequest {
            strategy: Some("iis".into()),
            packages: Some(folder.path().to_str().unwrap().into()),
            package_bytes: 380,
            prefetch,
            ..request(&opened, "80%", "icache")
        };
        let mut main = Client::new(&engine, &opened, "job");
        engine.open_job(main.session, asked.clone(), common::place(&opened, &asked)).unwrap();
        // Readers leave batches out: what they were to bring is packed when the epoch is left.
        train(&main, (0, 1), 0..2, 2, 16);
        if one_in == 0 && !prefetch {
            let plan = engine.begin_epoch("job", 2, (0, 1), 0, false).unwrap();
            for id in plan.rank_ids(0) {
                let index = Index { epoch: Some(2), sample: id.into() }.into_raw();
                assert!(main.read(0, &[index], Purpose::Served));
            }
            engine.packed("job", Duration::from_secs(600)).unwrap();
            let epochs = engine.job_stats(Some("job")).remove(0).epochs;
            let written = epochs.iter().map(|(_, counters)| counters.plan.pack_bytes_written).sum();
            PACKED.fetch_add(written, Ordering::Relaxed);
        }
        engine.end_jobs();
        is_quiet(&engine);
        engine.stop();
        main.go();
    });
    assert!(PACKED.load(Ordering::Relaxed) > 0, "nothing was packed in any of these orders");
}
