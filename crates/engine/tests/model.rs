//! The engine against a plain model: any sequence of batches, releases, deaths, jobs and new epochs.
//!
//! The model knows only what a lease promises: its bytes are those of its samples until it ends. After every
//! step all leased bytes are looked at again, and the figures must add up; at the end nothing may be left. Both jobs train one
//! dataset, or equal copies of it that share their bytes.

use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::common::{Held, Reader, copy, dataset, engine, epoch_indices_of, request};
use hotset_engine::Engine;
use proptest::prelude::*;

const JOBS: [&str; 2] = ["job", "other"];

#[derive(Debug, Clone)]
enum Step {
    /// A reader takes the next batch of a job's plan.
    Planned { reader: usize, job: usize, size: usize },
    /// A reader asks for samples of its own choice.
    Beside { reader: usize, ids: Vec<u16> },
    /// A lease ends.
    Release { pick: usize },
    /// A reader dies, and another takes its place.
    Die { reader: usize },
    /// A job's next epoch begins, or the same one over.
    Epoch { job: usize, next: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..3usize, 0..2usize, 1..60usize)
            .prop_map(|(reader, job, size)| Step::Planned { reader, job, size }),
        2 => (0..3usize, prop::collection::vec(any::<u16>(), 1..20))
            .prop_map(|(reader, ids)| Step::Beside { reader, ids }),
        6 => any::<usize>().prop_map(|pick| Step::Release { pick }),
        1 => (0..3usize).prop_map(|reader| Step::Die { reader }),
        1 => (0..2usize, prop::bool::weighted(0.8)).prop_map(|(job, next)| Step::Epoch { job, next }),
    ]
}

fn adds_up(engine: &Engine, leases: usize) {
    let stats = engine.stats();
    assert_eq!(stats.leases as usize, leases);
    assert!(stats.occupied <= stats.arena, "{stats:?}");
    assert!(stats.passing <= stats.occupied, "{stats:?}");
    for job in engine.job_stats(None) {
        assert!(job.resident_bytes <= job.capacity, "{job:?}");
        for (_, counters) in &job.epochs {
            assert!(counters.served() + counters.clock.abandoned <= counters.plan.planned, "{counters:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn leased_bytes_never_change_and_nothing_is_left_behind(
        steps in prop::collection::vec(step(), 1..80),
        policy in prop_oneof![Just("lru"), Just("minio")],
        cache in prop_oneof![Just("0%"), Just("3%"), Just("30%"), Just("100%")],
        prefetch in any::<bool>(),
        fail_every in prop_oneof![Just(0u64), Just(5)],
        copies in any::<bool>(),
    ) {
        let sizes: Vec<u64> = (0..400u64).map(|id| (id * 7919) % 5000).collect();
        let (opened, store) = dataset(&sizes);
        store.fail_every.store(fail_every, Ordering::SeqCst);
        let (other, elsewhere) = dataset(&sizes);
        elsewhere.fail_every.store(fail_every, Ordering::SeqCst);
        let of_jobs = if copies {
            [copy(opened, "here"), copy(other, "elsewhere")]
        } else {
            [opened.clone(), opened]
        };
        let opened = &of_jobs[0];
        let engine = engine();
        let main = Reader::new(&engine, opened);
        engine.open_dataset(main.session, &of_jobs[1]);
        for (number, job) in JOBS.into_iter().enumerate() {
            let mut asked = request(&of_jobs[number], cache, policy);
            (asked.job, asked.seed, asked.prefetch) = (job.into(), number as u64, prefetch);
            engine.open_job(main.session, asked, None).unwrap();
        }
        let mut readers: Vec<Reader> = (0..3).map(|_| Reader::new(&engine, opened)).collect();
        let mut held: Vec<(usize, Vec<u64>, Held)> = Vec::new();
        let mut runs = JOBS.map(|job| (0, epoch_indices_of(&engine, job, 0), 0));
        for step in steps {
            match step {
                Step::Planned { reader, job, size } => {
                    let (_, plan, position) = &mut runs[job];
                    let end = (*position + size).min(plan.len());
                    let indices = plan[*position..end].to_vec();
                    *position = end;
                    readers[reader].job = JOBS[job];
                    let batch = readers[reader].get(&indices).unwrap();
                    held.push((reader, indices, batch));
                }
                Step::Beside { reader, ids } => {
                    let indices: Vec<u64> = ids.iter().map(|&id| u64::from(id) % 400).collect();
                    let batch = readers[reader].get(&indices).unwrap();
                    held.push((reader, indices, batch));
                }
                Step::Release { pick } if !held.is_empty() => {
                    let (reader, _, batch) = held.swap_remove(pick % held.len());
                    readers[reader].release(batch);
                }
                Step::Release { .. } => {}
                Step::Die { reader } => {
                    engine.detach(readers[reader].session, Instant::now());
                    readers[reader] = Reader::new(&engine, opened);
                    held.retain(|(of, ..)| *of != reader);
                }
                Step::Epoch { job, next } => {
                    let (epoch, plan, position) = &mut runs[job];
                    *epoch += u64::from(next);
                    *plan = epoch_indices_of(&engine, JOBS[job], *epoch);
                    *position = 0;
                }
            }
            for (reader, indices, batch) in &held {
                readers[*reader].check(indices, batch);
            }
            adds_up(&engine, held.len());
        }
        for reader in &readers {
            engine.detach(reader.session, Instant::now());
        }
        for job in JOBS {
            engine.close_job(main.session, job);
        }
        while engine.stats().reads_in_flight > 0 {
            std::thread::yield_now();
        }
        let stats = engine.stats();
        prop_assert_eq!((stats.leases, stats.occupied, stats.passing, stats.arena), (0, 0, 0, 0));
    }
}
