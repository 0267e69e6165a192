//! Homes, followers, and nodes that come, go and take each other's place.

use std::sync::Arc;
use std::time::Duration;

use hotset_core::cluster::{Node, PlacementKind, View};
use hotset_engine::Role;

use super::nodes::{Made, Nodes, draining, name, view};
use crate::common::training::settles;
use crate::common::within;

fn train_from(nodes: &Nodes, plan: &hotset_core::sampling::Plan, from: usize) {
    std::thread::scope(|scope| {
        for rank in 0..nodes.world() {
            scope.spawn(move || nodes.train(rank, plan, from..plan.rank_len(), 16));
        }
    });
}

#[test]
fn a_follower_takes_the_homes_place_in_the_middle_of_an_epoch() {
    let (hash, directory) = (PlacementKind::Hash, PlacementKind::Directory);
    for (strategy, policy, placement) in [
        ("uniform", "minio", hash),
        ("iis", "icache", hash),
        ("uniform", "minio", directory),
        ("iis", "icache", directory),
    ] {
        let made = Made { placement, ..Made::new(3_000, 3, &[1, 2]).with(strategy, policy) };
        let mut nodes = Nodes::new(&made);
        within("a new home", || {
            (0..2).for_each(|epoch| drop(nodes.epoch(epoch, 16)));
            let plan = nodes.begin(0, 2).unwrap();
            nodes.begin(1, 2).unwrap();
            let snapshot = nodes.engines[0].snapshot("job").unwrap().unwrap();
            (0..2).for_each(|rank| nodes.train(rank, &plan, 0..64, 16));
            let kept = nodes.engines[1].residents("job").unwrap();
            nodes.lose(0, &made);
            *nodes.shared.view.lock().unwrap() = view(1..3, 2);
            nodes.engines[1].promote("job", &snapshot).unwrap();
            assert!(nodes.engines[1].promote("job", &snapshot).is_err(), "it is the home now");
            *nodes.shared.home.lock().unwrap() = 1;
            assert_eq!(nodes.engines[1].residents("job").unwrap(), kept, "its cache stays");
            train_from(&nodes, &plan, 64);
            let clock = nodes.sum(2).clock;
            // By directory it owned nothing, since it has no rank to read anything.
            assert_eq!(clock.node_failed > 0, placement == hash, "what it owned is read from storage");
            assert_eq!(clock.recovery_reads, clock.node_failed);
            for epoch in 3..6 {
                let plan = nodes.epoch(epoch, 16);
                nodes.check_residents();
                let (placed, _) = nodes.engines[1].await_placed("job", epoch, Duration::ZERO).unwrap();
                // That home may have drawn the next plan already.
                let is_its = placed.layout.view().len() == 3;
                assert!(!is_its || epoch == 3);
                let (sum, of) = (nodes.sum(epoch), plan.len() as u64);
                let lost = sum.clock.node_failed;
                assert_eq!(sum.served() + lost, of, "{strategy}, epoch {epoch}");
                assert_eq!(lost > 0, is_its && placement == hash, "{strategy}, epoch {epoch}");
            }
        });
    }
}

#[test]
fn a_plan_that_the_home_before_has_told_some_of_is_carried_out_by_all_as_it_lay() {
    for placement in PlacementKind::ALL {
        // The home has no rank, so it owns something by the hash alone. Nothing is asked of it before it is gone.
        let made = Made { placement, prefetch: false, ..Made::new(900, 4, &[1, 2, 3]) };
        let mut nodes = Nodes::new(&made);
        within("a new home", || {
            nodes.epoch(0, 16);
            // The home tells a node, and is gone before the one that keeps its state has heard of it.
            let told = nodes.engines[0].note_begun("job", 1, (1, 3), 0, false).unwrap();
            let snapshot = nodes.engines[0].snapshot("job").unwrap().unwrap();
            nodes.engines[2].plan_ahead("job", 1, told.digest()).unwrap();
            nodes.lose(0, &made);
            *nodes.shared.view.lock().unwrap() = view(1..4, 2);
            nodes.engines[1].promote("job", &snapshot).unwrap();
            *nodes.shared.home.lock().unwrap() = 1;
            let plan = nodes.epoch(1, 16);
            assert_eq!(plan.ids(), told.ids());
            let view_of = |node: usize| {
                let (placed, _) = nodes.engines[node].await_placed("job", 1, Duration::ZERO).unwrap();
                placed.layout.view().id()
            };
            assert_eq!([view_of(1), view_of(3)], [view_of(2); 2], "the plan lies in one way");
            let sum = nodes.sum(1);
            let lost = 900 - sum.served();
            assert_eq!(lost > 0, placement == PlacementKind::Hash, "what the home owned");
            assert_eq!(
                (sum.clock.node_failed, sum.clock.recovery_reads),
                (lost, lost),
                "it alone is read from storage"
            );
            let plan = nodes.epoch(2, 16);
            assert_eq!((nodes.sum(2).served(), nodes.sum(2).clock.node_failed), (plan.len() as u64, 0));
            nodes.check_residents();
        });
    }
}

