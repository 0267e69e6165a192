//! What trainers tell: losses, losses under the current model, accuracies.
//!
//! Losses go to the planner's table through its inbox, and to the policy at once where it takes them; either way no
//! lock is held for more than a slice of them.

use hotset_core::importance::{SLICE, Score};
use hotset_core::run::{reports, residents_first, valid_scores};
use hotset_core::sampling::Reevaluation;
use hotset_core::{Error, Id, Result};

use crate::engine::{Engine, LOOK_UP};
use crate::jobs::{Choice, check_epoch, check_rank};
use crate::planning::look_ahead;
use crate::state::State;
use crate::sync::{self, thread};

/// One mini-batch of a rank, as trained.
#[derive(Debug, Clone, Copy)]
pub struct Trained<'a> {
    /// The epoch.
    pub epoch: u64,
    /// The rank.
    pub rank: u32,
    /// How many of the rank's slots were reported in this epoch, these included.
    pub upto: u64,
    /// The samples.
    pub ids: &'a [Id],
    /// One loss for each.
    pub losses: &'a [f32],
}

impl Engine {
    /// Takes the losses of a mini-batch: how many were accepted and how many refused.
    pub fn report(&self, job: &str, trained: Trained<'_>) -> Result<(u64, u64)> {
        let Trained { epoch, rank, upto, ids, losses } = trained;
        if ids.len() != losses.len() {
            return Err(Error::invalid(format!(
                "{} ids came with {} scores: report one score for each sample",
                ids.len(),
                losses.len()
            )));
        }
        check_epoch(epoch)?;
        let mut state = self.shared.lock();
        let State { jobs, rooms, .. } = &mut *state;
        let job = jobs.planned(job)?;
        let (serial, samples, member) = (job.serial, job.dataset.samples(), job.run.member());
        let Some(planner) = job.planner.clone() else { return Ok((0, 0)) };
        let takes = rooms.cache(serial)?.policy().takes();
        let cut = job.ranks.cut(epoch);
        let schedule = job.run.schedule(epoch);
        let plan = schedule.map(|schedule| std::sync::Arc::clone(schedule.plan()));
        let restored = schedule.is_some_and(|schedule| schedule.is_restored());
        drop(state);

        // Slots of weight 0 were not trained: nothing is known of their samples, and nothing is refused.
        let position = usize::try_from(upto).unwrap_or(usize::MAX).saturating_sub(ids.len());
        let slot = |offset: usize, id: Id| {
            let slot = plan.as_ref()?.slot(rank, position.saturating_add(offset));
            (plan.as_ref()?.ids().get(slot) == Some(&id)).then_some(slot)
        };
        let silent = |offset: usize, id: Id| {
            plan.as_ref().zip(slot(offset, id)).is_some_and(|(plan, slot)| plan.weight(slot) == 0.0)
        };
        let inside = |id: Id| (id as usize) < samples;
        let heard: Vec<f32> = (0..)
            .zip(ids.iter().zip(losses))
            .map(|(offset, (&id, &loss))| if inside(id) && !silent(offset, id) { loss } else { f32::NAN })
            .collect();
        let quiet = (0..).zip(ids).filter(|&(offset, &id)| silent(offset, id)).count() as u64;
        let scores = planner.score.of(&heard);
        let accepted = scores.iter().filter(|score| !score.is_nan()).count() as u64;
        let rejected = ids.len() as u64 - quiet - accepted;

        let rank_len = cut.map_or(usize::MAX, |cut| cut.rank_len as usize);
        let valid: Vec<_> = reports((epoch, rank_len, position), ids, &heard, &scores)
            .into_iter()
            .filter(|report| !report.value.is_nan())
            .collect();
        let most = planner.report(valid);
        if restored {
            // Before the policy hears of scores that were made of them.
            let trained = (0..).zip(ids).filter_map(|(offset, &id)| slot(offset, id)).collect::<Vec<_>>();
            loop {
                let mut state = self.shared.lock();
                let State { jobs, rooms, .. } = &mut *state;
                if !jobs.still(serial)?.served_before(rooms, epoch, &trained)? {
                    break;
                }
                drop(state);
                thread::yield_now();
            }
        }

        let mut state = self.shared.lock();
        state.note_applied(most);
        let job = state.jobs.still(serial)?;
        job.run.tally_mut().reported(epoch, accepted, rejected);
        job.ranks.report(rank, epoch, upto);
        if let Some(kind) = takes {
            let own = (kind != planner.score).then(|| Score::of(kind, &heard));
            let mut held = Some(state);
            valid_scores(ids, own.as_deref().unwrap_or(&scores), |slice| {
                let mut state = held.take().unwrap_or_else(|| self.shared.lock());
                state.note_applied(slice.len());
                // The job may have ended meanwhile.
                if let Ok(cache) = state.rooms.cache_mut(serial) {
                    cache.scored(member, slice);
                }
            });
            state = held.unwrap_or_else(|| self.shared.lock());
        }
        look_ahead(&self.shared, &mut state, serial);
        self.shared.planned.notify_all();
        Ok((accepted, rejected))
    }

