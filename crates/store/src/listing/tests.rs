//! A kept listing is used if it is whole and nothing changed, and never otherwise.

use std::sync::OnceLock;

use proptest::prelude::*;
use tempfile::TempDir;

use super::format::{CHECKSUM, MAGIC, is_name};
use super::*;
use crate::catalog::Label;
use crate::folder;
use crate::layout::{Layout, Selection};
use crate::place::Place;
use crate::unchanged::unchanged;

const HOUR: Duration = Duration::from_secs(3_600);

/// A dataset that was last changed an hour ago, and a place for listings.
struct Bench {
    root: TempDir,
    listings: TempDir,
    place: String,
    selection: Selection,
}

impl Bench {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for file in ["a/1.png", "a/2.png", "b/sub/3.png"] {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        let place = Place::resolve(&root.path().display().to_string()).unwrap().shown();
        let selection = Selection::new(Layout::Images, &[]).unwrap();
        let bench = Self { root, listings: tempfile::tempdir().unwrap(), place, selection };
        bench.age();
        bench
    }

    /// Sets the time of every directory back.
    fn age(&self) {
        for directory in ["", "a", "b", "b/sub"] {
            let directory = fs::File::open(self.root.path().join(directory)).unwrap();
            directory.set_modified(SystemTime::now() - HOUR).unwrap();
        }
    }

    fn file(&self) -> ListingFile {
        self.slot_of(&self.selection)
    }

    fn slot_of(&self, selection: &Selection) -> ListingFile {
        ListingFile::new(self.listings.path(), key(&self.place, selection))
    }

    fn load(&self) -> Option<Catalog> {
        let root = Path::new(&self.place);
        let holds = |kept: &Listing| {
            kept.origin.directories_hold(root) && unchanged(&kept.catalog, root, &mut |_| Ok(()))
        };
        self.file().load(holds)
    }

    fn list(&self) -> Listing {
        folder::list(Path::new(&self.place), &self.selection, &mut |_| Ok(())).unwrap()
    }

    /// The bytes of a valid file.
    fn bytes(&self) -> Vec<u8> {
        self.file().save(&self.list(), SystemTime::now());
        fs::read(&self.file().file).unwrap()
    }
}

fn key(place: &str, selection: &Selection) -> ListingKey {
    let (place, details) = (place.to_owned(), selection.extensions.clone());
    ListingKey { place, layout: selection.layout.name(), details }
}

fn kept() -> Bench {
    let bench = Bench::new();
    bench.file().save(&bench.list(), SystemTime::now());
    bench
}

#[test]
fn a_kept_listing_is_the_listing() {
    let bench = kept();
    let (fresh, loaded) = (bench.list().catalog, bench.load().unwrap());
    assert_eq!(loaded.identity(), fresh.identity());
    assert_eq!(loaded.versions_identity(), fresh.versions_identity());
    assert_eq!(loaded.classes(), fresh.classes());
    assert_eq!(loaded.memory(), fresh.memory());
    let files: Vec<_> = fs::read_dir(bench.listings.path()).unwrap().collect();
    assert_eq!(files.len(), 1, "no temporary file is left");
}

#[test]
fn another_question_has_another_slot() {
    let bench = kept();
    let files = Selection::new(Layout::Files, &[]).unwrap();
    let png = Selection::new(Layout::Images, &[".png".into()]).unwrap();
    for other in [files, png] {
        let file = bench.slot_of(&other);
        assert!(file.load(|_| true).is_none());
        // Even under the same name it is not taken for an answer.
        fs::copy(&bench.file().file, &file.file).unwrap();
        assert!(file.load(|_| true).is_none());
    }
}

#[test]
fn a_directory_that_changed_is_listed_anew() {
    type Change = fn(&Path);
    let changes: [Change; 5] = [
        |root| fs::write(root.join("b/sub/4.png"), b"new").unwrap(),
        |root| fs::remove_file(root.join("a/2.png")).unwrap(),
        |root| fs::rename(root.join("a/2.png"), root.join("a/4.png")).unwrap(),
        |root| fs::create_dir(root.join("c")).unwrap(),
        |root| fs::remove_dir_all(root.join("b")).unwrap(),
    ];
    for change in changes {
        let bench = kept();
        assert!(bench.load().is_some());
        change(bench.root.path());
        assert!(bench.load().is_none());
    }
}

