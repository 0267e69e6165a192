//! The one public error, and its few kinds.

use std::fmt;

/// What the caller of a failed request can do about it.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request or a setting is wrong; the message names it. Retrying cannot help.
    Invalid,
    /// The data is no longer what was listed. Open the dataset again.
    Changed,
    /// The store or the server does not answer now. Retry, or read past the cache.
    Unavailable,
    /// The server does not know this job or epoch, because it was restarted. Open it again.
    Lost,
    /// A promise of Hotset's own was broken. Report it.
    Internal,
}

/// A failure with what to do about it, and the sample it concerns if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// What the caller can do.
    pub kind: Kind,
    /// What happened, naming the setting or file that must change.
    pub message: String,
    /// The sample a request failed on.
    pub sample: Option<u64>,
    /// The key of that sample in its store.
    pub key: Option<String>,
}

/// A result whose error says what to do.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of `kind`.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), sample: None, key: None }
    }

    /// A request or setting that is wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, message)
    }

    /// Data that is no longer what was listed.
    pub fn changed(message: impl Into<String>) -> Self {
        Self::new(Kind::Changed, message)
    }

    /// A store or server that does not answer now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Kind::Unavailable, message)
    }

    /// A broken promise of our own.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Kind::Internal, message)
    }

    /// The same error, naming the sample it concerns.
    #[must_use]
    pub fn of_sample(mut self, sample: u64, key: impl Into<String>) -> Self {
        self.sample = Some(sample);
        self.key = Some(key.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.sample, &self.key) {
            (Some(sample), Some(key)) => write!(f, "sample {sample} (`{key}`): {}", self.message),
            (Some(sample), None) => write!(f, "sample {sample}: {}", self.message),
            _ => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Error {}
