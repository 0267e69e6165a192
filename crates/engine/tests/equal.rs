//! Equal samples of several datasets: in memory once, and read once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::training::settles;
use crate::common::{
    Memory, Reader, content, copy, dataset, engine, epoch_indices_of, request, sharded, within,
};
use hotset_core::counters::Counters;
use hotset_engine::{Engine, JobRequest};
use hotset_store::Opened;
use hotset_store::catalog::Builder;
use hotset_store::digest::{Hash, Hashes};

const SAMPLES: usize = 300;
const SIZE: u64 = 1000;
/// What a sample takes in memory.
const ROOM: u64 = 1008;

/// A copy of the same samples at a place.
fn at(place: &str) -> (Opened, Arc<Memory>) {
    let (opened, store) = dataset(&[SIZE; SAMPLES]);
    (copy(opened, place), store)
}

/// The same with other hashes.
fn rehashed(opened: Opened, hash: impl Fn(u32, Hash) -> Option<Hash>) -> Opened {
    let old = opened.hashes.unwrap();
    let hashes = (0..opened.catalog.len() as u32).map(|id| hash(id, *old.get(id).unwrap())).collect();
    Opened { hashes: Some(Arc::new(Hashes::new(hashes))), ..opened }
}

/// A reader with a job of its own, of which nothing is read before it is asked for.
fn open<'a>(engine: &'a Engine, opened: &Opened, job: &'static str, cache: &str) -> Reader<'a> {
    let reader = Reader::of_job(engine, opened, job);
    let asked = JobRequest { job: job.into(), prefetch: false, ..request(opened, cache, "minio") };
    engine.open_job(reader.session, asked, None).unwrap();
    reader
}

/// Trains an epoch, every byte checked.
fn train(reader: &mut Reader<'_>, epoch: u64) {
    for batch in epoch_indices_of(reader.engine, reader.job, epoch).chunks(50) {
        let held = reader.get(batch).unwrap();
        reader.release(held);
    }
}

fn counted(engine: &Engine, job: &str) -> Counters {
    engine.job_stats(Some(job)).remove(0).total
}

fn reads(store: &Memory) -> u64 {
    store.reads.load(Ordering::SeqCst)
}

#[test]
fn of_two_copies_the_second_is_neither_read_nor_kept_again() {
    for prefetch in [false, true] {
        let ((first, _), (second, store)) = (at("first"), at("second"));
        let engine = engine();
        train(&mut open(&engine, &first, "a", "100%"), 0);
        let before = engine.stats();
        assert_eq!((before.occupied, before.spared), (SAMPLES as u64 * ROOM, 0));
        let mut reader = Reader::of_job(&engine, &second, "b");
        let asked = JobRequest { job: "b".into(), prefetch, ..request(&second, "100%", "minio") };
        engine.open_job(reader.session, asked, None).unwrap();
        train(&mut reader, 0);
        assert_eq!(reads(&store), 0);
        let after = engine.stats();
        let one = SAMPLES as u64 * ROOM;
        assert_eq!((after.occupied, after.spared, after.passing), (one, one, 0), "one copy in memory");
        let (a, b) = (counted(&engine, "a"), counted(&engine, "b"));
        assert_eq!(b.plan.storage_reads, a.plan.storage_reads, "what the plan asks for is the same");
        let seen = (b.storage_reads(), b.storage_requests(), b.storage_bytes());
        let joined = (b.clock.joined, b.clock.joined_requests, b.clock.joined_bytes);
        assert_eq!((seen, joined), ((0, 0, 0), (300, 300, 300_000)));
        assert_eq!(engine.job_stats(Some("b"))[0].resident_bytes, 300_000, "each cache is charged in full");
    }
}

#[test]
fn what_one_job_lets_go_of_stays_for_the_other() {
    let ((first, _), (second, store)) = (at("first"), at("second"));
    let engine = engine();
    let mut a = open(&engine, &first, "a", "100%");
    train(&mut a, 0);
    let mut b = open(&engine, &second, "b", "50%");
    train(&mut b, 0);
    let whole = SAMPLES as u64 * ROOM;
    assert_eq!((engine.stats().occupied, engine.stats().spared), (whole, whole / 2));
    engine.end_job("a");
    assert_eq!((engine.stats().occupied, engine.stats().spared), (whole / 2, 0), "what `b` keeps");
    train(&mut b, 1);
    assert_eq!(reads(&store), SAMPLES as u64 / 2, "what it does not keep is gone");
    let counters = counted(&engine, "b");
    assert_eq!((counters.plan.hit, counters.clock.recovery_reads), (SAMPLES as u64 / 2, 0));
    engine.end_job("b");
    assert_eq!((engine.stats().occupied, engine.stats().passing, engine.stats().arena), (0, 0, 0));
}

