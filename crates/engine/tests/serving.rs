//! What readers get, and what is counted of it.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::{Reader, dataset, engine, epoch_indices, request, serve_epoch, within};
use hotset_core::{Index, Kind};
use hotset_engine::JobRequest;

fn epochs(policy: &str, prefetch: bool, readers: usize) -> Vec<(u64, u64, u64)> {
    let (opened, store) = dataset(&[1000; 3000]);
    let engine = engine();
    let main = Reader::new(&engine, &opened);
    let mut asked = request(&opened, "20%", policy);
    asked.prefetch = prefetch;
    engine.open_job(main.session, asked, None).unwrap();
    for epoch in 0..6 {
        let indices = epoch_indices(&engine, epoch);
        serve_epoch(&engine, &opened, readers, &indices, 64);
    }
    let stats = engine.job_stats(None).remove(0);
    let counted: Vec<_> = stats
        .epochs
        .iter()
        .filter(|(epoch, _)| *epoch < 6)
        .map(|(_, counters)| {
            assert_eq!(counters.served(), 3000);
            assert_eq!(
                (counters.plan.distinct, counters.clock.abandoned, counters.clock.spilled),
                (3000, 0, 0)
            );
            (counters.plan.hit, counters.plan.single, counters.plan.storage_reads)
        })
        .collect();
    let reads: u64 = stats.epochs[..6].iter().map(|(_, counters)| counters.storage_reads()).sum();
    assert!(
        store.reads.load(Ordering::SeqCst) >= reads,
        "storage saw what is counted, and what is read ahead"
    );
    for &(_, single, reads) in &counted {
        assert_eq!(single, reads, "every read of an epoch is one of its servings");
    }
    counted
}

#[test]
fn minio_hits_exactly_its_share_and_prefetch_changes_no_count() {
    for readers in [1, 6] {
        for prefetch in [true, false] {
            let counted = epochs("minio", prefetch, readers);
            assert_eq!(counted[0].0, 0, "nothing is there at first");
            assert!(counted[1..].iter().all(|&(hit, ..)| hit == 600), "{counted:?}");
        }
    }
}

#[test]
fn lru_hits_what_theory_says_and_prefetch_changes_no_count() {
    let alone = epochs("lru", false, 1);
    for (prefetch, readers) in [(true, 1), (true, 6), (false, 6)] {
        assert_eq!(epochs("lru", prefetch, readers), alone);
    }
    let hits: u64 = alone[1..].iter().map(|&(hit, ..)| hit).sum();
    let share = hits as f64 / (5.0 * 3000.0);
    assert!((share - 0.0215).abs() < 0.008, "{share}");
}

#[test]
fn every_byte_is_right_under_pressure_and_faults() {
    let sizes: Vec<u64> = (0..2000).map(|id| (id * 7919) % 30_000).collect();
    let (opened, store) = dataset(&sizes);
    store.fail_every.store(17, Ordering::SeqCst);
    let engine = engine();
    let main = Reader::new(&engine, &opened);
    engine.open_job(main.session, request(&opened, "5%", "lru"), None).unwrap();
    for epoch in 0..3 {
        let indices = epoch_indices(&engine, epoch);
        serve_epoch(&engine, &opened, 6, &indices, 32);
        let stats = engine.stats();
        assert!(stats.arena <= stats.capacity + stats.reserve, "{stats:?}");
        assert_eq!(stats.leases, 0);
    }
    assert!(store.most_in_flight.load(Ordering::SeqCst) <= 8, "the limit of reads in flight holds");
}

