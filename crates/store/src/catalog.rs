//! Catalogs: what the samples of a dataset are.
//!
//! Ids are dense, in the order in which samples were pushed. Neighbours mostly share their folder and their
//! label, so those are kept once per *run* of neighbours; beside its run a sample costs its file name, where
//! that name ends, its size and its version: 12 bytes and the name. Where labels come one by one (manifests,
//! shards) they cost 4 bytes a sample more and 8 where they are floats, where samples lie inside larger objects their offsets cost 8, and
//! where a sample has several parts each part costs 8. A catalog never changes and is named by a hash of its
//! keys, places, lengths and labels; versions are not in that name, so that what is kept for a dataset survives
//! a `touch`.
//!
//! A sample inside an object has that object's key for its folder: `train-007.tar/000123` is the sample `000123`
//! of that shard.

mod builder;
mod label;
mod select;

use blake3::Hasher;
use hotset_core::Id;
use hotset_core::policy::Sizes;

use crate::names::Names;
use crate::store::Location;

pub use builder::{Builder, Sample, Shape};
pub(crate) use label::Each;
pub use label::{Label, LabelKind};

/// The offset of a sample that is a whole object.
const WHOLE: u64 = u64::MAX;

/// Where a part begins that its sample does not have; its length is 0.
pub const ABSENT: u32 = u32::MAX;

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
    /// Where samples lie in their objects; empty: all are whole objects.
    offsets: Vec<u64>,
    /// Labels that came one by one.
    labels: Option<Each>,
    /// The names of a sample's parts; empty: a sample is one thing.
    parts: Vec<String>,
    /// Where the parts lie in their sample: begin and length of each; empty unless there are several.
    spans: Vec<u32>,
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

    /// The key of a sample in its store: its path below the root. One that lies inside an object is named by
    /// that object's key and its own name there.
    pub fn key(&self, id: Id) -> String {
        let directory = self.directories.get(self.run(id).directory.0 as usize);
        let name = self.names.get(id as usize);
        match (directory.is_empty(), name.is_empty()) {
            (true, _) => name.to_owned(),
            (false, true) => directory.to_owned(),
            (false, false) => [directory, name].join("/"),
        }
    }

    /// Calls `with` with where a sample lies, and returns what it returns.
    pub fn with_location<T>(&self, id: Id, with: impl FnOnce(Location<'_>) -> T) -> T {
        let version = self.version(id);
        match self.offset(id) {
            Some(offset) => {
                let key = self.directories.get(self.run(id).directory.0 as usize);
                with(Location { key, offset, version, whole: false })
            }
            None => with(Location { key: &self.key(id), offset: 0, version, whole: true }),
        }
    }

    /// The label of a sample as one number: that of its class, what a manifest or shard says, or where that is a float or
    /// a list a number that equal ones share.
    pub fn label(&self, id: Id) -> Option<i64> {
        self.label_of(id).map(|label| label.number())
    }

    /// The label of a sample.
    pub fn label_of(&self, id: Id) -> Option<Label<'_>> {
        match &self.labels {
            Some(labels) => Some(labels.get(id as usize)),
            // A label of a run is the number of a class, of which there are no more than folders.
            None => self.run(id).label.map(|label| Label::Whole(label as i32)),
        }
    }

    /// What labels are.
    pub fn label_kind(&self) -> LabelKind {
        match &self.labels {
            Some(labels) => labels.kind(),
            None if self.classes.is_empty() => LabelKind::None,
            None => LabelKind::Whole,
        }
    }

    /// Appends the label of a sample to a batch as it travels: its values, and for a list how many.
    pub fn append_label(&self, id: Id, values: &mut Vec<i64>, lengths: &mut Vec<u32>) {
        let Some(label) = self.label_of(id) else { return };
        label.append(values);
        if let Label::List { values, .. } = label {
            lengths.push(values.len() as u32);
        }
    }

    /// The names of the parts of every sample, in their order; empty where a sample is one thing.
    pub fn parts(&self) -> &[String] {
        &self.parts
    }

    /// Where the parts of a sample lie in its bytes: begin and length of each, one after the other, and
    /// [`ABSENT`] and 0 for one it does not have. Empty unless there are several parts.
    pub fn spans(&self, id: Id) -> &[u32] {
        if self.spans.is_empty() {
            return &[];
        }
        let width = 2 * self.parts.len();
        &self.spans[id as usize * width..][..width]
    }

    /// The names of the classes, by label.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Whether samples have labels.
    pub fn labelled(&self) -> bool {
        !self.classes.is_empty() || self.labels.is_some()
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
            + (self.sizes.capacity() + self.versions.capacity() + self.spans.capacity()) * size_of::<u32>()
            + self.offsets.capacity() * size_of::<u64>()
            + self.labels.as_ref().map_or(0, Each::memory)
            + (self.classes.capacity() + self.parts.capacity()) * size_of::<String>()
            + self.classes.iter().chain(&self.parts).map(String::capacity).sum::<usize>()
            + self.identity.capacity()
            + self.versions_identity.capacity()
    }

    /// The version of a sample that was listed.
    pub(crate) fn version(&self, id: Id) -> u32 {
        self.versions[id as usize]
    }

    /// Where a sample lies in its object; `None`: it is a whole one.
    pub(crate) fn offset(&self, id: Id) -> Option<u64> {
        self.offsets.get(id as usize).copied().filter(|&offset| offset != WHOLE)
    }

    /// Whether two samples that lie inside an object lie in the same one.
    pub(crate) fn shares_object(&self, id: Id, other: Id) -> bool {
        self.run(id).directory == self.run(other).directory
    }

    /// Whether samples come with labels, places or parts of their own.
    pub(crate) fn scattered(&self) -> bool {
        self.labels.is_some() || !self.parts.is_empty() || !self.offsets.is_empty()
    }

    /// Whether labels came one by one.
    pub(crate) fn labels_each(&self) -> bool {
        self.labels.is_some()
    }

    /// The file name of a sample.
    pub(crate) fn name(&self, id: Id) -> &str {
        self.names.get(id as usize)
    }

    /// The number and the path of a sample's folder, or of the object it lies in.
    pub(crate) fn folder(&self, id: Id) -> (u32, &str) {
        let Directory(number) = self.run(id).directory;
        (number, self.directories.get(number as usize))
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

    fn gap_after(&self, id: Id) -> Option<u64> {
        self.gap_after(id)
    }

    fn label(&self, id: Id) -> Option<i64> {
        self.label(id)
    }

    fn has_neighbours(&self) -> bool {
        (0..self.len() as Id).any(|id| self.offset(id).is_some())
    }
}

/// The first 16 bytes of a hash, in hex: a name that no two different things share.
pub(crate) fn hex(hasher: &Hasher) -> String {
    hasher.finalize().to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests;
