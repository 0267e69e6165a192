//! A place that can be listed and read, wherever it is.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use hotset_core::Result;

use crate::catalog::Catalog;
use crate::files::Files;
use crate::folder;
use crate::layout::Selection;
use crate::listing::{Listing, Origin, seconds};
use crate::options::Options;
use crate::place::{Place, refuse};
use crate::remote::{self, Remote};
use crate::store::{Location, ObjectVersion, Objects, ReadError, Store};
use crate::unchanged::unchanged;

/// A place, opened.
pub(crate) enum OpenedPlace {
    /// A local directory.
    Directory(Files, PathBuf),
    /// A prefix of an object store.
    Remote(Remote),
}

impl OpenedPlace {
    pub(crate) fn open(place: &Place, options: &Options) -> Result<Self> {
        match place {
            Place::Directory(path) => {
                options.local()?;
                let root = Path::new(path);
                let files = Files::open(root).map_err(|error| refuse(root, &error))?;
                Ok(Self::Directory(files, root.to_owned()))
            }
            Place::Remote(address) => {
                let remote = Remote::open(address.clone(), &options.client)?;
                remote.reached.store(options.known, Ordering::Relaxed);
                Ok(Self::Remote(remote))
            }
        }
    }

    /// Lists its samples; `tell` hears now and then how many there are so far.
    pub(crate) fn list(
        &self,
        selection: &Selection,
        tell: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Listing> {
        match self {
            Self::Directory(_, root) => folder::list(root, selection, tell),
            Self::Remote(remote) => remote::list(remote, selection, tell),
        }
    }

    /// Whether a listing of its own can still be trusted.
    pub(crate) fn holds(&self, origin: &Origin, max_age: Duration) -> bool {
        match self {
            Self::Directory(_, root) => origin.directories_hold(root),
            Self::Remote(_) => fresh(origin, max_age, SystemTime::now()),
        }
    }

    /// Whether what a kept catalog names is what was listed, where that can be told without a request for each sample.
    pub(crate) fn unchanged(&self, catalog: &Catalog, tell: &mut dyn FnMut(u64) -> Result<()>) -> bool {
        match self {
            Self::Directory(_, root) => unchanged(catalog, root, tell),
            Self::Remote(_) => true,
        }
    }

    /// Whether every request costs a round trip, so that a few long ones are better than many short ones.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self, Self::Remote(_))
    }
}

impl Store for OpenedPlace {
    fn read(&self, at: Location<'_>, into: &mut [u8]) -> std::result::Result<(), ReadError> {
        match self {
            Self::Directory(files, _) => files.read(at, into),
            Self::Remote(remote) => remote.read(at, into),
        }
    }
}

impl Objects for OpenedPlace {
    fn look(&self, key: &str) -> std::result::Result<ObjectVersion, ReadError> {
        match self {
            Self::Directory(files, _) => files.look(key),
            Self::Remote(remote) => remote.look(key),
        }
    }
}

/// Whether the listing of an object store is young enough to be trusted.
fn fresh(origin: &Origin, max_age: Duration, now: SystemTime) -> bool {
    let age = seconds(now).checked_sub(origin.listed);
    let fresh = age.is_some_and(|age| Duration::from_secs(age) < max_age);
    if fresh {
        tracing::info!(
            age,
            "a kept listing is used; set `listing.max_age` to `0s` in `storage_options` to list anew"
        );
    }
    fresh
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_trusted_for_its_time_and_never_from_the_future() {
        let now = SystemTime::now();
        let minute = Duration::from_secs(60);
        let of = |listed| Origin { listed, ..Origin::default() };
        assert!(fresh(&of(seconds(now) - 59), minute, now));
        assert!(!fresh(&of(seconds(now) - 60), minute, now));
        assert!(!fresh(&of(seconds(now)), Duration::ZERO, now));
        assert!(!fresh(&of(seconds(now) + 1), minute, now));
    }
}
