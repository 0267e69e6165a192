//! Opening and closing jobs, and the memory they get.
//!
//! A job goes when it is closed, or a while after its last client. Opening it with a snapshot puts it where
//! another server left it, also beside jobs that hold bytes of the same dataset already. It is [made
//! ready](crate::ready) without the lock and taken in with it.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use hotset_core::bytes::human;
use hotset_core::schedule::Schedule;
use hotset_core::{Error, Result};

use crate::config::{JobGrant, JobRequest, reserve};
use crate::engine::{Engine, SessionId};
use crate::job::Job;
use crate::packer;
use crate::press::{Place, Press, Work};
use crate::ready::{Ready, Terms};
use crate::remarks::less_memory;
use crate::snapshot::Snapshot;
use crate::state::State;

impl Engine {
    /// Opens a job, or joins it if it is open with the same settings.
    pub fn open_job(
        &self,
        session: SessionId,
        request: JobRequest,
        place: Option<Place>,
    ) -> Result<JobGrant> {
        self.open(session, &request, place.as_ref(), None)
    }

    /// Opens a job where another server left it. A snapshot that does not fit is an error, and nothing is
    /// opened.
    pub fn restore_job(
        &self,
        session: SessionId,
        request: JobRequest,
        place: Option<Place>,
        snapshot: &Snapshot,
    ) -> Result<JobGrant> {
        self.open(session, &request, place.as_ref(), Some(snapshot))
    }

