//! Beginning and leaving epochs.
//!
//! A plan takes as long as its dataset is large, so it is made outside the lock: by whoever begins an epoch
//! that is not planned yet, and by a thread of its own for the epoch after, so that prefetch crosses the
//! epoch's edge. A trainer that begins an epoch leaves its others; a reader that joins one after a restart
//! changes nothing, except that epochs the server before had under way are closed behind it.

use std::sync::{Arc, Mutex};

use hotset_core::sampling::Plan;
use hotset_core::schedule::Schedule;
use hotset_core::{Error, Kind, Result};

use crate::engine::{Engine, Shared, pump};
use crate::gather::MOST_RANKS;
use crate::job::{Job, Planner, prepare};
use crate::state::State;

impl Engine {
    /// Begins an epoch for a rank: the plan, all ranks' parts in it. A trainer begins it over if its rank
    /// had begun it; a reader that joins enters it as it stands.
    pub fn begin_epoch(
        &self,
        job: &str,
        epoch: u64,
        (rank, world): (u32, u32),
        start: u64,
        join: bool,
    ) -> Result<Arc<Plan>> {
        if world == 0 || world > MOST_RANKS || rank >= world {
            return Err(Error::invalid(format!(
                "rank {rank} of {world} is impossible: `rank` lies between 0 and `world` - 1, `world` between \
                 1 and {MOST_RANKS}"
            )));
        }
        if epoch > hotset_core::id::LAST_EPOCH {
            return Err(Error::invalid(format!(
                "epoch {epoch} is too large: the last is {}",
                hotset_core::id::LAST_EPOCH
            )));
        }
        let mut state = self.shared.lock();
        let serial = state.job(job)?;
        let (planner, samples) = state.planner(serial)?;
        if state.needs_plan(serial, epoch, world, join)? {
            drop(state);
            let schedule = prepare(&planner, epoch, world, samples);
            state = self.shared.lock();
            if state.needs_plan(serial, epoch, world, join)? {
                state.insert_schedule(serial, epoch, schedule);
            }
        }
        let plan = state.enter(serial, epoch, (rank, world), start, join)?;
        let next = epoch + 1;
        // Another world's plan of the next epoch is settled when that epoch begins.
        let ahead = state.jobs.get(&serial).is_some_and(|job| job.request.prefetch)
            && state.needs_plan(serial, next, world, true).unwrap_or(false);
        pump(&self.shared, state, serial);
        if ahead {
            plan_ahead(&self.shared, serial, next, world, samples, planner);
        }
        Ok(plan)
    }
}

/// Plans the epoch after the one that began, and reads on into it.
fn plan_ahead(
    shared: &Arc<Shared>,
    job: u64,
    epoch: u64,
    world: u32,
    samples: usize,
    planner: Arc<Mutex<Planner>>,
) {
    let shared = Arc::clone(shared);
    let work = move || {
        let schedule = prepare(&planner, epoch, world, samples);
        let mut state = shared.lock();
        if state.stopping || !state.needs_plan(job, epoch, world, true).unwrap_or(false) {
            return;
        }
        state.insert_schedule(job, epoch, schedule);
        pump(&shared, state, job);
    };
    if let Err(error) = std::thread::Builder::new().name("hotset-plan".into()).spawn(work) {
        tracing::warn!(%error, "cannot plan the next epoch ahead");
    }
}

impl State {
    fn planner(&self, serial: u64) -> Result<(Arc<Mutex<Planner>>, usize)> {
        let job = &self.jobs[&serial];
        let planner = job.planner.clone().ok_or_else(|| {
            Error::invalid(format!("job `{}` has no strategy: open it with one", job.request.job))
        })?;
        Ok((planner, self.datasets[job.dataset as usize].catalog.len()))
    }

    fn insert_schedule(&mut self, serial: u64, epoch: u64, mut schedule: Schedule) {
        schedule.set_generation(self.next_serial());
        if let Some(job) = self.jobs.get_mut(&serial) {
            job.schedules.insert(epoch, schedule);
        }
    }

