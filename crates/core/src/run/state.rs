//! What a job's run goes on from, after a kill or from a checkpoint.
//!
//! What cannot be worked out again: what the policy knows, what was reported, what the strategy knows, the plans under way and
//! how far each was decided, and what was counted. Put into a run, a planner and a cache that were just made, they stand where
//! those stood that it was taken from.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{JobRun, Planner, Saved};
use crate::cache::Cache;
use crate::cluster::Layout;
use crate::packages::{Packages, Packing};
use crate::policy::Sizes;
use crate::sampling::Plan;
use crate::schedule::{Outcome, Schedule, Stage};
use crate::{Error, Id, Result, tally};

/// One plan, and what was decided of it.
#[derive(Debug, Clone, PartialEq)]
pub struct SavedSchedule {
    /// The plan, as it saves itself.
    pub plan: Vec<u8>,
    /// The bytes of a package, where there were packages.
    pub package: Option<u64>,
    /// The packages that it was made from.
    pub packages: Vec<u32>,
    /// One byte for each slot that was decided.
    pub states: Vec<u8>,
    /// How many of its events its policy was told, if it was told that it begins.
    pub told: Option<u64>,
    /// How the plan lies over nodes, as it saves itself; empty where one node is alone.
    pub layout: Vec<u8>,
}

/// What a run goes on from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunState {
    /// What the policy knows; empty: nothing.
    pub policy: Vec<u8>,
    /// What plans are made from.
    pub planner: Saved,
    /// The plans under way.
    pub schedules: Vec<SavedSchedule>,
    /// The newest epoch each rank has begun.
    pub begun: BTreeMap<u32, u64>,
    /// What was counted.
    pub counted: tally::Saved,
}

impl RunState {
    /// Puts it into a run, its planner, which knows the packages that were `found` complete, and its cache of `granted` bytes,
    /// unless it joins one that others are in. An error of the kind `Changed` says that it does not fit. `own` is the
    /// name of the node, for plans that lie over several.
    pub fn put_into(
        &self,
        (run, planner): (&mut JobRun, &mut Planner),
        cache: Option<(&mut Cache, u64)>,
        sizes: &dyn Sizes,
        found: &[(u32, Vec<Id>)],
        own: &str,
    ) -> Result<()> {
        let foreign = |error: Error| Error::changed(error.message);
        planner.restore(&self.planner, found).map_err(foreign)?;
        let making =
            self.planner.packing.pending.iter().map(|(&number, pending)| (number, &pending.draft.ids[..]));
        let mut known: BTreeMap<u32, &[Id]> = making.collect();
        known.extend(found.iter().map(|(number, ids)| (*number, &ids[..])));
        let mut schedules = self.schedules(sizes.len(), &planner.table().snapshot())?;
        for (saved, schedule) in self.schedules.iter().zip(schedules.values_mut()) {
            let packages = planner.packages().map(|all| saved.packages_of(all, sizes, &known));
            schedule.set_packages(packages.zip(saved.package));
            if !saved.layout.is_empty() {
                // What was being packed with it is not known to be on its way any more.
                let layout = Layout::restore(&saved.layout, own).ok_or_else(misfit)?;
                schedule.set_layout(Arc::new(layout.with_packing(Packing::default())));
            }
        }
        let restored = cache.map_or(Ok(()), |(cache, granted)| {
            cache.restore(|policy| {
                // A policy hears of the last plan whose slots it was asked about, and then takes the rest.
                let asked = schedules.values().rev().find(|schedule| schedule.begins().1);
                if let Some(schedule) = asked {
                    policy.begin(&schedule.begins().0);
                }
                if !self.policy.is_empty() {
                    policy.restore(&self.policy).map_err(foreign)?;
                }
                // It may be granted less, or more, than where it comes from.
                if policy.capacity() != granted {
                    policy.resize(granted, &mut Vec::new());
                }
                Ok(())
            })
        });
        restored?;
        schedules.into_values().for_each(|schedule| run.put(schedule));
        run.tally_mut().restore(self.counted.clone());
        Ok(())
    }

    /// The plans under way, as far as they were decided; `known` is what was reported.
    fn schedules(&self, samples: usize, known: &[f32]) -> Result<BTreeMap<u64, Schedule>> {
        let restored = self.schedules.iter().map(|saved| {
            let plan = Plan::restore(samples, &saved.plan, known).ok_or_else(misfit)?;
            if saved.states.len() > plan.len() {
                return Err(misfit());
            }
            let (epoch, world) = (plan.epoch(), plan.world());
            let states: Option<Vec<_>> = saved.states.iter().map(|&state| decided(state)).collect();
            let states = states.ok_or_else(misfit)?.into_iter();
            let told = saved.told.map(|events| usize::try_from(events).unwrap_or(usize::MAX));
            let told = told.map(|events| events.min(plan.events().len()));
            let mut schedule = Schedule::restored(Arc::new(plan), samples, states, told);
            for (&rank, _) in self.begun.iter().filter(|&(_, &begun)| begun >= epoch) {
                if rank < world {
                    schedule.begin(rank, 0, &mut Vec::new());
                }
            }
            Ok((epoch, schedule))
        });
        restored.collect()
    }
}

/// What does not fit is the state's fault, which the kind says.
fn misfit() -> Error {
    Error::changed("the state does not fit the dataset")
}

/// What a byte says of a slot, if anything.
fn decided(state: u8) -> Option<(Stage, Option<Outcome>)> {
    let stage = match state & 15 {
        0 => Stage::Ahead,
        1 => Stage::Waiting,
        2 => Stage::Unread,
        3 => Stage::Again,
        4 => Stage::Served,
        5 => Stage::Left,
        _ => return None,
    };
    let outcome = match state >> 4 {
        0 => None,
        1 => Some(Outcome::Hit),
        2 => Some(Outcome::Packed),
        3 => Some(Outcome::Single),
        4 => Some(Outcome::Elsewhere),
        _ => return None,
    };
    // Only what was decided waits.
    let waits = matches!(stage, Stage::Waiting | Stage::Unread);
    (outcome.is_some() || !waits).then_some((stage, outcome))
}

impl SavedSchedule {
    /// The packages as its plan saw them: without those that were complete since, in which some of the samples lie
    /// now that lay in others then, and with those that have retired since.
    fn packages_of(
        &self,
        all: &Arc<Packages>,
        sizes: &dyn Sizes,
        known: &BTreeMap<u32, &[Id]>,
    ) -> Arc<Packages> {
        if all.living().eq(self.packages.iter().copied()) {
            return Arc::clone(all);
        }
        let mut packages = Packages::new(sizes.len());
        for number in &self.packages {
            if let Some(ids) = known.get(number) {
                packages.place(*number, ids, sizes);
            }
        }
        Arc::new(packages)
    }
}
