//! The trainings of a dataset, slot by slot: what they share, and how far each is.

use std::sync::Arc;

use hotset_core::importance::Score;
use hotset_core::log::{Circumstances, Event, MemberId};
use hotset_core::run::{Batch, Change, Outcome as Cost, Replay, Trainer, residents_first, valid_scores};
use hotset_core::sampling::{Plan, Reevaluation};
use hotset_core::{Error, Id, Result};

use super::{Stop, Trained, Training};
use crate::outcome::Epoch;
use crate::scenario::Scenario;
use crate::timeline::{StorageClock, Timeline};

/// What the trainings report: the losses of their traces.
pub(super) struct Traces<'a> {
    pub(super) members: &'a [(usize, &'a Training)],
}

impl Traces<'_> {
    fn scenario(&self, member: MemberId) -> &Scenario {
        &self.members[member as usize].1.scenario
    }
}

impl Trainer for Traces<'_> {
    fn train(&mut self, member: MemberId, plan: &Plan) -> Vec<Batch> {
        let scenario = self.scenario(member);
        let steps = 0..plan.rank_len().div_ceil(scenario.compute.batch.max(1));
        let of = |step| (0..plan.world()).map(move |rank| scenario.losses(plan, rank, step));
        steps.flat_map(of).collect()
    }

    fn evaluate(&mut self, member: MemberId, epoch: u64, ids: &[Id]) -> Vec<(Id, f32)> {
        let scenario = self.scenario(member);
        let trace = scenario.reevaluated.as_ref().unwrap_or(&scenario.trace);
        let Some(before) = epoch.checked_sub(1) else { return Vec::new() };
        let row = trace.row(before as usize);
        ids.iter().map(|&id| (id, row[id as usize])).filter(|(_, loss)| !loss.is_nan()).collect()
    }

    fn accuracy(&mut self, _member: MemberId, _epoch: u64) -> Option<f64> {
        None
    }
}

/// How far a training is.
pub(super) struct Progress<'a> {
    training: &'a Training,
    pub(super) dataset: usize,
    /// Its place among the trainings of its dataset.
    pub(super) place: usize,
    member: MemberId,
    pub(super) timeline: Timeline,
    /// The plan being decided, and how many of its slots are.
    plan: Option<(Arc<Plan>, usize)>,
    /// Batches of it that were reported.
    reported: usize,
    /// Slots of all plans that are decided.
    decided: usize,
    epochs: Vec<Epoch>,
    /// When it had had its epochs.
    pub(super) over: Option<f64>,
}

impl<'a> Progress<'a> {
    pub(super) fn new(training: &'a Training, (dataset, place): (usize, usize), member: MemberId) -> Self {
        let timeline = Timeline::new(training.scenario.compute, training.start);
        Self {
            training,
            dataset,
            place,
            member,
            timeline,
            plan: None,
            reported: 0,
            decided: 0,
            epochs: Vec::new(),
            over: None,
        }
    }

    /// When its next request may start, and how many slots it has decided.
    pub(super) fn next(&self) -> (u64, usize) {
        (self.timeline.earliest(), self.decided)
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.is_some()
    }

    pub(super) fn trained(self, capacity: u64) -> Trained {
        let Training { name, scenario, job, start, .. } = self.training;
        Trained {
            name: name.clone(),
            start: *start,
            end: self.timeline.ended(),
            benefit: self.training.benefit(),
            outcome: job.outcome(scenario, capacity, self.epochs),
        }
    }
}

/// What the trainings of a dataset share.
pub(super) struct Group<'a> {
    replay: Replay<'a>,
    stop: Stop,
    /// When each sample that was asked for last is there.
    arrives: Vec<u64>,
    pub(super) changes: Vec<Change>,
}

impl<'a> Group<'a> {
    pub(super) fn new(replay: Replay<'a>, stop: Stop) -> Self {
        Self { replay, stop, arrives: Vec::new(), changes: Vec::new() }
    }

    /// Decides the next slot of a training.
    pub(super) fn advance(&mut self, job: &mut Progress<'_>, storage: &mut StorageClock) -> Result<()> {
        self.changes.clear();
        let (plan, decided) = match job.plan.take() {
            Some(under_way) => under_way,
            None => (self.begin(job, storage)?, 0),
        };
        if decided < plan.len() {
            self.decide(job, storage, &plan)?;
            self.report(job, &plan, decided + 1)?;
        }
        if decided + 1 < plan.len() {
            job.plan = Some((plan, decided + 1));
        } else {
            self.end(job, &plan)?;
        }
        Ok(())
    }

