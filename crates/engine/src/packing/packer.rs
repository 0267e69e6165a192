//! The thread that makes a job's packages.
//!
//! It copies samples that pass into drafts and ends their leases. Packages are filled in the plan's order, so few are open
//! at a time. What does not pass is looked for in memory, and read where it is not there, behind the reads of the
//! training. What was chosen to be read, with the plan, is read whatever is in memory, worn packages whole: so what is
//! read does not hang on time. A draft that is full is written, whole or not at all, and reads of it that wait are made.
//! The thread ends when nothing is open, and the next plan that packs begins another.
//!
//! A place that cannot be written to, or is full, is said once; then nothing more is packed.

use std::sync::Arc;

use hotset_core::{Error, Id};
use hotset_store::package::Draft;

use super::open::NewPackages;
use super::queue::{Found, Incoming, PackingQueue, Step};
use crate::dataset::Dataset;
use crate::engine::Shared;
use crate::fetching::{self, PackingRead, Wanted};
use crate::planner::PlannerHandle;
use crate::state::State;
use crate::sync::thread;

/// Residents that are taken when they are chosen; others are looked for when their draft is filled.
const AT_ONCE: usize = 4096;

/// Begins to pack what was chosen, and to remove what was discarded.
pub(crate) fn begin(shared: &Arc<Shared>, state: &mut State, serial: u64, new: Option<NewPackages>) {
    let State { jobs, rooms, .. } = state;
    let Some(job) = jobs.get(serial) else { return };
    let (Some(queue), Some(planner)) = (job.packages.queue(), &job.planner) else { return };
    match queue.add(new, rooms, &job.dataset, AT_ONCE) {
        Err(given_up) => given_up.into_iter().for_each(|number| planner.lost(number)),
        Ok(false) => {}
        Ok(true) => {
            let packer = Packer {
                shared: Arc::clone(shared),
                serial,
                queue: Arc::clone(queue),
                planner: Arc::clone(planner),
                dataset: Arc::clone(&job.dataset),
            };
            let builder = thread::Builder::new().name("hotset-pack".into());
            if let Err(error) = builder.spawn(move || packer.run()) {
                tracing::warn!(%error, "cannot start a packer: nothing is packed");
                let given_up = queue.fail_to_start(&error.to_string());
                given_up.into_iter().for_each(|number| planner.lost(number));
            }
        }
    }
}

/// What a packing thread works with.
struct Packer {
    shared: Arc<Shared>,
    serial: u64,
    queue: Arc<PackingQueue>,
    planner: Arc<PlannerHandle>,
    dataset: Arc<Dataset>,
}

impl Packer {
    fn run(&self) {
        loop {
            match self.queue.next_step() {
                Step::Discard(packages) => {
                    if let Err(error) = self.queue.store().discard(&packages) {
                        tracing::debug!(%error, ?packages, "packages stay behind");
                    }
                }
                Step::Take(incoming) => self.take(incoming),
                Step::LookAround => self.look_around(),
                Step::Again => {}
                Step::End => break,
            }
        }
        self.queue.notify();
    }

    fn take(&self, incoming: Incoming) {
        let (id, put) = match incoming {
            Incoming::Passing { id, object, view } => {
                let put = self.queue.put(&self.dataset, id, view.bytes());
                self.queue.copied(view.bytes().len() as u64);
                // From here on the view is not looked at: its lease ends, and a batch that waits for room may have it.
                let mut state = self.shared.lock();
                state.rooms.end_lending(object);
                if state.rooms.sessions().any_waits_for_memory() {
                    self.shared.room.notify_all();
                }
                drop(state);
                (id, put)
            }
            Incoming::Read { id, bytes: Ok(bytes) } => (id, self.queue.put(&self.dataset, id, &bytes)),
            Incoming::Read { id, bytes: Err(cause) } => (id, Err(cause)),
        };
        match put {
            Ok(whole) if whole.is_empty() => return,
            Ok(whole) => whole.into_iter().for_each(|(number, draft)| self.write(number, draft)),
            Err(cause) => {
                tracing::debug!(id, cause, "a package is given up, because a sample of it cannot be had");
                let given_up = self.queue.give_up(id);
                given_up.iter().for_each(|number| self.planner.lost(*number));
                self.let_read(|package| given_up.contains(&package));
            }
        }
        self.ask();
    }

    /// Writes a package that is whole, and makes the reads that wait for it.
    fn write(&self, number: u32, draft: Draft) {
        match self.queue.write(number, draft) {
            Ok(()) => {
                self.planner.written(number);
                self.queue.written(number);
                self.let_read(|package| package == number);
            }
            Err(error) => self.fail(&error),
        }
    }

    /// Makes the package reads that wait for packages which are `done`, written or not to be.
    fn let_read(&self, done: impl Fn(u32) -> bool) {
        let mut state = self.shared.lock();
        state.rooms.fetching_mut().let_read(self.serial, done);
        fetching::wake(&self.shared, &mut state);
    }

    /// Packs nothing more: the place cannot be used.
    fn fail(&self, error: &Error) {
        tracing::warn!(%error, "nothing is packed any more, and easy samples are read one by one");
        let given_up = self.queue.fail(&error.message);
        given_up.into_iter().for_each(|number| self.planner.lost(number));
        self.planner.planner().stop_packing();
        self.let_read(|_| true);
    }

    /// Looks whether the epoch of what is due is over, and asks for what does not pass.
    fn look_around(&self) {
        let state = self.shared.lock();
        match state.jobs.get(self.serial).filter(|_| !state.is_stopping()) {
            Some(job) => {
                let under_way: Vec<u64> = job.run.schedules().keys().copied().collect();
                // Before the state is let go of, so that no plan comes in between with packages of its own.
                self.queue.end_epochs(&under_way);
            }
            None => return self.queue.clear(),
        }
        drop(state);
        self.ask();
    }

    /// Asks for the samples of the next drafts of which nothing passes any more: from memory, or from storage.
    fn ask(&self) {
        let wanted: Vec<Id> = self.queue.ask();
        if wanted.is_empty() {
            return;
        }
        let mut state = self.shared.lock();
        let State { jobs, rooms, .. } = &mut *state;
        let Some(job) = jobs.get(self.serial) else { return };
        let epoch = job.ranks.newest();
        for id in wanted {
            let wanted = match self.queue.find(rooms, &self.dataset, id) {
                Found::OnItsWay => continue,
                Found::InPackage(package, ids) => Wanted::Package(package, ids),
                Found::InDataset => Wanted::Sample(id),
                Found::Lost => Wanted::Lost(id),
            };
            let (dataset, queue) = (Arc::clone(&self.dataset), Arc::clone(&self.queue));
            let read = PackingRead { job: self.serial, epoch, dataset, queue, wanted };
            rooms.fetching_mut().enqueue_packing(read);
        }
        fetching::wake(&self.shared, &mut state);
    }
}
