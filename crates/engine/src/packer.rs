//! Makes packages while an epoch goes by: one thread for each job that packs.
//!
//! It copies samples that pass, which [`State::pass`] left leases on, into drafts, and ends the leases. Packages are
//! filled in the plan's order, so few are open at a time. What does not pass is looked for in the arena, and read where
//! it is not there, behind the reads of the training. What was chosen to be read, with the plan, is read whatever is at
//! hand, worn packages whole: so what is read does not hang on time. A draft that is full is written, whole or not at all,
//! and reads of it that wait are made. The thread ends when the [desk](crate::press) is empty, and the next plan that packs begins
//! another.
//!
//! A place that cannot be written to, or is full, is said once; then nothing more is packed.

use std::sync::{Arc, PoisonError};

use hotset_core::{Error, Id};
use hotset_store::package::Draft;

use crate::engine::Shared;
use crate::mind::Mind;
use crate::press::{Desk, Incoming, LOOK_UP, Press, Work};
use crate::reads;
use crate::state::State;

/// Drafts whose samples are read at a time.
const AT_A_TIME: usize = 2;
/// Residents that are taken when they are chosen; others are looked for when their draft is filled.
const AT_ONCE: usize = 4096;

/// Begins to pack what was chosen, and to remove what was discarded.
pub(crate) fn begin(shared: &Arc<Shared>, state: &mut State, serial: u64, work: Option<Work>) {
    let Some(job) = state.jobs.get(&serial) else { return };
    let (Some(press), Some(mind)) = (job.press.clone(), job.mind.clone()) else { return };
    let (dataset, catalog) = (job.dataset, Arc::clone(&state.datasets[job.dataset as usize].catalog));
    let mut desk = press.desk();
    match work {
        Some(work) if desk.failed.is_some() => {
            work.numbers().for_each(|number| mind.lost(number));
            return;
        }
        Some(mut work) => {
            let residents = work.take_residents();
            desk.add(work);
            for id in residents.into_iter().take(AT_ONCE) {
                state.pass_one(&mut desk, dataset, id, catalog.size(id));
            }
        }
        None if desk.discarded.is_empty() => return,
        None => {}
    }
    if std::mem::replace(&mut desk.running, true) {
        return;
    }
    drop(desk);
    let (own, thread) = (Arc::clone(shared), std::thread::Builder::new().name("hotset-pack".into()));
    let (worker, own_mind) = (Arc::clone(&press), Arc::clone(&mind));
    if let Err(error) =
        thread.spawn(move || Packer { shared: own, serial, press: worker, mind: own_mind, catalog }.run())
    {
        tracing::warn!(%error, "cannot start a packer: nothing is packed");
        let mut desk = press.desk();
        desk.clear().keys().for_each(|number| mind.lost(*number));
        (desk.failed, desk.running) = (Some(error.to_string()), false);
    }
}

/// What a packer reads.
pub(crate) struct Wanted {
    pub(crate) job: u64,
    pub(crate) what: What,
}

/// See [`Wanted`].
pub(crate) enum What {
    /// A sample that was chosen to be read.
    Sample(Id),
    /// A sample that was to pass through memory and is gone.
    Lost(Id),
    /// A worn package, for these samples.
    Package(u32, Vec<Id>),
}

/// The thread that packs.
struct Packer {
    shared: Arc<Shared>,
    serial: u64,
    press: Arc<Press>,
    mind: Arc<Mind>,
    catalog: Arc<hotset_store::Catalog>,
}

impl Packer {
    fn run(&self) {
        while self.step() {}
        self.press.bell.notify_all();
    }

