//! Packages that are spoilt, taken away or half written, under a training that must not notice.
//!
//! Every byte that is served is checked. What is not whole is dropped and counted, its samples are read one by one,
//! and a later epoch packs them anew.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::{self, Reader, dataset, engine, request};
use hotset_core::counters::{Counters, PlanCounters};
use hotset_core::packages::Origin;
use hotset_core::policy::{self, Sizes};
use hotset_core::run::{self, Inputs, Run};
use hotset_core::sampling::{self, Event, Plan};
use hotset_core::{Id, Index, Rng};
use hotset_engine::{Engine, JobRequest, JobStats, Place, Trained};
use hotset_store::Opened;
use hotset_store::package::{Draft, Package, PackagePlace, PackageStore};

const SAMPLES: usize = 600;
const BATCH: usize = 32;
/// Epochs before something happens: one full, one in which all easy samples are packed, one that reads packages.
const BEFORE: u64 = 3;
const WAIT: Duration = Duration::from_secs(60);

fn sizes() -> Vec<u64> {
    (0..SAMPLES as u64).map(|id| 60 + id * 7919 % 90).collect()
}

fn loss(id: Id, epoch: u64) -> f32 {
    let pace = Rng::new(u64::from(id), 0, "pace").unit();
    let luck = Rng::new(u64::from(id), epoch, "luck").unit();
    (3.0 * (-(epoch as f64) * pace / 3.0).exp() + luck / 4.0) as f32
}

fn asked(opened: &Opened, place: &Path, prefetch: bool) -> JobRequest {
    let mut request = request(opened, "20%", "icache");
    request.strategy = Some("iis".into());
    request.packages = Some(place.to_str().unwrap().into());
    request.package_bytes = 1200;
    request.prefetch = prefetch;
    request
}

fn stats(engine: &Engine) -> JobStats {
    engine.job_stats(Some("job")).remove(0)
}

fn counters(engine: &Engine, epoch: u64) -> Counters {
    let found = stats(engine).epochs.into_iter().find(|(of, _)| *of == epoch);
    found.map(|(_, counters)| counters).unwrap_or_default()
}

/// Serves and reports one batch of `plan`, and checks every byte.
fn serve_one(engine: &Engine, reader: &mut Reader<'_>, plan: &Plan, number: usize) {
    get_one(reader, plan, number);
    report_one(engine, plan, number);
}

fn get_one(reader: &mut Reader<'_>, plan: &Plan, number: usize) {
    let batch = plan.ids().chunks(BATCH).nth(number).unwrap();
    let index = |&id: &Id| Index { epoch: Some(plan.epoch()), sample: id.into() }.into_raw();
    let indices: Vec<u64> = batch.iter().map(index).collect();
    let held = reader.get(&indices).unwrap();
    reader.release(held);
}

fn report_one(engine: &Engine, plan: &Plan, number: usize) {
    let epoch = plan.epoch();
    let batch = plan.ids().chunks(BATCH).nth(number).unwrap();
    let losses: Vec<f32> = batch.iter().map(|&id| loss(id, epoch)).collect();
    let upto = (number * BATCH + batch.len()) as u64;
    engine.report("job", Trained { epoch, rank: 0, upto, ids: batch, losses: &losses }).unwrap();
}

/// One epoch; how many packages its plan reads, and what was counted.
fn train(engine: &Engine, reader: &mut Reader<'_>, epoch: u64, prefetch: bool) -> (u64, Counters) {
    let plan = engine.begin_epoch("job", epoch, (0, 1), 0, false).unwrap();
    for number in 0..plan.ids().chunks(BATCH).len() {
        serve_one(engine, reader, &plan, number);
    }
    // Read ahead, the next plan has chosen packages that wait for it to be served.
    if !prefetch {
        engine.packed("job", WAIT).unwrap();
    }
    let loads = plan.events().iter().filter(|(_, event)| matches!(event, Event::Load(_))).count() as u64;
    let counters = counters(engine, epoch);
    assert_eq!(
        counters.plan.hit + counters.plan.packed + counters.plan.single,
        plan.len() as u64,
        "{counters:?}"
    );
    assert_eq!((counters.clock.abandoned, counters.clock.failed), (0, 0));
    (loads, counters)
}

/// The packages that lie in `place`, by number.
fn files(place: &Path) -> Vec<(u32, PathBuf)> {
    let inside = |path: PathBuf| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<(u32, PathBuf)> = inside(place.to_owned())
        .flat_map(inside)
        .flat_map(inside)
        .filter_map(|path| {
            let number = path.file_name()?.to_str()?.strip_suffix(".hotset")?.parse().ok()?;
            Some((number, path))
        })
        .collect();
    found.sort_unstable();
    found
}

