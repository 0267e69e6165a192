//! What a job packs, and which of its packages plans use.
//!
//! What is packed is chosen with each plan, and so is what is complete when the next one is made: see [`Packer`]. A
//! chosen package is pending until it is both complete and written. Plans go by the first alone, and never ask when a
//! package was written; what carries the plan out waits for it, and says if it will not come ([`PackagePlanner::lost`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::Id;
use crate::bits::Bits;
use crate::cluster::Ownership;
use crate::packages::{self, Chosen, Draft, Origin, Packages, Packer, Packing, PackingInputs, fit};
use crate::policy::Sizes;
use crate::sampling::{Plan, Residents};

/// A package that was chosen, until it is both complete and written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingPackage {
    /// The epoch that it is made in.
    pub epoch: u64,
    /// What it holds, and whether the plan of the epoch after may use it.
    pub draft: Draft,
    /// Whether plans use it.
    pub complete: bool,
    /// Whether its write has ended.
    pub written: bool,
}

/// The packages of a job, those that plans use and those that are being made.
pub(super) struct PackagePlanner {
    sizes: Arc<dyn Sizes>,
    /// Those that are complete; none where packages are not used.
    packages: Option<Arc<Packages>>,
    packer: Option<Packer>,
    /// The least bytes of a package, where packages are used, also if no more are made.
    least: Option<u64>,
    /// Those that are not both complete and written.
    pending: BTreeMap<u32, PendingPackage>,
    /// The samples that lie in a package that is not complete.
    busy: Bits,
    /// Worn packages that retire when no sample in them is being packed.
    moved: BTreeSet<u32>,
    /// The newest epoch that was packed in.
    packed: Option<u64>,
    /// The number of the next package.
    next: u32,
}

/// What a planner saves of its packages.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SavedPacking {
    /// The packages that were being made, or that no plan used yet.
    pub pending: BTreeMap<u32, PendingPackage>,
    /// Worn packages that retire when what moves out of them is complete.
    pub moved: BTreeSet<u32>,
    /// The newest epoch that was packed in.
    pub packed: Option<u64>,
    /// The packages that plans use, where some are made; `None`: all that are found.
    pub living: Option<BTreeSet<u32>>,
}

impl PackagePlanner {
    /// Before the first plan of a cache of `capacity`, with packages from `origin` if they are used.
    pub(super) fn new(origin: Option<Origin>, capacity: u64, seed: u64, sizes: &Arc<dyn Sizes>) -> Self {
        let samples = sizes.len();
        let (packer, packages) = match origin {
            Some(Origin::Made(bytes)) => {
                let bytes = packages::size(bytes, capacity);
                let packer = bytes.and_then(|bytes| Packer::new(bytes, capacity, seed));
                let packages = packer.as_ref().map(|_| Arc::new(Packages::new(samples)));
                (packer, packages)
            }
            Some(Origin::Given(packages)) => {
                (None, Some(packages).filter(|packages| fit(packages.largest(), capacity)))
            }
            None => (None, None),
        };
        let least = packer.as_ref().map_or(0, Packer::package_bytes);
        Self {
            sizes: Arc::clone(sizes),
            least: packages.as_ref().map(|packages| packages.largest().max(least)),
            packages,
            pending: BTreeMap::new(),
            busy: Bits::new(if packer.is_some() { samples } else { 0 }),
            moved: BTreeSet::new(),
            packed: None,
            next: 0,
            packer,
        }
    }

    /// Those that are complete.
    pub(super) fn packages(&self) -> Option<&Arc<Packages>> {
        self.packages.as_ref()
    }

    /// Those that are not both complete and written.
    pub(super) fn pending(&self) -> &BTreeMap<u32, PendingPackage> {
        &self.pending
    }

    /// The bytes of the largest package, in use or to be made.
    pub(super) fn largest(&self) -> Option<u64> {
        let largest = self.packages.as_ref().map_or(0, |packages| packages.largest());
        self.least.map(|least| largest.max(least))
    }

    /// Package `number`, of these ids, was found complete.
    pub(super) fn found(&mut self, number: u32, ids: &[Id]) {
        if let Some(packages) = &mut self.packages {
            Arc::make_mut(packages).place(number, ids, &*self.sizes);
            self.next = self.next.max(packages.next());
        }
    }

    /// These are complete, and what was saved complete since.
    pub(super) fn adopt(&mut self, packages: &Arc<Packages>) {
        if self.packer.is_none() || packages.samples() != self.sizes.len() {
            return;
        }
        let mut all = Packages::clone(packages);
        let known = all.next();
        for (&number, pending) in self.pending.range(known..).filter(|(_, pending)| pending.complete) {
            all.place(number, &pending.draft.ids, &*self.sizes);
        }
        self.next = self.next.max(all.next());
        self.packages = Some(Arc::new(all));
    }

    /// Numbers of packages below `next` are taken.
    pub(super) fn number_from(&mut self, next: u32) {
        self.next = self.next.max(next);
    }

    /// The write of a package has ended.
    pub(super) fn written(&mut self, number: u32) {
        if let Some(pending) = self.pending.get_mut(&number) {
            pending.written = true;
        }
        self.pending.retain(|_, pending| !(pending.complete && pending.written));
    }