#[test]
fn a_home_that_is_restarted_goes_on() {
    PlacementKind::ALL.into_iter().for_each(restart_home);
}

fn restart_home(placement: PlacementKind) {
    let made = Made { placement, ..Made::new(600, 2, &[0, 1]) };
    let mut nodes = Nodes::new(&made);
    within("a restart", || {
        nodes.epoch(0, 16);
        let plan = nodes.begin(0, 1).unwrap();
        nodes.begin(1, 1).unwrap();
        let snapshot = nodes.engines[0].snapshot("job").unwrap().unwrap();
        (0..2).for_each(|rank| nodes.train(rank, &plan, 0..64, 16));
        let engine = made.engine(&nodes.shared, 0);
        let session = engine.attach();
        engine.open_dataset(session, &nodes.opened[0]);
        engine.restore_job_as(session, nodes.request.clone(), None, &snapshot, made.role(0)).unwrap();
        nodes.replace(0, engine, session);
        for rank in 0..2 {
            assert_eq!(nodes.begin_at(rank, 1, 64).unwrap().ids(), plan.ids());
        }
        train_from(&nodes, &plan, 64);
        let plan = nodes.epoch(2, 16);
        nodes.check_residents();
        assert_eq!(nodes.sum(2).served(), plan.len() as u64);
    });
}

#[test]
fn a_node_that_comes_owns_its_share_from_the_next_plan_on_and_one_that_leaves_owns_nothing() {
    let made = Made { cache: "40%", ..Made::new(900, 3, &[0, 1, 2]) };
    let nodes = Nodes::new(&made);
    *nodes.shared.view.lock().unwrap() = view(0..2, 1);
    *nodes.shared.ranks.lock().unwrap() = vec![0, 1, 1];
    // As a training does that takes longer than to make a plan.
    let train = |epoch| {
        drop(nodes.epoch(epoch, 16));
        let planned = || nodes.engines[nodes.home()].placed("job", epoch + 1, Duration::ZERO).is_ok();
        settles("the next plan is made", planned);
    };
    within("nodes that come and go", || {
        (0..2).for_each(train);
        assert!(nodes.engines[2].residents("job").unwrap().is_empty());
        let before = nodes.engines[0].residents("job").unwrap();
        *nodes.shared.view.lock().unwrap() = view(0..3, 2);
        *nodes.shared.ranks.lock().unwrap() = vec![0, 1, 2];
        // The plan of epoch 2 may be made already, as the nodes were.
        (2..5).for_each(train);
        nodes.check_residents();
        let owned = nodes.engines[0].owned("job").unwrap();
        let after = nodes.engines[0].residents("job").unwrap();
        assert!(
            before.iter().filter(|id| owned.contains(id)).all(|id| after.contains(id)),
            "what stays its own stays"
        );
        assert!((250..350).contains(&nodes.engines[2].owned("job").unwrap().len()));
        assert!(nodes.engines[2].residents("job").unwrap().len() > 150);
        *nodes.shared.view.lock().unwrap() = view(0..2, 3);
        (5..8).for_each(train);
        nodes.check_residents();
        assert!(nodes.engines[2].residents("job").unwrap().is_empty(), "it owns nothing any more");
        for epoch in 0..8 {
            let sum = nodes.sum(epoch);
            let clock = &sum.clock;
            assert_eq!(
                (clock.plan_waits > 0, clock.memory_waits, clock.probe_waits),
                (epoch == 0, 0, 0),
                "epoch {epoch}: batches wait for bytes alone, and only the first plan is waited for"
            );
            assert_eq!(sum.served(), 900);
            // A plan that was made ahead has its ranks where they were: what was asked for there is asked for again.
            let moved = [2, 5].contains(&epoch);
            assert!(moved || sum.clock.recovery_reads == 0, "epoch {epoch}: {}", sum.clock.recovery_reads);
            assert!(sum.clock.recovery_reads >= sum.clock.node_failed, "epoch {epoch}");
        }
    });
}

