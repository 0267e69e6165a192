//! What is packed while one plan is carried out: the packages that are made, and what is read for them.
//!
//! On a cluster the home of a job chooses it for all nodes, and it travels with the plan. Each makes the packages that it
//! owns, and reads what those lack.

use std::collections::HashSet;

use crate::Id;
use crate::cluster::Ownership;
use crate::saved::{Reader, Writer};

/// What is packed while a plan is carried out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Packing {
    /// Packages of these numbers and ids.
    pub packages: Vec<(u32, Vec<Id>)>,
    /// Older packages that are read whole for it, with the members that are needed of them.
    pub whole: Vec<(u32, Vec<Id>)>,
    /// Samples that are read one by one for it.
    pub single: Vec<Id>,
}

impl Packing {
    /// Whether nothing is packed.
    pub fn is_empty(&self) -> bool {
        self.packages.is_empty() && self.whole.is_empty() && self.single.is_empty()
    }

    /// The part of one node: the packages that it owns, and what is read for those.
    #[must_use]
    pub fn owned_by(&self, ownership: &Ownership) -> Self {
        let is_own = |ids: &[Id]| ids.first().is_some_and(|&first| ownership.owns_package(first));
        let packages: Vec<(u32, Vec<Id>)> =
            self.packages.iter().filter(|(_, ids)| is_own(ids)).cloned().collect();
        let packed: HashSet<Id> = packages.iter().flat_map(|(_, ids)| ids.iter().copied()).collect();
        let of = |ids: &[Id]| -> Vec<Id> { ids.iter().copied().filter(|id| packed.contains(id)).collect() };
        let whole = self.whole.iter().map(|(package, ids)| (*package, of(ids)));
        Self { whole: whole.filter(|(_, ids)| !ids.is_empty()).collect(), single: of(&self.single), packages }
    }

    /// All of it as bytes, of a catalog of `samples`.
    pub fn save(&self, samples: usize) -> Vec<u8> {
        let mut writer = Writer::new(samples);
        for packages in [&self.packages, &self.whole] {
            writer.number(packages.len() as u64);
            for (number, ids) in packages {
                writer.number(u64::from(*number));
                writer.ids(ids.iter().copied());
            }
        }
        writer.ids(self.single.iter().copied());
        writer.seal("packing")
    }

    /// What [`Self::save`] wrote for a catalog of `samples`; nothing if it cannot be that.
    pub fn restore(saved: &[u8], samples: usize) -> Option<Self> {
        let mut reader = Reader::open(saved, "packing", samples)?;
        let mut lists = [Vec::new(), Vec::new()];
        for list in &mut lists {
            for _ in 0..reader.number()? {
                list.push((u32::try_from(reader.number()?).ok()?, reader.ids()?));
            }
        }
        let [packages, whole] = lists;
        let single = reader.ids()?;
        reader.end()?;
        Some(Self { packages, whole, single })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cluster::{Node, Placement, View};

    #[test]
    fn what_was_saved_is_restored_for_the_same_catalog_alone() {
        let packing = Packing {
            packages: vec![(3, vec![7, 1]), (9, vec![2])],
            whole: vec![(1, vec![7])],
            single: vec![2],
        };
        let saved = packing.save(10);
        assert_eq!(Packing::restore(&saved, 10), Some(packing));
        assert_eq!(Packing::restore(&saved, 9), None);
        assert!((0..saved.len()).all(|cut| Packing::restore(&saved[..cut], 10).is_none()));
    }

    #[test]
    fn each_node_makes_what_it_owns_and_reads_for_that_alone() {
        let node = |at: u64| Node {
            name: format!("node-{at}"),
            address: String::new(),
            capacity: 1,
            rack: None,
            draining: false,
            revision: at,
        };
        let placement = Arc::new(Placement::new(&View::new((0..3).map(node))));
        let packages: Vec<(u32, Vec<Id>)> = (0..60).map(|at| (at, vec![2 * at, 2 * at + 1])).collect();
        let all = Packing { packages, whole: vec![(80, (0..40).collect())], single: (40..120).collect() };
        let parts = [0, 1, 2].map(|at| all.owned_by(&Ownership::new(Arc::clone(&placement), 9, Some(at))));
        let sum = |of: fn(&Packing) -> usize| parts.iter().map(of).sum::<usize>();
        assert_eq!(sum(|part| part.packages.len()), 60, "each package is made by one node");
        assert_eq!(
            sum(|part| part.single.len() + part.whole.iter().map(|(_, ids)| ids.len()).sum::<usize>()),
            120
        );
        for part in &parts {
            let made: Vec<Id> = part.packages.iter().flat_map(|(_, ids)| ids.clone()).collect();
            let read = part.whole.iter().flat_map(|(_, ids)| ids).chain(&part.single);
            assert!(read.clone().count() == made.len() && read.clone().all(|id| made.contains(id)));
        }
    }
}
