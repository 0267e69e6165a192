//! Bad luck with several jobs on one server: jobs that vanish, lag, begin over or lose their server, and what the others
//! still get.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::training::{Training, settles};
use crate::common::{Reader, config, dataset, epoch_indices_of, request, within};
use hotset_core::Index;
use hotset_core::benefit::{Phase, Standing};
use hotset_engine::{Asked, Config, Engine, JobRequest, Purpose};
use hotset_store::Opened;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn limited(memory: u64) -> Engine {
    Engine::new(Config { memory: Some(memory), ..config() })
}

/// A job of that name, strategy and policy, with a fifth of its dataset.
fn asked(opened: &Opened, job: &str, strategy: &str, policy: &str, seed: u64) -> JobRequest {
    let strategy = Some(strategy.into());
    JobRequest { job: job.into(), seed, strategy, epochs: Some(10), ..request(opened, "20%", policy) }
}

/// Drops the session of a job, as a server does whose client is killed.
fn vanish(engine: &Engine, reader: &Reader<'_>) {
    let now = Instant::now();
    engine.detach(reader.session, now);
    assert!(engine.tidy(now), "job `{}` ends with its last session", reader.job);
}

/// Nothing is left of the jobs, their readers and their probes.
fn is_empty(engine: &Engine) {
    settles("all bytes are let go of", || {
        let stats = engine.stats();
        (stats.occupied, stats.leases, stats.waiting, stats.capacity) == (0, 0, 0, 0)
    });
}

#[test]
fn a_session_that_is_dropped_while_its_probe_waits_for_storage_leaves_nothing_behind() {
    for staging in [false, true] {
        let (opened, store) = dataset(&[1000; 4000]);
        let engine = limited(1_600_000);
        let open = |job, gains| {
            Training::open(&engine, &opened, asked(&opened, job, "uniform", "minio", 3), (gains, 4))
        };
        let (mut job, mut other) = (open("job", 8), open("other", 1));
        // What the probe reads again is there.
        other.train(0);
        let plan = job.plan(0);
        let mut slot = job.until(Phase::Misses, 0, &plan);
        if staging {
            // The next batch is the first that hits are measured with.
            while engine.probed("job", 0, slot) == Some(Phase::Misses) {
                job.walk(0, &plan, slot..slot + 4);
                slot += 4;
            }
        }
        store.hold();
        let error = within("a batch that storage does not deliver", || {
            loop {
                job.tell();
                let asked = Asked {
                    indices: &plan[slot..slot + 4],
                    purpose: Purpose::Served,
                    since: job.reader.since,
                };
                let session = job.reader.session;
                let wait = Duration::from_secs(30);
                match engine.get_batch_for(session, "job", 0, asked, wait, &mut || false) {
                    Ok(grant) => engine.release(session, &[grant.lease]),
                    Err(error) => return error,
                }
                slot += 4;
            }
        });
        assert!(error.message.contains("went away"), "{error}");
        vanish(&engine, &job.reader);
        assert_eq!((other.stats().standing, other.stats().cache_members), (Standing::Alone, 1));
        store.let_go();
        other.train(1);
        assert_eq!(other.stats().epochs[1].1.plan.distinct, 4000);
        engine.end_job("other");
        is_empty(&engine);
    }
}

