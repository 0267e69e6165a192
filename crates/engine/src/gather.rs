//! From the indices of a request to held objects.
//!
//! A batch is answered in three steps, the last of which is in [`crate::leases`]. *Catch up*: slots before the ones asked for are decided, a slice at a
//! time, so that deciding stays in plan order whatever order readers ask in. *Gather*: each index takes its
//! slot and holds its object; reads that were not made ahead are queued. *Grant*: when every object is
//! whole, holds become one lease. If anything fails in between, slots and holds go back as they were.

use std::collections::HashMap;

use hotset_core::run::Outcome;
use hotset_core::schedule::Stage;
use hotset_core::tally::Traffic;
use hotset_core::{Error, Id, Index, Kind, Result};

use crate::object::Fill;
use crate::state::{Cause, Payer, State};
use crate::waiter::{Item, Role};

/// Slots decided in one hold of the lock.
const SLICE: usize = 4096;

/// Batches by which one reader may fall behind another of its rank before its slots are given up: more than
/// workers times prefetched batches in any sensible loader.
const BEHIND: usize = 256;

/// The most ranks a job has; what is kept for each is kept in a list.
pub(crate) const MOST_RANKS: u32 = 1 << 16;

/// What a request asks for, checked against its catalog.
pub(crate) struct Wanted {
    pub(crate) job: u64,
    pub(crate) rank: u32,
    pub(crate) samples: Vec<(Option<u64>, Id)>,
    /// The epoch before which they are re-evaluated.
    pub(crate) reevaluation: Option<u64>,
    /// Whether those without an epoch are of the one that the rank has begun.
    pub(crate) matched: bool,
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

impl State {
    /// Checks a request's job and indices.
    pub(crate) fn wanted(&self, job: &str, rank: u32, indices: &[u64], purpose: Purpose) -> Result<Wanted> {
        if rank >= MOST_RANKS {
            return Err(Error::invalid(format!("rank {rank} is impossible: `rank` lies below {MOST_RANKS}")));
        }
        let serial = self.job(job)?;
        let dataset = self.jobs[&serial].dataset;
        let samples = self.datasets[dataset as usize].catalog.len() as u64;
        let reevaluation = match purpose {
            Purpose::Served | Purpose::Matched => None,
            Purpose::Reevaluated(epoch) => Some(epoch),
        };
        let check = |&raw: &u64| {
            let index = Index::from_raw(raw);
            if index.sample >= samples {
                return Err(Error::invalid(format!(
                    "index `{}` is out of range: the dataset has {samples} samples, 0 to {}",
                    index.sample,
                    samples.saturating_sub(1)
                )));
            }
            Ok((index.epoch.filter(|_| reevaluation.is_none()), index.sample as Id))
        };
        let samples = indices.iter().map(check).collect::<Result<_>>()?;
        Ok(Wanted { job: serial, rank, samples, reevaluation, matched: purpose == Purpose::Matched })
    }

    pub(crate) fn job(&self, name: &str) -> Result<u64> {
        self.names.get(name).copied().ok_or_else(|| {
            Error::new(Kind::Lost, format!("this server does not know job `{name}`: open it again"))
        })
    }

    /// Decides what comes before the slots asked for. True when there is more to do.
    pub(crate) fn catch_up(&mut self, wanted: &Wanted) -> Result<bool> {
        if let Some(job) = self.jobs.get_mut(&wanted.job) {
            job.largest_batch = job.largest_batch.max(wanted.samples.len());
        }
        // Nearly always one epoch: the first and the last slot asked for of each.
        let mut spans: Vec<(u64, usize, usize)> = Vec::new();
        // How often each sample was asked for so far, where a plan repeats some.
        let mut asked: HashMap<(u64, Id), usize> = HashMap::new();
        let run = self.run_of(wanted);
        for (offset, &(epoch, id)) in wanted.samples.iter().enumerate() {
            let Some((epoch, slot)) = self.slot_of(wanted, epoch, id)? else { continue };
            let schedule = self.jobs.get(&wanted.job).and_then(|job| job.run.schedule(epoch));
            let slot = match (schedule, run) {
                (Some(schedule), Some(from)) => schedule.plan().slot(wanted.rank, from + offset),
                (Some(schedule), None) if schedule.repeats() => {
                    let before = asked.entry((epoch, id)).or_default();
                    *before += 1;
                    schedule.find_after(wanted.rank, id, *before - 1).unwrap_or(slot)
                }
                _ => slot,
            };
            match spans.iter_mut().find(|span| span.0 == epoch) {
                Some(span) => (span.1, span.2) = (span.1.min(slot), span.2.max(slot)),
                None => spans.push((epoch, slot, slot)),
            }
        }
        let mut left = SLICE;
        for (epoch, first, last) in spans {
            if self.decide_until(wanted.job, epoch, last, &mut left) {
                return Ok(true);
            }
            self.overtake(wanted, epoch, first);
        }
        Ok(false)
    }

