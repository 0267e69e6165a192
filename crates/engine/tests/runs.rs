//! Shards, whose runs of samples are packages as they are.

use std::sync::atomic::Ordering;

use crate::common::{BETWEEN, Reader, Shards, engine, place, request, sharded};
use hotset_core::counters::Counters;
use hotset_core::{Id, Index, Kind};
use hotset_engine::{Engine, JobRequest, Trained};
use hotset_store::Opened;

const BATCH: usize = 32;
const EACH: usize = 200;

fn sizes() -> Vec<u64> {
    (0..1_000u64).map(|id| 60 + id * 7919 % 90).collect()
}

fn asked(opened: &Opened, cache: &str) -> JobRequest {
    let mut request = request(opened, cache, "icache");
    request.strategy = Some("iis".into());
    request.package_bytes = 2_000;
    request
}

fn indices(epoch: u64, ids: &[Id]) -> Vec<u64> {
    ids.iter().map(|&id| Index { epoch: Some(epoch), sample: id.into() }.into_raw()).collect()
}

/// Trains one epoch, every byte of which is checked, and counts it. Batches that cannot be had are left out.
fn train(engine: &Engine, reader: &mut Reader<'_>, epoch: u64) -> (Counters, Vec<hotset_core::Error>) {
    let plan = engine.begin_epoch("job", epoch, (0, 1), 0, false).unwrap();
    let mut errors = Vec::new();
    for (number, batch) in plan.ids().chunks(BATCH).enumerate() {
        match reader.get(&indices(epoch, batch)) {
            Ok(held) => reader.release(held),
            Err(error) => errors.push(error),
        }
        let losses: Vec<f32> = batch.iter().map(|&id| (id * 7919 % 1_000) as f32).collect();
        let upto = (number * BATCH + batch.len()) as u64;
        engine.report("job", Trained { epoch, rank: 0, upto, ids: batch, losses: &losses }).unwrap();
    }
    engine.end_epoch("job", epoch, 0, None).unwrap();
    let stats = engine.job_stats(Some("job")).remove(0);
    (stats.epochs.into_iter().find(|(of, _)| *of == epoch).unwrap().1, errors)
}

fn reads(store: &Shards) -> u64 {
    store.reads.load(Ordering::SeqCst)
}

#[test]
fn one_request_brings_a_run_from_the_first_epoch_on_and_nothing_is_packed() {
    for prefetch in [false, true] {
        one_request(prefetch);
    }
}

fn one_request(prefetch: bool) {
    let (opened, store) = sharded(&sizes(), EACH);
    let engine = engine();
    let mut reader = Reader::new(&engine, &opened);
    let request = JobRequest { prefetch, ..asked(&opened, "20%") };
    let at = place(&opened, &request);
    engine.open_job(reader.session, request, at).unwrap();
    let mut before = 0;
    for epoch in 0..6 {
        let (counters, errors) = train(&engine, &mut reader, epoch);
        assert!(errors.is_empty(), "{errors:?}");
        let requests = std::mem::replace(&mut before, reads(&store));
        // Read ahead, some of them are the next epoch's.
        assert!(prefetch || counters.plan.storage_requests == before - requests, "{counters:?}");
        assert!(counters.plan.package_reads > 0 && counters.plan.packed > 300, "{counters:?}");
        assert!(counters.plan.package_reads * 10 < counters.plan.packed, "{counters:?}");
        assert_eq!(
            (counters.plan.pack_reads, counters.plan.pack_bytes_written, counters.clock.packages_lost),
            (0, 0, 0)
        );
        // What lies between samples is read too.
        assert!(counters.plan.storage_bytes > counters.plan.package_bytes, "{counters:?}");
        assert!(counters.plan.storage_bytes < counters.plan.storage_reads * (150 + BETWEEN), "{counters:?}");
    }
    let stats = engine.job_stats(Some("job")).remove(0);
    let packages = stats.packages.unwrap();
    assert_eq!((packages.place.as_str(), packages.samples, packages.packing), ("", 1_000, 0));
    assert_eq!(stats.remarks, Vec::<String>::new());
    assert!(stats.regions.iter().any(|region| region.name == "l" && region.capacity > 0));
}

