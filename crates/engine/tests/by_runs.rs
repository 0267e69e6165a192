//! Plans by runs on bytes: what storage is asked for, what memory holds, and what happens when a shard cannot be read.
//!
//! That counters are the simulator's is shown by `differential`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::{self, Reader, Shards, engine, place, request, sharded};
use hotset_core::counters::Counters;
use hotset_core::{Id, Index, Kind};
use hotset_engine::{Config, Engine, JobRequest};
use hotset_store::Opened;

const BATCH: usize = 32;
const EACH: usize = 250;
const SAMPLES: usize = 4_000;

/// Sixteen shards; samples of 1,000 to 1,900 bytes.
fn shards() -> (Opened, Arc<Shards>) {
    sharded(&(0..SAMPLES as u64).map(|id| 1_000 + id * 7919 % 900).collect::<Vec<_>>(), EACH)
}

fn asked(opened: &Opened, cache: &str) -> JobRequest {
    let mut request = JobRequest { policy: None, package_bytes: 0, ..request(opened, cache, "minio") };
    request.strategy_settings.insert("order".into(), "runs".into());
    request
}

fn open<'a>(engine: &'a Engine, opened: &Opened, request: &JobRequest) -> (Reader<'a>, Vec<String>) {
    let reader = Reader::new(engine, opened);
    let at = place(opened, request);
    let grant = engine.open_job(reader.session, request.clone(), at).unwrap();
    (reader, grant.remarks)
}

/// Trains one epoch, every byte of which is checked: its counters, the most bytes that were in memory, and what failed.
fn train(engine: &Engine, reader: &mut Reader<'_>, epoch: u64) -> (Counters, u64, Vec<hotset_core::Error>) {
    let plan = engine.begin_epoch("job", epoch, (0, 1), 0, false).unwrap();
    let mut ids = plan.ids().to_vec();
    ids.sort_unstable();
    assert_eq!(ids, Vec::from_iter(0..SAMPLES as Id));
    let (mut peak, mut errors) = (0, Vec::new());
    for batch in plan.ids().chunks(BATCH) {
        let index = |&id: &Id| Index { epoch: Some(epoch), sample: id.into() }.into_raw();
        match reader.get(&batch.iter().map(index).collect::<Vec<_>>()) {
            Ok(held) => reader.release(held),
            Err(error) => errors.push(error),
        }
        peak = peak.max(engine.stats().occupied);
    }
    engine.end_epoch("job", epoch, 0, None).unwrap();
    let stats = engine.job_stats(Some("job")).remove(0);
    (stats.epochs.into_iter().find(|(of, _)| *of == epoch).unwrap().1, peak, errors)
}

#[test]
fn storage_sees_one_request_for_each_run_that_is_not_there_and_memory_stays_within_its_bounds() {
    for prefetch in [false, true] {
        let (opened, store) = shards();
        let engine = engine();
        let request = JobRequest { prefetch, ..asked(&opened, "30%") };
        let (mut reader, remarks) = open(&engine, &opened, &request);
        assert_eq!(remarks, Vec::<String>::new());
        let mut counted = Vec::new();
        for epoch in 0..4 {
            let (counters, peak, errors) = train(&engine, &mut reader, epoch);
            assert!(errors.is_empty(), "{errors:?}");
            let plan = counters.plan;
            assert_eq!((plan.single, plan.storage_requests), (0, plan.package_reads));
            let stats = engine.stats();
            assert!(peak <= stats.capacity + stats.reserve, "{peak}: {stats:?}");
            counted.push(plan);
        }
        let (first, later) = (&counted[0], &counted[1..]);
        assert_eq!((first.hit, first.packed), (0, SAMPLES as u64));
        assert!(first.package_reads * 8 < SAMPLES as u64, "{first:?}");
        for plan in later {
            // Half of 30 % stays, and of the rest little is left from one epoch to the next.
            assert!((550..900).contains(&plan.hit), "{plan:?}");
            assert!(plan.storage_bytes * 100 <= first.storage_bytes * 86, "{plan:?}");
        }
        if !prefetch {
            let requests: u64 = counted.iter().map(|plan| plan.storage_requests).sum();
            assert_eq!(store.reads.load(Ordering::SeqCst), requests);
        }
        let stats = engine.job_stats(Some("job")).remove(0);
        let mixing = |name| stats.notes.iter().find(|(of, _)| *of == name).unwrap().1;
        assert!(mixing("mix_labels") > 0.95 && mixing("mix_runs") > 0.3, "{:?}", stats.notes);
        assert_eq!(stats.regions.iter().map(|region| region.name).collect::<Vec<_>>(), ["kept", "mix"]);
    }
}

#[test]
fn a_shard_that_is_gone_fails_its_own_samples_and_is_read_by_runs_when_it_is_back() {
    let (opened, store) = shards();
    let engine = engine();
    let request = JobRequest { prefetch: false, ..asked(&opened, "30%") };
    let (mut reader, _) = open(&engine, &opened, &request);
    train(&engine, &mut reader, 0);
    store.broken.lock().unwrap().push("shard-9".into());
    let (_, _, errors) = train(&engine, &mut reader, 1);
    assert!(!errors.is_empty());
    for error in errors {
        assert_eq!((error.kind, error.sample.unwrap() as usize / EACH), (Kind::Changed, 9), "{error}");
    }
    while engine.stats().reads_in_flight > 0 {
        std::thread::yield_now();
    }
    store.broken.lock().unwrap().clear();
    let (after, _, errors) = train(&engine, &mut reader, 2);
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!((after.plan.single, after.plan.hit + after.plan.packed), (0, SAMPLES as u64), "{after:?}");
}

#[test]
fn a_server_that_grants_less_than_was_asked_for_serves_the_same_plan() {
    let (opened, _) = shards();
    let ids = |engine: &Engine| {
        let (mut reader, remarks) = open(engine, &opened, &asked(&opened, "40%"));
        let orders = (0..3).map(|epoch| {
            let (counters, peak, errors) = train(engine, &mut reader, epoch);
            assert!(errors.is_empty(), "{errors:?}");
            let stats = engine.stats();
            assert!(peak <= stats.capacity + stats.reserve, "{peak}: {stats:?}");
            (engine.begin_epoch("job", epoch, (0, 1), 0, true).unwrap().ids().to_vec(), counters.served())
        });
        (orders.collect::<Vec<_>>(), remarks.len())
    };
    let small = Engine::new(Config { memory: Some(opened.catalog.bytes() / 8), ..common::config() });
    let ((plenty, said_nothing), (little, said)) = (ids(&engine()), ids(&small));
    assert_eq!(plenty, little);
    assert_eq!((said_nothing, said), (0, 1), "what is missing is said");
}

#[test]
fn plans_by_runs_take_no_policy_but_their_own() {
    let (opened, _) = shards();
    let engine = engine();
    for (policy, refused) in
        [(Some("lru"), true), (Some("icache"), true), (Some("runs"), false), (None, false)]
    {
        let request = JobRequest { policy: policy.map(str::to_owned), ..asked(&opened, "30%") };
        let reader = Reader::new(&engine, &opened);
        let at = place(&opened, &request);
        let error = engine.open_job(reader.session, request, at).err();
        assert_eq!(error.is_some(), refused, "{policy:?}");
        assert!(error.is_none_or(|error| error.message.contains("leave `policy` out")));
        engine.close_job(reader.session, "job");
    }
}
