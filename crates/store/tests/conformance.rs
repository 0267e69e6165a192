//! What every store promises, run over each: plain files, a throttled one, one whose faults are off.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says on which store"
)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use hotset_core::{Error, Kind};
use hotset_store::{Layout, Opened, ReadError, Request, forget, open};
use tempfile::TempDir;

/// Name and storage options of every store.
const STORES: [(&str, &[(&str, &str)]); 3] = [
    ("files", &[]),
    ("throttle", &[("throttle.latency", "100us"), ("throttle.bandwidth", "1GB/s")]),
    ("fault", &[("fault.seed", "1"), ("fault.rate", "0")]),
];

/// The contents of sample `number`, of a length of its own; the first is empty.
fn contents(number: usize) -> Vec<u8> {
    (0..number * 1_777).map(|byte| (byte * 31 + number) as u8).collect()
}

fn dataset() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for number in 0..12 {
        let folder = root.path().join(format!("class {}", number % 3));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{number:02}.png")), contents(number)).unwrap();
    }
    root
}

fn request(root: &Path, options: &[(&str, &str)]) -> Request {
    Request {
        place: root.display().to_string(),
        layout: Layout::Files,
        extensions: Vec::new(),
        label: String::new(),
        root: String::new(),
        storage_options: options.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
    }
}

fn read(opened: &Opened, id: u32) -> Result<Vec<u8>, ReadError> {
    let mut bytes = vec![0xaa; opened.catalog.size(id) as usize];
    opened.catalog.with_location(id, |at| opened.store.read(at, &mut bytes)).map(|()| bytes)
}

/// The sample whose key ends so.
fn sample(opened: &Opened, ending: &str) -> u32 {
    (0..opened.catalog.len() as u32).find(|&id| opened.catalog.key(id).ends_with(ending)).unwrap()
}

/// Runs `check` over every store, each on a dataset of its own.
fn over_every_store(check: impl Fn(&Path, &Opened)) {
    for (name, options) in STORES {
        println!("store: {name}");
        let root = dataset();
        let opened = open(&request(root.path(), options), None, &mut |_| Ok(())).unwrap();
        check(root.path(), &opened);
    }
}

#[test]
fn bytes_out_are_bytes_in_also_of_an_empty_sample() {
    over_every_store(|_, opened| {
        assert_eq!(opened.catalog.len(), 12);
        for number in 0..12 {
            let id = sample(opened, &format!("/{number:02}.png"));
            assert_eq!(read(opened, id).unwrap(), contents(number));
            assert_eq!(read(opened, id).unwrap(), contents(number), "a second read is the same");
        }
    });
}

#[test]
fn many_threads_read_at_once() {
    over_every_store(|_, opened| {
        std::thread::scope(|scope| {
            for thread in 0..8 {
                scope.spawn(move || {
                    for turn in 0..24 {
                        let number = (turn * 5 + thread) % 12;
                        let id = sample(opened, &format!("/{number:02}.png"));
                        assert_eq!(read(opened, id).unwrap(), contents(number));
                    }
                });
            }
        });
    });
}

#[test]
fn data_that_changed_is_told_and_never_served() {
    over_every_store(|root, opened| {
        let path = |number: usize| root.join(format!("class {}/{number:02}.png", number % 3));
        let told = |number: usize| read(opened, sample(opened, &format!("/{number:02}.png"))).unwrap_err();

        fs::remove_file(path(1)).unwrap();
        assert_eq!(told(1), ReadError::Vanished);

        let length = |number| contents(number).len() as u64;
        fs::write(path(2), b"short").unwrap();
        assert_eq!(told(2), ReadError::Resized { expected: length(2), found: 5 });
        fs::write(path(3), [contents(3), vec![0]].concat()).unwrap();
        assert_eq!(told(3), ReadError::Resized { expected: length(3), found: length(3) + 1 });
        fs::write(path(0), b"no longer empty").unwrap();
        assert_eq!(told(0), ReadError::Resized { expected: 0, found: 15 });

        let file = fs::OpenOptions::new().write(true).open(path(4)).unwrap();
        fs::write(path(4), vec![0; contents(4).len()]).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(1)).unwrap();
        assert_eq!(told(4), ReadError::Modified);

        fs::remove_file(path(5)).unwrap();
        fs::create_dir(path(5)).unwrap();
        assert_eq!(told(5), ReadError::Modified);

        for number in 1..=5 {
            assert_eq!(Error::from(told(number)).kind, Kind::Changed);
        }
        assert_eq!(read(opened, sample(opened, "/06.png")).unwrap(), contents(6), "the others are served");
    });
}

