//! The live engine beside the simulator's run: the same plans, sizes, capacity and reports give the same counters of
//! the plan, all of them, for every strategy and every policy: for any number of ranks and workers, read ahead or not, with
//! packages and runs of shards, and with a kill in the middle.
//!
//! Workers ask at once for a batch each, and then all of these are reported. Losses are a function of sample and epoch.
//! Where time has a say (a policy that takes scores at once, `fresh` left to itself), the run is replayed from the log of its
//! cache; jobs that share one are in `together`.

use std::ops::Range;
use std::sync::Arc;

use crate::common::{self, MemoryLogs, Reader, dataset, request, sharded};
use hotset_core::cache::Cache;
use hotset_core::counters::PlanCounters;
use hotset_core::log::{Event, MemberId, Playback, decode, encode};
use hotset_core::packages::Origin;
use hotset_core::policy::Sizes;
use hotset_core::run::{self, Batch, Inputs, Replay, Run, Trainer};
use hotset_core::sampling::{Plan, Reevaluation};
use hotset_core::{Id, Index, Rng, policy, sampling};
use hotset_engine::{Config, Engine, JobRequest, Place, Trained};
use hotset_store::Opened;

const SAMPLES: usize = 600;
pub(crate) const EPOCHS: u64 = 5;
pub(crate) const BATCH: usize = 16;
/// The epoch in which a server is killed.
const KILLED: u64 = 2;

/// How a training is carried out.
#[derive(Debug, Clone, Copy)]
struct How {
    world: u32,
    prefetch: bool,
    /// Loader workers of each rank.
    workers: usize,
    kill: bool,
}

impl How {
    const PLAIN: Self = Self { world: 1, prefetch: false, workers: 1, kill: false };

    /// Positions of each rank that are asked for at once.
    fn at_once(self, plan: &Plan) -> impl Iterator<Item = Range<usize>> {
        let (all, some) = (plan.rank_len(), BATCH * self.workers);
        (0..all).step_by(some).map(move |from| from..(from + some).min(all))
    }
}

/// The batches of those positions, of every rank.
pub(crate) fn batches(plan: &Plan, positions: Range<usize>) -> Vec<(u32, usize, Vec<Id>)> {
    let batch = |rank: u32, from: usize| {
        let ids = (from..(from + BATCH).min(positions.end)).map(|at| plan.ids()[plan.slot(rank, at)]);
        (rank, from, ids.collect())
    };
    let from = positions.clone().step_by(BATCH);
    from.flat_map(|from| (0..plan.world()).map(move |rank| (rank, from)))
        .map(|(rank, from)| batch(rank, from))
        .collect()
}

pub(crate) fn sizes() -> Vec<u64> {
    (0..SAMPLES as u64).map(|id| 60 + id * 7919 % 90).collect()
}

/// A loss that falls, at another pace for every sample.
pub(crate) fn loss(id: Id, epoch: u64) -> f32 {
    let pace = Rng::new(u64::from(id), 0, "pace").unit();
    let luck = Rng::new(u64::from(id), epoch, "luck").unit();
    (3.0 * (-(epoch as f64) * pace / 3.0).exp() + luck / 4.0) as f32
}

/// The plan of an epoch, and what is counted of it.
pub(crate) type Counted = (Vec<Id>, PlanCounters);

fn simulated(config: run::Config, how: How) -> Vec<Counted> {
    let takes_order = config.strategy.takes_order();
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
        let order = takes_order.then(|| common::order(SAMPLES, epoch));
        let inputs = Inputs {
            reevaluated: (!reevaluated.is_empty()).then_some(&reevaluated),
            accuracy: (epoch > 0).then(|| accuracy(epoch - 1)),
            rates: None,
            order: order.as_deref(),
        };
        let plan = run.begin(epoch, &inputs);
        for positions in how.at_once(&plan) {
            for _ in 0..positions.len() * plan.world() as usize {
                run.decide().unwrap();
            }
            for (rank, from, ids) in batches(&plan, positions) {
                let at = from..from + ids.len();
                let trained = |(at, &id): (usize, &Id)| {
                    if plan.weight(plan.slot(rank, at)) > 0.0 { loss(id, epoch) } else { f32::NAN }
                };
                let losses: Vec<f32> = at.zip(&ids).map(trained).collect();
                run.report(epoch, plan.rank_len(), from, &ids, &losses);
            }
        }
        assert!(run.decide().is_none());
        seen.push((plan.ids().to_vec(), run.counters().plan.clone()));
    }
    seen
}

pub(crate) fn accuracy(epoch: u64) -> f64 {
    // It stops rising, so that `pads` falls back to a shuffle.
    [0.1, 0.5, 0.6, 0.6, 0.5][epoch as usize]
}

