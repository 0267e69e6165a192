//! Making a catalog from samples as they come.

use blake3::Hasher;
use hotset_core::id::MOST_SAMPLES;
use hotset_core::{Error, Id, Result};

use super::{ABSENT, Catalog, Directory, Each, Label, Run, WHOLE, hex};
use crate::names::{LONGEST, Names};

/// What all samples of a catalog have in common.
#[derive(Debug, Clone, Default)]
pub struct Shape {
    /// The names of the classes. With them every label is one of their numbers.
    pub classes: Vec<String>,
    /// Whether every sample comes with a label of its own, instead of one for each run of neighbours.
    pub labels: bool,
    /// The names of the parts of every sample; empty where a sample is one thing.
    pub parts: Vec<String>,
}

/// A sample that comes with a label or a place of its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample<'a> {
    /// Where it lies in its object, whose key is its folder then; `None`: it is a whole object.
    pub offset: Option<u64>,
    /// Its bytes.
    pub size: u64,
    /// The version of its object.
    pub version: u32,
    /// Its label.
    pub label: Option<Label<'a>>,
    /// Begin and length of each of its parts in its bytes, one after the other, [`ABSENT`] and 0 for one it does
    /// not have; not needed for one part.
    pub spans: &'a [u32],
}

/// Makes a catalog from samples as they come.
#[derive(Debug)]
pub struct Builder {
    catalog: Catalog,
    /// Of keys, lengths and labels.
    hasher: BlockHasher,
}

/// Hashes in long stretches, many blocks at a time; a sample alone is hardly one.
#[derive(Debug, Default)]
struct BlockHasher {
    hasher: Hasher,
    waiting: Vec<u8>,
}

impl BlockHasher {
    const LENGTH: usize = 64 << 10;

    fn update(&mut self, bytes: &[u8]) -> &mut Self {
        self.waiting.extend_from_slice(bytes);
        if self.waiting.len() >= Self::LENGTH {
            self.hasher.update(&self.waiting);
            self.waiting.clear();
        }
        self
    }

    fn hex(mut self) -> String {
        self.hasher.update(&self.waiting);
        hex(&self.hasher)
    }
}

impl Builder {
    /// A catalog without samples. With `classes` every sample has a label, without them none has.
    pub fn new(classes: Vec<String>) -> Self {
        Self::of(Shape { classes, labels: false, parts: Vec::new() })
    }

    /// A catalog of this shape, without samples.
    pub fn of(shape: Shape) -> Self {
        let mut hasher = BlockHasher::default();
        if shape.labels || !shape.parts.is_empty() {
            // A domain of its own: samples are hashed with their places below.
            hasher.update(&u64::MAX.to_le_bytes());
            for part in &shape.parts {
                hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
            }
        }
        let catalog = Catalog {
            directories: Names::default(),
            runs: Vec::new(),
            names: Names::default(),
            sizes: Vec::new(),
            versions: Vec::new(),
            offsets: Vec::new(),
            labels: shape.labels.then(Each::new),
            parts: shape.parts,
            spans: Vec::new(),
            classes: shape.classes,
            bytes: 0,
            largest: 0,
            identity: String::new(),
            versions_identity: String::new(),
        };
        Self { catalog, hasher }
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

    /// Adds a sample that is a whole object. Its label is a class of those the builder was made with.
    pub fn push(
        &mut self,
        directory: Directory,
        name: &str,
        size: u64,
        version: u32,
        label: Option<u32>,
    ) -> Result<()> {
        if self.catalog.labels.is_some() {
            return Err(Error::internal(format!("`{name}` comes without the label it needs")));
        }
        let classes = self.catalog.classes.len();
        if label.map_or(classes > 0, |label| label as usize >= classes) {
            return Err(Error::internal(format!(
                "label `{label:?}` of `{name}` is none of `{classes}` classes"
            )));
        }
        self.add(
            directory,
            name,
            label,
            label.map_or(-1, i64::from),
            &Sample { size, version, ..Sample::default() },
        )
    }

    /// Adds a sample with a label or a place of its own.
    pub fn push_sample(&mut self, directory: Directory, name: &str, sample: &Sample<'_>) -> Result<()> {
        let parts = self.catalog.parts.len();
        let spans = if parts > 1 { 2 * parts } else { 0 };
        let inside = |[begin, length]: &[u32; 2]| {
            u64::from(*begin) + u64::from(*length) <= sample.size || [*begin, *length] == [ABSENT, 0]
        };
        let fit = sample.spans.as_chunks::<2>().0.iter().all(inside);
        if sample.spans.len() != spans || !fit {
            return Err(Error::internal(format!("the parts of `{name}` are not those of the catalog")));
        }
        let classes = self.catalog.classes.len();
        let known = |label: Label<'_>| match label {
            Label::Whole(label) => classes == 0 || usize::try_from(label).is_ok_and(|label| label < classes),
            _ => classes == 0,
        };
        if sample.label.is_some() != self.catalog.labels.is_some() || !sample.label.is_none_or(known) {
            return Err(Error::internal(format!("the label `{:?}` of `{name}` does not fit", sample.label)));
        }
        // Labels of their own are hashed at the end, when it is known what they are.
        self.add(directory, name, None, -1, sample)?;
        let catalog = &mut self.catalog;
        if let (Some(labels), Some(label)) = (&mut catalog.labels, sample.label)
            && !labels.push(label)
        {
            return Err(Error::internal(format!("the label `{label:?}` of `{name}` is of another kind")));
        }
        if sample.offset.is_some() && catalog.offsets.is_empty() {
            catalog.offsets.resize(catalog.sizes.len() - 1, WHOLE);
        }
        if sample.offset.is_some() || !catalog.offsets.is_empty() {
            catalog.offsets.push(sample.offset.unwrap_or(WHOLE));
        }
        catalog.spans.extend_from_slice(sample.spans);
        self.hasher.update(&sample.offset.unwrap_or(WHOLE).to_le_bytes());
        sample.spans.iter().for_each(|span| {
            self.hasher.update(&span.to_le_bytes());
        });
        Ok(())
    }

