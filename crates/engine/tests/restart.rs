//! An engine that is lost at any moment, and another that goes on from the snapshot of the epoch's beginning.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use crate::common::{self, Reader, config, dataset, engine, request, sharded};
use hotset_core::counters::PlanCounters;
use hotset_core::{Id, Index, Kind, Rng, policy, sampling};
use hotset_engine::{Engine, JobRequest, Snapshot, Trained};
use hotset_store::Opened;
use proptest::prelude::*;

const EPOCHS: u64 = 5;
const BATCH: usize = 32;

/// What follows from plans and reports alone, of one epoch.
#[derive(Debug, PartialEq)]
struct Epoch {
    /// A hash of the ids it served, in their order.
    plan: u64,
    /// All that was counted of its plan.
    counted: PlanCounters,
    /// What is kept at its end. Empty while the next epoch may be decided already, as fast as its plan is made.
    residents: Vec<Id>,
}

type Run = Vec<Epoch>;

/// What a training asks for.
#[derive(Debug, Clone)]
struct Case {
    strategy: &'static str,
    policy: &'static str,
    prefetch: bool,
    settings: &'static [(&'static str, &'static str)],
    /// Batches that are served before the first of them is reported, as a loader fetches ahead.
    ahead: usize,
}

impl Case {
    fn request(&self, opened: &Opened, place: Option<&Path>) -> JobRequest {
        let mut asked = request(opened, "25%", self.policy);
        asked.strategy = Some(self.strategy.into());
        asked.prefetch = self.prefetch;
        asked.epochs = Some(EPOCHS);
        let own = self.settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        asked.strategy_settings = own.collect();
        asked.packages = place.map(|place| place.to_str().unwrap().to_owned());
        asked.package_bytes = 5_000;
        asked
    }
}

/// What was reported since the snapshot: epoch, slots reported by then, ids.
type Log = Vec<(u64, u64, Vec<Id>)>;

fn report(engine: &Engine, (epoch, upto, ids): &(u64, u64, Vec<Id>)) {
    let losses: Vec<f32> = ids.iter().map(|&id| loss(id, *epoch)).collect();
    let trained = Trained { epoch: *epoch, rank: 0, upto: *upto, ids, losses: &losses };
    engine.report("job", trained).unwrap();
}

/// A loss that falls, at another pace for every sample.
fn loss(id: Id, epoch: u64) -> f32 {
    let pace = Rng::new(u64::from(id), 0, "pace").unit();
    let luck = Rng::new(u64::from(id), epoch, "luck").unit();
    (3.0 * (-(epoch as f64) * pace / 3.0).exp() + luck / 4.0) as f32
}

/// An engine with the job, where `snapshot` and what was reported since leave it.
fn start(opened: &Opened, case: &Case, place: Option<&Path>, from: Option<(&Snapshot, &Log)>) -> Engine {
    let engine = engine();
    let main = Reader::new(&engine, opened);
    let asked = case.request(opened, place);
    let packages = common::place(opened, &asked);
    match from {
        Some((snapshot, log)) => {
            engine.restore_job(main.session, asked, packages, snapshot).unwrap();
            log.iter().for_each(|one| report(&engine, one));
        }
        None => {
            engine.open_job(main.session, asked, packages).unwrap();
        }
    }
    engine
}

/// What a trainer does between epochs.
fn between(engine: &Engine, epoch: u64) {
    let ids = engine.reevaluation("job", epoch, (0, 1)).unwrap();
    let losses: Vec<f32> = ids.iter().map(|&id| loss(id, epoch + 100)).collect();
    engine.reevaluated("job", epoch, 0, (&ids, &losses), true).unwrap();
}

