//! Packages that were chosen and are not written: what goes into each, what of it has come, what is still asked for.
//!
//! A sample that goes into a package is *due* while the plan is to serve it, and *coming* once it was taken or asked for. A
//! package of which nothing is due any more is *ready*: what it lacks is asked for, two packages at a time. Where that
//! comes from was chosen with the plan: an older package that is read whole, the dataset, or else memory.

use std::collections::{BTreeMap, BTreeSet};

use hotset_core::Id;
use hotset_core::bits::Bits;
use hotset_core::run::Packing;
use hotset_core::sampling::Plan;
use hotset_store::package::Draft;

use crate::dataset::Dataset;

/// Packages whose samples are asked for at a time.
const AT_A_TIME: usize = 2;

const NONE: u32 = u32::MAX;

/// A package being filled.
struct OpenPackage {
    epoch: u64,
    ids: Vec<Id>,
    /// How many of its samples the plan serves and have not come.
    due: usize,
    /// Whether the others were asked for.
    asked: bool,
    /// Whether all have come, and it is being written.
    writing: bool,
    draft: Option<Draft>,
}

/// What is read because packing needs it.
#[derive(Default)]
struct Reads {
    /// Older packages that are to be read whole, with the samples that are needed of them.
    whole: BTreeMap<u32, Vec<Id>>,
    /// The package that is to be read whole for a sample.
    from: BTreeMap<Id, u32>,
    /// Packages that are being read whole, with what they bring.
    reading: BTreeMap<u32, BTreeSet<Id>>,
    /// Samples that were chosen to be read one by one. Others are read only if they were lost on their way here.
    single: BTreeSet<Id>,
}

impl Reads {
    /// The package that is to be read whole for a sample, with what is needed of it: it is read now.
    fn begin(&mut self, id: Id) -> Option<(u32, Vec<Id>)> {
        let package = *self.from.get(&id)?;
        let ids = self.whole.remove(&package)?;
        for id in &ids {
            if self.from.get(id) == Some(&package) {
                self.from.remove(id);
            }
        }
        Some((package, ids))
    }
}

/// Packages that were chosen, prepared without a lock.
pub(crate) struct NewPackages {
    goes_into: Vec<u32>,
    due: Bits,
    coming: Bits,
    open: BTreeMap<u32, OpenPackage>,
    whole: BTreeMap<u32, Vec<Id>>,
    single: BTreeSet<Id>,
    /// Those that were resident when they were chosen and that the plan does not serve.
    resident: Vec<Id>,
}

impl NewPackages {
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
        let mut new = Self {
            goes_into: vec![NONE; samples],
            due: Bits::new(samples),
            coming: Bits::new(samples),
            open: BTreeMap::new(),
            whole: packing.whole.into_iter().collect(),
            single: packing.single.into_iter().collect(),
            resident: Vec::new(),
        };
        let epoch = plan.map_or(0, Plan::epoch);
        for (number, ids) in packing.packages {
            let mut due = 0;
            for &id in &ids {
                new.goes_into[id as usize] = number;
                if planned.contains(id) {
                    new.due.insert(id);
                    due += 1;
                } else if plan.is_some() && !read.contains(id) {
                    new.resident.push(id);
                }
            }
            let package = OpenPackage { epoch, ids, due, asked: false, writing: false, draft: None };
            new.open.insert(number, package);
        }
        Some(new)
    }

    /// Those that are in memory now and may leave before they are asked for.
    pub(crate) fn take_residents(&mut self) -> Vec<Id> {
        std::mem::take(&mut self.resident)
    }

    /// Their numbers.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.open.keys().copied()
    }
}

/// Where a sample that is asked for comes from.
pub(super) enum Source {
    /// A package that is read whole now, for these samples.
    Package(u32, Vec<Id>),
    /// A package that was asked for already.
    Asked,
    /// The dataset, as was chosen with the plan.
    Dataset,
    /// Memory; the dataset where it is not there any more.
    Memory,
}

/// A job's packages that are not written yet.
#[derive(Default)]
pub(super) struct OpenPackages {
    /// For each sample the package it goes into. Empty while nothing is packed.
    goes_into: Vec<u32>,
    /// Older packages that a sample goes into too: it moves on before they are written.
    older: BTreeMap<Id, Vec<u32>>,
    /// Samples that the plan serves and have not come.
    due: Bits,
    /// Samples that are on their way here.
    coming: Bits,
    open: BTreeMap<u32, OpenPackage>,
    /// Packages of which nothing passes any more and whose other samples were not asked for.
    ready: BTreeSet<u32>,
    /// Packages whose samples were asked for.
    asked: usize,
    reads: Reads,
    /// Packages to be removed from its place.
    discarded: Vec<u32>,
}