    fn add(
        &mut self,
        directory: Directory,
        name: &str,
        label: Option<u32>,
        hashed: i64,
        sample: &Sample<'_>,
    ) -> Result<()> {
        let Sample { size, version, .. } = *sample;
        let catalog = &mut self.catalog;
        let id = catalog.sizes.len() as u64;
        if id >= MOST_SAMPLES {
            return Err(Error::invalid(format!("the dataset has more than `{MOST_SAMPLES}` samples")));
        }
        if directory.0 as usize >= catalog.directories.len() {
            return Err(Error::internal(format!("the sample `{name}` lies in a folder of another catalog")));
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
        self.hasher.update(&hashed.to_le_bytes());

        if catalog.runs.last().is_none_or(|run| run.directory != directory || run.label != label) {
            catalog.runs.push(Run { first: id as Id, directory, label });
        }
        catalog.sizes.push(short);
        catalog.versions.push(version);
        catalog.bytes += size;
        catalog.largest = catalog.largest.max(size);
        Ok(())
    }

    /// Says what labels mean that were pushed one by one as they came up: label `n` is the class `names[n]`.
    /// Classes are then numbered in the order of their names.
    pub fn name_classes(&mut self, names: Vec<String>) -> Result<()> {
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.sort_by(|a, b| names[*a].cmp(&names[*b]));
        let mut rank = vec![0i32; names.len()];
        for (number, &label) in order.iter().enumerate() {
            rank[label] = i32::try_from(number).map_err(|_| Error::invalid("there are too many classes"))?;
        }
        let Some(Each::Whole(labels)) = &mut self.catalog.labels else {
            return Err(Error::internal("labels that are no numbers of classes have no names"));
        };
        for label in labels {
            let renamed = usize::try_from(*label).ok().and_then(|label| rank.get(label));
            *label = *renamed.ok_or_else(|| Error::internal(format!("label `{label}` has no name")))?;
        }
        self.catalog.classes = order.into_iter().map(|label| names[label].clone()).collect();
        Ok(())
    }

    /// The catalog of what was pushed.
    pub fn finish(mut self) -> Catalog {
        if let Some(labels) = &self.catalog.labels {
            labels.hash(&mut |bytes| {
                self.hasher.update(bytes);
            });
            for name in &self.catalog.classes {
                self.hasher.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes());
            }
        }
        let mut catalog = self.catalog;
        catalog.directories.shrink();
        catalog.names.shrink();
        catalog.classes.shrink_to_fit();
        catalog.runs.shrink_to_fit();
        catalog.sizes.shrink_to_fit();
        catalog.versions.shrink_to_fit();
        catalog.offsets.shrink_to_fit();
        catalog.spans.shrink_to_fit();
        if let Some(labels) = &mut catalog.labels {
            labels.shrink();
        }
        catalog.identity = self.hasher.hex();
        let mut versions = BlockHasher::default();
        for version in &catalog.versions {
            versions.update(&version.to_le_bytes());
        }
        catalog.versions_identity = versions.hex();
        catalog
    }
}
