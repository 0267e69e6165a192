//! Making plans, outside the engine's lock.
//!
//! One plan of a job is made at a time. It is made from what was reported, from what a trainer told, and from what
//! the cache looks like; it is put in before the planner is let go of, so that a snapshot of both
//! sees them agree. The home of a job over several nodes has it laid over them before; other nodes get it from there. A plan
//! that cannot be had so is an error to the rank that asked, and is asked for again by the next. How plans come that are drawn
//! elsewhere, or before, is in [`crate::placing`].
//!
//! Plans that nobody waits for yet are made one after the other, by threads on half of the cores at most: epochs of many
//! jobs may begin together, and their batches come first. A request for an epoch whose plan is only queued makes it itself.

use std::collections::VecDeque;
use std::sync::Arc;

use hotset_core::log::{self, Circumstances};
use hotset_core::run::{CacheView, Inputs, Packing, cache_view};
use hotset_core::sampling::Plan;
use hotset_core::schedule::Schedule;
use hotset_core::{Id, Result};

use crate::cluster::{Kept, Placed, Unplaced};
use crate::engine::Shared;
use crate::jobs::Job;
use crate::packing::{self, NewPackages};
use crate::placing::{check_placed, get, recut};
use crate::planner::PlannerHandle;
use crate::read_on::read_ahead;
use crate::state::State;
use crate::sync::{MutexGuard, thread};

/// Jobs whose next plan is to be made, and the threads that make them.
#[derive(Debug, Default)]
pub(crate) struct PlanQueue {
    jobs: VecDeque<u64>,
    threads: usize,
}

impl PlanQueue {
    /// Whether the next plan of a job is to be made.
    pub(crate) fn is_queued(&self, job: u64) -> bool {
        self.jobs.contains(&job)
    }
}

/// How many threads make plans that nobody waits for yet.
pub(crate) fn most_threads() -> usize {
    (std::thread::available_parallelism().map_or(1, |cores| cores.get()) / 2).max(1)
}

/// Makes the plan of `epoch`, which the job says already, or gets it from its home, and puts it in. `ranks` is how many it is for, and
/// where they begin, if that is known.
pub(crate) fn make(
    shared: &Arc<Shared>,
    serial: u64,
    epoch: u64,
    ranks: Option<(u32, u64)>,
) -> Result<MutexGuard<'_, State>> {
    let mut state = shared.lock();
    let job = state.jobs.still(serial)?;
    let Some(handle) = job.planner.clone() else { return Ok(state) };
    // One that is under way is one for another number of ranks: its order stays.
    let (follows, is_under_way) = (job.nodes.role().is_follower(), job.run.schedule(epoch).is_some());
    drop(state);
    let made = match ranks {
        _ if follows => get(shared, serial, epoch, ranks.map(|(world, _)| world)),
        Some(ranks) if is_under_way => recut(shared, serial, epoch, ranks),
        _ => draw(shared, (serial, &handle), epoch, ranks.map_or(1, |(world, _)| world)),
    };
    let (made, mut state) = match made {
        Ok(state) => (Ok(()), state),
        Err(error) => (Err(error), shared.lock()),
    };
    if let Some(job) = state.jobs.get_mut(serial) {
        job.ranks.set_planning(None);
        if made.is_err() {
            job.nodes.failed(epoch);
        }
    }
    shared.planned.notify_all();
    made.map(|()| state)
}

/// The bytes of a region on all nodes, which may keep `capacity` together, by those on this one.
fn on_all_nodes(low: (u64, u64), capacity: u64, own: u64) -> (u64, u64) {
    let all = |bytes: u64| {
        let all = u128::from(bytes) * u128::from(capacity) / u128::from(own.max(1));
        u64::try_from(all).unwrap_or(u64::MAX)
    };
    (all(low.0), all(low.1))
}

