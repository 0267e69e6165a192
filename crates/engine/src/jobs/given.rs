//! Orders that a trainer gives for its epochs, for a strategy that takes them.
//!
//! A rank says which order it has, by its digest, and gives the order itself where the epoch has no plan yet: so it comes
//! once, from the rank that is first, and every other is compared with the plan that was made of it. A server that goes on
//! after a kill has the plan, and so the order; the digest of a plan's order is worked out from its slots.

use std::sync::Arc;

use hotset_core::sampling::{Plan, order_digest};
use hotset_core::{Error, Id, Result};

use super::job::Job;
use crate::engine::Engine;
use crate::rooms::Rooms;

/// The order that a rank has for an epoch.
#[derive(Debug, Clone)]
pub struct GivenOrder {
    digest: u64,
    /// `None` where the rank only says which it is.
    ids: Option<Arc<[Id]>>,
}

impl GivenOrder {
    /// One that a server may know.
    pub fn named(digest: u64) -> Self {
        Self { digest, ids: None }
    }

    /// The order itself.
    pub fn of(ids: impl Into<Arc<[Id]>>) -> Self {
        let ids = ids.into();
        Self { digest: order_digest(ids.iter().copied()), ids: Some(ids) }
    }

    /// What tells it from other orders: see [`order_digest`].
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// An error unless it can be the order of an epoch over so many samples.
    fn check(&self, samples: usize) -> Result<()> {
        let Some(ids) = &self.ids else { return Ok(()) };
        if ids.is_empty() || u32::try_from(ids.len()).is_err() {
            return Err(Error::invalid(format!(
                "`ids=` gives {} ids for an epoch: there are 1 to {} in one",
                ids.len(),
                u32::MAX
            )));
        }
        match ids.iter().find(|&&id| id as usize >= samples) {
            None => Ok(()),
            Some(id) => Err(Error::invalid(format!(
                "`ids=` gives `{id}`, and the dataset has {samples} samples, counted from 0"
            ))),
        }
    }
}

impl Engine {
    /// Begins an epoch for a rank of a trainer, as [`Self::begin_epoch`] does, in the order that the rank has. `None` where
    /// no plan was made of that order yet: the rank gives the order itself then.
    pub fn begin_given(
        &self,
        job: &str,
        epoch: u64,
        (rank, world): (u32, u32),
        start: u64,
        order: &GivenOrder,
    ) -> Result<Option<Arc<Plan>>> {
        let samples = self.shared.lock().jobs.planned(job)?.dataset.samples();
        order.check(samples)?;
        self.begin_with(job, epoch, (rank, world), start, (super::Joining::HERE, Some(order)))
    }
}

impl Job {
    fn takes_order(&self) -> bool {
        self.planner.as_ref().is_some_and(|planner| planner.takes_order)
    }

    /// Refuses an order that is not the one that an epoch was planned in. Where those ranks are gone that had begun it, one
    /// that begins it at its start may have another.
    pub(super) fn check_order(
        &mut self,
        rooms: &mut Rooms,
        epoch: u64,
        (rank, start): (u32, u64),
        order: &GivenOrder,
    ) -> Result<()> {
        let Some(schedule) = self.run.schedule(epoch).filter(|_| self.takes_order()) else { return Ok(()) };
        if schedule.plan().order_digest() == order.digest {
            return Ok(());
        }
        if schedule.is_restored() && start == 0 {
            return self.drop_schedule(rooms, epoch);
        }
        let what = if start == 0 { "than another rank" } else { "than before it was interrupted" };
        Err(Error::invalid(format!(
            "rank {rank} gives another order by `ids=` for epoch {epoch} of job `{}` {what}: every rank must give the same \
             one, of all ranks together, whenever it is asked; seed its generator equally on all ranks, by the epoch \
             (`generator.manual_seed(seed + epoch)` in the sampler's `set_epoch`)",
            self.name()
        )))
    }

    /// Has its planner know the order of an epoch that is planned now. False if the rank has only said which it is.
    pub(super) fn take_order(&self, epoch: u64, order: Option<&GivenOrder>) -> Result<bool> {
        let Some(planner) = self.planner.as_ref().filter(|planner| planner.takes_order) else {
            return Ok(true);
        };
        match order {
            Some(GivenOrder { ids: Some(ids), .. }) => {
                planner.give_order(epoch, Arc::clone(ids));
                Ok(true)
            }
            Some(_) => Ok(false),
            None => Err(Error::unavailable(format!(
                "this server does not know the order of epoch {epoch} of job `{}`, which its `ids=` gave before: begin the \
                 epoch again in the training process",
                self.name()
            ))),
        }
    }
}
