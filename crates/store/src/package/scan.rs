//! What lies in a place, package by package.

use hotset_core::Id;

use super::damage::Damage;
use super::format::Index;
use super::name::{Name, Stored};

/// A package whose index is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its number.
    pub number: u32,
    /// The file or object.
    pub stored: Stored,
    /// What lies in it.
    pub index: Index,
}

impl Found {
    /// Ids in the order in which they lie there.
    pub fn ids(&self) -> Vec<Id> {
        self.index.ids().collect()
    }
}

/// A package that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// The file or object.
    pub stored: Stored,
    /// Why.
    pub damage: Damage,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    /// What can be used, by number where it is one owner's.
    pub packages: Vec<Found>,
    /// What writers that were killed left behind.
    pub leftovers: Vec<Stored>,
    /// What cannot be used.
    pub damaged: Vec<Damaged>,
}

impl Scan {
    /// The first number above all that are taken, by damaged and foreign packages too. `None`: there is none left.
    pub fn next(&self) -> Option<u32> {
        let all = self.packages.iter().map(|found| &found.stored);
        let all = all.chain(self.damaged.iter().map(|damaged| &damaged.stored));
        let numbers = all.filter_map(|stored| match stored.name {
            Name::Package(number) => Some(number),
            Name::Leftover => None,
        });
        numbers.max().map_or(Some(0), |last| last.checked_add(1))
    }
}

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Packages.
    pub packages: u64,
    /// What writers left behind.
    pub leftovers: u64,
    /// The bytes of both.
    pub bytes: u64,
}

impl Swept {
    pub(super) fn count(&mut self, stored: &Stored) {
        match stored.name {
            Name::Package(_) => self.packages += 1,
            Name::Leftover => self.leftovers += 1,
        }
        self.bytes += stored.bytes;
    }
}
