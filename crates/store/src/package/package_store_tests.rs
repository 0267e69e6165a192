use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hotset_core::{Error, Id, Kind};
use object_store::memory::InMemory;
use tempfile::TempDir;

use super::bucket::Bucket;
use super::{
    Damage, Dataset, Draft, Foreign, Name, Package, PackagePlace, PackageStore, Part, Swept, WriteError,
};
use crate::remote::{Address, Remote};
use crate::runtime::runtime;
use crate::store::ReadError;

const IDENTITY: &str = "a dataset";

/// A package of `count` samples, whose bytes are their ids.
fn package(identity: &str, number: u32, count: u32) -> Vec<u8> {
    let ids: Vec<Id> = (0..count).map(|at| number.wrapping_mul(10_000).wrapping_add(at)).collect();
    let sizes: Vec<(Id, u64)> = ids.iter().map(|id| (*id, 4)).collect();
    let mut draft = Draft::new(identity, number, &sizes).unwrap();
    ids.iter().for_each(|id| assert!(draft.put(*id, &id.to_le_bytes()).is_ok()));
    draft.finish().unwrap()
}

fn dataset(place: &str) -> Dataset<'_> {
    Dataset { place, identity: IDENTITY }
}

fn none() -> BTreeMap<String, String> {
    BTreeMap::new()
}

/// A place of packages: a directory, or an object store in memory.
struct Stage {
    directory: TempDir,
    memory: Option<Arc<InMemory>>,
}

impl Stage {
    fn both() -> [Self; 2] {
        let directory = || tempfile::tempdir().unwrap();
        let memory = Some(Arc::new(InMemory::new()));
        [Self { directory: directory(), memory: None }, Self { directory: directory(), memory }]
    }

    fn local() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), memory: None }
    }

    fn place(&self) -> String {
        self.directory.path().join("packages").display().to_string()
    }

    fn place_of_all(&self) -> PackagePlace {
        let Some(memory) = &self.memory else { return PackagePlace::open(&self.place(), &none()).unwrap() };
        let address = Address::parse("s3://bucket/some/packages").unwrap().unwrap();
        let runtime = runtime().unwrap();
        let client = Arc::clone(memory) as _;
        let remote =
            Arc::new(Remote { address, options: BTreeMap::new(), client, runtime, reached: true.into() });
        PackagePlace {
            place: remote.address.shown(),
            reads: Arc::new(Arc::clone(&remote)),
            backing: Box::new(Bucket::new(remote)),
        }
    }

    fn store(&self, owner: &str) -> PackageStore {
        match self.memory {
            None => PackageStore::open(&self.place(), &none(), dataset("/nowhere/train"), owner).unwrap(),
            Some(_) => PackageStore::on(self.place_of_all(), IDENTITY, owner).unwrap(),
        }
    }

    /// The directory of the one owner there is.
    fn owner(&self) -> PathBuf {
        let only = |path: &Path| fs::read_dir(path).unwrap().next().unwrap().unwrap().path();
        only(&only(Path::new(&self.place())))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.owner().join(name)
    }
}

fn read(store: &PackageStore, number: u32) -> Result<Vec<u8>, ReadError> {
    let mut bytes = b"what was there before".to_vec();
    store.read(number, &mut bytes).map(|()| bytes)
}

#[test]
fn what_was_written_is_read_and_found_again_by_the_next_process() {
    for stage in Stage::both() {
        let store = stage.store("job");
        for number in [0, 1, 99_999_999, 100_000_000] {
            store.write(number, &package(IDENTITY, number, 5 + number % 7)).unwrap();
        }
        assert_eq!(read(&store, 1).unwrap(), package(IDENTITY, 1, 6));

        let next = stage.store("job");
        assert_eq!(next.length(1), None);
        assert_eq!(read(&next, 1).unwrap(), package(IDENTITY, 1, 6), "of an unknown length");
        let mut told = Vec::new();
        let scan = next.scan(&mut |done| told.push(done)).unwrap();
        assert_eq!(told, [1, 2, 3, 4]);
        let numbers: Vec<u32> = scan.packages.iter().map(|found| found.number).collect();
        assert_eq!(numbers, [0, 1, 99_999_999, 100_000_000]);
        assert_eq!(scan.packages[1].ids(), (10_000..10_006).collect::<Vec<_>>());
        assert_eq!((scan.leftovers.len(), scan.damaged.len()), (0, 0));
        assert_eq!(scan.next(), Some(100_000_001));
        assert_eq!(next.length(1), Some(package(IDENTITY, 1, 6).len() as u64));
        assert_eq!(read(&next, 1).unwrap(), package(IDENTITY, 1, 6));
    }
}

