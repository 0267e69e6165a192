//! The pool of reader threads.
//!
//! Each thread takes one queued read at a time, so reads in flight never exceed the pool's size and a slot
//! in the arena is never outlived by a read that writes to it. Reads that somebody waits for go first, then
//! reads along plans. Threads start when there is work and end after a while without any. A read that fails
//! in passing is tried again after a pause that doubles up to two seconds, a number of times: nobody below tries
//! anything again, so this is the one budget there is. Whoever gives up waiting before hears the last cause.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hotset_core::{Error, Id};
use hotset_store::{Catalog, ReadError, Store};

use crate::engine::Shared;
use crate::object::Fill;
use crate::segment::Target;
use crate::state::State;

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

impl State {
    /// Takes the next read off the queues.
    fn next_read(&mut self) -> Option<Read> {
        loop {
            let (ticket, key) = self.urgent.pop_front().or_else(|| self.ahead.pop_front())?;
            // The object may be gone, or be read already from the other queue.
            if self.pending.get(&key).is_none_or(|pending| pending.ticket != ticket) {
                continue;
            }
            let object = &mut self.objects[key as usize];
            if object.fill != Fill::Queued {
                continue;
            }
            object.fill = Fill::Reading;
            let book = &self.datasets[object.dataset as usize];
            let size = book.catalog.size(object.id);
            let Some(target) = self.arena.target(object.block, size) else { continue };
            let (catalog, store) = (Arc::clone(&book.catalog), Arc::clone(&book.store));
            return Some(Read { object: key, id: object.id, catalog, store, target });
        }
    }

    /// Notes the end of a read, and wakes who waits for it.
    fn complete(&mut self, read: &Read, requests: u64, took: Duration, result: Result<(), ReadError>) {
        let key = read.object;
        let Some(pending) = self.pending.remove(&key) else { return };
        let object = &mut self.objects[key as usize];
        object.fill = Fill::Ready;
        let (dataset, current) = (object.dataset, object.current);
        if let Some(job) = self.jobs.get_mut(&pending.payer.job) {
            if let Some(epoch) = pending.payer.epoch {
                job.pace(epoch).read(1, took);
            }
            let counters = job.counters(pending.payer.epoch);
            counters.storage_requests += requests;
            match &result {
                Ok(()) => {
                    counters.storage_reads += 1;
                    counters.other_reads += u64::from(pending.payer.other);
                    counters.storage_bytes += read.catalog.size(read.id);
                }
                Err(_) => counters.failed += 1,
            }
        }
        let failed =
            result.err().map(|error| Error::from(error).of_sample(read.id.into(), read.catalog.key(read.id)));
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
            self.detach(dataset, read.id);
        } else {
            self.settle(key);
            self.unspill(key);
        }
    }
}

/// Wakes or starts as many threads as there are queued reads, within the limit. Called with the lock held,
/// after anything that may have queued reads.
pub(crate) fn wake(shared: &Arc<Shared>, state: &mut State) {
    let queued = state.urgent.len() + state.ahead.len();
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
        if let Some(mut read) = state.next_read() {
            state.reading += 1;
            drop(state);
            let began = Instant::now();
            let (requests, result) = make(shared, &mut read);
            let took = began.elapsed();
            state = shared.lock();
            state.reading -= 1;
            state.complete(&read, requests, took, result);
            continue;
        }
        state.idle += 1;
        let (back, waited) =
            shared.work.wait_timeout(state, IDLE).unwrap_or_else(std::sync::PoisonError::into_inner);
        state = back;
        state.idle -= 1;
        if waited.timed_out() && state.urgent.is_empty() && state.ahead.is_empty() {
            break;
        }
    }
    state.readers -= 1;
}

/// Makes one read, with repetitions; how many requests it took.
fn make(shared: &Shared, read: &mut Read) -> (u64, Result<(), ReadError>) {
    let mut pause = PAUSE;
    let mut requests = 0;
    loop {
        requests += 1;
        let (store, target) = (&read.store, &mut read.target);
        let result = read.catalog.with_location(read.id, |location| store.read(location, target.bytes()));
        match result {
            Err(error) if error.retriable() && requests <= u64::from(shared.retries) => {
                tracing::debug!(id = read.id, requests, %error, "a read failed and is tried again");
                if let Some(pending) = shared.lock().pending.get_mut(&read.object) {
                    pending.cause = Some(error.to_string());
                }
            }
            done => return (requests, done),
        }
        if shared.stopping.load(Ordering::Relaxed) {
            return (requests, Err(ReadError::Transient("the server is stopping".into())));
        }
        // Spread over half the pause, by id and anew for each attempt, so that reads that failed together do not
        // return together.
        let jitter = read.id.wrapping_add(requests as u32).wrapping_mul(0x9e37_79b9) >> 24;
        std::thread::sleep(pause / 2 + pause / 2 * jitter / 256);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
