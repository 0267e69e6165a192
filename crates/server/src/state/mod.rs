//! What a server writes down, so that one killed at any moment can go on.
//!
//! Each planned job has two files in the state directory, named by a hash of its name: its state, written when an
//! epoch begins, and the log of reports since. A job that is opened under a name with a state goes on from it, if
//! dataset and settings are the same; a state that is damaged or foreign is set aside and said. The files go when
//! the job is closed, when its training process ends and its name was made up for that process, or when nobody
//! has used them for a month.

mod file;
pub(crate) mod log;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use hotset_core::{Error, Kind, Result};
use hotset_engine::{Engine, JobGrant, JobRequest, SessionId, Trained};
use hotset_wire::proto::Report;
use hotset_wire::state::JobState;

use log::Log;

use crate::opening::Opening;

/// How long the state of a job that nobody runs is kept.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// One job's files. The lock around it orders reports and states: a report is in the log before the engine has
/// it, and no state is taken between the two.
struct Keeper {
    state: PathBuf,
    log: Option<Log>,
    lasting: bool,
    /// The epoch whose beginning was written down.
    written: Option<u64>,
    /// Whether writing has failed, which is said once.
    failed: bool,
}

/// See the module's head.
pub(crate) struct States {
    directory: Option<PathBuf>,
    keepers: Mutex<HashMap<String, Arc<Mutex<Keeper>>>>,
}

/// A report in the engine's words.
fn trained(report: &Report) -> Trained<'_> {
    Trained {
        epoch: report.epoch,
        rank: report.rank,
        upto: report.upto,
        ids: &report.ids,
        losses: &report.scores,
    }
}

/// Where the state of a job lies.
fn path(directory: &Path, job: &str) -> PathBuf {
    let name = blake3::hash(job.as_bytes()).to_hex();
    directory.join(&name[..16]).with_extension("state")
}

