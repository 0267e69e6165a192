//! Plan by location: ranks exchange samples so that each mostly serves what its own node owns.
//!
//! A plan is exchanged within *blocks* of [`BLOCK`] positions of all ranks, so within world x [`BLOCK`] slots. In a block the
//! samples that lie with a rank of their owner stay. Of the others, each owner's go, in plan order, to the slots of its
//! ranks that hold something of another's, as far as these reach; then the same by rack; and what is left over takes the
//! slots that are left. No exchange makes more samples local than this one. A block's set of samples is what it was, and
//! so is every rank's number of slots in it: what is trained together hardly changes, and hard samples come neither
//! earlier nor later. (Cached ones first would change both.)
//!
//! Weights, and whether a sample stands in for another, belong to the sample and go with it. Events, such as the read of a
//! package or a sample that leaves the cache, belong to slots; a block ends at each, so what was served before an event is
//! served before it, and the event finds what it found. It ends at the report cut as well, so the next plan is made from
//! the reports of the same samples. Slots that only make ranks equal stay as they are.

use crate::Id;
use crate::importance::cut;
use crate::sampling::Plan;

/// Positions of each rank within which samples are exchanged.
pub const BLOCK: usize = 256;

/// The same plan, its slots exchanged within blocks. `ranks` has the number of the node that each rank is on, `racks` the
/// number of each node's rack (see [`View::racks`](super::View::racks)). A rank that is on no node owns nothing.
#[must_use]
pub fn localize(plan: Plan, ranks: &[usize], racks: &[usize], owner: impl Fn(Id) -> Option<usize>) -> Plan {
    let world = plan.world() as usize;
    let here = |slot: usize| ranks.get(slot % world).copied();
    let rack = |node: usize| racks.get(node).copied();
    let mut from: Vec<u32> = (0..(plan.len() - plan.padded()) as u32).collect();
    let mut first = 0;
    for end in edges(&plan) {
        let owners: Vec<Option<usize>> = plan.ids()[first..end].iter().map(|&id| owner(id)).collect();
        let block = &mut from[first..end];
        exchange(block, first, |at| here(first + at), |at| owners[at]);
        exchange(block, first, |at| here(first + at).and_then(rack), |at| owners[at].and_then(rack));
        first = end;
    }
    plan.exchanged(&from)
}

/// Where blocks end.
fn edges(plan: &Plan) -> Vec<usize> {
    let (world, end) = (plan.world() as usize, plan.len() - plan.padded());
    let blocks = (1..).map(|block| block * BLOCK * world).take_while(|&edge| edge < end);
    let events = plan.events().iter().map(|&(slot, _)| slot as usize);
    let mut edges: Vec<usize> = blocks.chain(events).chain([cut(plan.rank_len()) * world, end]).collect();
    edges.retain(|&edge| 0 < edge && edge <= end);
    edges.sort_unstable();
    edges.dedup();
    edges
}