#[test]
fn a_package_is_replaced_whole_and_a_removed_one_is_gone() {
    for stage in Stage::both() {
        let store = stage.store("job");
        store.write(1, &package(IDENTITY, 1, 9)).unwrap();
        store.write(1, &package(IDENTITY, 1, 3)).unwrap();
        assert_eq!(read(&store, 1).unwrap(), package(IDENTITY, 1, 3));
        store.remove(1).unwrap();
        store.remove(1).unwrap();
        assert_eq!(read(&store, 1), Err(ReadError::Vanished));
        assert_eq!(store.scan(&mut |_| {}).unwrap().next(), Some(0));
    }
}

#[test]
fn owners_and_datasets_do_not_see_each_other() {
    for stage in Stage::both() {
        let (one, two) = (stage.store("one"), stage.store("two"));
        one.write(0, &package(IDENTITY, 0, 3)).unwrap();
        assert_eq!(read(&two, 0), Err(ReadError::Vanished));
        assert_eq!(two.scan(&mut |_| {}).unwrap().packages.len(), 0);
        two.write(0, &package(IDENTITY, 0, 4)).unwrap();
        assert_eq!(one.drop_all().unwrap().packages, 1);
        assert_eq!(read(&one, 0), Err(ReadError::Vanished));
        assert_eq!(read(&two, 0).unwrap(), package(IDENTITY, 0, 4));
        one.write(0, &package(IDENTITY, 0, 5)).unwrap();
        assert_eq!(read(&one, 0).unwrap(), package(IDENTITY, 0, 5), "a store that was dropped can be used");
    }
}

#[test]
fn an_index_longer_than_the_first_read_is_read_whole() {
    for stage in Stage::both() {
        let store = stage.store("job");
        store.write(0, &package(IDENTITY, 0, 5_000)).unwrap();
        let scan = store.scan(&mut |_| {}).unwrap();
        assert_eq!(scan.packages[0].index.count(), 5_000);
    }
}

#[test]
fn a_scan_tells_damage_apart_and_removes_nothing() {
    for stage in Stage::both() {
        let store = stage.store("job");
        store.write(0, &package(IDENTITY, 0, 50)).unwrap();
        let whole = package(IDENTITY, 1, 50);
        store.write(1, &whole[..whole.len() - 1]).unwrap();
        store.write(2, &whole[..90]).unwrap();
        store.write(3, b"").unwrap();
        let mut flipped = package(IDENTITY, 4, 50);
        flipped[100] ^= 1;
        store.write(4, &flipped).unwrap();
        store.write(5, &package("another dataset", 5, 50)).unwrap();
        store.write(6, &package(IDENTITY, 7, 50)).unwrap();
        store.write(8, b"a stranger's file under our name").unwrap();
        let mut newer = package(IDENTITY, 9, 50);
        newer[8] = 9;
        store.write(9, &newer).unwrap();

        let scan = store.scan(&mut |_| {}).unwrap();
        let (length, header) = (whole.len() as u64, 72 + 24 * 50);
        let damages: Vec<Damage> = scan.damaged.iter().map(|damaged| damaged.damage).collect();
        assert_eq!(
            damages,
            [
                Damage::Torn { expected: length, found: length - 1 },
                Damage::Torn { expected: header, found: 90 },
                Damage::Torn { expected: 72, found: 0 },
                Damage::Flipped(Part::Index),
                Damage::Foreign(Foreign::Dataset),
                Damage::Foreign(Foreign::Number(7)),
                Damage::Foreign(Foreign::Magic),
                Damage::Foreign(Foreign::Format(9)),
            ]
        );
        assert_eq!((scan.packages.len(), scan.next()), (1, Some(10)));
        assert_eq!(store.scan(&mut |_| {}).unwrap(), scan, "nothing was removed");

        let swept = store.sweep().unwrap();
        assert_eq!((swept.packages, swept.leftovers), (6, 0));
        let left = store.scan(&mut |_| {}).unwrap();
        let damages: Vec<Damage> = left.damaged.iter().map(|damaged| damaged.damage).collect();
        assert_eq!(damages, [Damage::Foreign(Foreign::Magic), Damage::Foreign(Foreign::Format(9))]);
        assert_eq!(store.drop_all().unwrap().packages, 2, "the stranger's file stays");
        assert_eq!(read(&store, 8).unwrap(), b"a stranger's file under our name");
    }
}

