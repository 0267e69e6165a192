//! The way to a shared cache, which is asked by hash before storage is and offered what storage gave.
//!
//! Nothing there is trusted. What comes is hashed where it was copied to, and a cache that once gave something else is asked
//! no more. One that does not answer is left alone for a while, longer each time, and what it would have given is read
//! from storage: all it can cost is time. Offers are copied into a queue and sent by a thread of their own; when the queue is
//! full they are dropped, so that no read waits for them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::{Duration, Instant};

use hotset_core::contents::Hash;
use hotset_core::{Error, Result};
use hotset_engine::ContentPeer;
use hotset_wire::contents::SharedCache;
use hotset_wire::proto::SharedStats;

use crate::lock::Lock;

/// How long the cache has to answer, and to take what it is given.
const PATIENCE: Duration = Duration::from_millis(500);
const PATIENCE_PUTTING: Duration = Duration::from_secs(5);
/// How long it is left alone after a failure at first, and at most.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The most connections for asking.
const MOST: usize = 8;
/// Bytes and numbers of contents that wait to be sent.
const QUEUED_BYTES: u64 = 256 << 20;
const QUEUED: usize = 1 << 16;

/// Where a shared cache is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedAt {
    /// Its socket.
    pub socket: PathBuf,
    /// The user whose it may be, beside root and this user.
    pub user: Option<u32>,
}

/// A shared cache, as a server asks it.
pub(crate) struct Sharing {
    inner: Arc<Inner>,
    offers: SyncSender<Offer>,
}

struct Offer {
    hash: Hash,
    bytes: Vec<u8>,
}

struct Inner {
    at: SharedAt,
    line: Lock<Line>,
    figures: Figures,
}

/// What is known of the way there.
#[derive(Default)]
struct Line {
    idle: Vec<SharedCache>,
    open: usize,
    /// When it may be asked again, and how long the last pause was.
    resting: Option<Instant>,
    pause: Duration,
    /// Whether it gave wrong bytes.
    lied: bool,
    /// Whether the user was told that it fails.
    told: bool,
}

#[derive(Default)]
struct Figures {
    asked: AtomicU64,
    found: AtomicU64,
    failed: AtomicU64,
    wrong: AtomicU64,
    offered: AtomicU64,
    dropped: AtomicU64,
    queued: AtomicU64,
}

impl Sharing {
    /// The shared cache at a place; it is asked when there is something to ask.
    pub(crate) fn new(at: SharedAt) -> Result<Arc<Self>> {
        let inner = Arc::new(Inner { at, line: Lock::default(), figures: Figures::default() });
        let (offers, receiver) = mpsc::sync_channel(QUEUED);
        let own = Arc::clone(&inner);
        let thread = std::thread::Builder::new().name("hotset-offers".into());
        thread
            .spawn(move || own.send_offers(&receiver))
            .map_err(|error| Error::unavailable(format!("cannot start a thread for offers: {error}")))?;
        Ok(Arc::new(Self { inner, offers }))
    }

    /// What was asked, and what came of it.
    pub(crate) fn stats(&self) -> SharedStats {
        let figures = &self.inner.figures;
        let read = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        SharedStats {
            socket: self.inner.at.socket.display().to_string(),
            asked: read(&figures.asked),
            found: read(&figures.found),
            failed: read(&figures.failed),
            wrong: read(&figures.wrong),
            offered: read(&figures.offered),
            dropped: read(&figures.dropped),
        }
    }
}

impl ContentPeer for Sharing {
    fn fill(&self, wanted: &mut [(Hash, &mut [u8])]) -> bool {
        self.inner.fill(wanted)
    }

