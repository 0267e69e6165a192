//! What jobs gain from a cache is measured where they compete, and the cache goes to those that gain. Times are what the
//! readers here tell, so that nothing hangs on the clock.

use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::common::training::{Training, settles};
use crate::common::{Reader, config, dataset, request, within};
use hotset_core::benefit::{Phase, Standing};
use hotset_core::counters::Counters;
use hotset_core::sampling::two_chunks;
use hotset_engine::{Config, Engine, JobRequest};
use hotset_store::Opened;

const BATCH: usize = 4;
const EPOCHS: u64 = 6;

/// A training whose batches take so many times as long when they are read from storage.
fn training<'a>(
    engine: &'a Engine,
    opened: &Opened,
    job: &str,
    (cache, policy): (&str, &str),
    gains: u32,
) -> Training<'a> {
    let seed = job.bytes().map(u64::from).sum();
    let request =
        JobRequest { job: job.into(), seed, epochs: Some(EPOCHS), ..request(opened, cache, policy) };
    Training::open(engine, opened, request, (gains, BATCH))
}

fn limited(memory: u64) -> Engine {
    Engine::new(Config { memory: Some(memory), ..config() })
}

#[test]
fn a_job_that_gains_little_hits_and_has_nothing_kept() {
    let (opened, store) = dataset(&[1000; 4000]);
    let engine = limited(3_900_000);
    let mut fast = training(&engine, &opened, "fast", ("100%", "minio"), 8);
    let mut slow = training(&engine, &opened, "slow", ("100%", "minio"), 1);
    assert_eq!((slow.stats().standing, slow.stats().benefit), (Standing::Unmeasured, None));
    slow.train(0);
    assert_eq!((slow.stats().standing, slow.stats().benefit), (Standing::GainsLittle, Some(1.0)));
    assert_eq!(slow.stats().benefit_epoch, Some(0));
    let kept = engine.residents("slow").unwrap();
    assert!((1..3900).contains(&kept.len()), "what it read before it was measured: {}", kept.len());
    slow.train(1);
    assert_eq!(engine.residents("slow").unwrap(), kept, "what it reads is not kept");
    let counted = &slow.stats().epochs[1].1;
    assert_eq!((counted.plan.hit, counted.plan.distinct), (kept.len() as u64, 4000));
    fast.train(0);
    assert_eq!((fast.stats().standing, fast.stats().benefit), (Standing::Gains, Some(8.0)));
    assert_eq!(engine.residents("fast").unwrap().len(), 3900);
    settles("what probes read is counted", || {
        let counted = [&slow, &fast].map(|job| job.stats().total.storage_reads());
        store.reads.load(Ordering::SeqCst) == counted.iter().sum::<u64>()
    });
    engine.end_job("fast");
    assert_eq!(slow.stats().standing, Standing::Alone);
}

#[test]
fn if_none_gains_all_have_the_cache() {
    let (opened, _) = dataset(&[1000; 4000]);
    let engine = limited(800_000);
    let mut jobs = ["a", "b"].map(|job| training(&engine, &opened, job, ("20%", "lru"), 1));
    jobs.iter_mut().for_each(|job| job.train(0));
    for job in &mut jobs {
        assert_eq!((job.stats().standing, job.stats().benefit), (Standing::NoneGains, Some(1.0)));
        let kept = engine.residents("a").unwrap();
        job.train(1);
        assert_ne!(engine.residents("a").unwrap(), kept);
    }
}

/// What is counted of a job beside another that only looks on, and what storage has seen.
fn counted(policy: &str, timed: bool) -> (Counters, u64) {
    let (opened, store) = dataset(&[1000; 4000]);
    let engine = limited(2_000_000);
    let mut job = training(&engine, &opened, "job", ("50%", policy), 8);
    let mut idle = None;
    for epoch in 0..EPOCHS {
        let plan = job.plan(epoch);
        // From the second epoch on there is something to hit.
        if epoch == 1 {
            idle = Some(training(&engine, &opened, "idle", ("50%", policy), 1));
        }
        for batch in plan.chunks(BATCH).enumerate().map(|(number, batch)| (number * BATCH, batch)) {
            if timed {
                let held = job.get(epoch, batch.0, batch.1);
                job.reader.release(held);
            } else {
                let held = job.reader.get(batch.1).unwrap();
                job.reader.release(held);
            }
        }
    }
    assert_eq!(job.stats().benefit, timed.then_some(8.0), "{policy}");
    assert!(idle.is_some_and(|idle| idle.stats().cache_members == 2));
    (job.stats().total, store.reads.load(Ordering::SeqCst))
}

