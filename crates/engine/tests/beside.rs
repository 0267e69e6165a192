//! Requests without an epoch: matched to the plan where their reader has a sampler, noticed where it is passed by.

use std::time::Duration;

use crate::common::{Reader, dataset, engine, epoch_indices, request};
use hotset_core::{Index, Result};
use hotset_engine::{Asked, Engine, Grant, Purpose};

/// Asks as rank `rank` and lets go of the samples again.
fn ask(reader: &Reader<'_>, rank: u32, indices: &[u64], purpose: Purpose) -> Result<Grant> {
    let (session, wait) = (reader.session, Duration::from_secs(30));
    let asked = Asked { indices, purpose, since: None };
    let grant = reader.engine.get_batch_for(session, reader.job, rank, asked, wait, &mut || true)?;
    reader.engine.release(session, &[grant.lease]);
    Ok(grant)
}

fn without_epochs(indices: &[u64]) -> Vec<u64> {
    indices.iter().map(|&index| Index::from_raw(index).sample).collect()
}

/// What was served beside plans, and in each epoch.
fn served(engine: &Engine) -> (u64, Vec<u64>) {
    let stats = engine.job_stats(Some("job")).remove(0);
    (stats.unplanned.served(), stats.epochs.iter().map(|(_, counters)| counters.served()).collect())
}

#[test]
fn a_request_that_lost_its_epoch_takes_the_slots_of_the_one_begun() {
    let (opened, _) = dataset(&[1000; 100]);
    let engine = engine();
    let reader = Reader::new(&engine, &opened);
    engine.open_job(reader.session, request(&opened, "20%", "minio"), None).unwrap();
    ask(&reader, 0, &[1, 2, 3], Purpose::Matched).expect("nothing is begun: beside the plan");
    assert_eq!(served(&engine).0, 3);
    for epoch in 0..2 {
        let plain = without_epochs(&epoch_indices(&engine, epoch));
        for batch in plain.chunks(10) {
            ask(&reader, 0, batch, Purpose::Matched).unwrap();
        }
        ask(&reader, 0, &plain[..10], Purpose::Matched).expect("the epoch has no slot left for them");
    }
    let (beside, epochs) = served(&engine);
    assert_eq!((beside, &epochs[..2]), (3 + 20, &[100, 100][..]));
    let stats = engine.job_stats(Some("job")).remove(0);
    let hits: Vec<u64> = stats.epochs.iter().take(2).map(|(_, counters)| counters.plan.hit).collect();
    assert_eq!(hits, [0, 20]);
    assert!(stats.remarks.iter().all(|remark| !remark.contains("past the Sampler")));
}

#[test]
fn a_training_that_passes_its_sampler_by_is_noticed_once_and_told_to_rank_0() {
    let (opened, _) = dataset(&[1000; 100]);
    let engine = engine();
    let reader = Reader::new(&engine, &opened);
    engine.open_job(reader.session, request(&opened, "20%", "minio"), None).unwrap();
    let plain: Vec<u64> = (0..100).collect();
    assert!(ask(&reader, 0, &plain[..50], Purpose::Served).unwrap().remark.is_none());
    assert!(ask(&reader, 1, &plain[50..60], Purpose::Served).unwrap().remark.is_none(), "not rank 0");
    let told = ask(&reader, 0, &plain[60..70], Purpose::Served).unwrap().remark.unwrap();
    assert!(told.starts_with("70 of 70 samples served were asked for past the Sampler"), "{told}");
    assert!(ask(&reader, 0, &plain[70..], Purpose::Served).unwrap().remark.is_none(), "once");
    let stats = engine.job_stats(Some("job")).remove(0);
    assert!(stats.remarks.iter().any(|remark| remark.starts_with("100 of 100 samples served were")));
}

#[test]
fn an_epoch_that_is_begun_and_not_asked_for_is_noticed_after_a_few_batches() {
    let (opened, _) = dataset(&[10; 2000]);
    let engine = engine();
    let reader = Reader::new(&engine, &opened);
    engine.open_job(reader.session, request(&opened, "20%", "minio"), None).unwrap();
    let plain: Vec<u64> = (0..2000).collect();
    assert!(ask(&reader, 0, &plain[..400], Purpose::Served).unwrap().remark.is_none(), "before an epoch");
    epoch_indices(&engine, 0);
    assert!(ask(&reader, 0, &plain[400..600], Purpose::Served).unwrap().remark.is_none());
    let told = ask(&reader, 0, &plain[600..700], Purpose::Served).unwrap().remark.unwrap();
    assert!(told.starts_with("700 of 700 samples served were asked for past the Sampler"), "{told}");
}

