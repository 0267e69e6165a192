//! Several trainings over one storage, at speeds and starts of their own: those of one dataset share a cache.
//!
//! Jobs and caches are those of [`hotset_core::run::Replay`], which also replays the log of a server; here the events
//! come from modelled time. The training whose next request may start first decides its next slot, in turns where several
//! may, and requests of all pass through one storage. A sample that another one has asked for, and that has not arrived, is waited for and not
//! asked for again. A cache has its memory from the first start to the last end.

mod group;
mod pool;

use hotset_core::cache::Cache;
use hotset_core::log::MemberId;
use hotset_core::policy::{self, Policy};
use hotset_core::run::{Change, Config, Replay};
use hotset_core::{Error, Result};

pub(crate) use self::pool::pooled;

use self::group::{Group, Progress, Traces};
use crate::outcome::Outcome;
use crate::scenario::{Job, Scenario};
use crate::timeline::{StorageClock, seconds};

/// One training.
#[derive(Clone)]
pub struct Training {
    /// What it is called in reports.
    pub name: String,
    /// Its losses and its trainer. Sizes and storage are those of the first one.
    pub scenario: Scenario,
    /// What it runs; policy and cache are those of the first one.
    pub job: Job,
    /// When it starts, in seconds.
    pub start: f64,
    /// What it gains from a cache; worked out from the storage and its trainer where it is not given.
    pub benefit: Option<f64>,
}

impl Training {
    /// How much longer a batch takes that is read than one that is there, as a probe would find.
    fn benefit(&self) -> f64 {
        let rates = self.scenario.rates();
        self.benefit.unwrap_or_else(|| (rates.training / rates.storage.max(1e-9)).max(1.0))
    }
}

/// What came of one training.
#[derive(Debug, Clone)]
pub struct Trained {
    /// What it is called.
    pub name: String,
    /// When it started, in seconds.
    pub start: f64,
    /// When it ended, in seconds.
    pub end: f64,
    /// What it gains from a cache.
    pub benefit: f64,
    /// What was counted.
    pub outcome: Outcome,
}

impl Trained {
    /// Reads of all epochs.
    pub fn reads(&self) -> u64 {
        self.outcome.epochs.iter().map(|epoch| epoch.counters.plan.storage_reads).sum()
    }
}

/// Trains all of them over one cache; what came of each, in the order given.
pub fn run(trainings: &[Training]) -> Result<Vec<Trained>> {
    let mut trained = run_datasets(vec![Dataset::new(trainings)?], Stop::Epochs, &mut |_| ())?;
    Ok(trained.pop().unwrap_or_default())
}

/// The trainings of a dataset, and the cache that they share.
pub(crate) struct Dataset<'a> {
    trainings: &'a [Training],
    policy: Option<Box<dyn Policy>>,
}

impl<'a> Dataset<'a> {
    /// With a cache of its own, as the first training asks for it.
    pub(crate) fn new(trainings: &'a [Training]) -> Result<Self> {
        check(trainings)?;
        Ok(Self { trainings, policy: None })
    }

    /// With another policy than that of the trainings.
    pub(crate) fn with_policy(self, policy: Box<dyn Policy>) -> Self {
        Self { policy: Some(policy), ..self }
    }
}

/// When a simulation ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Each training leaves when it has had its epochs.
    Epochs,
    /// All train on until the last one has had its epochs.
    Together,
}

/// A slot that was decided.
pub(crate) struct Step<'a> {
    /// Its dataset, and its training in the order given.
    pub(crate) training: (usize, usize),
    /// When it could be asked for, in seconds.
    pub(crate) now: f64,
    /// When the last batch that was served whole is trained, in seconds.
    pub(crate) trained: f64,
    /// What it brought about.
    pub(crate) changes: &'a [Change],
}

