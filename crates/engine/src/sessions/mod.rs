//! Clients: which segments each has mapped, what it leases, and what it waits for.
//!
//! A client is handed a segment's descriptor with the first batch that lies in it, and hears with its next answer which
//! segments have gone. It asks for one thing at a time, so it waits for at most one batch: for bytes, by a [`Waiter`]
//! that each arriving object counts down, or for memory.

mod batch;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hotset_core::{Error, Result};

pub use batch::{Entry, Grant, NewSegment};
pub(crate) use batch::{Item, Role};

use crate::residency::Residency;
use crate::sync::Condvar;

/// How a client tells the ends of its leases without a message.
pub trait Ends: Send + Sync {
    /// The lease that ended last of those that it has not told; 0 without.
    fn ended(&self) -> u64;

    /// Has it tell ends at once from now on, or with its next request. What it has not told before it sees that is
    /// [there](Self::ended).
    fn set_urgent(&self, urgent: bool);
}

/// One client.
#[derive(Default)]
struct Client {
    /// Segments it has been handed.
    known: HashSet<u32>,
    /// Segments that have gone since its last answer.
    dropped: Vec<u32>,
    leases: HashSet<u64>,
    /// Its batch that lies outside the arena, if there is one.
    spill: Option<u32>,
    /// Whether it has asked for a batch.
    reads: bool,
    /// The job for which it waits for memory.
    waits_for_memory: Option<u64>,
    ends: Option<Arc<dyn Ends>>,
}

/// A batch whose bytes have not all arrived.
struct Waiter {
    missing: usize,
    failed: Option<Error>,
    signal: Arc<Condvar>,
}

/// How far a batch has come that is waited for.
pub(crate) enum Progress {
    Whole,
    Missing,
    Failed(Error),
}

/// All clients, their leases and their waits.
#[derive(Default)]
pub(crate) struct Sessions {
    clients: HashMap<u64, Client>,
    /// The objects of each lease.
    leases: HashMap<u64, Vec<u32>>,
    waiters: HashMap<u64, Waiter>,
    /// Clients that wait for memory.
    waiting_for_memory: usize,
    /// Whether ends of leases are wanted at once.
    urgent: bool,
}

impl Sessions {
    pub(crate) fn attach(&mut self, client: u64, ends: Option<Arc<dyn Ends>>) {
        ends.iter().for_each(|ends| ends.set_urgent(self.urgent));
        self.clients.insert(client, Client { ends, ..Client::default() });
    }

    /// Wants to be told ends of leases at once, or with the next requests.
    pub(crate) fn set_urgent(&mut self, urgent: bool) {
        if std::mem::replace(&mut self.urgent, urgent) != urgent {
            let all = self.clients.values().filter_map(|client| client.ends.as_ref());
            all.for_each(|ends| ends.set_urgent(urgent));
        }
    }

    /// Whether ends of leases are wanted at once.
    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// Ends the leases whose ends were not told; their objects.
    pub(crate) fn hear(&mut self) -> Vec<u32> {
        let mut objects = Vec::new();
        for client in self.clients.values_mut() {
            let ended = client.ends.as_ref().map_or(0, |ends| ends.ended());
            if client.leases.remove(&ended) {
                objects.extend(self.leases.remove(&ended).unwrap_or_default());
            }
        }
        objects
    }

    /// Forgets a client; the objects that it leased.
    pub(crate) fn detach(&mut self, client: u64) -> Vec<u32> {
        self.set_waiting_for_memory(client, None);
        let Some(gone) = self.clients.remove(&client) else { return Vec::new() };
        gone.leases.iter().filter_map(|lease| self.leases.remove(lease)).flatten().collect()
    }

    /// A client leases these objects from now on: segments that it must map first, and those that have gone.
    pub(crate) fn lease(
        &mut self,
        client: u64,
        lease: u64,
        objects: &[u32],
        residency: &Residency,
    ) -> Result<(Vec<NewSegment>, Vec<u32>)> {
        let gone = || Error::unavailable("the client went away while it waited");
        let client = self.clients.get_mut(&client).ok_or_else(gone)?;
        let (mut segments, mut last) = (Vec::new(), None);
        for &object in objects {
            let (segment, _, _) = residency.place(object);
            // Most neighbours share a segment.
            if last != Some(segment) && client.known.insert(segment) {
                let (descriptor, length) = residency.descriptor(segment)?;
                segments.push(NewSegment { segment, length, descriptor });
            }
            last = Some(segment);
        }
        client.leases.insert(lease);
        client.reads = true;
        self.leases.insert(lease, objects.to_vec());
        Ok((segments, std::mem::take(&mut client.dropped)))
    }

    /// Ends a lease of a client; its objects. One that it does not have is passed over.
    pub(crate) fn release(&mut self, client: u64, lease: u64) -> Vec<u32> {
        let owned = self.clients.get_mut(&client).is_some_and(|client| client.leases.remove(&lease));
        if owned { self.leases.remove(&lease).unwrap_or_default() } else { Vec::new() }
    }

    /// How many batches a client leases.
    pub(crate) fn leases_of(&self, client: u64) -> usize {
        self.clients.get(&client).map_or(0, |client| client.leases.len())
    }