#[test]
fn an_evaluation_beside_a_training_and_a_dataset_without_a_sampler_are_not_noticed() {
    let (opened, _) = dataset(&[1000; 100]);
    let engine = engine();
    let mut reader = Reader::new(&engine, &opened);
    engine.open_job(reader.session, request(&opened, "20%", "minio"), None).unwrap();
    let plain: Vec<u64> = (0..100).collect();
    for epoch in 0..3 {
        let indices = epoch_indices(&engine, epoch);
        let held = reader.get(&indices).unwrap();
        reader.release(held);
        assert!(ask(&reader, 0, &plain, Purpose::Served).unwrap().remark.is_none());
    }
    let kept =
        hotset_engine::JobRequest { job: "kept".into(), strategy: None, ..request(&opened, "20%", "minio") };
    engine.open_job(reader.session, kept, None).unwrap();
    reader.job = "kept";
    for _ in 0..3 {
        assert!(ask(&reader, 0, &plain, Purpose::Served).unwrap().remark.is_none());
    }
    assert!(
        engine.job_stats(None).iter().all(|job| job.remarks.iter().all(|text| !text.contains("Sampler")))
    );
}

/// Opens a job without a sampler, called `job`, over `samples` samples, and asks in it by turns as two readers do.
/// What they are told.
fn told_without_a_sampler(samples: u64, passes: &[Vec<u64>], purpose: Purpose, batch: usize) -> Vec<String> {
    let (opened, _) = dataset(&vec![100; samples as usize]);
    let engine = engine();
    let readers = [Reader::new(&engine, &opened), Reader::new(&engine, &opened)];
    for reader in &readers {
        let kept = hotset_engine::JobRequest { strategy: None, ..request(&opened, "20%", "minio") };
        engine.open_job(reader.session, kept, None).unwrap();
    }
    let mut told = Vec::new();
    for (turn, ids) in passes.iter().flat_map(|pass| pass.chunks(batch)).enumerate() {
        told.extend(
            ask(&readers[turn % 2], 1, &ids[..1], purpose).unwrap().remark.map(|_| "rank 1".to_owned()),
        );
        told.extend(ask(&readers[turn % 2], 0, ids, purpose).unwrap().remark);
    }
    let noted = engine.job_stats(Some("job")).remove(0).remarks;
    assert_eq!(noted, told, "what is told is shown");
    told
}

/// All of `samples` in an order without a pattern.
fn shuffled(samples: u64, seed: u64) -> Vec<u64> {
    let mut ids: Vec<u64> = (0..samples).collect();
    ids.sort_by_key(|&id| (id + 1 + seed * samples).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32));
    ids
}

#[test]
fn a_shuffle_without_a_sampler_is_told_once_whatever_the_batch() {
    let in_order: Vec<u64> = (0..200).collect();
    for batch in [1, 10, 200] {
        let passes = [in_order.clone(), shuffled(200, 0), shuffled(200, 1)];
        let told = told_without_a_sampler(200, &passes, Purpose::Served, batch);
        assert_eq!(told.len(), 1, "{batch}: {told:?}");
        assert!(told[0].contains("DataLoader(dataset, sampler=sampler)"), "{told:?}");
    }
}

#[test]
fn passes_in_order_held_out_parts_and_single_samples_are_no_shuffle() {
    let in_order: Vec<u64> = (0..200).collect();
    for batch in [1, 10] {
        let nothing = Vec::<String>::new();
        let passes = vec![in_order.clone(); 5];
        assert_eq!(told_without_a_sampler(200, &passes, Purpose::Served, batch), nothing);
        // A part of a random split, in its own order again and again.
        let part = shuffled(200, 2)[..100].to_vec();
        assert_eq!(told_without_a_sampler(200, &vec![part; 5], Purpose::Served, batch), nothing);
        // The rest of what a sampler plans, however much it is.
        assert_eq!(told_without_a_sampler(200, &[shuffled(200, 3)], Purpose::Matched, batch), nothing);
        // A dataset to try things with.
        assert_eq!(told_without_a_sampler(60, &[shuffled(60, 4)], Purpose::Served, batch), nothing);
    }
}
