//! Packages in an object store.
//!
//! A PUT takes an object whole or not at all, so there is nothing to leave behind. Whatever is not a read of a package
//! is tried again by the client while it fails in passing.

use std::sync::Arc;
use std::time::SystemTime;

use futures_util::StreamExt;
use hotset_core::{Error, Result};
use object_store::{Error as Refusal, GetOptions, ObjectStoreExt, PutPayload};

use super::backing::Backing;
use super::failure::WriteError;
use super::name::Stored;
use crate::remote::{Remote, refuse, tell};
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

    async fn list_all(&self, directory: &str) -> Result<Vec<Stored>> {
        let remote = &self.remote;
        let prefix = match directory {
            "" => remote.address.prefix.clone(),
            below => self.path(below).map_err(Error::from)?,
        };
        let mut found = remote.listings.list(Some(&prefix).filter(|prefix| !prefix.as_ref().is_empty()));
        let mut stored = Vec::new();
        while let Some(meta) = found.next().await {
            let meta = meta.map_err(|failure| refuse(&remote.address.shown(), &failure))?;
            let modified = SystemTime::from(meta.last_modified);
            stored.extend(Stored::new(remote.address.below(&meta.location), meta.size, modified));
        }
        stored.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(stored)
    }

    async fn fetch(&self, key: &str, into: &mut Vec<u8>) -> std::result::Result<(), ReadError> {
        let path = self.remote.path(key)?;
        let answer = self.remote.reads.get_opts(&path, GetOptions::default()).await;
        let answer = answer.map_err(|failure| tell(&failure))?;
        let expected = answer.meta.size;
        let mut chunks = answer.into_stream();
        while let Some(chunk) = chunks.next().await {
            into.extend_from_slice(&chunk.map_err(|failure| tell(&failure))?);
            // A package that grows beyond all bounds is none, and is told so by whoever parses what was read.
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

impl Backing for Bucket {
    fn prepare(&self, _: &str) -> std::result::Result<(), WriteError> {
        Ok(())
    }

    fn write(&self, key: &str, bytes: &[u8]) -> std::result::Result<(), WriteError> {
        let path = self.path(key)?;
        let payload = PutPayload::from(bytes.to_vec());
        let put = self.remote.runtime.block_on(self.remote.listings.put(&path, payload));
        put.map(|_| ()).map_err(|failure| self.failed(&failure))
    }

    fn list(&self, directory: &str) -> Result<Vec<Stored>> {
        self.remote.runtime.block_on(self.list_all(directory))
    }

    fn remove(&self, key: &str) -> std::result::Result<bool, WriteError> {
        let path = self.path(key)?;
        match self.remote.runtime.block_on(self.remote.listings.delete(&path)) {
            Ok(()) => Ok(true),
            Err(Refusal::NotFound { .. }) => Ok(false),
            Err(failure) => Err(self.failed(&failure)),
        }
    }

    fn tidy(&self, _: &str) {}

    fn whole(&self, key: &str, into: &mut Vec<u8>) -> std::result::Result<(), ReadError> {
        into.clear();
        self.remote.runtime.block_on(self.fetch(key, into))
    }
}
