//! Samples in the arena, and the lease that keeps them there.

use std::collections::HashMap;
use std::sync::Arc;

use hotset_core::{Error, Result};

use crate::lease::Lease;
use crate::mapping::Mapping;
use crate::proto;

/// Segments by their numbers.
pub(crate) type Segments = HashMap<u32, Arc<Mapping>>;

/// Where one sample lies. Checked: it is inside its mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Which of [`Batch::mappings`]; of no meaning for a sample of no bytes.
    pub mapping: usize,
    /// The sample's first byte.
    pub offset: u64,
    /// The sample's bytes.
    pub length: u64,
}

/// The samples of one request, in its order. They stay valid after the server and the client are gone.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Keeps the bytes; a clone for each thing that outlives the batch and still looks at them.
    pub lease: Arc<Lease>,
    /// The segments these samples lie in, each once.
    pub mappings: Vec<Arc<Mapping>>,
    /// One for each index asked for.
    pub entries: Vec<Entry>,
    /// Empty when the dataset has no labels.
    pub labels: Vec<i64>,
}

impl Batch {
    /// Checks an answer to a request for `asked` samples against the segments known.
    pub(crate) fn new(
        answer: proto::Batch,
        asked: usize,
        segments: &Segments,
        lease: Arc<Lease>,
    ) -> Result<Self> {
        let lengths = [answer.segment.len(), answer.offset.len(), answer.length.len()];
        if lengths != [asked; 3] || ![0, asked].contains(&answer.label.len()) {
            return Err(Error::internal(format!("`{asked}` samples were asked for, `{lengths:?}` arrived")));
        }
        let mut numbers = Vec::new();
        let mut mappings: Vec<Arc<Mapping>> = Vec::new();
        let mut entries = Vec::with_capacity(asked);
        let places = answer.segment.iter().zip(&answer.offset).zip(&answer.length);
        for ((&segment, &offset), &length) in places {
            if length == 0 {
                entries.push(Entry { mapping: 0, offset: 0, length });
                continue;
            }
            // Samples that are asked for together mostly lie together.
            let mapping = match numbers.iter().rposition(|&number| number == segment) {
                Some(mapping) => mapping,
                None => {
                    let found = segments.get(&segment).ok_or_else(|| {
                        Error::internal(format!("a sample lies in segment `{segment}`, which was never sent"))
                    })?;
                    numbers.push(segment);
                    mappings.push(Arc::clone(found));
                    mappings.len() - 1
                }
            };
            mappings[mapping].slice(offset, length)?;
            entries.push(Entry { mapping, offset, length });
        }
        Ok(Self { lease, mappings, entries, labels: answer.label })
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The bytes of the sample at `position`.
    pub fn get(&self, position: usize) -> Option<&[u8]> {
        let Entry { mapping, offset, length } = *self.entries.get(position)?;
        if length == 0 {
            return Some(&[]);
        }
        self.mappings.get(mapping)?.slice(offset, length).ok()
    }
}
