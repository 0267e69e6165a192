//! What a server writes down, so that one killed at any moment can go on.
//!
//! Each run of a planned job has files in the state directory. A process that was in a run before, and finds
//! its server restarted, goes on with it. A process that is new to the job starts afresh, unless it asks to resume: the
//! run that its checkpoint names, or the newest of the job. A state that is damaged or foreign is set aside and said.
//! Files go when another run has begun under the same name since and one more is begun, when their job was made up for
//! a process that has ended, or when nobody has used them for a month.

mod file;
mod files;
pub(crate) mod log;
mod members;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use hotset_core::{Error, Kind, Result};
use hotset_engine::{Engine, JobGrant, SessionId, Snapshot};
use hotset_wire::proto::{Report, Resume};
use hotset_wire::state::JobState;

use crate::opening::{Opening, kept, new_run};
use file::Of;
use files::{Files, Place, trained};
use members::{Entry, Members, taken};

pub(crate) use members::Peer;

/// How long the state of a job that nobody runs is kept.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// The engine's jobs that are kept under one name: one, and others while ranks move from it to an earlier place. The
/// lock around it orders reports and states: a report is in the log before the engine has it, and no state is taken
/// between the two.
#[derive(Default)]
struct Keeper {
    jobs: BTreeMap<String, Members>,
}

/// See the module's head.
pub(crate) struct States {
    directory: Option<PathBuf>,
    keepers: Mutex<HashMap<String, Arc<Mutex<Keeper>>>>,
}

/// A job that was opened, or joined.
pub(crate) struct Opened {
    pub(crate) grant: JobGrant,
    /// The run it is; empty without a strategy.
    pub(crate) run: String,
    /// The epoch at which it goes on, if it does.
    pub(crate) resumed: Option<u64>,
    /// The newest epoch of an earlier run of its name, where it starts afresh.
    pub(crate) earlier: Option<u64>,
}

