//! A cache: which samples of a dataset are kept, as one policy decides for all jobs that share it.
//!
//! A job [joins](Cache::join), and its slots are decided in its plan's order; which job's slot comes next is time, and the
//! [log](crate::log) says it. The policy's answer is final. After each question the samples that may have come or gone are
//! settled: what is kept is noted here, bit by bit, so that a server hears of every change once, in order, and can look up
//! what is kept without asking the policy.

mod division;
mod members;
mod owners;

use std::ops::Range;
use std::sync::Arc;

pub use self::division::{Ask, Wish, divide};

use self::members::Members;
use self::owners::Owners;
use crate::benefit::Standing;
use crate::bits::Bits;
use crate::cluster::Ownership;
use crate::log::{CacheLog, Circumstances, Event, MemberId, Recorder, Told};
use crate::policy::{Begin, Future, NoDue, Policy, Verdict};
use crate::positions::Positions;
use crate::sampling;
use crate::schedule::{Outcome, Schedule};
use crate::{Id, Result};

/// A policy, what it keeps now, and the jobs it decides for.
pub struct Cache {
    policy: Box<dyn Policy>,
    samples: usize,
    kept: Bits,
    residents: u64,
    members: Members,
    /// The job for which each resident was read; empty until a second one joins.
    bringers: Vec<MemberId>,
    owners: Owners,
    log: CacheLog,
}

/// What the decision of a slot brought about in a cache.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// The packages that are read right before it.
    pub(crate) loads: Vec<u32>,
    /// Residents that may have left.
    pub(crate) evicted: Vec<Id>,
}

impl Cache {
    /// One that keeps what `policy` keeps already, of so many samples.
    pub fn new(policy: Box<dyn Policy>, samples: usize) -> Self {
        let mut cache = Self {
            policy,
            samples,
            kept: Bits::default(),
            residents: 0,
            members: Members::default(),
            bringers: Vec::new(),
            owners: Owners::default(),
            log: CacheLog::default(),
        };
        cache.look_up();
        cache
    }

    /// Tells `recorder` what happens from now on.
    pub fn keep_log(&mut self, recorder: Arc<dyn Recorder>) {
        self.log = CacheLog::new(recorder);
    }

    pub(crate) fn log(&self) -> &CacheLog {
        &self.log
    }

    fn note(&self, event: impl FnOnce() -> Event) {
        self.log.note(event);
    }

    /// The policy.
    pub fn policy(&self) -> &dyn Policy {
        &*self.policy
    }

    /// Whether a sample is kept.
    pub fn keeps(&self, id: Id) -> bool {
        self.kept.contains(id)
    }

