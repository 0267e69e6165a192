//! Everything under the engine's lock, and how objects come and go.
//!
//! A sample's bytes are an object in the arena, found through its dataset's table. It leaves the arena when
//! no policy keeps it, no decided slot or waiting reader holds it and no lease is on it. A newer read of the
//! same sample takes its place in the table; then it stays only for those who hold it already.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use hotset_core::{Error, Id, Result};
use hotset_store::{Catalog, Store};
use slab::Slab;

use crate::allocator::{Block, GRANULE};
use crate::arena::Arena;
use crate::config::{Config, reserve};
use crate::job::Job;
use crate::loader::Load;
use crate::object::{Fill, Object};
use crate::waiter::Waiter;

/// In place of an object in a queue: the ticket is that of a read that brings several.
pub(crate) const SEVERAL: u32 = u32::MAX;

/// A dataset that somebody has opened.
pub(crate) struct Dataset {
    pub(crate) name: String,
    pub(crate) place: String,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) store: Arc<dyn Store>,
    /// For each id its object, plus one; zero where there is none. Empty until the first read.
    table: Vec<u32>,
    /// Who has opened it.
    pub(crate) sessions: HashSet<u64>,
    /// How many objects hold bytes of it.
    pub(crate) objects: usize,
}

/// Why a read is made, which says how it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The plan asks for it: it was counted when that was decided.
    Planned,
    /// The plan asks for it, in one request with others that have gone without it.
    Extra,
    /// The plan counts on bytes that are not there.
    Recovery,
    /// No plan serves it.
    Unplanned,
}

/// Whose counters a read is charged to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Payer {
    pub(crate) job: u64,
    pub(crate) epoch: Option<u64>,
    pub(crate) cause: Cause,
}

/// A read that is queued or under way.
pub(crate) struct Pending {
    pub(crate) ticket: u64,
    pub(crate) payer: Payer,
    pub(crate) waiters: Vec<u64>,
    pub(crate) urgent: bool,
    /// The read that brings it with others, if one does.
    pub(crate) load: Option<u64>,
    /// Why its last attempt failed, if it is being tried again.
    pub(crate) cause: Option<String>,
}

/// One client's side of the arena.
#[derive(Default)]
pub(crate) struct Session {
    /// Segments it has been handed.
    pub(crate) known: HashSet<u32>,
    /// Segments that have gone since its last answer.
    pub(crate) dropped: Vec<u32>,
    pub(crate) leases: HashSet<u64>,
    /// Its batch that lies outside the arena, if there is one.
    pub(crate) spill: Option<u32>,
    pub(crate) reads: bool,
}

/// See the module's head.
pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) arena: Arena,
    pub(crate) datasets: Slab<Dataset>,
    pub(crate) objects: Slab<Object>,
    pub(crate) pending: HashMap<u32, Pending>,
    pub(crate) jobs: BTreeMap<u64, Job>,
    pub(crate) names: HashMap<String, u64>,
    pub(crate) sessions: HashMap<u64, Session>,
    pub(crate) waiters: HashMap<u64, Waiter>,
    /// Each lease's session and objects.
    pub(crate) leases: HashMap<u64, (u64, Vec<u32>)>,
    /// Reads that a reader waits for, and reads along plans: (ticket, object), or (load, [`SEVERAL`]).
    pub(crate) urgent: VecDeque<(u64, u32)>,
    pub(crate) ahead: VecDeque<(u64, u32)>,
    /// Reads that bring several samples, by ticket.
    pub(crate) loads: HashMap<u64, Load>,
    /// What packers read.
    pub(crate) background: VecDeque<crate::packer::Wanted>,
    /// Reads taken off the queues so far.
    pub(crate) turns: u64,
    pub(crate) readers: usize,
    pub(crate) idle: usize,
    pub(crate) reading: usize,
    /// Bytes of objects that a policy keeps.
    kept: u64,
    pub(crate) serial: u64,
    /// Sessions that wait for memory.
    pub(crate) cramped: HashSet<u64>,
    /// The most reported values that were applied in one hold of a lock.
    pub(crate) most_applied: u64,
    pub(crate) stopping: bool,
}

fn room(block: Block) -> u64 {
    u64::from(block.granules) * GRANULE
}

