//! Trainers that report nonsense, too much, or nothing; and requests that must not wait for plans.

use std::time::Duration;

use crate::common::{Reader, dataset, engine, patient, request, within};
use hotset_core::counters::Counters;
use hotset_core::sampling::Plan;
use hotset_core::{Id, Index, sampling};
use hotset_engine::{Engine, JobRequest, Trained};
use hotset_store::Opened;

const SAMPLES: usize = 300;
const BATCH: usize = 20;
/// What no trainer should report.
const NONSENSE: [f32; 4] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.0];

fn sizes() -> Vec<u64> {
    (0..SAMPLES as u64).map(|id| 60 + id * 7919 % 90).collect()
}

fn asked(opened: &Opened, strategy: &str) -> JobRequest {
    let mut asked = request(opened, "20%", "lru");
    (asked.strategy, asked.policy) = (Some(strategy.into()), None);
    asked
}

fn indices(epoch: u64, ids: &[Id]) -> Vec<u64> {
    ids.iter().map(|&id| Index { epoch: Some(epoch), sample: id.into() }.into_raw()).collect()
}

fn counters(engine: &Engine, epoch: u64) -> Counters {
    let found = engine.job_stats(Some("job")).remove(0).epochs.into_iter().find(|(of, _)| *of == epoch);
    found.map(|(_, counters)| counters).unwrap_or_default()
}

/// Serves a rank's part of `plan` and reports what `loss` says; how many scores were taken, and how many refused.
fn train(
    engine: &Engine,
    reader: &mut Reader<'_>,
    plan: &Plan,
    rank: u32,
    loss: impl Fn(usize) -> f32,
) -> (u64, u64) {
    let (epoch, ids) = (plan.epoch(), plan.rank_ids(rank).collect::<Vec<Id>>());
    let (mut taken, mut refused, mut upto) = (0, 0, 0);
    for batch in ids.chunks(BATCH) {
        let held = reader.get_as(rank, &indices(epoch, batch)).unwrap();
        reader.release(held);
        let losses: Vec<f32> = (upto..upto + batch.len()).map(&loss).collect();
        upto += batch.len();
        let trained = Trained { epoch, rank, upto: upto as u64, ids: batch, losses: &losses };
        let (some, others) = engine.report("job", trained).unwrap();
        (taken, refused) = (taken + some, refused + others);
    }
    (taken, refused)
}

/// Re-evaluates what `epoch` asks a rank for.
fn reevaluate(engine: &Engine, epoch: u64, (rank, world): (u32, u32), loss: f32) -> usize {
    let ids = engine.reevaluation("job", epoch, (rank, world)).unwrap();
    engine.reevaluated("job", epoch, rank, (&ids, &vec![loss; ids.len()]), true).unwrap();
    ids.len()
}

#[test]
fn losses_that_are_no_losses_are_refused_counted_and_never_planned_from() {
    let (opened, _) = dataset(&sizes());
    for entry in sampling::drawing() {
        for prefetch in [false, true] {
            let engine = engine();
            let mut reader = Reader::new(&engine, &opened);
            let mut asked = asked(&opened, entry.name);
            asked.prefetch = prefetch;
            engine.open_job(reader.session, asked, None).unwrap();
            for epoch in 0..4 {
                reevaluate(&engine, epoch, (0, 1), f32::NAN);
                let plan = engine.begin_epoch("job", epoch, (0, 1), 0, false).unwrap();
                assert!(plan.len() >= SAMPLES / 2, "{}: {} slots", entry.name, plan.len());
                // Every other one in the first epoch, all in the second.
                let bad = |slot: usize| epoch == 1 || (epoch == 0 && slot % 2 == 1);
                let loss = |slot: usize| if bad(slot) { NONSENSE[slot / 2 % 4] } else { 1.0 + slot as f32 };
                let (taken, refused) = train(&engine, &mut reader, &plan, 0, loss);
                let loud = |slot: &usize| plan.weight(*slot) > 0.0;
                let expected = (0..plan.len()).filter(loud).filter(|slot| bad(*slot)).count() as u64;
                let all = (0..plan.len()).filter(loud).count() as u64;
                // Losses of a batch that are scored together are refused together.
                let together = ["pads", "batchloss"].contains(&entry.name);
                assert!(refused == expected || together && refused >= expected, "{}: {refused}", entry.name);
                assert_eq!(taken + refused, all, "{}", entry.name);
                let counted = counters(&engine, epoch);
                assert_eq!(
                    (counted.clock.reported, counted.clock.rejected_scores),
                    (taken, refused),
                    "{}",
                    entry.name
                );
            }
            let scores = engine.scores("job").unwrap();
            let known = scores.iter().filter(|score| !score.is_nan());
            assert!(known.clone().count() > 0, "{}", entry.name);
            assert!(known.clone().all(|score| score.is_finite() && *score >= 0.0), "{}", entry.name);
        }
    }
}

