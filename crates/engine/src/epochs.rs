//! Beginning and leaving epochs.
//!
//! A plan takes as long as its dataset is large, so it is made outside the lock ([`crate::planning`]): by
//! whoever begins an epoch that is not planned yet, and by a thread of its own for the epoch after, so that
//! prefetch crosses the epoch's edge. A trainer that begins an epoch leaves its others; a reader that joins one
//! after a restart changes nothing, except that epochs the server before had under way are closed behind it.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use hotset_core::sampling::Plan;
use hotset_core::{Error, Kind, Result};

use crate::engine::{Engine, LOOK_UP, pump};
use crate::gather::MOST_RANKS;
use crate::job::Job;
use crate::planning::make;
use crate::state::State;

impl Engine {
    /// Begins an epoch for a rank: the plan, all ranks' parts in it. A trainer begins it over if its rank
    /// had begun it; a reader that joins enters it as it stands. A plan that needs what other ranks report waits
    /// for them, but not for long.
    pub fn begin_epoch(
        &self,
        job: &str,
        epoch: u64,
        (rank, world): (u32, u32),
        start: u64,
        join: bool,
    ) -> Result<Arc<Plan>> {
        check_rank(rank, world)?;
        check_epoch(epoch)?;
        let mut state = self.shared.lock();
        let serial = state.job(job)?;
        state.check_planned(serial)?;
        if !join {
            state.ask_for(serial, epoch, rank);
            state.go_back(serial, epoch, rank);
            if let Some(book) = state.jobs.get_mut(&serial) {
                book.gathering.since.get_or_insert_with(Instant::now);
            }
            self.shared.planned.notify_all();
        }
        while state.needs_plan(serial, epoch, world, join)? {
            let patience = state.config.patience;
            let Some(book) = state.jobs.get_mut(&serial) else { continue };
            let gathered = join || book.is_gathered(epoch, false);
            let late = book.gathering.since.is_some_and(|since| since.elapsed() >= patience);
            if book.planning.is_none() && (gathered || late) {
                if !gathered {
                    book.run.tally_mut().overdue(epoch);
                    tracing::warn!(job, epoch, "planned without all ranks: one has not come or not reported");
                    book.give_up(epoch);
                }
                book.planning = Some(epoch);
                drop(state);
                state = make(&self.shared, serial, epoch, world);
                continue;
            }
            if state.stopping {
                return Err(Error::unavailable("the server is stopping"));
            }
            let (back, _) =
                self.shared.planned.wait_timeout(state, LOOK_UP).unwrap_or_else(PoisonError::into_inner);
            state = back;
        }
        let plan = state.enter(serial, epoch, (rank, world), start, join)?;
        pump(&self.shared, state, serial);
        Ok(plan)
    }
}

pub(crate) fn check_rank(rank: u32, world: u32) -> Result<()> {
    if world == 0 || world > MOST_RANKS || rank >= world {
        return Err(Error::invalid(format!(
            "rank {rank} of {world} is impossible: `rank` lies between 0 and `world` - 1, `world` between 1 \
             and {MOST_RANKS}"
        )));
    }
    Ok(())
}

pub(crate) fn check_epoch(epoch: u64) -> Result<()> {
    if epoch > hotset_core::id::LAST_EPOCH {
        return Err(Error::invalid(format!(
            "epoch {epoch} is too large: the last is {}",
            hotset_core::id::LAST_EPOCH
        )));
    }
    Ok(())
}

impl State {
    pub(crate) fn check_planned(&self, serial: u64) -> Result<()> {
        let job = &self.jobs[&serial];
        if job.mind.is_none() {
            return Err(Error::invalid(format!(
                "job `{}` has no strategy: open it with one",
                job.request.job
            )));
        }
        Ok(())
    }

    /// Notes that a rank asks for an epoch, and so has left those before.
    pub(crate) fn ask_for(&mut self, serial: u64, epoch: u64, rank: u32) {
        let Some(job) = self.jobs.get_mut(&serial) else { return };
        job.arrived.insert(rank, epoch);
        job.absent.remove(&rank);
        if job.gathering.epoch != epoch || job.gathering.asked.is_none() {
            job.gathering =
                crate::job::Gathering { epoch, asked: Some(Instant::now()), ..Default::default() };
        }
    }

