//! The parts of a cache in bytes, under any workload: after every step regions, buffer and window add up to the
//! capacity, residents are what the regions hold, and the arena holds no more than capacity and reserve.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::{self, Held, Reader, dataset, engine, request};
use hotset_core::sampling::Plan;
use hotset_core::{Id, Index, Rng};
use hotset_engine::{Engine, Trained};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    /// The next slots of the plan are asked for, trained and reported; the lease is kept.
    Train(usize),
    /// Samples beside the plan are asked for.
    Beside(Vec<u16>),
    /// A lease ends.
    Release(usize),
    /// The reader dies, and another takes its place.
    Die,
    /// The next epoch begins, however far this one has come.
    Next,
    /// Packages are removed from outside, every so many of them.
    Remove(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (1..90usize).prop_map(Step::Train),
        1 => prop::collection::vec(any::<u16>(), 1..20).prop_map(Step::Beside),
        6 => any::<usize>().prop_map(Step::Release),
        1 => Just(Step::Die),
        3 => Just(Step::Next),
        1 => (1..4usize).prop_map(Step::Remove),
    ]
}

const SAMPLES: usize = 400;

fn sizes() -> Vec<u64> {
    (0..SAMPLES as u64).map(|id| 40 + (id * 7919) % 400).collect()
}

fn adds_up(engine: &Engine, names: &mut BTreeSet<&'static str>) {
    let stats = engine.stats();
    assert!(stats.occupied <= stats.capacity + stats.reserve, "{stats:?}");
    assert!(stats.arena <= stats.capacity + stats.reserve, "{stats:?}");
    assert!(stats.passing <= stats.occupied, "{stats:?}");
    for job in engine.job_stats(None) {
        let sum = |of: fn(&hotset_core::policy::Region) -> u64| job.regions.iter().map(of).sum::<u64>();
        assert_eq!(sum(|region| region.capacity), job.capacity, "{:?}", job.regions);
        assert_eq!(sum(|region| region.used), job.resident_bytes, "{:?}", job.regions);
        assert!(job.resident_bytes <= job.capacity, "{:?}", job.regions);
        names.extend(job.regions.iter().filter(|region| region.used > 0).map(|region| region.name));
    }
}

fn begin(engine: &Engine, epoch: u64) -> std::sync::Arc<Plan> {
    let ids = engine.reevaluation("job", epoch, (0, 1)).unwrap();
    let losses: Vec<f32> = ids.iter().map(|&id| loss(id, epoch)).collect();
    engine.reevaluated("job", epoch, 0, (&ids, &losses), true).unwrap();
    engine.begin_epoch("job", epoch, (0, 1), 0, false).unwrap()
}

fn loss(id: Id, epoch: u64) -> f32 {
    Rng::new(u64::from(id), epoch, "loss").unit() as f32
}

fn remove_packages(place: &Path, every: usize) {
    let inside = |path: std::path::PathBuf| {
        std::fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap().path())
    };
    for path in inside(place.to_owned()).flat_map(inside).flat_map(inside).step_by(every) {
        // One that is just being replaced may be gone.
        let _ = std::fs::remove_file(path);
    }
}

/// Carries out `steps`, and waits so long for packages before an epoch; the regions that held samples.
fn run(
    (strategy, policy): (&str, &str),
    split: &str,
    prefetch: bool,
    patience: Duration,
    steps: &[Step],
) -> BTreeSet<&'static str> {
    let place = tempfile::tempdir().unwrap();
    let (opened, _) = dataset(&sizes());
    let engine = engine();
    let mut asked = request(&opened, "25%", policy);
    (asked.strategy, asked.prefetch) = (Some(strategy.into()), prefetch);
    if strategy == "hybrid" {
        asked.strategy_settings = [("warmup_max".to_owned(), "1".to_owned())].into();
    }
    if policy != "carousel" {
        asked.policy_settings = [("split".to_owned(), split.to_owned())].into();
    }
    asked.packages = Some(place.path().to_str().unwrap().into());
    asked.package_bytes = 2_500;
    let main = Reader::new(&engine, &opened);
    let packages = common::place(&opened, &asked);
    engine.open_job(main.session, asked, packages).unwrap();
    let mut reader = Reader::new(&engine, &opened);
    let mut held: Vec<(Vec<u64>, Held)> = Vec::new();
    let (mut epoch, mut position, mut names) = (0, 0, BTreeSet::new());
    let mut plan = begin(&engine, epoch);
    for step in steps {
        match step {
            Step::Train(size) => {
                let end = (position + size).min(plan.len());
                let ids = &plan.ids()[position..end];
                position = end;
                let index = |&id: &Id| Index { epoch: Some(epoch), sample: id.into() }.into_raw();
                let indices: Vec<u64> = ids.iter().map(index).collect();
                let batch = reader.get(&indices).unwrap();
                held.push((indices, batch));
                let losses: Vec<f32> = ids.iter().map(|&id| loss(id, epoch)).collect();
                let trained = Trained { epoch, rank: 0, upto: end as u64, ids, losses: &losses };
                engine.report("job", trained).unwrap();
            }
            Step::Beside(ids) => {
                let indices: Vec<u64> = ids.iter().map(|&id| u64::from(id) % SAMPLES as u64).collect();
                let batch = reader.get(&indices).unwrap();
                held.push((indices, batch));
            }
            Step::Release(pick) if !held.is_empty() => {
                let (_, batch) = held.swap_remove(pick % held.len());
                reader.release(batch);
            }
            Step::Release(_) => {}
            Step::Die => {
                held.clear();
                engine.detach(reader.session, Instant::now());
                reader = Reader::new(&engine, &opened);
            }
            Step::Next => {
                // What waits for a slot that is not asked for is not packed before the epoch is over.
                let _ = engine.packed("job", patience);
                epoch += 1;
                (plan, position) = (begin(&engine, epoch), 0);
            }
            Step::Remove(every) => remove_packages(place.path(), *every),
        }
        for (indices, batch) in &held {
            reader.check(indices, batch);
        }
        adds_up(&engine, &mut names);
    }
    names
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn regions_buffer_and_window_add_up_to_the_capacity_after_every_step(
        steps in prop::collection::vec(step(), 1..120),
        (strategy, policy) in prop_oneof![
            3 => Just(("iis", "icache")), 3 => Just(("hybrid", "impact")), 1 => Just(("carousel", "carousel"))
        ],
        split in prop_oneof![Just("fixed"), Just("paper")],
        prefetch in any::<bool>(),
    ) {
        run((strategy, policy), split, prefetch, Duration::from_millis(20), &steps);
    }
}

/// The workloads above are of use only if all regions are.
#[test]
fn every_region_is_used_by_a_training_that_goes_its_way() {
    let epoch = || (0..12).flat_map(|_| [Step::Train(40), Step::Release(0)]).chain([Step::Next]);
    let steps: Vec<Step> = (0..8).flat_map(|_| epoch()).collect();
    for (strategy, policy, expected) in
        [("iis", "icache", &["h", "l"][..]), ("hybrid", "impact", &["buffer", "h", "l"])]
    {
        let names = run((strategy, policy), "fixed", false, Duration::from_secs(60), &steps);
        assert_eq!(names.into_iter().collect::<Vec<_>>(), expected, "{strategy}+{policy}");
    }
}
