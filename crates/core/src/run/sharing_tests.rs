//! Several jobs over one cache, each at its own speed: what they read together.

use std::sync::Arc;

use super::{Batch, Config, Replay, Trainer};
use crate::cache::Cache;
use crate::log::{Circumstances, Event, MemberId};
use crate::sampling::Plan;
use crate::{Id, policy, sampling};

const SAMPLES: u64 = 6000;
const EPOCHS: u64 = 5;

/// When a job starts, in epochs, and how many slots it takes while the first takes one.
type Job = (f64, f64);

/// Trainings that report nothing.
struct Silent;

impl Trainer for Silent {
    fn train(&mut self, _member: MemberId, _plan: &Plan) -> Vec<Batch> {
        Vec::new()
    }

    fn evaluate(&mut self, _member: MemberId, _epoch: u64, _ids: &[Id]) -> Vec<(Id, f32)> {
        Vec::new()
    }

    fn accuracy(&mut self, _member: MemberId, _epoch: u64) -> Option<f64> {
        None
    }
}

/// A job of that strategy and seed, with a fifth of the dataset.
fn config(strategy: &str, seed: u64) -> Config {
    let strategy = sampling::find(strategy).unwrap();
    let policy = policy::find(strategy.policy).unwrap();
    Config {
        strategy,
        strategy_values: strategy.values([]).unwrap(),
        policy,
        policy_values: policy.values([]).unwrap(),
        sizes: Arc::new(vec![10u64; SAMPLES as usize]),
        capacity: SAMPLES * 2,
        seed,
        epochs: Some(EPOCHS),
        world: 1,
        pad: false,
        packages: None,
    }
}

/// The reads of each job, which has a seed of its own unless all have `seed`; every epoch serves every sample.
fn reads(jobs: &[Job], strategy: &str, seed: Option<u64>) -> Vec<u64> {
    let mut config = |member: MemberId| config(strategy, seed.unwrap_or(member.into()));
    let cache = Cache::new(config(0).policy(), SAMPLES as usize);
    let mut silent = Silent;
    let mut replay = Replay::new(cache, &mut config, &mut silent);
    // The slot that each job decides next, and when, in slots of the first.
    let mut next: Vec<(f64, u64)> = jobs.iter().map(|(start, _)| (start * SAMPLES as f64, 0)).collect();
    let mut members: Vec<Option<MemberId>> = vec![None; jobs.len()];
    let mut joined = 0;
    while let Some((job, _)) = next
        .iter()
        .enumerate()
        .filter(|(_, (_, slot))| *slot < EPOCHS * SAMPLES)
        .min_by(|(_, a), (_, b)| a.0.total_cmp(&b.0))
    {
        let member = *members[job].get_or_insert_with(|| {
            replay.apply(&Event::Joined(joined)).unwrap();
            joined += 1;
            joined - 1
        });
        let (time, slot) = next[job];
        if slot % SAMPLES == 0 {
            let epoch = slot / SAMPLES;
            let others_at = replay.others_at(member);
            let circumstances = Circumstances { rates: None, others_at };
            replay.apply(&Event::Planned { member, epoch, world: 1, circumstances }).unwrap();
        }
        replay.apply(&Event::Decided { member, slots: 1 }).unwrap();
        next[job] = (time + jobs[job].1, slot + 1);
    }
    members
        .iter()
        .map(|member| {
            let epochs = replay.counters(member.unwrap());
            assert!(epochs.values().all(|counted| counted.distinct == SAMPLES), "every sample once an epoch");
            epochs.values().map(|counted| counted.storage_reads).sum()
        })
        .collect()
}

fn total(jobs: &[Job], strategy: &str) -> f64 {
    reads(jobs, strategy, None).into_iter().sum::<u64>() as f64
}

#[test]
fn four_jobs_of_quiver_read_what_one_reads() {
    let one = total(&[(0.0, 1.0)], "quiver");
    assert_eq!(one as u64, SAMPLES + (EPOCHS - 1) * SAMPLES * 4 / 5);
    let together = total(&[(0.0, 1.0); 4], "quiver");
    assert!(together <= 1.05 * one, "{:.3} times one", together / one);
}