/// What every rank does before it trains an epoch, at the same time.
fn begin(engine: &Engine, opened: &Opened, epoch: u64, world: u32) -> Arc<Plan> {
    std::thread::scope(|scope| {
        let rank = |rank: u32| {
            let ids = engine.reevaluation("job", epoch, (rank, world)).unwrap();
            let mut reader = Reader::new(engine, opened);
            for some in ids.chunks(BATCH) {
                let index = |&id: &Id| Index { epoch: None, sample: id.into() }.into_raw();
                reader.get_reevaluated(&some.iter().map(index).collect::<Vec<_>>(), epoch);
                let losses: Vec<f32> = some.iter().map(|&id| loss(id, epoch)).collect();
                engine.reevaluated("job", epoch, rank, (some, &losses), false).unwrap();
            }
            engine.reevaluated("job", epoch, rank, (&[], &[]), true).unwrap();
            common::begin(engine, "job", epoch, (rank, world), 0)
        };
        let ranks: Vec<_> = (0..world).map(|number| scope.spawn(move || rank(number))).collect();
        let plans: Vec<Arc<Plan>> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
        assert!(plans.iter().all(|plan| plan == &plans[0]));
        Arc::clone(&plans[0])
    })
}

fn report(engine: &Engine, epoch: u64, (rank, from, ids): &(u32, usize, Vec<Id>)) {
    let losses: Vec<f32> = ids.iter().map(|&id| loss(id, epoch)).collect();
    let upto = (from + ids.len()) as u64;
    engine.report("job", Trained { epoch, rank: *rank, upto, ids, losses: &losses }).unwrap();
}

/// What the server counts, and the log of its cache.
fn live(opened: &Opened, request: &JobRequest, how: How) -> (Vec<Counted>, Vec<Event>) {
    let logs = Arc::new(MemoryLogs::default());
    let logged = || Engine::new(Config { logs: Some(logs.clone()), ..common::config() });
    let (mut engine, world) = (logged(), how.world);
    let mut events = Vec::new();
    let place = common::place(opened, request);
    engine.open_job(Reader::new(&engine, opened).session, request.clone(), place).unwrap();
    let mut plans = Vec::new();
    for epoch in 0..EPOCHS {
        let plan = begin(&engine, opened, epoch, world);
        let snapshot = engine.snapshot("job").unwrap().unwrap();
        let mut log = Vec::new();
        for (number, positions) in how.at_once(&plan).enumerate() {
            if how.kill && epoch == KILLED && number == 2 {
                // What happened after the state was written is lost, and happens once more.
                events.extend(logs.all().remove(0));
                let saved = events.iter().rposition(|event| matches!(event, Event::Saved(_))).unwrap();
                events.truncate(saved);
                engine = logged();
                let (main, place) = (Reader::new(&engine, opened), common::place(opened, request));
                engine.restore_job(main.session, request.clone(), place, &snapshot).unwrap();
                log.iter().for_each(|one| report(&engine, epoch, one));
                for rank in 0..world {
                    engine.begin_epoch("job", epoch, (rank, world), 0, true).unwrap();
                }
            }
            let some = batches(&plan, positions);
            std::thread::scope(|scope| {
                for (rank, _, ids) in &some {
                    let mut reader = Reader::new(&engine, opened);
                    scope.spawn(move || {
                        let index = |&id: &Id| Index { epoch: Some(epoch), sample: id.into() }.into_raw();
                        let held = reader.get_as(*rank, &ids.iter().map(index).collect::<Vec<_>>()).unwrap();
                        reader.release(held);
                    });
                }
            });
            some.iter().for_each(|one| report(&engine, epoch, one));
            log.extend(some);
        }
        for rank in 0..world {
            engine.end_epoch("job", epoch, rank, Some(accuracy(epoch))).unwrap();
        }
        plans.push(plan.ids().to_vec());
    }
    let stats = engine.job_stats(Some("job")).remove(0);
    let total = &stats.total;
    assert_eq!((total.clock.packages_lost, total.clock.failed, total.clock.abandoned), (0, 0, 0));
    assert!(how.kill || total.clock.recovery_reads == 0, "{total:?}");
    assert_eq!(stats.unplanned.served(), 0, "nothing was served beside a plan");
    // The job that comes back joins a cache that is there in a replay.
    let joins = |event: &Event| matches!(event, Event::Joined(_));
    events.extend(logs.all().pop().unwrap().into_iter().filter(|event| !how.kill || !joins(event)));
    plays_back(&engine, &logs);
    let counted = plans.into_iter().zip(stats.epochs.into_iter().map(|(_, counters)| counters.plan));
    (counted.collect(), events)
}