/// Exchanges what slots hold: `block[at]`, from `first` on, says whose content the slot has. A slot is `here`, and the
/// content of one `belongs` somewhere.
fn exchange(
    block: &mut [u32],
    first: usize,
    here: impl Fn(usize) -> Option<usize>,
    belongs: impl Fn(usize) -> Option<usize>,
) {
    let before = block.to_vec();
    let content = |at: usize| before[at] as usize - first;
    let (mut open, mut away) = (Vec::new(), Vec::new());
    for at in 0..block.len() {
        let (here, there) = (here(at), belongs(content(at)));
        if here != there {
            open.extend(here.map(|place| (place, at)));
            away.extend(there.map(|place| (place, at)));
        }
    }
    // By place, and in plan order within one.
    open.sort_unstable();
    away.sort_unstable();
    let (mut filled, mut gone) = (vec![false; block.len()], vec![false; block.len()]);
    let mut away = away.into_iter().peekable();
    for (place, at) in open {
        while away.next_if(|(other, _)| *other < place).is_some() {}
        if let Some((_, source)) = away.next_if(|(other, _)| *other == place) {
            block[at] = before[source];
            (filled[at], gone[source]) = (true, true);
        }
    }
    // What lost its slot and found no other takes one that is empty now.
    let empty = (0..block.len()).filter(|&at| gone[at] && !filled[at]);
    let homeless = (0..block.len()).filter(|&at| filled[at] && !gone[at]);
    empty.zip(homeless).for_each(|(at, source)| block[at] = before[source]);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::Rng;
    use crate::sampling::{Drawn, Event};

    fn shuffled(n: u32, seed: u64) -> Vec<Id> {
        let mut ids: Vec<Id> = (0..n).collect();
        Rng::new(seed, 0, "locality").shuffle(&mut ids);
        ids
    }

    fn sorted(ids: &[Id]) -> Vec<Id> {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids
    }

    /// Slots whose rank is where their sample's owner, or its rack, is.
    fn local(
        plan: &Plan,
        ranks: &[usize],
        of: impl Fn(usize) -> usize,
        owner: impl Fn(Id) -> usize,
    ) -> usize {
        let here = |slot: usize| of(ranks[slot % ranks.len()]);
        plan.ids().iter().enumerate().filter(|(slot, id)| here(*slot) == of(owner(**id))).count()
    }

    #[test]
    fn most_of_what_a_rank_serves_is_its_own_nodes() {
        for (nodes, each) in [(2usize, 1usize), (4, 1), (4, 2), (16, 8)] {
            let ranks: Vec<usize> = (0..nodes * each).map(|rank| rank / each).collect();
            let owner = |id: Id| (Rng::new(u64::from(id), 0, "owner").below(nodes as u64)) as usize;
            let plan = Plan::cut(0, ranks.len() as u32, false, shuffled(200_000, 1));
            let racks: Vec<usize> = (0..nodes).collect();
            let moved = localize(plan.clone(), &ranks, &racks, |id| Some(owner(id)));
            let share = local(&moved, &ranks, |node| node, owner) as f64 / moved.len() as f64;
            assert!(share > 0.97, "{nodes} nodes of {each}: {share}");
        }
    }

    #[test]
    fn what_is_not_local_stays_in_its_rack_where_that_has_slots() {
        // Node 0 owns next to nothing, so its rank serves what the other node of its rack owns.
        let (ranks, racks) = ([0, 1, 2, 3], [0, 0, 2, 2]);
        let owner = |id: Id| [1, 1, 2, 3][id as usize % 4];
        let plan = Plan::cut(0, 4, false, shuffled(40_000, 2));
        let moved = localize(plan.clone(), &ranks, &racks, |id| Some(owner(id)));
        let share =
            |of: &dyn Fn(usize) -> usize| local(&moved, &ranks, of, owner) as f64 / moved.len() as f64;
        assert!((0.72..0.76).contains(&share(&|node| node)), "{}", share(&|node| node));
        assert!(share(&|node| racks[node]) > 0.97, "{}", share(&|node| racks[node]));
    }

    #[test]
    fn one_node_or_no_owner_changes_nothing() {
        let plan = Plan::cut(0, 3, false, shuffled(5_000, 3));
        assert_eq!(localize(plan.clone(), &[0, 0, 0], &[0], |_| Some(0)), plan);
        assert_eq!(localize(plan.clone(), &[0, 1, 2], &[0, 0, 0], |_| None), plan);
        let nothing = Plan::cut(0, 3, false, Vec::new());
        assert_eq!(localize(nothing.clone(), &[0, 1, 2], &[0, 0, 0], |_| Some(0)), nothing);
    }

    #[test]
    fn padded_slots_stay() {
        for silent in [false, true] {
            let plan = Plan::cut(0, 4, true, shuffled(1_001, 4));
            let plan = if silent { plan.with_silent_padding() } else { plan };
            let moved = localize(plan.clone(), &[0, 1, 2, 3], &[0; 4], |id| Some(id as usize % 4));
            assert_ne!(moved.ids(), plan.ids());
            assert_eq!(moved.ids()[1_001..], plan.ids()[1_001..]);
            assert_eq!((moved.padded(), moved.is_silent(1_003)), (3, silent));
        }
    }

    proptest! {
        #[test]
        fn blocks_events_and_the_cut_keep_their_sets_and_what_belongs_to_samples_moves_with_them(
            n in 0u32..6_000,
            nodes in 1usize..5,
            each in 1usize..3,
            events in proptest::collection::btree_set(0u32..6_000, 0..6),
            seed: u64,
        ) {
            let ids = shuffled(n, seed);
            let drawn = Drawn {
                weights: ids.iter().map(|&id| id as f32).collect(),
                substituted: ids.iter().map(|id| id % 3 == 0).collect(),
                events: events.iter().map(|&slot| (slot, Event::Load(slot))).collect(),
                ids,
                ..Drawn::default()
            };
            let ranks: Vec<usize> = (0..nodes * each).map(|rank| rank / each).collect();
            let plan = Plan::cut(0, ranks.len() as u32, false, drawn);
            let owner = |id: Id| (Rng::new(u64::from(id), seed, "owner").below(nodes as u64 + 1)) as usize;
            let owned = |id: Id| Some(owner(id)).filter(|node| *node < nodes);
            let racks: Vec<usize> = (0..nodes).map(|node| node / 2).collect();
            let moved = localize(plan.clone(), &ranks, &racks, owned);
            for (slot, &id) in moved.ids().iter().enumerate() {
                prop_assert_eq!((moved.weight(slot), moved.is_substituted(slot)), (id as f32, id % 3 == 0));
            }
            prop_assert_eq!((moved.events(), moved.left_out()), (plan.events(), plan.left_out()));
            let blocks = (0..plan.len()).step_by(BLOCK * ranks.len());
            let cut = cut(plan.rank_len()) * ranks.len();
            for edge in blocks.chain(events.iter().map(|&slot| slot as usize)).chain([cut, plan.len()]) {
                let edge = edge.min(plan.len());
                prop_assert_eq!(sorted(&moved.ids()[..edge]), sorted(&plan.ids()[..edge]));
            }
            let mut first = 0;
            for end in edges(&plan) {
                // As many are local as there are samples and slots of each node.
                let (mut slots, mut samples) = (BTreeMap::new(), BTreeMap::new());
                for slot in first..end {
                    *slots.entry(ranks[slot % ranks.len()]).or_insert(0usize) += 1;
                    *samples.entry(owner(plan.ids()[slot])).or_insert(0usize) += 1;
                }
                let most: usize =
                    slots.iter().map(|(node, slots)| samples.get(node).map_or(0, |all| *slots.min(all))).sum();
                let local = (first..end).filter(|&slot| owned(moved.ids()[slot]) == Some(ranks[slot % ranks.len()]));
                prop_assert_eq!(local.count(), most);
                first = end;
            }
            prop_assert_eq!(localize(moved.clone(), &ranks, &racks, owned), moved, "once is enough");
        }
    }
}
