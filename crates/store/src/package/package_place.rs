//! A whole place of packages: every owner's, of every dataset, for administration.
//!
//! The identities of datasets are not known here, only what names and heads say; that is enough to see what is whole. Whatever is not
//! named as ours is neither listed nor touched.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use hotset_core::{Error, Result};

use super::backing::{Backing, Opened, open};
use super::damage::{Damage, Foreign};
use super::format::{HEAD, Index, MAGIC, Package, header_len};
use super::name::{Name, Stored, directory};
use super::scan::{Damaged, Found, Scan, Swept};
use crate::parallel::{Wanted, in_parallel};
use crate::retries::with_retries;
use crate::store::{Location, ReadError, Store, UNKNOWN};

/// What is read of a package at first: the indexes of packages of a few mebibytes are shorter.
const FIRST: u64 = 64 << 10;

/// A place of packages.
pub struct PackagePlace {
    pub(super) place: String,
    pub(super) backing: Box<dyn Backing>,
    pub(super) reads: Arc<dyn Store>,
}

/// The packages of one owner, of one dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// 16 hex digits that stand for the dataset.
    pub dataset: String,
    /// 16 hex digits that stand for the owner.
    pub owner: String,
    /// Its packages and what writers left behind, by key.
    pub stored: Vec<Stored>,
}

impl Owner {
    /// How many packages there are.
    pub fn packages(&self) -> u64 {
        self.stored.iter().filter(|stored| stored.name != Name::Leftover).count() as u64
    }

    /// The bytes of everything.
    pub fn bytes(&self) -> u64 {
        self.stored.iter().map(|stored| stored.bytes).sum()
    }

    /// When something was last written.
    pub fn newest(&self) -> Option<SystemTime> {
        self.stored.iter().map(|stored| stored.modified).max()
    }
}

impl PackagePlace {
    /// The place `place`, which is a directory that exists or a prefix of an object store. Makes nothing.
    pub fn open(place: &str, storage_options: &BTreeMap<String, String>) -> Result<Self> {
        open(place, storage_options, false).map(Self::from)
    }

    /// Its canonical name.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Everything in it that is named as ours, owner by owner.
    pub fn owners(&self) -> Result<Vec<Owner>> {
        let mut owners: Vec<Owner> = Vec::new();
        for stored in self.backing.list("")? {
            let (dataset, owner) = (stored.dataset().to_owned(), stored.owner().to_owned());
            match owners.last_mut().filter(|last| last.dataset == dataset && last.owner == owner) {
                Some(last) => last.stored.push(stored),
                None => owners.push(Owner { dataset, owner, stored: vec![stored] }),
            }
        }
        Ok(owners)
    }

    /// Reads the indexes of `stored`, several at a time. `tell` hears how many are done.
    pub fn scan(&self, stored: &[Stored], tell: &mut dyn FnMut(u64)) -> Result<Scan> {
        self.scan_for(stored, None, tell)
    }

    /// The same; packages of another dataset than `expected` are foreign.
    pub(super) fn scan_for(
        &self,
        stored: &[Stored],
        expected: Option<&[u8; 32]>,
        tell: &mut dyn FnMut(u64),
    ) -> Result<Scan> {
        let mut scan = Scan::default();
        let work = |at: usize, _: &Wanted| self.index(&stored[at]);
        let take = |at: usize, outcome: Option<std::result::Result<Index, Damage>>| {
            let stored = stored[at].clone();
            match (stored.name, outcome) {
                (Name::Leftover, _) => scan.leftovers.push(stored),
                (_, None) => {}
                (Name::Package(number), Some(read)) => {
                    let read = read.and_then(|index| {
                        belongs(&index, &stored, number)?;
                        expected.map_or(Ok(()), |expected| index.is(expected, number))?;
                        Ok(index)
                    });
                    match read {
                        Ok(index) => scan.packages.push(Found { number, stored, index }),
                        Err(damage) => scan.damaged.push(Damaged { stored, damage }),
                    }
                }
            }
            tell(at as u64 + 1);
            Ok(())
        };
        in_parallel(stored.len(), &work, take, &mut || Ok(()))?;
        Ok(scan)
    }

    /// Reads all of `stored`, several at a time, and checks every checksum. `tell` hears of each, in order, what is
    /// wrong with it: nothing, one damage of the whole, or one of each sample that is not what was packed.
    pub fn verify(&self, stored: &[Stored], tell: &mut dyn FnMut(&Stored, &[Damage])) -> Result<()> {
        let work = |at: usize, _: &Wanted| self.check(&stored[at]);
        let take = |at: usize, damages: Vec<Damage>| {
            tell(&stored[at], &damages);
            Ok(())
        };
        in_parallel(stored.len(), &work, take, &mut || Ok(()))
    }