/// The log of the last server plays back to what that has counted, also where it went on from a saved state.
fn plays_back(engine: &Engine, logs: &MemoryLogs) {
    engine.note_counts();
    let mut playback = Playback::new();
    logs.all().pop().unwrap().iter().for_each(|event| playback.play(&decode(&encode(event)).unwrap()));
    assert_eq!(playback.ended(), None);
    let job = playback.jobs().next().unwrap();
    assert!(job.epochs().len() >= EPOCHS as usize);
    for (epoch, counted) in job.epochs() {
        assert_eq!(counted.live, counted.played, "epoch {epoch}, played back");
        assert!(counted.same, "epoch {epoch} before its end");
    }
}

/// What every training of this test tells.
struct Told;

impl Trainer for Told {
    fn train(&mut self, _member: MemberId, plan: &Plan) -> Vec<Batch> {
        let trained = |(rank, position, ids): (u32, usize, Vec<Id>)| {
            let loss = |(at, &id): (usize, &Id)| {
                if plan.weight(plan.slot(rank, at)) > 0.0 { loss(id, plan.epoch()) } else { f32::NAN }
            };
            let losses = (position..).zip(&ids).map(loss).collect();
            Batch { position, ids, losses }
        };
        batches(plan, 0..plan.rank_len()).into_iter().map(trained).collect()
    }

    fn evaluate(&mut self, _member: MemberId, epoch: u64, ids: &[Id]) -> Vec<(Id, f32)> {
        ids.iter().map(|&id| (id, loss(id, epoch))).collect()
    }

    fn accuracy(&mut self, _member: MemberId, epoch: u64) -> Option<f64> {
        epoch.checked_sub(1).map(accuracy)
    }
}

/// What each job of a log counts when that is replayed.
pub(crate) fn replayed(configs: &[run::Config], log: &[Event]) -> Vec<Vec<Counted>> {
    let cache = Cache::new(configs[0].policy(), SAMPLES);
    let (mut told, mut config) = (Told, |member: MemberId| configs[member as usize].clone());
    let mut replay = Replay::new(cache, &mut config, &mut told);
    let mut plans = vec![Vec::new(); configs.len()];
    for event in log {
        replay.apply(event).unwrap();
        if let Event::Planned { member, .. } = event {
            plans[*member as usize].push(replay.last_plan(*member).unwrap().ids().to_vec());
        }
    }
    let counted = |(member, plans): (MemberId, Vec<Vec<Id>>)| {
        // What was planned for an epoch that did not come is not counted live.
        plans.into_iter().zip(replay.counters(member).into_values()).take(EPOCHS as usize).collect()
    };
    (0..).zip(plans).map(counted).collect()
}

/// The configuration of the simulator's run for the engine's request.
pub(crate) fn config(opened: &Opened, request: &JobRequest, world: u32) -> run::Config {
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
        world,
        pad: request.pad,
        packages: match (Place::of_plans(request, &opened.catalog).unwrap(), &request.packages) {
            (Some(Place::Runs(runs)), _) => Some(Origin::Given(runs)),
            (_, Some(_)) => Some(Origin::Made(request.package_bytes)),
            (_, None) => {
                opened.catalog.run_packages(request.package_bytes).map(|runs| Origin::Given(Arc::new(runs)))
            }
        },
    }
}

fn agree(strategy: &str, policy: &str, settings: &[(&str, &str)]) {
    compare(&dataset(&sizes()).0, strategy, policy, settings, None, How::PLAIN);
}

/// Compares both; what was packed in all, and how many reads shared a request.
fn compare(
    opened: &Opened,
    strategy: &str,
    policy: &str,
    settings: &[(&str, &str)],
    packages: Option<&str>,
    how: How,
) -> (u64, u64) {
    let by_runs = settings.iter().any(|(name, _)| *name == "order");
    let mut request = request(opened, if by_runs { "60%" } else { "20%" }, policy);
    request.packages = packages.map(str::to_owned);
    request.package_bytes = if by_runs { 300 } else { 1200 };
    request.strategy = Some(strategy.into());
    request.prefetch = how.prefetch;
    request.epochs = Some(EPOCHS);
    let own = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    request.strategy_settings = own.collect();
    let (found, log) = live(opened, &request, how);
    let timed = takes_scores(policy) || strategy == "carousel" && settings.is_empty();
    let config = config(opened, &request, how.world);
    let expected = if timed { replayed(&[config], &log).remove(0) } else { simulated(config, how) };
    for (epoch, (expected, found)) in expected.iter().zip(&found).enumerate() {
        assert!(expected.0 == found.0, "{strategy}+{policy} {settings:?} {how:?}: another plan of {epoch}");
        assert_eq!(expected.1, found.1, "{strategy}+{policy} {settings:?} {how:?}, epoch {epoch}");
    }
    let sum =
        |count: fn(&PlanCounters) -> u64| found.iter().map(|(_, counters)| count(counters)).sum::<u64>();
    let requests = sum(|plan| plan.storage_requests - plan.package_reads);
    (sum(|plan| plan.packed), (sum(|plan| plan.single)).saturating_sub(requests))
}

