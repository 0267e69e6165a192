//! What a probe holds and waits for, and how long it is.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::training::{Training, settles};
use crate::common::{Memory, config, dataset, request, within};
use hotset_core::Index;
use hotset_core::benefit::Phase;
use hotset_engine::{Asked, Config, Engine, Grant, JobRequest, Purpose};
use hotset_store::Opened;

const BATCH: usize = 4;

fn training<'a>(engine: &'a Engine, opened: &Opened, job: &str, policy: &str, gains: u32) -> Training<'a> {
    let request = JobRequest { job: job.into(), epochs: Some(6), ..request(opened, "20%", policy) };
    Training::open(engine, opened, request, (gains, BATCH))
}

fn limited(memory: u64) -> Engine {
    Engine::new(Config { memory: Some(memory), ..config() })
}

/// Samples that are read ahead of what is served: a mebibyte of them.
const AHEAD: usize = (1 << 20) / 1000;

/// Trains until storage delivers nothing of a run of a probe but its first ten batches; the first slot of the batch that this
/// run begins with.
fn hold_up(job: &mut Training<'_>, epoch: u64, plan: &[u64], store: &Memory, run: Phase) -> usize {
    let (engine, mut slot) = (job.reader.engine, 0);
    while !job.stats().probing {
        job.walk(epoch, plan, slot..slot + BATCH);
        slot += BATCH;
    }
    let begins = (slot..plan.len()).find(|&at| engine.probed(job.reader.job, epoch, at) == Some(run));
    let begins = begins.unwrap() / BATCH * BATCH;
    job.walk(epoch, plan, slot..begins + 10 * BATCH - AHEAD);
    settles("all is read that was asked for", || {
        let counted: u64 = engine.job_stats(None).iter().map(|job| job.total.storage_reads()).sum();
        engine.stats().reads_in_flight == 0 && counted == store.reads.load(Ordering::SeqCst)
    });
    store.hold();
    job.walk(epoch, plan, begins + 10 * BATCH - AHEAD..begins);
    begins
}

/// Asks for a batch, for so long that a wait for what never comes is found.
fn ask(job: &Training<'_>, batch: &[u64]) -> hotset_core::Result<Grant> {
    let asked = Asked { indices: batch, purpose: Purpose::Served, since: job.reader.since };
    let (session, wait) = (job.reader.session, Duration::from_secs(3600));
    job.reader.engine.get_batch_for(session, job.reader.job, 0, asked, wait, &mut || true)
}

#[test]
fn a_reader_that_waits_for_hits_is_answered_though_their_epoch_is_left() {
    let (opened, store) = dataset(&[1000; 4000]);
    let engine = limited(800_000);
    let mut job = training(&engine, &opened, "job", "lru", 8);
    let _other = training(&engine, &opened, "other", "lru", 1);
    let plan = job.plan(0);
    let slot = hold_up(&mut job, 0, &plan, &store, Phase::Hits);
    within("slots that are given up while a reader waits for what they serve", || {
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| ask(&job, &plan[slot..slot + BATCH]).map(|grant| grant.entries.len()));
            settles("a reader waits", || engine.stats().waiting == 1);
            engine.begin_epoch("job", 1, (0, 1), 0, false).unwrap();
            store.let_go();
            assert_eq!(waits.join().unwrap().unwrap(), BATCH, "it is served beside the plan");
        });
    });
}

#[test]
fn a_wait_for_hits_is_no_training() {
    let (opened, store) = dataset(&[1000; 4000]);
    let engine = limited(800_000);
    let mut job = training(&engine, &opened, "job", "lru", 8);
    let _other = training(&engine, &opened, "other", "lru", 1);
    let plan = job.plan(0);
    let slot = hold_up(&mut job, 0, &plan, &store, Phase::Hits);
    let clock = |job: &Training<'_>| job.stats().epochs[0].1.clock.clone();
    let (before, clock_before) = (job.stats().spans[&0].waited, clock(&job));
    within("a reader that waits for hits", || {
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| ask(&job, &plan[slot..slot + BATCH]).map(|_| ()));
            settles("a reader waits", || engine.stats().waiting == 1);
            store.let_go();
            waits.join().unwrap().unwrap();
        });
    });
    let after = clock(&job);
    assert_eq!(
        after.late, clock_before.late,
        "no sample of the batch was late, since all were waited for before"
    );
    assert_eq!(after.storage_waits, clock_before.storage_waits);
    assert_eq!(after.probe_waits, clock_before.probe_waits + 1);
    assert!(job.stats().spans[&0].waited > before, "the reader waited for storage all the same");
}

