//! Orders that a trainer gives for its epochs: from the first rank that comes, the same from every other, and after a kill.

use std::sync::Arc;

use crate::common::{self, Reader, dataset, engine, order, request};
use hotset_core::sampling::Plan;
use hotset_core::{Id, Index, Kind};
use hotset_engine::{Engine, GivenOrder, JobRequest, Trained};
use hotset_store::Opened;

const SAMPLES: usize = 200;

fn asked(opened: &Opened) -> JobRequest {
    JobRequest { strategy: Some("given".into()), prefetch: true, ..request(opened, "20%", "lru") }
}

fn begin(
    engine: &Engine,
    epoch: u64,
    ranks: (u32, u32),
    ids: &[Id],
) -> hotset_core::Result<Option<Arc<Plan>>> {
    engine.begin_given("job", epoch, ranks, 0, &GivenOrder::of(ids))
}

fn serve(reader: &mut Reader<'_>, rank: u32, epoch: u64, ids: &[Id]) {
    for batch in ids.chunks(16) {
        let index = |&id: &Id| Index { epoch: Some(epoch), sample: id.into() }.into_raw();
        let held = reader.get_as(rank, &batch.iter().map(index).collect::<Vec<_>>()).unwrap();
        reader.release(held);
    }
}

#[test]
fn the_order_is_wanted_once_and_becomes_the_plan_of_all_ranks() {
    let (opened, _) = dataset(&[100; SAMPLES]);
    let engine = engine();
    let mut reader = Reader::new(&engine, &opened);
    engine.open_job(reader.session, asked(&opened), None).unwrap();
    for epoch in 0..3 {
        let given = GivenOrder::of(order(SAMPLES, epoch));
        let named = GivenOrder::named(given.digest());
        assert_eq!(engine.begin_given("job", epoch, (1, 2), 0, &named).unwrap(), None, "nobody gave it yet");
        let first = engine.begin_given("job", epoch, (0, 2), 0, &given).unwrap().unwrap();
        let second = engine.begin_given("job", epoch, (1, 2), 0, &named).unwrap().unwrap();
        assert_eq!(first, second);
        assert_eq!(first.ids(), order(SAMPLES, epoch));
        for rank in 0..2 {
            serve(&mut reader, rank, epoch, &first.rank_ids(rank).collect::<Vec<_>>());
        }
    }
    let stats = engine.job_stats(None).remove(0);
    assert_eq!(stats.unplanned.served(), 0);
    for (epoch, counters) in stats.epochs {
        assert_eq!((counters.served(), counters.plan.planned), (200, 200), "{epoch}");
        let mut distinct = order(SAMPLES, epoch);
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(counters.plan.distinct, distinct.len() as u64, "{epoch}");
        assert!(counters.plan.hit > 0 && counters.plan.packed == 0, "{counters:?}");
    }
}

#[test]
fn ranks_that_disagree_are_told_to_seed_their_generators() {
    let (opened, _) = dataset(&[100; SAMPLES]);
    let engine = engine();
    let reader = Reader::new(&engine, &opened);
    engine.open_job(reader.session, asked(&opened), None).unwrap();
    begin(&engine, 0, (0, 2), &order(SAMPLES, 0)).unwrap().unwrap();
    let error = begin(&engine, 0, (1, 2), &order(SAMPLES, 1)).unwrap_err();
    assert_eq!(error.kind, Kind::Invalid);
    assert!(error.message.contains("rank 1 gives another order by `ids=` for epoch 0"), "{error}");
    assert!(error.message.contains("seed its generator equally on all ranks"), "{error}");
}

#[test]
fn orders_that_cannot_be_are_refused_and_an_epoch_without_one_is_not_planned() {
    let (opened, _) = dataset(&[100; SAMPLES]);
    let engine = engine();
    let reader = Reader::new(&engine, &opened);
    engine.open_job(reader.session, asked(&opened), None).unwrap();
    for (ids, text) in [(&[0, 200][..], "`ids=` gives `200`"), (&[], "gives 0 ids")] {
        let error = begin(&engine, 0, (0, 1), ids).unwrap_err();
        assert!(error.kind == Kind::Invalid && error.message.contains(text), "{error}");
    }
    for join in [false, true] {
        let error = engine.begin_epoch("job", 0, (0, 1), 0, join).unwrap_err();
        assert!(error.message.contains("does not know the order of epoch 0"), "{error}");
    }
    assert_eq!(begin(&engine, 0, (0, 1), &[3, 3]).unwrap().unwrap().ids(), [3, 3]);
}

/// An engine that has trained half of an epoch's slots, and its snapshot of the epoch's beginning.
fn half_trained(opened: &Opened) -> (hotset_engine::Snapshot, Vec<Id>) {
    let engine = engine();
    let mut reader = Reader::new(&engine, opened);
    engine.open_job(reader.session, asked(opened), None).unwrap();
    let plan = common::begin(&engine, "job", 0, (0, 1), 0);
    let snapshot = engine.snapshot("job").unwrap().unwrap();
    let half = plan.ids()[..SAMPLES / 2].to_vec();
    serve(&mut reader, 0, 0, &half);
    (snapshot, half)
}

#[test]
fn a_server_that_is_started_again_goes_on_in_the_order_that_it_had() {
    let (opened, _) = dataset(&[100; SAMPLES]);
    let (snapshot, half) = half_trained(&opened);
    let engine = engine();
    let mut reader = Reader::new(&engine, &opened);
    engine.restore_job(reader.session, asked(&opened), None, &snapshot).unwrap();
    let losses = vec![1.0; half.len()];
    let upto = half.len() as u64;
    engine.report("job", Trained { epoch: 0, rank: 0, upto, ids: &half, losses: &losses }).unwrap();
    let joined = engine.begin_epoch("job", 0, (0, 1), 0, true).unwrap();
    assert_eq!(joined.ids(), order(SAMPLES, 0), "a reader enters with the plan that it had");
    serve(&mut reader, 0, 0, &joined.ids()[half.len()..]);
    let counted = engine.job_stats(None).remove(0).epochs.remove(0).1;
    assert_eq!((counted.served(), counted.clock.abandoned), (200, 0));
}

#[test]
fn a_trainer_that_comes_back_goes_on_in_the_same_order_or_begins_in_another() {
    let (opened, _) = dataset(&[100; SAMPLES]);
    let (snapshot, half) = half_trained(&opened);
    let engine = engine();
    let reader = Reader::new(&engine, &opened);
    engine.restore_job(reader.session, asked(&opened), None, &snapshot).unwrap();
    let (same, other) = (GivenOrder::of(order(SAMPLES, 0)), GivenOrder::of(order(SAMPLES, 9)));
    let start = half.len() as u64;
    let error = engine.begin_given("job", 0, (0, 1), start, &other).unwrap_err();
    assert!(error.message.contains("than before it was interrupted"), "{error}");
    let named = GivenOrder::named(same.digest());
    let plan = engine.begin_given("job", 0, (0, 1), start, &named).unwrap().unwrap();
    assert_eq!(plan.ids(), order(SAMPLES, 0), "the server has the order itself");

    let engine = common::engine();
    let mut reader = Reader::new(&engine, &opened);
    engine.restore_job(reader.session, asked(&opened), None, &snapshot).unwrap();
    let plan = engine.begin_given("job", 0, (0, 1), 0, &other).unwrap().unwrap();
    assert_eq!(plan.ids(), order(SAMPLES, 9), "begun at its start, the epoch may have another order");
    serve(&mut reader, 0, 0, plan.ids());
    assert_eq!(engine.job_stats(None).remove(0).unplanned.served(), 0);
}
