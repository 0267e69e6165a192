//! Where samples' bytes lie in memory, and what keeps them there.
//!
//! Bytes of a sample are an object in the arena. Each dataset has a table that names every sample's object, whole or on
//! its way, and counts what claims it. An object leaves when nothing claims it, no reader waits for it and no lease is
//! on it. A newer read of the same sample takes its place in the table; then it stays only for readers that have it
//! already. What has gone is told once, when it is asked for. Objects of samples that are known to be equal have one block
//! between them: see [`contents`].

mod allocator;
mod arena;
mod contents;
mod lending;
mod object;
mod segment;
mod table;

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use hotset_core::{Error, Id, Result};
use slab::Slab;

pub(crate) use contents::ContentKey;
pub(crate) use object::Object;
pub(crate) use segment::{Target, View};
pub(crate) use table::MOST_KEEPERS;

use allocator::{Block, GRANULE};
use arena::Arena;
use contents::{Contents, Owner};
use object::Fill;
use table::Table;

use crate::dataset::Dataset;

/// All bytes in memory.
#[derive(Default)]
pub(crate) struct Residency {
    arena: Arena,
    /// By the dataset's number.
    tables: Vec<Table>,
    objects: Slab<Object>,
    contents: Contents,
    /// Bytes of objects that a job's cache keeps, those that several have once.
    kept: u64,
    /// Leases of packing.
    lent: usize,
    /// Objects that were not whole when they left.
    unread: Vec<u32>,
}

impl Residency {
    fn table(&mut self, dataset: &Dataset) -> &mut Table {
        let key = dataset.key as usize;
        if self.tables.len() <= key {
            self.tables.resize_with(key + 1, Table::default);
        }
        self.tables[key].size_to(dataset.samples());
        &mut self.tables[key]
    }

    /// The object that holds a sample's bytes now, whole or on its way.
    pub(crate) fn object(&self, dataset: u32, id: Id) -> Option<u32> {
        self.tables.get(dataset as usize)?.object(id)
    }

    /// An object, which a reader holds, a lease is on, or a table names.
    pub(crate) fn get(&self, key: u32) -> &Object {
        &self.objects[key as usize]
    }

    /// Whether a decided slot waits for a sample.
    pub(crate) fn is_claimed(&self, dataset: u32, id: Id) -> bool {
        self.tables.get(dataset as usize).is_some_and(|table| table.claims(id).slots() > 0)
    }

    /// Whether a cache keeps a sample.
    pub(crate) fn is_kept(&self, dataset: u32, id: Id) -> bool {
        self.tables.get(dataset as usize).is_some_and(|table| table.claims(id).keepers() > 0)
    }

    /// Whether bytes of a dataset are in memory.
    pub(crate) fn has_bytes(&self, dataset: u32) -> bool {
        self.tables.get(dataset as usize).is_some_and(|table| table.objects > 0)
    }

    /// Forgets a dataset that has no bytes in memory.
    pub(crate) fn forget(&mut self, dataset: u32) {
        if let Some(table) = self.tables.get_mut(dataset as usize) {
            debug_assert_eq!(table.objects, 0);
            *table = Table::default();
        }
    }

    /// Makes an object for a read of a sample, in the segment `spill` or in the arena proper; bytes of before are let go
    /// of. `None` when there is no room.
    pub(crate) fn create(&mut self, dataset: &Dataset, id: Id, spill: Option<u32>) -> Result<Option<u32>> {
        // First, because it may free an object, and with it the next key.
        self.detach(dataset.key, id);
        let Some(key) = self.make(dataset, id, spill)? else { return Ok(None) };
        self.objects[key as usize].current = true;
        let table = self.table(dataset);
        table.set_object(id, Some(key));
        if table.claims(id).keepers() > 0 {
            self.set_kept(key, true);
        }
        Ok(Some(key))
    }

    /// Makes an object for a read of a sample that no table names, so that only who holds it sees it.
    pub(crate) fn create_apart(
        &mut self,
        dataset: &Dataset,
        id: Id,
        spill: Option<u32>,
    ) -> Result<Option<u32>> {
        self.make(dataset, id, spill)
    }

