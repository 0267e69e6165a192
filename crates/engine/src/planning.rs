//! Making plans, outside the engine's lock.
//!
//! One plan of a job is made at a time. It is made from what was reported, from what a trainer told, and from what
//! the cache looks like; it is put in before the planner is let go of, so that a snapshot of both
//! sees them agree.

use std::sync::Arc;

use hotset_core::log::{self, Circumstances};
use hotset_core::run::{CacheView, Inputs, cache_view};
use hotset_core::schedule::Schedule;
use hotset_core::{Id, Result};

use crate::engine::{Shared, read_ahead};
use crate::jobs::Job;
use crate::packing::{self, NewPackages};
use crate::state::State;
use crate::sync::{MutexGuard, thread};

/// Makes the plan of `epoch`, which the job says already, and puts it in.
pub(crate) fn make(
    shared: &Arc<Shared>,
    serial: u64,
    epoch: u64,
    world: u32,
) -> Result<MutexGuard<'_, State>> {
    let mut state = shared.lock();
    let job = state.jobs.still(serial)?;
    let samples = job.dataset.samples();
    let Some(handle) = job.planner.clone() else { return Ok(state) };
    drop(state);

    let mut planner = handle.planner();
    let told = handle.told(epoch);
    let reevaluated = told.reevaluated.iter().map(|(&id, &loss)| (id, loss)).collect();
    let told = Arc::new(log::Told { reevaluated, accuracy: told.accuracy() });
    if let Some(before) = epoch.checked_sub(1) {
        planner.close(before);
    }
    let mut state = shared.lock();
    let concurrency = state.config.concurrency;
    let others_at = state.others_at(serial);
    let State { jobs, rooms, .. } = &mut *state;
    let job = jobs.still(serial)?;
    let rates = epoch.checked_sub(1).and_then(|before| job.notices.pacing.rates(before, concurrency));
    let cache = rooms.cache_mut(serial)?;
    let view = cache_view(cache.policy(), samples, planner.looks_at_residents());
    let view = CacheView { others_at, ..view };
    cache.planned((job.run.member(), epoch, world), Circumstances { rates, others_at }, &told);
    let is_shared = cache.members() > 1;
    drop(state);

    let inputs = Inputs {
        reevaluated: (!told.reevaluated.is_empty()).then_some(&told.reevaluated),
        accuracy: told.accuracy,
        rates,
    };
    let made = planner.plan(epoch, world, &inputs, &view);
    if let Some(keys) = made.plan.keys().filter(|_| is_shared) {
        keys.rank();
    }
    let packing = made.packing.clone();
    let mut schedule = Schedule::new(Arc::clone(&made.plan), samples).with_packages(made.packages);
    let (figures, remarks) = (planner.strategy().notes(), planner.strategy().remarks());
    let packages = NewPackages::new(Some(&made.plan), made.packing, samples);

    let mut state = shared.lock();
    schedule.set_generation(state.next_serial());
    let job = state.jobs.still(serial)?;
    job.ranks.set_planning(None);
    job.notices.planned(figures, remarks);
    job.ranks.note_cut(schedule.plan());
    job.run.planned(schedule, &packing);
    job.discard_dead_packages(planner.packages(), |package| {
        planner.pending_packages().contains_key(&package)
    });
    drop(planner);
    packing::begin(shared, &mut state, serial, packages);
    shared.planned.notify_all();
    Ok(state)
}

impl State {
    /// Where the jobs are that share a job's cache: the sample of the one with most of its epoch before it. Once the job has
    /// read ahead as far as they have, its next slots should be theirs, so one that has read nothing ahead yet goes by what
    /// is served to them, and one that reads on beyond its last plan by what is decided next.
    fn others_at(&self, serial: u64) -> Option<Id> {
        let reads_on = self.jobs.get(serial)?.window.bytes() > 0;
        let others = self.rooms.caches().sharers(serial).filter(|&other| other != serial);
        let runs = others.filter_map(|other| Some(&self.jobs.get(other)?.run));
        let places = runs.filter_map(|run| if reads_on { run.next_place() } else { run.place() });
        places.max().map(|(_, id)| id)
    }
}

/// Makes the next plan on a thread of its own, if everything it needs is there.
pub(crate) fn look_ahead(shared: &Arc<Shared>, state: &mut State, serial: u64) {
    if state.is_stopping() {
        return;
    }
    let Some(job) = state.jobs.get_mut(serial) else { return };
    let Some((epoch, world)) = job.plans_ahead() else { return };
    let own = Arc::clone(shared);
    let work = move || {
        // A job that was closed meanwhile needs no plan.
        let Ok(state) = make(&own, serial, epoch, world) else { return };
        if !state.is_stopping()
            && let Err(error) = read_ahead(&own, state, serial)
        {
            tracing::error!(%error, "cannot read ahead");
        }
    };
    match thread::Builder::new().name("hotset-plan".into()).spawn(work) {
        Ok(_) => job.ranks.set_planning(Some(epoch)),
        Err(error) => tracing::warn!(%error, "cannot plan the next epoch ahead"),
    }
}

impl Job {
    /// The epoch that can be planned ahead now, and for how many ranks.
    fn plans_ahead(&self) -> Option<(u64, u32)> {
        let planner = self.planner.as_ref()?;
        if !self.request.prefetch || self.ranks.is_planning() || planner.waits_for_trainer {
            return None;
        }
        let newest = self.ranks.newest()?;
        let (next, world) = (newest + 1, self.run.schedule(newest)?.plan().world());
        let over = self.request.epochs.is_some_and(|epochs| next >= epochs);
        let open = !over && self.run.schedule(next).is_none() && self.is_gathered(next, true);
        open.then_some((next, world))
    }
}
