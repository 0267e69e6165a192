//! Packages of a job over several nodes: each is made, read and removed by the node that owns it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hotset_core::Id;
use hotset_core::counters::PlanCounters;
use hotset_core::sampling::{Event, Plan};
use hotset_core::schedule::Schedule;
use hotset_engine::{Engine, Packaging, Place, Placed};
use hotset_store::package::PackageStore;

use super::nodes::{Made, Nodes, carried_out, name, view};
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
        Event::Load(package) | Event::Keep(package) => Some(*package),
        Event::Leave(_) => None,
    };
    plan.events().iter().filter_map(package).collect()
}

/// What each node counts of plans that lie as they did.
fn simulated(made: &Made, placed: &[Vec<u8>]) -> Vec<Vec<PlanCounters>> {
    let samples = made.sizes.len();
    let of_node = |number: usize| {
        let plans = placed.iter().map(|saved| {
            let Placed { plan, layout } = Placed::restore(saved, samples, &name(number)).unwrap();
            let packing = layout.packing().owned_by(&layout.ownership(None));
            let mut schedule = Schedule::new(plan, samples);
            schedule.set_layout(layout);
            (schedule, packing)
        });
        carried_out(made, plans)
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
                    (clock.packages_lost, clock.node_failed, clock.abandoned),
                    (0, 0, 0),
                    "epoch {epoch} on {count}"
                );
                // At times one is. The cause is not known: docs/cluster.md, what a job over several nodes has not.
                assert!(clock.recovery_reads <= 5, "{} read once more", clock.recovery_reads);
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
fn a_node_that_is_started_again_removes_nothing_that_others_have_made() {
    within("a node that comes back", || {
        let place = tempfile::tempdir().unwrap();
        let made = made(place.path(), 2, &[0, 1]);
        let mut nodes = Nodes::new(&made);
        train(&nodes, 0);
        // Nearly everything is packed in this epoch, for the plan after.
        let plan = nodes.begin(0, 1).unwrap();
        nodes.begin(1, 1).unwrap();
        let half = plan.rank_len() / 2;
        nodes.train_all(&plan, &[0..half, 0..half], 16);
        let engine = made.engine(&nodes.shared, 1);
        let session = engine.attach();
        engine.open_dataset(session, &nodes.opened[1]);
        let path = place.path().to_str().unwrap();
        let store = PackageStore::open(path, &BTreeMap::new(), (&nodes.opened[1]).into(), "job").unwrap();
        // They are written beside the training.
        let scan = loop {
            let scan = store.scan(&mut |_| {}).unwrap();
            if scan.packages.len() > 2 {
                break scan;
            }
            std::thread::yield_now();
        };
        let found: Vec<(u32, Vec<Id>)> =
            scan.packages.iter().map(|found| (found.number, found.ids())).collect();
        let (before, next) = (found.len(), scan.next().unwrap());
        let packaging = Place::Store(Packaging { store: Arc::new(store), found, next, keep: true });
        engine.open_job_as(session, nodes.request.clone(), Some(packaging), made.role(1)).unwrap();
        nodes.replace(1, engine, session);
        (0..2).for_each(|rank| drop(nodes.begin_at(rank, 1, half as u64).unwrap()));
        nodes.train_all(&plan, &[half..plan.rank_len(), half..plan.rank_len()], 16);
        assert!(files(place.path()).len() >= before);
        let plan = train(&nodes, 2);
        let sum = nodes.sum(2);
        assert_eq!((sum.served(), sum.clock.packages_lost), (plan.len() as u64, 0));
        assert!(sum.plan.packed > 300, "{} come in packages", sum.plan.packed);
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
        let stats = [0, 1].map(|node| nodes.stats(node).packages.unwrap());
        let known: u64 = stats.iter().map(|stats| stats.packages).sum();
        let there = files(place.path()).len() as u64;
        assert!(known > 20 && there <= known + 20, "{there} of {known}");
        let samples: u64 = stats.iter().map(|stats| stats.samples).sum();
        assert!(samples <= made.sizes.len() as u64 && samples > 1_000, "{samples} lie in packages");
        nodes.engines[1].end_job("job");
        assert_eq!(files(place.path()).len() as u64, there);
        let ids: Vec<Id> = nodes.engines[0].owned("job").unwrap();
        assert!(!ids.is_empty());
    });
}