    /// Decides an epoch as far as slot `last`, but not many more than `left` slots. True when there is more to do.
    fn decide_until(&mut self, serial: u64, epoch: u64, last: usize, left: &mut usize) -> bool {
        let ahead = |state: &Self| {
            let schedule = state.jobs.get(&serial).and_then(|job| job.run.schedule(epoch));
            schedule.is_some_and(|schedule| schedule.frontier() <= last)
        };
        while ahead(self) {
            if *left == 0 {
                return true;
            }
            let (decided, _) = self.decide(serial, false);
            *left = left.saturating_sub(decided);
            if decided == 0 {
                break;
            }
        }
        false
    }

    /// Notes that `slots` were trained, and so were served, by the server before if not by this one. Those are decided as
    /// they were there, and wait for nothing any more. True when there is more to do.
    pub(crate) fn served_before(&mut self, serial: u64, epoch: u64, slots: &[usize]) -> bool {
        let Some(&last) = slots.iter().max() else { return false };
        let mut most = SLICE;
        if self.decide_until(serial, epoch, last, &mut most) {
            return true;
        }
        let Some(job) = self.jobs.get_mut(&serial) else { return false };
        let decided = job.run.served_before(epoch, slots);
        self.let_go_of(serial, epoch, &decided);
        false
    }

    /// Where the slots of a whole request lie, if its plan repeats samples: the position of its rank at which they begin.
    /// Its ids alone do not say whether a slot before them was served by a server that is gone.
    fn run_of(&self, wanted: &Wanted) -> Option<usize> {
        let job = self.jobs.get(&wanted.job)?;
        let begun = job.begun.get(&wanted.rank).copied();
        let epoch = |epoch: Option<u64>| epoch.or(begun.filter(|_| wanted.matched));
        let first = epoch(wanted.samples.first()?.0)?;
        let schedule = job.run.schedule(first).filter(|schedule| schedule.repeats())?;
        let same = wanted.samples.iter().all(|&(other, _)| epoch(other) == Some(first));
        let ids: Vec<Id> = wanted.samples.iter().map(|&(_, id)| id).collect();
        if same && begun >= Some(first) { schedule.run(wanted.rank, &ids) } else { None }
    }

    /// The slot that an index takes; `None` for one that no plan waits for.
    fn slot_of(&self, wanted: &Wanted, epoch: Option<u64>, id: Id) -> Result<Option<(u64, usize)>> {
        let Some(job) = self.jobs.get(&wanted.job) else { return Ok(None) };
        if job.mind.is_none() {
            return Ok(None);
        }
        let begun = job.begun.get(&wanted.rank).copied();
        let Some(epoch) = epoch.or(begun.filter(|_| wanted.matched)) else { return Ok(None) };
        match job.run.schedule(epoch) {
            Some(schedule) if begun.is_some_and(|begun| begun >= epoch) => {
                Ok(schedule.find(wanted.rank, id).map(|slot| (epoch, slot)))
            }
            // A straggler of an epoch that its rank has left is served beside the plan.
            None if begun.is_some_and(|begun| begun >= epoch) => Ok(None),
            _ => Err(Error::new(
                Kind::Lost,
                format!("rank {} has not begun epoch {epoch} of job `{}`", wanted.rank, job.request.job),
            )),
        }
    }

    fn overtake(&mut self, wanted: &Wanted, epoch: u64, slot: usize) {
        let Some(job) = self.jobs.get_mut(&wanted.job) else { return };
        let margin = BEHIND * job.largest_batch.max(1);
        let Some(schedule) = job.run.schedule_mut(epoch) else { return };
        let mut decided = Vec::new();
        let count = schedule.overtake(slot, margin, &mut decided);
        if count > 0 {
            self.abandon(wanted.job, epoch, count, &decided);
        }
    }

