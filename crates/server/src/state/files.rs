//! The files of one run of a job: its states when the last epochs began, and the reports since each.
//!
//! A file is named `JOB-RUN.EPOCH.state`, with a hash for the job, and has a log of the same name beside it. A run that
//! goes back to one of the epochs that are kept finds all as it was then; what it had begun after that goes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use hotset_core::{Error, Result};
use hotset_engine::Snapshot;
use hotset_wire::proto::Report;
use hotset_wire::state::JobState;

use super::file::{self, Of};
use super::log::{self, Log};
use crate::lock::assert_unlocked;

/// How many epochs of a run are kept: the newest and three before, so that a run that is killed in one epoch can go on
/// from the end of the third before it.
pub(super) const EPOCHS: usize = 4;

/// The part of an epoch, one in so many, that a last batch may be and go untrained.
const LITTLE: u64 = 20;

/// A place in a run: an epoch, and the slots that each rank had trained of it.
pub(crate) type Place = (u64, u64);

/// The files of one run, and the log that is appended to.
pub(crate) struct RunFiles {
    directory: PathBuf,
    /// The job, as its state is kept.
    job: String,
    run: String,
    log: Option<Log>,
    /// The epochs that have files, in order, once they were looked for.
    kept: Option<Vec<u64>>,
    /// Whether writing has failed, which is said once.
    failed: bool,
}

/// What the files of a run say: the state of an epoch, and the reports after it.
pub(crate) struct Loaded {
    pub(crate) epoch: u64,
    pub(crate) snapshot: Snapshot,
    /// Those in the log of that epoch, and the bytes they take there.
    reports: Vec<Report>,
    length: u64,
    /// Later epochs that were begun, and the reports in their logs.
    later: Vec<(u64, Vec<Report>)>,
}

impl Loaded {
    /// Whether all ranks had trained the epoch to its end. A loader may leave out a last batch that is not full
    /// (`drop_last`), which is taken for the end where it is little.
    pub(crate) fn is_whole(&self) -> bool {
        let Some(cut) = self.snapshot.cuts.get(&self.epoch) else { return false };
        (0..cut.world).all(|rank| {
            let own = self.reports.iter().filter(|report| (report.epoch, report.rank) == (self.epoch, rank));
            let (upto, batch) = own.fold((0, 0), |(upto, batch), report| {
                (report.upto.max(upto), (report.ids.len() as u64).max(batch))
            });
            let left = cut.rank_len.saturating_sub(upto);
            left == 0 || left < batch && left <= cut.rank_len / LITTLE
        })
    }
}

/// A run of a job that has files.
pub(crate) struct Found {
    pub(crate) run: String,
    /// The newest epoch that it had begun.
    pub(crate) epoch: u64,
    modified: SystemTime,
}

/// What the files of a job begin with.
fn stem(job: &str) -> String {
    blake3::hash(job.as_bytes()).to_hex()[..16].to_owned()
}

/// The run and epoch in the name of a state, if it is one of the job with this stem.
fn parsed<'a>(name: &'a str, stem: &str) -> Option<(&'a str, u64)> {
    let (run, epoch) = name.strip_prefix(stem)?.strip_prefix('-')?.strip_suffix(".state")?.split_once('.')?;
    Some((run, epoch.parse().ok()?))
}

/// The runs of a job that have files, the newest first.
pub(super) fn runs(directory: &Path, job: &str) -> Vec<Found> {
    assert_unlocked();
    let stem = stem(job);
    let mut found: Vec<Found> = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some((run, epoch)) = name.to_str().and_then(|name| parsed(name, &stem)) else { continue };
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let modified = modified.unwrap_or(SystemTime::UNIX_EPOCH);
        match found.iter_mut().find(|other| other.run == run) {
            Some(known) => {
                (known.epoch, known.modified) = (known.epoch.max(epoch), known.modified.max(modified));
            }
            None => found.push(Found { run: run.to_owned(), epoch, modified }),
        }
    }
    found.sort_by(|a, b| b.modified.cmp(&a.modified).then_with(|| a.run.cmp(&b.run)));
    found
}

