//! Attempts where nobody else makes them: indexing shards and reading manifests.
//!
//! Reads of samples are tried again by the engine, listings by their client. The reads in between, while a
//! dataset is opened, are tried again here, for as long as the engine would.

use std::time::Duration;

use hotset_core::{Error, Result};

use crate::store::ReadError;

const ATTEMPTS: u32 = 40;
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What `attempt` comes to, tried again while it fails in passing.
pub(crate) fn patiently<T>(
    key: &str,
    mut attempt: impl FnMut() -> std::result::Result<T, ReadError>,
) -> Result<T> {
    let mut pause = PAUSE;
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(error) if error.retriable() => {
                tracing::debug!(key, %error, "a read failed and is tried again");
            }
            done => return done.map_err(|error| named(key, error)),
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    attempt().map_err(|error| named(key, error))
}

/// An error with the object it is about.
pub(crate) fn named(key: &str, error: ReadError) -> Error {
    let error = Error::from(error);
    Error::new(error.kind, format!("`{key}`: {}", error.message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotset_core::Kind;

    #[test]
    fn what_passes_is_tried_again_and_what_does_not_is_told_with_its_key() {
        let mut failures = 2;
        let passing = || {
            failures -= 1;
            if failures >= 0 { Err(ReadError::Transient("busy".into())) } else { Ok(7) }
        };
        assert_eq!(patiently("a", passing), Ok(7));
        let error = patiently("a.tar", || Err::<(), _>(ReadError::Denied)).unwrap_err();
        assert_eq!(error.kind, Kind::Invalid);
        assert!(error.message.starts_with("`a.tar`: "));
    }
}
