//! Which jobs are measured, and what comes of it: samples are worth something else, and memory is divided anew.
//!
//! A job is measured while it competes: others share its cache, which does not hold all of their dataset, or all caches
//! together ask for more than the server may keep.
//! Its own requests carry the probe. Memory that a cache must let go of leaves on a thread of its own, a slice at a time.

use std::sync::Arc;

use hotset_core::Result;
use hotset_core::counters::WaitReason;

use crate::engine::{Engine, Shared, Wait};
use crate::fetching;
use crate::opening::fit_memory;
use crate::serving::{Batch, Budget, Place, Staging};
use crate::state::State;
use crate::sync::{MutexGuard, thread};

impl Engine {
    /// Notes when a batch is asked for. One that hits are measured with is answered when all of them are in memory; if that
    /// takes half of the time that its reader has, the probe is given up.
    pub(crate) fn measure<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        job: u64,
        (batch, at): (&Batch, Option<Place>),
        wait: &mut Wait<'_>,
    ) -> Result<MutexGuard<'a, State>> {
        if batch.reevaluation.is_some() {
            return Ok(state);
        }
        let State { jobs, rooms, .. } = &mut *state;
        if let Some(benefit) = jobs.still(job)?.time_batch(rooms, batch, at) {
            state.weigh(job, benefit)?;
            divide_anew(&self.shared, &mut state);
        }
        loop {
            let budget = state.staging_budget();
            let State { jobs, rooms, .. } = &mut *state;
            let staging = jobs.still(job)?.stage(rooms, at, budget)?;
            let Staging::Awaits(objects) = staging else {
                if matches!(staging, Staging::Done) {
                    return Ok(state);
                }
                state = self.shared.give_way(state);
                continue;
            };
            wait.note(WaitReason::Probe);
            fetching::wake(&self.shared, &mut state);
            // Held, so that none goes unread, and its waiters with it, when the slots that it is for are given up.
            objects.iter().for_each(|&object| state.rooms.hold(object, true));
            let (back, outcome) = self.await_objects(state, &objects, &mut wait.half());
            state = back;
            objects.iter().for_each(|&object| state.rooms.hold(object, false));
            if !matches!(outcome, Ok(true)) {
                state.end_probe(job);
            }
        }
    }
}

/// Divides memory between caches anew. What must leave does so on a thread of its own.
pub(crate) fn divide_anew(shared: &Arc<Shared>, state: &mut State) {
    let budget = state.budget;
    if !state.rooms.caches_mut().divide(budget) || state.is_stopping() {
        return;
    }
    let own = Arc::clone(shared);
    let work = move || fit_memory(&own, own.lock());
    if let Err(error) = thread::Builder::new().name("hotset-divide".into()).spawn(work) {
        tracing::warn!(%error, "memory is divided anew when a job comes or goes");
    }
}

impl State {
    /// Begins to measure what a job gains, if it competes with others and it is time.
    pub(crate) fn consider_probe(&mut self, serial: u64) {
        let caches = self.rooms.caches();
        let divides = self.jobs.len() > 1 && caches.asked() > self.budget;
        if !divides && !caches.is_contended(serial) {
            return;
        }
        if let Some(job) = self.jobs.get_mut(serial) {
            job.begin_probe();
        }
    }

    /// Gives up the probe of a job, if it has one.
    pub(crate) fn end_probe(&mut self, serial: u64) {
        if let Some(job) = self.jobs.get_mut(serial) {
            job.end_probe(&mut self.rooms);
        }
    }

    /// What a job gains was measured.
    fn weigh(&mut self, serial: u64, benefit: f64) -> Result<()> {
        let job = self.jobs.still(serial)?;
        tracing::info!(job = job.name(), benefit, "what a job gains from a cache was measured");
        let member = job.run.member();
        self.rooms.cache_mut(serial)?.weigh(member, benefit);
        self.rooms.caches_mut().weigh(serial, benefit);
        Ok(())
    }

    /// How far may be read to measure hits: less than the reserve that others read ahead into.
    fn staging_budget(&self) -> Budget {
        Budget { window: u64::MAX, transient: self.reserve() / 8 * 6 }
    }
}
