use std::sync::Arc;

use hotset_core::counters::PlanCounters;
use hotset_core::sampling::Equal;

use super::*;
use crate::outcome::{Mean, Outcome};
use crate::{Trace, replay};

const SAMPLES: usize = 20_000;
const EPOCHS: usize = 8;

fn scenario() -> Scenario {
    let trace = Trace::synthetic(SAMPLES, EPOCHS, 3).unwrap();
    Scenario::new("made", trace, None, Arc::new(Equal { samples: SAMPLES, size: 1000 })).unwrap()
}

fn job(pair: &str, cache: &str, seed: u64) -> Job {
    Job::new(&pair.parse().unwrap(), cache, cache.parse().unwrap(), seed).unwrap()
}

fn plan_counters(epochs: &[Epoch]) -> Vec<PlanCounters> {
    epochs.iter().map(|epoch| epoch.counters.plan.clone()).collect()
}

#[test]
fn one_node_is_what_there_is_without_nodes() {
    for pair in ["uniform+lru", "iis+icache", "pads+app", "hybrid+impact", "carousel", "quiver", "cis+pq_lfu"]
    {
        for locality in [true, false] {
            let nodes = run(&scenario(), &job(pair, "20%", 4), &Nodes { locality, ..Nodes::new(1) }).unwrap();
            let plain = replay::run(&scenario(), &job(pair, "20%", 4)).unwrap();
            assert_eq!(plan_counters(&nodes.outcome.epochs), plan_counters(&plain.epochs), "{pair}");
            for (one, other) in nodes.outcome.epochs.iter().zip(&plain.epochs) {
                assert!((one.time.seconds - other.time.seconds).abs() < 1e-6, "{pair}");
            }
            assert!(nodes.spread.iter().all(|epoch| (epoch.from_peers, epoch.nodes) == (0, 1)));
        }
    }
}

#[test]
fn nodes_read_what_one_cache_of_their_sum_reads_and_hit_what_is_their_own() {
    for pair in ["uniform+minio", "uniform+lru", "iis+icache"] {
        for (count, sum) in [(2, "40%"), (4, "80%")] {
            let nodes = run(&scenario(), &job(pair, "20%", 1), &Nodes::new(count)).unwrap();
            let one = replay::run(&scenario(), &job(pair, sum, 1)).unwrap();
            let [together, alone] = [&nodes.outcome, &one].map(|outcome| Mean::of(outcome, 1).storage_reads);
            assert!((together / alone - 1.0).abs() < 0.02, "{pair} on {count}: {together} beside {alone}");
            let figures = Figures::of(&[&nodes], 1);
            assert!(figures.local > 0.95, "{pair} on {count}: {}", figures.local);
            assert!(figures.owned < 1.03 && figures.kept < 1.03, "{figures:?}");
            let apart = Nodes { locality: false, ..Nodes::new(count) };
            let apart = Figures::of(&[&run(&scenario(), &job(pair, "20%", 1), &apart).unwrap()], 1);
            let fair = 1.0 / count as f64;
            assert!((apart.local - fair).abs() < 0.02, "{pair} on {count}: {}", apart.local);
            let bytes = apart.from_peers * Mean::of(&nodes.outcome, 1).served * 1000.0;
            assert!((apart.peer_bytes / bytes - 1.0).abs() < 1e-3);
        }
    }
}

fn with_packages(bytes: u64) -> Scenario {
    Scenario { packages: Some(bytes), ..scenario() }
}

#[test]
fn one_node_packs_what_is_packed_without_nodes() {
    for pair in ["iis+icache", "hybrid+impact"] {
        let nodes = run(&with_packages(0), &job(pair, "20%", 4), &Nodes::new(1)).unwrap();
        let plain = replay::run(&with_packages(0), &job(pair, "20%", 4)).unwrap();
        assert_eq!(plan_counters(&nodes.outcome.epochs), plan_counters(&plain.epochs), "{pair}");
        assert!(
            plain.epochs[3].counters.plan.packed > 0 && plain.epochs[3].counters.plan.pack_bytes_written > 0
        );
        for (one, other) in nodes.outcome.epochs.iter().zip(&plain.epochs) {
            assert!((one.time.seconds - other.time.seconds).abs() < 1e-6, "{pair}");
        }
    }
}

