//! One run: a strategy and a policy over all epochs of a trace.
//!
//! Epoch by epoch: the strategy closes the one before, what it wants re-evaluated is read, the plan is made,
//! the policy is asked along it, and what was trained reports. For a policy that needs the future all plans
//! are made first, without a look at residents or packages.

use hotset_core::{Result, policy};

use crate::cache::Cache;
use crate::outcome::{Epoch, Outcome};
use crate::planner::Planner;
pub use crate::world::{Job, PACKAGE, World};

/// Replays one run.
pub fn run(world: &World, job: &Job) -> Result<Outcome> {
    let capacity = job.amount.of(world.bytes);
    let mut planner = Planner::new(world, job, capacity)?;
    let mut cache = Cache::new(world, job, capacity)?;
    let epochs = if policy::find(&job.policy.name)?.offline {
        if planner.looks_at_residents() {
            cache.notes.push(format!(
                "`{}` must know every plan beforehand, so `{}` planned without looking at residents",
                job.policy.name, job.strategy.name
            ));
        }
        beforehand(world, &mut planner, &mut cache)?
    } else {
        in_turn(world, &mut planner, &mut cache)?
    };
    let mut notes = std::mem::take(&mut cache.notes);
    if epochs.iter().any(|epoch| epoch.counters.planned == 0) {
        notes.push(format!("some epochs serve nothing: `ranks` is {} for few samples", world.compute.ranks));
    }
    Ok(Outcome {
        strategy: job.strategy.to_string(),
        policy: job.policy.to_string(),
        cache: job.cache.clone(),
        capacity,
        seed: job.seed,
        samples: world.samples(),
        bytes: world.bytes,
        epochs,
        notes,
    })
}

fn in_turn(world: &World, planner: &mut Planner<'_>, cache: &mut Cache<'_>) -> Result<Vec<Epoch>> {
    let mut epochs = Vec::with_capacity(world.epochs());
    for number in 0..world.epochs() as u64 {
        let reevaluation = planner.close_before(number);
        cache.begin(&reevaluation);
        let residents = planner.looks_at_residents().then(|| cache.residents());
        let plan = planner.plan(number, &reevaluation, residents.as_ref(), cache.packages());
        let mut epoch = cache.epoch(&plan)?;
        epoch.counters.reported = planner.train(&plan);
        epochs.push(epoch);
    }
    Ok(epochs)
}

fn beforehand(world: &World, planner: &mut Planner<'_>, cache: &mut Cache<'_>) -> Result<Vec<Epoch>> {
    let (mut plans, mut reevaluations, mut reported) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..world.epochs() as u64 {
        let reevaluation = planner.close_before(number);
        let plan = planner.plan(number, &reevaluation, None, None);
        reported.push(planner.train(&plan));
        plans.push(plan);
        reevaluations.push(reevaluation);
    }
    cache.know_all(&plans)?;
    let each = plans.iter().zip(&reevaluations).zip(reported).map(|((plan, reevaluation), reported)| {
        cache.begin(reevaluation);
        let mut epoch = cache.epoch(plan)?;
        epoch.counters.reported = reported;
        Ok(epoch)
    });
    each.collect()
}
