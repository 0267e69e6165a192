//! A job's packages in the making: what is packed, what of it has come, and what is still due.
//!
//! What is packed was chosen with the plan, and each package to be is a [`Sheet`] on the job's desk. Samples that the
//! plan serves are taken as they pass: a batch that is granted leaves a lease on them here, for the
//! [packer](crate::packer), a thread of the job's own. The desk has its own lock, which is taken last.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hotset_core::bits::Bits;
use hotset_core::packages::{Origin, Packages};
use hotset_core::run::Packing;
use hotset_core::sampling::Plan;
use hotset_core::{Error, Id, Result};
use hotset_store::package::{Draft, Shelf};

use crate::engine::Engine;
use crate::loader::Source;
use crate::object::Fill;
use crate::segment::View;
use crate::state::State;

/// Bytes of passing samples that wait for the packer at most; what passes meanwhile is asked for later.
const MOST_WAITING: u64 = 16 << 20;
/// How long whoever waits for the desk waits at a time.
pub(crate) const LOOK_UP: Duration = Duration::from_millis(100);

const NONE: u32 = u32::MAX;

/// A shelf for a job's packages, as its opener found it.
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

/// Where a job's packages come from.
pub enum Place {
    /// They are made, and stand on a shelf.
    Shelf(Packaging),
    /// They are runs of samples in the dataset's own objects: nothing is written.
    Runs(Arc<Packages>),
    /// Nowhere, for this reason.
    Unusable(String),
}

impl Place {
    /// What plans are told of them, where they are made of at least `bytes`.
    pub(crate) fn origin(&self, bytes: u64) -> Option<Origin> {
        match self {
            Self::Shelf(_) => Some(Origin::Made(bytes)),
            Self::Runs(runs) => Some(Origin::Given(Arc::clone(runs))),
            Self::Unusable(_) => None,
        }
    }

    /// Where they are read from.
    pub(crate) fn source(&self) -> Option<Source> {
        match self {
            Self::Shelf(packaging) => Some(Source::Shelf(Arc::clone(&packaging.shelf))),
            Self::Runs(_) => Some(Source::Runs),
            Self::Unusable(_) => None,
        }
    }

    /// Those that were made already of a dataset of so many samples.
    pub(crate) fn found(&self, samples: usize) -> Vec<(u32, Vec<Id>)> {
        let Self::Shelf(packaging) = self else { return Vec::new() };
        let inside = |(_, ids): &&(u32, Vec<Id>)| ids.iter().all(|&id| (id as usize) < samples);
        packaging.found.iter().filter(inside).cloned().collect()
    }
}

/// A sample that has come.
pub(crate) enum Incoming {
    /// It passes: a lease on its object is held until it is copied.
    Passing { id: Id, object: u32, view: View },
    /// It was read for its package alone.
    Read { id: Id, bytes: std::result::Result<Vec<u8>, String> },
}

/// A package being filled.
pub(crate) struct Sheet {
    pub(crate) epoch: u64,
    pub(crate) ids: Vec<Id>,
    /// How many of its samples the plan serves and have not come.
    pub(crate) due: usize,
    /// Whether the others were asked for.
    pub(crate) asked: bool,
    /// Whether all have come, and it is being written.
    pub(crate) writing: bool,
    pub(crate) draft: Option<Draft>,
}

/// Packages that were chosen, made ready for the desk without a lock.
pub(crate) struct Work {
    sheet_of: Vec<u32>,
    due: Bits,
    coming: Bits,
    sheets: BTreeMap<u32, Sheet>,
    whole: BTreeMap<u32, Vec<Id>>,
    single: BTreeSet<Id>,
    /// Those that were resident when they were chosen and that the plan does not serve.
    resident: Vec<Id>,
}

impl Work {
    /// What was chosen with `plan`: what that serves passes. Without a plan nothing does: a server before this one had
    /// chosen it, and some of its samples have passed there.
    pub(crate) fn new(plan: Option<&Plan>, packing: Packing, samples: usize) -> Option<Self> {
        if packing.packages.is_empty() {
            return None;
        }
        let mut planned = Bits::new(samples);
        for &id in plan.iter().flat_map(|plan| plan.ids()) {
            planned.insert(id);
        }
        let mut read = Bits::new(samples);
        for &id in packing.single.iter().chain(packing.whole.iter().flat_map(|(_, ids)| ids)) {
            read.insert(id);
        }
        let mut work = Self {
            sheet_of: vec![NONE; samples],
            due: Bits::new(samples),
            coming: Bits::new(samples),
            sheets: BTreeMap::new(),
            whole: packing.whole.into_iter().collect(),
            single: packing.single.into_iter().collect(),
            resident: Vec::new(),
        };
        let epoch = plan.map_or(0, Plan::epoch);
        for (number, ids) in packing.packages {
            let mut due = 0;
            for &id in &ids {
                work.sheet_of[id as usize] = number;
                if planned.contains(id) {
                    work.due.insert(id);
                    due += 1;
                } else if plan.is_some() && !read.contains(id) {
                    work.resident.push(id);
                }
            }
            let sheet = Sheet { epoch, ids, due, asked: false, writing: false, draft: None };
            work.sheets.insert(number, sheet);
        }
        Some(work)
    }

