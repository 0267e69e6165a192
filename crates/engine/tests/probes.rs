//! What a probe holds and waits for, and how long it is.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::{Memory, Training, config, dataset, request, settles, within};
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
fn hold_up(job: &mut Training<'_>, plan: &[u64], store: &Memory, run: Phase) -> usize {
    let (engine, mut slot) = (job.reader.engine, 0);
    while !job.stats().probing {
        job.walk(0, plan, slot..slot + BATCH);
        slot += BATCH;
    }
    let begins = (slot..plan.len()).find(|&at| engine.probed(job.reader.job, 0, at) == Some(run));
    let begins = begins.unwrap() / BATCH * BATCH;
    job.walk(0, plan, slot..begins + 10 * BATCH - AHEAD);
    settles("all is read that was asked for", || {
        let counted: u64 = engine.job_stats(None).iter().map(|job| job.total.storage_reads()).sum();
        engine.stats().reads_in_flight == 0 && counted == store.reads.load(Ordering::SeqCst)
    });
    store.hold();
    job.walk(0, plan, begins + 10 * BATCH - AHEAD..begins);
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
    let slot = hold_up(&mut job, &plan, &store, Phase::Hits);
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
    let slot = hold_up(&mut job, &plan, &store, Phase::Hits);
    let waited = |job: &Training<'_>| (job.stats().spans[&0].waited, job.stats().epochs[0].1.clock.late);
    let (before, late) = waited(&job);
    within("a reader that waits for hits", || {
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| ask(&job, &plan[slot..slot + BATCH]).map(|_| ()));
            settles("a reader waits", || engine.stats().waiting == 1);
            store.let_go();
            waits.join().unwrap().unwrap();
        });
    });
    let after = waited(&job);
    assert_eq!(after.1, late, "no sample of the batch was late, since all were waited for before");
    assert!(after.0 > before, "the reader waited for storage all the same");
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
