//! What is resident when a plan is made, on one node or on all that a job is on.
//!
//! Nodes tell the home of a job what they keep in about a byte for each resident, so that 200 million residents of a
//! thousand nodes are 200 MB for the home, and not a bit of every sample from each.

use crate::Id;
use crate::bits::Bits;
use crate::policy::{Place, Policy};
use crate::saved::{Reader, Writer};

/// The samples that were resident when a plan was made.
#[derive(Debug, Clone, Default)]
pub struct Residents {
    all: Bits,
    low: Bits,
}

impl Residents {
    /// None, of a catalog of `samples`.
    pub fn none(samples: usize) -> Self {
        Self { all: Bits::new(samples), low: Bits::new(samples) }
    }

    /// Those of `policy`, of a catalog of `samples`.
    pub fn of(policy: &dyn Policy, samples: usize) -> Self {
        Self::of_all([policy], samples)
    }

    /// Those of all the nodes that have these policies, of a catalog of `samples`.
    pub fn of_all<'a>(policies: impl IntoIterator<Item = &'a dyn Policy>, samples: usize) -> Self {
        let mut found = Self::none(samples);
        for policy in policies {
            policy.residents(&mut |id| found.insert(id, policy.place(id) == Some(Place::Low)));
        }
        found
    }

    /// These ids, none of them in the L region.
    #[cfg(test)]
    pub(crate) fn from_ids(samples: usize, ids: &[Id]) -> Self {
        let mut found = Self::none(samples);
        ids.iter().for_each(|&id| found.insert(id, false));
        found
    }

    /// Whether `id` was resident.
    pub fn contains(&self, id: Id) -> bool {
        self.all.contains(id)
    }

    /// How many there were.
    pub fn count(&self) -> usize {
        self.all.count()
    }

    /// Adds those of another node.
    pub fn add(&mut self, other: &Self) {
        self.all.add(&other.all);
        self.low.add(&other.low);
    }

    /// As bytes, for another node: about one for each resident, however large the catalog is.
    pub fn save(&self, samples: usize) -> Vec<u8> {
        let mut writer = Writer::new(samples);
        writer.number(self.count() as u64);
        let mut next = 0;
        for id in self.all.iter() {
            writer.number(u64::from(id - next) << 1 | u64::from(self.is_low(id)));
            next = id + 1;
        }
        writer.seal("residents")
    }

    /// What [`Self::save`] wrote for a catalog of `samples`; nothing if it cannot be that.
    pub fn restore(saved: &[u8], samples: usize) -> Option<Self> {
        let mut found = Self::none(samples);
        found.add_saved(saved, samples)?;
        Some(found)
    }

    /// Adds what [`Self::save`] wrote on another node for a catalog of `samples`; nothing of it if it cannot be that.
    pub fn add_saved(&mut self, saved: &[u8], samples: usize) -> Option<()> {
        for_each(saved, samples, |_, _| {})?;
        for_each(saved, samples, |id, is_low| self.insert(id, is_low))
    }

    /// The same without the L region, which packages push out as a plan goes on.
    #[must_use]
    pub fn without_low(&self) -> Self {
        let mut all = self.all.clone();
        self.low.iter().for_each(|id| all.remove(id));
        Self { all, low: Bits::default() }
    }

    /// Whether it was in the L region.
    pub fn is_low(&self, id: Id) -> bool {
        self.low.contains(id)
    }

    fn insert(&mut self, id: Id, is_low: bool) {
        self.all.insert(id);
        if is_low {
            self.low.insert(id);
        }
    }
}

/// Reads what was saved: each resident, and whether it was in the L region.
fn for_each(saved: &[u8], samples: usize, mut found: impl FnMut(Id, bool)) -> Option<()> {
    let mut reader = Reader::open(saved, "residents", samples)?;
    let mut next = 0u64;
    for _ in 0..reader.number()? {
        let number = reader.number()?;
        let at = next.checked_add(number >> 1).filter(|&at| at < samples as u64)?;
        found(Id::try_from(at).ok()?, number & 1 == 1);
        next = at + 1;
    }
    reader.end()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn residents_of_nodes_together_are_those_of_each() {
        let mut all = Residents::from_ids(300, &[0, 3, 299]);
        all.add(&Residents::from_ids(300, &[3, 64]));
        assert_eq!((0..400).filter(|&id| all.contains(id)).collect::<Vec<_>>(), [0, 3, 64, 299]);
        assert_eq!((all.count(), all.without_low().count()), (4, 4));
        let mut none = Residents::default();
        none.add(&all);
        assert_eq!(none.count(), 4);
    }

    proptest! {
        #[test]
        fn what_was_saved_is_restored(
            ids in proptest::collection::btree_map(0u32..5_000, any::<bool>(), 0..200), cut in 0usize..100
        ) {
            let (mut all, mut low) = (Bits::new(5_000), Bits::new(5_000));
            for (&id, &is_low) in &ids {
                all.insert(id);
                if is_low {
                    low.insert(id);
                }
            }
            let residents = Residents { all, low };
            let saved = residents.save(5_000);
            prop_assert!(saved.len() <= 2 * ids.len() + 12, "{} bytes for {}", saved.len(), ids.len());
            let mut none = Residents::none(5_000);
            prop_assert!(none.add_saved(&saved[..cut.min(saved.len() - 1)], 5_000).is_none());
            prop_assert_eq!(none.count(), 0, "what is torn adds nothing");
            let restored = Residents::restore(&saved, 5_000).unwrap();
            prop_assert_eq!((&restored.all, &restored.low), (&residents.all, &residents.low));
            prop_assert!(Residents::restore(&saved, 4_999).is_none(), "another dataset");
            prop_assert!(Residents::restore(&saved[..cut.min(saved.len() - 1)], 5_000).is_none());
        }

        #[test]
        fn what_was_not_saved_is_refused(numbers in proptest::collection::vec(any::<u64>(), 0..20)) {
            let mut writer = Writer::new(100);
            numbers.iter().for_each(|&number| writer.number(number));
            let saved = writer.seal("residents");
            if let Some(residents) = Residents::restore(&saved, 100) {
                prop_assert!((0..100).filter(|&id| residents.contains(id)).count() == residents.count());
            }
        }
    }
}
