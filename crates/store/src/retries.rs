//! Repeated attempts while a dataset is opened, where the engine makes none.
//!
//! Reads of samples are tried again by the engine. What is asked before, listings, looks at objects, the
//! indexing of shards and the reading of manifests, is tried again here, about as long as the engine would.

use std::fmt::Display;
use std::time::{Duration, Instant};

use hotset_core::{Error, Result};

use crate::store::ReadError;

const ATTEMPTS: u32 = 40;
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// From the first failure on: outlasts a store that is away for a minute, and bounds the wait for one that takes
/// requests and never answers.
const LONGEST: Duration = Duration::from_secs(120);
/// A store that cannot be reached and never was has a wrong address more often than a bad minute: so many attempts are
/// made at it, within about a second, or as many as this time allows.
const FIRST_ATTEMPTS: u32 = 6;
const FIRST_LONGEST: Duration = Duration::from_secs(4);
/// After so many failures, some seconds, the user is told what is waited for.
const TOLD: u32 = 8;

/// How often, and after which pauses, something is tried again.
#[derive(Debug)]
pub(crate) struct Retries {
    left: u32,
    pause: Duration,
    failing_since: Option<Instant>,
    /// Whether the store has answered before.
    reached: bool,
}

impl Default for Retries {
    fn default() -> Self {
        Self { left: ATTEMPTS, pause: PAUSE, failing_since: None, reached: true }
    }
}

impl Retries {
    /// After a failure for this `cause`: how long to wait before the next attempt; `None`: it is time to give up.
    pub(crate) fn pause(&mut self, cause: &dyn Display) -> Option<Duration> {
        self.left = self.left.saturating_sub(1);
        tracing::debug!(%cause, "a request failed and is made again");
        if self.left == ATTEMPTS - TOLD {
            tracing::warn!(%cause, "the store fails and is asked again, for up to two minutes");
        }
        if self.left == 0 || self.failing_since.get_or_insert_with(Instant::now).elapsed() > LONGEST {
            return None;
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        Some(pause)
    }

    /// With a store that has answered before, or not yet.
    pub(crate) fn with(reached: bool) -> Self {
        Self { reached, ..Self::default() }
    }

    /// As [`Self::pause`]; `None` sooner for a store that cannot be reached and never was.
    pub(crate) fn pause_after(&mut self, error: &ReadError) -> Option<Duration> {
        let pause = self.pause(error);
        let unreachable = matches!(error, ReadError::Unreachable(_));
        let long = self.failing_since.is_some_and(|since| since.elapsed() > FIRST_LONGEST);
        let hopeless = unreachable && !self.reached && (ATTEMPTS - self.left >= FIRST_ATTEMPTS || long);
        self.reached |= !unreachable;
        pause.filter(|_| !hopeless)
    }

    /// After a success that brought things on: failures before it no longer count.
    pub(crate) fn restore(&mut self) {
        if self.left < ATTEMPTS {
            *self = Self::default();
        }
    }
}

/// What `attempt` comes to, tried again while it fails transiently.
pub(crate) fn repeated<T>(
    mut retries: Retries,
    mut attempt: impl FnMut() -> std::result::Result<T, ReadError>,
) -> std::result::Result<T, ReadError> {
    loop {
        match attempt() {
            Err(error) if error.retriable() => match retries.pause_after(&error) {
                Some(pause) => std::thread::sleep(pause),
                None => return Err(error),
            },
            done => return done,
        }
    }
}

/// As [`repeated`], with an error that names the object it is about.
pub(crate) fn with_retries<T>(
    key: &str,
    attempt: impl FnMut() -> std::result::Result<T, ReadError>,
) -> Result<T> {
    repeated(Retries::default(), attempt).map_err(|error| named(key, error))
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
        assert_eq!(with_retries("a", passing), Ok(7));
        let error = with_retries("a.tar", || Err::<(), _>(ReadError::Denied)).unwrap_err();
        assert_eq!(error.kind, Kind::Invalid);
        assert!(error.message.starts_with("`a.tar`: "));
    }

    #[test]
    fn a_store_that_never_answered_is_given_up_soon_and_one_that_did_is_waited_for() {
        let away = ReadError::Unreachable("http://a:9 does not answer".into());
        let attempts = |mut retries: Retries, first: &ReadError| {
            1 + usize::from(retries.pause_after(first).is_some())
                + std::iter::from_fn(|| retries.pause_after(&away)).count()
        };
        assert_eq!(attempts(Retries::with(false), &away), FIRST_ATTEMPTS as usize);
        assert_eq!(attempts(Retries::with(true), &away), ATTEMPTS as usize);
        let busy = ReadError::Busy("503".into());
        assert_eq!(attempts(Retries::with(false), &busy), ATTEMPTS as usize, "it answered");
    }

    #[test]
    fn patience_ends_after_its_attempts_and_outlasts_a_minute() {
        let mut retries = Retries::default();
        let pauses: Vec<Duration> = std::iter::from_fn(|| retries.pause(&"busy")).collect();
        assert_eq!(pauses.len() as u32, ATTEMPTS - 1);
        assert!(pauses.iter().sum::<Duration>() > Duration::from_secs(60));
        assert_eq!(pauses.iter().max(), Some(&LONGEST_PAUSE));
        retries.restore();
        assert_eq!(retries.pause(&"busy"), Some(PAUSE));
    }
}