#[test]
fn a_file_written_in_place_or_replaced_is_listed_anew_whatever_time_it_was_given() {
    type Change = fn(&Path);
    let changes: [Change; 3] = [
        |file| fs::write(file, b"longer than it was").unwrap(),
        |file| fs::write(file, b"a/2.pnG").unwrap(),
        // As `rsync -t` does: another file under the name, in a directory that has its old times.
        |file| {
            let beside = file.with_extension("new");
            fs::write(&beside, b"a/2.pnG").unwrap();
            fs::rename(&beside, file).unwrap();
        },
    ];
    for change in changes {
        let bench = Bench::new();
        let file = bench.root.path().join("a/2.png");
        let before = fs::metadata(&file).unwrap();
        bench.file().save(&bench.list(), SystemTime::now());
        assert!(bench.load().is_some());
        // Again, until the file system's clock has ticked.
        while Stamp::of(&fs::metadata(&file).unwrap()).changed == Stamp::of(&before).changed {
            change(&file);
            fs::File::options()
                .write(true)
                .open(&file)
                .unwrap()
                .set_modified(before.modified().unwrap())
                .unwrap();
        }
        assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), before.modified().unwrap());
        let root = Path::new(&bench.place);
        assert!(bench.file().load(|kept| unchanged(&kept.catalog, root, &mut |_| Ok(()))).is_none());
        assert!(unchanged(&bench.list().catalog, root, &mut |_| Ok(())));
    }
}

#[test]
fn a_change_whose_time_was_set_back_is_seen_too() {
    let bench = kept();
    let folder = bench.root.path().join("a");
    let before = fs::metadata(&folder).unwrap();
    // Again, until the file system's clock has ticked.
    while Stamp::of(&fs::metadata(&folder).unwrap()) == Stamp::of(&before) {
        fs::write(folder.join("3.png"), b"new").unwrap();
        fs::File::open(&folder).unwrap().set_modified(before.modified().unwrap()).unwrap();
    }
    assert_eq!(fs::metadata(&folder).unwrap().modified().unwrap(), before.modified().unwrap());
    assert!(bench.load().is_none());
}

#[test]
fn a_directory_changed_just_before_is_not_trusted() {
    let bench = kept();
    let fresh = fs::File::open(bench.root.path().join("b/sub")).unwrap();
    let began = SystemTime::now();
    fresh.set_modified(began - Duration::from_millis(1_900)).unwrap();
    bench.file().save(&bench.list(), began);
    assert!(!bench.file().file.exists(), "the older listing goes as well");
    fresh.set_modified(began - Duration::from_millis(2_100)).unwrap();
    bench.file().save(&bench.list(), began);
    assert!(bench.load().is_some());
    bench.file().forget();
    assert!(bench.load().is_none());
    bench.file().forget();
}

#[test]
fn a_corrupt_file_is_ignored_and_replaced() {
    let bench = kept();
    for bytes in [&b""[..], b"hotsetls", b"something else"] {
        fs::write(&bench.file().file, bytes).unwrap();
        assert!(bench.load().is_none());
        bench.file().save(&bench.list(), SystemTime::now());
        assert!(bench.load().is_some());
    }
}

#[test]
fn a_place_that_cannot_be_written_is_no_error() {
    let bench = Bench::new();
    let file = bench.listings.path().join("file");
    fs::write(&file, b"").unwrap();
    let file = ListingFile::new(&file, key(&bench.place, &bench.selection));
    file.save(&bench.list(), SystemTime::now());
    assert!(file.load(|_| true).is_none());
}

#[test]
fn a_path_that_leaves_the_root_is_garbled() {
    assert!(is_name("a b") && is_name("..."));
    for name in ["", ".", "..", "a/b", "/", "a\0"] {
        assert!(!is_name(name));
    }
}

#[test]
fn floats_lists_and_classes_are_kept_as_they_are() {
    use crate::catalog::{Builder, Sample, Shape};
    let kept = |labels: &[Label<'_>], names: &[&str]| {
        let mut builder = Builder::of(Shape { labels: true, ..Shape::default() });
        let folder = builder.directory("").unwrap();
        for (number, &label) in labels.iter().enumerate() {
            let sample = Sample { label: Some(label), ..Sample::default() };
            builder.push_sample(folder, &number.to_string(), &sample).unwrap();
        }
        if !names.is_empty() {
            builder.name_classes(names.iter().map(|&name| name.to_owned()).collect()).unwrap();
        }
        let listing = Listing { catalog: builder.finish(), origin: Origin::default() };
        let bench = Bench::new();
        let file = bench.file();
        file.save(&listing, SystemTime::now());
        let loaded = file.load(|_| true).unwrap();
        assert_eq!(loaded.identity(), listing.catalog.identity());
        assert_eq!(loaded.label_kind(), listing.catalog.label_kind());
        for id in 0..labels.len() as u32 {
            assert_eq!(loaded.label_of(id), listing.catalog.label_of(id));
        }
        loaded
    };
    kept(&[Label::Whole(3), Label::Float(0.5)], &[]);
    let (some, floats) = ([0.5, 1.0], true);
    kept(&[Label::List { values: &some, floats }, Label::List { values: &[], floats }], &[]);
    kept(&[Label::List { values: &[1.0, 0.0], floats: false }], &[]);
    let classes = kept(&[Label::Whole(0), Label::Whole(1), Label::Whole(0)], &["dog", "cat"]);
    assert_eq!((classes.classes(), classes.label(0)), (&["cat".to_owned(), "dog".to_owned()][..], Some(1)));
}

