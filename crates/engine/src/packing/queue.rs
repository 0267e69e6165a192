//! What a job packs, under a lock of its own, which is taken last.
//!
//! Batches that are granted, reads that have ended and plans that were made put things in; the [packer](super::packer)
//! takes them out. Samples that pass are leased until they are copied, so no more than so many bytes of them wait at a
//! time: what passes meanwhile is asked for later.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hotset_core::{Error, Id, Result};
use hotset_store::package::{Draft, PackageStore};

use super::open::{NewPackages, OpenPackages, Source};
use super::place::Packaging;
use crate::dataset::Dataset;
use crate::engine::Engine;
use crate::residency::View;
use crate::rooms::Rooms;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{self, Condvar, Mutex, MutexGuard};

/// Bytes of passing samples that wait for the packer at most.
const MOST_WAITING: u64 = 16 << 20;
/// How long a wait for the queue lasts at a time.
const LOOK_UP: Duration = Duration::from_millis(100);

/// A sample that has come.
pub(super) enum Incoming {
    /// It passes: a lease on its object is held until it is copied.
    Passing { id: Id, object: u32, view: View },
    /// It was read for its package alone.
    Read { id: Id, bytes: std::result::Result<Vec<u8>, String> },
}

/// What the packer does next.
pub(super) enum Step {
    /// Removes packages from its place.
    Discard(Vec<u32>),
    /// Takes a sample that has come.
    Take(Incoming),
    /// Looks whether epochs are over, and asks for what does not pass.
    LookAround,
    /// Something may have come, or was tidied.
    Again,
    /// Nothing is left to be packed.
    End,
}

#[derive(Default)]
struct Queued {
    packages: OpenPackages,
    incoming: VecDeque<Incoming>,
    /// Bytes of samples that pass and wait to be copied.
    waiting: u64,
    /// Whether a packer runs.
    running: bool,
    /// Whether it looks around before it waits again.
    look: bool,
    /// Why nothing is packed any more.
    failed: Option<String>,
}

/// What a job packs, and what waits to be put into packages.
pub(crate) struct PackingQueue {
    store: Arc<PackageStore>,
    /// Whether packages stay when the job ends.
    keep: bool,
    queued: Mutex<Queued>,
    changed: Condvar,
    /// Held while a package is written.
    writing: Mutex<()>,
}

