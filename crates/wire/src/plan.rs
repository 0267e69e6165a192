//! One rank's ids of one epoch, in the server's sealed memory.
//!
//! Sealed as segments are: older kernels refuse to share memory that is sealed against all writes.

use std::os::fd::AsFd;

use hotset_core::{Error, Id, Result};

use crate::mapping::Mapping;

/// The bytes of one id.
const WIDTH: u64 = 4;

/// The ids a rank trains in an epoch, in order. They never change.
#[derive(Debug)]
pub struct Plan {
    mapping: Mapping,
    length: u64,
}

impl Plan {
    /// Maps a plan of `length` ids.
    pub fn new(descriptor: impl AsFd, length: u64) -> Result<Self> {
        let bytes = length.checked_mul(WIDTH).ok_or_else(|| {
            Error::internal(format!("a plan of `{length}` ids is longer than any memory can hold"))
        })?;
        Ok(Self { mapping: Mapping::new(descriptor, bytes)?, length })
    }

    /// How many ids there are.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The ids of slots `start..stop`, clipped to the plan.
    pub fn ids(&self, start: u64, stop: u64) -> impl ExactSizeIterator<Item = Id> {
        let stop = stop.min(self.length);
        let start = start.min(stop);
        let bytes = self.mapping.slice(start * WIDTH, (stop - start) * WIDTH).unwrap_or_default();
        bytes.as_chunks().0.iter().map(|id| Id::from_le_bytes(*id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

    #[test]
    fn ids_are_clipped_to_the_plan() {
        let memory = memfd_create("plan", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        let bytes: Vec<u8> = [5u32, 6, 70_000].iter().flat_map(|id| id.to_le_bytes()).collect();
        rustix::io::write(&memory, &bytes).unwrap();
        fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE).unwrap();
        let plan = Plan::new(&memory, 3).unwrap();
        assert_eq!(plan.ids(0, 3).collect::<Vec<_>>(), [5, 6, 70_000]);
        assert_eq!(plan.ids(1, u64::MAX).collect::<Vec<_>>(), [6, 70_000]);
        for (start, stop) in [(3, 9), (9, 3), (u64::MAX, u64::MAX), (2, 1)] {
            assert_eq!(plan.ids(start, stop).len(), 0);
        }
        assert!(Plan::new(&memory, 4).is_err());
        assert!(Plan::new(&memory, u64::MAX).is_err());
    }
}
