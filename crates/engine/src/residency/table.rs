//! One entry for each sample of a dataset: its object, and what claims its bytes.
//!
//! Claims are of two kinds: jobs whose cache keeps the sample, and decided slots that wait for it. They belong to the
//! sample, not to its object: bytes that are lost and read again are claimed as before. An entry takes eight bytes, so
//! the two counts share four.

use hotset_core::Id;

/// Bits of the count of waiting slots; the count of keeping jobs has the rest.
const SLOT_BITS: u32 = 20;
const MOST_SLOTS: u32 = (1 << SLOT_BITS) - 1;

/// The most jobs that can keep samples of one dataset.
pub(crate) const MOST_KEEPERS: u32 = (1 << (32 - SLOT_BITS)) - 1;

/// What claims a sample's bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Claims(u32);

impl Claims {
    /// Jobs whose cache keeps it.
    pub(super) fn keepers(self) -> u32 {
        self.0 >> SLOT_BITS
    }

    /// Decided slots that wait for it.
    pub(super) fn slots(self) -> u32 {
        self.0 & MOST_SLOTS
    }

    pub(super) fn any(self) -> bool {
        self.0 != 0
    }

    /// One more job keeps it.
    pub(super) fn add_keeper(&mut self) {
        debug_assert!(self.keepers() < MOST_KEEPERS, "more jobs than can be opened");
        self.0 += 1 << SLOT_BITS;
    }

    /// A job keeps it no longer. False if none did.
    pub(super) fn remove_keeper(&mut self) -> bool {
        let kept = self.keepers() > 0;
        self.0 -= u32::from(kept) << SLOT_BITS;
        kept
    }

    /// One more slot waits for it. A count that is full stays so: the bytes are then kept for good.
    pub(super) fn add_slot(&mut self) {
        self.0 += u32::from(self.slots() < MOST_SLOTS);
    }

    /// A slot waits for it no longer. False if none did.
    pub(super) fn remove_slot(&mut self) -> bool {
        let waits = self.slots() > 0;
        self.0 -= u32::from(waits && self.slots() < MOST_SLOTS);
        waits
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// The object, plus one; zero without.
    object: u32,
    claims: Claims,
}

/// The entries of one dataset.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Empty until something is claimed or read.
    entries: Vec<Entry>,
    /// Objects with bytes of this dataset, those that no entry names any more included.
    pub(super) objects: usize,
}

impl Table {
    /// Makes room for so many samples.
    pub(super) fn size_to(&mut self, samples: usize) {
        if self.entries.len() < samples {
            self.entries.resize(samples, Entry::default());
        }
    }

    pub(super) fn object(&self, id: Id) -> Option<u32> {
        self.entries.get(id as usize)?.object.checked_sub(1)
    }

    pub(super) fn set_object(&mut self, id: Id, object: Option<u32>) {
        self.entries[id as usize].object = object.map_or(0, |key| key + 1);
    }

    pub(super) fn claims(&self, id: Id) -> Claims {
        self.entries.get(id as usize).map_or_else(Claims::default, |entry| entry.claims)
    }

    pub(super) fn claims_mut(&mut self, id: Id) -> &mut Claims {
        &mut self.entries[id as usize].claims
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_counts_in_one_word_do_not_touch_each_other() {
        let mut claims = Claims::default();
        for _ in 0..3 {
            claims.add_keeper();
        }
        for _ in 0..=MOST_SLOTS {
            claims.add_slot();
        }
        assert_eq!((claims.keepers(), claims.slots()), (3, MOST_SLOTS));
        assert!(claims.remove_slot());
        assert_eq!(claims.slots(), MOST_SLOTS, "a full count is not exact any more, so it stays");
        assert!(claims.remove_keeper() && claims.remove_keeper() && claims.remove_keeper());
        assert!(!claims.remove_keeper());
        let mut claims = Claims::default();
        claims.add_slot();
        assert!(claims.remove_slot() && !claims.remove_slot() && !claims.any());
    }
}
