//! Packages as the plan sees them: which ids lie in which, nothing of their bytes.
//!
//! A package is one object of at least a mebibyte that holds many samples and is read in one request (iCache
//! III-C). An id lies in at most one package: when it is packed again, its old copy is dead, and the old
//! package is read with a hole in it until the last of its members has left. The [`Packer`] chooses what is
//! packed; server and simulator both carry out what it says. Where samples lie side by side in larger objects
//! anyway, as in tar shards, [runs] of them are the packages, and nothing is packed.

mod mixing;
mod packer;
mod runs;

pub use mixing::{BATCH, Mixing};
pub(crate) use packer::fit;
pub use packer::{Packer, Packing};
pub use runs::runs;

use std::sync::Arc;

use crate::Id;
use crate::policy::Sizes;

const NONE: u32 = u32::MAX;

/// Where a job's packages come from.
#[derive(Debug, Clone)]
pub enum Origin {
    /// They are made, of at least so many bytes each.
    Made(u64),
    /// The dataset consists of them: they are complete, and no others are made.
    Given(Arc<Packages>),
}

/// One package.
#[derive(Debug, Clone, Default, PartialEq)]
struct Package {
    /// Those whose living copy lies here.
    members: Vec<Id>,
    /// How many samples were packed.
    packed: u32,
    /// The bytes of all of them.
    bytes: u64,
    /// The bytes that a read brings, with what lies between them.
    extent: u64,
}

/// Which ids lie in which package.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Packages {
    of: Vec<u32>,
    packages: Vec<Package>,
}

impl Packages {
    /// None yet, of a catalog of `samples`.
    pub fn new(samples: usize) -> Self {
        Self { of: vec![NONE; samples], packages: Vec::new() }
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
    }

    /// Package `number`, of these ids, is complete. Copies of them that lie elsewhere are dead, so packages are
    /// placed in the order of their numbers where they share ids. Numbers in between are of packages that hold
    /// nobody.
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
        self.packages[number as usize] =
            Package { members: ids.to_vec(), packed: ids.len() as u32, bytes, extent: bytes };
    }

    /// The number after that of the last package.
    pub fn next(&self) -> u32 {
        self.packages.len() as u32
    }

    /// Whether `package` holds nobody.
    pub fn is_dead(&self, package: u32) -> bool {
        self.members(package).is_empty()
    }

    /// A package was lost: its members lie in none.
    pub fn remove(&mut self, package: u32) {
        let Some(lost) = self.packages.get_mut(package as usize) else { return };
        for id in std::mem::take(&mut lost.members) {
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
        assert_eq!(packages.living().collect::<Vec<_>>(), [1, 2], "nobody is left in the first");
        packages.remove(second);
        assert_eq!((packages.of(2), packages.members(second)), (None, &[][..]));
    }
}
