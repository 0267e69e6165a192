//! Reads that bring several samples: packages, and neighbours in one object.
//!
//! A plan says before which slot a package is read. The policy is told of it then, and each of its samples that the
//! policy takes in gets an object; one request brings the bytes of all of them, ahead of those who ask. A sample is
//! taken out of a package that was made only if its checksum is right. What it does not bring (it is gone, torn,
//! flipped or foreign) is read alone, and the package is dropped, so that the next plan does without it. A package that a
//! plan uses and that is not written yet is waited for, `patience` at most from when somebody asks for one of its samples:
//! then it is overdue, and they are read alone. A run in the
//! dataset's own objects is checked as a read of one of its samples is; if that fails, each is read alone and is told of
//! its own failure, and the run stays. So it is with neighbours whose reads are one request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hotset_core::packages::Packages;
use hotset_core::schedule::Schedule;
use hotset_core::tally::Traffic;
use hotset_core::{Error, Id};
use hotset_store::package::{Package, Shelf};
use hotset_store::{Catalog, ReadError, Store};

use crate::job::Job;
use crate::object::Fill;
use crate::reads::Task;
use crate::segment::Target;
use crate::state::{Cause, Payer, Pending, SEVERAL, State};
use crate::stats::PackageStats;

/// Where a job's packages are read from.
#[derive(Clone)]
pub(crate) enum Source {
    /// From where they were written.
    Shelf(Arc<Shelf>),
    /// From the dataset's own objects.
    Runs,
}

/// A read that brings several samples.
pub(crate) struct Load {
    job: u64,
    epoch: u64,
    /// The package, and those that it is one of; `None` for neighbours.
    package: Option<(u32, Arc<Packages>)>,
    objects: Vec<(Id, u32)>,
    /// When it was first asked for, and its package not written yet.
    asked: Option<Instant>,
}

/// One package read, ready to be made without the lock.
pub(crate) struct LoadRead {
    load: Load,
    package: u32,
    packages: Arc<Packages>,
    from: From,
    targets: Vec<(Id, u32, Target)>,
}

/// What a package is read with.
enum From {
    Shelf { shelf: Arc<Shelf>, identity: String },
    Objects { catalog: Arc<Catalog>, store: Arc<dyn Store> },
}

/// What came of it: for each object whether it was brought.
pub(crate) struct Loaded {
    brought: Vec<(Id, u32, bool)>,
    /// Why the package is of no use, if it is not.
    damage: Option<String>,
}

impl State {
    /// A plan reads a package now: objects for those of it that are `kept` from now on. A server that catches up with
    /// what another has served reads nothing: what it needs of it is read when it is due.
    pub(crate) fn load(&mut self, serial: u64, epoch: u64, package: u32, kept: Vec<Id>, fetch: bool) {
        let Some(job) = self.jobs.get(&serial) else { return };
        let dataset = job.dataset;
        let Some(schedule) = job.run.schedule(epoch) else { return };
        let Some(packages) = schedule.packages().cloned() else { return };
        let reads = (fetch || !schedule.is_restored()) && job.source.is_some();
        let waits = job.press.as_ref().is_some_and(|press| press.is_making(package));
        for &id in &kept {
            self.keep(dataset, id, true);
        }
        if !reads {
            return;
        }
        let ticket = self.next_serial();
        let payer = Payer { job: serial, epoch: Some(epoch), cause: Cause::Planned };
        let mut objects = Vec::with_capacity(kept.len());
        for id in kept {
            if self.object(dataset, id).is_some() {
                continue;
            }
            // Without room it is read when it is asked for; an error comes again then, and is told.
            let Ok(Some(key)) = self.create(dataset, id, None) else { break };
            let waiters = Vec::new();
            let pending = Pending { ticket, payer, waiters, urgent: false, load: Some(ticket), cause: None };
            self.pending.insert(key, pending);
            objects.push((id, key));
        }
        if objects.is_empty() {
            let (reads, bytes) = (u64::from(packages.packed(package)), packages.extent(package));
            if let Some(job) = self.jobs.get_mut(&serial) {
                job.run.tally_mut().joined(epoch, Traffic { reads, requests: 1, bytes });
            }
            return;
        }
        let package = Some((package, packages));
        self.loads.insert(ticket, Load { job: serial, epoch, package, objects, asked: None });
        if !waits {
            self.ahead.push_back((ticket, SEVERAL));
        }
    }

    /// Queues the reads of objects that lie side by side as one request.
    pub(crate) fn load_neighbours(&mut self, serial: u64, epoch: u64, objects: Vec<u32>, urgent: bool) {
        let ticket = self.next_serial();
        for key in &objects {
            if let Some(pending) = self.pending.get_mut(key) {
                (pending.ticket, pending.urgent, pending.load) = (ticket, urgent, Some(ticket));
            }
        }
        let objects = objects.into_iter().map(|key| (self.objects[key as usize].id, key)).collect();
        self.loads.insert(ticket, Load { job: serial, epoch, package: None, objects, asked: None });
        if urgent {
            self.urgent.push_back((ticket, SEVERAL))
        } else {
            self.ahead.push_back((ticket, SEVERAL))
        }
    }

