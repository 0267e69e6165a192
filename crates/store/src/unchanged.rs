//! Whether the files that a kept listing names are still the ones that were listed.
//!
//! A directory does not tell that a file in it was written in place. So every file is looked at when a kept listing is
//! opened, on several threads, and by its name in its opened directory: that takes less than half of what listing
//! takes, and a training does not find out in mid-epoch that it was given an old listing. What changes after that is
//! found when it is read.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::path::Path;

use hotset_core::{Error, Id, Result};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};

use crate::catalog::Catalog;
use crate::directory::version_of_stat;
use crate::parallel::{Wanted, in_parallel};
use crate::store::UNKNOWN;

/// Samples looked at in one piece of work.
const CHUNK: usize = 4_096;

/// Whether every file below `root` that `catalog` names has its length and version. `tell` hears now and then how many
/// samples have.
pub(crate) fn unchanged(catalog: &Catalog, root: &Path, tell: &mut dyn FnMut(u64) -> Result<()>) -> bool {
    let seen = Cell::new(0);
    let work = |chunk: usize, _: &Wanted| {
        let end = ((chunk + 1) * CHUNK).min(catalog.len());
        check(catalog, root, (chunk * CHUNK) as Id..end as Id)
    };
    let take = |chunk: usize, ()| {
        seen.set(((chunk + 1) * CHUNK).min(catalog.len()) as u64);
        Ok(())
    };
    let told = in_parallel(catalog.len().div_ceil(CHUNK), &work, take, &mut || tell(seen.get()));
    if let Err(error) = &told {
        tracing::debug!(root = %root.display(), %error, "a file changed since it was listed");
    }
    told.is_ok()
}

fn check(catalog: &Catalog, root: &Path, ids: std::ops::Range<Id>) -> Result<()> {
    let root = open(CWD, root)?;
    // The folder, or the object, of the sample before.
    let mut folder: Option<(u32, OwnedFd)> = None;
    let mut object: Option<(u32, Stat)> = None;
    for id in ids {
        let (number, path) = catalog.folder(id);
        let found = match catalog.offset(id) {
            Some(_) => match &object {
                Some((last, found)) if *last == number => *found,
                _ => object.insert((number, look(&root, path)?)).1,
            },
            None => {
                let directory = match &folder {
                    Some((last, directory)) if *last == number => directory,
                    _ => &folder.insert((number, open(&root, Path::new(path))?)).1,
                };
                look(directory, catalog.name(id))?
            }
        };
        let size = u64::try_from(found.st_size).unwrap_or(0);
        let fits = match catalog.offset(id) {
            Some(offset) => offset.saturating_add(catalog.size(id)) <= size,
            None => catalog.size(id) == size,
        };
        let version = catalog.version(id);
        let same = version == UNKNOWN || version == version_of_stat(&found);
        if !fits || !same || FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(Error::changed(format!("`{}` is no longer what was listed", catalog.key(id))));
        }
    }
    Ok(())
}

fn open(at: impl std::os::fd::AsFd, path: &Path) -> Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(at, path, flags, Mode::empty())
        .map_err(|error| Error::changed(format!("`{}`: {error}", path.display())))
}

fn look(directory: &OwnedFd, name: &str) -> Result<Stat> {
    rustix::fs::statat(directory, name, AtFlags::empty())
        .map_err(|error| Error::changed(format!("`{name}`: {error}")))
}
