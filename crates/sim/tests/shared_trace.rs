//! What a real training's trace must show. Not run, and said so, where the shared trace is missing.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::sync::{Arc, OnceLock};

use hotset_core::sampling::Equal;
use hotset_sim::figure::{self, Drawn};
use hotset_sim::outcome::Mean;
use hotset_sim::replay::{self, Job, World};
use hotset_sim::{Trace, grid};

/// The shared trace, read once.
fn world(test: &str) -> Option<&'static World> {
    static WORLD: OnceLock<World> = OnceLock::new();
    let path = common::shared_trace(test)?;
    let world = WORLD.get_or_init(|| {
        let loss = Trace::open(&path, "loss").unwrap();
        let reeval = Trace::open(&path, "reeval").unwrap();
        let sizes = Arc::new(Equal { samples: loss.samples(), size: 1500 });
        World::new("shared", loss, Some(reeval), sizes).unwrap()
    });
    Some(world)
}

fn mean(world: &World, pair: &str, cache: &str, first: usize) -> Mean {
    let job = Job::new(&pair.parse().unwrap(), cache, cache.parse().unwrap(), 0).unwrap();
    Mean::of(&replay::run(world, &job).unwrap(), first)
}

fn draw(world: &World, name: &str) -> Drawn {
    figure::find(name).unwrap().draw(world, grid::cores(), &|_, _| ()).unwrap()
}

/// The numbers in the third column: ours.
fn ours(drawn: &Drawn) -> Vec<f64> {
    let number = |row: &Vec<String>| row[2].trim_end_matches(" %").parse().unwrap();
    drawn.rows.iter().map(number).collect()
}

#[test]
fn lru_hits_what_theory_says() {
    let Some(world) = world("lru_hits_what_theory_says") else { return };
    for (cache, c) in [("20%", 0.2f64), ("40%", 0.4), ("60%", 0.6), ("80%", 0.8)] {
        let theory = c + (1.0 - c) * (1.0 - c).ln();
        let hits = mean(world, "uniform+lru", cache, 1).hit_ratio();
        assert!((hits - theory).abs() < 0.003, "{cache}: {hits:.4}, theory {theory:.4}");
    }
}

#[test]
fn iis_reads_what_was_foretold_with_icache_and_with_belady() {
    let Some(world) = world("iis_reads_what_was_foretold_with_icache_and_with_belady") else { return };
    for (pair, expected) in [("iis+icache", 26_080.0), ("iis+belady", 25_000.0)] {
        let reads = mean(world, pair, "20%", 2).storage_reads;
        assert!((reads / expected - 1.0).abs() < 0.005, "{pair} reads {reads:.0} an epoch, not {expected}");
    }
}

#[test]
fn nothing_hits_more_than_belady() {
    let Some(world) = world("nothing_hits_more_than_belady") else { return };
    let bound = mean(world, "iis+belady", "20%", 0).hit;
    for policy in ["lru", "lfu", "minio", "icache", "icache[strict=true]"] {
        let hits = mean(world, &format!("iis+{policy}"), "20%", 0).hit;
        assert!(hits <= bound, "{policy} hits {hits}, belady {bound}");
    }
}

#[test]
fn impacts_observations_come_out_as_they_were_measured() {
    let Some(world) = world("impacts_observations_come_out_as_they_were_measured") else { return };
    let [below, below_reevaluated] = ours(&draw(world, "impact-5a"))[..] else { panic!("two traces") };
    assert!(
        (below - 53.0).abs() < 1.0 && (below_reevaluated - 55.0).abs() < 1.0,
        "{below} {below_reevaluated}"
    );
    assert_eq!(ours(&draw(world, "impact-8")), [6.0, 7.0], "the epoch at which S is stable");
    let [history, hybrid, realtime] = ours(&draw(world, "impact-15"))[..] else { panic!("three ways") };
    assert!((history - 12.0).abs() < 1.0 && (hybrid - 15.0).abs() < 1.0, "{history} {hybrid}");
    assert_eq!(realtime, 100.0);
    assert!(draw(world, "impact-observations").page().matches("<svg").count() >= 4);
}
