//! Samples that lie side by side in one object, as those of a tar shard do: one request brings many of them.
//!
//! Neighbours follow one another in the catalog and in their object, with at most a small gap between them, which is
//! read and thrown away.

use hotset_core::Id;
use hotset_core::packages::{Packages, runs};
use hotset_core::policy::Sizes;

use crate::catalog::Catalog;
use crate::store::{ReadError, Store};

/// The most bytes between two neighbours: a tar header, its padding, and what else a member brings.
const GAP: u64 = 4 << 10;

impl Catalog {
    /// How many bytes lie between a sample and the one after it, if they are neighbours.
    pub fn gap_after(&self, id: Id) -> Option<u64> {
        let next = id.checked_add(1).filter(|&next| (next as usize) < self.len())?;
        let end = self.offset(id)?.checked_add(self.size(id))?;
        let gap = self.offset(next)?.checked_sub(end)?;
        let near = gap <= GAP && self.version(id) == self.version(next) && self.shares_object(id, next);
        near.then_some(gap)
    }

    /// From where the first of two samples of one object begins to where the second ends.
    pub fn extent(&self, first: Id, last: Id) -> u64 {
        self.distance(first, last) + self.size(last)
    }

    fn distance(&self, first: Id, other: Id) -> u64 {
        let begin = |id| self.offset(id).unwrap_or_default();
        begin(other).saturating_sub(begin(first))
    }

    /// The packages that its objects hold as they are: runs of neighbours, of at least `least` bytes. `None` where
    /// samples are objects of their own.
    pub fn run_packages(&self, least: u64) -> Option<Packages> {
        self.has_neighbours().then(|| runs(self, least, |id| self.gap_after(id)))
    }

    /// Reads from `first` to `last`, which are neighbours as are all between them, in one request, and puts those that
    /// have a target there; how many bytes it brought.
    pub fn read_together<'a>(
        &self,
        store: &dyn Store,
        (first, last): (Id, Id),
        targets: impl Iterator<Item = (Id, &'a mut [u8])>,
    ) -> Result<u64, ReadError> {
        let extent = self.extent(first, last);
        let mut bytes = vec![0; usize::try_from(extent).unwrap_or_default()];
        self.with_location(first, |location| store.read(location, &mut bytes))?;
        for (id, into) in targets {
            let from = usize::try_from(self.distance(first, id)).unwrap_or_default();
            into.copy_from_slice(&bytes[from..][..into.len()]);
        }
        Ok(extent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Builder, Sample, Shape};
    use crate::store::Location;

    /// A store of which every byte is its offset.
    struct Offsets;

    impl Store for Offsets {
        fn read(&self, at: Location<'_>, into: &mut [u8]) -> Result<(), ReadError> {
            (at.offset..).zip(into).for_each(|(offset, byte)| *byte = offset as u8);
            Ok(())
        }
    }

    /// Samples of 100 bytes: object, offset and version of each.
    fn catalog(samples: &[(&str, Option<u64>, u32)]) -> Catalog {
        let mut builder = Builder::of(Shape::default());
        let mut last = None;
        for (number, &(object, offset, version)) in samples.iter().enumerate() {
            let known = last.filter(|(name, _)| *name == object).map(|(_, directory)| directory);
            let directory = known.unwrap_or_else(|| builder.directory(object).unwrap());
            last = Some((object, directory));
            let sample = Sample { offset, size: 100, version, ..Sample::default() };
            builder.push_sample(directory, &number.to_string(), &sample).unwrap();
        }
        builder.finish()
    }

    #[test]
    fn neighbours_follow_each_other_closely_in_one_version_of_one_object() {
        let apart = [
            ("a", Some(0), 1),
            ("a", Some(100), 1),           // right behind the first
            ("a", Some(200 + GAP), 1),     // just near enough
            ("a", Some(301 + 2 * GAP), 1), // too far
            ("a", Some(350 + 2 * GAP), 1), // inside the one before
            ("a", Some(450 + 2 * GAP), 2), // of another version
            ("b", Some(550 + 2 * GAP), 2), // in another object
            ("c", None, 2),                // an object of its own
        ];
        let catalog = catalog(&apart);
        let gaps: Vec<Option<u64>> = (0..apart.len() as Id).map(|id| catalog.gap_after(id)).collect();
        assert_eq!(gaps, [Some(0), Some(GAP), None, None, None, None, None, None]);
    }

    #[test]
    fn one_read_brings_neighbours_to_their_places() {
        let catalog = catalog(&[("a", Some(5), 0), ("a", Some(110), 0), ("a", Some(230), 0)]);
        let (mut first, mut last) = ([0; 100], [0; 100]);
        let targets = [(0, &mut first[..]), (2, &mut last[..])];
        assert_eq!(catalog.read_together(&Offsets, (0, 2), targets.into_iter()).unwrap(), 325);
        assert_eq!((first[0], first[99], last[0], last[99]), (5, 104, 230, 73));
    }

    #[test]
    fn samples_that_are_objects_lie_in_no_run() {
        assert!(catalog(&[("a", None, 0), ("a", None, 0)]).run_packages(100).is_none());
        let runs = catalog(&[("a", Some(0), 0), ("a", Some(100), 0), ("b", Some(0), 0)]).run_packages(200);
        assert_eq!(runs.unwrap().members(0), [0, 1]);
    }
}
