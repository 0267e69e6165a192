//! Opening and closing jobs, and the memory they get.
//!
//! A job goes when it is closed, or a while after its last client. Opening it with a snapshot puts it where
//! another server left it, also beside jobs that hold bytes of the same dataset already. It is [made
//! ready](crate::ready) without the lock and taken in with it.

use std::sync::Arc;
use std::time::Instant;

use hotset_core::bytes::human;
use hotset_core::cache::Cache;
use hotset_core::log::{Event, Opening};
use hotset_core::policy::Sizes;
use hotset_core::{Error, Result};

use crate::cluster::Role;
use crate::config::{JobGrant, JobRequest, reserve};
use crate::engine::{Engine, SessionId, Shared};
use crate::fetching::Cause;
use crate::jobs::{JobNodes, less_memory};
use crate::packing::{self, NewPackages, Place};
use crate::ready::{Ready, Terms, cache_key};
use crate::residency::MOST_KEEPERS;
use crate::snapshot::Snapshot;
use crate::state::State;
use crate::sync::thread::JoinHandle;
use crate::sync::{MutexGuard, thread};

impl Engine {
    /// Opens a job, or joins it if it is open with the same settings.
    pub fn open_job(
        &self,
        session: SessionId,
        request: JobRequest,
        place: Option<Place>,
    ) -> Result<JobGrant> {
        self.open_job_as(session, request, place, Role::Alone)
    }

    /// The same on a node that is not the only one of the job.
    pub fn open_job_as(
        &self,
        session: SessionId,
        request: JobRequest,
        place: Option<Place>,
        role: Role,
    ) -> Result<JobGrant> {
        self.open(session, &request, (place.as_ref(), role), None)
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
        self.restore_job_as(session, request, place, snapshot, Role::Alone)
    }

    /// The same on a node that is not the only one of the job.
    pub fn restore_job_as(
        &self,
        session: SessionId,
        request: JobRequest,
        place: Option<Place>,
        snapshot: &Snapshot,
        role: Role,
    ) -> Result<JobGrant> {
        self.open(session, &request, (place.as_ref(), role), Some(snapshot))
    }

    fn open(
        &self,
        session: SessionId,
        request: &JobRequest,
        (place, role): (Option<&Place>, Role),
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
            // Looked at once: the arena grows while the job is made ready.
            let memory = Free { available, arena: state.rooms.residency().total() };
            let terms = state.terms(request, (place, role), memory)?;
            drop(state);
            // Takes as long as the dataset is large, so no request that is served waits for it.
            let ready = Ready::new(request, place, snapshot, &terms)?;
            let mut state = self.shared.lock();
            if let Some(grant) = state.join(session, request)? {
                return Ok(grant);
            }
            // Another job may have been opened or ended meanwhile, and left other memory.
            if state.terms(request, (place, role), memory)?.same_as(&terms) {
                let grant = ready.job.opened.grant.clone();
                let (serial, unfinished) = state.admit(session, ready, &terms)?;
                packing::begin(&self.shared, &mut state, serial, unfinished);
                fit_memory(&self.shared, state);
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
            fit_memory(&self.shared, state);
        }
    }

    /// Ends every job, for a server whose last trainer is gone: packages that are not kept are removed when this returns.
    pub fn end_jobs(&self) {
        let mut state = self.shared.lock();
        let serials = state.jobs.serials();
        let sweeping: Vec<_> = serials.into_iter().filter_map(|serial| state.end_job(serial)).collect();
        fit_memory(&self.shared, state);
        // A thread that panicked has ended the process.
        sweeping.into_iter().for_each(|thread| drop(thread.join()));
    }

    /// Ends a job, also with clients in it: its run is over.
    pub fn end_job(&self, job: &str) {
        let mut state = self.shared.lock();
        if let Ok(serial) = state.jobs.named(job).map(|job| job.serial) {
            state.end_job(serial);
            fit_memory(&self.shared, state);
        }
    }

    /// Drops a job whose training goes on at another node: nothing has come of it yet.
    pub fn drop_job(&self, job: &str) {
        let mut state = self.shared.lock();
        if let Ok(serial) = state.jobs.named(job).map(|job| job.serial) {
            state.drop_job(serial);
            fit_memory(&self.shared, state);
        }
    }

    /// Ends the jobs whose last client went longer ago than jobs linger, and leases whose ends were not told. True if there
    /// were any such jobs.
    pub fn tidy(&self, now: Instant) -> bool {
        self.hear();
        let mut state = self.shared.lock();
        let ended = state.jobs.ended(state.config.linger, now);
        for &serial in &ended {
            state.end_job(serial);
        }
        if !ended.is_empty() {
            fit_memory(&self.shared, state);
        }
        !ended.is_empty()
    }
}

