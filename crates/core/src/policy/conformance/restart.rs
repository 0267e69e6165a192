//! A policy that was saved at any moment and restored goes on the same, and takes no state but its own.

use proptest::prelude::*;

use super::*;
use crate::saved::Writer;

/// All that can be seen of a policy.
fn seen(policy: &dyn Policy, samples: usize) -> (u64, u64, Vec<Region>, Vec<Option<Place>>) {
    let places = (0..samples as Id).map(|id| policy.place(id));
    (policy.used(), policy.capacity(), policy.regions(), places.collect())
}

/// A policy that was saved after the first `moment` steps, and the one restored from it.
fn restored(entry: &Entry, setup: &Setup, steps: &[Step], moment: usize) -> [Box<dyn Policy>; 2] {
    let [mut original, mut other] = [(); 2].map(|()| (entry.build)(setup.clone()));
    for place in 0..moment {
        take(&mut *original, setup, steps, place, &mut Vec::new());
    }
    let begun = |place: &usize| matches!(steps[*place], Step::Begin(..));
    if let Some(place) = (0..moment).rev().find(begun) {
        take(&mut *other, setup, steps, place, &mut Vec::new());
    }
    other.restore(&original.save().seal()).unwrap();
    [original, other]
}

/// Of every policy, and of those with settings once more with other settings.
fn variants() -> Vec<(&'static Entry, Values)> {
    let plain = REGISTRY.iter().map(|entry| (entry, Values::default()));
    let others = REGISTRY.iter().filter(|entry| !entry.parameters.is_empty());
    let others = others.map(|entry| (entry, entry.values([("split", "paper"), ("strict", "true")]).unwrap()));
    plain.chain(others).collect()
}

proptest! {
    #[test]
    fn every_policy_goes_on_after_a_restart_as_if_there_had_been_none(
        sizes in any_sizes(), capacity in any_capacity(), steps in any_steps(), seed: u64, moment: prop::sample::Index
    ) {
        let moment = moment.index(steps.len() + 1);
        for (entry, values) in variants() {
            let setup = Setup { values, ..Setup::new(capacity, Arc::new(sizes.clone()), seed) };
            let mut both = restored(entry, &setup, &steps, moment);
            for place in moment..=steps.len() {
                let [original, other] = both.each_ref().map(|policy| seen(&**policy, SAMPLES));
                prop_assert_eq!(original, other, "{} before step {}", entry.name, place);
                let [original, other] = both.each_ref().map(|policy| residents_of(&**policy));
                prop_assert_eq!(original, other);
                if place == steps.len() {
                    break;
                }
                let [original, other] = both.each_mut().map(|policy| {
                    let mut evicted = Vec::new();
                    (take(&mut **policy, &setup, &steps, place, &mut evicted), evicted)
                });
                prop_assert_eq!(original, other, "{} in step {}", entry.name, place);
            }
        }
    }

    #[test]
    fn no_policy_takes_a_state_that_is_damaged_or_not_its_own(
        sizes in any_sizes(), capacity in any_capacity(), steps in any_steps(), seed: u64,
        place: prop::sample::Index, flip in 1u8.., foreign in proptest::collection::vec(any::<u8>(), 0..90),
    ) {
        let setup = Setup::new(capacity, Arc::new(sizes), seed);
        for entry in REGISTRY {
            let refuses = |saved: &[u8]| {
                let error = (entry.build)(setup.clone()).restore(saved);
                error.is_err_and(|error| error.message.contains("saved state"))
            };
            let [mut saved, again] = restored(entry, &setup, &steps, steps.len()).map(|policy| policy.save().seal());
            prop_assert_eq!(saved.len(), again.len(), "{}", entry.name);
            let place = place.index(saved.len());
            prop_assert!(refuses(&saved[..place]) && refuses(&foreign), "{}", entry.name);
            for other in REGISTRY.iter().filter(|other| other.name != entry.name) {
                prop_assert!((other.build)(setup.clone()).restore(&saved).is_err(), "{}", other.name);
            }
            saved[place] ^= flip;
            prop_assert!(refuses(&saved), "{}", entry.name);
        }
    }

    /// Bytes that other code sealed: whatever they say, no call panics and no promise is broken.
    #[test]
    fn no_policy_is_led_astray_by_a_state_that_only_looks_right(
        sizes in any_sizes(), capacity in any_capacity(), steps in any_steps(), seed: u64,
        bytes in proptest::collection::vec(0u8..20, 0..30), place: prop::sample::Index, flip in 0u8..,
    ) {
        let setup = Setup::new(capacity, Arc::new(sizes), seed);
        let keys = keys_of(&[1.0; SAMPLES], &setup, 0);
        for entry in REGISTRY {
            let [original, _] = restored(entry, &setup, &steps, steps.len());
            let mut near = original.save().seal();
            near.truncate(near.len() - 8);
            let place = place.index(near.len());
            near[place] ^= flip;
            for payload in [&bytes, &near] {
                let mut writer = Writer::new(SAMPLES);
                payload.iter().for_each(|&byte| writer.fixed(byte.into(), 1));
                let mut policy = (entry.build)(setup.clone());
                policy.begin(&Begin { keys: Some(&keys), ..Begin::default() });
                if policy.restore(&writer.seal(entry.name)).is_err() {
                    continue;
                }
                for place in 0..steps.len() {
                    take(&mut *policy, &setup, &steps, place, &mut Vec::new());
                    let bytes = residents_of(&*policy).iter().map(|&id| setup.sizes.size(id)).sum::<u64>();
                    prop_assert_eq!(policy.used(), bytes, "{}", entry.name);
                    prop_assert!(!entry.bounded || bytes <= policy.capacity(), "{}", entry.name);
                }
            }
        }
    }
}

