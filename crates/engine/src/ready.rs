//! A job before it is taken in: its policy, its planner, and all that a snapshot puts into them.
//!
//! Making these takes as long as the dataset is large, so it is done on what the state says of the dataset and the memory
//! ([`Terms`]), without its lock. Pairs of strategy and policy that cannot work are refused here, with the reason.

use std::collections::BTreeMap;
use std::sync::Arc;

use hotset_core::bytes::human;
use hotset_core::cache::Cache;
use hotset_core::log::Setup;
use hotset_core::packages::{self, BATCH, Mixing};
use hotset_core::policy::{self, Policy, Sizes};
use hotset_core::run::RunState;
use hotset_core::{Error, Id, Result, run, sampling};
use hotset_store::Catalog;

use crate::caches::CacheKey;
use crate::cluster::Role;
use crate::config::{JobGrant, JobRequest};
use crate::dataset::Dataset;
use crate::jobs::{Job, JobPackages};
use crate::packing::{NewPackages, PackingQueue, Place};
use crate::planner::PlannerHandle;
use crate::snapshot::Snapshot;

/// An error for a pair that cannot work.
fn check_pair(
    strategy: Option<&sampling::Entry>,
    policy: &policy::Entry,
    bytes: u64,
    granted: u64,
) -> Result<()> {
    let name = policy.name;
    if policy.offline {
        return Err(Error::invalid(format!(
            "policy `{name}` must know every plan of the run beforehand, so only `hotset simulate` can run it: \
             choose another `policy`"
        )));
    }
    if !policy.bounded && granted < bytes {
        return Err(Error::invalid(format!(
            "policy `{name}` is a bound to compare with and keeps everything: give it `cache=\"100%\"`, or choose \
             another `policy`"
        )));
    }
    if strategy.is_none() && !policy.plain {
        let plain = policy::REGISTRY.iter().filter(|entry| entry.plain).map(|entry| entry.name);
        return Err(Error::invalid(format!(
            "policy `{name}` goes by plans and losses, and a dataset without a sampler has neither: choose `{}`",
            plain.collect::<Vec<_>>().join("`, `")
        )));
    }
    Ok(())
}

/// Why a job has no packages, though there is a place for them.
fn no_packages(
    request: &JobRequest,
    place: &Place,
    entry: &policy::Entry,
    policy: &dyn Policy,
    capacity: u64,
) -> String {
    let bytes = match place {
        Place::Unusable(why) => return why.clone(),
        Place::Runs(runs) => runs.largest(),
        Place::Store(_) => packages::size(request.package_bytes, capacity).unwrap_or_default(),
    };
    if !policy.takes_packages() {
        format!("policy `{}` has no region for them (`icache` and `impact` have)", entry.name)
    } else if bytes == 0 {
        packages::too_small(capacity)
    } else if capacity / 8 < bytes {
        format!(
            "two packages of {} are more than a quarter of the cache of {}: raise `cache`, or lower `package_size`",
            human(bytes),
            human(capacity)
        )
    } else {
        format!(
            "strategy `{}` serves nothing from them as it is set",
            request.strategy.as_deref().unwrap_or_default()
        )
    }
}

/// Runs of shards that are sorted are no packages: why.
fn sorted(place: &Place, catalog: &Catalog, capacity: u64) -> Option<Place> {
    let Place::Runs(runs) = place else { return None };
    // What a plan shuffles within: the L region, and at least two packages.
    let buffer = (capacity / 10).max(2 * runs.largest());
    let mixing = Mixing::of(runs, buffer, |id| catalog.label(id)).filter(|mixing| !mixing.is_enough())?;
    Some(Place::Unusable(format!(
        "shards are sorted by label. A batch of {BATCH} from runs of their samples would hold {:.1} different labels, \
         one of a shuffle {:.1}, so each sample is read alone; write the shards in random order, or choose shorter \
         runs (`package_size=`), or name a place for packages of easy samples (`packages=`); `packages=\"off\"` \
         says that this is meant",
        mixing.buffered, mixing.shuffled
    )))
}

/// The bytes of a package, where they are made for a `part` of what all nodes keep; none where that is too small.
fn package_bytes(request: &JobRequest, place: &Place, (role, part): (Role, u64)) -> Option<u64> {
    match place {
        Place::Store(_) if !role.is_alone() => {
            packages::size(request.package_bytes, part).filter(|&bytes| packages::fit(bytes, part))
        }
        _ => Some(request.package_bytes),
    }
}

fn texts(settings: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    settings.iter().map(|(name, value)| (name.as_str(), value.as_str()))
}

