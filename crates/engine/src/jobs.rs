//! Opening and closing jobs, and the memory they get.
//!
//! A job goes when it is closed, or a while after its last client. Opening it with a snapshot puts it where
//! another server left it, also beside jobs that hold bytes of the same dataset already.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use hotset_core::bytes::human;
use hotset_core::counters::Counters;
use hotset_core::policy::{self, Sizes};
use hotset_core::sampling;
use hotset_core::schedule::Schedule;
use hotset_core::{Error, Result};

use crate::config::{JobGrant, JobRequest, reserve};
use crate::engine::{Engine, SessionId};
use crate::job::{Job, Planner};
use crate::snapshot::Snapshot;
use crate::state::State;

/// Strategies that a server carries out. The others plan from losses that a server does not yet plan with.
const STRATEGIES: &[&str] = &["uniform"];
/// Policies that need nothing but to be asked. The others need keys and scores that a server does not yet give.
const POLICIES: &[&str] = &["lru", "lfu", "random", "minio", "oracle"];

/// An error for a name that is registered but runs in simulations alone.
fn live(what: &str, name: &str, known: &[&str]) -> Result<()> {
    if known.contains(&name) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{what} `{name}` does not run live yet; `hotset simulate` compares it on a trace of your losses. Live ones: \
         `{}`",
        known.join("`, `")
    )))
}

impl Engine {
    /// Opens a job, or joins it if it is open with the same settings.
    pub fn open_job(&self, session: SessionId, request: JobRequest) -> Result<JobGrant> {
        self.open(session, request, None)
    }

    /// Opens a job where another server left it. A snapshot that does not fit is an error, and nothing is
    /// opened.
    pub fn restore_job(
        &self,
        session: SessionId,
        request: JobRequest,
        snapshot: &Snapshot,
    ) -> Result<JobGrant> {
        self.open(session, request, Some(snapshot))
    }

    fn open(&self, session: SessionId, request: JobRequest, snapshot: Option<&Snapshot>) -> Result<JobGrant> {
        let mut state = self.shared.lock();
        if let Some(job) =
            state.names.get(&request.job).copied().and_then(|serial| state.jobs.get_mut(&serial))
        {
            job.same_as(&request)?;
            job.sessions.insert(session.0);
            if job.left.take().is_some() {
                // Whoever had begun its epochs is gone, and may come back as more or fewer ranks.
                job.schedules.values_mut().for_each(Schedule::set_restored);
            }
            job.over = false;
            return Ok(job.grant.clone());
        }
        let dataset = state.dataset(&request.dataset)?;
        let catalog = Arc::clone(&state.datasets[dataset as usize].catalog);
        let strategy = request.strategy.as_deref().map(sampling::find).transpose()?;
        let name = request.policy.as_deref().or(strategy.map(|s| s.policy)).unwrap_or("minio");
        let entry = policy::find(name)?;
        if let Some(strategy) = strategy {
            live("strategy", strategy.name, STRATEGIES)?;
        }
        live("policy", name, POLICIES)?;
        let asked = request.cache.of(catalog.bytes());
        let granted = state.grant_memory(asked, catalog.bytes())?;
        if !entry.bounded && granted < catalog.bytes() {
            return Err(Error::invalid(format!(
                "policy `{name}` is a bound to compare with and keeps everything: give it `cache=\"100%\"`, or \
                 choose another `policy`"
            )));
        }
        let setup = policy::Setup::new(granted, Arc::clone(&catalog) as Arc<dyn Sizes>, request.seed);
        let mut policy = (entry.build)(setup);
        let mut planner = strategy.map(|entry| {
            let setup = sampling::Setup {
                sizes: Arc::clone(&catalog) as Arc<dyn Sizes>,
                capacity: granted,
                ..sampling::Setup::new(catalog.len(), request.seed)
            };
            Planner::new((entry.build)(setup), request.pad)
        });
        let mut residents = 0;
        if let Some(snapshot) = snapshot {
            snapshot.fits(&request, catalog.len())?;
            residents = snapshot.fill(policy.as_mut());
            if let Some(planner) = &mut planner {
                planner.go_on(snapshot.last.clone());
            }
        }
        let grant = JobGrant {
            strategy: strategy.map(|s| s.name.to_owned()).unwrap_or_default(),
            policy: name.to_owned(),
            asked,
            granted,
        };
        tracing::info!(job = request.job, policy = name, granted, "job opened");
        let serial = state.next_serial();
        state.names.insert(request.job.clone(), serial);
        let mut job = Job {
            request,
            grant: grant.clone(),
            dataset,
            policy,
            residents,
            planner: planner.map(|planner| Arc::new(Mutex::new(planner))),
            schedules: snapshot.map(|s| s.schedules(catalog.len())).unwrap_or_default(),
            begun: snapshot.map(|s| s.begun.clone()).unwrap_or_default(),
            counters: BTreeMap::new(),
            unplanned: Counters::default(),
            past: Counters::default(),
            window: 0,
            largest_batch: 0,
            sessions: HashSet::from([session.0]),
            left: None,
            over: false,
            scores: snapshot.map(|s| s.scores.clone()).unwrap_or_default(),
        };
        job.restore_window(|id| catalog.size(id));
        for schedule in job.schedules.values_mut() {
            schedule.set_generation(state.next_serial());
        }
        let waiting = job.waiting();
        state.jobs.insert(serial, job);
        // Other jobs may hold bytes that this one keeps or waits for.
        for &id in snapshot.iter().flat_map(|snapshot| &snapshot.residents) {
            state.keep(dataset, id, true);
        }
        for id in waiting {
            state.hold(dataset, id);
        }
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

    /// Ends the jobs whose last client went longer ago than jobs linger. True if there were any.
    pub fn tidy(&self, now: Instant) -> bool {
        let mut state = self.shared.lock();
        let linger = state.config.linger;
        let over = |job: &Job| {
            job.left.is_some_and(|left| job.over || now.saturating_duration_since(left) >= linger)
        };
        let ended: Vec<u64> =
            state.jobs.iter().filter(|(_, job)| over(job)).map(|(&serial, _)| serial).collect();
        for &serial in &ended {
            state.end_job(serial);
        }
        !ended.is_empty()
    }
}

impl State {
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
        let used: HashSet<u32> = self.jobs.values().map(|job| job.dataset).collect();
        self.datasets.retain(|key, dataset| {
            !dataset.sessions.is_empty() || dataset.objects > 0 || used.contains(&(key as u32))
        });
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
