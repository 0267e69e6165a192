//! Makes packages while an epoch goes by.
//!
//! What is packed was chosen with the plan. Samples that the plan serves are taken as they pass: a batch that is
//! granted leaves a lease on them here, a thread of the job's own copies them into drafts, and the lease ends.
//! Packages are filled in the plan's order, so few are open at a time. What does not pass is looked for in the
//! arena, and read where it is not there, behind the reads of the training. A draft that is full is written, whole or not at
//! all, and the planner hears of it.
//!
//! A place that cannot be written to, or is full, is said once; then nothing more is packed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hotset_core::bits::Bits;
use hotset_core::packages::Packages;
use hotset_core::schedule::Schedule;
use hotset_core::{Error, Id, Result};
use hotset_store::package::{Draft, Shelf};

use crate::engine::{Engine, Shared};
use crate::job::Job;
use crate::mind::Mind;
use crate::object::Fill;
use crate::reads;
use crate::segment::View;
use crate::state::State;
use crate::stats::PackageStats;

/// Drafts whose samples are read at a time.
const AT_A_TIME: usize = 2;
/// How often the thread looks whether its epoch is over.
const LOOK_UP: Duration = Duration::from_millis(100);

const NONE: u32 = u32::MAX;

/// Where a job's packages lie, as its opener found it.
pub struct Packaging {
    /// The shelf.
    pub shelf: Arc<Shelf>,
    /// The packages that are complete, by number, with their ids.
    pub found: Vec<(u32, Vec<Id>)>,
    /// The first number above all that are taken there, by what is no package too.
    pub next: u32,
    /// Whether they stay when the job ends.
    pub keep: bool,
}

/// A place for packages, or why it cannot be used.
pub type Place = std::result::Result<Packaging, String>;

/// A sample that has come.
enum Incoming {
    /// It passes: a lease on its object is held until it is copied.
    Passing { id: Id, object: u32, view: View },
    /// It was read for its package alone.
    Read { id: Id, bytes: std::result::Result<Vec<u8>, String> },
}

/// A package being filled.
struct Sheet {
    epoch: u64,
    ids: Vec<Id>,
    /// How many of its samples the plan serves and have not come.
    due: usize,
    /// Whether the others were asked for.
    asked: bool,
    draft: Option<Draft>,
}

#[derive(Default)]
struct Desk {
    /// For each sample the package it goes into. Empty while nothing is packed.
    sheet_of: Vec<u32>,
    /// Samples that the plan serves and have not come.
    due: Bits,
    /// Samples that are on their way here.
    coming: Bits,
    sheets: BTreeMap<u32, Sheet>,
    /// Sheets of which nothing passes any more and whose other samples were not asked for.
    ready: BTreeSet<u32>,
    /// Sheets whose samples were asked for.
    asked: usize,
    incoming: VecDeque<Incoming>,
    /// Packages to be removed from the shelf.
    discarded: Vec<u32>,
    running: bool,
    /// Why nothing is packed any more.
    failed: Option<String>,
}

impl Desk {
    /// The package that `id` goes into.
    fn sheet(&self, id: Id) -> Option<u32> {
        self.sheet_of.get(id as usize).copied().filter(|&sheet| sheet != NONE)
    }

    /// Whether `id` goes into a package and is not on its way.
    fn wants(&self, id: Id) -> bool {
        self.sheet(id).is_some() && !self.coming.contains(id)
    }

    /// Takes a sheet off: it is complete, or given up.
    fn remove(&mut self, number: u32) -> Option<Sheet> {
        let sheet = self.sheets.remove(&number)?;
        self.ready.remove(&number);
        self.asked -= usize::from(sheet.asked);
        for &id in &sheet.ids {
            self.due.remove(id);
            self.coming.remove(id);
            if let Some(place) = self.sheet_of.get_mut(id as usize) {
                *place = NONE;
            }
        }
        Some(sheet)
    }

    /// Takes all sheets off.
    fn clear(&mut self) -> BTreeMap<u32, Sheet> {
        (self.sheet_of, self.due, self.coming) = (Vec::new(), Bits::default(), Bits::default());
        (self.ready, self.asked) = (BTreeSet::new(), 0);
        std::mem::take(&mut self.sheets)
    }
}

