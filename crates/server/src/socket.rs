//! The socket a server listens on: one owner at a time, gone with its server.
//!
//! A socket file without a server behind it is stale and is replaced; one that answers belongs to a running
//! server and is left alone. The new socket is bound under another name and renamed into place, so that two
//! servers that start together cannot both think they own the name: the one that lost it ends.

use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::{fs, io};

use hotset_core::{Error, Result};

/// The longest path of a Unix socket, its end mark left out.
const LONGEST: usize = 107;

/// A listening socket with a name of its own.
pub(crate) struct Socket {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl Socket {
    /// Listens at `path`.
    pub(crate) fn bind(path: &Path) -> Result<Self> {
        let shown = path.display();
        let temporary = path.with_extension(format!("{}", std::process::id()));
        if temporary.as_os_str().len() > LONGEST {
            return Err(Error::invalid(format!(
                "the socket path `{shown}` is too long: choose a `socket` of at most 90 bytes"
            )));
        }
        if UnixStream::connect(path).is_ok() {
            return Err(Error::invalid(format!(
                "a server already runs at `{shown}`: stop it, or choose another `socket`"
            )));
        }
        let failed = |error: io::Error| {
            Error::invalid(format!("cannot listen at `{shown}`: {error}; choose another `socket`"))
        };
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let listener = UnixListener::bind(&temporary).map_err(failed)?;
        let placed = fs::set_permissions(&temporary, fs::Permissions::from_mode(0o600))
            .and_then(|()| listener.set_nonblocking(true))
            .and_then(|()| fs::symlink_metadata(&temporary))
            .and_then(|metadata| fs::rename(&temporary, path).map(|()| metadata.ino()));
        match placed {
            Ok(inode) => Ok(Self { listener, path: path.to_owned(), inode }),
            Err(error) => {
                let _ = fs::remove_file(&temporary);
                Err(failed(error))
            }
        }
    }

    /// Whether the name still leads here.
    pub(crate) fn is_ours(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|metadata| metadata.ino() == self.inode)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.is_ours() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("server.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a listener that dies leaves its file behind");
        let socket = Socket::bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let refused = Socket::bind(&path).err().unwrap();
        assert!(refused.message.contains("already runs"), "{refused}");
        assert!(socket.is_ours());
        drop(socket);
        assert!(!path.exists(), "a server that ends takes its socket along");
    }

    #[test]
    fn a_server_that_lost_its_name_leaves_the_new_owners_socket() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("server.sock");
        let first = Socket::bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let second = Socket::bind(&path).unwrap();
        assert!(!first.is_ours() && second.is_ours());
        drop(first);
        assert!(path.exists());
    }

    #[test]
    fn a_path_that_is_too_long_is_refused() {
        let path = PathBuf::from(format!("/tmp/{}", "x".repeat(120)));
        assert!(Socket::bind(&path).err().unwrap().message.contains("too long"));
    }
}
