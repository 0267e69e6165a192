//! The live engine beside the simulator's run: the same plans, sizes, capacity and reports give the same hits,
//! packed and single reads, to the sample, for every strategy and every policy.
//!
//! The reader asks for a batch and reports it before it asks for the next, and nothing is read ahead, so that
//! also policies that take scores at once hear the same in the same order. Losses are a function of sample and
//! epoch. Packages are waited for before the next epoch begins.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Reader, dataset, engine, request, sharded};
use hotset_core::counters::Counters;
use hotset_core::packages::Origin;
use hotset_core::policy::Sizes;
use hotset_core::run::{self, Inputs, Run};
use hotset_core::sampling::Reevaluation;
use hotset_core::{Id, Index, Rng, policy, sampling};
use hotset_engine::{Engine, JobRequest, Trained};
use hotset_store::Opened;

const SAMPLES: usize = 600;
const EPOCHS: u64 = 5;
const BATCH: usize = 32;

fn sizes() -> Vec<u64> {
    (0..SAMPLES as u64).map(|id| 60 + id * 7919 % 90).collect()
}

/// A loss that falls, at another pace for every sample.
fn loss(id: Id, epoch: u64) -> f32 {
    let pace = Rng::new(u64::from(id), 0, "pace").unit();
    let luck = Rng::new(u64::from(id), epoch, "luck").unit();
    (3.0 * (-(epoch as f64) * pace / 3.0).exp() + luck / 4.0) as f32
}

/// What both must agree on.
struct Counted {
    epoch: u64,
    ids: Vec<Id>,
    served: [u64; 3],
    substituted: u64,
    distinct: u64,
    other: u64,
}

impl Counted {
    /// Epoch; hit, packed, single; substituted, distinct, other reads.
    fn counts(&self) -> (u64, [u64; 3], [u64; 3]) {
        (self.epoch, self.served, [self.substituted, self.distinct, self.other])
    }

    fn new(epoch: u64, ids: Vec<Id>, counters: &Counters) -> Self {
        Self {
            epoch,
            ids,
            served: [counters.hit, counters.packed, counters.single],
            substituted: counters.substituted,
            distinct: counters.distinct,
            other: counters.other_reads,
        }
    }
}

fn simulated(config: run::Config) -> Vec<Counted> {
    let mut run = Run::new(config).unwrap();
    let mut seen = Vec::new();
    for epoch in 0..EPOCHS {
        if epoch > 0 {
            run.close(epoch - 1);
        }
        let reevaluated: Vec<(Id, f32)> = match run.reevaluation(epoch) {
            Reevaluation::Nothing => Vec::new(),
            Reevaluation::Set(ids) => ids.iter().map(|&id| (id, loss(id, epoch))).collect(),
            Reevaluation::All => (0..SAMPLES as Id).map(|id| (id, loss(id, epoch))).collect(),
        };
        let inputs = Inputs {
            reevaluated: (!reevaluated.is_empty()).then_some(&reevaluated),
            accuracy: (epoch > 0).then(|| accuracy(epoch - 1)),
            rates: None,
        };
        let plan = run.begin(epoch, &inputs);
        for (number, batch) in plan.ids().chunks(BATCH).enumerate() {
            batch.iter().for_each(|&id| assert_eq!(run.decide().unwrap().id, id));
            let from = number * BATCH;
            let losses: Vec<f32> = (from..)
                .zip(batch)
                .map(|(slot, &id)| if plan.weight(slot) > 0.0 { loss(id, epoch) } else { f32::NAN })
                .collect();
            run.report(epoch, plan.rank_len(), from, batch, &losses);
        }
        seen.push(Counted::new(epoch, plan.ids().to_vec(), run.counters()));
    }
    seen
}

fn accuracy(epoch: u64) -> f64 {
    // It stops rising, so that `pads` falls back to a shuffle.
    [0.1, 0.5, 0.6, 0.6, 0.5][epoch as usize]
}

fn live(engine: &Engine, opened: &Opened, request: JobRequest) -> Vec<Counted> {
    let mut reader = Reader::new(engine, opened);
    let place = common::place(opened, &request);
    engine.open_job(reader.session, request, place).unwrap();
    let mut seen = Vec::new();
    for epoch in 0..EPOCHS {
        engine.packed("job", Duration::from_secs(60)).unwrap();
        let ids = engine.reevaluation("job", epoch, (0, 1)).unwrap();
        for some in ids.chunks(BATCH) {
            let indices: Vec<u64> =
                some.iter().map(|&id| Index { epoch: None, sample: id.into() }.into_raw()).collect();
            reader.get_reevaluated(&indices, epoch);
            let losses: Vec<f32> = some.iter().map(|&id| loss(id, epoch)).collect();
            engine.reevaluated("job", epoch, 0, (some, &losses), false).unwrap();
        }
        engine.reevaluated("job", epoch, 0, (&[], &[]), true).unwrap();
        let plan = engine.begin_epoch("job", epoch, (0, 1), 0, false).unwrap();
        for (number, batch) in plan.ids().chunks(BATCH).enumerate() {
            let indices: Vec<u64> =
                batch.iter().map(|&id| Index { epoch: Some(epoch), sample: id.into() }.into_raw()).collect();
            let held = reader.get(&indices).unwrap();
            reader.release(held);
            let losses: Vec<f32> = batch.iter().map(|&id| loss(id, epoch)).collect();
            let upto = (number * BATCH + batch.len()) as u64;
            let trained = Trained { epoch, rank: 0, upto, ids: batch, losses: &losses };
            engine.report("job", trained).unwrap();
        }
        engine.end_epoch("job", epoch, 0, Some(accuracy(epoch))).unwrap();
        let stats = engine.job_stats(Some("job")).remove(0);
        let counters = &stats.epochs.iter().find(|(of, _)| *of == epoch).unwrap().1;
        assert_eq!(
            stats.regions.iter().map(|region| region.capacity).sum::<u64>(),
            if stats.policy == "oracle" { stats.regions[0].capacity } else { stats.capacity },
        );
        seen.push(Counted::new(epoch, plan.ids().to_vec(), counters));
    }
    let served: u64 = seen.iter().map(|counted| counted.ids.len() as u64).sum();
    assert_eq!(
        engine.job_stats(Some("job")).remove(0).total.served(),
        served,
        "nothing was served beside a plan"
    );
    seen
}

