//! A package being made.
//!
//! The order and the sizes are settled first, so that every sample has its place and may come when it comes: from
//! memory, as it passes through for training, or from a read of its own.

use hotset_core::{Error, Id};

use super::format::{
    ENTRY, Entry, FORMAT, HEAD, LONGEST, MAGIC, MOST_SAMPLES, SUMMED, by_id, checksum, checksum_of_both,
    hash, position,
};

/// Why something does not fit a draft.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// A package of nothing.
    #[error("a package needs a sample")]
    Empty,
    /// An id that was given twice.
    #[error("a sample was given twice to one package")]
    Twice,
    /// More samples or bytes than a package may have.
    #[error("`{samples}` samples of `{bytes}` bytes are too much for one package")]
    TooLarge {
        /// Samples given.
        samples: usize,
        /// Their bytes.
        bytes: u64,
    },
    /// A sample that has no place in this package.
    #[error("sample `{0}` has no place in this package")]
    Stranger(Id),
    /// A sample of another size than was said.
    #[error("sample `{id}` has `{found}` bytes, and `{expected}` were said")]
    Size {
        /// The sample.
        id: Id,
        /// The size that was said.
        expected: u32,
        /// The bytes it has.
        found: usize,
    },
    /// Samples are missing.
    #[error("`{0}` samples are missing")]
    Missing(usize),
}

impl From<Misfit> for Error {
    fn from(misfit: Misfit) -> Self {
        Self::internal(format!("a package cannot be made: {misfit}"))
    }
}

/// A package that waits for its samples.
#[derive(Debug)]
pub struct Draft {
    /// The whole package; head and index are filled in last.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    by_id: Vec<u32>,
    /// Whether a sample has come, by its position.
    placed: Vec<bool>,
    missing: usize,
}

impl Draft {
    /// Lays out package `number` of the dataset `identity`: these samples, with their sizes, in this order.
    pub fn new(identity: &str, number: u32, samples: &[(Id, u64)]) -> Result<Self, Misfit> {
        let bytes = samples.iter().fold(0u64, |sum, (_, size)| sum.saturating_add(*size));
        let too_large = Misfit::TooLarge { samples: samples.len(), bytes };
        if samples.is_empty() {
            return Err(Misfit::Empty);
        }
        if samples.len() > MOST_SAMPLES {
            return Err(too_large);
        }
        let index = samples.len() * ENTRY;
        let begin = (HEAD + index) as u64;
        let length = begin.saturating_add(bytes);
        if length > LONGEST {
            return Err(too_large);
        }
        let mut offset = begin;
        let mut entries = Vec::with_capacity(samples.len());
        for &(id, size) in samples {
            let length = u32::try_from(size).map_err(|_| too_large)?;
            entries.push(Entry { id, length, offset, checksum: 0 });
            offset += size;
        }
        let by_id = by_id(&entries).ok_or(Misfit::Twice)?;
        let mut bytes = Vec::with_capacity(length as usize);
        bytes.extend(MAGIC);
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend(number.to_le_bytes());
        bytes.extend(hash(identity));
        bytes.extend((samples.len() as u32).to_le_bytes());
        bytes.extend((index as u32).to_le_bytes());
        bytes.extend(length.to_le_bytes());
        bytes.resize(length as usize, 0);
        let (placed, missing) = (vec![false; entries.len()], entries.len());
        Ok(Self { bytes, entries, by_id, placed, missing })
    }

    /// Puts a sample into its place; whether that was the last. One that is there already stays as it is.
    pub fn put(&mut self, id: Id, sample: &[u8]) -> Result<bool, Misfit> {
        let position = position(&self.entries, &self.by_id, id).ok_or(Misfit::Stranger(id))?;
        let entry = &mut self.entries[position];
        if sample.len() != entry.length as usize {
            return Err(Misfit::Size { id, expected: entry.length, found: sample.len() });
        }
        if !self.placed[position] {
            let begin = entry.offset as usize;
            self.bytes[begin..begin + sample.len()].copy_from_slice(sample);
            entry.checksum = checksum(sample);
            self.placed[position] = true;
            self.missing -= 1;
        }
        Ok(self.missing == 0)
    }

    /// Bytes of the whole package.
    pub fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether a sample of it has not come.
    pub fn lacks(&self, id: Id) -> bool {
        position(&self.entries, &self.by_id, id).is_some_and(|position| !self.placed[position])
    }

    /// Those that have not come, in the order of the package.
    pub fn missing(&self) -> impl Iterator<Item = Id> + '_ {
        let waiting = self.entries.iter().zip(&self.placed).filter(|(_, placed)| !**placed);
        waiting.map(|(entry, _)| entry.id)
    }

    /// The package, once every sample has come.
    pub fn finish(mut self) -> Result<Vec<u8>, Misfit> {
        if self.missing > 0 {
            return Err(Misfit::Missing(self.missing));
        }
        let (head, rest) = self.bytes.split_at_mut(HEAD);
        let (index, _) = rest.split_at_mut(self.entries.len() * ENTRY);
        for (entry, place) in self.entries.iter().zip(index.chunks_exact_mut(ENTRY)) {
            place[..4].copy_from_slice(&entry.id.to_le_bytes());
            place[4..8].copy_from_slice(&entry.length.to_le_bytes());
            place[8..16].copy_from_slice(&entry.offset.to_le_bytes());
            place[16..].copy_from_slice(&entry.checksum.to_le_bytes());
        }
        let sum = checksum_of_both(&head[..SUMMED], index);
        head[SUMMED..].copy_from_slice(&sum.to_le_bytes());
        Ok(self.bytes)
    }
}