#[test]
fn a_rank_that_stops_reporting_and_never_comes_back_is_waited_for_but_not_for_ever() {
    let (opened, _) = dataset(&sizes());
    // `pads` and `hybrid` wait for what comes after an epoch, the others for losses.
    for strategy in ["iis", "cis", "pads", "hybrid", "infobatch"] {
        let engine = patient(Duration::from_millis(300));
        let mut reader = Reader::new(&engine, &opened);
        engine.open_job(reader.session, asked(&opened, strategy), None).unwrap();
        for rank in [0, 1] {
            assert_eq!(reevaluate(&engine, 0, (rank, 2), 1.0), 0);
            engine.begin_epoch("job", 0, (rank, 2), 0, false).unwrap();
        }
        let plan = engine.begin_epoch("job", 0, (0, 2), 0, false).unwrap();
        train(&engine, &mut reader, &plan, 0, |slot| 1.0 + slot as f32);
        assert_eq!(counters(&engine, 1).clock.overdue, 0, "{strategy}");

        let next = within(strategy, || {
            reevaluate(&engine, 1, (0, 2), 1.0);
            engine.begin_epoch("job", 1, (0, 2), 0, false).unwrap()
        });
        assert_eq!(counters(&engine, 1).clock.overdue, 1, "{strategy}");
        train(&engine, &mut reader, &next, 0, |slot| 1.0 + slot as f32);

        // Should it come after all, its part of the plan lies there, as long as the others'.
        let late = within(strategy, || engine.begin_epoch("job", 1, (1, 2), 0, false).unwrap());
        assert_eq!(late.rank_ids(1).count(), next.rank_ids(0).count(), "{strategy}");
        train(&engine, &mut reader, &late, 1, |slot| 1.0 + slot as f32);
        assert_eq!(counters(&engine, 1).served(), next.len() as u64, "{strategy}");
    }
}

