//! `sequential`, the order of the catalog: every sample once an epoch, from the first to the last.
//!
//! For passes that must not be shuffled: an evaluation whose results are compared by place, an export, a run that is to be
//! read as the shards lie. `hotset.Sampler(train, shuffle=False)` chooses it. It is planned and read ahead across the edges
//! of epochs as any other, and samples that lie side by side in one object are read together.
//!
//! Fewer samples than ranks remain at the end. They are left out and come first in the next epoch, in front of the others;
//! with `pad` the beginning is repeated instead.

use super::uniform::carried_front;
use super::{Draw, Drawn, Entry, Strategy};
use crate::Id;

pub(super) const ENTRY: Entry = Entry {
    name: "sequential",
    summary: "every sample in the order of the catalog (`shuffle=False`)",
    policy: "minio",
    parameters: &[],
    build: |setup| Box::new(Sequential { samples: setup.end() }),
};

struct Sequential {
    samples: Id,
}

impl Sequential {
    /// What the plan of `epoch` left out, when every plan up to it was cut over `world` without padding: the last of the
    /// order, which are in turn the last of all and those before them.
    fn left_out(&self, epoch: u64, world: u32) -> Vec<Id> {
        let left = self.samples % world.max(1);
        // Fewer samples than ranks: no epoch served any.
        let turn = if left == self.samples { 0 } else { (epoch % 2) as Id };
        let end = self.samples - turn * left;
        (end - left..end).collect()
    }
}

impl Strategy for Sequential {
    fn draw(&mut self, draw: &Draw<'_>) -> Drawn {
        let earlier = match (draw.carried, draw.epoch.checked_sub(1)) {
            (Some(carried), _) => carried.to_vec(),
            (None, Some(before)) => self.left_out(before, draw.world),
            (None, None) => Vec::new(),
        };
        let mut ids = carried_front(self.samples, &earlier);
        let mut moved = ids.clone();
        moved.sort_unstable();
        ids.extend((0..self.samples).filter(|id| moved.binary_search(id).is_err()));
        ids.into()
    }

    fn repeats(&self) -> bool {
        false
    }

    fn needs_losses(&self) -> bool {
        false
    }

    fn follows_seed(&self) -> bool {
        true
    }

    fn is_whole(&self) -> bool {
        true
    }

    fn shuffles(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::{Plan, Setup};

    #[test]
    fn samples_come_in_order_and_what_a_plan_leaves_out_comes_first_in_the_next() {
        let mut sequential = (ENTRY.build)(Setup::new(8, 5));
        let mut carried = Vec::new();
        let expected: [&[Id]; 3] = [&[0, 1, 2, 3, 4, 5], &[6, 7, 0, 1, 2, 3], &[4, 5, 0, 1, 2, 3]];
        for (epoch, expected) in (0..).zip(expected) {
            for told in [Some(carried.as_slice()), None] {
                let draw = Draw { epoch, world: 3, carried: told, ..Draw::default() };
                let plan = Plan::cut(epoch, 3, false, sequential.draw(&draw));
                assert_eq!(plan.ids(), expected, "epoch {epoch}, told {told:?}");
            }
            let draw = Draw { epoch, world: 3, carried: Some(&carried), ..Draw::default() };
            carried = Plan::cut(epoch, 3, false, sequential.draw(&draw)).left_out().to_vec();
        }
    }

    #[test]
    fn a_rank_alone_has_the_catalog_in_every_epoch() {
        let mut sequential = (ENTRY.build)(Setup::new(5, 5));
        for epoch in [0, 1, 7] {
            let draw = Draw { epoch, world: 1, ..Draw::default() };
            assert_eq!(sequential.draw(&draw).ids, [0, 1, 2, 3, 4]);
        }
    }
}