    /// A rank that begins an earlier epoch than its last has gone back, or started over: what was reported of the
    /// future that it left no longer outweighs what it will report. The others follow: what the first has reported
    /// until then stays.
    fn go_back(&mut self, serial: u64, epoch: u64, rank: u32) {
        let Some(job) = self.jobs.get_mut(&serial) else { return };
        let follows = job.following.remove(&rank).is_some_and(|back| epoch >= back);
        if follows || job.begun.get(&rank).is_none_or(|&begun| begun <= epoch) {
            return;
        }
        let others = job.begun.iter().filter(|&(&other, &begun)| other != rank && begun > epoch);
        job.following = others.map(|(&other, _)| (other, epoch)).collect();
        // Where they had come in that future says nothing of this one.
        job.arrived.retain(|other, _| !job.following.contains_key(other));
        job.reported.retain(|_, (of, _)| *of < epoch);
        if let Some(mind) = &job.mind {
            mind.rewind(epoch);
        }
    }

    /// Whether an epoch has no plan for this world yet. A plan for another world goes if nobody has begun it; if
    /// those who had are gone and a trainer comes with another number of ranks, its order is cut anew.
    pub(crate) fn needs_plan(&mut self, serial: u64, epoch: u64, world: u32, join: bool) -> Result<bool> {
        let Some(job) = self.jobs.get(&serial) else {
            return Err(Error::new(Kind::Lost, "the job was closed meanwhile"));
        };
        match job.run.schedule(epoch) {
            None => Ok(true),
            Some(schedule) if schedule.plan().world() == world => Ok(false),
            Some(schedule) if schedule.begun() && (join || !schedule.is_restored()) => {
                Err(Error::invalid(format!(
                    "epoch {epoch} of job `{}` was begun by {} ranks and now by one of {world}: use the same \
                     `world` in every rank",
                    job.request.job,
                    schedule.plan().world()
                )))
            }
            Some(schedule) if schedule.begun() => {
                self.recut(serial, epoch, world);
                Ok(false)
            }
            Some(_) => {
                self.drop_schedule(serial, epoch);
                Ok(true)
            }
        }
    }

    /// Cuts the order of an epoch that others had begun over another number of ranks.
    fn recut(&mut self, serial: u64, epoch: u64, world: u32) {
        let Some(job) = self.jobs.get_mut(&serial) else { return };
        let Some(schedule) = job.run.schedule_mut(epoch) else { return };
        let kept = schedule.plan().recut(world).len();
        let cut_off = schedule.abandon_from(kept);
        self.abandon(serial, epoch, 0, &cut_off);
        let Some(job) = self.jobs.get_mut(&serial) else { return };
        if let Some(schedule) = job.run.remove(epoch) {
            let schedule = schedule.recut(world);
            job.note_cut(&schedule);
            job.run.put(schedule);
        }
    }

    /// Enters a planned epoch: closes what the rank leaves behind.
    fn enter(
        &mut self,
        serial: u64,
        epoch: u64,
        (rank, world): (u32, u32),
        start: u64,
        join: bool,
    ) -> Result<Arc<Plan>> {
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        if !join {
            self.decide_trained(serial, epoch, start);
        }
        let Some(job) = self.jobs.get_mut(&serial) else {
            return Err(Error::new(Kind::Lost, "the job was closed meanwhile"));
        };
        let lost = || Error::internal(format!("epoch {epoch} lost its plan"));
        let schedule = job.run.schedule_mut(epoch).ok_or_else(lost)?;
        let plan = Arc::clone(schedule.plan());
        let anew = !schedule.begun();
        let mut left = Vec::new();
        let fresh = schedule.begin(rank, start, &mut left);
        // A restored one may have slots that were served and not trained, whoever begins it.
        let over = !fresh && (schedule.served(rank) > 0 || start > 0);
        if !join && (over || schedule.is_restored()) {
            job.run.begin_again(epoch, rank, start, &mut left);
        }
        // A training that starts over counts its epochs over; what was read ahead for them stays counted.
        let counted = job.run.tally().epochs().get(&epoch);
        if anew && counted.is_some_and(|counters| counters.served() > 0) {
            job.forget(epoch);
        }
        let begun = job.begun.entry(rank).or_insert(epoch);
        *begun = if join { epoch.max(*begun) } else { epoch };
        job.begun.retain(|&rank, _| rank < world);
        job.run.tally_mut().begun(epoch, plan.len());
        let others: Vec<u64> = job.run.schedules().keys().copied().filter(|&other| other != epoch).collect();
        self.abandon(serial, epoch, 0, &left);
        for other in others {
            self.leave(serial, other, epoch, (rank, world), join);
        }
        Ok(plan)
    }

