//! The jobs that share a cache: what is due to each, and what their scores say together.
//!
//! A sample is due to a job while the plan that the job is deciding serves it again. What a sample is worth to all of
//! them is the sum of its percentiles, each times what its job gains from the cache (iCache III-D): a job without scores has
//! a half for every sample, and a sample that a job has not reported has the highest percentile there. Jobs that gain too
//! little are not *eligible*: they leave the sum, and have nothing admitted.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Id;
use crate::benefit::{ELIGIBLE, Standing};
use crate::importance::{Keys, Share};
use crate::log::MemberId;
use crate::policy::Due;
use crate::positions::Positions;

/// One job.
#[derive(Default)]
struct Member {
    /// Its plans under way by epoch, and how many slots they have.
    plans: BTreeMap<u64, (Arc<Positions>, usize)>,
    /// The epoch whose plan is being decided.
    epoch: Option<u64>,
    /// What that plan was made from.
    keys: Option<Arc<Keys>>,
    /// What it gains from the cache, once that was measured.
    benefit: Option<f64>,
}

impl Member {
    /// Whether it gains enough to be eligible; it is taken to until that was measured.
    fn gains(&self) -> bool {
        self.benefit.is_none_or(|benefit| benefit > ELIGIBLE)
    }

    fn is_due(&self, id: Id, deciding: bool) -> bool {
        let current = self.epoch.and_then(|epoch| self.plans.get(&epoch));
        current.is_some_and(|(positions, _)| positions.due(id, deciding).is_some())
    }
}

/// All jobs of a cache.
#[derive(Default)]
pub(super) struct Members {
    jobs: BTreeMap<MemberId, Member>,
    joined: MemberId,
}

impl Members {
    pub(super) fn join(&mut self) -> MemberId {
        let member = self.joined;
        self.joined += 1;
        self.jobs.insert(member, Member::default());
        member
    }

    pub(super) fn leave(&mut self, member: MemberId) {
        self.jobs.remove(&member);
    }

    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// The plans of a job that are under way, and how many slots they have.
    pub(super) fn set_plans(
        &mut self,
        member: MemberId,
        plans: impl Iterator<Item = (u64, (Arc<Positions>, usize))>,
    ) {
        if let Some(job) = self.jobs.get_mut(&member) {
            job.plans = plans.collect();
        }
    }

    /// A job begins to decide the plan of an epoch.
    pub(super) fn begin(&mut self, member: MemberId, epoch: u64, keys: Option<&Arc<Keys>>) {
        if let Some(job) = self.jobs.get_mut(&member) {
            (job.epoch, job.keys) = (Some(epoch), keys.cloned());
        }
    }

    /// Whether a job's slots are decided along the plan of that epoch.
    pub(super) fn decides(&self, member: MemberId, epoch: u64) -> bool {
        self.jobs.get(&member).is_some_and(|job| job.epoch == Some(epoch))
    }

    /// What a job gains was measured.
    pub(super) fn weigh(&mut self, member: MemberId, benefit: f64) {
        if let Some(job) = self.jobs.get_mut(&member) {
            job.benefit = Some(benefit);
        }
    }

    /// How a job stands, and why.
    pub(super) fn standing(&self, member: MemberId) -> Standing {
        match self.jobs.get(&member).map(|job| (job.gains(), job.benefit)) {
            None | Some((_, None)) => Standing::Unmeasured,
            Some((true, Some(_))) => Standing::Gains,
            Some((false, _)) if self.jobs.len() == 1 => Standing::Alone,
            Some((false, _)) if self.jobs.values().any(Member::gains) => Standing::GainsLittle,
            Some((false, _)) => Standing::NoneGains,
        }
    }

    /// The jobs that are eligible: those that gain, and all if none does.
    fn eligible(&self) -> impl Iterator<Item = &Member> {
        let some = self.jobs.values().any(Member::gains);
        self.jobs.values().filter(move |job| !some || job.gains())
    }

    /// What the plans being decided were made from, all together.
    pub(super) fn keys(&self) -> Option<Arc<Keys>> {
        let mut jobs = self.jobs.values();
        match (jobs.next(), jobs.next()) {
            (Some(only), None) => only.keys.clone(),
            _ if self.eligible().all(|job| job.keys.is_none()) => None,
            _ => {
                // One that was not measured is taken for a mean one of the others.
                let known = || self.eligible().filter_map(|job| job.benefit);
                let mean = known().sum::<f64>() / known().count() as f64;
                let mean = if mean.is_finite() { mean } else { 1.0 };
                let share = |job: &Member| Share {
                    benefit: job.benefit.unwrap_or(mean) as f32,
                    keys: job.keys.clone(),
                };
                Some(Arc::new(Keys::sum(self.eligible().map(share).collect())))
            }
        }
    }

    /// What is due when a job's slot is decided.
    pub(super) fn due(&self, deciding: MemberId) -> Upcoming<'_> {
        Upcoming { members: self, deciding }
    }
}

/// What is due in the plans under way.
pub(super) struct Upcoming<'a> {
    members: &'a Members,
    deciding: MemberId,
}

impl Due for Upcoming<'_> {
    fn next_due(&self, id: Id) -> Option<u64> {
        let job = self.members.jobs.get(&self.deciding)?;
        let current = job.epoch?;
        let mut before = 0;
        for (&epoch, (positions, slots)) in job.plans.range(current..) {
            let frontier = positions.frontier();
            if let Some(slot) = positions.due(id, epoch == current) {
                return Some(before + (slot - frontier) as u64);
            }
            before += (slots - frontier) as u64;
        }
        None
    }

    fn jobs_due(&self, id: Id) -> u32 {
        let due = self.members.jobs.iter().filter(|(member, job)| job.is_due(id, **member == self.deciding));
        due.count() as u32
    }
}
