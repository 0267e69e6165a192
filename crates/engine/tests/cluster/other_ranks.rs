//! Trainings that stop in mid-epoch and go on with another number of ranks, on more or fewer nodes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hotset_core::cluster::PlacementKind;
use hotset_core::counters::{Counters, PlanCounters};
use hotset_core::sampling::Plan;
use hotset_core::{Id, Index};
use hotset_engine::{Engine, Trained};

use super::nodes::{Made, Nodes, view};
use crate::common::training::settles;
use crate::common::{Reader, dataset, engine, place, within};
use crate::differential::loss;

const SAMPLES: u64 = 600;
/// The epoch that is trained in two parts, and its slots in the first one: as many for each of one to four ranks.
const EPOCH: u64 = 2;
const TRAINED: usize = 192;
const BATCH: usize = 16;

/// Nodes of each rank before the stop and after it.
const WORLDS: [(&[usize], &[usize]); 5] = [
    (&[0, 1], &[0, 1, 2]),
    (&[0, 1, 2], &[0, 1]),
    (&[0, 0, 1, 1], &[2, 1]),
    (&[2], &[0, 1, 2]),
    (&[0, 1, 2], &[2]),
];

fn made(ranks: &[usize]) -> Made {
    Made::new(SAMPLES, 3, ranks)
}

/// What a node counts of a plan, wherever its ranks are.
fn plan_counters(nodes: &Nodes, node: usize, epoch: u64) -> PlanCounters {
    PlanCounters { hit_peer: 0, ..nodes.counted(node, epoch).plan }
}

/// The ids that all ranks have in some of their positions.
fn ids(plan: &Plan, positions: std::ops::Range<usize>) -> Vec<Id> {
    let of_rank = |rank| positions.clone().map(move |at| plan.ids()[plan.slot(rank, at)]);
    (0..plan.world()).flat_map(of_rank).collect()
}

/// Samples that each rank's loader has read ahead, and that are not trained when it stops.
fn read_ahead(nodes: &Nodes, plan: &Plan, from: usize) {
    for rank in 0..plan.world() {
        let node = nodes.node_of(rank);
        let mut reader = Reader::new(&nodes.engines[node], &nodes.opened[node]);
        let ids: Vec<Id> = plan.rank_ids(rank).skip(from).take(2 * BATCH).collect();
        for ids in ids.chunks(BATCH) {
            let index = |&id: &Id| Index { epoch: Some(plan.epoch()), sample: id.into() }.into_raw();
            let held = reader.get_as(rank, &ids.iter().map(index).collect::<Vec<_>>()).unwrap();
            reader.release(held);
        }
        nodes.engines[node].detach(reader.session, Instant::now());
    }
}

/// All ranks train some of their positions.
fn train(nodes: &Nodes, plan: &Plan, positions: std::ops::Range<usize>) {
    let all = vec![positions; nodes.world() as usize];
    nodes.train_all(plan, &all, BATCH);
}

/// All ranks begin an epoch at a position.
fn begin(nodes: &Nodes, epoch: u64, start: usize) -> Arc<Plan> {
    let plans: Vec<Arc<Plan>> =
        (0..nodes.world()).map(|rank| nodes.begin_at(rank, epoch, start as u64).unwrap()).collect();
    Arc::clone(&plans[0])
}

/// Trains the first part of an epoch; its plan.
fn first_part(nodes: &Nodes, epoch: u64) -> Arc<Plan> {
    let plan = begin(nodes, epoch, 0);
    train(nodes, &plan, 0..TRAINED / plan.world() as usize);
    plan
}

/// Trains the rest with other ranks; checks that the samples of both parts are those of the plan, each once.
fn second_part(nodes: &Nodes, before: &Plan, after: &[usize]) -> Arc<Plan> {
    *nodes.shared.ranks.lock().unwrap() = after.to_vec();
    let start = TRAINED / after.len();
    let plan = begin(nodes, before.epoch(), start);
    assert_eq!(plan.world() as usize, after.len());
    train(nodes, &plan, start..plan.rank_len());
    let mut served = ids(before, 0..TRAINED / before.world() as usize);
    served.extend(ids(&plan, start..plan.rank_len()));
    let mut planned = before.ids().to_vec();
    served.sort_unstable();
    planned.sort_unstable();
    assert_eq!(served, planned, "every id is served once");
    plan
}

/// The processes of the home are gone, and others come.
fn come_anew(nodes: &mut Nodes, made: &Made) {
    let engine = &nodes.engines[0];
    engine.detach(nodes.sessions[0], Instant::now());
    nodes.sessions[0] = engine.attach();
    engine.open_dataset(nodes.sessions[0], &nodes.opened[0]);
    let runs = place(&nodes.opened[0], &nodes.request);
    engine.open_job_as(nodes.sessions[0], nodes.request.clone(), runs, made.role(0)).unwrap();
}

