//! Packages as they are made: counts that are the simulator's, worn ones that are moved, ones that come late.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::{self, Reader, dataset, engine};
use crate::packages::{
    BATCH, BEFORE, SAMPLES, WAIT, asked, counters, files, get_one, going, loss, report_one, serve_one, sizes,
    stats, train,
};
use hotset_core::counters::PlanCounters;
use hotset_core::packages::Origin;
use hotset_core::policy::{self, Sizes};
use hotset_core::run::{self, Inputs, Run};
use hotset_core::sampling;
use hotset_engine::{Engine, JobRequest};
use hotset_store::Opened;

/// What was counted of each epoch's plan.
fn counted(engine: &Engine) -> Vec<PlanCounters> {
    stats(engine).epochs.into_iter().map(|(_, counters)| counters.plan).collect()
}

/// The same training in the simulator.
fn simulated(opened: &Opened, request: &JobRequest, epochs: u64) -> Vec<PlanCounters> {
    let strategy = sampling::find(request.strategy.as_deref().unwrap()).unwrap();
    let policy = policy::find(request.policy.as_deref().unwrap()).unwrap();
    let mut run = Run::new(run::Config {
        strategy,
        strategy_values: strategy.values([]).unwrap(),
        policy,
        policy_values: policy.values([]).unwrap(),
        sizes: Arc::clone(&opened.catalog) as Arc<dyn Sizes>,
        capacity: request.cache.of(opened.catalog.bytes()),
        seed: request.seed,
        epochs: None,
        world: 1,
        pad: false,
        packages: Some(Origin::Made(request.package_bytes)),
    })
    .unwrap();
    (0..epochs)
        .map(|epoch| {
            if let Some(before) = epoch.checked_sub(1) {
                run.close(before);
            }
            let plan = run.begin(epoch, &Inputs::default());
            while run.decide().is_some() {}
            for (number, batch) in plan.ids().chunks(BATCH).enumerate() {
                let losses: Vec<f32> = batch.iter().map(|&id| loss(id, epoch)).collect();
                run.report(epoch, plan.rank_len(), number * BATCH, batch, &losses);
            }
            run.counters().plan.clone()
        })
        .collect()
}

