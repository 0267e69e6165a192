//! What can be wrong with the bytes of a package.

use std::fmt;

use hotset_core::{Error, Id};

/// Why a package, or a sample in it, is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// It has another length than it should: it was cut off, or something was added.
    #[error("it is torn: `{found}` bytes of `{expected}`")]
    Torn {
        /// The bytes it should have.
        expected: u64,
        /// The bytes it has.
        found: u64,
    },
    /// Its bytes are not those that were written.
    #[error("{0} does not match its checksum")]
    Flipped(Part),
    /// It is whole, and not what was asked for.
    #[error("it is foreign: {0}")]
    Foreign(Foreign),
}

/// A part of a package that has a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Its head and index.
    Index,
    /// One sample.
    Sample(Id),
}

/// In which way a package is not the one asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    /// It does not begin as a package does.
    #[error("it is no package of Hotset's")]
    Magic,
    /// It has this format, which this Hotset does not know.
    #[error("it has format `{0}`, which another version of Hotset wrote")]
    Format(u32),
    /// It was made of another dataset, or of this one before it changed.
    #[error("it was made of another dataset")]
    Dataset,
    /// It is the package of this number.
    #[error("it is package `{0}`")]
    Number(u32),
}

impl Damage {
    /// Whether the bytes are certainly of our own making and of no use, so that they may be removed. A
    /// stranger's file is not, and neither is a package that another version of Hotset may be using.
    pub fn removable(&self) -> bool {
        !matches!(self, Self::Foreign(Foreign::Magic | Foreign::Format(_)))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index => f.write_str("its index"),
            Self::Sample(id) => write!(f, "sample `{id}` in it"),
        }
    }
}

impl From<Damage> for Error {
    fn from(damage: Damage) -> Self {
        Self::changed(format!("{damage}; it is left out and packed anew from the dataset"))
    }
}