/// Trains all of them, of each dataset over its own cache and all over one storage, that of the first. `watch` hears of every
/// slot, in the order in which they are decided. What came of each, in the order given.
pub(crate) fn run_datasets(
    datasets: Vec<Dataset<'_>>,
    stop: Stop,
    watch: &mut dyn FnMut(&Step<'_>),
) -> Result<Vec<Vec<Trained>>> {
    let first = datasets.iter().find_map(|dataset| dataset.trainings.first());
    let first = first.ok_or_else(|| Error::invalid("there is no training to simulate"))?;
    let mut storage = StorageClock::new(first.scenario.storage);
    let mut members: Vec<Members<'_>> = Vec::new();
    let mut caches = Vec::new();
    for dataset in datasets {
        let one = Members::new(dataset.trainings)?;
        let samples = one.order[0].1.scenario.samples();
        caches.push(Cache::new(dataset.policy.unwrap_or_else(|| one.configs[0].policy()), samples));
        members.push(one);
    }
    let mut makers: Vec<_> = members
        .iter()
        .map(|members| {
            let configs = &members.configs;
            let make = |member: MemberId| configs[member as usize].clone();
            (make, Traces { members: &members.order })
        })
        .collect();
    let mut jobs: Vec<Progress<'_>> =
        members.iter().enumerate().flat_map(|(dataset, members)| members.progress(dataset)).collect();
    let mut groups: Vec<Group<'_>> = caches
        .into_iter()
        .zip(&mut makers)
        .map(|(cache, (make, traces))| Group::new(Replay::new(cache, make, traces), stop))
        .collect();
    while let Some(job) = next(&mut jobs, stop) {
        let group = &mut groups[job.dataset];
        let now = job.timeline.earliest();
        group.advance(job, &mut storage)?;
        watch(&Step {
            training: (job.dataset, job.place),
            now: seconds(now),
            trained: job.timeline.ended(),
            changes: &group.changes,
        });
    }
    let mut trained: Vec<Vec<(usize, Trained)>> = members.iter().map(|_| Vec::new()).collect();
    for job in jobs {
        let capacity = members[job.dataset].configs[0].capacity;
        trained[job.dataset].push((job.place, job.trained(capacity)));
    }
    trained.iter_mut().for_each(|all| all.sort_by_key(|(place, _)| *place));
    Ok(trained.into_iter().map(|all| all.into_iter().map(|(_, trained)| trained).collect()).collect())
}

/// The training that decides next, if not all are over.
fn next<'a, 'b>(jobs: &'b mut [Progress<'a>], stop: Stop) -> Option<&'b mut Progress<'a>> {
    // Those that are over train on until the last is, and to the end of its last epoch.
    let until = match stop {
        Stop::Epochs => 0.0,
        Stop::Together if jobs.iter().all(Progress::is_over) => {
            jobs.iter().filter_map(|job| job.over).fold(0.0, f64::max)
        }
        Stop::Together => f64::INFINITY,
    };
    let trains = |job: &&mut Progress<'_>| !job.is_over() || job.timeline.ended() < until;
    jobs.iter_mut().filter(trains).min_by_key(|job| job.next())
}

/// The trainings of a dataset in the order in which they join, each with its place in the order given.
struct Members<'a> {
    order: Vec<(usize, &'a Training)>,
    configs: Vec<Config>,
}

impl<'a> Members<'a> {
    fn new(trainings: &'a [Training]) -> Result<Self> {
        let first = check(trainings)?;
        let mut order: Vec<(usize, &Training)> = trainings.iter().enumerate().collect();
        order.sort_by(|(_, a), (_, b)| a.start.total_cmp(&b.start));
        let capacity = first.job.amount.of(first.scenario.bytes);
        let config = |(_, one): &(usize, &Training)| one.job.config(&one.scenario, capacity, None);
        let configs = order.iter().map(config).collect::<Result<_>>()?;
        Ok(Self { order, configs })
    }

    fn progress(&self, dataset: usize) -> impl Iterator<Item = Progress<'a>> {
        let order = self.order.iter().zip(0..);
        order.map(move |(&(place, training), member)| Progress::new(training, (dataset, place), member))
    }
}

/// Refuses what cannot share a cache; the first training.
fn check(trainings: &[Training]) -> Result<&Training> {
    let first = trainings.first().ok_or_else(|| Error::invalid("there is no training to simulate"))?;
    let policy = policy::find(&first.job.policy.name)?;
    if !policy.shared || policy.offline {
        return Err(Error::invalid(format!(
            "policy `{}` is one job's own: choose another for jobs that share a cache",
            first.job.policy
        )));
    }
    for other in trainings {
        if other.job.policy != first.job.policy {
            return Err(Error::invalid(format!(
                "`{}` has policy `{}` and `{}` has `{}`: jobs share a cache if they have one policy",
                first.name, first.job.policy, other.name, other.job.policy
            )));
        }
        if other.scenario.samples() != first.scenario.samples() {
            return Err(Error::invalid(format!(
                "the trace of `{}` has {} samples and that of `{}` {}: jobs share a cache if they train one dataset",
                first.name,
                first.scenario.samples(),
                other.name,
                other.scenario.samples()
            )));
        }
    }
    Ok(first)
}

#[cfg(test)]
mod tests;