    /// Forgets the package reads of a job that has ended.
    pub(crate) fn drop_loads(&mut self, serial: u64) {
        self.loads.retain(|_, load| load.job != serial);
    }

    /// Makes the package reads of a job that wait for packages which are `done`.
    pub(crate) fn let_read(&mut self, serial: u64, done: impl Fn(u32) -> bool) {
        let waiting = self.loads.iter().filter(|(_, load)| {
            load.job == serial && load.package.as_ref().is_some_and(|(package, _)| done(*package))
        });
        let mut tickets: Vec<u64> = waiting.map(|(&ticket, _)| ticket).collect();
        tickets.sort_unstable();
        for ticket in tickets {
            if self.loads.get(&ticket).is_some_and(|load| load.asked.is_some()) {
                self.urgent.push_back((ticket, SEVERAL));
            } else {
                self.ahead.push_back((ticket, SEVERAL));
            }
        }
    }

    /// Reads the samples of packages alone that somebody has waited for longer than `patience`. True if there were any.
    pub(crate) fn give_up_loads(&mut self) -> bool {
        let patience = self.config.patience;
        let late = |load: &Load| load.asked.is_some_and(|asked| asked.elapsed() >= patience);
        let overdue: Vec<u64> =
            self.loads.iter().filter(|(_, load)| late(load)).map(|(&ticket, _)| ticket).collect();
        for ticket in &overdue {
            let Some(load) = self.loads.remove(ticket) else { continue };
            if let Some(job) = self.jobs.get_mut(&load.job) {
                let package = load.package.as_ref().map(|(package, _)| *package);
                tracing::warn!(job = job.request.job, package, "a package is overdue");
                job.run.tally_mut().overdue(load.epoch);
            }
            for (_, key) in load.objects {
                if self.pending.get(&key).is_some_and(|pending| pending.load == Some(*ticket)) {
                    self.read_alone(key, Cause::Recovery);
                }
            }
        }
        !overdue.is_empty()
    }

    /// Takes a read of several off the queue, unless it was taken before or its package is not written yet.
    pub(crate) fn begin_load(&mut self, ticket: u64) -> Option<Task> {
        let load = self.loads.get_mut(&ticket)?;
        let Some((package, packages)) = load.package.clone() else {
            let load = self.loads.remove(&ticket)?;
            let brought =
                |key: &u32| self.pending.get(key).is_some_and(|pending| pending.load == Some(ticket));
            let keys: Vec<u32> = load.objects.iter().map(|(_, key)| *key).filter(brought).collect();
            return self.begin_neighbours(&keys);
        };
        let press = self.jobs.get(&load.job).and_then(|job| job.press.as_ref());
        if press.is_some_and(|press| press.is_making(package)) {
            load.asked.get_or_insert_with(Instant::now);
            return None;
        }
        let load = self.loads.remove(&ticket)?;
        let from = self.jobs.get(&load.job).and_then(|job| {
            let book = &self.datasets[job.dataset as usize];
            Some(match job.source.clone()? {
                Source::Shelf(shelf) => From::Shelf { shelf, identity: book.name.clone() },
                Source::Runs => {
                    let (catalog, store) = (Arc::clone(&book.catalog), Arc::clone(&book.store));
                    From::Objects { catalog, store }
                }
            })
        });
        let mut targets = Vec::with_capacity(load.objects.len());
        for &(id, key) in &load.objects {
            // It may have gone, and its key be another's.
            if self.pending.get(&key).is_none_or(|pending| pending.load != Some(ticket)) {
                continue;
            }
            let object = &mut self.objects[key as usize];
            let book = &self.datasets[object.dataset as usize];
            let Some(target) = self.arena.target(object.block, book.catalog.size(id)) else { continue };
            object.fill = Fill::Reading;
            targets.push((id, key, target));
        }
        let Some(from) = from else {
            for (_, key, _) in targets {
                self.read_alone(key, Cause::Recovery);
            }
            return None;
        };
        (!targets.is_empty()).then_some(Task::Package(LoadRead { load, package, packages, from, targets }))
    }

    /// Notes the end of a package read, and wakes who waits for what it brought.
    pub(crate) fn complete_load(&mut self, read: &LoadRead, requests: u64, took: Duration, loaded: Loaded) {
        let (load, package) = (&read.load, read.package);
        if let Some(job) = self.jobs.get_mut(&load.job) {
            // Dead copies are read too.
            job.pace(load.epoch).read(u64::from(read.packages.packed(package)), took);
            let tally = job.run.tally_mut();
            tally.recovered(
                Some(load.epoch),
                Traffic { requests: requests.saturating_sub(1), ..Traffic::default() },
            );
            if let (Some(damage), Some(Source::Shelf(_))) = (&loaded.damage, &job.source) {
                tally.package_lost(load.epoch);
                tracing::warn!(job = job.request.job, package, damage, "a package was dropped");
                if let Some(mind) = &job.mind {
                    mind.lost(package);
                }
                if let Some(press) = &job.press {
                    press.discard(package);
                }
            }
        }
        for (id, key, brought) in loaded.brought {
            if brought {
                self.arrive(id, key, None);
            } else {
                self.read_alone(key, Cause::Recovery);
            }
        }
    }