#[test]
fn plans_are_the_same_whichever_rank_trains_first() {
    let (opened, _) = dataset(&sizes());
    // How many batches each rank trains before the other has its turn: with all of them, it has reported the epoch before
    // the other begins it. The second goes first where the first has none.
    let planned = |strategy: &str, turns: [usize; 2], prefetch: bool| {
        let engine = patient(Duration::from_secs(3600));
        let mut reader = Reader::new(&engine, &opened);
        let mut asked = asked(&opened, strategy);
        asked.prefetch = prefetch;
        engine.open_job(reader.session, asked, None).unwrap();
        let mut plans = Vec::new();
        // One that plans no epoch ahead goes back once: what it had planned of the future that it leaves is known.
        let epochs: &[u64] = if prefetch { &[0, 1, 2, 3] } else { &[0, 1, 2, 3, 1, 2, 3] };
        for (number, &epoch) in epochs.iter().enumerate() {
            let loss = |id: Id| ((u64::from(id) * 7919 + epoch * 104_729) % 1009) as f32;
            let mut upto = [0, 0];
            let mut parts: [Option<Vec<Id>>; 2] = [None, None];
            let order = if turns[0] == 0 { [1, 0] } else { [0, 1] };
            while upto.iter().zip(&parts).any(|(upto, ids)| ids.as_ref().is_none_or(|ids| *upto < ids.len()))
            {
                for rank in order {
                    let ids = parts[rank].get_or_insert_with(|| {
                        let plan = within(strategy, || {
                            engine.begin_epoch("job", epoch, (rank as u32, 2), 0, false).unwrap()
                        });
                        if plans.len() == number {
                            plans.push(plan.ids().to_vec());
                        }
                        plan.rank_ids(rank as u32).collect()
                    });
                    for _ in 0..turns[rank].max(1) {
                        let batch = &ids[upto[rank]..ids.len().min(upto[rank] + BATCH)];
                        if batch.is_empty() {
                            break;
                        }
                        let held = reader.get_as(rank as u32, &indices(epoch, batch)).unwrap();
                        reader.release(held);
                        upto[rank] += batch.len();
                        let losses: Vec<f32> = batch.iter().map(|&id| loss(id)).collect();
                        let (rank, upto) = (rank as u32, upto[rank] as u64);
                        let trained = Trained { epoch, rank, upto, ids: batch, losses: &losses };
                        engine.report("job", trained).unwrap();
                    }
                }
            }
        }
        plans
    };
    for strategy in ["iis", "cis", "infobatch"] {
        for prefetch in [false, true] {
            let turns = planned(strategy, [1, 1], prefetch);
            assert!(turns[1] != turns[2] && turns[2] != turns[3], "{strategy}");
            for other in [[usize::MAX, 1], [0, usize::MAX], [3, 1], [2, 5]] {
                let same = planned(strategy, other, prefetch) == turns;
                assert!(same, "{strategy}, {other:?}, prefetch {prefetch}");
            }
        }
    }
}

#[test]
fn a_rank_that_has_not_begun_is_waited_for_and_once_it_is_overdue_no_longer() {
    let (opened, _) = dataset(&sizes());
    let engine = patient(Duration::from_millis(300));
    let mut reader = Reader::new(&engine, &opened);
    engine.open_job(reader.session, asked(&opened, "iis"), None).unwrap();
    for epoch in 0..3 {
        let plan = within("iis", || engine.begin_epoch("job", epoch, (0, 2), 0, false).unwrap());
        train(&engine, &mut reader, &plan, 0, |slot| 1.0 + slot as f32);
    }
    let overdue = |epochs: std::ops::Range<u64>| -> Vec<u64> {
        epochs.map(|epoch| counters(&engine, epoch).clock.overdue).collect()
    };
    assert_eq!(overdue(0..3), [0, 1, 0], "the first plan is made without losses");
    // It comes after all, and is waited for again.
    let plan = within("iis", || engine.begin_epoch("job", 3, (1, 2), 0, false).unwrap());
    engine.begin_epoch("job", 3, (0, 2), 0, false).unwrap();
    train(&engine, &mut reader, &plan, 0, |slot| 1.0 + slot as f32);
    within("iis", || engine.begin_epoch("job", 4, (0, 2), 0, false).unwrap());
    assert_eq!(overdue(3..5), [0, 1]);
}

#[test]
fn a_rank_that_ends_in_the_middle_of_its_reevaluation_is_not_waited_for_for_ever() {
    let (opened, _) = dataset(&sizes());
    let engine = patient(Duration::from_millis(300));
    let mut reader = Reader::new(&engine, &opened);
    let mut asked = asked(&opened, "hybrid");
    asked.strategy_settings = [("warmup_max".to_owned(), "1".to_owned())].into();
    engine.open_job(reader.session, asked, None).unwrap();
    for rank in [0, 1] {
        engine.begin_epoch("job", 0, (rank, 2), 0, false).unwrap();
    }
    let plan = engine.begin_epoch("job", 0, (0, 2), 0, false).unwrap();
    for rank in [0, 1] {
        train(&engine, &mut reader, &plan, rank, |slot| 1.0 + slot as f32);
    }
    let lengths: Vec<usize> = std::thread::scope(|scope| {
        let ask = |rank: u32| {
            let engine = &engine;
            scope.spawn(move || engine.reevaluation("job", 1, (rank, 2)).unwrap())
        };
        let (first, second) = (ask(0), ask(1));
        let own = first.join().unwrap();
        engine.reevaluated("job", 1, 0, (&own, &vec![1.0; own.len()]), true).unwrap();
        // The second has its share, and is never heard of again.
        vec![own.len(), second.join().unwrap().len()]
    });
    assert!(lengths.iter().all(|length| *length > 0), "{lengths:?}");
    let plan = within("hybrid", || engine.begin_epoch("job", 1, (0, 2), 0, false).unwrap());
    assert_eq!(counters(&engine, 1).clock.overdue, 1);
    train(&engine, &mut reader, &plan, 0, |slot| 1.0 + slot as f32);
}

