//! Deciding slots in plan order, and reading ahead along them.
//!
//! Two layers meet here. The *logical* layer is a job's run: its policy is asked once a slot in plan order, and what
//! that brings about comes as changes. The *bytes* are objects in the arena. What a policy evicts lets go of its object
//! at once. What the plan reads is read: bytes of the same job that happen to linger (still leased, or waiting for an
//! earlier slot) are not used for it, or what storage sees would depend on timing. Bytes that another job keeps, or is
//! reading, are shared: the read is joined. What the plan counts on and is not there is read all the same, as recovery.
//! Either way the plan's counts are those of its decisions.

use std::ops::Range;

use hotset_core::run::{Change, Outcome};
use hotset_core::schedule::Stage;
use hotset_core::tally::Traffic;
use hotset_core::{Id, Result};

use crate::fetching::{Cause, Origin, Payer};
use crate::jobs::{Job, PackageSource};
use crate::rooms::Rooms;

/// Slots decided in one hold of the lock.
pub(super) const DECISIONS: usize = 512;

/// Positions of each rank before what another node asks for that are read ahead with it.
const NEAR: usize = 256;

/// How far a job may read ahead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    /// The bytes of its window.
    pub(crate) window: u64,
    /// The bytes of all jobs that no cache keeps.
    pub(crate) transient: u64,
}

/// What was done about the read of a slot.
#[derive(Debug, Clone, Copy)]
enum Read {
    /// An object was made for it.
    Made(u32),
    /// Another job has its bytes, or reads them.
    Joined,
    /// It is read when it is asked for.
    Later,
}

/// What deciding a block fills and empties again, kept from block to block.
#[derive(Default)]
pub(crate) struct Buffers {
    changes: Vec<Change>,
    /// What was done about the reads of the block, by slot.
    reads: Vec<(usize, Read)>,
}

impl Job {
    /// Decides the next block of slots, and queues its reads if `fetch`: how many slots, and whether all reads found
    /// room. One that did not is decided all the same, and is read when it is asked for.
    pub(crate) fn decide(
        &mut self,
        rooms: &mut Rooms,
        fetch: bool,
        buffers: &mut Buffers,
    ) -> Result<(usize, bool)> {
        let next = self.run.next_block();
        self.decide_block(rooms, next, fetch, buffers)
    }

    /// Decides an epoch as far as slot `last`, for another node, but not many more than `left` slots. Those that lie near the
    /// `first` are read as far as there is memory, whatever its own window: another node is ahead of this one. Those far
    /// behind it may have been served long ago. True when there is more to do.
    pub(crate) fn decide_for_node(
        &mut self,
        rooms: &mut Rooms,
        (epoch, (first, last)): (u64, (usize, usize)),
        transient: u64,
        left: &mut usize,
    ) -> Result<bool> {
        let mut buffers = Buffers::default();
        while let Some(schedule) = self.run.schedule(epoch).filter(|schedule| schedule.frontier() <= last) {
            if *left == 0 {
                return Ok(true);
            }
            let near = schedule.frontier().saturating_add(NEAR * schedule.plan().world() as usize) >= first;
            let fetch = near && self.opened.request.prefetch && rooms.residency().transient() < transient;
            let (decided, _) = self.decide(rooms, fetch, &mut buffers)?;
            *left = left.saturating_sub(decided);
            if decided == 0 {
                break;
            }
        }
        Ok(false)
    }

    /// The same where it is known which block comes next.
    fn decide_block(
        &mut self,
        rooms: &mut Rooms,
        mut next: Option<(u64, Range<usize>)>,
        fetch: bool,
        buffers: &mut Buffers,
    ) -> Result<(usize, bool)> {
        let cache = rooms.cache_mut(self.serial)?;
        while let Some(at) = next {
            next = self.run.step_at(at, cache, &mut buffers.changes);
        }
        self.carry_out(rooms, fetch, buffers)
    }

    /// Carries out what was decided, in that order.
    fn carry_out(&mut self, rooms: &mut Rooms, fetch: bool, buffers: &mut Buffers) -> Result<(usize, bool)> {
        let (Buffers { changes, reads }, mut decided, mut room) = (buffers, 0, true);
        reads.clear();
        // What the policy has decided is carried out to its end, or memory would not agree with it.
        let mut outcome = Ok(());
        for change in changes.drain(..) {
            let done = match change {
                Change::Evicted(id) => {
                    rooms.keep(&self.dataset, id, false);
                    Ok(())
                }
                Change::Loaded { epoch, package, kept } => self.load(rooms, epoch, package, kept, fetch),
                Change::Decided { epoch, slot, id, outcome, admitted } => {
                    decided += 1;
                    self.decided(rooms, (epoch, slot, id), outcome, admitted, fetch).map(|read| {
                        room &= !fetch || !matches!(read, Some(Read::Later));
                        reads.extend(read.map(|read| (slot, read)));
                    })
                }
                // The reads of one block are all that come before it.
                Change::Requested { epoch, slots, bytes } => self.request(rooms, epoch, &slots, bytes, reads),
            };
            outcome = outcome.and(done);
        }
        outcome.map(|()| (decided, room))
    }

