//! The threads that carry out fetches.
//!
//! Each takes one request at a time, so requests in flight never exceed the pool's size, and a place in the arena is
//! never outlived by a read that writes to it. Threads start when there is work and end after a while without any. Other nodes
//! are asked by threads of their own: two nodes that wait for each other go on reading from storage, and so answer.
//!
//! A read that fails transiently is tried again after a pause that doubles up to two seconds and a half more, a number of
//! times: nothing below tries anything again. A reader that gives up waiting before hears the last cause.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hotset_store::ReadError;

use super::fetch::{Brought, Fetch, Source};
use super::{Begun, Fetching};
use crate::engine::Shared;
use crate::state::State;
use crate::sync::{self, Condvar, thread};

/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(10);
/// The pause before the first repetition, and the longest one.
const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The most threads that ask other nodes.
const ASKERS: usize = 16;

/// What a thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// It reads from storage.
    Reads,
    /// It asks other nodes.
    Asks,
}

/// The threads there are: those that read from storage, and those that ask other nodes.
#[derive(Default)]
pub(super) struct Pool {
    readers: Threads,
    askers: Threads,
}

/// The threads there are for one kind of work.
#[derive(Default)]
struct Threads {
    all: usize,
    idle: usize,
    busy: usize,
}

impl Pool {
    /// Threads that read now.
    pub(super) fn reading(&self) -> usize {
        self.readers.busy
    }

    /// Threads that ask now.
    pub(super) fn asking(&self) -> usize {
        self.askers.busy
    }
}

/// Wakes or starts as many threads as there are queued requests, within the limit. Called with the lock held, after
/// anything that may have queued some.
pub(crate) fn wake(shared: &Arc<Shared>, state: &mut State) {
    let reads = state.rooms.fetching().threads_for(state.config.concurrency);
    for (work, most) in [(Work::Reads, reads), (Work::Asks, ASKERS)] {
        wake_for(work, most, shared, state.rooms.fetching_mut());
    }
}

fn wake_for(work: Work, most: usize, shared: &Arc<Shared>, fetching: &mut Fetching) {
    let queued = fetching.queued_for(work);
    let threads = fetching.threads(work);
    for _ in 0..queued.min(threads.idle) {
        work.signal(shared).notify_one();
    }
    for _ in 0..queued.saturating_sub(threads.idle).min(most.saturating_sub(threads.all)) {
        let own = Arc::clone(shared);
        let builder = thread::Builder::new().name(work.name().into()).stack_size(512 << 10);
        match builder.spawn(move || run(&own, work)) {
            Ok(_) => threads.all += 1,
            Err(error) => {
                tracing::warn!(%error, threads = threads.all, "cannot start another reader thread");
                break;
            }
        }
    }
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Self::Reads => "hotset-read",
            Self::Asks => "hotset-ask",
        }
    }

    /// What says that there is some.
    fn signal(self, shared: &Shared) -> &Condvar {
        match self {
            Self::Reads => &shared.work,
            Self::Asks => &shared.asks,
        }
    }
}

impl Fetching {
    fn threads(&mut self, work: Work) -> &mut Threads {
        match work {
            Work::Reads => &mut self.pool.readers,
            Work::Asks => &mut self.pool.askers,
        }
    }

    fn queued_for(&self, work: Work) -> usize {
        match work {
            Work::Reads => self.queued(),
            Work::Asks => self.asking.len(),
        }
    }
}

fn run(shared: &Arc<Shared>, work: Work) {
    let mut state = shared.lock();
    loop {
        if state.is_stopping() {
            break;
        }
        let begun = state.begin_fetch(work);
        if let Some(Begun::Fetch(mut fetch)) = begun {
            state.rooms.fetching_mut().threads(work).busy += 1;
            drop(state);
            let began = Instant::now();
            let (requests, outcome) = repeat(shared, &mut fetch);
            state = shared.lock();
            state.rooms.fetching_mut().leave_gate(&fetch, outcome.as_ref().ok());
            state.end_fetch(fetch, requests, began.elapsed(), outcome);
            state.rooms.fetching_mut().threads(work).busy -= 1;
            // What it did not bring is queued.
            wake(shared, &mut state);
            continue;
        }
        if let Some(begun) = begun {
            if let Begun::Found(fetch, brought) = begun {
                state.end_fetch(fetch, 1, Duration::ZERO, Ok(brought));
            }
            // One a hold of the lock.
            state = shared.give_way(state);
            continue;
        }
        state.rooms.fetching_mut().threads(work).idle += 1;
        let (back, waited) = sync::wait(work.signal(shared), state, IDLE);
        state = back;
        state.rooms.fetching_mut().threads(work).idle -= 1;
        if waited && state.rooms.fetching().queued_for(work) == 0 {
            break;
        }
    }
    state.rooms.fetching_mut().threads(work).all -= 1;
}

impl State {
    /// Notes the end of a fetch.
    fn end_fetch(
        &mut self,
        fetch: Fetch,
        requests: u64,
        took: Duration,
        outcome: Result<Brought, ReadError>,
    ) {
        if let Err(error) = self.complete(fetch, requests, took, outcome) {
            tracing::error!(%error, "a read that has ended is not accounted for");
        }
    }

    /// Takes the next request off the queues.
    fn begin_fetch(&mut self, work: Work) -> Option<Begun> {
        let Self { jobs, rooms, .. } = self;
        if work == Work::Asks {
            return rooms.begin_asking().map(Begun::Fetch);
        }
        rooms.begin_fetch(|job, package| {
            let queue = jobs.get(job).and_then(|job| job.packages.queue());
            !queue.is_some_and(|queue| queue.is_making(package))
        })
    }
}

/// Makes one fetch, with repetitions; how many requests it took.
fn repeat(shared: &Shared, fetch: &mut Fetch) -> (u64, Result<Brought, ReadError>) {
    if matches!(fetch.origin, Source::Node(_)) {
        return (1, fetch.attempt());
    }
    let peer = shared.peer.get().map(|peer| &**peer);
    if let Some(brought) = peer.and_then(|peer| fetch.ask_peer(peer)) {
        return (1, Ok(brought));
    }
    let mut pause = PAUSE;
    let mut requests = 0;
    loop {
        requests += 1;
        match fetch.attempt() {
            Ok(mut brought) => {
                fetch.prove(&mut brought);
                if let Some(peer) = peer {
                    fetch.offer_to(peer);
                }
                return (requests, Ok(brought));
            }
            Err(error) if error.retriable() && requests <= u64::from(shared.retries) => {
                tracing::debug!(number = fetch.number(), requests, %error, "a read failed and is tried again");
                let objects = fetch.objects();
                let mut state = shared.lock();
                let fetching = state.rooms.fetching_mut();
                fetching.note_failure(&objects, &error.to_string());
                if matches!(error, ReadError::Busy(_)) {
                    fetching.note_refusal(fetch);
                }
            }
            done => return (requests, done),
        }
        if shared.stopping.load(Ordering::Relaxed) {
            return (requests, Err(ReadError::Transient("the server is stopping".into())));
        }
        // Longer by up to a half, by number and anew for each attempt, so that reads that failed together do not return
        // together.
        let jitter = fetch.number().wrapping_add(requests as u32).wrapping_mul(0x9e37_79b9) >> 24;
        thread::sleep(pause + pause / 2 * jitter / 256);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