/// Trains for some epochs; the server is lost before each batch whose number is in `losses`.
fn train(opened: &Opened, case: &Case, packages: bool, losses: &[usize]) -> Run {
    let place = packages.then(|| tempfile::tempdir().unwrap());
    let place = place.as_ref().map(tempfile::TempDir::path);
    let mut engine = start(opened, case, place, None);
    let (mut snapshot, mut log) = (None, Log::new());
    let mut number = 0;
    let mut run = Run::new();
    for epoch in 0..EPOCHS {
        // A plan uses the packages that are complete when it is made.
        engine.packed("job", Duration::from_secs(60)).unwrap();
        between(&engine, epoch);
        let plan = common::begin(&engine, "job", epoch, (0, 1), 0);
        snapshot = engine.snapshot("job").unwrap().or(snapshot);
        log.clear();
        let mut reader = Reader::new(&engine, opened);
        let mut ahead = VecDeque::new();
        for (at, batch) in plan.ids().chunks(BATCH).enumerate() {
            if losses.contains(&number) {
                drop(reader);
                engine = start(opened, case, place, snapshot.as_ref().map(|snapshot| (snapshot, &log)));
                engine.begin_epoch("job", epoch, (0, 1), 0, true).unwrap();
                reader = Reader::new(&engine, opened);
            }
            number += 1;
            let index = |&id: &Id| Index { epoch: Some(epoch), sample: id.into() }.into_raw();
            let indices: Vec<u64> = batch.iter().map(index).collect();
            let held = reader.get(&indices).unwrap();
            reader.release(held);
            ahead.push_back((epoch, (at * BATCH + batch.len()) as u64, batch.to_vec()));
            if ahead.len() > case.ahead {
                log.extend(ahead.pop_front());
                report(&engine, &log[log.len() - 1]);
            }
        }
        ahead.iter().for_each(|one| report(&engine, one));
        let accuracy = [0.1, 0.5, 0.6, 0.6, 0.5][epoch as usize];
        engine.end_epoch("job", epoch, 0, Some(accuracy)).unwrap();
        let hash = |hash: u64, &id: &Id| hash.wrapping_mul(0x100_0000_01b3) ^ u64::from(id);
        let alone = !case.prefetch || epoch + 1 == EPOCHS;
        run.push(Epoch {
            plan: plan.ids().iter().fold(0, hash),
            counted: PlanCounters::default(),
            residents: if alone { engine.residents("job").unwrap() } else { Vec::new() },
        });
    }
    // What was served before a kill and not reported counts when its epoch is left.
    between(&engine, EPOCHS);
    common::begin(&engine, "job", EPOCHS, (0, 1), 0);
    let stats = engine.job_stats(None).remove(0);
    assert_eq!(stats.unplanned.served(), 0);
    for (epoch, counters) in stats.epochs.into_iter().take(EPOCHS as usize) {
        assert_eq!((counters.clock.abandoned, counters.clock.packages_lost), (0, 0), "{epoch}: {counters:?}");
        assert_eq!(counters.served(), counters.plan.planned, "{epoch}: {counters:?}");
        run[epoch as usize].counted = counters.plan;
    }
    run
}

/// Every strategy with every policy that a server runs.
fn cases() -> Vec<(&'static str, &'static str)> {
    let served = |entry: &&policy::Entry| !entry.offline && entry.bounded;
    let policies: Vec<_> = policy::REGISTRY.iter().filter(served).map(|entry| entry.name).collect();
    let strategies = sampling::REGISTRY.iter().map(|entry| entry.name);
    strategies.flat_map(|strategy| policies.iter().map(move |&policy| (strategy, policy))).collect()
}

/// Whether a policy takes scores at once: then what is decided ahead of them depends on time.
fn takes_scores(policy: &str) -> bool {
    ["app", "pq", "pq_lfu"].contains(&policy)
}

fn settings(strategy: &str) -> &'static [(&'static str, &'static str)] {
    match strategy {
        // Left to itself it goes by how fast storage is.
        "carousel" => &[("fresh", "0.3")],
        "hybrid" => &[("warmup_max", "1")],
        _ => &[],
    }
}

