//! Packages as the plan sees them: which ids lie in which, nothing of their bytes.
//!
//! A package is one object that holds many samples and is read in one request (iCache III-C). An id lies in at
//! most one package: when it is packed again, its old copy is dead. The [`Packer`] chooses what is packed; server
//! and simulator both carry out what it says. Where samples lie side by side in larger objects anyway, as in tar
//! shards, [runs] of them are the packages, and nothing is packed.
//!
//! **Size.** A mebibyte, or an eighth of the cache where that is less ([`size`]); below 64 KiB packages are not
//! worth their requests, and there are none.
//!
//! **Wear.** What is wanted of a package is the bytes of its members that are L-samples, or H-samples that are not
//! resident. Below three quarters it is *worn*: plans use it after all others, and the packer moves what the
//! cache will not keep to new packages. Then it [retires](Packages::retire): the H-samples that are left in it lie in none, and its
//! object can be deleted.

mod mixing;
mod packer;
mod packing;
mod runs;
mod saved;

pub use mixing::{BATCH, Mixing};
pub use packer::{Chosen, Draft, LARGE, Packer, PackingInputs, fit};
pub use packing::Packing;
pub use runs::runs;

use std::sync::Arc;

use crate::Id;
use crate::bytes::human;
use crate::policy::Sizes;

const NONE: u32 = u32::MAX;

/// The bytes of a package where the cache is large enough.
pub const USUAL: u64 = 1 << 20;
/// Packages that the cache makes smaller than this are none.
const LEAST: u64 = 64 << 10;
/// The share of a package's bytes that must be wanted, as a fraction; below that it is worn.
const WORN: (u64, u64) = (3, 4);
/// A package is not read for fewer slots than this.
pub const FEW: usize = 32;
/// What a package that is made has before its samples: its head, and an entry of the index for each of them.
pub const HEAD: u64 = 72;
/// See [`HEAD`].
pub const ENTRY: u64 = 24;

/// Why a cache of `capacity` bytes has no packages, where [`size`] gives none.
pub fn too_small(capacity: u64) -> String {
    format!(
        "an eighth of the cache of {} is less than {}, too little to be worth a request: raise `cache`, or set \
         `package_size`",
        human(capacity),
        human(LEAST)
    )
}

/// The bytes of a package for a cache of `capacity`, unless another size was `asked` for (0: none was). None
/// where packages would be so small that they are not worth their requests.
pub fn size(asked: u64, capacity: u64) -> Option<u64> {
    match asked {
        0 => Some(USUAL.min(capacity / 8)).filter(|&bytes| bytes >= LEAST),
        bytes => Some(bytes),
    }
}

/// The length of a package that is made of so many samples of so many bytes together.
pub fn length(samples: usize, bytes: u64) -> u64 {
    HEAD + ENTRY * samples as u64 + bytes
}

/// Where a job's packages come from.
#[derive(Debug, Clone)]
pub enum Origin {
    /// They are made, of at least so many bytes each; 0: as the cache's [`size`] has it.
    Made(u64),
    /// The dataset consists of them: they are complete, and no others are made.
    Given(Arc<Packages>),
}

/// One package.
#[derive(Debug, Clone, Default, PartialEq)]
struct Package {
    /// Those whose living copy lies here.
    members: Vec<Id>,
    /// The first that was packed, by which the package has an owner.
    first: Id,
    /// How many samples were packed.
    packed: u32,
    /// The bytes of all of them.
    bytes: u64,
    /// The bytes that a read brings, with what lies before and between them.
    extent: u64,
}

/// Which ids lie in which package.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Packages {
    of: Vec<u32>,
    packages: Vec<Package>,
    /// Whether they lie in the dataset's own objects, so that none of them is ever made anew.
    given: bool,
}

impl Packages {
    /// None yet, of a catalog of `samples`.
    pub fn new(samples: usize) -> Self {
        Self { of: vec![NONE; samples], packages: Vec::new(), given: false }
    }

    /// A package of these ids is complete; its number. Their old copies are dead.
    pub fn add(&mut self, ids: &[Id], sizes: &dyn Sizes) -> u32 {
        let number = self.packages.len() as u32;
        self.place(number, ids, sizes);
        number
    }

    /// A package that lies in a larger object, where reading it brings `extent` bytes.
    fn add_run(&mut self, ids: &[Id], sizes: &dyn Sizes, extent: u64) {
        let number = self.add(ids, sizes);
        self.packages[number as usize].extent = extent;
        self.given = true;
    }

    /// Package `number`, of these ids, is complete. Copies of them that lie elsewhere are dead, so packages are
    /// placed in the order of their numbers where they share ids. Numbers in between are of packages that hold
    /// no samples.
    pub fn place(&mut self, number: u32, ids: &[Id], sizes: &dyn Sizes) {
        if self.packages.len() <= number as usize {
            self.packages.resize(number as usize + 1, Package::default());
        }
        let mut old: Vec<u32> = Vec::new();
        for &id in ids {
            let was = std::mem::replace(&mut self.of[id as usize], number);
            old.extend((was != NONE).then_some(was));
        }
        old.sort_unstable();
        old.dedup();
        for was in old {
            let of = &self.of;
            self.packages[was as usize].members.retain(|&id| of[id as usize] == was);
        }
        let bytes = ids.iter().map(|&id| sizes.size(id)).sum();
        let extent = length(ids.len(), bytes);
        let first = ids.first().copied().unwrap_or_default();
        self.packages[number as usize] =
            Package { members: ids.to_vec(), first, packed: ids.len() as u32, bytes, extent };
    }

