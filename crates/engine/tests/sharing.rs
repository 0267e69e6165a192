//! Jobs that train one dataset share a cache; memory is divided between those that do not.

use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::common::{Reader, config, dataset, epoch_indices_of, request};
use hotset_core::sampling::two_chunks;
use hotset_engine::{Config, Engine, JobRequest, JobStats};
use hotset_store::Opened;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Epochs of every training here: nothing is read ahead for one that does not come.
const EPOCHS: u64 = 4;

/// A job of that name and seed.
fn asked(opened: &Opened, job: &str, cache: &str, policy: &str, seed: u64) -> JobRequest {
    JobRequest { job: job.into(), seed, epochs: Some(EPOCHS), ..request(opened, cache, policy) }
}

/// A reader that has opened a job of its own.
fn open<'a>(
    engine: &'a Engine,
    opened: &Opened,
    job: &'static str,
    cache: &str,
    policy: &str,
    seed: u64,
) -> Reader<'a> {
    let reader = Reader::of_job(engine, opened, job);
    engine.open_job(reader.session, asked(opened, job, cache, policy, seed), None).unwrap();
    reader
}

/// Trains an epoch of all jobs in turn, a batch each.
fn train(readers: &mut [Reader<'_>], epoch: u64) {
    let plans: Vec<Vec<u64>> =
        readers.iter().map(|reader| epoch_indices_of(reader.engine, reader.job, epoch)).collect();
    for from in (0..plans[0].len()).step_by(20) {
        for (reader, plan) in readers.iter_mut().zip(&plans) {
            let held = reader.get(&plan[from..(from + 20).min(plan.len())]).unwrap();
            reader.release(held);
        }
    }
}

fn stats(engine: &Engine, job: &str) -> JobStats {
    engine.job_stats(Some(job)).remove(0)
}

#[test]
fn four_jobs_of_one_seed_read_what_one_reads() {
    let (opened, store) = dataset(&[1000; 2000]);
    let alone = {
        let engine = Engine::new(Config { memory: Some(400_000), ..config() });
        let mut readers = [open(&engine, &opened, "a", "20%", "minio", 7)];
        (0..EPOCHS).for_each(|epoch| train(&mut readers, epoch));
        store.reads.swap(0, Ordering::SeqCst)
    };
    assert_eq!(alone, 2000 + 3 * 1600);
    let engine = Engine::new(Config { memory: Some(400_000), ..config() });
    let mut readers: Vec<Reader<'_>> =
        NAMES.iter().map(|job| open(&engine, &opened, job, "20%", "minio", 7)).collect();
    (0..EPOCHS).for_each(|epoch| train(&mut readers, epoch));
    let together = store.reads.load(Ordering::SeqCst);
    assert!(together * 100 <= alone * 105, "{together} reads for four jobs, {alone} for one");
    for job in NAMES {
        let stats = stats(&engine, job);
        assert_eq!((stats.cache_members, stats.capacity), (4, 400_000));
        assert!(stats.epochs.iter().all(|(_, counters)| counters.plan.distinct == 2000), "{job}");
        assert_eq!(stats.total.clock.recovery_reads, 0, "{job}");
    }
    let shared: u64 = NAMES.iter().map(|job| stats(&engine, job).total.plan.shared_hits).sum();
    assert_eq!(shared, 400 * 3 * 4, "what one has brought, three have hit in each of four epochs");
}

#[test]
fn where_two_chunks_are_allocated_no_more_are_resident_and_jobs_that_keep_pace_read_once() {
    let (opened, _) = dataset(&[100; 4000]);
    let two = two_chunks(opened.catalog.bytes());
    assert_eq!(two, 80_000, "of ten");
    let engine = Engine::new(Config { memory: Some(two), ..config() });
    // Batches of each in a turn: the last job is three times as slow.
    let speeds = [("a", 3), ("b", 3), ("c", 3), ("d", 1)];
    let mut jobs: Vec<(Reader<'_>, usize)> = Vec::new();
    for (seed, (job, speed)) in speeds.into_iter().enumerate() {
        let reader = Reader::of_job(&engine, &opened, job);
        let request = asked(&opened, job, "20%", "quiver", seed as u64);
        // Nothing is decided before it is asked for.
        let request = JobRequest { strategy: Some("quiver".into()), prefetch: false, ..request };
        engine.open_job(reader.session, request, None).unwrap();
        jobs.push((reader, speed));
    }
    let (mut most, mut places) = (0, [(0u64, 0usize); 4]);
    let mut plans: Vec<Vec<u64>> = jobs.iter().map(|job| epoch_indices_of(&engine, job.0.job, 0)).collect();
    while places.iter().any(|(epoch, _)| *epoch < 2) {
        for ((reader, speed), (plan, (epoch, at))) in jobs.iter_mut().zip(plans.iter_mut().zip(&mut places)) {
            for _ in 0..*speed {
                if *epoch == 2 {
                    continue;
                }
                let held = reader.get(&plan[*at..*at + 4]).unwrap();
                reader.release(held);
                *at += 4;
                let resident = 100 * engine.residents("a").unwrap().len() as u64;
                assert!(resident <= two, "{resident} bytes in epoch {epoch} of `{}`", reader.job);
                most = most.max(resident);
                if *at == plan.len() {
                    (*epoch, *at) = (*epoch + 1, 0);
                    if *epoch < 2 {
                        *plan = epoch_indices_of(&engine, reader.job, *epoch);
                    }
                }
            }
        }
    }
    assert_eq!(most, two, "both chunks were used");
    let reads = |job: &str| stats(&engine, job).total.plan.storage_reads;
    let alone = 4000 + 3200;
    let kept_pace: u64 = ["a", "b", "c"].iter().map(|job| reads(job)).sum();
    assert!(kept_pace * 100 <= alone * 115, "{kept_pace} for three, {alone} for one alone");
    assert!(reads("d") < alone, "{}", reads("d"));
    for (job, _) in speeds {
        assert!(stats(&engine, job).epochs.iter().all(|(_, counted)| counted.plan.distinct == 4000), "{job}");
    }
}

#[test]
fn jobs_of_other_seeds_share_what_is_kept_and_no_bytes_are_wrong() {
    for policy in ["lru", "lfu", "random", "minio", "app", "pq", "pq_lfu", "icache", "quiver"] {
        let (opened, store) = dataset(&[1000; 600]);
        let engine = Engine::new(Config { memory: Some(200_000), ..config() });
        let mut readers: Vec<Reader<'_>> = NAMES
            .iter()
            .zip(1..)
            .map(|(job, seed)| open(&engine, &opened, job, "20%", policy, seed))
            .collect();
        (0..EPOCHS).for_each(|epoch| train(&mut readers, epoch));
        let reads = store.reads.load(Ordering::SeqCst);
        let counted: u64 = NAMES.iter().map(|job| stats(&engine, job).total.storage_reads()).sum();
        assert_eq!(reads, counted, "{policy}");
        let shared: u64 = NAMES.iter().map(|job| stats(&engine, job).total.plan.shared_hits).sum();
        assert!(shared > 0, "{policy}: no job has hit what another brought");
        let kept = engine.residents("a").unwrap();
        assert_eq!(kept, engine.residents("d").unwrap(), "{policy}");
        assert!(kept.len() <= 200);
    }
}

#[test]
fn another_policy_or_another_setting_is_another_cache() {
    let (opened, _) = dataset(&[1000; 500]);
    let engine = Engine::new(config());
    let _readers = [
        open(&engine, &opened, "a", "10%", "lru", 1),
        open(&engine, &opened, "b", "20%", "minio", 1),
        open(&engine, &opened, "c", "30%", "lru", 1),
    ];
    let mut strict = asked(&opened, "d", "10%", "icache", 1);
    strict.policy_settings.insert("strict".into(), "true".into());
    engine.open_job(Reader::new(&engine, &opened).session, strict, None).unwrap();
    let capacity = |job| (stats(&engine, job).cache_members, stats(&engine, job).capacity);
    assert_eq!([capacity("a"), capacity("c")], [(2, 200_000); 2], "what both ask for");
    assert_eq!([capacity("b"), capacity("d")], [(1, 100_000), (1, 50_000)]);
    assert_eq!(engine.stats().capacity, 350_000);
    // Together no more than the dataset.
    let _more = open(&engine, &opened, "e", "90%", "lru", 1);
    assert_eq!(capacity("a"), (3, 500_000));
}

#[test]
fn plans_that_say_what_stays_have_a_cache_of_their_own() {
    let (opened, _) = dataset(&[1000; 500]);
    let engine = Engine::new(config());
    for (job, strategy, policy) in [
        ("a", "carousel", "carousel"),
        ("b", "carousel", "carousel"),
        ("c", "hybrid", "impact"),
        ("d", "hybrid", "impact"),
    ] {
        let request = JobRequest { strategy: Some(strategy.into()), ..asked(&opened, job, "20%", policy, 1) };
        engine.open_job(Reader::new(&engine, &opened).session, request, None).unwrap();
        assert_eq!((stats(&engine, job).cache_members, stats(&engine, job).capacity), (1, 100_000));
    }
}

#[test]
fn a_job_that_leaves_in_the_middle_leaves_the_cache_to_the_others() {
    let (opened, _) = dataset(&[1000; 500]);
    let engine = Engine::new(Config { memory: Some(100_000), ..config() });
    let mut readers =
        vec![open(&engine, &opened, "a", "20%", "minio", 1), open(&engine, &opened, "b", "20%", "minio", 2)];
    train(&mut readers, 0);
    let kept = engine.residents("b").unwrap();
    let first = readers.remove(0);
    let plan = epoch_indices_of(&engine, "a", 1);
    let held = Reader::of_job(&engine, &opened, "a").get(&plan[..20]).unwrap();
    engine.close_job(first.session, "a");
    engine.detach(first.session, Instant::now());
    assert_eq!((stats(&engine, "b").cache_members, stats(&engine, "b").capacity), (1, 100_000));
    assert_eq!(engine.residents("b").unwrap(), kept, "what the other has brought stays");
    train(&mut readers, 1);
    assert_eq!(stats(&engine, "b").epochs[1].1.plan.storage_reads, 400);
    drop(held);
    engine.close_job(readers[0].session, "b");
    assert_eq!((engine.stats().capacity, engine.job_stats(None).len()), (0, 0));
}

#[test]
fn a_job_that_comes_later_gets_its_part_and_gives_it_back() {
    let (many, _) = dataset(&[1000; 500]);
    let (few, _) = dataset(&[1000; 250]);
    let engine = Engine::new(Config { memory: Some(300_000), ..config() });
    let mut first = [open(&engine, &many, "a", "80%", "lru", 1)];
    train(&mut first, 0);
    assert_eq!((stats(&engine, "a").capacity, stats(&engine, "a").resident_samples), (300_000, 300));
    let grant = {
        let session = Reader::new(&engine, &few).session;
        engine.open_job(session, asked(&few, "b", "80%", "lru", 1), None).unwrap()
    };
    assert_eq!(
        (grant.asked, grant.granted),
        (200_000, 100_000),
        "a third of the asks, a third of the memory"
    );
    assert!(grant.remarks[0].contains("--memory"), "{:?}", grant.remarks);
    assert_eq!((stats(&engine, "a").capacity, stats(&engine, "a").resident_samples), (200_000, 200));
    assert_eq!((stats(&engine, "b").capacity, engine.stats().capacity), (100_000, 300_000));
    assert!(stats(&engine, "a").remarks.iter().any(|remark| remark.contains("--memory")));
    train(&mut first, 1);
    assert_eq!(stats(&engine, "a").resident_samples, 200);
    engine.end_job("b");
    assert_eq!(stats(&engine, "a").capacity, 300_000);
    // All of the next epoch may be decided already.
    (2..EPOCHS).for_each(|epoch| train(&mut first, epoch));
    assert_eq!(stats(&engine, "a").resident_samples, 300);
}

#[test]
fn a_large_cache_gets_smaller_a_slice_at_a_time_while_it_is_read() {
    let (many, _) = dataset(&[100; 20_000]);
    let (few, _) = dataset(&[1000; 1000]);
    let engine = Engine::new(Config { memory: Some(1_500_000), ..config() });
    let mut readers = [open(&engine, &many, "a", "75%", "random", 3)];
    train(&mut readers, 0);
    assert_eq!(stats(&engine, "a").resident_samples, 15_000);
    let plan = epoch_indices_of(&engine, "a", 1);
    std::thread::scope(|scope| {
        let (engine, few) = (&engine, &few);
        scope.spawn(move || {
            for _ in 0..20 {
                let reader = open(engine, few, "b", "100%", "lru", 1);
                engine.close_job(reader.session, "b");
                engine.detach(reader.session, Instant::now());
            }
        });
        for batch in plan.chunks(100) {
            let held = readers[0].get(batch).unwrap();
            readers[0].release(held);
        }
    });
    assert_eq!(stats(&engine, "a").epochs[1].1.plan.distinct, 20_000);
    assert_eq!(engine.stats().capacity, 1_500_000);
}

#[test]
fn a_bound_that_keeps_everything_is_not_divided_and_the_rest_is() {
    let (many, _) = dataset(&[1000; 500]);
    let (few, _) = dataset(&[1000; 250]);
    let engine = Engine::new(Config { memory: Some(600_000), ..config() });
    let _first = open(&engine, &many, "a", "100%", "oracle", 1);
    let _second = open(&engine, &few, "b", "100%", "lru", 1);
    assert_eq!((stats(&engine, "a").capacity, stats(&engine, "b").capacity), (500_000, 100_000));
    let third = asked(&few, "c", "100%", "oracle", 1);
    let error = engine.open_job(Reader::new(&engine, &few).session, third, None).unwrap_err();
    assert!(error.message.contains("keeps everything"), "{error}");
}

#[test]
fn a_cache_that_comes_back_beside_another_has_what_it_kept() {
    let (many, _) = dataset(&[1000; 400]);
    let (few, _) = dataset(&[1000; 500]);
    let limited = || Engine::new(Config { memory: Some(200_000), ..config() });
    let engine = limited();
    let mut readers =
        [open(&engine, &many, "a", "50%", "minio", 1), open(&engine, &few, "b", "40%", "minio", 1)];
    readers.iter_mut().for_each(|reader| train(std::slice::from_mut(reader), 0));
    let snapshots = ["a", "b"].map(|job| engine.snapshot(job).unwrap().unwrap());
    let kept = engine.residents("b").unwrap();
    assert_eq!(kept.len(), 100, "half of the memory");
    let engine = limited();
    for (opened, snapshot) in [&many, &few].into_iter().zip(&snapshots) {
        let session = Reader::new(&engine, opened).session;
        engine.restore_job(session, snapshot.request.clone(), None, snapshot).unwrap();
    }
    assert_eq!(engine.residents("b").unwrap(), kept);
    assert_eq!((stats(&engine, "a").capacity, stats(&engine, "b").capacity), (100_000, 100_000));
}

#[test]
fn what_a_job_is_served_depends_on_no_other_job() {
    let (many, _) = dataset(&[1000; 500]);
    let (few, _) = dataset(&[1000; 2000]);
    for strategy in ["quiver", "carousel", "hybrid"] {
        let is_quiver = strategy == "quiver";
        let plans = |others: bool| {
            let engine = Engine::new(Config { memory: Some(500_000), ..config() });
            let _other = others.then(|| open(&engine, &many, "other", "100%", "lru", 1));
            let mut reader = Reader::of_job(&engine, &few, "job");
            // Left to itself, `carousel` goes by how fast storage was.
            let fresh = [("fresh".to_owned(), "0.25".to_owned())];
            let strategy_settings = fresh.into_iter().filter(|_| strategy == "carousel").collect();
            let strategy = Some(strategy.into());
            let asked =
                JobRequest { strategy, strategy_settings, policy: None, ..asked(&few, "job", "20%", "", 3) };
            let grant = engine.open_job(reader.session, asked, None).unwrap();
            assert_eq!((grant.asked, grant.granted), (400_000, if others { 222_222 } else { 400_000 }));
            [0, 1].map(|epoch| {
                let plan = epoch_indices_of(&engine, "job", epoch);
                for batch in plan.chunks(50) {
                    let held = reader.get(batch).unwrap();
                    reader.release(held);
                }
                // With `quiver` later epochs begin with what is resident, which is less.
                if epoch > 0 && is_quiver { Vec::new() } else { plan }
            })
        };
        assert!(plans(false) == plans(true), "{strategy}: other plans beside another job");
    }
}

#[test]
fn what_the_last_job_kept_leaves_a_slice_at_a_time() {
    let (opened, _) = dataset(&[100; 20_000]);
    let engine = Engine::new(config());
    let mut readers = [open(&engine, &opened, "a", "100%", "lru", 1)];
    train(&mut readers, 0);
    assert_eq!(stats(&engine, "a").resident_samples, 20_000);
    engine.end_job("a");
    let left = engine.stats();
    assert_eq!((left.occupied, left.capacity), (0, 0));
    assert!(
        (1..=4096).contains(&left.most_left),
        "{} residents left in one hold of the lock",
        left.most_left
    );
    // Nothing of it stands in the way of the next.
    let mut readers = [open(&engine, &opened, "b", "100%", "lru", 1)];
    train(&mut readers, 0);
    assert_eq!(stats(&engine, "b").resident_samples, 20_000);
}
