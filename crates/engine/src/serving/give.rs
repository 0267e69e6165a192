//! What other nodes ask for: slots of their ranks whose samples this node owns.
//!
//! A question is answered as a batch is, in the same steps: slots before the ones asked for are decided, those are taken and
//! their objects held, and when their bytes are there they are handed out. They are looked at without the lock, under a
//! lease. Nothing here waits for another node: what this node owns it reads from storage.
//!
//! What was asked for and not given in time is read by whoever asked, and is left here: it holds neither window nor memory.

use std::collections::BTreeMap;

use hotset_core::cluster::Wanted;
use hotset_core::schedule::Stage;
use hotset_core::{Id, Result};

use crate::jobs::{Job, Visitors};
use crate::rooms::Rooms;
use crate::sessions::{Item, Role};

/// Positions by which a rank of another node may fall behind what is asked for it before its slots are given up: twice as many
/// as nodes ask ahead, and those that so many questions span. Several questions are under way at a time, and may come in any
/// order. The first counts while it is not known how large batches are.
const BEHIND: usize = 1 << 14;
const QUESTIONS: usize = 8;

/// Positions beyond the furthest that any rank has come to that may be asked for, at least and in batches; the first while it is
/// not known how large batches are.
const UNKNOWN: usize = 1 << 16;
const AHEAD: usize = 4096;
const BATCHES: usize = 64;

/// How a question stands to the plans there are.
pub(crate) enum Known {
    /// Its plan is under way; the schedule's generation.
    Plan(u64),
    /// Its plan may come.
    Later,
    /// Its owners are those of another view.
    Stale,
    /// It is of no plan that is, or will be.
    Unknown,
}

/// A slot that another node asks for.
pub(crate) struct Taken {
    /// What is held for it; `None` if it is not given.
    pub(crate) item: Option<Item>,
    /// Whether its bytes were there.
    pub(crate) hit: bool,
}

impl Job {
    /// Whether a question is of a plan that is under way here.
    pub(crate) fn knows(&self, wanted: &Wanted) -> Known {
        let Some(schedule) = self.run.schedule(wanted.epoch) else {
            let newest = self.run.schedules().keys().next_back().copied().max(self.ranks.newest());
            return if newest < Some(wanted.epoch) { Known::Later } else { Known::Unknown };
        };
        match schedule.layout() {
            // Another plan of the epoch may be on its way here, where training has gone back or goes on with other ranks.
            Some(layout) if layout.digest() != wanted.plan && self.nodes.role().is_follower() => Known::Later,
            Some(layout) if layout.digest() != wanted.plan => Known::Unknown,
            Some(layout) if layout.view().id() != wanted.view => Known::Stale,
            Some(_) => Known::Plan(schedule.generation()),
            None => Known::Unknown,
        }
    }

    /// Leaves the slots behind that ranks of another node have passed, by the slots that are asked for now.
    pub(crate) fn overtake_for_node(&mut self, rooms: &mut Rooms, epoch: u64, slots: &[usize]) -> Result<()> {
        let batch = self.window.largest_batch();
        let behind = if batch > 1 { 2 * Visitors::ahead(1, batch) } else { BEHIND };
        let margin = behind.max(QUESTIONS * self.nodes.reach.span());
        for slot in self.first_of_ranks(epoch, slots)? {
            let mut decided = Vec::new();
            let count = self.run.overtake(epoch, slot, margin, &mut decided);
            if count > 0 {
                self.abandon(rooms, epoch, count, &decided)?;
            }
        }
        Ok(())
    }

    /// The first of these slots of each rank.
    fn first_of_ranks(&mut self, epoch: u64, slots: &[usize]) -> Result<Vec<usize>> {
        let world = self.schedule(epoch)?.plan().world() as usize;
        let mut ranks: Vec<(usize, usize)> = slots.iter().map(|&slot| (slot % world, slot)).collect();
        ranks.sort_unstable();
        ranks.dedup_by_key(|(rank, _)| *rank);
        Ok(ranks.into_iter().map(|(_, slot)| slot).collect())
    }

    /// Whether another node may ask for a slot: this one owns its sample, its rank has not begun here, and it lies not further
    /// ahead than a node would ask that goes with the others. So no node can end an epoch for the ranks of another.
    pub(crate) fn may_be_asked(&self, epoch: u64, slot: usize) -> bool {
        let Some(schedule) = self.run.schedule(epoch).filter(|schedule| slot < schedule.plan().len()) else {
            return false;
        };
        let world = schedule.plan().world() as usize;
        let (rank, position) = ((slot % world) as u32, slot / world);
        let batch = self.window.largest_batch();
        let ahead = if batch > 1 { AHEAD.max(BATCHES * batch) } else { UNKNOWN };
        let is_here = schedule.begun_by(rank) && !schedule.is_away(rank);
        schedule.owns(slot) && !is_here && position <= self.nodes.reach.furthest(epoch).saturating_add(ahead)
    }

