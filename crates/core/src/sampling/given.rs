//! `given`, the order that a trainer gives for each epoch: `hotset.Sampler(train, ids=...)`.
//!
//! The order comes from a sampler, a batch sampler or any other iterable of ids that the trainer has, such as
//! torch's `WeightedRandomSampler`. It is asked when an epoch begins, and what it gives becomes the plan as it is:
//! an id may come several times or not at all, and no slot has a weight. So nothing is read before the epoch begins,
//! and then everything is known of it.
//!
//! Fewer ids than there are ranks remain at the end of an order that is cut over ranks. They are left out, or with
//! `pad` its beginning is repeated; the next order says by itself what it begins with.
//!
//! It is chosen by `ids=` and not by its name. The policy is `minio` because most orders have each id once an epoch;
//! orders that repeat some ids much more often than others gain from `lfu`. Orders are a training's own, so the
//! simulator has none; the log of a cache has each of them.

use super::{Draw, Drawn, Entry, Strategy};
use crate::Id;

pub(super) const ENTRY: Entry = Entry {
    name: "given",
    summary: "the order of a sampler of your own (`ids=`)",
    policy: "minio",
    parameters: &[],
    build: |setup| Box::new(Given { end: setup.end() }),
};

/// A number that tells one order from another.
pub fn order_digest(ids: impl ExactSizeIterator<Item = Id>) -> u64 {
    let head = [ids.len() as u64];
    let all = head.into_iter().chain(ids.map(u64::from));
    all.fold(0xcbf2_9ce4_8422_2325, |hash, word| (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3))
}

struct Given {
    end: Id,
}

impl Strategy for Given {
    fn draw(&mut self, draw: &Draw<'_>) -> Drawn {
        let order = draw.order.unwrap_or_default();
        order.iter().copied().filter(|&id| id < self.end).collect::<Vec<_>>().into()
    }

    fn takes_order(&self) -> bool {
        true
    }

    fn repeats(&self) -> bool {
        true
    }

    fn needs_losses(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::{Plan, Setup};

    fn drawn(order: &[Id], world: u32, pad: bool) -> Plan {
        let mut given = (ENTRY.build)(Setup::new(10, 0));
        let draw = Draw { epoch: 3, world, carried: Some(&[9]), order: Some(order), ..Draw::default() };
        Plan::cut(3, world, pad, given.draw(&draw))
    }

    #[test]
    fn the_plan_is_the_order_with_all_that_repeats() {
        let order = [3, 3, 0, 9, 3, 1];
        let plan = drawn(&order, 1, false);
        assert_eq!((plan.ids(), plan.left_out(), plan.is_weighted()), (&order[..], &[][..], false));
    }

    #[test]
    fn ranks_take_turns_in_the_order_and_what_remains_is_left_out_or_padded() {
        assert_eq!(drawn(&[4, 5, 6, 7, 8], 2, false).rank_ids(1).collect::<Vec<_>>(), [5, 7]);
        assert_eq!(drawn(&[4, 5, 6, 7, 8], 2, true).rank_ids(1).collect::<Vec<_>>(), [5, 7, 4]);
    }

    #[test]
    fn a_digest_tells_orders_apart_and_is_the_same_for_a_plan_of_the_order_however_it_is_cut() {
        let order = [3, 3, 0, 9, 1];
        let digest = order_digest(order.iter().copied());
        for (world, pad) in [(1, false), (2, false), (2, true), (4, true)] {
            let plan = drawn(&order, world, pad);
            assert_eq!(plan.order_digest(), digest, "{world} {pad}");
            assert_eq!(plan.recut(3).order_digest(), digest, "{world} {pad}");
        }
        for other in [&[3, 3, 0, 9][..], &[3, 0, 3, 9, 1], &[3, 3, 0, 9, 1, 1], &[]] {
            assert_ne!(order_digest(other.iter().copied()), digest, "{other:?}");
        }
    }

    #[test]
    fn an_order_that_was_not_given_is_no_plan() {
        let mut given = (ENTRY.build)(Setup::new(10, 0));
        assert_eq!(given.draw(&Draw { world: 1, ..Draw::default() }).ids, [] as [Id; 0]);
        assert!(given.takes_order() && !given.follows_seed() && !given.is_whole());
    }
}
