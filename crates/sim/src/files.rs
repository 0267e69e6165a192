//! Arrays in files: a `.npy`, or one member of a `.npz`, which is a zip archive of them.
//!
//! Which of the two a file is, its first bytes say, not its name. Members may be stored or deflated; each is
//! read to its end, so that its checksum is verified.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use hotset_core::{Error, Result};
use zip::ZipArchive;
use zip::result::ZipError;

use crate::npy::{self, Array, MAGIC};

/// What a file may hold.
trait Source: Read + Seek {}
impl<T: Read + Seek> Source for T {}

/// What makes a number an array's own, or says what is wrong with it.
pub(crate) type Convert<'a, T> = &'a dyn Fn(f64) -> std::result::Result<T, &'static str>;

/// The array of a `.npy` file, or the member `member` of a `.npz` file.
pub(crate) fn open<T: Copy>(path: &Path, member: &str, convert: Convert<'_, T>) -> Result<Array<T>> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| bad(&name, &error.to_string()))?;
    array(&mut BufReader::new(file), &name, member, convert)
}

fn array<T: Copy>(
    source: &mut dyn Source,
    name: &str,
    member: &str,
    convert: Convert<'_, T>,
) -> Result<Array<T>> {
    let failed = |error: std::io::Error| bad(name, &error.to_string());
    let mut start = [0u8; 6];
    let mut filled = 0;
    while filled < start.len() {
        match source.read(&mut start[filled..]).map_err(failed)? {
            0 => break,
            count => filled += count,
        }
    }
    source.seek(SeekFrom::Start(0)).map_err(failed)?;
    if &start == MAGIC {
        let array = npy::read(source, name, convert)?;
        return ended(source, name).map(|()| array);
    }
    if !start.starts_with(b"PK") {
        return Err(bad(name, "it is neither a `.npy` nor a `.npz` file (`numpy.save`, `numpy.savez`)"));
    }
    let mut archive = ZipArchive::new(source).map_err(|error| bad(name, &error.to_string()))?;
    let shown = format!("{name}[{member}]");
    let known: Vec<String> = archive
        .file_names()
        .filter_map(|entry| Some(format!("`{}`", entry.ok()?.trim_end_matches(".npy"))))
        .collect();
    let mut entry = archive.by_name(&format!("{member}.npy")).map_err(|error| match error {
        ZipError::FileNotFound => {
            bad(name, &format!("it holds no array `{member}`; its arrays are {}", known.join(", ")))
        }
        error => bad(&shown, &error.to_string()),
    })?;
    let array = npy::read(&mut entry, &shown, convert)?;
    ended(&mut entry, &shown).map(|()| array)
}

/// Whether the file at `path` has a member of this name.
pub(crate) fn has(path: &Path, member: &str) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let Ok(archive) = ZipArchive::new(BufReader::new(file)) else { return false };
    let wanted = format!("{member}.npy");
    archive.file_names().any(|entry| entry.is_ok_and(|entry| entry == wanted))
}

/// Nothing may follow an array; asking is also what verifies a member's checksum.
fn ended(source: &mut (impl Read + ?Sized), name: &str) -> Result<()> {
    match source.read(&mut [0u8; 1]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(bad(name, "it goes on after the numbers that its shape says")),
        Err(error) => Err(bad(name, &error.to_string())),
    }
}

fn bad(name: &str, reason: &str) -> Error {
    Error::invalid(format!("cannot use `{name}`: {reason}"))
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use proptest::prelude::*;
    use zip::write::SimpleFileOptions;
    use zip::{CompressionMethod, ZipWriter};

    use super::*;

    fn npy(values: &[f32]) -> Vec<u8> {
        let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}\n", values.len());
        let mut bytes = [&MAGIC[..], &[1, 0], &(text.len() as u16).to_le_bytes(), text.as_bytes()].concat();
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        bytes
    }

    fn npz(method: CompressionMethod) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default().compression_method(method);
        for (name, values) in [("loss.npy", [1.0; 64]), ("reeval.npy", [2.0; 64])] {
            writer.start_file(name, options).unwrap();
            writer.write_all(&npy(&values)).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    fn load(bytes: &[u8], member: &str) -> Result<Array<f64>> {
        array(&mut Cursor::new(bytes), "x", member, &Ok)
    }

    #[test]
    fn members_are_read_stored_and_deflated() {
        for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
            assert_eq!(load(&npz(method), "reeval").unwrap().values, [2.0; 64]);
        }
        assert_eq!(load(&npy(&[3.0]), "loss").unwrap().values, [3.0]);
    }

    #[test]
    fn a_missing_member_is_answered_with_those_there_are() {
        let message = load(&npz(CompressionMethod::Stored), "losses").unwrap_err().message;
        assert_eq!(message, "cannot use `x`: it holds no array `losses`; its arrays are `loss`, `reeval`");
    }

    #[test]
    fn a_flipped_bit_of_the_data_is_found_by_its_checksum() {
        let mut bytes = npz(CompressionMethod::Stored);
        let at = bytes.windows(4).position(|four| four == 1.0f32.to_le_bytes()).unwrap();
        bytes[at + 40] ^= 1;
        assert!(load(&bytes, "loss").is_err());
    }

    #[test]
    fn what_is_neither_is_refused() {
        for bytes in [&b""[..], b"P", b"PK", b"PK\x03\x04 and then nothing", b"epoch,loss\n1,2\n"] {
            assert!(load(bytes, "loss").unwrap_err().message.starts_with("cannot use `x`"));
        }
        let message = load(&[npy(&[1.0]), vec![0]].concat(), "loss").unwrap_err().message;
        assert!(message.contains("goes on after"), "{message}");
    }

    proptest! {
        #[test]
        fn a_damaged_archive_is_read_or_refused(
            deflated: bool,
            flips in proptest::collection::vec((0usize..2000, 1u8..), 0..6),
            keep in proptest::option::of(0usize..2000),
        ) {
            let method = if deflated { CompressionMethod::Deflated } else { CompressionMethod::Stored };
            let mut bytes = npz(method);
            let length = bytes.len();
            for (at, flip) in flips {
                bytes[at % length] ^= flip;
            }
            bytes.truncate(keep.map_or(length, |keep| keep % length));
            let _ = load(&bytes, "loss");
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = load(&bytes, "loss");
            let _ = load(&[b"PK\x03\x04", &bytes[..]].concat(), "loss");
        }
    }
}