#[test]
fn a_shard_that_is_gone_is_told_of_by_sample_and_its_runs_are_used_when_it_is_back() {
    let (opened, store) = sharded(&sizes(), EACH);
    let engine = engine();
    let mut reader = Reader::new(&engine, &opened);
    // Read ahead, the next epoch would have its bytes before the shard is gone.
    let request = JobRequest { prefetch: false, ..asked(&opened, "20%") };
    let at = place(&opened, &request);
    engine.open_job(reader.session, request, at).unwrap();
    let (whole, _) = train(&engine, &mut reader, 0);
    store.broken.lock().unwrap().push("shard-2".into());
    let (counters, errors) = train(&engine, &mut reader, 1);
    assert!(!errors.is_empty());
    for error in errors {
        assert_eq!(error.kind, Kind::Changed, "{error}");
        let sample = error.sample.unwrap() as usize;
        assert_eq!(sample / EACH, 2, "{error}");
        assert_eq!(error.key.as_deref(), Some(format!("shard-2/{sample}").as_str()));
    }
    assert!(counters.clock.failed > 0 && counters.clock.packages_lost == 0, "{counters:?}");
    // A batch fails with the first of its samples, while others of it are still being read.
    while engine.stats().reads_in_flight > 0 {
        std::thread::yield_now();
    }
    store.broken.lock().unwrap().clear();
    let (after, errors) = train(&engine, &mut reader, 2);
    assert!(errors.is_empty(), "{errors:?}");
    assert!(after.plan.single < whole.plan.packed / 4, "{after:?}");
    assert_eq!(engine.job_stats(None).remove(0).packages.unwrap().samples, 1_000);
}

#[test]
fn runs_that_a_cache_has_no_room_for_are_off_and_said_so_where_they_would_be_of_use() {
    let (opened, _) = sharded(&sizes(), EACH);
    for (policy, cache, remarks) in [("icache", "5%", 1), ("icache", "20%", 0), ("lru", "5%", 0)] {
        let engine = engine();
        let mut reader = Reader::new(&engine, &opened);
        let request = JobRequest { policy: Some(policy.into()), ..asked(&opened, cache) };
        let at = place(&opened, &request);
        let grant = engine.open_job(reader.session, request, at).unwrap();
        assert_eq!(grant.remarks.len(), remarks, "{:?}", grant.remarks);
        assert!(grant.remarks.iter().all(|remark| remark.contains("raise `cache`, or lower `package_size`")));
        let (counters, _) = train(&engine, &mut reader, 0);
        assert_eq!(counters.plan.packed > 0, policy == "icache" && remarks == 0, "{counters:?}");
    }
}

#[test]
fn neighbours_are_counted_as_they_are_read_and_fail_each_alone() {
    let (opened, store) = sharded(&sizes(), EACH);
    let engine = engine();
    let mut reader = Reader::new(&engine, &opened);
    let asked = JobRequest { strategy: None, cache: "0".parse().unwrap(), ..request(&opened, "0", "lru") };
    engine.open_job(reader.session, asked, None).unwrap();
    let some = |from: u64| -> Vec<u64> {
        (from..from + 50).map(|sample| Index { epoch: None, sample }.into_raw()).collect()
    };
    let held = reader.get(&some(100)).unwrap();
    reader.release(held);
    let counted = engine.job_stats(None).remove(0).unplanned;
    assert_eq!((counted.plan.storage_requests, counted.plan.storage_reads, reads(&store)), (1, 50, 1));
    assert_eq!(counted.plan.storage_bytes, opened.catalog.extent(100, 149), "with what lies between them");

    store.broken.lock().unwrap().push("shard-1".into());
    let error = reader.get(&some(220)).err().unwrap();
    assert_eq!((error.kind, error.sample.unwrap() / EACH as u64), (Kind::Changed, 1));
    while engine.stats().reads_in_flight > 0 {
        std::thread::yield_now();
    }
    // Once together, and then those that were still waited for.
    assert!((3..=52).contains(&reads(&store)), "{}", reads(&store));
    assert_eq!(engine.stats().occupied, 0, "nothing is left of it");
    store.broken.lock().unwrap().clear();
    let held = reader.get(&some(220)).unwrap();
    reader.release(held);
}
