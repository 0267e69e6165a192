//! What is packed, and when (iCache III-C).
//!
//! Once there is an H-list and no package, random L-samples are packed, all of them. In each later epoch it
//! packs first the samples that lie in no package, those that were selected and substituted in the last
//! epoch before the others; then those of worn packages, the worst package first and each whole; together at most
//! a twentieth of the dataset's bytes, unless worn packages hold more than an eighth of what L-samples there are:
//! large caches turn over within an epoch or two. Samples of 64 KiB or more are never packed: a read of their own
//! is as good.
//!
//! **The margin.** The H-list is as large as the whole cache, and the H region is smaller. H-samples whose IVs are too
//! low for the bytes of that region stay out of it, and would be read one by one in every epoch. They are packed as
//! L-samples are.
//!
//! What is chosen is packed in the order in which the plan serves it, which is random, then come those that are
//! resident, then the others: so bytes are taken as they pass, and few packages are being filled at a time. Members
//! that the plan does not serve and that were not resident at its start are read: a worn package in one request, the
//! others, and where a worn package has no more than a handful of them, one by one.
//!
//! **Complete** is a package at the slot of the last of its members that the plan serves; one of which it serves
//! none, at its place among the epoch's packages, stretched over the plan. That is settled here, with the plan, and the
//! next plan uses what is complete before its cut. When a package is written is another matter.
//!
//! **On a cluster** a package holds samples that one node owns, which makes it and reads it. Its first sample is one that this node
//! would own alone, so that the package has the same owner.
//!
//! Differs from the paper: what lies in no package comes first, since otherwise some samples would wait for
//! tens of epochs; there is a bound on how much is packed; and the margin is packed.

use std::collections::BTreeMap;

use super::{FEW, Packages};
use crate::bits::Bits;
use crate::cluster::Ownership;
use crate::importance::{Keys, cut as report_cut};
use crate::policy::Sizes;
use crate::sampling::{Plan, Residents};
use crate::{Id, Rng};

/// Samples of this many bytes are never packed.
pub const LARGE: u64 = 64 << 10;
/// The share of the dataset's bytes packed in an epoch.
const SHARE: u64 = 20;
/// While worn packages hold more than this share of all L-samples' bytes, that limit does not count.
const TURNING: u64 = 8;

/// A package to be made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Draft {
    /// What it holds.
    pub ids: Vec<Id>,
    /// Whether it is complete before the cut of the plan it was chosen with, so that the next plan may use it.
    pub early: bool,
}

/// What is to be packed in one epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chosen {
    /// The packages to be made.
    pub drafts: Vec<Draft>,
    /// Worn packages that retire when what moves out of them is complete.
    pub moved: Vec<u32>,
    /// Those of them that are read whole, with the members that the drafts need of them.
    pub whole: Vec<(u32, Vec<Id>)>,
    /// Samples that are read one by one.
    pub single: Vec<Id>,
}

/// Chooses what is packed.
#[derive(Debug, Clone)]
pub struct Packer {
    /// The least bytes of a package.
    bytes: u64,
    seed: u64,
}

/// What the packer looks at.
pub struct PackingInputs<'a> {
    /// The epoch that is packed in.
    pub epoch: u64,
    /// The packages that are complete.
    pub packages: &'a Packages,
    /// What the plan was made from.
    pub keys: &'a Keys,
    /// The size of every sample.
    pub sizes: &'a dyn Sizes,
    /// The plan that is carried out meanwhile.
    pub plan: &'a Plan,
    /// The samples that are resident before its first slot.
    pub residents: Option<&'a Residents>,
    /// Those that are being packed already.
    pub busy: &'a Bits,
    /// The bytes of the H region.
    pub region: u64,
    /// Who owns what, where several nodes carry the plan out.
    pub ownership: Option<&'a Ownership>,
}