    /// Reads a sample alone that its package or its neighbours did not bring. One that nobody asks for yet is let go of,
    /// and read when its slot is due.
    pub(crate) fn read_alone(&mut self, key: u32, cause: Cause) {
        let Some(object) = self.objects.get_mut(key as usize) else { return };
        (object.fill, object.alone) = (Fill::Queued, true);
        if object.holds == 0 && object.leases == 0 {
            let (dataset, id, current) = (object.dataset, object.id, object.current);
            if current {
                self.detach(dataset, id)
            } else {
                self.settle(key)
            }
            return;
        }
        let Some(pending) = self.pending.get_mut(&key) else { return };
        pending.payer.cause = cause;
        let urgent = !pending.waiters.is_empty();
        self.enqueue(key, urgent);
    }
}

impl LoadRead {
    /// One attempt to read the package and to take its samples out.
    pub(crate) fn read(&mut self) -> std::result::Result<Loaded, ReadError> {
        match &self.from {
            From::Shelf { shelf, identity } => {
                let mut bytes = Vec::new();
                shelf.read(self.package, &mut bytes)?;
                Ok(self.take_out(&bytes, &identity.clone()))
            }
            From::Objects { catalog, store } => {
                let members = self.packages.members(self.package);
                let (Some(&first), Some(&last)) = (members.first(), members.last()) else {
                    return Ok(self.nothing());
                };
                let targets = self.targets.iter_mut().map(|(id, _, target)| (*id, target.bytes()));
                catalog.read_together(&**store, (first, last), targets)?;
                let brought = self.targets.iter().map(|(id, key, _)| (*id, *key, true)).collect();
                Ok(Loaded { brought, damage: None })
            }
        }
    }

    /// Takes the samples out of a package that was made.
    fn take_out(&mut self, bytes: &[u8], identity: &str) -> Loaded {
        let package = match Package::parse(bytes, identity, self.package) {
            Ok(package) => package,
            Err(damage) => {
                return Loaded { damage: Some(damage.to_string()), ..self.nothing() };
            }
        };
        let mut loaded = Loaded { brought: Vec::new(), damage: None };
        for (id, key, target) in &mut self.targets {
            let into = target.bytes();
            let damage = match package.sample(*id) {
                Some(Ok(sample)) if sample.len() == into.len() => {
                    into.copy_from_slice(sample);
                    None
                }
                Some(Ok(_)) => Some(Error::internal("a sample has another length").message),
                Some(Err(damage)) => Some(damage.to_string()),
                None => Some(format!("it does not hold sample {id}")),
            };
            loaded.brought.push((*id, *key, damage.is_none()));
            loaded.damage = loaded.damage.or(damage);
        }
        loaded
    }

    /// What came of a read that failed. A package that is not as it was written is of no use any more; one that the store
    /// does not give now is used again in another epoch.
    pub(crate) fn failed(&self, error: &ReadError) -> Loaded {
        let spoilt = matches!(
            error,
            ReadError::Vanished | ReadError::Resized { .. } | ReadError::Short { .. } | ReadError::Modified
        );
        if !spoilt {
            tracing::warn!(package = self.package, %error, "a package cannot be read: its samples are read alone");
        }
        Loaded { damage: spoilt.then(|| error.to_string()), ..self.nothing() }
    }

    /// None of its samples.
    fn nothing(&self) -> Loaded {
        let brought = self.targets.iter().map(|(id, key, _)| (*id, *key, false)).collect();
        Loaded { brought, damage: None }
    }

    /// The objects that wait for it.
    pub(crate) fn objects(&self) -> Vec<u32> {
        self.targets.iter().map(|(_, key, _)| *key).collect()
    }

    /// The package's number.
    pub(crate) fn number(&self) -> u32 {
        self.package
    }
}

impl Job {
    /// Its packages, as its last plan saw them.
    pub(crate) fn package_stats(&self) -> Option<PackageStats> {
        let place = match self.source.as_ref()? {
            Source::Shelf(shelf) => shelf.place().to_owned(),
            Source::Runs => String::new(),
        };
        let packages = self.run.schedules().values().next_back().and_then(Schedule::packages);
        let living = |sum: fn(&Packages, u32) -> u64| {
            packages.map_or(0, |packages| packages.living().map(|package| sum(packages, package)).sum())
        };
        Some(PackageStats {
            place,
            packages: living(|_, _| 1),
            samples: living(|packages, package| packages.members(package).len() as u64),
            bytes: living(|packages, package| packages.extent(package)),
            packing: self.press.as_ref().map_or(0, |press| press.open()) as u64,
        })
    }
}