    /// What was chosen is complete as far as the plan of `epoch` goes.
    pub(super) fn complete(&mut self, epoch: u64) {
        let Some(packages) = &mut self.packages else { return };
        // What comes late in an epoch is for the plan after the next. Training that went back has left later ones.
        let usable = |pending: &PendingPackage| {
            let early = pending.epoch + 1 == epoch && pending.draft.early;
            !pending.complete && (early || pending.epoch > epoch || pending.epoch + 1 < epoch)
        };
        let done: Vec<u32> =
            self.pending.iter().filter(|(_, pending)| usable(pending)).map(|(&number, _)| number).collect();
        if done.is_empty() && self.moved.is_empty() {
            return;
        }
        let packages = Arc::make_mut(packages);
        for number in done {
            let Some(pending) = self.pending.get_mut(&number) else { continue };
            pending.complete = true;
            packages.place(number, &pending.draft.ids, &*self.sizes);
            pending.draft.ids.iter().for_each(|&id| self.busy.remove(id));
        }
        self.pending.retain(|_, pending| !(pending.complete && pending.written));
        let busy = &self.busy;
        self.moved.retain(|&package| {
            let stays = packages.members(package).iter().any(|&id| busy.contains(id));
            if !stays {
                packages.retire(package);
            }
            stays
        });
    }

    /// Makes no packages from now on; those that are complete are used while they last.
    pub(super) fn stop(&mut self) {
        self.packer = None;
    }

    /// A package was lost, or will not be made: the next plan does without it.
    pub(super) fn lost(&mut self, package: u32) {
        let Some(packages) = &mut self.packages else { return };
        match self.pending.remove(&package) {
            Some(pending) if !pending.complete => {
                for &id in &pending.draft.ids {
                    self.busy.remove(id);
                    // It stays where it lies, and that package does not retire.
                    packages.of(id).map(|package| self.moved.remove(&package));
                }
            }
            _ => {
                Arc::make_mut(packages).retire(package);
                self.moved.remove(&package);
            }
        }
    }

    /// Training goes back to `epoch`.
    pub(super) fn rewind(&mut self, epoch: u64) {
        self.packed = self.packed.filter(|packed| *packed < epoch);
    }

    /// What is packed while `plan` is carried out, where the H region has so many bytes; by owners, where there are several.
    pub(super) fn choose(
        &mut self,
        epoch: u64,
        plan: &Plan,
        residents: Option<&Residents>,
        region: u64,
        ownership: Option<&Ownership>,
    ) -> Packing {
        // A plan that is made again packs nothing more.
        let again = self.packed.is_some_and(|packed| packed >= epoch);
        let chosen = match (&self.packer, &self.packages, plan.keys()) {
            (Some(packer), Some(packages), Some(keys)) if !again => {
                let (sizes, busy) = (&*self.sizes, &self.busy);
                packer.choose(&PackingInputs {
                    epoch,
                    packages,
                    keys,
                    sizes,
                    plan,
                    residents,
                    busy,
                    region,
                    ownership,
                })
            }
            _ => Chosen::default(),
        };
        self.packed = self.packed.max(Some(epoch));
        let first = self.next;
        self.next += chosen.drafts.len() as u32;
        let packages = (first..).zip(&chosen.drafts).map(|(number, draft)| (number, draft.ids.clone()));
        let packing = Packing { packages: packages.collect(), whole: chosen.whole, single: chosen.single };
        self.moved.extend(chosen.moved);
        for (number, draft) in (first..).zip(chosen.drafts) {
            self.add(number, PendingPackage { epoch, draft, complete: false, written: false });
        }
        packing
    }

    /// Packs nothing in `epoch`, because nothing was reported that the choice could be made from.
    pub(super) fn choose_nothing(&mut self, epoch: u64) -> Packing {
        self.packed = self.packed.max(Some(epoch));
        Packing::default()
    }

    fn add(&mut self, number: u32, pending: PendingPackage) {
        if !pending.complete {
            pending.draft.ids.iter().for_each(|&id| {
                self.busy.insert(id);
            });
        }
        self.pending.insert(number, pending);
    }

    /// All of it but what lies in packages that are complete: they say that themselves.
    pub(super) fn save(&self) -> SavedPacking {
        let made = self.packages.as_ref().filter(|_| self.packer.is_some());
        SavedPacking {
            pending: self.pending.clone(),
            moved: self.moved.clone(),
            packed: self.packed,
            living: made.map(|packages| packages.living().collect()),
        }
    }

    /// Takes what [`Self::save`] gave, where these packages were `found` written. Those that were found and are of no
    /// plan before it are left out: they are chosen anew.
    pub(super) fn restore(&mut self, saved: &SavedPacking, found: &[(u32, Vec<Id>)]) {
        if self.packer.is_none() {
            return;
        }
        let written: BTreeMap<u32, &[Id]> = found.iter().map(|(number, ids)| (*number, &ids[..])).collect();
        if let Some(living) = &saved.living {
            let mut packages = Packages::new(self.sizes.len());
            for number in living {
                let pending = saved.pending.get(number).map(|pending| &pending.draft.ids[..]);
                if let Some(ids) = written.get(number).copied().or(pending) {
                    packages.place(*number, ids, &*self.sizes);
                }
            }
            self.packages = Some(Arc::new(packages));
        }
        for (&number, pending) in &saved.pending {
            self.add(number, PendingPackage { written: written.contains_key(&number), ..pending.clone() });
            self.next = self.next.max(number.saturating_add(1));
        }
        self.pending.retain(|_, pending| !(pending.complete && pending.written));
        (self.moved, self.packed) = (saved.moved.clone(), saved.packed);
    }
}
