//! Samples that are objects in an object store.
//!
//! A read is one GET: of the whole object where the sample is one, of a range where it lies inside. The answer
//! carries the version of the bytes that follow, so one answer is one version: it is compared with what was
//! listed before the first byte is taken, and nothing is ever put together from two answers. (Sending the listed
//! ETag along would say the same; a catalog keeps 32 bits of it, not all.) The length is compared as well, and
//! an answer that ends early is a transient failure.
//!
//! No read is tried again here: the engine does that, with one budget for everything. What is asked while a
//! dataset is opened is tried again by the caller (see `retries`); the client itself never does. Reads that lie side
//! by side are put together by the engine, which has their buffers.

mod address;
mod connect;
mod failure;
mod keys;
mod pages;
mod redirect;
mod unnamed_keys;
mod version;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt;
use hotset_core::Result;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult, ObjectStore};
use tokio::runtime::Runtime;

use crate::contained::contained;
use crate::retries::{Retries, repeated};
use crate::runtime::runtime;
use crate::store::{Location, ObjectVersion, Objects, ReadError, Store};
use connect::connect;
use failure::out_of_range;

pub(crate) use address::{Address, Kind};
pub use connect::is_credential;
pub(crate) use failure::{GAVE_UP, cause, refuse, status, tell};
pub(crate) use keys::list;
pub(crate) use version::version;

/// Objects below a prefix.
pub(crate) struct Remote {
    pub(crate) address: Address,
    pub(crate) options: BTreeMap<String, String>,
    /// Tells a failure at once.
    pub(crate) client: Arc<dyn ObjectStore>,
    pub(crate) runtime: Arc<Runtime>,
    /// Whether the store has answered before.
    pub(crate) reached: AtomicBool,
}

impl Remote {
    /// The objects below `address`. Nothing is asked of the store yet.
    pub(crate) fn open(address: Address, options: &BTreeMap<String, String>) -> Result<Self> {
        // Clients look for their runtime when they are made.
        let runtime = runtime()?;
        let _entered = runtime.enter();
        let client = connect(&address, options)?.objects;
        let (options, runtime) = (options.clone(), Arc::clone(&runtime));
        Ok(Self { address, options, client, runtime, reached: AtomicBool::new(false) })
    }

    /// How long a question at the store is repeated.
    pub(crate) fn retries(&self) -> Retries {
        Retries::with(self.reached.load(Ordering::Relaxed))
    }

    pub(crate) fn path(&self, key: &str) -> std::result::Result<Path, ReadError> {
        self.address.key(key).map_err(ReadError::Refused)
    }

    /// What a request comes to; `None` if the client panicked.
    pub(crate) fn wait<T>(&self, request: impl Future<Output = T>) -> Option<T> {
        contained(|| self.runtime.block_on(request))
    }

    async fn fetch(&self, at: Location<'_>, into: &mut [u8]) -> std::result::Result<(), ReadError> {
        let expected = into.len() as u64;
        let end = at.offset.saturating_add(expected);
        let short = || ReadError::Short { from: at.offset, to: end };
        if !at.whole && expected == 0 {
            return Ok(());
        }
        let range = (!at.whole).then_some(GetRange::Bounded(at.offset..end));
        let options = GetOptions { range, ..GetOptions::default() };
        let answer = match self.client.get_opts(&self.path(at.key)?, options).await {
            Ok(answer) => answer,
            Err(failure) if !at.whole && out_of_range(&failure) => return Err(short()),
            Err(failure) => return Err(tell(&failure)),
        };
        let found = answer.meta.size;
        if at.whole && found != expected {
            return Err(ReadError::Resized { expected, found });
        }
        if !version::same(at.version, &answer.meta) {
            return Err(ReadError::Modified);
        }
        if found < end {
            return Err(short());
        }
        fill(answer, into).await
    }
}

/// Copies an answer's bytes, which must be as many as there is room for.
async fn fill(answer: GetResult, into: &mut [u8]) -> std::result::Result<(), ReadError> {
    let expected = into.len();
    let mut filled = 0;
    let mut chunks = answer.into_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|failure| tell(&failure))?;
        let Some(room) = into.get_mut(filled..filled + chunk.len()) else {
            return Err(ReadError::Transient(format!("more than `{expected}` bytes arrived")));
        };
        room.copy_from_slice(&chunk);
        filled += chunk.len();
    }
    if filled == expected {
        Ok(())
    } else {
        Err(ReadError::Transient(format!("only `{filled}` of `{expected}` bytes arrived")))
    }
}

impl Store for Remote {
    fn read(&self, at: Location<'_>, into: &mut [u8]) -> std::result::Result<(), ReadError> {
        self.wait(self.fetch(at, into)).unwrap_or_else(|| Err(ReadError::Refused(GAVE_UP.into())))
    }
}

impl Objects for Remote {
    fn look(&self, key: &str) -> std::result::Result<ObjectVersion, ReadError> {
        let path = self.path(key)?;
        let options = GetOptions { head: true, ..GetOptions::default() };
        let meta = repeated(self.retries(), || {
            let answer = self.wait(self.client.get_opts(&path, options.clone()));
            let answer = answer.ok_or_else(|| ReadError::Refused(GAVE_UP.into()))?;
            answer.map(|answer| answer.meta).map_err(|failure| tell(&failure))
        })?;
        self.reached.store(true, Ordering::Relaxed);
        Ok(ObjectVersion { size: meta.size, version: version::version(&meta) })
    }
}
