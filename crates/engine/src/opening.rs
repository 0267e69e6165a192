//! Opening and closing jobs, and the memory they get.
//!
//! A job goes when it is closed, or a while after its last client. Opening it with a snapshot puts it where
//! another server left it, also beside jobs that hold bytes of the same dataset already. It is [made
//! ready](crate::ready) without the lock and taken in with it.

use std::sync::Arc;
use std::time::Instant;

use hotset_core::bytes::human;
use hotset_core::schedule::Schedule;
use hotset_core::{Error, Result};

use crate::config::{JobGrant, JobRequest, reserve};
use crate::engine::{Engine, SessionId};
use crate::jobs::less_memory;
use crate::packing::{self, NewPackages, Place};
use crate::ready::{Ready, Terms};
use crate::residency::MOST_KEEPERS;
use crate::snapshot::Snapshot;
use crate::state::State;
use crate::sync::thread::JoinHandle;

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
            // Takes as long as the dataset is large, so no request that is served waits for it.
            let ready = Ready::new(request, place, snapshot, &terms)?;
            let mut state = self.shared.lock();
            if let Some(grant) = state.join(session, request)? {
                return Ok(grant);
            }
            // Another job may have been opened or ended meanwhile, and left other memory.
            if state.terms(request, available)?.same_as(&terms) {
                let grant = ready.job.grant.clone();
                let (serial, unfinished) = state.admit(session, ready);
                packing::begin(&self.shared, &mut state, serial, unfinished);
                return Ok(grant);
            }
        }
    }

    /// Leaves a job; it ends with its last client, and then without lingering.
    pub fn close_job(&self, session: SessionId, job: &str) {
        let mut state = self.shared.lock();
        let Ok(job) = state.jobs.named(job) else { return };
        let serial = job.serial;
        if job.clients.close(session.0) {
            state.end_job(serial);
        }
    }

    /// Ends every job, for a server whose last trainer is gone: packages that are not kept are removed when this returns.
    pub fn end_jobs(&self) {
        let mut state = self.shared.lock();
        let serials = state.jobs.serials();
        let sweeping: Vec<_> = serials.into_iter().filter_map(|serial| state.end_job(serial)).collect();
        drop(state);
        // A thread that panicked has ended the process.
        sweeping.into_iter().for_each(|thread| drop(thread.join()));
    }

    /// Ends a job, also with clients in it: its run is over.
    pub fn end_job(&self, job: &str) {
        let mut state = self.shared.lock();
        if let Ok(serial) = state.jobs.named(job).map(|job| job.serial) {
            state.end_job(serial);
        }
    }

    /// Ends the jobs whose last client went longer ago than jobs linger. True if there were any.
    pub fn tidy(&self, now: Instant) -> bool {
        let mut state = self.shared.lock();
        let ended = state.jobs.ended(state.config.linger, now);
        for &serial in &ended {
            state.end_job(serial);
        }
        !ended.is_empty()
    }
}

impl State {
    /// Joins a job, if it is open with the same settings.
    fn join(&mut self, session: SessionId, request: &JobRequest) -> Result<Option<JobGrant>> {
        let Ok(job) = self.jobs.named(&request.job) else { return Ok(None) };
        job.same_as(request)?;
        if job.clients.join(session.0) {
            // Ranks that had begun its epochs are gone, and may come back as more or fewer.
            job.run.schedules_mut().for_each(Schedule::set_restored);
        }
        // The client that opened it was told, and a run is told once.
        Ok(Some(JobGrant { remarks: Vec::new(), ..job.grant.clone() }))
    }

    /// What a job that asks for this would get now, when so many bytes of memory can be had.
    fn terms(&self, request: &JobRequest, available: u64) -> Result<Terms> {
        let dataset = Arc::clone(self.datasets.named(&request.dataset)?);
        let trained = self.jobs.iter().filter(|job| job.dataset.key == dataset.key).count();
        if trained >= MOST_KEEPERS as usize {
            return Err(Error::unavailable(format!(
                "this server has {trained} jobs of this dataset and takes no more: end some"
            )));
        }
        let whole = dataset.catalog.bytes();
        let asked = request.cache.of(whole);
        let granted = self.grant_memory(asked, whole, available)?;
        let wanted = asked.min(whole);
        let memory = self.config.memory.filter(|_| granted < wanted);
        let less = memory.map(|memory| less_memory(granted, wanted, memory, self.jobs.granted()));
        Ok(Terms { dataset, asked, granted, less })
    }

    /// Takes a job in; its serial, and what a server before this one was packing for it.
    fn admit(&mut self, session: SessionId, ready: Ready) -> (u64, Option<NewPackages>) {
        let Ready { mut job, unfinished, residents, waiting } = ready;
        tracing::info!(
            job = job.request.job,
            policy = job.grant.policy,
            granted = job.grant.granted,
            "job opened"
        );
        job.clients.join(session.0);
        job.serial = self.next_serial();
        for schedule in job.run.schedules_mut() {
            schedule.set_generation(self.next_serial());
        }
        for id in residents {
            self.rooms.keep(&job.dataset, id, true);
        }
        for id in waiting {
            self.rooms.claim(&job.dataset, id, true);
        }
        let serial = job.serial;
        self.jobs.insert(job);
        self.fit_memory();
        (serial, unfinished)
    }

    /// Ends a job: everything it keeps and everything it waits for is let go of. The thread that removes its packages,
    /// where some must be.
    pub(crate) fn end_job(&mut self, serial: u64) -> Option<JoinHandle<()>> {
        let mut job = self.jobs.remove(serial)?;
        let epochs: Vec<u64> = job.run.schedules().keys().copied().collect();
        for epoch in epochs {
            if let Err(error) = job.drop_schedule(&mut self.rooms, epoch) {
                tracing::error!(%error, "a job that ends holds on to memory");
            }
        }
        if let Err(error) = self.rooms.withdraw(serial) {
            tracing::error!(%error, "what a job that ends was to read is lost to others");
        }
        let mut residents = Vec::new();
        job.run.cache().policy().residents(&mut |id| residents.push(id));
        for id in residents {
            self.rooms.keep(&job.dataset, id, false);
        }
        tracing::info!(job = job.request.job, "job ended");
        self.fit_memory();
        self.forget_datasets();
        job.packages.end()
    }

    /// How many bytes a job gets that asks for `asked` of a dataset of `whole` bytes.
    fn grant_memory(&self, asked: u64, whole: u64, available: u64) -> Result<u64> {
        let wanted = asked.min(whole);
        let taken = self.jobs.granted();
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
        let (has, more) = (self.rooms.residency().total(), taken + wanted + reserve(taken + wanted));
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
