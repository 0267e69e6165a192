//! When the packages of an epoch's plan are there: each is asked for when it is read, and what lies in it comes with it.

use hotset_core::Id;
use hotset_core::packages::Packages;

/// The packages of one plan, as they come.
pub(crate) struct Arrivals {
    /// When each was there, by its number.
    at: Vec<u64>,
}

impl Arrivals {
    /// Before a plan's first slot.
    pub(crate) fn new() -> Self {
        Self { at: Vec::new() }
    }

    /// A package is read; `at` is when it is there.
    pub(crate) fn come(&mut self, package: u32, at: u64) {
        let number = package as usize;
        if self.at.len() <= number {
            self.at.resize(number + 1, 0);
        }
        self.at[number] = at;
    }

    /// When a sample is there that comes in a package.
    pub(crate) fn ready(&self, id: Id, packages: Option<&Packages>) -> u64 {
        let package = packages.and_then(|packages| packages.of(id));
        package.and_then(|package| self.at.get(package as usize).copied()).unwrap_or(0)
    }
}
