//! The socket a server listens on: one owner at a time, gone with its server.
//!
//! A socket file without a server behind it is stale and is replaced; one that answers belongs to a running
//! server and is left alone. The new socket is bound under another name and renamed into place, so that two
//! servers that start together cannot both think they own the name: the one that lost it ends. A socket for other users
//! lies in a directory that only its server's user can write to, so that nobody else can listen under its name.

use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::{fs, io};

use hotset_core::{Error, Result};

use crate::access::Audience;

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
    pub(crate) fn bind(path: &Path, audience: &Audience) -> Result<Self> {
        let shown = path.display();
        if *audience != Audience::Own {
            check_directory(path)?;
        }
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
        // The group first: until the mode is set nobody else may come in.
        let owned = audience.group().map_or(Ok(()), |group| chown(&temporary, None, Some(group.number)));
        let placed = owned
            .and_then(|()| fs::set_permissions(&temporary, fs::Permissions::from_mode(audience.mode())))
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

/// Refuses a directory in which another user could put a socket in place of ours, or one that nobody else can reach.
fn check_directory(path: &Path) -> Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let shown = directory.display();
    let metadata = fs::metadata(directory).map_err(|error| {
        Error::invalid(format!("cannot look at `{shown}`: {error}; choose another `socket`"))
    })?;
    let own = rustix::process::geteuid().as_raw();
    let wrong = if metadata.uid() != own && metadata.uid() != 0 {
        "belongs to another user"
    } else if metadata.mode() & 0o022 != 0 {
        "can be written by other users, who could listen in place of this server"
    } else if metadata.mode() & 0o011 == 0 {
        "cannot be entered by other users"
    } else {
        return Ok(());
    };
    Err(Error::invalid(format!(
        "`{shown}` {wrong}: a `socket` for other users lies in a directory of your own with mode 755, such as /run/hotset"
    )))
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
    use crate::access::Group;

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("server.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a listener that dies leaves its file behind");
        let socket = Socket::bind(&path, &Audience::Own).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let refused = Socket::bind(&path, &Audience::Own).err().unwrap();
        assert!(refused.message.contains("already runs"), "{refused}");
        assert!(socket.is_ours());
        drop(socket);
        assert!(!path.exists(), "a server that ends takes its socket along");
    }

    #[test]
    fn a_server_that_lost_its_name_leaves_the_new_owners_socket() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("server.sock");
        let first = Socket::bind(&path, &Audience::Own).unwrap();
        fs::remove_file(&path).unwrap();
        let second = Socket::bind(&path, &Audience::Own).unwrap();
        assert!(!first.is_ours() && second.is_ours());
        drop(first);
        assert!(path.exists());
    }

    #[test]
    fn a_path_that_is_too_long_is_refused() {
        let path = PathBuf::from(format!("/tmp/{}", "x".repeat(120)));
        assert!(Socket::bind(&path, &Audience::Own).err().unwrap().message.contains("too long"));
    }

    #[test]
    fn a_socket_for_others_lies_where_only_its_server_can_put_one() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("server.sock");
        for (mode, says) in
            [(0o700, "cannot be entered"), (0o775, "can be written"), (0o1777, "can be written")]
        {
            fs::set_permissions(place.path(), fs::Permissions::from_mode(mode)).unwrap();
            let refused = Socket::bind(&path, &Audience::Everyone).err().unwrap().message;
            assert!(refused.contains(says) && refused.contains("`socket`"), "{refused}");
        }
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let own = Group { name: "own".into(), number: rustix::process::getegid().as_raw() };
        for (audience, mode) in [(Audience::Everyone, 0o666), (Audience::Group(own), 0o660)] {
            let _socket = Socket::bind(&path, &audience).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        }
    }
}