impl RunFiles {
    pub(super) fn new(directory: &Path, job: &str, run: &str) -> Self {
        let (directory, job, run) = (directory.to_owned(), job.to_owned(), run.to_owned());
        Self { directory, job, run, log: None, kept: None, failed: false }
    }

    fn state(&self, epoch: u64) -> PathBuf {
        self.directory.join(format!("{}-{}.{epoch}.state", stem(&self.job), self.run))
    }

    fn log_of(&self, epoch: u64) -> PathBuf {
        self.state(epoch).with_extension("log")
    }

    /// The epochs that are kept, in order.
    fn epochs(&self) -> Vec<u64> {
        assert_unlocked();
        let stem = stem(&self.job);
        let mut epochs: Vec<u64> = fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name();
                let (run, epoch) = parsed(name.to_str()?, &stem)?;
                (run == self.run).then_some(epoch)
            })
            .collect();
        epochs.sort_unstable();
        epochs
    }

    /// The newest state, not later than `epoch` if one is given, and all reports after it. Each file is read once.
    pub(crate) fn load(&self, epoch: Option<u64>) -> Result<Option<Loaded>> {
        let epochs = self.epochs();
        let not_later = epochs.partition_point(|&found| epoch.is_none_or(|epoch| found <= epoch));
        let (earlier, later) = epochs.split_at(not_later);
        let Some(&found) = earlier.last() else { return Ok(None) };
        let Some(state) = file::read(&self.state(found))? else { return Ok(None) };
        if state.job != self.job || state.run != self.run {
            return Err(Error::invalid("it belongs to another job or run"));
        }
        let snapshot = file::decode(state)?;
        let (reports, length) = log::read(&self.log_of(found)).unwrap_or_else(|error| {
            tracing::warn!(%error, "what was reported since a state was written is lost");
            (Vec::new(), 0)
        });
        let log = |&epoch| (epoch, log::read(&self.log_of(epoch)).unwrap_or_default().0);
        let later = later.iter().map(log).collect();
        Ok(Some(Loaded { epoch: found, snapshot, reports, length, later }))
    }

    /// Goes on after what was loaded or, if the run goes back, after the place it goes back to: all that is later is
    /// dropped. What the engine was told since the state was written, in order.
    pub(crate) fn go_on(&mut self, loaded: Loaded, until: Option<Place>) -> Vec<Report> {
        self.kept = None;
        let own = loaded.reports.len();
        let mut reports = loaded.reports;
        for (epoch, more) in loaded.later {
            // A rank that was behind reported when another had begun the next epoch.
            reports.extend(more);
            self.drop_epoch(epoch);
        }
        let all = reports.len();
        reports.retain(|report| until.is_none_or(|place| log::before(report, place)));
        let path = self.log_of(loaded.epoch);
        let opened = if (all, reports.len()) == (own, own) {
            Log::go_on(&path, loaded.length)
        } else {
            Log::new(&path).and_then(|mut log| {
                reports.iter().try_for_each(|report| log.append(report)).map_err(|error| {
                    Error::unavailable(format!("cannot write the report log `{}`: {error}", path.display()))
                })?;
                Ok(log)
            })
        };
        match opened {
            Ok(log) => self.log = Some(log),
            Err(error) => self.say(&path, &error.message),
        }
        reports
    }

    /// Writes the state at the beginning of `epoch` and begins a log; drops those that are too old, or later than it.
    pub(crate) fn write(&mut self, snapshot: &Snapshot, lasting: bool, epoch: u64) {
        let path = self.state(epoch);
        let of = Of { job: &self.job, run: &self.run, lasting };
        match file::write(&path, snapshot, &of).and_then(|()| Log::new(&self.log_of(epoch))) {
            Ok(log) => self.log = Some(log),
            Err(error) => return self.say(&path, &error.message),
        }
        // No one else writes or drops files of this run.
        let mut kept = self.kept.take().unwrap_or_else(|| self.epochs());
        kept.retain(|&other| other != epoch);
        let earlier = kept.partition_point(|&other| other < epoch);
        kept.drain(earlier..).for_each(|later| self.drop_epoch(later));
        kept.push(epoch);
        kept.drain(..kept.len().saturating_sub(EPOCHS)).for_each(|old| self.drop_epoch(old));
        self.kept = Some(kept);
    }

    /// Appends an entry to the log.
    pub(super) fn append(&mut self, entry: &[u8]) {
        if let Some(log) = &mut self.log
            && let Err(error) = log.append_entry(entry)
        {
            self.say(&self.directory.clone(), &error.to_string());
        }
    }

    /// A state that cannot be written costs what a restart would lose, not the training: it is said once.
    fn say(&mut self, file: &Path, error: &str) {
        if !std::mem::replace(&mut self.failed, true) {
            tracing::warn!(file = %file.display(), error, "the job's state cannot be kept");
        }
    }

    /// Puts the newest state out of the way, for a look.
    pub(crate) fn set_aside(&mut self, reason: &str) {
        self.kept = None;
        let Some(epoch) = self.epochs().pop() else { return };
        let state = self.state(epoch);
        let aside = state.with_extension("aside");
        let _ = fs::rename(&state, &aside);
        self.drop_all();
        tracing::warn!(file = %aside.display(), reason, "a state was set aside, and the job starts anew");
    }

    fn drop_epoch(&self, epoch: u64) {
        assert_unlocked();
        let _ = fs::remove_file(self.state(epoch));
        let _ = fs::remove_file(self.log_of(epoch));
    }

    /// Drops all of them.
    pub(crate) fn drop_all(&mut self) {
        (self.log, self.kept) = (None, None);
        self.epochs().into_iter().for_each(|epoch| self.drop_epoch(epoch));
    }

    /// Drops the files of other runs of the job: all of them, or all but the newest.
    pub(super) fn drop_other_runs(&self, keep_newest: bool) {
        let others = runs(&self.directory, &self.job).into_iter().filter(|found| found.run != self.run);
        for found in others.skip(usize::from(keep_newest)) {
            Self::new(&self.directory, &self.job, &found.run).drop_all();
        }
    }
}

