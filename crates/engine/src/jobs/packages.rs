//! A job's packages: where they are read from, and what makes them.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use hotset_core::packages::Packages;
use hotset_core::schedule::Schedule;
use hotset_store::package::PackageStore;

use super::job::Job;
use crate::packing::PackingQueue;
use crate::stats::PackageStats;
use crate::sync::thread::JoinHandle;

/// Where a job's packages are read from.
#[derive(Clone)]
pub(crate) enum PackageSource {
    /// From where they were written.
    Store(Arc<PackageStore>),
    /// From the dataset's own objects.
    Runs,
}

/// The packages of one job.
#[derive(Default)]
pub(crate) struct JobPackages {
    /// `None` without packages.
    source: Option<PackageSource>,
    /// What makes them, where there is a place for them.
    queue: Option<Arc<PackingQueue>>,
    /// Those that had live samples, or were to be read, when the last plan was made.
    living: BTreeSet<u32>,
}

impl JobPackages {
    pub(crate) fn new(
        source: Option<PackageSource>,
        queue: Option<Arc<PackingQueue>>,
        living: impl Iterator<Item = u32>,
    ) -> Self {
        Self { source, queue, living: living.collect() }
    }

    pub(crate) fn source(&self) -> Option<&PackageSource> {
        self.source.as_ref()
    }

    pub(crate) fn queue(&self) -> Option<&Arc<PackingQueue>> {
        self.queue.as_ref()
    }

    /// Whether a package is not written yet.
    pub(crate) fn is_making(&self, package: u32) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.is_making(package))
    }

    /// The job has ended, here or altogether; the thread that removes its packages, where they are not kept.
    pub(crate) fn end(self, altogether: bool) -> Option<JoinHandle<()>> {
        self.queue.and_then(|queue| queue.end(altogether))
    }
}

impl Job {
    /// Removes packages without live samples that no plan under way reads and that are not being made: on a cluster those that
    /// this node owned.
    pub(crate) fn discard_dead_packages(
        &mut self,
        packages: Option<&Arc<Packages>>,
        is_made: impl Fn(u32) -> bool,
    ) {
        let Some(packages) = packages else { return };
        let read: HashSet<u32> = self
            .run
            .schedules()
            .values()
            .flat_map(|schedule| schedule.plan().events())
            .filter_map(|(_, event)| event.package())
            .collect();
        let newest = self.run.schedules().values().next_back();
        let ownership = newest.and_then(Schedule::ownership).filter(|_| packages.wear());
        let owns = |package: &u32| {
            let first = || packages.first(*package);
            ownership.is_none_or(|ownership| first().is_some_and(|first| ownership.owns_package(first)))
        };
        let own = &mut self.packages;
        let dead = own
            .living
            .iter()
            .filter(|&&package| packages.is_dead(package) && !read.contains(&package) && !is_made(package));
        if let Some(queue) = &own.queue {
            dead.for_each(|&package| queue.discard(package));
        }
        let stays = own.living.iter().copied().filter(|package| is_made(*package) || read.contains(package));
        own.living = packages.living().filter(owns).chain(stays).collect();
    }

    /// A package is not as it was written: plans do without it from now on.
    pub(crate) fn lose_package(&mut self, epoch: u64, package: u32, damage: &str) {
        self.run.tally_mut().package_lost(epoch);
        tracing::warn!(job = self.name(), package, damage, "a package was dropped");
        if let Some(planner) = &self.planner {
            planner.lost(package);
        }
        if let Some(queue) = &self.packages.queue {
            queue.discard(package);
        }
    }

    /// Its packages, as its last plan saw them.
    pub(crate) fn package_stats(&self) -> Option<PackageStats> {
        let place = match self.packages.source.as_ref()? {
            PackageSource::Store(store) => store.place().to_owned(),
            PackageSource::Runs => String::new(),
        };
        let newest = self.run.schedules().values().next_back();
        let packages = newest.and_then(Schedule::packages);
        let ownership = newest.and_then(Schedule::ownership);
        // On a cluster those that this node owns.
        let owns = |packages: &Packages, package: u32| {
            let first = packages.first(package);
            ownership.is_none_or(|ownership| first.is_some_and(|first| ownership.owns_package(first)))
        };
        let living = |sum: fn(&Packages, u32) -> u64| {
            let of = |packages: &Arc<Packages>| -> u64 {
                let own = packages.living().filter(|&package| owns(packages, package));
                own.map(|package| sum(packages, package)).sum()
            };
            packages.map_or(0, of)
        };
        Some(PackageStats {
            place,
            packages: living(|_, _| 1),
            samples: living(|packages, package| packages.members(package).len() as u64),
            bytes: living(|packages, package| packages.extent(package)),
            packing: self.packages.queue.as_ref().map_or(0, |queue| queue.len()) as u64,
        })
    }
}
