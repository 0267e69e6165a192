//! Opening and closing jobs, and beginning their epochs.
//!
//! A plan takes as long as its dataset is large, so it is made outside the lock: by whoever begins an epoch
//! that is not planned yet, and by a thread of its own for the epoch after, so that prefetch crosses the
//! epoch's edge. A job goes when it is closed, or a while after its last client.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use hotset_core::bytes::human;
use hotset_core::counters::Counters;
use hotset_core::policy::{self, Sizes};
use hotset_core::sampling::{self, Plan};
use hotset_core::{Error, Kind, Result};

use crate::config::{JobGrant, JobRequest, reserve};
use crate::engine::{Engine, SessionId, Shared, pump};
use crate::job::{Job, Planner, prepare};
use crate::state::State;

/// The most ranks a plan is cut over.
const MOST_RANKS: u32 = 1 << 20;

impl Engine {
    /// Opens a job, or joins it if it is open with the same settings.
    pub fn open_job(&self, session: SessionId, request: JobRequest) -> Result<JobGrant> {
        let mut state = self.shared.lock();
        if let Some(job) =
            state.names.get(&request.job).copied().and_then(|serial| state.jobs.get_mut(&serial))
        {
            job.same_as(&request)?;
            job.sessions.insert(session.0);
            (job.left, job.over) = (None, false);
            return Ok(job.grant.clone());
        }
        let dataset = state.dataset(&request.dataset)?;
        let catalog = Arc::clone(&state.datasets[dataset as usize].catalog);
        let strategy = request.strategy.as_deref().map(sampling::find).transpose()?;
        let name = request.policy.as_deref().or(strategy.map(|s| s.policy)).unwrap_or("minio");
        let entry = policy::find(name)?;
        let asked = request.cache.of(catalog.bytes());
        let granted = state.grant_memory(asked, catalog.bytes())?;
        if !entry.bounded && granted < catalog.bytes() {
            return Err(Error::invalid(format!(
                "policy `{name}` is a bound to compare with and keeps everything: give it `cache=\"100%\"`, or \
                 choose another `policy`"
            )));
        }
        if entry.offline {
            return Err(Error::invalid(format!(
                "policy `{name}` must know every plan of the run beforehand, which only `hotset simulate` does: \
                 choose another `policy`"
            )));
        }
        let setup = policy::Setup::new(granted, Arc::clone(&catalog) as Arc<dyn Sizes>, request.seed);
        let planner = strategy.map(|entry| {
            let setup = sampling::Setup {
                sizes: Arc::clone(&catalog) as Arc<dyn Sizes>,
                capacity: granted,
                ..sampling::Setup::new(catalog.len(), request.seed)
            };
            Arc::new(Mutex::new(Planner::new((entry.build)(setup), request.pad)))
        });
        let grant = JobGrant {
            strategy: strategy.map(|s| s.name.to_owned()).unwrap_or_default(),
            policy: name.to_owned(),
            asked,
            granted,
        };
        tracing::info!(job = request.job, policy = name, granted, "job opened");
        let serial = state.next_serial();
        state.names.insert(request.job.clone(), serial);
        state.jobs.insert(
            serial,
            Job {
                request,
                grant: grant.clone(),
                dataset,
                policy: (entry.build)(setup),
                residents: 0,
                planner,
                schedules: BTreeMap::new(),
                begun: BTreeMap::new(),
                counters: BTreeMap::new(),
                unplanned: Counters::default(),
                window: 0,
                largest_batch: 0,
                sessions: HashSet::from([session.0]),
                left: None,
                over: false,
                scores: Vec::new(),
            },
        );
        state.fit_arena();
        Ok(grant)
    }

    /// Leaves a job; it ends with its last client, and then without lingering.
    pub fn close_job(&self, session: SessionId, job: &str) {
        let mut state = self.shared.lock();
        let Ok(serial) = state.job(job) else { return };
        let Some(book) = state.jobs.get_mut(&serial) else { return };
        book.sessions.remove(&session.0);
        book.over = true;
        if book.sessions.is_empty() {
            state.end_job(serial);
        }
    }

    /// Ends the jobs whose last client went longer ago than jobs linger.
    pub fn tidy(&self, now: Instant) {
        let mut state = self.shared.lock();
        let linger = state.config.linger;
        let over = |job: &Job| {
            job.left.is_some_and(|left| job.over || now.saturating_duration_since(left) >= linger)
        };
        let ended: Vec<u64> =
            state.jobs.iter().filter(|(_, job)| over(job)).map(|(&serial, _)| serial).collect();
        for serial in ended {
            state.end_job(serial);
        }
    }