/// What a job gets.
pub(crate) struct Terms {
    pub(crate) dataset: Arc<Dataset>,
    /// The bytes it asks for.
    pub(crate) asked: u64,
    /// The same, as far as its dataset is that large.
    pub(crate) wanted: u64,
    /// The bytes that its plans go by: those, or what all nodes of the job may keep.
    pub(crate) planned: u64,
    /// The bytes that its cache may keep.
    pub(crate) granted: u64,
    /// What is said where those are fewer.
    pub(crate) less: Option<String>,
    /// What others must agree in to share its cache, and that cache if it is there.
    pub(crate) key: CacheKey,
    pub(crate) cache: Option<u64>,
    /// The bytes that all caches may keep together.
    pub(crate) budget: u64,
    /// Whether its cache keeps a log.
    pub(crate) logged: bool,
    /// What this node is to the job, and the node's name in a cluster.
    pub(crate) role: Role,
    pub(crate) node: String,
}

impl Terms {
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        (self.granted, self.cache) == (other.granted, other.cache)
            && Arc::ptr_eq(&self.dataset, &other.dataset)
    }
}

/// What others must agree in to share the cache of a job. Where packages are made for the job alone, its plans say what
/// stays, or they lie over nodes as those of no other job do, it has one of its own.
pub(crate) fn cache_key(
    request: &JobRequest,
    (place, role): (Option<&Place>, Role),
    dataset: u32,
) -> Result<CacheKey> {
    let (_, entry) = entries(request)?;
    let packages = place.is_some_and(|place| !matches!(place, Place::Unusable(_)));
    let nothing = || Arc::new(Vec::<u64>::new()) as Arc<dyn Sizes>;
    let alone = !role.is_alone()
        || !entry.shared
        || (packages && (entry.build)(policy::Setup::new(0, nothing(), 0)).takes_packages());
    Ok(CacheKey {
        dataset,
        policy: entry.name,
        bounded: entry.bounded,
        settings: entry.values(texts(&request.policy_settings))?,
        planned: request.strategy.is_some(),
        owner: alone.then(|| request.job.clone()),
    })
}

/// The strategy and the policy that a job asks for.
fn entries(request: &JobRequest) -> Result<(Option<&'static sampling::Entry>, &'static policy::Entry)> {
    let strategy = request.strategy.as_deref().map(sampling::find).transpose()?;
    let settings = || texts(&request.strategy_settings);
    let own = strategy.map(|strategy| strategy.policy_for(settings()));
    let entry = policy::find(request.policy.as_deref().or(own).unwrap_or(policy::DEFAULT))?;
    if let Some(strategy) = strategy {
        strategy.check_policy(settings(), entry.name)?;
    }
    Ok((strategy, entry))
}

/// A job that can be taken in.
pub(crate) struct Ready {
    pub(crate) job: Job,
    /// Its cache, unless it joins one that others are in.
    pub(crate) cache: Option<Cache>,
    /// What a server before this one was packing for it.
    pub(crate) unfinished: Option<NewPackages>,
    /// The samples that it waits for.
    pub(crate) waiting: Vec<Id>,
    /// How it was made, for the log of its cache; `None` without plans.
    pub(crate) setup: Option<Arc<Setup>>,
    /// What it goes on from.
    pub(crate) state: Option<Arc<RunState>>,
}

