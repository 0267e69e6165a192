use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Parser;
use hotset_store::package::{Dataset, Draft, PackageStore};
use serde_json::Value;

use super::{Command, Common, Pack};

const DAY: Duration = Duration::from_secs(86_400);

/// Runs a whole command line; the exit code.
fn hotset(arguments: &[&str]) -> u8 {
    let words = ["hotset", "pack"].into_iter().chain(arguments.iter().copied());
    crate::run(words.map(str::to_owned).collect(), None)
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    pack: Pack,
}

/// What a command prints.
fn printed(arguments: &[&str]) -> String {
    let line = Line::try_parse_from(["pack"].iter().chain(arguments)).unwrap();
    let common = Common { storage_options: BTreeMap::new(), json: line.pack.json };
    match line.pack.command {
        Command::Inspect(command) => command.run(&common).unwrap(),
        Command::Verify(command) => command.run(&common).unwrap().0,
        Command::Gc(command) => command.run(&common).unwrap(),
    }
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&printed(&[arguments, &["--json"]].concat())).unwrap()
}

/// A place in which `owner` has `count` packages of ten samples.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    /// The files of the packages.
    fn fill(&self, owner: &str, count: u32) -> Vec<PathBuf> {
        let dataset = Dataset { place: "/nowhere/train", identity: "a dataset" };
        let packages = PackageStore::open(self.path(), &BTreeMap::new(), dataset, owner).unwrap();
        let before = self.files();
        for number in 0..count {
            let sizes: Vec<(u32, u64)> = (0..10).map(|at| (number * 10 + at, 100)).collect();
            let mut draft = Draft::new("a dataset", number, &sizes).unwrap();
            sizes.iter().for_each(|(id, _)| assert!(draft.put(*id, &[*id as u8; 100]).is_ok()));
            packages.write(number, &draft.finish().unwrap()).unwrap();
        }
        let mut files = self.files();
        files.retain(|file| !before.contains(file));
        files
    }

    fn files(&self) -> Vec<PathBuf> {
        fn walk(directory: &Path, files: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { walk(&path, files) } else { files.push(path) }
            }
        }
        let mut files = Vec::new();
        walk(self.0.path(), &mut files);
        files.sort();
        files
    }
}

fn flip(file: &Path, from_end: usize) {
    let mut bytes = fs::read(file).unwrap();
    let at = bytes.len() - from_end;
    bytes[at] ^= 1;
    fs::write(file, bytes).unwrap();
}

fn age(file: &Path, age: Duration) {
    File::options().append(true).open(file).unwrap().set_modified(SystemTime::now() - age).unwrap();
}

#[test]
fn inspect_shows_every_owner_with_packages_and_samples() {
    let place = Place::new();
    assert!(printed(&["inspect", place.path()]).contains("no packages"));
    place.fill("one", 3);
    let two = place.fill("two", 2);
    flip(&two[1], 1_100);
    fs::write(two[0].with_file_name(".00000007.hotset-x.tmp"), b"half").unwrap();
    let mut owners = json(&["inspect", place.path()]);
    let owners = owners.as_array_mut().unwrap();
    owners.sort_by_key(|owner| owner["packages"].as_u64());
    let field = |at: usize, name: &str| owners[at][name].as_u64().unwrap();
    assert_eq!((field(0, "packages"), field(0, "samples")), (2, 10), "one cannot be looked into");
    assert_eq!((field(0, "damaged"), field(0, "leftovers")), (1, 1));
    assert_eq!((field(1, "packages"), field(1, "samples"), field(1, "damaged")), (3, 30, 0));
    assert_eq!(field(1, "bytes"), 3 * (72 + 10 * 24 + 1_000));
    let text = printed(&["inspect", place.path()]);
    assert!(text.contains("1 damaged, 1 left behind") && text.contains("0 min old"), "{text}");
}

#[test]
fn inspect_shows_what_lies_in_one_package() {
    let place = Place::new();
    let file = place.fill("one", 2)[1].display().to_string();
    flip(Path::new(&file), 1);
    let content = json(&["inspect", &file]);
    assert_eq!((content["number"].as_u64(), content["samples"].as_u64()), (Some(1), Some(10)));
    let index = content["index"].as_array().unwrap();
    assert_eq!((index[0]["id"].as_u64(), index[0]["offset"].as_u64()), (Some(10), Some(312)));
    let damaged: Vec<bool> = index.iter().map(|sample| sample["damaged"].as_bool().unwrap()).collect();
    assert_eq!(damaged, [[false; 9].as_slice(), &[true]].concat());
    assert!(printed(&["inspect", &file]).starts_with("package 1 of dataset "));
    assert_eq!(hotset(&["inspect", &format!("{}/00000009.hotset", place.path())]), 1);
    fs::write(&file, b"short").unwrap();
    assert_eq!(hotset(&["inspect", &file]), 1);
}