/// Fits caches and memory to the jobs that there are now, a slice a hold of the lock.
pub(crate) fn fit_memory<'a>(shared: &'a Shared, mut state: MutexGuard<'a, State>) {
    while state.fit_memory() {
        let empty = state.rooms.caches_mut().take_empty();
        drop(state);
        drop(empty);
        thread::yield_now();
        state = shared.lock();
    }
    state.forget_datasets();
    let empty = state.rooms.caches_mut().take_empty();
    // What others have let go of, readers may wait for; and plans of a job that has ended do not come.
    shared.room.notify_all();
    shared.planned.notify_all();
    drop(state);
    drop(empty);
}

/// The memory that jobs can have: what is free, and what the arena has already.
#[derive(Debug, Clone, Copy)]
struct Free {
    available: u64,
    arena: u64,
}

impl State {
    /// Joins a job, if it is open with the same settings.
    fn join(&mut self, session: SessionId, request: &JobRequest) -> Result<Option<JobGrant>> {
        let Ok(job) = self.jobs.named(&request.job) else { return Ok(None) };
        job.same_as(request)?;
        if job.clients.join(session.0) {
            // Ranks that had begun its epochs are gone, and may come back as more or fewer.
            job.run.lose_ranks();
        }
        // The client that opened it was told, and a run is told once.
        Ok(Some(JobGrant { remarks: Vec::new(), ..job.opened.grant.clone() }))
    }

    /// What a job that asks for this would get now.
    fn terms(
        &self,
        request: &JobRequest,
        (place, role): (Option<&Place>, Role),
        memory: Free,
    ) -> Result<Terms> {
        let dataset = Arc::clone(self.datasets.named(&request.dataset)?);
        let trained = self.jobs.iter().filter(|job| job.dataset.key == dataset.key).count();
        if trained + self.rooms.caches().leaving(dataset.key) >= MOST_KEEPERS as usize {
            return Err(Error::unavailable(format!(
                "this server has {trained} jobs of this dataset and takes no more: end some"
            )));
        }
        let whole = dataset.catalog.bytes();
        let asked = request.cache.of(whole);
        let wanted = asked.min(whole);
        let budget = self.budget(wanted, memory)?;
        let key = cache_key(request, (place, role), dataset.key)?;
        let caches = self.rooms.caches();
        let cache = caches.find(&key);
        let granted = caches.part_of(budget, (&key, cache), wanted, whole);
        let less = granted < wanted;
        let less = less.then(|| {
            let all = (budget, caches.asked().saturating_add(wanted));
            less_memory(granted, wanted, all, self.config.memory.is_some())
        });
        // What a log is played back from is not all on one node.
        let logged = self.config.logs.is_some() && key.planned && role.is_alone();
        let planned = role.capacity().map_or(wanted, |capacity| capacity.min(whole));
        let node = match &self.cluster {
            Some((cluster, _)) => cluster.name().to_owned(),
            None if role.is_alone() => String::new(),
            None => {
                return Err(Error::internal("a job over several nodes is on a server that is in no cluster"));
            }
        };
        Ok(Terms { dataset, asked, wanted, planned, granted, less, key, cache, budget, logged, role, node })
    }

    /// Takes a job in; its serial, and what a server before this one was packing for it.
    fn admit(
        &mut self,
        session: SessionId,
        ready: Ready,
        terms: &Terms,
    ) -> Result<(u64, Option<NewPackages>)> {
        let Ready { mut job, cache, unfinished, waiting, setup, state } = ready;
        tracing::info!(
            job = job.name(),
            policy = job.opened.grant.policy,
            granted = job.opened.grant.granted,
            "job opened"
        );
        job.clients.join(session.0);
        job.admit(self.next_serial(), JobNodes::new(terms.role, self.cluster.clone()));
        job.run.number_plans(|| self.next_serial());
        let opened = terms.cache.is_none();
        let place = match (terms.cache, cache) {
            (Some(place), _) => place,
            (None, Some(cache)) => self.open_cache(terms, cache, &job.opened.request),
            (None, None) => return Err(Error::internal("a job was made without a cache")),
        };
        job.run.join(self.rooms.caches_mut().join(place, job.serial, terms.wanted)?);
        if let Some(setup) = &setup {
            job.run.log().note(|member| Event::Made(member, Arc::clone(setup)));
        }
        if let Some(state) = &state {
            job.run.log().note(|member| Event::Resumed { member, state: Arc::clone(state), opened });
        }
        if opened {
            self.fit_cache(terms, job.serial)?;
        }
        for id in waiting {
            self.rooms.claim(&job.dataset, id, true);
        }
        let serial = job.serial;
        self.jobs.insert(job);
        self.jobs.set_changed();
        self.budget = terms.budget;
        self.rooms.caches_mut().divide(terms.budget);
        Ok((serial, unfinished))
    }

