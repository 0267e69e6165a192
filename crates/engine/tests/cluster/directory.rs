//! Nodes by `directory`: whoever reads a sample first keeps it, and all carry plans out by the same entries.

use std::sync::Arc;
use std::time::Duration;

use hotset_core::Id;
use hotset_core::cache::Cache;
use hotset_core::cluster::{Layout, Placement, PlacementKind};
use hotset_core::counters::PlanCounters;
use hotset_core::policy::{self, Setup};
use hotset_core::run::{JobRun, Packing};
use hotset_core::sampling::{Plan, Residents};
use hotset_core::schedule::Schedule;

use super::nodes::{Made, Nodes, name, view};
use crate::common::training::settles;
use crate::common::within;

const EPOCHS: u64 = 4;

fn made(samples: u64, nodes: usize, ranks: &[usize]) -> Made {
    Made { placement: PlacementKind::Directory, ..Made::new(samples, nodes, ranks) }
}

/// What nodes count that decide the plans, laid anew by what they keep.
fn simulated(made: &Made, plans: &[Arc<Plan>]) -> Vec<Vec<PlanCounters>> {
    let (sizes, view) = (Arc::new(made.sizes.clone()), view(0..made.nodes, 1));
    let (placement, dataset) = (Arc::new(Placement::new(&view)), Nodes::new(made).request.dataset);
    let names: Vec<String> = made.ranks.iter().map(|&node| name(node)).collect();
    let capacity = made.capacity() / made.nodes as u64;
    let mut nodes: Vec<(Cache, JobRun)> = (0..made.nodes)
        .map(|_| {
            let setup = Setup::new(capacity, sizes.clone(), 7);
            let mut cache = Cache::new((policy::find(made.policy).unwrap().build)(setup), sizes.len());
            let mut run = JobRun::new(sizes.clone());
            run.join(&mut cache);
            (cache, run)
        })
        .collect();
    let mut before: Option<Layout> = None;
    let mut counted = vec![Vec::new(); made.nodes];
    for plan in plans {
        let kept = Residents::of_all(nodes.iter().map(|(cache, _)| cache.policy()), sizes.len());
        let ranks = names.iter().map(|name| Some(name.as_str()));
        let pair = (Arc::clone(&view), Arc::clone(&placement));
        let (same, layout) = Layout::lay((**plan).clone(), pair, &name(0), &dataset, ranks, None, false);
        // The plan lies already as it does.
        let (same, layout) =
            layout.by_directory(same, (before.as_ref(), Some(&kept)), &*sizes, None, false).unwrap();
        assert_eq!(&same, &**plan);
        for (number, (cache, run)) in nodes.iter_mut().enumerate() {
            let mut schedule = Schedule::new(Arc::clone(plan), sizes.len());
            schedule.set_layout(Arc::new(Layout::restore(&layout.save(), &name(number)).unwrap()));
            run.planned(schedule, &Packing::default());
            run.enter(plan.epoch());
            let mut changes = Vec::new();
            while run.next_block().is_some() {
                run.step(cache, &mut changes);
            }
            run.serve(plan.epoch(), 0..plan.len());
            counted[number].push(run.tally().epochs()[&plan.epoch()].plan.clone());
            run.remove(plan.epoch());
        }
        before = Some(layout);
    }
    counted
}

fn compare(made: &Made) {
    let nodes = Nodes::new(made);
    let mut plans = Vec::new();
    for epoch in 0..EPOCHS {
        plans.push(nodes.epoch(epoch, 16));
        nodes.check_residents();
    }
    for (node, expected) in simulated(made, &plans).iter().enumerate() {
        for (epoch, expected) in expected.iter().enumerate() {
            let counted = nodes.counted(node, epoch as u64);
            assert_eq!(counted.plan, *expected, "node {node}, epoch {epoch}");
            let clock = &counted.clock;
            assert_eq!((clock.recovery_reads, clock.node_failed, clock.failed), (0, 0, 0), "node {node}");
        }
    }
    for (epoch, plan) in plans.iter().enumerate() {
        let sum = nodes.sum(epoch as u64);
        assert_eq!((sum.plan.planned, sum.served()), (plan.len() as u64, plan.len() as u64));
    }
}

#[test]
fn every_node_counts_what_the_simulators_does() {
    for policy in ["minio", "lru", "random"] {
        for (count, ranks) in [(2, &[0, 1][..]), (4, &[0, 1, 2, 3]), (2, &[0, 0, 0, 1])] {
            within(policy, || compare(&made(600, count, ranks).with("uniform", policy)));
        }
    }
    within("without locality", || compare(&Made { locality: false, ..made(600, 3, &[0, 1, 2]) }));
    within("without prefetch", || compare(&Made { prefetch: false, ..made(600, 2, &[0, 1]) }));
}

#[test]
fn what_nobody_keeps_is_read_by_the_node_that_serves_it() {
    let visits = |made: &Made| {
        let nodes = Nodes::new(made);
        within("two nodes", || (0..3).for_each(|epoch| drop(nodes.epoch(epoch, 16))));
        let sum = nodes.sum(2);
        assert_eq!(sum.plan.hit, 240, "a fifth of 600 on each of two nodes");
        sum.clock.node_reads
    };
    let equal = |made: Made| Made { sizes: vec![100; 600], ..made };
    assert_eq!(visits(&equal(made(600, 2, &[0, 1]))), 0, "what is kept lies with the ranks of its node");
    let apart = visits(&equal(Made { locality: false, ..made(600, 2, &[0, 1]) }));
    assert!((80..160).contains(&apart), "{apart} of the 240 that are kept are another node's");
    let hash = visits(&equal(Made { locality: false, ..Made::new(600, 2, &[0, 1]) }));
    assert!(hash > 240, "by hash what nobody keeps travels too: {hash}");
}

#[test]
fn a_node_that_leaves_frees_what_it_kept_and_the_others_keep_theirs() {
    let made = made(900, 3, &[0, 1, 2]);
    let nodes = Nodes::new(&made);
    // As a training does that takes longer than to make a plan.
    let train = |epoch| {
        drop(nodes.epoch(epoch, 16));
        let planned = || nodes.engines[nodes.home()].placed("job", epoch + 1, Duration::ZERO).is_ok();
        settles("the next plan", planned);
    };
    within("a node that leaves", || {
        (0..2).for_each(&train);
        let kept: Vec<Vec<Id>> = (0..3).map(|node| nodes.engines[node].residents("job").unwrap()).collect();
        assert!(kept.iter().all(|kept| kept.len() > 150), "{kept:?}");
        *nodes.shared.view.lock().unwrap() = view(0..2, 2);
        *nodes.shared.ranks.lock().unwrap() = vec![0, 1, 1];
        (2..5).for_each(&train);
        nodes.check_residents();
        for (node, kept) in kept.iter().enumerate().take(2) {
            assert_eq!(
                &nodes.engines[node].residents("job").unwrap(),
                kept,
                "node {node} keeps what it kept"
            );
        }
        assert!(nodes.engines[2].residents("job").unwrap().is_empty() && nodes.counted(2, 4).served() == 0);
        // One that comes reads what nobody keeps, and takes nothing from the others.
        *nodes.shared.view.lock().unwrap() = view(0..3, 3);
        (5..8).for_each(&train);
        nodes.check_residents();
        for (node, kept) in kept.iter().enumerate().take(2) {
            assert_eq!(&nodes.engines[node].residents("job").unwrap(), kept, "node {node} gives nothing");
        }
        assert_eq!(nodes.sum(7).served(), 900);
        assert_eq!(nodes.sum(7).clock.node_failed, 0);
    });
}