#[test]
fn leftovers_of_killed_writers_are_reported_and_swept_and_other_files_are_not_touched() {
    let stage = Stage::local();
    let store = stage.store("job");
    store.write(0, &package(IDENTITY, 0, 3)).unwrap();
    let (left, notes) = (stage.file(".00000001.hotset-aB3dEf.tmp"), stage.file("notes.txt"));
    fs::write(&left, b"half a pack").unwrap();
    fs::write(&notes, b"mine").unwrap();
    let scan = store.scan(&mut |_| {}).unwrap();
    assert_eq!(scan.leftovers.iter().map(|left| left.name).collect::<Vec<_>>(), [Name::Leftover]);
    assert_eq!((scan.packages.len(), scan.damaged.len()), (1, 0));
    assert!(left.exists());
    assert_eq!(store.sweep().unwrap(), Swept { packages: 0, leftovers: 1, bytes: 11 });
    assert!(!left.exists() && notes.exists());
    store.drop_all().unwrap();
    assert!(notes.exists());
    fs::remove_file(&notes).unwrap();
    let owner = stage.owner();
    store.drop_all().unwrap();
    assert!(owner.exists(), "there was nothing to drop");
    store.write(0, &package(IDENTITY, 0, 3)).unwrap();
    store.drop_all().unwrap();
    assert!(!owner.exists() && Path::new(&stage.place()).exists(), "empty directories go, the place stays");
}

