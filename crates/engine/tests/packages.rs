//! Packages that are spoilt, taken away or half written, under a training that must not notice.
//!
//! Every byte that is served is checked. What is not whole is dropped and counted, its samples are read one by one,
//! and a later epoch packs them anew.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{self, Reader, dataset, engine, request};
use hotset_core::counters::Counters;
use hotset_core::sampling::{Event, Plan};
use hotset_core::{Id, Index, Rng};
use hotset_engine::{Engine, JobRequest, JobStats, Place, Trained};
use hotset_store::Opened;
use hotset_store::package::{Draft, Package, PackagePlace, PackageStore};

pub(crate) const SAMPLES: usize = 600;
pub(crate) const BATCH: usize = 32;
/// Epochs before something happens: one full, one in which all easy samples are packed, one that reads packages.
pub(crate) const BEFORE: u64 = 3;
pub(crate) const WAIT: Duration = Duration::from_secs(60);

pub(crate) fn sizes() -> Vec<u64> {
    (0..SAMPLES as u64).map(|id| 60 + id * 7919 % 90).collect()
}

pub(crate) fn loss(id: Id, epoch: u64) -> f32 {
    let pace = Rng::new(u64::from(id), 0, "pace").unit();
    let luck = Rng::new(u64::from(id), epoch, "luck").unit();
    (3.0 * (-(epoch as f64) * pace / 3.0).exp() + luck / 4.0) as f32
}

pub(crate) fn asked(opened: &Opened, place: &Path, prefetch: bool) -> JobRequest {
    let mut request = request(opened, "20%", "icache");
    request.strategy = Some("iis".into());
    request.packages = Some(place.to_str().unwrap().into());
    request.package_bytes = 1200;
    request.prefetch = prefetch;
    request
}

pub(crate) fn stats(engine: &Engine) -> JobStats {
    engine.job_stats(Some("job")).remove(0)
}

pub(crate) fn counters(engine: &Engine, epoch: u64) -> Counters {
    let found = stats(engine).epochs.into_iter().find(|(of, _)| *of == epoch);
    found.map(|(_, counters)| counters).unwrap_or_default()
}

/// Serves and reports one batch of `plan`, and checks every byte.
pub(crate) fn serve_one(engine: &Engine, reader: &mut Reader<'_>, plan: &Plan, number: usize) {
    get_one(reader, plan, number);
    report_one(engine, plan, number);
}

pub(crate) fn get_one(reader: &mut Reader<'_>, plan: &Plan, number: usize) {
    let batch = plan.ids().chunks(BATCH).nth(number).unwrap();
    let index = |&id: &Id| Index { epoch: Some(plan.epoch()), sample: id.into() }.into_raw();
    let indices: Vec<u64> = batch.iter().map(index).collect();
    let held = reader.get(&indices).unwrap();
    reader.release(held);
}

pub(crate) fn report_one(engine: &Engine, plan: &Plan, number: usize) {
    let epoch = plan.epoch();
    let batch = plan.ids().chunks(BATCH).nth(number).unwrap();
    let losses: Vec<f32> = batch.iter().map(|&id| loss(id, epoch)).collect();
    let upto = (number * BATCH + batch.len()) as u64;
    engine.report("job", Trained { epoch, rank: 0, upto, ids: batch, losses: &losses }).unwrap();
}

/// One epoch; how many packages its plan reads, and what was counted.
pub(crate) fn train(engine: &Engine, reader: &mut Reader<'_>, epoch: u64, prefetch: bool) -> (u64, Counters) {
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
pub(crate) fn files(place: &Path) -> Vec<(u32, PathBuf)> {
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
pub(crate) fn going<'a>(engine: &'a Engine, opened: &Opened, place: &Path) -> Reader<'a> {
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