/// See the module's head.
pub(crate) struct Press {
    shelf: Arc<Shelf>,
    identity: String,
    keep: bool,
    desk: Mutex<Desk>,
    bell: Condvar,
}

impl Press {
    pub(crate) fn new(packaging: &Packaging, identity: &str) -> Self {
        Self {
            shelf: Arc::clone(&packaging.shelf),
            identity: identity.to_owned(),
            keep: packaging.keep,
            desk: Mutex::default(),
            bell: Condvar::new(),
        }
    }

    pub(crate) fn shelf(&self) -> Arc<Shelf> {
        Arc::clone(&self.shelf)
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Packages being filled.
    pub(crate) fn open(&self) -> usize {
        self.desk().sheets.len()
    }

    /// The job's packages, as its last plan saw them.
    pub(crate) fn stats(&self, job: &Job) -> PackageStats {
        let packages = job.schedules.values().next_back().and_then(Schedule::packages);
        let living = |sum: fn(&Packages, u32) -> u64| {
            packages.map_or(0, |packages| packages.living().map(|package| sum(packages, package)).sum())
        };
        PackageStats {
            place: self.shelf.place().to_owned(),
            packages: living(|_, _| 1),
            samples: living(|packages, package| packages.members(package).len() as u64),
            bytes: living(|packages, package| packages.bytes(package)),
            packing: self.open() as u64,
        }
    }

    /// Why nothing is packed any more.
    pub(crate) fn failed(&self) -> Option<String> {
        self.desk().failed.clone()
    }

    /// Removes a package from the shelf, later.
    pub(crate) fn discard(&self, package: u32) {
        self.desk().discarded.push(package);
        self.bell.notify_all();
    }

    /// A sample was read for its package.
    pub(crate) fn read(&self, id: Id, bytes: std::result::Result<Vec<u8>, String>) {
        self.desk().incoming.push_back(Incoming::Read { id, bytes });
        self.bell.notify_all();
    }

    /// The job has ended: nothing more is packed, and what is not kept is removed.
    pub(crate) fn end(self: Arc<Self>) {
        {
            let mut desk = self.desk();
            desk.clear();
            desk.failed = Some("the job has ended".into());
        }
        self.bell.notify_all();
        if self.keep {
            return;
        }
        let work = move || {
            if let Err(error) = self.shelf.drop_all() {
                tracing::warn!(%error, "packages of a job that has ended stay behind");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("hotset-sweep".into()).spawn(work) {
            tracing::warn!(%error, "packages of a job that has ended stay behind");
        }
    }
}

impl State {
    /// Leaves leases on those of a batch that go into packages.
    pub(crate) fn pass(&mut self, serial: u64, objects: &[(Id, u32)]) {
        let Some(press) = self.jobs.get(&serial).and_then(|job| job.press.clone()) else { return };
        let mut desk = press.desk();
        if desk.sheets.is_empty() {
            return;
        }
        let mut any = false;
        for &(id, key) in objects {
            if !desk.wants(id) {
                continue;
            }
            let object = &mut self.objects[key as usize];
            let size = self.datasets[object.dataset as usize].catalog.size(id);
            let Some(target) = self.arena.target(object.block, size) else { continue };
            object.leases += 1;
            desk.coming.insert(id);
            desk.incoming.push_back(Incoming::Passing { id, object: key, view: View::leased(target) });
            any = true;
        }
        drop(desk);
        if any {
            press.bell.notify_all();
        }
    }

    /// Ends a lease that was left for a packer.
    fn passed(&mut self, key: u32) {
        if let Some(object) = self.objects.get_mut(key as usize) {
            object.leases -= 1;
            self.settle(key);
            self.unspill(key);
        }
    }
}

/// Begins to pack what was chosen with the plan of `epoch`; without one, what a server before this had chosen: of its
/// samples some have passed there, so all are asked for.
pub(crate) fn begin(
    shared: &Arc<Shared>,
    state: &State,
    serial: u64,
    epoch: Option<u64>,
    packing: Vec<(u32, Vec<Id>)>,
) {
    let Some(job) = state.jobs.get(&serial) else { return };
    let (Some(press), Some(mind)) = (job.press.clone(), job.mind.clone()) else { return };
    let schedule = epoch.and_then(|epoch| job.schedules.get(&epoch));
    if schedule.is_none() && epoch.is_some() {
        return;
    }
    let catalog = Arc::clone(&state.datasets[job.dataset as usize].catalog);
    let mut desk = press.desk();
    let packing = if desk.failed.is_some() { Vec::new() } else { packing };
    if packing.is_empty() && desk.discarded.is_empty() {
        return;
    }
    if desk.sheet_of.is_empty() && !packing.is_empty() {
        desk.sheet_of = vec![NONE; catalog.len()];
        (desk.due, desk.coming) = (Bits::new(catalog.len()), Bits::new(catalog.len()));
    }
    let mut planned = Bits::new(catalog.len());
    for &id in schedule.iter().flat_map(|schedule| schedule.plan().ids()) {
        planned.insert(id);
    }
    for (number, ids) in packing {
        let mut due = 0;
        for &id in &ids {
            desk.sheet_of[id as usize] = number;
            if planned.contains(id) {
                desk.due.insert(id);
                due += 1;
            }
        }
        if due == 0 {
            desk.ready.insert(number);
        }
        let epoch = epoch.unwrap_or_default();
        desk.sheets.insert(number, Sheet { epoch, ids, due, asked: false, draft: None });
    }
    if std::mem::replace(&mut desk.running, true) {
        return;
    }
    drop(desk);
    let (own, thread) = (Arc::clone(shared), std::thread::Builder::new().name("hotset-pack".into()));
    let worker = Arc::clone(&press);
    if let Err(error) =
        thread.spawn(move || Packer { shared: own, serial, press: worker, mind, catalog }.run())
    {
        tracing::warn!(%error, "cannot start a packer: nothing is packed");
        press.desk().failed = Some(error.to_string());
    }
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
        let mut desk = self.press.desk();
        desk.running = false;
        let left: Vec<Incoming> = desk.incoming.drain(..).collect();
        drop(desk);
        for incoming in left {
            if let Incoming::Passing { object, .. } = incoming {
                self.shared.lock().passed(object);
            }
        }
        self.press.bell.notify_all();
    }

    /// One thing that has come, or one look around. False when there is nothing left to pack.
    fn step(&self) -> bool {
        let mut desk = self.press.desk();
        let discarded = std::mem::take(&mut desk.discarded);
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
            None if desk.sheets.is_empty() => false,
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
                self.shared.lock().passed(object);
                (id, put)
            }
            Incoming::Read { id, bytes: Ok(bytes) } => (id, self.put(id, &bytes)),
            Incoming::Read { id, bytes: Err(cause) } => (id, Err(cause)),
        };
        match put {
            Ok(None) => return,
            Ok(Some((number, ids, draft))) => self.write(number, ids, draft),
            Err(cause) => {
                tracing::debug!(id, cause, "a package is given up, because a sample of it cannot be had");
                self.give_up(id);
            }
        }
        self.ask();
    }

