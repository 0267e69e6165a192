//! A shared cache that is asked by hash before storage, and how what it brings is counted.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{Reader, content, dataset, engine, epoch_indices, request, sharded};
use hotset_core::Id;
use hotset_core::contents::Hash;
use hotset_engine::{ContentPeer, Engine, JobRequest};
use hotset_store::Opened;
use hotset_store::digest::Hashes;

/// A name for the bytes of a sample; what it is made from is no matter here.
fn hash(id: Id) -> Hash {
    let mut hash = [7; 32];
    hash[..4].copy_from_slice(&id.to_le_bytes());
    hash
}

fn hashed(opened: Opened, known: impl Fn(Id) -> bool) -> Opened {
    let ids = 0..opened.catalog.len() as Id;
    let hashes = ids.map(|id| known(id).then(|| hash(id))).collect();
    Opened { hashes: Some(Arc::new(Hashes::new(hashes))), ..opened }
}

#[derive(Default)]
struct Peer {
    kept: Mutex<HashMap<Hash, Vec<u8>>>,
    asked: AtomicU64,
}

impl ContentPeer for Peer {
    fn fill(&self, wanted: &mut [(Hash, &mut [u8])]) -> bool {
        self.asked.fetch_add(wanted.len() as u64, Ordering::SeqCst);
        let kept = self.kept.lock().unwrap();
        let mut all = true;
        for (hash, into) in wanted {
            match kept.get(hash) {
                Some(bytes) => into.copy_from_slice(bytes),
                // What is not there leaves a place as it likes.
                None => {
                    into.fill(0xee);
                    all = false;
                }
            }
        }
        all
    }

    fn offer(&self, hash: &Hash, bytes: &[u8]) {
        self.kept.lock().unwrap().insert(*hash, bytes.to_vec());
    }
}

fn asking(peer: &Arc<Peer>) -> Engine {
    let engine = engine();
    engine.share(Arc::clone(peer) as Arc<dyn ContentPeer>);
    engine
}

/// A job that reads nothing ahead, so that the first epoch is all that is read.
fn unhurried(opened: &Opened, policy: &str) -> JobRequest {
    JobRequest { prefetch: false, ..request(opened, "20%", policy) }
}

/// Serves the first epoch in batches, every byte checked.
fn train(reader: &mut Reader<'_>, batch: usize) {
    for batch in epoch_indices(reader.engine, 0).chunks(batch) {
        let held = reader.get(batch).unwrap();
        reader.release(held);
    }
}

#[test]
fn the_second_of_two_with_a_copy_each_reads_nothing() {
    let peer = Arc::new(Peer::default());
    for (turn, prefetch) in [(0, false), (1, true), (1, false)] {
        let (opened, store) = dataset(&[1000; 300]);
        let (opened, engine) = (hashed(opened, |_| true), asking(&peer));
        let mut reader = Reader::new(&engine, &opened);
        let mut asked = request(&opened, "20%", "minio");
        asked.prefetch = prefetch;
        engine.open_job(reader.session, asked, None).unwrap();
        train(&mut reader, 50);
        let counters = engine.job_stats(Some("job"))[0].epochs[0].1.clone();
        assert_eq!(counters.plan.storage_reads, 300, "what the plan asks for is the same");
        let seen = (counters.storage_reads(), counters.storage_requests(), counters.storage_bytes());
        let spared = (counters.clock.peer_reads, counters.clock.peer_requests, counters.clock.peer_bytes);
        let (all, none) = ((300, 300, 300_000), (0, 0, 0));
        assert_eq!((seen, spared), if turn == 0 { (all, none) } else { (none, all) });
        // What is read ahead for the next epoch is counted there.
        assert!(prefetch || store.reads.load(Ordering::SeqCst) == seen.0);
    }
}

#[test]
fn what_has_no_hash_is_read_from_storage_and_not_offered() {
    let peer = Arc::new(Peer::default());
    let (opened, store) = dataset(&[1000; 100]);
    let (opened, engine) = (hashed(opened, |id| id % 2 == 0), asking(&peer));
    let mut reader = Reader::new(&engine, &opened);
    engine.open_job(reader.session, unhurried(&opened, "lru"), None).unwrap();
    train(&mut reader, 10);
    assert_eq!(store.reads.load(Ordering::SeqCst), 100);
    assert_eq!((peer.asked.load(Ordering::SeqCst), peer.kept.lock().unwrap().len()), (50, 50));
}

#[test]
fn a_read_that_fails_is_tried_again_at_storage_alone() {
    let peer = Arc::new(Peer::default());
    let (opened, store) = dataset(&[1000; 100]);
    store.fail_every.store(3, Ordering::SeqCst);
    let (opened, engine) = (hashed(opened, |_| true), asking(&peer));
    let mut reader = Reader::new(&engine, &opened);
    engine.open_job(reader.session, unhurried(&opened, "lru"), None).unwrap();
    train(&mut reader, 10);
    assert_eq!(peer.asked.load(Ordering::SeqCst), 100);
    let counters = engine.job_stats(Some("job"))[0].epochs[0].1.clone();
    assert_eq!(counters.storage_requests(), store.reads.load(Ordering::SeqCst));
}

#[test]
fn neighbours_in_shards_come_from_the_peer_together_or_not_at_all() {
    let sizes = vec![500; 200];
    for missing in [None, Some(17)] {
        let peer = Arc::new(Peer::default());
        for id in (0..200).filter(|&id| Some(id) != missing) {
            peer.offer(&hash(id), &content(id.into(), 500));
        }
        let (opened, store) = sharded(&sizes, 50);
        let (opened, engine) = (hashed(opened, |_| true), asking(&peer));
        let mut reader = Reader::new(&engine, &opened);
        engine.open_job(reader.session, unhurried(&opened, "minio"), None).unwrap();
        train(&mut reader, 20);
        let counters = engine.job_stats(Some("job"))[0].epochs[0].1.clone();
        let requests = store.reads.load(Ordering::SeqCst);
        assert_eq!(counters.storage_requests(), requests);
        assert_eq!(requests, u64::from(missing.is_some()), "one request brings what one of it needs");
        if missing.is_none() {
            assert_eq!((counters.storage_reads(), counters.storage_bytes()), (0, 0));
        }
    }
}

#[test]
fn what_no_plan_asks_for_comes_from_the_peer_too() {
    let peer = Arc::new(Peer::default());
    (0..10).for_each(|id| peer.offer(&hash(id), &content(id.into(), 1000)));
    let (opened, store) = dataset(&[1000; 10]);
    let (opened, engine) = (hashed(opened, |_| true), asking(&peer));
    let mut reader = Reader::new(&engine, &opened);
    engine.open_job(reader.session, unhurried(&opened, "lru"), None).unwrap();
    let held = reader.get(&[3, 4, 5]).unwrap();
    reader.release(held);
    let unplanned = engine.job_stats(Some("job"))[0].unplanned.clone();
    assert_eq!((unplanned.storage_reads(), unplanned.clock.peer_reads), (0, 3));
    assert_eq!(store.reads.load(Ordering::SeqCst), 0);
}
