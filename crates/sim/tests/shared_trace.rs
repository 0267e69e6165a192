//! What a real training's trace must show: figures that no generated one has. The trace is not in the repository, so
//! these tests are *ignored* unless they are asked for, and then fail where it is missing:
//! `HOTSET_SHARED=folder cargo test --release -p hotset-sim --test shared_trace -- --ignored`. What holds for any
//! trace is in `theory.rs`, which makes its own.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::sync::{Arc, OnceLock};

use hotset_core::sampling::Equal;
use hotset_sim::figure::{self, Drawn};
use hotset_sim::outcome::Mean;
use hotset_sim::replay::{self, Job, Scenario};
use hotset_sim::{Trace, grid};

/// The shared trace, read once.
fn scenario() -> &'static Scenario {
    static WORLD: OnceLock<Scenario> = OnceLock::new();
    WORLD.get_or_init(|| {
        let path = common::shared_trace();
        let loss = Trace::open(&path, "loss").unwrap();
        let reeval = Trace::open(&path, "reeval").unwrap();
        let sizes = Arc::new(Equal { samples: loss.samples(), size: 1500 });
        Scenario::new("shared", loss, Some(reeval), sizes).unwrap()
    })
}

fn mean(scenario: &Scenario, pair: &str, cache: &str, first: usize) -> Mean {
    let job = Job::new(&pair.parse().unwrap(), cache, cache.parse().unwrap(), 0).unwrap();
    Mean::of(&replay::run(scenario, &job).unwrap(), first)
}

fn draw(scenario: &Scenario, name: &str) -> Drawn {
    figure::find(name).unwrap().draw(scenario, grid::cores(), &|_, _| ()).unwrap()
}

/// The numbers in the third column: ours.
fn ours(drawn: &Drawn) -> Vec<f64> {
    let number = |row: &Vec<String>| row[2].trim_end_matches(" %").parse().unwrap();
    drawn.rows.iter().map(number).collect()
}

#[test]
#[ignore = "needs the trace of a real training, below `HOTSET_SHARED`"]
fn iis_reads_what_was_foretold_with_icache_and_with_belady() {
    let scenario = scenario();
    for (pair, expected) in [("iis+icache", 26_080.0), ("iis+belady", 25_000.0)] {
        let reads = mean(scenario, pair, "20%", 2).storage_reads;
        assert!((reads / expected - 1.0).abs() < 0.005, "{pair} reads {reads:.0} an epoch, not {expected}");
    }
}

#[test]
#[ignore = "needs the trace of a real training, below `HOTSET_SHARED`"]
fn impacts_observations_come_out_as_they_were_measured() {
    let scenario = scenario();
    let [below, below_reevaluated] = ours(&draw(scenario, "impact-5a"))[..] else { panic!("two traces") };
    assert!(
        (below - 53.0).abs() < 1.0 && (below_reevaluated - 55.0).abs() < 1.0,
        "{below} {below_reevaluated}"
    );
    assert_eq!(ours(&draw(scenario, "impact-8")), [6.0, 7.0], "the epoch at which S is stable");
    let [history, hybrid, ..] = ours(&draw(scenario, "impact-15"))[..] else { panic!("three ways") };
    assert!((history - 12.0).abs() < 1.0 && (hybrid - 15.0).abs() < 1.0, "{history} {hybrid}");
    assert!(draw(scenario, "impact-observations").page().matches("<svg").count() >= 4);
}

/// SHADE's figure 12 has 72.5 % of hits. Late in this training the loss goes to nothing, and the guard shuffles.
#[test]
#[ignore = "needs the trace of a real training, below `HOTSET_SHARED`"]
fn pads_buys_its_hits_with_coverage() {
    let drawn = draw(scenario(), "shade-12");
    let number = |cell: &str| cell.trim_end_matches(" %").parse::<f64>().unwrap();
    let shade = &drawn.rows[0];
    assert!((number(&shade[2]) - 69.0).abs() < 1.0, "hits {shade:?}");
    assert!((number(&shade[3]) - 34.0).abs() < 1.0, "coverage {shade:?}");
    assert!((1.0..10.0).contains(&number(&shade[5])), "epochs that the guard shuffles {shade:?}");
}

/// Quiver's figure 6 has more with its allocation than with `lru` at 100, 200 and 700 GB of 775.
#[test]
#[ignore = "needs the trace of a real training, below `HOTSET_SHARED`"]
fn memory_by_gain_beats_one_lru_over_three_datasets() {
    let mut scenario = scenario().clone();
    (scenario.compute.batch, scenario.compute.seconds_a_batch) = (8, 0.001);
    let drawn = draw(&scenario, "quiver-6");
    let times = |row: usize| drawn.rows[row][3].trim_end_matches(" x").parse::<f64>().unwrap();
    for size in 0..3 {
        assert!(times(3 * size + 3) > times(3 * size + 1), "{}", drawn.text());
    }
}