    /// The objects that a client leases, each once.
    pub(crate) fn leased_by(&self, client: u64) -> HashSet<u32> {
        let leases = self.clients.get(&client).into_iter().flat_map(|client| &client.leases);
        leases.filter_map(|lease| self.leases.get(lease)).flatten().copied().collect()
    }

    /// A client's batch that lies outside the arena.
    pub(crate) fn spill_of(&self, client: u64) -> Option<u32> {
        self.clients.get(&client)?.spill
    }

    /// A client has a batch outside the arena from now on.
    pub(crate) fn spilled(&mut self, client: u64, segment: u32) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.spill = Some(segment);
        }
    }

    /// A segment has gone: tells every client that knows it.
    pub(crate) fn drop_segment(&mut self, segment: u32) {
        for client in self.clients.values_mut() {
            if client.known.remove(&segment) {
                client.dropped.push(segment);
            }
            client.spill = client.spill.filter(|spill| *spill != segment);
        }
    }

    /// A client waits for memory for a batch of this job, or no longer for any.
    pub(crate) fn set_waiting_for_memory(&mut self, client: u64, job: Option<u64>) {
        let Some(client) = self.clients.get_mut(&client) else { return };
        self.waiting_for_memory -= usize::from(client.waits_for_memory.is_some());
        self.waiting_for_memory += usize::from(job.is_some());
        client.waits_for_memory = job;
    }

    /// Whether a client waits for memory for a batch of this job.
    pub(crate) fn waits_for_memory(&self, job: u64) -> bool {
        self.any_waits_for_memory()
            && self.clients.values().any(|client| client.waits_for_memory == Some(job))
    }

    /// Whether a client waits for memory.
    pub(crate) fn any_waits_for_memory(&self) -> bool {
        self.waiting_for_memory > 0
    }

    /// Whether every reader but this one waits for memory, and so lets go of nothing.
    pub(crate) fn others_wait_for_memory(&self, client: u64) -> bool {
        let mut others =
            self.clients.iter().filter(|&(other, client_of)| *other != client && client_of.reads);
        others.all(|(_, other)| other.waits_for_memory.is_some())
    }

    /// A batch waits for so many objects.
    pub(crate) fn wait(&mut self, waiter: u64, missing: usize) -> Arc<Condvar> {
        let signal = Arc::new(Condvar::new());
        self.waiters.insert(waiter, Waiter { missing, failed: None, signal: Arc::clone(&signal) });
        signal
    }

    /// How far a batch has come.
    pub(crate) fn progress(&self, waiter: u64) -> Result<Progress> {
        Ok(match self.waiters.get(&waiter) {
            Some(Waiter { failed: Some(error), .. }) => Progress::Failed(error.clone()),
            Some(Waiter { missing: 0, .. }) => Progress::Whole,
            Some(_) => Progress::Missing,
            None => return Err(Error::internal("a waiting batch was forgotten")),
        })
    }

    /// A batch is waited for no longer.
    pub(crate) fn end_wait(&mut self, waiter: u64) {
        self.waiters.remove(&waiter);
    }

    /// An object that these batches wait for has come, or will not.
    pub(crate) fn arrived(&mut self, waiters: &[u64], failed: Option<&Error>) {
        for waiter in waiters {
            // A batch that was given up waits no longer.
            let Some(waiter) = self.waiters.get_mut(waiter) else { continue };
            waiter.missing -= 1;
            if let Some(error) = failed {
                waiter.failed.get_or_insert_with(|| error.clone());
            }
            if waiter.missing == 0 || waiter.failed.is_some() {
                waiter.signal.notify_one();
            }
        }
    }

    /// Wakes every batch that waits, to look whether it still should.
    pub(crate) fn wake_all(&self) {
        for waiter in self.waiters.values() {
            waiter.signal.notify_all();
        }
    }

    /// Batches that are leased, batches that wait, clients that have read.
    pub(crate) fn figures(&self) -> (usize, usize, usize) {
        let readers = self.clients.values().filter(|client| client.reads).count();
        (self.leases.len(), self.waiters.len(), readers)
    }
}

#[cfg(feature = "shuttle")]
impl Sessions {
    /// Checks that leases add up, and that batches wait only for what has not come.
    pub(crate) fn check(&self, residency: &Residency, fetching: &crate::fetching::Fetching) {
        let (mut leased, mut lent): (HashMap<u32, u32>, _) = (HashMap::new(), 0);
        for object in self.leases.values().flatten() {
            *leased.entry(*object).or_default() += 1;
        }
        for (key, object) in residency.objects() {
            let own = leased.remove(&key).unwrap_or_default();
            assert!(own <= object.leases(), "leases on object {key}");
            lent += (object.leases() - own) as usize;
        }
        assert_eq!(lent, residency.lent(), "leases of packing");
        assert!(leased.is_empty(), "leased objects have gone");
        let owned: usize = self.clients.values().map(|client| client.leases.len()).sum();
        assert_eq!(owned, self.leases.len(), "leases of clients that have gone");
        for (&number, waiter) in &self.waiters {
            let missing = fetching.awaited_by(number);
            assert!(waiter.failed.is_some() || waiter.missing == missing, "a batch waits for what has come");
        }
        let waiting = self.clients.values().filter(|client| client.waits_for_memory.is_some()).count();
        assert_eq!(waiting, self.waiting_for_memory);
    }
}