    /// One thing that has come, or one look around. False when there is nothing left to pack.
    fn step(&self) -> bool {
        let mut desk = self.press.desk();
        let discarded = desk.take_discarded();
        if !discarded.is_empty() {
            drop(desk);
            if let Err(error) = self.press.shelf.discard(&discarded) {
                tracing::debug!(%error, ?discarded, "packages stay behind");
            }
            return true;
        }
        match desk.incoming.pop_front() {
            Some(incoming) => {
                drop(desk);
                self.take(incoming);
                true
            }
            None if desk.sheets.is_empty() && !(desk.whole.is_empty() || desk.discarded.is_empty()) => {
                // What it was to be read for is given up.
                desk.forget_reads();
                true
            }
            None if desk.sheets.is_empty() => {
                // Under the same lock, so that whoever brings more work starts another thread.
                desk.running = false;
                false
            }
            None => {
                let (desk, waited) =
                    self.press.bell.wait_timeout(desk, LOOK_UP).unwrap_or_else(PoisonError::into_inner);
                let idle = desk.incoming.is_empty();
                drop(desk);
                if idle || waited.timed_out() {
                    self.look_around();
                }
                true
            }
        }
    }

    fn take(&self, incoming: Incoming) {
        let (id, put) = match incoming {
            Incoming::Passing { id, object, view } => {
                let put = self.put(id, view.bytes());
                let bytes = view.bytes().len() as u64;
                let mut desk = self.press.desk();
                desk.waiting = desk.waiting.saturating_sub(bytes);
                drop(desk);
                // From here on the view is not looked at: its lease ends, and whoever waits for room may have it.
                let mut state = self.shared.lock();
                state.passed(object);
                if !state.cramped.is_empty() {
                    self.shared.room.notify_all();
                }
                drop(state);
                (id, put)
            }
            Incoming::Read { id, bytes: Ok(bytes) } => (id, self.put(id, &bytes)),
            Incoming::Read { id, bytes: Err(cause) } => (id, Err(cause)),
        };
        match put {
            Ok(whole) if whole.is_empty() => return,
            Ok(whole) => whole.into_iter().for_each(|(number, draft)| self.write(number, draft)),
            Err(cause) => {
                tracing::debug!(id, cause, "a package is given up, because a sample of it cannot be had");
                self.give_up(id);
            }
        }
        self.ask();
    }

    /// Puts a sample into its drafts; those that are complete.
    fn put(&self, id: Id, bytes: &[u8]) -> std::result::Result<Vec<(u32, Draft)>, String> {
        let mut desk = self.press.desk();
        let (due, own) = (desk.due.contains(id), desk.sheet(id));
        desk.due.remove(id);
        let mut whole = Vec::new();
        for number in desk.sheets_of(id) {
            let Some(sheet) = desk.sheets.get_mut(&number).filter(|sheet| !sheet.writing) else { continue };
            let due = due && own == Some(number);
            sheet.due -= usize::from(due);
            let nothing_passes = due && sheet.due == 0;
            if sheet.draft.is_none() {
                let samples: Vec<(Id, u64)> =
                    sheet.ids.iter().map(|&id| (id, self.catalog.size(id))).collect();
                let draft = Draft::new(&self.press.identity, number, &samples);
                sheet.draft = Some(draft.map_err(|error| error.to_string())?);
            }
            let Some(draft) = &mut sheet.draft else { continue };
            if draft.put(id, bytes).map_err(|error| error.to_string())? {
                sheet.writing = true;
                whole.extend(sheet.draft.take().map(|draft| (number, draft)));
            } else if nothing_passes {
                desk.ready.insert(number);
            }
        }
        Ok(whole)
    }

    /// Writes a package that is whole, and makes the reads that wait for it. It stays on the desk until then.
    fn write(&self, number: u32, draft: Draft) {
        let bytes = draft.finish().map_err(Error::from);
        let _pen = self.press.pen.lock().unwrap_or_else(PoisonError::into_inner);
        match bytes.and_then(|bytes| Ok(self.press.shelf.write(number, &bytes)?)) {
            Ok(()) => {
                self.mind.written(number);
                self.press.desk().remove(number);
                self.let_read(|package| package == number);
            }
            Err(error) => self.fail(&error),
        }
    }

