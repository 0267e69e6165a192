//! How packages are named, and what is named so.

use std::time::SystemTime;

/// Hex digits of a dataset or an owner in the name of its directory.
const DIGITS: usize = 16;
const EXTENSION: &str = ".hotset";
/// What an unfinished file ends with; it begins with a dot and its package's name.
pub(super) const UNFINISHED: &str = ".tmp";

/// What the name of a file of an owner says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// The package of this number.
    Package(u32),
    /// What a writer left behind that was killed.
    Leftover,
}

/// A file or object that is named as ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Below the place: dataset, owner and name.
    pub key: String,
    /// What its name says.
    pub name: Name,
    /// Its bytes.
    pub bytes: u64,
    /// When it was written.
    pub modified: SystemTime,
}

impl Stored {
    /// What lies at `key`, if that is named as ours.
    pub(super) fn new(key: &str, bytes: u64, modified: SystemTime) -> Option<Self> {
        let (_, _, file) = split(key)?;
        Some(Self { key: key.to_owned(), name: name(file)?, bytes, modified })
    }

    /// The directory of its dataset.
    pub fn dataset(&self) -> &str {
        split(&self.key).map_or("", |(dataset, _, _)| dataset)
    }

    /// The directory of its owner.
    pub fn owner(&self) -> &str {
        split(&self.key).map_or("", |(_, owner, _)| owner)
    }
}

/// The name of a package's file.
pub(super) fn file(number: u32) -> String {
    format!("{number:08}{EXTENSION}")
}

/// What unfinished files of the one that will be named `file` begin with.
pub(super) fn unfinished(file: &str) -> String {
    format!(".{file}-")
}

/// The directory of a dataset or an owner.
pub(super) fn directory(hash: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*hash).to_hex()[..DIGITS].to_owned()
}

/// Whether a directory is named as ours.
pub(super) fn is_directory(name: &str) -> bool {
    name.len() == DIGITS && name.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
}

/// Dataset, owner and file of a key that could be ours.
fn split(key: &str) -> Option<(&str, &str, &str)> {
    let (dataset, rest) = key.split_once('/')?;
    let (owner, file) = rest.split_once('/')?;
    (is_directory(dataset) && is_directory(owner) && !file.contains('/')).then_some((dataset, owner, file))
}

fn name(name: &str) -> Option<Name> {
    if let Some(number) = number(name) {
        return Some(Name::Package(number));
    }
    let inner = name.strip_prefix('.')?.strip_suffix(UNFINISHED)?;
    let (package, _) = inner.rsplit_once('-')?;
    number(package).map(|_| Name::Leftover)
}

fn number(name: &str) -> Option<u32> {
    let number = name.strip_suffix(EXTENSION)?.parse().ok()?;
    // What we would not write so, like `3.hotset` or `+0000003.hotset`, is not ours.
    (file(number) == name).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(key: &str) -> Option<Name> {
        Stored::new(key, 1, SystemTime::UNIX_EPOCH).map(|stored| stored.name)
    }

    #[test]
    fn only_what_we_would_name_so_is_ours() {
        let ours = "0123456789abcdef/fedcba9876543210";
        assert_eq!(stored(&format!("{ours}/00000003.hotset")), Some(Name::Package(3)));
        assert_eq!(stored(&format!("{ours}/{}", file(u32::MAX))), Some(Name::Package(u32::MAX)));
        let left = format!("{ours}/{}a1B2c3{UNFINISHED}", unfinished(&file(7)));
        assert_eq!(stored(&left), Some(Name::Leftover));
        for other in [
            "3.hotset",
            "+0000003.hotset",
            "99999999999.hotset",
            "00000003.tar",
            ".hotset",
            ".tmp",
            ".00000003.hotset.tmp",
            "..hotset-x.tmp",
            "notes.txt",
            "deeper/00000003.hotset",
        ] {
            assert_eq!(stored(&format!("{ours}/{other}")), None, "{other}");
        }
        for other in ["00000003.hotset", "x/y/00000003.hotset", "0123456789ABCDEF/fedcba9876543210/0"] {
            assert_eq!(stored(other), None, "{other}");
        }
    }
}
