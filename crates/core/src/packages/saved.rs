//! Packages as bytes, as a plan that lies over several nodes brings them along: every node decides by the same ones.
//!
//! Those that hold a living sample are written, each with what a read of it brings; an id takes the bytes that the largest
//! one needs.

use super::{NONE, Package, Packages};
use crate::saved::{Reader, Writer};

impl Packages {
    /// All of it as bytes.
    pub fn save(&self) -> Vec<u8> {
        let mut writer = Writer::new(self.of.len());
        writer.bits([self.given].into_iter());
        let living: Vec<u32> = self.living().collect();
        writer.number(u64::from(self.next()));
        writer.number(living.len() as u64);
        let mut next = 0;
        for number in living {
            let package = &self.packages[number as usize];
            writer.number(u64::from(number - next));
            next = number + 1;
            writer.ids([package.first].into_iter());
            writer.number(u64::from(package.packed));
            writer.number(package.bytes);
            writer.number(package.extent);
            writer.ids(package.members.iter().copied());
        }
        writer.seal("packages")
    }

    /// What [`Self::save`] wrote for a catalog of `samples`; nothing if it cannot be that.
    pub fn restore(saved: &[u8], samples: usize) -> Option<Self> {
        let mut reader = Reader::open(saved, "packages", samples)?;
        let given = reader.bits(1)?.next()?;
        let after = usize::try_from(reader.number()?).ok()?;
        let mut packages = Self { given, ..Self::new(samples) };
        let mut next = 0u32;
        for _ in 0..reader.number()? {
            let number = next.checked_add(u32::try_from(reader.number()?).ok()?)?;
            next = number.checked_add(1)?;
            let [first] = reader.ids()?[..] else { return None };
            let (packed, bytes) = (u32::try_from(reader.number()?).ok()?, reader.number()?);
            let (extent, members) = (reader.number()?, reader.ids()?);
            // A sample lies in one package; numbers that were skipped are few, since each was once a package.
            let fits = members.len() <= packed as usize && number as usize <= samples.max(1 << 24);
            let own = |&id: &u32| std::mem::replace(&mut packages.of[id as usize], number) == NONE;
            if !fits || !members.iter().all(own) {
                return None;
            }
            packages.packages.resize(number as usize, Package::default());
            packages.packages.push(Package { members, first, packed, bytes, extent });
        }
        reader.end()?;
        // Numbers of packages that hold nothing any more are not given once more.
        let fits = (packages.packages.len()..=samples.max(1 << 24)).contains(&after);
        packages.packages.resize(if fits { after } else { return None }, Package::default());
        Some(packages)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Id;

    proptest! {
        #[test]
        fn what_was_saved_is_restored(
            packed in proptest::collection::vec(proptest::collection::btree_set(0u32..300, 1..9), 0..30),
            retired in proptest::collection::vec(0u32..30, 0..5),
            cut in 0usize..200,
        ) {
            let sizes: Vec<u64> = (0..300).map(|id| 10 + id % 7).collect();
            let mut packages = Packages::new(300);
            for ids in &packed {
                packages.add(&Vec::from_iter(ids.iter().rev().copied()), &sizes);
            }
            retired.iter().for_each(|&package| packages.retire(package));
            let saved = packages.save();
            let restored = Packages::restore(&saved, 300).unwrap();
            prop_assert!(restored.living().eq(packages.living()));
            prop_assert_eq!(restored.next(), packages.next());
            for package in packages.living() {
                let of = |all: &Packages| {
                    let (bytes, extent) = (all.bytes(package), all.extent(package));
                    (all.members(package).to_vec(), all.first(package), all.packed(package), bytes, extent)
                };
                prop_assert_eq!(of(&restored), of(&packages));
            }
            prop_assert!((0..300).all(|id: Id| restored.of(id) == packages.of(id)));
            prop_assert!(Packages::restore(&saved, 299).is_none(), "another dataset");
            prop_assert!(Packages::restore(&saved[..cut.min(saved.len() - 1)], 300).is_none(), "torn");
        }

        #[test]
        fn what_was_not_saved_is_refused(numbers in proptest::collection::vec(0u64..40, 0..40)) {
            let mut writer = Writer::new(30);
            numbers.iter().for_each(|&number| writer.number(number));
            if let Some(packages) = Packages::restore(&writer.seal("packages"), 30) {
                let members: usize = packages.living().map(|package| packages.members(package).len()).sum();
                prop_assert_eq!(members, (0..30).filter(|&id| packages.of(id).is_some()).count());
            }
        }
    }
}
