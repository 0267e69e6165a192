//! Jobs and epochs as trainers open, leave, repeat and resume them.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::common::{Reader, config, dataset, engine, epoch_indices, request, serve_epoch};
use hotset_core::{Index, Kind};
use hotset_engine::{Concurrency, Config, Engine, SessionId, Trained};

#[test]
fn two_jobs_on_one_dataset_share_bytes_and_keep_their_own_counts() {
    let (opened, store) = dataset(&[1000; 1000]);
    let engine = engine();
    let mut first = Reader::new(&engine, &opened);
    let second = Reader::new(&engine, &opened);
    engine.open_job(first.session, request(&opened, "100%", "minio"), None).unwrap();
    let indices = epoch_indices(&engine, 0);
    for batch in indices.chunks(100) {
        let held = first.get(batch).unwrap();
        first.release(held);
    }
    let before = store.reads.load(Ordering::SeqCst);
    let mut asked = request(&opened, "100%", "lru");
    asked.job = "other".into();
    engine.open_job(second.session, asked, None).unwrap();
    let plan = engine.begin_epoch("other", 0, (0, 1), 0, false).unwrap();
    let ids: Vec<u64> =
        plan.rank_ids(0).map(|id| Index { epoch: Some(0), sample: id.into() }.into_raw()).collect();
    let wait = std::time::Duration::from_secs(30);
    let grant = engine.get_batch(second.session, "other", 0, &ids, wait, &mut || true).unwrap();
    engine.release(second.session, &[grant.lease]);
    assert_eq!(store.reads.load(Ordering::SeqCst), before, "what one job keeps, another needs not read");
    let counters = engine.job_stats(Some("other"))[0].epochs[0].1.clone();
    assert_eq!(
        (counters.plan.single, counters.clock.joined),
        (1000, 1000),
        "its plan reads them: {counters:?}"
    );
    assert_eq!((counters.storage_reads(), counters.storage_requests(), counters.storage_bytes()), (0, 0, 0));
    let held = first.get(&[5]).unwrap();
    first.release(held);
}

#[test]
fn a_job_opened_again_must_ask_for_the_same() {
    let (opened, _) = dataset(&[1000; 10]);
    let engine = engine();
    let reader = Reader::new(&engine, &opened);
    let grant = engine.open_job(reader.session, request(&opened, "20%", "lru"), None).unwrap();
    assert_eq!(engine.open_job(reader.session, request(&opened, "20%", "lru"), None).unwrap(), grant);
    let error = engine.open_job(reader.session, request(&opened, "30%", "lru"), None).unwrap_err();
    assert!(error.kind == Kind::Invalid && error.message.contains("`cache`"), "{error}");
    let mut unknown = request(&opened, "20%", "mru");
    unknown.job = "another".into();
    let error = engine.open_job(reader.session, unknown, None).unwrap_err();
    assert!(error.message.contains("lru") && error.message.contains("minio"), "{error}");
}

#[test]
fn memory_is_refused_beyond_the_machine_and_bounded_by_the_server() {
    let (opened, _) = dataset(&[1 << 20; 100]);
    let config = Config {
        concurrency: Concurrency::Fixed(1),
        memory: None,
        machine: 128 << 20,
        available: || 128 << 20,
        retries: 0,
        linger: std::time::Duration::ZERO,
        logs: None,
        patience: std::time::Duration::from_secs(10),
    };
    let engine = Engine::new(config.clone());
    let reader = Reader::new(&engine, &opened);
    let error = engine.open_job(reader.session, request(&opened, "100%", "lru"), None).unwrap_err();
    assert!(error.kind == Kind::Invalid && error.message.contains("`cache`"), "{error}");
    // Of the machine's memory, what others take cannot be had: 20 MiB and their reserve fit in 90, 40 MiB do not.
    let busy = Engine::new(Config { machine: 1 << 30, available: || 90 << 20, ..config.clone() });
    let reader = Reader::new(&busy, &opened);
    let error = busy.open_job(reader.session, request(&opened, "40%", "lru"), None).unwrap_err();
    assert!(error.kind == Kind::Invalid && error.message.contains("only 90"), "{error}");
    assert!(error.message.contains("at most 26"), "{error}");
    assert_eq!(
        busy.open_job(reader.session, request(&opened, "20%", "lru"), None).unwrap().granted,
        20 << 20
    );
    let bounded = Engine::new(Config { memory: Some(30 << 20), ..config });
    let reader = Reader::new(&bounded, &opened);
    let grant = bounded.open_job(reader.session, request(&opened, "100%", "lru"), None).unwrap();
    assert_eq!((grant.asked, grant.granted), (100 << 20, 30 << 20));
}