    fn offer(&self, hash: &Hash, bytes: &[u8]) {
        let (queued, length) = (&self.inner.figures.queued, bytes.len() as u64);
        let fits = queued.load(Ordering::Relaxed) + length <= QUEUED_BYTES && self.inner.is_asked();
        if fits {
            queued.fetch_add(length, Ordering::Relaxed);
            if self.offers.try_send(Offer { hash: *hash, bytes: bytes.to_vec() }).is_ok() {
                return;
            }
            queued.fetch_sub(length, Ordering::Relaxed);
        }
        self.inner.figures.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

impl Inner {
    fn fill(&self, wanted: &mut [(Hash, &mut [u8])]) -> bool {
        let Some(mut cache) = self.take() else { return false };
        self.figures.asked.fetch_add(wanted.len() as u64, Ordering::Relaxed);
        let found = match cache.get(wanted, PATIENCE) {
            Ok(found) => found,
            Err(error) => {
                self.give_up(&error);
                return false;
            }
        };
        let right = |(hash, bytes): &(Hash, &mut [u8])| blake3::hash(bytes).as_bytes() == hash;
        let wrong = wanted.iter().zip(&found).filter(|(wanted, found)| **found && !right(wanted)).count();
        if wrong > 0 {
            self.give_up_for_good(wrong as u64);
            return false;
        }
        self.put_back(cache);
        let count = found.iter().filter(|found| **found).count();
        self.figures.found.fetch_add(count as u64, Ordering::Relaxed);
        count == wanted.len()
    }

    fn send_offers(&self, offers: &Receiver<Offer>) {
        while let Ok(Offer { hash, bytes }) = offers.recv() {
            self.send(&hash, &bytes);
            self.figures.queued.fetch_sub(bytes.len() as u64, Ordering::Relaxed);
        }
    }

    /// Sends one offer. A digest that says another hash than the bytes have is old, and those are not sent.
    fn send(&self, hash: &Hash, bytes: &[u8]) {
        let sent = blake3::hash(bytes).as_bytes() == hash
            && self.take().is_some_and(|mut cache| match cache.put(&[(*hash, bytes)], PATIENCE_PUTTING) {
                Ok(kept) => {
                    self.put_back(cache);
                    kept.first().copied().unwrap_or_default()
                }
                // It does not want this one; others it may.
                Err(error) if error.kind == hotset_core::Kind::Invalid => {
                    self.put_back(cache);
                    false
                }
                Err(error) => {
                    self.give_up(&error);
                    false
                }
            });
        let figure = if sent { &self.figures.offered } else { &self.figures.dropped };
        figure.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether it is asked now.
    fn is_asked(&self) -> bool {
        let line = self.line.lock();
        !line.lied && line.resting.is_none_or(|until| Instant::now() >= until)
    }

    /// A connection of our own, if the cache is asked now. Waits while all are in use.
    fn take(&self) -> Option<SharedCache> {
        let deadline = Instant::now() + PATIENCE;
        let mut line = self.line.lock();
        loop {
            if line.lied || line.resting.is_some_and(|until| Instant::now() < until) {
                return None;
            }
            if let Some(cache) = line.idle.pop() {
                return Some(cache);
            }
            if line.open < MOST {
                line.open += 1;
                break;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            line = line.wait_for(left);
        }
        drop(line);
        match SharedCache::connect(&self.at.socket, self.at.user, PATIENCE) {
            Ok(cache) => Some(cache),
            Err(error) => {
                self.give_up(&error);
                None
            }
        }
    }

    fn put_back(&self, cache: SharedCache) {
        let mut line = self.line.lock();
        line.idle.push(cache);
        (line.resting, line.pause) = (None, Duration::ZERO);
        line.signal();
    }

    /// A connection failed: the cache is left alone for a while, and said so once.
    fn give_up(&self, error: &Error) {
        self.figures.failed.fetch_add(1, Ordering::Relaxed);
        let mut line = self.line.lock();
        line.open = line.open.saturating_sub(1 + line.idle.len());
        line.idle.clear();
        // Several that fail together are one failure.
        if line.resting.is_none_or(|until| Instant::now() >= until) {
            line.pause = (line.pause * 2).clamp(PAUSE, LONGEST_PAUSE);
            line.resting = Some(Instant::now() + line.pause);
        }
        let first = !std::mem::replace(&mut line.told, true);
        line.signal();
        drop(line);
        if first {
            let socket = self.at.socket.display();
            tracing::warn!(%socket, %error, "the shared cache (HOTSET_SHARED) fails: storage is read meanwhile");
        }
    }

    /// It gave wrong bytes.
    fn give_up_for_good(&self, wrong: u64) {
        self.figures.wrong.fetch_add(wrong, Ordering::Relaxed);
        let mut line = self.line.lock();
        line.idle.clear();
        let first = !std::mem::replace(&mut line.lied, true);
        line.signal();
        drop(line);
        if first {
            let socket = self.at.socket.display();
            tracing::warn!(%socket, "the shared cache (HOTSET_SHARED) gave bytes with another hash and is asked no more");
        }
    }
}

#[cfg(test)]
#[path = "sharing_tests.rs"]
mod tests;
