//! A live run once more, from its log.
//!
//! Caches, planners and runs are made as the log says and told what it says, in its order; then they decide and count what
//! those of the live run did. Where the log has what the live run counted until then, the two are compared. A log that
//! does not fit itself ends the playback there, with the reason: nothing is counted by guess.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::setup::{Opening, Setup, SetupPackages};
use super::{Before, Circumstances, Event, MemberId, Slots, Step, Told};
use crate::cache::Cache;
use crate::counters::PlanCounters;
use crate::run::{CacheView, Inputs, JobRun, PlannedEpoch, Planner, RunState, cache_view};
use crate::schedule::{Schedule, Stage};
use crate::{Error, Id, Result};

/// What was counted of an epoch, when both last said.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Compared {
    /// By the live run.
    pub live: PlanCounters,
    /// By the playback.
    pub played: PlanCounters,
    /// Whether they were the same whenever they were compared.
    pub same: bool,
}

/// One job of a log.
pub struct JobPlayback {
    setup: Arc<Setup>,
    planner: Planner,
    run: JobRun,
    /// What was told for the plan that is made next.
    told: Arc<Told>,
    /// The plan that was made last, and plans that were made and not put in.
    digest: u64,
    made: BTreeMap<u64, PlannedEpoch>,
    compared: BTreeMap<u64, Compared>,
}

impl JobPlayback {
    /// How it was made.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Its epochs, those that were compared.
    pub fn epochs(&self) -> &BTreeMap<u64, Compared> {
        &self.compared
    }

    /// What was counted of its epochs so far.
    pub fn counters(&self) -> BTreeMap<u64, PlanCounters> {
        let epochs = self.run.tally().epochs().iter();
        epochs.map(|(&epoch, counters)| (epoch, counters.plan.clone())).collect()
    }

    fn schedule(&self, epoch: u64) -> Result<&Schedule> {
        self.run.schedule(epoch).ok_or_else(|| misfit("it speaks of a plan that is not under way"))
    }

    /// The slots of a plan under way, if it has them.
    fn slots(&self, epoch: u64, slots: Slots) -> Result<impl Iterator<Item = usize> + use<>> {
        let end = self.schedule(epoch)?.plan().len();
        match slots.iter().all(|slot| slot < end) {
            true => Ok(slots.iter()),
            false => Err(misfit("it speaks of a slot that its plan does not have")),
        }
    }

    fn rank(&self, epoch: u64, rank: u32) -> Result<u32> {
        let world = self.schedule(epoch)?.plan().world();
        if rank < world { Ok(rank) } else { Err(misfit("it speaks of a rank that its plan does not have")) }
    }

    fn count(&mut self, live: &[(u64, PlanCounters)]) {
        for (epoch, live) in live {
            let played = self.run.tally().epochs().get(epoch).map(|counters| counters.plan.clone());
            let (live, played) = (live.clone(), played.unwrap_or_default());
            let before = self.compared.get(epoch).is_none_or(|compared| compared.same);
            let same = before && live == played;
            self.compared.insert(*epoch, Compared { live, played, same });
        }
    }

    /// Puts a plan in that was made.
    fn put(&mut self, epoch: u64) -> Result<()> {
        let made = self.made.remove(&epoch).ok_or_else(|| misfit("a plan comes that was not made"))?;
        let samples = self.planner.table().len();
        let schedule = Schedule::new(made.plan, samples).with_packages(made.packages);
        self.run.planned(schedule, &made.packing);
        Ok(())
    }

    fn step(&mut self, epoch: u64, step: Step) -> Result<()> {
        match step {
            Step::Ready => self.put(epoch)?,
            Step::Begun { rank, start } => {
                self.run.begin(epoch, self.rank(epoch, rank)?, start, &mut Vec::new());
            }
            Step::BegunAgain { rank, start } => {
                self.run.begin_again(epoch, self.rank(epoch, rank)?, start, &mut Vec::new());
            }
            Step::Entered => self.run.enter(epoch),
            Step::Forgotten => self.run.count_anew(epoch),
            Step::Closed { rank } => {
                self.run.close(epoch, self.rank(epoch, rank)?, &mut Vec::new());
            }
            Step::Abandoned { from } => {
                self.run.abandon_from(epoch, from);
            }
            Step::Overtaken { slot, margin } => {
                let mut slots = self.slots(epoch, Slots::one(slot))?;
                slots.try_for_each(|slot| {
                    self.run.overtake(epoch, slot, margin, &mut Vec::new());
                    Ok(())
                })?;
            }
            Step::Recut { world: 0 } => return Err(misfit("a plan is cut for no rank")),
            Step::Recut { world } => drop(self.run.recut(epoch, world)),
            Step::Removed => drop(self.run.remove(epoch)),
            Step::Taken(slots) => self.slots(epoch, slots)?.for_each(|slot| self.run.take(epoch, slot)),
            Step::GivenBack(slots, before) => {
                let was = match before {
                    Before::Ahead => Stage::Ahead,
                    Before::Decided => Stage::Unread,
                    Before::Again => Stage::Again,
                };
                self.slots(epoch, slots)?.for_each(|slot| self.run.give_back(epoch, slot, was));
            }
            Step::Served(slots) => {
                let slots = self.slots(epoch, slots)?;
                self.run.serve(epoch, slots);
            }
            Step::WereServed(slots) => {
                self.slots(epoch, slots)?.for_each(|slot| self.run.were_served(epoch, slot));
            }
            Step::Settled { slot, hit } => {
                self.slots(epoch, Slots::one(slot))?.for_each(|slot| self.run.settle(epoch, slot, hit));
            }
        }
        Ok(())
    }
}

