use std::sync::Arc;

use hotset_core::sampling::Equal;

use super::*;
use crate::Trace;
use crate::timeline::{Compute, Storage};

const SAMPLES: usize = 20_000;
const EPOCHS: usize = 6;

/// Trains `pair` from `start` on, a batch of 50 in so many milliseconds; storage delivers one in 25.
fn training(pair: &str, seed: u64, start: f64, milliseconds: f64) -> Training {
    let trace = Trace::synthetic(SAMPLES, EPOCHS, 3).unwrap();
    let sizes = Arc::new(Equal { samples: SAMPLES, size: 1000 });
    let mut scenario = Scenario::new("made", trace, None, sizes).unwrap();
    scenario.storage = Storage { latency: 0.005, bandwidth: None, concurrency: 10 };
    scenario.compute = Compute { seconds_a_batch: milliseconds / 1e3, batch: 50, prefetch: 4, ranks: 1 };
    let job = Job::new(&pair.parse().unwrap(), "20%", "20%".parse().unwrap(), seed).unwrap();
    Training { name: format!("job {seed}"), scenario, job, start, benefit: None }
}

fn reads(trainings: &[Training]) -> u64 {
    run(trainings).unwrap().iter().map(Trained::reads).sum()
}

#[test]
fn one_training_is_what_it_is_without_others_to_share_with() {
    for pair in ["uniform+minio", "iis+icache", "pads+app", "uniform+lru"] {
        let alone = training(pair, 7, 0.0, 10.0);
        let single = crate::replay::run(&alone.scenario, &alone.job).unwrap();
        let shared = run(&[alone]).unwrap().remove(0);
        for (one, other) in shared.outcome.epochs.iter().zip(&single.epochs) {
            assert_eq!(one.counters.plan, other.counters.plan, "{pair}");
            // A sample that is asked for again while it is being read is waited for here, and asked for there.
            let ratio = one.time.seconds / other.time.seconds;
            assert!((0.9..1.01).contains(&ratio), "{pair}: {ratio}");
        }
        assert_eq!(shared.outcome.epochs.len(), EPOCHS);
    }
}

#[test]
fn four_that_walk_together_read_what_one_reads_and_take_no_longer() {
    let one = run(&[training("quiver", 0, 0.0, 30.0)]).unwrap().remove(0);
    let four: Vec<Training> = (0..4).map(|seed| training("quiver", seed, 0.0, 30.0)).collect();
    let all = run(&four).unwrap();
    let ratio = all.iter().map(Trained::reads).sum::<u64>() as f64 / one.reads() as f64;
    assert!(ratio <= 1.05, "{ratio}");
    let ends: Vec<f64> = all.iter().map(|trained| trained.end / one.end).collect();
    assert!(ends.iter().all(|&end| end <= 1.05), "storage is asked once for all: {ends:?}");
}

#[test]
fn a_training_that_starts_later_begins_and_ends_later_and_hits_what_others_brought() {
    let [first, second] = [0.0, 30.0].map(|start| training("uniform+minio", start as u64, start, 30.0));
    let trained = run(&[second, first]).unwrap();
    assert_eq!((trained[0].start, trained[1].start), (30.0, 0.0), "in the order given");
    assert!(trained[0].end > 30.0 && trained[1].end < trained[0].end);
    let late = &trained[0].outcome.epochs[0].counters.plan;
    assert_eq!((late.hit, late.shared_hits), (SAMPLES as u64 / 5, SAMPLES as u64 / 5));
    assert_eq!(trained[1].outcome.epochs[0].counters.plan.hit, 0);
}

#[test]
fn a_storage_that_two_share_takes_longer_for_both() {
    let alone = run(&[training("uniform+lru", 0, 0.0, 10.0)]).unwrap()[0].end;
    let both = run(&[0, 1].map(|seed| training("uniform+lru", seed, 0.0, 10.0))).unwrap();
    assert!(both.iter().all(|trained| trained.end > 1.4 * alone && trained.end < 2.1 * alone));
}

#[test]
fn a_training_that_never_waits_leaves_the_cache_to_the_one_that_does() {
    let [waits, computes] =
        [(0, 5.0), (1, 200.0)].map(|(seed, time)| training("iis+icache", seed, 0.0, time));
    assert!(waits.benefit() > 1.5 && computes.benefit() == 1.0);
    let with = reads(&[waits.clone(), Training { benefit: Some(9.0), ..computes.clone() }]);
    let trained = run(&[waits, computes]).unwrap();
    let brought = |trained: &Trained| trained.outcome.epochs[3].counters.plan.shared_hits;
    assert_eq!(brought(&trained[0]), 0, "the other one brings nothing");
    assert!(with > 0 && brought(&trained[1]) > 0);
}

#[test]
fn what_cannot_share_a_cache_is_refused_by_name() {
    let refused =
        |trainings: &[Training]| run(trainings).err().map(|error| error.message).unwrap_or_default();
    let one = training("uniform+lru", 0, 0.0, 10.0);
    let mut other = training("iis+icache", 1, 0.0, 10.0);
    other.name = "b".into();
    assert!(refused(&[one.clone(), other]).contains("`b` has `icache`"));
    assert!(refused(&[training("carousel", 0, 0.0, 10.0)]).contains("`carousel` is one job's own"));
    assert!(refused(&[training("uniform+belady", 0, 0.0, 10.0)]).contains("`belady` is one job's own"));
    let mut larger = training("uniform+lru", 1, 0.0, 10.0);
    larger.scenario.trace = Arc::new(Trace::synthetic(SAMPLES + 1, EPOCHS, 3).unwrap());
    assert!(refused(&[one, larger]).contains("20001: jobs share a cache if they train one dataset"));
    assert!(refused(&[]).contains("no training"));
}