    /// Decides an epoch as far as slot `last`, but not many more than `left` slots. True when there is more to do.
    pub(super) fn decide_until(
        &mut self,
        rooms: &mut Rooms,
        epoch: u64,
        last: usize,
        left: &mut usize,
    ) -> Result<bool> {
        let mut buffers = Buffers::default();
        while self.run.schedule(epoch).is_some_and(|schedule| schedule.frontier() <= last) {
            if *left == 0 {
                return Ok(true);
            }
            let (decided, _) = self.decide(rooms, false, &mut buffers)?;
            *left = left.saturating_sub(decided);
            if decided == 0 {
                break;
            }
        }
        Ok(false)
    }

    /// Whose counters a read of an epoch is charged to.
    pub(crate) fn payer(&self, epoch: u64, cause: Cause) -> Payer {
        Payer { job: self.serial, epoch: Some(epoch), cause }
    }

    /// A slot was decided: claims its bytes, or makes room for them. What was done about its read, where it has one.
    fn decided(
        &mut self,
        rooms: &mut Rooms,
        (epoch, slot, id): (u64, usize, Id),
        outcome: Outcome,
        admitted: bool,
        fetch: bool,
    ) -> Result<Option<Read>> {
        if outcome == Outcome::Elsewhere {
            self.pass(epoch, slot)?;
            return Ok(None);
        }
        let silent = self.is_silent(epoch, slot);
        let fetch = fetch && !silent;
        let present = rooms.residency().object(self.dataset.key, id);
        if outcome == Outcome::Hit && present.is_some() && !admitted && !silent {
            if fetch {
                self.copy_ahead(rooms, (epoch, slot, id));
            }
            self.wait(rooms, epoch, slot, id)?;
            return Ok(None);
        }
        let waits = self.waits_for(id, (epoch, slot));
        // What another job has, waits for or reads is shared, what lingers of our own is not.
        let shared = present.is_some_and(|object| {
            let (residency, dataset) = (rooms.residency(), self.dataset.key);
            let claimed = || residency.is_claimed(dataset, id);
            let read = || rooms.fetching().is_read_for_another(object, self.serial);
            residency.is_kept(dataset, id) || (!waits && (claimed() || read()))
        });
        if admitted {
            rooms.keep(&self.dataset, id, true);
        }
        let read = match outcome {
            Outcome::Hit | Outcome::Packed => {
                // An earlier slot of the same sample may be decided and not read yet.
                if present.is_none() && !waits && fetch {
                    let payer = self.payer(epoch, Cause::Recovery);
                    if let Some(object) = rooms.expect_ahead(&self.dataset, id, payer) {
                        rooms.fetching_mut().enqueue(vec![object], false);
                    }
                }
                if outcome == Outcome::Hit && fetch {
                    self.copy_ahead(rooms, (epoch, slot, id));
                }
                None
            }
            Outcome::Single if shared && !silent => Some(Read::Joined),
            // A slot of the same block that waits for the same sample needs its own bytes.
            Outcome::Single if fetch && !waits => {
                let payer = self.payer(epoch, Cause::Planned);
                Some(rooms.expect_ahead(&self.dataset, id, payer).map_or(Read::Later, Read::Made))
            }
            Outcome::Single => Some(Read::Later),
            // Another node decides it.
            Outcome::Elsewhere => None,
        };
        match read {
            Some(Read::Later) => {}
            _ if silent => self.schedule(epoch)?.see_later(slot),
            _ => self.wait(rooms, epoch, slot, id)?,
        }
        Ok(read)
    }

    /// A decided slot claims its sample's bytes from now on.
    fn wait(&mut self, rooms: &mut Rooms, epoch: u64, slot: usize, id: Id) -> Result<()> {
        self.schedule(epoch)?.wait(slot);
        self.window.enter(self.dataset.size(id));
        rooms.claim(&self.dataset, id, true);
        Ok(())
    }

