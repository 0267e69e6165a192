//! Files of our own: regular ones, for this user alone, and never by way of a link.
//!
//! A user that can write to the directory could put a pipe there, which opening would wait for, or a link to another file,
//! which writing would overwrite. Neither is opened.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// What other users may do with such a file: nothing.
const MODE: u32 = 0o600;

/// The bytes of the file at `path`.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path, OpenOptions::new().read(true))?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A new file at `path`, in the place of whatever lies there.
pub fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    open(path, OpenOptions::new().write(true).create_new(true))
}

/// The file at `path`, made if there is none, to be written as it is.
pub fn go_on(path: &Path) -> io::Result<File> {
    let file = open(path, OpenOptions::new().write(true).create(true).truncate(false))?;
    file.set_permissions(fs::Permissions::from_mode(MODE))?;
    Ok(file)
}

/// The file at `path`, made if there is none, to be written at its end.
pub fn append(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().append(true).create(true))
}

fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Without waiting for the other end of a pipe, if it is one.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = options.mode(MODE).custom_flags(flags.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn files_are_for_their_user_alone_and_links_are_replaced_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (victim, path) = (place.path().join("victim"), place.path().join("file"));
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        assert!(read(&path).is_err() && go_on(&path).is_err());
        drop(create(&path).unwrap());
        assert_eq!((mode(&path), fs::read(&victim).unwrap()), (0o600, b"precious".to_vec()));
        assert!(!fs::symlink_metadata(&path).unwrap().is_symlink());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        drop(go_on(&path).unwrap());
        assert_eq!(mode(&path), 0o600, "one that was written otherwise before");
    }

    #[test]
    fn a_pipe_is_refused_and_not_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pipe");
        let pipe = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &path, pipe, rustix::fs::Mode::RWXU, 0).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("regular"));
        assert!(go_on(&path).is_err());
        drop(create(&path).unwrap());
        assert_eq!(read(&path).unwrap(), b"", "it is replaced");
    }
}
