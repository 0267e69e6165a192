//! Several trainings over one cache and one storage, at speeds and starts of their own.
//!
//! Jobs and cache are those of [`hotset_core::run::Replay`], which also replays the log of a server; here the events
//! come from modelled time. The training whose next request may start first decides its next slot, in turns where several
//! may, and requests of all pass through one storage. A sample that another one has asked for, and that has not arrived, is waited for and not
//! asked for again. The cache has its memory from the first start to the last end.

use std::sync::Arc;

use hotset_core::cache::{Cache, Circumstances, Event, MemberId};
use hotset_core::importance::Score;
use hotset_core::run::{
    Batch, Change, Config, Outcome as Cost, Replay, Trainer, residents_first, valid_scores,
};
use hotset_core::sampling::{Plan, Reevaluation};
use hotset_core::{Error, Id, Result, policy};

use crate::outcome::{Epoch, Outcome};
use crate::scenario::{Job, Scenario};
use crate::timeline::{StorageClock, Timeline};

/// One training.
#[derive(Clone)]
pub struct Training {
    /// What it is called in reports.
    pub name: String,
    /// Its losses and its trainer. Sizes and storage are those of the first one.
    pub scenario: Scenario,
    /// What it runs; policy and cache are those of the first one.
    pub job: Job,
    /// When it starts, in seconds.
    pub start: f64,
    /// What it gains from a cache; worked out from the storage and its trainer where it is not given.
    pub benefit: Option<f64>,
}

impl Training {
    /// How much longer a batch takes that is read than one that is there, as a probe would find.
    fn benefit(&self) -> f64 {
        let rates = self.scenario.rates();
        self.benefit.unwrap_or_else(|| (rates.training / rates.storage.max(1e-9)).max(1.0))
    }
}

/// What came of one training.
#[derive(Debug, Clone)]
pub struct Trained {
    /// What it is called.
    pub name: String,
    /// When it started, in seconds.
    pub start: f64,
    /// When it ended, in seconds.
    pub end: f64,
    /// What it gains from a cache.
    pub benefit: f64,
    /// What was counted.
    pub outcome: Outcome,
}

impl Trained {
    /// Reads of all epochs.
    pub fn reads(&self) -> u64 {
        self.outcome.epochs.iter().map(|epoch| epoch.counters.plan.storage_reads).sum()
    }
}

/// Trains all of them over one cache; what came of each, in the order given.
pub fn run(trainings: &[Training]) -> Result<Vec<Trained>> {
    let first = check(trainings)?;
    // Members are numbered as they join.
    let mut order: Vec<usize> = (0..trainings.len()).collect();
    order.sort_by(|&a, &b| trainings[a].start.total_cmp(&trainings[b].start));
    let members: Vec<&Training> = order.iter().map(|&at| &trainings[at]).collect();
    let capacity = first.job.amount.of(first.scenario.bytes);
    let config = |training: &&Training| training.job.config(&training.scenario, capacity, None);
    let configs: Vec<Config> = members.iter().map(config).collect::<Result<_>>()?;
    let cache = Cache::new(configs[0].policy(), first.scenario.samples());
    let mut traces = Traces { members: &members };
    let mut configs = |member: MemberId| configs[member as usize].clone();
    let mut shared = Shared {
        replay: Replay::new(cache, &mut configs, &mut traces),
        storage: StorageClock::new(first.scenario.storage),
        arrives: vec![0; first.scenario.samples()],
        changes: Vec::new(),
    };
    let mut jobs: Vec<Progress<'_>> =
        members.iter().zip(0..).map(|(one, member)| Progress::new(one, member)).collect();
    while let Some(job) = jobs.iter_mut().filter(|job| !job.is_over()).min_by_key(|job| job.next()) {
        shared.advance(job)?;
    }
    let mut trained: Vec<(usize, Trained)> =
        order.iter().copied().zip(jobs.into_iter().map(|job| job.trained(capacity))).collect();
    trained.sort_by_key(|(at, _)| *at);
    Ok(trained.into_iter().map(|(_, trained)| trained).collect())
}

/// Refuses what cannot share a cache; the first training.
fn check(trainings: &[Training]) -> Result<&Training> {
    let first = trainings.first().ok_or_else(|| Error::invalid("there is no training to simulate"))?;
    let policy = policy::find(&first.job.policy.name)?;
    if !policy.shared || policy.offline {
        return Err(Error::invalid(format!(
            "policy `{}` is one job's own: choose another for jobs that share a cache",
            first.job.policy
        )));
    }
    for other in trainings {
        if other.job.policy != first.job.policy {
            return Err(Error::invalid(format!(
                "`{}` has policy `{}` and `{}` has `{}`: jobs share a cache if they have one policy",
                first.name, first.job.policy, other.name, other.job.policy
            )));
        }
        if other.scenario.samples() != first.scenario.samples() {
            return Err(Error::invalid(format!(
                "the trace of `{}` has {} samples and that of `{}` {}: jobs share a cache if they train one dataset",
                first.name,
                first.scenario.samples(),
                other.name,
                other.scenario.samples()
            )));
        }
    }
    Ok(first)
}

