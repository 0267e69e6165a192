//! Every strategy over nodes, each with the policy that it is made for.

use std::sync::Arc;

use hotset_core::cluster::PlacementKind;
use hotset_core::sampling::Plan;
use hotset_core::{Id, Index};
use hotset_engine::Place;

use super::nodes::{Made, Manner, Nodes};
use crate::common::{Reader, place, within};
use crate::differential::{accuracy, loss};

const EPOCHS: u64 = 4;

/// A rank re-evaluates what it is asked for, as a sampler does, and begins.
fn begin(nodes: &Nodes, rank: u32, epoch: u64) -> Arc<Plan> {
    let (home, node) = (&nodes.engines[nodes.home()], nodes.node_of(rank));
    if epoch > 0 {
        home.end_epoch("job", epoch - 1, rank, Some(accuracy(epoch - 1))).unwrap();
    }
    let ids = home.reevaluation("job", epoch, (rank, nodes.world())).unwrap();
    if node != nodes.home() && !ids.is_empty() {
        nodes.engines[node].reevaluates_here("job", epoch, rank).unwrap();
    }
    let mut reader = Reader::new(&nodes.engines[node], &nodes.opened[node]);
    for some in ids.chunks(16) {
        let index = |&id: &Id| Index { epoch: None, sample: id.into() }.into_raw();
        reader.get_reevaluated(&some.iter().map(index).collect::<Vec<_>>(), epoch);
        let losses: Vec<f32> = some.iter().map(|&id| loss(id, epoch)).collect();
        home.reevaluated("job", epoch, rank, (some, &losses), false).unwrap();
    }
    home.reevaluated("job", epoch, rank, (&[], &[]), true).unwrap();
    nodes.begin(rank, epoch).unwrap()
}