    /// Notes how far the ranks are for which slots of a question are asked.
    pub(crate) fn note_question(&mut self, epoch: u64, slots: &[usize]) -> Result<()> {
        let world = self.schedule(epoch)?.plan().world() as usize;
        let mut ranks: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
        for &slot in slots {
            let (first, last) = ranks.entry(slot % world).or_insert((slot / world, slot / world));
            (*first, *last) = ((*first).min(slot / world), (*last).max(slot / world));
        }
        for (rank, (first, last)) in ranks {
            self.nodes.reach.note_span(last - first);
            self.nodes.reach.ask(epoch, rank as u32, last);
        }
        Ok(())
    }

    /// Notes how far a rank of this node is.
    pub(super) fn note_reach(&mut self, epoch: u64, slot: usize) {
        if let Some(schedule) = self.run.schedule(epoch).filter(|schedule| schedule.layout().is_some()) {
            let world = schedule.plan().world() as usize;
            self.nodes.reach.ask(epoch, (slot % world) as u32, slot / world);
        }
    }

    /// Whether a slot is of a rank of another node that is silent.
    pub(super) fn is_silent(&self, epoch: u64, slot: usize) -> bool {
        if self.nodes.role().is_alone() {
            return false;
        }
        let Some(schedule) = self.run.schedule(epoch) else { return false };
        let rank = (slot % schedule.plan().world() as usize) as u32;
        schedule.is_away(rank) && self.nodes.reach.is_silent(epoch, rank, self.window.largest_batch())
    }

    /// Ranks of other nodes that are silent hold nothing any more; whether one did.
    pub(super) fn empty_silent(&mut self, rooms: &mut Rooms) -> Result<bool> {
        let worlds = self.run.schedules().iter().filter(|(_, schedule)| schedule.layout().is_some());
        let worlds: Vec<(u64, u32)> = worlds.map(|(&epoch, of)| (epoch, of.plan().world())).collect();
        let mut any = false;
        for (epoch, rank) in
            worlds.into_iter().flat_map(|(epoch, world)| (0..world).map(move |rank| (epoch, rank)))
        {
            if !self.is_silent(epoch, rank as usize) || !self.nodes.reach.empty(epoch, rank) {
                continue;
            }
            let schedule = self.schedule(epoch)?;
            let ids: Vec<Id> = schedule.stop_waiting(rank).iter().map(|&slot| schedule.id(slot)).collect();
            for id in ids {
                any = true;
                self.window.leave(self.dataset.size(id));
                rooms.claim(&self.dataset, id, false);
            }
        }
        Ok(any)
    }

    /// Slots that another node has asked for and was not given: it reads them itself.
    pub(crate) fn leave_asked(&mut self, rooms: &mut Rooms, epoch: u64, slots: &[usize]) -> Result<()> {
        let slots: Vec<usize> =
            slots.iter().copied().filter(|&slot| self.may_be_asked(epoch, slot)).collect();
        let mut decided = Vec::new();
        let count = self.run.leave(epoch, &slots, &mut decided);
        self.abandon(rooms, epoch, count, &decided)
    }

    /// Takes decided slots for another node, and holds their objects.
    pub(crate) fn take_for_node(
        &mut self,
        rooms: &mut Rooms,
        epoch: u64,
        slots: &[usize],
    ) -> Result<Vec<Taken>> {
        let mut all = Vec::with_capacity(slots.len());
        for &slot in slots {
            let taken = match self.take_one_for_node(rooms, epoch, slot) {
                Ok(item) => item,
                Err(error) => {
                    let items: Vec<Item> = all.into_iter().filter_map(|taken: Taken| taken.item).collect();
                    self.give_back(rooms, &items);
                    return Err(error);
                }
            };
            let is_whole = |item: &Item| rooms.residency().get(item.object).is_whole();
            all.push(Taken { hit: taken.as_ref().is_some_and(is_whole), item: taken });
        }
        Ok(all)
    }

    fn take_one_for_node(&mut self, rooms: &mut Rooms, epoch: u64, slot: usize) -> Result<Option<Item>> {
        if !self.may_be_asked(epoch, slot) {
            return Ok(None);
        }
        let schedule = self.schedule(epoch)?;
        let (id, stage) = (schedule.id(slot), schedule.stage(slot));
        match stage {
            // It was given, and is asked for once more: its rank has begun the epoch over, or it has not come.
            Stage::Served => self.run.take_back(epoch, slot),
            Stage::Left | Stage::Taken => return Ok(self.hold_beside(rooms, id)),
            _ => {}
        }
        self.take(rooms, None, (epoch, slot, id))
    }

    /// Holds a sample for a slot that was left, or that is being given, if it is here.
    fn hold_beside(&self, rooms: &mut Rooms, id: Id) -> Option<Item> {
        let object = rooms.residency().object(self.dataset.key, id)?;
        if !rooms.residency().get(object).is_whole() {
            return None;
        }
        rooms.hold(object, true);
        Some(Item { id, object, apart: false, original: None, visits: false, role: Role::Repeated })
    }

    /// Counts the servings of what is leased to be handed out, and lets go of it; packing gets its part of it.
    pub(crate) fn given(&mut self, rooms: &mut Rooms, items: &[Item]) {
        items.chunk_by(|one, next| one.plan() == next.plan()).for_each(|items| self.count(items, true));
        self.lend_to_packing(rooms, items);
        items.iter().for_each(|item| rooms.let_go(item));
        self.window.set_behind(true);
    }
}
