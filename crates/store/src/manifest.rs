//! Manifests: a table that says which objects, or which parts of objects, are samples, and their labels.
//!
//! CSV with a head, JSON lines or Parquet, known by the ending of its name. Columns are `key` (or `path`, `file`),
//! and if they are there a label, `offset` and `length`. Keys lie below a root, which is another place or the
//! one that the manifest lies in.
//!
//! Local files are looked at, so that their versions are known. Objects in a store are looked at only where the
//! table does not give their length: a request for each is what the table is there to spare. What was not looked
//! at is served as it is found, and compared by its length alone.

mod key;
mod rows;
mod table;

use std::cell::Cell;
use std::collections::HashMap;

use hotset_core::{Error, Result};

use crate::catalog::{Builder, Directory, Sample, Shape};
use crate::labels::Labels;
use crate::layout::Layout;
use crate::listing::{Listing, ListingKey, Object, Origin};
use crate::opened_place::OpenedPlace;
use crate::options::Options;
use crate::parallel::{Wanted, in_parallel};
use crate::place::Place;
use crate::retries::{named, with_retries};
use crate::store::{Location, ObjectVersion, Objects, ReadError, Store, UNKNOWN};
use key::Keys;
use rows::Rows;

/// The largest table that is read.
const LARGEST: u64 = 4 << 30;
/// Rows looked at in one piece of work.
const CHUNK: usize = 16;

/// A manifest that is found and not read yet.
pub(crate) struct Manifest {
    place: String,
    /// Where its keys lie.
    root: String,
    label: String,
    /// Where the manifest itself lies, and what it is now.
    beside: Option<OpenedPlace>,
    object: Object,
    pub(crate) opened: OpenedPlace,
}

impl Manifest {
    /// Finds the manifest that `written` names, with its keys below `root` or, if that is empty, beside it.
    pub(crate) fn find(written: &str, root: &str, label: &str, options: &Options) -> Result<Self> {
        let (folder, name) = match written.rfind('/') {
            Some(0) => ("/", &written[1..]),
            Some(slash) => (&written[..slash], &written[slash + 1..]),
            None => (".", written),
        };
        table::Format::of(name)?;
        let beside = Place::resolve(folder)?;
        let place = format!("{}/{name}", beside.shown().trim_end_matches('/'));
        let root = if root.is_empty() { beside.clone() } else { Place::resolve(root)? };
        // Options of an object store may be meant for one of the two.
        let remote = |place: &Place| matches!(place, Place::Remote(_));
        let either = remote(&beside) || remote(&root);
        let local = Options { client: Default::default(), ..options.clone() };
        let open =
            |place: &Place| OpenedPlace::open(place, if either && !remote(place) { &local } else { options });
        let opened = open(&root)?;
        let beside = if root == beside { None } else { Some(open(&beside)?) };
        let look = beside.as_ref().unwrap_or(&opened).look(name).map_err(|error| match error {
            ReadError::Vanished => Error::invalid(format!("there is no manifest `{place}`")),
            error => named(&place, error),
        })?;
        let object = Object { key: name.to_owned(), look };
        Ok(Self { place, root: root.shown(), label: label.to_owned(), beside, object, opened })
    }

    pub(crate) fn listing_key(&self) -> ListingKey {
        let details = vec![self.root.clone(), self.label.clone()];
        ListingKey { place: self.place.clone(), layout: Layout::Manifest.name(), details }
    }

    /// Whether the manifest is the one that was read. Without a version it might be another one.
    pub(crate) fn holds(&self, origin: &Origin) -> bool {
        self.object.look.version != UNKNOWN && origin.objects.as_slice() == std::slice::from_ref(&self.object)
    }

