//! A cache: who is kept, as one policy decides.
//!
//! The policy is asked in plan order and its answer is final. After each question whoever may have come or gone is
//! settled: what is kept is noted here, bit by bit, so that a server hears of every change once, in order, and can look
//! up what is kept without asking the policy.

use crate::bits::Bits;
use crate::policy::{NoDue, Policy};
use crate::{Id, Result};

/// A policy, and what it keeps now.
pub struct Cache {
    policy: Box<dyn Policy>,
    kept: Bits,
    residents: u64,
}

impl Cache {
    /// One that keeps what `policy` keeps already, of so many samples.
    pub fn new(policy: Box<dyn Policy>, samples: usize) -> Self {
        let mut cache = Self { policy, kept: Bits::default(), residents: 0 };
        cache.look_up(samples);
        cache
    }

    /// The policy.
    pub fn policy(&self) -> &dyn Policy {
        &*self.policy
    }

    /// The policy, to be asked; what it did is to be settled.
    pub(crate) fn policy_mut(&mut self) -> &mut dyn Policy {
        &mut *self.policy
    }

    /// Whether a sample is kept.
    pub fn keeps(&self, id: Id) -> bool {
        self.kept.contains(id)
    }

    /// How many samples are kept.
    pub fn residents(&self) -> u64 {
        self.residents
    }

    /// Asks about a sample that no plan serves; the changes, in order.
    pub fn access(&mut self, id: Id) -> Vec<(Id, bool)> {
        let mut moved = Vec::new();
        self.policy.access(id, &NoDue, &mut moved);
        moved.push(id);
        self.settled(&moved)
    }

    /// Keeps `ids` where they are re-evaluated; the changes, in order. Those that must be read are appended to `read`.
    pub fn pin(&mut self, ids: &[Id], read: &mut Vec<Id>) -> Vec<(Id, bool)> {
        let mut moved = Vec::new();
        self.policy.pin(ids, read, &mut moved);
        moved.extend_from_slice(ids);
        self.settled(&moved)
    }

    /// Tells the policy of scores, at most a slice of them.
    pub fn scored(&mut self, scores: &[(Id, f32)]) {
        self.policy.scored(scores);
    }

    /// Changes what the policy is, as a restart does, and looks up who is kept.
    pub fn restore(
        &mut self,
        samples: usize,
        change: impl FnOnce(&mut dyn Policy) -> Result<()>,
    ) -> Result<()> {
        change(&mut *self.policy)?;
        self.look_up(samples);
        Ok(())
    }

    fn look_up(&mut self, samples: usize) {
        (self.kept, self.residents) = (Bits::new(samples), 0);
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