/// Trains with three readers at a time, as a loader's workers are.
fn train_at_once(engine: &Engine, readers: &mut [Reader<'_>], epochs: u64) {
    for epoch in 0..epochs {
        let plan = engine.begin_epoch("job", epoch, (0, 1), 0, false).unwrap();
        let batches: Vec<usize> = (0..plan.ids().chunks(BATCH).len()).collect();
        for some in batches.chunks(readers.len()) {
            std::thread::scope(|scope| {
                for (reader, &number) in readers.iter_mut().zip(some) {
                    let plan = &plan;
                    scope.spawn(move || get_one(reader, plan, number));
                }
            });
            some.iter().for_each(|&number| report_one(engine, &plan, number));
        }
    }
}

#[test]
fn with_packages_a_server_counts_what_the_simulator_does_run_after_run_read_ahead_or_not() {
    const EPOCHS: u64 = 8;
    let mut expected: Option<Vec<PlanCounters>> = None;
    for (run, prefetch) in [(1, true), (2, true), (3, true), (4, false)] {
        let place = tempfile::tempdir().unwrap();
        let (opened, store) = dataset(&sizes());
        store.jitter.store(run, Ordering::SeqCst);
        let request = JobRequest { epochs: Some(EPOCHS), ..asked(&opened, place.path(), prefetch) };
        let simulated = expected.get_or_insert_with(|| {
            let same = JobRequest { epochs: None, ..request.clone() };
            simulated(&opened, &same, EPOCHS)
        });
        let engine = engine();
        let mut readers: Vec<Reader<'_>> = (0..3).map(|_| Reader::new(&engine, &opened)).collect();
        let at = common::place(&opened, &request);
        engine.open_job(readers[0].session, request, at).unwrap();
        train_at_once(&engine, &mut readers, EPOCHS);
        for (epoch, (live, simulated)) in counted(&engine).iter().zip(simulated.iter()).enumerate() {
            assert_eq!(live, simulated, "epoch {epoch}, run {run}, read ahead: {prefetch}");
        }
        let packed: u64 = simulated.iter().map(|counters| counters.packed).sum();
        let repacked: u64 = simulated[3..].iter().map(|counters| counters.pack_bytes_written).sum();
        assert!(packed > 500 && repacked > 0, "{packed} packed, {repacked} written again");
    }
}

#[test]
fn a_worn_package_is_moved_and_its_object_is_deleted() {
    let place = tempfile::tempdir().unwrap();
    let (opened, _) = dataset(&sizes());
    let engine = engine();
    let mut reader = going(&engine, &opened, place.path());
    let first: Vec<u32> = files(place.path()).into_iter().map(|(number, _)| number).collect();
    let bytes = || files(place.path()).iter().map(|(_, path)| fs::metadata(path).unwrap().len()).sum::<u64>();
    for epoch in BEFORE..BEFORE + 20 {
        train(&engine, &mut reader, epoch, false);
        // Beside the samples an index of 24 bytes for each, which is much for samples as small as these.
        let whole = opened.catalog.bytes() + 24 * SAMPLES as u64;
        assert!(bytes() * 10 <= whole * 13, "{} of {whole} after epoch {epoch}", bytes());
    }
    let left: Vec<u32> = files(place.path()).into_iter().map(|(number, _)| number).collect();
    let gone = first.iter().filter(|number| !left.contains(number)).count();
    assert!(gone > 5, "{gone} of {} retired", first.len());
    let packages = stats(&engine).packages.unwrap();
    assert!(left.len() as u64 <= packages.packages + 6, "{} of {packages:?}", left.len());
}

/// An epoch's counters where nothing disturbs it, and where no package is written before it is half asked for.
#[test]
fn a_plan_waits_for_a_package_that_is_written_late_and_is_not_another() {
    let run = |late: bool| {
        let place = tempfile::tempdir().unwrap();
        let (opened, _) = dataset(&sizes());
        let engine = engine();
        let mut reader = Reader::new(&engine, &opened);
        let request = asked(&opened, place.path(), false);
        let at = common::place(&opened, &request);
        engine.open_job(reader.session, request, at).unwrap();
        let epoch = |reader: &mut Reader<'_>, epoch: u64| {
            let plan = engine.begin_epoch("job", epoch, (0, 1), 0, false).unwrap();
            (0..plan.ids().chunks(BATCH).len()).for_each(|number| serve_one(&engine, reader, &plan, number));
            plan.ids().to_vec()
        };
        epoch(&mut reader, 0);
        let ids = if late {
            std::thread::scope(|scope| {
                let waits = engine.without_writes("job", || {
                    epoch(&mut reader, 1);
                    let waits = scope.spawn(|| epoch(&mut reader, 2));
                    common::training::settles("the next epoch reads packages", || {
                        let epochs = stats(&engine).epochs;
                        epochs.iter().any(|(of, counters)| *of >= 2 && counters.plan.package_reads > 0)
                    });
                    assert!(files(place.path()).is_empty() && stats(&engine).packages.unwrap().packing > 5);
                    waits
                });
                waits.unwrap().join().unwrap()
            })
        } else {
            epoch(&mut reader, 1);
            engine.packed("job", WAIT).unwrap();
            epoch(&mut reader, 2)
        };
        engine.packed("job", WAIT).unwrap();
        assert_eq!(stats(&engine).packages.unwrap().packing, 0);
        (ids, counted(&engine))
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn a_package_that_is_not_written_in_time_is_overdue_and_its_samples_are_read_alone() {
    let place = tempfile::tempdir().unwrap();
    let (opened, _) = dataset(&sizes());
    let engine = common::patient(Duration::ZERO);
    let mut reader = Reader::new(&engine, &opened);
    let request = asked(&opened, place.path(), false);
    let at = common::place(&opened, &request);
    engine.open_job(reader.session, request, at).unwrap();
    let mut epoch = |epoch: u64| {
        let plan = engine.begin_epoch("job", epoch, (0, 1), 0, false).unwrap();
        (0..plan.ids().chunks(BATCH).len()).for_each(|number| serve_one(&engine, &mut reader, &plan, number));
    };
    epoch(0);
    engine
        .without_writes("job", || {
            epoch(1);
            epoch(2);
        })
        .unwrap();
    let late = counters(&engine, 2);
    // What the packer holds meanwhile is at hand.
    assert!(late.clock.overdue > 5 && late.clock.overdue <= late.plan.package_reads, "{late:?}");
    engine.packed("job", WAIT).unwrap();
    epoch(3);
    let after = counters(&engine, 3);
    assert!(
        after.plan.packed > 100 && after.clock.overdue == 0 && after.clock.packages_lost == 0,
        "{after:?}"
    );
}

#[test]
fn packages_follow_the_cache_unless_their_size_is_asked_for() {
    let (opened, _) = dataset(&vec![2_000; 2_000]);
    for (cache, asked_for, remark) in [
        ("20%", 0, None),
        ("10%", 0, Some("an eighth of the cache of 390.6 KiB is less than 64 KiB")),
        ("10%", 20_000, None),
        ("10%", 1 << 20, Some("two packages of 1 MiB are more than a quarter of the cache")),
    ] {
        let place = tempfile::tempdir().unwrap();
        let engine = engine();
        let mut reader = Reader::new(&engine, &opened);
        let mut request = asked(&opened, place.path(), false);
        (request.cache, request.package_bytes) = (cache.parse().unwrap(), asked_for);
        let at = common::place(&opened, &request);
        engine.open_job(reader.session, request, at).unwrap();
        let remarks = stats(&engine).remarks;
        match remark {
            None => assert_eq!(remarks, Vec::<String>::new()),
            Some(said) => assert!(remarks.len() == 1 && remarks[0].contains(said), "{remarks:?}"),
        }
        if cache == "20%" {
            (0..2).for_each(|epoch| {
                train(&engine, &mut reader, epoch, false);
            });
            // An eighth of 800,000 bytes.
            let lengths: Vec<u64> =
                files(place.path()).iter().map(|(_, path)| fs::metadata(path).unwrap().len()).collect();
            assert!(lengths.len() > 20 && lengths.iter().all(|length| (100_000..200_000).contains(length)));
        }
    }
}