    /// Puts a sample into its draft; the draft, if it is complete.
    #[allow(clippy::type_complexity, reason = "used once")]
    fn put(&self, id: Id, bytes: &[u8]) -> std::result::Result<Option<(u32, Vec<Id>, Draft)>, String> {
        let mut desk = self.press.desk();
        let Some(number) = desk.sheet(id) else { return Ok(None) };
        let due = desk.due.contains(id);
        desk.due.remove(id);
        let Some(sheet) = desk.sheets.get_mut(&number) else { return Ok(None) };
        sheet.due -= usize::from(due);
        let nothing_passes = due && sheet.due == 0;
        if sheet.draft.is_none() {
            let samples: Vec<(Id, u64)> = sheet.ids.iter().map(|&id| (id, self.catalog.size(id))).collect();
            let draft =
                Draft::new(&self.press.identity, number, &samples).map_err(|error| error.to_string())?;
            sheet.draft = Some(draft);
        }
        let Some(draft) = &mut sheet.draft else { return Ok(None) };
        if !draft.put(id, bytes).map_err(|error| error.to_string())? {
            if nothing_passes {
                desk.ready.insert(number);
            }
            return Ok(None);
        }
        let whole = desk.remove(number);
        Ok(whole.and_then(|sheet| Some((number, sheet.ids, sheet.draft?))))
    }