#[test]
fn each_store_is_a_dataset_of_its_own_over_one_catalog() {
    let root = dataset();
    let opened: Vec<Opened> = STORES
        .iter()
        .map(|(_, options)| open(&request(root.path(), options), None, &mut |_| Ok(())).unwrap())
        .collect();
    for (index, one) in opened.iter().enumerate() {
        assert_eq!(one.catalog.identity(), opened[0].catalog.identity());
        assert!(opened[..index].iter().all(|other| other.identity != one.identity));
    }
}

#[test]
fn faults_pass_when_reads_are_tried_again() {
    let root = dataset();
    let opened =
        open(&request(root.path(), &[("fault.seed", "5"), ("fault.rate", "0.5")]), None, &mut |_| Ok(()))
            .unwrap();
    let mut failures = 0;
    for id in 0..12 {
        let tries = std::iter::repeat_with(|| read(&opened, id)).take(64);
        let mut until = tries.skip_while(|read| {
            failures += usize::from(read.is_err());
            read.as_ref().is_err_and(ReadError::retriable)
        });
        assert_eq!(until.next().unwrap().unwrap().len() as u64, opened.catalog.size(id));
    }
    assert!(failures > 0);
}

#[test]
fn a_dataset_opens_from_its_kept_listing_until_it_is_forgotten() {
    let (root, listings) = (dataset(), tempfile::tempdir().unwrap());
    for entry in fs::read_dir(root.path()).unwrap() {
        let old = SystemTime::now() - Duration::from_secs(60);
        fs::File::open(entry.unwrap().path()).unwrap().set_modified(old).unwrap();
        fs::File::open(root.path()).unwrap().set_modified(old).unwrap();
    }
    let request = request(root.path(), &[]);
    let opened = || open(&request, Some(listings.path()), &mut |_| Ok(())).unwrap();
    let first = opened();
    let second = opened();
    assert_eq!((first.cached, second.cached), (false, true));
    assert_eq!(first.identity, second.identity);

    // Written in place, and given the time it had: a reader that has it open is told, and one that opens it has the new one.
    let path = root.path().join("class 1/07.png");
    let before = fs::metadata(&path).unwrap();
    // Again, until the file system's clock has ticked.
    while fs::metadata(&path).unwrap().ctime_nsec() == before.ctime_nsec() {
        fs::write(&path, vec![0; contents(7).len()]).unwrap();
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(before.modified().unwrap())
            .unwrap();
    }
    assert_eq!(read(&second, sample(&second, "/07.png")), Err(ReadError::Modified));
    let third = opened();
    assert!(!third.cached);
    assert_eq!(read(&third, sample(&third, "/07.png")).unwrap(), vec![0; contents(7).len()]);
    assert_eq!(third.catalog.identity(), first.catalog.identity());
    assert_ne!(third.identity, first.identity, "what was read of the old one is not taken for the new");
    assert!(opened().cached);
    forget(listings.path(), &request);
    assert!(!opened().cached);
}

#[test]
fn a_wrong_request_is_refused_before_anything_is_listed() {
    let root = dataset();
    let refused = |change: fn(&mut Request)| {
        let mut wrong = request(root.path(), &[]);
        change(&mut wrong);
        let error = open(&wrong, None, &mut |_| panic!("nothing is listed")).err().unwrap();
        assert_eq!(error.kind, Kind::Invalid);
        error.message
    };
    assert!(refused(|wrong| wrong.place.push_str("/missing")).contains("/missing"));
    assert!(refused(|wrong| wrong.place.insert_str(0, "ftp:/")).contains("`ftp://`"));
    assert!(refused(|wrong| wrong.extensions.push(".".into())).contains("`extensions`"));
    assert!(
        refused(|wrong| wrong.storage_options = BTreeMap::from([("anon".into(), "true".into())]))
            .contains("`anon`")
    );
}