    /// Begins an epoch for a rank: the plan, all ranks' parts in it. A trainer begins it over if its rank
    /// had begun it; a reader that joins enters it as it stands.
    pub fn begin_epoch(
        &self,
        job: &str,
        epoch: u64,
        (rank, world): (u32, u32),
        start: u64,
        join: bool,
    ) -> Result<Arc<Plan>> {
        if world == 0 || world > MOST_RANKS || rank >= world {
            return Err(Error::invalid(format!(
                "rank {rank} of {world} is impossible: `rank` lies between 0 and `world` - 1, `world` between \
                 1 and {MOST_RANKS}"
            )));
        }
        if epoch > hotset_core::id::LAST_EPOCH {
            return Err(Error::invalid(format!(
                "epoch {epoch} is too large: the last is {}",
                hotset_core::id::LAST_EPOCH
            )));
        }
        let mut state = self.shared.lock();
        let serial = state.job(job)?;
        let (planner, samples) = state.planner(serial)?;
        if state.needs_plan(serial, epoch, world)? {
            drop(state);
            let schedule = prepare(&planner, epoch, world, samples);
            state = self.shared.lock();
            if state.needs_plan(serial, epoch, world)?
                && let Some(job) = state.jobs.get_mut(&serial)
            {
                job.schedules.insert(epoch, schedule);
            }
        }
        let plan = state.enter(serial, epoch, (rank, world), start, join)?;
        let next = epoch + 1;
        let ahead = state.jobs.get(&serial).is_some_and(|job| job.request.prefetch)
            && state.needs_plan(serial, next, world)?;
        pump(&self.shared, state, serial)?;
        if ahead {
            plan_ahead(&self.shared, serial, next, world, samples, planner);
        }
        Ok(plan)
    }
}

/// Plans the epoch after the one that began, and reads on into it.
fn plan_ahead(
    shared: &Arc<Shared>,
    job: u64,
    epoch: u64,
    world: u32,
    samples: usize,
    planner: Arc<Mutex<Planner>>,
) {
    let shared = Arc::clone(shared);
    let work = move || {
        let schedule = prepare(&planner, epoch, world, samples);
        let mut state = shared.lock();
        if state.stopping || !state.needs_plan(job, epoch, world).unwrap_or(false) {
            return;
        }
        if let Some(book) = state.jobs.get_mut(&job) {
            book.schedules.insert(epoch, schedule);
        }
        if let Err(error) = pump(&shared, state, job) {
            tracing::warn!(%error, "cannot read ahead into the next epoch");
        }
    };
    if let Err(error) = std::thread::Builder::new().name("hotset-plan".into()).spawn(work) {
        tracing::warn!(%error, "cannot plan the next epoch ahead");
    }
}

impl State {
    fn planner(&self, serial: u64) -> Result<(Arc<Mutex<Planner>>, usize)> {
        let job = &self.jobs[&serial];
        let planner = job.planner.clone().ok_or_else(|| {
            Error::invalid(format!("job `{}` has no strategy: open it with one", job.request.job))
        })?;
        Ok((planner, self.datasets[job.dataset as usize].catalog.len()))
    }

    /// Whether an epoch has no plan for this world yet.
    fn needs_plan(&mut self, serial: u64, epoch: u64, world: u32) -> Result<bool> {
        let Some(job) = self.jobs.get(&serial) else {
            return Err(Error::new(Kind::Lost, "the job was closed meanwhile"));
        };
        match job.schedules.get(&epoch) {
            None => Ok(true),
            Some(schedule) if schedule.plan().world() == world => Ok(false),
            Some(schedule) if schedule.begun() => Err(Error::invalid(format!(
                "epoch {epoch} of job `{}` was begun by {} ranks and now by one of {world}: use the same `world` \
                 in every rank",
                job.request.job,
                schedule.plan().world()
            ))),
            Some(_) => {
                self.drop_schedule(serial, epoch);
                Ok(true)
            }
        }
    }