#[test]
fn a_kept_view_never_changes_while_the_cache_turns_over() {
    let (opened, _) = dataset(&[20_000; 1000]);
    let engine = engine();
    let mut keeper = Reader::new(&engine, &opened);
    engine.open_job(keeper.session, request(&opened, "10%", "lru"), None).unwrap();
    let first = epoch_indices(&engine, 0);
    let kept = keeper.get(&first[..16]).unwrap();
    serve_epoch(&engine, &opened, 2, &first[16..], 50);
    for epoch in 1..11 {
        let indices = epoch_indices(&engine, epoch);
        serve_epoch(&engine, &opened, 2, &indices, 50);
        keeper.check(&first[..16], &kept);
    }
    assert_eq!(engine.stats().leases, 1);
    keeper.release(kept);
    assert_eq!(engine.stats().leases, 0);
}

#[test]
fn an_evaluation_pass_changes_nothing_in_the_plan() {
    let run = |evaluate: bool| {
        let (opened, _) = dataset(&[1000; 500]);
        let engine = engine();
        let mut reader = Reader::new(&engine, &opened);
        engine.open_job(reader.session, request(&opened, "20%", "lru"), None).unwrap();
        for epoch in 0..3 {
            let indices = epoch_indices(&engine, epoch);
            for (number, batch) in indices.chunks(50).enumerate() {
                let held = reader.get(batch).unwrap();
                reader.release(held);
                if evaluate && number == 4 {
                    let all: Vec<u64> = (0..500).collect();
                    let held = reader.get(&all).unwrap();
                    reader.release(held);
                }
            }
        }
        let stats = engine.job_stats(None).remove(0);
        assert_eq!(stats.unplanned.served(), if evaluate { 1500 } else { 0 });
        let counted = |(epoch, c): &(u64, hotset_core::counters::Counters)| {
            (*epoch, c.plan.hit, c.plan.single, c.plan.distinct)
        };
        stats.epochs.iter().filter(|(epoch, _)| *epoch < 3).map(counted).collect::<Vec<_>>()
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn one_sample_is_read_once_however_many_want_it() {
    let (opened, store) = dataset(&[5000; 10]);
    let engine = engine();
    let main = Reader::new(&engine, &opened);
    let mut asked = request(&opened, "100%", "minio");
    asked.strategy = None;
    engine.open_job(main.session, asked, None).unwrap();
    store.hold();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..6)
            .map(|_| {
                scope.spawn(|| {
                    let mut reader = Reader::new(&engine, &opened);
                    let held = reader.get(&[3, 3]).unwrap();
                    reader.release(held);
                })
            })
            .collect();
        while engine.stats().waiting < 6 {
            std::thread::yield_now();
        }
        assert_eq!(engine.stats().reads_in_flight, 1);
        store.let_go();
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(store.reads.load(Ordering::SeqCst), 1);
}

#[test]
fn a_vanished_sample_is_an_error_that_names_it_and_others_go_on() {
    let (opened, store) = dataset(&[1000; 100]);
    store.vanished.lock().unwrap().push(42);
    let engine = engine();
    let mut reader = Reader::new(&engine, &opened);
    let asked = JobRequest { epochs: Some(1), ..request(&opened, "50%", "lru") };
    engine.open_job(reader.session, asked, None).unwrap();
    let indices = epoch_indices(&engine, 0);
    let mut failed = Vec::new();
    for batch in indices.chunks(10) {
        match reader.get(batch) {
            Ok(held) => reader.release(held),
            Err(error) => {
                failed.push(batch);
                assert_eq!(
                    (error.kind, error.sample, error.key.as_deref()),
                    (Kind::Changed, Some(42), Some("samples/42"))
                );
            }
        }
    }
    assert_eq!(failed.len(), 1);
    store.vanished.lock().unwrap().clear();
    let held = reader.get(failed[0]).expect("its slots were given back, and are served when they can be");
    reader.release(held);
    assert_eq!(engine.stats().passing, 0, "nothing of the failed read is left");
}

#[test]
fn indices_out_of_range_and_unknown_jobs_are_refused() {
    let (opened, _) = dataset(&[10; 5]);
    let engine = engine();
    let reader = Reader::new(&engine, &opened);
    assert_eq!(reader.ask(&[0]).unwrap_err().kind, Kind::Lost);
    engine.open_job(reader.session, request(&opened, "1KiB", "lru"), None).unwrap();
    let error = reader.ask(&[0, 5]).unwrap_err();
    assert_eq!(error.kind, Kind::Invalid);
    assert!(error.message.contains("out of range") && error.message.contains("5 samples"), "{error}");
    let planned = Index { epoch: Some(3), sample: 1 }.into_raw();
    assert_eq!(reader.ask(&[planned]).unwrap_err().kind, Kind::Lost, "no rank has begun epoch 3");
}

#[test]
fn a_reader_that_dies_gives_its_leases_back() {
    let (opened, _) = dataset(&[1000; 100]);
    let engine = engine();
    let main = Reader::new(&engine, &opened);
    engine.open_job(main.session, request(&opened, "10%", "lru"), None).unwrap();
    let indices = epoch_indices(&engine, 0);
    let mut worker = Reader::new(&engine, &opened);
    worker.get(&indices[..10]).unwrap();
    assert_eq!(engine.stats().leases, 1);
    engine.detach(worker.session, Instant::now());
    assert_eq!(engine.stats().leases, 0);
    serve_epoch(&engine, &opened, 2, &indices[10..], 10);
}

#[test]
fn a_client_that_dies_while_it_waits_holds_nothing() {
    let (opened, store) = dataset(&[1000; 100]);
    let engine = engine();
    let mut reader = Reader::new(&engine, &opened);
    engine.open_job(reader.session, request(&opened, "10%", "lru"), None).unwrap();
    store.hold();
    let indices = epoch_indices(&engine, 0);
    let gone =
        engine.get_batch(reader.session, "job", 0, &indices[..10], Duration::from_secs(9), &mut || false);
    assert!(gone.unwrap_err().message.contains("went away"));
    let late =
        engine.get_batch(reader.session, "job", 0, &indices[..10], Duration::from_millis(20), &mut || true);
    let late = late.unwrap_err();
    assert_eq!(late.kind, Kind::Unavailable);
    assert!(late.message.contains("`wait`") && late.sample.is_some() && late.key.is_some(), "{late}");
    store.let_go();
    for batch in indices.chunks(10) {
        let held = reader.get(batch).unwrap();
        reader.release(held);
    }
    let counters = &engine.job_stats(None)[0].epochs[0].1;
    assert_eq!(
        (counters.served(), counters.plan.storage_reads),
        (100, 100),
        "slots given back are served once"
    );
}

#[test]
fn a_batch_larger_than_the_arena_is_answered_from_memory_of_its_own() {
    let (opened, _) = dataset(&[1 << 20; 300]);
    let engine = engine();
    let mut reader = Reader::new(&engine, &opened);
    engine.open_job(reader.session, request(&opened, "1MiB", "lru"), None).unwrap();
    let indices = epoch_indices(&engine, 0);
    let held = reader.get(&indices[..150]).unwrap();
    // It could wait for ever: its own views are in the way, so it hears so at once.
    let wait = Duration::from_secs(u64::MAX / 4);
    let second = within("waiting for one's own views", || {
        engine.get_batch(reader.session, "job", 0, &indices[150..], wait, &mut || true)
    });
    let second = second.unwrap_err();
    assert!(second.kind == Kind::Unavailable && second.message.contains("`cache`"), "{second}");
    assert!(second.message.contains("views of 1 earlier"), "{second}");
    reader.release(held);
    let held = reader.get(&indices[150..]).unwrap();
    reader.release(held);
    let counters = &engine.job_stats(None)[0].epochs[0].1;
    assert_eq!((counters.clock.spilled, counters.served()), (2, 300));
    assert!(engine.stats().arena <= (1 << 20) + (64 << 20), "what was spilled is gone");
}

#[test]
fn a_wait_for_memory_that_another_reader_leases_is_counted() {
    let (opened, _) = dataset(&[1 << 20; 300]);
    let engine = engine();
    let mut other = Reader::new(&engine, &opened);
    engine.open_job(other.session, request(&opened, "1MiB", "lru"), None).unwrap();
    let indices = epoch_indices(&engine, 0);
    let mut reader = Reader::new(&engine, &opened);
    let others = other.get(&indices[..50]).unwrap();
    let spilled = reader.get(&indices[50..80]).unwrap();
    let counted = || engine.job_stats(None)[0].epochs[0].1.clock.clone();
    assert_eq!((counted().spilled, counted().memory_waits), (1, 0));
    // The memory comes once the reader is looked up, which it is as it begins to wait.
    let (waits, has_begun) = std::sync::mpsc::channel();
    let mut alive = move || waits.send(()).is_ok();
    within("memory that another reader lets go of", || {
        std::thread::scope(|scope| {
            scope.spawn(move || {
                has_begun.recv().unwrap();
                other.release(others);
                has_begun.iter().for_each(drop);
            });
            let wait = Duration::from_secs(20);
            engine.get_batch(reader.session, "job", 0, &indices[80..110], wait, &mut alive).unwrap();
            drop(alive);
        });
    });
    assert_eq!((counted().spilled, counted().memory_waits), (1, 1));
    reader.release(spilled);
}

#[test]
fn readers_that_keep_all_they_get_hear_of_it_while_others_read_on() {
    let (opened, _) = dataset(&[1 << 20; 300]);
    let engine = engine();
    let mut other = Reader::new(&engine, &opened);
    engine.open_job(other.session, request(&opened, "1MiB", "lru"), None).unwrap();
    let indices = epoch_indices(&engine, 0);
    let held = other.get(&indices[..1]).unwrap();
    other.release(held);
    let hoarder = Reader::new(&engine, &opened);
    let mut kept = Vec::new();
    let wait = Duration::from_secs(u64::MAX / 4);
    let refused = within("a reader that keeps everything", || {
        for batch in indices[1..].chunks(40) {
            match engine.get_batch(hoarder.session, "job", 0, batch, wait, &mut || true) {
                Ok(grant) => kept.push(grant.lease),
                Err(error) => return error,
            }
        }
        panic!("all of it fitted");
    });
    assert!(refused.message.contains(&format!("views of {} earlier", kept.len())), "{refused}");
    // One that takes what is left and lets go of it is served all the same.
    let rest = &indices[1 + 40 * kept.len()..][..8];
    let held = other.get(rest).unwrap();
    other.release(held);
    engine.release(hoarder.session, &kept);
    let grant = hoarder.ask(&indices[200..220]).unwrap();
    engine.release(hoarder.session, &[grant.lease]);
}

#[test]
fn a_sample_twice_in_a_batch_takes_the_one_slot_of_its_plan_once_and_gives_it_back_once() {
    let (opened, store) = dataset(&[100; 40]);
    let engine = engine();
    let mut reader = Reader::new(&engine, &opened);
    engine
        .open_job(reader.session, JobRequest { prefetch: false, ..request(&opened, "50%", "minio") }, None)
        .unwrap();
    let indices = epoch_indices(&engine, 0);
    let (twice, gone) = (indices[0], indices[1]);
    let missing = Index::from_raw(gone).sample;
    store.vanished.lock().unwrap().push(missing);
    assert!(reader.get(&[twice, twice, gone]).is_err());
    store.vanished.lock().unwrap().clear();
    let held = reader.get(&[twice, twice, gone]).unwrap();
    reader.release(held);
    let stats = engine.job_stats(None).remove(0);
    assert_eq!((stats.epochs[0].1.served(), stats.epochs[0].1.plan.distinct), (2, 2));
    assert_eq!(stats.unplanned.served(), 1, "the plan serves it once");
    engine.end_jobs();
    assert_eq!(engine.stats().occupied, 0, "nothing is left of a job that has ended");
}
