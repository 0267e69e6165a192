//! Catalogs: what the samples of a dataset are.
//!
//! Ids are dense, in the order in which samples were pushed. Neighbours mostly share their folder and their
//! label, so those are kept once per *run* of neighbours; beside its run a sample costs its file name, where
//! that name ends, its size and its version: 12 bytes and the name. A catalog never changes and is named by
//! a hash of its keys, lengths and labels; versions are not in that name, so that what is kept for a dataset
//! survives a `touch`.

use blake3::Hasher;
use hotset_core::id::MOST_SAMPLES;
use hotset_core::policy::Sizes;
use hotset_core::{Error, Id, Result};

use crate::names::{LONGEST, Names};
use crate::store::Location;

/// Neighbours in one folder with one label.
#[derive(Debug, Clone, Copy)]
struct Run {
    first: Id,
    directory: Directory,
    label: Option<u32>,
}

/// A folder, as its builder numbered it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Directory(u32);

/// What the samples of a dataset are; immutable. Ids passed to it are below [`Catalog::len`]; it panics on
/// others, as a slice does.
#[derive(Debug)]
pub struct Catalog {
    directories: Names,
    runs: Vec<Run>,
    names: Names,
    sizes: Vec<u32>,
    versions: Vec<u32>,
    classes: Vec<String>,
    bytes: u64,
    largest: u64,
    identity: String,
    versions_identity: String,
}

impl Catalog {
    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// The bytes of a sample.
    pub fn size(&self, id: Id) -> u64 {
        u64::from(self.sizes[id as usize])
    }

    /// The key of a sample in its store: its path below the root.
    pub fn key(&self, id: Id) -> String {
        let directory = self.directories.get(self.run(id).directory.0 as usize);
        let name = self.names.get(id as usize);
        if directory.is_empty() { name.to_owned() } else { [directory, name].join("/") }
    }

    /// Calls `with` with where a sample lies, and returns what it returns.
    pub fn with_location<T>(&self, id: Id, with: impl FnOnce(Location<'_>) -> T) -> T {
        let key = self.key(id);
        with(Location { key: &key, offset: 0, version: self.version(id) })
    }

    /// The label of a sample: the number of its class.
    pub fn label(&self, id: Id) -> Option<i64> {
        self.run(id).label.map(i64::from)
    }

    /// The names of the classes, by label.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Whether samples have labels.
    pub fn labelled(&self) -> bool {
        !self.classes.is_empty()
    }

    /// The catalog's name: a hash, in hex, of keys, lengths and labels in their order.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// A hash, in hex, of all versions in their order.
    pub fn versions_identity(&self) -> &str {
        &self.versions_identity
    }

    /// The bytes of all samples together.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes of the largest sample.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// The heap bytes this catalog takes.
    pub fn memory(&self) -> usize {
        self.directories.memory()
            + self.runs.capacity() * size_of::<Run>()
            + self.names.memory()
            + (self.sizes.capacity() + self.versions.capacity()) * size_of::<u32>()
            + self.classes.capacity() * size_of::<String>()
            + self.classes.iter().map(String::capacity).sum::<usize>()
            + self.identity.capacity()
            + self.versions_identity.capacity()
    }

    /// The version of a sample that was listed.
    pub(crate) fn version(&self, id: Id) -> u32 {
        self.versions[id as usize]
    }

    /// The file name of a sample.
    pub(crate) fn name(&self, id: Id) -> &str {
        self.names.get(id as usize)
    }

    /// The folders, by their number.
    pub(crate) fn directories(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.directories.len()).map(|index| self.directories.get(index))
    }

    /// The runs: the number of the folder, the label, and the ids.
    pub(crate) fn runs(&self) -> impl ExactSizeIterator<Item = (u32, Option<u32>, std::ops::Range<Id>)> {
        let len = self.len() as Id;
        self.runs.iter().enumerate().map(move |(index, run)| {
            let end = self.runs.get(index + 1).map_or(len, |next| next.first);
            (run.directory.0, run.label, run.first..end)
        })
    }

    fn run(&self, id: Id) -> Run {
        // The first run begins at 0, so there is always one at or before `id`.
        self.runs[self.runs.partition_point(|run| run.first <= id) - 1]
    }
}