    /// Begins the next epoch of a training, which joins before its first.
    fn begin(&mut self, job: &mut Progress<'_>, storage: &mut StorageClock) -> Result<Arc<Plan>> {
        let (member, epoch, scenario) = (job.member, job.epochs.len() as u64, &job.training.scenario);
        if epoch == 0 {
            self.arrives.resize(scenario.samples(), 0);
            self.replay.apply(&Event::Joined(member))?;
            self.replay.apply(&Event::Weighed { member, benefit: job.training.benefit() })?;
        }
        let reevaluation = self.replay.reevaluation(member, epoch)?;
        job.timeline.begin_epoch(reevaluation == Reevaluation::Nothing);
        let (ids, pinned) = match reevaluation {
            Reevaluation::Nothing => (Vec::new(), false),
            Reevaluation::All => ((0..scenario.samples() as Id).collect(), false),
            Reevaluation::Set(ids) => (residents_first(self.replay.cache().policy(), &ids), true),
        };
        if !ids.is_empty() {
            let missing = ids.iter().filter(|&&id| !self.replay.cache().keeps(id));
            let sizes = missing.map(|&id| scenario.sizes.size(id));
            job.timeline.evaluate(storage, sizes, ids.len());
            self.replay.apply(&if pinned {
                Event::Pinned { member, epoch, ids }
            } else {
                Event::LookedUp { member, epoch, ids }
            })?;
        }
        let others_at = self.replay.others_at(member);
        let circumstances = Circumstances { rates: Some(scenario.rates()), others_at };
        let world = scenario.compute.ranks;
        self.replay.apply(&Event::Planned { member, epoch, world, circumstances })?;
        job.reported = 0;
        let plan = self.replay.last_plan(member).cloned();
        plan.ok_or_else(|| Error::internal("a plan that was made is not there"))
    }

    fn decide(&mut self, job: &mut Progress<'_>, storage: &mut StorageClock, plan: &Plan) -> Result<()> {
        job.decided += 1;
        self.replay.step(job.member, &mut self.changes)?;
        let now = job.timeline.earliest();
        for change in &self.changes {
            let Change::Decided { slot, id, outcome, .. } = *change else { continue };
            let arrives = &mut self.arrives[id as usize];
            if outcome != Cost::Hit && *arrives <= now {
                *arrives = storage.request(job.training.scenario.sizes.size(id), now);
            }
            job.timeline.serve(*arrives, plan.weight(slot) > 0.0);
        }
        Ok(())
    }

    /// Tells a policy that takes scores at once of the batches that are trained when so many slots are decided.
    fn report(&mut self, job: &mut Progress<'_>, plan: &Plan, decided: usize) -> Result<()> {
        let Some(kind) = self.replay.cache().policy().takes() else { return Ok(()) };
        let compute = job.training.scenario.compute;
        let batch = compute.batch.max(1);
        let until = match decided == plan.len() {
            true => plan.rank_len().div_ceil(batch),
            false => (decided / (batch * plan.world() as usize)).saturating_sub(compute.prefetch),
        };
        for step in job.reported..until {
            for rank in 0..plan.world() {
                let told = job.training.scenario.losses(plan, rank, step);
                let mut slices = Vec::new();
                valid_scores(&told.ids, &Score::of(kind, &told.losses), |slice| slices.push(slice.to_vec()));
                for scores in slices {
                    self.replay.apply(&Event::Scored { member: job.member, scores })?;
                }
            }
        }
        job.reported = job.reported.max(until);
        Ok(())
    }

    /// Ends an epoch of a training, which leaves after its last.
    fn end(&mut self, job: &mut Progress<'_>, plan: &Plan) -> Result<()> {
        let time = job.timeline.end_epoch();
        let tally = self.replay.tally(job.member);
        let mut counters =
            tally.and_then(|tally| tally.epochs().get(&plan.epoch())).cloned().unwrap_or_default();
        (counters.clock.late, counters.waits) = (time.late, time.waits.clone());
        job.epochs.push(Epoch { counters, time });
        if job.epochs.len() == job.training.scenario.epochs() {
            job.over = Some(job.timeline.ended());
            if self.stop == Stop::Epochs {
                self.replay.apply(&Event::Left(job.member))?;
            }
        }
        Ok(())
    }
}