impl States {
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
        Self { directory, keepers: Mutex::default() }
    }

    /// Opens a job for a process, or lets the process join it; `put` is a state to go on from.
    pub(crate) fn open(
        &self,
        engine: &Engine,
        peer: Peer,
        opening: Opening,
        put: Option<&[u8]>,
    ) -> Result<Opened> {
        if opening.request.strategy.is_none() {
            let packaging = opening.packaging(engine)?;
            let grant = engine.open_job(peer.session, opening.request, packaging)?;
            return Ok(Opened { grant, run: String::new(), resumed: None, earlier: None });
        }
        let keeper = self.keep(kept(&opening.request.job));
        let mut keeper = locked(&keeper);
        let (job, launch) = (opening.request.job.clone(), opening.launch.clone());
        let (grant, members) = if keeper.lets_in(engine, peer, &opening, put.is_some())? {
            let grant = engine.open_job(peer.session, opening.request, None)?;
            let members = keeper.jobs.get_mut(&job);
            (grant, members.ok_or_else(|| Error::internal(format!("job `{job}` has no members")))?)
        } else {
            let (grant, members) = self.begin_run(engine, &mut keeper, peer, opening, put)?;
            (grant, keeper.jobs.entry(job).insert_entry(members).into_mut())
        };
        members.join(peer, &launch);
        Ok(Opened { grant, run: members.run.clone(), resumed: members.resumed, earlier: members.earlier })
    }

    /// Opens a job that is not open, as the run that is asked for.
    fn begin_run(
        &self,
        engine: &Engine,
        keeper: &mut Keeper,
        peer: Peer,
        opening: Opening,
        put: Option<&[u8]>,
    ) -> Result<(JobGrant, Members)> {
        if let Some(put) = put {
            return self.go_on(engine, keeper, peer, opening, put);
        }
        // Looked up first: a state that has to be set aside was one.
        let before =
            self.directory.as_ref().map(|directory| files::runs(directory, kept(&opening.request.job)));
        let run = match (&opening.run, &opening.resume) {
            (Some(run), _) => Some(run.clone()),
            (None, Some(resume)) => self.run_to_resume(kept(&opening.request.job), resume),
            (None, None) => None,
        };
        if let Some(run) = run.filter(|_| self.directory.is_some()) {
            let resume = opening.resume.clone().filter(|_| opening.run.is_none());
            if let Some(begun) = self.restore(engine, keeper, peer, &opening, &run, resume.as_ref())? {
                return Ok(begun);
            }
        }
        let Opening { request, lasting, launch, .. } = &opening;
        let name = kept(&request.job);
        // Who resumes a run goes on with it even where nothing of it is known here.
        let named = opening.resume.as_ref().filter(|resume| !resume.run.is_empty());
        let run =
            opening.run.clone().or_else(|| named.map(|resume| resume.run.clone())).unwrap_or_else(new_run);
        let mut members = Members::new(run.clone(), *lasting, self.files(name, &run), launch.clone());
        if let Some(resume) = named {
            keeper.retire(&run);
            // What is there is later.
            members.files.iter_mut().for_each(Files::drop_all);
            members.place = Some((resume.epoch.unwrap_or(0), resume.position));
        } else if opening.run.is_none() {
            members.earlier = before.unwrap_or_default().first().map(|found| found.epoch);
        }
        let packaging = opening.packaging(engine)?;
        Ok((engine.open_job(peer.session, opening.request, packaging)?, members))
    }

    /// The run that is to be resumed, if it has files.
    fn run_to_resume(&self, name: &str, resume: &Resume) -> Option<String> {
        let found = files::runs(self.directory.as_ref()?, name);
        found
            .into_iter()
            .find(|found| resume.run.is_empty() || found.run == resume.run)
            .map(|found| found.run)
    }

    /// Opens a job where the files of its run say, at the place it is resumed or, after a restart of the server, where
    /// it was. `None` where they do not reach back so far, or had to be set aside.
    fn restore(
        &self,
        engine: &Engine,
        keeper: &mut Keeper,
        peer: Peer,
        opening: &Opening,
        run: &str,
        resume: Option<&Resume>,
    ) -> Result<Option<(JobGrant, Members)>> {
        let request = &opening.request;
        let Some(mut files) = self.files(kept(&request.job), run) else { return Ok(None) };
        let loaded = files.load(resume.and_then(|resume| resume.epoch)).and_then(|loaded| {
            let Some((epoch, mut snapshot)) = loaded else { return Ok(None) };
            snapshot.request.job.clone_from(&request.job);
            if resume.is_none() {
                snapshot.fits(request, engine.catalog(&request.dataset)?.len())?;
            }
            Ok(Some((epoch, snapshot)))
        });
        let (epoch, mut snapshot) = match loaded {
            Ok(Some(loaded)) => loaded,
            Ok(None) => return Ok(None),
            Err(error) => {
                files.set_aside(&error.message);
                return Ok(None);
            }
        };
        if resume.is_some() {
            snapshot.adapt_to(request)?;
        }
        // What else fails from here on, such as memory that cannot be had, is no fault of the state's.
        let packaging = opening.packaging(engine)?;
        let grant = match engine.restore_job(peer.session, request.clone(), packaging, &snapshot) {
            Err(error) if error.kind == Kind::Changed => {
                files.set_aside(&error.message);
                return Ok(None);
            }
            done => done?,
        };
        keeper.retire(run);
        let place: Option<Place> = resume.map(|resume| match resume.epoch {
            Some(epoch) => (epoch, resume.position),
            // An epoch that was trained to its end is not trained again.
            None => (epoch + u64::from(files.is_whole(epoch, &snapshot)), 0),
        });
        files.replay(engine, &request.job, epoch, place);
        tracing::info!(job = request.job, run, epoch, ?place, "job restored");
        let mut members = Members::new(run.to_owned(), opening.lasting, Some(files), opening.launch.clone());
        (members.place, members.resumed) = (place, place.map(|(epoch, _)| epoch));
        Ok(Some((grant, members)))
    }

    /// Opens a job where a checkpoint left it, perhaps on another server, under another name, with another cache.
    fn go_on(
        &self,
        engine: &Engine,
        keeper: &mut Keeper,
        peer: Peer,
        opening: Opening,
        put: &[u8],
    ) -> Result<(JobGrant, Members)> {
        let state = file::parse(put)?;
        let run = if state.run.is_empty() { new_run() } else { state.run.clone() };
        crate::opening::check_run(&run)?;
        let mut snapshot = file::decode(state)?;
        snapshot.adapt_to(&opening.request)?;
        let packaging = opening.packaging(engine)?;
        let Opening { request, lasting, launch, .. } = opening;
        let mut files = self.files(kept(&request.job), &run);
        let grant = engine.restore_job(peer.session, request, packaging, &snapshot)?;
        keeper.retire(&run);
        let epoch = begun(&snapshot);
        if let Some(files) = &mut files {
            files.drop_all();
            files.write(&snapshot, lasting, epoch);
            // The epoch may be begun anew, from another place.
            files.written = None;
        }
        let mut members = Members::new(run, lasting, files, launch);
        (members.place, members.resumed) = (Some((epoch, u64::MAX)), Some(epoch));
        Ok((grant, members))
    }

    /// The files of a run, where states are kept.
    fn files(&self, name: &str, run: &str) -> Option<Files> {
        self.directory.as_ref().map(|directory| Files::new(directory, name, run))
    }

    /// The keeper of what is kept under a name.
    fn keep(&self, name: &str) -> Arc<Mutex<Keeper>> {
        let mut keepers = self.keepers.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(keepers.entry(name.to_owned()).or_default())
    }

    /// A job's state, to be put into another server.
    pub(crate) fn export(&self, engine: &Engine, job: &str) -> Result<Vec<u8>> {
        let keeper = self.keeper(job);
        // No report comes between its log and the engine meanwhile.
        let keeper = keeper.as_ref().map(|keeper| locked(keeper));
        let members = keeper.as_ref().and_then(|keeper| keeper.jobs.get(job));
        let snapshot = engine
            .snapshot(job)?
            .ok_or_else(|| Error::invalid(format!("job `{job}` has no strategy, and so no importance")))?;
        let (run, lasting) = members.map_or(("", false), |members| (members.run.as_str(), members.lasting));
        file::bytes(&snapshot, &Of { job: kept(job), run, lasting })
    }

    /// The run of a job, and the place where it goes on if it was resumed.
    pub(crate) fn run(&self, job: &str) -> Option<(String, Option<Place>)> {
        let keeper = self.keeper(job)?;
        let keeper = locked(&keeper);
        keeper.jobs.get(job).map(|members| (members.run.clone(), members.place))
    }

    /// Lets a training process begin an epoch as `rank`, unless another one is that rank.
    pub(crate) fn begins(&self, peer: Peer, job: &str, rank: u32) -> Result<()> {
        let Some(keeper) = self.keeper(job) else { return Ok(()) };
        let mut keeper = locked(&keeper);
        if keeper.jobs.iter().any(|(other, members)| other != job && members.is_foreign_to(peer)) {
            return Err(taken(kept(job)));
        }
        keeper.jobs.get_mut(job).map_or(Ok(()), |members| members.begin(kept(job), peer, rank))
    }

    /// Writes down that an epoch has begun, if it is the first rank that begins it.
    pub(crate) fn begun(&self, engine: &Engine, job: &str, epoch: u64) {
        let Some(keeper) = self.keeper(job) else { return };
        let mut keeper = locked(&keeper);
        let Some(members) = keeper.jobs.get_mut(job) else { return };
        let lasting = members.lasting;
        let Some(files) = &mut members.files else { return };
        if files.written == Some(epoch) {
            return;
        }
        let first = files.written.is_none();
        if let Ok(Some(snapshot)) = engine.snapshot(job) {
            files.write(&snapshot, lasting, epoch);
        }
        if let (true, Some(directory)) = (first, &self.directory) {
            // One earlier run stays, for whoever meant to go on with it.
            files::prune(directory, kept(job), &members.run, lasting);
        }
    }

    /// Takes a report: first into the log, then into the engine.
    pub(crate) fn report(&self, engine: &Engine, report: &Report) -> Result<(u64, u64)> {
        let keeper = self.keeper(&report.job);
        let mut keeper = keeper.as_ref().map(|keeper| locked(keeper));
        if let Some(members) = keeper.as_mut().and_then(|keeper| keeper.jobs.get_mut(&report.job))
            && let Some(files) = &mut members.files
        {
            files.append(report);
        }
        engine.report(&report.job, trained(report))
    }

    /// A process has left a job: its state goes with the last of them if its name was made up, unless its run `moves` on
    /// to another job.
    pub(crate) fn closed(&self, engine: &Engine, session: SessionId, job: &str, moves: bool) {
        let Some(keeper) = self.keeper(job) else { return };
        // Under the keeper's lock, so that a job that is just being opened counts as open.
        let mut keeper = locked(&keeper);
        let Some(members) = keeper.jobs.get_mut(job) else { return };
        members.leave(session);
        if moves {
            members.files = None;
        }
        if !engine.has_job(job)
            && let Some(members) = keeper.jobs.remove(job)
        {
            members.end();
        }
    }

    /// A connection has ended.
    pub(crate) fn left(&self, engine: &Engine, session: SessionId) {
        let keepers: Vec<_> =
            self.keepers.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        for keeper in keepers {
            for (job, members) in &mut locked(&keeper).jobs {
                members.note_served(engine, job, session);
                members.leave(session);
            }
        }
    }

    /// A process is about to leave a job that the engine still has.
    pub(crate) fn closes(&self, engine: &Engine, session: SessionId, job: &str) {
        if let Some(keeper) = self.keeper(job)
            && let Some(members) = locked(&keeper).jobs.get_mut(job)
        {
            members.note_served(engine, job, session);
        }
    }

    /// Drops the states of jobs whose names were made up for a process that has ended: of those the engine no longer
    /// knows, or of all when the server's last trainer is gone.
    pub(crate) fn tidy(&self, engine: &Engine, all: bool) {
        let mut keepers = self.keepers.lock().unwrap_or_else(PoisonError::into_inner);
        keepers.retain(|_, keeper| {
            // Somebody has fetched it, perhaps to open the job; there will be another time.
            if Arc::strong_count(keeper) > 1 && !all {
                return true;
            }
            let Ok(mut keeper) = keeper.try_lock() else { return true };
            let (kept, over) = std::mem::take(&mut keeper.jobs)
                .into_iter()
                .partition(|(job, _)| !all && engine.has_job(job));
            keeper.jobs = kept;
            let over: BTreeMap<String, Members> = over;
            over.into_values().for_each(Members::end);
            !keeper.jobs.is_empty()
        });
    }

    fn keeper(&self, job: &str) -> Option<Arc<Mutex<Keeper>>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner).get(kept(job)).cloned()
    }
}

