//! The run that each open job is, and the clients in it.
//!
//! Jobs are kept under the [base](base_name) of their names: one job, and others while ranks move from it to an
//! earlier place. The lock is held for looking things up alone. A client that opens a job or ends one, which reads and writes
//! files, claims its name meanwhile: others that open or end a job of that name wait, and those that train do not.

mod members;
mod names;

use std::cmp::Ordering::{Greater, Less};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use hotset_core::{Error, Result};
use hotset_engine::{Engine, SessionId};
use hotset_wire::proto::Launch;

use crate::lock::{Guard, Lock};
use crate::opening::JobOpening;
use crate::state::{Journal, Place};
use members::{Entry, taken};
pub(crate) use members::{Members, Peer};
pub(crate) use names::{base_name, check_run, unique};

/// The open jobs that have plans, by the base of their names.
#[derive(Default)]
pub(crate) struct Runs(Lock<HashMap<String, Name>>);

#[derive(Default)]
struct Name {
    claimed: bool,
    jobs: BTreeMap<String, Members>,
}

/// A run, for a client that joins it.
pub(crate) struct Run {
    pub(crate) run: String,
    /// The place where it goes on, if it was resumed.
    pub(crate) place: Option<Place>,
    /// The epoch at which it goes on, where what was known is known again.
    pub(crate) resumed: Option<u64>,
    /// The newest epoch of an earlier run of its name, where it starts afresh.
    pub(crate) earlier: Option<u64>,
    pub(crate) lasting: bool,
    pub(crate) journal: Option<Arc<Journal>>,
}

impl Runs {
    /// Claims a name; waits while it is claimed.
    pub(crate) fn claim(&self, name: &str) -> Claim<'_> {
        let mut names = self.0.lock();
        loop {
            let own = names.entry(name.to_owned()).or_default();
            if !std::mem::replace(&mut own.claimed, true) {
                return Claim { runs: self, name: name.to_owned() };
            }
            names = names.wait();
        }
    }

    /// Claims of all names that are not claimed.
    pub(crate) fn claim_all(&self) -> Vec<Claim<'_>> {
        let mut names = self.0.lock();
        let free = names.iter_mut().filter(|(_, own)| !own.claimed);
        let claim = |(name, own): (&String, &mut Name)| {
            own.claimed = true;
            Claim { runs: self, name: name.clone() }
        };
        free.map(claim).collect()
    }

    /// The run of a job; `None` of a job that has no plans, or is not open.
    pub(crate) fn get(&self, job: &str) -> Option<Run> {
        Some(self.0.lock().get(base_name(job))?.jobs.get(job)?.run())
    }

    /// Lets a training process begin an epoch as `rank`, unless another one is that rank.
    pub(crate) fn begin(&self, peer: Peer, job: &str, rank: u32) -> Result<()> {
        let mut names = self.0.lock();
        let Some(own) = names.get_mut(base_name(job)) else { return Ok(()) };
        if own.jobs.iter().any(|(other, members)| other != job && members.is_foreign_to(peer)) {
            return Err(taken(base_name(job)));
        }
        own.jobs.get_mut(job).map_or(Ok(()), |members| members.begin(base_name(job), peer, rank))
    }

    /// A training process has begun an epoch as `rank`.
    pub(crate) fn begun(&self, peer: Peer, job: &str, rank: u32) {
        let mut names = self.0.lock();
        let members = names.get_mut(base_name(job)).and_then(|own| own.jobs.get_mut(job));
        members.into_iter().for_each(|members| members.begun(peer, rank));
    }

    /// The jobs that a session trains, with their journals.
    pub(crate) fn trained_by(&self, session: SessionId) -> Vec<(String, Arc<Journal>)> {
        let names = self.0.lock();
        let jobs = names.values().flat_map(|own| &own.jobs).filter(|(_, members)| members.has(session));
        jobs.filter_map(|(job, members)| Some((job.clone(), members.run().journal?))).collect()
    }

    /// A connection has ended.
    pub(crate) fn leave(&self, session: SessionId) {
        let mut names = self.0.lock();
        names.values_mut().flat_map(|own| own.jobs.values_mut()).for_each(|members| members.leave(session));
    }
}

/// The right to open and to end jobs of a name, until it is dropped.
pub(crate) struct Claim<'a> {
    runs: &'a Runs,
    name: String,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut names = self.names();
        if let Some(own) = names.get_mut(&self.name) {
            own.claimed = false;
            if own.jobs.is_empty() {
                names.remove(&self.name);
            }
        }
        names.signal();
    }
}