/// Puts a plan in.
pub(crate) fn put<'a>(
    state: &'a mut State,
    serial: u64,
    mut schedule: Schedule,
    packing: &Packing,
) -> Result<&'a mut Job> {
    schedule.set_generation(state.next_serial());
    let job = state.jobs.still(serial)?;
    job.nodes.planned(schedule.plan().epoch());
    job.ranks.note_cut(schedule.plan());
    // Training has gone back. It is counted anew before a rank begins it: other nodes may ask for slots before this one hears
    // that theirs do.
    let epoch = schedule.plan().epoch();
    if schedule.layout().is_some()
        && job.run.tally().epochs().get(&epoch).is_some_and(|counters| counters.served() > 0)
    {
        job.forget(epoch);
    }
    if let Some(layout) = schedule.layout() {
        job.nodes.laid(layout);
    }
    job.run.planned(schedule, packing);
    Ok(job)
}

/// Draws the plan of an epoch, has it laid over nodes if there are several, and puts it in.
fn draw<'a>(
    shared: &'a Arc<Shared>,
    (serial, handle): (u64, &PlannerHandle),
    epoch: u64,
    world: u32,
) -> Result<MutexGuard<'a, State>> {
    let mut state = shared.lock();
    let job = state.jobs.still(serial)?;
    let samples = job.dataset.samples();
    let nodes = (!job.nodes.role().is_alone()).then(|| job.nodes.cluster()).transpose()?;
    let by_directory = job.nodes.keeps_directory();
    let laid = job.last_laid().filter(|_| by_directory);
    let before = job.nodes.drawn(epoch, world).cloned();
    // Ranks may wait for the plan: where this node has not decided all that comes before, others are not waited for either.
    let last = epoch.checked_sub(1).and_then(|before| job.run.schedule(before));
    // A directory goes by what each node keeps of its own.
    let is_decided = |last: &Schedule| if by_directory { last.has_decided_own() } else { last.is_decided() };
    let is_decided = last.is_some_and(is_decided);
    let is_open = last.is_some() && !is_decided;
    let decided = epoch.checked_sub(1).filter(|_| is_decided);
    let name = job.name().to_owned();
    drop(state);

    let elsewhere = match &nodes {
        Some((cluster, _))
            if (laid.is_some() && !is_open) || (handle.looks_at_residents && before.is_none()) =>
        {
            Some(cluster.residents(&name, decided, samples))
        }
        _ => None,
    };
    let mut planner = handle.planner();
    let told = handle.told(epoch);
    let reevaluated = told.reevaluated.iter().map(|(&id, &loss)| (id, loss)).collect();
    let told = Arc::new(log::Told { reevaluated, accuracy: told.accuracy(), order: told.order });
    if let Some(before) = epoch.checked_sub(1) {
        planner.close(before);
    }
    let mut state = shared.lock();
    let others_at = state.others_at(serial);
    let State { jobs, rooms, config, .. } = &mut *state;
    let job = jobs.still(serial)?;
    let concurrency = rooms.fetching().limit_of(config.concurrency, &job.dataset);
    let rates = epoch.checked_sub(1).and_then(|before| job.notices.pacing.rates(before, concurrency));
    let cache = rooms.cache_mut(serial)?;
    let view = cache_view(cache.policy(), samples, by_directory || planner.looks_at_residents());
    let mut view = CacheView { others_at, ..view };
    if let Some(capacity) = job.nodes.role().capacity() {
        view.low = on_all_nodes(view.low, capacity, cache.policy().capacity());
    }
    cache.planned((job.run.member(), epoch, world), Circumstances { rates, others_at }, &told);
    let is_shared = cache.members() > 1;
    let (dataset, catalog) = (job.dataset.name.clone(), Arc::clone(&job.dataset.catalog));
    drop(state);

    if let Some((residents, others)) = view.residents.as_mut().zip(elsewhere) {
        residents.add(&others);
    }
    // What is still to be decided of the plan before may be kept yet.
    let residents = view.residents.clone().filter(|_| by_directory && !is_open);
    let kept = by_directory.then_some(Kept { before: laid, residents, catalog });
    view.residents = view.residents.filter(|_| planner.looks_at_residents());
    let inputs = Inputs {
        reevaluated: (!told.reevaluated.is_empty()).then_some(&told.reevaluated),
        accuracy: told.accuracy,
        rates,
        order: told.order.as_deref(),
    };
    // Where it was drawn and could not be settled nothing is packed with it.
    let again = before.is_some();
    let plan = before.unwrap_or_else(|| Arc::new(planner.draw(epoch, world, &inputs, &view)));
    let packages = planner.sized_packages();
    if let Some(keys) = plan.keys().filter(|_| is_shared) {
        keys.rank();
    }
    let (schedule, packing) = match nodes {
        None => {
            let packing = planner.pack(&plan, &view, None);
            (Schedule::new(plan, samples).with_packages(packages), packing)
        }
        Some((cluster, _)) => {
            let drawn =
                Unplaced { plan: Plan::clone(&plan), dataset, packages: packages.clone(), kept, laid: None };
            let settled = cluster.settle(&name, drawn);
            if settled.is_err()
                && let Some(job) = shared.lock().jobs.get_mut(serial)
            {
                job.nodes.keep_drawn(Arc::clone(&plan));
            }
            let placed = settled?;
            check_placed(&placed, &name, (epoch, Some(world)))?;
            let Placed { plan, layout } = placed;
            let ownership = layout.ownership(packages.as_ref().map(|(packages, _)| packages));
            let packing = match again {
                true => Packing::default(),
                false => planner.pack(&plan, &view, Some(&ownership)),
            };
            let own = packing.owned_by(&ownership);
            let layout = Arc::new(Arc::unwrap_or_clone(layout).with_packing(packing));
            let mut schedule = Schedule::new(plan, samples).with_packages(packages);
            schedule.set_layout(layout);
            (schedule, own)
        }
    };
    let (figures, remarks) = (planner.strategy().notes(), planner.strategy().remarks());
    let packages = NewPackages::new(Some(schedule.plan()), packing.clone(), samples);

    let mut state = shared.lock();
    let job = put(&mut state, serial, schedule, &packing)?;
    job.notices.planned(figures, remarks);
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

