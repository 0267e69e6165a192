//! From the indices of a request to held objects.
//!
//! A batch is answered in three steps, the last of which is in [`super::leases`]. *Catch up*: slots before the ones asked
//! for are decided, a slice at a time, so that deciding stays in plan order whatever order readers ask in. *Gather*: each
//! index takes its slot and holds its object; reads that were not made ahead are queued. *Grant*: when every object is
//! whole, holds become one lease. If anything fails in between, slots and holds go back as they were.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use hotset_core::run::Outcome;
use hotset_core::schedule::{Schedule, Stage};
use hotset_core::tally::Traffic;
use hotset_core::{Error, Id, Index, Kind, Result};

use crate::fetching::{Cause, Payer};
use crate::jobs::Job;
use crate::rooms::Rooms;
use crate::sessions::{Item, Role};

/// Slots decided in one hold of the lock.
const SLICE: usize = 4096;

/// Batches by which one reader may fall behind another of its rank before its slots are given up: more than
/// workers times prefetched batches in any sensible loader.
const BEHIND: usize = 256;

/// The most ranks a job has; what is kept for each is kept in a list.
pub(crate) const MOST_RANKS: u32 = 1 << 16;

/// What a client asks for, checked against its catalog.
pub(crate) struct Batch {
    pub(crate) client: u64,
    pub(crate) rank: u32,
    pub(crate) samples: Vec<(Option<u64>, Id)>,
    /// The epoch before which they are re-evaluated.
    pub(crate) reevaluation: Option<u64>,
    /// Whether those without an epoch are of the one that the rank has begun.
    pub(crate) matched: bool,
    /// How long after its last batch the client asks for it, if it tells.
    pub(crate) since: Option<Duration>,
}

/// A request for samples.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Which.
    pub indices: &'a [u64],
    /// What for.
    pub purpose: Purpose,
    /// How long ago the client asked for a batch of this job last, as it has measured.
    pub since: Option<Duration>,
}

/// The slots of a batch in a plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) epoch: u64,
    pub(crate) first: usize,
    pub(crate) last: usize,
}

/// The epoch and the slot that each sample of a batch takes; `None` for one that no plan waits for.
pub(crate) type Slots = Vec<Option<(u64, usize)>>;

/// Who asks for a sample: a reader, for the place of it in its batch, or another node.
pub(super) type Asker<'a> = Option<(&'a Batch, usize)>;

/// How far a plan was decided for a batch.
pub(crate) enum CaughtUp {
    /// There is more to do.
    More,
    /// As far as it takes; where the batch lies, if it is of one plan, and the slot of each of its samples.
    To(Option<Place>, Slots),
}

/// What samples are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To be trained as their indices say: by the plan of their epoch, or by none.
    Served,
    /// The same, but indices without an epoch take slots of the epoch that the rank has begun, while there are some:
    /// a wrapper between sampler and dataset has lost their epochs. Without plans: a sampler plans a part of the dataset,
    /// so that the order of the rest says nothing.
    Matched,
    /// To be re-evaluated before an epoch: their reads are counted as `other_reads` of it, and nothing as served.
    Reevaluated(u64),
}

/// What gathering came to.
pub(crate) enum Gathered {
    /// All objects are held; so many are still being read.
    Held(Vec<Item>, usize),
    /// There is no room, and this reader's own spilled batch is still leased.
    NoRoom,
}

impl Batch {
    /// Checks indices against the samples there are.
    pub(crate) fn new(
        client: u64,
        rank: u32,
        Asked { indices, purpose, since }: Asked<'_>,
        samples: usize,
    ) -> Result<Self> {
        if rank >= MOST_RANKS {
            return Err(Error::invalid(format!("rank {rank} is impossible: `rank` lies below {MOST_RANKS}")));
        }
        let reevaluation = match purpose {
            Purpose::Served | Purpose::Matched => None,
            Purpose::Reevaluated(epoch) => Some(epoch),
        };
        let check = |&raw: &u64| {
            let index = Index::from_raw(raw);
            if index.sample >= samples as u64 {
                return Err(Error::invalid(format!(
                    "index `{}` is out of range: the dataset has {samples} samples, 0 to {}",
                    index.sample,
                    samples.saturating_sub(1)
                )));
            }
            Ok((index.epoch.filter(|_| reevaluation.is_none()), index.sample as Id))
        };
        let samples = indices.iter().map(check).collect::<Result<_>>()?;
        Ok(Self { client, rank, samples, reevaluation, matched: purpose == Purpose::Matched, since })
    }
}

