//! A shared cache for the users of a host: contents by their hashes, from users to users.
//!
//! It reads no storage and maps nobody's memory. Who names a hash gets the content, copied into memory of the asker's own,
//! or hears that it is not there; nothing lists hashes. What is put is copied first, then hashed, and is there for others
//! only if it has the hash that was said: whatever its giver does with the memory meanwhile, the copy is what was
//! hashed.

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use hotset_core::contents::{Contents, Hash, Refused};
use hotset_core::{Error, Result};
use hotset_wire::contents::{MOST_CONTENTS, checked_memory};
use hotset_wire::proto::{self, ContentList, request, response};

use crate::access::Accounts;
use crate::answer;
use crate::lock::Lock;
use crate::options::Options;
use crate::runs::unique;
use crate::service::{Caller, Reply};

/// What is kept, and how often it was asked for.
pub(crate) struct Tenants {
    contents: Lock<Contents<Arc<Vec<u8>>>>,
    accounts: Arc<Accounts>,
    asked: AtomicU64,
    found: AtomicU64,
    put: AtomicU64,
    instance: String,
    started: Instant,
}

impl Tenants {
    /// An empty cache of `capacity` bytes.
    pub(crate) fn new(options: &Options, capacity: u64, accounts: Arc<Accounts>) -> Self {
        Self {
            contents: Lock::new(Contents::new(capacity, options.quota.memory)),
            accounts,
            asked: AtomicU64::new(0),
            found: AtomicU64::new(0),
            put: AtomicU64::new(0),
            instance: unique(),
            started: Instant::now(),
        }
    }

    pub(crate) fn instance(&self) -> &str {
        &self.instance
    }

    /// The reply to a request of `user`.
    pub(crate) fn handle(&self, user: u32, request: request::Kind, caller: &mut dyn Caller) -> Result<Reply> {
        match request {
            request::Kind::GetContents(asked) => self.get(&asked.contents.unwrap_or_default(), caller),
            request::Kind::PutContents(asked) => self.put(user, &asked.contents.unwrap_or_default(), caller),
            request::Kind::GetStats(_) if user == rustix::process::geteuid().as_raw() => {
                Ok(response::Kind::Stats(self.stats()).into())
            }
            request::Kind::GetStats(_) => {
                Err(Error::invalid("the figures of a shared cache are told to its own user alone"))
            }
            _ => Err(Error::invalid(
                "this is a shared cache (`hotset serve --tenants`), which reads nothing: name it with HOTSET_SHARED, and let \
                 HOTSET_SERVER be a server of your own",
            )),
        }
    }

    fn get(&self, list: &ContentList, caller: &mut dyn Caller) -> Result<Reply> {
        let (hashes, length) = checked(list)?;
        let memory = checked_memory(caller.memory()?, length)?;
        let mut found = Vec::with_capacity(hashes.len());
        let mut at = 0;
        for (hash, &length) in hashes.iter().zip(&list.lengths) {
            let bytes = self.contents.lock().get(hash).cloned();
            let bytes = bytes.filter(|bytes| bytes.len() as u64 == length);
            if let Some(bytes) = &bytes {
                let failed =
                    |error| Error::invalid(format!("the memory asked into cannot be written: {error}"));
                memory.write_all_at(bytes, at).map_err(failed)?;
            }
            at += length;
            found.push(bytes.is_some());
        }
        self.asked.fetch_add(found.len() as u64, Ordering::Relaxed);
        self.found.fetch_add(found.iter().filter(|found| **found).count() as u64, Ordering::Relaxed);
        Ok(response::Kind::ContentsGot(proto::ContentsGot { found }).into())
    }

    fn put(&self, user: u32, list: &ContentList, caller: &mut dyn Caller) -> Result<Reply> {
        let (hashes, length) = checked(list)?;
        let memory = checked_memory(caller.memory()?, length)?;
        let mut kept = Vec::with_capacity(hashes.len());
        let mut at = 0;
        for (hash, &length) in hashes.iter().zip(&list.lengths) {
            kept.push(self.keep(user, hash, length, |into| memory.read_exact_at(into, at))?);
            at += length;
        }
        Ok(response::Kind::ContentsPut(proto::ContentsPut { kept }).into())
    }

    /// Keeps what `copy` copies, if it has that hash; `false` where there is no room now.
    fn keep(
        &self,
        user: u32,
        hash: &Hash,
        length: u64,
        copy: impl FnOnce(&mut [u8]) -> std::io::Result<()>,
    ) -> Result<bool> {
        match self.contents.lock().take_room(user, length) {
            Ok(()) => {}
            Err(Refused::Busy) => {
                self.accounts.refuse("memory");
                return Ok(false);
            }
            Err(Refused::TooLarge) => {
                self.accounts.refuse("memory");
                return Err(Error::invalid(format!(
                    "a content of {length} bytes is more than user `{user}` may have here: the shared cache's `--memory` and \
                     `--quota memory=` say so"
                )));
            }
        }
        let copied = copied(length, copy).filter(|bytes| blake3::hash(bytes).as_bytes() == hash);
        let Some(bytes) = copied else {
            self.contents.lock().give_back(user, length);
            self.accounts.refuse("content");
            return Err(Error::invalid("what was put does not have the hash that was said, and is not kept"));
        };
        if self.contents.lock().put(user, *hash, bytes, length) {
            self.put.fetch_add(1, Ordering::Relaxed);
        }
        Ok(true)
    }

    /// What it keeps and was asked; no hashes.
    pub(crate) fn stats(&self) -> proto::Stats {
        let contents = self.contents.lock();
        let kept = proto::ContentStats {
            contents: contents.len() as u64,
            asked: self.asked.load(Ordering::Relaxed),
            found: self.found.load(Ordering::Relaxed),
            put: self.put.load(Ordering::Relaxed),
        };
        let server = proto::ServerStats {
            version: crate::VERSION.to_owned(),
            pid: std::process::id(),
            instance: self.instance.clone(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            memory_limit: contents.capacity(),
            occupied: contents.taken(),
            refused: answer::refused(&self.accounts),
            contents: Some(kept),
            ..proto::ServerStats::default()
        };
        proto::Stats { server: Some(server), jobs: Vec::new() }
    }
}

/// The hashes of a list, and how many bytes its contents have together.
fn checked(list: &ContentList) -> Result<(Vec<Hash>, u64)> {
    if list.hashes.len() != list.lengths.len() || list.hashes.len() > MOST_CONTENTS {
        return Err(Error::invalid(format!(
            "a request names up to {MOST_CONTENTS} contents, each by hash and length"
        )));
    }
    let hash = |hash: &Vec<u8>| hash.as_slice().try_into().ok();
    let hashes: Option<Vec<Hash>> = list.hashes.iter().map(hash).collect();
    let length = list.lengths.iter().try_fold(0u64, |sum, &length| sum.checked_add(length));
    hashes
        .zip(length)
        .ok_or_else(|| Error::invalid("a content is named by 32 bytes of BLAKE3 and its length"))
}

fn copied(length: u64, copy: impl FnOnce(&mut [u8]) -> std::io::Result<()>) -> Option<Arc<Vec<u8>>> {
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    copy(&mut bytes).ok()?;
    Some(Arc::new(bytes))
}

#[cfg(test)]
#[path = "tenants_tests.rs"]
mod tests;
