//! Nodes together do what one does: the same servings, the same reads, each sample kept once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hotset_core::Id;
use hotset_core::cluster::{Layout, Placement};
use hotset_core::counters::PlanCounters;
use hotset_core::packages::Packing;
use hotset_core::sampling::Plan;
use hotset_core::schedule::Schedule;

use super::nodes::{Made, Nodes, carried_out, name, view};
use crate::common::training::settles;
use crate::common::{Reader, engine, within};

const EPOCHS: u64 = 4;

/// What nodes count that decide the plans as the simulator has them.
fn simulated(made: &Made, plans: &[Arc<Plan>]) -> Vec<Vec<PlanCounters>> {
    let view = view(0..made.nodes, 1);
    let placement = Arc::new(Placement::new(&view));
    let dataset = Nodes::new(made).request.dataset;
    let of_node = |number: usize| {
        let laid = plans.iter().map(|plan| {
            let names: Vec<String> = made.ranks.iter().map(|&node| name(node)).collect();
            let ranks = names.iter().map(|name| Some(name.as_str()));
            let nodes = (Arc::clone(&view), Arc::clone(&placement));
            // The plan lies already as it does.
            let (same, layout) =
                Layout::lay((**plan).clone(), nodes, &name(number), &dataset, ranks, None, false);
            assert_eq!(&same, &**plan);
            let mut schedule = Schedule::new(Arc::clone(plan), made.sizes.len());
            schedule.set_layout(Arc::new(layout));
            (schedule, Packing::default())
        });
        carried_out(made, laid)
    };
    (0..made.nodes).map(of_node).collect()
}

/// Trains some epochs and compares what each node counts with the simulator's.
fn compare(made: &Made, batch: usize) {
    let nodes = Nodes::new(made);
    let mut plans = Vec::new();
    for epoch in 0..EPOCHS {
        plans.push(nodes.epoch(epoch, batch));
        nodes.check_residents();
    }
    let expected = simulated(made, &plans);
    for (node, expected) in expected.iter().enumerate() {
        for (epoch, expected) in expected.iter().enumerate() {
            let counted = nodes.counted(node, epoch as u64);
            assert_eq!(counted.plan, *expected, "node {node}, epoch {epoch}");
            let clock = &counted.clock;
            assert_eq!(
                (clock.recovery_reads, clock.node_failed, clock.abandoned, clock.failed),
                (0, 0, 0, 0),
                "node {node}, epoch {epoch}"
            );
        }
    }
    for (epoch, plan) in plans.iter().enumerate() {
        let sum = nodes.sum(epoch as u64);
        assert_eq!((sum.plan.planned, sum.served()), (plan.len() as u64, plan.len() as u64));
        assert_eq!(sum.clock.joined, 0);
    }
    // With what is read ahead of the epoch that is not trained any more.
    settles("reads end", || {
        let read = nodes.stores.iter().map(|store| store.reads.load(Ordering::SeqCst)).sum::<u64>();
        let planned = (0..made.nodes).map(|node| nodes.stats(node).total.plan.storage_reads).sum::<u64>();
        assert!(read <= planned, "storage sees what plans ask for, and nothing twice");
        read == planned
    });
}

#[test]
fn every_node_counts_what_the_simulators_does() {
    for policy in ["minio", "lru", "lfu", "random"] {
        for (count, ranks) in [(2, &[0, 1][..]), (4, &[0, 1, 2, 3]), (2, &[0, 0, 1, 1])] {
            within(policy, || compare(&Made::new(600, count, ranks).with("uniform", policy), 16));
        }
    }
}

#[test]
fn without_locality_most_comes_from_other_nodes_and_counts_the_same() {
    let made = Made { locality: false, ..Made::new(600, 4, &[0, 1, 2, 3]) };
    within("without locality", || compare(&made, 16));
    let nodes = Nodes::new(&made);
    let plan = nodes.epoch(0, 16);
    let visits = nodes.sum(0).clock.node_reads as f64 / plan.len() as f64;
    assert!((0.65..0.85).contains(&visits), "{visits}");
}

