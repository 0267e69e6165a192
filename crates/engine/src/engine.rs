//! The engine's public face: sessions, datasets, batches, reports.
//!
//! One lock guards all bookkeeping. It is held for one batch's worth of it and never across I/O; making a
//! plan or a job, listing and reading happen outside. Readers that wait sleep on a signal of their own and
//! look up twice a second whether their client still lives.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hotset_core::counters::WaitReason;
use hotset_core::{Error, Result};
use hotset_store::{Catalog, Opened};

use crate::config::Config;
use crate::fetching::{self, Cause, ContentPeer};
use crate::planning::most_threads;
use crate::read_on::ReadOn;
use crate::serving::{Asked, Batch, CaughtUp, Gathered, Purpose, Slots};
use crate::sessions::{Ends, Grant, Item, Progress};
use crate::state::State;
use crate::sync::{self, AtomicBool, Condvar, Mutex, MutexGuard};

/// How often a waiting reader looks whether its client still lives.
pub(crate) const LOOK_UP: Duration = Duration::from_millis(500);

/// What all of an engine's threads see.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// There are reads to make.
    pub(crate) work: Condvar,
    /// There is something to ask other nodes for.
    pub(crate) asks: Condvar,
    /// Memory was freed.
    pub(crate) room: Condvar,
    /// A plan was made, a rank has come, or something was reported.
    pub(crate) planned: Condvar,
    pub(crate) stopping: AtomicBool,
    pub(crate) retries: u32,
    /// The most threads that make plans which nobody waits for yet.
    pub(crate) planners: usize,
    /// Asked before storage is, once there is one.
    pub(crate) peer: OnceLock<Arc<dyn ContentPeer>>,
    /// The bytes of memory that can still be had; looks into files.
    pub(crate) available: fn() -> u64,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        let state = sync::lock(&self.state);
        #[cfg(feature = "shuttle")]
        state.check();
        state
    }

    /// Lets what waits for the lock have it first, between two slices of work.
    pub(crate) fn give_way<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let state = sync::give_way(state, &self.state);
        #[cfg(feature = "shuttle")]
        state.check();
        state
    }
}

/// One client's name on an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub(crate) u64);

/// A cache, its jobs and its readers.
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

