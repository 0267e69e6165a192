//! Packages in an object store.
//!
//! A PUT takes an object whole or not at all, so there is nothing to leave behind. Whatever is not a read of a package
//! is tried again here while it fails transiently.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use futures_util::StreamExt;
use hotset_core::{Error, Result};
use object_store::{Error as Refusal, GetOptions, ObjectStoreExt, PutPayload};

use super::backing::Backing;
use super::failure::{WriteError, is_full};
use super::name::Stored;
use crate::remote::{GAVE_UP, Remote, refuse, tell};
use crate::retries::Retries;
use crate::store::ReadError;

/// A prefix of an object store.
pub(super) struct Bucket {
    remote: Arc<Remote>,
}

impl Bucket {
    pub(super) fn new(remote: Arc<Remote>) -> Self {
        Self { remote }
    }

    fn path(&self, key: &str) -> std::result::Result<object_store::path::Path, WriteError> {
        self.remote.path(key).map_err(|error| WriteError::Refused {
            place: self.remote.address.shown(),
            cause: error.to_string(),
        })
    }

    fn failed(&self, failure: &Refusal) -> WriteError {
        WriteError::of_object(&self.remote.address.shown(), failure)
    }

    async fn list_all(&self, directory: &str) -> Result<std::result::Result<Vec<Stored>, Refusal>> {
        let remote = &self.remote;
        let prefix = match directory {
            "" => remote.address.prefix.clone(),
            below => self.path(below).map_err(Error::from)?,
        };
        let mut found = remote.client.list(Some(&prefix).filter(|prefix| !prefix.as_ref().is_empty()));
        let mut stored = Vec::new();
        while let Some(meta) = found.next().await {
            let meta = match meta {
                Ok(meta) => meta,
                Err(failure) => return Ok(Err(failure)),
            };
            let modified = SystemTime::from(meta.last_modified);
            stored.extend(Stored::new(remote.address.below(&meta.location), meta.size, modified));
        }
        stored.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(Ok(stored))
    }

    async fn fetch(&self, key: &str, into: &mut Vec<u8>) -> std::result::Result<(), ReadError> {
        let path = self.remote.path(key)?;
        let answer = self.remote.client.get_opts(&path, GetOptions::default()).await;
        let answer = answer.map_err(|failure| tell(&failure))?;
        let expected = answer.meta.size;
        let mut chunks = answer.into_stream();
        while let Some(chunk) = chunks.next().await {
            into.extend_from_slice(&chunk.map_err(|failure| tell(&failure))?);
            // A package that grows beyond all bounds is none, and is told so where what was read is parsed.
            if into.len() as u64 > super::LONGEST {
                return Ok(());
            }
        }
        if into.len() as u64 == expected {
            Ok(())
        } else {
            Err(ReadError::Transient(format!("only `{}` of `{expected}` bytes arrived", into.len())))
        }
    }
}

/// What `attempt` comes to, tried again while it fails transiently.
fn insistently<T>(
    mut attempt: impl FnMut() -> std::result::Result<T, Refusal>,
) -> std::result::Result<T, Refusal> {
    let mut retries = Retries::default();
    loop {
        match attempt() {
            Err(failure) if tell(&failure).retriable() && !is_full(&failure) => {
                match retries.pause(&failure) {
                    Some(pause) => std::thread::sleep(pause),
                    None => return Err(failure),
                }
            }
            done => return done,
        }
    }
}

impl Backing for Bucket {
    fn prepare(&self, _: &str) -> std::result::Result<(), WriteError> {
        Ok(())
    }

    fn write(&self, key: &str, bytes: &[u8]) -> std::result::Result<(), WriteError> {
        let path = self.path(key)?;
        let payload = PutPayload::from(bytes.to_vec());
        let put = || self.remote.runtime.block_on(self.remote.client.put(&path, payload.clone()));
        insistently(put).map(|_| ()).map_err(|failure| self.failed(&failure))
    }

    fn list(&self, directory: &str) -> Result<Vec<Stored>> {
        let mut retries = self.remote.retries();
        loop {
            let place = self.remote.address.shown();
            let listed = self.remote.wait(self.list_all(directory));
            let listed =
                listed.ok_or_else(|| Error::invalid(format!("`{place}` could not be listed: {GAVE_UP}")));
            let failure = match listed?? {
                Ok(stored) => {
                    self.remote.reached.store(true, Ordering::Relaxed);
                    return Ok(stored);
                }
                Err(failure) => failure,
            };
            let told = tell(&failure);
            match retries.pause_after(&told).filter(|_| told.retriable()) {
                Some(pause) => std::thread::sleep(pause),
                None => return Err(refuse(&place, &failure)),
            }
        }
    }

    fn remove(&self, key: &str) -> std::result::Result<bool, WriteError> {
        let path = self.path(key)?;
        match insistently(|| self.remote.runtime.block_on(self.remote.client.delete(&path))) {
            Ok(()) => Ok(true),
            Err(Refusal::NotFound { .. }) => Ok(false),
            Err(failure) => Err(self.failed(&failure)),
        }
    }

    fn tidy(&self, _: &str) {}

    fn whole(&self, key: &str, into: &mut Vec<u8>) -> std::result::Result<(), ReadError> {
        into.clear();
        let fetched = self.remote.wait(self.fetch(key, into));
        fetched.unwrap_or_else(|| Err(ReadError::Refused(GAVE_UP.into())))
    }
}
