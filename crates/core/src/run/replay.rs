//! Jobs over one cache, as a simulator drives them.
//!
//! What a plan asks for follows from plans, sizes and reports; what does not is told here event by event: which job's slot
//! is decided first, after which slot a policy hears of a score, how fast storage seems when a plan is made. What was
//! trained comes from a [`Trainer`], and every slot is served when it is decided. (A live run, with all that was left and
//! begun over, is played back by [`crate::log::Playback`].)

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{CacheView, Change, Config, Inputs, JobRun, Planner, cache_view, reports};
use crate::cache::Cache;
use crate::counters::PlanCounters;
use crate::log::{Circumstances, Event, MemberId};
use crate::sampling::{Plan, Reevaluation};
use crate::schedule::Schedule;
use crate::tally::Tally;
use crate::{Error, Id, Result};

/// The losses of one mini-batch of a rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// The position of its first sample among the rank's slots.
    pub position: usize,
    /// Its samples.
    pub ids: Vec<Id>,
    /// Their losses; not a number where none was reported.
    pub losses: Vec<f32>,
}

/// What the trainings of a run told.
pub trait Trainer {
    /// The mini-batches that were trained of a job's plan.
    fn train(&mut self, member: MemberId, plan: &Plan) -> Vec<Batch>;
    /// Losses under the model before `epoch`.
    fn evaluate(&mut self, member: MemberId, epoch: u64, ids: &[Id]) -> Vec<(Id, f32)>;
    /// The accuracy after the epoch before `epoch`.
    fn accuracy(&mut self, member: MemberId, epoch: u64) -> Option<f64>;
}

/// One job.
struct Job {
    planner: Planner,
    run: JobRun,
    samples: usize,
    last: Option<Arc<Plan>>,
    /// The order that was given for the plan that is made next.
    order: Option<Arc<[Id]>>,
}

/// A run that is replayed.
pub struct Replay<'a> {
    cache: Cache,
    jobs: BTreeMap<MemberId, Job>,
    configs: &'a mut dyn FnMut(MemberId) -> Config,
    trainer: &'a mut dyn Trainer,
}

impl<'a> Replay<'a> {
    /// One of nothing yet, over a cache that is empty. Each job that joins is made as `configs` says.
    pub fn new(
        cache: Cache,
        configs: &'a mut dyn FnMut(MemberId) -> Config,
        trainer: &'a mut dyn Trainer,
    ) -> Self {
        Self { cache, jobs: BTreeMap::new(), configs, trainer }
    }

    /// The counters of a job's epochs so far.
    pub fn counters(&self, member: MemberId) -> BTreeMap<u64, PlanCounters> {
        let epochs = self.jobs.get(&member).map(|job| job.run.tally().epochs().iter());
        epochs.into_iter().flatten().map(|(&epoch, counters)| (epoch, counters.plan.clone())).collect()
    }

    /// The tally of a job, if it has joined.
    pub fn tally(&self, member: MemberId) -> Option<&Tally> {
        self.jobs.get(&member).map(|job| job.run.tally())
    }

    /// The plan of a job that was made last.
    pub fn last_plan(&self, member: MemberId) -> Option<&Arc<Plan>> {
        self.jobs.get(&member)?.last.as_ref()
    }

    /// The cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Where jobs are that share the cache with this one, as [`Circumstances`] has it.
    pub fn others_at(&self, member: MemberId) -> Option<Id> {
        let others = self.jobs.iter().filter(|(other, _)| **other != member);
        others.filter_map(|(_, job)| job.run.place()).max().map(|(_, id)| id)
    }

    /// All that was trained of a job's last plan is reported; whose losses its plan of `epoch` needs.
    pub fn reevaluation(&mut self, member: MemberId, epoch: u64) -> Result<Reevaluation> {
        self.close_epoch(member)?;
        Ok(self.job(member)?.planner.reevaluation(epoch))
    }

    /// Does what happened.
    pub fn apply(&mut self, event: &Event) -> Result<()> {
        match event {
            Event::Joined(member) => self.join(*member),
            Event::Left(member) => {
                self.cache.leave(*member);
                Ok(())
            }
            Event::Resized(capacity) => {
                self.cache.resize(*capacity);
                Ok(())
            }
            Event::Weighed { member, benefit } => {
                self.cache.weigh(*member, *benefit);
                Ok(())
            }
            Event::Planned { member, epoch, world, circumstances } => {
                self.plan(*member, *epoch, *world, *circumstances)
            }
            Event::Decided { member, slots } => self.decide(*member, *slots),
            Event::Scored { member, scores } => {
                self.cache.scored(*member, scores);
                Ok(())
            }
            Event::Pinned { member, epoch, ids } => {
                let mut read = Vec::new();
                self.cache.pin(*member, *epoch, ids, &mut read);
                self.read_beside(*member, *epoch, &read)
            }
            Event::LookedUp { member, epoch, ids } => {
                let missing = self.cache.look_up_missing(*member, *epoch, ids);
                self.read_beside(*member, *epoch, &missing)
            }
            Event::Told(member, told) => {
                self.job(*member)?.order.clone_from(&told.order);
                Ok(())
            }
            // What follows from the others here.
            _ => Ok(()),
        }
    }