fn locked(keeper: &Arc<Mutex<Keeper>>) -> MutexGuard<'_, Keeper> {
    keeper.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The newest epoch that a snapshot knows to have begun.
fn begun(snapshot: &Snapshot) -> u64 {
    snapshot.begun.values().max().copied().unwrap_or(0)
}

impl Keeper {
    /// Whether a process joins the job as it is open; else the job is not open now, whatever was open before.
    fn lets_in(&mut self, engine: &Engine, peer: Peer, opening: &Opening, put: bool) -> Result<bool> {
        use std::cmp::Ordering::{Greater, Less};
        let (job, launch) = (&opening.request.job, &opening.launch);
        self.jobs.retain(|job, _| engine.has_job(job));
        if self.jobs.values().any(|members| members.attempt(launch) == Some(Greater)) {
            return Err(Error::invalid(format!(
                "job `{}` was started over by its launcher, and this process is of an earlier attempt: end it",
                kept(job)
            )));
        }
        // What a launcher has started over is no second run, even if a connection of the first is still open.
        self.end_where(engine, |_, members| members.attempt(launch) == Some(Less));
        let Some(members) = self.jobs.get(job) else {
            // A rank that comes late may find the others ahead of it. Only who would take a run over is refused now, and
            // who begins an epoch then.
            let takes_over = opening.run.is_none() && (put || opening.resume.is_some());
            let foreign =
                |members: &Members| members.is_foreign_to(peer) && members.attempt(launch).is_none();
            return if takes_over && self.jobs.values().any(foreign) {
                Err(taken(kept(job)))
            } else {
                Ok(false)
            };
        };
        match members.entry(kept(job), peer, opening.run.as_deref(), launch)? {
            Entry::Join => Ok(true),
            Entry::Over => {
                self.end_where(engine, |other, _| other == job);
                Ok(false)
            }
        }
    }

    fn end_where(&mut self, engine: &Engine, over: impl Fn(&str, &Members) -> bool) {
        self.jobs.retain(|job, members| {
            let over = over(job, members);
            if over {
                engine.end_job(job);
            }
            !over
        });
    }

    /// Another job goes on with a run, and writes its files from now on.
    fn retire(&mut self, run: &str) {
        for members in self.jobs.values_mut().filter(|members| members.run == run) {
            members.files = None;
        }
    }
}

impl Members {
    /// The job is over: nobody can ask for the state of one whose name was made up.
    fn end(self) {
        if let Some(mut files) = self.files.filter(|_| !self.lasting) {
            files.drop_all();
        }
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
