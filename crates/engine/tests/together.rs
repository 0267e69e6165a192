//! Jobs that share a cache, live, and once more from the log of that cache: the same plans and the same counters of the plan.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{self, MemoryLogs, Reader, dataset, request};
use crate::differential::{BATCH, Counted, EPOCHS, accuracy, batches, config, loss, replayed, sizes};
use hotset_core::benefit::Phase;
use hotset_core::log::{Event, MemberId};
use hotset_core::{Id, Index, policy, run};
use hotset_engine::{Config, Engine, JobRequest, Trained};
use hotset_store::Opened;

/// Trains jobs at once, each with two workers, over one cache. Where `gains` says how many times as long a job's batches take
/// that are read from storage, workers tell that.
fn live_together(
    opened: &Opened,
    requests: &[JobRequest],
    gains: Option<fn(u64) -> u32>,
) -> (Vec<Vec<Counted>>, Vec<Event>) {
    let (logs, memory) = (Arc::new(MemoryLogs::default()), Some(opened.catalog.bytes() / 4));
    let engine = Engine::new(Config { logs: Some(logs.clone()), memory, ..common::config() });
    for request in requests {
        engine.open_job(Reader::new(&engine, opened).session, request.clone(), None).unwrap();
    }
    let train = |request: &JobRequest| {
        let job: &'static str = request.job.clone().leak();
        let mut plans = Vec::new();
        for epoch in 0..EPOCHS {
            let plan = engine.begin_epoch(job, epoch, (0, 1), 0, false).unwrap();
            let all = batches(&plan, 0..plan.rank_len());
            let mut workers = [(); 2].map(|()| Reader::of_job(&engine, opened, job));
            for some in all.chunks(workers.len()) {
                for ((_, from, _), reader) in some.iter().zip(&mut workers) {
                    let before = from.checked_sub(2 * BATCH);
                    let phase = before.and_then(|before| engine.probed(job, epoch, before));
                    let times = |gains: fn(u64) -> u32| {
                        if phase == Some(Phase::Misses) { gains(request.seed) } else { 1 }
                    };
                    reader.since = gains.map(|gains| Duration::from_millis(10) * times(gains));
                }
                std::thread::scope(|scope| {
                    for ((_, _, ids), reader) in some.iter().zip(&mut workers) {
                        scope.spawn(move || {
                            let index = |&id: &Id| Index { epoch: Some(epoch), sample: id.into() }.into_raw();
                            let held = reader.get(&ids.iter().map(index).collect::<Vec<_>>()).unwrap();
                            reader.release(held);
                        });
                    }
                });
                for (rank, from, ids) in some {
                    let losses: Vec<f32> = ids.iter().map(|&id| loss(id, epoch)).collect();
                    let upto = (from + ids.len()) as u64;
                    let trained = Trained { epoch, rank: *rank, upto, ids, losses: &losses };
                    engine.report(job, trained).unwrap();
                }
            }
            engine.end_epoch(job, epoch, 0, Some(accuracy(epoch))).unwrap();
            plans.push(plan.ids().to_vec());
        }
        let counters = engine.job_stats(Some(job)).remove(0).epochs.into_iter();
        plans.into_iter().zip(counters.map(|(_, counters)| counters.plan)).collect()
    };
    let counted = std::thread::scope(|scope| {
        let threads: Vec<_> = requests.iter().map(|request| scope.spawn(|| train(request))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    (counted, logs.all().remove(0))
}

#[test]
fn jobs_that_share_a_cache_count_the_same_when_its_log_is_replayed() {
    let opened = dataset(&sizes()).0;
    for policy in policy::REGISTRY.iter().filter(|policy| policy.shared && policy.bounded) {
        let request = |(seed, strategy): (u64, &str)| JobRequest {
            job: format!("{}-{seed}", policy.name),
            seed,
            strategy: Some(strategy.into()),
            epochs: Some(EPOCHS),
            ..request(&opened, "20%", policy.name)
        };
        let requests: Vec<JobRequest> =
            [(1, "uniform"), (2, "iis"), (3, "uniform")].into_iter().map(request).collect();
        let (found, log) = live_together(&opened, &requests, None);
        let shared = found.iter().flatten().map(|(_, counters)| counters.shared_hits).sum::<u64>();
        assert!(shared > 50, "{}: {shared} hits on what another has brought", policy.name);
        compare_together(&opened, &requests, &found, &log);
    }
}

/// Compares what was counted of jobs that share a cache with the replay of its log.
fn compare_together(opened: &Opened, requests: &[JobRequest], found: &[Vec<Counted>], log: &[Event]) {
    let (capacity, policy) = (opened.catalog.bytes() / 5, &requests[0].policy);
    let configs: Vec<run::Config> =
        requests.iter().map(|request| run::Config { capacity, ..config(opened, request, 1) }).collect();
    for (job, (expected, found)) in replayed(&configs, log).iter().zip(found).enumerate() {
        for (epoch, (expected, found)) in expected.iter().zip(found).enumerate() {
            assert!(expected.0 == found.0, "{policy:?}: another plan of {epoch} of job {job}");
            assert_eq!(expected.1, found.1, "{policy:?}: epoch {epoch} of job {job}");
        }
    }
}

#[test]
fn jobs_that_are_measured_count_the_same_when_the_log_of_their_cache_is_replayed() {
    // So large that no window holds an epoch.
    let opened = dataset(&sizes().into_iter().map(|size| 80 * size).collect::<Vec<u64>>()).0;
    for policy in ["lru", "icache", "quiver"] {
        let request = |(seed, strategy): (u64, &str)| JobRequest {
            job: format!("{policy}-{seed}"),
            seed,
            strategy: Some(strategy.into()),
            // So long that it is worth measuring.
            epochs: Some(100),
            ..request(&opened, "20%", policy)
        };
        let requests: Vec<JobRequest> =
            [(1, "uniform"), (2, "iis"), (3, "uniform")].into_iter().map(request).collect();
        let gains = |seed: u64| if seed == 3 { 1 } else { 4 * seed as u32 };
        let (found, log) = live_together(&opened, &requests, Some(gains));
        let mut weighed: Vec<(MemberId, f64)> = log
            .iter()
            .filter_map(|event| match event {
                Event::Weighed { member, benefit } => Some((*member, *benefit)),
                _ => None,
            })
            .collect();
        weighed.sort_by_key(|(member, _)| *member);
        assert_eq!(weighed, [(0, 4.0), (1, 8.0), (2, 1.0)], "{policy}");
        compare_together(&opened, &requests, &found, &log);
    }
}
