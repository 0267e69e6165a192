//! What one node owns of a dataset.
//!
//! The unit of placement is the package where samples lie in packages, so that one node reads a package in one request, and
//! else the sample. A package is placed as the first sample that was packed into it. A plan's [schedule](crate::schedule)
//! has the ownership of the view that the plan was made in, and keeps it. Where the plan brings a [`Directory`], that says
//! who owns a sample, and the hash who owns what it has no entry of.

use std::sync::Arc;

use super::{Directory, Placement};
use crate::Id;
use crate::packages::Packages;
use crate::rng::splitmix64;

/// Which samples of a dataset a node owns, and who owns the others.
#[derive(Clone)]
pub struct Ownership {
    placement: Arc<Placement>,
    dataset: u64,
    node: Option<usize>,
    packages: Option<Arc<Packages>>,
    directory: Option<Arc<Directory>>,
    digest: u64,
}

impl Ownership {
    /// Of a dataset of that hash, for the node of that number in the placement's view; `None`: for one that is not in it.
    pub fn new(placement: Arc<Placement>, dataset: u64, node: Option<usize>) -> Self {
        Self { digest: placement.digest(), placement, dataset, node, packages: None, directory: None }
    }

    /// The same of a dataset whose samples lie in these packages, made or given: the samples of one have one owner.
    #[must_use]
    pub fn by_packages(self, packages: Arc<Packages>) -> Self {
        let of = |hash: u64, package: u32| {
            let first = packages.first(package).map_or(0, u64::from);
            (hash ^ (u64::from(package) << 32 | first)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
        };
        let digest = packages.living().fold(self.digest, of);
        Self { packages: Some(packages), digest, ..self }
    }

    /// Another where samples may have other owners.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The same where a directory says who owns what.
    #[must_use]
    pub fn by_directory(self, directory: Arc<Directory>) -> Self {
        let digest = self.digest ^ splitmix64(directory.digest());
        Self { directory: Some(directory), digest, ..self }
    }

    /// The placement.
    pub fn placement(&self) -> &Arc<Placement> {
        &self.placement
    }

    /// The number of the node that owns a sample; `None` where no node owns anything.
    pub fn owner(&self, id: Id) -> Option<usize> {
        self.entry(id).or_else(|| self.placement.owner(self.dataset, u64::from(self.unit(id))))
    }

    /// The number of the node that a directory says owns a sample.
    pub(super) fn entry(&self, id: Id) -> Option<usize> {
        self.directory.as_ref()?.owner(id)
    }

    /// Whether this node owns a sample.
    pub fn owns(&self, id: Id) -> bool {
        self.node.is_some() && self.owner(id) == self.node
    }

    /// The number of the node that owns a package whose first sample is this one.
    pub fn package_owner(&self, first: Id) -> Option<usize> {
        self.entry(first).or_else(|| self.placement.owner(self.dataset, u64::from(first)))
    }

    /// Whether this node owns such a package.
    pub fn owns_package(&self, first: Id) -> bool {
        self.node.is_some() && self.package_owner(first) == self.node
    }

    /// The first sample of its package, or itself.
    fn unit(&self, id: Id) -> Id {
        let packages = self.packages.as_ref();
        packages.and_then(|packages| packages.first(packages.of(id)?)).unwrap_or(id)
    }
}

impl std::fmt::Debug for Ownership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { placement, dataset, node, .. } = self;
        f.debug_struct("Ownership").field("of", &(placement, dataset, node)).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Node, View};

    fn placement(nodes: usize) -> Arc<Placement> {
        let node = |at: usize| Node {
            name: format!("node-{at}"),
            address: String::new(),
            capacity: 1,
            rack: None,
            draining: false,
            revision: 0,
        };
        Arc::new(Placement::new(&View::new((0..nodes).map(node))))
    }

    #[test]
    fn every_sample_has_one_owner() {
        let placement = placement(3);
        let nodes: Vec<Ownership> =
            (0..3).map(|node| Ownership::new(Arc::clone(&placement), 9, Some(node))).collect();
        for id in 0..1_000 {
            let owners: Vec<usize> = (0..3).filter(|&node| nodes[node].owns(id)).collect();
            assert_eq!(owners, Vec::from_iter(nodes[0].owner(id)));
        }
        let outside = Ownership::new(placement, 9, None);
        assert!((0..1_000).all(|id| !outside.owns(id) && outside.owner(id) == nodes[0].owner(id)));
    }

    #[test]
    fn where_there_are_no_nodes_nobody_owns_anything() {
        let none = Ownership::new(placement(0), 9, None);
        assert!((0..100).all(|id| !none.owns(id) && none.owner(id).is_none()));
    }

    #[test]
    fn a_run_has_one_owner() {
        let sizes = vec![10u64; 100];
        let mut runs = Packages::new(100);
        for first in (0..80).step_by(8) {
            runs.add(&Vec::from_iter(first..first + 8), &sizes);
        }
        let alone = Ownership::new(placement(4), 9, Some(0));
        let by_runs = alone.clone().by_packages(Arc::new(runs));
        for first in (0..80).step_by(8) {
            assert!((first..first + 8).all(|id| by_runs.owner(id) == alone.owner(first)));
        }
        assert!((80..100).all(|id| by_runs.owner(id) == alone.owner(id)), "what lies in no run is its own");
        assert!((0..80).any(|id| by_runs.owner(id) != alone.owner(id)));
    }
}