/// The configuration of the simulator's run for the engine's request.
fn config(opened: &Opened, request: &JobRequest) -> run::Config {
    let strategy = sampling::find(request.strategy.as_deref().unwrap()).unwrap();
    let policy = policy::find(request.policy.as_deref().unwrap_or(strategy.policy)).unwrap();
    let texts = |settings: &std::collections::BTreeMap<String, String>| -> Vec<(String, String)> {
        settings.clone().into_iter().collect()
    };
    let (own, policys) = (texts(&request.strategy_settings), texts(&request.policy_settings));
    let pairs = |texts: &[(String, String)]| -> Vec<(String, String)> { texts.to_vec() };
    let (own, policys) = (pairs(&own), pairs(&policys));
    run::Config {
        strategy,
        strategy_values: strategy.values(own.iter().map(|(a, b)| (a.as_str(), b.as_str()))).unwrap(),
        policy,
        policy_values: policy.values(policys.iter().map(|(a, b)| (a.as_str(), b.as_str()))).unwrap(),
        sizes: Arc::clone(&opened.catalog) as Arc<dyn Sizes>,
        capacity: request.cache.of(opened.catalog.bytes()),
        seed: request.seed,
        epochs: request.epochs,
        world: 1,
        pad: request.pad,
        packages: match &request.packages {
            Some(_) => Some(Origin::Made(request.package_bytes)),
            None => {
                opened.catalog.run_packages(request.package_bytes).map(|runs| Origin::Given(Arc::new(runs)))
            }
        },
    }
}

fn agree(strategy: &str, policy: &str, settings: &[(&str, &str)], cache: &str) {
    compare(&dataset(&sizes()).0, strategy, policy, settings, cache, None);
}

/// Compares both; what was packed in all.
fn compare(
    opened: &Opened,
    strategy: &str,
    policy: &str,
    settings: &[(&str, &str)],
    cache: &str,
    packages: Option<&str>,
) -> u64 {
    let mut request = request(opened, cache, policy);
    request.packages = packages.map(str::to_owned);
    request.package_bytes = 1200;
    request.strategy = Some(strategy.into());
    request.prefetch = false;
    request.epochs = Some(EPOCHS);
    let own = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    request.strategy_settings = own.collect();
    let expected = simulated(config(opened, &request));
    let engine = engine();
    let found = live(&engine, opened, request);
    for (expected, found) in expected.iter().zip(&found) {
        assert!(
            expected.ids == found.ids,
            "{strategy}+{policy} {settings:?}: another plan of {}",
            found.epoch
        );
        assert_eq!(expected.counts(), found.counts(), "{strategy}+{policy} {settings:?}");
    }
    let job = engine.job_stats(Some("job")).remove(0);
    assert_eq!((job.total.packages_lost, job.total.failed), (0, 0));
    found.iter().map(|counted| counted.served[1]).sum()
}

#[test]
fn what_comes_in_packages_is_the_same_too() {
    for (strategy, policy, settings) in [
        ("iis", "icache", &[][..]),
        ("iis", "impact", &[]),
        ("cis", "icache", &[]),
        ("hybrid", "impact", &[("warmup_max", "1")]),
        ("realtime", "icache", &[]),
        ("pads", "icache", &[]),
        ("iis", "lru", &[]),
    ] {
        let place = tempfile::tempdir().unwrap();
        let some = policy != "lru" && !["cis", "pads"].contains(&strategy);
        let (files, shards) = (dataset(&sizes()).0, sharded(&sizes(), 70).0);
        for (opened, place) in [(&files, place.path().to_str()), (&shards, None)] {
            let packed = compare(opened, strategy, policy, settings, "20%", place);
            assert_eq!(packed > 100, some, "{strategy}+{policy} {place:?}: {packed}");
        }
    }
}

#[test]
fn every_policy_counts_live_what_it_counts_in_the_simulator_under_every_strategy() {
    // `belady` and `oracle` are bounds: one knows all plans, the other has what nobody has read yet.
    for policy in policy::REGISTRY.iter().filter(|policy| !policy.offline && policy.bounded) {
        for strategy in sampling::REGISTRY {
            // Left to itself it goes by how fast storage is.
            let fixed: &[(&str, &str)] = if strategy.name == "carousel" { &[("fresh", "0.3")] } else { &[] };
            agree(strategy.name, policy.name, fixed, "20%");
        }
    }
}

#[test]
fn settings_reach_strategies() {
    agree("hybrid", "impact", &[("warmup_max", "2")], "20%");
    agree("carousel", "carousel", &[("fresh", "0.25")], "20%");
    agree("carousel", "carousel", &[("fresh", "0.25"), ("ride", "hard")], "20%");
    agree("pads", "app", &[("repeat", "3")], "20%");
    agree("iis", "icache", &[("substitute", "h")], "20%");
    agree("iis", "icache", &[("full_last", "0.5")], "20%");
}