#[test]
fn while_a_plan_is_made_batches_are_served_and_reports_are_taken_and_none_is_lost() {
    let (opened, _) = dataset(&sizes());
    for entry in sampling::drawing() {
        for prefetch in [false, true] {
            let engine = engine();
            let mut reader = Reader::new(&engine, &opened);
            let mut asked = asked(&opened, entry.name);
            asked.prefetch = prefetch;
            engine.open_job(reader.session, asked, None).unwrap();
            let plan = engine.begin_epoch("job", 0, (0, 1), 0, false).unwrap();
            // What makes the next plan, ahead of its time or not, cannot go on until this is over.
            let (taken, refused) = engine
                .without_plans("job", || {
                    within(entry.name, || train(&engine, &mut reader, &plan, 0, |slot| 1.0 + slot as f32))
                })
                .unwrap();
            assert_eq!((taken, refused), (plan.len() as u64, 0), "{}", entry.name);
            let counted = counters(&engine, 0);
            assert_eq!(counted.served(), plan.len() as u64, "{}", entry.name);
            reevaluate(&engine, 1, (0, 1), 1.0);
            let next = within(entry.name, || engine.begin_epoch("job", 1, (0, 1), 0, false).unwrap());
            let scores = engine.scores("job").unwrap();
            let heard = plan.ids().iter().filter(|id| !scores[**id as usize].is_nan()).count();
            assert_eq!(heard, plan.len(), "{}: reports that came meanwhile are not lost", entry.name);
            train(&engine, &mut reader, &next, 0, |_| 1.0);
        }
    }
}

#[test]
fn no_lock_is_held_for_more_than_a_slice_of_the_reported_values() {
    let (opened, _) = dataset(&sizes());
    // `app` takes scores at once, under the lock that requests need.
    for (strategy, policy) in [("iis", "icache"), ("pads", "app"), ("hybrid", "impact")] {
        let engine = engine();
        let reader = Reader::new(&engine, &opened);
        let mut asked = asked(&opened, strategy);
        asked.policy = Some(policy.into());
        engine.open_job(reader.session, asked, None).unwrap();
        engine.begin_epoch("job", 0, (0, 1), 0, false).unwrap();
        assert_eq!(engine.stats().most_applied, 0);
        let ids: Vec<Id> = (0..100_000).map(|at| at % SAMPLES as Id).collect();
        let losses = vec![1.0; ids.len()];
        let trained = Trained { epoch: 0, rank: 0, upto: 100_000, ids: &ids, losses: &losses };
        assert_eq!(engine.report("job", trained).unwrap(), (100_000, 0));
        let most = engine.stats().most_applied;
        assert!(most > 0 && most <= 4_096, "{strategy}+{policy}: {most}");
    }
}