    /// A plan reads a package now: objects for those of it that are `kept` from now on. A server that catches up with
    /// what another has served reads nothing: what it needs of it is read when it is due.
    fn load(
        &mut self,
        rooms: &mut Rooms,
        epoch: u64,
        package: u32,
        kept: Vec<Id>,
        fetch: bool,
    ) -> Result<()> {
        kept.iter().for_each(|&id| rooms.keep(&self.dataset, id, true));
        let schedule = self.schedule(epoch)?;
        let Some(packages) = schedule.packages().cloned() else { return Ok(()) };
        if schedule.is_restored() && !fetch {
            return Ok(());
        }
        let Some(source) = self.packages.source() else { return Ok(()) };
        let payer = self.payer(epoch, Cause::Planned);
        let mut objects = Vec::with_capacity(kept.len());
        for id in kept {
            if rooms.residency().object(self.dataset.key, id).is_some() {
                continue;
            }
            // Without room it is read when it is asked for.
            let Some(object) = rooms.expect_ahead(&self.dataset, id, payer) else { break };
            objects.push(object);
        }
        if objects.is_empty() {
            let (reads, bytes) = (u64::from(packages.packed(package)), packages.extent(package));
            self.run.tally_mut().joined(Some(epoch), Traffic { reads, requests: 1, bytes });
            return Ok(());
        }
        let origin = match source {
            PackageSource::Store(store) => Origin::Package(package, packages, store.clone()),
            PackageSource::Runs => Origin::Run(package, packages),
        };
        let written = !self.packages.is_making(package);
        rooms.fetching_mut().enqueue_package(origin, objects, written);
        Ok(())
    }

    /// Queues the reads of slots that are one request, those that an object was made for.
    fn request(
        &mut self,
        rooms: &mut Rooms,
        epoch: u64,
        slots: &[usize],
        bytes: u64,
        reads: &[(usize, Read)],
    ) -> Result<()> {
        let (mut objects, mut later, mut joined) = (Vec::new(), Vec::new(), Vec::new());
        for &slot in slots {
            match reads.binary_search_by_key(&slot, |(of, _)| *of).map(|at| reads[at].1) {
                Ok(Read::Made(object)) => objects.push(object),
                Ok(Read::Joined) => joined.push(slot),
                Ok(Read::Later) | Err(_) => later.push(slot),
            }
        }
        if joined.len() == slots.len() {
            let traffic = Traffic { reads: joined.len() as u64, requests: 1, bytes };
            self.run.tally_mut().joined(Some(epoch), traffic);
        } else if !joined.is_empty() {
            let plan = self.schedule(epoch)?.plan().clone();
            let bytes = joined.iter().map(|&slot| self.dataset.size(plan.ids()[slot])).sum();
            let traffic = Traffic { reads: joined.len() as u64, requests: 0, bytes };
            self.run.tally_mut().joined(Some(epoch), traffic);
        }
        if slots.len() > 1 && !later.is_empty() {
            if objects.is_empty() {
                self.window.share(epoch, later);
            } else {
                self.window.leave_out(epoch, &later);
            }
        }
        rooms.fetching_mut().enqueue(objects, false);
        Ok(())
    }

    /// So many slots will not be served, these of them decided: lets go of what they claim.
    pub(crate) fn abandon(
        &mut self,
        rooms: &mut Rooms,
        epoch: u64,
        count: usize,
        decided: &[(usize, Stage)],
    ) -> Result<()> {
        self.run.left(epoch, count, decided);
        let schedule = self.schedule(epoch)?;
        if !schedule.is_restored() {
            let (plan, elsewhere) = (schedule.plan().clone(), schedule.ownership().cloned());
            let elsewhere = |id: Id| elsewhere.as_ref().is_some_and(|of| !of.owns(id));
            for &(slot, _) in decided.iter().filter(|(_, stage)| *stage == Stage::Unread) {
                let id = plan.ids()[slot];
                if elsewhere(id) {
                    continue;
                }
                let requests = u64::from(self.window.shared(epoch, slot).is_none());
                let bytes = self.dataset.size(id);
                self.run.tally_mut().joined(Some(epoch), Traffic { reads: 1, requests, bytes });
            }
        }
        self.let_go_of(rooms, epoch, decided)
    }

    /// Lets go of what decided slots claim.
    pub(super) fn let_go_of(
        &mut self,
        rooms: &mut Rooms,
        epoch: u64,
        decided: &[(usize, Stage)],
    ) -> Result<()> {
        for &(slot, stage) in decided {
            let id = self.schedule(epoch)?.id(slot);
            self.window.forget(epoch, slot);
            self.forget_visitor(rooms, epoch, slot);
            if stage == Stage::Waiting {
                self.window.leave(self.dataset.size(id));
                rooms.claim(&self.dataset, id, false);
            }
        }
        Ok(())
    }

    /// Reads on along its plans, and asks other nodes, as far as the budget reaches. True if the lock should be let go of
    /// before going on.
    pub(crate) fn read_ahead(&mut self, rooms: &mut Rooms, budget: Budget) -> Result<bool> {
        let more = self.decide_ahead(rooms, budget)?;
        self.ask_ahead(rooms, budget)?;
        Ok(more)
    }