fn case() -> impl Strategy<Value = Case> {
    let any = (prop::sample::select(cases()), any::<bool>(), 0..4usize);
    any.prop_map(|((strategy, policy), prefetch, ahead)| Case {
        strategy,
        policy,
        prefetch: prefetch && !takes_scores(policy),
        settings: settings(strategy),
        ahead: if takes_scores(policy) { 0 } else { ahead },
    })
}

fn sizes() -> Vec<u64> {
    (0..403u64).map(|id| 100 + (id * 7919) % 900).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn plans_and_counts_are_those_of_an_uninterrupted_run(
        losses in prop::collection::vec(0..60usize, 1..6),
        case in case(),
    ) {
        let (opened, _) = dataset(&sizes());
        let whole = train(&opened, &case, false, &[]);
        let interrupted = train(&opened, &case, false, &losses);
        prop_assert_eq!(whole, interrupted);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn with_packages_too_although_some_were_being_made(
        losses in prop::collection::vec(0..60usize, 1..6),
        (strategy, policy) in prop_oneof![Just(("iis", "icache")), Just(("hybrid", "impact"))],
    ) {
        let (opened, _) = dataset(&sizes());
        // Read ahead, a plan is made before or after the packages of the epoch before are complete.
        let case = Case { strategy, policy, prefetch: false, settings: settings(strategy), ahead: 0 };
        let whole = train(&opened, &case, true, &[]);
        let interrupted = train(&opened, &case, true, &losses);
        prop_assert_eq!(whole, interrupted);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn with_runs_of_shards_for_packages_too(
        losses in prop::collection::vec(0..60usize, 1..6),
        (strategy, policy) in prop_oneof![Just(("iis", "icache")), Just(("hybrid", "impact"))],
        prefetch in any::<bool>(),
    ) {
        let (opened, _) = sharded(&sizes(), 60);
        let case = Case { strategy, policy, prefetch, settings: settings(strategy), ahead: 0 };
        let whole = train(&opened, &case, false, &[]);
        let interrupted = train(&opened, &case, false, &losses);
        prop_assert_eq!(whole, interrupted);
    }
}

/// Those of `cases` that a kill makes another run of, with so many batches served and not reported.
fn changed(
    cases: impl Iterator<Item = (&'static str, &'static str)>,
    ahead: usize,
) -> Vec<(&'static str, &'static str)> {
    let (opened, _) = dataset(&sizes());
    let changes = |&(strategy, policy): &(&'static str, &'static str)| {
        let case = Case { strategy, policy, prefetch: false, settings: settings(strategy), ahead };
        train(&opened, &case, false, &[]) != train(&opened, &case, false, &[5, 9, 16, 30, 31, 47])
    };
    cases.filter(changes).collect()
}

#[test]
fn every_strategy_and_policy_decides_as_an_uninterrupted_run_does() {
    assert_eq!(changed(cases().into_iter(), 0), []);
}

#[test]
fn batches_that_were_served_and_not_reported_are_not_taken_for_others() {
    assert_eq!(changed(cases().into_iter().filter(|(_, policy)| !takes_scores(policy)), 3), []);
}

#[test]
fn a_plan_that_goes_on_with_other_packages_reads_none_of_them() {
    let (opened, _) = sharded(&sizes(), 60);
    let case = Case { strategy: "iis", policy: "icache", prefetch: false, settings: &[], ahead: 0 };
    let first = start(&opened, &case, None, None);
    let mut reader = Reader::new(&first, &opened);
    let serve = |engine: &Engine, reader: &mut Reader<'_>, epoch: u64| {
        between(engine, epoch);
        let plan = engine.begin_epoch("job", epoch, (0, 1), 0, false).unwrap();
        for (at, batch) in plan.ids().chunks(BATCH).enumerate() {
            let index = |&id: &Id| Index { epoch: Some(epoch), sample: id.into() }.into_raw();
            let held = reader.get(&batch.iter().map(index).collect::<Vec<_>>()).unwrap();
            reader.release(held);
            report(engine, &(epoch, (at * BATCH + batch.len()) as u64, batch.to_vec()));
        }
        engine.end_epoch("job", epoch, 0, None).unwrap();
        let found = engine.job_stats(None).remove(0).epochs.into_iter().find(|(of, _)| *of == epoch);
        found.unwrap().1
    };
    assert!(serve(&first, &mut reader, 0).plan.package_reads > 0);
    between(&first, 1);
    first.begin_epoch("job", 1, (0, 1), 0, false).unwrap();
    let mut snapshot = first.snapshot("job").unwrap().unwrap();

    let asked = JobRequest { package_bytes: 3_500, ..case.request(&opened, None) };
    snapshot.adapt_to(&asked).unwrap();
    let second = engine();
    let mut reader = Reader::new(&second, &opened);
    let place = common::place(&opened, &asked);
    second.restore_job(reader.session, asked, place, &snapshot).unwrap();
    let old = serve(&second, &mut reader, 1);
    assert_eq!((old.plan.package_reads, old.plan.packed), (0, 0), "numbers of its packages mean others now");
    assert!(serve(&second, &mut reader, 2).plan.package_reads > 0);
}

#[test]
fn a_snapshot_that_does_not_fit_is_refused_and_nothing_is_opened() {
    let (opened, _) = dataset(&[100; 50]);
    let case = Case { strategy: "uniform", policy: "lru", prefetch: true, settings: &[], ahead: 0 };
    let asked = |cache: &str| {
        let mut asked = case.request(&opened, None);
        asked.cache = cache.parse().unwrap();
        asked
    };
    let first = start(&opened, &case, None, None);
    first.begin_epoch("job", 0, (0, 1), 0, false).unwrap();
    let snapshot = first.snapshot("job").unwrap().unwrap();
    let spoilt: [fn(&mut Snapshot); 5] = [
        |s| s.samples += 1,
        |s| s.policy = vec![1, 2, 3],
        |s| s.planner.table = vec![0; 30],
        |s| s.schedules[0].plan[0] ^= 1,
        |s| s.schedules[0].states = vec![0; 1000],
    ];
    for spoil in spoilt {
        let engine = engine();
        let main = Reader::new(&engine, &opened);
        let mut snapshot = snapshot.clone();
        spoil(&mut snapshot);
        let error = engine.restore_job(main.session, asked("25%"), None, &snapshot).unwrap_err();
        assert_eq!(error.kind, Kind::Changed, "it is the state that does not fit: {error}");
        assert!(!engine.has_job("job"));
    }
    let engine = engine();
    let main = Reader::new(&engine, &opened);
    let error = engine.restore_job(main.session, asked("30%"), None, &snapshot).unwrap_err();
    assert!(error.kind == Kind::Changed && error.message.contains("other settings"), "{error}");
}

#[test]
fn a_job_that_is_granted_less_than_before_keeps_less() {
    let (opened, _) = dataset(&[1000; 400]);
    let first = engine();
    let mut reader = Reader::new(&first, &opened);
    first.open_job(reader.session, request(&opened, "50%", "lru"), None).unwrap();
    let plan = first.begin_epoch("job", 0, (0, 1), 0, false).unwrap();
    for batch in plan.ids().chunks(BATCH) {
        let indices: Vec<u64> =
            batch.iter().map(|&id| Index { epoch: Some(0), sample: id.into() }.into_raw()).collect();
        let held = reader.get(&indices).unwrap();
        reader.release(held);
    }
    let snapshot = first.snapshot("job").unwrap().unwrap();
    assert_eq!(first.job_stats(None)[0].resident_bytes, 200_000);
    let second = Engine::new(hotset_engine::Config { memory: Some(80_000), ..config() });
    let reader = Reader::new(&second, &opened);
    let grant = second.restore_job(reader.session, request(&opened, "50%", "lru"), None, &snapshot).unwrap();
    let stats = second.job_stats(None).remove(0);
    assert_eq!((grant.granted, stats.capacity), (80_000, 80_000));
    assert!(stats.resident_bytes <= 80_000, "{stats:?}");
    assert_eq!(stats.resident_samples * 1000, stats.resident_bytes);
}