/// The package with the same samples that says it is package `number` of `identity`.
fn disguised(bytes: &[u8], identity: &str, number: u32, as_identity: &str, as_number: u32) -> Vec<u8> {
    let package = Package::parse(bytes, identity, number).unwrap();
    let samples: Vec<(Id, &[u8])> = package.samples().map(|(id, sample)| (id, sample.unwrap())).collect();
    let sizes: Vec<(Id, u64)> = samples.iter().map(|(id, sample)| (*id, sample.len() as u64)).collect();
    let mut draft = Draft::new(as_identity, as_number, &sizes).unwrap();
    // Other bytes than the dataset's: a reader that is served one of them sees it.
    samples.iter().for_each(|(id, sample)| {
        draft.put(*id, &vec![0xab; sample.len()]).unwrap();
    });
    draft.finish().unwrap()
}

/// What is done to a package.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Harm {
    Torn,
    Grown,
    Emptied,
    FlippedIndex,
    FlippedSample,
    Deleted,
    OtherDataset,
    OtherNumber,
    OtherVersion,
    Stranger,
    LongStranger,
}

impl Harm {
    const ALL: [Self; 11] = [
        Self::Torn,
        Self::Grown,
        Self::Emptied,
        Self::FlippedIndex,
        Self::FlippedSample,
        Self::Deleted,
        Self::OtherDataset,
        Self::OtherNumber,
        Self::OtherVersion,
        Self::Stranger,
        Self::LongStranger,
    ];

    fn apply(self, opened: &Opened, number: u32, path: &Path) {
        let mut bytes = fs::read(path).unwrap();
        let identity = &opened.identity;
        match self {
            Self::Torn => bytes.truncate(bytes.len() / 2),
            Self::Grown => bytes.push(0),
            Self::Emptied => bytes.clear(),
            Self::FlippedIndex => bytes[80] ^= 4,
            // The first sample's first byte, behind head and index.
            Self::FlippedSample => {
                let count = u32::from_le_bytes(bytes[48..52].try_into().unwrap()) as usize;
                bytes[72 + 24 * count] ^= 4;
            }
            Self::Deleted => return fs::remove_file(path).unwrap(),
            Self::OtherDataset => bytes = disguised(&bytes, identity, number, "another dataset", number),
            Self::OtherNumber => bytes = disguised(&bytes, identity, number, identity, number + 1),
            Self::OtherVersion => bytes[8] = 2,
            Self::Stranger => bytes.fill(b'x'),
            Self::LongStranger => bytes = vec![b'x'; bytes.len() + 7],
        }
        fs::write(path, bytes).unwrap();
    }

    /// Whether what lies there afterwards must stay: it is not certainly ours.
    fn stays(self) -> bool {
        matches!(self, Self::OtherVersion | Self::Stranger | Self::LongStranger)
    }
}

#[test]
fn what_is_done_to_packages_between_epochs_is_found_dropped_counted_and_packed_anew() {
    for harm in Harm::ALL {
        for prefetch in [false, true] {
            spoil(harm, prefetch);
        }
    }
}