/// The home's server was started again, with what was written down of the job.
fn restart_home(nodes: &mut Nodes, made: &Made) {
    let snapshot = nodes.engines[0].snapshot("job").unwrap().unwrap();
    let engine = made.engine(&nodes.shared, 0);
    let session = engine.attach();
    engine.open_dataset(session, &nodes.opened[0]);
    let runs = place(&nodes.opened[0], &nodes.request);
    engine.restore_job_as(session, nodes.request.clone(), runs, &snapshot, made.role(0)).unwrap();
    nodes.replace(0, engine, session);
}

/// Another node was started again, and has the job open anew.
fn restart_follower(nodes: &mut Nodes, made: &Made, number: usize) {
    let engine = made.engine(&nodes.shared, number);
    let session = engine.attach();
    engine.open_dataset(session, &nodes.opened[number]);
    let runs = place(&nodes.opened[number], &nodes.request);
    engine.open_job_as(session, nodes.request.clone(), runs, made.role(number)).unwrap();
    nodes.replace(number, engine, session);
}

/// Trains with other ranks from the middle of an epoch on, and compares each node with one where nothing stopped.
fn go_on(made: &Made, after: &[usize], restarts: bool) {
    let undisturbed = Nodes::new(made);
    (0..=EPOCH).for_each(|epoch| drop(undisturbed.epoch(epoch, BATCH)));
    let mut nodes = Nodes::new(made);
    (0..EPOCH).for_each(|epoch| drop(nodes.epoch(epoch, BATCH)));
    let before = first_part(&nodes, EPOCH);
    read_ahead(&nodes, &before, TRAINED / before.world() as usize);
    match restarts {
        true => restart_home(&mut nodes, made),
        false => come_anew(&mut nodes, made),
    }
    second_part(&nodes, &before, after);
    let what = format!("{} with {}, {:?} to {after:?}", made.strategy, made.policy, made.ranks);
    for node in 0..made.nodes {
        assert_eq!(
            plan_counters(&nodes, node, EPOCH),
            plan_counters(&undisturbed, node, EPOCH),
            "{what}, node {node}"
        );
    }
    let clock = nodes.sum(EPOCH).clock;
    assert_eq!((clock.node_failed, clock.abandoned, clock.failed), (0, 0, 0), "{what}");
    nodes.check_residents();
    let next = nodes.epoch(EPOCH + 1, BATCH);
    assert_eq!(nodes.sum(EPOCH + 1).served(), next.len() as u64, "{what}");
    nodes.check_residents();
}

#[test]
fn an_epoch_goes_on_with_another_number_of_ranks_and_every_node_counts_as_if_nothing_had_stopped() {
    for (before, after) in WORLDS {
        for prefetch in [true, false] {
            let made = Made { prefetch, ..made(before) };
            within("other ranks", || go_on(&made, after, false));
        }
    }
}

#[test]
fn the_same_of_every_policy_and_placement() {
    let (hash, directory) = (PlacementKind::Hash, PlacementKind::Directory);
    for (strategy, policy, placement) in [
        ("uniform", "lru", hash),
        ("iis", "icache", hash),
        ("uniform", "minio", directory),
        ("iis", "icache", directory),
    ] {
        let made = Made { placement, ..made(&[0, 1]).with(strategy, policy) };
        // Three ranks share what `iis` has chosen without a remainder.
        let made = Made { settings: if strategy == "iis" { &[("warmup", "4")] } else { &[] }, ..made };
        within(policy, || go_on(&made, &[0, 1, 2], false));
    }
}

#[test]
fn the_same_of_a_home_that_was_started_again() {
    for (before, after) in WORLDS {
        within("other ranks after a restart", || go_on(&made(before), after, true));
    }
}

#[test]
fn what_nodes_keep_is_not_read_again() {
    for (before, after) in WORLDS {
        // What is read ahead and not kept has to be read once more.
        let made = Made { prefetch: false, ..made(before) };
        let mut nodes = Nodes::new(&made);
        within("other ranks", || {
            (0..EPOCH).for_each(|epoch| drop(nodes.epoch(epoch, BATCH)));
            let before = first_part(&nodes, EPOCH);
            come_anew(&mut nodes, &made);
            second_part(&nodes, &before, after);
        });
        let clock = nodes.sum(EPOCH).clock;
        assert_eq!((clock.recovery_reads, clock.node_failed), (0, 0));
        settles("reads end", || {
            let read = nodes.stores.iter().map(|store| store.reads.load(Ordering::SeqCst)).sum::<u64>();
            let planned = (0..3).map(|node| nodes.stats(node).total.plan.storage_reads).sum::<u64>();
            assert!(read <= planned, "storage sees what plans ask for");
            read == planned
        });
    }
}