    /// Those that are at hand now and may leave before they are asked for.
    pub(crate) fn take_residents(&mut self) -> Vec<Id> {
        std::mem::take(&mut self.resident)
    }

    /// The packages to be.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.sheets.keys().copied()
    }
}

/// See the module's head.
#[derive(Default)]
pub(crate) struct Desk {
    /// For each sample the package it goes into. Empty while nothing is packed.
    pub(crate) sheet_of: Vec<u32>,
    /// Older packages that a sample goes into too: it moves on before they are written.
    older: BTreeMap<Id, Vec<u32>>,
    /// Samples that the plan serves and have not come.
    pub(crate) due: Bits,
    /// Samples that are on their way here.
    pub(crate) coming: Bits,
    pub(crate) sheets: BTreeMap<u32, Sheet>,
    /// Sheets of which nothing passes any more and whose other samples were not asked for.
    pub(crate) ready: BTreeSet<u32>,
    /// Sheets whose samples were asked for.
    pub(crate) asked: usize,
    pub(crate) incoming: VecDeque<Incoming>,
    /// Bytes of samples that pass and wait to be copied.
    pub(crate) waiting: u64,
    /// Older packages that are to be read whole, with the samples that are needed of them.
    pub(crate) whole: BTreeMap<u32, Vec<Id>>,
    /// The package that is to be read whole for a sample.
    pub(crate) from: BTreeMap<Id, u32>,
    /// Packages that are being read whole.
    pub(crate) reading: BTreeSet<u32>,
    /// Samples that were chosen to be read one by one. Others are read only if they were lost on their way here.
    pub(crate) single: BTreeSet<Id>,
    /// Packages to be removed from the shelf.
    pub(crate) discarded: Vec<u32>,
    pub(crate) running: bool,
    /// Why nothing is packed any more.
    pub(crate) failed: Option<String>,
}

impl Desk {
    /// The package that `id` goes into.
    pub(crate) fn sheet(&self, id: Id) -> Option<u32> {
        self.sheet_of.get(id as usize).copied().filter(|&sheet| sheet != NONE)
    }

    /// Whether `id` goes into a package and is not on its way.
    pub(crate) fn wants(&self, id: Id) -> bool {
        self.sheet(id).is_some() && !self.coming.contains(id)
    }

    /// Puts packages to be on the desk.
    pub(crate) fn add(&mut self, mut work: Work) {
        if self.sheet_of.is_empty() {
            // All of it at once: requests wait for the desk.
            (self.sheet_of, self.due, self.coming) = (work.sheet_of, work.due, work.coming);
        } else {
            for (number, sheet) in &work.sheets {
                for &id in &sheet.ids {
                    self.move_on(id);
                    self.sheet_of[id as usize] = *number;
                    if work.due.contains(id) {
                        self.due.insert(id);
                    }
                }
            }
        }
        for (&package, ids) in &work.whole {
            self.from.extend(ids.iter().map(|&id| (id, package)));
        }
        self.whole.append(&mut work.whole);
        self.single.append(&mut work.single);
        let nothing_passes = work.sheets.iter().filter(|(_, sheet)| sheet.due == 0);
        self.ready.extend(nothing_passes.map(|(number, _)| *number));
        self.sheets.append(&mut work.sheets);
    }

    /// A sample that goes into a package goes into another too from now on. The older one waits for it no longer as it
    /// passes, but gets it as soon as it comes.
    fn move_on(&mut self, id: Id) {
        let Some(number) = self.sheet(id) else { return };
        let Some(sheet) = self.sheets.get_mut(&number) else { return };
        self.older.entry(id).or_default().push(number);
        if self.due.contains(id) {
            self.due.remove(id);
            sheet.due -= 1;
            if sheet.due == 0 && !sheet.asked {
                self.ready.insert(number);
            }
        }
    }

    /// The packages that a sample goes into, which has come.
    pub(crate) fn sheets_of(&mut self, id: Id) -> Vec<u32> {
        let older = self.older.remove(&id).unwrap_or_default();
        older.into_iter().chain(self.sheet(id)).collect()
    }

    /// Takes a sheet off: it is complete, or given up.
    pub(crate) fn remove(&mut self, number: u32) -> Option<Sheet> {
        let sheet = self.sheets.remove(&number)?;
        self.ready.remove(&number);
        self.asked -= usize::from(sheet.asked);
        for &id in &sheet.ids {
            if let Some(older) = self.older.get_mut(&id) {
                older.retain(|other| *other != number);
            }
            // Those that have moved on are another's.
            if self.sheet(id) == Some(number) {
                self.due.remove(id);
                self.coming.remove(id);
                let older = self.older.get_mut(&id).and_then(Vec::pop);
                self.sheet_of[id as usize] = older.unwrap_or(NONE);
            }
        }
        Some(sheet)
    }