impl Sizes for Catalog {
    fn len(&self) -> usize {
        self.len()
    }

    fn size(&self, id: Id) -> u64 {
        self.size(id)
    }
}

/// Makes a catalog from samples as they come.
#[derive(Debug)]
pub struct Builder {
    catalog: Catalog,
    /// Of keys, lengths and labels.
    hasher: Hasher,
    /// Of versions.
    versions: Hasher,
}

impl Builder {
    /// A catalog without samples. With `classes` every sample has a label, without them none has.
    pub fn new(classes: Vec<String>) -> Self {
        let catalog = Catalog {
            directories: Names::default(),
            runs: Vec::new(),
            names: Names::default(),
            sizes: Vec::new(),
            versions: Vec::new(),
            classes,
            bytes: 0,
            largest: 0,
            identity: String::new(),
            versions_identity: String::new(),
        };
        Self { catalog, hasher: Hasher::new(), versions: Hasher::new() }
    }

    /// Adds a folder, by its path below the root; the root's own is empty.
    pub fn directory(&mut self, path: &str) -> Result<Directory> {
        let number = u32::try_from(self.catalog.directories.len())
            .map_err(|_| Error::invalid(format!("the dataset has more than `{}` folders", u32::MAX)))?;
        if !self.catalog.directories.push(path) {
            return Err(Error::invalid(format!("the path `{path}` is longer than `{LONGEST}` bytes")));
        }
        Ok(Directory(number))
    }

    /// Adds a sample. Its label is a class of those the builder was made with.
    pub fn push(
        &mut self,
        directory: Directory,
        name: &str,
        size: u64,
        version: u32,
        label: Option<u32>,
    ) -> Result<()> {
        let catalog = &mut self.catalog;
        let id = catalog.sizes.len() as u64;
        if id >= MOST_SAMPLES {
            return Err(Error::invalid(format!("the dataset has more than `{MOST_SAMPLES}` samples")));
        }
        if directory.0 as usize >= catalog.directories.len() {
            return Err(Error::internal(format!("the sample `{name}` lies in a folder of another catalog")));
        }
        let classes = catalog.classes.len();
        if label.map_or(classes > 0, |label| label as usize >= classes) {
            return Err(Error::internal(format!(
                "label `{label:?}` of `{name}` is none of `{classes}` classes"
            )));
        }
        let folder = catalog.directories.get(directory.0 as usize);
        let Ok(short) = u32::try_from(size) else {
            return Err(Error::invalid(format!(
                "`{folder}/{name}` has `{size}` bytes; samples of 4 GiB or more are not supported, so move it \
                 out of the dataset or cut it up"
            )));
        };
        if !catalog.names.push(name) {
            return Err(Error::invalid(format!("the file name `{name}` is longer than `{LONGEST}` bytes")));
        }
        let slash = usize::from(!folder.is_empty());
        self.hasher.update(&((folder.len() + slash + name.len()) as u64).to_le_bytes());
        self.hasher.update(folder.as_bytes()).update(&b"/"[..slash]).update(name.as_bytes());
        self.hasher.update(&size.to_le_bytes());
        self.hasher.update(&label.map_or(-1, i64::from).to_le_bytes());
        self.versions.update(&version.to_le_bytes());

        if catalog.runs.last().is_none_or(|run| run.directory != directory || run.label != label) {
            catalog.runs.push(Run { first: id as Id, directory, label });
        }
        catalog.sizes.push(short);
        catalog.versions.push(version);
        catalog.bytes += size;
        catalog.largest = catalog.largest.max(size);
        Ok(())
    }

    /// The catalog of what was pushed.
    pub fn finish(self) -> Catalog {
        let mut catalog = self.catalog;
        catalog.directories.shrink();
        catalog.names.shrink();
        catalog.classes.shrink_to_fit();
        catalog.runs.shrink_to_fit();
        catalog.sizes.shrink_to_fit();
        catalog.versions.shrink_to_fit();
        catalog.identity = hex(&self.hasher);
        catalog.versions_identity = hex(&self.versions);
        catalog
    }
}

/// The first 16 bytes of a hash, in hex: a name that no two different things share.
pub(crate) fn hex(hasher: &Hasher) -> String {
    hasher.finalize().to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests;
