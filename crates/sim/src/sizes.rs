//! How large samples are, from a file, and whether they lie in shards.

use std::path::Path;
use std::sync::Arc;

use hotset_core::policy::Sizes;
use hotset_core::{Error, Id, Result};

use crate::files;

/// Reads sizes in bytes, by id, from a `.npy` file or the array `sizes` of a `.npz` file.
pub fn open(path: &Path) -> Result<Vec<u64>> {
    let array = files::open(path, "sizes", &|value| {
        if value >= 0.0 && value.fract() == 0.0 && value < 9e15 {
            Ok(value as u64)
        } else {
            Err("a size is a whole number of bytes, 0 or more")
        }
    })?;
    match array.shape[..] {
        [_] => Ok(array.values),
        _ => Err(Error::invalid(format!(
            "cannot use `{}` as sizes: its shape is {:?}, not [ids]",
            path.display(),
            array.shape
        ))),
    }
}

/// The bytes of all samples together.
pub fn total(sizes: &dyn Sizes) -> u64 {
    (0..sizes.len()).fold(0u64, |sum, id| sum.saturating_add(sizes.size(id as Id)))
}

/// Samples that lie one behind the other in shards, in the order of their ids.
pub struct Sharded {
    sizes: Arc<dyn Sizes>,
    /// Whether each is the last of its shard.
    last: Vec<bool>,
}

impl Sharded {
    /// In shards of at least so many bytes.
    pub fn new(sizes: Arc<dyn Sizes>, shard: u64) -> Self {
        let mut filled = 0u64;
        let ends = |id: Id| {
            filled = filled.saturating_add(sizes.size(id));
            let ends = filled >= shard;
            filled = if ends { 0 } else { filled };
            ends
        };
        let last = (0..sizes.len() as Id).map(ends).collect();
        Self { sizes, last }
    }
}

impl Sizes for Sharded {
    fn len(&self) -> usize {
        self.sizes.len()
    }

    fn size(&self, id: Id) -> u64 {
        self.sizes.size(id)
    }

    fn label(&self, id: Id) -> Option<i64> {
        self.sizes.label(id)
    }

    fn gap_after(&self, id: Id) -> Option<u64> {
        let next = (id as usize) + 1 < self.last.len();
        (next && !self.last[id as usize]).then_some(0)
    }

    fn has_neighbours(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_hold_what_fits_and_one_sample_more() {
        let sharded = Sharded::new(Arc::new(vec![40u64; 7]), 100);
        let gaps: Vec<Option<u64>> = (0..7).map(|id| sharded.gap_after(id)).collect();
        assert_eq!(gaps, [Some(0), Some(0), None, Some(0), Some(0), None, None]);
        assert_eq!((sharded.len(), sharded.size(3), sharded.has_neighbours()), (7, 40, true));
    }

    fn file(descr: &str, shape: &str, data: &[u8]) -> tempfile::NamedTempFile {
        let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let length = (text.len() as u16).to_le_bytes();
        let bytes = [&b"\x93NUMPY\x01\x00"[..], &length, text.as_bytes(), data].concat();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    #[test]
    fn whole_numbers_are_sizes_and_nothing_else_is() {
        let sizes = open(file("<u4", "(2,)", &[1, 0, 0, 0, 0, 1, 0, 0]).path()).unwrap();
        assert_eq!((sizes.clone(), total(&sizes)), (vec![1, 256], 257));
        for (descr, shape, data, reason) in [
            ("|i1", "(2,)", &[1, 0xff][..], "at [1] is `-1`"),
            ("<f2", "(1,)", &[0, 0x38], "at [0] is `0.5`"),
            ("<f2", "(1,)", &[0, 0x7e], "at [0] is `NaN`"),
            ("|u1", "(1, 1)", &[1], "its shape is [1, 1], not [ids]"),
        ] {
            let message = open(file(descr, shape, data).path()).unwrap_err().message;
            assert!(message.contains(reason), "{message}");
        }
    }
}
