//! What a server writes down, so that one killed at any moment can go on.
//!
//! Each run of a planned job has files in the state directory: states as its last epochs began (`files`, `file`)
//! and the reports since each (`log`), in an order that its `journal` keeps. Here they are loaded, saved and
//! appended to; what becomes of a job is for `opening` to say. Files go when another run has begun under the
//! same name since and one more is begun, when their job was made up for a process that has ended, or after a month.

mod file;
mod files;
mod journal;
pub(crate) mod log;
pub(crate) mod reading;

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hotset_core::Result;
use hotset_engine::Snapshot;
use hotset_wire::state::JobState;

use file::Of;
pub(crate) use files::{Found, Loaded, Place, RunFiles};
pub(crate) use journal::Journal;

/// How long what was written down is kept that nothing uses: states, and notes of packages.
pub(crate) const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// The directory where states are kept, if they are.
pub(crate) struct StateDirectory(Option<PathBuf>);

impl StateDirectory {
    pub(crate) fn new(directory: Option<PathBuf>) -> Self {
        let directory = directory.filter(|directory| {
            match fs::DirBuilder::new().recursive(true).mode(0o700).create(directory) {
                Ok(()) => true,
                Err(error) => {
                    tracing::warn!(directory = %directory.display(), %error, "state cannot be kept there");
                    false
                }
            }
        });
        if let Some(directory) = &directory {
            drop_old(directory, SystemTime::now());
        }
        Self(directory)
    }

    /// The files of a run, where states are kept.
    pub(crate) fn files(&self, job: &str, run: &str) -> Option<RunFiles> {
        self.0.as_ref().map(|directory| RunFiles::new(directory, job, run))
    }

    /// The runs of a job that have files, the newest first.
    pub(crate) fn runs(&self, job: &str) -> Vec<Found> {
        self.0.as_ref().map(|directory| files::runs(directory, job)).unwrap_or_default()
    }
}

/// A state for a client to keep: `job` as its state is kept, and its run.
pub(crate) fn export(snapshot: &Snapshot, job: &str, run: &str, lasting: bool) -> Result<Vec<u8>> {
    file::bytes(snapshot, &Of { job, run, lasting })
}

/// What a client has kept: the run, empty where it has none, and the state.
pub(crate) fn import(bytes: &[u8]) -> Result<(String, Snapshot)> {
    let mut state = file::parse(bytes)?;
    Ok((std::mem::take(&mut state.run), file::decode(state)?))
}

/// Drops what has not been used for long.
fn drop_old(directory: &Path, now: SystemTime) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let old = modified.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age > KEPT));
        let path = entry.path();
        let ours =
            path.extension().is_some_and(|e| ["state", "log", "aside", "new"].iter().any(|own| e == *own));
        if old && ours {
            let _ = fs::remove_file(path);
        }
    }
}

/// The newest state of every run in a directory, for showing: its file, and what it says or why it cannot.
pub fn list(directory: &Path) -> Vec<(PathBuf, Result<JobState>)> {
    files::list(directory)
}

/// All files of the run that a listed state is of.
pub fn all_of_run(state: &Path) -> Vec<PathBuf> {
    files::all_of_run(state)
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