fn spoil(harm: Harm, prefetch: bool) {
    let place = tempfile::tempdir().unwrap();
    let (opened, _) = dataset(&sizes());
    let engine = engine();
    let mut reader = Reader::new(&engine, &opened);
    let request = asked(&opened, place.path(), prefetch);
    let at = common::place(&opened, &request);
    engine.open_job(reader.session, request, at).unwrap();
    let (mut packed, mut epoch) = (0, 0);
    while epoch < BEFORE {
        let (_, counters) = train(&engine, &mut reader, epoch, prefetch);
        assert_eq!(counters.clock.packages_lost, 0);
        (packed, epoch) = (counters.plan.packed, epoch + 1);
    }
    assert!(packed >= 100, "{packed} after {epoch} epochs");

    let spoilt = files(place.path());
    assert!(spoilt.len() > 5);
    for (number, path) in &spoilt {
        harm.apply(&opened, *number, path);
    }
    let (loads, after) = train(&engine, &mut reader, epoch, prefetch);
    if prefetch {
        // Some of them were read ahead before they were spoilt.
        assert!(after.clock.packages_lost <= loads, "{harm:?}: {after:?}");
    } else {
        // A flipped sample is found when the policy takes it in.
        let found = after.clock.packages_lost == loads
            || (harm == Harm::FlippedSample && after.clock.packages_lost > 5);
        assert!(found, "{harm:?}: {after:?}");
        // One flipped sample does not spoil its neighbours.
        let brought = after.plan.packed - after.clock.recovery_reads;
        assert_eq!(brought > 0, harm == Harm::FlippedSample, "{harm:?}: {after:?}");
        assert_eq!(after.plan.package_reads > 0, after.plan.package_bytes > 0);
    }
    let mut last = Counters::default();
    // A twentieth of the dataset is packed in an epoch, and what lies in no package comes before worn packages.
    let (least, until) = (packed / 4, epoch + 30);
    let known = |last: &Counters| last.clock.packages_lost == 0 || harm == Harm::FlippedSample;
    let enough = |last: &Counters| {
        last.plan.packed > least && known(last) && stats(&engine).total.clock.packages_lost > 5
    };
    let gone = || prefetch || harm.stays() || spoilt.iter().all(|(_, path)| !path.exists());
    while epoch + 1 < until && !(enough(&last) && gone()) {
        epoch += 1;
        last = train(&engine, &mut reader, epoch, prefetch).1;
    }
    let stats = stats(&engine);
    assert!(stats.total.clock.packages_lost > 5, "{harm:?}");
    assert!(last.plan.packed > least, "{harm:?}: {} of {packed} again", last.plan.packed);
    assert!(known(&last), "{harm:?}: all that were spoilt are known by now");
    assert_eq!(stats.remarks, Vec::<String>::new());

    // What the plan knows lies there whole; what is not certainly ours was left alone. Read ahead, packages come and
    // go meanwhile.
    if prefetch || harm == Harm::FlippedSample {
        return;
    }
    let (room, mut whole) =
        (PackagePlace::open(place.path().to_str().unwrap(), &Default::default()).unwrap(), 0);
    let stored: Vec<_> = room.owners().unwrap().into_iter().flat_map(|owner| owner.stored).collect();
    room.verify(&stored, &mut |_, damages| whole += u64::from(damages.is_empty())).unwrap();
    let left = spoilt.iter().filter(|(_, path)| path.exists()).count();
    assert!(whole >= stats.packages.unwrap().packages, "{harm:?}");
    if harm.stays() {
        assert_eq!(left, spoilt.len(), "{harm:?}: nothing of a stranger's is removed");
    } else {
        assert_eq!((left, stored.len() as u64), (0, whole), "{harm:?}");
    }
}

#[test]
fn a_kill_amid_packing_leaves_what_is_whole_to_the_next_server_which_cleans_the_rest_and_packs_on() {
    let place = tempfile::tempdir().unwrap();
    let (opened, store) = dataset(&sizes());
    let request = asked(&opened, place.path(), false);
    let at = || common::place(&opened, &asked(&opened, place.path(), false));
    let first = engine();
    let mut reader = Reader::new(&first, &opened);
    first.open_job(reader.session, request.clone(), at()).unwrap();
    train(&first, &mut reader, 0, false);
    let plan = first.begin_epoch("job", 1, (0, 1), 0, false).unwrap();
    let snapshot = first.snapshot("job").unwrap().unwrap();
    let half = plan.len() / BATCH / 2;
    for number in 0..half {
        serve_one(&first, &mut reader, &plan, number);
    }
    while files(place.path()).is_empty() {
        std::thread::yield_now();
    }
    store.hold();
    assert!(stats(&first).packages.unwrap().packing > 0, "it is killed in the midst");
    drop(reader);
    drop(first);
    store.let_go();

    // What a writer may leave behind, one that was cut off by a failing disk, and a foreign file.
    let whole = files(place.path());
    let directory = whole[0].1.parent().unwrap().to_owned();
    let bytes = fs::read(&whole[0].1).unwrap();
    let (left, torn) = (directory.join(".00000092.hotset-aB3x.tmp"), directory.join("00000090.hotset"));
    let stranger = directory.join("00000095.hotset");
    fs::write(&left, &bytes[..100]).unwrap();
    fs::write(&torn, &bytes[..bytes.len() / 2]).unwrap();
    fs::write(&stranger, b"my notes").unwrap();
    let written = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    let times: Vec<_> = whole.iter().map(|(_, path)| written(path)).collect();

    let second = engine();
    let mut reader = Reader::new(&second, &opened);
    second.restore_job(reader.session, request, at(), &snapshot).unwrap();
    assert!(!left.exists() && !torn.exists(), "what is not whole is gone");
    // It goes on with what was chosen, without being told to.
    second.packed("job", WAIT).unwrap();
    assert!(files(place.path()).len() > whole.len() + 5);
    second.begin_epoch("job", 1, (0, 1), 0, true).unwrap();
    for number in half..plan.ids().chunks(BATCH).len() {
        serve_one(&second, &mut reader, &plan, number);
    }
    let (_, counters) = train(&second, &mut reader, 2, false);
    assert!(counters.plan.packed > 100 && counters.clock.packages_lost == 0, "{counters:?}");
    for epoch in 3..6 {
        assert_eq!(train(&second, &mut reader, epoch, false).1.clock.packages_lost, 0);
    }
    for ((_, path), time) in whole.iter().zip(times) {
        assert!(!path.exists() || written(path) == time, "a package that was whole is not written again");
    }
    assert_eq!(fs::read(&stranger).unwrap(), b"my notes");
    assert!(files(place.path()).last().unwrap().0 > 95, "numbers go on above what is not ours");
}

