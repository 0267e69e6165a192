//! A package, byte for byte. All numbers are little-endian.
//!
//! | at | bytes | what |
//! | --- | --- | --- |
//! | 0 | 8 | `HOTSETPK` |
//! | 8 | 4 | format, 1 |
//! | 12 | 4 | the package's number |
//! | 16 | 32 | BLAKE3 of the dataset's identity |
//! | 48 | 4 | how many samples there are |
//! | 52 | 4 | bytes of the index: 24 for each sample |
//! | 56 | 8 | bytes of the whole package |
//! | 64 | 8 | XXH3-64 of the 64 bytes before and of the index |
//! | 72 | | the index, for each sample: id (4), length (4), offset in the package (8), XXH3-64 of its bytes (8) |
//! | | | the samples, one behind the other, in the order of the index |
//!
//! The head says how long the index is, so that an index can be read without the samples. Nothing in it is believed
//! before the checksum holds but that length, which is bounded, and nothing is allocated for bytes that are not there.
//! Samples must follow one another without gap or overlap: then every byte belongs to one checksum.

use hotset_core::Id;
use twox_hash::XxHash3_64;

use super::damage::{Damage, Foreign, Part};
use crate::binary::{Garbled, Reader};

/// What a package begins with.
pub(super) const MAGIC: &[u8; 8] = b"HOTSETPK";
/// The one format there is.
pub(super) const FORMAT: u32 = 1;
/// What lies before the checksum of head and index.
pub(super) const SUMMED: usize = 64;
/// What lies before the index.
pub(super) const HEAD: usize = SUMMED + 8;
/// What one sample takes in the index.
pub(super) const ENTRY: usize = 24;

/// The most samples of a package: an index is at most 24 MiB.
pub const MOST_SAMPLES: usize = 1 << 20;
/// The most bytes of a package.
pub const LONGEST: u64 = 1 << 30;

/// Names a dataset in packages.
pub(super) fn hash(identity: &str) -> [u8; 32] {
    *blake3::hash(identity.as_bytes()).as_bytes()
}

pub(super) fn checksum(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// The checksum of a head and the index behind it.
pub(super) fn checksum_of_both(head: &[u8], index: &[u8]) -> u64 {
    use std::hash::Hasher;
    let mut hasher = XxHash3_64::new();
    hasher.write(head);
    hasher.write(index);
    hasher.finish()
}

/// Where one sample lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: Id,
    pub(super) length: u32,
    pub(super) offset: u64,
    pub(super) checksum: u64,
}

/// The head, unpacked and not yet believed.
struct Head {
    number: u32,
    dataset: [u8; 32],
    count: usize,
    length: u64,
    checksum: u64,
}

impl Head {
    fn read(bytes: &[u8]) -> Result<Self, Damage> {
        let begin = bytes.len().min(MAGIC.len());
        if bytes[..begin] != MAGIC[..begin] {
            return Err(Damage::Foreign(Foreign::Magic));
        }
        let found = bytes.len() as u64;
        let read = || -> Result<(u32, u32, Self), Garbled> {
            let mut reader = Reader(bytes);
            reader.take(MAGIC.len())?;
            let (format, number) = (reader.number()?, reader.number()?);
            let dataset = reader.take(32)?.try_into().map_err(|_| Garbled)?;
            let count = reader.number()? as usize;
            let index = reader.number()?;
            let (length, checksum) = (reader.long()?, reader.long()?);
            Ok((format, index, Self { number, dataset, count, length, checksum }))
        };
        let (format, index, head) = read().map_err(|_| Damage::Torn { expected: HEAD as u64, found })?;
        if format != FORMAT {
            return Err(Damage::Foreign(Foreign::Format(format)));
        }
        let sane = (1..=MOST_SAMPLES).contains(&head.count)
            && head.count * ENTRY == index as usize
            && (head.header_len()..=LONGEST).contains(&head.length);
        if sane { Ok(head) } else { Err(Damage::Flipped(Part::Index)) }
    }

    /// Bytes before the first sample.
    fn header_len(&self) -> u64 {
        (HEAD + self.count * ENTRY) as u64
    }
}

/// How many bytes of a package [`Index::parse`] needs, from its first 72 or more.
pub fn header_len(first: &[u8]) -> Result<u64, Damage> {
    Head::read(first).map(|head| head.header_len())
}

/// What lies in a package, without the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    number: u32,
    dataset: [u8; 32],
    length: u64,
    entries: Vec<Entry>,
    /// Positions in `entries`, by rising id.
    by_id: Vec<u32>,
}

