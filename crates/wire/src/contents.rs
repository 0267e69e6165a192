//! A connection to a shared cache: contents by their hashes, through memory of the asker's own.
//!
//! A request carries a descriptor of the asker's memory, sealed against shrinking and growing. The shared cache writes there
//! what it has, or copies from there what it is given; neither side maps the other's. What was got is copied out before it
//! is looked at: the memory can still be written by whoever was sent it.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use hotset_core::contents::Hash;
use hotset_core::{Error, Result};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};

use crate::PROTOCOL;
use crate::client::open;
use crate::proto::{self, ContentList, Request, Response, response::Kind as Answer};
use crate::socket::Connection;

/// The most contents in one request.
pub const MOST_CONTENTS: usize = 1024;

/// Memory that is kept for the next request.
const KEPT: u64 = 16 << 20;

/// A connection to a shared cache.
#[derive(Debug)]
pub struct SharedCache {
    connection: Connection,
    memory: Option<(File, u64)>,
}

impl SharedCache {
    /// Connects to the shared cache at `path`, which must be root's, this user's or that of `trusted`: it is shown what
    /// others are to share.
    pub fn connect(path: &Path, trusted: Option<u32>, wait: Duration) -> Result<Self> {
        let deadline = Instant::now().checked_add(wait);
        let connection = Connection::new(open(path, deadline, &mut || Ok(()))?)?;
        let owner = connection.peer()?.user;
        if ![0, rustix::process::geteuid().as_raw()].contains(&owner) && trusted != Some(owner) {
            return Err(Error::invalid(format!(
                "the shared cache at `{}` belongs to user `{owner}`: set HOTSET_SHARED_USER to `{owner}` if you trust that \
                 user with what you read",
                path.display()
            )));
        }
        let mut cache = Self { connection, memory: None };
        let hello =
            proto::Hello { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").into(), main_pid: 0 };
        match cache.ask(hello.into(), &[], deadline)? {
            Answer::Welcome(welcome) if welcome.protocol == PROTOCOL => Ok(cache),
            _ => Err(Error::invalid(format!(
                "the shared cache at `{}` is of another version: install the same for both",
                path.display()
            ))),
        }
    }

    /// Copies those of `wanted` that the cache has to their places; for each whether it did. They are what the cache says:
    /// whether they have those hashes is for the caller to check.
    pub fn get(&mut self, wanted: &mut [(Hash, &mut [u8])], wait: Duration) -> Result<Vec<bool>> {
        let list = list(wanted.iter().map(|(hash, into)| (hash, into.len())));
        let memory = self.memory(list.lengths.iter().sum())?;
        let deadline = Instant::now().checked_add(wait);
        let answer =
            self.ask(proto::GetContents { contents: Some(list) }.into(), &[memory.as_fd()], deadline);
        let Answer::ContentsGot(got) = answer? else { return Err(unexpected()) };
        if got.found.len() != wanted.len() {
            return Err(unexpected());
        }
        let mut from = 0;
        for ((_, into), found) in wanted.iter_mut().zip(&got.found) {
            if *found {
                memory.read_exact_at(into, from).map_err(|error| failed(&error))?;
            }
            from += into.len() as u64;
        }
        Ok(got.found)
    }

    /// Gives contents to the cache; for each whether it is there now.
    pub fn put(&mut self, offered: &[(Hash, &[u8])], wait: Duration) -> Result<Vec<bool>> {
        let list = list(offered.iter().map(|(hash, bytes)| (hash, bytes.len())));
        let memory = self.memory(list.lengths.iter().sum())?;
        let mut at = 0;
        for (_, bytes) in offered {
            memory.write_all_at(bytes, at).map_err(|error| failed(&error))?;
            at += bytes.len() as u64;
        }
        let deadline = Instant::now().checked_add(wait);
        let answer =
            self.ask(proto::PutContents { contents: Some(list) }.into(), &[memory.as_fd()], deadline);
        match answer? {
            Answer::ContentsPut(put) if put.kept.len() == offered.len() => Ok(put.kept),
            _ => Err(unexpected()),
        }
    }

    /// Memory of at least so many bytes, that of the last request where it is large enough.
    fn memory(&mut self, length: u64) -> Result<File> {
        if let Some((memory, size)) = &self.memory
            && *size >= length
        {
            return memory.try_clone().map_err(|error| failed(&error));
        }
        let size = length.next_power_of_two().max(64 << 10);
        let memory = sealed(size).map_err(|error| failed(&error))?;
        let copy = memory.try_clone().map_err(|error| failed(&error))?;
        self.memory = (size <= KEPT).then_some((copy, size));
        Ok(memory)
    }

    fn ask(
        &mut self,
        request: Request,
        memory: &[std::os::fd::BorrowedFd<'_>],
        deadline: Option<Instant>,
    ) -> Result<Answer> {
        let mut tick = || Ok(());
        self.connection.send(&request, memory, deadline, &mut tick)?;
        let response: Option<Response> = self.connection.receive(deadline, &mut tick)?;
        match response.and_then(|response| response.kind) {
            Some(Answer::Failure(failure)) => Err(failure.into()),
            Some(answer) => Ok(answer),
            None => Err(Error::unavailable("the shared cache hung up")),
        }
    }
}

fn list<'a>(contents: impl Iterator<Item = (&'a Hash, usize)>) -> ContentList {
    let (hashes, lengths) = contents.map(|(hash, length)| (hash.to_vec(), length as u64)).unzip();
    ContentList { hashes, lengths }
}

/// Memory of `size` bytes that can neither shrink nor grow.
fn sealed(size: u64) -> std::io::Result<File> {
    let memory = memfd_create("hotset-content", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&memory, size)?;
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(File::from(memory))
}

/// Checks memory that came with a request before it is read or written: at least `length` bytes, which stay as many. Sealed
/// memory never makes anyone wait for it, as a pipe or a file of another's making could.
pub fn checked_memory(memory: OwnedFd, length: u64) -> Result<File> {
    let wrong = || Error::invalid("contents come with memory that is sealed against shrinking and growing");
    let seals = fcntl_get_seals(&memory).map_err(|_| wrong())?;
    if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
        return Err(wrong());
    }
    let size = fstat(&memory).map_err(|error| failed(&error))?.st_size;
    if u64::try_from(size).is_ok_and(|size| size >= length) {
        return Ok(File::from(memory));
    }
    Err(Error::invalid(format!("contents of {length} bytes came with memory of {size}")))
}

fn unexpected() -> Error {
    Error::internal("the shared cache answered another question")
}

fn failed(error: &dyn std::fmt::Display) -> Error {
    Error::unavailable(format!("memory for shared contents failed: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sealed_memory_that_is_long_enough_is_taken() {
        assert!(checked_memory(sealed(100).unwrap().into(), 100).is_ok());
        assert!(checked_memory(sealed(100).unwrap().into(), 101).is_err());
        assert!(checked_memory(sealed(100).unwrap().into(), u64::MAX).is_err());
        let unsealed = memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&unsealed, 100).unwrap();
        assert!(checked_memory(unsealed, 100).is_err());
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        assert!(checked_memory(pipe, 0).is_err());
        let file = tempfile::tempfile().unwrap();
        file.set_len(100).unwrap();
        assert!(checked_memory(file.into(), 100).is_err());
    }
}
