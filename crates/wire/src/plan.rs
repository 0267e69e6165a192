//! One rank's ids of one epoch, in the server's sealed memory.
//!
//! Sealed as segments are: older kernels refuse to share memory that is sealed against all writes.

use std::os::fd::AsFd;

use hotset_core::{Error, Id, Result};

use crate::mapping::Mapping;
use crate::proto::Warning;

/// The bytes of one id.
const WIDTH: u64 = 4;

/// The ids a rank trains in an epoch, in order. They never change.
#[derive(Debug)]
pub struct Plan {
    mapping: Mapping,
    weights: Option<Mapping>,
    length: u64,
    warnings: Vec<Warning>,
}

impl Plan {
    /// Maps a plan of `length` ids, and their weights if there are any.
    pub fn new<D: AsFd>(ids: D, weights: Option<D>, length: u64) -> Result<Self> {
        let bytes = length.checked_mul(WIDTH).ok_or_else(|| {
            Error::internal(format!("a plan of `{length}` ids is longer than any memory can hold"))
        })?;
        let weights = weights.map(|weights| Mapping::new(weights, bytes)).transpose()?;
        Ok(Self { mapping: Mapping::new(ids, bytes)?, weights, length, warnings: Vec::new() })
    }

    pub(crate) fn with_warnings(self, warnings: Vec<Warning>) -> Self {
        Self { warnings, ..self }
    }

    /// What the trainer should be told.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The weights of slots `start..stop`, clipped to the plan; `None` where all are 1.
    pub fn weights(&self, start: u64, stop: u64) -> Option<impl ExactSizeIterator<Item = f32>> {
        let weights = self.weights.as_ref()?;
        let stop = stop.min(self.length);
        let start = start.min(stop);
        let bytes = weights.slice(start * WIDTH, (stop - start) * WIDTH).unwrap_or_default();
        Some(bytes.as_chunks().0.iter().map(|weight| f32::from_le_bytes(*weight)))
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
        let plan = Plan::new(&memory, None, 3).unwrap();
        assert_eq!(plan.ids(0, 3).collect::<Vec<_>>(), [5, 6, 70_000]);
        assert!(plan.weights(0, 3).is_none());
        let weighted = Plan::new(&memory, Some(&memory), 3).unwrap();
        assert_eq!(weighted.weights(2, 9).unwrap().map(f32::to_bits).collect::<Vec<_>>(), [70_000]);
        assert_eq!(plan.ids(1, u64::MAX).collect::<Vec<_>>(), [6, 70_000]);
        for (start, stop) in [(3, 9), (9, 3), (u64::MAX, u64::MAX), (2, 1)] {
            assert_eq!(plan.ids(start, stop).len(), 0);
        }
        assert!(Plan::new(&memory, None, 4).is_err());
        assert!(Plan::new(&memory, None, u64::MAX).is_err());
    }
}