#[test]
fn a_reader_keeps_the_bytes_that_another_dataset_brought() {
    let ((first, _), (second, store)) = (at("first"), at("second"));
    let engine = engine();
    train(&mut open(&engine, &first, "a", "100%"), 0);
    let mut b = open(&engine, &second, "b", "0%");
    let plan = epoch_indices_of(&engine, "b", 0);
    let held = b.get(&plan[..50]).unwrap();
    engine.end_job("a");
    assert_eq!(engine.stats().occupied, 50 * ROOM, "what is leased");
    b.check(&plan[..50], &held);
    b.release(held);
    assert_eq!((engine.stats().occupied, reads(&store)), (0, 0));
}

#[test]
fn a_sample_that_was_written_since_is_read_from_its_own_place() {
    let ((first, _), (second, store)) = (at("first"), at("second"));
    // It has another hash, or none before it is hashed again.
    let second = rehashed(second, |id, hash| match id {
        3 => Some([9; 32]),
        4 => None,
        _ => Some(hash),
    });
    let engine = engine();
    train(&mut open(&engine, &first, "a", "100%"), 0);
    train(&mut open(&engine, &second, "b", "100%"), 0);
    assert_eq!((reads(&store), counted(&engine, "b").storage_reads()), (2, 2));
    assert_eq!(engine.stats().occupied, (SAMPLES as u64 + 2) * ROOM);
}

#[test]
fn bytes_without_the_hash_that_their_digest_says_are_for_their_own_sample_alone() {
    let ((first, _), (second, store)) = (at("first"), at("second"));
    let hashes = Arc::clone(first.hashes.as_ref().unwrap());
    // The digest of the first says of two samples that each is the other.
    let first = rehashed(first, |id, hash| Some(if id < 2 { *hashes.get(1 - id).unwrap() } else { hash }));
    let engine = engine();
    train(&mut open(&engine, &first, "a", "100%"), 0);
    train(&mut open(&engine, &second, "b", "100%"), 0);
    assert_eq!(reads(&store), 2);
    assert_eq!(engine.stats().spared, (SAMPLES as u64 - 2) * ROOM);
}

#[test]
fn a_digest_that_names_a_sample_of_another_length_is_not_believed() {
    let (short, _) = dataset(&[SIZE - 1; SAMPLES]);
    let short = copy(short, "short");
    let (long, store) = at("long");
    let hashes = Arc::clone(short.hashes.as_ref().unwrap());
    let long = rehashed(long, |id, _| hashes.get(id).copied());
    let engine = engine();
    train(&mut open(&engine, &short, "a", "100%"), 0);
    train(&mut open(&engine, &long, "b", "100%"), 0);
    assert_eq!(reads(&store), SAMPLES as u64);
}

#[test]
fn a_read_under_way_is_waited_for() {
    let ((first, slow), (second, store)) = (at("first"), at("second"));
    let engine = engine();
    let (mut a, mut b) = (open(&engine, &first, "a", "100%"), open(&engine, &second, "b", "100%"));
    slow.hold();
    within("readers of two copies", || {
        std::thread::scope(|scope| {
            let waits = scope.spawn(move || a.get(&[7]).map(drop));
            settles("a read is under way", || engine.stats().reads_in_flight == 1);
            let follows = scope.spawn(move || b.get(&[7]).map(drop));
            settles("both wait", || engine.stats().waiting == 2);
            slow.let_go();
            waits.join().unwrap().unwrap();
            follows.join().unwrap().unwrap();
        });
    });
    // Where the thread was slow to look, the wait may have been given up.
    assert_eq!(reads(&slow), 1);
    assert_eq!(engine.stats().occupied, ROOM, "one copy in memory, however it came");
    assert_eq!(reads(&store) + counted(&engine, "b").clock.joined, 1);
}

#[test]
fn a_read_that_fails_fails_for_its_own_dataset_alone() {
    let ((first, slow), (second, store)) = (at("first"), at("second"));
    let engine = engine();
    let (mut a, mut b) = (open(&engine, &first, "a", "100%"), open(&engine, &second, "b", "100%"));
    slow.vanished.lock().unwrap().push(7);
    slow.hold();
    within("readers of two copies, one of which has gone", || {
        std::thread::scope(|scope| {
            let waits = scope.spawn(move || a.get(&[7]).map(drop));
            settles("a read is under way", || engine.stats().reads_in_flight == 1);
            let follows = scope.spawn(move || b.get(&[7]).map(drop));
            settles("both wait", || engine.stats().waiting == 2);
            slow.let_go();
            assert!(waits.join().unwrap().is_err());
            follows.join().unwrap().unwrap();
        });
    });
    assert_eq!((reads(&store), counted(&engine, "b").clock.failed), (1, 0));
}