/// Whether a policy hears of scores at once, so that it decides by when they come.
fn takes_scores(policy: &str) -> bool {
    ["app", "pq", "pq_lfu"].contains(&policy)
}

/// The ways in which a pair is tried; `turn` says which of them are killed.
fn ways(turn: usize) -> Vec<How> {
    let ranks = [1, 2, 3].into_iter().flat_map(|world| [(world, false), (world, true)]);
    let ways = ranks.enumerate().map(|(number, (world, prefetch))| How {
        world,
        prefetch,
        workers: if prefetch { 3 } else { 1 },
        kill: (number + turn).is_multiple_of(2),
    });
    ways.collect()
}

/// Calls `try_pair` with every strategy and every policy that a server runs; `belady` and `oracle` are bounds.
fn every_pair(mut try_pair: impl FnMut(usize, &str, &str, &[(&str, &str)])) {
    let mut turn = 0;
    for policy in policy::REGISTRY.iter().filter(|policy| !policy.offline && policy.bounded) {
        for strategy in sampling::REGISTRY {
            // Left to itself it goes by how fast storage is.
            let fixed: &[(&str, &str)] = if strategy.name == "carousel" { &[("fresh", "0.3")] } else { &[] };
            try_pair(turn, strategy.name, policy.name, fixed);
            turn += 1;
        }
    }
}

#[test]
fn every_policy_counts_live_what_it_counts_in_the_simulator_under_every_strategy() {
    let opened = dataset(&sizes()).0;
    every_pair(|turn, strategy, policy, settings| {
        for how in ways(turn) {
            let (_, together) = compare(&opened, strategy, policy, settings, None, how);
            assert_eq!(together, 0, "files are read one by one");
        }
    });
}

#[test]
fn neighbours_in_shards_are_the_same_requests() {
    let opened = sharded(&sizes(), 70).0;
    let mut shared = 0;
    every_pair(|turn, strategy, policy, settings| {
        let ways = ways(turn);
        shared += compare(&opened, strategy, policy, settings, None, ways[turn % ways.len()]).1;
    });
    assert!(shared > 1000, "{shared} reads came in the request of another");
}

#[test]
fn plans_by_runs_make_the_same_requests() {
    let opened = sharded(&sizes(), 70).0;
    for (turn, (strategy, share)) in
        [("uniform", "0.5"), ("uniform", "0.9"), ("cis", "0.5")].into_iter().enumerate()
    {
        for how in ways(turn) {
            let settings = [("order", "runs"), ("mix_share", share)];
            let (packed, together) = compare(&opened, strategy, "runs", &settings, None, how);
            assert!(packed > 1_000 && together == 0, "{strategy} {share} {how:?}: {packed}, {together}");
        }
    }
}

#[test]
fn what_comes_in_packages_is_the_same_too() {
    for (turn, (strategy, policy, settings)) in [
        ("iis", "icache", &[][..]),
        ("iis", "impact", &[]),
        ("cis", "icache", &[]),
        ("hybrid", "impact", &[("warmup_max", "1")]),
        ("realtime", "icache", &[]),
        ("pads", "icache", &[]),
        ("iis", "lru", &[]),
    ]
    .into_iter()
    .enumerate()
    {
        let some = policy != "lru" && !["cis", "pads"].contains(&strategy);
        let (files, shards) = (dataset(&sizes()).0, sharded(&sizes(), 70).0);
        for how in ways(turn) {
            let place = tempfile::tempdir().unwrap();
            for (opened, place) in [(&files, place.path().to_str()), (&shards, None)] {
                let (packed, _) = compare(opened, strategy, policy, settings, place, how);
                assert_eq!(packed > 100, some, "{strategy}+{policy} {place:?} {how:?}: {packed}");
            }
        }
    }
}

#[test]
fn what_goes_by_how_fast_storage_is_counts_the_same_when_it_is_replayed() {
    let opened = dataset(&sizes()).0;
    for how in ways(0) {
        compare(&opened, "carousel", "carousel", &[], None, how);
    }
}

#[test]
fn settings_reach_strategies() {
    agree("hybrid", "impact", &[("warmup_max", "2")]);
    agree("carousel", "carousel", &[("fresh", "0.25")]);
    agree("carousel", "carousel", &[("fresh", "0.25"), ("ride", "hard")]);
    agree("pads", "app", &[("repeat", "3")]);
    agree("iis", "icache", &[("substitute", "h")]);
    agree("iis", "icache", &[("full_last", "0.5")]);
}
