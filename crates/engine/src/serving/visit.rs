//! Slots of this node's ranks that other nodes decide: their owners are asked, ahead of need or at need.

use std::collections::BTreeMap;
use std::sync::Arc;

use hotset_core::schedule::Stage;
use hotset_core::{Id, Result};

use super::decide::Budget;
use super::gather::Asker;
use crate::fetching::{Cause, MOST_BYTES, MOST_SLOTS, Question};
use crate::jobs::{Job, Visitors};
use crate::rooms::Rooms;
use crate::sessions::{Item, Role};

impl Job {
    /// A slot was decided that another node owns. One of a rank of this node is noted, so that its owner is asked; another
    /// is nothing here.
    pub(super) fn pass(&mut self, epoch: u64, slot: usize) -> Result<()> {
        let schedule = self.schedule(epoch)?;
        let rank = (slot % schedule.plan().world() as usize) as u32;
        // Where a plan lies over nodes without a server's doing, all ranks are here.
        if schedule.is_away(rank) {
            self.run.pass(epoch, slot);
        } else {
            self.nodes.visitors.note(epoch, slot);
        }
        Ok(())
    }

    /// Asks other nodes for what ranks of this one want soon, as far as there is memory.
    pub(super) fn ask_ahead(&mut self, rooms: &mut Rooms, budget: Budget) -> Result<()> {
        if !self.opened.request.prefetch || self.nodes.role().is_alone() {
            return Ok(());
        }
        let mut questions: BTreeMap<(u64, usize), Vec<(u32, usize)>> = BTreeMap::new();
        loop {
            let world = self.run.schedules().values().map(|schedule| schedule.plan().world()).max();
            let ahead = Visitors::ahead(world.unwrap_or(1), self.window.largest_batch());
            let length = |epoch| self.run.schedule(epoch).map_or(0, |schedule| schedule.plan().len());
            let Some((epoch, slot)) = self.nodes.visitors.next(ahead, length) else { break };
            // Taken, left or gone meanwhile.
            let schedule = self.run.schedule(epoch).filter(|schedule| schedule.stage(slot) == Stage::Unread);
            let Some(schedule) = schedule else {
                self.nodes.visitors.take(epoch, slot);
                continue;
            };
            let (id, owner) =
                (schedule.id(slot), schedule.ownership().and_then(|of| of.owner(schedule.id(slot))));
            let size = self.dataset.size(id);
            if rooms.residency().transient() + size > budget.transient {
                break;
            }
            let payer = self.payer(epoch, cause_of(owner));
            let Some(object) = rooms.expect_apart(&self.dataset, id, payer, None)? else { break };
            rooms.hold(object, true);
            self.window.enter(size);
            self.nodes.visitors.asked((epoch, slot), object, size);
            match owner {
                Some(owner) => questions.entry((epoch, owner)).or_default().push((object, slot)),
                None => rooms.fetching_mut().enqueue(vec![object], false),
            }
        }
        for ((epoch, owner), slots) in questions {
            self.ask(rooms, (epoch, owner), &slots, false)?;
        }
        Ok(())
    }