#[test]
fn packages_on_nodes_are_read_once_and_cost_what_they_cost_one_cache_of_their_sum() {
    let mean = |outcome: &Outcome, of: fn(&PlanCounters) -> u64| {
        outcome.epochs[3..].iter().map(|epoch| of(&epoch.counters.plan) as f64).sum::<f64>()
    };
    for pair in ["iis+icache", "hybrid+impact"] {
        for (count, sum) in [(2, "40%"), (4, "80%")] {
            let nodes = run(&with_packages(100_000), &job(pair, "20%", 1), &Nodes::new(count)).unwrap();
            let one = replay::run(&with_packages(100_000), &job(pair, sum, 1)).unwrap();
            // Packages of fewer bytes each waste less, and those of one owner are not mixed with others'.
            for (name, of, bounds) in [
                ("reads", (|plan| plan.storage_reads) as fn(&PlanCounters) -> u64, 0.8..1.1),
                ("packed", |plan| plan.packed, 0.8..1.1),
                ("package reads", |plan| plan.package_reads, 0.8..1.1),
            ] {
                let [together, alone] = [&nodes.outcome, &one].map(|outcome| mean(outcome, of));
                assert!(
                    bounds.contains(&(together / alone)),
                    "{name}, {pair} on {count}: {together} beside {alone}"
                );
            }
            assert!(Figures::of(&[&nodes], 3).local > 0.9, "{pair} on {count}");
        }
    }
}

#[test]
fn by_directory_nodes_read_what_one_cache_of_their_sum_reads_and_hit_more_of_their_own() {
    for pair in ["uniform+minio", "uniform+lru", "iis+icache"] {
        for (count, sum) in [(2, "40%"), (4, "80%")] {
            let nodes = Nodes { placement: PlacementKind::Directory, ..Nodes::new(count) };
            let nodes = run(&scenario(), &job(pair, "20%", 1), &nodes).unwrap();
            let hash = run(&scenario(), &job(pair, "20%", 1), &Nodes::new(count)).unwrap();
            let one = replay::run(&scenario(), &job(pair, sum, 1)).unwrap();
            let [together, alone] = [&nodes.outcome, &one].map(|outcome| Mean::of(outcome, 1).storage_reads);
            assert!((together / alone - 1.0).abs() < 0.02, "{pair} on {count}: {together} beside {alone}");
            let [figures, hash] = [&nodes, &hash].map(|outcome| Figures::of(&[outcome], 1));
            assert!(
                figures.local > 0.95 && figures.owned < 1.03 && figures.kept < 1.03,
                "{pair}: {figures:?}"
            );
            assert!(figures.from_peers <= hash.from_peers, "{pair} on {count}: {figures:?}, {hash:?}");
        }
    }
}

#[test]
fn by_directory_a_node_that_comes_takes_what_nobody_keeps_and_no_sample_is_kept_twice() {
    for (pair, most) in [("uniform+minio", 0), ("iis+icache", 500)] {
        let placement = PlacementKind::Directory;
        let nodes = Nodes { placement, change: Some(Change::Join(4)), ..Nodes::new(3) };
        let (outcome, cost) = cost(&scenario(), &job(pair, "20%", 1), &nodes).unwrap();
        let cost = cost.unwrap();
        assert_eq!(cost.moved, (0, 0), "{pair}");
        assert!(cost.over_before.iter().all(|&reads| reads <= most), "{pair}: {cost:?}");
        let last = outcome.spread.last().unwrap();
        assert!(last.kept < 1.03 && last.nodes == 4, "{pair}: {last:?}");
        let nodes = Nodes { change: Some(Change::Lose(4)), ..nodes };
        let spread = run(&scenario(), &job(pair, "20%", 2), &nodes).unwrap();
        for (epoch, figures) in spread.outcome.epochs.iter().zip(&spread.spread) {
            let plan = &epoch.counters.plan;
            assert_eq!(plan.planned, plan.hit + plan.packed + plan.single, "{pair}");
            assert!(plan.hit_peer <= figures.from_peers, "{pair}");
        }
    }
    let scenario = scenario();
    for pair in ["uniform+lru", "pads+app", "hybrid+impact", "carousel", "quiver"] {
        let job = job(pair, "20%", 3);
        let config = job.config(&scenario, 1 << 23, None).unwrap();
        let nodes = Nodes { placement: PlacementKind::Directory, ..Nodes::new(3) };
        let cluster = Cluster::new(3, 4_000_000, config.clone(), nodes.placement);
        let mut replay = Replay::new(&scenario, &nodes, cluster, Planner::new(config, false));
        for epoch in 0..4 {
            replay.epoch(epoch).unwrap();
            assert!(replay.cluster.is_kept_once_by_its_owner(), "{pair}, epoch {epoch}");
        }
    }
}