    fn make(&mut self, dataset: &Dataset, id: Id, spill: Option<u32>) -> Result<Option<u32>> {
        let length = dataset.size(id);
        let key = self.objects.vacant_key() as u32;
        let block = match spill {
            Some(segment) => self.arena.allocate_in(segment, length, key),
            None => self.allocate(length, key)?,
        };
        let Some(block) = block else { return Ok(None) };
        let object = Object {
            dataset: dataset.key,
            id,
            slack: object::slack(block, length),
            block,
            content: None,
            fill: Fill::Queued,
            failed: false,
            current: false,
            holds: 0,
            leases: 0,
        };
        let inserted = self.objects.insert(object);
        debug_assert_eq!(inserted as u32, key);
        self.table(dataset).objects += 1;
        Ok(Some(key))
    }

    /// Takes a sample's object off its table, because a newer read takes its place or its own failed. Readers that wait
    /// for it or lease it keep it.
    pub(crate) fn detach(&mut self, dataset: u32, id: Id) {
        let Some(key) = self.object(dataset, id) else { return };
        if self.is_object_kept(key) {
            self.set_kept(key, false);
        }
        self.tables[dataset as usize].set_object(id, None);
        self.objects[key as usize].current = false;
        self.settle(key);
    }

    /// Whether a cache keeps an object: it is its sample's own, and that is kept.
    fn is_object_kept(&self, key: u32) -> bool {
        let object = &self.objects[key as usize];
        object.current && self.is_kept(object.dataset, object.id)
    }

    /// A cache keeps the sample of an object from now on, or none does any longer.
    fn set_kept(&mut self, key: u32, kept: bool) {
        let object = &self.objects[key as usize];
        let room = object.room();
        match (object.content, kept) {
            (None, true) => self.kept += room,
            (None, false) => self.kept -= room,
            (Some(content), true) => self.kept += if self.contents.keep(content, room) { room } else { 0 },
            (Some(content), false) => self.kept -= if self.contents.unkeep(content, room) { room } else { 0 },
        }
    }

    /// A job's cache keeps a sample from now on.
    pub(crate) fn keep(&mut self, dataset: &Dataset, id: Id) {
        let table = self.table(dataset);
        table.claims_mut(id).add_keeper();
        if let (1, Some(key)) = (table.claims(id).keepers(), table.object(id)) {
            self.set_kept(key, true);
        }
    }

    /// A job's cache keeps a sample no longer.
    pub(crate) fn unkeep(&mut self, dataset: &Dataset, id: Id) {
        let table = self.table(dataset);
        let kept = table.claims_mut(id).remove_keeper();
        debug_assert!(kept, "sample {id} was not kept");
        if let (0, true, Some(key)) = (table.claims(id).keepers(), kept, table.object(id)) {
            self.set_kept(key, false);
            self.settle(key);
        }
    }

    /// A decided slot waits for a sample from now on.
    pub(crate) fn claim(&mut self, dataset: &Dataset, id: Id) {
        self.table(dataset).claims_mut(id).add_slot();
    }

    /// A decided slot waits for a sample no longer.
    pub(crate) fn unclaim(&mut self, dataset: &Dataset, id: Id) {
        let table = self.table(dataset);
        let waited = table.claims_mut(id).remove_slot();
        debug_assert!(waited, "no slot waited for sample {id}");
        if let Some(key) = table.object(id) {
            self.settle(key);
            self.unspill(key);
        }
    }

    /// A reader waits for an object.
    pub(crate) fn hold(&mut self, key: u32) {
        self.objects[key as usize].holds += 1;
    }

    /// A reader waits for an object no longer.
    pub(crate) fn let_go(&mut self, key: u32) {
        self.objects[key as usize].holds -= 1;
        self.settle(key);
        self.unspill(key);
    }

    /// A reader that has waited for an object leases it.
    pub(crate) fn lease(&mut self, key: u32) {
        let object = &mut self.objects[key as usize];
        object.holds -= 1;
        object.leases += 1;
        object.content.into_iter().for_each(|content| self.contents.lease(content));
    }

    /// A lease on an object has ended.
    pub(crate) fn end_lease(&mut self, key: u32) {
        let object = &mut self.objects[key as usize];
        object.leases -= 1;
        object.content.into_iter().for_each(|content| self.contents.end_lease(content));
        self.settle(key);
        self.unspill(key);
    }

    /// Where to write the bytes of an object whose read begins; `None` if it has begun before.
    pub(crate) fn begin_read(&mut self, key: u32) -> Option<Target> {
        let object = &mut self.objects[key as usize];
        if object.fill != Fill::Queued {
            return None;
        }
        let target = self.arena.target(object.block, object.length())?;
        object.fill = Fill::Reading;
        Some(target)
    }