#[test]
fn verify_names_what_is_damaged_and_says_so_by_its_exit_code() {
    let place = Place::new();
    let files = place.fill("one", 4);
    assert_eq!(hotset(&["verify", place.path()]), 0);
    assert!(printed(&["verify", place.path()]).contains("every checksum holds"));
    flip(&files[1], 1);
    let torn = fs::read(&files[2]).unwrap();
    fs::write(&files[2], &torn[..torn.len() - 1]).unwrap();
    assert_eq!(hotset(&["verify", place.path()]), 1);
    let found = json(&["verify", place.path()]);
    assert_eq!(found["packages"].as_u64(), Some(4));
    let damaged = found["damaged"].as_array().unwrap();
    assert!(damaged[0]["key"].as_str().unwrap().ends_with("00000001.hotset"));
    assert!(damaged[0]["why"][0].as_str().unwrap().contains("sample `19`"));
    assert!(damaged[1]["why"][0].as_str().unwrap().contains("torn"));
    assert_eq!(damaged.len(), 2);
    assert_eq!(place.files(), files, "nothing was removed");
}

#[test]
fn gc_removes_leftovers_and_damaged_packages_and_nothing_else() {
    let place = Place::new();
    let files = place.fill("one", 4);
    flip(&files[0], 1_100);
    flip(&files[1], 1);
    fs::write(&files[3], b"a stranger's file under our name").unwrap();
    let beside = |name: &str| files[0].with_file_name(name);
    let (old, young, notes) =
        (beside(".00000007.hotset-x.tmp"), beside(".00000008.hotset-y.tmp"), beside("notes"));
    for file in [&old, &young, &notes] {
        fs::write(file, b"half").unwrap();
    }
    age(&old, DAY);
    age(&notes, 99 * DAY);
    let all = place.files();
    let told = json(&["gc", place.path(), "--dry-run"]);
    assert_eq!((told["removed"].as_array().unwrap().len(), told["dry_run"].as_bool()), (2, Some(true)));
    assert_eq!(place.files(), all, "nothing was removed");
    assert_eq!(hotset(&["gc", place.path()]), 0);
    assert_eq!(all.len() - place.files().len(), 2);
    assert!(!files[0].exists() && !old.exists() && young.exists(), "a writer may still be at work");
    assert!(files[1].exists(), "a sample in it is damaged, which its index does not say");
    assert_eq!(hotset(&["gc", place.path(), "--verify"]), 0);
    assert!(!files[1].exists() && files[2].exists() && files[3].exists() && notes.exists());
    assert!(printed(&["gc", place.path()]).contains("nothing to remove"));
}

#[test]
fn gc_removes_owners_that_stopped_writing() {
    let place = Place::new();
    let (idle, busy) = (place.fill("idle", 2), place.fill("busy", 2));
    idle.iter().chain(&busy[..1]).for_each(|file| age(file, 40 * DAY));
    assert!(printed(&["gc", place.path(), "--older-than", "41d"]).contains("nothing to remove"));
    let text = printed(&["gc", place.path(), "--dry-run"]);
    assert!(text.contains("nothing for 40 d") && text.contains("would be removed"), "{text}");
    assert_eq!(hotset(&["gc", place.path()]), 0);
    assert_eq!(place.files(), busy, "an owner that still writes keeps its old packages");
    assert!(!idle[0].parent().unwrap().exists(), "its empty directory is gone");
    assert_eq!(hotset(&["gc", place.path(), "--older-than", "soon"]), 2);
}

#[test]
fn a_place_that_is_not_there_is_an_error_and_is_not_made() {
    let place = Place::new();
    let missing = format!("{}/missing", place.path());
    for command in ["inspect", "verify", "gc"] {
        assert_eq!(hotset(&[command, &missing]), 1, "{command}");
    }
    assert!(!Path::new(&missing).exists());
    assert_eq!(hotset(&["inspect", place.path(), "--storage-option", "aws_region"]), 2);
}
