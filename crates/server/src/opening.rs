//! Opening a job: joining it as it is, or beginning a run.
//!
//! A process that was in a run before, and finds its server restarted, goes on with it. A process that is new to the
//! job starts afresh, unless it asks to go on: with a checkpoint it has put, with the run that its checkpoint names, or
//! with the newest of the job. What that begins from is found first ([`Start`]), in state files that are read once; then
//! the engine opens the job there. A state that is damaged or foreign is set aside and said.

use std::collections::BTreeMap;

use hotset_core::{Error, Kind, Result};
use hotset_engine::{Engine, JobGrant, JobRequest, Role, Snapshot, Trained};
use hotset_wire::proto;

use crate::cluster::AtHome;
use crate::leftovers::Leftovers;
use crate::packaging::{self, Tidying};
use crate::runs::{Claim, Members, Peer, Run, Runs, base_name, check_run, unique};
use crate::settings;
use crate::state::{self, Found, Journal, Loaded, Place, RunFiles, StateDirectory};

/// A job as a client asks for it.
pub(crate) struct JobOpening {
    pub(crate) request: JobRequest,
    /// Whether its name means something beyond its training process.
    pub(crate) lasting: bool,
    /// How to reach the place of its packages. May hold credentials: never written down.
    pub(crate) package_options: BTreeMap<String, String>,
    /// The run that the client is in; `None` where it is new to the job.
    pub(crate) run: Option<String>,
    pub(crate) launch: proto::Launch,
    /// Where it goes on, if it does.
    pub(crate) resume: Option<proto::Resume>,
}

impl JobOpening {
    pub(crate) fn new(asked: proto::OpenJob) -> Result<Self> {
        let named = [Some(&asked.run), asked.resume.as_ref().map(|resume| &resume.run)];
        named.into_iter().flatten().try_for_each(|run| check_run(run))?;
        Ok(Self {
            request: settings::request(asked.job, &asked.settings.unwrap_or_default())?,
            lasting: asked.lasting,
            package_options: asked.package_options,
            run: (!asked.run.is_empty()).then_some(asked.run),
            launch: asked.launch.unwrap_or_default(),
            resume: asked.resume,
        })
    }

    /// What its state is kept under.
    fn name(&self) -> &str {
        base_name(&self.request.job)
    }

    /// The place it is resumed at. A client that was in the run goes on where the run was.
    fn resumed_at(&self) -> Option<&proto::Resume> {
        self.resume.as_ref().filter(|_| self.run.is_none())
    }

    fn members(&self, run: String, journal: Option<Journal>) -> Members {
        Members::new(run, self.lasting, journal, self.launch.clone())
    }
}

/// What jobs are opened with.
pub(crate) struct Opener<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) runs: &'a Runs,
    pub(crate) states: &'a StateDirectory,
    pub(crate) leftovers: Option<&'a Leftovers>,
    /// On a cluster: this node as the home of the job.
    pub(crate) home: Option<&'a AtHome>,
}

/// What a run begins from.
enum Start {
    /// A checkpoint, perhaps of another server, under another name, with another cache.
    Checkpoint {
        run: String,
        snapshot: Snapshot,
    },
    /// The files of a run.
    Files {
        run: String,
        files: RunFiles,
        loaded: Loaded,
    },
    Nothing,
}