    /// What a rank must re-evaluate under the current model before `epoch`. Waits for the other ranks to end the
    /// epoch before, but not for long.
    pub fn reevaluation(&self, job: &str, epoch: u64, (rank, world): (u32, u32)) -> Result<Vec<Id>> {
        check_rank(rank, world)?;
        check_epoch(epoch)?;
        let mut state = self.shared.lock();
        let patience = state.config.patience;
        let job = state.jobs.planned(job)?;
        let (serial, samples) = (job.serial, job.dataset.samples());
        let Some(planner) = job.planner.clone().filter(|planner| planner.waits_for_trainer) else {
            return Ok(Vec::new());
        };
        job.ranks.arrive(rank, epoch);
        // Before it waits for others: one of them may be done with its own share before this one is awake.
        job.ranks.evaluates(rank);
        self.shared.planned.notify_all();
        loop {
            let job = state.jobs.still(serial)?;
            if job.run.schedule(epoch).is_some() {
                // It was planned already: nothing that comes now can change it.
                return Ok(Vec::new());
            }
            if job.has_everybody(epoch) || job.ranks.chose_late(patience) {
                break;
            }
            if state.is_stopping() {
                return Err(Error::unavailable("the server is stopping"));
            }
            let (back, _) = sync::wait(&self.shared.planned, state, LOOK_UP);
            state = back;
        }
        drop(state);
        let wanted = {
            let mut planner = planner.planner();
            if let Some(before) = epoch.checked_sub(1) {
                planner.close(before);
            }
            planner.reevaluation(epoch)
        };
        let share = |ids: &mut dyn Iterator<Item = Id>| -> Vec<Id> {
            ids.skip(rank as usize).step_by(world as usize).collect()
        };
        let own = match wanted {
            Reevaluation::Nothing => Vec::new(),
            Reevaluation::All => {
                self.choose(serial, epoch, samples, |engine| engine.ask_all(serial, epoch, samples))?;
                share(&mut (0..samples as Id))
            }
            Reevaluation::Set(ids) => {
                self.choose(serial, epoch, samples, |engine| engine.pin(serial, epoch, &ids))?;
                share(&mut ids.iter().copied())
            }
        };
        if own.is_empty() {
            self.evaluated(serial, rank)?;
        }
        Ok(own)
    }

    /// Does once, for the first rank that asks, what must be done about the samples that are re-evaluated before `epoch`. The
    /// other ranks wait until it is: what they read was asked for then.
    fn choose(
        &self,
        serial: u64,
        epoch: u64,
        samples: usize,
        work: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        let mut state = self.shared.lock();
        while !state.is_stopping() {
            match state.jobs.still(serial)?.ranks.choose(epoch, samples) {
                Choice::Made => return Ok(()),
                Choice::UnderWay => (state, _) = sync::wait(&self.shared.planned, state, LOOK_UP),
                Choice::Open => {
                    drop(state);
                    work(self)?;
                    self.shared.lock().jobs.still(serial)?.ranks.chosen(epoch);
                    self.shared.planned.notify_all();
                    return Ok(());
                }
            }
        }
        Err(Error::unavailable("the server is stopping"))
    }