    /// Whether an epoch has no plan for this world yet. A plan for another world goes if nobody has begun it, or
    /// if those who had are gone and a trainer comes with another number of ranks.
    fn needs_plan(&mut self, serial: u64, epoch: u64, world: u32, join: bool) -> Result<bool> {
        let Some(job) = self.jobs.get(&serial) else {
            return Err(Error::new(Kind::Lost, "the job was closed meanwhile"));
        };
        match job.schedules.get(&epoch) {
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
            Some(_) => {
                self.drop_schedule(serial, epoch);
                Ok(true)
            }
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
        let Some(job) = self.jobs.get_mut(&serial) else {
            return Err(Error::new(Kind::Lost, "the job was closed meanwhile"));
        };
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        let lost = || Error::internal(format!("epoch {epoch} lost its plan"));
        let schedule = job.schedules.get_mut(&epoch).ok_or_else(lost)?;
        let plan = Arc::clone(schedule.plan());
        let anew = !schedule.begun();
        let mut left = Vec::new();
        let fresh = schedule.begin(rank, start, &mut left);
        if !fresh && !join && (schedule.served(rank) > 0 || start > 0 || schedule.is_restored()) {
            schedule.begin_again(rank, start, &mut left);
            if world == 1 {
                job.forget(epoch);
            }
        }
        // A training that starts over counts its epochs over; what was read ahead for them stays counted.
        if anew && job.counters.get(&epoch).is_some_and(|counters| counters.served() > 0) {
            job.forget(epoch);
        }
        let begun = job.begun.entry(rank).or_insert(epoch);
        *begun = if join { epoch.max(*begun) } else { epoch };
        job.begun.retain(|&rank, _| rank < world);
        job.counters(Some(epoch)).planned = plan.len() as u64;
        let others: Vec<u64> = job.schedules.keys().copied().filter(|&other| other != epoch).collect();
        self.abandon(serial, epoch, 0, &left);
        for other in others {
            self.leave(serial, other, epoch, (rank, world), join);
        }
        Ok(plan)
    }

    /// What becomes of another epoch when a rank begins `epoch`. Earlier ones close for it, and so do later ones
    /// that it had begun: its training starts over. Later ones that nobody has begun were planned for a future
    /// that did not come, except the very next.
    fn leave(&mut self, serial: u64, other: u64, epoch: u64, (rank, world): (u32, u32), join: bool) {
        let Some(job) = self.jobs.get_mut(&serial) else { return };
        let Some(schedule) = job.schedules.get_mut(&other) else { return };
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
            while self.jobs.get_mut(&serial).and_then(Job::peek).is_some_and(|(epoch, ..)| epoch == other) {
                if self.decide(serial, false).is_err() {
                    break;
                }
            }
        }
        let Some(schedule) = self.jobs.get_mut(&serial).and_then(|job| job.schedules.get_mut(&other)) else {
            return;
        };
        let mut decided = Vec::new();
        let count = schedule.close(rank, &mut decided);
        let rest = if schedule.closed() { Some(schedule.abandon_outstanding()) } else { None };
        self.abandon(serial, other, count, &decided);
        if let Some(rest) = rest {
            self.abandon(serial, other, 0, &rest);
            if let Some(job) = self.jobs.get_mut(&serial) {
                job.schedules.remove(&other);
            }
        }
    }

    /// Forgets an epoch's plan and lets go of what it waits for.
    pub(crate) fn drop_schedule(&mut self, serial: u64, epoch: u64) {
        let Some(job) = self.jobs.get_mut(&serial) else { return };
        let Some(schedule) = job.schedules.get_mut(&epoch) else { return };
        let decided = schedule.abandon_outstanding();
        let begun = schedule.begun();
        self.abandon(serial, epoch, decided.len(), &decided);
        if let Some(job) = self.jobs.get_mut(&serial) {
            job.schedules.remove(&epoch);
            if !begun {
                job.forget(epoch);
            }
        }
    }
}