impl Engine {
    /// An engine without jobs; memory and threads come when they are needed.
    pub fn new(config: Config) -> Self {
        let (retries, available) = (config.retries, config.available);
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(State::new(config)),
                work: Condvar::new(),
                asks: Condvar::new(),
                room: Condvar::new(),
                planned: Condvar::new(),
                stopping: AtomicBool::new(false),
                retries,
                planners: most_threads(),
                peer: OnceLock::new(),
                available,
            }),
        }
    }

    /// Asks `peer` by hash before storage is read, from now on.
    pub fn share(&self, peer: Arc<dyn ContentPeer>) {
        // There is one for an engine's life: a second is not asked.
        let _ = self.shared.peer.set(peer);
    }

    /// Registers a client that tells the end of each lease.
    pub fn attach(&self) -> SessionId {
        self.attach_with(None)
    }

    /// Registers a client that tells the end of a lease with its next request, where it can be seen before.
    pub fn attach_with(&self, ends: Option<Arc<dyn Ends>>) -> SessionId {
        let mut state = self.shared.lock();
        let client = state.next_serial();
        state.rooms.sessions_mut().attach(client, ends);
        SessionId(client)
    }

    /// Forgets a client: its leases end, and its jobs begin to linger if it was their last.
    pub fn detach(&self, session: SessionId, now: Instant) {
        let mut state = self.shared.lock();
        let leased = state.rooms.sessions_mut().detach(session.0);
        state.rooms.end_leases(leased);
        state.jobs.leave(session.0, now);
        state.datasets.leave(session.0);
        state.forget_datasets();
        self.shared.room.notify_all();
    }

    /// Makes a dataset known; its name here.
    pub fn open_dataset(&self, session: SessionId, opened: &Opened) -> String {
        self.shared.lock().datasets.open(opened, session.0);
        opened.identity.clone()
    }

    /// Joins a dataset that is open here.
    pub fn join_dataset(&self, session: SessionId, dataset: &str) -> Option<Arc<Catalog>> {
        let joined = self.shared.lock().datasets.join(dataset, session.0)?;
        Some(Arc::clone(&joined.catalog))
    }

    /// The name of a job's dataset.
    pub fn dataset_of(&self, job: &str) -> Option<String> {
        Some(self.shared.lock().jobs.named(job).ok()?.dataset.name.clone())
    }

    /// Where an opened dataset lies.
    pub fn place(&self, dataset: &str) -> Result<String> {
        Ok(self.shared.lock().datasets.named(dataset)?.place.clone())
    }

    /// The catalog of an opened dataset.
    pub fn catalog(&self, dataset: &str) -> Result<Arc<Catalog>> {
        Ok(Arc::clone(&self.shared.lock().datasets.named(dataset)?.catalog))
    }

    /// The samples of a batch, leased together. Waits until all have arrived, but no longer than `wait`,
    /// nor for a client that `alive` says is gone.
    pub fn get_batch(
        &self,
        session: SessionId,
        job: &str,
        rank: u32,
        indices: &[u64],
        wait: Duration,
        alive: &mut dyn FnMut() -> bool,
    ) -> Result<Grant> {
        let asked = Asked { indices, purpose: Purpose::Served, since: None };
        self.get_batch_for(session, job, rank, asked, wait, alive)
    }

    /// The same for another purpose than to be served as the indices say, or with the time since the last one.
    pub fn get_batch_for(
        &self,
        session: SessionId,
        job: &str,
        rank: u32,
        asked: Asked<'_>,
        wait: Duration,
        alive: &mut dyn FnMut() -> bool,
    ) -> Result<Grant> {
        self.grant_batch(session, job, rank, asked, wait, alive).map(|(grant, _)| grant)
    }

    /// The same, before what comes after it in the plan is read: that is done when the second value is dropped, so that the
    /// reader need not wait for it.
    pub fn grant_batch(
        &self,
        session: SessionId,
        job: &str,
        rank: u32,
        asked: Asked<'_>,
        wait: Duration,
        alive: &mut dyn FnMut() -> bool,
    ) -> Result<(Grant, ReadOn)> {
        let began = Instant::now();
        let mut state = self.shared.lock();
        let named = state.jobs.named(job)?;
        let job = named.serial;
        let batch = Batch::new(session.0, rank, asked, named.dataset.samples())?;
        let (at, slots) = loop {
            let State { jobs, rooms, .. } = &mut *state;
            if let CaughtUp::To(at, slots) = jobs.still(job)?.catch_up(rooms, &batch)? {
                break (at, slots);
            }
            state = self.shared.give_way(state);
        };
        // While a probe is under way the lock may be let go of before the batch is gathered.
        let slots =
            Some(slots).filter(|_| state.jobs.get(job).is_some_and(|job| job.probing.plan().is_none()));
        let mut wait = Wait::new(began, wait, alive);
        let state = self.measure(state, job, (&batch, at), &mut wait)?;
        let (state, items, missing) = self.collect(state, job, (&batch, slots), &mut wait)?;
        self.finish(state, job, &batch, &items, missing, &wait)
    }

    /// Holds a request's objects and waits until they have arrived; how many had not.
    fn collect<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        job: u64,
        (batch, mut slots): (&Batch, Option<Slots>),
        wait: &mut Wait<'_>,
    ) -> Result<(MutexGuard<'a, State>, Vec<Item>, usize)> {
        loop {
            let (held, items, missing) = self.hold(state, job, (batch, slots.take()), wait)?;
            state = held;
            if missing == 0 {
                return Ok((state, items, missing));
            }
            state.reasons(&items).for_each(|reason| wait.note(reason));
            fetching::wake(&self.shared, &mut state);
            let objects: Vec<u32> = items.iter().map(|item| item.object).collect();
            let (back, outcome) = self.await_objects(state, &objects, wait);
            state = back;
            let error = match outcome {
                Ok(true) => return Ok((state, items, missing)),
                Ok(false) => state.overdue(job, &items, wait.limit),
                Err(error) => error,
            };
            state.give_back(job, &items);
            // What a probe reads once more may not come, and be there all the same.
            if wait.is_over() || !items.iter().any(|item| item.apart) {
                return Err(error);
            }
            state.end_probe(job);
        }
    }

    /// Holds a request's objects; waits for memory only while this reader's own spilled batch is leased.
    fn hold<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        job: u64,
        (batch, mut slots): (&Batch, Option<Slots>),
        wait: &mut Wait<'_>,
    ) -> Result<(MutexGuard<'a, State>, Vec<Item>, usize)> {
        loop {
            let State { jobs, rooms, .. } = &mut *state;
            match jobs.still(job)?.gather(rooms, batch, slots.take())? {
                Gathered::Held(items, missing) => return Ok((state, items, missing)),
                Gathered::NoRoom => {}
            }
            if state.waits_in_vain(job, batch) {
                return Err(Error::unavailable(format!(
                    "no memory for a batch of {} samples, and waiting would bring none: this reader keeps views of {} \
                     earlier batches; drop them, or raise `cache`",
                    batch.samples.len(),
                    state.rooms.sessions().leases_of(batch.client),
                )));
            }
            if wait.is_over() {
                return Err(Error::unavailable(format!(
                    "no memory for a batch of {} samples after {:.0} s: this reader still keeps views of an \
                     earlier batch; drop them, or raise `cache`",
                    batch.samples.len(),
                    wait.limit.as_secs_f64()
                )));
            }
            wait.check_client()?;
            wait.note(WaitReason::Memory);
            state.rooms.sessions_mut().set_waiting_for_memory(batch.client, Some(job));
            let (back, _) = sync::wait(&self.shared.room, state, LOOK_UP);
            state = back;
            state.rooms.sessions_mut().set_waiting_for_memory(batch.client, None);
            // The epoch may have changed meanwhile.
            let State { jobs, rooms, .. } = &mut *state;
            while matches!(jobs.still(job)?.catch_up(rooms, batch)?, CaughtUp::More) {}
        }
    }

    /// Waits until all of these objects have arrived; false if the time is over before.
    pub(crate) fn await_objects<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        objects: &[u32],
        wait: &mut Wait<'_>,
    ) -> (MutexGuard<'a, State>, Result<bool>) {
        let waiter = state.next_serial();
        let missing = objects.iter().filter(|&&object| !state.rooms.residency().get(object).is_ready());
        let missing = missing.count();
        let signal = state.rooms.sessions_mut().wait(waiter, missing);
        for &object in objects {
            state.rooms.fetching_mut().await_object(object, waiter);
        }
        let outcome = loop {
            match state.rooms.sessions().progress(waiter) {
                Err(error) | Ok(Progress::Failed(error)) => break Err(error),
                Ok(Progress::Whole) => break Ok(true),
                Ok(Progress::Missing) if state.is_stopping() => {
                    break Err(Error::unavailable("the server is stopping"));
                }
                Ok(Progress::Missing) => {}
            }
            if wait.is_over() {
                break Ok(false);
            }
            if let Err(gone) = wait.check_client() {
                break Err(gone);
            }
            let (back, _) = sync::wait(&signal, state, wait.tick());
            state = back;
            match state.stop_waiting() {
                Ok(true) => fetching::wake(&self.shared, &mut state),
                Ok(false) => {}
                Err(error) => break Err(error),
            }
        };
        state.rooms.sessions_mut().end_wait(waiter);
        (state, outcome)
    }

    fn finish<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        serial: u64,
        batch: &Batch,
        items: &[Item],
        late: usize,
        wait: &Wait<'_>,
    ) -> Result<(Grant, ReadOn)> {
        let lease = state.next_serial();
        let State { jobs, rooms, .. } = &mut *state;
        let granted = jobs.still(serial).and_then(|job| job.grant(rooms, lease, batch, items, late));
        if granted.is_err() {
            state.give_back(serial, items);
        }
        let grant = granted?;
        let job = state.jobs.still(serial)?;
        let (epoch, now) = (items.first().and_then(Item::epoch), Instant::now());
        let waited = now.saturating_duration_since(wait.began);
        if batch.reevaluation.is_none() {
            job.run.tally_mut().waited(epoch, batch.rank, waited.as_secs_f64());
            wait.reasons.iter().for_each(|&reason| job.run.tally_mut().waited_for(epoch, reason));
        }
        if let Some(epoch) = epoch {
            let bytes = wait.reasons.iter().any(|&reason| reason != WaitReason::Memory);
            let waited = if bytes { waited } else { Duration::ZERO };
            job.notices.pacing.served(epoch, batch.client, items.len(), waited, now);
            state.consider_probe(serial);
        }
        state.jobs.still(serial)?.window.set_behind(true);
        Ok((grant, ReadOn { shared: Arc::clone(&self.shared), job: serial }))
    }

    /// Ends all waiting; readers that wait get an error, threads end by themselves.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.shared.lock().stop();
        self.shared.work.notify_all();
        self.shared.asks.notify_all();
        self.shared.room.notify_all();
        self.shared.planned.notify_all();
    }
}