#[test]
fn nothing_is_asked_ahead_without_prefetch_and_it_counts_the_same() {
    for locality in [true, false] {
        let made = Made { prefetch: false, locality, ..Made::new(600, 2, &[0, 1]) };
        within("without prefetch", || compare(&made, 16));
    }
}

#[test]
fn ranks_may_be_anywhere() {
    for ranks in [&[0, 0, 0, 1][..], &[1, 1, 1], &[1, 0, 1], &[2, 2]] {
        within("uneven ranks", || compare(&Made::new(600, 3, ranks), 16));
    }
}

#[test]
fn one_rank_has_the_memory_of_all_nodes() {
    let made = Made { cache: "50%", ..Made::new(600, 2, &[0]) };
    within("one rank", || compare(&made, 16));
    let nodes = Nodes::new(&made);
    (0..2).for_each(|epoch| drop(nodes.epoch(epoch, 16)));
    let sum = nodes.sum(1);
    assert!(sum.plan.storage_reads < 30, "{} are read of 600", sum.plan.storage_reads);
    assert!(sum.plan.hit_peer > 250, "{} hits of the other node", sum.plan.hit_peer);
    assert_eq!(
        nodes.counted(0, 1).clock.node_reads,
        nodes.counted(1, 1).served(),
        "what one gives the other has"
    );
}

#[test]
fn nodes_of_a_fifth_read_what_one_cache_of_their_sum_reads() {
    for (count, sum) in [(2, "40%"), (4, "80%")] {
        let ranks: Vec<usize> = (0..count).collect();
        let made = Made::new(6_000, count, &ranks);
        let nodes = Nodes::new(&made);
        let alone = engine();
        let mut reader = Reader::new(&alone, &nodes.opened[0]);
        let request = Made { cache: sum, ..made.clone() }.request(&nodes.opened[0]);
        alone.open_job(reader.session, request, None).unwrap();
        for epoch in 0..3 {
            nodes.epoch(epoch, 64);
            let indices = crate::common::epoch_indices(&alone, epoch);
            for batch in indices.chunks(64) {
                let held = reader.get(batch).unwrap();
                reader.release(held);
            }
        }
        let together = nodes.sum(2).plan.storage_reads as f64;
        let alone = alone.job_stats(Some("job"))[0].epochs[2].1.plan.storage_reads as f64;
        assert!((together / alone - 1.0).abs() < 0.02, "{count} nodes: {together} beside {alone}");
        let hits = nodes.sum(2).plan;
        let local = 1.0 - hits.hit_peer as f64 / hits.hit as f64;
        assert!(local > 0.9, "{local} of hits are local");
    }
}

#[test]
fn no_sample_is_kept_twice_while_trainings_run() {
    let made = Made::new(2_000, 3, &[0, 1, 2]).with("uniform", "lru");
    let nodes = Nodes::new(&made);
    let done = std::sync::atomic::AtomicBool::new(false);
    let mut checks = 0u32;
    std::thread::scope(|scope| {
        let (nodes, finished) = (&nodes, &done);
        scope.spawn(move || {
            (0..4).for_each(|epoch| drop(nodes.epoch(epoch, 16)));
            finished.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        nodes.begin(0, 0).unwrap();
        while !done.load(std::sync::atomic::Ordering::SeqCst) {
            nodes.check_residents();
            checks += 1;
        }
    });
    assert!(checks > 3);
    let kept: BTreeMap<usize, usize> =
        (0..3).map(|node| (node, nodes.engines[node].residents("job").unwrap().len())).collect();
    assert!(kept.values().all(|&kept| kept > 300), "{kept:?}");
    let all: Vec<Id> = (0..3).flat_map(|node| nodes.engines[node].owned("job").unwrap()).collect();
    assert_eq!(all.len(), 2_000, "every sample has one owner");
}