impl Job {
    /// Decides what comes before the slots asked for.
    pub(crate) fn catch_up(&mut self, rooms: &mut Rooms, batch: &Batch) -> Result<CaughtUp> {
        self.window.note_batch(batch.samples.len());
        // Nearly always one epoch: the first and the last slot asked for of each.
        let mut spans: Vec<(u64, usize, usize)> = Vec::new();
        let slots = self.slots_of(batch)?;
        for &(epoch, slot) in slots.iter().flatten() {
            match spans.iter_mut().find(|span| span.0 == epoch) {
                Some(span) => (span.1, span.2) = (span.1.min(slot), span.2.max(slot)),
                None => spans.push((epoch, slot, slot)),
            }
        }
        let mut left = SLICE;
        for &(epoch, first, last) in &spans {
            self.nodes.visitors.reach(epoch, last);
            self.note_reach(epoch, last);
            if self.decide_until(rooms, epoch, last, &mut left)? {
                return Ok(CaughtUp::More);
            }
            self.overtake(rooms, epoch, first)?;
        }
        let [(epoch, first, last)] = spans[..] else { return Ok(CaughtUp::To(None, slots)) };
        Ok(CaughtUp::To(Some(Place { epoch, first, last }), slots))
    }

    /// Notes that `slots` were trained, and so were served, by the server before if not by this one. Those are decided as
    /// they were there, and wait for nothing any more. True when there is more to do.
    pub(crate) fn served_before(&mut self, rooms: &mut Rooms, epoch: u64, slots: &[usize]) -> Result<bool> {
        let Some(&last) = slots.iter().max() else { return Ok(false) };
        if self.decide_until(rooms, epoch, last, &mut { SLICE })? {
            return Ok(true);
        }
        let decided = self.run.served_before(epoch, slots);
        self.let_go_of(rooms, epoch, &decided)?;
        Ok(false)
    }

    /// The slot that each index of a request takes; `None` for one that no plan waits for.
    fn slots_of(&self, batch: &Batch) -> Result<Slots> {
        if self.planner.is_none() {
            return Ok(vec![None; batch.samples.len()]);
        }
        let begun = self.ranks.begun_by(batch.rank);
        let of = |epoch: Option<u64>| epoch.or(begun.filter(|_| batch.matched));
        // Looked up once for all that are of the same epoch.
        let mut current: Option<(u64, Option<&Schedule>)> = None;
        // How often each sample was asked for so far, where a plan repeats some.
        let mut asked: HashMap<(u64, Id), usize> = HashMap::new();
        let whole = self.whole_run(batch, begun, of);
        let mut slots = Vec::with_capacity(batch.samples.len());
        for (offset, &(epoch, id)) in batch.samples.iter().enumerate() {
            let Some(epoch) = of(epoch) else {
                slots.push(None);
                continue;
            };
            if current.is_none_or(|(other, _)| other != epoch) {
                if begun < Some(epoch) {
                    return Err(Error::new(
                        Kind::Lost,
                        format!("rank {} has not begun epoch {epoch} of job `{}`", batch.rank, self.name()),
                    ));
                }
                current = Some((epoch, self.run.schedule(epoch)));
            }
            // A straggler of an epoch that its rank has left is served beside the plan.
            let Some((_, Some(schedule))) = current else {
                slots.push(None);
                continue;
            };
            let slot = match whole {
                Some(from) => Some(schedule.plan().slot(batch.rank, from + offset)),
                None if schedule.repeats() => {
                    let before = asked.entry((epoch, id)).or_default();
                    *before += 1;
                    schedule.find_after(batch.rank, id, *before - 1)
                }
                None => schedule.find(batch.rank, id),
            };
            slots.push(slot.map(|slot| (epoch, slot)));
        }
        Ok(slots)
    }

    /// Where the slots of a whole request lie, if its plan repeats samples: the position of its rank at which they begin.
    /// Its ids alone do not say whether a slot before them was served by a server that is gone.
    fn whole_run(
        &self,
        batch: &Batch,
        begun: Option<u64>,
        of: impl Fn(Option<u64>) -> Option<u64>,
    ) -> Option<usize> {
        let epoch = of(batch.samples.first()?.0)?;
        let schedule = self.run.schedule(epoch).filter(|schedule| schedule.repeats())?;
        let same = batch.samples.iter().all(|&(other, _)| of(other) == Some(epoch));
        let ids: Vec<Id> = batch.samples.iter().map(|&(_, id)| id).collect();
        if same && begun >= Some(epoch) { schedule.run(batch.rank, &ids) } else { None }
    }

