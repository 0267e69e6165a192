//! One training: its run, and everything around it that the run need not know.
//!
//! The run is [pure](JobRun), and the simulator's too: plans under way, cache and tally. Around it are the job's ranks, its
//! planner, its packages, and what was noticed of it. What its decisions mean for bytes is in [`crate::serving`].

use std::sync::Arc;

use hotset_core::run::JobRun;
use hotset_core::schedule::Schedule;
use hotset_core::{Error, Id, Result};

use super::clients::Clients;
use super::nodes::JobNodes;
use super::packages::JobPackages;
use super::probing::Probing;
use super::ranks::Ranks;
use super::remarks::Notices;
use super::window::Window;
use crate::config::{JobGrant, JobRequest};
use crate::dataset::Dataset;
use crate::planner::PlannerHandle;

/// How a job was opened.
pub(crate) struct Opened {
    /// What was asked for.
    pub(crate) request: JobRequest,
    /// What it was given.
    pub(crate) grant: JobGrant,
}

/// One training.
pub(crate) struct Job {
    /// Its number on this server.
    pub(crate) serial: u64,
    pub(crate) opened: Opened,
    pub(crate) dataset: Arc<Dataset>,
    /// Its plans, its cache and its tally.
    pub(crate) run: JobRun,
    /// What makes its plans; `None` for a dataset without a sampler.
    pub(crate) planner: Option<Arc<PlannerHandle>>,
    pub(crate) packages: JobPackages,
    pub(crate) ranks: Ranks,
    pub(crate) window: Window,
    pub(crate) probing: Probing,
    pub(crate) notices: Notices,
    pub(crate) clients: Clients,
    pub(crate) nodes: JobNodes,
}

impl Job {
    /// One that was not asked for anything.
    pub(crate) fn new(request: JobRequest, grant: JobGrant, dataset: Arc<Dataset>, run: JobRun) -> Self {
        Self {
            serial: 0,
            opened: Opened { request, grant },
            dataset,
            run,
            planner: None,
            packages: JobPackages::default(),
            ranks: Ranks::default(),
            window: Window::default(),
            probing: Probing::default(),
            notices: Notices::default(),
            clients: Clients::default(),
            nodes: JobNodes::default(),
        }
    }

    /// What makes its plans, and its packages.
    pub(crate) fn equip(&mut self, planner: Option<Arc<PlannerHandle>>, packages: JobPackages) {
        (self.planner, self.packages) = (planner, packages);
    }

    /// It is taken in under this number, with what it knows of other nodes.
    pub(crate) fn admit(&mut self, serial: u64, nodes: JobNodes) {
        (self.serial, self.nodes) = (serial, nodes);
    }

    /// What it is called.
    pub(crate) fn name(&self) -> &str {
        &self.opened.request.job
    }

    /// The plan of an epoch, which is under way.
    pub(crate) fn schedule(&mut self, epoch: u64) -> Result<&mut Schedule> {
        let job = &self.opened.request.job;
        let lost = || Error::internal(format!("epoch {epoch} of job `{job}` lost its plan"));
        self.run.schedule_mut(epoch).ok_or_else(lost)
    }

    /// The plan of an epoch, if it is still the one of that generation.
    pub(crate) fn same_schedule(&mut self, epoch: u64, generation: u64) -> Option<&mut Schedule> {
        self.run.schedule_mut(epoch).filter(|schedule| schedule.generation() == generation)
    }

    /// Whether a decided slot of `id` other than this one waits to be served.
    pub(crate) fn waits_for(&self, id: Id, (epoch, slot): (u64, usize)) -> bool {
        let until = |of: u64| if of == epoch { slot } else { usize::MAX };
        self.run.schedules().iter().any(|(&of, schedule)| schedule.waits_before(id, until(of)))
    }

    /// The epoch of a decided slot of `id` that waits to be served.
    pub(crate) fn awaits(&self, id: Id) -> Option<u64> {
        let mut schedules = self.run.schedules().iter();
        schedules.find(|(_, schedule)| schedule.awaits(id)).map(|(&epoch, _)| epoch)
    }

    /// A decided slot of `id` whose read was not made, and its epoch.
    pub(crate) fn unread(&self, id: Id) -> Option<(u64, usize)> {
        self.run.schedules().iter().find_map(|(&epoch, schedule)| Some((epoch, schedule.unread(id)?)))
    }

    /// Whether this node owns a sample, by its newest plan.
    pub(crate) fn owns(&self, id: Id) -> bool {
        self.run.schedules().values().next_back().is_none_or(|schedule| schedule.owns_sample(id))
    }

    /// A sample is to be read before `epoch`, to be re-evaluated.
    pub(crate) fn read_to_evaluate(&mut self, epoch: u64, id: Id) {
        self.ranks.must_read(id);
        self.run.tally_mut().reads_beside(epoch, id);
    }

    /// Counts an epoch anew; what was counted of it stays in the sum.
    pub(crate) fn forget(&mut self, epoch: u64) {
        self.run.count_anew(epoch);
        self.notices.pacing.forget(epoch);
    }

    /// Whether another request for this job asks for the same thing; the setting that differs if not.
    pub(crate) fn same_as(&self, other: &JobRequest) -> Result<()> {
        match self.opened.request.difference(other) {
            None => Ok(()),
            Some(setting) => Err(hotset_core::Error::invalid(format!(
                "job `{}` is already open with another `{setting}`: use the same settings in every process, or \
                 give this run a `job` name of its own",
                self.name()
            ))),
        }
    }
}
