//! What trainers tell: losses, losses under the current model, accuracies.
//!
//! Losses go to the planner's table through its inbox, and to the policy at once where it takes them; either way no
//! lock is held for more than a slice of them.

use std::sync::Arc;

use hotset_core::importance::{SLICE, Score};
use hotset_core::log::MemberId;
use hotset_core::run::{reports, residents_first, valid_scores};
use hotset_core::sampling::{Plan, Reevaluation};
use hotset_core::{Error, Id, Result};

use crate::engine::{Engine, LOOK_UP};
use crate::jobs::{Choice, check_epoch, check_rank};
use crate::planning::look_ahead;
use crate::state::State;
use crate::sync::{self, MutexGuard, thread};

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

/// What is heard of a mini-batch.
struct Heard {
    /// The loss of each sample; not a number where nothing is known of it.
    heard: Vec<f32>,
    /// How many were not trained.
    quiet: u64,
    /// The slot of each, where the plan is known.
    slots: Vec<Option<usize>>,
}

impl Trained<'_> {
    /// The position of its first sample among the rank's.
    fn position(&self) -> usize {
        usize::try_from(self.upto).unwrap_or(usize::MAX).saturating_sub(self.ids.len())
    }

    /// Slots of weight 0 were not trained: nothing is known of their samples, and nothing is refused.
    fn heard(&self, plan: Option<&Plan>, samples: usize) -> Heard {
        let slot = |(offset, id): (usize, &Id)| {
            let slot = plan?.slot(self.rank, self.position().saturating_add(offset));
            (plan?.ids().get(slot) == Some(id)).then_some(slot)
        };
        let slots: Vec<Option<usize>> = self.ids.iter().enumerate().map(slot).collect();
        let silent =
            |slot: &Option<usize>| plan.zip(*slot).is_some_and(|(plan, slot)| plan.weight(slot) == 0.0);
        let inside = |id: Id| (id as usize) < samples;
        let loss = |((&id, &loss), slot)| if inside(id) && !silent(slot) { loss } else { f32::NAN };
        let heard = self.ids.iter().zip(self.losses).zip(&slots).map(loss).collect();
        let quiet = slots.iter().filter(|slot| silent(slot)).count() as u64;
        Heard { heard, quiet, slots }
    }
}

impl Engine {
    /// Whether a job's policy takes scores the moment they are reported.
    pub fn takes_scores(&self, job: &str) -> bool {
        let mut state = self.shared.lock();
        let State { jobs, rooms, .. } = &mut *state;
        let serial = jobs.named(job).map(|job| job.serial);
        serial.is_ok_and(|serial| rooms.cache(serial).is_ok_and(|cache| cache.policy().takes().is_some()))
    }

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
        let plan = schedule.map(|schedule| Arc::clone(schedule.plan()));
        let restored = schedule.is_some_and(|schedule| schedule.is_restored());
        drop(state);

        let Heard { heard, quiet, slots } = trained.heard(plan.as_deref(), samples);
        let position = trained.position();
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
            let trained: Vec<usize> = slots.into_iter().flatten().collect();
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
            state = self.tell_policy(state, (serial, member), epoch, ids, own.unwrap_or(scores));
        }
        look_ahead(&self.shared, &mut state, serial);
        self.shared.planned.notify_all();
        Ok((accepted, rejected))
    }

    /// A rank has reported losses to the job's home: tells the policy of this node, if it takes scores at once.
    pub fn scored(&self, job: &str, trained: Trained<'_>) -> Result<()> {
        let mut state = self.shared.lock();
        let State { jobs, rooms, .. } = &mut *state;
        let job = jobs.planned(job)?;
        let (serial, samples, member) = (job.serial, job.dataset.samples(), job.run.member());
        let Some(kind) = rooms.cache(serial)?.policy().takes() else { return Ok(()) };
        let plan = job.run.schedule(trained.epoch).map(|schedule| Arc::clone(schedule.plan()));
        if trained.ids.len() != trained.losses.len() {
            return Err(Error::invalid(format!(
                "{} ids came with {} scores",
                trained.ids.len(),
                trained.losses.len()
            )));
        }
        drop(state);
        let heard = trained.heard(plan.as_deref(), samples).heard;
        let state = self.shared.lock();
        drop(self.tell_policy(state, (serial, member), trained.epoch, trained.ids, Score::of(kind, &heard)));
        Ok(())
    }

    /// Tells a job's policy of the scores of one mini-batch, a slice a hold of the lock; of several nodes each tells its own
    /// of what it owns.
    fn tell_policy<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        (serial, member): (u64, MemberId),
        epoch: u64,
        ids: &[Id],
        mut scores: Vec<f32>,
    ) -> MutexGuard<'a, State> {
        let run = state.jobs.get(serial).map(|job| &job.run);
        let schedule = run.and_then(|run| run.schedule(epoch).or(run.schedules().values().next_back()));
        let ownership = schedule.and_then(|schedule| schedule.ownership().cloned());
        if let Some(ownership) = ownership {
            let others = ids.iter().zip(&mut scores).filter(|(id, _)| !ownership.owns(**id));
            others.for_each(|(_, score)| *score = f32::NAN);
        }
        let mut held = Some(state);
        valid_scores(ids, &scores, |slice| {
            let mut state = held.take().unwrap_or_else(|| self.shared.lock());
            state.note_applied(slice.len());
            // The job may have ended meanwhile.
            if let Ok(cache) = state.rooms.cache_mut(serial) {
                cache.scored(member, slice);
            }
        });
        held.unwrap_or_else(|| self.shared.lock())
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
        let nodes = state.jobs.still(serial)?.nodes_of(world);
        drop(state);
        let wanted = planner.reevaluation(epoch);
        let share = |ids: &mut dyn Iterator<Item = Id>| -> Vec<Id> {
            match &nodes {
                Some((layout, ownership)) => layout.share(rank, ids, |id| ownership.owner(id)),
                None => ids.skip(rank as usize).step_by(world as usize).collect(),
            }
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
    pub(crate) fn choose(
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
                    let done = work(self);
                    self.shared.lock().jobs.still(serial)?.ranks.chosen(epoch, done.is_ok());
                    self.shared.planned.notify_all();
                    return done;
                }
            }
        }
        Err(Error::unavailable("the server is stopping"))
    }

    /// Counts the reads of an epoch before which all samples are re-evaluated, a slice a hold of the lock.
    pub(crate) fn ask_all(&self, serial: u64, epoch: u64, samples: usize) -> Result<()> {
        let ids: Vec<Id> = (0..samples as Id).collect();
        for slice in ids.chunks(SLICE) {
            let mut state = self.shared.lock();
            let State { jobs, rooms, .. } = &mut *state;
            let job = jobs.still(serial)?;
            let slice: Vec<Id> = slice.iter().copied().filter(|&id| job.owns(id)).collect();
            let missing = rooms.cache_mut(serial)?.look_up_missing(job.run.member(), epoch, &slice);
            missing.into_iter().for_each(|id| job.read_to_evaluate(epoch, id));
        }
        Ok(())
    }

    /// Keeps samples that are re-evaluated before every epoch, and counts their reads, a slice a hold of the lock.
    pub(crate) fn pin(&self, serial: u64, epoch: u64, ids: &[Id]) -> Result<()> {
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
            let slice: Vec<Id> = slice.iter().copied().filter(|&id| job.owns(id)).collect();
            for (id, keeps) in cache.pin(job.run.member(), epoch, &slice, &mut read) {
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