impl Opener<'_> {
    /// Opens a job for a process, or lets the process join it; `checkpoint` is a state to go on from. The run it is
    /// in, which only a job with a strategy has.
    pub(crate) fn open(
        &self,
        peer: Peer,
        opening: &JobOpening,
        checkpoint: Option<&[u8]>,
    ) -> Result<(JobGrant, Option<Run>)> {
        if opening.request.strategy.is_none() {
            return Ok((self.open_afresh(peer, opening)?, None));
        }
        let job = &opening.request.job;
        let claim = self.runs.claim(opening.name());
        let takes_over = checkpoint.is_some() || opening.resume.is_some();
        let grant = if claim.admits(self.engine, peer, opening, takes_over)? {
            self.engine.open_job_as(peer.session, opening.request.clone(), None, self.role())?
        } else {
            // Looked up first: a state that has to be set aside was one.
            let before = self.states.runs(opening.name());
            let start = self.find(opening, checkpoint, &before)?;
            let (grant, mut members) = self.begin(&claim, peer, opening, start)?;
            if members.place.is_none() && opening.run.is_none() {
                members.earlier = before.first().map(|found| found.epoch);
            }
            self.home.into_iter().for_each(|home| home.begun(job, &grant));
            claim.insert(job, members);
            grant
        };
        Ok((grant, Some(claim.join(job, peer, &opening.launch)?)))
    }

    /// What the run begins from; `before` are the runs of its name that have files, the newest first.
    fn find(&self, opening: &JobOpening, checkpoint: Option<&[u8]>, before: &[Found]) -> Result<Start> {
        if let Some(checkpoint) = checkpoint {
            let (run, mut snapshot) = state::import(checkpoint)?;
            let run = if run.is_empty() { unique() } else { run };
            check_run(&run)?;
            snapshot.adapt_to(&opening.request)?;
            return Ok(Start::Checkpoint { run, snapshot });
        }
        let resume = opening.resumed_at();
        let named =
            |found: &&Found| resume.is_some_and(|resume| resume.run.is_empty() || resume.run == found.run);
        let run = opening.run.clone().or_else(|| before.iter().find(named).map(|found| found.run.clone()));
        let files = run.and_then(|run| Some((self.states.files(opening.name(), &run)?, run)));
        let Some((mut files, run)) = files else { return Ok(Start::Nothing) };
        match files.load(resume.and_then(|resume| resume.epoch)) {
            Ok(Some(mut loaded)) => {
                loaded.snapshot.request.job.clone_from(&opening.request.job);
                if resume.is_some() {
                    loaded.snapshot.adapt_to(&opening.request)?;
                }
                Ok(Start::Files { run, files, loaded })
            }
            Ok(None) => Ok(Start::Nothing),
            Err(error) => {
                files.set_aside(&error.message);
                Ok(Start::Nothing)
            }
        }
    }

    /// Opens the job where its run begins.
    fn begin(
        &self,
        claim: &Claim<'_>,
        peer: Peer,
        opening: &JobOpening,
        start: Start,
    ) -> Result<(JobGrant, Members)> {
        match start {
            Start::Checkpoint { run, snapshot } => {
                let grant = self.restore(peer, opening, &snapshot).map_err(|error| match error.kind {
                    // Another checkpoint may fit; asking again with this one will not do.
                    Kind::Changed => Error::invalid(error.message),
                    _ => error,
                })?;
                Ok((grant, self.begin_at_checkpoint(claim, opening, run, &snapshot)))
            }
            Start::Files { run, mut files, loaded } => match self.restore(peer, opening, &loaded.snapshot) {
                Ok(grant) => Ok((grant, self.begin_at_files(claim, opening, run, files, loaded))),
                Err(error) if error.kind == Kind::Changed => {
                    files.set_aside(&error.message);
                    self.begin_afresh(claim, peer, opening)
                }
                // Such as memory that cannot be had: no fault of the state's.
                Err(error) => Err(error),
            },
            Start::Nothing => self.begin_afresh(claim, peer, opening),
        }
    }

    fn role(&self) -> Role {
        self.home.map(AtHome::role).unwrap_or_default()
    }

    /// On a cluster a job may go on elsewhere when this server, or its trainer here, has gone: nothing is taken for left over.
    fn tidying(&self, peer: Peer) -> Tidying<'_> {
        Tidying::Own(self.leftovers.filter(|_| self.home.is_none()), peer.process)
    }

    fn restore(&self, peer: Peer, opening: &JobOpening, snapshot: &Snapshot) -> Result<JobGrant> {
        let place = packaging::place(self.engine, opening, self.tidying(peer))?;
        self.engine.restore_job_as(peer.session, opening.request.clone(), place, snapshot, self.role())
    }

    fn open_afresh(&self, peer: Peer, opening: &JobOpening) -> Result<JobGrant> {
        let place = packaging::place(self.engine, opening, self.tidying(peer))?;
        self.engine.open_job_as(peer.session, opening.request.clone(), place, self.role())
    }

    /// The run of a checkpoint that the engine has taken: its files begin with the checkpoint.
    fn begin_at_checkpoint(
        &self,
        claim: &Claim<'_>,
        opening: &JobOpening,
        run: String,
        snapshot: &Snapshot,
    ) -> Members {
        claim.retire(&run);
        let epoch = snapshot.begun.values().max().copied().unwrap_or(0);
        // The epoch may be begun anew, from another place, so its beginning is not yet written down.
        let journal = self.states.files(opening.name(), &run).map(|mut files| {
            files.drop_all();
            files.write(snapshot, opening.lasting, epoch);
            Journal::new(files)
        });
        let mut members = opening.members(run, journal);
        (members.place, members.resumed) = (Some((epoch, u64::MAX)), Some(epoch));
        members
    }

    /// The run of state files that the engine has taken: it is told what was reported since.
    fn begin_at_files(
        &self,
        claim: &Claim<'_>,
        opening: &JobOpening,
        run: String,
        mut files: RunFiles,
        loaded: Loaded,
    ) -> Members {
        claim.retire(&run);
        let (job, epoch) = (&opening.request.job, loaded.epoch);
        let place: Option<Place> = opening.resumed_at().map(|resume| match resume.epoch {
            Some(epoch) => (epoch, resume.position),
            // An epoch that was trained to its end is not trained again.
            None => (epoch + u64::from(loaded.is_whole()), 0),
        });
        let reports = files.go_on(loaded, place);
        // Those without ids only say how far the run was.
        for report in reports.iter().filter(|report| !report.ids.is_empty()) {
            if let Err(error) = self.engine.report(job, trained(report)) {
                tracing::warn!(%error, "a report in the log does not fit its job");
            }
        }
        tracing::info!(job, run, epoch, ?place, "job restored");
        let mut members = opening.members(run, Some(Journal::resumed(files, epoch, !reports.is_empty())));
        (members.place, members.resumed) = (place, place.map(|(epoch, _)| epoch));
        members
    }

    /// A run of which nothing is known here, though it may have been trained elsewhere.
    fn begin_afresh(
        &self,
        claim: &Claim<'_>,
        peer: Peer,
        opening: &JobOpening,
    ) -> Result<(JobGrant, Members)> {
        let grant = self.open_afresh(peer, opening)?;
        let named = opening.resume.as_ref().filter(|resume| !resume.run.is_empty());
        let run = opening.run.clone().or_else(|| named.map(|resume| resume.run.clone()));
        let run = run.unwrap_or_else(unique);
        let mut files = self.states.files(opening.name(), &run);
        if named.is_some() {
            claim.retire(&run);
            // What is there is later.
            files.iter_mut().for_each(RunFiles::drop_all);
        }
        let mut members = opening.members(run, files.map(Journal::new));
        members.place = named.map(|resume| (resume.epoch.unwrap_or(0), resume.position));
        Ok((grant, members))
    }
}

/// A report in the engine's words.
pub(crate) fn trained(report: &proto::Report) -> Trained<'_> {
    Trained {
        epoch: report.epoch,
        rank: report.rank,
        upto: report.upto,
        ids: &report.ids,
        losses: &report.scores,
    }
}