/// Every state in a directory, for showing: its file, and what it says or why it cannot. Of each run the newest.
pub(super) fn list(directory: &Path) -> Vec<(PathBuf, Result<JobState>)> {
    let mut paths: Vec<PathBuf> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "state" || extension == "aside"))
        .collect();
    paths.sort_by(|a, b| (of_run(a), of_epoch(a)).cmp(&(of_run(b), of_epoch(b))));
    let newest = paths.iter().enumerate().filter(|(at, path)| {
        let next = paths.get(at + 1);
        of_epoch(path).is_none() || next.is_none_or(|next| of_run(next) != of_run(path))
    });
    newest.filter_map(|(_, path)| file::read(path).transpose().map(|state| (path.clone(), state))).collect()
}

/// All files of the run that a listed state is of.
pub(super) fn all_of_run(path: &Path) -> Vec<PathBuf> {
    let Some(directory) = path.parent().filter(|_| of_epoch(path).is_some()) else {
        return vec![path.to_owned(), path.with_extension("log")];
    };
    let files = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    files.filter(|other| of_epoch(other).is_some() && of_run(other) == of_run(path)).collect()
}

/// `JOB-RUN` of a file's name.
fn of_run(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()?.split('.').next()
}

/// The epoch in a state's or a log's name.
fn of_epoch(path: &Path) -> Option<u64> {
    path.extension().filter(|extension| *extension == "state" || *extension == "log")?;
    Path::new(path.file_stem()?).extension()?.to_str()?.parse().ok()
}