    /// Takes the slots and holds the objects of a request.
    pub(crate) fn gather(&mut self, session: u64, wanted: &Wanted) -> Result<Gathered> {
        let mut items = Vec::with_capacity(wanted.samples.len());
        let run = self.run_of(wanted);
        for (position, &(epoch, id)) in wanted.samples.iter().enumerate() {
            let own = |(epoch, slot): (u64, usize)| {
                let schedule = self.jobs.get(&wanted.job).and_then(|job| job.run.schedule(epoch));
                let own = schedule
                    .zip(run)
                    .map(|(schedule, from)| schedule.plan().slot(wanted.rank, from + position));
                (epoch, own.unwrap_or(slot))
            };
            let item = match self.slot_of(wanted, epoch, id).map(|found| found.map(own)) {
                Ok(Some((epoch, slot))) => self.take(session, wanted, position, (epoch, slot, id)),
                Ok(None) => self.hold_beside(session, wanted, position, id),
                Err(error) => Err(error),
            };
            match item {
                Ok(Some(item)) => items.push(item),
                Ok(None) => {
                    self.give_back(wanted.job, &items);
                    return Ok(Gathered::NoRoom);
                }
                Err(error) => {
                    self.give_back(wanted.job, &items);
                    return Err(error);
                }
            }
        }
        let ready = |item: &&Item| self.objects[item.object as usize].fill != Fill::Ready;
        let missing = items.iter().filter(ready).count();
        Ok(Gathered::Held(items, missing))
    }

    /// Takes a decided slot. Its hold on the object, if there is one, becomes the reader's.
    fn take(
        &mut self,
        session: u64,
        wanted: &Wanted,
        position: usize,
        (epoch, slot, id): (u64, usize, Id),
    ) -> Result<Option<Item>> {
        let stage_of = |state: &Self| {
            let schedule = state.jobs.get(&wanted.job).and_then(|job| job.run.schedule(epoch));
            schedule.map(|schedule| (schedule.stage(slot), schedule.outcome(slot), schedule.generation()))
        };
        let unread = match stage_of(self) {
            Some((Stage::Unread, ..)) => Some((epoch, slot)),
            // An earlier slot of the same sample has its read, and another rank's is asked for first.
            Some(_) => self.jobs.get(&wanted.job).and_then(|job| job.unread(id)),
            None => None,
        };
        if let Some((epoch, slot)) = unread {
            let prepare = |state: &mut Self, payer| state.prepare_now(session, wanted, position, id, payer);
            if !self.read_late(wanted.job, (epoch, slot, id), prepare)? {
                return Ok(None);
            }
        }
        let Some((before, outcome, generation)) = stage_of(self) else { return Ok(None) };
        let Some(dataset) = self.jobs.get(&wanted.job).map(|job| job.dataset) else { return Ok(None) };
        let found = self.object(dataset, id);
        let object = match found {
            Some(object) => {
                self.hurry(object);
                object
            }
            None => {
                // A slot that was never decided is read for itself; of others the bytes were lost.
                let cause = if outcome.is_none() { Cause::Planned } else { Cause::Recovery };
                let payer = Payer { job: wanted.job, epoch: Some(epoch), cause };
                match self.prepare_now(session, wanted, position, id, payer)? {
                    Some(object) => {
                        self.enqueue(object, true);
                        object
                    }
                    None => return Ok(None),
                }
            }
        };
        let size = self.datasets[dataset as usize].catalog.size(id);
        let Some(job) = self.jobs.get_mut(&wanted.job) else { return Ok(None) };
        if outcome.is_none() && found.is_none() {
            job.run.tally_mut().reads(epoch, Traffic { reads: 1, requests: 1, bytes: size });
        }
        let Some(schedule) = job.run.schedule_mut(epoch) else { return Ok(None) };
        schedule.settle(slot, if found.is_some() { Outcome::Hit } else { Outcome::Single });
        schedule.take(slot);
        if before != Stage::Waiting {
            self.objects[object as usize].holds += 1;
        }
        Ok(Some(Item { id, object, role: Role::Planned { epoch, slot, before, generation } }))
    }

