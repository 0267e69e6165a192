//! The pool of reader threads.
//!
//! Each thread takes one queued read at a time, so reads in flight never exceed the pool's size and a slot
//! in the arena is never outlived by a read that writes to it. Reads that somebody waits for go first, then
//! reads along plans, then what packers ask for, who get one turn in four. Plans say which reads are one request; queued
//! reads that no plan makes and that lie side by side in one object, up to a mebibyte, become one here. Threads start
//! when there is work and end after a while without any.
//!
//! A read that fails transiently is tried again after a pause that doubles up to two seconds and a half more, a number of
//! times: nobody below tries anything again. What was to be read together and failed is then read one by one, each with a
//! budget of its own. Whoever gives up waiting before hears the last cause.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use hotset_core::run::TOGETHER;
use hotset_core::tally::Traffic;
use hotset_core::{Error, Id};
use hotset_store::package::Package;
use hotset_store::{Catalog, ReadError, Store};

use crate::engine::Shared;
use crate::loader::LoadRead;
use crate::object::Fill;
use crate::packer::{Wanted, What};
use crate::press::Press;
use crate::segment::Target;
use crate::state::{Cause, SEVERAL, State};

/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(10);
/// The pause before the first repetition, and the longest one.
const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// One read, ready to be made without the lock.
pub(crate) struct Read {
    object: u32,
    id: Id,
    catalog: Arc<Catalog>,
    store: Arc<dyn Store>,
    target: Target,
}

/// What a thread does next.
pub(crate) enum Task {
    /// Reads a sample that somebody waits for or a plan serves.
    Sample(Read),
    /// Reads samples that lie side by side.
    Neighbours(Vec<Read>),
    /// Reads a package.
    Package(LoadRead),
    /// Reads for a packer.
    Pack(PackRead),
}

/// What goes into a package and is not at hand.
pub(crate) struct PackRead {
    job: u64,
    what: What,
    press: Arc<Press>,
    catalog: Arc<Catalog>,
    store: Arc<dyn Store>,
}

/// One read in so many is a packer's, while others wait too.
const SHARE: u64 = 4;

impl State {
    /// Takes the next read off the queues.
    fn next_task(&mut self) -> Option<Task> {
        self.turns += 1;
        if self.turns.is_multiple_of(SHARE)
            && let Some(read) = self.next_pack()
        {
            return Some(Task::Pack(read));
        }
        while let Some((ticket, key)) = self.urgent.pop_front().or_else(|| self.ahead.pop_front()) {
            if key == SEVERAL {
                match self.begin_load(ticket) {
                    Some(task) => return Some(task),
                    None => continue,
                }
            }
            // The object may be gone, or be read already from the other queue.
            if self.pending.get(&key).is_none_or(|pending| pending.ticket != ticket) {
                continue;
            }
            let Some(read) = self.begin_read(key) else { continue };
            return Some(task(self.neighbours(key, read)));
        }
        self.next_pack().map(Task::Pack)
    }

    /// Begins the read of objects that lie side by side; not all of those that were asked for may still wait.
    pub(crate) fn begin_neighbours(&mut self, keys: &[u32]) -> Option<Task> {
        let reads: Vec<Read> = keys.iter().filter_map(|&key| self.begin_read(key)).collect();
        (!reads.is_empty()).then(|| task(reads))
    }

    /// Begins the read of an object that waits for one.
    fn begin_read(&mut self, key: u32) -> Option<Read> {
        let object = &mut self.objects[key as usize];
        if object.fill != Fill::Queued {
            return None;
        }
        object.fill = Fill::Reading;
        let book = &self.datasets[object.dataset as usize];
        let size = book.catalog.size(object.id);
        let target = self.arena.target(object.block, size)?;
        let (catalog, store) = (Arc::clone(&book.catalog), Arc::clone(&book.store));
        Some(Read { object: key, id: object.id, catalog, store, target })
    }