impl State {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            arena: Arena::default(),
            datasets: Slab::new(),
            objects: Slab::new(),
            pending: HashMap::new(),
            jobs: BTreeMap::new(),
            names: HashMap::new(),
            sessions: HashMap::new(),
            waiters: HashMap::new(),
            leases: HashMap::new(),
            urgent: VecDeque::new(),
            ahead: VecDeque::new(),
            loads: HashMap::new(),
            background: VecDeque::new(),
            turns: 0,
            readers: 0,
            idle: 0,
            reading: 0,
            kept: 0,
            serial: 0,
            cramped: HashSet::new(),
            most_applied: 0,
            stopping: false,
        }
    }

    /// A number that was never given before.
    pub(crate) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Bytes granted to all jobs.
    pub(crate) fn capacity(&self) -> u64 {
        self.jobs.values().map(|job| job.grant.granted).sum()
    }

    pub(crate) fn reserve(&self) -> u64 {
        reserve(self.capacity())
    }

    /// Bytes in the arena that no policy keeps.
    pub(crate) fn passing(&self) -> u64 {
        self.arena.occupied().saturating_sub(self.kept)
    }

    /// Fits the arena to what jobs were granted.
    pub(crate) fn fit_arena(&mut self) {
        let limit = if self.jobs.is_empty() { 0 } else { self.capacity() + self.reserve() };
        self.arena.set_limit(limit);
        self.note_dropped();
    }

    pub(crate) fn dataset(&self, name: &str) -> Result<u32> {
        let found = self.datasets.iter().find(|(_, dataset)| dataset.name == name);
        found.map(|(key, _)| key as u32).ok_or_else(|| {
            Error::new(hotset_core::Kind::Lost, format!("this server has not opened dataset `{name}`"))
        })
    }

    pub(crate) fn add_dataset(&mut self, name: String, opened: &hotset_store::Opened, session: u64) -> u32 {
        let key = self.dataset(&name).unwrap_or_else(|_| {
            self.datasets.insert(Dataset {
                name,
                place: opened.place.clone(),
                catalog: Arc::clone(&opened.catalog),
                store: Arc::clone(&opened.store),
                table: Vec::new(),
                sessions: HashSet::new(),
                objects: 0,
            }) as u32
        });
        self.datasets[key as usize].sessions.insert(session);
        key
    }

    /// The object that holds a sample's bytes now, ready or not.
    pub(crate) fn object(&self, dataset: u32, id: Id) -> Option<u32> {
        let entry = self.datasets.get(dataset as usize)?.table.get(id as usize).copied()?;
        entry.checked_sub(1)
    }

    /// Makes an object for the read of a sample, which is to be queued; its bytes of before are let go of. `None` when
    /// the arena has no room.
    pub(crate) fn pend(
        &mut self,
        dataset: u32,
        id: Id,
        payer: Payer,
        spill: Option<u32>,
    ) -> Result<Option<u32>> {
        let Some(key) = self.create(dataset, id, spill)? else { return Ok(None) };
        let waiters = Vec::new();
        self.pending
            .insert(key, Pending { ticket: 0, payer, waiters, urgent: false, load: None, cause: None });
        Ok(Some(key))
    }

    /// Queues the read of an object that is pending.
    pub(crate) fn enqueue(&mut self, key: u32, urgent: bool) {
        let ticket = self.next_serial();
        let Some(pending) = self.pending.get_mut(&key) else { return };
        (pending.ticket, pending.urgent, pending.load) = (ticket, urgent, None);
        if urgent { self.urgent.push_back((ticket, key)) } else { self.ahead.push_back((ticket, key)) }
    }

    /// Makes an object for a sample, whose bytes of before are let go of. `None` when the arena has no room.
    pub(crate) fn create(&mut self, dataset: u32, id: Id, spill: Option<u32>) -> Result<Option<u32>> {
        let size = self.datasets[dataset as usize].catalog.size(id);
        // First, because it may free an object, and with it the next key.
        self.detach(dataset, id);
        let key = self.objects.vacant_key() as u32;
        let block = match spill {
            Some(segment) => self.arena.allocate_in(segment, size, key),
            None => self.allocate(size, key)?,
        };
        let Some(block) = block else { return Ok(None) };
        let jobs = || self.jobs.values().filter(|job| job.dataset == dataset);
        let keepers = jobs().filter(|job| job.run.cache().keeps(id)).count() as u16;
        let holds = jobs().map(|job| job.holds(id)).sum();
        if keepers > 0 {
            self.kept += room(block);
        }
        let inserted = self.objects.insert(Object {
            dataset,
            id,
            block,
            fill: Fill::Queued,
            current: true,
            keepers,
            holds,
            leases: 0,
            alone: false,
        });
        debug_assert_eq!(inserted as u32, key);
        let book = &mut self.datasets[dataset as usize];
        if book.table.is_empty() {
            book.table = vec![0; book.catalog.len()];
        }
        book.table[id as usize] = key + 1;
        book.objects += 1;
        Ok(Some(key))
    }

    /// Puts a queued read before those that nobody waits for yet.
    pub(crate) fn hurry(&mut self, object: u32) {
        if let Some(pending) = self.pending.get_mut(&object)
            && !std::mem::replace(&mut pending.urgent, true)
        {
            match pending.load {
                None => self.urgent.push_back((pending.ticket, object)),
                Some(load) if self.loads.contains_key(&load) => self.urgent.push_back((load, SEVERAL)),
                Some(_) => {}
            }
        }
    }

    /// Takes a sample's object off its table, because a newer read takes its place or its own failed. Who
    /// waits for it or leases it keeps it; slots that nobody has asked for let go of it.
    pub(crate) fn detach(&mut self, dataset: u32, id: Id) {
        let Some(key) = self.object(dataset, id) else { return };
        let holds: u32 =
            self.jobs.values().filter(|job| job.dataset == dataset).map(|job| job.holds(id)).sum();
        self.datasets[dataset as usize].table[id as usize] = 0;
        let object = &mut self.objects[key as usize];
        object.current = false;
        object.holds -= holds;
        if std::mem::take(&mut object.keepers) > 0 {
            self.kept -= room(object.block);
        }
        self.settle(key);
    }

    /// Frees an object that nothing holds any more, unless a thread is writing it.
    pub(crate) fn settle(&mut self, key: u32) {
        let object = &self.objects[key as usize];
        if object.needed() || object.fill == Fill::Reading {
            return;
        }
        if object.current {
            self.datasets[object.dataset as usize].table[object.id as usize] = 0;
        }
        self.datasets[object.dataset as usize].objects -= 1;
        self.pending.remove(&key);
        self.arena.free(object.block);
        self.objects.remove(key as usize);
        self.note_dropped();
    }

    /// Moves what a policy keeps out of a spilled segment, whose batch has been read, so that the segment can
    /// go. Without room its bytes go too, and are read again when they are due.
    pub(crate) fn unspill(&mut self, key: u32) {
        let Some(object) = self.objects.get(key as usize) else { return };
        let (from, dataset, id) = (object.block, object.dataset, object.id);
        let held = object.holds > 0;
        if !object.movable() || !self.arena.is_spill(from.segment) {
            return;
        }
        let size = self.datasets[dataset as usize].catalog.size(id);
        let to = self.allocate(size, key).unwrap_or_else(|error| {
            tracing::warn!(%error, "what a spilled batch leaves behind is let go of");
            None
        });
        match to {
            Some(to) => {
                self.arena.copy(from, to);
                self.objects[key as usize].block = to;
                self.arena.free(from);
                self.note_dropped();
            }
            // Who waits for it keeps it where it is.
            None if held => {}
            None => self.detach(dataset, id),
        }
    }

    /// A block in the arena proper, others moved if need be.
    fn allocate(&mut self, size: u64, owner: u32) -> Result<Option<Block>> {
        let mut moves = Vec::new();
        let objects = &self.objects;
        let movable = |owner: u32| objects.get(owner as usize).is_some_and(Object::movable);
        let block = self.arena.allocate(size, owner, &movable, &mut |owner, to| moves.push((owner, to)));
        for (owner, to) in moves {
            self.objects[owner as usize].block = to;
        }
        block
    }

    /// Adds to or takes from an object's keepers.
    pub(crate) fn keep(&mut self, dataset: u32, id: Id, more: bool) {
        let Some(key) = self.object(dataset, id) else { return };
        let object = &mut self.objects[key as usize];
        let before = object.keepers;
        object.keepers = if more { before + 1 } else { before.saturating_sub(1) };
        match (before, object.keepers) {
            (0, 1) => self.kept += room(object.block),
            (1, 0) => self.kept -= room(object.block),
            _ => {}
        }
        if object.keepers == 0 {
            self.settle(key);
        }
    }

    /// Holds a sample's object, if there is one.
    pub(crate) fn hold(&mut self, dataset: u32, id: Id) {
        if let Some(key) = self.object(dataset, id) {
            self.objects[key as usize].holds += 1;
        }
    }

    /// Lets go of one hold on an object.
    pub(crate) fn let_go(&mut self, key: u32) {
        if let Some(object) = self.objects.get_mut(key as usize) {
            object.holds = object.holds.saturating_sub(1);
            self.settle(key);
            self.unspill(key);
        }
    }

    /// Tells every session which segments have gone.
    pub(crate) fn note_dropped(&mut self) {
        for segment in self.arena.take_dropped() {
            for session in self.sessions.values_mut() {
                if session.known.remove(&segment) {
                    session.dropped.push(segment);
                }
                if session.spill == Some(segment) {
                    session.spill = None;
                }
            }
        }
    }
}