#[test]
fn jobs_of_quiver_that_start_one_after_the_other_read_no_more_than_their_span() {
    let one = total(&[(0.0, 1.0)], "quiver");
    for spread in [0.1, 0.5, 1.0, 2.5] {
        let jobs: Vec<Job> = (0..4).map(|job| (spread * f64::from(job) / 3.0, 1.0)).collect();
        let ratio = total(&jobs, "quiver") / one;
        let most = 1.05 * (1.0 + spread / EPOCHS as f64);
        assert!(ratio <= most, "starts over {spread} epochs: {ratio:.3} times one, at most {most:.3}");
    }
}

#[test]
fn a_job_of_half_the_speed_costs_the_others_little() {
    let one = total(&[(0.0, 1.0)], "quiver");
    let found = reads(&[(0.0, 1.0), (0.0, 1.0), (0.0, 1.0), (0.0, 2.0)], "quiver", None);
    let fast: u64 = found[..3].iter().sum();
    assert!(fast as f64 <= 1.2 * one, "three at full speed: {:.3} times one", fast as f64 / one);
    assert!(found[3] as f64 <= 1.05 * one, "the slow one reads alone at most: {:.3}", found[3] as f64 / one);
}

#[test]
fn jobs_of_uniform_share_what_is_kept_and_no_more() {
    let one = total(&[(0.0, 1.0)], "uniform");
    let ratio = total(&[(0.0, 1.0); 4], "uniform") / one;
    assert!((3.5..4.0).contains(&ratio), "seeds of their own: {ratio:.3} times one");
}

/// The hits of each epoch that two jobs with a cache in common train in turn, where `happens` says what else happens before
/// each epoch.
fn hits(happens: impl Fn(u64) -> Vec<Event>) -> [Vec<u64>; 2] {
    let mut config = |member: MemberId| config("uniform", member.into());
    let (cache, mut silent) = (Cache::new(config(0).policy(), SAMPLES as usize), Silent);
    let mut replay = Replay::new(cache, &mut config, &mut silent);
    (0..2).for_each(|member| replay.apply(&Event::Joined(member)).unwrap());
    let mut gone = Vec::new();
    for epoch in 0..3 {
        for event in happens(epoch) {
            replay.apply(&event).unwrap();
            gone.extend(if let Event::Left(member) = event { Some(member) } else { None });
        }
        for member in [0, 1].into_iter().filter(|member| !gone.contains(member)) {
            let circumstances = Circumstances::default();
            replay.apply(&Event::Planned { member, epoch, world: 1, circumstances }).unwrap();
            replay.apply(&Event::Decided { member, slots: SAMPLES }).unwrap();
        }
    }
    [0, 1].map(|member| replay.counters(member).into_values().map(|counted| counted.hit).collect())
}

#[test]
fn a_job_that_gains_little_hits_and_admits_nothing() {
    let fifth = SAMPLES / 5;
    let weighed = |member, benefit| vec![Event::Weighed { member, benefit }];
    assert_eq!(hits(|_| Vec::new()), [vec![0, fifth, fifth], vec![fifth; 3]]);
    // The first one brings nothing, so the second has nothing to hit until it has brought some itself.
    let first = hits(|epoch| if epoch == 0 { weighed(0, 1.5) } else { Vec::new() });
    assert_eq!(first, [vec![0, fifth, fifth], vec![0, fifth, fifth]]);
    // If none gains enough all are as they were.
    let none =
        hits(|epoch| if epoch == 0 { [weighed(0, 1.0), weighed(1, 1.2)].concat() } else { Vec::new() });
    assert_eq!(none, [vec![0, fifth, fifth], vec![fifth; 3]]);
    // One that is left alone has the cache.
    let alone = hits(|epoch| match epoch {
        0 => weighed(1, 1.0),
        1 => vec![Event::Resized(0), Event::Resized(SAMPLES * 2), Event::Left(0)],
        _ => Vec::new(),
    });
    assert_eq!(alone, [vec![0], vec![fifth, 0, fifth]]);
}
