//! Which node owns what: rendezvous hashing (Thaler and Ravishankar, 1998), weighted by capacity.
//!
//! A *unit* of placement is a sample, or a run of samples where they lie in runs. Units fall into [`BINS`] by a hash, and
//! each bin belongs to the node with the best score for it: a hash of node and bin gives a number u between 0 and 1, and the
//! node whose -log(u) / capacity is least wins, which happens in proportion to capacities. A node's score for a bin hangs on
//! nobody else. So one that comes takes bins from all and moves none between others, one that goes leaves its own to all,
//! and one that grows or shrinks only takes or gives.
//!
//! Bins make a lookup one hash and one load, however many nodes there are. They are worked out once for a view, never in a
//! request. Shares are as even as bins allow: a node of N equal ones has BINS / N of them, give or take the root of that.
//!
//! Differs from the papers: iCache III-E asks a key-value store where a sample is. Here it follows from the nodes; what the
//! paper does is placement [`directory`](super::Directory).

use super::logarithm::{POINT, log2};
use super::view::{Node, View, digest};
use crate::rng::splitmix64;

/// How many bins units fall into.
pub const BINS: usize = 1 << 16;

/// No node.
const NONE: u16 = u16::MAX;

/// The owner of every bin.
#[derive(Clone, PartialEq, Eq)]
pub struct Placement {
    view: u64,
    owners: Vec<u16>,
    digest: u64,
}

impl Placement {
    /// Of the nodes of a view that give something and are not about to leave; of the first 65,535, if there are more.
    pub fn new(view: &View) -> Self {
        let owns = |(_, node): &(u16, &Node)| !node.draining && node.capacity > 0;
        let nodes: Vec<(u16, u64, u128)> = (0..NONE)
            .zip(view.nodes())
            .filter(owns)
            .map(|(number, node)| (number, digest(0, node.name.as_bytes()), u128::from(node.capacity)))
            .collect();
        let owners: Vec<u16> = (0..BINS as u64).map(|bin| best(&nodes, splitmix64(bin))).collect();
        let bytes: Vec<u8> = owners.iter().flat_map(|owner| owner.to_le_bytes()).collect();
        // Owners are numbers of nodes in the view.
        let names =
            view.nodes().iter().fold(0, |state, node| splitmix64(digest(state, node.name.as_bytes())));
        Self { view: view.id(), digest: digest(names, &bytes), owners }
    }

    /// The id of the view it was worked out from.
    pub fn view(&self) -> u64 {
        self.view
    }

    /// Equal where nodes of the same names own the same, whatever else has changed: one of them may have started again.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The number, in its view, of the node that owns a unit of a dataset; `None` where no node owns anything.
    pub fn owner(&self, dataset: u64, unit: u64) -> Option<usize> {
        // Unit after unit of one dataset, and one unit of many, fall into bins as if drawn.
        let bin = splitmix64(splitmix64(dataset) ^ unit) >> (64 - BINS.ilog2());
        let owner = self.owners[bin as usize];
        (owner != NONE).then_some(usize::from(owner))
    }

    /// How many bins a node owns.
    pub fn bins(&self, node: usize) -> usize {
        self.owners.iter().filter(|&&owner| owner != NONE && usize::from(owner) == node).count()
    }
}

impl std::fmt::Debug for Placement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Placement").field("view", &self.view).finish_non_exhaustive()
    }
}

