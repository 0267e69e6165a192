//! Opening and closing jobs, and the memory they get.
//!
//! A job goes when it is closed, or a while after its last client. Opening it with a snapshot puts it where
//! another server left it, also beside jobs that hold bytes of the same dataset already.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use hotset_core::bytes::human;
use hotset_core::packages::Origin;
use hotset_core::policy::{self, Policy, Sizes};
use hotset_core::schedule::Schedule;
use hotset_core::{Error, Result};
use hotset_core::{run, sampling};

use crate::config::{JobGrant, JobRequest, reserve};
use crate::engine::{Engine, SessionId};
use crate::job::Job;
use crate::loader::Source;
use crate::mind::Mind;
use crate::packer;
use crate::press::{Place, Press};
use crate::snapshot::Snapshot;
use crate::state::State;

/// Policies that need nothing but to be asked.
const PLAIN: &[&str] = &["lru", "lfu", "random", "minio", "oracle"];

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
    if strategy.is_none() && !PLAIN.contains(&name) {
        return Err(Error::invalid(format!(
            "policy `{name}` goes by plans and losses, and a dataset without a sampler has neither: choose `{}`",
            PLAIN.join("`, `")
        )));
    }
    Ok(())
}

/// Why a job has no packages, though there is a place for them, of `bytes` each.
fn no_packages(
    request: &JobRequest,
    entry: &policy::Entry,
    policy: &dyn Policy,
    bytes: u64,
    capacity: u64,
) -> String {
    if !policy.takes_packages() {
        format!("policy `{}` has no region for them (`icache` and `impact` have)", entry.name)
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

fn texts(settings: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    settings.iter().map(|(name, value)| (name.as_str(), value.as_str()))
}

impl Engine {
    /// Opens a job, or joins it if it is open with the same settings.
    pub fn open_job(
        &self,
        session: SessionId,
        request: JobRequest,
        place: Option<Place>,
    ) -> Result<JobGrant> {
        self.open(session, request, place, None)
    }

    /// Opens a job where another server left it. A snapshot that does not fit is an error, and nothing is
    /// opened.
    pub fn restore_job(
        &self,
        session: SessionId,
        request: JobRequest,
        place: Option<Place>,
        snapshot: &Snapshot,
    ) -> Result<JobGrant> {
        self.open(session, request, place, Some(snapshot))
    }

    fn open(
        &self,
        session: SessionId,
        request: JobRequest,
        place: Option<Place>,
        snapshot: Option<&Snapshot>,
    ) -> Result<JobGrant> {
        let mut state = self.shared.lock();
        if let Some(job) =
            state.names.get(&request.job).copied().and_then(|serial| state.jobs.get_mut(&serial))
        {
            job.same_as(&request)?;
            job.sessions.insert(session.0);
            if job.left.take().is_some() {
                // Whoever had begun its epochs is gone, and may come back as more or fewer ranks.
                job.schedules.values_mut().for_each(Schedule::set_restored);
            }
            job.over = false;
            return Ok(job.grant.clone());
        }
        let placed = place.is_some();
        let (mut packaging, runs, unusable) = match place {
            Some(Place::Shelf(packaging)) => (Some(packaging), None, None),
            Some(Place::Runs(runs)) => (None, Some(runs), None),
            Some(Place::Unusable(why)) => (None, None, Some(why)),
            None => (None, None, None),
        };
        let dataset = state.dataset(&request.dataset)?;
        let catalog = Arc::clone(&state.datasets[dataset as usize].catalog);
        let strategy = request.strategy.as_deref().map(sampling::find).transpose()?;
        let name = request.policy.as_deref().or(strategy.map(|s| s.policy)).unwrap_or("minio");
        let entry = policy::find(name)?;
        let asked = request.cache.of(catalog.bytes());
        let granted = state.grant_memory(asked, catalog.bytes())?;
        check_pair(strategy, entry, catalog.bytes(), granted)?;
        let setup = strategy.map(|strategy| -> Result<run::Config> {
            Ok(run::Config {
                strategy,
                strategy_values: strategy.values(texts(&request.strategy_settings))?,
                policy: entry,
                policy_values: entry.values(texts(&request.policy_settings))?,
                sizes: Arc::clone(&catalog) as Arc<dyn Sizes>,
                capacity: granted,
                seed: request.seed,
                epochs: request.epochs,
                world: 1,
                pad: request.pad,
                packages: match &runs {
                    Some(runs) => Some(Origin::Given(Arc::clone(runs))),
                    None => packaging.as_ref().map(|_| Origin::Made(request.package_bytes)),
                },
            })
        });
        let setup = setup.transpose()?;
        let (policy, mut planner) = match setup {
            Some(config) => {
                let policy = config.policy();
                let planner = run::Planner::new(config, policy.takes_packages());
                (policy, Some(planner))
            }
            None => {
                let setup = policy::Setup::new(granted, Arc::clone(&catalog) as Arc<dyn Sizes>, request.seed);
                ((entry.build)(setup), None)
            }
        };
        if let (Some(planner), Some(packaging)) = (&mut planner, &mut packaging) {
            let samples = catalog.len();
            let inside = |ids: &[hotset_core::Id]| ids.iter().all(|&id| (id as usize) < samples);
            packaging.found.retain(|(_, ids)| inside(ids));
            for (number, ids) in &packaging.found {
                planner.packed(*number, ids);
            }
            planner.number_from(packaging.next);
        }
        let packs = planner.as_ref().is_some_and(run::Planner::packs);
        let mut remarks = Vec::new();
        // Whoever did not ask for packages is told only if they would be of use.
        if placed && !packs && (request.packages.is_some() || policy.takes_packages()) {
            let bytes = runs.as_ref().map_or(request.package_bytes, |runs| runs.largest());
            let why = unusable.unwrap_or_else(|| no_packages(&request, entry, &*policy, bytes, granted));
            remarks.push(format!("`packages` are off: {why}"));
        }
        let grant = JobGrant {
            strategy: strategy.map(|s| s.name.to_owned()).unwrap_or_default(),
            policy: entry.name.to_owned(),
            asked,
            granted,
            one_host: planner.as_ref().is_some_and(|planner| {
                let strategy = planner.strategy();
                strategy.needs_losses() || planner.looks_at_residents() || strategy.adapts()
            }),
            remarks,
        };
        let mut job = Job::new(request, grant.clone(), dataset, catalog.len(), policy, None);
        if let (Some(snapshot), Some(planner)) = (snapshot, &mut planner) {
            snapshot.fits(&job.request, catalog.len())?;
            let found = packaging.as_ref().map_or(&[][..], |packaging| &packaging.found);
            snapshot.put_into(&mut job, planner, &catalog, found)?;
        }
        let unfinished = planner.as_ref().map(run::Planner::unfinished).unwrap_or_default();
        tracing::info!(job = job.request.job, policy = grant.policy, granted, "job opened");
        job.mind = planner.map(|planner| {
            let adapts = planner.strategy().adapts();
            Arc::new(Mind::new(planner, adapts))
        });
        job.packages_held = packaging
            .iter()
            .flat_map(|packaging| packaging.found.iter().map(|(number, _)| *number))
            .collect();
        let packaging = packaging.filter(|_| packs);
        job.source = match &packaging {
            Some(packaging) => Some(Source::Shelf(Arc::clone(&packaging.shelf))),
            None => runs.filter(|_| packs).map(|_| Source::Runs),
        };
        job.press = packaging
            .map(|packaging| Arc::new(Press::new(&packaging, &state.datasets[dataset as usize].name)));
        job.sessions.insert(session.0);
        let serial = state.next_serial();
        state.names.insert(job.request.job.clone(), serial);
        job.restore_window(|id| catalog.size(id));
        for schedule in job.schedules.values_mut() {
            schedule.set_generation(state.next_serial());
        }
        let mut residents = Vec::new();
        job.policy.residents(&mut |id| residents.push(id));
        let waiting = job.waiting();
        state.jobs.insert(serial, job);
        // Other jobs may hold bytes that this one keeps or waits for.
        for id in residents {
            state.keep(dataset, id, true);
        }
        for id in waiting {
            state.hold(dataset, id);
        }
        state.fit_arena();
        packer::begin(&self.shared, &state, serial, None, unfinished);
        Ok(grant)
    }

    /// Leaves a job; it ends with its last client, and then without lingering.
    pub fn close_job(&self, session: SessionId, job: &str) {
        let mut state = self.shared.lock();
        let Ok(serial) = state.job(job) else { return };
        let Some(book) = state.jobs.get_mut(&serial) else { return };
        book.sessions.remove(&session.0);
        book.over = true;
        if book.sessions.is_empty() {
            state.end_job(serial);
        }
    }

    /// Ends the jobs whose last client went longer ago than jobs linger. True if there were any.
    pub fn tidy(&self, now: Instant) -> bool {
        let mut state = self.shared.lock();
        let linger = state.config.linger;
        let over = |job: &Job| {
            job.left.is_some_and(|left| job.over || now.saturating_duration_since(left) >= linger)
        };
        let ended: Vec<u64> =
            state.jobs.iter().filter(|(_, job)| over(job)).map(|(&serial, _)| serial).collect();
        for &serial in &ended {
            state.end_job(serial);
        }
        !ended.is_empty()
    }
}

impl State {
    /// Ends a job: everything it keeps and everything it waits for is let go of.
    pub(crate) fn end_job(&mut self, serial: u64) {
        let epochs: Vec<u64> =
            self.jobs.get(&serial).map_or(Vec::new(), |job| job.schedules.keys().copied().collect());
        for epoch in epochs {
            self.drop_schedule(serial, epoch);
        }
        let Some(job) = self.jobs.remove(&serial) else { return };
        self.names.remove(&job.request.job);
        if let Some(press) = job.press {
            press.end();
        }
        let mut residents = Vec::new();
        job.policy.residents(&mut |id| residents.push(id));
        for id in residents {
            self.keep(job.dataset, id, false);
        }
        tracing::info!(job = job.request.job, "job ended");
        self.fit_arena();
        self.drop_datasets();
    }

    /// Forgets datasets that no client and no job uses and no bytes are left of.
    pub(crate) fn drop_datasets(&mut self) {
        let used: HashSet<u32> = self.jobs.values().map(|job| job.dataset).collect();
        self.datasets.retain(|key, dataset| {
            !dataset.sessions.is_empty() || dataset.objects > 0 || used.contains(&(key as u32))
        });
    }

    /// How many bytes a job gets that asks for `asked` of a dataset of `whole` bytes.
    fn grant_memory(&self, asked: u64, whole: u64) -> Result<u64> {
        let wanted = asked.min(whole);
        let taken = self.capacity();
        let machine = self.config.machine;
        if taken + wanted + reserve(taken + wanted) > machine && self.config.memory.is_none() {
            let least = reserve(0);
            return Err(Error::invalid(format!(
                "`cache` asks for {} but this machine (or its control group) has {} and other jobs take {}: ask \
                 for at most {}",
                human(wanted),
                human(machine),
                human(taken),
                human(((machine.saturating_sub(least)) / 8 * 7).saturating_sub(taken))
            )));
        }
        let left = self.config.memory.map_or(u64::MAX, |memory| memory.saturating_sub(taken));
        Ok(wanted.min(left))
    }
}