    /// Takes a cache in; its serial.
    fn open_cache(&mut self, terms: &Terms, mut cache: Cache, request: &JobRequest) -> u64 {
        // What no plan serves is not decided in an order that could be played back.
        let logs = self.config.logs.as_ref().filter(|_| terms.logged);
        if let Some(recorder) = logs.and_then(|logs| logs.open(&request.job, terms.key.policy)) {
            recorder.note(Event::Opened(Arc::new(Opening {
                dataset: terms.dataset.name.clone(),
                sizes: Arc::clone(&terms.dataset.catalog) as Arc<dyn Sizes>,
                policy: terms.key.policy.to_owned(),
                settings: request.policy_settings.clone(),
                capacity: terms.granted,
                seed: request.seed,
            })));
            cache.keep_log(recorder);
        }
        let serial = self.next_serial();
        self.rooms.caches_mut().open(serial, terms.key.clone(), &terms.dataset, cache);
        serial
    }

    /// Makes the cache that was opened for a job as large as the others leave room for now.
    fn fit_cache(&mut self, terms: &Terms, job: u64) -> Result<()> {
        let all = self.rooms.caches().held();
        let cache = self.rooms.cache_mut(job)?;
        let own = cache.policy().capacity();
        // What it had kept before a restart it keeps: those bytes come when they are due.
        let free = terms.budget.saturating_sub(all - own);
        let room = free.max(cache.policy().used());
        if own > room {
            cache.resize(room);
        }
        let mut residents = Vec::new();
        cache.policy().residents(&mut |id| residents.push(id));
        for id in residents {
            self.rooms.keep(&terms.dataset, id, true);
        }
        Ok(())
    }

    /// Ends a job, whose figures are left. The thread that removes its packages, where some must be.
    pub(crate) fn end_job(&mut self, serial: u64) -> Option<JoinHandle<()>> {
        if let Some(figures) = self.jobs.get(serial).and_then(|job| self.figures(job)) {
            self.jobs.note_ended(figures);
        }
        self.drop_job(serial)
    }

    /// Drops a job: everything it waits for is let go of, and what it keeps when memory is [fitted](fit_memory).
    fn drop_job(&mut self, serial: u64) -> Option<JoinHandle<()>> {
        let mut job = self.jobs.remove(serial)?;
        self.jobs.set_changed();
        job.run.note_counts(0);
        job.end_probe(&mut self.rooms);
        let epochs: Vec<u64> = job.run.schedules().keys().copied().collect();
        for epoch in epochs {
            if let Err(error) = job.drop_schedule(&mut self.rooms, epoch) {
                tracing::error!(%error, "a job that ends holds on to memory");
            }
        }
        if let Err(error) = self.withdraw(serial) {
            tracing::error!(%error, "what a job that ends was to read is lost to others");
        }
        self.rooms.caches_mut().leave(serial, job.run.member());
        tracing::info!(job = job.name(), "job ended");
        self.rooms.caches_mut().divide(self.budget);
        let altogether = job.nodes.ends_altogether();
        job.packages.end(altogether)
    }

    /// Forgets the requests of a job that has ended. What others wait for is read alone, for the first of them: they were
    /// spared these reads, and are no longer.
    fn withdraw(&mut self, serial: u64) -> Result<()> {
        for object in self.rooms.fetching_mut().withdraw(serial) {
            let of = self.rooms.residency().get(object);
            let (dataset, id) = (of.dataset(), of.id());
            let jobs = self.jobs.iter().filter(|job| job.dataset.key == dataset);
            let payer = jobs.filter_map(|job| Some(job.payer(job.awaits(id)?, Cause::Recovery))).next();
            payer.into_iter().for_each(|payer| self.rooms.fetching_mut().charge_to(object, payer));
            self.rooms.read_alone(object, Cause::Recovery)?;
        }
        Ok(())
    }

    /// The bytes that all caches may keep together, for a job that wants so many of them. One that asks for more than
    /// there is, others aside, is refused.
    fn budget(&self, wanted: u64, memory: Free) -> Result<u64> {
        if let Some(memory) = self.config.memory {
            return Ok(memory);
        }
        let machine = self.config.machine;
        if wanted + reserve(wanted) > machine {
            return Err(Error::invalid(format!(
                "`cache` asks for {} but this machine (or its control group) has {}: ask for at most {}",
                human(wanted),
                human(machine),
                human(most_kept(machine))
            )));
        }
        let free = memory.available.saturating_add(memory.arena);
        if wanted + reserve(wanted) > free {
            return Err(Error::invalid(format!(
                "`cache` asks for {} but of the {} of this machine (or its control group) only {} are free: ask for at \
                 most {}, or end what takes the rest",
                human(wanted),
                human(machine),
                human(memory.available),
                human(most_kept(free))
            )));
        }
        Ok(most_kept(machine.min(free)))
    }
}

/// How many bytes caches may keep of so many bytes of memory, beside the reserve.
fn most_kept(memory: u64) -> u64 {
    (memory / 8 * 7).min(memory.saturating_sub(reserve(0)))
}