    /// Decides the slots that another server has served before a trainer goes on at `start`, so that the policy stands
    /// where that server's stood. Only the first epoch after a restart pays this.
    fn decide_trained(&mut self, serial: u64, epoch: u64, start: usize) {
        let Some(job) = self.jobs.get(&serial) else { return };
        let Some(schedule) = job.run.schedule(epoch).filter(|schedule| schedule.is_restored()) else {
            return;
        };
        let trained = start.saturating_mul(schedule.plan().world() as usize);
        while let Some((of, block)) = self.jobs.get_mut(&serial).and_then(|job| job.run.next_block()) {
            if of > epoch || (of == epoch && block.start >= trained) {
                return;
            }
            self.decide(serial, false);
        }
    }

    /// What becomes of another epoch when a rank begins `epoch`. Earlier ones close for it, and so do later ones
    /// that it had begun: its training starts over. Later ones that nobody has begun were planned for a future
    /// that did not come, except the very next.
    fn leave(&mut self, serial: u64, other: u64, epoch: u64, (rank, world): (u32, u32), join: bool) {
        let Some(job) = self.jobs.get_mut(&serial) else { return };
        let Some(schedule) = job.run.schedule_mut(other) else { return };
        let restored = schedule.is_restored();
        if join && !(restored && other < epoch) {
            return;
        }
        if other > epoch && !schedule.begun_by(rank) {
            if !schedule.begun() && other != epoch + 1 {
                self.drop_schedule(serial, other);
            }
            return;
        }
        // Ranks of another world will not come back to it.
        if !schedule.begun() || schedule.plan().world() != world {
            self.drop_schedule(serial, other);
            return;
        }
        if restored {
            // Its slots were served by the server before: their policy is asked, so that it stands where that
            // server's stood. Only the first epoch after a restart pays this.
            let next = |job: &mut Job| job.run.next_block().is_some_and(|(epoch, _)| epoch == other);
            while self.jobs.get_mut(&serial).is_some_and(next) {
                self.decide(serial, false);
            }
        }
        let Some(schedule) = self.jobs.get_mut(&serial).and_then(|job| job.run.schedule_mut(other)) else {
            return;
        };
        let mut decided = Vec::new();
        let count = schedule.close(rank, &mut decided);
        let rest = if schedule.closed() { Some(schedule.abandon_outstanding()) } else { None };
        self.abandon(serial, other, count, &decided);
        if let Some(rest) = rest {
            self.abandon(serial, other, 0, &rest);
            if let Some(job) = self.jobs.get_mut(&serial) {
                job.run.remove(other);
            }
        }
    }

    /// Forgets an epoch's plan and lets go of what it waits for.
    pub(crate) fn drop_schedule(&mut self, serial: u64, epoch: u64) {
        let Some(job) = self.jobs.get_mut(&serial) else { return };
        let Some(schedule) = job.run.schedule_mut(epoch) else { return };
        let decided = schedule.abandon_outstanding();
        let begun = schedule.begun();
        self.abandon(serial, epoch, decided.len(), &decided);
        if let Some(job) = self.jobs.get_mut(&serial) {
            job.run.remove(epoch);
            if !begun {
                job.forget(epoch);
            }
        }
    }
}