    /// The number after that of the last package.
    pub fn next(&self) -> u32 {
        self.packages.len() as u32
    }

    /// Whether `package` holds no sample.
    pub fn is_dead(&self, package: u32) -> bool {
        self.members(package).is_empty()
    }

    /// A package has retired, or was lost: its members lie in none.
    pub fn retire(&mut self, package: u32) {
        let Some(gone) = self.packages.get_mut(package as usize) else { return };
        for id in std::mem::take(&mut gone.members) {
            self.of[id as usize] = NONE;
        }
    }

    /// The package in which `id` lies.
    pub fn of(&self, id: Id) -> Option<u32> {
        self.of.get(id as usize).copied().filter(|&package| package != NONE)
    }

    /// Those whose living copy lies in `package`.
    pub fn members(&self, package: u32) -> &[Id] {
        self.packages.get(package as usize).map_or(&[], |package| &package.members)
    }

    /// The sample by whose place a package has its owner: the first that was packed into it.
    pub fn first(&self, package: u32) -> Option<Id> {
        self.packages.get(package as usize).filter(|package| package.packed > 0).map(|package| package.first)
    }

    /// How many samples were once packed into `package`.
    pub fn packed(&self, package: u32) -> u32 {
        self.packages.get(package as usize).map_or(0, |package| package.packed)
    }

    /// The bytes of the samples that reading `package` brings, dead copies too.
    pub fn bytes(&self, package: u32) -> u64 {
        self.packages.get(package as usize).map_or(0, |package| package.bytes)
    }

    /// All bytes that reading `package` brings.
    pub fn extent(&self, package: u32) -> u64 {
        self.packages.get(package as usize).map_or(0, |package| package.extent)
    }

    /// The bytes of those members of `package` that are `wanted`.
    pub fn wanted(&self, package: u32, sizes: &dyn Sizes, wanted: impl Fn(Id) -> bool) -> u64 {
        self.members(package).iter().filter(|id| wanted(**id)).map(|&id| sizes.size(id)).sum()
    }

    /// Whether packages wear: those that lie in the dataset's own objects stay as they are.
    pub fn wear(&self) -> bool {
        !self.given
    }

    /// Whether `package` is worn when `wanted` of its bytes are.
    pub fn is_worn(&self, package: u32, wanted: u64) -> bool {
        !self.given && wanted * WORN.1 < self.bytes(package) * WORN.0
    }

    /// The bytes of the largest package that is in use.
    pub fn largest(&self) -> u64 {
        self.living().map(|package| self.bytes(package)).max().unwrap_or(0)
    }

    /// The packages with live samples.
    pub fn living(&self) -> impl Iterator<Item = u32> + '_ {
        (0u32..)
            .zip(&self.packages)
            .filter(|(_, package)| !package.members.is_empty())
            .map(|(number, _)| number)
    }

    /// How many samples there are.
    pub fn samples(&self) -> usize {
        self.of.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_lies_in_one_package_and_its_old_copy_is_dead() {
        let sizes = vec![10u64; 6];
        let mut packages = Packages::new(6);
        let (first, second) = (packages.add(&[0, 1, 2], &sizes), packages.add(&[2, 3], &sizes));
        assert_eq!((packages.of(2), packages.of(5)), (Some(second), None));
        assert_eq!(
            (packages.members(first), packages.bytes(first), packages.packed(first)),
            (&[0, 1][..], 30, 3)
        );
        packages.add(&[0, 1], &sizes);
        assert_eq!(packages.living().collect::<Vec<_>>(), [1, 2], "no sample is left in the first");
        packages.retire(second);
        assert_eq!((packages.of(2), packages.members(second)), (None, &[][..]));
    }

    #[test]
    fn a_package_is_a_mebibyte_or_an_eighth_of_the_cache_and_none_below_64_kib() {
        assert_eq!(size(0, 1 << 40), Some(1 << 20));
        assert_eq!(size(0, 8 << 20), Some(1 << 20));
        assert_eq!(size(0, 4 << 20), Some(512 << 10));
        assert_eq!((size(0, 512 << 10), size(0, (512 << 10) - 8)), (Some(64 << 10), None));
        assert_eq!(size(700, 10), Some(700), "what was asked for stays");
    }

    #[test]
    fn a_package_is_worn_below_three_quarters_of_its_bytes() {
        let sizes = vec![10u64; 8];
        let mut packages = Packages::new(8);
        let package = packages.add(&[0, 1, 2, 3], &sizes);
        let worn = |packages: &Packages, until: Id| {
            packages.is_worn(package, packages.wanted(package, &sizes, |id| id < until))
        };
        assert!(!worn(&packages, 3) && worn(&packages, 2));
        packages.add(&[0], &sizes);
        assert!(worn(&packages, 3), "a dead copy is not wanted");
        assert_eq!(packages.extent(package), 72 + 4 * 24 + 40, "its head is read too");
        let mut runs = Packages::new(8);
        runs.add_run(&[0, 1, 2, 3], &sizes, 55);
        assert!(!runs.is_worn(0, 0), "runs are not packed anew");
    }
}