    fn open(
        &self,
        session: SessionId,
        request: &JobRequest,
        place: Option<&Place>,
        snapshot: Option<&Snapshot>,
    ) -> Result<JobGrant> {
        loop {
            let mut state = self.shared.lock();
            if let Some(grant) = state.join(session, request)? {
                return Ok(grant);
            }
            drop(state);
            let available = (self.shared.available)();
            let state = self.shared.lock();
            let terms = state.terms(request, available)?;
            drop(state);
            // Takes as long as the dataset is large, so nobody who is served waits for it.
            let ready = Ready::new(request, place, snapshot, &terms)?;
            let mut state = self.shared.lock();
            if let Some(grant) = state.join(session, request)? {
                return Ok(grant);
            }
            // Another job may have been opened or ended meanwhile, and left other memory.
            if state.terms(request, available)?.same_as(&terms) {
                let grant = ready.job.grant.clone();
                let (serial, unfinished) = state.admit(session, ready);
                packer::begin(&self.shared, &mut state, serial, unfinished);
                return Ok(grant);
            }
        }
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

    /// Ends every job, for a server whose last trainer is gone: packages that are not kept are removed when this returns.
    pub fn end_jobs(&self) {
        let mut state = self.shared.lock();
        let serials: Vec<u64> = state.jobs.keys().copied().collect();
        let sweeping: Vec<_> = serials.into_iter().filter_map(|serial| state.end_job(serial)).collect();
        drop(state);
        // A thread that panicked has ended the process.
        sweeping.into_iter().for_each(|thread| drop(thread.join()));
    }

    /// Ends a job whoever is still in it: its run is over.
    pub fn end_job(&self, job: &str) {
        let mut state = self.shared.lock();
        if let Ok(serial) = state.job(job) {
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
    /// Joins a job, if it is open with the same settings.
    fn join(&mut self, session: SessionId, request: &JobRequest) -> Result<Option<JobGrant>> {
        let serial = self.names.get(&request.job).copied();
        let Some(job) = serial.and_then(|serial| self.jobs.get_mut(&serial)) else { return Ok(None) };
        job.same_as(request)?;
        job.sessions.insert(session.0);
        if job.left.take().is_some() {
            // Whoever had begun its epochs is gone, and may come back as more or fewer ranks.
            job.run.schedules_mut().for_each(Schedule::set_restored);
        }
        job.over = false;
        // The client that opened it was told, and a run is told once.
        Ok(Some(JobGrant { remarks: Vec::new(), ..job.grant.clone() }))
    }

    /// What a job that asks for this would get now, when so many bytes of memory can be had.
    fn terms(&self, request: &JobRequest, available: u64) -> Result<Terms> {
        let dataset = self.dataset(&request.dataset)?;
        let book = &self.datasets[dataset as usize];
        let asked = request.cache.of(book.catalog.bytes());
        let granted = self.grant_memory(asked, book.catalog.bytes(), available)?;
        let wanted = asked.min(book.catalog.bytes());
        let memory = self.config.memory.filter(|_| granted < wanted);
        let less = memory.map(|memory| less_memory(granted, wanted, memory, self.capacity()));
        let (name, catalog) = (book.name.clone(), Arc::clone(&book.catalog));
        Ok(Terms { dataset, name, catalog, asked, granted, less })
    }

    /// Takes a job in; its serial, and what a server before this one was packing for it.
    fn admit(&mut self, session: SessionId, ready: Ready) -> (u64, Option<Work>) {
        let Ready { mut job, unfinished, residents, waiting } = ready;
        tracing::info!(
            job = job.request.job,
            policy = job.grant.policy,
            granted = job.grant.granted,
            "job opened"
        );
        job.sessions.insert(session.0);
        let serial = self.next_serial();
        self.names.insert(job.request.job.clone(), serial);
        for schedule in job.run.schedules_mut() {
            schedule.set_generation(self.next_serial());
        }
        let dataset = job.dataset;
        self.jobs.insert(serial, job);
        // Other jobs may hold bytes that this one keeps or waits for.
        for id in residents {
            self.keep(dataset, id, true);
        }
        for id in waiting {
            self.hold(dataset, id);
        }
        self.fit_arena();
        (serial, unfinished)
    }

    /// Ends a job: everything it keeps and everything it waits for is let go of. The thread that removes its packages,
    /// where some must be.
    pub(crate) fn end_job(&mut self, serial: u64) -> Option<JoinHandle<()>> {
        let epochs: Vec<u64> =
            self.jobs.get(&serial).map_or(Vec::new(), |job| job.run.schedules().keys().copied().collect());
        for epoch in epochs {
            self.drop_schedule(serial, epoch);
        }
        let job = self.jobs.remove(&serial)?;
        self.drop_loads(serial);
        self.names.remove(&job.request.job);
        let sweeping = job.press.and_then(Press::end);
        let mut residents = Vec::new();
        job.run.cache().policy().residents(&mut |id| residents.push(id));
        for id in residents {
            self.keep(job.dataset, id, false);
        }
        tracing::info!(job = job.request.job, "job ended");
        self.fit_arena();
        self.drop_datasets();
        sweeping
    }

    /// Forgets datasets that no client and no job uses and no bytes are left of.
    pub(crate) fn drop_datasets(&mut self) {
        let used: HashSet<u32> = self.jobs.values().map(|job| job.dataset).collect();
        self.datasets.retain(|key, dataset| {
            !dataset.sessions.is_empty() || dataset.objects > 0 || used.contains(&(key as u32))
        });
    }

    /// How many bytes a job gets that asks for `asked` of a dataset of `whole` bytes.
    fn grant_memory(&self, asked: u64, whole: u64, available: u64) -> Result<u64> {
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
        // What the arena has already is no more to be had.
        let (has, more) = (self.arena.total(), taken + wanted + reserve(taken + wanted));
        if more.saturating_sub(has) > available && self.config.memory.is_none() {
            let most = (available + has).saturating_sub(reserve(0)) / 8 * 7;
            return Err(Error::invalid(format!(
                "`cache` asks for {} but of the {} of this machine (or its control group) only {} are free: ask for at \
                 most {}, or end what takes the rest",
                human(wanted),
                human(machine),
                human(available),
                human(most.saturating_sub(taken))
            )));
        }
        let left = self.config.memory.map_or(u64::MAX, |memory| memory.saturating_sub(taken));
        Ok(wanted.min(left))
    }
}