/// Old heaps are emptied over many slots, which the small catalog above never needs.
#[test]
fn a_restart_amid_a_change_of_heaps_changes_nothing() {
    let samples = 5_000;
    for strict in ["true", "false"] {
        let values = find("icache").unwrap().values([("strict", strict)]).unwrap();
        let setup = Setup { values, ..Setup::new(3_000, Arc::new(vec![1; samples]), 0) };
        let losses = |epoch: u64| -> Vec<f32> {
            let loss = |id| crate::Rng::new(id, epoch, "loss").unit() as f32;
            (0..samples as u64).map(loss).collect()
        };
        let order = Vec::from_iter((0..samples as Id).map(|id| Step::Access(id * 7 % samples as Id)));
        let mut steps = vec![Step::Begin(losses(0), None)];
        steps.extend(order.iter().take(3_000).cloned());
        for (epoch, slots) in [(1, 20), (2, 10), (3, 9)] {
            steps.push(Step::Begin(losses(epoch), None));
            steps.extend(order.iter().skip(slots * 30).take(slots).cloned());
        }
        let moment = steps.len() - 4;
        steps.extend(order.iter().skip(3_000).take(500).cloned());
        let [mut original, mut other] = restored(find("icache").unwrap(), &setup, &steps, moment);
        let mut left = [Vec::new(), Vec::new()];
        for place in moment..steps.len() {
            let first = take(&mut *original, &setup, &steps, place, &mut left[0]);
            assert_eq!(first, take(&mut *other, &setup, &steps, place, &mut left[1]), "step {place}");
        }
        assert!(left[0] == left[1] && left[0].len() > 20, "{strict}: {}", left[0].len());
        assert_eq!(original.save().seal(), other.save().seal());
    }
}

#[test]
fn a_saved_resident_takes_few_bytes() {
    let samples = 100_000;
    let setup = Setup::new(20_000, Arc::new(vec![1; samples]), 0);
    let mut steps = Vec::from_iter((0..40_000).map(|slot| Step::Access(slot * 7 % samples as Id)));
    steps.push(Step::Score(7, 1.0));
    // An id below 2^24 takes three bytes, the key it stands by four; a bit a sample of the catalog says which were ever
    // scored.
    let bits = samples / 8;
    for entry in REGISTRY {
        let name = entry.name;
        let most = match name {
            "lfu" | "belady" => 80_000,
            "app" | "pq" => 60_000 + bits,
            "pq_lfu" => 60_000 + bits + samples,
            "icache" | "impact" => 140_000,
            _ => 60_000,
        };
        let mut policy = (entry.build)(setup.clone());
        for place in 0..steps.len() {
            // No sample is due again, and the policy is told so without a look at all that comes.
            match steps[place] {
                Step::Access(id) => drop(policy.access(id, &NoDue, &mut Vec::new())),
                _ => drop(take(&mut *policy, &setup, &steps, place, &mut Vec::new())),
            }
        }
        let bytes = policy.save().seal().len();
        assert!(bytes <= most + 40, "{name}: {bytes} bytes, {most} expected");
    }
}