#[test]
fn a_probe_changes_no_count_of_the_plan_and_evicts_nothing() {
    for policy in ["minio", "lru", "icache"] {
        let ((without, reads), (with, more)) = (counted(policy, false), counted(policy, true));
        assert_eq!(with.plan, without.plan, "{policy}");
        assert_eq!((with.clock.recovery_reads, without.clock.probe_reads), (0, 0), "{policy}");
        assert_eq!(more - reads, with.clock.probe_reads, "{policy}");
        assert_eq!(
            (with.clock.probe_requests, with.clock.probe_bytes),
            (with.clock.probe_reads, 1000 * with.clock.probe_reads)
        );
        assert!(
            (1..=22 * BATCH as u64).contains(&with.clock.probe_reads),
            "{policy}: {}",
            with.clock.probe_reads
        );
    }
}

#[test]
fn hits_are_measured_with_what_is_in_memory_before() {
    let (opened, store) = dataset(&[1000; 4000]);
    let engine = limited(800_000);
    let mut job = training(&engine, &opened, "job", ("20%", "lru"), 8);
    let _other = training(&engine, &opened, "other", ("20%", "lru"), 1);
    let plan = job.plan(0);
    let from = job.until(Phase::Hits, 0, &plan);
    // Storage delivers nothing from now on.
    store.hold();
    within("all hits are there", || job.walk(0, &plan, from..from + 21 * BATCH));
    assert_eq!(job.last, Some(Phase::Hits));
    store.let_go();
    job.walk(0, &plan, from + 21 * BATCH..plan.len());
    assert_eq!(job.stats().benefit, Some(8.0));
}

#[test]
fn a_job_that_vanishes_in_a_probe_leaves_nothing_behind() {
    for phase in [Phase::Misses, Phase::Hits] {
        let (opened, _) = dataset(&[1000; 4000]);
        let engine = limited(3_000_000);
        let mut job = training(&engine, &opened, "job", ("50%", "minio"), 8);
        let mut other = training(&engine, &opened, "other", ("50%", "minio"), 1);
        // What it reads again in the probe is there.
        other.train(0);
        let plan = job.plan(0);
        job.until(phase, 0, &plan);
        assert!(job.stats().probing);
        engine.detach(job.reader.session, Instant::now());
        engine.end_job("job");
        assert_eq!(other.stats().standing, Standing::Alone);
        other.train(1);
        engine.end_job("other");
        settles("nothing is left of the probe", || engine.stats().occupied == 0);
    }
}

#[test]
fn a_plan_that_is_left_in_a_probe_ends_it() {
    let (opened, _) = dataset(&[1000; 4000]);
    let engine = limited(3_000_000);
    let mut job = training(&engine, &opened, "job", ("50%", "minio"), 8);
    let mut other = training(&engine, &opened, "other", ("50%", "minio"), 1);
    other.train(0);
    let plan = job.plan(0);
    job.until(Phase::Misses, 0, &plan);
    job.train(1);
    assert!(!job.stats().probing && job.stats().benefit.is_none());
    assert_eq!(job.stats().epochs[1].1.plan.distinct, 4000);
    engine.end_jobs();
    settles("nothing is left of the probe", || engine.stats().occupied == 0);
}

#[test]
fn what_is_kept_is_served_if_storage_has_lost_it() {
    let (opened, store) = dataset(&[1000; 4000]);
    let engine = limited(3_999_000);
    let mut job = training(&engine, &opened, "job", ("100%", "minio"), 8);
    job.train(0);
    let _other = training(&engine, &opened, "other", ("100%", "minio"), 1);
    let kept = engine.residents("job").unwrap();
    store.vanished.lock().unwrap().extend(kept.into_iter().map(u64::from));
    job.train(1);
    let counted = &job.stats().epochs[1].1;
    assert_eq!((counted.plan.hit, counted.plan.distinct), (3999, 4000));
    assert!(counted.clock.probe_requests > 0, "it was tried");
}

