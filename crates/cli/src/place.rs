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

/// The directory of digests, beside the listings.
pub(crate) fn digests() -> Option<PathBuf> {
    cache().map(|base| base.join("digests"))
}

fn cache() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || set("HOME").map(|home| home.join(".cache"));
    set("HOTSET_CACHE_DIR").or_else(|| set("XDG_CACHE_HOME").or_else(home).map(|at| at.join("hotset")))
}

/// Makes the directory of a socket, for this user alone; refuses one that another user could have made, or could look
/// into, as trainings do.
pub(crate) fn prepare(directory: &Path) -> Result<()> {
    let shown = directory.display();
    let failed = |error: std::io::Error| {
        Error::invalid(format!("cannot use `{shown}` for the socket: {error}; set `HOTSET_RUNTIME_DIR`"))
    };
    match fs::DirBuilder::new().recursive(true).mode(0o700).create(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    // Not what a link leads to: the owner of the link can have it lead elsewhere.
    let metadata = fs::symlink_metadata(directory).map_err(failed)?;
    let mode = metadata.mode() & 0o777;
    let wrong = if !metadata.is_dir() {
        "is not a directory".to_owned()
    } else if metadata.uid() != rustix::process::geteuid().as_raw() {
        "belongs to another user".to_owned()
    } else if mode & 0o077 != 0 {
        format!("can be reached by other users (mode {mode:o}; `chmod 700` it)")
    } else {
        return Ok(());
    };
    Err(Error::invalid(format!(
        "the runtime directory `{shown}` {wrong}; set HOTSET_RUNTIME_DIR to a directory of your own"
    )))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_that_others_can_reach_and_a_link_to_one_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("run");
        prepare(&directory).unwrap();
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&directory, &link).unwrap();
        assert!(prepare(&link).unwrap_err().message.contains("is not a directory"));
        for mode in [0o777, 0o755, 0o710] {
            fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
            let refused = prepare(&directory).unwrap_err().message;
            assert!(refused.contains("HOTSET_RUNTIME_DIR") && refused.contains("chmod 700"), "{refused}");
        }
    }
}
