//! The packages of one job.
//!
//! They are one owner's part of a place. The store knows the length of every package it has written or scanned, so that a
//! read is one request into a buffer of the right size. Reads make one attempt, as reads of samples do, and the
//! caller tries again; writes, scans and removals try again by themselves where the store fails transiently.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hotset_core::{Error, Result};

use super::backing::open;
use super::failure::WriteError;
use super::format::hash;
use super::name::{Name, Stored, directory, file};
use super::overlap::overlaps;
use super::package_place::PackagePlace;
use super::scan::{Scan, Swept};
use crate::open::Opened;
use crate::store::{Location, ReadError, Store, UNKNOWN};

/// The dataset that packages are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dataset<'a> {
    /// Where it lies: [`Opened::place`].
    pub place: &'a str,
    /// What names it: [`Opened::identity`].
    pub identity: &'a str,
}

impl<'a> From<&'a Opened> for Dataset<'a> {
    fn from(opened: &'a Opened) -> Self {
        Self { place: &opened.place, identity: &opened.identity }
    }
}

/// One owner's packages of one dataset.
pub struct PackageStore {
    place: PackagePlace,
    dataset: [u8; 32],
    /// Below the place.
    directory: String,
    /// Of the packages that were written or scanned.
    lengths: Mutex<BTreeMap<u32, u64>>,
}

impl PackageStore {
    /// The packages that `owner` has of `dataset` at `place`: a directory, made for this user alone if it is missing,
    /// or a prefix of an object store. Refuses a place that the dataset's listing would see.
    pub fn open(
        place: &str,
        storage_options: &BTreeMap<String, String>,
        dataset: Dataset<'_>,
        owner: &str,
    ) -> Result<Self> {
        if overlaps(dataset.place, place) {
            return Err(Error::invalid(format!(
                "packages at `{place}` would be listed with the dataset `{}`; give `packages=` a directory or prefix \
                 outside of it, beside it for example",
                dataset.place
            )));
        }
        let place = PackagePlace::from(open(place, storage_options, true)?);
        Self::on(place, dataset.identity, owner)
    }

    pub(super) fn on(place: PackagePlace, identity: &str, owner: &str) -> Result<Self> {
        let dataset = hash(identity);
        let directory = format!("{}/{}", directory(&dataset), directory(&hash(owner)));
        place.backing.prepare(&directory)?;
        Ok(Self { place, dataset, directory, lengths: Mutex::default() })
    }

    /// The canonical name of the place.
    pub fn place(&self) -> &str {
        self.place.place()
    }

    /// Writes a package, whole or not at all, over an older one of its number. Take numbers from [`Scan::next`] on: a
    /// read that meets a replacement finds another length.
    pub fn write(&self, number: u32, package: &[u8]) -> std::result::Result<(), WriteError> {
        // Until it is known which one is there, its length is not.
        self.lengths().remove(&number);
        self.place.backing.write(&self.key(number), package)?;
        self.lengths().insert(number, package.len() as u64);
        Ok(())
    }

    /// Reads a package in one request, in place of what `into` holds; what it holds after a failure is unspecified.
    /// Nothing is checked but the length: that is for [`Package::parse`](super::Package::parse). One that was neither
    /// written nor scanned here is read whatever its length, without the wrappers that `storage_options` ask for.
    pub fn read(&self, number: u32, into: &mut Vec<u8>) -> std::result::Result<(), ReadError> {
        let key = self.key(number);
        let known = self.lengths().get(&number).and_then(|length| usize::try_from(*length).ok());
        let Some(length) = known else { return self.place.backing.whole(&key, into) };
        into.resize(length, 0);
        self.place.reads.read(Location { key: &key, offset: 0, version: UNKNOWN, whole: true }, into)
    }

    /// The length of a package that was written or scanned.
    pub fn length(&self, number: u32) -> Option<u64> {
        self.lengths().get(&number).copied()
    }

    /// Removes a package; one that is gone is no error.
    pub fn remove(&self, number: u32) -> std::result::Result<(), WriteError> {
        self.lengths().remove(&number);
        self.place.backing.remove(&self.key(number)).map(|_| ())
    }

    /// Removes packages that are of no use any more, if what lies under their names now is certainly ours: a stranger's
    /// file and a package of another version stay. One that is gone is no error.
    pub fn discard(&self, numbers: &[u32]) -> Result<Swept> {
        let stored = self.place.backing.list(&self.directory)?;
        let named =
            |stored: &Stored| matches!(stored.name, Name::Package(number) if numbers.contains(&number));
        let stored: Vec<Stored> = stored.into_iter().filter(named).collect();
        let scan = self.place.scan_for(&stored, Some(&self.dataset), &mut |_| {})?;
        let damaged = scan.damaged.iter().filter(|damaged| damaged.damage.removable());
        let useless = scan.packages.iter().map(|found| &found.stored);
        let swept = self.take_away(useless.chain(damaged.map(|damaged| &damaged.stored)))?;
        let mut lengths = self.lengths();
        numbers.iter().for_each(|number| {
            lengths.remove(number);
        });
        Ok(swept)
    }

    /// What lies here: every index is read, several at a time, and nothing is removed. `progress` hears how many
    /// are done.
    pub fn scan(&self, progress: &mut dyn FnMut(u64)) -> Result<Scan> {
        let stored = self.place.backing.list(&self.directory)?;
        let mut scan = self.place.scan_for(&stored, Some(&self.dataset), progress)?;
        // Keys are sorted as text, which beyond eight digits is another order.
        scan.packages.sort_unstable_by_key(|found| found.number);
        let found = scan.packages.iter().map(|found| (found.number, found.index.length()));
        *self.lengths() = found.collect();
        for damaged in &scan.damaged {
            let (key, damage) = (damaged.stored.key.as_str(), damaged.damage);
            tracing::warn!(place = self.place(), key, %damage, "a package is left out");
        }
        Ok(scan)
    }

    /// Removes what writers left behind and what is damaged, if it is certainly ours.
    pub fn sweep(&self) -> Result<Swept> {
        let scan = self.scan(&mut |_| {})?;
        let damaged = scan.damaged.iter().filter(|damaged| damaged.damage.removable());
        self.take_away(scan.leftovers.iter().chain(damaged.map(|damaged| &damaged.stored)))
    }

    fn take_away<'a>(&self, stored: impl Iterator<Item = &'a Stored>) -> Result<Swept> {
        let mut swept = Swept::default();
        for stored in stored {
            if self.place.remove(stored)? {
                swept.count(stored);
            }
        }
        Ok(swept)
    }

    /// Removes every package of this owner and what writers left behind; nothing that is not named as ours or does
    /// not begin as a package does.
    pub fn drop_all(&self) -> Result<Swept> {
        let stored = self.place.backing.list(&self.directory)?;
        self.lengths().clear();
        self.place.clear(&stored)
    }

    fn key(&self, number: u32) -> String {
        format!("{}/{}", self.directory, file(number))
    }

    fn lengths(&self) -> MutexGuard<'_, BTreeMap<u32, u64>> {
        self.lengths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
