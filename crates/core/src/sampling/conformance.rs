//! What every registered strategy must keep, over numbers of ranks and samples that do not come out even.

use std::collections::BTreeSet;

use super::*;

const EPOCHS: u64 = 6;

/// Empty, single, primes, and one around each multiple of some world.
const SAMPLES: [usize; 12] = [0, 1, 2, 3, 7, 8, 9, 16, 31, 97, 120, 1_009];

/// The plans of a job from its first epoch on, each told what the one before left out.
fn plans(entry: &Entry, samples: usize, seed: u64, world: u32, pad: bool) -> Vec<Plan> {
    let mut strategy = (entry.build)(Setup::new(samples, seed));
    let mut carried = Vec::new();
    (0..EPOCHS)
        .map(|epoch| {
            let drawn = strategy.draw(&Draw { epoch, world, carried: Some(&carried), ..Draw::default() });
            let plan = Plan::cut(epoch, world, pad, drawn);
            carried = plan.left_out().to_vec();
            plan
        })
        .collect()
}

/// Calls `check` with every strategy, number of samples, world and padding.
fn everywhere(check: impl Fn(&Entry, usize, u32, bool)) {
    for entry in REGISTRY {
        for samples in SAMPLES {
            for world in 1..=8 {
                check(entry, samples, world, false);
                check(entry, samples, world, true);
            }
        }
    }
}

fn distinct(ids: &[Id]) -> BTreeSet<Id> {
    ids.iter().copied().collect()
}

#[test]
fn ranks_are_of_equal_length_and_together_the_plan() {
    everywhere(|entry, samples, world, pad| {
        for plan in plans(entry, samples, 1, world, pad) {
            let mut merged = vec![None; plan.len()];
            for rank in 0..world {
                assert_eq!(plan.rank_ids(rank).len(), plan.rank_len());
                for (position, id) in plan.rank_ids(rank).enumerate() {
                    assert_eq!(merged[plan.slot(rank, position)].replace(id), None, "two ranks share a slot");
                }
            }
            assert_eq!(merged.into_iter().collect::<Option<Vec<_>>>().as_deref(), Some(plan.ids()));
            assert!(plan.left_out().len() < world as usize && plan.padded() < world as usize);
            assert!(if pad { plan.left_out().is_empty() } else { plan.padded() == 0 });
        }
    });
}

#[test]
fn ids_are_of_the_catalog_and_nobody_comes_twice_unless_the_strategy_repeats() {
    everywhere(|entry, samples, world, pad| {
        let repeats = (entry.build)(Setup::new(samples, 2)).repeats();
        for plan in plans(entry, samples, 2, world, pad) {
            let drawn = &plan.ids()[..plan.len() - plan.padded()];
            assert!(drawn.iter().chain(plan.left_out()).all(|&id| (id as usize) < samples));
            if !repeats {
                let all = [drawn, plan.left_out()].concat();
                assert_eq!(distinct(&all).len(), all.len());
            }
        }
    });
}

#[test]
fn the_same_seed_gives_the_same_plans_and_another_seed_others() {
    everywhere(|entry, samples, world, pad| {
        assert_eq!(plans(entry, samples, 3, world, pad), plans(entry, samples, 3, world, pad));
        if samples > 90 {
            assert_ne!(plans(entry, samples, 3, world, pad)[0], plans(entry, samples, 4, world, pad)[0]);
        }
    });
}

#[test]
fn epochs_differ_in_their_order() {
    for entry in REGISTRY {
        let plans = plans(entry, 97, 5, 1, false);
        assert!(plans.windows(2).all(|pair| pair[0].ids() != pair[1].ids()));
    }
}

/// Of strategies that serve everybody; one that selects by loss states its own promise.
#[test]
fn every_id_is_served_within_two_epochs() {
    everywhere(|entry, samples, world, pad| {
        let strategy = (entry.build)(Setup::new(samples, 6));
        // Without padding too few samples for one slot a rank are never served.
        if strategy.repeats() || strategy.needs_losses() || (samples < world as usize && !pad) {
            return;
        }
        for pair in plans(entry, samples, 6, world, pad).windows(2) {
            let served = distinct(&[pair[0].ids(), pair[1].ids()].concat());
            assert_eq!(served.len(), samples);
        }
    });
}

#[test]
fn what_was_left_out_comes_first_in_the_next_plan() {
    everywhere(|entry, samples, world, pad| {
        for pair in plans(entry, samples, 7, world, pad).windows(2) {
            let carried = pair[0].left_out();
            let next = [pair[1].ids(), pair[1].left_out()].concat();
            assert_eq!(&next[..carried.len()], carried);
        }
    });
}

#[test]
fn a_run_that_resumes_goes_on_as_if_never_interrupted() {
    everywhere(|entry, samples, world, pad| {
        let uninterrupted = plans(entry, samples, 8, world, pad);
        for epoch in 0..EPOCHS {
            let mut fresh = (entry.build)(Setup::new(samples, 8));
            if fresh.needs_losses() {
                continue;
            }
            let carried = pad.then_some(&[][..]);
            let plan =
                Plan::cut(epoch, world, pad, fresh.draw(&Draw { epoch, world, carried, ..Draw::default() }));
            let whole = &uninterrupted[epoch as usize];
            let start = whole.rank_len() / 2;
            for rank in 0..world {
                let trained = whole.rank_ids(rank).take(start);
                let resumed: Vec<Id> = trained.chain(plan.rank_ids(rank).skip(start)).collect();
                assert_eq!(resumed, whole.rank_ids(rank).collect::<Vec<_>>());
            }
            assert_eq!(plan.left_out(), whole.left_out());
        }
    });
}