#[test]
fn a_place_that_is_no_place_is_said_once_and_every_sample_is_read_alone() {
    let (opened, _) = dataset(&sizes());
    let place = tempfile::NamedTempFile::new().unwrap();
    let request = asked(&opened, place.path(), true);
    let none = Default::default();
    let opens = PackageStore::open(request.packages.as_deref().unwrap(), &none, (&opened).into(), "job");
    let why = opens.err().unwrap().message;
    let engine = engine();
    let mut reader = Reader::new(&engine, &opened);
    let grant = engine.open_job(reader.session, request, Some(Place::Unusable(why.clone()))).unwrap();
    assert_eq!(grant.remarks, [format!("`packages` are off: {why}")]);
    assert!(why.contains(place.path().to_str().unwrap()), "it names the place: {why}");
    for epoch in 0..4 {
        let (loads, counters) = train(&engine, &mut reader, epoch, true);
        assert_eq!((loads, counters.plan.packed, counters.clock.packages_lost), (0, 0, 0));
    }
    assert_eq!(stats(&engine).remarks, grant.remarks);
    assert_eq!(stats(&engine).packages, None);
}

/// A job with packages, trained so far that it reads them.
fn going<'a>(engine: &'a Engine, opened: &Opened, place: &Path) -> Reader<'a> {
    let mut reader = Reader::new(engine, opened);
    let request = asked(opened, place, false);
    let at = common::place(opened, &request);
    engine.open_job(reader.session, request, at).unwrap();
    for epoch in 0..BEFORE {
        train(engine, &mut reader, epoch, false);
    }
    assert_eq!(stats(engine).remarks, Vec::<String>::new());
    reader
}

#[test]
fn a_place_that_takes_no_more_is_said_once_and_what_lies_there_is_used_while_it_lasts() {
    let place = tempfile::tempdir().unwrap();
    let (opened, _) = dataset(&sizes());
    let engine = engine();
    let mut reader = going(&engine, &opened, place.path());
    // Directories under the names of the packages to come: nothing can be put there, and root cannot either.
    let before = files(place.path());
    let (last, path) = before.last().unwrap();
    for number in last + 1..last + 100 {
        fs::create_dir(path.with_file_name(format!("{number:08}.hotset"))).unwrap();
    }
    for epoch in BEFORE..BEFORE + 6 {
        let (_, counters) = train(&engine, &mut reader, epoch, false);
        assert!(counters.plan.packed > 100 && counters.clock.packages_lost == 0, "{counters:?}");
        assert!(epoch == BEFORE || counters.plan.pack_bytes_written == 0, "nothing is packed any more");
    }
    let remarks = stats(&engine).remarks;
    assert!(remarks.len() == 1 && remarks[0].contains(place.path().to_str().unwrap()), "{remarks:?}");
}

#[test]
fn a_place_that_is_taken_away_under_a_training_costs_it_the_packages_alone() {
    let place = tempfile::tempdir().unwrap();
    let (opened, _) = dataset(&sizes());
    let engine = engine();
    let mut reader = going(&engine, &opened, place.path());
    let directory = files(place.path())[0].1.parent().unwrap().to_owned();
    fs::remove_dir_all(&directory).unwrap();
    fs::write(&directory, b"in its place").unwrap();
    let (loads, after) = train(&engine, &mut reader, BEFORE, false);
    assert_eq!(after.clock.packages_lost, loads, "{after:?}");
    assert_eq!(after.clock.recovery_reads, after.plan.packed, "each was read alone: {after:?}");
    for epoch in BEFORE + 1..BEFORE + 6 {
        let (_, counters) = train(&engine, &mut reader, epoch, false);
        // Plans go on with those that were not found gone yet, and nothing comes of them.
        assert!(counters.clock.recovery_reads >= counters.plan.packed, "{counters:?}");
        assert_eq!(counters.plan.pack_bytes_written, 0, "{counters:?}");
    }
    let remarks = stats(&engine).remarks;
    assert!(remarks.len() == 1 && remarks[0].contains(place.path().to_str().unwrap()), "{remarks:?}");
    assert_eq!(fs::read(&directory).unwrap(), b"in its place");
}

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
                    while stats(&engine)
                        .epochs
                        .iter()
                        .all(|(of, counters)| *of < 2 || counters.plan.package_reads == 0)
                    {
                        std::thread::yield_now();
                    }
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