    /// The samples that are kept of those in `ids`, in their order.
    pub fn kept(&self, ids: Range<u64>) -> impl Iterator<Item = Id> + '_ {
        self.kept.range(ids)
    }

    /// How many samples are kept.
    pub fn residents(&self) -> u64 {
        self.residents
    }

    /// How many jobs share it.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// A job joins; its number here.
    pub fn join(&mut self) -> MemberId {
        let member = self.members.join();
        if member == 1 {
            self.bringers = vec![0; self.samples];
        }
        self.note(|| Event::Joined(member));
        member
    }

    /// A job leaves: nothing is due to it, and its scores are worth nothing, from now on.
    pub fn leave(&mut self, member: MemberId) {
        self.members.leave(member);
        if self.members.len() > 0 {
            self.policy.rekey(self.members.keys().as_ref());
        }
        self.note(|| Event::Left(member));
    }

    /// What a job gains from a cache was measured: samples are worth something else now, and it may have what it reads
    /// admitted or not.
    pub fn weigh(&mut self, member: MemberId, benefit: f64) {
        self.members.weigh(member, benefit);
        if self.members.len() > 1 {
            self.policy.rekey(self.members.keys().as_ref());
        }
        self.note(|| Event::Weighed { member, benefit });
    }

    /// Whether what a job reads is admitted, and why.
    pub fn standing(&self, member: MemberId) -> Standing {
        self.members.standing(member)
    }

    /// Changes the capacity; the changes, in order.
    pub fn resize(&mut self, capacity: u64) -> Vec<(Id, bool)> {
        let mut moved = Vec::new();
        self.policy.resize(capacity, &mut moved);
        self.note(|| Event::Resized(capacity));
        self.settled(&moved)
    }

    /// A job's plan is made, from what is kept now and what was told.
    pub fn planned(
        &self,
        (member, epoch, world): (MemberId, u64, u32),
        circumstances: Circumstances,
        told: &Arc<Told>,
    ) {
        self.note(|| Event::Told(member, Arc::clone(told)));
        self.note(|| Event::Planned { member, epoch, world, circumstances });
    }

    /// A job's state is written down.
    pub fn saved(&self, member: MemberId) {
        self.note(|| Event::Saved(member));
    }

    /// The plans of a job that are under way, and how many slots they have.
    pub(crate) fn set_plans(
        &mut self,
        member: MemberId,
        plans: impl Iterator<Item = (u64, (Arc<Positions>, usize))>,
    ) {
        self.members.set_plans(member, plans);
    }

    /// Decides the next slot of a job's plan: what it costs, and which of the plan's events come after it. The policy hears of
    /// it in this order: that the plan begins, if it is the plan's first; the events that come before it; then the slot
    /// itself. With a `future` it sees that instead of the plans under way.
    pub(crate) fn decide(
        &mut self,
        member: MemberId,
        schedule: &Schedule,
        slot: usize,
        mut future: Option<&mut Future>,
        moved: &mut Moved,
    ) -> (Outcome, usize) {
        self.note(|| Event::Decided { member, slots: 1 });
        if let Some(ownership) = schedule.ownership() {
            self.let_go(ownership, moved);
        }
        let (begin, told) = schedule.begins();
        // A plan that another server has begun, or that is gone back to, is this job's all the same.
        if !told {
            self.members.begin(member, begin.epoch, begin.keys);
            let keys = self.members.keys();
            self.policy.begin(&Begin { keys: keys.as_ref(), ..begin });
        } else if !self.members.decides(member, begin.epoch) {
            self.members.begin(member, begin.epoch, begin.keys);
            if self.members.len() > 1 {
                self.policy.rekey(self.members.keys().as_ref());
            }
        }
        let (due, id) = (self.members.due(member), schedule.id(slot));
        let mut event = schedule.next_event();
        while let Some(happens) = schedule.event(event, slot) {
            event += 1;
            match happens {
                sampling::Event::Leave(id) => self.policy.leave(id, &mut moved.evicted),
                sampling::Event::Load(package) | sampling::Event::Keep(package) => {
                    let members = schedule.packages().map_or(&[][..], |packages| packages.members(package));
                    // A package holds what one node owns.
                    if members.first().is_some_and(|&id| !schedule.owns_sample(id)) {
                        continue;
                    }
                    let stays = matches!(happens, sampling::Event::Keep(_));
                    if self.policy.load(members, stays, &due, &mut moved.evicted) {
                        moved.loads.push(package);
                    }
                }
            }
        }
        // What another node owns is never in this cache. It is told of all the same that the plan has come so far.
        if !schedule.owns(slot) {
            if let Some(future) = future {
                future.pass(id);
            }
            return (Outcome::Elsewhere, event);
        }
        let verdict = match &mut future {
            Some(future) => {
                let verdict = self.policy.access(id, *future, &mut moved.evicted);
                future.pass(id);
                verdict
            }
            // A job that gains too little may hit, and has nothing admitted.
            None if !self.policy.contains(id) && !self.members.standing(member).is_eligible() => {
                Verdict::Bypassed
            }
            None => self.policy.access(id, &due, &mut moved.evicted),
        };
        let outcome = match verdict {
            Verdict::Hit => Outcome::Hit,
            Verdict::Packed => Outcome::Packed,
            Verdict::Admitted | Verdict::Bypassed => Outcome::Single,
        };
        (outcome, event)
    }

    /// What another node owns by the plan being decided leaves, [a few samples](owners) with each slot.
    fn let_go(&mut self, ownership: &Arc<Ownership>, moved: &mut Moved) {
        let Some(looked_at) = self.owners.pass(ownership, self.samples as u64) else { return };
        let leaving = self.kept.range(looked_at).filter(|&id| !ownership.owns(id));
        moved.evicted.extend(leaving.filter(|&id| self.policy.remove(id)));
    }

    /// A job's slot has `id` kept from now on.
    pub(crate) fn brought(&mut self, member: MemberId, id: Id) {
        if let Some(bringer) = self.bringers.get_mut(id as usize) {
            *bringer = member;
        }
    }

    /// Whether a resident was read for another job than this.
    pub(crate) fn is_of_another(&self, member: MemberId, id: Id) -> bool {
        self.bringers.get(id as usize).is_some_and(|&bringer| bringer != member)
    }

    /// Asks about a sample that no plan serves; the changes, in order.
    pub fn access(&mut self, id: Id) -> Vec<(Id, bool)> {
        let mut moved = Vec::new();
        self.policy.access(id, &NoDue, &mut moved);
        if moved.is_empty() {
            return self.settle(id).map(|kept| (id, kept)).into_iter().collect();
        }
        moved.push(id);
        self.settled(&moved)
    }

    /// Keeps `ids`, which a job re-evaluates before `epoch`; the changes, in order. Those that must be read are appended to
    /// `read`.
    pub fn pin(&mut self, member: MemberId, epoch: u64, ids: &[Id], read: &mut Vec<Id>) -> Vec<(Id, bool)> {
        self.note(|| Event::Pinned { member, epoch, ids: ids.to_vec() });
        let mut moved = Vec::new();
        self.policy.pin(ids, read, &mut moved);
        moved.extend_from_slice(ids);
        self.settled(&moved)
    }

    /// Which of `ids`, which a job re-evaluates before `epoch`, are not kept and must be read.
    pub fn look_up_missing(&mut self, member: MemberId, epoch: u64, ids: &[Id]) -> Vec<Id> {
        self.note(|| Event::LookedUp { member, epoch, ids: ids.to_vec() });
        ids.iter().copied().filter(|&id| !self.kept.contains(id)).collect()
    }

    /// Tells the policy of a job's scores, at most a slice of them.
    pub fn scored(&mut self, member: MemberId, scores: &[(Id, f32)]) {
        self.note(|| Event::Scored { member, scores: scores.to_vec() });
        self.policy.scored(scores);
    }

    /// Changes what the policy is, as a restart does, and looks up what is kept.
    pub fn restore(&mut self, change: impl FnOnce(&mut dyn Policy) -> Result<()>) -> Result<()> {
        change(&mut *self.policy)?;
        self.look_up();
        Ok(())
    }

    fn look_up(&mut self) {
        (self.kept, self.residents) = (Bits::new(self.samples), 0);
        let (kept, residents) = (&mut self.kept, &mut self.residents);
        self.policy.residents(&mut |id| *residents += u64::from(kept.insert(id)));
    }

    fn settled(&mut self, ids: &[Id]) -> Vec<(Id, bool)> {
        ids.iter().filter_map(|&id| self.settle(id).map(|kept| (id, kept))).collect()
    }

    /// Notes whether a sample is kept now; what it is if that has changed.
    pub(crate) fn settle(&mut self, id: Id) -> Option<bool> {
        let now = self.policy.contains(id);
        if now == self.kept.contains(id) {
            return None;
        }
        if now {
            self.kept.insert(id);
            self.residents += 1;
        } else {
            self.kept.remove(id);
            self.residents -= 1;
        }
        Some(now)
    }
}