#[test]
fn a_node_that_gives_less_to_the_job_keeps_only_what_it_still_owns() {
    let made = Made { cache: "40%", ..Made::new(900, 2, &[0, 1]) };
    let nodes = Nodes::new(&made);
    within("caches that are divided anew", || {
        (0..2).for_each(|epoch| drop(nodes.epoch(epoch, 16)));
        let before = nodes.engines[0].owned("job").unwrap().len();
        let now = nodes.shared.view.lock().unwrap().nodes().to_vec();
        let less = |node: &Node| Node {
            capacity: if node.name == name(0) { 1 << 18 } else { 1 << 20 },
            ..node.clone()
        };
        *nodes.shared.view.lock().unwrap() = Arc::new(View::new(now.iter().map(less)));
        // The plan of epoch 2 may be made already.
        (2..5).for_each(|epoch| drop(nodes.epoch(epoch, 16)));
        assert!(nodes.engines[0].owned("job").unwrap().len() < before / 2);
        nodes.check_residents();
    });
}

#[test]
fn an_epoch_that_is_begun_over_is_served_over() {
    let nodes = Nodes::new(&Made::new(600, 2, &[0, 1]));
    within("begun over", || {
        nodes.epoch(0, 16);
        let plan = nodes.begin(0, 1).unwrap();
        nodes.begin(1, 1).unwrap();
        (0..2).for_each(|rank| nodes.train(rank, &plan, 0..96, 16));
        for rank in 0..2 {
            nodes.begin_at(rank, 1, 48).unwrap();
        }
        train_from(&nodes, &plan, 48);
        nodes.check_residents();
        // Back to an epoch before.
        let again = nodes.epoch(0, 16);
        assert_eq!(again.len(), 600);
        nodes.epoch(1, 16);
        nodes.check_residents();
    });
}

#[test]
fn memory_is_let_go_of_when_all_ranks_have_left() {
    let made = Made { locality: false, cache: "10%", ..Made::new(900, 2, &[0, 0]) };
    let nodes = Nodes::new(&made);
    within("epochs", || (0..4).for_each(|epoch| drop(nodes.epoch(epoch, 16))));
    for (engine, session) in nodes.engines.iter().zip(&nodes.sessions) {
        engine.close_job(*session, "job");
        // What is on its way goes when it comes.
        settles("memory is let go of", || {
            let stats = engine.stats();
            (stats.occupied, stats.leases, stats.passing) == (0, 0, 0)
        });
    }
}

#[test]
fn a_job_over_several_nodes_needs_a_cluster() {
    let nodes = Nodes::new(&Made::new(100, 1, &[0]));
    let alone = Arc::new(crate::common::engine());
    let session = alone.attach();
    alone.open_dataset(session, &nodes.opened[0]);
    let role = Role::Home { capacity: 1 };
    let error = alone.open_job_as(session, nodes.request.clone(), None, role).unwrap_err();
    assert!(error.message.contains("in no cluster"), "{error}");
}

#[test]
fn where_no_node_owns_anything_ranks_read_from_storage() {
    let nodes = Nodes::new(&Made::new(400, 2, &[0, 1]));
    *nodes.shared.view.lock().unwrap() = draining(2);
    within("nodes that drain", || (0..2).for_each(|epoch| drop(nodes.epoch(epoch, 16))));
    let sum = nodes.sum(1);
    assert_eq!((sum.plan.planned, sum.served(), sum.clock.recovery_reads), (0, 0, 400));
    assert_eq!((sum.clock.node_reads, sum.clock.node_failed), (0, 0));
    assert!(nodes.engines[0].residents("job").unwrap().is_empty());
}