fn train(made: &Made) -> Nodes {
    let nodes = Nodes::new(made);
    for epoch in 0..EPOCHS {
        let plans: Vec<Arc<Plan>> = std::thread::scope(|scope| {
            let rank = |rank: u32| {
                let plan = begin(&nodes, rank, epoch);
                nodes.train(rank, &plan, 0..plan.rank_len(), 16);
                plan
            };
            let ranks: Vec<_> = (0..nodes.world()).map(|number| scope.spawn(move || rank(number))).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        nodes.check_residents();
        let (plan, sum) = (&plans[0], nodes.sum(epoch));
        let what = format!("{} with {}, epoch {epoch}", made.strategy, made.policy);
        assert_eq!((sum.plan.planned, sum.served()), (plan.len() as u64, plan.len() as u64), "{what}");
        assert_eq!((sum.clock.node_failed, sum.clock.failed, sum.clock.abandoned), (0, 0, 0), "{what}");
    }
    nodes
}

#[test]
fn strategies_are_served_whole_and_kept_once() {
    let pairs = [
        ("uniform", "lru"),
        ("iis", "icache"),
        ("iis", "lfu"),
        ("hybrid", "impact"),
        ("pads", "app"),
        ("carousel", "carousel"),
        ("cis", "pq_lfu"),
        ("quiver", "quiver"),
    ];
    for (strategy, policy) in pairs {
        for (nodes, placement) in
            [(2, PlacementKind::Hash), (3, PlacementKind::Hash), (3, PlacementKind::Directory)]
        {
            let ranks: Vec<usize> = (0..nodes).collect();
            let made = Made { placement, ..Made::new(400, nodes, &ranks).with(strategy, policy) };
            within(strategy, || train(&made));
        }
    }
}

#[test]
fn a_policy_is_told_the_scores_of_what_its_node_owns() {
    let nodes = within("pads", || train(&Made::new(400, 2, &[0, 1]).with("pads", "app")));
    let sum = nodes.sum(EPOCHS - 1);
    assert!(sum.plan.hit > 100, "{} hits", sum.plan.hit);
    assert_eq!(nodes.counted(1, 1).clock.reported, 0, "what is reported is counted at the home");
}

#[test]
fn a_run_of_samples_is_kept_on_one_node() {
    let made = Made { each: Some(200), ..Made::new(1_000, 2, &[0, 1]) };
    let pairs = [("iis", "icache"), ("hybrid", "impact"), ("uniform", "lru")];
    for (placement, (strategy, policy)) in
        PlacementKind::ALL.into_iter().flat_map(|placement| pairs.map(|pair| (placement, pair)))
    {
        let made = Made { placement, ..made.clone().with(strategy, policy) };
        let nodes = within(strategy, || train(&made));
        let owned = nodes.engines[0].owned("job").unwrap();
        assert!((200..800).contains(&owned.len()), "{}", owned.len());
        let opened = &nodes.opened[0];
        let Some(Place::Runs(runs)) = place(opened, &nodes.request) else { panic!("there are no runs") };
        for run in runs.living() {
            let own = runs.members(run).iter().filter(|id| owned.binary_search(id).is_ok()).count();
            let whole = own == 0 || own == runs.members(run).len();
            assert!(whole || policy == "lru", "run {run} has two owners");
        }
        if policy != "lru" {
            let sum = nodes.sum(EPOCHS - 1);
            assert!(sum.plan.package_reads > 0, "{strategy}: no run was read as a package");
        }
    }
}

#[test]
fn a_plan_knows_what_every_node_keeps() {
    for (strategy, policy, settings) in [
        ("pads", "app", &[("repeat", "2")][..]),
        ("iis", "icache", &[("substitute", "h")]),
        ("quiver", "quiver", &[]),
    ] {
        let made = Made { settings, ..Made::new(400, 3, &[0, 1, 2]).with(strategy, policy) };
        let nodes = within(strategy, || train(&made));
        let gathered = nodes.shared.gathered.lock().unwrap().clone();
        for epoch in 1..EPOCHS {
            let mut asked: Vec<usize> = gathered
                .iter()
                .filter(|(of, _, kept)| *of == epoch && *kept > 0)
                .map(|asked| asked.1)
                .collect();
            asked.sort_unstable();
            assert_eq!(asked, [1, 2], "{strategy}, epoch {epoch}: {gathered:?}");
        }
    }
    let nodes = within("uniform", || train(&Made::new(400, 2, &[0, 1])));
    assert!(
        nodes.shared.gathered.lock().unwrap().is_empty(),
        "a plan that does not look at residents asks none"
    );
}

#[test]
fn a_plan_is_made_without_what_a_silent_node_keeps() {
    let nodes = Nodes::new(&Made::new(400, 2, &[0, 0]).with("quiver", "quiver"));
    nodes.set(1, Manner::Dead);
    within("a silent node", || {
        for epoch in 0..2 {
            assert_eq!(nodes.epoch(epoch, 16).len(), 400);
        }
    });
    assert!(nodes.shared.gathered.lock().unwrap().is_empty());
}

#[test]
fn what_is_reevaluated_is_read_by_the_node_that_owns_it() {
    for ranks in [&[0, 1][..], &[0, 0, 1, 1], &[1, 0, 2]] {
        for (strategy, policy) in [("hybrid", "impact"), ("realtime", "icache")] {
            let made = Made::new(400, 1 + ranks.iter().max().unwrap(), ranks).with(strategy, policy);
            let nodes = within(strategy, || train(&made));
            for epoch in 0..EPOCHS {
                let recovery: Vec<u64> =
                    (0..made.nodes).map(|node| nodes.counted(node, epoch).clock.recovery_reads).collect();
                assert_eq!(recovery, vec![0; made.nodes], "{strategy}, epoch {epoch}, ranks {ranks:?}");
            }
            for node in 0..made.nodes {
                let read: u64 = (0..EPOCHS).map(|epoch| nodes.counted(node, epoch).plan.other_reads).sum();
                assert!(read > 5, "{strategy}: node {node} has read {read} samples to re-evaluate them");
            }
        }
    }
}
