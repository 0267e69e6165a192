//! Packages of a job over several nodes: each is made, read and removed by the node that owns it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hotset_core::Id;
use hotset_core::cache::Cache;
use hotset_core::counters::PlanCounters;
use hotset_core::policy::{self, Setup};
use hotset_core::run::JobRun;
use hotset_core::sampling::{Event, Plan};
use hotset_core::schedule::Schedule;
use hotset_engine::{Engine, Placed};

use super::nodes::{Made, Nodes, name, view};
use crate::common::within;
use crate::packages::files;

const EPOCHS: u64 = 6;
const WAIT: Duration = Duration::from_secs(60);

fn made(place: &Path, nodes: usize, ranks: &[usize]) -> Made {
    let packages = Some(place.to_str().unwrap().to_owned());
    // Without reading ahead, so that what is chosen with a plan is written once that is trained.
    Made { packages, prefetch: false, ..Made::new(3_000, nodes, ranks).with("iis", "icache") }
}

/// Trains an epoch, and has everything written that was chosen with it.
fn train(nodes: &Nodes, epoch: u64) -> Arc<Plan> {
    let plan = nodes.epoch(epoch, 16);
    nodes.check_residents();
    // Read ahead, the next plan has chosen packages that wait for it to be served.
    let waits = |engine: &&Arc<Engine>| engine.has_job("job") && !nodes.request.prefetch;
    nodes.engines.iter().filter(waits).for_each(|engine| engine.packed("job", WAIT).unwrap());
    nodes.tell_of_packages();
    plan
}

fn loads(plan: &Plan) -> BTreeSet<u32> {
    let package = |(_, event): &(u32, Event)| match event {
        Event::Load(package) => Some(*package),
        Event::Leave(_) => None,
    };
    plan.events().iter().filter_map(package).collect()
}

/// What each node counts of plans that lie as they did.
fn simulated(made: &Made, placed: &[Vec<u8>]) -> Vec<Vec<PlanCounters>> {
    let sizes = Arc::new(made.sizes.clone());
    let capacity = made.sizes.iter().sum::<u64>() / 5;
    let of_node = |number: usize| {
        let setup = Setup::new(capacity, sizes.clone(), 7);
        let mut cache = Cache::new((policy::find(made.policy).unwrap().build)(setup), sizes.len());
        let mut run = JobRun::new(sizes.clone());
        run.join(&mut cache);
        let mut counted = Vec::new();
        for saved in placed {
            let Placed { plan, layout } = Placed::restore(saved, sizes.len(), &name(number)).unwrap();
            let packing = layout.packing().owned_by(&layout.ownership(None));
            let mut schedule = Schedule::new(Arc::clone(&plan), sizes.len());
            schedule.set_layout(layout);
            run.planned(schedule, &packing);
            run.enter(plan.epoch());
            let mut changes = Vec::new();
            while run.next_block().is_some() {
                run.step(&mut cache, &mut changes);
            }
            run.serve(plan.epoch(), 0..plan.len());
            counted.push(run.tally().epochs()[&plan.epoch()].plan.clone());
            run.remove(plan.epoch());
        }
        counted
    };
    (0..made.nodes).map(of_node).collect()
}

#[test]
fn packages_are_made_and_read_by_their_owners_and_count_as_the_simulators_do() {
    let placements = [(2, &[0, 1][..]), (3, &[0, 1, 2]), (3, &[1, 1, 2])];
    for ((count, ranks), prefetch) in
        placements.into_iter().flat_map(|at| [false, true].map(|ahead| (at, ahead)))
    {
        within("packages over nodes", || {
            let place = tempfile::tempdir().unwrap();
            let made = Made { prefetch, ..made(place.path(), count, ranks) };
            let nodes = Nodes::new(&made);
            let (mut placed, mut packed) = (Vec::new(), 0);
            for epoch in 0..EPOCHS {
                let plan = nodes.begin(0, epoch).unwrap();
                placed.push(nodes.engines[0].placed("job", epoch, WAIT).unwrap());
                assert_eq!(train(&nodes, epoch), plan);
                let sum = nodes.sum(epoch);
                assert_eq!(sum.plan.hit + sum.plan.packed + sum.plan.single, plan.len() as u64);
                assert_eq!(sum.plan.package_reads, loads(&plan).len() as u64, "each is read once");
                let clock = &sum.clock;
                assert_eq!(
                    (clock.packages_lost, clock.recovery_reads, clock.node_failed, clock.abandoned),
                    (0, 0, 0, 0),
                    "epoch {epoch} on {count}"
                );
                packed += sum.plan.packed;
            }
            assert!(packed > 1_000, "{packed} come in packages on {count}");
            for (node, expected) in simulated(&made, &placed).into_iter().enumerate() {
                for (epoch, expected) in expected.into_iter().enumerate() {
                    assert_eq!(
                        nodes.counted(node, epoch as u64).plan,
                        expected,
                        "node {node}, epoch {epoch}"
                    );
                }
            }
            let by_node = |node: usize| nodes.stats(node).total.plan.pack_bytes_written;
            let writers = (0..count).filter(|&node| by_node(node) > 0).count();
            assert_eq!(writers, count, "every node makes some");
            assert!(!files(place.path()).is_empty());
        });
    }
}

