//! Orders of events that once went wrong: stragglers, resumed ranks, replaced plans, jobs beside each other.

use std::time::Duration;

use crate::common::{Reader, dataset, engine, epoch_indices_of, request};
use hotset_core::Index;
use hotset_core::sampling::Plan;

fn indices(plan: &Plan, epoch: u64, rank: u32) -> Vec<u64> {
    plan.rank_ids(rank).map(|id| Index { epoch: Some(epoch), sample: id.into() }.into_raw()).collect()
}

#[test]
fn stragglers_of_a_rank_that_left_get_their_own_samples() {
    let (opened, _) = dataset(&[1000; 2000]);
    let engine = engine();
    let main = Reader::new(&engine, &opened);
    let mut asked = request(&opened, "0%", "lru");
    asked.prefetch = false;
    engine.open_job(main.session, asked, None).unwrap();
    let plan = engine.begin_epoch("job", 0, (0, 2), 0, false).unwrap();
    engine.begin_epoch("job", 0, (1, 2), 0, false).unwrap();
    engine.begin_epoch("job", 1, (0, 2), 0, false).unwrap();
    let late = indices(&plan, 0, 0);
    std::thread::scope(|scope| {
        for worker in 0..6 {
            let (late, engine, opened) = (&late, &engine, &opened);
            scope.spawn(move || {
                let mut reader = Reader::new(engine, opened);
                for &index in late.iter().skip(worker).step_by(6) {
                    let held = reader.get(&[index]).unwrap();
                    reader.release(held);
                }
            });
        }
    });
    let stats = engine.job_stats(None).remove(0);
    assert_eq!((stats.unplanned.served(), stats.epochs[0].1.served()), (1000, 0));
}

#[test]
fn ranks_that_resume_in_the_middle_leave_nothing_behind() {
    let (opened, _) = dataset(&[10_000; 2000]);
    let engine = engine();
    let main = Reader::new(&engine, &opened);
    engine.open_job(main.session, request(&opened, "5%", "minio"), None).unwrap();
    for rank in 0..2 {
        engine.begin_epoch("job", 3, (rank, 2), 800, false).unwrap();
    }
    for epoch in 4..7 {
        for rank in 0..2 {
            engine.begin_epoch("job", epoch, (rank, 2), 0, false).unwrap();
        }
    }
    engine.close_job(main.session, "job");
    while engine.stats().reads_in_flight > 0 {
        std::thread::yield_now();
    }
    assert_eq!(engine.stats().occupied, 0);
}

#[test]
fn a_run_resumed_in_the_middle_reads_ahead_again() {
    let (opened, _) = dataset(&[100_000; 2000]);
    let first = engine();
    let main = Reader::new(&first, &opened);
    let asked = request(&opened, "5%", "minio");
    first.open_job(main.session, asked.clone(), None).unwrap();
    first.begin_epoch("job", 0, (0, 1), 0, false).unwrap();
    let snapshot = first.snapshot("job").unwrap().unwrap();
    let second = engine();
    let mut reader = Reader::new(&second, &opened);
    second.restore_job(reader.session, asked, None, &snapshot).unwrap();
    let plan = second.begin_epoch("job", 0, (0, 1), 1000, false).unwrap();
    for (epoch, from) in [(0, 1000), (1, 0)] {
        let plan =
            if epoch == 0 { plan.clone() } else { second.begin_epoch("job", 1, (0, 1), 0, false).unwrap() };
        for batch in indices(&plan, epoch, 0)[from..].chunks(50) {
            let held = reader.get(batch).unwrap();
            reader.release(held);
            while second.stats().reads_in_flight > 0 {
                std::thread::yield_now();
            }
        }
    }
    let late = second.job_stats(None)[0].epochs.iter().find(|(epoch, _)| *epoch == 1).unwrap().1.clock.late;
    assert!(late < 1000, "{late} of 2000 servings were waited for: nothing is read ahead");
}

#[test]
fn a_job_restored_beside_another_takes_nothing_from_it() {
    let (opened, _) = dataset(&[1000; 1000]);
    let first = engine();
    let main = Reader::new(&first, &opened);
    let asked = request(&opened, "100%", "lru");
    first.open_job(main.session, asked.clone(), None).unwrap();
    first.begin_epoch("job", 0, (0, 1), 0, false).unwrap();
    let snapshot = first.snapshot("job").unwrap().unwrap();

    let second = engine();
    let mut other = Reader::new(&second, &opened);
    other.job = "other";
    let mut beside = request(&opened, "100%", "minio");
    beside.job = "other".into();
    second.open_job(other.session, beside, None).unwrap();
    let held = other.get(&epoch_indices_of(&second, "other", 0)).unwrap();
    other.release(held);
    let mut reader = Reader::new(&second, &opened);
    second.restore_job(reader.session, asked, None, &snapshot).unwrap();
    let plan = second.begin_epoch("job", 0, (0, 1), 0, true).unwrap();
    let held = reader.get(&indices(&plan, 0, 0)[..100]).unwrap();
    reader.release(held);
    second.close_job(reader.session, "job");
    let held = other.get(&epoch_indices_of(&second, "other", 1)).unwrap();
    other.release(held);
    let stats = second.job_stats(Some("other")).remove(0);
    let again = &stats.epochs.iter().find(|(epoch, _)| *epoch == 1).unwrap().1;
    assert_eq!(again.plan.hit, 1000, "what the other job keeps is still there");
    second.close_job(other.session, "other");
    assert_eq!(second.stats().occupied, 0);
}

