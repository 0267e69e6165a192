//! The engine's public face: sessions, datasets, batches, reports.
//!
//! One lock guards all bookkeeping. It is held for one batch's worth of it and never across I/O; making a
//! plan or a job, listing and reading happen outside. Readers that wait sleep on a signal of their own and
//! look up twice a second whether their client still lives.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hotset_core::{Error, Result};
use hotset_store::{Catalog, Opened};

use crate::config::Config;
use crate::gather::{Gathered, Purpose, Wanted};
use crate::planning::look_ahead;
use crate::reads;
use crate::state::{Session, State};
use crate::waiter::{Grant, Item, Waiter};

/// How often a waiting reader looks whether its client still lives.
pub(crate) const LOOK_UP: Duration = Duration::from_millis(500);

/// What all of an engine's threads see.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// There are reads to make.
    pub(crate) work: Condvar,
    /// Memory was freed.
    pub(crate) room: Condvar,
    /// A plan was made, a rank has come, or something was reported.
    pub(crate) planned: Condvar,
    pub(crate) stopping: AtomicBool,
    pub(crate) retries: u32,
    /// The bytes of memory that can still be had; looks into files.
    pub(crate) available: fn() -> u64,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One client's name on an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub(crate) u64);

/// A cache, its jobs and its readers. See the module's head.
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
                room: Condvar::new(),
                planned: Condvar::new(),
                stopping: AtomicBool::new(false),
                retries,
                available,
            }),
        }
    }

    /// Registers a client.
    pub fn attach(&self) -> SessionId {
        let mut state = self.shared.lock();
        let serial = state.next_serial();
        state.sessions.insert(serial, Session::default());
        SessionId(serial)
    }

    /// Forgets a client: its leases end, and its jobs begin to linger if it was their last.
    pub fn detach(&self, session: SessionId, now: Instant) {
        let mut state = self.shared.lock();
        let leases: Vec<u64> =
            state.sessions.get(&session.0).map(|s| s.leases.iter().copied().collect()).unwrap_or_default();
        state.release(session.0, &leases);
        state.sessions.remove(&session.0);
        for job in state.jobs.values_mut() {
            if job.sessions.remove(&session.0) && job.sessions.is_empty() {
                job.left = Some(now);
            }
        }
        for (_, dataset) in &mut state.datasets {
            dataset.sessions.remove(&session.0);
        }
        state.drop_datasets();
        self.shared.room.notify_all();
    }

    /// Makes a dataset known; its name here.
    pub fn open_dataset(&self, session: SessionId, opened: &Opened) -> String {
        let mut state = self.shared.lock();
        state.add_dataset(opened.identity.clone(), opened, session.0);
        opened.identity.clone()
    }

    /// Joins a dataset that is open here.
    pub fn join_dataset(&self, session: SessionId, dataset: &str) -> Option<Arc<Catalog>> {
        let mut state = self.shared.lock();
        let key = state.dataset(dataset).ok()?;
        let book = &mut state.datasets[key as usize];
        book.sessions.insert(session.0);
        Some(Arc::clone(&book.catalog))
    }

    /// The name of a job's dataset.
    pub fn dataset_of(&self, job: &str) -> Option<String> {
        let state = self.shared.lock();
        let serial = state.job(job).ok()?;
        Some(state.datasets[state.jobs[&serial].dataset as usize].name.clone())
    }

    /// Where an opened dataset lies.
    pub fn place(&self, dataset: &str) -> Result<String> {
        let state = self.shared.lock();
        Ok(state.datasets[state.dataset(dataset)? as usize].place.clone())
    }

    /// The catalog of an opened dataset.
    pub fn catalog(&self, dataset: &str) -> Result<Arc<Catalog>> {
        let state = self.shared.lock();
        let key = state.dataset(dataset)?;
        Ok(Arc::clone(&state.datasets[key as usize].catalog))
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
        self.get_batch_for(session, job, rank, (indices, Purpose::Served), wait, alive)
    }

    /// The same for another purpose than to be served as the indices say.
    pub fn get_batch_for(
        &self,
        session: SessionId,
        job: &str,
        rank: u32,
        (indices, purpose): (&[u64], Purpose),
        wait: Duration,
        alive: &mut dyn FnMut() -> bool,
    ) -> Result<Grant> {
        let began = Instant::now();
        let mut state = self.shared.lock();
        let wanted = state.wanted(job, rank, indices, purpose)?;
        while state.catch_up(&wanted)? {
            drop(state);
            std::thread::yield_now();
            state = self.shared.lock();
        }
        let (mut state, items, missing) = self.hold(state, session, &wanted, began, wait, alive)?;
        let state = if missing > 0 {
            reads::wake(&self.shared, &mut state);
            self.wait_for(state, wanted.job, &items, missing, began, wait, alive)?
        } else {
            state
        };
        self.finish(state, session, &wanted, &items, missing, began)
    }

    /// Holds a request's objects; waits for memory only while this reader's own spilled batch is leased.
    fn hold<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        session: SessionId,
        wanted: &Wanted,
        began: Instant,
        wait: Duration,
        alive: &mut dyn FnMut() -> bool,
    ) -> Result<(MutexGuard<'a, State>, Vec<Item>, usize)> {
        loop {
            match state.gather(session.0, wanted)? {
                Gathered::Held(items, missing) => return Ok((state, items, missing)),
                Gathered::NoRoom => {}
            }
            if state.cornered(session.0, wanted) {
                return Err(Error::unavailable(format!(
                    "no memory for a batch of {} samples, and waiting would bring none: this reader keeps views of {} \
                     earlier batches; drop them, or raise `cache`",
                    wanted.samples.len(),
                    state.sessions.get(&session.0).map_or(0, |book| book.leases.len()),
                )));
            }
            if began.elapsed() >= wait {
                return Err(Error::unavailable(format!(
                    "no memory for a batch of {} samples after {:.0} s: this reader still keeps views of an \
                     earlier batch; drop them, or raise `cache`",
                    wanted.samples.len(),
                    wait.as_secs_f64()
                )));
            }
            if !alive() {
                return Err(gone());
            }
            state.cramped.insert(session.0);
            let (back, _) =
                self.shared.room.wait_timeout(state, LOOK_UP).unwrap_or_else(PoisonError::into_inner);
            state = back;
            state.cramped.remove(&session.0);
            // The epoch may have changed meanwhile.
            while state.catch_up(wanted)? {}
        }
    }

    /// Waits until every held object has arrived.
    #[allow(clippy::too_many_arguments, reason = "one wait's whole context, used once")]
    fn wait_for<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        job: u64,
        items: &[Item],
        missing: usize,
        began: Instant,
        wait: Duration,
        alive: &mut dyn FnMut() -> bool,
    ) -> Result<MutexGuard<'a, State>> {
        let waiter = state.next_serial();
        let signal = Arc::new(Condvar::new());
        for item in items {
            if let Some(pending) = state.pending.get_mut(&item.object) {
                pending.waiters.push(waiter);
            }
        }
        state.waiters.insert(waiter, Waiter { missing, failed: None, signal: Arc::clone(&signal) });
        let outcome = loop {
            match state.waiters.get(&waiter) {
                Some(Waiter { failed: Some(error), .. }) => break Err(error.clone()),
                Some(Waiter { missing: 0, .. }) => break Ok(()),
                Some(_) if state.stopping => break Err(Error::unavailable("the server is stopping")),
                Some(_) => {}
                None => break Err(Error::internal("a waiting batch was forgotten")),
            }
            if began.elapsed() >= wait {
                break Err(state.overdue(items, wait));
            }
            if !alive() {
                break Err(gone());
            }
            let tick = LOOK_UP.min(wait.saturating_sub(began.elapsed()));
            let (back, _) = signal.wait_timeout(state, tick).unwrap_or_else(PoisonError::into_inner);
            state = back;
            if state.give_up_loads() {
                reads::wake(&self.shared, &mut state);
            }
        };
        state.waiters.remove(&waiter);
        match outcome {
            Ok(()) => Ok(state),
            Err(error) => {
                state.give_back(job, items);
                Err(error)
            }
        }
    }

    fn finish<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        session: SessionId,
        wanted: &Wanted,
        items: &[Item],
        late: usize,
        began: Instant,
    ) -> Result<Grant> {
        let grant = state.grant(session.0, wanted, items, late)?;
        if let Some(job) = state.jobs.get_mut(&wanted.job) {
            let (epoch, now) = (items.first().and_then(Item::epoch), Instant::now());
            let waited = now.saturating_duration_since(began);
            if wanted.reevaluation.is_none() {
                job.run.tally_mut().waited(epoch, wanted.rank, waited.as_secs_f64());
            }
            if let Some(epoch) = epoch {
                let waited = if late > 0 { waited } else { Duration::ZERO };
                job.pace(epoch).served(session.0, items.len(), waited, now);
            }
        }
        pump(&self.shared, state, wanted.job);
        Ok(grant)
    }

    /// Ends leases of a session.
    pub fn release(&self, session: SessionId, leases: &[u64]) {
        let mut state = self.shared.lock();
        state.release(session.0, leases);
        if !state.cramped.is_empty() {
            self.shared.room.notify_all();
        }
        let jobs: Vec<u64> = state.jobs.keys().copied().collect();
        for job in jobs {
            state.pump(job);
        }
        reads::wake(&self.shared, &mut state);
    }

    /// Ends all waiting; readers that wait get an error, threads end by themselves.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        let mut state = self.shared.lock();
        state.stopping = true;
        for waiter in state.waiters.values() {
            waiter.signal.notify_all();
        }
        self.shared.work.notify_all();
        self.shared.room.notify_all();
        self.shared.planned.notify_all();
    }
}