impl PackingQueue {
    pub(crate) fn new(packaging: &Packaging) -> Self {
        Self {
            store: Arc::clone(&packaging.store),
            keep: packaging.keep,
            queued: Mutex::default(),
            changed: Condvar::new(),
            writing: Mutex::new(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queued> {
        sync::lock(&self.queued)
    }

    pub(crate) fn store(&self) -> &Arc<PackageStore> {
        &self.store
    }

    /// Packages being filled or written.
    pub(crate) fn len(&self) -> usize {
        self.lock().packages.len()
    }

    /// Whether a package is not written yet.
    pub(crate) fn is_making(&self, package: u32) -> bool {
        self.lock().packages.contains(package)
    }

    /// Why nothing is packed any more.
    pub(crate) fn failed(&self) -> Option<String> {
        self.lock().failed.clone()
    }

    /// Adds packages to be; those of their samples that are in memory now and may leave are taken at once. The packages,
    /// where nothing is packed any more. True if a packer must be started.
    pub(super) fn add(
        &self,
        new: Option<NewPackages>,
        rooms: &mut Rooms,
        dataset: &Dataset,
        at_once: usize,
    ) -> std::result::Result<bool, Vec<u32>> {
        let mut queued = self.lock();
        match new {
            Some(new) if queued.failed.is_some() => return Err(new.numbers().collect()),
            Some(mut new) => {
                let residents = new.take_residents();
                queued.packages.add(new);
                queued.look = true;
                for id in residents.into_iter().take(at_once) {
                    queued.take_from_memory(rooms, dataset, id);
                }
            }
            None if !queued.packages.has_discarded() => return Ok(false),
            None => {}
        }
        self.changed.notify_all();
        Ok(!std::mem::replace(&mut queued.running, true))
    }

    /// Has the packer look around: an epoch was left, or the engine stops.
    pub(crate) fn look_around(&self) {
        self.lock().look = true;
        self.changed.notify_all();
    }

    /// Takes those of a batch that go into packages, as they pass.
    pub(crate) fn pass(&self, rooms: &mut Rooms, batch: impl Iterator<Item = (Id, u32)>) {
        let mut queued = self.lock();
        if queued.packages.is_empty() {
            return;
        }
        let mut any = false;
        for (id, object) in batch {
            if queued.packages.wants(id) {
                any = true;
                if !queued.take(rooms, id, object) {
                    queued.packages.does_not_pass(id);
                }
            }
        }
        drop(queued);
        if any {
            self.changed.notify_all();
        }
    }

    /// A sample was read for its package.
    pub(crate) fn read(&self, id: Id, bytes: std::result::Result<Vec<u8>, String>) {
        self.lock().incoming.push_back(Incoming::Read { id, bytes });
        self.changed.notify_all();
    }

    /// A package was read for others, or could not be.
    pub(crate) fn package_read(&self, package: u32) {
        self.lock().packages.package_read(package);
        self.changed.notify_all();
    }

    /// Removes a package from its place, later.
    pub(crate) fn discard(&self, package: u32) {
        self.lock().packages.discard(package);
        self.changed.notify_all();
    }

    /// What the packer does next; waits for something to come.
    pub(super) fn next_step(&self) -> Step {
        let mut queued = self.lock();
        let discarded = queued.packages.take_discarded();
        if !discarded.is_empty() {
            return Step::Discard(discarded);
        }
        if let Some(incoming) = queued.incoming.pop_front() {
            return Step::Take(incoming);
        }
        if queued.packages.is_empty() {
            if queued.packages.forget_reads() {
                // What it was to be read for is given up.
                return Step::Again;
            }
            // Under the same lock, so that more work starts another thread.
            queued.running = false;
            return Step::End;
        }
        if std::mem::take(&mut queued.look) || queued.packages.may_ask() {
            return Step::LookAround;
        }
        drop(sync::wait(&self.changed, queued, LOOK_UP));
        Step::Again
    }

    /// Puts a sample into its drafts; those that are complete.
    pub(super) fn put(
        &self,
        dataset: &Dataset,
        id: Id,
        bytes: &[u8],
    ) -> std::result::Result<Vec<(u32, Draft)>, String> {
        self.lock().packages.put(dataset, id, bytes)
    }

    /// So many bytes of a sample that passed are copied.
    pub(super) fn copied(&self, bytes: u64) {
        let mut queued = self.lock();
        queued.waiting = queued.waiting.saturating_sub(bytes);
    }

    /// Writes a package that is whole. It stays open until then.
    pub(super) fn write(&self, number: u32, draft: Draft) -> Result<()> {
        let bytes = draft.finish()?;
        let _writing = sync::lock(&self.writing);
        Ok(self.store.write(number, &bytes)?)
    }

    /// A package was written.
    pub(super) fn written(&self, number: u32) {
        self.lock().packages.remove(number);
    }

    /// Packs nothing more, for this reason; the packages that are given up.
    pub(super) fn fail(&self, why: &str) -> Vec<u32> {
        let mut queued = self.lock();
        queued.failed.get_or_insert_with(|| why.to_owned());
        queued.packages.clear()
    }

    /// No packer could be started, for this reason; the packages that are given up.
    pub(super) fn fail_to_start(&self, why: &str) -> Vec<u32> {
        let gone = self.fail(why);
        self.lock().running = false;
        gone
    }

    /// Gives up the packages that a sample goes into, which cannot be had; their numbers.
    pub(super) fn give_up(&self, id: Id) -> Vec<u32> {
        self.lock().packages.give_up(id)
    }

    /// Plans of these epochs are under way, of a job that has not ended.
    pub(super) fn end_epochs(&self, under_way: &[u64]) {
        self.lock().packages.end_epochs(under_way);
    }

    /// Takes all packages off.
    pub(super) fn clear(&self) {
        self.lock().packages.clear();
    }

    /// The samples that are asked for now.
    pub(super) fn ask(&self) -> Vec<Id> {
        self.lock().packages.ask()
    }

    /// Takes a sample that was asked for from memory, or says where to read it.
    pub(super) fn find(&self, rooms: &mut Rooms, dataset: &Dataset, id: Id) -> Found {
        let mut queued = self.lock();
        match queued.packages.source(id) {
            Source::Package(package, ids) => Found::InPackage(package, ids),
            Source::Asked => Found::OnItsWay,
            Source::Dataset => Found::InDataset,
            Source::Memory if queued.take_from_memory(rooms, dataset, id) => Found::OnItsWay,
            // It was to pass, and did not.
            Source::Memory => Found::Lost,
        }
    }

    /// Wakes everything that waits for the queue.
    pub(super) fn notify(&self) {
        self.changed.notify_all();
    }

    /// The job has ended, here or `altogether`: nothing more is packed, and in the end what is not kept is removed, by the thread that
    /// is returned.
    pub(crate) fn end(self: Arc<Self>, altogether: bool) -> Option<JoinHandle<()>> {
        {
            let mut queued = self.lock();
            queued.packages.clear();
            queued.failed = Some("the job has ended".into());
        }
        self.changed.notify_all();
        if self.keep || !altogether {
            return None;
        }
        let work = move || {
            if let Err(error) = self.store.drop_all() {
                tracing::warn!(%error, "packages of a job that has ended stay behind");
            }
        };
        let started = thread::Builder::new().name("hotset-sweep".into()).spawn(work);
        started.map_err(|error| tracing::warn!(%error, "packages of a job that has ended stay behind")).ok()
    }
}

/// Where a sample is that was asked for.
pub(super) enum Found {
    OnItsWay,
    InPackage(u32, Vec<Id>),
    InDataset,
    Lost,
}

impl Queued {
    /// Takes a sample whose bytes are in memory, and whole.
    fn take_from_memory(&mut self, rooms: &mut Rooms, dataset: &Dataset, id: Id) -> bool {
        rooms.residency().object(dataset.key, id).is_some_and(|object| self.take(rooms, id, object))
    }

    /// Leases an object until it is copied. A packer that falls behind holds no more than so much.
    fn take(&mut self, rooms: &mut Rooms, id: Id, object: u32) -> bool {
        let (_, _, length) = rooms.residency().place(object);
        if self.waiting + length > MOST_WAITING {
            return false;
        }
        let Some(view) = rooms.lend(object) else { return false };
        self.waiting += length;
        self.packages.comes(id);
        self.incoming.push_back(Incoming::Passing { id, object, view });
        true
    }
}

impl Engine {
    /// Waits until everything that was chosen to be packed is, but no longer than `wait`.
    pub fn packed(&self, job: &str, wait: Duration) -> Result<()> {
        let queue = self.shared.lock().jobs.named(job)?.packages.queue().cloned();
        let Some(queue) = queue else { return Ok(()) };
        let began = Instant::now();
        let mut queued = queue.lock();
        while !queued.packages.is_empty() || queued.running {
            if began.elapsed() >= wait {
                return Err(Error::unavailable(format!(
                    "{} packages are not written yet",
                    queued.packages.len()
                )));
            }
            let (back, _) = sync::wait(&queue.changed, queued, LOOK_UP);
            queued = back;
        }
        Ok(())
    }

    /// Does `work` while no package of `job` is written, as while its place is slow. For tests of what waits for packages.
    #[doc(hidden)]
    pub fn without_writes<T>(&self, job: &str, work: impl FnOnce() -> T) -> Result<T> {
        let queue = self.shared.lock().jobs.named(job)?.packages.queue().cloned();
        let held = queue.as_ref().map(|queue| sync::lock(&queue.writing));
        let done = work();
        drop(held);
        Ok(done)
    }
}