    /// Holds a sample that no plan asks for.
    fn hold_beside(
        &mut self,
        session: u64,
        wanted: &Wanted,
        position: usize,
        id: Id,
    ) -> Result<Option<Item>> {
        let Some(job) = self.jobs.get_mut(&wanted.job) else { return Ok(None) };
        let dataset = job.dataset;
        let kept = job.mind.is_none();
        if kept {
            let changes = job.run.cache_mut().access(id);
            self.bring_over(dataset, changes);
        }
        // What is read to be re-evaluated is read unless it is kept, whatever lingers.
        let keeps = self.jobs.get(&wanted.job).is_some_and(|job| job.run.cache().keeps(id));
        let found = self.object(dataset, id).filter(|_| keeps || wanted.reevaluation.is_none());
        let size = self.datasets[dataset as usize].catalog.size(id);
        let Some(job) = self.jobs.get_mut(&wanted.job) else { return Ok(None) };
        let asked = wanted.reevaluation == Some(job.gathering.epoch) && job.gathering.unread.contains(id);
        let object = match found {
            Some(object) => {
                if let Some(epoch) = wanted.reevaluation.filter(|_| asked) {
                    job.run.tally_mut().joined(epoch, Traffic { reads: 1, requests: 1, bytes: size });
                }
                self.hurry(object);
                object
            }
            None => {
                let cause = match wanted.reevaluation {
                    None => Cause::Unplanned,
                    Some(_) if asked => Cause::Planned,
                    Some(_) => Cause::Recovery,
                };
                let payer = Payer { job: wanted.job, epoch: wanted.reevaluation, cause };
                match self.prepare_now(session, wanted, position, id, payer)? {
                    Some(object) => {
                        self.enqueue(object, true);
                        object
                    }
                    None => return Ok(None),
                }
            }
        };
        if asked && let Some(job) = self.jobs.get_mut(&wanted.job) {
            job.gathering.unread.remove(id);
        }
        self.objects[object as usize].holds += 1;
        let hit = found.is_some();
        let role = match wanted.reevaluation {
            Some(_) => Role::Reevaluated,
            None if kept => Role::Kept { hit },
            None => Role::Unplanned { hit },
        };
        Ok(Some(Item { id, object, role }))
    }

    /// Makes an object for a read that a reader waits for, to be queued. Without room in the arena the rest of the batch
    /// goes into a segment of its own, one for each reader at a time.
    fn prepare_now(
        &mut self,
        session: u64,
        wanted: &Wanted,
        position: usize,
        id: Id,
        payer: Payer,
    ) -> Result<Option<u32>> {
        let dataset = self.jobs[&wanted.job].dataset;
        if let Some(object) = self.pend(dataset, id, payer, None)? {
            return Ok(Some(object));
        }
        if let Some(segment) = self.sessions.get(&session).and_then(|session| session.spill)
            && let Some(object) = self.pend(dataset, id, payer, Some(segment))?
        {
            return Ok(Some(object));
        }
        if self.sessions.get(&session).is_none_or(|session| session.spill.is_some()) {
            return Ok(None);
        }
        let catalog = std::sync::Arc::clone(&self.datasets[dataset as usize].catalog);
        let sizes = wanted.samples[position..].iter().map(|&(_, id)| catalog.size(id));
        let segment = self.arena.spill(sizes)?;
        if let Some(session) = self.sessions.get_mut(&session) {
            session.spill = Some(segment);
        }
        let epoch = payer.epoch;
        if let Some(job) = self.jobs.get_mut(&wanted.job) {
            job.run.tally_mut().spilled(epoch);
        }
        self.pend(dataset, id, payer, Some(segment))
    }

    /// Undoes a gathering.
    pub(crate) fn give_back(&mut self, serial: u64, items: &[Item]) {
        for item in items {
            self.let_go(item.object);
            let Role::Planned { epoch, slot, before, generation, .. } = item.role else { continue };
            let Some(job) = self.jobs.get_mut(&serial) else { continue };
            let dataset = job.dataset;
            if job.schedule(epoch, generation).is_none() && before == Stage::Waiting {
                // Nobody will be served it: it leaves the window here.
                let size = self.datasets[dataset as usize].catalog.size(item.id);
                job.window = job.window.saturating_sub(size);
            }
            let Some(schedule) = job.schedule(epoch, generation) else { continue };
            schedule.untake(slot, before);
            if before == Stage::Waiting {
                self.hold(dataset, item.id);
            }
        }
    }
}