    /// Gives up slots that lie far behind what is asked for now.
    fn overtake(&mut self, rooms: &mut Rooms, epoch: u64, slot: usize) -> Result<()> {
        let margin = BEHIND * self.window.largest_batch();
        let mut decided = Vec::new();
        let count = self.run.overtake(epoch, slot, margin, &mut decided);
        if count > 0 {
            self.abandon(rooms, epoch, count, &decided)?;
        }
        Ok(())
    }

    /// Takes the slots and holds the objects of a request; its `slots` are known if nothing has happened since.
    pub(crate) fn gather(
        &mut self,
        rooms: &mut Rooms,
        batch: &Batch,
        slots: Option<Slots>,
    ) -> Result<Gathered> {
        let slots = match slots {
            Some(slots) => slots,
            None => self.slots_of(batch)?,
        };
        let mut items = Vec::with_capacity(batch.samples.len());
        for (position, (&(_, id), slot)) in batch.samples.iter().zip(slots).enumerate() {
            let item = match slot {
                Some((epoch, slot)) => self.take(rooms, Some((batch, position)), (epoch, slot, id)),
                None => self.hold_unplanned(rooms, batch, position, id),
            };
            match item {
                Ok(Some(item)) => items.push(item),
                Ok(None) => {
                    self.give_back(rooms, &items);
                    return Ok(Gathered::NoRoom);
                }
                Err(error) => {
                    self.give_back(rooms, &items);
                    return Err(error);
                }
            }
        }
        let missing = items.iter().filter(|item| !rooms.residency().get(item.object).is_ready()).count();
        Ok(Gathered::Held(items, missing))
    }

    /// Takes a decided slot. Its claim on the sample's bytes, if it has one, becomes the reader's hold on the object.
    pub(super) fn take(
        &mut self,
        rooms: &mut Rooms,
        asker: Asker<'_>,
        (epoch, slot, id): (u64, usize, Id),
    ) -> Result<Option<Item>> {
        let schedule = self.schedule(epoch)?;
        let (mut before, outcome, generation) =
            (schedule.stage(slot), schedule.outcome(slot), schedule.generation());
        let elsewhere = !schedule.owns(slot);
        // The same sample twice in a batch, of which the plan serves one.
        if let (Stage::Taken, Some((batch, position))) = (before, asker) {
            return self.hold_unplanned(rooms, batch, position, id);
        }
        if elsewhere {
            return self.take_visitor(rooms, asker, (epoch, slot, id));
        }
        let unread = match before {
            Stage::Unread => Some((epoch, slot)),
            // An earlier slot of the same sample has its read, and another rank's is asked for first.
            _ => self.unread(id),
        };
        if let Some((other_epoch, other)) = unread {
            let expect =
                |job: &mut Self, rooms: &mut Rooms, payer| job.expect_now(rooms, asker, id, payer, false);
            if !self.read_late(rooms, (other_epoch, other, id), expect)? {
                return Ok(None);
            }
            before = self.schedule(epoch)?.stage(slot);
        }
        let found = rooms.residency().object(self.dataset.key, id);
        let copy =
            if outcome == Some(Outcome::Hit) { self.take_copy(rooms, (epoch, slot, id)) } else { None };
        let object = match copy.or(found) {
            Some(object) => {
                rooms.fetching_mut().hurry(object);
                object
            }
            None => {
                // A slot that was never decided is read for itself; of others the bytes were lost.
                let cause = if outcome.is_none() { Cause::Planned } else { Cause::Recovery };
                let payer = self.payer(epoch, cause);
                let Some(object) = self.expect_now(rooms, asker, id, payer, false)? else {
                    return Ok(None);
                };
                rooms.fetching_mut().enqueue(vec![object], true);
                object
            }
        };
        if outcome.is_none() {
            self.run.settle(epoch, slot, found.is_some());
        }
        self.run.take(epoch, slot);
        if copy.is_none() {
            rooms.hold(object, true);
        }
        // What is kept is held beside a copy, which may not come.
        let original = copy.and(found);
        original.into_iter().for_each(|object| rooms.hold(object, true));
        if before == Stage::Waiting {
            rooms.claim(&self.dataset, id, false);
        }
        let role = Role::Planned { epoch, slot, before, generation };
        Ok(Some(Item { id, object, apart: copy.is_some(), original, visits: false, role }))
    }