    /// Puts questions to the owner of slots, whose objects are expected: no larger than can come at once.
    fn ask(
        &mut self,
        rooms: &mut Rooms,
        (epoch, owner): (u64, usize),
        slots: &[(u32, usize)],
        urgent: bool,
    ) -> Result<()> {
        let (cluster, wait) = self.nodes.cluster()?;
        let layout = self.schedule(epoch)?.layout().cloned();
        let layout =
            layout.ok_or_else(|| hotset_core::Error::internal("a plan lies over nodes without a layout"))?;
        let mut rest = slots;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |&&(object, _): &&(u32, usize)| {
                bytes += rooms.residency().get(object).length();
                bytes <= MOST_BYTES
            };
            let together = rest.iter().take(MOST_SLOTS).take_while(fits).count().max(1);
            let (now, later) = rest.split_at(together);
            rest = later;
            let slots = now.iter().map(|&(object, slot)| (object, slot as u32)).collect();
            let (cluster, layout, job) = (Arc::clone(&cluster), Arc::clone(&layout), self.name().to_owned());
            let question = Question { cluster, wait, layout, owner, job, epoch, slots };
            rooms.fetching_mut().enqueue_question(question, urgent);
        }
        Ok(())
    }

    /// Takes a slot that another node decides: what came of it, or a question that its reader waits for.
    pub(super) fn take_visitor(
        &mut self,
        rooms: &mut Rooms,
        asker: Asker<'_>,
        (epoch, slot, id): (u64, usize, Id),
    ) -> Result<Option<Item>> {
        let schedule = self.schedule(epoch)?;
        let (before, generation) = (schedule.stage(slot), schedule.generation());
        let owner = schedule.ownership().and_then(|of| of.owner(id));
        let object = match self.nodes.visitors.take(epoch, slot) {
            Some((object, bytes)) => {
                self.window.leave(bytes);
                rooms.fetching_mut().hurry(object);
                object
            }
            None => {
                let payer = self.payer(epoch, cause_of(owner));
                let Some(object) = self.expect_now(rooms, asker, id, payer, true)? else { return Ok(None) };
                rooms.hold(object, true);
                match owner {
                    Some(owner) => self.ask(rooms, (epoch, owner), &[(object, slot)], true)?,
                    None => rooms.fetching_mut().enqueue(vec![object], true),
                }
                object
            }
        };
        self.run.settle(epoch, slot, false);
        self.run.take(epoch, slot);
        let role = Role::Planned { epoch, slot, before, generation };
        Ok(Some(Item { id, object, apart: false, original: None, visits: true, role }))
    }

    /// A reader gives back what visits: the slot has it again, unless it will not come.
    pub(super) fn give_back_visitor(&mut self, rooms: &mut Rooms, item: &Item, at: Option<(u64, usize)>) {
        let object = rooms.residency().get(item.object);
        let comes = !object.is_ready() || object.is_whole();
        match at.filter(|_| comes) {
            Some(at) => {
                let bytes = self.dataset.size(item.id);
                self.window.enter(bytes);
                self.nodes.visitors.asked(at, item.object, bytes);
            }
            None => rooms.hold(item.object, false),
        }
    }

    /// Lets go of what visits for a slot that will not be served.
    pub(super) fn forget_visitor(&mut self, rooms: &mut Rooms, epoch: u64, slot: usize) {
        if let Some((object, bytes)) = self.nodes.visitors.take(epoch, slot) {
            self.window.leave(bytes);
            rooms.hold(object, false);
        }
    }

    /// A rank, or any of them, is on another node than was thought: what was asked for it is let go of.
    pub(crate) fn pass_visitors(&mut self, rooms: &mut Rooms, epoch: u64, rank: Option<u32>) -> Result<()> {
        let world = self.schedule(epoch)?.plan().world() as usize;
        for slot in self.nodes.visitors.of(epoch) {
            let schedule = self.schedule(epoch)?;
            if rank.is_none_or(|rank| slot % world == rank as usize) && schedule.stage(slot) == Stage::Unread
            {
                self.forget_visitor(rooms, epoch, slot);
                self.run.pass(epoch, slot);
            }
        }
        Ok(())
    }

    /// What visits could not be read from storage either. It is asked for again when its slot is.
    pub(crate) fn lose_visitor(&mut self, rooms: &mut Rooms, object: u32) {
        if let Some(bytes) = self.nodes.visitors.lose(object) {
            self.window.leave(bytes);
            rooms.hold(object, false);
        }
    }
}

/// What a slot is read as that this node does not decide. Where no node owns a sample nobody counts its read.
fn cause_of(owner: Option<usize>) -> Cause {
    if owner.is_some() { Cause::Asked } else { Cause::Recovery }
}