impl OpenPackages {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn contains(&self, package: u32) -> bool {
        self.open.contains_key(&package)
    }

    /// The package that a sample goes into.
    fn package_of(&self, id: Id) -> Option<u32> {
        self.goes_into.get(id as usize).copied().filter(|&package| package != NONE)
    }

    /// Whether a sample goes into a package and is not on its way.
    pub(super) fn wants(&self, id: Id) -> bool {
        self.package_of(id).is_some() && !self.coming.contains(id)
    }

    /// A sample is on its way.
    pub(super) fn comes(&mut self, id: Id) {
        self.coming.insert(id);
    }

    /// Adds packages to be.
    pub(super) fn add(&mut self, mut new: NewPackages) {
        if self.goes_into.is_empty() {
            // All of it at once: requests wait for this lock.
            (self.goes_into, self.due, self.coming) = (new.goes_into, new.due, new.coming);
        } else {
            for (number, package) in &new.open {
                for &id in &package.ids {
                    self.move_on(id);
                    self.goes_into[id as usize] = *number;
                    if new.due.contains(id) {
                        self.due.insert(id);
                    }
                }
            }
        }
        // What is not written yet cannot be read: its samples come with those it waits for itself.
        new.whole.retain(|package, _| !self.open.contains_key(package));
        for (&package, ids) in &new.whole {
            self.reads.from.extend(ids.iter().map(|&id| (id, package)));
        }
        self.reads.whole.append(&mut new.whole);
        self.reads.single.append(&mut new.single);
        let nothing_passes = new.open.iter().filter(|(_, package)| package.due == 0);
        self.ready.extend(nothing_passes.map(|(number, _)| *number));
        self.open.append(&mut new.open);
    }

    /// A sample that goes into a package goes into another too from now on. The older one waits for it no longer as it
    /// passes, but gets it as soon as it comes.
    fn move_on(&mut self, id: Id) {
        let Some(number) = self.package_of(id) else { return };
        let Some(package) = self.open.get(&number) else { return };
        let has_it = package.writing || package.draft.as_ref().is_some_and(|draft| !draft.lacks(id));
        if has_it {
            // It was on its way to the older one, and has to come once more.
            self.coming.remove(id);
        } else {
            self.older.entry(id).or_default().push(number);
        }
        self.does_not_pass(id);
    }

    /// A sample was served and could not be taken, or its package waits for it no longer as it passes.
    pub(super) fn does_not_pass(&mut self, id: Id) {
        if !self.due.contains(id) {
            return;
        }
        self.due.remove(id);
        let Some(number) = self.package_of(id) else { return };
        let Some(package) = self.open.get_mut(&number) else { return };
        package.due -= 1;
        if package.due == 0 && !package.asked {
            self.ready.insert(number);
        }
    }

    /// The packages that a sample goes into, which has come.
    fn packages_of(&mut self, id: Id) -> Vec<u32> {
        let older = self.older.remove(&id).unwrap_or_default();
        older.into_iter().chain(self.package_of(id)).collect()
    }

    /// Puts a sample into its drafts; those that are complete.
    pub(super) fn put(
        &mut self,
        dataset: &Dataset,
        id: Id,
        bytes: &[u8],
    ) -> std::result::Result<Vec<(u32, Draft)>, String> {
        let numbers = self.packages_of(id);
        let put = self.put_into(&numbers, dataset, id, bytes);
        if put.is_err() {
            // All of them are to be given up.
            let own = self.package_of(id);
            self.older.insert(id, numbers.into_iter().filter(|&number| Some(number) != own).collect());
        }
        put
    }

    fn put_into(
        &mut self,
        numbers: &[u32],
        dataset: &Dataset,
        id: Id,
        bytes: &[u8],
    ) -> std::result::Result<Vec<(u32, Draft)>, String> {
        let (due, own) = (self.due.contains(id), self.package_of(id));
        self.due.remove(id);
        let mut whole = Vec::new();
        for &number in numbers {
            let Some(package) = self.open.get_mut(&number).filter(|package| !package.writing) else {
                continue;
            };
            let due = due && own == Some(number);
            package.due -= usize::from(due);
            let nothing_passes = due && package.due == 0;
            if package.draft.is_none() {
                let samples: Vec<(Id, u64)> = package.ids.iter().map(|&id| (id, dataset.size(id))).collect();
                let draft = Draft::new(&dataset.name, number, &samples);
                package.draft = Some(draft.map_err(|error| error.to_string())?);
            }
            let Some(draft) = &mut package.draft else { continue };
            if draft.put(id, bytes).map_err(|error| error.to_string())? {
                package.writing = true;
                whole.extend(package.draft.take().map(|draft| (number, draft)));
            } else if nothing_passes {
                self.ready.insert(number);
            }
        }
        Ok(whole)
    }