impl Claim<'_> {
    fn names(&self) -> Guard<'_, HashMap<String, Name>> {
        self.runs.0.lock()
    }

    /// What `work` makes of the jobs of the name.
    fn on_jobs<T>(&self, work: impl FnOnce(&mut BTreeMap<String, Members>) -> T) -> T {
        work(&mut self.names().entry(self.name.clone()).or_default().jobs)
    }

    /// Whether a process joins the job as it is open; else the job is not open now, whatever was open before.
    /// `takes_over` says that it asks to go on with a run.
    pub(crate) fn admits(
        &self,
        engine: &Engine,
        peer: Peer,
        opening: &JobOpening,
        takes_over: bool,
    ) -> Result<bool> {
        let mut ended = Vec::new();
        let admitted = self.on_jobs(|jobs| {
            ended = put_out(jobs, |job, _| !engine.has_job(job));
            let (admitted, over) = entry(jobs, &self.name, peer, opening, takes_over)?;
            ended.extend(put_out(jobs, |job, members| over.covers(job, members)));
            Ok(admitted)
        });
        for (job, members) in ended {
            engine.end_job(&job);
            members.close();
        }
        admitted
    }

    /// Takes in a job that was opened.
    pub(crate) fn insert(&self, job: &str, members: Members) {
        self.on_jobs(|jobs| jobs.insert(job.to_owned(), members));
    }

    /// Takes a process into a job.
    pub(crate) fn join(&self, job: &str, peer: Peer, launch: &Launch) -> Result<Run> {
        self.on_jobs(|jobs| {
            let members = jobs.get_mut(job);
            let members = members.ok_or_else(|| Error::internal(format!("job `{job}` has no members")))?;
            members.join(peer, launch);
            Ok(members.run())
        })
    }

    /// Lets go of the files of a run, which another job goes on with and writes from now on.
    pub(crate) fn retire(&self, run: &str) {
        self.retire_where(|_, members| members.is_of(run));
    }

    /// Lets go of the files of a job, whose run goes on elsewhere.
    pub(crate) fn retire_job(&self, job: &str) {
        self.retire_where(|other, _| other == job);
    }

    fn retire_where(&self, retires: impl Fn(&str, &Members) -> bool) {
        let journals: Vec<Arc<Journal>> = self.on_jobs(|jobs| {
            let retired = jobs.iter_mut().filter(|(job, members)| retires(job, members));
            retired.filter_map(|(_, members)| members.journal.take()).collect()
        });
        journals.iter().for_each(|journal| journal.close());
    }

    /// A process has left a job.
    pub(crate) fn leave(&self, job: &str, session: SessionId) {
        self.on_jobs(|jobs| jobs.get_mut(job).into_iter().for_each(|members| members.leave(session)));
    }

    /// Takes out the jobs that are over. What was written of those whose names were made up goes: it cannot be asked for
    /// again.
    pub(crate) fn end_where(&self, over: impl Fn(&str) -> bool) {
        let ended = self.on_jobs(|jobs| put_out(jobs, |job, _| over(job)));
        ended.into_iter().for_each(|(_, members)| members.end());
    }
}

/// Takes out the jobs that are over.
fn put_out(
    jobs: &mut BTreeMap<String, Members>,
    over: impl Fn(&str, &Members) -> bool,
) -> Vec<(String, Members)> {
    jobs.extract_if(.., |job, members| over(job, members)).collect()
}

/// The jobs that are over when a process comes.
struct Over<'a> {
    /// Those of an earlier attempt of its launch, even if a connection of that is still open: it is no second run.
    launch: &'a Launch,
    /// This one.
    job: Option<&'a str>,
}

impl Over<'_> {
    fn covers(&self, job: &str, members: &Members) -> bool {
        self.job == Some(job) || members.attempt(self.launch) == Some(Less)
    }
}

/// Whether a process joins the job it asks for, and which jobs are over.
fn entry<'a>(
    jobs: &BTreeMap<String, Members>,
    name: &str,
    peer: Peer,
    opening: &'a JobOpening,
    takes_over: bool,
) -> Result<(bool, Over<'a>)> {
    let (job, launch) = (&opening.request.job, &opening.launch);
    if jobs.values().any(|members| members.attempt(launch) == Some(Greater)) {
        return Err(Error::invalid(format!(
            "job `{name}` was started over by its launcher, and this process is of an earlier attempt: end it"
        )));
    }
    let earlier = Over { launch, job: None };
    let open = jobs.get(job).filter(|members| !earlier.covers(job, members));
    let Some(members) = open else {
        // A rank that comes late may find the others ahead of it. Only a client that would take a run over is refused now, and
        // one that begins an epoch then.
        let foreign = |members: &Members| members.is_foreign_to(peer) && members.attempt(launch).is_none();
        return if takes_over && opening.run.is_none() && jobs.values().any(foreign) {
            Err(taken(name))
        } else {
            Ok((false, earlier))
        };
    };
    Ok(match members.entry(name, peer, opening.run.as_deref(), launch)? {
        Entry::Join => (true, earlier),
        Entry::Over => (false, Over { launch, job: Some(job) }),
    })
}
