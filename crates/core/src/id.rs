//! Sample ids, and the index a loader asks for.
//!
//! Ids are dense, `0..n`, in catalog order. A sampler yields an *index*: the id with the epoch it was
//! planned for above it, `id + (epoch + 1) << 40`. So a request tells its epoch even when it comes from a
//! worker that outlives epochs, and an upper part of zero means *unplanned*: `dataset[i]` by hand, an
//! evaluation pass, another sampler.

/// A sample of a catalog: dense, `0..n`.
pub type Id = u32;

/// The bit at which an index's epoch begins.
pub const EPOCH_SHIFT: u32 = 40;

/// The last epoch an index can carry, so that an index stays a positive 64-bit integer.
pub const LAST_EPOCH: u64 = (1 << (63 - EPOCH_SHIFT)) - 2;

/// The most samples a catalog may hold.
pub const MOST_SAMPLES: u64 = u32::MAX as u64;

/// What a loader asks for: a sample, and the epoch that planned it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Index {
    /// The epoch whose plan holds this serving; `None` for an unplanned request.
    pub epoch: Option<u64>,
    /// The sample's number, not yet checked against a catalog.
    pub sample: u64,
}

impl Index {
    /// Takes an index apart.
    pub fn from_raw(raw: u64) -> Self {
        let upper = raw >> EPOCH_SHIFT;
        Self { epoch: upper.checked_sub(1), sample: raw & ((1 << EPOCH_SHIFT) - 1) }
    }

    /// Puts an index together.
    pub fn into_raw(self) -> u64 {
        self.sample + (self.epoch.map_or(0, |epoch| epoch + 1) << EPOCH_SHIFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_carries_its_epoch_and_comes_apart_again() {
        for epoch in [None, Some(0), Some(89), Some(LAST_EPOCH)] {
            let index = Index { epoch, sample: 1_281_166 };
            assert_eq!(Index::from_raw(index.into_raw()), index);
            assert!(index.into_raw() <= i64::MAX as u64);
        }
        assert_eq!(Index::from_raw(7), Index { epoch: None, sample: 7 });
    }
}