impl Ready {
    /// A job as `request` asks for it, where `snapshot` leaves it. What it has of `place` is used if its strategy and
    /// policy have a use for packages.
    pub(crate) fn new(
        request: &JobRequest,
        place: Option<&Place>,
        snapshot: Option<&Snapshot>,
        terms: &Terms,
    ) -> Result<Self> {
        let (catalog, wanted, granted) = (&terms.dataset.catalog, terms.planned, terms.granted);
        let (strategy, entry) = entries(request)?;
        check_pair(strategy, entry, catalog.bytes(), granted)?;
        // Packages are read by one node, so they are as large as its part of a cache allows.
        let part = terms.wanted.min(wanted);
        let by_runs = strategy.is_some() && sampling::asks_for_runs(texts(&request.strategy_settings));
        if by_runs && !terms.role.is_alone() {
            return Err(Error::invalid(
                "plans by runs are for one host so far: leave `order` out on a cluster, or set `order=exact`",
            ));
        }
        // How well plans by runs mix was settled when the runs were chosen.
        let sorted = place.filter(|_| !by_runs).and_then(|place| sorted(place, catalog, wanted));
        let place = sorted.as_ref().or(place);
        let sizes = Arc::clone(catalog) as Arc<dyn Sizes>;
        let (policy, mut planner) = match strategy {
            Some(strategy) => {
                let config = run::Config {
                    strategy,
                    strategy_values: strategy.values(texts(&request.strategy_settings))?,
                    policy: entry,
                    policy_values: entry.values(texts(&request.policy_settings))?,
                    sizes,
                    // Plans go by what the job itself asks for, on all its nodes, whatever others bring to the cache or
                    // take from it.
                    capacity: wanted,
                    seed: request.seed,
                    epochs: request.epochs,
                    world: 1,
                    pad: request.pad,
                    packages: place
                        .and_then(|place| place.origin(package_bytes(request, place, (terms.role, part))?)),
                };
                let policy = run::Config { capacity: granted, ..config.clone() }.policy();
                let planner = run::Planner::new(config, policy.takes_packages());
                (policy, Some(planner))
            }
            None => ((entry.build)(policy::Setup::new(granted, sizes, request.seed)), None),
        };
        let packs = planner.as_ref().is_some_and(run::Planner::packs);
        let mut remarks: Vec<String> = terms.less.iter().cloned().collect();
        // A user who did not ask for packages is told only if they would be of use.
        if let Some(place) = place
            && !packs
            && (request.packages.is_some() || policy.takes_packages())
        {
            let why = no_packages(request, place, entry, &*policy, part);
            remarks.push(if by_runs { why } else { format!("`packages` are off: {why}") });
        }
        let place = place.filter(|_| packs);
        let found = place.map(|place| place.found(catalog.len())).unwrap_or_default();
        if let (Some(planner), Some(Place::Store(packaging))) = (&mut planner, place) {
            found.iter().for_each(|(number, ids)| planner.found(*number, ids));
            planner.number_from(packaging.next);
        }
        let setup = strategy.filter(|_| terms.logged).map(|strategy| Setup {
            job: request.job.clone(),
            strategy: strategy.name.to_owned(),
            settings: request.strategy_settings.clone(),
            capacity: wanted,
            seed: request.seed,
            epochs: request.epochs,
            pad: request.pad,
            packages: place.and_then(|place| place.setup(request.package_bytes, &found)),
        });
        let grant = JobGrant {
            strategy: strategy.map(|s| s.name.to_owned()).unwrap_or_default(),
            policy: entry.name.to_owned(),
            asked: terms.asked,
            granted,
            one_host: planner.as_ref().is_some_and(|planner| {
                let strategy = planner.strategy();
                strategy.needs_losses()
                    || planner.looks_at_residents()
                    || strategy.adapts()
                    || planner.packs()
            }),
            packs,
            remarks,
        };
        let mut cache = terms.cache.is_none().then(|| Cache::new(policy, catalog.len()));
        let run = run::JobRun::new(Arc::clone(catalog) as Arc<dyn Sizes>);
        let mut job = Job::new(request.clone(), grant, Arc::clone(&terms.dataset), run);
        let mut state = None;
        if let (Some(snapshot), Some(planner)) = (snapshot, &mut planner) {
            let put = snapshot.put_into(&mut job, cache.as_mut(), planner, catalog, (&found, &terms.node))?;
            state = terms.logged.then(|| Arc::new(put));
        }
        planner.iter_mut().for_each(|planner| planner.set_log(job.run.log()));
        let pending = planner.as_ref().map(|planner| planner.pending_packages().iter());
        let unfinished = pending.into_iter().flatten().filter(|(_, pending)| !pending.written);
        let packages: Vec<(u32, Vec<Id>)> =
            unfinished.map(|(&number, pending)| (number, pending.draft.ids.clone())).collect();
        // Which node was making one is not known any more.
        let (packages, lost) = if terms.role.is_alone() { (packages, vec![]) } else { (vec![], packages) };
        planner.iter_mut().for_each(|planner| lost.iter().for_each(|(number, _)| planner.lost(*number)));
        let unfinished = run::Packing { packages, ..run::Packing::default() };
        let unfinished = NewPackages::new(None, unfinished, catalog.len());
        let planner = planner.map(|planner| {
            let adapts = planner.strategy().adapts();
            let handle = PlannerHandle::new(planner, adapts);
            handle.set_follows(terms.role.is_follower());
            Arc::new(handle)
        });
        let queue = match place {
            Some(Place::Store(packaging)) => Some(Arc::new(PackingQueue::new(packaging))),
            _ => None,
        };
        // What is found on another node than the home may be of use before a plan says so.
        let found = if terms.role.is_follower() { &[] } else { &found[..] };
        let living = found.iter().map(|(number, _)| *number);
        job.equip(planner, JobPackages::new(place.and_then(Place::source), queue, living));
        let waiting = job.waiting();
        waiting.iter().for_each(|&id| job.window.enter(catalog.size(id)));
        Ok(Self { job, cache, unfinished, waiting, setup: setup.map(Arc::new), state })
    }
}
