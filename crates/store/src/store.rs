//! Reading samples: one trait, and what can go wrong.
//!
//! Reads block. The engine calls them from its own pool of reader threads, so the number of reads in flight
//! is the pool's size, and a read never outlives the buffer it fills.

use std::sync::Arc;

use hotset_core::Error;

/// Where one sample's bytes lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Location<'a> {
    /// The object that holds them: for a folder, the path below its root.
    pub key: &'a str,
    /// Where they begin in that object.
    pub offset: u64,
    /// Which version of the object was listed; [`UNKNOWN`] is any.
    pub version: u32,
    /// Whether they are the whole object, so that an object of another length is another one.
    pub whole: bool,
}

/// The version of an object that was not looked at: whatever is found is taken.
pub const UNKNOWN: u32 = 0;

/// What an object is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectVersion {
    /// Its bytes.
    pub size: u64,
    /// Its version.
    pub version: u32,
}

/// Reads samples.
pub trait Store: Send + Sync {
    /// Fills `into`, whose length is the catalog's, with the sample's bytes. Bytes that are no longer those
    /// that were listed are an error; what `into` then holds is unspecified.
    fn read(&self, at: Location<'_>, into: &mut [u8]) -> Result<(), ReadError>;
}

/// Finds out what an object is without reading it.
pub(crate) trait Objects: Store {
    /// The object's length and version now.
    fn look(&self, key: &str) -> Result<ObjectVersion, ReadError>;
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn read(&self, at: Location<'_>, into: &mut [u8]) -> Result<(), ReadError> {
        (**self).read(at, into)
    }
}

impl<S: Store + ?Sized> Store for Box<S> {
    fn read(&self, at: Location<'_>, into: &mut [u8]) -> Result<(), ReadError> {
        (**self).read(at, into)
    }
}

/// Why a read failed, told apart by what to do about it.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The object is gone.
    #[error("it is gone since it was listed")]
    Vanished,
    /// The object has another length.
    #[error("it is `{found}` bytes long, and was `{expected}` when it was listed")]
    Resized {
        /// The length that was listed.
        expected: u64,
        /// The length now.
        found: u64,
    },
    /// The object has the listed length and was written since.
    #[error("it was written since it was listed")]
    Modified,
    /// The object ends before the sample's bytes do.
    #[error("it has no bytes `{from}` to `{to}`: it is shorter than when it was listed")]
    Short {
        /// The sample's first byte.
        from: u64,
        /// The byte behind its last.
        to: u64,
    },
    /// The store does not let us read it.
    #[error("no permission to read it; let the user of the server read it")]
    Denied,
    /// An object store does not take our request, for this cause: credentials, the bucket, a setting.
    #[error("the store refuses the request: {0}; look at the credentials and at `storage_options`")]
    Refused(String),
    /// The store asks for fewer requests. Another attempt may succeed.
    #[error(
        "the store asks for fewer requests: {0}; start the server with a lower `--concurrency`, or with `auto`"
    )]
    Busy(String),
    /// The store did not answer as it should, for this cause. Another attempt may succeed.
    #[error("the store failed: {0}")]
    Transient(String),
    /// No connection can be made, for this cause, which names the host. Another attempt may succeed.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
}

impl ReadError {
    /// Whether another attempt may succeed.
    pub fn retriable(&self) -> bool {
        matches!(self, Self::Transient(_) | Self::Busy(_) | Self::Unreachable(_))
    }
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Vanished
            | ReadError::Resized { .. }
            | ReadError::Short { .. }
            | ReadError::Modified => {
                Self::changed(format!("{error}; open the dataset again to list it anew"))
            }
            ReadError::Denied | ReadError::Refused(_) => Self::invalid(error.to_string()),
            ReadError::Transient(_) | ReadError::Busy(_) | ReadError::Unreachable(_) => {
                Self::unavailable(error.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotset_core::Kind;

    #[test]
    fn every_read_error_says_what_to_do() {
        let resized = ReadError::Resized { expected: 3, found: 2 };
        for (error, kind, retriable) in [
            (ReadError::Vanished, Kind::Changed, false),
            (resized, Kind::Changed, false),
            (ReadError::Modified, Kind::Changed, false),
            (ReadError::Short { from: 1, to: 2 }, Kind::Changed, false),
            (ReadError::Denied, Kind::Invalid, false),
            (ReadError::Refused("403".into()), Kind::Invalid, false),
            (ReadError::Busy("429".into()), Kind::Unavailable, true),
            (ReadError::Transient("reset".into()), Kind::Unavailable, true),
            (ReadError::Unreachable("http://a:9 does not answer".into()), Kind::Unavailable, true),
        ] {
            assert_eq!(error.retriable(), retriable);
            let told = Error::from(error);
            assert_eq!(told.kind, kind);
            assert_eq!(told.message.contains("open the dataset again"), kind == Kind::Changed);
        }
    }
}