    /// A read that was begun, and, if no plan makes it, those of its kind that wait for bytes right beside it, in their
    /// order.
    fn neighbours(&mut self, key: u32, read: Read) -> Vec<Read> {
        let (dataset, catalog) = (self.objects[key as usize].dataset, Arc::clone(&read.catalog));
        let unplanned = |pending: &crate::state::Pending| {
            pending.payer.cause == Cause::Unplanned && pending.load.is_none()
        };
        if self.objects[key as usize].alone || !self.pending.get(&key).is_some_and(unplanned) {
            return vec![read];
        }
        let mut reads = VecDeque::from([read]);
        for up in [true, false] {
            loop {
                let last = if up { reads.back() } else { reads.front() };
                let Some(last) = last.map(|read| read.id) else { break };
                let Some(next) = (if up { last.checked_add(1) } else { last.checked_sub(1) }) else { break };
                let first = reads.front().map_or(next, |read| read.id).min(next);
                let end = reads.back().map_or(next, |read| read.id).max(next);
                if catalog.gap_after(last.min(next)).is_none() || catalog.extent(first, end) > TOGETHER {
                    break;
                }
                let Some(object) = self.object(dataset, next) else { break };
                // One that failed together with others is read alone.
                if !self.pending.get(&object).is_some_and(unplanned) || self.objects[object as usize].alone {
                    break;
                }
                let Some(read) = self.begin_read(object) else { break };
                if up { reads.push_back(read) } else { reads.push_front(read) }
            }
        }
        reads.into()
    }

    fn next_pack(&mut self) -> Option<PackRead> {
        loop {
            let Wanted { job, what } = self.background.pop_front()?;
            let Some(book) = self.jobs.get(&job) else { continue };
            let Some(press) = book.press.clone() else { continue };
            let dataset = &self.datasets[book.dataset as usize];
            let (catalog, store) = (Arc::clone(&dataset.catalog), Arc::clone(&dataset.store));
            return Some(PackRead { job, what, press, catalog, store });
        }
    }

    /// Notes the end of a read, and wakes who waits for it.
    fn complete(&mut self, read: &Read, requests: u64, took: Duration, result: Result<u64, ReadError>) {
        let Some(pending) = self.pending.get(&read.object) else { return };
        let (payer, waiters) = (pending.payer, pending.waiters.len() as u64);
        if let Some(job) = self.jobs.get_mut(&payer.job) {
            if let Some(epoch) = payer.epoch {
                job.pace(epoch).read(1, took);
            }
            let (reads, bytes) = result.as_ref().map_or((0, 0), |&bytes| (1, bytes));
            let tally = job.run.tally_mut();
            match payer.cause {
                Cause::Planned => {
                    let requests = requests.saturating_sub(1);
                    tally.recovered(payer.epoch, Traffic { requests, ..Traffic::default() });
                }
                Cause::Extra => tally.recovered(payer.epoch, Traffic { requests, ..Traffic::default() }),
                Cause::Recovery => tally.recovered(payer.epoch, Traffic { reads, requests, bytes }),
                Cause::Unplanned => tally.read_unplanned(Traffic { reads, requests, bytes }),
            }
            // One that no reader waits for is read again when it is asked for.
            if result.is_err() && waiters > 0 {
                tally.failed(payer.epoch, waiters);
            }
        }
        let failed =
            result.err().map(|error| Error::from(error).of_sample(read.id.into(), read.catalog.key(read.id)));
        self.arrive(read.id, read.object, failed);
    }

    /// Counts requests for several samples that came to nothing.
    fn count_failed(&mut self, object: u32, requests: u64) {
        let Some(payer) = self.pending.get(&object).map(|pending| pending.payer) else { return };
        let Some(job) = self.jobs.get_mut(&payer.job) else { return };
        let traffic = |requests| Traffic { requests, ..Traffic::default() };
        match payer.cause {
            Cause::Unplanned => job.run.tally_mut().read_unplanned(traffic(requests)),
            _ => job.run.tally_mut().recovered(payer.epoch, traffic(requests.saturating_sub(1))),
        }
    }

    /// An object's bytes have come, or will not: wakes who waits for it.
    pub(crate) fn arrive(&mut self, id: Id, key: u32, failed: Option<Error>) {
        let Some(pending) = self.pending.remove(&key) else { return };
        let object = &mut self.objects[key as usize];
        object.fill = Fill::Ready;
        let (dataset, current) = (object.dataset, object.current);
        for waiter in pending.waiters {
            let Some(waiter) = self.waiters.get_mut(&waiter) else { continue };
            waiter.missing -= 1;
            if let Some(error) = &failed {
                waiter.failed.get_or_insert_with(|| error.clone());
            }
            if waiter.missing == 0 || waiter.failed.is_some() {
                waiter.signal.notify_one();
            }
        }
        if failed.is_some() && current {
            self.detach(dataset, id);
        } else {
            self.settle(key);
            self.unspill(key);
        }
    }