#[test]
fn a_probe_is_as_long_as_batches_of_the_plan_make_it() {
    let (opened, _) = dataset(&[1000; 4000]);
    let engine = limited(800_000);
    let mut job = training(&engine, &opened, "job", "lru", 8);
    let _other = training(&engine, &opened, "other", "lru", 1);
    // An evaluation pass asks for many samples at once, beside the plan.
    let held = job.reader.get(&(0..500).collect::<Vec<u64>>()).unwrap();
    job.reader.release(held);
    job.train(0);
    assert_eq!(job.stats().benefit, Some(8.0));
    let probed = job.stats().total.clock.probe_reads;
    assert!(probed <= 22 * BATCH as u64, "{probed} reads of a probe of 22 batches");
}

/// A training whose misses are being measured, a batch of it whose bytes storage holds back, and those of the batch that
/// are kept, and so read once more.
fn copies_held_up<'a>(
    engine: &'a Engine,
    opened: &Opened,
    store: &Memory,
) -> (Training<'a>, Vec<u64>, Vec<u64>) {
    let mut job = training(engine, opened, "job", "minio", 8);
    job.train(0);
    let _other = training(engine, opened, "other", "minio", 1);
    let (plan, kept) = (job.plan(1), engine.residents("job").unwrap());
    let begins = hold_up(&mut job, 1, &plan, store, Phase::Misses);
    let kept_of = |slot: usize| -> Vec<u64> {
        let ids = plan[slot..slot + BATCH].iter().map(|&raw| Index::from_raw(raw).sample);
        ids.filter(|&id| kept.binary_search(&(id as u32)).is_ok()).collect()
    };
    let measured = |&slot: &usize| engine.probed("job", 1, slot + BATCH - 1) == Some(Phase::Misses);
    let mut later = (begins + 12 * BATCH..).step_by(BATCH).take_while(measured);
    let slot = later.find(|&slot| !kept_of(slot).is_empty()).unwrap();
    (job, plan[slot..slot + BATCH].to_vec(), kept_of(slot))
}

/// Takes nearly all memory from caches, and with it what they keep, by a job that asks for far more than they.
fn evict_all(engine: &Engine, kept: &[u64]) {
    let (large, _) = dataset(&[1_000_000; 400]);
    let session = engine.attach();
    engine.open_dataset(session, &large);
    let request = JobRequest { job: "large".into(), ..request(&large, "100%", "lru") };
    engine.open_job(session, request, None).unwrap();
    let left = engine.residents("job").unwrap();
    assert!(kept.iter().all(|&id| !left.contains(&(id as u32))), "{kept:?} of {left:?}");
}

#[test]
fn what_was_kept_is_served_though_it_was_evicted_and_its_copy_fails() {
    let (opened, store) = dataset(&[1000; 4000]);
    let engine = limited(800_000);
    let (mut job, batch, kept) = copies_held_up(&engine, &opened, &store);
    within("a reader whose copy does not come", || {
        std::thread::scope(|scope| {
            let reader = &mut job.reader;
            let waits = scope.spawn(move || reader.get(&batch).map(|held| reader.release(held)));
            settles("a reader waits", || engine.stats().waiting == 1);
            evict_all(&engine, &kept);
            store.vanished.lock().unwrap().extend(&kept);
            store.let_go();
            waits.join().unwrap().unwrap();
        });
    });
    let clock = job.stats().total.clock;
    assert_eq!((clock.recovery_reads, clock.failed), (0, 0), "it was in memory all the while");
}

#[test]
fn a_copy_that_comes_is_served_though_what_was_kept_is_evicted() {
    let (opened, store) = dataset(&[1000; 4000]);
    let engine = limited(800_000);
    let (mut job, batch, kept) = copies_held_up(&engine, &opened, &store);
    within("a reader whose original leaves", || {
        std::thread::scope(|scope| {
            let reader = &mut job.reader;
            let waits = scope.spawn(move || reader.get(&batch).map(|held| reader.release(held)));
            settles("a reader waits", || engine.stats().waiting == 1);
            evict_all(&engine, &kept);
            store.let_go();
            waits.join().unwrap().unwrap();
        });
    });
    assert_eq!(job.stats().total.clock.recovery_reads, 0);
    engine.end_jobs();
    settles("nothing is left of copies and originals", || engine.stats().occupied == 0);
}
