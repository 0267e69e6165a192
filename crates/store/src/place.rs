//! Places: where a dataset lies, as users write it.
//!
//! A place is a directory, with or without `file://` before it (taken as it stands, nothing is unescaped), or
//! a prefix of an object store (`s3://bucket/train`). A directory is made canonical once, so that all ways of
//! writing it name one dataset, and a link that is turned to other data later never mixes the two.

use std::io;
use std::path::{Path, PathBuf};

use hotset_core::{Error, Result};
use rustix::io::Errno;

use crate::remote::Address;

/// Where a dataset lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A directory that exists, by its canonical name.
    Directory(String),
    /// A prefix of an object store.
    Remote(Address),
}

impl Place {
    /// The place that `written` names.
    pub(crate) fn resolve(written: &str) -> Result<Self> {
        if let Some(address) = Address::parse(written) {
            return address.map(Self::Remote);
        }
        let path = path(written)?;
        let canonical = path.canonicalize().map_err(|error| refuse(&path, &error))?;
        if !canonical.is_dir() {
            return Err(Error::invalid(format!(
                "`{written}` is not a directory; tar files are opened with `hotset.Shards`, tables of files with \
                 `hotset.Manifest`"
            )));
        }
        canonical.into_os_string().into_string().map(Self::Directory).map_err(|name| {
            Error::invalid(format!("the name of the directory `{}` is not UTF-8", name.to_string_lossy()))
        })
    }

    /// Its canonical name.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Directory(path) => path.clone(),
            Self::Remote(address) => address.shown(),
        }
    }
}

/// The path that `written` names; it may not exist.
pub(crate) fn path(written: &str) -> Result<PathBuf> {
    let Some((scheme, rest)) = scheme(written) else {
        if written.is_empty() {
            return Err(Error::invalid("the dataset's place is empty; name a directory"));
        }
        return Ok(PathBuf::from(written));
    };
    if !scheme.eq_ignore_ascii_case("file") {
        return Err(Error::invalid(format!(
            "the scheme `{scheme}://` of `{written}` is not supported; supported are plain paths, `file://`, `s3://`, \
             `gs://`, `az://`, `http://` and `https://`"
        )));
    }
    if !rest.starts_with('/') {
        return Err(Error::invalid(format!("`{written}` needs an absolute path, like `file:///data/train`")));
    }
    Ok(PathBuf::from(rest))
}

/// The scheme of a URL and what follows its `://`.
fn scheme(written: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = written.split_once("://")?;
    let named = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    named.then_some((scheme, rest))
}

/// Says why `path` cannot be opened as a directory.
pub(crate) fn refuse(path: &Path, error: &io::Error) -> Error {
    let shown = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => Error::invalid(format!("there is no directory `{shown}`")),
        io::ErrorKind::NotADirectory => Error::invalid(format!("`{shown}` is not a directory")),
        io::ErrorKind::PermissionDenied => Error::invalid(format!("no permission to list `{shown}`")),
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => {
            Error::invalid(format!("`{shown}` cannot be listed: {error}"))
        }
        _ if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            Error::invalid(format!("`{shown}` cannot be listed: {error}"))
        }
        _ => Error::unavailable(format!("`{shown}` could not be listed: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotset_core::Kind;

    #[test]
    fn all_ways_of_writing_a_directory_are_one_place() {
        let directory = tempfile::tempdir().unwrap();
        let plain = directory.path().canonicalize().unwrap().into_os_string().into_string().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&plain, &link).unwrap();
        for written in
            [plain.clone(), format!("file://{plain}"), format!("{plain}/./"), link.display().to_string()]
        {
            assert_eq!(Place::resolve(&written).unwrap().shown(), plain);
        }
    }

    #[test]
    fn what_is_no_directory_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, b"x").unwrap();
        let file = file.display().to_string();
        for (written, says) in [
            (file.clone(), format!("`{file}` is not a directory")),
            (format!("{file}/x"), format!("`{file}/x` is not a directory")),
            (format!("{file}-not"), format!("there is no directory `{file}-not`")),
            ("ftp://host/train".into(), "supported are plain paths, `file://`".into()),
            ("s3:///train".into(), "names no bucket".into()),
            ("file://train".into(), "absolute path".into()),
            ("a\0b".into(), "cannot be listed".into()),
            (String::new(), "is empty".into()),
        ] {
            let error = Place::resolve(&written).unwrap_err();
            assert_eq!(error.kind, Kind::Invalid);
            assert!(error.message.contains(&says), "{}", error.message);
        }
    }

    #[test]
    fn only_a_missing_permission_or_path_is_the_users_to_mend() {
        let path = Path::new("/data");
        let told = |code| refuse(path, &io::Error::from_raw_os_error(code)).kind;
        assert_eq!(told(Errno::ACCESS.raw_os_error()), Kind::Invalid);
        assert_eq!(told(Errno::LOOP.raw_os_error()), Kind::Invalid);
        assert_eq!(told(Errno::IO.raw_os_error()), Kind::Unavailable);
    }
}