impl States {
    pub(crate) fn new(directory: Option<PathBuf>) -> Self {
        let directory = directory.filter(|directory| match fs::create_dir_all(directory) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(directory = %directory.display(), %error, "state cannot be kept there");
                false
            }
        });
        if let Some(directory) = &directory {
            drop_old(directory, SystemTime::now());
        }
        Self { directory, keepers: Mutex::default() }
    }

    /// Opens a job, where its state says if there is one.
    pub(crate) fn open(
        &self,
        engine: &Engine,
        session: SessionId,
        opening: Opening,
        put: Option<&[u8]>,
    ) -> Result<JobGrant> {
        if let Some(put) = put
            && !engine.has_job(&opening.request.job)
        {
            return self.go_on(engine, session, opening, put);
        }
        let (Some(directory), true) = (&self.directory, opening.request.strategy.is_some()) else {
            let packaging =
                if engine.has_job(&opening.request.job) { None } else { opening.packaging(engine)? };
            return engine.open_job(session, opening.request, packaging);
        };
        let Opening { request, lasting, .. } = &opening;
        // A place for packages may answer slowly, and nobody else is to wait for it.
        let packaging = if engine.has_job(&request.job) { None } else { opening.packaging(engine)? };
        let keeper = self.keep(directory, &request.job, *lasting);
        let mut keeper = keeper.lock().unwrap_or_else(PoisonError::into_inner);
        keeper.lasting = *lasting;
        if engine.has_job(&request.job) {
            return engine.open_job(session, opening.request, None);
        }
        let state = match keeper.load(request) {
            Ok(Some(state)) => state,
            Ok(None) => return engine.open_job(session, opening.request, packaging),
            Err(error) => {
                keeper.set_aside(&error.message);
                return engine.open_job(session, opening.request, packaging);
            }
        };
        let samples = engine.catalog(&request.dataset)?.len();
        let fitting = file::decode(state).and_then(|snapshot| {
            snapshot.fits(request, samples)?;
            Ok(snapshot)
        });
        let snapshot = match fitting {
            Ok(snapshot) => snapshot,
            Err(error) => {
                keeper.set_aside(&error.message);
                return engine.open_job(session, opening.request, packaging);
            }
        };
        // What else fails from here on, such as memory that cannot be had, is no fault of the state's.
        let job = request.job.clone();
        let grant = match engine.restore_job(session, request.clone(), packaging, &snapshot) {
            Err(error) if error.kind == Kind::Changed => {
                keeper.set_aside(&error.message);
                let packaging = opening.packaging(engine)?;
                return engine.open_job(session, opening.request, packaging);
            }
            done => done?,
        };
        keeper.written = snapshot.begun.values().max().copied();
        keeper.replay(engine);
        tracing::info!(job, epoch = keeper.written, "job restored");
        Ok(grant)
    }

    /// The keeper of a job's files.
    fn keep(&self, directory: &Path, job: &str, lasting: bool) -> Arc<Mutex<Keeper>> {
        let mut keepers = self.keepers.lock().unwrap_or_else(PoisonError::into_inner);
        let state = path(directory, job);
        let new = || {
            let keeper = Keeper { state, log: None, lasting, written: None, failed: false };
            Arc::new(Mutex::new(keeper))
        };
        Arc::clone(keepers.entry(job.to_owned()).or_insert_with(new))
    }

    /// Opens a job where a checkpoint left it, perhaps on another server, under another name, with another cache.
    fn go_on(&self, engine: &Engine, session: SessionId, opening: Opening, put: &[u8]) -> Result<JobGrant> {
        let mut snapshot = file::decode(file::parse(put)?)?;
        snapshot.adapt_to(&opening.request)?;
        let packaging = opening.packaging(engine)?;
        let Opening { request, lasting, .. } = opening;
        let keeper = self.directory.as_ref().map(|directory| self.keep(directory, &request.job, lasting));
        let mut keeper = keeper.as_ref().map(|keeper| keeper.lock().unwrap_or_else(PoisonError::into_inner));
        if engine.has_job(&request.job) {
            return engine.open_job(session, request, None);
        }
        let grant = engine.restore_job(session, request, packaging, &snapshot)?;
        if let Some(keeper) = &mut keeper {
            keeper.drop_files();
            keeper.write(&snapshot);
        }
        Ok(grant)
    }

    /// A job's state, to be put into another server.
    pub(crate) fn export(&self, engine: &Engine, job: &str) -> Result<Vec<u8>> {
        let keeper = self.keeper(job);
        // No report comes between its log and the engine meanwhile.
        let keeper = keeper.as_ref().map(|keeper| keeper.lock().unwrap_or_else(PoisonError::into_inner));
        let lasting = keeper.as_ref().is_some_and(|keeper| keeper.lasting);
        let snapshot = engine
            .snapshot(job)?
            .ok_or_else(|| Error::invalid(format!("job `{job}` has no strategy, and so no importance")))?;
        Ok(file::bytes(&snapshot, lasting))
    }

    /// Writes down that an epoch has begun, if it is the first rank that begins it.
    pub(crate) fn begun(&self, engine: &Engine, job: &str, epoch: u64) {
        let Some(keeper) = self.keeper(job) else { return };
        let mut keeper = keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if keeper.written == Some(epoch) {
            return;
        }
        if let Ok(Some(snapshot)) = engine.snapshot(job)
            && keeper.write(&snapshot)
        {
            keeper.written = Some(epoch);
        }
    }

    /// Takes a report: first into the log, then into the engine.
    pub(crate) fn report(&self, engine: &Engine, report: &Report) -> Result<(u64, u64)> {
        let keeper = self.keeper(&report.job);
        let mut keeper = keeper.as_ref().map(|keeper| keeper.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(keeper) = &mut keeper {
            keeper.append(report);
        }
        engine.report(&report.job, trained(report))
    }

    /// Drops the state of a job that was closed.
    pub(crate) fn closed(&self, engine: &Engine, job: &str) {
        let Some(own) = self.keeper(job) else { return };
        // Under the keeper's lock, so that a job that is just being opened counts as open.
        let mut keeper = own.lock().unwrap_or_else(PoisonError::into_inner);
        // Where workers are still in it, it goes with the last of them.
        keeper.lasting = false;
        if !engine.has_job(job) {
            keeper.drop_files();
            let mut keepers = self.keepers.lock().unwrap_or_else(PoisonError::into_inner);
            // Not one that somebody has just fetched to open the job: it would be nobody's then.
            keepers.retain(|name, other| {
                name != job || !Arc::ptr_eq(other, &own) || Arc::strong_count(other) > 2
            });
        }
    }

    /// Drops the states of jobs that were closed or whose names were made up for a process that has ended: of those the
    /// engine no longer knows, or of all when the server's last trainer is gone.
    pub(crate) fn tidy(&self, engine: &Engine, all: bool) {
        let mut keepers = self.keepers.lock().unwrap_or_else(PoisonError::into_inner);
        keepers.retain(|job, keeper| {
            // Somebody has fetched it, perhaps to open the job; there will be another time.
            if Arc::strong_count(keeper) > 1 && !all {
                return true;
            }
            let Ok(mut keeper) = keeper.try_lock() else { return true };
            if !all && engine.has_job(job) {
                return true;
            }
            if !keeper.lasting {
                keeper.drop_files();
            }
            false
        });
    }

    fn keeper(&self, job: &str) -> Option<Arc<Mutex<Keeper>>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner).get(job).cloned()
    }
}