#[test]
fn memory_goes_to_the_dataset_whose_jobs_gain() {
    let (many, few) = (dataset(&[1000; 4000]).0, dataset(&[1000; 3900]).0);
    let engine = limited(1_000_000);
    let mut fast = training(&engine, &many, "fast", ("20%", "lru"), 8);
    let mut slow = training(&engine, &few, "slow", ("800000", "lru"), 1);
    assert_eq!([fast.stats().capacity, slow.stats().capacity], [500_000; 2], "in proportion to the asks");
    slow.train(0);
    assert_eq!(slow.stats().capacity, 500_000, "none gains");
    // What is leased when its cache goes stays as it is.
    let plan = slow.plan(1);
    let held = slow.get(1, 0, &plan[..BATCH]);
    fast.train(0);
    settles("memory is divided by gain", || (fast.stats().capacity, slow.stats().capacity) == (800_000, 0));
    assert_eq!((slow.stats().resident_samples, slow.stats().standing), (0, Standing::GainsLittle));
    slow.reader.check(&plan[..BATCH], &held);
    slow.reader.release(held);
    slow.walk(1, &plan, BATCH..plan.len());
    fast.train(1);
    assert_eq!((slow.stats().epochs[1].1.plan.distinct, fast.stats().resident_samples), (3900, 800));
    // One that joins the cache without memory may gain, so that cache has a part again, and it is told which.
    let grant = {
        let seed = JobRequest { job: "joins".into(), ..request(&few, "800000", "lru") };
        engine.open_job(Reader::of_job(&engine, &few, "joins").session, seed, None).unwrap()
    };
    assert_eq!(grant.granted, slow.stats().capacity);
    assert!(grant.granted > 0);
    engine.end_job("joins");
    // One that comes later has its part, and gives it back.
    let more = dataset(&[1000; 1000]).0;
    let third = training(&engine, &more, "third", ("400000", "lru"), 1);
    assert_eq!([fast.stats().capacity, slow.stats().capacity, third.stats().capacity], [800_000, 0, 200_000]);
    engine.end_job("fast");
    assert_eq!(
        [slow.stats().capacity, third.stats().capacity],
        [666_666, 333_333],
        "of those left none is known to gain"
    );
}

#[test]
fn jobs_that_walk_together_have_two_chunks_and_the_rest_goes_to_those_that_gain_most() {
    let (many, few) = (dataset(&[1000; 4000]).0, dataset(&[1000; 3900]).0);
    let engine = limited(2_000_000);
    let open = |opened: &Opened, job, gains| training(&engine, opened, job, ("100%", "quiver"), gains);
    let mut jobs = [open(&many, "a", 8), open(&many, "b", 8), open(&few, "c", 3), open(&few, "d", 3)];
    jobs.iter_mut().for_each(|job| job.train(0));
    assert_eq!(jobs.each_ref().map(|job| job.stats().benefit), [8.0, 8.0, 3.0, 3.0].map(Some));
    let two = |opened: &Opened| two_chunks(opened.catalog.bytes());
    let parts = [2_000_000 - two(&few), two(&few)];
    settles("memory is divided by gain", || [&jobs[0], &jobs[2]].map(|job| job.stats().capacity) == parts);
    assert!(parts[0] > two(&many) && two(&few) == 780_000);
    jobs.iter_mut().for_each(|job| job.train(1));
    let kept = [&jobs[0], &jobs[2]].map(|job| 1000 * job.stats().resident_samples);
    assert_eq!(kept, parts, "and no more than that is kept");
}

#[test]
fn a_job_on_more_gpus_saves_more() {
    let (one, two) = (dataset(&[1000; 4000]).0, dataset(&[1000; 3900]).0);
    let engine = limited(1_000_000);
    let mut first = training(&engine, &one, "first", ("800000", "lru"), 4);
    let mut second = training(&engine, &two, "second", ("800000", "lru"), 4);
    first.train(0);
    second.train(0);
    settles("one has all, the other the rest", || {
        [first.stats().capacity, second.stats().capacity] == [800_000, 200_000]
    });
    for rank in 0..2 {
        engine.begin_epoch("second", 1, (rank, 2), 0, false).unwrap();
    }
    settles("the one on two GPUs comes first", || {
        [first.stats().capacity, second.stats().capacity] == [200_000, 800_000]
    });
}

#[test]
fn a_job_that_has_what_it_asks_for_is_not_measured() {
    let (one, two) = (dataset(&[1000; 4000]).0, dataset(&[1000; 3900]).0);
    let engine = limited(1_600_000);
    let mut first = training(&engine, &one, "first", ("20%", "lru"), 4);
    let _second = training(&engine, &two, "second", ("20%", "lru"), 4);
    first.train(0);
    assert_eq!((first.stats().benefit, first.stats().total.clock.probe_reads), (None, 0));
    // Another that shares its cache competes with it.
    let _third = training(&engine, &one, "third", ("20%", "lru"), 4);
    first.train(1);
    assert_eq!(first.stats().benefit, Some(4.0));
}

#[test]
fn jobs_whose_cache_holds_everything_do_not_compete() {
    let (opened, _) = dataset(&[1000; 4000]);
    let engine = limited(4_000_000);
    let mut slow = training(&engine, &opened, "slow", ("50%", "minio"), 1);
    let _fast = training(&engine, &opened, "fast", ("50%", "minio"), 8);
    slow.train(0);
    assert_eq!(
        (slow.stats().benefit, slow.stats().resident_samples),
        (None, 4000),
        "all that it reads is kept"
    );
}
