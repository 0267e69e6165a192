//! Making plans, outside the engine's lock.
//!
//! One plan of a job is made at a time. It is made from what was reported, from what a trainer told, and from what
//! the cache looks like; it is put in before the planner is let go of, so that whoever takes a snapshot of both
//! sees them agree.

use std::collections::HashSet;
use std::sync::{Arc, MutexGuard};

use hotset_core::packages::Packages;
use hotset_core::run::{Inputs, sight};
use hotset_core::sampling::Event;
use hotset_core::schedule::Schedule;

use crate::engine::{Shared, pump};
use crate::packer;
use crate::press::Work;
use crate::state::State;

/// Makes the plan of `epoch`, which the job's `planning` says already, and puts it in.
pub(crate) fn make(shared: &Arc<Shared>, serial: u64, epoch: u64, world: u32) -> MutexGuard<'_, State> {
    let state = shared.lock();
    let Some(job) = state.jobs.get(&serial) else { return state };
    let Some(mind) = job.mind.clone() else { return state };
    let catalog = Arc::clone(&state.datasets[job.dataset as usize].catalog);
    let samples = catalog.len();
    drop(state);

    let mut planner = mind.planner();
    let told = mind.told(epoch);
    if let Some(before) = epoch.checked_sub(1) {
        planner.close(before);
    }
    let state = shared.lock();
    let Some(job) = state.jobs.get(&serial) else { return state };
    let sight = sight(job.run.cache().policy(), samples, planner.looks_at_residents());
    let concurrency = state.config.concurrency;
    let rates = epoch
        .checked_sub(1)
        .and_then(|before| job.paces.get(&before))
        .and_then(|pace| pace.rates(concurrency));
    drop(state);

    let reevaluated: Vec<_> = told.reevaluated.iter().map(|(&id, &loss)| (id, loss)).collect();
    let inputs = Inputs {
        reevaluated: (!reevaluated.is_empty()).then_some(&reevaluated),
        accuracy: told.accuracy(),
        rates,
    };
    let made = planner.plan(epoch, world, &inputs, &sight);
    let packing = made.packing.clone();
    let mut schedule = Schedule::new(Arc::clone(&made.plan), samples).with_packages(made.packages);
    let (notes, plan_remarks) = (planner.strategy().notes(), planner.strategy().remarks());
    let work = Work::new(Some(&made.plan), made.packing, samples);

    let mut state = shared.lock();
    schedule.set_generation(state.next_serial());
    if let Some(job) = state.jobs.get_mut(&serial) {
        job.planning = None;
        (job.notes, job.plan_remarks) = (notes, plan_remarks);
        job.note_cut(&schedule);
        job.run.planned(schedule, &packing);
    }
    let dead =
        state.dead_packages(serial, planner.packages(), |package| planner.making().contains_key(&package));
    if let Some(press) = state.jobs.get(&serial).and_then(|job| job.press.clone()) {
        dead.into_iter().for_each(|package| press.discard(package));
    }
    drop(planner);
    packer::begin(shared, &mut state, serial, work);
    shared.planned.notify_all();
    state
}

/// Makes the next plan on a thread of its own, if everything it needs is there.
pub(crate) fn look_ahead(shared: &Arc<Shared>, state: &mut State, serial: u64) {
    let Some((epoch, world)) = state.plans_ahead(serial) else { return };
    let own = Arc::clone(shared);
    let work = move || {
        let state = make(&own, serial, epoch, world);
        if !state.stopping {
            pump(&own, state, serial);
        }
    };
    match std::thread::Builder::new().name("hotset-plan".into()).spawn(work) {
        Ok(_) => {
            if let Some(job) = state.jobs.get_mut(&serial) {
                job.planning = Some(epoch);
            }
        }
        Err(error) => tracing::warn!(%error, "cannot plan the next epoch ahead"),
    }
}

impl State {
    /// Packages that hold nobody, that no plan under way reads and that are not being made. Each is named once.
    fn dead_packages(
        &mut self,
        serial: u64,
        packages: Option<&Arc<Packages>>,
        is_made: impl Fn(u32) -> bool,
    ) -> Vec<u32> {
        let (Some(job), Some(packages)) = (self.jobs.get_mut(&serial), packages) else { return Vec::new() };
        let read: HashSet<u32> = job
            .run
            .schedules()
            .values()
            .flat_map(|schedule| schedule.plan().events())
            .filter_map(|(_, event)| if let Event::Load(package) = event { Some(*package) } else { None })
            .collect();
        let held = job.packages_held.clone();
        let dead: Vec<u32> = held
            .into_iter()
            .filter(|&package| packages.is_dead(package) && !read.contains(&package) && !is_made(package))
            .collect();
        let made = job.packages_held.iter().copied().filter(|&package| is_made(package));
        job.packages_held = packages.living().chain(read).chain(made).collect();
        dead
    }

    /// The epoch that can be planned ahead now, and for how many ranks.
    fn plans_ahead(&self, serial: u64) -> Option<(u64, u32)> {
        let job = self.jobs.get(&serial)?;
        let mind = job.mind.as_ref()?;
        if !job.request.prefetch || job.planning.is_some() || mind.waits_for_trainer || self.stopping {
            return None;
        }
        let newest = *job.begun.values().max()?;
        let (next, world) = (newest + 1, job.run.schedule(newest)?.plan().world());
        let over = job.request.epochs.is_some_and(|epochs| next >= epochs);
        let open = !over && job.run.schedule(next).is_none() && job.is_gathered(next, true);
        open.then_some((next, world))
    }
}