    /// Counts the reads of an epoch before which all samples are re-evaluated, a slice a hold of the lock.
    fn ask_all(&self, serial: u64, epoch: u64, samples: usize) -> Result<()> {
        let ids: Vec<Id> = (0..samples as Id).collect();
        for slice in ids.chunks(SLICE) {
            let mut state = self.shared.lock();
            let State { jobs, rooms, .. } = &mut *state;
            let job = jobs.still(serial)?;
            let missing = rooms.cache_mut(serial)?.look_up_missing(job.run.member(), epoch, slice);
            missing.into_iter().for_each(|id| job.read_to_evaluate(epoch, id));
        }
        Ok(())
    }

    /// Keeps samples that are re-evaluated before every epoch, and counts their reads, a slice a hold of the lock.
    fn pin(&self, serial: u64, epoch: u64, ids: &[Id]) -> Result<()> {
        let ordered = {
            let state = self.shared.lock();
            residents_first(state.rooms.cache(serial)?.policy(), ids)
        };
        for slice in ordered.chunks(SLICE) {
            let mut state = self.shared.lock();
            let State { jobs, rooms, .. } = &mut *state;
            let job = jobs.still(serial)?;
            let mut read = Vec::new();
            let cache = rooms.cache_mut(serial)?;
            for (id, keeps) in cache.pin(job.run.member(), epoch, slice, &mut read) {
                rooms.keep(&job.dataset, id, keeps);
            }
            read.into_iter().for_each(|id| job.read_to_evaluate(epoch, id));
        }
        Ok(())
    }

    /// Takes losses under the current model, of those that [`Self::reevaluation`] asked a rank for; `last` when
    /// there are no more.
    pub fn reevaluated(
        &self,
        job: &str,
        epoch: u64,
        rank: u32,
        (ids, losses): (&[Id], &[f32]),
        last: bool,
    ) -> Result<()> {
        if ids.len() != losses.len() {
            return Err(Error::invalid(format!("{} ids came with {} losses", ids.len(), losses.len())));
        }
        let mut state = self.shared.lock();
        let job = state.jobs.planned(job)?;
        let (serial, samples, planner) = (job.serial, job.dataset.samples(), job.planner.clone());
        drop(state);
        if let Some(planner) = planner {
            let pairs = ids.iter().copied().zip(losses.iter().copied());
            planner
                .reevaluated(epoch, pairs.filter(|(id, loss)| (*id as usize) < samples && loss.is_finite()));
        }
        if last { self.evaluated(serial, rank) } else { Ok(()) }
    }

    /// A rank has re-evaluated its share.
    fn evaluated(&self, serial: u64, rank: u32) -> Result<()> {
        self.shared.lock().jobs.still(serial)?.ranks.evaluated(rank);
        self.shared.planned.notify_all();
        Ok(())
    }

    /// Takes a rank's accuracy after `epoch`.
    pub fn end_epoch(&self, job: &str, epoch: u64, rank: u32, accuracy: Option<f64>) -> Result<()> {
        if accuracy.is_some_and(|accuracy| !accuracy.is_finite()) {
            return Err(Error::invalid("`accuracy` is not a number"));
        }
        let planner = self.shared.lock().jobs.planned(job)?.planner.clone();
        if let (Some(planner), Some(accuracy)) = (planner, accuracy) {
            planner.accuracy(epoch + 1, rank, accuracy);
        }
        Ok(())
    }

    /// The last score of every sample of a job; not a number where there is none.
    pub fn scores(&self, job: &str) -> Result<Vec<f32>> {
        let planner = self.shared.lock().jobs.planned(job)?.planner.clone();
        Ok(planner.map(|planner| planner.planner().table().newest()).unwrap_or_default())
    }
}