impl Keeper {
    fn log_path(&self) -> PathBuf {
        self.state.with_extension("log")
    }

    /// The job's state, if there is one of the same dataset and settings.
    fn load(&self, request: &JobRequest) -> Result<Option<JobState>> {
        let Some(state) = file::read(&self.state)? else { return Ok(None) };
        if state.job != request.job || state.dataset != request.dataset {
            return Err(hotset_core::Error::invalid("it belongs to another job or dataset"));
        }
        Ok(Some(state))
    }

    /// Gives the engine the reports that came after the state.
    fn replay(&mut self, engine: &Engine) {
        match log::read(&self.log_path()) {
            Ok((reports, length)) => {
                for report in &reports {
                    if let Err(error) = engine.report(&report.job, trained(report)) {
                        tracing::warn!(%error, "a report in the log does not fit its job");
                    }
                }
                match Log::go_on(&self.log_path(), length) {
                    Ok(log) => self.log = Some(log),
                    Err(error) => self.say(&error.message),
                }
            }
            Err(error) => self.say(&error.message),
        }
    }

    /// Writes a state and begins a log; whether that was done.
    fn write(&mut self, snapshot: &hotset_engine::Snapshot) -> bool {
        let written =
            file::write(&self.state, snapshot, self.lasting).and_then(|()| Log::new(&self.log_path()));
        match written {
            Ok(log) => {
                self.log = Some(log);
                true
            }
            Err(error) => {
                self.say(&error.message);
                false
            }
        }
    }

    fn append(&mut self, report: &Report) {
        if let Some(log) = &mut self.log
            && let Err(error) = log.append(report)
        {
            self.say(&error.to_string());
        }
    }

    /// A state that cannot be written costs what a restart would lose, not the training: it is said once.
    fn say(&mut self, error: &str) {
        if !std::mem::replace(&mut self.failed, true) {
            tracing::warn!(file = %self.state.display(), error, "the job's state cannot be kept");
        }
    }

    fn set_aside(&mut self, reason: &str) {
        let aside = self.state.with_extension("aside");
        let _ = fs::rename(&self.state, &aside);
        let _ = fs::remove_file(self.log_path());
        tracing::warn!(file = %aside.display(), reason, "a state was set aside, and the job starts anew");
    }

    fn drop_files(&mut self) {
        self.log = None;
        let _ = fs::remove_file(&self.state);
        let _ = fs::remove_file(self.log_path());
    }
}

/// Drops what nobody has used for long.
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

/// Every state in a directory, for showing: its file, and what it says or why it cannot.
pub fn list(directory: &Path) -> Vec<(PathBuf, Result<JobState>)> {
    let mut found: Vec<_> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "state" || extension == "aside"))
        .filter_map(|path| file::read(&path).transpose().map(|state| (path, state)))
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
