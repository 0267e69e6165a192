//! One page of memory that a client and its server share: how the end of a lease is told without a message.
//!
//! A client that drops a batch writes the lease here, and says it with its next call, so that nobody is woken for it. The
//! server looks here when memory is short, and a few times a second. While memory is short the server asks here for ends
//! at once, and a client sends a message for each, as it does where two have ended since its last call.
//!
//! Each side writes its own word before it looks at the other's. So an end that the server did not see here is said by a
//! client that saw what the server asks for.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use hotset_core::{Error, Result};
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};

/// The bytes that are shared.
const LENGTH: usize = 4096;

/// The page, at either end.
#[derive(Debug)]
pub struct EndsPage(MmapRaw);

impl EndsPage {
    /// A server's page for one client, and what the client maps.
    pub fn create() -> Result<(Self, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let descriptor = memfd_create("hotset-ends", flags).map_err(failed)?;
        ftruncate(&descriptor, LENGTH as u64).map_err(failed)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&descriptor, seals).map_err(failed)?;
        Ok((Self::open(&descriptor)?, descriptor))
    }

    /// The page that a server has sent.
    pub fn open(descriptor: impl AsFd) -> Result<Self> {
        let descriptor = descriptor.as_fd();
        let size = fstat(descriptor).map_err(failed)?.st_size;
        let seals = fcntl_get_seals(descriptor).map_err(failed)?;
        if usize::try_from(size).is_ok_and(|size| size < LENGTH) || !seals.contains(SealFlags::SHRINK) {
            return Err(Error::internal("the page for ends of leases is too short, or could shrink"));
        }
        Ok(Self(MmapOptions::new().len(LENGTH).map_raw(&descriptor).map_err(failed)?))
    }

    /// The lease that has ended, and whether ends are wanted at once.
    fn words(&self) -> &[AtomicU64; 2] {
        // SAFETY: the map begins at a page, is longer than two words, lives as long as `self` and cannot lose its page
        // (sealed against shrinking, checked in `open`). All accesses, here and at the other end, are atomic; whatever
        // the other end writes is a number.
        unsafe { &*self.0.as_ptr().cast() }
    }

    /// A client's lease has ended. False if the server wants to be told at once.
    pub fn note(&self, lease: u64) -> bool {
        let [ended, urgent] = self.words();
        ended.store(lease, SeqCst);
        urgent.load(SeqCst) == 0
    }

    /// The lease that a client noted last; 0 if it has noted none.
    pub fn noted(&self) -> u64 {
        self.words()[0].load(SeqCst)
    }

    /// A server wants to be told at once from now on, or no longer.
    pub fn set_urgent(&self, urgent: bool) {
        self.words()[1].store(u64::from(urgent), SeqCst);
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::unavailable(format!("cannot share a page for ends of leases: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_end_writes_the_other_sees() {
        let (server, descriptor) = EndsPage::create().unwrap();
        let client = EndsPage::open(&descriptor).unwrap();
        assert_eq!(server.noted(), 0);
        assert!(client.note(7));
        assert_eq!(server.noted(), 7);
        server.set_urgent(true);
        assert!(!client.note(8));
        server.set_urgent(false);
        assert!(client.note(9));
        assert_eq!(server.noted(), 9);
    }

    #[test]
    fn memory_that_could_shrink_or_is_too_short_is_refused() {
        let make = |length: u64, seals| {
            let descriptor = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&descriptor, length).unwrap();
            fcntl_add_seals(&descriptor, seals).unwrap();
            EndsPage::open(&descriptor)
        };
        assert!(make(LENGTH as u64, SealFlags::SHRINK).is_ok());
        assert!(make(LENGTH as u64, SealFlags::GROW).is_err());
        assert!(make(LENGTH as u64 - 1, SealFlags::SHRINK).is_err());
    }
}