    /// Reads the file or object `name`, which lies directly in this place and need not be named as ours.
    pub fn read(&self, name: &str) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let done = with_retries(name, || match self.backing.whole(name, &mut bytes) {
            Err(ReadError::Vanished) => Ok(false),
            done => done.map(|()| true),
        })?;
        if done {
            Ok(bytes)
        } else {
            Err(Error::invalid(format!("there is no `{name}` in `{}`", self.place)))
        }
    }

    /// Whether `stored` may be removed: it was left behind by a writer, or begins as a package does.
    pub fn ours(&self, stored: &Stored) -> Result<bool> {
        if stored.name == Name::Leftover {
            return Ok(true);
        }
        let begin = self.first(stored, MAGIC.len() as u64)?;
        // A package cut off before its eighth byte is still ours; an empty one cannot be told from one.
        Ok(begin.is_some_and(|begin| MAGIC.starts_with(&begin)))
    }

    /// Removes `stored` if it is [ours](Self::ours); whether it was removed.
    pub fn remove(&self, stored: &Stored) -> Result<bool> {
        if stored.name != Name::Leftover {
            // Another process may have removed it meanwhile.
            let Some(begin) = self.first(stored, MAGIC.len() as u64)? else { return Ok(false) };
            if !MAGIC.starts_with(&begin) {
                tracing::warn!(key = stored.key, "left alone: it is named as a package and is none");
                return Ok(false);
            }
        }
        Ok(self.backing.remove(&stored.key)?)
    }

    /// Removes those of `stored` that are ours, and the directories that are empty then.
    pub fn clear<'a>(&self, stored: impl IntoIterator<Item = &'a Stored>) -> Result<Swept> {
        let mut swept = Swept::default();
        let mut directories: Vec<String> = Vec::new();
        for one in stored {
            if self.remove(one)? {
                swept.count(one);
            }
            let directory = format!("{}/{}", one.dataset(), one.owner());
            if directories.last() != Some(&directory) {
                directories.push(directory);
            }
        }
        directories.iter().for_each(|directory| self.backing.tidy(directory));
        Ok(swept)
    }

    /// The index of one package; `None` if it is gone since it was listed.
    fn index(&self, stored: &Stored) -> Result<Option<std::result::Result<Index, Damage>>> {
        if stored.name == Name::Leftover {
            return Ok(None);
        }
        let Some(mut bytes) = self.first(stored, FIRST)? else { return Ok(None) };
        let needed = match header_len(&bytes) {
            Ok(needed) => needed,
            Err(damage) => return Ok(Some(Err(whole(damage, stored)))),
        };
        if needed > bytes.len() as u64 && needed <= stored.bytes {
            let Some(more) = self.first(stored, needed)? else { return Ok(None) };
            bytes = more;
        }
        Ok(Some(Index::parse(&bytes).map_err(|damage| whole(damage, stored))))
    }

    /// Everything that is wrong with one package; nothing if it is gone.
    fn check(&self, stored: &Stored) -> Result<Vec<Damage>> {
        let Name::Package(number) = stored.name else { return Ok(Vec::new()) };
        // Whatever lies here under a package's name is not brought to memory before its head says that it is one.
        let Some(index) = self.index(stored)? else { return Ok(Vec::new()) };
        if let Err(damage) = index.and_then(|index| belongs(&index, stored, number)) {
            return Ok(vec![damage]);
        }
        let Some(bytes) = self.first(stored, stored.bytes)? else { return Ok(Vec::new()) };
        let checked = Package::parse_any(&bytes).and_then(|package| {
            belongs(package.index(), stored, number)?;
            Ok(package.samples().filter_map(|(_, sample)| sample.err()).collect())
        });
        Ok(checked.unwrap_or_else(|damage| vec![damage]))
    }

    /// The first `count` bytes, or as many as there are; `None` if it is not what was listed any more.
    fn first(&self, stored: &Stored, count: u64) -> Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; stored.bytes.min(count) as usize];
        let at = Location { key: &stored.key, offset: 0, version: UNKNOWN, whole: false };
        let read = with_retries(&stored.key, || match self.reads.read(at, &mut bytes) {
            Err(
                ReadError::Vanished
                | ReadError::Short { .. }
                | ReadError::Resized { .. }
                | ReadError::Modified,
            ) => Ok(false),
            done => done.map(|()| true),
        })?;
        Ok(read.then_some(bytes))
    }
}

impl From<Opened> for PackagePlace {
    fn from(opened: Opened) -> Self {
        Self { place: opened.place, backing: opened.backing, reads: opened.reads }
    }
}

/// A package whose prefix ends early is torn where the package ends.
fn whole(damage: Damage, stored: &Stored) -> Damage {
    match damage {
        Damage::Torn { expected, .. } => Damage::Torn { expected, found: stored.bytes },
        other => other,
    }
}

/// Whether a package lies where its head says, and is as long.
fn belongs(index: &Index, stored: &Stored, number: u32) -> std::result::Result<(), Damage> {
    if directory(index.dataset()) != stored.dataset() {
        return Err(Damage::Foreign(Foreign::Dataset));
    }
    index.is(index.dataset(), number)?;
    if index.length() != stored.bytes {
        return Err(Damage::Torn { expected: index.length(), found: stored.bytes });
    }
    Ok(())
}

const _: () = assert!(FIRST > HEAD as u64);