#[test]
fn reads_of_a_job_that_vanishes_are_made_for_those_that_joined_them() {
    // The second job shares the cache of the first, or has its own.
    for policy in ["minio", "lru"] {
        let (opened, store) = dataset(&[1000; 600]);
        let engine = limited(240_000);
        let reader = Reader::of_job(&engine, &opened, "first");
        let once = |job, policy| JobRequest { epochs: Some(1), ..asked(&opened, job, "uniform", policy, 7) };
        engine.open_job(reader.session, once("first", "minio"), None).unwrap();
        let mut joins = Reader::of_job(&engine, &opened, "second");
        engine.open_job(joins.session, once("second", policy), None).unwrap();
        store.hold();
        // Both plans are decided to their ends. The first job is to read everything, and is not asked for any of it.
        epoch_indices_of(&engine, "first", 0);
        let plan = epoch_indices_of(&engine, "second", 0);
        let stats = || engine.job_stats(Some("second")).remove(0);
        assert!(stats().total.storage_reads() == 0, "{policy}: the second reads what the first does");
        settles("reads are under way", || engine.stats().reads_in_flight == 8);
        vanish(&engine, &reader);
        let kept = engine.residents("second").unwrap().len() as u64;
        assert_eq!((engine.stats().capacity, kept), (120_000, 120), "{policy}");
        store.let_go();
        within("bytes that a job which is gone was to read", || {
            for batch in plan.chunks(20) {
                let held = joins.get(batch).unwrap();
                joins.release(held);
            }
        });
        assert_eq!(store.reads.load(Ordering::SeqCst), 600, "{policy}: each is read once");
        let counted = stats().total;
        assert_eq!((counted.plan.distinct, counted.served()), (600, 600), "{policy}");
        // Those that were in flight were the first job's.
        assert_eq!(counted.storage_reads(), 592, "{policy}: the others' reads are now the second's");
        assert_eq!((engine.stats().passing, engine.stats().leases), (0, 0), "{policy}");
        engine.end_job("second");
        is_empty(&engine);
    }
}

#[test]
fn a_job_ten_times_slower_than_the_others_holds_none_of_them_up() {
    let (opened, store) = dataset(&[2500; 4000]);
    let one = {
        let engine = limited(2_000_000);
        let mut job = Training::open(&engine, &opened, asked(&opened, "one", "quiver", "quiver", 1), (4, 20));
        while job.step(5) {}
        store.reads.swap(0, Ordering::SeqCst)
    };
    let engine = limited(2_000_000);
    let mut jobs: Vec<Training<'_>> = NAMES
        .iter()
        .zip(1..)
        .map(|(job, seed)| {
            Training::open(&engine, &opened, asked(&opened, job, "quiver", "quiver", seed), (4, 20))
        })
        .collect();
    let mut slow = jobs.remove(0);
    within("jobs beside a slow one", || {
        let step = |job: &mut Training<'_>| {
            let goes_on = job.step(5);
            // Time is batches here, and a plan takes none of it.
            settles("a plan is made", || !engine.plans(job.reader.job));
            goes_on
        };
        while jobs.iter_mut().all(|job| (0..10).all(|_| step(job))) {
            assert!(step(&mut slow));
        }
    });
    let fast: u64 = jobs.iter().map(|job| job.stats().total.storage_reads()).sum();
    assert!(fast as f64 <= 1.2 * one as f64, "{fast} reads of three jobs, {one} of one alone");
    within("what is left of the slow one", || while slow.step(1) {});
    for job in jobs.iter().chain([&slow]) {
        let stats = job.stats();
        let epochs = if job.reader.job == "a" { 1 } else { 5 };
        for (_, counted) in &stats.epochs[..epochs] {
            assert_eq!((counted.plan.distinct, counted.served()), (4000, 4000), "{}", stats.job);
        }
        assert_eq!((stats.total.clock.spilled, stats.total.clock.abandoned), (0, 0), "{}", stats.job);
    }
    let slow = slow.stats().epochs[0].1.clone();
    assert!(slow.storage_reads() <= 4000, "it reads alone what the others have passed: {slow:?}");
}

