//! Why something could not be written to a place of packages.

use std::io;

use hotset_core::Error;
use object_store::Error as Refusal;

use crate::remote::{cause, status, tell};
use crate::store::ReadError;

/// Why a package could not be written or removed, told apart by what to do about it.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// We may not write there.
    #[error(
        "packages cannot be written to `{place}`: {cause}; let the user of the server write there, or give \
         `packages=` another place"
    )]
    ReadOnly {
        /// The place.
        place: String,
        /// What the system said.
        cause: String,
    },
    /// Another user could put other bytes there.
    #[error(
        "packages at `{place}` would not be safe: {cause}; give `packages=` a directory that only the user of the \
         server can write"
    )]
    Exposed {
        /// The place.
        place: String,
        /// What is exposed.
        cause: String,
    },
    /// There is no room. Another attempt may succeed when some was made.
    #[error(
        "the place of packages `{place}` is full: {cause}; make room there (`hotset pack gc {place}`), or give \
         `packages=` another place"
    )]
    Full {
        /// The place.
        place: String,
        /// What the system said.
        cause: String,
    },
    /// An object store does not take our request: credentials, the bucket, a setting.
    #[error(
        "the store refuses to take packages at `{place}`: {cause}; look at the credentials and at \
         `storage_options`, or give `packages=` another place"
    )]
    Refused {
        /// The place.
        place: String,
        /// What the store said.
        cause: String,
    },
    /// The place did not answer as it should. Another attempt may succeed.
    #[error("the place of packages `{place}`, which `packages=` names, failed: {cause}")]
    Failed {
        /// The place.
        place: String,
        /// What the system said.
        cause: String,
    },
}

/// Whether a store says that it has no room.
pub(super) fn is_full(failure: &Refusal) -> bool {
    status(&failure.to_string()) == Some(507)
}

impl WriteError {
    /// Why a directory does not take it.
    pub(super) fn of_file(place: &str, error: &io::Error) -> Self {
        use io::ErrorKind::{
            AlreadyExists, InvalidFilename, InvalidInput, NotADirectory, PermissionDenied, QuotaExceeded,
            ReadOnlyFilesystem, StorageFull,
        };
        let (place, cause) = (place.to_owned(), error.to_string());
        match error.kind() {
            StorageFull | QuotaExceeded => Self::Full { place, cause },
            ReadOnlyFilesystem | PermissionDenied | NotADirectory | AlreadyExists | InvalidFilename
            | InvalidInput => Self::ReadOnly { place, cause },
            _ => Self::Failed { place, cause },
        }
    }

    /// Why an object store does not take it.
    pub(super) fn of_object(place: &str, failure: &Refusal) -> Self {
        let (place, cause) = (place.to_owned(), cause(failure));
        if is_full(failure) {
            return Self::Full { place, cause };
        }
        match tell(failure) {
            // There is no bucket.
            ReadError::Vanished | ReadError::Refused(_) => Self::Refused { place, cause },
            _ => Self::Failed { place, cause },
        }
    }

    /// Whether another attempt may succeed.
    pub fn retriable(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Failed { .. })
    }
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Self {
        let message = error.to_string();
        if error.retriable() { Self::unavailable(message) } else { Self::invalid(message) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotset_core::Kind;
    use rustix::io::Errno;

    #[test]
    fn a_full_place_and_one_we_may_not_write_are_told_apart_and_both_name_the_setting() {
        let told = |error: Errno| WriteError::of_file("/scratch", &io::Error::from(error));
        assert!(matches!(told(Errno::NOSPC), WriteError::Full { .. }));
        assert!(matches!(told(Errno::DQUOT), WriteError::Full { .. }));
        for error in [Errno::ROFS, Errno::ACCESS, Errno::PERM, Errno::NOTDIR] {
            assert!(matches!(told(error), WriteError::ReadOnly { .. }), "{error}");
        }
        assert!(matches!(told(Errno::IO), WriteError::Failed { .. }));
        for (error, kind) in
            [(Errno::NOSPC, Kind::Unavailable), (Errno::ROFS, Kind::Invalid), (Errno::IO, Kind::Unavailable)]
        {
            let error = Error::from(told(error));
            assert_eq!(error.kind, kind);
            assert!(error.message.contains("`packages=`") && error.message.contains("`/scratch`"), "{error}");
        }
    }

    #[test]
    fn what_a_store_says_is_told_apart() {
        let told = |status: &str| {
            let text = format!("Server returned non-2xx status code: {status}: why");
            WriteError::of_object("s3://b/p", &Refusal::Generic { store: "S3", source: text.into() })
        };
        assert!(matches!(told("507 Insufficient Storage"), WriteError::Full { .. }));
        assert!(matches!(told("403 Forbidden"), WriteError::Refused { .. }));
        assert!(matches!(told("404 Not Found"), WriteError::Refused { .. }));
        assert!(matches!(told("503 Slow Down"), WriteError::Failed { .. }));
    }
}
