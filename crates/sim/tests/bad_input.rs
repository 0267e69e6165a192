//! What a replay does with what it should not be given: a clear error or the defined behaviour.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::sync::Arc;

use hotset_core::policy::Sizes;
use hotset_core::sampling::Equal;
use hotset_core::{policy, sampling};
use hotset_sim::Trace;
use hotset_sim::outcome::Outcome;
use hotset_sim::replay::{self, Job, Scenario};
use hotset_sim::timeline::Compute;

fn scenario(samples: usize, losses: Vec<f32>, sizes: Arc<dyn Sizes>) -> Scenario {
    let mut scenario = Scenario::new("test", Trace::new(samples, losses).unwrap(), None, sizes).unwrap();
    scenario.compute = Compute { seconds_a_batch: 0.01, batch: 4, prefetch: 2, ranks: 1 };
    scenario
}

fn equal(samples: usize) -> Arc<dyn Sizes> {
    Arc::new(Equal { samples, size: 10 })
}

/// Every strategy with every policy. A pair that cannot be run says why.
fn all(scenario: &Scenario, cache: &str) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for strategy in sampling::drawing() {
        for policy in policy::REGISTRY {
            let pair = format!("{}+{}", strategy.name, policy.name).parse().unwrap();
            let job = Job::new(&pair, cache, cache.parse().unwrap(), 3).unwrap();
            match replay::run(scenario, &job) {
                Ok(outcome) => outcomes.push(outcome),
                Err(error) => assert!(error.message.contains("beforehand"), "{error}"),
            }
        }
    }
    for outcome in &outcomes {
        for epoch in &outcome.epochs {
            assert_eq!(
                epoch.counters.served(),
                epoch.counters.plan.planned,
                "{}+{}",
                outcome.strategy,
                outcome.policy
            );
            assert!(epoch.time.seconds.is_finite() && epoch.time.wait <= epoch.time.seconds + 1e-9);
        }
    }
    outcomes
}

#[test]
fn constant_losses_are_replayed_as_any_others() {
    for loss in [0.0, 1.0] {
        for outcome in all(&scenario(40, vec![loss; 40 * 4], equal(40)), "20%") {
            let served = outcome.epochs[3].counters.served();
            assert!((1..=80).contains(&served), "{}: {served}", outcome.strategy);
            if outcome.strategy == "iis" {
                assert_eq!(served, 28, "the selected fraction is exact, whatever the ties");
            }
        }
    }
}

#[test]
fn losses_that_are_never_known_are_replayed() {
    all(&scenario(20, vec![f32::NAN; 60], equal(20)), "20%");
}

#[test]
fn one_sample_and_one_epoch_are_enough() {
    for outcome in all(&scenario(1, vec![0.5], equal(1)), "100%") {
        assert_eq!(outcome.epochs.len(), 1);
    }
    all(&scenario(1, vec![0.5, 0.4, 0.3], equal(1)), "100%");
}

#[test]
fn a_cache_of_nothing_never_hits_and_one_of_everything_reads_each_sample_once() {
    let scenario = scenario(30, (0..120).map(|at| at as f32).collect(), equal(30));
    for outcome in all(&scenario, "0") {
        let repeats = ["pads", "batchloss", "carousel"].contains(&outcome.strategy.as_str());
        let hits: u64 = outcome.epochs.iter().map(|epoch| epoch.counters.plan.hit).sum();
        assert!(
            hits == 0 || outcome.policy == "oracle" || repeats,
            "{}+{}",
            outcome.strategy,
            outcome.policy
        );
    }
    for outcome in all(&scenario, "100%") {
        let reads: u64 = outcome.epochs.iter().map(|epoch| epoch.counters.plan.single).sum();
        assert!(reads <= 30, "{}+{} reads {reads}", outcome.strategy, outcome.policy);
    }
}

#[test]
fn samples_larger_than_the_cache_pass_by() {
    let sizes: Vec<u64> = (0..30).map(|id| if id % 3 == 0 { 10_000 } else { 10 }).collect();
    let scenario = scenario(30, (0..150).map(|at| (at % 7) as f32).collect(), Arc::new(sizes));
    all(&scenario, "100B");
}

#[test]
fn more_ranks_than_samples_serve_nothing_or_pad_and_say_so() {
    let mut scenario = scenario(3, vec![1.0; 9], equal(3));
    scenario.compute.ranks = 8;
    let outcomes = all(&scenario, "20%");
    let uniform = outcomes.iter().find(|outcome| outcome.strategy == "uniform").unwrap();
    assert_eq!(uniform.epochs[0].counters.served(), 0);
    assert!(uniform.notes[0].contains("`ranks` is 8"), "{:?}", uniform.notes);
    scenario.pad = true;
    assert!(all(&scenario, "20%").iter().all(|outcome| outcome.epochs[0].counters.served() % 8 == 0));
}

#[test]
fn losses_and_sizes_of_different_datasets_are_refused() {
    let trace = Trace::new(3, vec![1.0; 6]).unwrap();
    let message = Scenario::new("test", trace.clone(), None, equal(4)).err().unwrap().message;
    assert!(message.contains("3 samples") && message.contains("4 sizes"), "{message}");
    let other = Trace::new(3, vec![1.0; 9]).unwrap();
    let message = Scenario::new("test", trace, Some(other), equal(3)).err().unwrap().message;
    assert!(message.contains("arrays of one run"), "{message}");
}

#[test]
fn unknown_names_and_settings_are_answered_with_those_there_are() {
    let job = |pair: &str| {
        Job::new(&pair.parse().unwrap(), "20%", "20%".parse().unwrap(), 0).err().unwrap().message
    };
    assert!(job("shuffle").contains("`uniform`"));
    assert!(job("iis+fifo").contains("`lru`"));
    assert!(job("iis[fractoin=0.5]").contains("`fraction`"));
    assert!(job("iis[fraction=2]").contains("fraction"));
    assert!(job("given").contains("the order of a trainer's own sampler"));
}

#[test]
fn irreducible_losses_change_what_hybrid_selects_and_a_wrong_shape_is_refused() {
    let losses: Vec<f32> = (0..12 * 40).map(|cell| ((cell * 7919) % 101) as f32 / 10.0).collect();
    let plain = scenario(40, losses, equal(40));
    let wrong = plain.clone().with_irreducible(Some(Trace::new(20, vec![0.0; 40]).unwrap()));
    assert!(wrong.err().unwrap().message.contains("[1, 40]"));
    let hard: Vec<f32> = (0..40).map(|id| if id % 2 == 0 { 9.0 } else { 0.0 }).collect();
    let reduced = plain.clone().with_irreducible(Some(Trace::new(40, hard).unwrap())).unwrap();
    let reads = |scenario: &Scenario| {
        let pair = "hybrid[warmup_max=2,s_share=1]+impact".parse().unwrap();
        let job = Job::new(&pair, "50%", "50%".parse().unwrap(), 3).unwrap();
        let outcome = replay::run(scenario, &job).unwrap();
        outcome.epochs.iter().map(|epoch| epoch.counters.plan.storage_reads).collect::<Vec<_>>()
    };
    assert_eq!(reads(&plain), reads(&plain), "the same twice");
    assert_ne!(reads(&plain), reads(&reduced));
}