#[test]
fn a_reader_that_waits_while_its_epoch_is_planned_anew_disturbs_nothing() {
    let (opened, store) = dataset(&[1000; 100]);
    let engine = engine();
    let main = Reader::new(&engine, &opened);
    let mut asked = request(&opened, "0%", "lru");
    asked.prefetch = false;
    engine.open_job(main.session, asked, None).unwrap();
    let plan = engine.begin_epoch("job", 0, (0, 1), 0, false).unwrap();
    let last = indices(&plan, 0, 0)[99];
    store.hold();
    std::thread::scope(|scope| {
        let stale = scope.spawn(|| {
            let mut reader = Reader::new(&engine, &opened);
            let held = reader.get(&[last]).unwrap();
            reader.release(held);
        });
        while engine.stats().reads_in_flight == 0 {
            std::thread::yield_now();
        }
        engine.begin_epoch("job", 1, (0, 1), 0, false).unwrap();
        engine.begin_epoch("job", 0, (0, 3), 0, false).unwrap();
        store.let_go();
        stale.join().unwrap();
    });
    engine.close_job(main.session, "job");
    assert_eq!(engine.stats().occupied, 0);
}

#[test]
fn a_restored_job_goes_on_with_another_number_of_ranks() {
    let (opened, _) = dataset(&[1000; 100]);
    let first = engine();
    let main = Reader::new(&first, &opened);
    let asked = request(&opened, "50%", "minio");
    first.open_job(main.session, asked.clone(), None).unwrap();
    for rank in 0..4 {
        first.begin_epoch("job", 5, (rank, 4), 0, false).unwrap();
    }
    let snapshot = first.snapshot("job").unwrap().unwrap();
    let second = engine();
    let mut reader = Reader::new(&second, &opened);
    second.restore_job(reader.session, asked, None, &snapshot).unwrap();
    second.begin_epoch("job", 4, (0, 2), 0, false).unwrap();
    let plan = second.begin_epoch("job", 5, (0, 2), 0, false).unwrap();
    assert_eq!(plan.rank_len(), 50);
    let held = reader.get(&indices(&plan, 5, 0)).unwrap();
    reader.release(held);
    assert_eq!(second.job_stats(None)[0].unplanned.served(), 0);
}

#[test]
fn memory_that_was_leased_while_its_job_ended_comes_back() {
    let (opened, _) = dataset(&[1 << 20; 50]);
    let engine = engine();
    let reader = Reader::new(&engine, &opened);
    let mut asked = request(&opened, "100%", "minio");
    asked.strategy = None;
    for round in 0..3 {
        asked.job = format!("ending {round}");
        engine.open_job(reader.session, asked.clone(), None).unwrap();
        let wait = Duration::from_secs(9);
        let grant = engine.get_batch(reader.session, &asked.job, 0, &[1, 2], wait, &mut || true).unwrap();
        engine.close_job(reader.session, &asked.job);
        asked.job = format!("staying {round}");
        engine.open_job(reader.session, asked.clone(), None).unwrap();
        engine.release(reader.session, &[grant.lease]);
        let stats = engine.stats();
        assert!(stats.segments <= 1 && stats.arena <= stats.capacity + stats.reserve, "{stats:?}");
        engine.close_job(reader.session, &asked.job);
        assert_eq!(engine.stats().arena, 0, "a segment that is empty and takes nothing more is given back");
    }
}

#[test]
fn a_spilled_batch_that_failed_does_not_keep_its_reader_waiting() {
    let (opened, store) = dataset(&[1 << 20; 400]);
    let engine = engine();
    let mut keeper = Reader::new(&engine, &opened);
    let mut asked = request(&opened, "20MiB", "lru");
    (asked.strategy, asked.prefetch) = (None, false);
    engine.open_job(keeper.session, asked, None).unwrap();
    let kept: Vec<_> = (0..84).map(|id| keeper.get(&[id]).unwrap()).collect();
    let mut reader = Reader::new(&engine, &opened);
    store.vanished.lock().unwrap().push(209);
    assert!(reader.get(&(200..210).collect::<Vec<_>>()).is_err());
    let held = reader.get(&(300..310).collect::<Vec<_>>()).unwrap();
    reader.release(held);
    kept.into_iter().for_each(|held| keeper.release(held));
}

#[test]
fn a_rank_that_cannot_be_is_refused_before_anything_is_kept_for_it() {
    let (opened, _) = dataset(&[10; 10]);
    let engine = engine();
    let reader = Reader::new(&engine, &opened);
    engine.open_job(reader.session, request(&opened, "20%", "lru"), None).unwrap();
    let wait = Duration::from_secs(9);
    let refused = engine.get_batch(reader.session, "job", u32::MAX, &[1], wait, &mut || true);
    assert!(refused.unwrap_err().message.contains("`rank`"));
}