/// How long a reader waits, and for what.
pub(crate) struct Wait<'a> {
    began: Instant,
    limit: Duration,
    alive: &'a mut dyn FnMut() -> bool,
    reasons: BTreeSet<WaitReason>,
}

impl<'a> Wait<'a> {
    pub(crate) fn new(began: Instant, limit: Duration, alive: &'a mut dyn FnMut() -> bool) -> Self {
        Self { began, limit, alive, reasons: BTreeSet::new() }
    }
}

impl Wait<'_> {
    /// The same for half of the time.
    pub(crate) fn half(&mut self) -> Wait<'_> {
        Wait { began: self.began, limit: self.limit / 2, alive: &mut *self.alive, reasons: BTreeSet::new() }
    }

    /// It waits for this, too.
    pub(crate) fn note(&mut self, reason: WaitReason) {
        self.reasons.insert(reason);
    }

    fn is_over(&self) -> bool {
        self.began.elapsed() >= self.limit
    }

    /// How long to sleep before looking up.
    fn tick(&self) -> Duration {
        LOOK_UP.min(self.limit.saturating_sub(self.began.elapsed()))
    }

    fn check_client(&mut self) -> Result<()> {
        let gone = || Error::unavailable("the client went away while it waited");
        if (self.alive)() { Ok(()) } else { Err(gone()) }
    }
}

