//! One piece of shared memory: a sealed memfd, mapped writable here and handed out read-only.
//!
//! The seals go on after our own map is made: with `F_SEAL_SHRINK` and `F_SEAL_GROW` a reader can never
//! fault on a page that vanished, and with `F_SEAL_FUTURE_WRITE` our map stays writable while a process
//! that gets the descriptor cannot write through it. Nothing has a name, so nothing outlives its processes.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use hotset_core::{Error, Result};
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags};

/// A sealed memfd, and our map of it.
pub(crate) struct Segment {
    descriptor: Arc<OwnedFd>,
    map: MmapRaw,
}

impl Segment {
    /// A new segment of `length` bytes. Pages are taken from the system when they are first written.
    pub(crate) fn new(length: u64) -> Result<Self> {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            Error::unavailable(format!(
                "cannot {what} a cache segment of {length} bytes: {error}; lower `cache`"
            ))
        };
        let descriptor = rustix::fs::memfd_create("hotset", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(|error| failed("make", &error))?;
        rustix::fs::ftruncate(&descriptor, length).map_err(|error| failed("size", &error))?;
        let size = usize::try_from(length).map_err(|error| failed("map", &error))?;
        let map = MmapOptions::new().len(size).map_raw(&descriptor).map_err(|error| failed("map", &error))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&descriptor, seals).map_err(|error| failed("seal", &error))?;
        Ok(Self { descriptor: Arc::new(descriptor), map })
    }

    pub(crate) fn length(&self) -> u64 {
        self.map.len() as u64
    }

    /// The descriptor that readers map.
    pub(crate) fn descriptor(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.descriptor)
    }

    /// A place to write `length` bytes at `offset`; `None` beyond the segment's end.
    pub(crate) fn target(&self, offset: u64, length: u64) -> Option<Target> {
        let end = offset.checked_add(length)?;
        if end > self.length() {
            return None;
        }
        let offset = usize::try_from(offset).ok()?;
        // SAFETY: `offset` lies within the map, as was just checked.
        let at = unsafe { self.map.as_mut_ptr().add(offset) };
        Some(Target { at, length: usize::try_from(length).ok()? })
    }

    /// Moves bytes within the segment; both runs may overlap. The caller makes sure that they are not read meanwhile.
    pub(crate) fn shift(&self, from: u64, to: u64, length: u64) {
        let (Some(from), Some(to)) = (self.target(from, length), self.target(to, length)) else { return };
        // SAFETY: both runs lie within the map (`target` checked), and `copy` allows overlap. Neither is
        // leased nor being filled: the allocator moves only blocks that its caller calls movable.
        unsafe { std::ptr::copy(from.at, to.at, from.length) };
    }
}

/// Exclusive use of a run of bytes in a segment, until the read that fills it is over.
///
/// Its maker keeps its segment mapped and its block neither moved, freed nor leased until it is
/// dropped; the engine does so by the object's state `Reading`.
pub(crate) struct Target {
    at: *mut u8,
    length: usize,
}

// SAFETY: the pointer goes into a shared map that outlives the target, and only the one thread that holds
// the target writes through it.
unsafe impl Send for Target {}

impl Target {
    /// The bytes to fill.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the run lies within a live map, and nothing else reads or writes it meanwhile (see the
        // type's promise). Fresh pages read as zero, so the bytes are initialised.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.length) }
    }
}

/// A sample's bytes in a segment, to be looked at without the engine's lock.
///
/// Its maker holds a lease on them until it is dropped, so that they are neither moved, reused nor written.
pub(crate) struct View(Target);

impl View {
    /// Of bytes that are leased.
    pub(crate) fn leased(target: Target) -> Self {
        Self(target)
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the run lies within a live map, and leased bytes are not written (see the type's promise).
        unsafe { std::slice::from_raw_parts(self.0.at, self.0.length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_written_here_and_cannot_be_written_or_resized_by_who_gets_it() {
        let segment = Segment::new(4096).unwrap();
        segment.target(16, 5).unwrap().bytes().copy_from_slice(b"hello");
        segment.shift(16, 18, 5);
        let descriptor = segment.descriptor();
        let mut seen = [0; 5];
        rustix::io::pread(&*descriptor, &mut seen, 18).unwrap();
        assert_eq!(&seen, b"hello");
        assert!(rustix::io::pwrite(&*descriptor, b"x", 0).is_err());
        assert!(rustix::fs::ftruncate(&*descriptor, 0).is_err());
        assert!(MmapOptions::new().map_raw(&*descriptor).is_err());
        assert!(segment.target(4090, 7).is_none());
        assert!(segment.target(u64::MAX, 7).is_none());
    }
}
