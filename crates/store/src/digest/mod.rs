//! Digests: the BLAKE3 of every sample of a place, kept in a file of the user's own.
//!
//! A hash is kept under what names a sample's bytes: its key, where it lies in its object, its length and the version that
//! was listed. A sample that was written since has another name, and so no hash; what it was before is forgotten when the
//! place is hashed again. One whose store tells no versions has none either: nothing would show that it changed. The file of
//! a place holds what was hashed so far, so one that was broken off is gone on with. It is written beside its name and
//! renamed, ends with a BLAKE3 of itself, and is for its user alone: who knows the hash of something may ask a shared cache
//! for it.

mod compute;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use blake3::Hasher;
use hotset_core::{Error, Id, Result};

pub use compute::{Failed, Outcome, digest};

use crate::binary::{Garbled, Reader, Writer};
use crate::catalog::{Catalog, hex};
use crate::regular;
use crate::store::UNKNOWN;

pub use hotset_core::contents::Hash;

/// Names bytes: half of it where they were found, half of it their length and version there.
type Name = [u8; 16];

const MAGIC: &[u8; 16] = b"hotset digest 2\n";

/// The hashes that are known of a place.
#[derive(Debug)]
pub struct Digest {
    place: String,
    file: PathBuf,
    hashes: HashMap<Name, Hash>,
}

/// The hashes of a catalog's samples, by id.
#[derive(Debug)]
pub struct Hashes(Vec<Option<Hash>>);

impl Hashes {
    /// These, by id.
    pub fn new(hashes: Vec<Option<Hash>>) -> Self {
        Self(hashes)
    }

    /// The hash of a sample, if it is known.
    pub fn get(&self, id: Id) -> Option<&Hash> {
        self.0.get(id as usize)?.as_ref()
    }

    /// The hash of a sample, if these bytes have it.
    pub fn proven(&self, id: Id, bytes: &[u8]) -> Option<&Hash> {
        self.get(id).filter(|hash| blake3::hash(bytes).as_bytes() == *hash)
    }

    /// How many samples have one.
    pub fn known(&self) -> usize {
        self.0.iter().flatten().count()
    }
}

impl Digest {
    /// What is kept in the directory `digests` of a place; nothing if nothing is, or if it is not whole.
    pub fn open(digests: &Path, place: &str) -> Self {
        let file = digests.join(hex(Hasher::new().update(place.as_bytes())) + ".digest");
        let mut digest = Self { place: place.to_owned(), file, hashes: HashMap::new() };
        match regular::read(&digest.file) {
            Ok(bytes) => match decode(&bytes, place) {
                Ok(hashes) => digest.hashes = hashes,
                Err(Garbled) => {
                    tracing::warn!(file = %digest.file.display(), "a digest is not whole and is not used");
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(file = %digest.file.display(), %error, "a digest cannot be read");
            }
        }
        digest
    }

    /// Where it is kept.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The hash of a sample as it was listed, if it is known.
    pub fn get(&self, catalog: &Catalog, id: Id) -> Option<&Hash> {
        self.hashes.get(&name(catalog, id)?)
    }

    /// The hashes of all samples of a catalog; `None` if none is known.
    pub fn of(&self, catalog: &Catalog) -> Option<Hashes> {
        if self.hashes.is_empty() {
            return None;
        }
        let hashes = Hashes((0..catalog.len() as Id).map(|id| self.get(catalog, id).copied()).collect());
        (hashes.known() > 0).then_some(hashes)
    }

    /// Forgets what samples of a catalog were before they were written to.
    fn forget_old(&mut self, catalog: &Catalog) {
        let current: HashSet<Name> = (0..catalog.len() as Id).filter_map(|id| name(catalog, id)).collect();
        let places: HashSet<&[u8]> = current.iter().map(place).collect();
        self.hashes.retain(|name, _| current.contains(name) || !places.contains(place(name)));
    }

    /// Writes down all that is known.
    pub fn save(&self) -> Result<()> {
        self.write().map_err(|error| {
            Error::invalid(format!(
                "the digest cannot be written to `{}`: {error}; set HOTSET_CACHE_DIR to a directory of your own",
                self.file.display()
            ))
        })
    }

    fn write(&self) -> io::Result<()> {
        let folder = self.file.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        let mut bytes = BufWriter::new(file.as_file_mut());
        bytes.write_all(&self.encode()?)?;
        bytes.flush()?;
        drop(bytes);
        file.as_file().sync_all()?;
        file.persist(&self.file)?;
        Ok(())
    }

    fn encode(&self) -> io::Result<Vec<u8>> {
        let mut names: Vec<&Name> = self.hashes.keys().collect();
        names.sort_unstable();
        let mut writer = Writer(MAGIC.to_vec());
        writer.text(&self.place)?;
        writer.long(names.len() as u64)?;
        for name in names {
            writer.0.extend_from_slice(name);
            writer.0.extend_from_slice(&self.hashes[name]);
        }
        let sum = blake3::hash(&writer.0);
        writer.0.extend_from_slice(sum.as_bytes());
        Ok(writer.0)
    }
}

fn decode(bytes: &[u8], place: &str) -> std::result::Result<HashMap<Name, Hash>, Garbled> {
    let (told, sum) = bytes.split_last_chunk::<32>().ok_or(Garbled)?;
    let mut reader = Reader(told);
    if reader.take(MAGIC.len())? != MAGIC || reader.text()? != place || blake3::hash(told) != *sum {
        return Err(Garbled);
    }
    let count = reader.long()?;
    let (pairs, rest) = reader.0.as_chunks::<48>();
    if pairs.len() as u64 != count || !rest.is_empty() {
        return Err(Garbled);
    }
    let pair = |pair: &[u8; 48]| {
        let (name, hash) = pair.split_first_chunk::<16>()?;
        Some((*name, hash.try_into().ok()?))
    };
    pairs.iter().map(|bytes| pair(bytes).ok_or(Garbled)).collect()
}

/// What names the bytes of a sample; `None` where nothing would show that they changed.
fn name(catalog: &Catalog, id: Id) -> Option<Name> {
    let (place, version) = catalog.with_location(id, |at| {
        let mut hasher = Hasher::new();
        hasher.update(at.key.as_bytes()).update(&[0, u8::from(at.whole)]).update(&at.offset.to_le_bytes());
        let place = hasher.finalize();
        hasher.update(&catalog.size(id).to_le_bytes()).update(&at.version.to_le_bytes());
        (at.version != UNKNOWN).then(|| (place, hasher.finalize()))
    })?;
    let half = |hash: blake3::Hash| hash.as_bytes().first_chunk::<8>().copied();
    [half(place)?, half(version)?].concat().try_into().ok()
}

/// Where the bytes of a name were found.
fn place(name: &Name) -> &[u8] {
    &name[..8]
}

#[cfg(test)]
mod tests;