    /// Whether this node has come to a job of another, and does not know yet where all of its ranks are: they may have
    /// trained most of an epoch.
    fn comes_late(&self) -> bool {
        let begun = self.ranks.begun().len();
        let mut plans = self.run.schedules().values();
        self.nodes.role().is_follower()
            && plans.next().is_some_and(|first| begun < first.plan().world() as usize)
    }

    fn decide_ahead(&mut self, rooms: &mut Rooms, budget: Budget) -> Result<bool> {
        let (mut left, mut buffers) = (DECISIONS, Buffers::default());
        self.window.set_short(false);
        while left > 0 {
            if !self.opened.request.prefetch || self.comes_late() {
                return Ok(false);
            }
            let Some(next) = self.run.next_block() else { return Ok(false) };
            let (decided, room) = self.read_block(rooms, next, budget, &mut buffers)?;
            if !room {
                return Ok(false);
            }
            left = left.saturating_sub(decided);
        }
        Ok(true)
    }

    /// Decides the block of slots that comes next, and reads it, if the budget reaches that far: how many slots, and whether
    /// there was room.
    pub(super) fn read_block(
        &mut self,
        rooms: &mut Rooms,
        (epoch, block): (u64, Range<usize>),
        budget: Budget,
        buffers: &mut Buffers,
    ) -> Result<(usize, bool)> {
        let first = block.start;
        let Some(schedule) = self.run.schedule(epoch) else { return Ok((0, false)) };
        // What other nodes own needs nothing yet, and what a silent rank is served.
        let needs = |slot: &usize| schedule.owns(*slot) && !self.is_silent(epoch, *slot);
        let ids = || block.clone().filter(needs).map(|slot| schedule.id(slot));
        // An earlier slot of the same sample is still to be served, and may need other bytes than this one.
        let cache = rooms.cache(self.serial)?;
        if ids().any(|id| !cache.keeps(id) && self.waits_for(id, (epoch, first))) {
            return Ok((0, false));
        }
        let bytes: u64 = ids().map(|id| self.dataset.size(id)).sum();
        let window = self.window.bytes();
        if bytes > 0 && window.saturating_add(bytes) > budget.window && window > 0 {
            if !self.empty_silent(rooms)? {
                return Ok((0, false));
            }
            return self.read_block(rooms, (epoch, block), budget, buffers);
        }
        let fits = |rooms: &Rooms| rooms.residency().transient() + bytes <= budget.transient;
        let room = fits(rooms) || (rooms.press() && fits(rooms));
        if !room {
            self.window.set_short(true);
            return Ok((0, false));
        }
        let (decided, room) = self.decide_block(rooms, Some((epoch, block)), true, buffers)?;
        self.window.set_short(!room);
        Ok((decided, room && decided > 0))
    }

    /// Reads what was left to be read when it is asked for; its object is made by `expect`. False without room.
    pub(super) fn read_late(
        &mut self,
        rooms: &mut Rooms,
        (epoch, slot, id): (u64, usize, Id),
        expect: impl FnOnce(&mut Self, &mut Rooms, Payer) -> Result<Option<u32>>,
    ) -> Result<bool> {
        let shared = self.window.shared(epoch, slot);
        // Where the others of its request went without it, its own is one more.
        let extra = shared.as_ref().is_some_and(|slots| slots.is_empty());
        let payer = self.payer(epoch, if extra { Cause::Extra } else { Cause::Planned });
        let Some(object) = expect(self, rooms, payer)? else { return Ok(false) };
        let mut objects = vec![object];
        for &other in shared.iter().flat_map(|slots| slots.iter()).filter(|&&other| other != slot) {
            objects.extend(self.read_with(rooms, payer, epoch, other)?);
        }
        objects.sort_by_key(|&object| rooms.residency().get(object).id());
        rooms.fetching_mut().enqueue(objects, true);
        self.window.forget(epoch, slot);
        self.wait(rooms, epoch, slot, id)?;
        Ok(true)
    }

    /// Makes an object for a slot that is one request with another that is read now. `None` if it is not to be read, or
    /// there is no room: then it is read when it is asked for, in one more request.
    fn read_with(&mut self, rooms: &mut Rooms, payer: Payer, epoch: u64, slot: usize) -> Result<Option<u32>> {
        let schedule = self.schedule(epoch)?;
        let (id, stage) = (schedule.id(slot), schedule.stage(slot));
        if stage != Stage::Unread {
            return Ok(None);
        }
        let object = rooms.expect_ahead(&self.dataset, id, payer);
        if object.is_some() {
            self.window.forget(epoch, slot);
            self.wait(rooms, epoch, slot, id)?;
        } else {
            self.window.leave_out(epoch, &[slot]);
        }
        Ok(object)
    }
}