/// Ranks of one host train some positions of an epoch, and report.
fn train_alone(engine: &Engine, reader: &mut Reader<'_>, world: u32, epoch: u64, part: (usize, usize)) {
    let (start, until) = part;
    for rank in 0..world {
        let plan = engine.begin_epoch("job", epoch, (rank, world), start as u64, false).unwrap();
        let ids: Vec<Id> = plan.rank_ids(rank).take(until).skip(start).collect();
        for (number, ids) in ids.chunks(BATCH).enumerate() {
            let index = |&id: &Id| Index { epoch: Some(epoch), sample: id.into() }.into_raw();
            let held = reader.get_as(rank, &ids.iter().map(index).collect::<Vec<_>>()).unwrap();
            reader.release(held);
            let losses: Vec<f32> = ids.iter().map(|&id| loss(id, epoch)).collect();
            let upto = (start + number * BATCH + ids.len()) as u64;
            engine.report("job", Trained { epoch, rank, upto, ids, losses: &losses }).unwrap();
        }
    }
}

/// What one host counts of the epoch, with the memory of all nodes.
fn on_one_host(made: &Made, (before, after): (u32, u32)) -> PlanCounters {
    let (opened, _) = dataset(&made.sizes);
    let request = Made { cache: "60%", ..made.clone() }.request(&opened);
    let first = engine();
    let mut reader = Reader::new(&first, &opened);
    first.open_job(reader.session, request.clone(), None).unwrap();
    for epoch in 0..EPOCH {
        train_alone(&first, &mut reader, before, epoch, (0, usize::MAX));
    }
    train_alone(&first, &mut reader, before, EPOCH, (0, TRAINED / before as usize));
    let snapshot = first.snapshot("job").unwrap().unwrap();
    let second = engine();
    let mut reader = Reader::new(&second, &opened);
    second.restore_job(reader.session, request, None, &snapshot).unwrap();
    train_alone(&second, &mut reader, after, EPOCH, (TRAINED / after as usize, usize::MAX));
    let stats = second.job_stats(Some("job")).remove(0);
    stats.epochs.into_iter().find(|(epoch, _)| *epoch == EPOCH).unwrap().1.plan
}

#[test]
fn nodes_count_together_what_one_host_counts_that_goes_on_with_as_many_ranks() {
    for (before, after) in WORLDS {
        let made = Made { sizes: vec![100; SAMPLES as usize], ..made(before) };
        within("one host and several", || {
            let mut nodes = Nodes::new(&made);
            (0..EPOCH).for_each(|epoch| drop(nodes.epoch(epoch, BATCH)));
            let plan = first_part(&nodes, EPOCH);
            restart_home(&mut nodes, &made);
            second_part(&nodes, &plan, after);
            let sum = PlanCounters { hit_peer: 0, ..nodes.sum(EPOCH).plan };
            let alone = on_one_host(&made, (before.len() as u32, after.len() as u32));
            assert_eq!(sum, alone, "{before:?} to {after:?}");
            assert_eq!((sum.hit, sum.single, sum.planned), (360, 240, SAMPLES));
        });
    }
}

#[test]
fn nodes_that_were_all_started_again_serve_the_rest_and_count_it_once() {
    for (before, after) in WORLDS {
        let made = Made { prefetch: false, ..made(before) };
        within("all nodes started again", || {
            let mut nodes = Nodes::new(&made);
            let plan = first_part(&nodes, 0);
            // What a node has counted that is started again is on nobody's account.
            let earlier: Vec<Counters> = (1..3).map(|node| nodes.counted(node, 0)).collect();
            restart_home(&mut nodes, &made);
            (1..3).for_each(|node| restart_follower(&mut nodes, &made, node));
            second_part(&nodes, &plan, after);
            let mut sum = nodes.sum(0);
            assert_eq!(sum.plan.planned, SAMPLES);
            earlier.iter().for_each(|earlier| sum.add(earlier));
            assert_eq!((sum.plan.hit, sum.plan.single, sum.plan.storage_reads), (0, SAMPLES, SAMPLES));
            let clock = &sum.clock;
            assert_eq!((clock.recovery_reads, clock.node_failed, clock.abandoned), (0, 0, 0));
        });
    }
}