#[test]
fn a_package_that_is_lost_elsewhere_is_not_asked_for_by_the_next_plan() {
    within("a lost package", || {
        let place = tempfile::tempdir().unwrap();
        let made = made(place.path(), 2, &[0, 1]);
        let nodes = Nodes::new(&made);
        (0..3).for_each(|epoch| drop(train(&nodes, epoch)));
        // All that is written is damaged, under nodes that know nothing of it.
        let all = files(place.path());
        all.iter().for_each(|(_, path)| std::fs::write(path, b"torn").unwrap());
        let plan = train(&nodes, 3);
        let lost: u64 = nodes.sum(3).clock.packages_lost;
        assert_eq!(lost, loads(&plan).len() as u64, "every one that was read");
        assert!((0..2).all(|node| nodes.counted(node, 3).clock.packages_lost > 0), "on both nodes");
        assert_eq!(nodes.sum(3).served(), plan.len() as u64, "what they held is read singly");
        // The plan after was made ahead, perhaps before the home heard of it.
        train(&nodes, 4);
        let damaged: BTreeSet<u32> = all.iter().map(|(number, _)| *number).collect();
        let known: BTreeSet<u32> = &loads(&plan) & &damaged;
        let later = train(&nodes, 5);
        assert!(loads(&later).is_disjoint(&known), "the home was told");
        assert_eq!(nodes.sum(5).served(), later.len() as u64);
    });
}

#[test]
fn a_node_that_is_lost_takes_no_package_with_it_that_others_can_read() {
    within("a lost node", || {
        let place = tempfile::tempdir().unwrap();
        let made = made(place.path(), 3, &[0, 1]);
        let mut nodes = Nodes::new(&made);
        (0..4).for_each(|epoch| drop(train(&nodes, epoch)));
        nodes.lose(2, &made);
        *nodes.shared.view.lock().unwrap() = view(0..2, 2);
        // What was planned before is carried out without it.
        nodes.epoch(4, 16);
        for epoch in 5..8 {
            let plan = nodes.epoch(epoch, 16);
            nodes.tell_of_packages();
            let sum = nodes.sum(epoch);
            assert_eq!((sum.served(), sum.clock.node_failed), (plan.len() as u64, 0), "epoch {epoch}");
            assert!(sum.plan.packed > 500 && loads(&plan).len() > 10, "{} packed", sum.plan.packed);
            assert!(
                sum.clock.packages_lost <= 3,
                "only what it had not written: {}",
                sum.clock.packages_lost
            );
            nodes.check_residents();
        }
    });
}

#[test]
fn a_new_home_goes_on_with_the_packages_that_there_are() {
    within("a new home", || {
        let place = tempfile::tempdir().unwrap();
        let made = made(place.path(), 3, &[1, 2]);
        let mut nodes = Nodes::new(&made);
        (0..4).for_each(|epoch| drop(train(&nodes, epoch)));
        let plan = nodes.begin(0, 4).unwrap();
        nodes.begin(1, 4).unwrap();
        let snapshot = nodes.engines[0].snapshot("job").unwrap().unwrap();
        (0..2).for_each(|rank| nodes.train(rank, &plan, 0..plan.rank_len(), 16));
        nodes.tell_of_packages();
        let before = files(place.path()).len();
        nodes.lose(0, &made);
        *nodes.shared.view.lock().unwrap() = view(1..3, 2);
        nodes.engines[1].promote("job", &snapshot).unwrap();
        *nodes.shared.home.lock().unwrap() = 1;
        assert!(files(place.path()).len() >= before, "the home before has removed none");
        let mut packed = BTreeMap::new();
        for epoch in 5..8 {
            let plan = nodes.epoch(epoch, 16);
            nodes.tell_of_packages();
            nodes.check_residents();
            let sum = nodes.sum(epoch);
            assert_eq!((sum.served(), sum.clock.node_failed), (plan.len() as u64, 0));
            packed.insert(epoch, (sum.plan.packed, sum.clock.packages_lost));
        }
        assert!(packed.values().all(|&(packed, lost)| packed > 300 && lost <= 3), "{packed:?}");
    });
}

#[test]
fn what_has_moved_on_is_removed_by_its_owner_and_a_job_that_ends_elsewhere_removes_nothing() {
    within("removal", || {
        let place = tempfile::tempdir().unwrap();
        let made = made(place.path(), 2, &[0, 1]);
        let nodes = Nodes::new(&made);
        (0..14).for_each(|epoch| drop(train(&nodes, epoch)));
        let stats = nodes.stats(0).packages.unwrap();
        let there = files(place.path()).len() as u64;
        assert!(stats.packages > 20 && there <= stats.packages + 20, "{there} of {}", stats.packages);
        let samples: u64 = stats.samples;
        assert!(samples <= made.sizes.len() as u64 && samples > 1_000, "{samples} lie in packages");
        nodes.engines[1].end_job("job");
        assert_eq!(files(place.path()).len() as u64, there);
        let ids: Vec<Id> = nodes.engines[0].owned("job").unwrap();
        assert!(!ids.is_empty());
    });
}
