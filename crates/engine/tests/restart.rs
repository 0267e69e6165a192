//! An engine that is lost at any moment, and another that goes on from the snapshot of the epoch's beginning.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use common::{Reader, dataset, engine, request};
use hotset_core::Index;
use hotset_engine::{Engine, Snapshot};
use hotset_store::Opened;
use proptest::prelude::*;

const EPOCHS: u64 = 5;
const BATCH: usize = 32;

/// Of each epoch: a hash of the ids it served, hits with refills counted in, reads without them.
type Run = Vec<(u64, u64, u64)>;

fn start(opened: &Opened, policy: &str, prefetch: bool, snapshot: Option<&Snapshot>) -> Engine {
    let engine = engine();
    let main = Reader::new(&engine, opened);
    let mut asked = request(opened, "25%", policy);
    asked.prefetch = prefetch;
    match snapshot {
        Some(snapshot) => engine.restore_job(main.session, asked, None, snapshot).unwrap(),
        None => engine.open_job(main.session, asked, None).unwrap(),
    };
    engine
}

/// Trains for some epochs; the server is lost before each batch whose number is in `losses`.
fn train(opened: &Opened, policy: &str, prefetch: bool, losses: &[usize]) -> Run {
    let mut engine = start(opened, policy, prefetch, None);
    let mut snapshot = None;
    let mut number = 0;
    let mut run = Run::new();
    for epoch in 0..EPOCHS {
        let plan = engine.begin_epoch("job", epoch, (0, 1), 0, false).unwrap();
        let ids: Vec<u64> = plan.rank_ids(0).map(u64::from).collect();
        snapshot = engine.snapshot("job").unwrap().or(snapshot);
        let mut reader = Reader::new(&engine, opened);
        let (mut hits, mut reads) = (0, 0);
        let mut count = |engine: &Engine| {
            let stats = engine.job_stats(None).remove(0);
            if let Some((_, counters)) = stats.epochs.iter().find(|(of, _)| *of == epoch) {
                hits += counters.hit + counters.refill;
                reads += counters.single - counters.refill;
                assert_eq!(counters.abandoned, 0, "{counters:?}");
            }
            assert_eq!(stats.unplanned.served(), 0);
        };
        for batch in ids.chunks(BATCH) {
            if losses.contains(&number) {
                count(&engine);
                engine = start(opened, policy, prefetch, snapshot.as_ref());
                engine.begin_epoch("job", epoch, (0, 1), 0, true).unwrap();
                reader = Reader::new(&engine, opened);
            }
            number += 1;
            let indices: Vec<u64> =
                batch.iter().map(|&sample| Index { epoch: Some(epoch), sample }.into_raw()).collect();
            let held = reader.get(&indices).unwrap();
            reader.release(held);
        }
        count(&engine);
        let hash = ids.iter().fold(0u64, |hash, id| hash.wrapping_mul(0x100_0000_01b3) ^ id);
        run.push((hash, hits, reads));
    }
    run
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn plans_and_counts_are_those_of_an_uninterrupted_run(
        losses in prop::collection::vec(0..60usize, 1..6),
        policy in prop_oneof![Just("lru"), Just("minio")],
        prefetch in any::<bool>(),
    ) {
        let sizes: Vec<u64> = (0..403u64).map(|id| 100 + (id * 7919) % 900).collect();
        let (opened, _) = dataset(&sizes);
        let whole = train(&opened, policy, prefetch, &[]);
        let interrupted = train(&opened, policy, prefetch, &losses);
        prop_assert_eq!(whole, interrupted);
    }
}

#[test]
fn a_snapshot_that_does_not_fit_is_refused_and_nothing_is_opened() {
    let (opened, _) = dataset(&[100; 50]);
    let first = start(&opened, "lru", true, None);
    first.begin_epoch("job", 0, (0, 1), 0, false).unwrap();
    let snapshot = first.snapshot("job").unwrap().unwrap();
    let spoilt: [fn(&mut Snapshot); 5] = [
        |s| s.samples += 1,
        |s| s.policy = vec![1, 2, 3],
        |s| s.planner.table = vec![0; 30],
        |s| s.schedules[0].plan[0] ^= 1,
        |s| s.schedules[0].states = vec![0; 1000],
    ];
    for spoil in spoilt {
        let engine = engine();
        let main = Reader::new(&engine, &opened);
        let mut snapshot = snapshot.clone();
        spoil(&mut snapshot);
        assert!(engine.restore_job(main.session, request(&opened, "25%", "lru"), None, &snapshot).is_err());
        assert!(!engine.has_job("job"));
    }
    let engine = engine();
    let main = Reader::new(&engine, &opened);
    let error =
        engine.restore_job(main.session, request(&opened, "30%", "lru"), None, &snapshot).unwrap_err();
    assert!(error.message.contains("other settings"), "{error}");
}