#[test]
fn a_loop_that_breaks_early_leaves_its_slots_and_the_next_epoch_is_whole() {
    let (opened, _) = dataset(&[1000; 400]);
    let engine = engine();
    let mut reader = Reader::new(&engine, &opened);
    engine.open_job(reader.session, request(&opened, "20%", "lru"), None).unwrap();
    let first = epoch_indices(&engine, 0);
    let held = reader.get(&first[..50]).unwrap();
    reader.release(held);
    let second = epoch_indices(&engine, 1);
    let held = reader.get(&first[50..60]).expect("a straggler is served beside the plan");
    reader.release(held);
    serve_epoch(&engine, &opened, 3, &second, 20);
    let stats = engine.job_stats(None).remove(0);
    assert_eq!((stats.epochs[0].1.served(), stats.epochs[0].1.clock.abandoned), (50, 350));
    assert_eq!((stats.epochs[1].1.served(), stats.epochs[1].1.clock.abandoned), (400, 0));
    assert_eq!(stats.unplanned.served(), 10);
}

#[test]
fn an_epoch_begun_over_serves_all_of_it_and_a_reader_that_joins_disturbs_nothing() {
    let (opened, _) = dataset(&[1000; 100]);
    let engine = engine();
    let mut reader = Reader::new(&engine, &opened);
    engine.open_job(reader.session, request(&opened, "20%", "lru"), None).unwrap();
    let indices = epoch_indices(&engine, 0);
    let held = reader.get(&indices[..30]).unwrap();
    reader.release(held);
    engine.begin_epoch("job", 0, (0, 1), 0, true).unwrap();
    assert_eq!(engine.job_stats(None)[0].epochs[0].1.served(), 30);
    let again = epoch_indices(&engine, 0);
    assert_eq!(again, indices);
    for batch in again.chunks(25) {
        let held = reader.get(batch).unwrap();
        reader.release(held);
    }
    let counters = &engine.job_stats(None)[0].epochs[0].1;
    assert_eq!((counters.served(), counters.plan.distinct), (100, 100));
    assert_eq!(engine.job_stats(None)[0].unplanned.served(), 0);
}

#[test]
fn a_training_that_starts_over_leaves_its_later_epochs() {
    let (opened, store) = dataset(&[1000; 200]);
    let engine = engine();
    let main = Reader::new(&engine, &opened);
    engine.open_job(main.session, request(&opened, "20%", "minio"), None).unwrap();
    for epoch in [0, 1, 2, 3, 0, 1] {
        let indices = epoch_indices(&engine, epoch);
        serve_epoch(&engine, &opened, 2, &indices, 20);
    }
    let stats = engine.job_stats(None).remove(0);
    assert_eq!(stats.total.served(), 1200);
    assert_eq!(stats.epochs[1].1.served(), 200);
    let reads = store.reads.load(Ordering::SeqCst);
    // The first epoch, five more, and what was read ahead of the two that did not come.
    assert!(reads <= 200 + 7 * 160, "{reads} reads: an epoch that was left is not read on");
}

#[test]
fn a_reader_that_finds_a_new_server_goes_on_in_the_middle_of_the_epoch() {
    let (opened, store) = dataset(&[1000; 20_000]);
    let engine = engine();
    let mut reader = Reader::new(&engine, &opened);
    engine.open_job(reader.session, request(&opened, "20%", "minio"), None).unwrap();
    let plan = engine.begin_epoch("job", 4, (0, 1), 0, true).unwrap();
    let indices: Vec<u64> =
        plan.rank_ids(0).map(|id| Index { epoch: Some(4), sample: id.into() }.into_raw()).collect();
    for batch in indices[12_000..].chunks(16) {
        let held = reader.get(batch).unwrap();
        reader.release(held);
    }
    let stats = engine.job_stats(None).remove(0);
    let counters = &stats.epochs[0].1;
    assert_eq!(counters.served(), 8000);
    assert!(counters.clock.abandoned > 7000, "{counters:?}");
    assert_eq!(stats.unplanned.served(), 0);
    assert!(store.reads.load(Ordering::SeqCst) < 16_000, "what was left behind is not read");
}

