//! Where servers of this user are found, and where listings are kept.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::{env, fs};

use hotset_core::{Error, Result};

/// The directory of this user's sockets: `$HOTSET_RUNTIME_DIR`, `$XDG_RUNTIME_DIR/hotset` or `/tmp/hotset-UID`.
pub(crate) fn runtime() -> PathBuf {
    if let Some(given) = env::var_os("HOTSET_RUNTIME_DIR").filter(|value| !value.is_empty()) {
        return given.into();
    }
    let own = rustix::process::geteuid().as_raw();
    let session = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // `su` and containers often hand on the name of a directory that is another user's or not there.
    if let Some(session) = session.filter(|at| fs::metadata(at).is_ok_and(|metadata| metadata.uid() == own)) {
        return session.join("hotset");
    }
    PathBuf::from(format!("/tmp/hotset-{own}"))
}

/// The directory of kept listings: `$HOTSET_CACHE_DIR`, `$XDG_CACHE_HOME/hotset` or `~/.cache/hotset`.
pub(crate) fn listings() -> Option<PathBuf> {
    cache().map(|base| base.join("listings"))
}

/// The directory of jobs' states, beside the listings.
pub(crate) fn state() -> Option<PathBuf> {
    cache().map(|base| base.join("state"))
}

fn cache() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || set("HOME").map(|home| home.join(".cache"));
    set("HOTSET_CACHE_DIR").or_else(|| set("XDG_CACHE_HOME").or_else(home).map(|at| at.join("hotset")))
}

/// Makes the directory of a socket, for this user alone; refuses one that another user could have made.
pub(crate) fn prepare(directory: &Path) -> Result<()> {
    let shown = directory.display();
    let failed = |error: std::io::Error| {
        Error::invalid(format!("cannot use `{shown}` for the socket: {error}; set `HOTSET_RUNTIME_DIR`"))
    };
    match fs::DirBuilder::new().recursive(true).mode(0o700).create(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let metadata = fs::metadata(directory).map_err(failed)?;
    let own = rustix::process::geteuid().as_raw();
    if metadata.uid() != own || metadata.mode() & 0o022 != 0 {
        return Err(Error::invalid(format!(
            "`{shown}` can be written by another user: give it to yourself alone (`chmod 700`), or set \
             `HOTSET_RUNTIME_DIR` to a directory of your own"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("run");
        prepare(&directory).unwrap();
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(prepare(&directory).unwrap_err().message.contains("HOTSET_RUNTIME_DIR"));
    }
}