impl PackingInputs<'_> {
    fn is_resident(&self, id: Id) -> bool {
        self.residents.is_some_and(|residents| residents.contains(id))
    }

    /// Whether `id` may be packed, where H-samples with keys below `edge` are the margin.
    fn fits(&self, id: Id, edge: u32) -> bool {
        let stays_out = !self.keys.is_high(id) || self.keys.sortable(id) < edge;
        stays_out && self.sizes.size(id) < LARGE && !self.busy.contains(id)
    }

    /// The key below which H-samples are the margin: those above it fill the H region.
    fn edge(&self) -> u32 {
        let high = (0..self.packages.samples() as Id).filter(|&id| self.keys.is_high(id));
        let mut high: Vec<(u32, Id)> = high.map(|id| (self.keys.sortable(id), id)).collect();
        high.sort_unstable_by(|a, b| b.cmp(a));
        let mut room = self.region;
        let first_out = high.into_iter().find(|&(_, id)| !take(&mut room, self.sizes.size(id)));
        first_out.map_or(0, |(key, _)| key)
    }

    /// Worn packages of which nothing is being packed, the worst first, and the bytes of L-samples in all worn ones.
    fn worn(&self) -> (Vec<u32>, u64) {
        let (mut worn, mut low) = (Vec::new(), 0);
        for package in self.packages.living() {
            let wants = |id: Id| !self.keys.is_high(id) || !self.is_resident(id);
            let wanted = self.packages.wanted(package, self.sizes, wants);
            if !self.packages.is_worn(package, wanted) {
                continue;
            }
            low += self.packages.wanted(package, self.sizes, |id| !self.keys.is_high(id));
            if !self.packages.members(package).iter().any(|id| self.busy.contains(*id)) {
                let share = wanted as f64 / self.packages.bytes(package) as f64;
                worn.push((share, package));
            }
        }
        worn.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        (worn.into_iter().map(|(_, package)| package).collect(), low)
    }
}

impl Packer {
    /// One that makes packages of at least `bytes`; none if two of them are more than a quarter of the
    /// cache's `capacity`.
    pub fn new(bytes: u64, capacity: u64, seed: u64) -> Option<Self> {
        fit(bytes, capacity).then_some(Self { bytes, seed })
    }

    /// The least bytes of a package.
    pub fn package_bytes(&self) -> u64 {
        self.bytes
    }

    /// What is packed while a plan is carried out.
    pub fn choose(&self, inputs: &PackingInputs<'_>) -> Chosen {
        let PackingInputs { packages, sizes, plan, .. } = *inputs;
        let samples = packages.samples() as Id;
        let edge = inputs.edge();
        let mut ids = self.loose(inputs, edge);
        let (mut moved, begins) =
            (Vec::new(), packages.living().next().is_none() && inputs.busy.count() == 0);
        if !begins {
            let (worn, worn_bytes) = inputs.worn();
            let (mut whole, mut low) = (0u64, 0u64);
            for id in 0..samples {
                whole = whole.saturating_add(sizes.size(id));
                low += if inputs.keys.is_high(id) { 0 } else { sizes.size(id) };
            }
            let unlimited = worn_bytes > low / TURNING;
            let mut left = if unlimited { u64::MAX } else { (whole / SHARE).max(self.bytes) };
            let fitting = ids.iter().take_while(|id| take(&mut left, sizes.size(**id))).count();
            ids.truncate(fitting);
            for package in worn {
                let fitting: Vec<Id> =
                    packages.members(package).iter().copied().filter(|&id| inputs.fits(id, edge)).collect();
                if !take(&mut left, fitting.iter().map(|&id| sizes.size(id)).sum()) {
                    break;
                }
                ids.extend(fitting);
                moved.push(package);
            }
        }
        let mut slots = vec![u32::MAX; packages.samples()];
        for (slot, &id) in (0u32..).zip(plan.ids()) {
            let first = &mut slots[id as usize];
            *first = slot.min(*first);
        }
        let slot = |id: Id| Some(slots[id as usize]).filter(|&slot| slot != u32::MAX);
        ids.sort_by_key(|&id| (slots[id as usize], !inputs.is_resident(id)));
        let packing = self.by_owner(ids, inputs);
        if packing.is_empty() {
            moved.retain(|&package| !packages.members(package).iter().any(|&id| inputs.fits(id, edge)));
        }
        let unread = |id: &Id| slot(*id).is_none() && !inputs.is_resident(*id);
        let (whole, single) = read(packages, packing.iter().flatten().copied().filter(unread));
        let before = report_cut(plan.rank_len()) * plan.world() as usize;
        let count = packing.len().max(1);
        let drafts = packing.into_iter().enumerate().map(|(rank, ids)| {
            let last = ids.iter().filter_map(|&id| slot(id)).max();
            let at = last.map_or((rank + 1) * plan.len() / count, |slot| slot as usize);
            Draft { early: at < before, ids }
        });
        Chosen { drafts: drafts.collect(), moved, whole, single }
    }