    /// Plans of these epochs are under way: what others were to serve does not pass any more.
    pub(super) fn end_epochs(&mut self, under_way: &[u64]) {
        for (&number, package) in &mut self.open {
            if package.due > 0 && !under_way.contains(&package.epoch) {
                package.due = 0;
                let own = package.ids.iter().filter(|id| self.goes_into.get(**id as usize) == Some(&number));
                own.for_each(|&id| self.due.remove(id));
                self.ready.insert(number);
            }
        }
    }

    /// Whether samples of another package may be asked for.
    pub(super) fn may_ask(&self) -> bool {
        self.asked < AT_A_TIME && !self.ready.is_empty()
    }

    /// The samples that the next packages lack of which nothing passes any more; they are on their way from now on.
    pub(super) fn ask(&mut self) -> Vec<Id> {
        let mut wanted: Vec<Id> = Vec::new();
        while self.asked < AT_A_TIME
            && let Some(number) = self.ready.pop_first()
        {
            let Some(package) = self.open.get_mut(&number) else { continue };
            package.asked = true;
            match &package.draft {
                Some(draft) => wanted.extend(draft.missing()),
                None => wanted.extend(&package.ids),
            }
            self.asked += 1;
        }
        wanted.retain(|&id| self.wants(id));
        for &id in &wanted {
            self.coming.insert(id);
        }
        wanted
    }

    /// Where a sample that was asked for comes from.
    pub(super) fn source(&mut self, id: Id) -> Source {
        if let Some((package, mut ids)) = self.reads.begin(id) {
            ids.retain(|&id| self.package_of(id).is_some());
            for &id in &ids {
                self.coming.insert(id);
            }
            self.reads.reading.insert(package, ids.iter().copied().collect());
            return Source::Package(package, ids);
        }
        if self.reads.reading.values().any(|ids| ids.contains(&id)) {
            return Source::Asked;
        }
        if self.reads.single.remove(&id) { Source::Dataset } else { Source::Memory }
    }

    /// A package was read whole, or could not be.
    pub(super) fn package_read(&mut self, package: u32) {
        self.reads.reading.remove(&package);
    }

    /// Takes a package off: it is written, or given up.
    pub(super) fn remove(&mut self, number: u32) {
        let Some(package) = self.open.remove(&number) else { return };
        self.ready.remove(&number);
        self.asked -= usize::from(package.asked);
        for &id in &package.ids {
            if let Some(older) = self.older.get_mut(&id) {
                older.retain(|other| *other != number);
            }
            // Those that have moved on are another's.
            if self.package_of(id) == Some(number) {
                self.due.remove(id);
                self.coming.remove(id);
                let older = self.older.get_mut(&id).and_then(Vec::pop);
                self.goes_into[id as usize] = older.unwrap_or(NONE);
            }
        }
    }

    /// Gives up the packages that a sample goes into, which cannot be had; their numbers.
    pub(super) fn give_up(&mut self, id: Id) -> Vec<u32> {
        let numbers = self.packages_of(id);
        numbers.iter().for_each(|number| self.remove(*number));
        numbers
    }

    /// Takes all packages off; their numbers.
    pub(super) fn clear(&mut self) -> Vec<u32> {
        let discarded = std::mem::take(&mut self.discarded);
        let reading = std::mem::take(&mut self.reads.reading);
        let gone = std::mem::take(self);
        (self.discarded, self.reads.reading) = (discarded, reading);
        gone.open.into_keys().collect()
    }

    /// Reads nothing more, where nothing is left to be packed. True if there was something to read.
    pub(super) fn forget_reads(&mut self) -> bool {
        let forgets = self.open.is_empty() && !self.reads.whole.is_empty() && !self.discarded.is_empty();
        if forgets {
            self.reads = Reads { reading: std::mem::take(&mut self.reads.reading), ..Reads::default() };
        }
        forgets
    }

    /// A package is to be removed from its place.
    pub(super) fn discard(&mut self, package: u32) {
        self.discarded.push(package);
    }

    pub(super) fn has_discarded(&self) -> bool {
        !self.discarded.is_empty()
    }

    /// Packages that can be removed now: nothing is to be read of them any more.
    pub(super) fn take_discarded(&mut self) -> Vec<u32> {
        let Reads { whole, reading, .. } = &self.reads;
        let needed = |package: &u32| whole.contains_key(package) || reading.contains_key(package);
        let (stay, go) = std::mem::take(&mut self.discarded).into_iter().partition(needed);
        self.discarded = stay;
        go
    }
}