#[test]
fn a_node_that_is_asked_before_it_hears_of_all_ranks_decides_nothing_that_was_trained() {
    let made = Made { locality: false, prefetch: false, ..made(&[0, 1]) };
    within("ranks that begin one after the other", || {
        let mut nodes = Nodes::new(&made);
        let before = first_part(&nodes, 0);
        let earlier: Vec<Counters> = (1..3).map(|node| nodes.counted(node, 0)).collect();
        restart_home(&mut nodes, &made);
        (1..3).for_each(|node| restart_follower(&mut nodes, &made, node));
        *nodes.shared.ranks.lock().unwrap() = vec![0, 0, 0];
        let (start, home) = (TRAINED / 3, &nodes.engines[0]);
        let begin = |engine: &Engine, rank, away: bool| match away {
            true => engine.note_begun("job", 0, (rank, 3), start as u64, false).unwrap(),
            false => engine.begin_epoch("job", 0, (rank, 3), start as u64, false).unwrap(),
        };
        let plan = begin(home, 0, false);
        (1..3).for_each(|node| nodes.engines[node].plan_ahead("job", 0, plan.digest()).unwrap());
        // The other nodes have heard of the first rank alone.
        (1..3).for_each(|node| drop(begin(&nodes.engines[node], 0, true)));
        nodes.train(0, &plan, start..plan.rank_len(), BATCH);
        for rank in 1..3 {
            begin(home, rank, false);
            (1..3).for_each(|node| drop(begin(&nodes.engines[node], rank, true)));
            nodes.train(rank, &plan, start..plan.rank_len(), BATCH);
        }
        let mut sum = nodes.sum(0);
        earlier.iter().for_each(|earlier| sum.add(earlier));
        assert_eq!((sum.plan.single, sum.plan.storage_reads), (SAMPLES, SAMPLES), "{before:?}");
        assert_eq!((sum.clock.recovery_reads, sum.clock.abandoned), (0, 0));
    });
}

#[test]
fn a_node_that_is_asked_before_it_has_the_plan_that_was_cut_anew_waits_for_it() {
    let made = Made { locality: false, ..made(&[0, 1]) };
    let mut nodes = Nodes::new(&made);
    within("a plan that comes late", || {
        first_part(&nodes, 0);
        come_anew(&mut nodes, &made);
        *nodes.shared.ranks.lock().unwrap() = vec![0];
        let plan = nodes.engines[0].begin_epoch("job", 0, (0, 1), TRAINED as u64, false).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| nodes.train(0, &plan, TRAINED..plan.rank_len(), BATCH));
            std::thread::sleep(Duration::from_millis(50));
            for engine in &nodes.engines[1..] {
                engine.plan_ahead("job", 0, plan.digest()).unwrap();
                engine.note_begun("job", 0, (0, 1), TRAINED as u64, false).unwrap();
            }
        });
        let sum = nodes.sum(0);
        assert_eq!((sum.served(), sum.clock.node_failed), (SAMPLES, 0));
    });
}

#[test]
fn a_node_that_the_plan_does_not_know_has_ranks_and_owns_nothing_until_the_next() {
    let made = made(&[0, 1]);
    let mut nodes = Nodes::new(&made);
    *nodes.shared.view.lock().unwrap() = view(0..2, 1);
    within("a third node", || {
        nodes.epoch(0, BATCH);
        let before = first_part(&nodes, 1);
        *nodes.shared.view.lock().unwrap() = view(0..3, 2);
        come_anew(&mut nodes, &made);
        second_part(&nodes, &before, &[0, 1, 2]);
        let (sum, third) = (nodes.sum(1), nodes.counted(2, 1));
        assert_eq!((sum.served(), sum.clock.node_failed, sum.clock.abandoned), (SAMPLES, 0, 0));
        assert_eq!((third.plan.planned, third.served()), (0, 0));
        assert_eq!(third.clock.node_reads, (SAMPLES - TRAINED as u64) / 3);
        nodes.epoch(2, BATCH);
        assert!(nodes.counted(2, 2).served() > 150);
        nodes.check_residents();
    });
}

#[test]
fn a_plan_that_cannot_be_told_is_cut_when_a_rank_asks_again() {
    let made = made(&[0, 1]);
    let mut nodes = Nodes::new(&made);
    within("etcd is away", || {
        let before = first_part(&nodes, 0);
        come_anew(&mut nodes, &made);
        *nodes.shared.ranks.lock().unwrap() = vec![0, 1, 2];
        nodes.shared.unsettled.store(1, Ordering::SeqCst);
        let start = TRAINED as u64 / 3;
        let error = nodes.begin_at(0, 0, start).unwrap_err();
        assert!(error.message.contains("no longer the home"), "{error}");
        second_part(&nodes, &before, &[0, 1, 2]);
        assert_eq!(nodes.sum(0).served(), SAMPLES);
    });
}

#[test]
fn ranks_that_are_still_there_keep_their_number() {
    let nodes = Nodes::new(&made(&[0, 1]));
    within("another world", || {
        first_part(&nodes, 0);
        *nodes.shared.ranks.lock().unwrap() = vec![0, 1, 2];
        let error = nodes.begin_at(0, 0, TRAINED as u64 / 3).unwrap_err();
        assert!(error.message.contains("begun by 2 ranks and now by one of 3"), "{error}");
    });
}