#[test]
fn a_store_that_hangs_holds_up_its_own_dataset_alone() {
    let ((first, hangs), (second, store)) = (at("first"), at("second"));
    let engine = engine();
    let (mut a, mut b) = (open(&engine, &first, "a", "100%"), open(&engine, &second, "b", "100%"));
    hangs.hold();
    within("a reader beside one whose store hangs", || {
        std::thread::scope(|scope| {
            let waits = scope.spawn(move || a.get(&[7]).map(drop));
            settles("a read is under way", || engine.stats().reads_in_flight == 1);
            b.get(&[7]).unwrap();
            hangs.let_go();
            waits.join().unwrap().unwrap();
        });
    });
    assert_eq!((reads(&hangs), reads(&store)), (1, 1));
    settles("the later one takes what is there", || engine.stats().occupied == ROOM);
}

#[test]
fn neighbours_in_shards_are_found_together_or_read_together() {
    let sizes = vec![500; 200];
    for missing in [None, Some(17)] {
        let ((first, _), (second, store)) = (sharded(&sizes, 50), sharded(&sizes, 50));
        let (first, second) = (copy(first, "first"), copy(second, "second"));
        let second = rehashed(second, |id, hash| (Some(id) != missing).then_some(hash));
        let engine = engine();
        train(&mut open(&engine, &first, "a", "100%"), 0);
        train(&mut open(&engine, &second, "b", "100%"), 0);
        let requests = store.reads.load(Ordering::SeqCst);
        let counters = counted(&engine, "b");
        assert_eq!(counters.storage_requests(), requests);
        assert_eq!(requests > 0, missing.is_some());
        // What was read once more is in memory once all the same.
        assert_eq!(engine.stats().occupied, (200 + u64::from(missing.is_some())) * 512);
    }
}

#[test]
fn a_dataset_without_a_sampler_finds_them_too() {
    let ((first, _), (second, store)) = (at("first"), at("second"));
    let engine = engine();
    train(&mut open(&engine, &first, "a", "100%"), 0);
    let mut reader = Reader::of_job(&engine, &second, "b");
    let asked = JobRequest { job: "b".into(), strategy: None, ..request(&second, "20%", "minio") };
    engine.open_job(reader.session, asked, None).unwrap();
    let held = reader.get(&(0..SAMPLES as u64).collect::<Vec<_>>()).unwrap();
    reader.release(held);
    let unplanned = engine.job_stats(Some("b"))[0].unplanned.clone();
    assert_eq!((reads(&store), unplanned.storage_reads(), unplanned.clock.joined), (0, 0, SAMPLES as u64));
    assert_eq!(engine.stats().occupied, SAMPLES as u64 * ROOM);
}

#[test]
fn equal_samples_of_one_dataset_are_kept_once() {
    let mut builder = Builder::new(vec!["class".into()]);
    for directory in ["one", "two"] {
        let directory = builder.directory(directory).unwrap();
        for id in 0..100 {
            builder.push(directory, &id.to_string(), SIZE, 0, Some(0)).unwrap();
        }
    }
    let hash = |id: u64| *blake3::hash(&content(id % 100, SIZE as usize)).as_bytes();
    let hashes = Hashes::new((0..200).map(|id| Some(hash(id))).collect());
    let (opened, store) = dataset(&[SIZE]);
    let opened = Opened { catalog: Arc::new(builder.finish()), hashes: Some(Arc::new(hashes)), ..opened };
    let engine = engine();
    let reader = open(&engine, &opened, "job", "100%");
    for batch in epoch_indices_of(&engine, "job", 0).chunks(20) {
        let grant = reader.ask(batch).unwrap();
        assert_eq!(grant.entries.len(), 20);
        engine.release(reader.session, &[grant.lease]);
    }
    assert_eq!((engine.stats().occupied, engine.stats().spared), (100 * ROOM, 100 * ROOM));
    assert_eq!(reads(&store), counted(&engine, "job").storage_reads());
}

#[test]
fn what_lingers_of_a_job_alone_is_read_again() {
    let (opened, store) = at("alone");
    let engine = engine();
    let mut job = open(&engine, &opened, "job", "0%");
    let mut held = Vec::new();
    for epoch in 0..2 {
        let plan = epoch_indices_of(&engine, "job", epoch);
        held.extend(plan.chunks(50).map(|batch| job.get(batch).unwrap()));
    }
    assert_eq!(reads(&store), 2 * SAMPLES as u64, "what storage sees is what the plan says");
    assert_eq!(counted(&engine, "job").clock.joined, 0);
    held.into_iter().for_each(|held| job.release(held));
}
