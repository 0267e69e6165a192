//! Samples in the arena, and the lease that keeps them there.

use std::collections::HashMap;
use std::sync::Arc;

use hotset_core::{Error, Result};

use crate::calls::Shared;
use crate::lease::Lease;
use crate::mapping::Mapping;
use crate::proto;

/// Segments by their numbers.
pub(crate) type Segments = HashMap<u32, Arc<Mapping>>;

/// Where one sample lies. Checked: it is inside its mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Which of [`Lease::mappings`]; of no meaning for a sample of no bytes.
    pub mapping: usize,
    /// The sample's first byte.
    pub offset: u64,
    /// The sample's bytes.
    pub length: u64,
}

/// The labels of some samples, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labels {
    /// What they are.
    pub kind: proto::LabelKind,
    /// Floats by their bits, lists one after the other; empty without labels.
    pub values: Vec<i64>,
    /// How many belong to each sample, where they are lists. Checked: together as many as there are.
    pub lengths: Vec<u32>,
}

impl Labels {
    /// Checks the labels of `samples` samples.
    pub(crate) fn new(
        kind: proto::LabelKind,
        values: Vec<i64>,
        lengths: Vec<u32>,
        samples: usize,
    ) -> Result<Self> {
        let together: u64 = lengths.iter().copied().map(u64::from).sum();
        let (fit, values_fit) = match kind {
            proto::LabelKind::Unlabelled => (lengths.is_empty(), values.is_empty()),
            proto::LabelKind::Whole | proto::LabelKind::Float => {
                (lengths.is_empty(), values.len() == samples)
            }
            _ => (lengths.len() == samples, values.len() as u64 == together),
        };
        if fit && values_fit {
            return Ok(Self { kind, values, lengths });
        }
        let arrived = values.len();
        Err(Error::internal(format!(
            "`{samples}` samples have labels, and `{arrived}` values of them arrived"
        )))
    }
}

/// The samples of one request, in its order. They stay valid after the server and the client are gone.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Keeps the bytes and says where they lie; a clone for each thing that outlives the batch and still looks at them.
    pub lease: Arc<Lease>,
    /// Empty when the dataset has no labels.
    pub labels: Labels,
    /// Begin and length of every part of every sample, in its bytes; 2^32 - 1 and 0 for one that a sample does not
    /// have. Empty unless samples have several parts.
    /// Checked: as many for each sample, and inside it.
    pub parts: Vec<u32>,
    /// What the user should be told; mostly empty.
    pub remark: String,
}

impl Batch {
    /// Checks an answer to a request for `asked` samples against the segments known.
    pub(crate) fn new(
        answer: proto::Batch,
        asked: usize,
        segments: &Segments,
        shared: &Arc<Shared>,
    ) -> Result<Self> {
        let lengths = [answer.segment.len(), answer.offset.len(), answer.length.len()];
        if lengths != [asked; 3] {
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
        check_parts(&answer.parts, &entries)?;
        let labels = Labels::new(answer.label_kind(), answer.label, answer.label_length, asked)?;
        let (parts, remark) = (answer.parts, answer.remark);
        let lease = Lease::new(answer.lease, shared, mappings, entries);
        Ok(Self { lease, labels, parts, remark })
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.lease.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lease.entries.is_empty()
    }

    /// The bytes of the sample at `position`.
    pub fn get(&self, position: usize) -> Option<&[u8]> {
        let Entry { mapping, offset, length } = *self.lease.entries.get(position)?;
        if length == 0 {
            return Some(&[]);
        }
        self.lease.mappings.get(mapping)?.slice(offset, length).ok()
    }
}

/// Where a part begins that its sample does not have; its length is 0.
const ABSENT: u32 = u32::MAX;

/// Checks that parts lie inside their samples, as many in each.
fn check_parts(parts: &[u32], entries: &[Entry]) -> Result<()> {
    if parts.is_empty() {
        return Ok(());
    }
    let wrong = || {
        Error::internal(format!("`{}` numbers of parts arrived for `{}` samples", parts.len(), entries.len()))
    };
    let width = parts.len().checked_div(entries.len()).filter(|width| *width > 0 && width.is_multiple_of(2));
    let width = width.filter(|width| width * entries.len() == parts.len()).ok_or_else(wrong)?;
    let inside = |(spans, entry): (&[u32], &Entry)| {
        spans.as_chunks::<2>().0.iter().all(|[begin, length]| {
            u64::from(*begin) + u64::from(*length) <= entry.length || [*begin, *length] == [ABSENT, 0]
        })
    };
    if parts.chunks(width).zip(entries).all(inside) { Ok(()) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_are_not_their_samples_are_refused() {
        let entry = |length| Entry { mapping: 0, offset: 0, length };
        let two = [entry(10), entry(4)];
        assert!(check_parts(&[], &two).is_ok());
        assert!(check_parts(&[0, 4, 6, 4, 0, 0, 2, 2], &two).is_ok());
        assert!(check_parts(&[0, 4, ABSENT, 0, ABSENT, 0, 2, 2], &two).is_ok());
        assert!(check_parts(&[0, 4, ABSENT, 1, 0, 0, 2, 2], &two).is_err());
        for wrong in
            [&[0, 1][..], &[0, 1, 2], &[0, 11, 0, 1], &[0, 1, u32::MAX, u32::MAX], &[0, 1, 1, 1, 0, 1]]
        {
            assert!(check_parts(wrong, &two).is_err(), "{wrong:?}");
        }
        assert!(check_parts(&[0, 1], &[]).is_err());
    }
}
