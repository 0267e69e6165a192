//! The path to a package: directories opened one below the other, of which only this user can change what lies in them.
//!
//! Checksums tell bytes that rotted, not bytes that were forged. So a directory that another user owns or can
//! write is refused, the place itself and those below it, and so is a file. That is asked of what was opened, every
//! time something is read or written, and no link is followed: a directory that is swapped for another one while a
//! training runs is refused as it would have been before. Directories above the place may be others': all they can do
//! is to take the place away.
//!
//! For administration (`hotset pack`) every user's packages can be looked at; links are not followed there either.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

const ABOVE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Without waiting, in case there is a pipe.
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Of a file's mode: the group's and the others' right to write.
const OTHERS_WRITE: u32 = 0o022;

/// A directory of packages, by its path without links.
#[derive(Debug, Clone)]
pub(super) struct GuardedPath {
    pub(super) path: PathBuf,
    /// Whether only what no other user can change is opened.
    guarded: bool,
}

/// Something that another user could change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Exposed {
    path: String,
    /// The user it belongs to, if that is neither this one nor root.
    owner: Option<u32>,
}

impl fmt::Display for Exposed {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        match self.owner {
            Some(owner) => write!(to, "`{path}` belongs to another user (uid `{owner}`)"),
            None => write!(to, "`{path}` can be written by another user (`chmod go-w {path}` ends that)"),
        }
    }
}

impl std::error::Error for Exposed {}

impl Exposed {
    /// What was exposed, if that is why an operation failed.
    pub(super) fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref().and_then(|inner| inner.downcast_ref())
    }
}

impl GuardedPath {
    pub(super) fn new(root: &Path, guarded: bool) -> Self {
        Self { path: root.to_owned(), guarded }
    }

    /// The directory `below` the root, which is the root itself where that is empty.
    pub(super) fn directory(&self, below: &str) -> io::Result<OwnedFd> {
        self.walk(below, |_, _| Ok(()))
    }

    /// The same; what is missing below the root is made, for this user alone.
    pub(super) fn make(&self, below: &str) -> io::Result<OwnedFd> {
        self.walk(below, |above, name| match rustix::fs::mkdirat(above, name, Mode::RWXU) {
            Err(Errno::EXIST) | Ok(()) => Ok(()),
            Err(error) => Err(error),
        })
    }

    fn walk(&self, below: &str, before: impl Fn(&OwnedFd, &str) -> Result<(), Errno>) -> io::Result<OwnedFd> {
        let mut path = self.path.clone();
        let mut directory = self.root()?;
        for name in below.split('/').filter(|name| !name.is_empty()) {
            path.push(name);
            before(&directory, name)?;
            directory = retried(|| rustix::fs::openat(&directory, name, DIRECTORY, Mode::empty()))?;
            self.check(&directory, &path)?;
        }
        Ok(directory)
    }

    /// The root, with no link in its path.
    fn root(&self) -> io::Result<OwnedFd> {
        let mut at = retried(|| rustix::fs::openat(CWD, "/", ABOVE, Mode::empty()))?;
        for component in self.path.components() {
            if let Component::Normal(name) = component {
                at = retried(|| rustix::fs::openat(&at, name, ABOVE, Mode::empty()))?;
            }
        }
        let directory = retried(|| rustix::fs::openat(&at, ".", DIRECTORY, Mode::empty()))?;
        self.check(&directory, &self.path)?;
        Ok(directory)
    }

    /// The file at `key`.
    pub(super) fn file(&self, key: &str) -> io::Result<File> {
        let (below, name) = key.rsplit_once('/').unwrap_or(("", key));
        let directory = self.directory(below)?;
        let file = retried(|| rustix::fs::openat(&directory, name, FILE, Mode::empty()))?;
        self.check(&file, &self.path.join(key))?;
        Ok(File::from(file))
    }

    /// Refuses what another user could change. `path` is for the message.
    fn check(&self, opened: &OwnedFd, path: &Path) -> io::Result<()> {
        if !self.guarded {
            return Ok(());
        }
        let found = rustix::fs::fstat(opened)?;
        let own = rustix::process::geteuid().as_raw();
        exposed(path, found.st_uid, found.st_mode, own)
            .map_or(Ok(()), |exposed| Err(io::Error::new(io::ErrorKind::PermissionDenied, exposed)))
    }
}

/// Whether another user than `own` and root could change what lies at `path`.
fn exposed(path: &Path, owner: u32, mode: u32, own: u32) -> Option<Exposed> {
    let owner = Some(owner).filter(|owner| *owner != own && *owner != 0);
    let path = || path.display().to_string();
    (owner.is_some() || mode & OTHERS_WRITE != 0).then(|| Exposed { path: path(), owner })
}

fn retried<T>(mut attempt: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match attempt() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_user_owns_or_can_write_is_exposed() {
        let told = |owner, mode| exposed(Path::new("/scratch"), owner, mode, 1000);
        for (owner, mode) in [(1000, 0o700), (1000, 0o755), (0, 0o755)] {
            assert_eq!(told(owner, mode), None);
        }
        assert!(told(1001, 0o700).unwrap().to_string().contains("uid `1001`"));
        for mode in [0o770, 0o702, 0o1777] {
            assert!(told(1000, mode).unwrap().to_string().contains("`chmod go-w /scratch`"));
        }
    }
}
