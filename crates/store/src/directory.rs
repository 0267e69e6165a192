//! One directory, read in one pass.
//!
//! The kernel says for most entries whether they are files or directories, so that only files that are wanted
//! and symbolic links are looked at one by one. The directory's own [`Stamp`] is to be taken before its entries
//! are read: a change while they are read then makes the stamp an old one.

use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hotset_core::{Error, Result};
use rustix::fs::Stat;

use crate::layout::{Layout, Selection};
use crate::left_out::LeftOut;
use crate::place::refuse;
use crate::store::UNKNOWN;

/// After so many files progress is told again.
const PROGRESS: u64 = 1_000;

/// What changes when something in a directory is added, removed or renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Nanoseconds since 1970, as the file system keeps them.
    pub(crate) modified: i64,
    /// The same, which `touch`, `cp -a` and `rsync` cannot set back.
    pub(crate) changed: i64,
    /// Another directory under the same name has another one.
    pub(crate) inode: u64,
}

impl Stamp {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            modified: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            changed: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
            inode: metadata.ino(),
        }
    }
}

/// Times that do not fit (before 1677, after 2262) wrap: they are only compared.
fn nanoseconds(seconds: i64, nanoseconds: i64) -> i64 {
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds)
}

/// The version of a file: 32 bits that differ when it was written or replaced at another time, and are never the
/// unknown version.
///
/// The time of the last change is in it beside that of writing, since `cp -p` and `rsync -t` set the latter to what it
/// was, and nothing sets back the former. It moves with new permissions and new links too, which are so taken for a
/// change. The inode's number would tell no more, and some network file systems give a file another one while it is
/// in use.
pub(crate) fn version(metadata: &Metadata) -> u32 {
    version_of(
        nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
        nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
    )
}

/// The same, of what a bare look gives.
pub(crate) fn version_of_stat(found: &Stat) -> u32 {
    version_of(
        nanoseconds(found.st_mtime, found.st_mtime_nsec as i64),
        nanoseconds(found.st_ctime, found.st_ctime_nsec as i64),
    )
}

fn version_of(modified: i64, changed: i64) -> u32 {
    // Times of one copied dataset differ in few bits; the multiplications spread them over the upper half.
    let spread = |time: u64| (time ^ (time >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = spread(spread(modified as u64) ^ changed as u64);
    ((mixed >> 32) as u32).max(UNKNOWN + 1)
}

/// A file that is a sample.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) version: u32,
}

/// What a directory holds, unsorted.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) files: Vec<File>,
    pub(crate) directories: Vec<String>,
}

/// Counts files and tells the count now and then.
pub(crate) struct Progress<'a> {
    pub(crate) seen: u64,
    pub(crate) dangling: LeftOut,
    pub(crate) tell: &'a mut dyn FnMut(u64) -> Result<()>,
}

impl Progress<'_> {
    fn count(&mut self) -> Result<()> {
        self.seen += 1;
        if self.seen.is_multiple_of(PROGRESS) { (self.tell)(self.seen) } else { Ok(()) }
    }
}

impl Directory {
    /// Reads the directory at `path`: all its directories that are not hidden, and the files that `wanted`
    /// takes by name.
    pub(crate) fn read(
        path: &Path,
        selection: &Selection,
        wanted: &mut dyn FnMut(&str) -> bool,
        progress: &mut Progress<'_>,
    ) -> Result<Self> {
        let failed = |error| refuse(path, &error);
        let mut directory = Self { files: Vec::new(), directories: Vec::new() };
        for entry in fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().map_err(failed)?;
            let shown = entry.file_name();
            let shown = shown.to_string_lossy();
            if selection.hides(&shown) || (kind.is_file() && !wanted(&shown)) {
                continue;
            }
            let metadata = if kind.is_dir() {
                None
            } else if kind.is_symlink() {
                match follow(&entry, selection, &shown, wanted, &mut progress.dangling)? {
                    Some(metadata) => Some(metadata),
                    None => continue,
                }
            } else if kind.is_file() {
                match entry.metadata() {
                    Ok(metadata) => Some(metadata),
                    // Deleted since the directory was read: as if it had been deleted before.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(unusable(&entry, &error.to_string())),
                }
            } else {
                irregular(&entry, selection, &shown, wanted)?;
                continue;
            };
            let name =
                entry.file_name().into_string().map_err(|_| unusable(&entry, "its name is not UTF-8"))?;
            match metadata {
                Some(metadata) if !metadata.is_dir() => {
                    directory.files.push(File { name, size: metadata.len(), version: version(&metadata) });
                    progress.count()?;
                }
                _ => directory.directories.push(name),
            }
        }
        Ok(directory)
    }
}

/// What a link leads to, if that is a directory or a file that is wanted.
fn follow(
    link: &DirEntry,
    selection: &Selection,
    name: &str,
    wanted: &mut dyn FnMut(&str) -> bool,
    dangling: &mut LeftOut,
) -> Result<Option<Metadata>> {
    match fs::metadata(link.path()) {
        Ok(metadata) if metadata.is_dir() => Ok(Some(metadata)),
        Ok(metadata) if metadata.is_file() => Ok(wanted(name).then_some(metadata)),
        Ok(_) => irregular(link, selection, name, wanted).map(|()| None),
        Err(_) if !wanted(name) => Ok(None),
        // torchvision lists it and fails on it later; leaving it out would give its id to another sample.
        Err(error) if selection.layout == Layout::Images => {
            Err(unusable(link, &format!("it is a link that leads nowhere ({error}); mend or remove it")))
        }
        Err(_) => {
            dangling.add(&link.path().display().to_string());
            Ok(None)
        }
    }
}

/// A pipe, a socket or a device: an error where torchvision would list it, else nothing.
fn irregular(
    entry: &DirEntry,
    selection: &Selection,
    name: &str,
    wanted: &mut dyn FnMut(&str) -> bool,
) -> Result<()> {
    if selection.layout == Layout::Images && wanted(name) {
        return Err(unusable(entry, "it is not a regular file; remove it"));
    }
    Ok(())
}

fn unusable(entry: &DirEntry, why: &str) -> Error {
    Error::invalid(format!("`{}` cannot be a sample: {why}", entry.path().display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_differs_with_either_time() {
        let version = version_of(7_000_000_000, 9_000_000_000);
        assert_eq!(version, version_of(7_000_000_000, 9_000_000_000));
        assert_ne!(version, version_of(7_000_000_001, 9_000_000_000));
        assert_ne!(version, version_of(7_000_000_000, 9_000_000_001));
        assert_ne!(version_of(1, 2), version_of(2, 1));
    }

    #[test]
    fn three_hundred_links_that_lead_nowhere_are_one_line() {
        let directory = tempfile::tempdir().unwrap();
        for number in 0..300 {
            std::os::unix::fs::symlink("/nowhere/at/all", directory.path().join(format!("{number}")))
                .unwrap();
        }
        let selection = Selection::new(Layout::Files, &[]).unwrap();
        let mut progress = Progress { seen: 0, dangling: LeftOut::default(), tell: &mut |_| Ok(()) };
        Directory::read(directory.path(), &selection, &mut |_| true, &mut progress).unwrap();
        let shown = progress.dangling.shown().unwrap();
        assert_eq!((progress.dangling.count, shown.split(", ").count()), (300, 3), "{shown}");
    }
}