/// The node of the best score for a bin, of (number, hash, capacity).
fn best(nodes: &[(u16, u64, u128)], bin: u64) -> u16 {
    let mut best: Option<(u16, u128, u128)> = None;
    for &(number, hash, capacity) in nodes {
        // -log2 of the hash as a share of 2^64: above 0, below 2^47.
        let score = u128::from((64 << POINT) - log2(splitmix64(hash ^ bin)));
        // score / capacity < least / other, without dividing. Of equals the first by name stays.
        if best.is_none_or(|(_, least, other)| score * other < least * capacity) {
            best = Some((number, score, capacity));
        }
    }
    best.map_or(NONE, |(number, ..)| number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(name: String, capacity: u64) -> Node {
        Node { address: String::new(), rack: None, draining: false, revision: 1, name, capacity }
    }

    fn view(capacities: &[u64]) -> View {
        View::new(
            capacities.iter().enumerate().map(|(at, &capacity)| node(format!("node-{at:03}"), capacity)),
        )
    }

    /// The name of each bin's owner.
    fn owners(view: &View) -> Vec<Option<&str>> {
        let placement = Placement::new(view);
        let name = |&owner: &u16| view.nodes().get(usize::from(owner)).map(|node| node.name.as_str());
        placement.owners.iter().map(name).collect()
    }

    #[test]
    fn owners_never_change_between_versions() {
        let placement = Placement::new(&view(&[10, 20, 30]));
        let first: Vec<Option<usize>> = (0..12).map(|unit| placement.owner(7, unit)).collect();
        assert_eq!(first, [0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 1, 2].map(Some));
        assert_eq!(
            digest(0, &placement.owners.iter().map(|&owner| owner as u8).collect::<Vec<_>>()),
            0xa0da_5e9d_62fb_8199
        );
    }

    #[test]
    fn shares_are_those_of_capacities() {
        for capacities in [&[1u64, 1, 1, 1][..], &[1 << 40, 3 << 40], &[1, 2, 3, 4, 5, 6], &[7; 32]] {
            let placement = Placement::new(&view(capacities));
            let all: u64 = capacities.iter().sum();
            for (number, &capacity) in capacities.iter().enumerate() {
                let fair = BINS as f64 * capacity as f64 / all as f64;
                // Five standard deviations: 3 % for one of two, 11 % for one of 32.
                assert!((placement.bins(number) as f64 - fair).abs() < 5.0 * fair.sqrt(), "{capacities:?}");
            }
        }
    }

    #[test]
    fn of_a_thousand_nodes_none_owns_half_as_much_again_as_its_share() {
        let placement = Placement::new(&view(&[1 << 34; 1_000]));
        let mean = BINS as f64 / 1_000.0;
        let shares: Vec<f64> = (0..1_000).map(|node| placement.bins(node) as f64 / mean).collect();
        let (least, most) =
            shares.iter().fold((1.0f64, 1.0f64), |(least, most), &share| (least.min(share), most.max(share)));
        println!("the least {least:.2}, the most {most:.2}");
        assert!(least > 0.5 && most < 1.5, "{least} and {most}");
        // What ranks can have of their own node where every node has as many of them.
        let local = shares.iter().map(|share| share.min(1.0)).sum::<f64>() / 1_000.0;
        println!("local at most {local:.3}");
        assert!(local > 0.94, "{local}");
    }

    #[test]
    fn units_of_datasets_fall_into_bins_as_if_drawn() {
        let placement = Placement::new(&view(&[1, 1, 1, 1]));
        for dataset in [0, 1, u64::MAX] {
            let mut counts = [0u32; 4];
            (0..40_000).for_each(|unit| counts[placement.owner(dataset, unit).unwrap()] += 1);
            // What bins differ by, and what 10,000 draws do.
            assert!(counts.iter().all(|count| count.abs_diff(10_000) < 600), "{counts:?}");
        }
        let same = (0..40_000).filter(|&unit| placement.owner(0, unit) == placement.owner(1, unit));
        assert!(same.count().abs_diff(10_000) < 600, "datasets are spread apart from each other");
    }

    #[test]
    fn who_drains_or_gives_nothing_owns_nothing() {
        let mut nodes = view(&[5, 0, 5]).nodes().to_vec();
        nodes[2].draining = true;
        let placement = Placement::new(&View::new(nodes.clone()));
        assert_eq!((0..3).map(|node| placement.bins(node)).collect::<Vec<_>>(), [BINS, 0, 0]);
        nodes[0].draining = true;
        let none = Placement::new(&View::new(nodes));
        assert_eq!((none.owner(1, 1), Placement::new(&View::new([])).owner(1, 1)), (None, None));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn who_comes_only_takes_and_who_goes_only_gives(
            capacities in proptest::collection::vec(1u64..1_000, 1..8),
            at in 0usize..8,
        ) {
            let all = view(&capacities);
            let gone = &all.nodes()[at % all.len()];
            let left = View::new(all.nodes().iter().filter(|node| *node != gone).cloned());
            for (with, without) in owners(&all).into_iter().zip(owners(&left)) {
                prop_assert!(with == without || with == Some(&gone.name));
            }
        }

        #[test]
        fn who_grows_only_takes_and_who_shrinks_only_gives(
            capacities in proptest::collection::vec(1u64..1_000, 1..8),
            at in 0usize..8,
            factor in 2u64..100,
        ) {
            let (small, at) = (view(&capacities), at % capacities.len());
            let mut grown = capacities.clone();
            grown[at] *= factor;
            let large = view(&grown);
            let name = &small.nodes()[at].name;
            for (before, after) in owners(&small).into_iter().zip(owners(&large)) {
                prop_assert!(before == after || after == Some(name));
            }
        }

        #[test]
        fn owners_hang_on_names_and_the_ratio_of_capacities_alone(
            capacities in proptest::collection::vec(1u64..1_000, 1..8),
            factor in 1u64..1 << 40,
        ) {
            let plain = view(&capacities);
            let other = View::new(plain.nodes().iter().rev().map(|node| Node {
                address: "elsewhere".into(),
                revision: 99,
                capacity: node.capacity * factor,
                ..node.clone()
            }));
            prop_assert_eq!(owners(&plain), owners(&other));
        }
    }
}