impl State {
    /// Undoes a gathering. The objects of a job that was closed meanwhile are let go of.
    pub(crate) fn give_back(&mut self, job: u64, items: &[Item]) {
        match self.jobs.get_mut(job) {
            Some(job) => job.give_back(&mut self.rooms, items),
            None => items.iter().for_each(|item| self.rooms.let_go(item)),
        }
    }

    /// What a request that holds these waits for.
    fn reasons(&self, items: &[Item]) -> impl Iterator<Item = WaitReason> {
        let missing = items.iter().filter(|item| !self.rooms.residency().get(item.object).is_ready());
        let fetching = self.rooms.fetching();
        missing.map(|item| match fetching.is_asked(item.object) {
            true => WaitReason::Node,
            false => WaitReason::Storage,
        })
    }

    /// Reads the samples of packages alone that readers have waited for longer than `patience`, and what another job has
    /// not read for too long. True if there were any.
    fn stop_waiting(&mut self) -> Result<bool> {
        let overdue = self.rooms.fetching_mut().take_overdue(self.config.patience);
        for (payer, package, objects) in &overdue {
            if let Some(job) = self.jobs.get_mut(payer.job) {
                tracing::warn!(job = job.name(), package, "a package is overdue");
                job.run.tally_mut().overdue(payer.epoch.unwrap_or_default());
            }
            objects.iter().try_for_each(|&object| self.rooms.read_alone(object, Cause::Recovery))?;
        }
        let slow = self.rooms.fetching_mut().unfollow_slow();
        Ok(slow || !overdue.is_empty())
    }

    /// What to say of a batch that did not arrive in time.
    fn overdue(&self, job: u64, items: &[Item], wait: Duration) -> Error {
        let fetching = self.rooms.fetching();
        let late = items.iter().find(|item| fetching.is_pending(item.object));
        let cause = fetching.last_failure(late.map(|item| item.object));
        let error = Error::unavailable(format!(
            "the store has not delivered it within {:.0} s{}; look at the storage, or raise `wait`",
            wait.as_secs_f64(),
            cause.map(|cause| format!(" (last: {cause})")).unwrap_or_default()
        ));
        match late.zip(self.jobs.get(job)) {
            Some((item, job)) => error.of_sample(item.id.into(), job.dataset.catalog.key(item.id)),
            None => error,
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}