#[test]
fn plans_are_served_whole_whatever_the_nodes() {
    let pairs = ["uniform+minio", "iis+icache", "pads+app", "hybrid+impact", "carousel"];
    let changes = [None, Some(Change::Lose(4)), Some(Change::Join(4))];
    for (pair, change) in pairs.into_iter().flat_map(|pair| changes.map(|change| (pair, change))) {
        for scenario in [scenario(), with_packages(100_000)] {
            let nodes = Nodes { change, ..Nodes::new(3) };
            let spread = run(&scenario, &job(pair, "10%", 2), &nodes).unwrap();
            for (epoch, figures) in spread.outcome.epochs.iter().zip(&spread.spread) {
                let plan = &epoch.counters.plan;
                assert!(plan.hit_peer <= figures.from_peers, "{pair}");
                assert_eq!(plan.planned, plan.hit + plan.packed + plan.single, "{pair}");
                let singly = plan.single + plan.other_reads;
                assert!(
                    plan.storage_reads == singly || plan.package_reads > 0 || plan.pack_reads > 0,
                    "{pair}"
                );
            }
        }
    }
}

#[test]
fn a_node_that_comes_reads_what_it_owns_and_others_let_go_of_it() {
    for pair in ["uniform+minio", "iis+icache"] {
        let nodes = Nodes { change: Some(Change::Join(4)), ..Nodes::new(3) };
        let (outcome, cost) = cost(&scenario(), &job(pair, "20%", 1), &nodes).unwrap();
        let cost = cost.unwrap();
        assert_eq!((outcome.spread[3].nodes, outcome.spread[4].nodes), (3, 4));
        // Three nodes keep 12,000 samples, and a fourth owns a quarter of them.
        assert!(cost.moved.0.abs_diff(3_000) < 200 && cost.moved.1 == 1000 * cost.moved.0, "{cost:?}");
        // It reads what it keeps, once, and that is at most what it may keep.
        assert!((2_500..=4_400).contains(&cost.over_before[0]), "{pair}: {cost:?}");
        assert!((0..=8_300).contains(&cost.over_after[0]), "{pair}: {cost:?}");
        // `iis` does not train everything in that epoch: a fifth of what the node may keep comes in the next.
        assert!(cost.over_after[1].abs() < 800, "{pair}: {cost:?}");
        assert!(cost.over_after[2..].iter().all(|reads| reads.abs() < 300), "{pair}: {cost:?}");
        assert!(cost.over_before[1..].iter().all(|&reads| reads < -1_000), "{pair}: {cost:?}");
    }
}

#[test]
fn what_a_lost_node_kept_is_read_and_what_others_keep_stays() {
    for pair in ["uniform+minio", "iis+icache"] {
        let nodes = Nodes { change: Some(Change::Lose(4)), ..Nodes::new(3) };
        let (outcome, cost) = cost(&scenario(), &job(pair, "20%", 1), &nodes).unwrap();
        let cost = cost.unwrap();
        assert_eq!(
            (cost.moved, outcome.spread[4].nodes),
            ((0, 0), 2),
            "a third of all bins goes to the others"
        );
        assert!(cost.over_before.iter().all(|&reads| reads > 1_000), "{pair}: {cost:?}");
        assert!(cost.over_after[0] < 600, "{pair}: {cost:?}");
        assert!(cost.over_after[1..].iter().all(|reads| reads.abs() < 300), "{pair}: {cost:?}");
    }
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let refused = |pair: &str, nodes: Nodes, change: &dyn Fn(&mut Scenario)| {
        let mut scenario = scenario();
        change(&mut scenario);
        run(&scenario, &job(pair, "20%", 0), &nodes).err().unwrap().message
    };
    let as_is = |_: &mut Scenario| {};
    assert!(refused("iis", Nodes::new(0), &as_is).contains("`nodes` is 0"));
    let alone = Nodes { change: Some(Change::Lose(1)), ..Nodes::new(1) };
    assert!(refused("iis", alone, &as_is).contains("`lose` leaves no node"));
    let directory = Nodes { placement: PlacementKind::Directory, ..Nodes::new(2) };
    let many = |scenario: &mut Scenario| {
        scenario.trace = Trace::synthetic(1_000_001, 1, 0).unwrap().into();
        scenario.sizes = Arc::new(Equal { samples: 1_000_001, size: 1000 });
    };
    assert!(refused("uniform", directory, &many).contains("`--placement hash`"));
    let late = Nodes { change: Some(Change::Join(8)), ..Nodes::new(1) };
    assert!(refused("iis", late, &as_is).contains("before epoch 8, but the epochs are 0 to 7"));
    assert!(refused("uniform+belady", Nodes::new(2), &as_is).contains("policy `belady`"));
    assert!(
        refused("iis", Nodes::new(1000), &|scenario| scenario.compute.ranks = 50).contains("50000 ranks")
    );
}
