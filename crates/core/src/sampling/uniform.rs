//! `uniform`, a random permutation of all ids each epoch: plain shuffled training.
//!
//! The permutation follows from the seed and the epoch alone. Ids that the previous plan left out move from
//! their drawn places to the front, so no sample is served twice and each is served within two epochs.
//!
//! A job that resumes works out from the seed alone what the previous plan left out.
//!
//! With `order=runs` the permutation is one that storage can read run after run: small samples that lie
//! side by side in shards take one request a run instead of one a sample, and are mixed in half of the cache. `order=auto` does
//! so where that mixes labels (without labels: runs) at least 0.95 times as well as a shuffle, and draws each sample by itself
//! elsewhere. The other half of the cache keeps whole runs. `hotset stats` shows how well plans mix.

use super::by_runs::{ByRuns, MIX_SHARE, ORDER};
use super::{Draw, Drawn, Entry, FULL_LAST, Setup, Strategy};
use crate::settings::Parameter;
use crate::{Id, Rng};

const PARAMETERS: &[Parameter] = &[FULL_LAST, ORDER, MIX_SHARE];

pub(super) const ENTRY: Entry = Entry {
    name: "uniform",
    summary: "a random permutation of all samples each epoch",
    policy: "minio",
    parameters: PARAMETERS,
    build: |mut setup| {
        setup.values = setup.values.or_defaults(PARAMETERS);
        Box::new(Uniform::new(&setup))
    },
};

struct Uniform {
    samples: Id,
    seed: u64,
    by_runs: Option<ByRuns>,
}

impl Uniform {
    fn new(setup: &Setup) -> Self {
        Self { samples: setup.end(), seed: setup.seed, by_runs: ByRuns::of(setup) }
    }

    fn rng(&self, epoch: u64) -> Rng {
        rng(self.seed, epoch)
    }

    /// What the plan of `epoch` left out, when every plan up to it was cut over `world` without padding.
    ///
    /// A plan leaves out the last k = n mod world of its draw, which lie among the last 2k of its permutation since at
    /// most k moved away, and [`Rng::shuffled_tail`] gives those in O(k). Earlier epochs rarely matter: the walk stops
    /// at the first one whose last k ids cannot overlap.
    fn left_out(&self, epoch: u64, world: u32) -> Vec<Id> {
        let left = self.samples % world.max(1);
        if left == 0 {
            return Vec::new();
        }
        // Fewer samples than ranks: no epoch served any, all stay in the order of the first draw.
        if left == self.samples {
            return self.rng(0).shuffled_tail(left, left);
        }
        let candidates = |epoch| self.rng(epoch).shuffled_tail(self.samples, left.saturating_mul(2));
        let last = |ids: &[Id]| ids[ids.len() - left as usize..].to_vec();

        let mut tails = vec![candidates(epoch)];
        for before in (0..epoch).rev() {
            let carried = candidates(before);
            let taken = sorted(last(&tails[tails.len() - 1]));
            if !carried.iter().any(|id| taken.binary_search(id).is_ok()) {
                break;
            }
            tails.push(carried);
        }
        let mut carried = Vec::new();
        while let Some(mut tail) = tails.pop() {
            let moved = sorted(std::mem::take(&mut carried));
            tail.retain(|id| moved.binary_search(id).is_err());
            carried = last(&tail);
        }
        carried
    }
}

fn sorted(mut ids: Vec<Id>) -> Vec<Id> {
    ids.sort_unstable();
    ids
}

fn rng(seed: u64, epoch: u64) -> Rng {
    Rng::new(seed, epoch, "uniform")
}

/// All ids in random order, carried ones first: an epoch of `uniform`, and the full epochs of the others.
pub(super) fn shuffled(samples: Id, seed: u64, epoch: u64, carried: &[Id]) -> Vec<Id> {
    let mut permutation: Vec<Id> = (0..samples).collect();
    rng(seed, epoch).shuffle(&mut permutation);
    let mut front = carried_front(samples, carried);
    if front.is_empty() {
        return permutation;
    }
    let moved = sorted(front.clone());
    front.reserve(permutation.len() - front.len());
    front.extend(permutation.into_iter().filter(|id| moved.binary_search(id).is_err()));
    front
}