/// A log that is played back.
#[derive(Default)]
pub struct Playback {
    opening: Option<Arc<Opening>>,
    cache: Option<Cache>,
    jobs: BTreeMap<MemberId, JobPlayback>,
    /// Why it goes no further.
    ended: Option<String>,
}

impl Playback {
    /// Of nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// How the cache was made, once the log has said so.
    pub fn opening(&self) -> Option<&Opening> {
        self.opening.as_deref()
    }

    /// The jobs that have joined, by their numbers.
    pub fn jobs(&self) -> impl Iterator<Item = &JobPlayback> {
        self.jobs.values()
    }

    /// Why it goes no further, if it does not.
    pub fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }

    /// Does what happened, unless it has ended.
    pub fn play(&mut self, event: &Event) {
        if self.ended.is_some() {
            return;
        }
        if let Err(error) = self.apply(event) {
            self.ended = Some(error.message);
        }
    }

    fn apply(&mut self, event: &Event) -> Result<()> {
        match event {
            Event::Opened(opening) => {
                self.cache = Some(opening.cache()?);
                self.opening = Some(Arc::clone(opening));
            }
            // What these say is said by the next.
            Event::Joined(_) | Event::Saved(_) | Event::End => {}
            Event::Made(member, setup) => self.join(*member, setup)?,
            Event::Resumed { member, state, opened } => self.resume(*member, state, *opened)?,
            Event::Left(member) => self.cache()?.leave(*member),
            Event::Resized(capacity) => drop(self.cache()?.resize(*capacity)),
            Event::Weighed { member, benefit } => self.cache()?.weigh(*member, *benefit),
            Event::Scored { member, scores } => {
                self.check_ids(scores.iter().map(|(id, _)| *id))?;
                self.cache()?.scored(*member, scores);
            }
            Event::Pinned { member, epoch, ids } => {
                self.check_ids(ids.iter().copied())?;
                let mut read = Vec::new();
                self.cache()?.pin(*member, *epoch, ids, &mut read);
                self.read_beside(*member, *epoch, &read)?;
            }
            Event::LookedUp { member, epoch, ids } => {
                self.check_ids(ids.iter().copied())?;
                let missing = self.cache()?.look_up_missing(*member, *epoch, ids);
                self.read_beside(*member, *epoch, &missing)?;
            }
            Event::Reported { member, reports } => {
                let planner = &mut self.job(*member)?.planner;
                let mut done = 0;
                while done < reports.len() {
                    done += planner.report(&reports[done..]);
                }
            }
            Event::Closed(member, epoch) => self.job(*member)?.planner.close(*epoch),
            Event::Rewound(member, epoch) => self.job(*member)?.planner.rewind(*epoch),
            Event::PackageLost(member, package) => self.job(*member)?.planner.lost(*package),
            Event::PackingStopped(member) => self.job(*member)?.planner.stop_packing(),
            Event::Told(member, told) => {
                self.check_ids(told.reevaluated.iter().map(|(id, _)| *id))?;
                self.check_ids(told.order.iter().flat_map(|order| order.iter().copied()))?;
                self.job(*member)?.told = Arc::clone(told);
            }
            Event::Planned { member, epoch, world, circumstances } => {
                self.plan(*member, *epoch, *world, *circumstances)?;
            }
            Event::Drawn { member, digest } => {
                if self.job(*member)?.digest != *digest {
                    return Err(misfit("a plan comes out in another order than in the live run"));
                }
            }
            Event::Decided { member, slots } => self.decide(*member, *slots)?,
            Event::Passed(member) => drop(self.job(*member)?.run.next_block()),
            Event::Epoch { member, epoch, step } => self.job(*member)?.step(*epoch, *step)?,
            Event::RanksGone(member) => self.job(*member)?.run.lose_ranks(),
            Event::Counted(member, epochs) => self.job(*member)?.count(epochs),
        }
        Ok(())
    }

    fn cache(&mut self) -> Result<&mut Cache> {
        self.cache.as_mut().ok_or_else(|| misfit("it does not begin with how its cache was made"))
    }

    fn job(&mut self, member: MemberId) -> Result<&mut JobPlayback> {
        self.jobs.get_mut(&member).ok_or_else(|| misfit("it speaks of a job that has not joined"))
    }

    fn check_ids(&self, mut ids: impl Iterator<Item = Id>) -> Result<()> {
        let samples = self.opening.as_ref().map_or(0, |opening| opening.sizes.len());
        match ids.all(|id| (id as usize) < samples) {
            true => Ok(()),
            false => Err(misfit("it speaks of a sample that its dataset does not have")),
        }
    }

    fn join(&mut self, member: MemberId, setup: &Arc<Setup>) -> Result<()> {
        let Self { opening: Some(opening), cache: Some(cache), .. } = self else {
            return Err(misfit("it does not begin with how its cache was made"));
        };
        let planner = setup.planner(opening, cache.policy().takes_packages())?;
        let mut run = JobRun::new(Arc::clone(&opening.sizes));
        run.join(cache);
        if run.member() != member {
            return Err(misfit("its jobs are numbered in another order than they joined in"));
        }
        let (told, made, compared) = Default::default();
        let setup = Arc::clone(setup);
        self.jobs.insert(member, JobPlayback { setup, planner, run, told, digest: 0, made, compared });
        Ok(())
    }

    fn resume(&mut self, member: MemberId, state: &RunState, opened: bool) -> Result<()> {
        let Self { opening: Some(opening), cache: Some(cache), jobs, .. } = self else {
            return Err(misfit("it does not begin with how its cache was made"));
        };
        let job = jobs.get_mut(&member).ok_or_else(|| misfit("it speaks of a job that has not joined"))?;
        let found = match &job.setup.packages {
            Some(SetupPackages::Made { found, .. }) => &found[..],
            _ => &[],
        };
        let cache = opened.then_some((cache, opening.capacity));
        state.put_into((&mut job.run, &mut job.planner), cache, &*opening.sizes, found, "")
    }

    fn read_beside(&mut self, member: MemberId, epoch: u64, ids: &[Id]) -> Result<()> {
        let job = self.job(member)?;
        ids.iter().for_each(|&id| job.run.tally_mut().reads_beside(epoch, id));
        Ok(())
    }

    fn plan(&mut self, member: MemberId, epoch: u64, world: u32, circumstances: Circumstances) -> Result<()> {
        if world == 0 {
            return Err(misfit("a plan is made for no rank"));
        }
        let Self { cache: Some(cache), jobs, .. } = self else {
            return Err(misfit("it does not begin with how its cache was made"));
        };
        let job = jobs.get_mut(&member).ok_or_else(|| misfit("it speaks of a job that has not joined"))?;
        let told = std::mem::take(&mut job.told);
        let inputs = Inputs {
            reevaluated: (!told.reevaluated.is_empty()).then_some(&told.reevaluated),
            accuracy: told.accuracy,
            rates: circumstances.rates,
            order: told.order.as_deref(),
        };
        let (samples, residents) = (job.planner.table().len(), job.planner.looks_at_residents());
        let view = cache_view(cache.policy(), samples, residents);
        let view = CacheView { others_at: circumstances.others_at, ..view };
        let made = job.planner.plan(epoch, world, &inputs, &view);
        if let Some(keys) = made.plan.keys().filter(|_| cache.members() > 1) {
            keys.rank();
        }
        // Whether a package was written changes no plan.
        made.packing.packages.iter().for_each(|(number, _)| job.planner.written(*number));
        job.digest = made.plan.digest();
        job.made.insert(epoch, made);
        Ok(())
    }

    fn decide(&mut self, member: MemberId, slots: u64) -> Result<()> {
        let Self { cache: Some(cache), jobs, .. } = self else {
            return Err(misfit("it does not begin with how its cache was made"));
        };
        let job = jobs.get_mut(&member).ok_or_else(|| misfit("it speaks of a job that has not joined"))?;
        let mut changes = Vec::new();
        for _ in 0..slots {
            if job.run.next_block().is_none() {
                return Err(misfit("it decides more slots than were planned"));
            }
            job.run.step(cache, &mut changes);
            changes.clear();
        }
        Ok(())
    }
}

fn misfit(what: &str) -> Error {
    Error::invalid(format!("the log does not fit itself: {what}"))
}