impl Index {
    /// The index in the first [`header_len`] bytes of a package, or in more of them.
    pub fn parse(prefix: &[u8]) -> Result<Self, Damage> {
        let head = Head::read(prefix)?;
        let expected = head.header_len();
        let torn = Damage::Torn { expected, found: prefix.len() as u64 };
        let index = prefix.get(HEAD..expected as usize).ok_or(torn)?;
        let flipped = Damage::Flipped(Part::Index);
        if checksum_of_both(&prefix[..SUMMED], index) != head.checksum {
            return Err(flipped);
        }
        let mut entries = Vec::with_capacity(head.count);
        let mut reader = Reader(index);
        let mut end = expected;
        for _ in 0..head.count {
            let entry = entry(&mut reader).map_err(|_| flipped)?;
            if entry.offset != end {
                return Err(flipped);
            }
            end += u64::from(entry.length);
            entries.push(entry);
        }
        let by_id = by_id(&entries).ok_or(flipped)?;
        if end != head.length {
            return Err(flipped);
        }
        Ok(Self { number: head.number, dataset: head.dataset, length: head.length, entries, by_id })
    }

    /// Refuses a package of another dataset or number.
    pub fn belongs(&self, identity: &str, number: u32) -> Result<(), Damage> {
        self.is(&hash(identity), number)
    }

    pub(super) fn is(&self, dataset: &[u8; 32], number: u32) -> Result<(), Damage> {
        if self.dataset != *dataset {
            return Err(Damage::Foreign(Foreign::Dataset));
        }
        if self.number != number {
            return Err(Damage::Foreign(Foreign::Number(self.number)));
        }
        Ok(())
    }

    /// The package's number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The BLAKE3 of the identity of the dataset it was made of.
    pub fn dataset(&self) -> &[u8; 32] {
        &self.dataset
    }

    /// Bytes of the whole package.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// How many samples there are; at least one.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Ids in the order in which they lie there.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = Id> + '_ {
        self.entries.iter().map(|entry| entry.id)
    }

    /// Id, offset in the package and length of every sample, in the order in which they lie there.
    pub fn spans(&self) -> impl ExactSizeIterator<Item = (Id, u64, u32)> + '_ {
        self.entries.iter().map(|entry| (entry.id, entry.offset, entry.length))
    }

    fn entry(&self, id: Id) -> Option<&Entry> {
        position(&self.entries, &self.by_id, id).map(|position| &self.entries[position])
    }
}

/// A whole package.
#[derive(Debug, Clone)]
pub struct Package<'a> {
    index: Index,
    bytes: &'a [u8],
}

impl<'a> Package<'a> {
    /// The package that `bytes` are, if it is whole and the one of this dataset and number. Checks everything but the
    /// checksums of samples, which [`sample`](Self::sample) does.
    pub fn parse(bytes: &'a [u8], identity: &str, number: u32) -> Result<Self, Damage> {
        let package = Self::parse_any(bytes)?;
        package.index.belongs(identity, number)?;
        Ok(package)
    }

    /// The same, of whatever dataset and number.
    pub fn parse_any(bytes: &'a [u8]) -> Result<Self, Damage> {
        let index = Index::parse(bytes)?;
        let found = bytes.len() as u64;
        if found == index.length {
            Ok(Self { index, bytes })
        } else {
            Err(Damage::Torn { expected: index.length, found })
        }
    }

    /// What lies in it.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Ids in the order in which they lie there.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = Id> + '_ {
        self.index.ids()
    }

    /// The bytes of a sample that lies here, if they are those that were packed.
    pub fn sample(&self, id: Id) -> Option<Result<&'a [u8], Damage>> {
        self.index.entry(id).map(|entry| self.verified(entry))
    }

    /// Every sample, in the order in which they lie there.
    pub fn samples(&self) -> impl Iterator<Item = (Id, Result<&'a [u8], Damage>)> + '_ {
        self.index.entries.iter().map(|entry| (entry.id, self.verified(entry)))
    }

    fn verified(&self, entry: &Entry) -> Result<&'a [u8], Damage> {
        let flipped = Damage::Flipped(Part::Sample(entry.id));
        let begin = usize::try_from(entry.offset).map_err(|_| flipped)?;
        let sample = self.bytes.get(begin..).and_then(|rest| rest.get(..entry.length as usize));
        sample.filter(|sample| checksum(sample) == entry.checksum).ok_or(flipped)
    }
}

fn entry(reader: &mut Reader<'_>) -> Result<Entry, Garbled> {
    let (id, length) = (reader.number()?, reader.number()?);
    Ok(Entry { id, length, offset: reader.long()?, checksum: reader.long()? })
}

/// Positions of entries by rising id; `None` if an id is there twice.
pub(super) fn by_id(entries: &[Entry]) -> Option<Vec<u32>> {
    let mut order: Vec<u32> = (0..entries.len() as u32).collect();
    order.sort_unstable_by_key(|&position| entries[position as usize].id);
    let id = |position: u32| entries[position as usize].id;
    order.is_sorted_by(|&a, &b| id(a) < id(b)).then_some(order)
}

/// The position of `id` in `entries`.
pub(super) fn position(entries: &[Entry], by_id: &[u32], id: Id) -> Option<usize> {
    let found = by_id.binary_search_by_key(&id, |&position| entries[position as usize].id).ok()?;
    Some(by_id[found] as usize)
}
