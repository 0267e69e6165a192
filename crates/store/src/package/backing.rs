//! What a place of packages must be able to do beside reading, whatever it is.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use hotset_core::{Error, Result};

use super::bucket::Bucket;
use super::failure::WriteError;
use super::folder::Folder;
use super::name::Stored;
use super::overlap::settled;
use crate::open::wrap;
use crate::options::Options;
use crate::place::path;
use crate::remote::{Address, Kind, Remote};
use crate::store::{ReadError, Store};

/// Keys are below the place. All of it blocks.
pub(super) trait Backing: Send + Sync {
    /// Readies the place for what will be written below `directory`.
    fn prepare(&self, directory: &str) -> std::result::Result<(), WriteError>;

    /// Writes `bytes` to `key`, whole or not at all, over what is there.
    fn write(&self, key: &str, bytes: &[u8]) -> std::result::Result<(), WriteError>;

    /// Everything below `directory` that is named as ours, by key; below the place if it is empty.
    fn list(&self, directory: &str) -> Result<Vec<Stored>>;

    /// Removes what lies at `key`; whether there was something.
    fn remove(&self, key: &str) -> std::result::Result<bool, WriteError>;

    /// Removes `directory` and the one above it where nothing is in them.
    fn tidy(&self, directory: &str);

    /// Reads what lies at `key`, whatever its length, in place of what `into` holds.
    fn whole(&self, key: &str, into: &mut Vec<u8>) -> std::result::Result<(), ReadError>;
}

/// A place, found: where it is, how it is written, and how it is read.
pub(super) struct Opened {
    /// Its canonical name.
    pub(super) place: String,
    pub(super) backing: Box<dyn Backing>,
    /// With the wrappers that `storage_options` ask for, as samples are read.
    pub(super) reads: Arc<dyn Store>,
}

/// Opens `place`. If packages are to be kept there a directory that is missing is made, for this user alone, and one that
/// others could change is refused. Options of an object
/// store have no meaning for a directory and are let pass: they are the dataset's as well.
pub(super) fn open(place: &str, options: &BTreeMap<String, String>, keep: bool) -> Result<Opened> {
    let options = Options::parse(options)?;
    match Address::parse(place) {
        Some(address) => {
            let address = address?;
            if address.kind == Kind::Http {
                return Err(Error::invalid(format!(
                    "`{place}` is a web server, which takes no packages; give `packages=` a directory or a prefix \
                     of `s3://`, `gs://` or `az://`"
                )));
            }
            let remote = Arc::new(Remote::open(address, &options.client)?);
            let reads = wrap(Box::new(Arc::clone(&remote)), &options);
            Ok(Opened { place: remote.address.shown(), backing: Box::new(Bucket::new(remote)), reads })
        }
        None => {
            let root = settled(&path(place)?);
            let folder = Folder::open(&root, keep)?;
            let reads = wrap(Box::new(folder.clone()), &options);
            Ok(Opened { place: shown(&root), backing: Box::new(folder), reads })
        }
    }
}

pub(super) fn shown(path: &Path) -> String {
    path.display().to_string()
}
