//! How large samples are, from a file.

use std::path::Path;

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

#[cfg(test)]
mod tests {
    use super::*;

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