    /// Counts what no plan asked for of a packer's read; the rest was counted with the plan.
    fn complete_pack(&mut self, read: &PackRead, requests: u64, whole: bool) {
        let Some(job) = self.jobs.get_mut(&read.job) else { return };
        let epoch = job.begun.values().max().copied();
        let traffic = match read.what {
            What::Lost(id) if whole => Traffic { reads: 1, requests, bytes: read.catalog.size(id) },
            What::Lost(_) => Traffic { requests, ..Traffic::default() },
            _ => Traffic { requests: requests.saturating_sub(1), ..Traffic::default() },
        };
        job.run.tally_mut().recovered(epoch, traffic);
    }
}

/// One read, or several as one.
fn task(mut reads: Vec<Read>) -> Task {
    if reads.len() == 1 { Task::Sample(reads.remove(0)) } else { Task::Neighbours(reads) }
}

impl PackRead {
    /// Makes the read, hands over what it brought, and counts it.
    fn carry_out<'a>(&self, shared: &'a Arc<Shared>) -> MutexGuard<'a, State> {
        let (requests, whole) = match &self.what {
            What::Sample(id) | What::Lost(id) => self.sample(shared, *id),
            What::Package(package, ids) => {
                let (requests, missing) = self.package(shared, *package, ids);
                let mut state = shared.lock();
                let lost = missing.into_iter().map(|id| Wanted { job: self.job, what: What::Lost(id) });
                state.background.extend(lost);
                wake(shared, &mut state);
                state.complete_pack(self, requests, true);
                return state;
            }
        };
        let mut state = shared.lock();
        state.complete_pack(self, requests, whole);
        state
    }

    fn sample(&self, shared: &Shared, id: Id) -> (u64, bool) {
        let mut bytes = vec![0; usize::try_from(self.catalog.size(id)).unwrap_or_default()];
        let attempt = || self.catalog.with_location(id, |location| self.store.read(location, &mut bytes));
        let (requests, result) = repeat(shared, id, &[], attempt);
        let whole = result.is_ok();
        self.press.read(id, result.map(|()| bytes).map_err(|error| error.to_string()));
        (requests, whole)
    }

    /// Reads a worn package; those that it did not bring.
    fn package(&self, shared: &Shared, package: u32, ids: &[Id]) -> (u64, Vec<Id>) {
        let mut bytes = Vec::new();
        let (requests, result) = repeat(shared, package, &[], || self.press.shelf.read(package, &mut bytes));
        let parsed = result.ok().and_then(|()| Package::parse(&bytes, &self.press.identity, package).ok());
        let mut missing = Vec::new();
        for &id in ids {
            match parsed.as_ref().and_then(|package| package.sample(id)) {
                Some(Ok(sample)) if sample.len() as u64 == self.catalog.size(id) => {
                    self.press.read(id, Ok(sample.to_vec()));
                }
                _ => missing.push(id),
            }
        }
        self.press.read_whole(package);
        (requests, missing)
    }
}

/// Wakes or starts as many threads as there are queued reads, within the limit. Called with the lock held,
/// after anything that may have queued reads.
pub(crate) fn wake(shared: &Arc<Shared>, state: &mut State) {
    let queued = state.urgent.len() + state.ahead.len() + state.background.len();
    for _ in 0..queued.min(state.idle) {
        shared.work.notify_one();
    }
    let wanted =
        queued.saturating_sub(state.idle).min(state.config.concurrency.saturating_sub(state.readers));
    for _ in 0..wanted {
        let own = Arc::clone(shared);
        let thread = std::thread::Builder::new().name("hotset-read".into()).stack_size(512 << 10);
        match thread.spawn(move || run(&own)) {
            Ok(_) => state.readers += 1,
            Err(error) => {
                tracing::warn!(%error, readers = state.readers, "cannot start another reader thread");
                break;
            }
        }
    }
}

fn run(shared: &Arc<Shared>) {
    let mut state = shared.lock();
    loop {
        if state.stopping {
            break;
        }
        if let Some(task) = state.next_task() {
            state.reading += 1;
            drop(state);
            state = carry_out(shared, task);
            state.reading -= 1;
            continue;
        }
        state.idle += 1;
        let (back, waited) =
            shared.work.wait_timeout(state, IDLE).unwrap_or_else(std::sync::PoisonError::into_inner);
        state = back;
        state.idle -= 1;
        let empty = state.urgent.is_empty() && state.ahead.is_empty() && state.background.is_empty();
        if waited.timed_out() && empty {
            break;
        }
    }
    state.readers -= 1;
}

