//! What holds for every trace, on traces that are made here.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::sync::Arc;

use hotset_core::sampling::{self, Equal};
use hotset_sim::Trace;
use hotset_sim::outcome::{Mean, Outcome};
use hotset_sim::replay::{self, Job, Scenario};

fn scenario(trace: Trace) -> Scenario {
    let sizes = Arc::new(Equal { samples: trace.samples(), size: 1500 });
    Scenario::new("made", trace, None, sizes).unwrap()
}

fn outcome(scenario: &Scenario, pair: &str, cache: &str) -> Outcome {
    let job = Job::new(&pair.parse().unwrap(), cache, cache.parse().unwrap(), 0).unwrap();
    replay::run(scenario, &job).unwrap()
}

fn mean(scenario: &Scenario, pair: &str, cache: &str, first: usize) -> Mean {
    Mean::of(&outcome(scenario, pair, cache), first)
}

/// A training in which every sample is as hard in every epoch.
fn unchanging(samples: usize, epochs: usize) -> Scenario {
    let row = Trace::synthetic(samples, 1, 3).unwrap();
    scenario(Trace::new(samples, row.row(0).repeat(epochs)).unwrap())
}

#[test]
fn lru_hits_what_theory_says() {
    let scenario = scenario(Trace::synthetic(20_000, 6, 1).unwrap());
    for (cache, c) in [("20%", 0.2f64), ("40%", 0.4), ("60%", 0.6), ("80%", 0.8)] {
        let theory = c + (1.0 - c) * (1.0 - c).ln();
        let hits = mean(&scenario, "uniform+lru", cache, 1).hit_ratio();
        assert!((hits - theory).abs() < 0.003, "{cache}: {hits:.4}, theory {theory:.4}");
    }
}

/// Of D samples that are selected by a percentile to the power of 1/f - 1, those below the share c of the cache are
/// D (1-c)^(1/f).
#[test]
fn iis_with_icache_reads_the_least_there_is_when_ranks_never_change() {
    let scenario = unchanging(20_000, 8);
    for (cache, c) in [("20%", 0.2f64), ("50%", 0.5)] {
        let least = 14_000.0 * (1.0 - c).powf(1.0 / 0.7);
        let reads = mean(&scenario, "iis+icache", cache, 4).storage_reads;
        assert!(
            (reads / least - 1.0).abs() < 0.01,
            "{cache}: {reads:.0} an epoch, and {least:.0} is the least"
        );
    }
}

#[test]
fn nothing_hits_more_than_belady() {
    let scenario = scenario(Trace::synthetic(5_000, 8, 2).unwrap());
    let bound = mean(&scenario, "iis+belady", "20%", 0).hit;
    for policy in ["lru", "lfu", "minio", "icache", "icache[strict=true]"] {
        let hits = mean(&scenario, &format!("iis+{policy}"), "20%", 0).hit;
        assert!(hits > 0.0 && hits <= bound, "{policy} hits {hits}, belady {bound}");
    }
}

/// Draws follow scores that hardly differ, so a fifth of them is of residents and counts three times; the rest of the
/// epoch is what others are drawn first.
#[test]
fn repeated_residents_hit_and_cost_coverage() {
    let scenario = unchanging(20_000, 6);
    let (once, thrice) =
        (mean(&scenario, "pads+minio", "20%", 2), mean(&scenario, "pads[repeat=3]+minio", "20%", 2));
    assert!(
        (thrice.hit_ratio() / once.hit_ratio() - 3.0).abs() < 0.05,
        "{} {}",
        once.hit_ratio(),
        thrice.hit_ratio()
    );
    assert!(thrice.coverage < once.coverage - 0.1, "{} {}", once.coverage, thrice.coverage);
}

/// The last row of a trace is what its last epoch is trained at: no plan may know it.
#[test]
fn no_plan_knows_the_losses_at_which_it_will_be_trained() {
    let trace = Trace::synthetic(600, 8, 5).unwrap();
    let mut losses: Vec<f32> = (0..8).flat_map(|epoch| trace.row(epoch).to_vec()).collect();
    losses[7 * 600..].reverse();
    let (one, other) = (scenario(trace), scenario(Trace::new(600, losses).unwrap()));
    let own = [("hybrid[warmup_max=3]", "impact"), ("realtime", "icache")];
    let pairs = sampling::drawing().map(|entry| (entry.name, "lru")).chain(own);
    for (strategy, policy) in pairs {
        let pair = format!("{strategy}+{policy}");
        let (one, other) = (outcome(&one, &pair, "20%"), outcome(&other, &pair, "20%"));
        for (epoch, (one, other)) in one.epochs.iter().zip(&other.epochs).enumerate() {
            assert_eq!(one.counters, other.counters, "{pair} in epoch {epoch}");
        }
    }
}

#[test]
fn what_was_not_done_as_asked_is_noted() {
    let mut scenario = scenario(Trace::synthetic(2_000, 6, 4).unwrap());
    let noted = |scenario: &Scenario, pair: &str, text: &str| {
        let notes = outcome(scenario, pair, "20%").notes;
        assert!(notes.len() == 1 && notes[0].contains(text), "{pair}: {notes:?}");
    };
    noted(&scenario, "hybrid[warmup_max=2]+impact", "re-evaluates to the last loss known before each plan");
    noted(&scenario, "carousel[fresh=0.9]+carousel", "is `uniform` over a static cache in 6 of 6 epochs");
    assert_eq!(outcome(&scenario, "carousel[fresh=0.3]+carousel", "20%").notes, [""; 0]);
    assert_eq!(outcome(&scenario, "iis+icache", "20%").notes, [""; 0]);
    scenario.packages = Some(16 << 10);
    noted(
        &scenario,
        "uniform+minio",
        "`packages` do nothing for `uniform`+`minio`: policy `minio` has no region",
    );
    noted(&scenario, "uniform+icache", "plans of `uniform` do not use them");
    noted(&scenario, "iis+belady", "policy `belady` has no region");
    let notes = outcome(&scenario, "iis+icache", "1%").notes;
    assert!(notes.len() == 1 && notes[0].contains("a cache of 1% is too small"), "{notes:?}");
}