    /// Enters a planned epoch: closes what the rank leaves behind.
    fn enter(
        &mut self,
        serial: u64,
        epoch: u64,
        (rank, world): (u32, u32),
        start: u64,
        join: bool,
    ) -> Result<Arc<Plan>> {
        let Some(job) = self.jobs.get_mut(&serial) else {
            return Err(Error::new(Kind::Lost, "the job was closed meanwhile"));
        };
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        let lost = || Error::internal(format!("epoch {epoch} lost its plan"));
        let schedule = job.schedules.get_mut(&epoch).ok_or_else(lost)?;
        let plan = Arc::clone(schedule.plan());
        let fresh = schedule.begin(rank, start);
        if !fresh && !join && (schedule.served(rank) > 0 || start > 0) {
            schedule.begin_again(rank, start);
            if world == 1 {
                job.counters.remove(&epoch);
            }
        }
        job.begun.insert(rank, epoch);
        job.counters(Some(epoch)).planned = plan.len() as u64;
        let others: Vec<u64> = job.schedules.keys().copied().filter(|&other| other != epoch).collect();
        for other in others {
            self.leave(serial, other, epoch, rank);
        }
        Ok(plan)
    }

    /// What becomes of another epoch when a rank begins `epoch`: earlier ones close for it; later ones that
    /// nobody has begun were planned for a future that did not come, except the very next.
    fn leave(&mut self, serial: u64, other: u64, epoch: u64, rank: u32) {
        let Some(job) = self.jobs.get_mut(&serial) else { return };
        let Some(schedule) = job.schedules.get_mut(&other) else { return };
        if other > epoch {
            if !schedule.begun() && other != epoch + 1 {
                self.drop_schedule(serial, other);
            }
            return;
        }
        if !schedule.begun() {
            self.drop_schedule(serial, other);
            return;
        }
        let mut decided = Vec::new();
        let count = if (rank as usize) < schedule.plan().world() as usize {
            schedule.close(rank, &mut decided)
        } else {
            0
        };
        let closed = schedule.closed();
        self.abandon(serial, other, count, &decided);
        if closed && let Some(job) = self.jobs.get_mut(&serial) {
            job.schedules.remove(&other);
        }
    }

    fn drop_schedule(&mut self, serial: u64, epoch: u64) {
        let Some(job) = self.jobs.get_mut(&serial) else { return };
        let Some(schedule) = job.schedules.get_mut(&epoch) else { return };
        let decided = schedule.abandon_outstanding();
        let begun = schedule.begun();
        self.abandon(serial, epoch, decided.len(), &decided);
        if let Some(job) = self.jobs.get_mut(&serial) {
            job.schedules.remove(&epoch);
            if !begun {
                job.counters.remove(&epoch);
            }
        }
    }

    /// Ends a job: everything it keeps and everything it waits for is let go of.
    pub(crate) fn end_job(&mut self, serial: u64) {
        let epochs: Vec<u64> =
            self.jobs.get(&serial).map_or(Vec::new(), |job| job.schedules.keys().copied().collect());
        for epoch in epochs {
            self.drop_schedule(serial, epoch);
        }
        let Some(job) = self.jobs.remove(&serial) else { return };
        self.names.remove(&job.request.job);
        let mut residents = Vec::new();
        job.policy.residents(&mut |id| residents.push(id));
        for id in residents {
            self.keep(job.dataset, id, false);
        }
        tracing::info!(job = job.request.job, "job ended");
        self.fit_arena();
        self.drop_datasets();
    }

    /// Forgets datasets that no client and no job uses and no bytes are left of.
    pub(crate) fn drop_datasets(&mut self) {
        let used: HashSet<u32> = self
            .jobs
            .values()
            .map(|job| job.dataset)
            .chain(self.objects.iter().map(|(_, object)| object.dataset))
            .collect();
        self.datasets.retain(|key, dataset| !dataset.sessions.is_empty() || used.contains(&(key as u32)));
    }

    /// How many bytes a job gets that asks for `asked` of a dataset of `whole` bytes.
    fn grant_memory(&self, asked: u64, whole: u64) -> Result<u64> {
        let wanted = asked.min(whole);
        let taken = self.capacity();
        let machine = self.config.machine;
        if taken + wanted + reserve(taken + wanted) > machine && self.config.memory.is_none() {
            let least = reserve(0);
            return Err(Error::invalid(format!(
                "`cache` asks for {} but this machine (or its control group) has {} and other jobs take {}: ask \
                 for at most {}",
                human(wanted),
                human(machine),
                human(taken),
                human(((machine.saturating_sub(least)) / 8 * 7).saturating_sub(taken))
            )));
        }
        let left = self.config.memory.map_or(u64::MAX, |memory| memory.saturating_sub(taken));
        Ok(wanted.min(left))
    }
}