/// The carried ids that can be: of this catalog, and none twice.
pub(super) fn carried_front(samples: Id, carried: &[Id]) -> Vec<Id> {
    let mut front: Vec<Id> = Vec::with_capacity(carried.len());
    let mut seen = std::collections::BTreeSet::new();
    front.extend(carried.iter().copied().filter(|&id| id < samples && seen.insert(id)));
    front
}

impl Strategy for Uniform {
    /// Plans by runs follow from the cache that was asked for too.
    fn follows_seed(&self) -> bool {
        self.by_runs.is_none()
    }

    fn is_whole(&self) -> bool {
        true
    }

    fn serves_packages(&self) -> bool {
        self.by_runs.is_some()
    }

    fn notes(&self) -> Vec<(&'static str, f64)> {
        self.by_runs.as_ref().map(ByRuns::notes).unwrap_or_default()
    }

    fn draw(&mut self, draw: &Draw<'_>) -> Drawn {
        if let Some(order) = self.by_runs.as_mut().and_then(|by_runs| by_runs.draw(draw)) {
            return Drawn { ids: order.ids, events: order.events, ..Drawn::default() };
        }
        let earlier = match (draw.carried, draw.epoch.checked_sub(1)) {
            (Some(carried), _) => carried.to_vec(),
            (None, Some(before)) => self.left_out(before, draw.world),
            (None, None) => Vec::new(),
        };
        shuffled(self.samples, self.seed, draw.number(), &earlier).into()
    }

    fn repeats(&self) -> bool {
        false
    }

    fn needs_losses(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert_eq, proptest};

    use super::*;
    use crate::sampling::Plan;

    fn uniform(samples: usize, seed: u64) -> Uniform {
        Uniform::new(&Setup::new(samples, seed))
    }

    fn draw(samples: usize, epoch: u64, carried: Option<&[Id]>) -> Vec<Id> {
        uniform(samples, 5).draw(&Draw { epoch, world: 1, carried, ..Draw::default() }).ids
    }

    #[test]
    fn values_never_change_between_versions() {
        assert_eq!(draw(10, 0, None), [6, 7, 3, 8, 4, 2, 1, 0, 5, 9]);
        assert_eq!(draw(10, 1, None), [8, 9, 6, 4, 0, 5, 1, 3, 2, 7]);
    }

    #[test]
    fn carried_ids_take_the_first_places_instead_of_their_drawn_ones() {
        let plain = draw(10, 3, Some(&[]));
        let carried = [plain[7], plain[2]];
        let mut expected = vec![plain[7], plain[2]];
        expected.extend(plain.iter().filter(|id| !carried.contains(id)));
        assert_eq!(draw(10, 3, Some(&carried)), expected);
    }

    #[test]
    fn carried_ids_that_cannot_be_are_left_aside() {
        assert_eq!(draw(4, 3, Some(&[9, 1, 1])), draw(4, 3, Some(&[1])));
    }

    #[test]
    fn a_far_epoch_costs_no_walk_through_all_the_others() {
        let mut far = uniform(1_281_167, 0);
        let drawn = far.draw(&Draw { epoch: crate::id::LAST_EPOCH, world: 8, ..Draw::default() });
        assert_eq!(drawn.ids.len(), 1_281_167);
    }

    proptest! {
        #[test]
        fn what_was_left_out_can_be_told_from_the_seed_alone(
            samples in 0usize..60, world in 1u32..24, seed: u64
        ) {
            let mut carried: Vec<Id> = Vec::new();
            for epoch in 0..12 {
                let told = uniform(samples, seed).draw(&Draw { epoch, world, carried: Some(&carried), ..Draw::default() });
                let found = uniform(samples, seed).draw(&Draw { epoch, world, ..Draw::default() });
                prop_assert_eq!(&told, &found);
                carried = Plan::cut(epoch, world, false, told).left_out().to_vec();
            }
        }
    }
}