    /// Holds a sample that no plan asks for.
    fn hold_unplanned(
        &mut self,
        rooms: &mut Rooms,
        batch: &Batch,
        position: usize,
        id: Id,
    ) -> Result<Option<Item>> {
        let kept = self.planner.is_none();
        if kept {
            for (id, keeps) in rooms.cache_mut(self.serial)?.access(id) {
                rooms.keep(&self.dataset, id, keeps);
            }
        }
        // What is read to be re-evaluated is read unless it is kept, whatever lingers.
        let counts = rooms.cache(self.serial)?.keeps(id) || batch.reevaluation.is_none();
        let found = rooms.residency().object(self.dataset.key, id).filter(|_| counts);
        let unread = batch.reevaluation.filter(|&epoch| self.ranks.is_unread(epoch, id));
        let object = match found {
            Some(object) => {
                if let Some(epoch) = unread {
                    let traffic = Traffic { reads: 1, requests: 1, bytes: self.dataset.size(id) };
                    self.run.tally_mut().joined(Some(epoch), traffic);
                }
                rooms.fetching_mut().hurry(object);
                object
            }
            None => {
                let cause = match (batch.reevaluation, unread) {
                    (None, _) => Cause::Unplanned,
                    (Some(_), Some(_)) => Cause::Planned,
                    (Some(_), None) => Cause::Recovery,
                };
                let payer = Payer { job: self.serial, epoch: batch.reevaluation, cause };
                let asker = Some((batch, position));
                let Some(object) = self.expect_now(rooms, asker, id, payer, false)? else {
                    return Ok(None);
                };
                rooms.fetching_mut().enqueue(vec![object], true);
                object
            }
        };
        if unread.is_some() {
            self.ranks.reads(id);
        }
        rooms.hold(object, true);
        let hit = found.is_some();
        let role = match batch.reevaluation {
            Some(_) => Role::Reevaluated,
            None if kept => Role::Kept { hit },
            None => Role::Unplanned { hit },
        };
        Ok(Some(Item { id, object, apart: false, original: None, visits: false, role }))
    }

    /// Makes an object for a read that a reader waits for, to be queued; one that no table names if it is to be `apart`.
    /// Without room in the arena the rest of the batch goes into a segment of its own, one for each reader at a time.
    pub(super) fn expect_now(
        &mut self,
        rooms: &mut Rooms,
        asker: Asker<'_>,
        id: Id,
        payer: Payer,
        apart: bool,
    ) -> Result<Option<u32>> {
        let dataset = &self.dataset;
        let expect = |rooms: &mut Rooms, spill| match apart {
            true => rooms.expect_apart(dataset, id, payer, spill),
            false => rooms.expect(dataset, id, payer, spill),
        };
        let Some((batch, position)) = asker else { return expect(rooms, None) };
        if let Some(object) = expect(rooms, None)? {
            return Ok(Some(object));
        }
        if let Some(segment) = rooms.sessions().spill_of(batch.client) {
            return expect(rooms, Some(segment));
        }
        let sizes = batch.samples[position..].iter().map(|&(_, id)| dataset.size(id));
        let segment = rooms.spill(batch.client, sizes)?;
        self.run.tally_mut().spilled(payer.epoch);
        expect(rooms, Some(segment))
    }

    /// Undoes a gathering.
    pub(crate) fn give_back(&mut self, rooms: &mut Rooms, items: &[Item]) {
        for item in items {
            if let Role::Planned { epoch, slot, before, generation } = item.role {
                if item.visits {
                    let same = self.same_schedule(epoch, generation).is_some();
                    if same {
                        self.run.give_back(epoch, slot, before);
                    }
                    self.give_back_visitor(rooms, item, same.then_some((epoch, slot)));
                    continue;
                }
                if self.same_schedule(epoch, generation).is_some() {
                    self.run.give_back(epoch, slot, before);
                    // Before the reader's hold goes, so that the bytes stay.
                    if before == Stage::Waiting {
                        rooms.claim(&self.dataset, item.id, true);
                    }
                } else if before == Stage::Waiting {
                    // It will not be served any more: it leaves the window here.
                    self.window.leave(self.dataset.size(item.id));
                }
            }
            rooms.let_go(item);
        }
    }

    /// Whether a batch will find no room, whatever others let go of, because of what its own reader leases. A reader asks
    /// for one thing at a time, so what it leases it still leases when its wait is over.
    pub(crate) fn is_cornered(&self, rooms: &Rooms, batch: &Batch) -> bool {
        let residency = rooms.residency();
        let own = rooms.sessions().leased_by(batch.client);
        if own.is_empty() {
            return false;
        }
        let leased = residency.unkept(&own);
        let absent = |&id: &Id| residency.object(self.dataset.key, id).is_none();
        let missing: HashSet<Id> = batch.samples.iter().map(|&(_, id)| id).filter(absent).collect();
        let need: u64 = missing.iter().map(|&id| self.dataset.size(id)).sum();
        residency.kept() + leased + need > residency.limit()
    }
}
