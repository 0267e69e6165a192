//! Listings kept on disk, so that a dataset listed once opens at once.
//!
//! A file of our own: magic, format, what was asked, every directory with its [`Stamp`], the catalog, and a
//! BLAKE3 of all before it. It is written beside its name and renamed, so it is whole or absent, and read
//! only if it is whole and answers the same question. It is then trusted if every directory still has its
//! stamp; files are not looked at: one that was written in place is found when it is read, and the listing
//! [forgotten](Slot::forget).
//!
//! A directory that changed less than two seconds before its listing began could change again within the
//! same tick of its file system's clock, so such a listing is not kept. The next one will be.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use blake3::Hasher;
use hotset_core::Error;

use crate::binary::{Garbled, Reader, Writer};
use crate::catalog::{Builder, Catalog, hex};
use crate::directory::Stamp;
use crate::layout::Selection;
use crate::place::Place;

const MAGIC: &[u8; 8] = b"hotsetls";
const FORMAT: u32 = 1;
const CHECKSUM: usize = blake3::OUT_LEN;

/// The coarsest clock a file system in use keeps (FAT, some network file systems).
const RACY: Duration = Duration::from_secs(2);

/// A directory that was read for a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Below the root; the root's own is empty.
    pub(crate) path: String,
    pub(crate) stamp: Stamp,
}

/// A catalog and the directories it was read from.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) catalog: Catalog,
    pub(crate) directories: Vec<Seen>,
}

/// Why a kept listing is not used.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("it is not a listing of this version")]
    Foreign,
    #[error("its checksum is wrong")]
    Checksum,
    #[error("it answers another question")]
    Another,
    #[error("{0}")]
    Garbled(#[from] Garbled),
    #[error("{0}")]
    Refused(#[from] Error),
    #[error("{0}")]
    Unreadable(#[from] io::Error),
}

/// The file that keeps the listing of one place in one layout.
pub(crate) struct Slot<'a> {
    place: &'a Place,
    selection: &'a Selection,
    file: PathBuf,
}

impl<'a> Slot<'a> {
    /// The slot in the directory `listings`, named by what was asked.
    pub(crate) fn new(listings: &Path, place: &'a Place, selection: &'a Selection) -> Self {
        let mut question = Vec::new();
        // Writing into memory fails only on a path that is too long to be opened.
        let _ = ask(&mut Writer(&mut question), place, selection);
        let name = hex(Hasher::new().update(&question));
        Self { place, selection, file: listings.join(name + ".listing") }
    }

    /// The listing kept here, if it is whole and no directory changed since.
    pub(crate) fn load(&self) -> Option<Catalog> {
        let listing = match fs::read(&self.file).map_err(Unusable::from).and_then(|bytes| self.decode(&bytes))
        {
            Ok(listing) => listing,
            Err(Unusable::Unreadable(error)) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(file = %self.file.display(), %error, "a kept listing is replaced");
                return None;
            }
        };
        let root = self.place.path();
        for seen in &listing.directories {
            let now = fs::metadata(root.join(&seen.path)).ok().filter(fs::Metadata::is_dir);
            if now.map(|metadata| Stamp::of(&metadata)) != Some(seen.stamp) {
                tracing::debug!(place = self.place.as_str(), directory = seen.path, "a directory changed");
                return None;
            }
        }
        Some(listing.catalog)
    }

    /// Keeps a listing that began at `began`. One that cannot be kept is listed anew next time: no error.
    pub(crate) fn save(&self, listing: &Listing, began: SystemTime) {
        if racy(&listing.directories, began) {
            tracing::debug!(place = self.place.as_str(), "too fresh to keep the listing");
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

    fn encode(&self, listing: &Listing, to: &mut impl Write) -> io::Result<()> {
        to.write_all(MAGIC)?;
        let mut writer = Writer(to);
        writer.number(FORMAT)?;
        ask(&mut writer, self.place, self.selection)?;
        writer.count(listing.directories.len())?;
        for Seen { path, stamp } in &listing.directories {
            writer.text(path)?;
            writer.long(stamp.modified as u64)?;
            writer.long(stamp.changed as u64)?;
            writer.long(stamp.inode)?;
        }
        let catalog = &listing.catalog;
        writer.texts(catalog.classes())?;
        writer.count(catalog.directories().len())?;
        catalog.directories().try_for_each(|path| writer.text(path))?;
        writer.count(catalog.runs().len())?;
        for (directory, label, ids) in catalog.runs() {
            writer.number(directory)?;
            writer.long(label.map_or(u64::MAX, u64::from))?;
            writer.count(ids.len())?;
            for id in ids {
                writer.text(catalog.name(id))?;
                writer.long(catalog.size(id))?;
                writer.number(catalog.version(id))?;
            }
        }
        Ok(())
    }

    fn decode(&self, bytes: &[u8]) -> Result<Listing, Unusable> {
        let whole = bytes.strip_prefix(MAGIC).ok_or(Unusable::Foreign)?;
        let (body, checksum) = whole.split_last_chunk::<CHECKSUM>().ok_or(Garbled)?;
        if blake3::hash(&bytes[..bytes.len() - CHECKSUM]) != blake3::Hash::from_bytes(*checksum) {
            return Err(Unusable::Checksum);
        }
        self.decode_body(body)
    }

    fn decode_body(&self, body: &[u8]) -> Result<Listing, Unusable> {
        let mut reader = Reader(body);
        if reader.number()? != FORMAT {
            return Err(Unusable::Foreign);
        }
        let mut question = Vec::new();
        ask(&mut Writer(&mut question), self.place, self.selection)?;
        if reader.take(question.len())? != question {
            return Err(Unusable::Another);
        }
        let mut directories = Vec::new();
        for _ in 0..reader.number()? {
            let path = reader.text()?.to_owned();
            let (modified, changed) = (reader.long()? as i64, reader.long()? as i64);
            directories.push(Seen { path, stamp: Stamp { modified, changed, inode: reader.long()? } });
        }
        let mut builder = Builder::new(reader.texts()?);
        let mut folders = Vec::new();
        for _ in 0..reader.number()? {
            let path = reader.text()?;
            if !path.is_empty() && !path.split('/').all(is_name) {
                return Err(Garbled.into());
            }
            folders.push(builder.directory(path)?);
        }
        for _ in 0..reader.number()? {
            let folder = *folders.get(reader.number()? as usize).ok_or(Garbled)?;
            let label = match reader.long()? {
                u64::MAX => None,
                label => Some(u32::try_from(label).map_err(|_| Garbled)?),
            };
            for _ in 0..reader.number()? {
                let name = Some(reader.text()?).filter(|name| is_name(name)).ok_or(Garbled)?;
                builder.push(folder, name, reader.long()?, reader.number()?, label)?;
            }
        }
        if reader.0.is_empty() {
            Ok(Listing { catalog: builder.finish(), directories })
        } else {
            Err(Garbled.into())
        }
    }
}

/// What is asked: the place, the layout and the extensions.
fn ask<W: Write>(writer: &mut Writer<W>, place: &Place, selection: &Selection) -> io::Result<()> {
    writer.text(place.as_str())?;
    writer.text(selection.layout.name())?;
    writer.texts(&selection.extensions)
}

/// Whether `name` stays in its folder.
fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}

/// Whether a directory could have changed again without a new stamp.
fn racy(directories: &[Seen], began: SystemTime) -> bool {
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
