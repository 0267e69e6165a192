//! Plans that are not drawn here: they come from the job's home, or are under way and cut over another number of ranks.
//!
//! A plan lies over nodes once and for all. Its layout comes with it, to nodes that follow and to the one that takes the home's
//! place. Where a training goes on in mid-epoch with another number of ranks, the home cuts the order anew and tells on which nodes
//! the ranks are now; samples keep their owners. A node that has the plan under way finds that what it is told is the same order with
//! the same owners, and goes on with it as it stands: what it has decided stays decided, and what it has served stays counted. The layout
//! says how much was trained, for nodes that come only now: they decide nothing of that, and count it neither as served nor as left.

use std::sync::Arc;

use hotset_core::schedule::Schedule;
use hotset_core::{Error, Result};

use crate::cluster::{Placed, Unplaced};
use crate::engine::Shared;
use crate::jobs::PackageSource;
use crate::packing::{self, NewPackages};
use crate::planning::put;
use crate::state::State;
use crate::sync::MutexGuard;

/// Gets the plan of an epoch from the job's home, and takes it in.
pub(crate) fn get(
    shared: &Arc<Shared>,
    serial: u64,
    epoch: u64,
    world: Option<u32>,
) -> Result<MutexGuard<'_, State>> {
    let mut state = shared.lock();
    let job = state.jobs.still(serial)?;
    let (name, (cluster, _)) = (job.name().to_owned(), job.nodes.cluster()?);
    drop(state);
    let placed = cluster.plan(&name, epoch, world)?;
    check_placed(&placed, &name, (epoch, world))?;
    take_in(shared, serial, placed)
}

/// Cuts the plan of an epoch, which is under way here, over another number of ranks, and tells of it as the job's home.
pub(crate) fn recut(
    shared: &Arc<Shared>,
    serial: u64,
    epoch: u64,
    (world, start): (u32, u64),
) -> Result<MutexGuard<'_, State>> {
    let mut state = shared.lock();
    let job = state.jobs.still(serial)?;
    let (name, dataset) = (job.name().to_owned(), job.dataset.name.clone());
    let (cluster, _) = job.nodes.cluster()?;
    // Without it the plan is drawn when it is asked for again.
    let Some(schedule) = job.run.schedule(epoch) else { return Ok(state) };
    let (before, laid) = (Arc::clone(schedule.plan()), schedule.layout().cloned());
    drop(state);
    let plan = before.recut(world);
    let trained = start.saturating_mul(world.into()).min(plan.len() as u64);
    let laid = laid.map(|laid| (laid, trained));
    let cut = Unplaced { plan, dataset, packages: None, kept: None, laid };
    let placed = cluster.settle(&name, cut)?;
    check_placed(&placed, &name, (epoch, Some(world)))?;
    take_in(shared, serial, placed)
}

/// Whether it is the plan that was asked for.
pub(crate) fn check_placed(
    Placed { plan, layout }: &Placed,
    job: &str,
    (epoch, world): (u64, Option<u32>),
) -> Result<()> {
    if plan.epoch() != epoch || layout.digest() != plan.digest() {
        return Err(Error::internal(format!("another plan came than that of epoch {epoch} of job `{job}`")));
    }
    if world.is_some_and(|world| world != plan.world()) {
        return Err(Error::invalid(format!(
            "epoch {epoch} of job `{job}` is planned for {} ranks, and one of {} begins it: use the same `world` in every \
             rank",
            plan.world(),
            world.unwrap_or_default()
        )));
    }
    Ok(())
}

/// Puts in a plan that lies over nodes already, in place of another of its epoch. One that is here stays as it is, and one of the same
/// order goes on as it stands.
pub(crate) fn take_in(shared: &Arc<Shared>, serial: u64, placed: Placed) -> Result<MutexGuard<'_, State>> {
    let (epoch, digest) = (placed.plan.epoch(), placed.plan.digest());
    let mut state = shared.lock();
    let own = state.jobs.still(serial)?.run.schedule(epoch);
    if own.is_some_and(|own| own.plan().digest() == digest) {
        return Ok(state);
    }
    let own = own.and_then(|own| {
        let laid = Placed { plan: Arc::clone(own.plan()), layout: Arc::clone(own.layout()?) };
        Some((own.generation(), laid))
    });
    drop(state);
    if let Some((generation, own)) = own
        && own.is_cut_anew_as(&placed)
    {
        let mut state = shared.lock();
        let State { jobs, rooms, .. } = &mut *state;
        let job = jobs.still(serial)?;
        if job.same_schedule(epoch, generation).is_some() {
            job.recut(rooms, epoch, placed.plan.world(), Some(placed.layout))?;
            shared.planned.notify_all();
            return Ok(state);
        }
    }
    replace(shared, serial, placed)
}

/// Puts a plan in of which nothing is decided here.
fn replace(
    shared: &Arc<Shared>,
    serial: u64,
    Placed { plan, layout }: Placed,
) -> Result<MutexGuard<'_, State>> {
    let epoch = plan.epoch();
    let mut state = shared.lock();
    let job = state.jobs.still(serial)?;
    let (name, samples) = (job.name().to_owned(), job.dataset.samples());
    let (planner, source) = (job.planner.clone(), job.packages.source().cloned());
    drop(state);
    let packs = layout.is_by_runs() || layout.made().is_some();
    let own = planner.filter(|_| packs).and_then(|planner| planner.planner().sized_packages());
    if own.is_none() && packs {
        return Err(Error::changed(format!(
            "the plan of epoch {epoch} of job `{name}` was made with `packages` that this node does not have or cannot reach: \
             use the same data on all nodes, and a place for `packages=` that all of them reach"
        )));
    }
    let mut packing = layout.packing().owned_by(&layout.ownership(None));
    if let Some(PackageSource::Store(store)) = source {
        // A node that was started again has made some of them before.
        packing.packages.retain(|(number, _)| store.length(*number).is_none());
    }
    let packages = NewPackages::new(Some(&plan), packing.clone(), samples);
    let mut schedule = Schedule::new(plan, samples).with_packages(own);
    let trained = usize::try_from(layout.trained()).unwrap_or(usize::MAX);
    schedule.set_layout(layout);
    schedule.pass_trained(trained);
    let made = schedule.packages().cloned();
    let mut state = shared.lock();
    let State { jobs, rooms, .. } = &mut *state;
    let job = jobs.still(serial)?;
    if job.run.schedule(epoch).is_some() {
        job.drop_schedule(rooms, epoch)?;
    }
    let job = put(&mut state, serial, schedule, &packing)?;
    job.discard_dead_packages(made.as_ref(), |_| false);
    packing::begin(shared, &mut state, serial, packages);
    shared.planned.notify_all();
    Ok(state)
}