/// Has the next plan made on another thread, if everything it needs is there.
pub(crate) fn look_ahead(shared: &Arc<Shared>, state: &mut State, serial: u64) {
    if state.is_stopping() || state.plans.is_queued(serial) {
        return;
    }
    if state.jobs.get(serial).and_then(Job::plans_ahead).is_none() {
        return;
    }
    state.plans.jobs.push_back(serial);
    if state.plans.threads >= shared.planners {
        return;
    }
    let own = Arc::clone(shared);
    match thread::Builder::new().name("hotset-plan".into()).spawn(move || make_queued(&own)) {
        Ok(_) => state.plans.threads += 1,
        Err(error) if state.plans.threads == 0 => {
            tracing::warn!(%error, "cannot plan the next epoch ahead");
            state.plans.jobs.clear();
        }
        Err(_) => {}
    }
}

/// Makes plans until none is queued.
fn make_queued(shared: &Arc<Shared>) {
    let mut state = shared.lock();
    while !state.is_stopping()
        && let Some(serial) = state.plans.jobs.pop_front()
    {
        // A rank may have begun the epoch meanwhile, or another one, and the job may be closed.
        let Some(job) = state.jobs.get_mut(serial) else { continue };
        let Some((epoch, world)) = job.plans_ahead() else { continue };
        job.ranks.set_planning(Some(epoch));
        drop(state);
        if let Err(error) = make(shared, serial, epoch, Some((world, 0)))
            .and_then(|state| if state.is_stopping() { Ok(()) } else { read_ahead(shared, state, serial) })
        {
            tracing::debug!(%error, "the next epoch is not planned ahead");
        }
        state = shared.lock();
    }
    state.plans.threads -= 1;
}

impl Job {
    /// The epoch that can be planned ahead now, and for how many ranks.
    fn plans_ahead(&self) -> Option<(u64, u32)> {
        let planner = self.planner.as_ref()?;
        if !self.opened.request.prefetch
            || self.ranks.is_planning()
            || planner.waits_for_trainer
            || planner.takes_order
        {
            return None;
        }
        // Others get plans when they are told that there is one.
        if self.nodes.role().is_follower() {
            return None;
        }
        let newest = self.ranks.newest().filter(|newest| !self.nodes.has_failed(newest + 1))?;
        let (next, world) = (newest + 1, self.run.schedule(newest)?.plan().world());
        let over = self.opened.request.epochs.is_some_and(|epochs| next >= epochs);
        let open = !over && self.run.schedule(next).is_none() && self.is_gathered(next, true);
        open.then_some((next, world))
    }
}