#[test]
fn what_we_make_is_for_this_user_alone() {
    let stage = Stage::local();
    let store = stage.store("job");
    store.write(0, &package(IDENTITY, 0, 3)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let owner = stage.owner();
    assert_eq!(mode(Path::new(&stage.place())), 0o700);
    assert_eq!((mode(owner.parent().unwrap()), mode(&owner)), (0o700, 0o700));
    assert_eq!(mode(&stage.file("00000000.hotset")), 0o600);
    assert_eq!(fs::read_dir(&owner).unwrap().count(), 1, "nothing is left beside it");

    fs::set_permissions(&owner, fs::Permissions::from_mode(0o777)).unwrap();
    let error = PackageStore::open(&stage.place(), &none(), dataset("/nowhere/train"), "job").err().unwrap();
    assert_eq!(error.kind, Kind::Invalid);
    assert!(error.message.contains("another user") && error.message.contains("`packages=`"), "{error}");
}

#[test]
fn a_place_that_others_can_write_is_refused_before_anything_is_made_there() {
    let place = tempfile::tempdir().unwrap();
    for mode in [0o777, 0o1777, 0o770] {
        fs::set_permissions(place.path(), fs::Permissions::from_mode(mode)).unwrap();
        let name = place.path().display().to_string();
        let error = PackageStore::open(&name, &none(), dataset("/nowhere/train"), "job").err().unwrap();
        assert_eq!(error.kind, Kind::Invalid);
        for said in ["another user", "chmod go-w", "`packages=`"] {
            assert!(error.message.contains(said), "{error}");
        }
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
        // It can be looked at all the same.
        assert!(PackagePlace::open(&name, &none()).unwrap().owners().unwrap().is_empty());
    }
}

#[test]
fn a_directory_that_is_swapped_in_later_is_not_followed() {
    let forged = package(IDENTITY, 0, 4);
    let swapped: [fn(&Path, &Path); 3] = [
        // One that others can write.
        |from, to| {
            fs::rename(from, to).unwrap();
            fs::set_permissions(to, fs::Permissions::from_mode(0o777)).unwrap();
        },
        // A link to one, even where the target could be written.
        |from, to| std::os::unix::fs::symlink(from, to).unwrap(),
        // A file that others can write.
        |from, to| {
            fs::rename(from, to).unwrap();
            let file = to.join("00000000.hotset");
            fs::set_permissions(file, fs::Permissions::from_mode(0o666)).unwrap();
        },
    ];
    for (number, swap) in swapped.into_iter().enumerate() {
        let stage = Stage::local();
        let store = stage.store("job");
        store.write(0, &forged).unwrap();
        let owner = stage.owner();
        let beside = owner.with_extension("away");
        fs::rename(&owner, &beside).unwrap();
        swap(&beside, &owner);
        assert!(matches!(read(&store, 0), Err(ReadError::Modified | ReadError::Vanished)), "{number}");
        if number < 2 {
            store.write(1, &forged).unwrap_err();
            store.scan(&mut |_| {}).unwrap_err();
            assert!(!owner.join("00000001.hotset").exists(), "{number}");
        } else {
            assert!(store.scan(&mut |_| {}).unwrap().packages.is_empty());
            store.write(0, &forged).unwrap();
            assert_eq!(read(&store, 0).unwrap(), forged, "our own is in its place");
        }
    }
}

#[test]
fn a_place_that_became_a_link_is_not_followed() {
    let stage = Stage::local();
    let store = stage.store("job");
    store.write(0, &package(IDENTITY, 0, 3)).unwrap();
    let place = PathBuf::from(stage.place());
    let away = place.with_extension("away");
    fs::rename(&place, &away).unwrap();
    std::os::unix::fs::symlink(&away, &place).unwrap();
    assert!(read(&store, 0).is_err());
    store.write(1, &package(IDENTITY, 1, 3)).unwrap_err();
}

#[test]
fn a_write_that_fails_leaves_the_old_package_and_nothing_else() {
    let stage = Stage::local();
    let store = stage.store("job");
    store.write(0, &package(IDENTITY, 0, 3)).unwrap();
    // A directory under the name cannot be replaced by a file, by root neither.
    fs::create_dir(stage.file("00000001.hotset")).unwrap();
    let error = store.write(1, &package(IDENTITY, 1, 3)).unwrap_err();
    assert!(matches!(error, WriteError::Failed { .. } | WriteError::ReadOnly { .. }), "{error}");
    assert!(Error::from(error).message.contains("`packages=`"));
    let mut names: Vec<_> =
        fs::read_dir(stage.owner()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["00000000.hotset", "00000001.hotset"]);
    assert_eq!(read(&store, 0).unwrap(), package(IDENTITY, 0, 3));
}

#[test]
fn a_place_where_the_dataset_is_listed_is_refused_and_nothing_is_made_there() {
    let directory = tempfile::tempdir().unwrap();
    let train = directory.path().join("train");
    fs::create_dir(&train).unwrap();
    let (train, within) = (train.display().to_string(), train.join("packages").display().to_string());
    let error = PackageStore::open(&within, &none(), dataset(&train), "job").err().unwrap();
    assert_eq!(error.kind, Kind::Invalid);
    assert!(error.message.contains("`packages=`") && error.message.contains("outside"), "{error}");
    assert_eq!(fs::read_dir(&train).unwrap().count(), 0);
    let error = PackageStore::open("https://host/packages", &none(), dataset(&train), "job").err().unwrap();
    assert!(error.message.contains("takes no packages"), "{error}");
    let file = directory.path().join("file");
    fs::write(&file, b"x").unwrap();
    let error =
        PackageStore::open(&file.display().to_string(), &none(), dataset(&train), "job").err().unwrap();
    assert!(error.message.contains("`packages=`"), "{error}");
}

#[test]
fn a_package_that_changed_its_length_is_told() {
    let stage = Stage::local();
    let store = stage.store("job");
    store.write(0, &package(IDENTITY, 0, 3)).unwrap();
    fs::write(stage.file("00000000.hotset"), b"short").unwrap();
    let expected = package(IDENTITY, 0, 3).len() as u64;
    assert_eq!(read(&store, 0), Err(ReadError::Resized { expected, found: 5 }));
}

#[test]
fn packages_are_read_with_the_faults_of_the_store_and_those_of_its_client_are_let_pass() {
    let stage = Stage::local();
    let options = [("fault.rate", "1"), ("aws_region", "eu-central-1")];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let store = PackageStore::open(&stage.place(), &options, dataset("/nowhere/train"), "job").unwrap();
    store.write(0, &package(IDENTITY, 0, 3)).unwrap();
    assert!(read(&store, 0).unwrap_err().retriable());
}

#[test]
fn a_place_that_cannot_be_written_is_told_when_it_is_opened() {
    // No user can make a directory there, not even root.
    let error = PackageStore::open("/sys/hotset", &none(), dataset("/nowhere/train"), "job").err().unwrap();
    assert_eq!(error.kind, Kind::Invalid);
    assert!(error.message.contains("cannot be written") && error.message.contains("`packages=`"), "{error}");
}

#[test]
fn a_room_shows_every_owner_verifies_every_byte_and_removes_only_what_is_ours() {
    for stage in Stage::both() {
        let before = SystemTime::now() - Duration::from_secs(5);
        stage.store("one").write(0, &package(IDENTITY, 0, 3)).unwrap();
        let two = stage.store("two");
        let mut rotten = package(IDENTITY, 0, 4);
        let last = rotten.len() - 1;
        rotten[last] ^= 8;
        two.write(0, &rotten).unwrap();
        two.write(1, &package(IDENTITY, 1, 5)).unwrap();
        two.write(2, b"a stranger's").unwrap();

        let place_of_all = stage.place_of_all();
        let owners = place_of_all.owners().unwrap();
        let mut counts: Vec<u64> = owners.iter().map(super::Owner::packages).collect();
        counts.sort_unstable();
        assert_eq!(counts, [1, 3]);
        assert_eq!(owners[0].dataset, owners[1].dataset);
        assert_ne!(owners[0].owner, owners[1].owner);
        assert!(owners.iter().all(|owner| owner.newest().unwrap() > before));

        let stored: Vec<_> = owners.into_iter().flat_map(|owner| owner.stored).collect();
        let scan = place_of_all.scan(&stored, &mut |_| {}).unwrap();
        assert_eq!(scan.packages.len(), 3, "the index of the rotten one is whole");
        let (mut seen, mut damages) = (0, Vec::new());
        place_of_all
            .verify(&stored, &mut |_, found| {
                seen += 1;
                damages.extend_from_slice(found);
            })
            .unwrap();
        assert_eq!(seen, 4);
        assert_eq!(damages, [Damage::Flipped(Part::Sample(3)), Damage::Foreign(Foreign::Magic)]);
        assert_eq!(place_of_all.clear(&stored).unwrap().packages, 3);
        assert_eq!(place_of_all.owners().unwrap().len(), 1, "the stranger's file stays");
    }
}

#[test]
fn a_shelf_is_read_and_written_by_many_threads() {
    for stage in Stage::both() {
        let store = stage.store("job");
        std::thread::scope(|scope| {
            for number in 0..8 {
                let store = &store;
                scope.spawn(move || {
                    store.write(number, &package(IDENTITY, number, 30)).unwrap();
                    assert_eq!(read(store, number).unwrap(), package(IDENTITY, number, 30));
                });
            }
        });
        assert_eq!(store.scan(&mut |_| {}).unwrap().packages.len(), 8);
    }
}

#[test]
fn a_rotten_sample_is_found_when_it_is_asked_for() {
    let stage = Stage::local();
    let store = stage.store("job");
    let mut rotten = package(IDENTITY, 0, 4);
    let last = rotten.len() - 1;
    rotten[last] ^= 8;
    store.write(0, &rotten).unwrap();
    let bytes = read(&store, 0).unwrap();
    let package = Package::parse(&bytes, IDENTITY, 0).unwrap();
    assert_eq!(package.sample(2), Some(Ok(&2u32.to_le_bytes()[..])));
    assert_eq!(package.sample(3), Some(Err(Damage::Flipped(Part::Sample(3)))));
}