    /// An object's bytes are whole.
    pub(crate) fn end_read(&mut self, key: u32) {
        self.objects[key as usize].fill = Fill::Ready;
        self.settle(key);
        self.unspill(key);
    }

    /// An object's bytes did not come. Its sample has none from now on.
    pub(crate) fn fail_read(&mut self, key: u32) {
        let object = &mut self.objects[key as usize];
        (object.fill, object.failed) = (Fill::Ready, true);
        let (dataset, id, current) = (object.dataset, object.id, object.current);
        if current { self.detach(dataset, id) } else { self.settle(key) }
    }

    /// An object's bytes did not come, and are to be read again. False if no slot and no reader waits for them: then they
    /// are let go of.
    pub(crate) fn read_again(&mut self, key: u32) -> bool {
        let object = &mut self.objects[key as usize];
        object.fill = Fill::Queued;
        let (dataset, id, current) = (object.dataset, object.id, object.current);
        let claims = self.tables[dataset as usize].claims(id);
        if object.holds > 0 || object.leases > 0 || (current && claims.slots() > 0) {
            return true;
        }
        if current {
            self.detach(dataset, id)
        } else {
            self.settle(key)
        }
        false
    }

    /// Frees an object that nothing needs any more, unless a thread is writing it.
    fn settle(&mut self, key: u32) {
        let object = &self.objects[key as usize];
        if object.holds > 0 || object.leases > 0 || object.fill == Fill::Reading {
            return;
        }
        let table = &mut self.tables[object.dataset as usize];
        if object.current {
            if table.claims(object.id).any() {
                return;
            }
            table.set_object(object.id, None);
        }
        table.objects -= 1;
        if object.fill == Fill::Queued {
            self.unread.push(key);
        }
        let (block, content) = (object.block, object.content);
        let block = content.map_or(Some(block), |content| self.contents.leave(content));
        block.into_iter().for_each(|block| self.arena.free(block));
        self.objects.remove(key as usize);
    }

    /// Moves what is still claimed out of a spilled segment, whose batch has been read, so that the segment can go.
    /// Without room the bytes go too, and are read again when they are due.
    fn unspill(&mut self, key: u32) {
        if !self.arena.has_spills() {
            return;
        }
        let Some(object) = self.objects.get(key as usize) else { return };
        let (from, length, dataset, id) = (object.block, object.length(), object.dataset, object.id);
        if !object.movable() || object.content.is_some() || !self.arena.is_spill(from.segment) {
            return;
        }
        let awaited =
            object.holds > 0 || (object.current && self.tables[dataset as usize].claims(id).slots() > 0);
        let to = self.allocate(length, key).unwrap_or_else(|error| {
            tracing::warn!(%error, "what a spilled batch leaves behind is let go of");
            None
        });
        match to {
            Some(to) => {
                self.arena.copy(from, to);
                self.objects[key as usize].block = to;
                self.arena.free(from);
            }
            // Readers and slots that wait for it keep it where it is.
            None if awaited => {}
            None => self.detach(dataset, id),
        }
    }

    /// A block in the arena proper, others moved if need be.
    fn allocate(&mut self, length: u64, owner: u32) -> Result<Option<Block>> {
        let mut moves = Vec::new();
        let (objects, contents) = (&self.objects, &self.contents);
        let movable = |owner: u32| match Owner::of(owner) {
            Owner::Object(key) => objects.get(key as usize).is_some_and(Object::movable),
            Owner::Content(key) => contents.is_movable(key),
        };
        let block = self.arena.allocate(length, owner, &movable, &mut |owner, to| moves.push((owner, to)));
        for (owner, to) in moves {
            match Owner::of(owner) {
                Owner::Object(key) => self.objects[key as usize].block = to,
                Owner::Content(key) => self.contents.moved(key, to),
            }
        }
        block
    }

    /// A segment outside the limit for samples of these sizes.
    pub(crate) fn spill(&mut self, sizes: impl Iterator<Item = u64>) -> Result<u32> {
        self.arena.spill(sizes)
    }

    /// Whether there is memory of one batch's own.
    pub(crate) fn has_spills(&self) -> bool {
        self.arena.has_spills()
    }

    /// Whether an object lies in memory of one batch's own.
    pub(crate) fn is_spilled(&self, key: u32) -> bool {
        self.arena.is_spill(self.block(self.get(key)).segment)
    }

