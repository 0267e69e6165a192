//! Packages in a directory.
//!
//! A package is written beside its name, brought to the disk and renamed, so that a reader finds it whole or not at
//! all, whenever the power fails. What is made here is for this user alone, and everything is reached by a [`GuardedPath`] on
//! which no other user can have put anything.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hotset_core::{Error, Result};
use rustix::fs::{Access, AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::backing::{Backing, shown};
use super::failure::WriteError;
use super::guarded_path::{Exposed, GuardedPath};
use super::name::{Stored, UNFINISHED, is_directory, unfinished};
use crate::files::{read_from, tell_io};
use crate::place::refuse;
use crate::store::{Location, ReadError, Store};

const NEW: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Tells unfinished files of this process apart.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// A directory of packages.
#[derive(Clone)]
pub(super) struct Folder {
    root: GuardedPath,
    /// Whether it was said that something in its path could be changed by another user.
    said: Arc<AtomicBool>,
}

impl Folder {
    /// The directory `root`. To `keep` packages there it is made if it is missing, and it must be one that no other
    /// user can change.
    pub(super) fn open(root: &Path, keep: bool) -> Result<Self> {
        let folder = Self { root: GuardedPath::new(root, keep), said: Arc::default() };
        if keep {
            make_directory(root).map_err(|error| folder.failed(&error))?;
        }
        match folder.root.directory("") {
            Ok(_) => Ok(folder),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(Error::invalid(format!(
                "`{}` is not a directory; give `packages=` a directory",
                shown(root)
            ))),
            Err(error) => Err(folder.refused("", &error)),
        }
    }

    fn failed(&self, error: &io::Error) -> WriteError {
        let place = shown(&self.root.path);
        match Exposed::of(error) {
            Some(exposed) => WriteError::Exposed { place, cause: exposed.to_string() },
            None => WriteError::of_file(&place, error),
        }
    }

    fn refused(&self, below: &str, error: &io::Error) -> Error {
        match Exposed::of(error) {
            Some(_) => self.failed(error).into(),
            None => refuse(&self.root.path.join(below), error),
        }
    }

    /// Why something cannot be read. What another user could change is as good as changed.
    fn told(&self, error: &io::Error) -> ReadError {
        let Some(exposed) = Exposed::of(error) else { return tell_io(error) };
        if !self.said.swap(true, Ordering::Relaxed) {
            tracing::warn!(place = %self.root.path.display(), why = %exposed, "packages are not read");
        }
        ReadError::Modified
    }

    fn write_file(&self, key: &str, bytes: &[u8]) -> io::Result<()> {
        let (below, name) = key.rsplit_once('/').unwrap_or(("", key));
        let directory = match self.root.directory(below) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_directory(&self.root.path)?;
                self.root.make(below)?
            }
            opened => opened?,
        };
        let (file, unfinished) = temporary(&directory, name)?;
        let written = write_all(file, bytes)
            .and_then(|()| Ok(rustix::fs::renameat(&directory, &unfinished, &directory, name)?));
        if written.is_err() {
            let _ = rustix::fs::unlinkat(&directory, &unfinished, AtFlags::empty());
        }
        // Without this the name may be lost with the power, and an old package come back.
        written.and_then(|()| Ok(rustix::fs::fsync(&directory)?))
    }

    /// Files of one owner.
    fn list_owner(&self, directory: &str, stored: &mut Vec<Stored>) -> io::Result<()> {
        self.each(directory, |name, found| {
            if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile {
                let key = format!("{directory}/{name}");
                stored.extend(Stored::new(&key, found.st_size as u64, modified(found)));
            }
        })
    }

    /// Directories below `directory` that are named as ours; no links.
    fn directories(&self, directory: &str) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        self.each(directory, |name, looked| {
            if is_directory(name) && FileType::from_raw_mode(looked.st_mode) == FileType::Directory {
                found.push(if directory.is_empty() {
                    name.to_owned()
                } else {
                    format!("{directory}/{name}")
                });
            }
        })?;
        Ok(found)
    }

    /// Shows `take` what lies in a directory; nothing if it is not there.
    fn each(&self, directory: &str, mut take: impl FnMut(&str, &Stat)) -> io::Result<()> {
        let directory = match self.root.directory(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) => take(name, &found),
                // Removed since the directory was read.
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn list_all(&self, directory: &str) -> io::Result<Vec<Stored>> {
        let mut stored = Vec::new();
        if directory.is_empty() {
            for dataset in self.directories("")? {
                for owner in self.directories(&dataset)? {
                    self.list_owner(&owner, &mut stored)?;
                }
            }
        } else {
            self.list_owner(directory, &mut stored)?;
        }
        stored.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(stored)
    }

    /// Removes what `below` names; whether there was something.
    fn unlink(&self, below: &str, flags: AtFlags) -> io::Result<bool> {
        let (above, name) = below.rsplit_once('/').unwrap_or(("", below));
        match self.root.directory(above).and_then(|above| Ok(rustix::fs::unlinkat(above, name, flags)?)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Backing for Folder {
    fn prepare(&self, directory: &str) -> std::result::Result<(), WriteError> {
        let failed = |error: io::Error| self.failed(&error);
        let directory = self.root.make(directory).map_err(failed)?;
        rustix::fs::accessat(&directory, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::empty())
            .map_err(|error| failed(error.into()))
    }

    fn write(&self, key: &str, bytes: &[u8]) -> std::result::Result<(), WriteError> {
        self.write_file(key, bytes).map_err(|error| self.failed(&error))
    }

    fn list(&self, directory: &str) -> Result<Vec<Stored>> {
        self.list_all(directory).map_err(|error| self.refused(directory, &error))
    }

    fn remove(&self, key: &str) -> std::result::Result<bool, WriteError> {
        self.unlink(key, AtFlags::empty()).map_err(|error| self.failed(&error))
    }

    fn tidy(&self, directory: &str) {
        // These fail, as they should, while something is in them.
        if self.unlink(directory, AtFlags::REMOVEDIR).is_ok_and(|removed| removed)
            && let Some((above, _)) = directory.rsplit_once('/')
        {
            let _ = self.unlink(above, AtFlags::REMOVEDIR);
        }
    }

    fn whole(&self, key: &str, into: &mut Vec<u8>) -> std::result::Result<(), ReadError> {
        into.clear();
        let file = self.root.file(key).map_err(|error| self.told(&error))?;
        // A package that grows beyond all bounds is none, and is told so where what was read is parsed.
        file.take(super::LONGEST + 1).read_to_end(into).map(|_| ()).map_err(|error| tell_io(&error))
    }
}

impl Store for Folder {
    fn read(&self, at: Location<'_>, into: &mut [u8]) -> std::result::Result<(), ReadError> {
        let file = self.root.file(at.key).map_err(|error| self.told(&error))?;
        read_from(&file, at, into)
    }
}

/// A new file for what will be named `name`, for this user alone, and what it is called until then.
fn temporary(directory: &OwnedFd, name: &str) -> io::Result<(File, String)> {
    loop {
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let unfinished = format!("{}{:x}x{number:x}{UNFINISHED}", unfinished(name), std::process::id());
        match rustix::fs::openat(directory, &unfinished, NEW, Mode::RUSR | Mode::WUSR) {
            // Of a process that had our number before us.
            Err(Errno::EXIST | Errno::INTR) => {}
            made => return Ok((File::from(made?), unfinished)),
        }
    }
}

fn write_all(mut file: File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.sync_all()
}

fn modified(found: &Stat) -> SystemTime {
    let since = Duration::new(u64::try_from(found.st_mtime).unwrap_or(0), found.st_mtime_nsec as u32);
    UNIX_EPOCH + since
}

/// Makes a directory and those above it, for this user alone.
fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}