#[test]
fn ranks_get_disjoint_parts_of_equal_length_and_a_wrong_world_is_refused() {
    let (opened, _) = dataset(&[100; 1003]);
    let engine = engine();
    let reader = Reader::new(&engine, &opened);
    engine.open_job(reader.session, request(&opened, "20%", "lru"), None).unwrap();
    let parts: Vec<Vec<u32>> = (0..4)
        .map(|rank| engine.begin_epoch("job", 0, (rank, 4), 0, false).unwrap().rank_ids(rank).collect())
        .collect();
    let mut all: Vec<u32> = parts.iter().flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 1000);
    assert!(parts.iter().all(|part| part.len() == 250));
    let error = engine.begin_epoch("job", 0, (0, 2), 0, false).unwrap_err();
    assert!(error.kind == Kind::Invalid && error.message.contains("`world`"), "{error}");
    assert_eq!(engine.begin_epoch("job", 0, (4, 4), 0, false).unwrap_err().kind, Kind::Invalid);
    assert_eq!(engine.begin_epoch("job", u64::MAX, (0, 4), 0, false).unwrap_err().kind, Kind::Invalid);
}

#[test]
fn a_job_goes_with_its_last_client_and_its_memory_with_it() {
    let (opened, _) = dataset(&[10_000; 1000]);
    let engine = engine();
    let main = Reader::new(&engine, &opened);
    engine.open_job(main.session, request(&opened, "50%", "lru"), None).unwrap();
    let indices = epoch_indices(&engine, 0);
    serve_epoch(&engine, &opened, 2, &indices, 50);
    assert!(engine.stats().occupied > 4_000_000);
    engine.detach(main.session, Instant::now());
    engine.tidy(Instant::now());
    let deadline = Instant::now() + std::time::Duration::from_secs(10);
    while engine.stats().arena > 0 && Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let stats = engine.stats();
    assert_eq!((stats.arena, stats.occupied, stats.capacity), (0, 0, 0));
    assert!(engine.job_stats(None).is_empty());
}

#[test]
fn scores_are_taken_or_refused_one_by_one() {
    let (opened, _) = dataset(&[10; 5]);
    let engine = engine();
    let reader = Reader::new(&engine, &opened);
    engine.open_job(reader.session, request(&opened, "20%", "lru"), None).unwrap();
    let report = |ids: &[u32], losses: &[f32]| {
        engine.report("job", Trained { epoch: 0, rank: 0, upto: ids.len() as u64, ids, losses })
    };
    let scores = [1.0, f32::NAN, -1.0, f32::INFINITY, 0.0, 2.0];
    assert_eq!(report(&[0, 1, 2, 3, 4, 99], &scores).unwrap(), (2, 4));
    assert_eq!(report(&[0], &[]).unwrap_err().kind, Kind::Invalid);
}

#[test]
fn jobs_that_are_opened_at_the_same_time_share_the_memory_and_their_names() {
    let (opened, _) = dataset(&[1_000; 500]);
    for _ in 0..20 {
        let engine = Engine::new(Config { memory: Some(300_000), ..config() });
        let sessions: Vec<SessionId> = (0..8).map(|_| Reader::new(&engine, &opened).session).collect();
        let grants: Vec<(String, u64)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..)
                .zip(&sessions)
                .map(|(number, &session)| {
                    let (engine, opened) = (&engine, &opened);
                    scope.spawn(move || {
                        let mut asked = request(opened, "40%", "lru");
                        asked.job = format!("job-{}", number % 2);
                        let name = asked.job.clone();
                        (name, engine.open_job(session, asked, None).unwrap().granted)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let by_name: BTreeMap<String, u64> = grants.iter().cloned().collect();
        assert!(grants.iter().all(|(name, granted)| by_name[name] == *granted), "{grants:?}");
        let mut granted: Vec<u64> = by_name.into_values().collect();
        granted.sort_unstable();
        assert_eq!(granted, [200_000, 300_000], "both ask for 200 kB of one cache, and 300 kB can be had");
        assert_eq!(engine.job_stats(None).len(), 2);
    }
}