    fn job(&mut self, member: MemberId) -> Result<&mut Job> {
        self.jobs.get_mut(&member).ok_or_else(|| unknown(member))
    }

    fn join(&mut self, member: MemberId) -> Result<()> {
        let config = (self.configs)(member);
        let (sizes, samples) = (Arc::clone(&config.sizes), config.sizes.len());
        let planner = Planner::new(config, self.cache.policy().takes_packages());
        let mut run = JobRun::new(sizes);
        run.join(&mut self.cache);
        if run.member() != member {
            return Err(Error::invalid("the log does not begin where its cache does"));
        }
        self.jobs.insert(member, Job { planner, run, samples, last: None, order: None });
        Ok(())
    }

    fn read_beside(&mut self, member: MemberId, epoch: u64, ids: &[Id]) -> Result<()> {
        let job = self.job(member)?;
        ids.iter().for_each(|&id| job.run.tally_mut().reads_beside(epoch, id));
        Ok(())
    }

    /// All of a job's last plan is reported.
    fn close_epoch(&mut self, member: MemberId) -> Result<()> {
        let Self { jobs, trainer, .. } = self;
        let job = jobs.get_mut(&member).ok_or_else(|| unknown(member))?;
        let Some(last) = job.last.take() else { return Ok(()) };
        for batch in trainer.train(member, &last) {
            let scores = job.planner.score().of(&batch.losses);
            let at = (last.epoch(), last.rank_len(), batch.position);
            let all = reports(at, &batch.ids, &batch.losses, &scores);
            let valid: Vec<_> = all.into_iter().filter(|report| !report.value.is_nan()).collect();
            let mut done = 0;
            while done < valid.len() {
                done += job.planner.report(&valid[done..]);
            }
        }
        job.planner.close(last.epoch());
        Ok(())
    }

    /// All of the epoch before is reported, and the plan of `epoch` is made.
    fn plan(&mut self, member: MemberId, epoch: u64, world: u32, circumstances: Circumstances) -> Result<()> {
        self.close_epoch(member)?;
        let Self { cache, jobs, trainer, .. } = self;
        let job = jobs.get_mut(&member).ok_or_else(|| unknown(member))?;
        let reevaluated = match job.planner.reevaluation(epoch) {
            Reevaluation::Nothing => Vec::new(),
            Reevaluation::Set(ids) => trainer.evaluate(member, epoch, &ids),
            Reevaluation::All => {
                let all: Vec<Id> = (0..job.samples as Id).collect();
                trainer.evaluate(member, epoch, &all)
            }
        };
        let order = job.order.take();
        let inputs = Inputs {
            reevaluated: (!reevaluated.is_empty()).then_some(&reevaluated),
            accuracy: trainer.accuracy(member, epoch),
            rates: circumstances.rates,
            order: order.as_deref(),
        };
        let residents = job.planner.looks_at_residents();
        let view = cache_view(cache.policy(), job.samples, residents);
        let view = CacheView { others_at: circumstances.others_at, ..view };
        let made = job.planner.plan(epoch, world, &inputs, &view);
        if let Some(keys) = made.plan.keys().filter(|_| cache.members() > 1) {
            keys.rank();
        }
        made.packing.packages.iter().for_each(|(number, _)| job.planner.written(*number));
        let schedule = Schedule::new(Arc::clone(&made.plan), job.samples).with_packages(made.packages);
        job.run.drop_done();
        job.run.planned(schedule, &made.packing);
        job.run.tally_mut().begun(epoch, made.plan.len());
        job.last = Some(made.plan);
        Ok(())
    }

    /// Decides the next slots of a job's plans, and serves them.
    fn decide(&mut self, member: MemberId, slots: u64) -> Result<()> {
        let mut changes = Vec::new();
        for _ in 0..slots {
            changes.clear();
            if !self.step(member, &mut changes)? {
                return Err(Error::invalid("the log decides more slots than were planned"));
            }
        }
        Ok(())
    }

    /// Decides the next slot of a job's plans, and serves it: what that brought about is appended to `changes`. False when
    /// its plans are decided to their end.
    pub fn step(&mut self, member: MemberId, changes: &mut Vec<Change>) -> Result<bool> {
        let Self { cache, jobs, .. } = self;
        let job = jobs.get_mut(&member).ok_or_else(|| unknown(member))?;
        let Some((epoch, block)) = job.run.next_block() else { return Ok(false) };
        job.run.step(cache, changes);
        job.run.serve(epoch, [block.start]);
        Ok(true)
    }
}

fn unknown(member: MemberId) -> Error {
    Error::invalid(format!("the log speaks of job {member}, which has not joined"))
}