/// Reads on along a job's plans, a slice a hold of the lock.
pub(crate) fn pump<'a>(shared: &'a Arc<Shared>, mut state: MutexGuard<'a, State>, job: u64) {
    loop {
        let more = state.pump(job);
        reads::wake(shared, &mut state);
        if !more {
            look_ahead(shared, &mut state, job);
            return;
        }
        drop(state);
        state = shared.lock();
    }
}

impl State {
    /// What to say of a batch that did not arrive in time.
    fn overdue(&self, items: &[Item], wait: Duration) -> Error {
        let late = items.iter().find(|item| self.pending.contains_key(&item.object));
        let own = late.and_then(|item| self.pending.get(&item.object)?.cause.as_deref());
        // A read that was never begun waits for others, which may know why.
        let cause = own.or_else(|| self.pending.values().find_map(|pending| pending.cause.as_deref()));
        let error = Error::unavailable(format!(
            "the store has not delivered it within {:.0} s{}; look at the storage, or raise `wait`",
            wait.as_secs_f64(),
            cause.map(|cause| format!(" (last: {cause})")).unwrap_or_default()
        ));
        match late.and_then(|item| self.objects.get(item.object as usize)) {
            Some(object) => {
                let key = self.datasets[object.dataset as usize].catalog.key(object.id);
                error.of_sample(object.id.into(), key)
            }
            None => error,
        }
    }
}

fn gone() -> Error {
    Error::unavailable("the client went away while it waited")
}

impl Grant {
    /// The descriptors of the segments to map first, in their order.
    pub fn descriptors(&self) -> impl Iterator<Item = std::os::fd::BorrowedFd<'_>> {
        self.segments.iter().map(|segment| segment.descriptor.as_fd())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}
