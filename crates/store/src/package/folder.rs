//! Packages in a directory.
//!
//! A package is written beside its name, brought to the disk and renamed, so that a reader finds it whole or not at
//! all, whenever the power fails. What is made here is for this user alone.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use hotset_core::{Error, Result};
use rustix::fs::Access;
use tempfile::NamedTempFile;

use super::backing::{Backing, shown};
use super::failure::WriteError;
use super::name::{Stored, UNFINISHED, is_directory, unfinished};
use crate::files::Files;
use crate::place::refuse;
use crate::store::ReadError;

/// A directory of packages.
pub(super) struct Folder {
    root: PathBuf,
}

impl Folder {
    /// The directory `root`, made if it is missing and `make` says so.
    pub(super) fn open(root: &Path, make: bool) -> Result<Self> {
        let folder = Self { root: root.to_owned() };
        if make {
            make_directory(root).map_err(|error| folder.failed(&error))?;
        }
        let metadata = fs::metadata(root).map_err(|error| refuse(root, &error))?;
        if !metadata.is_dir() {
            return Err(Error::invalid(format!(
                "`{}` is not a directory; give `packages=` a directory",
                shown(root)
            )));
        }
        Ok(folder)
    }

    /// Reads what lies below it.
    pub(super) fn files(&self) -> Result<Files> {
        Files::open(&self.root).map_err(|error| refuse(&self.root, &error))
    }

    fn failed(&self, error: &io::Error) -> WriteError {
        WriteError::of_file(&shown(&self.root), error)
    }

    fn write_file(&self, key: &str, bytes: &[u8]) -> io::Result<()> {
        let (below, file) = key.rsplit_once('/').unwrap_or(("", key));
        let (path, directory) = (self.root.join(key), &self.root.join(below));
        let prefix = unfinished(file);
        let temporary = || tempfile::Builder::new().prefix(&prefix).suffix(UNFINISHED).tempfile_in(directory);
        let mut file: NamedTempFile = match temporary() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_directory(directory)?;
                temporary()?
            }
            made => made?,
        };
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(&path).map_err(|error| error.error)?;
        // Without this the name may be lost with the power, and an old package come back.
        File::open(directory)?.sync_all()
    }

    /// Files of one owner.
    fn list_owner(&self, directory: &str, stored: &mut Vec<Stored>) -> io::Result<()> {
        for entry in entries(&self.root.join(directory))? {
            let entry = entry?;
            let Some(file) = entry.file_name().to_str().map(str::to_owned) else { continue };
            if !entry.file_type()?.is_file() {
                continue;
            }
            match entry.metadata() {
                Ok(metadata) => {
                    let key = format!("{directory}/{file}");
                    stored.extend(Stored::new(&key, metadata.len(), metadata.modified()?));
                }
                // Removed since the directory was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Directories below `directory` that are named as ours; no links.
    fn directories(&self, directory: &str) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        for entry in entries(&self.root.join(directory))? {
            let entry = entry?;
            let name = entry.file_name();
            if let Some(name) = name.to_str().filter(|name| is_directory(name))
                && entry.file_type()?.is_dir()
            {
                found.push(if directory.is_empty() {
                    name.to_owned()
                } else {
                    format!("{directory}/{name}")
                });
            }
        }
        Ok(found)
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
}

impl Backing for Folder {
    fn prepare(&self, directory: &str) -> std::result::Result<(), WriteError> {
        let path = self.root.join(directory);
        let failed = |error: io::Error| self.failed(&error);
        make_directory(&path).map_err(failed)?;
        let own = rustix::process::geteuid().as_raw();
        for made in path.ancestors().take_while(|made| **made != *self.root) {
            let metadata = fs::symlink_metadata(made).map_err(failed)?;
            if !metadata.is_dir() || metadata.uid() != own || metadata.mode() & 0o022 != 0 {
                let cause = format!("`{}` can be written by another user", shown(made));
                return Err(WriteError::ReadOnly { place: shown(&self.root), cause });
            }
        }
        rustix::fs::access(&path, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| failed(error.into()))
    }

    fn write(&self, key: &str, bytes: &[u8]) -> std::result::Result<(), WriteError> {
        self.write_file(key, bytes).map_err(|error| self.failed(&error))
    }

    fn list(&self, directory: &str) -> Result<Vec<Stored>> {
        self.list_all(directory).map_err(|error| refuse(&self.root.join(directory), &error))
    }

    fn remove(&self, key: &str) -> std::result::Result<bool, WriteError> {
        match fs::remove_file(self.root.join(key)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn tidy(&self, directory: &str) {
        let path = self.root.join(directory);
        // These fail, as they should, while something is in them.
        if fs::remove_dir(&path).is_ok()
            && let Some(above) = path.parent().filter(|above| **above != *self.root)
        {
            let _ = fs::remove_dir(above);
        }
    }

    fn whole(&self, key: &str, into: &mut Vec<u8>) -> std::result::Result<(), ReadError> {
        let told = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ReadError::Vanished,
            io::ErrorKind::PermissionDenied => ReadError::Denied,
            _ => ReadError::Transient(error.to_string()),
        };
        into.clear();
        let file = File::open(self.root.join(key)).map_err(told)?;
        // A package that grows beyond all bounds is none, and is told so by whoever parses what is read of it.
        file.take(super::LONGEST + 1).read_to_end(into).map(|_| ()).map_err(told)
    }
}

/// Makes a directory and those above it, for this user alone.
fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The entries of a directory; none if it is not there.
fn entries(path: &Path) -> io::Result<impl Iterator<Item = io::Result<fs::DirEntry>>> {
    match fs::read_dir(path) {
        Ok(entries) => Ok(Some(entries).into_iter().flatten()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None.into_iter().flatten()),
        Err(error) => Err(error),
    }
}