    /// Makes the package reads that wait for packages which are `done`, written or not to be.
    fn let_read(&self, done: impl Fn(u32) -> bool) {
        let mut state = self.shared.lock();
        state.let_read(self.serial, done);
        reads::wake(&self.shared, &mut state);
    }

    /// Packs nothing more: the place cannot be used.
    fn fail(&self, error: &Error) {
        tracing::warn!(%error, "nothing is packed any more, and easy samples are read one by one");
        let mut desk = self.press.desk();
        desk.failed.get_or_insert_with(|| error.message.clone());
        let sheets = desk.clear();
        drop(desk);
        sheets.keys().for_each(|number| self.mind.lost(*number));
        self.mind.planner().stop_packing();
        self.let_read(|_| true);
    }

    /// Gives up the package that a sample goes into; its other samples wait for another epoch.
    fn give_up(&self, id: Id) {
        let mut desk = self.press.desk();
        let numbers = desk.sheets_of(id);
        for number in &numbers {
            desk.remove(*number);
        }
        drop(desk);
        numbers.iter().for_each(|number| self.mind.lost(*number));
        self.let_read(|package| numbers.contains(&package));
    }

    /// Looks whether the epoch of what is due is over, and asks for what does not pass.
    fn look_around(&self) {
        let state = self.shared.lock();
        let ended = state.stopping || !state.jobs.contains_key(&self.serial);
        let under_way: Vec<u64> = state
            .jobs
            .get(&self.serial)
            .map_or(Vec::new(), |job| job.run.schedules().keys().copied().collect());
        // Before the state is let go of, so that no plan comes in between with sheets of its own.
        let mut desk = self.press.desk();
        drop(state);
        if ended {
            desk.clear();
            return;
        }
        let Desk { sheets, due, ready, sheet_of, .. } = &mut *desk;
        for (&number, sheet) in sheets {
            if sheet.due > 0 && !under_way.contains(&sheet.epoch) {
                sheet.due = 0;
                let own = sheet.ids.iter().filter(|id| sheet_of.get(**id as usize) == Some(&number));
                own.for_each(|&id| due.remove(id));
                ready.insert(number);
            }
        }
        drop(desk);
        self.ask();
    }

    /// Asks for the samples of the next drafts of which nothing passes any more: from the arena, or from storage.
    fn ask(&self) {
        let mut desk = self.press.desk();
        let mut wanted: Vec<Id> = Vec::new();
        while desk.asked < AT_A_TIME
            && let Some(number) = desk.ready.pop_first()
        {
            let Some(sheet) = desk.sheets.get_mut(&number) else { continue };
            sheet.asked = true;
            match &sheet.draft {
                Some(draft) => wanted.extend(draft.missing()),
                None => wanted.extend(&sheet.ids),
            }
            desk.asked += 1;
        }
        // What is on its way here is not asked for.
        wanted.retain(|&id| desk.wants(id));
        for &id in &wanted {
            desk.coming.insert(id);
        }
        drop(desk);
        if wanted.is_empty() {
            return;
        }
        let mut state = self.shared.lock();
        let Some(dataset) = state.jobs.get(&self.serial).map(|job| job.dataset) else { return };
        let mut desk = self.press.desk();
        let job = self.serial;
        for id in wanted {
            if let Some(package) = desk.from.get(&id).copied() {
                let Some(mut ids) = desk.whole.remove(&package) else { continue };
                desk.reading.insert(package);
                ids.retain(|id| desk.sheet(*id).is_some());
                for id in &ids {
                    desk.coming.insert(*id);
                }
                state.background.push_back(Wanted { job, what: What::Package(package, ids) });
            } else if desk.single.remove(&id) {
                state.background.push_back(Wanted { job, what: What::Sample(id) });
            } else if !state.pass_one(&mut desk, dataset, id, self.catalog.size(id)) {
                // It was to pass, and did not.
                state.background.push_back(Wanted { job, what: What::Lost(id) });
            }
        }
        drop(desk);
        reads::wake(&self.shared, &mut state);
    }
}