    /// Writes a package that is complete, and tells the planner.
    fn write(&self, number: u32, ids: Vec<Id>, draft: Draft) {
        let written = draft.finish().map_err(Error::from).and_then(|bytes| {
            self.press.shelf.write(number, &bytes)?;
            Ok(bytes.len() as u64)
        });
        match written {
            Ok(bytes) => {
                self.mind.planner().packed(number, &ids);
                self.count(|counters| {
                    counters.pack_bytes_written += bytes;
                    counters.storage_requests += 1;
                });
            }
            Err(error) => self.fail(&error, number),
        }
    }

    fn count(&self, add: impl FnOnce(&mut hotset_core::counters::Counters)) {
        let mut state = self.shared.lock();
        if let Some(job) = state.jobs.get_mut(&self.serial) {
            let epoch = job.begun.values().max().copied();
            add(job.counters(epoch));
        }
    }

    /// Packs nothing more: the place cannot be used.
    fn fail(&self, error: &Error, number: u32) {
        tracing::warn!(%error, "nothing is packed any more, and easy samples are read one by one");
        let mut desk = self.press.desk();
        desk.failed.get_or_insert_with(|| error.message.clone());
        let sheets = desk.clear();
        drop(desk);
        let mut planner = self.mind.planner();
        planner.given_up(number);
        sheets.keys().for_each(|number| planner.given_up(*number));
        planner.stop_packing();
    }

    /// Gives up the package that a sample goes into; its other samples wait for another epoch.
    fn give_up(&self, id: Id) {
        let mut desk = self.press.desk();
        let Some(number) = desk.sheet(id) else { return };
        desk.remove(number);
        drop(desk);
        self.mind.planner().given_up(number);
    }

    /// Looks whether the epoch of what is due is over, and asks for what does not pass.
    fn look_around(&self) {
        let state = self.shared.lock();
        let ended = state.stopping || !state.jobs.contains_key(&self.serial);
        let under_way: Vec<u64> =
            state.jobs.get(&self.serial).map_or(Vec::new(), |job| job.schedules.keys().copied().collect());
        drop(state);
        let mut desk = self.press.desk();
        if ended {
            desk.clear();
            return;
        }
        let Desk { sheets, due, ready, .. } = &mut *desk;
        for (&number, sheet) in sheets {
            if sheet.due > 0 && !under_way.contains(&sheet.epoch) {
                sheet.due = 0;
                sheet.ids.iter().for_each(|&id| due.remove(id));
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
        let mut passing = Vec::new();
        for id in wanted {
            let ready =
                state.object(dataset, id).filter(|&key| state.objects[key as usize].fill == Fill::Ready);
            match ready {
                Some(key) => {
                    let object = &mut state.objects[key as usize];
                    object.leases += 1;
                    let block = object.block;
                    match state.arena.target(block, self.catalog.size(id)) {
                        Some(target) => {
                            passing.push(Incoming::Passing { id, object: key, view: View::leased(target) });
                        }
                        None => state.passed(key),
                    }
                }
                None => state.background.push_back((self.serial, id)),
            }
        }
        reads::wake(&self.shared, &mut state);
        drop(state);
        self.press.desk().incoming.extend(passing);
    }
}

impl Engine {
    /// Waits until everything that was chosen to be packed is, but no longer than `wait`.
    pub fn packed(&self, job: &str, wait: Duration) -> Result<()> {
        let press = {
            let state = self.shared.lock();
            state.jobs[&state.job(job)?].press.clone()
        };
        let Some(press) = press else { return Ok(()) };
        let began = Instant::now();
        let mut desk = press.desk();
        while !desk.sheets.is_empty() || desk.running {
            if began.elapsed() >= wait {
                return Err(Error::unavailable(format!(
                    "{} packages are not written yet",
                    desk.sheets.len()
                )));
            }
            let (back, _) = press.bell.wait_timeout(desk, LOOK_UP).unwrap_or_else(PoisonError::into_inner);
            desk = back;
        }
        Ok(())
    }
}
