//! Requests that are made side by side, each lane asking again as soon as it was answered.
//!
//! Lanes count what they have read themselves, before they ask again: a store that answers faster than answers are looked at
//! (files in the page cache are) would otherwise be read far beyond what is allowed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use hotset_core::rng::Scatter;
use hotset_core::{Error, Id, Result};

use super::Level;
use crate::catalog::Catalog;
use crate::store::{Location, ReadError, Store};

/// How often progress is told while nothing comes.
const LOOK: Duration = Duration::from_millis(100);
/// A lane that was refused rests so long, and one that failed a tenth of it.
const REST: Duration = Duration::from_millis(100);
/// Answers under way at the end of a stage are waited for so long at least.
const GRACE: Duration = Duration::from_millis(200);

/// A sample that was read, or why it was not.
type Read = std::result::Result<(Id, Vec<u8>), (Id, ReadError)>;

/// The samples of a dataset in a random order, over and over.
pub(super) struct Reads {
    catalog: Arc<Catalog>,
    store: Arc<dyn Store>,
    order: Scatter,
    next: AtomicU64,
}

impl Reads {
    pub(super) fn new(catalog: Arc<Catalog>, store: Arc<dyn Store>) -> Self {
        let order = Scatter::new(catalog.len() as u32, 0, 0, "measure");
        Self { catalog, store, order, next: AtomicU64::new(0) }
    }

    /// Whether a sample was read twice.
    pub(super) fn repeated(&self) -> bool {
        self.next.load(Ordering::Relaxed) > self.catalog.len() as u64
    }

    fn next(&self) -> Id {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.catalog.len().max(1) as u64;
        self.order.at(at as u32)
    }

    /// Reads up to so many bytes of the next sample; how long that took, and those bytes.
    fn one(&self, most: u64) -> (Duration, Read) {
        let id = self.next();
        let size = self.catalog.size(id);
        let mut bytes = vec![0; usize::try_from(size.min(most)).unwrap_or_default()];
        let began = Instant::now();
        let read = self.catalog.with_location(id, |at| {
            self.store.read(Location { whole: at.whole && size <= most, ..at }, &mut bytes)
        });
        (began.elapsed(), read.map(|()| (id, bytes)).map_err(|error| (id, error)))
    }
}

/// What each request is for.
#[derive(Clone, Copy)]
pub(super) struct Request {
    /// Bytes of a sample at most.
    pub(super) bytes: u64,
    /// Samples whose bytes are kept.
    pub(super) keep: usize,
    /// Requests at most.
    pub(super) most: usize,
}

/// What the lanes of a stage have read, and whether they are to stop.
#[derive(Default)]
struct Spent {
    bytes: AtomicU64,
    answers: AtomicUsize,
    over: AtomicBool,
}

impl Spent {
    /// Whether another request may be made.
    fn allows(&self, bytes: u64, answers: usize) -> bool {
        !self.over.load(Ordering::Relaxed)
            && self.bytes.load(Ordering::Relaxed) < bytes
            && self.answers.load(Ordering::Relaxed) < answers
    }

    fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.answers.fetch_add(1, Ordering::Relaxed);
    }
}

/// One answer.
struct Answer {
    read: Duration,
    /// When it came.
    at: Instant,
    outcome: Read,
}

/// The lanes of one stage, and what came of them.
pub(super) struct Lanes {
    reads: Arc<Reads>,
    request: Request,
    at_a_time: usize,
    allowed: u64,
    /// Of each answer.
    pub(super) seconds: Vec<f64>,
    /// Until the last answer, in seconds: what was under way at the end of the stage included.
    elapsed: f64,
    pub(super) bytes: u64,
    pub(super) refused: u64,
    pub(super) failed: u64,
    pub(super) failure: Option<Error>,
    pub(super) error: Option<Error>,
    pub(super) kept: Vec<(Id, Vec<u8>)>,
}

impl Lanes {
    /// Lanes that together read no more than `allowed` bytes, and what is under way then.
    pub(super) fn new(reads: &Arc<Reads>, request: Request, at_a_time: usize, allowed: u64) -> Self {
        Self {
            reads: Arc::clone(reads),
            request,
            at_a_time,
            allowed,
            seconds: Vec::new(),
            elapsed: 0.0,
            bytes: 0,
            refused: 0,
            failed: 0,
            failure: None,
            error: None,
            kept: Vec::new(),
        }
    }

    /// Asks for `time`, and then waits for what is under way, until `end` at the latest.
    pub(super) fn run(
        &mut self,
        time: Duration,
        end: Duration,
        look: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let began = Instant::now();
        let spent = Arc::new(Spent::default());
        let (sender, answers) = mpsc::channel();
        for _ in 0..self.at_a_time {
            self.lane(sender.clone(), &spent)?;
        }
        drop(sender);
        let outcome = loop {
            let elapsed = began.elapsed();
            if elapsed >= time {
                spent.over.store(true, Ordering::Relaxed);
            }
            // An answer that takes longer than all before it is waited for as long as there is time at all.
            if elapsed >= end.max(time + GRACE) {
                break Ok(());
            }
            match answers.recv_timeout(LOOK) {
                Ok(answer) => self.take(answer, began),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break Ok(()),
            }
            if let Err(error) = look() {
                break Err(error);
            }
        };
        spent.over.store(true, Ordering::Relaxed);
        outcome
    }

    fn lane(&self, sender: Sender<Answer>, spent: &Arc<Spent>) -> Result<()> {
        let (reads, spent, request) = (Arc::clone(&self.reads), Arc::clone(spent), self.request);
        let allowed = self.allowed;
        let lane = move || {
            while spent.allows(allowed, request.most) {
                let (read, outcome) = reads.one(request.bytes);
                match &outcome {
                    Ok((_, bytes)) => spent.add(bytes.len()),
                    Err((_, ReadError::Busy(_))) => std::thread::sleep(REST),
                    Err(_) => std::thread::sleep(REST / 10),
                }
                let answer = Answer { read, at: Instant::now(), outcome };
                if sender.send(answer).is_err() {
                    break;
                }
            }
        };
        let started = std::thread::Builder::new().name("hotset-measure".into()).spawn(lane);
        started
            .map(drop)
            .map_err(|error| Error::unavailable(format!("cannot start a thread for reads: {error}")))
    }

    fn take(&mut self, answer: Answer, began: Instant) {
        self.elapsed = self.elapsed.max(answer.at.saturating_duration_since(began).as_secs_f64());
        match answer.outcome {
            Ok((id, bytes)) => {
                self.bytes += bytes.len() as u64;
                self.seconds.push(answer.read.as_secs_f64());
                if self.kept.len() < self.request.keep {
                    self.kept.push((id, bytes));
                }
            }
            Err((_, ReadError::Busy(_))) => self.refused += 1,
            Err((id, error)) => {
                self.failed += 1;
                let named = || Error::from(error).of_sample(u64::from(id), self.reads.catalog.key(id));
                let error = self.error.get_or_insert_with(named);
                self.failure.get_or_insert_with(|| Error::new(error.kind, error.to_string()));
            }
        }
    }

    /// Answers so far.
    pub(super) fn answers(&self) -> u64 {
        self.seconds.len() as u64
    }

    /// What they came to.
    pub(super) fn level(&self, at_a_time: usize) -> Level {
        let all = (self.answers() + self.refused + self.failed).max(1) as f64;
        let elapsed = self.elapsed.max(1e-9);
        Level {
            at_a_time,
            rate: self.answers() as f64 / elapsed,
            bandwidth: self.bytes as f64 / elapsed,
            answers: self.answers(),
            refused: self.refused as f64 / all,
        }
    }
}
