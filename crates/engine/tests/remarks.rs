//! What a trainer is told that is no error, and that it is told once.

use crate::common::{Reader, config, dataset, engine, epoch_indices, request};
use hotset_core::{Index, sampling};
use hotset_engine::{Config, Engine, JobRequest, Trained};
use hotset_store::Opened;

fn asked(opened: &Opened, strategy: &str) -> JobRequest {
    let mut asked = request(opened, "20%", "lru");
    (asked.strategy, asked.policy) = (Some(strategy.into()), None);
    asked
}

/// Trains an epoch of rank 0 alone, and reports losses if `told`.
fn train(engine: &Engine, reader: &mut Reader<'_>, epoch: u64, told: bool) {
    let indices = epoch_indices(engine, epoch);
    let held = reader.get(&indices).unwrap();
    reader.release(held);
    if told {
        let ids: Vec<u32> = indices.iter().map(|&index| Index::from_raw(index).sample as u32).collect();
        let losses: Vec<f32> = ids.iter().map(|id| 1.0 + *id as f32).collect();
        let trained = Trained { epoch, rank: 0, upto: ids.len() as u64, ids: &ids, losses: &losses };
        engine.report("job", trained).unwrap();
    }
}

fn noted(engine: &Engine, word: &str) -> bool {
    engine.job_stats(Some("job"))[0].remarks.iter().any(|remark| remark.contains(word))
}

#[test]
fn a_strategy_that_is_told_no_losses_says_so_once_after_its_first_epoch() {
    let (opened, _) = dataset(&[100; 200]);
    for entry in sampling::drawing() {
        for told in [false, true] {
            let engine = engine();
            let mut reader = Reader::new(&engine, &opened);
            engine.open_job(reader.session, asked(&opened, entry.name), None).unwrap();
            let mut warned = Vec::new();
            for epoch in 0..3 {
                train(&engine, &mut reader, epoch, told);
                warned.push(engine.untold("job").unwrap().iter().any(|remark| remark.name == "no losses"));
            }
            let needs = !["uniform", "quiver", "carousel", "sequential"].contains(&entry.name);
            assert_eq!(warned, [false, needs && !told, false], "{}, told: {told}", entry.name);
            assert_eq!(noted(&engine, "`sampler.update(ids, loss)`"), needs && !told, "{}", entry.name);
        }
    }
}

#[test]
fn losses_that_are_all_rejected_are_told_as_none() {
    for wrong in [f32::NAN, -1.0] {
        let (opened, _) = dataset(&[100; 200]);
        let engine = engine();
        let mut reader = Reader::new(&engine, &opened);
        engine.open_job(reader.session, asked(&opened, "iis"), None).unwrap();
        train(&engine, &mut reader, 0, false);
        let ids: Vec<u32> = (0..200).collect();
        let trained = Trained { epoch: 0, rank: 0, upto: 200, ids: &ids, losses: &vec![wrong; 200] };
        engine.report("job", trained).unwrap();
        train(&engine, &mut reader, 1, false);
        let told = engine.untold("job").unwrap();
        assert!(
            told.iter().any(|remark| remark.text.contains("told 200 losses, and none can be used")),
            "{wrong}"
        );
    }
}

#[test]
fn a_warm_up_is_told_once_and_noted_as_long_as_it_lasts() {
    let (opened, _) = dataset(&[100; 200]);
    let engine = engine();
    let mut reader = Reader::new(&engine, &opened);
    let mut asked = asked(&opened, "hybrid");
    asked.strategy_settings.insert("warmup_max".into(), "3".into());
    engine.open_job(reader.session, asked, None).unwrap();
    let (mut told, mut notes) = (Vec::new(), Vec::new());
    for epoch in 0..4 {
        train(&engine, &mut reader, epoch, epoch != 1);
        told.extend(engine.untold("job").unwrap().into_iter().map(|remark| (epoch, remark.name)));
        notes.push(noted(&engine, "`hybrid` warms up"));
    }
    assert_eq!(told[0], (1, "warmup"));
    assert_eq!(told[1..].iter().map(|(_, name)| *name).collect::<Vec<_>>(), ["reevaluate"], "it never does");
    assert!(notes.starts_with(&[true, true]) && notes.ends_with(&[false]), "{notes:?}");
}

#[test]
fn a_job_that_gets_less_memory_than_it_asks_for_is_told_once_what_to_change() {
    let (opened, _) = dataset(&[1 << 20; 100]);
    let engine = Engine::new(Config { memory: Some(30 << 20), ..config() });
    let reader = Reader::new(&engine, &opened);
    let first = engine.open_job(reader.session, request(&opened, "30%", "lru"), None).unwrap();
    assert_eq!(first.remarks, Vec::<String>::new(), "it got what it asked for");
    let mut other = request(&opened, "20%", "minio");
    other.job = "other".into();
    let grant = engine.open_job(reader.session, other.clone(), None).unwrap();
    assert_eq!(grant.granted, 12 << 20);
    let text = "the server grants 12 MiB of the 20 MiB that `cache=` asks for: all jobs together may keep 30 MiB (`hotset \
                serve --memory`) and ask for 50 MiB, so each gets its part. Start it with more `--memory`, or ask for less \
                with `cache=` in every job";
    assert_eq!(grant.remarks, [text]);
    let again = engine.open_job(reader.session, other, None).unwrap();
    assert_eq!((again.granted, again.remarks), (12 << 20, Vec::new()), "the client that opened it was told");
    assert_eq!(engine.job_stats(Some("other"))[0].remarks, [text]);
    assert!(engine.untold("other").unwrap().is_empty());
    let first = &engine.job_stats(Some("job"))[0];
    assert_eq!(first.capacity, 18 << 20);
    assert!(first.remarks[0].starts_with("its cache may keep 18 MiB of the 30 MiB that `cache=` asks for"));
}