#[test]
fn a_job_that_begins_an_epoch_over_changes_nothing_for_the_others() {
    for (strategy, policy) in [("uniform", "minio"), ("quiver", "quiver"), ("uniform", "lru")] {
        let (opened, store) = dataset(&[2500; 1200]);
        let engine = limited(600_000);
        let mut readers: Vec<Reader<'_>> = NAMES
            .iter()
            .map(|job| {
                let reader = Reader::of_job(&engine, &opened, job);
                let request = JobRequest { epochs: Some(3), ..asked(&opened, job, strategy, policy, 7) };
                engine.open_job(reader.session, request, None).unwrap();
                reader
            })
            .collect();
        for epoch in 0..3 {
            let mut plans: Vec<Vec<u64>> =
                NAMES.iter().map(|job| epoch_indices_of(&engine, job, epoch)).collect();
            let mut at = [0; 4];
            let mut over = false;
            while let Some(job) = (0..4).filter(|&job| at[job] < 1200).min_by_key(|&job| at[job]) {
                if epoch == 1 && !over && at[0] == 600 {
                    // In the middle it has enough of this epoch.
                    let plan = epoch_indices_of(&engine, "a", 1);
                    assert_eq!(plan, plans[0], "{strategy}: the same plan");
                    (plans[0], at[0], over) = (plan, 0, true);
                    continue;
                }
                let held = readers[job].get(&plans[job][at[job]..at[job] + 20]).unwrap();
                readers[job].release(held);
                at[job] += 20;
            }
        }
        for job in NAMES {
            let stats = engine.job_stats(Some(job)).remove(0);
            for (epoch, counted) in &stats.epochs {
                let each = (counted.plan.distinct, counted.served());
                assert_eq!(each, (1200, 1200), "{policy}: epoch {epoch} of {job}");
            }
        }
        settles("what storage has seen is counted", || {
            let counted = engine.job_stats(None).iter().map(|job| job.total.storage_reads()).sum::<u64>();
            counted == store.reads.load(Ordering::SeqCst)
        });
        readers.iter().for_each(|reader| vanish(&engine, reader));
        is_empty(&engine);
    }
}

#[test]
fn four_jobs_that_lose_their_server_go_on_with_their_plans() {
    for (strategy, policy) in [("uniform", "minio"), ("quiver", "quiver"), ("iis", "icache")] {
        let (opened, _) = dataset(&[2500; 1200]);
        let plans = |engine: &Engine, epoch: u64, join: bool| {
            NAMES.map(|job| engine.begin_epoch(job, epoch, (0, 1), 0, join).unwrap().ids().to_vec())
        };
        let train = |engine: &Engine, readers: &mut [Reader<'_>], slots: std::ops::Range<usize>| {
            let plans = plans(engine, 0, true);
            for from in slots.step_by(20) {
                for (reader, plan) in readers.iter_mut().zip(&plans) {
                    let index = |&id: &u32| Index { epoch: Some(0), sample: id.into() }.into_raw();
                    let batch: Vec<u64> = plan[from..from + 20].iter().map(index).collect();
                    let held = reader.get(&batch).unwrap();
                    reader.release(held);
                }
            }
        };
        let first = limited(600_000);
        let mut readers = NAMES.map(|job| Reader::of_job(&first, &opened, job));
        for (reader, seed) in readers.iter().zip(1..) {
            first.open_job(reader.session, asked(&opened, reader.job, strategy, policy, seed), None).unwrap();
        }
        let before = plans(&first, 0, false);
        let saved = NAMES.map(|job| first.snapshot(job).unwrap().unwrap());
        train(&first, &mut readers, 0..600);
        drop(readers);
        drop(first);

        let second = limited(600_000);
        let mut readers = NAMES.map(|job| Reader::of_job(&second, &opened, job));
        // In another order than they were opened in first.
        for (reader, saved) in readers.iter().zip(&saved).rev() {
            second.restore_job(reader.session, saved.request.clone(), None, saved).unwrap();
        }
        assert!(plans(&second, 0, true) == before, "{strategy}: another plan");
        train(&second, &mut readers, 600..1200);
        for (job, seed) in NAMES.iter().zip(1..) {
            let stats = second.job_stats(Some(job)).remove(0);
            assert_eq!((stats.cache_members, stats.capacity), (4, 600_000));
            let alone = limited(600_000);
            let reader = Reader::of_job(&alone, &opened, job);
            alone.open_job(reader.session, asked(&opened, job, strategy, policy, seed), None).unwrap();
            if strategy == "uniform" {
                let plan = |engine: &Engine| engine.begin_epoch(job, 1, (0, 1), 0, false).unwrap();
                assert!(plan(&alone).ids() == plan(&second).ids(), "{job}: another plan of the next epoch");
            }
        }
        readers.iter().for_each(|reader| vanish(&second, reader));
        is_empty(&second);
    }
}