#[test]
fn labels_places_and_parts_of_their_own_are_kept_too() {
    use crate::catalog::{Builder, Sample, Shape};
    let parts = vec!["jpg".to_owned(), "json".to_owned()];
    let mut builder = Builder::of(Shape { classes: Vec::new(), labels: true, parts });
    let shard = builder.directory("train-0.tar").unwrap();
    let spans = [0, 4, 6, 4];
    let sample =
        Sample { offset: Some(512), size: 10, version: 3, label: Some(Label::Whole(-7)), spans: &spans };
    builder.push_sample(shard, "some/key", &sample).unwrap();
    builder
        .push_sample(shard, "whole", &Sample { offset: None, label: Some(Label::Whole(1)), ..sample })
        .unwrap();
    let objects = vec![Object { key: "train-0.tar".into(), look: ObjectVersion { size: 4096, version: 3 } }];
    let listing = Listing { catalog: builder.finish(), origin: Origin { objects, ..Origin::default() } };
    let bench = Bench::new();
    let file = bench.file();
    file.save(&listing, SystemTime::now());
    let mut origin = None;
    let loaded = file.load(|found| *origin.insert(found.origin.clone()) == found.origin).unwrap();
    assert_eq!(origin, Some(listing.origin));
    assert_eq!(loaded.identity(), listing.catalog.identity());
    assert_eq!((loaded.offset(0), loaded.offset(1)), (Some(512), None));
    assert_eq!((loaded.label(0), loaded.label(1)), (Some(-7), Some(1)));
    assert_eq!(loaded.spans(1), spans);
    assert_eq!(loaded.key(0), "train-0.tar/some/key");
    loaded.with_location(0, |at| assert_eq!((at.key, at.offset, at.whole), ("train-0.tar", 512, false)));
    loaded.with_location(1, |at| assert_eq!((at.key, at.offset, at.whole), ("train-0.tar/whole", 0, true)));
}

/// One valid file for all cases.
fn valid() -> &'static (Bench, Vec<u8>) {
    static VALID: OnceLock<(Bench, Vec<u8>)> = OnceLock::new();
    VALID.get_or_init(|| {
        let bench = Bench::new();
        let bytes = bench.bytes();
        (bench, bytes)
    })
}

proptest! {
    #[test]
    fn random_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let (bench, _) = valid();
        prop_assert!(bench.file().decode(&bytes).is_err());
        let with_magic = [MAGIC, &bytes[..]].concat();
        prop_assert!(bench.file().decode(&with_magic).is_err());
    }

    #[test]
    fn one_byte_changed_is_refused(place in any::<prop::sample::Index>(), flip in 1u8..) {
        let (bench, bytes) = valid();
        let mut bytes = bytes.clone();
        bytes[place.index(valid().1.len())] ^= flip;
        let refused = bench.file().decode(&bytes);
        prop_assert!(matches!(refused, Err(Unusable::Checksum | Unusable::Foreign)));
    }

    #[test]
    fn a_file_cut_short_or_grown_is_refused(place in any::<prop::sample::Index>(), more in 1usize..40) {
        let (bench, bytes) = valid();
        prop_assert!(bench.file().decode(&bytes[..place.index(bytes.len())]).is_err());
        prop_assert!(bench.file().decode(&[&bytes[..], &vec![0; more]].concat()).is_err());
    }

    /// Past the checksum too: a body that was changed, cut or filled at will never panics.
    #[test]
    fn a_forged_body_never_panics(
        place in any::<prop::sample::Index>(),
        with in prop::collection::vec(any::<u8>(), 0..12),
        cut in any::<bool>(),
    ) {
        let (bench, bytes) = valid();
        let mut body = bytes[MAGIC.len()..bytes.len() - CHECKSUM].to_vec();
        let place = place.index(body.len());
        let end = if cut { body.len() } else { (place + with.len()).min(body.len()) };
        body.splice(place..end, with);
        let _ = bench.file().decode_body(&body);
    }
}