/// Makes one read and notes its end.
fn carry_out(shared: &Arc<Shared>, task: Task) -> MutexGuard<'_, State> {
    let began = Instant::now();
    match task {
        Task::Sample(mut read) => {
            let Read { object, id, catalog, store, target } = &mut read;
            let attempt = || catalog.with_location(*id, |location| store.read(location, target.bytes()));
            let (requests, result) = repeat(shared, *id, &[*object], attempt);
            let took = began.elapsed();
            let mut state = shared.lock();
            let bytes = read.catalog.size(read.id);
            state.complete(&read, requests, took, result.map(|()| bytes));
            state
        }
        Task::Neighbours(mut reads) => {
            let (requests, result) = together(shared, &mut reads);
            let took = began.elapsed();
            let mut state = shared.lock();
            let Ok(extent) = result else {
                // One of them is to blame: each is queued alone, and told of its own failure.
                if let Some(first) = reads.first() {
                    state.count_failed(first.object, requests);
                }
                for read in &reads {
                    let payer = state.pending.get(&read.object).map(|pending| pending.payer.cause);
                    let cause = if payer == Some(Cause::Planned) { Some(Cause::Extra) } else { payer };
                    cause.into_iter().for_each(|cause| state.read_alone(read.object, cause));
                }
                wake(shared, &mut state);
                return state;
            };
            // What lies between them was read too, by the first.
            let sizes: u64 = reads.iter().map(|read| read.catalog.size(read.id)).sum();
            let (mut requests, mut between) = (requests, extent.saturating_sub(sizes));
            for read in &reads {
                let bytes = read.catalog.size(read.id) + std::mem::take(&mut between);
                let took = took / reads.len() as u32;
                state.complete(read, std::mem::take(&mut requests), took, Ok(bytes));
            }
            state
        }
        Task::Package(mut read) => {
            let number = read.number();
            let (requests, result) = repeat(shared, number, &read.objects(), || read.read());
            let loaded = result.unwrap_or_else(|error| read.failed(&error));
            let took = began.elapsed();
            let mut state = shared.lock();
            state.complete_load(&read, requests, took, loaded);
            // What it did not bring is queued.
            wake(shared, &mut state);
            state
        }
        Task::Pack(read) => read.carry_out(shared),
    }
}

/// Reads samples that lie side by side in one request; how many bytes it brought.
fn together(shared: &Shared, reads: &mut [Read]) -> (u64, Result<u64, ReadError>) {
    let [first, .., last] = reads else { return (0, Ok(0)) };
    let (catalog, store) = (Arc::clone(&first.catalog), Arc::clone(&first.store));
    let ends = (first.id, last.id);
    let objects: Vec<u32> = reads.iter().map(|read| read.object).collect();
    repeat(shared, ends.0, &objects, || {
        let targets = reads.iter_mut().map(|read| (read.id, read.target.bytes()));
        catalog.read_together(&*store, ends, targets)
    })
}

/// Makes one read, with repetitions; how many requests it took. Whoever waits for `objects` hears why.
fn repeat<T>(
    shared: &Shared,
    number: u32,
    objects: &[u32],
    mut attempt: impl FnMut() -> Result<T, ReadError>,
) -> (u64, Result<T, ReadError>) {
    let mut pause = PAUSE;
    let mut requests = 0;
    loop {
        requests += 1;
        match attempt() {
            Err(error) if error.retriable() && requests <= u64::from(shared.retries) => {
                tracing::debug!(number, requests, %error, "a read failed and is tried again");
                let mut state = shared.lock();
                for object in objects {
                    if let Some(pending) = state.pending.get_mut(object) {
                        pending.cause = Some(error.to_string());
                    }
                }
            }
            done => return (requests, done),
        }
        if shared.stopping.load(Ordering::Relaxed) {
            return (requests, Err(ReadError::Transient("the server is stopping".into())));
        }
        // Longer by up to a half, by id and anew for each attempt, so that reads that failed together do not return
        // together.
        let jitter = number.wrapping_add(requests as u32).wrapping_mul(0x9e37_79b9) >> 24;
        std::thread::sleep(pause + pause / 2 * jitter / 256);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