    /// Takes all sheets off.
    pub(crate) fn clear(&mut self) -> BTreeMap<u32, Sheet> {
        (self.sheet_of, self.due, self.coming) = (Vec::new(), Bits::default(), Bits::default());
        self.older.clear();
        (self.ready, self.asked) = (BTreeSet::new(), 0);
        self.forget_reads();
        std::mem::take(&mut self.sheets)
    }

    /// Nothing more is read for packages.
    pub(crate) fn forget_reads(&mut self) {
        (self.whole, self.from, self.single) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    }

    /// Packages that can be removed now: nothing is to be read of them any more.
    pub(crate) fn take_discarded(&mut self) -> Vec<u32> {
        let (whole, reading) = (&self.whole, &self.reading);
        let needed = |package: &u32| whole.contains_key(package) || reading.contains(package);
        let (stay, go) = std::mem::take(&mut self.discarded).into_iter().partition(needed);
        self.discarded = stay;
        go
    }
}

/// See the module's head.
pub(crate) struct Press {
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) identity: String,
    keep: bool,
    desk: Mutex<Desk>,
    pub(crate) bell: Condvar,
    /// Held while a package is written.
    pub(crate) pen: Mutex<()>,
}

impl Press {
    pub(crate) fn new(packaging: &Packaging, identity: &str) -> Self {
        Self {
            shelf: Arc::clone(&packaging.shelf),
            identity: identity.to_owned(),
            keep: packaging.keep,
            desk: Mutex::default(),
            bell: Condvar::new(),
            pen: Mutex::new(()),
        }
    }

    pub(crate) fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Packages being filled or written.
    pub(crate) fn open(&self) -> usize {
        self.desk().sheets.len()
    }

    /// Whether a package is not written yet.
    pub(crate) fn is_making(&self, package: u32) -> bool {
        self.desk().sheets.contains_key(&package)
    }

    /// A package was read for others, or could not be.
    pub(crate) fn read_whole(&self, package: u32) {
        self.desk().reading.remove(&package);
        self.bell.notify_all();
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

    /// The job has ended: nothing more is packed, and what is not kept is removed, by the thread that is returned.
    pub(crate) fn end(self: Arc<Self>) -> Option<JoinHandle<()>> {
        {
            let mut desk = self.desk();
            desk.clear();
            desk.failed = Some("the job has ended".into());
        }
        self.bell.notify_all();
        if self.keep {
            return None;
        }
        let work = move || {
            if let Err(error) = self.shelf.drop_all() {
                tracing::warn!(%error, "packages of a job that has ended stay behind");
            }
        };
        let started = std::thread::Builder::new().name("hotset-sweep".into()).spawn(work);
        started.map_err(|error| tracing::warn!(%error, "packages of a job that has ended stay behind")).ok()
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
            if desk.wants(id) {
                let size = self.datasets[self.objects[key as usize].dataset as usize].catalog.size(id);
                any |= self.lend(&mut desk, key, id, size);
            }
        }
        drop(desk);
        if any {
            press.bell.notify_all();
        }
    }

    /// Leaves a lease on a sample for the packer, if its bytes are at hand.
    pub(crate) fn pass_one(&mut self, desk: &mut Desk, dataset: u32, id: Id, size: u64) -> bool {
        let ready = self.object(dataset, id).filter(|&key| self.objects[key as usize].fill == Fill::Ready);
        ready.is_some_and(|key| self.lend(desk, key, id, size))
    }

    /// Leaves a lease on an object that is whole. Memory of a batch's own goes with the batch, and a packer that falls
    /// behind holds no more than so much.
    fn lend(&mut self, desk: &mut Desk, key: u32, id: Id, size: u64) -> bool {
        let object = &mut self.objects[key as usize];
        if self.arena.is_spill(object.block.segment) || desk.waiting + size > MOST_WAITING {
            return false;
        }
        let Some(target) = self.arena.target(object.block, size) else { return false };
        object.leases += 1;
        desk.waiting += size;
        desk.coming.insert(id);
        desk.incoming.push_back(Incoming::Passing { id, object: key, view: View::leased(target) });
        true
    }

    /// Ends a lease that was left for a packer.
    pub(crate) fn passed(&mut self, key: u32) {
        if let Some(object) = self.objects.get_mut(key as usize) {
            object.leases -= 1;
            self.settle(key);
            self.unspill(key);
        }
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

    /// Does `work` while no package of `job` is written, as while its place is slow. For tests of who waits for packages.
    #[doc(hidden)]
    pub fn without_writes<T>(&self, job: &str, work: impl FnOnce() -> T) -> Result<T> {
        let press = {
            let state = self.shared.lock();
            state.jobs[&state.job(job)?].press.clone()
        };
        let held = press.as_ref().map(|press| press.pen.lock().unwrap_or_else(PoisonError::into_inner));
        let done = work();
        drop(held);
        Ok(done)
    }
}