    /// Reads the table; `progress` hears now and then how many samples there are so far.
    pub(crate) fn list(&self, progress: &mut dyn FnMut(u64) -> Result<()>) -> Result<Listing> {
        let rows = self.rows()?;
        if rows.len() == 0 {
            return Err(Error::invalid(format!("the manifest `{}` names no samples", self.place)));
        }
        let shape = Shape { labels: rows.labelled(), ..Shape::default() };
        let mut builder = Builder::of(shape);
        let mut labels = Labels::default();
        let mut folders: HashMap<String, Directory> = HashMap::new();
        let keys = Keys::new(&self.root, &self.place);
        let taken = Cell::new(0);
        let push = |chunk: usize, looks: Vec<ObjectVersion>| {
            for (row, look) in (chunk * CHUNK..).zip(looks) {
                let key = keys.below(rows.key(row), row)?;
                let (folder, name) = match rows.offset(row) {
                    Some(_) => (key, ""),
                    None => key.rsplit_once('/').unwrap_or(("", key)),
                };
                let directory = match folders.get(folder) {
                    Some(directory) => *directory,
                    None => *folders.entry(folder.to_owned()).or_insert(builder.directory(folder)?),
                };
                let of = || format!("`{key}` (row `{}`, column `{}`)", row + 1, rows.column);
                let label = rows.label(row).map(|text| labels.label(text, &of)).transpose()?;
                let (offset, size) = (rows.offset(row), rows.length(row).unwrap_or(look.size));
                self.fits(key, row, offset, size, look)?;
                let sample = Sample { offset, size, version: look.version, label, spans: &[] };
                builder.push_sample(directory, name, &sample)?;
            }
            taken.set(((chunk + 1) * CHUNK).min(rows.len()) as u64);
            Ok(())
        };
        let work = |chunk: usize, wanted: &Wanted| {
            let end = ((chunk + 1) * CHUNK).min(rows.len());
            let look = |row| wanted.check().and_then(|()| self.look(&keys, &rows, row));
            (chunk * CHUNK..end).map(look).collect::<Result<Vec<_>>>()
        };
        in_parallel(rows.len().div_ceil(CHUNK), &work, push, &mut || progress(taken.get()))?;
        labels.name(&mut builder)?;
        let origin = Origin { objects: vec![self.object.clone()], ..Origin::default() };
        Ok(Listing { catalog: builder.finish(), origin })
    }

    fn rows(&self) -> Result<Rows> {
        let Object { key, look } = &self.object;
        if look.size > LARGEST {
            return Err(Error::invalid(format!(
                "the manifest `{}` has `{}` bytes; cut it up, `{LARGEST}` are read",
                self.place, look.size
            )));
        }
        let mut bytes = vec![0; look.size as usize];
        let at = Location { key, offset: 0, version: look.version, whole: true };
        let store: &OpenedPlace = self.beside.as_ref().unwrap_or(&self.opened);
        with_retries(&self.place, || store.read(at, &mut bytes))?;
        table::read(table::Format::of(key)?, bytes, &self.label).map_err(|error| {
            Error::new(error.kind, format!("the manifest `{}`: {}", self.place, error.message))
        })
    }

    /// What a row's object is now, if it takes looking to know.
    fn look(&self, keys: &Keys<'_>, rows: &Rows, row: usize) -> Result<ObjectVersion> {
        let key = keys.below(rows.key(row), row)?;
        if let OpenedPlace::Remote(remote) = &self.opened {
            remote.address.key(key).map_err(|why| {
                Error::invalid(format!("row `{}` of the manifest `{}`: {why}", row + 1, self.place))
            })?;
        }
        if let Some(length) = rows.length(row)
            && self.opened.is_remote()
        {
            return Ok(ObjectVersion {
                size: rows.offset(row).unwrap_or(0).saturating_add(length),
                version: UNKNOWN,
            });
        }
        self.opened.look(key).map_err(|error| match error {
            ReadError::Vanished => Error::invalid(format!(
                "there is no `{key}` below `{}`, which row `{}` of the manifest `{}` names",
                self.root,
                row + 1,
                self.place
            )),
            error => named(key, error),
        })
    }

    /// Refuses a row that is not what its object is.
    fn fits(&self, key: &str, row: usize, offset: Option<u64>, size: u64, look: ObjectVersion) -> Result<()> {
        let fits = match offset {
            Some(offset) => offset.checked_add(size).is_some_and(|end| end <= look.size),
            None => size == look.size,
        };
        if fits {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "row `{}` of the manifest `{}` gives `{key}` {}`{size}` bytes, and it has `{}`",
            row + 1,
            self.place,
            offset.map(|offset| format!("from `{offset}` on ")).unwrap_or_default(),
            look.size
        )))
    }
}

#[cfg(test)]
mod tests;