#[test]
fn a_training_that_starts_over_is_heard_though_it_reports_earlier_epochs() {
    let (opened, _) = dataset(&sizes());
    let engine = engine();
    let mut reader = Reader::new(&engine, &opened);
    engine.open_job(reader.session, asked(&opened, "iis"), None).unwrap();
    for epoch in 0..3 {
        let plan = engine.begin_epoch("job", epoch, (0, 1), 0, false).unwrap();
        train(&engine, &mut reader, &plan, 0, |_| 5.0);
    }
    let plan = engine.begin_epoch("job", 0, (0, 1), 0, false).unwrap();
    assert_eq!(plan.len(), SAMPLES, "it warms up again");
    train(&engine, &mut reader, &plan, 0, |position| if position % 2 == 0 { 1.0 } else { 2.0 });
    assert!(engine.scores("job").unwrap().iter().all(|score| [1.0, 2.0].contains(score)));
    let next = engine.begin_epoch("job", 1, (0, 1), 0, false).unwrap();
    let second: Vec<bool> =
        next.ids().iter().map(|id| plan.ids().iter().position(|p| p == id).unwrap() % 2 == 1).collect();
    let hard = second.iter().filter(|hard| **hard).count();
    assert!(hard * 2 > next.len(), "the next plan goes by what was reported now: {hard} of {}", next.len());
}

#[test]
fn samples_told_twice_before_an_epoch_are_known_by_what_was_told_last() {
    let (opened, _) = dataset(&sizes());
    let planned = |told: &[fn(Id) -> f32]| {
        let engine = engine();
        let mut reader = Reader::new(&engine, &opened);
        engine.open_job(reader.session, asked(&opened, "realtime"), None).unwrap();
        let plan = engine.begin_epoch("job", 0, (0, 1), 0, false).unwrap();
        train(&engine, &mut reader, &plan, 0, |position| position as f32);
        for loss in told {
            let ids = engine.reevaluation("job", 1, (0, 1)).unwrap();
            assert_eq!(ids.len(), SAMPLES);
            let losses: Vec<f32> = ids.iter().map(|&id| loss(id)).collect();
            engine.reevaluated("job", 1, 0, (&ids, &losses), true).unwrap();
        }
        engine.begin_epoch("job", 1, (0, 1), 0, false).unwrap().ids().to_vec()
    };
    let rising: fn(Id) -> f32 = |id| id as f32;
    let falling: fn(Id) -> f32 = |id| (SAMPLES as Id - id) as f32;
    let last = planned(&[falling]);
    assert_eq!(planned(&[rising, falling]), last);
    assert_ne!(planned(&[falling, rising]), last, "what was told changes the plan");
    let distinct: std::collections::HashSet<Id> = last.iter().copied().collect();
    assert_eq!(distinct.len(), last.len(), "no sample is served twice");
}

#[test]
fn a_trainer_that_never_reevaluates_is_told_so_once_and_goes_on_as_iis_with_icache() {
    let (opened, _) = dataset(&sizes());
    let run = |strategy: &str, warmup: &str| {
        let engine = engine();
        let mut reader = Reader::new(&engine, &opened);
        let mut asked = asked(&opened, strategy);
        asked.strategy_settings = [(warmup.to_owned(), "1".to_owned())].into();
        engine.open_job(reader.session, asked, None).unwrap();
        let mut told = 0;
        let counted: Vec<_> = (0..6)
            .map(|epoch| {
                let plan = engine.begin_epoch("job", epoch, (0, 1), 0, false).unwrap();
                let untold = engine.untold("job").unwrap();
                told += untold.iter().filter(|remark| remark.name == "reevaluate").count();
                let hard = |position: usize| (plan.ids()[position] * 31 % 97) as f32 + epoch as f32 / 10.0;
                train(&engine, &mut reader, &plan, 0, hard);
                let counters = counters(&engine, epoch);
                (counters.plan.planned, counters.plan.hit, counters.plan.single, counters.plan.storage_reads)
            })
            .collect();
        let noted = engine.job_stats(Some("job")).remove(0).remarks;
        let noted = noted.iter().any(|remark| remark.contains("`sampler.reevaluate(model, loss)`"));
        (counted, (told, noted))
    };
    let (hybrid, told) = run("hybrid", "warmup_max");
    let (iis, untold) = run("iis", "warmup");
    assert_eq!(hybrid, iis, "planned, hit, single and read in each epoch");
    assert!(hybrid[5].1 > hybrid[1].1, "the cache follows what is hard: {hybrid:?}");
    assert_eq!((told, untold), ((1, true), (0, false)));
}
