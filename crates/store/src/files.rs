//! Samples that are files below a local directory.
//!
//! A read opens the file, reads it, and then looks at the file once: if it still has the length and the time
//! of writing that were listed, no byte of it changed since, so what was read is what was listed.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::directory::version;
use crate::store::{Location, ObjectVersion, Objects, ReadError, Store, UNKNOWN};

/// Without waiting, for the case that a file became a pipe; files do not care.
const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Files below a root.
#[derive(Debug)]
pub(crate) struct Files {
    root: OwnedFd,
    path: PathBuf,
}

impl Files {
    /// The files below `root`, which stays the directory it is now even if its name goes to another.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::openat(CWD, root, flags, Mode::empty())?;
        Ok(Self { root: descriptor, path: root.to_owned() })
    }

    fn file(&self, key: &str) -> Result<File, Errno> {
        loop {
            match rustix::fs::openat(&self.root, key, READ, Mode::empty()) {
                Err(Errno::INTR) => {}
                // A network file system was mounted anew: its name leads to the new one.
                Err(Errno::STALE) => {
                    return rustix::fs::openat(CWD, self.path.join(key), READ, Mode::empty()).map(File::from);
                }
                opened => return opened.map(File::from),
            }
        }
    }
}

impl Store for Files {
    fn read(&self, at: Location<'_>, into: &mut [u8]) -> Result<(), ReadError> {
        read_from(&self.file(at.key).map_err(tell)?, at, into)
    }
}

/// Reads what lies `at` from its file, and looks whether that is what was listed.
pub(crate) fn read_from(file: &File, at: Location<'_>, into: &mut [u8]) -> Result<(), ReadError> {
    let filled = fill(file, at.offset, into);
    let now = file.metadata().map_err(|error| tell_io(&error))?;
    if !now.is_file() {
        return Err(ReadError::Modified);
    }
    let expected = into.len() as u64;
    if at.whole && now.len() != expected {
        return Err(ReadError::Resized { expected, found: now.len() });
    }
    let end = at.offset.saturating_add(expected);
    if now.len() < end {
        return Err(ReadError::Short { from: at.offset, to: end });
    }
    if at.version != UNKNOWN && version(&now) != at.version {
        return Err(ReadError::Modified);
    }
    match filled {
        Ok(count) if count == into.len() => Ok(()),
        Ok(count) => Err(ReadError::Transient(format!("only `{count}` of `{expected}` bytes were read"))),
        Err(error) => Err(tell_io(&error)),
    }
}

impl Objects for Files {
    fn look(&self, key: &str) -> Result<ObjectVersion, ReadError> {
        let now = self.file(key).map_err(tell)?.metadata().map_err(|error| tell_io(&error))?;
        if !now.is_file() {
            return Err(ReadError::Vanished);
        }
        Ok(ObjectVersion { size: now.len(), version: version(&now) })
    }
}

/// Reads until `into` is full or the file ends, and says how much that was.
fn fill(file: &File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match file.read_at(&mut into[filled..], offset.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

pub(crate) fn tell_io(error: &io::Error) -> ReadError {
    error
        .raw_os_error()
        .map_or_else(|| ReadError::Transient(error.to_string()), |code| tell(Errno::from_raw_os_error(code)))
}

/// Told apart by what to do: what we do not know may pass.
fn tell(error: Errno) -> ReadError {
    match error {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP => ReadError::Vanished,
        Errno::ACCESS | Errno::PERM => ReadError::Denied,
        // Something else than a file is there now: a directory, a socket, a device without a driver.
        Errno::ISDIR | Errno::NXIO | Errno::NODEV => ReadError::Modified,
        error => ReadError::Transient(io::Error::from(error).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_apart_by_what_to_do() {
        for (error, told) in [
            (Errno::NOENT, ReadError::Vanished),
            (Errno::NOTDIR, ReadError::Vanished),
            (Errno::ACCESS, ReadError::Denied),
            (Errno::PERM, ReadError::Denied),
            (Errno::ISDIR, ReadError::Modified),
        ] {
            assert_eq!(tell(error), told);
        }
        for passing in [Errno::IO, Errno::STALE, Errno::TIMEDOUT, Errno::MFILE, Errno::NOMEM] {
            assert!(tell(passing).retriable());
        }
    }

    #[test]
    fn a_file_that_became_a_pipe_is_modified_and_does_not_make_us_wait() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let files = Files::open(directory.path()).unwrap();
        let at = Location { key: "pipe", offset: 0, version: 1, whole: true };
        assert_eq!(files.read(at, &mut [0; 4]), Err(ReadError::Modified));
    }

    #[test]
    fn the_root_stays_the_directory_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let (root, moved) = (directory.path().join("root"), directory.path().join("moved"));
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("a"), b"old").unwrap();
        let listed = version(&std::fs::metadata(root.join("a")).unwrap());
        let files = Files::open(&root).unwrap();
        std::fs::rename(&root, &moved).unwrap();
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("a"), b"new").unwrap();
        let mut bytes = [0; 3];
        files.read(Location { key: "a", offset: 0, version: listed, whole: true }, &mut bytes).unwrap();
        assert_eq!(&bytes, b"old");
    }
}