    /// An object's segment, and where in that it begins and how long it is.
    pub(crate) fn place(&self, key: u32) -> (u32, u64, u64) {
        let object = self.get(key);
        let block = self.block(object);
        (block.segment, u64::from(block.start) * GRANULE, object.length())
    }

    /// The bytes of these objects in the arena that no cache keeps.
    pub(crate) fn unkept(&self, objects: &HashSet<u32>) -> u64 {
        let mut seen = HashSet::new();
        let lasting = objects.iter().filter(|&&key| match self.get(key).content {
            None => !self.is_object_kept(key) && !self.is_spilled(key),
            Some(content) => !self.contents.is_kept(content) && seen.insert(content),
        });
        lasting.map(|&key| self.get(key).room()).sum()
    }

    /// The descriptor and length of a segment, for a reader that has not mapped it.
    pub(crate) fn descriptor(&self, segment: u32) -> Result<(Arc<OwnedFd>, u64)> {
        let gone = || Error::internal(format!("segment {segment} holds a sample and is gone"));
        self.arena.descriptor(segment).ok_or_else(gone)
    }

    /// Objects that left before their bytes had come, since this was last asked.
    pub(crate) fn take_unread(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.unread)
    }

    /// Segments that went since this was last asked.
    pub(crate) fn take_dropped(&mut self) -> Vec<u32> {
        self.arena.take_dropped()
    }

    /// Sets how many bytes segments may take together.
    pub(crate) fn set_limit(&mut self, limit: u64) {
        self.arena.set_limit(limit);
    }

    /// The bytes that segments may take together.
    pub(crate) fn limit(&self) -> u64 {
        self.arena.limit()
    }

    /// Bytes that jobs' caches keep.
    pub(crate) fn kept(&self) -> u64 {
        self.kept
    }

    /// Bytes in memory that no job's cache keeps.
    pub(crate) fn transient(&self) -> u64 {
        self.arena.occupied().saturating_sub(self.kept)
    }

    /// Bytes of samples in memory.
    pub(crate) fn occupied(&self) -> u64 {
        self.arena.occupied()
    }

    /// Bytes in segments, spilled ones included.
    pub(crate) fn total(&self) -> u64 {
        self.arena.total()
    }

    pub(crate) fn segments(&self) -> usize {
        self.arena.segments()
    }

    /// Bytes moved to make room so far.
    pub(crate) fn moved(&self) -> u64 {
        self.arena.moved()
    }
}

#[cfg(feature = "shuttle")]
impl Residency {
    /// All objects.
    pub(crate) fn objects(&self) -> impl Iterator<Item = (u32, &Object)> {
        self.objects.iter().map(|(key, object)| (key as u32, object))
    }

    /// Leases of packing.
    pub(crate) fn lent(&self) -> usize {
        self.lent
    }

    /// Jobs that keep a sample, and slots that wait for it.
    pub(crate) fn claims(&self, dataset: u32, id: Id) -> (u32, u32) {
        let claims = self.tables.get(dataset as usize).map(|table| table.claims(id)).unwrap_or_default();
        (claims.keepers(), claims.slots())
    }

    /// Checks that memory adds up, and that nothing is there that nothing needs.
    pub(crate) fn check(&self) {
        let (mut occupied, mut kept) = self.check_contents();
        let mut of_table = vec![0; self.tables.len()];
        for (key, object) in self.objects() {
            let claims = self.tables[object.dataset as usize].claims(object.id);
            let named = self.object(object.dataset, object.id) == Some(key);
            assert_eq!(named, object.current, "object {key} is current and not in its table, or the reverse");
            let needed = object.holds > 0 || object.leases > 0 || (named && claims.any());
            assert!(needed || object.fill == Fill::Reading, "nothing needs object {key}");
            assert!(object.leases == 0 || object.is_ready(), "object {key} is leased and not whole");
            if object.content.is_none() {
                occupied += object.room();
                kept += if named && claims.keepers() > 0 { object.room() } else { 0 };
            }
            assert!(
                object.content.is_none() || object.is_ready(),
                "object {key} has a content and is not whole"
            );
            of_table[object.dataset as usize] += 1;
        }
        assert_eq!((occupied, kept), (self.occupied(), self.kept), "bytes of objects do not add up");
        assert!(self.tables.iter().map(|table| table.objects).eq(of_table), "objects do not add up");
        assert!(self.unread.is_empty(), "objects left, and fetching was not told");
    }
}
