//! The nodes of a cluster, as one node sees them at one time.
//!
//! etcd has a key for each node that is alive. A view is what those keys said, sorted by name; its id is a digest of the
//! names and of the revisions at which the keys were last written. So two nodes that have seen the same memberships have
//! equal ids, in whatever order they heard of them, and a node that restarts, changes its capacity or begins to drain makes
//! another id. What was worked out from a view is told from what was worked out from another by that id alone.

use crate::rng::splitmix64;

/// One node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name, which stays when it restarts: what it owns goes by it.
    pub name: String,
    /// Where other nodes reach it.
    pub address: String,
    /// The bytes that it gives to the cache. One that gives none owns nothing.
    pub capacity: u64,
    /// The rack it is in, if that was said.
    pub rack: Option<String>,
    /// Whether it is about to leave: it owns nothing any more, and still answers.
    pub draining: bool,
    /// The revision at which its key in etcd was last written.
    pub revision: u64,
}

/// The nodes that are alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    nodes: Vec<Node>,
    id: u64,
}

impl View {
    /// Of these nodes, in any order. Of two of one name the one that was written later counts.
    pub fn new(nodes: impl IntoIterator<Item = Node>) -> Self {
        let mut nodes: Vec<Node> = nodes.into_iter().collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name).then(b.revision.cmp(&a.revision)));
        nodes.dedup_by(|later, first| later.name == first.name);
        let id = nodes.iter().fold(splitmix64(nodes.len() as u64), |state, node| {
            splitmix64(digest(state, node.name.as_bytes()) ^ node.revision)
        });
        Self { nodes, id }
    }

    /// Equal for equal memberships, and for no others that will ever meet.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The nodes, sorted by name. A node's number is its index here.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The number of the node of that name.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.nodes.binary_search_by(|node| node.name.as_str().cmp(name)).ok()
    }

    /// The rack of every node, as the number of the first node that is in it. Nodes that name none are in one together.
    pub fn racks(&self) -> Vec<usize> {
        let first = |node: &Node| self.nodes.iter().position(|other| other.rack == node.rack);
        self.nodes.iter().map(|node| first(node).unwrap_or_default()).collect()
    }
}

impl Default for View {
    /// Of no nodes.
    fn default() -> Self {
        Self::new([])
    }
}

/// A digest of bytes that goes on from `state`: 64 bits, the same on every machine and in every version.
pub(super) fn digest(state: u64, bytes: &[u8]) -> u64 {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    let head = splitmix64(state ^ bytes.len() as u64);
    bytes.chunks(8).fold(head, |state, bytes| splitmix64(state ^ word(bytes)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Rng;

    fn node(name: &str, revision: u64) -> Node {
        let (address, rack) = (format!("{name}:7070"), None);
        Node { name: name.into(), address, capacity: 1 << 30, rack, draining: false, revision }
    }

    #[test]
    fn ids_never_change_between_versions() {
        assert_eq!(View::default().id(), 0xe220_a839_7b1d_cdaf);
        let view = View::new([node("a", 4), node("a-longer-name", 5)]);
        assert_eq!(view.id(), 0x966e_7569_c7b5_b6e2);
    }

    #[test]
    fn of_two_keys_of_one_name_the_later_counts() {
        let view = View::new([node("b", 7), node("a", 2), node("b", 9), node("b", 8)]);
        assert_eq!(view, View::new([node("a", 2), node("b", 9)]));
        assert_eq!((view.len(), view.index_of("b"), view.index_of("c")), (2, Some(1), None));
    }

    #[test]
    fn nodes_of_a_rack_have_its_number() {
        let of = |name: &str, rack: Option<&str>| Node { rack: rack.map(Into::into), ..node(name, 1) };
        let view = View::new([of("a", None), of("b", Some("r")), of("c", None), of("d", Some("r"))]);
        assert_eq!(view.racks(), [0, 1, 0, 1]);
    }

    proptest! {
        #[test]
        fn who_hears_of_the_same_nodes_has_the_same_id_and_who_does_not_has_another(
            names in proptest::collection::btree_map("[a-z]{1,12}", 0u64..1_000_000, 1..12),
            seed: u64,
            other in 0usize..12,
        ) {
            let nodes: Vec<Node> = names.iter().map(|(name, &revision)| node(name, revision)).collect();
            let view = View::new(nodes.clone());
            let mut shuffled = nodes.clone();
            Rng::new(seed, 0, "view").shuffle(&mut shuffled);
            prop_assert_eq!(&View::new(shuffled), &view);
            for (number, node) in view.nodes().iter().enumerate() {
                prop_assert_eq!(view.index_of(&node.name), Some(number));
            }
            let mut changed = nodes;
            let at = other % changed.len();
            changed[at].revision += 1;
            prop_assert_ne!(View::new(changed.clone()).id(), view.id());
            changed.remove(at);
            prop_assert_ne!(View::new(changed).id(), view.id());
        }
    }
}
