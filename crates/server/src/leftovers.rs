//! Packages of jobs whose names mean nothing beyond their training process.
//!
//! Such a job removes its packages when it ends. A server that is killed cannot, so it notes beforehand where they
//! lie, without the credentials that reach them. The next process that opens packages at the same place has credentials
//! for it, and removes what is left there of servers and trainers that no longer run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use hotset_store::package::{Dataset, PackageStore};

use crate::state::KEPT;

/// What notes end with.
const EXTENSION: &str = "packages";

/// A process, by its number and when it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process(u32, u64);

/// One job's packages.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Note {
    server: Process,
    /// The process that opened the job. While it runs, it may have its server started again.
    trainer: Process,
    job: String,
    dataset: String,
    place: String,
}

impl Note {
    fn parse(text: &str) -> Option<Self> {
        let lines: Vec<&str> = text.lines().collect();
        let [server, trainer, job, dataset, place] = lines.as_slice() else { return None };
        let process = |text: &str| {
            let (pid, start) = text.split_once(' ')?;
            Some(Process(pid.parse().ok()?, start.parse().ok()?))
        };
        Some(Self {
            server: process(server)?,
            trainer: process(trainer)?,
            job: (*job).into(),
            dataset: (*dataset).into(),
            place: (*place).into(),
        })
    }

    fn text(&self) -> String {
        let [server, trainer] =
            [self.server, self.trainer].map(|Process(pid, start)| format!("{pid} {start}"));
        format!("{server}\n{trainer}\n{}\n{}\n{}\n", self.job, self.dataset, self.place)
    }

    /// Whether the packages will be neither removed nor used.
    fn is_left(&self) -> bool {
        !self.server.runs() && !self.trainer.runs()
    }
}

/// The notes of packages that must not outlive their jobs.
pub(crate) struct Leftovers {
    directory: PathBuf,
    own: Process,
}

impl Leftovers {
    /// Those noted in `directory`.
    pub(crate) fn new(directory: &Path) -> Self {
        let leftovers = Self { directory: directory.to_owned(), own: Process::of(std::process::id()) };
        let old = |path: &Path| {
            let age = fs::metadata(path).and_then(|metadata| metadata.modified()).ok()?.elapsed();
            Some(age.unwrap_or_default() > KEPT)
        };
        for (path, note) in leftovers.notes() {
            if note.is_none_or(|note| note.is_left()) && old(&path) == Some(true) {
                let _ = fs::remove_file(path);
            }
        }
        leftovers
    }

    /// Notes that `job`, which the process `trainer` opens, has packages at `place`.
    pub(crate) fn note(&self, job: &str, trainer: u32, dataset: &str, place: &str) {
        let note = Note {
            server: self.own,
            trainer: Process::of(trainer),
            job: job.into(),
            dataset: dataset.into(),
            place: place.into(),
        };
        if Note::parse(&note.text()).as_ref() != Some(&note) {
            return;
        }
        let name = blake3::hash(format!("{job}\n{place}").as_bytes()).to_hex();
        let written = fs::create_dir_all(&self.directory).and_then(|()| {
            fs::write(self.directory.join(&name[..16]).with_extension(EXTENSION), note.text())
        });
        if let Err(error) = written {
            tracing::warn!(job, %error, "packages stay behind if this server is killed");
        }
    }

    /// Removes packages at `place` whose server and trainer no longer run; those of `job` are its own.
    pub(crate) fn sweep(&self, place: &str, options: &BTreeMap<String, String>, job: &str) {
        for (path, note) in self.notes() {
            let Some(note) = note.filter(|note| note.place == place && note.job != job) else { continue };
            if !note.is_left() {
                continue;
            }
            let dataset = Dataset { place: "", identity: &note.dataset };
            let swept =
                PackageStore::open(place, options, dataset, &note.job).and_then(|store| store.drop_all());
            match swept {
                Ok(swept) => {
                    tracing::info!(job = note.job, place, packages = swept.packages, "left packages removed");
                    let _ = fs::remove_file(path);
                }
                Err(error) => tracing::warn!(job = note.job, place, %error, "left packages stay behind"),
            }
        }
    }

    /// Every note, and what it says if it can be read.
    fn notes(&self) -> Vec<(PathBuf, Option<Note>)> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let paths =
            entries.map(|entry| entry.path()).filter(|path| path.extension() == Some(EXTENSION.as_ref()));
        let read = |path: &Path| fs::read_to_string(path).ok().and_then(|text| Note::parse(&text));
        paths.map(|path| (path.clone(), read(&path))).collect()
    }
}

impl Process {
    fn of(pid: u32) -> Self {
        Self(pid, started(pid).unwrap_or(0))
    }

    fn runs(self) -> bool {
        started(self.0) == Some(self.1)
    }
}

/// When a process was started, in the kernel's ticks; nothing of one that is gone.
fn started(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program, in parentheses, may hold anything.
    let fields: Vec<&str> = status.rsplit_once(')')?.1.split_whitespace().collect();
    (!matches!(*fields.first()?, "Z" | "X")).then(|| fields.get(19)?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use hotset_store::package::Draft;

    use super::*;

    /// How many packages a job has.
    fn packages(place: &str, job: &str) -> usize {
        let store = PackageStore::open(place, &BTreeMap::new(), Dataset { place: "", identity: "data" }, job)
            .unwrap();
        store.scan(&mut |_| {}).unwrap().packages.len()
    }

    fn write(place: &str, job: &str) {
        let store = PackageStore::open(place, &BTreeMap::new(), Dataset { place: "", identity: "data" }, job)
            .unwrap();
        let mut draft = Draft::new("data", 0, &[(7, 5)]).unwrap();
        draft.put(7, b"bytes").unwrap();
        store.write(0, &draft.finish().unwrap()).unwrap();
    }

    #[test]
    fn packages_of_servers_that_were_killed_are_removed_by_the_next_and_no_others() {
        let (state, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let place = place.path().to_str().unwrap();
        let own = Leftovers::new(state.path());
        // No process has that number.
        let dead = Leftovers { directory: state.path().to_owned(), own: Process(u32::MAX, 1) };
        let (living, gone) = (std::process::id(), u32::MAX);
        for (server, trainer, job) in [
            (&own, gone, "running"),
            (&dead, living, "restarting"),
            (&dead, gone, "killed"),
            (&dead, gone, "mine"),
        ] {
            write(place, job);
            server.note(job, trainer, "data", place);
        }
        write(place, "lasting");
        own.sweep("/another/place", &BTreeMap::new(), "mine");
        assert_eq!(packages(place, "killed"), 1);
        own.sweep(place, &BTreeMap::new(), "mine");
        let left = ["running", "restarting", "killed", "mine", "lasting"].map(|job| packages(place, job));
        assert_eq!(left, [1, 1, 0, 1, 1]);
        assert_eq!(own.notes().len(), 3, "what was swept is forgotten");
    }

    #[test]
    fn a_process_is_known_by_when_it_was_started() {
        let Process(pid, start) = Process::of(std::process::id());
        assert!(Process(pid, start).runs() && !Process(pid, start + 1).runs());
        assert!(!Process(u32::MAX, start).runs() && !Process::of(u32::MAX).runs());
    }
}