    /// Cuts what is packed into packages, on a cluster those of each owner for themselves. They come in the order of what
    /// is packed.
    fn by_owner(&self, ids: Vec<Id>, inputs: &PackingInputs<'_>) -> Vec<Vec<Id>> {
        let cut = |ids: &[Id]| cut(ids, self.bytes, |id| inputs.sizes.size(id));
        let Some(ownership) = inputs.ownership else { return cut(&ids) };
        let mut owned = BTreeMap::<usize, Vec<Id>>::new();
        let mut places = vec![0u32; inputs.packages.samples()];
        for (place, id) in (0u32..).zip(ids) {
            places[id as usize] = place;
            if let Some(owner) = ownership.owner(id) {
                owned.entry(owner).or_default().push(id);
            }
        }
        let mut packing: Vec<(u32, Vec<Id>)> = Vec::new();
        for (owner, ids) in owned {
            for mut ids in cut(&ids) {
                let place = places[ids[0] as usize];
                // A sample may have its owner from the package that it has lain in alone. Where all have, none of them can stand for
                // the new package, and they stay where they are.
                let own = ids.iter().position(|&id| ownership.package_owner(id) == Some(owner));
                if let Some(at) = own {
                    ids.swap(0, at);
                    packing.push((place, ids));
                }
            }
        }
        packing.sort_unstable_by_key(|(place, _)| *place);
        packing.into_iter().map(|(_, ids)| ids).collect()
    }

    /// The samples that fit and lie in no package, those that were selected and not served first.
    fn loose(&self, inputs: &PackingInputs<'_>, edge: u32) -> Vec<Id> {
        let samples = inputs.packages.samples() as Id;
        let mut rng = Rng::new(self.seed, inputs.epoch, "packer");
        let loose = |id: &Id| inputs.packages.of(*id).is_none() && inputs.fits(*id, edge);
        let unserved = inputs.plan.unserved().iter().copied();
        let mut first: Vec<Id> = unserved.filter(|id| *id < samples && loose(id)).collect();
        rng.shuffle(&mut first);
        let mut ids = first.clone();
        first.sort_unstable();
        // Once there are packages, those that would have to be read wait until they are selected.
        let mut passes = Bits::new(inputs.packages.samples());
        inputs.plan.ids().iter().for_each(|&id| {
            passes.insert(id);
        });
        let begins = inputs.packages.living().next().is_none();
        let cheap = |id: Id| begins || passes.contains(id) || inputs.is_resident(id);
        let mut others: Vec<Id> =
            (0..samples).filter(|&id| loose(&id) && cheap(id) && first.binary_search(&id).is_err()).collect();
        rng.shuffle(&mut others);
        ids.append(&mut others);
        ids
    }
}

/// Takes `bytes` off what is left; false if they are more.
fn take(left: &mut u64, bytes: u64) -> bool {
    let rest = left.checked_sub(bytes);
    *left = rest.unwrap_or(*left);
    rest.is_some()
}

/// How samples are read: packages whole where they bring more than a handful, the others one by one.
fn read(packages: &Packages, ids: impl Iterator<Item = Id>) -> (Vec<(u32, Vec<Id>)>, Vec<Id>) {
    let (mut of, mut single) = (BTreeMap::<u32, Vec<Id>>::new(), Vec::new());
    for id in ids {
        match packages.of(id) {
            Some(package) => of.entry(package).or_default().push(id),
            None => single.push(id),
        }
    }
    let (whole, few): (Vec<_>, Vec<_>) = of.into_iter().partition(|(_, ids)| ids.len() >= FEW);
    single.extend(few.into_iter().flat_map(|(_, ids)| ids));
    (whole, single)
}

/// Whether two packages of `bytes` are at most a quarter of a cache of `capacity`.
pub fn fit(bytes: u64, capacity: u64) -> bool {
    bytes > 0 && bytes.checked_mul(8).is_some_and(|eight| eight <= capacity)
}

/// Cuts ids into as many packages of at least `least` bytes as they fill, of equal bytes and a little larger than
/// need be. Nothing if they fill none.
pub(super) fn cut(ids: &[Id], least: u64, length: impl Fn(Id) -> u64) -> Vec<Vec<Id>> {
    let mut rest: u64 = ids.iter().map(|&id| length(id)).sum();
    let mut count = rest / least.max(1);
    let (mut packing, mut open, mut bytes) = (Vec::new(), Vec::new(), 0u64);
    for &id in ids {
        open.push(id);
        bytes += length(id);
        if count > 0 && bytes >= rest.div_ceil(count) {
            packing.push(std::mem::take(&mut open));
            (rest, count) = (rest - bytes, count - 1);
            bytes = 0;
        }
    }
    packing
}

#[cfg(test)]
#[path = "packer_tests.rs"]
mod tests;
