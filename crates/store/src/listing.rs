//! Listings kept on disk, so that a dataset listed once opens at once.
//!
//! A file of our own: magic, format, what was asked, where the answer comes from ([`Origin`]), the catalog, and
//! a BLAKE3 of all before it. It is written beside its name and renamed, so it is whole or absent, and read
//! only if it is whole and answers the same key. It is then trusted if its origin has not changed:
//!
//! - directories by their [`Stamp`]s, and every file in them by its length and version (`unchanged`),
//! - shards and manifests by their lengths and versions, and the local files of a manifest as above,
//! - the keys of an object store, which has no directories to look at, for a time that the user sets.
//!
//! What that leaves unseen, an object written in place, is found when it is read, and the listing
//! [forgotten](ListingFile::forget).
//!
//! A directory that changed less than two seconds before its listing began could change again within the
//! same tick of its file system's clock, so such a listing is not kept. The next one will be.

mod format;

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use blake3::Hasher;
use hotset_core::Result;

use crate::catalog::{Catalog, hex};
use crate::directory::Stamp;
use crate::listing::format::Unusable;
use crate::regular;
use crate::store::ObjectVersion;

/// The coarsest clock a file system in use keeps (FAT, some network file systems).
const RACY: Duration = Duration::from_secs(2);

/// A directory that was read for a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedDirectory {
    /// Below the root; the root's own is empty.
    pub(crate) path: String,
    pub(crate) stamp: Stamp,
}

/// An object that was read for a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) key: String,
    pub(crate) look: ObjectVersion,
}

/// What a listing was made from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) directories: Vec<ListedDirectory>,
    pub(crate) objects: Vec<Object>,
    /// When an object store was listed, in seconds since 1970; 0 if none was.
    pub(crate) listed: u64,
}

impl Origin {
    /// Whether every directory is as it was.
    pub(crate) fn directories_hold(&self, root: &Path) -> bool {
        self.directories.iter().all(|seen| {
            let now = fs::metadata(root.join(&seen.path)).ok().filter(fs::Metadata::is_dir);
            let holds = now.map(|metadata| Stamp::of(&metadata)) == Some(seen.stamp);
            if !holds {
                tracing::debug!(root = %root.display(), directory = seen.path, "a directory changed");
            }
            holds
        })
    }
}

/// A catalog and what it was made from.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) catalog: Catalog,
    pub(crate) origin: Origin,
}

/// What is asked: the place, the layout, and what else tells one catalog from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListingKey {
    pub(crate) place: String,
    pub(crate) layout: &'static str,
    pub(crate) details: Vec<String>,
}

/// The file that keeps the answer to one key.
pub(crate) struct ListingFile {
    key: ListingKey,
    file: PathBuf,
}

impl ListingFile {
    /// The file in the directory `listings`, named by what was asked.
    pub(crate) fn new(listings: &Path, key: ListingKey) -> Self {
        let name = hex(Hasher::new().update(&key.bytes()));
        Self { key, file: listings.join(name + ".listing") }
    }

    /// The listing kept here, if it is whole and still `holds`.
    pub(crate) fn load(&self, holds: impl FnOnce(&Listing) -> bool) -> Option<Catalog> {
        let read = regular::read(&self.file).map_err(Unusable::from);
        match read.and_then(|bytes| self.decode(&bytes)) {
            Ok(listing) => holds(&listing).then_some(listing.catalog),
            Err(Unusable::Unreadable(error)) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(file = %self.file.display(), %error, "a kept listing is replaced");
                None
            }
        }
    }

    /// Keeps a listing that began at `began`. One that cannot be kept is listed anew next time: no error.
    pub(crate) fn save(&self, listing: &Listing, began: SystemTime) {
        if racy(&listing.origin.directories, began) {
            tracing::debug!(place = self.key.place, "too fresh to keep the listing");
            self.forget();
        } else if let Err(error) = self.write(listing) {
            tracing::warn!(file = %self.file.display(), %error, "the listing could not be kept");
        }
    }

    /// Drops what is kept here.
    pub(crate) fn forget(&self) {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(file = %self.file.display(), %error, "a kept listing could not be dropped");
            }
            _ => {}
        }
    }

    fn write(&self, listing: &Listing) -> io::Result<()> {
        let folder = self.file.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        let hashed = Hashed { to: file.as_file_mut(), hasher: Hasher::new() };
        let mut buffered = BufWriter::with_capacity(1 << 16, hashed);
        self.encode(listing, &mut buffered)?;
        let hashed = buffered.into_inner().map_err(io::IntoInnerError::into_error)?;
        hashed.to.write_all(hashed.hasher.finalize().as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(&self.file)?;
        Ok(())
    }
}

/// The catalog kept in `file`, if it still `holds`, else a new one, which is kept; whether it was kept.
pub(crate) fn kept_or(
    file: Option<ListingFile>,
    holds: impl FnOnce(&Listing, &mut dyn FnMut(u64) -> Result<()>) -> bool,
    progress: &mut dyn FnMut(u64) -> Result<()>,
    list: impl FnOnce(&mut dyn FnMut(u64) -> Result<()>) -> Result<Listing>,
) -> Result<(Catalog, bool)> {
    if let Some(catalog) = file.as_ref().and_then(|file| file.load(|listing| holds(listing, progress))) {
        progress(catalog.len() as u64)?;
        return Ok((catalog, true));
    }
    let began = SystemTime::now();
    let listing = list(progress)?;
    if let Some(file) = file {
        file.save(&listing, began);
    }
    Ok((listing.catalog, false))
}

/// Seconds since 1970.
pub(crate) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Whether a directory could have changed again without a new stamp.
fn racy(directories: &[ListedDirectory], began: SystemTime) -> bool {
    let began = began.checked_sub(RACY).and_then(|trusted| trusted.duration_since(UNIX_EPOCH).ok());
    let trusted = began.and_then(|since| i64::try_from(since.as_nanos()).ok()).unwrap_or(i64::MIN);
    directories.iter().any(|seen| seen.stamp.modified >= trusted)
}

/// Hashes what passes through.
struct Hashed<W> {
    to: W,
    hasher: Hasher,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests;
