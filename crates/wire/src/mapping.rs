//! A part of the server's memory, mapped to be read.
//!
//! Segments and plans arrive as descriptors of sealed memory. A map of a file that shrinks later kills the
//! process that reads it, so a descriptor is mapped only if it is as long as was said and sealed against
//! shrinking: from then on no read of it can fail.

use std::os::fd::AsFd;
use std::slice;

use hotset_core::{Error, Result};
use memmap2::{MmapMut, MmapOptions, MmapRaw};
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::mm::{MremapFlags, mremap_fixed};

/// Shared memory of the server, read-only here; unmapped with its last user.
#[derive(Debug)]
pub struct Mapping {
    /// `None` for no bytes, which cannot be mapped.
    map: Option<MmapRaw>,
}

impl Mapping {
    /// Maps the first `length` bytes of `descriptor`, which may be closed afterwards.
    pub fn new(descriptor: impl AsFd, length: u64) -> Result<Self> {
        let descriptor = descriptor.as_fd();
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            Error::unavailable(format!("cannot {what} `{length}` bytes of the server's memory: {error}"))
        };
        let size = fstat(descriptor).map_err(|error| failed("measure", &error))?.st_size;
        if u64::try_from(size).is_ok_and(|size| size < length) {
            return Err(Error::internal(format!(
                "memory of `{length}` bytes was announced, `{size}` arrived"
            )));
        }
        let seals = fcntl_get_seals(descriptor).map_err(|error| failed("check the seals of", &error))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(Error::internal(format!(
                "memory of `{length}` bytes is not sealed against shrinking"
            )));
        }
        if length == 0 {
            return Ok(Self { map: None });
        }
        let length = usize::try_from(length).map_err(|error| failed("map", &error))?;
        let map = MmapOptions::new().len(length).map_raw_read_only(&descriptor);
        Ok(Self { map: Some(map.map_err(|error| failed("map", &error))?) })
    }

    /// The bytes mapped.
    pub fn len(&self) -> usize {
        self.map.as_ref().map_or(0, MmapRaw::len)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the bytes begin; dangling if there are none.
    pub fn as_ptr(&self) -> *const u8 {
        self.map.as_ref().map_or(std::ptr::dangling(), |map| map.as_ptr())
    }

    /// Puts a copy as long as this map in its place, at the same address, in a process that has just been forked. The
    /// process ends if the system does not let it: what it would see later could be anything.
    pub(crate) fn replace(&self, copy: MmapMut) {
        debug_assert_eq!(copy.len(), self.len());
        let (from, length) = (copy.as_ptr().cast_mut().cast(), copy.len());
        // Its address is given up here: the map is this one's now, and is unmapped with it.
        std::mem::forget(copy);
        // SAFETY: both are whole maps of `length` bytes that belong to us, and no other thread exists in this process.
        // References into this map are to leased bytes, which are the same in the copy.
        let moved = unsafe {
            mremap_fixed(from, length, length, MremapFlags::MAYMOVE, self.as_ptr().cast_mut().cast())
        };
        if moved.is_err() {
            std::process::abort();
        }
    }

    /// `length` bytes at `offset`. The caller holds the lease of these bytes, or they never change.
    pub fn slice(&self, offset: u64, length: u64) -> Result<&[u8]> {
        let outside = || {
            let size = self.len();
            Error::internal(format!("`{length}` bytes at `{offset}` are outside memory of `{size}` bytes"))
        };
        let end = offset.checked_add(length).ok_or_else(outside)?;
        if end > self.len() as u64 {
            return Err(outside());
        }
        // SAFETY: `offset..end` lies in the map (just checked, so both fit `usize`), which lives as long as `self`
        // and cannot lose pages under us (sealed against shrinking, checked in `new`). The server writes leased
        // bytes and plans before it names them and not again until the lease ends. `as_ptr` is not null.
        Ok(unsafe { slice::from_raw_parts(self.as_ptr().add(offset as usize), length as usize) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotset_core::Kind;
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};
    use rustix::io::pwrite;
    use std::os::fd::OwnedFd;

    fn memory(bytes: &[u8], seals: SealFlags) -> OwnedFd {
        let descriptor = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&descriptor, bytes.len() as u64).unwrap();
        pwrite(&descriptor, bytes, 0).unwrap();
        fcntl_add_seals(&descriptor, seals).unwrap();
        descriptor
    }

    #[test]
    fn a_slice_outlives_the_descriptor_and_ends_at_the_map() {
        let mapping = Mapping::new(memory(b"0123456789", SealFlags::SHRINK), 8).unwrap();
        assert_eq!(mapping.slice(2, 3).unwrap(), b"234");
        assert_eq!(mapping.slice(8, 0).unwrap(), b"");
        for (offset, length) in [(8, 1), (9, 0), (0, 9), (u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX)] {
            assert_eq!(mapping.slice(offset, length).unwrap_err().kind, Kind::Internal);
        }
    }

    #[test]
    fn memory_that_could_shrink_is_not_mapped() {
        let error = Mapping::new(memory(b"0123", SealFlags::GROW), 4).unwrap_err();
        assert!(error.message.contains("sealed"), "{error}");
    }

    #[test]
    fn memory_shorter_than_announced_is_not_mapped() {
        let error = Mapping::new(memory(b"0123", SealFlags::SHRINK), 5).unwrap_err();
        assert!(error.message.contains("`5`") && error.message.contains("`4`"), "{error}");
    }

    #[test]
    fn no_bytes_are_a_map_too() {
        let mapping = Mapping::new(memory(b"", SealFlags::SHRINK), 0).unwrap();
        assert_eq!(mapping.slice(0, 0).unwrap(), b"");
        assert!(mapping.is_empty());
    }

    #[test]
    fn a_socket_or_a_pipe_is_refused() {
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(Mapping::new(&socket, 0).is_err());
        assert!(Mapping::new(rustix::pipe::pipe().unwrap().0, 0).is_err());
    }
}