/// What the trainings report: the losses of their traces.
struct Traces<'a> {
    members: &'a [&'a Training],
}

impl Trainer for Traces<'_> {
    fn train(&mut self, member: MemberId, plan: &Plan) -> Vec<Batch> {
        let scenario = &self.members[member as usize].scenario;
        let batch = scenario.compute.batch.max(1);
        let starts = (0..plan.rank_len()).step_by(batch);
        let of = |position| (0..plan.world()).map(move |rank| losses(scenario, plan, rank, position, batch));
        starts.flat_map(of).collect()
    }

    fn evaluate(&mut self, member: MemberId, epoch: u64, ids: &[Id]) -> Vec<(Id, f32)> {
        let scenario = &self.members[member as usize].scenario;
        let trace = scenario.reevaluated.as_ref().unwrap_or(&scenario.trace);
        let Some(before) = epoch.checked_sub(1) else { return Vec::new() };
        let row = trace.row(before as usize);
        ids.iter().map(|&id| (id, row[id as usize])).filter(|(_, loss)| !loss.is_nan()).collect()
    }

    fn accuracy(&mut self, _member: MemberId, _epoch: u64) -> Option<f64> {
        None
    }
}

/// The losses of a batch of a rank.
fn losses(scenario: &Scenario, plan: &Plan, rank: u32, position: usize, batch: usize) -> Batch {
    let row = scenario.trace.row(plan.epoch() as usize);
    let slots = (position..(position + batch).min(plan.rank_len())).map(|at| plan.slot(rank, at));
    let told = |slot: usize| {
        let id = plan.ids()[slot];
        (id, if plan.weight(slot) > 0.0 { row[id as usize] } else { f32::NAN })
    };
    let (ids, losses) = slots.map(told).unzip();
    Batch { position, ids, losses }
}

/// How far a training is.
struct Progress<'a> {
    training: &'a Training,
    member: MemberId,
    timeline: Timeline,
    /// The plan being decided, and how many of its slots are.
    plan: Option<(Arc<Plan>, usize)>,
    /// Batches of it that were reported.
    reported: usize,
    /// Slots of all plans that are decided.
    decided: usize,
    epochs: Vec<Epoch>,
}

impl<'a> Progress<'a> {
    fn new(training: &'a Training, member: MemberId) -> Self {
        let timeline = Timeline::new(training.scenario.compute, training.start);
        Self { training, member, timeline, plan: None, reported: 0, decided: 0, epochs: Vec::new() }
    }

    /// When its next request may start, and how many slots it has decided.
    fn next(&self) -> (u64, usize) {
        (self.timeline.earliest(), self.decided)
    }

    fn is_over(&self) -> bool {
        self.epochs.len() == self.training.scenario.epochs()
    }

    fn trained(self, capacity: u64) -> Trained {
        let Training { name, scenario, job, start, .. } = self.training;
        Trained {
            name: name.clone(),
            start: *start,
            end: self.timeline.ended(),
            benefit: self.training.benefit(),
            outcome: Outcome {
                strategy: job.strategy.to_string(),
                policy: job.policy.to_string(),
                cache: job.cache.clone(),
                capacity,
                seed: job.seed,
                samples: scenario.samples(),
                bytes: scenario.bytes,
                epochs: self.epochs,
                notes: Vec::new(),
            },
        }
    }
}

/// What the trainings share.
struct Shared<'a> {
    replay: Replay<'a>,
    storage: StorageClock,
    /// When each sample that was asked for last is there.
    arrives: Vec<u64>,
    changes: Vec<Change>,
}

impl Shared<'_> {
    /// Decides the next slot of a training.
    fn advance(&mut self, job: &mut Progress<'_>) -> Result<()> {
        let (plan, decided) = match job.plan.take() {
            Some(under_way) => under_way,
            None => (self.begin(job)?, 0),
        };
        if decided < plan.len() {
            self.decide(job, &plan)?;
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
    fn begin(&mut self, job: &mut Progress<'_>) -> Result<Arc<Plan>> {
        let (member, epoch, scenario) = (job.member, job.epochs.len() as u64, &job.training.scenario);
        if epoch == 0 {
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
            job.timeline.evaluate(&mut self.storage, sizes, ids.len());
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

    fn decide(&mut self, job: &mut Progress<'_>, plan: &Plan) -> Result<()> {
        self.changes.clear();
        job.decided += 1;
        self.replay.step(job.member, &mut self.changes)?;
        let now = job.timeline.earliest();
        for change in &self.changes {
            let Change::Decided { slot, id, outcome, .. } = *change else { continue };
            let arrives = &mut self.arrives[id as usize];
            if outcome != Cost::Hit && *arrives <= now {
                *arrives = self.storage.request(job.training.scenario.sizes.size(id), now);
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
                let told = losses(&job.training.scenario, plan, rank, step * batch, batch);
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
        if job.is_over() {
            self.replay.apply(&Event::Left(job.member))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
