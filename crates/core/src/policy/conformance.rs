//! What every registered policy must keep, whatever is asked of it: its answers, its residents and its bytes
//! tell one story after every step.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::importance::Ranking;
use crate::sampling::{self, Draw};
use crate::saved::Writer;

/// Of the property tests, a catalog this large: small enough that every id is asked for often.
const SAMPLES: usize = 16;

#[derive(Debug, Clone)]
enum Step {
    Access(Id),
    Resize(u64),
    Begin(Vec<f32>, Option<u64>),
    Score(Id, f32),
    Load(Vec<Id>),
    Leave(Id),
    Pin(Vec<Id>),
}

/// Steps that are still to come, as a plan would tell.
struct Ahead<'a>(&'a [Step]);

impl Due for Ahead<'_> {
    fn next_due(&self, id: Id) -> Option<u64> {
        let accesses = self.0.iter().filter_map(|step| match step {
            Step::Access(id) => Some(*id),
            _ => None,
        });
        accesses.zip(1..).find(|(due, _)| *due == id).map(|(_, slots)| slots)
    }
}

/// Sizes of nothing, of a few that fit together, and of more than most capacities.
fn any_sizes() -> impl Strategy<Value = Vec<u64>> {
    let size = prop_oneof![1 => Just(0u64), 6 => 1u64..60, 1 => 200u64..1_000];
    proptest::collection::vec(size, SAMPLES)
}

fn any_capacity() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0u64), 6 => 1u64..400, 1 => Just(u64::MAX)]
}

fn any_values() -> impl Strategy<Value = Vec<f32>> {
    proptest::collection::vec(prop_oneof![3 => 0.0f32..9.0, 1 => Just(1.0), 1 => Just(f32::NAN)], SAMPLES)
}

fn any_ids() -> impl Strategy<Value = Vec<Id>> {
    proptest::collection::btree_set(0..SAMPLES as Id, 0..6).prop_map(Vec::from_iter)
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0..SAMPLES as Id).prop_map(Step::Access),
        1 => any_capacity().prop_map(Step::Resize),
        1 => (any_values(), proptest::option::of(1u64..60)).prop_map(|(keys, package)| Step::Begin(keys, package)),
        2 => (0..SAMPLES as Id, 0.0f32..9.0).prop_map(|(id, score)| Step::Score(id, score)),
        1 => any_ids().prop_map(Step::Load),
        1 => (0..SAMPLES as Id).prop_map(Step::Leave),
        1 => any_ids().prop_map(Step::Pin),
    ];
    proptest::collection::vec(step, 0..150)
}

fn residents_of(policy: &dyn Policy) -> BTreeSet<Id> {
    let mut ids = BTreeSet::new();
    policy.residents(&mut |id| assert!(ids.insert(id), "{id} is resident twice"));
    ids
}

/// What was answered to a step: the verdict of an access, and who left.
type Answer = (Option<Verdict>, Vec<Id>);

/// The keys of a plan that begins at `place`.
fn keys_of(values: &[f32], setup: &Setup, place: usize) -> Arc<Keys> {
    let ranking = Ranking::of(values, setup.seed, place as u64);
    Arc::new(Keys::new(values.to_vec(), &ranking, &*setup.sizes, setup.capacity))
}

/// Takes `policy` through the step at `place`: the verdict, and who had to be read to be pinned.
fn take(
    policy: &mut dyn Policy,
    setup: &Setup,
    steps: &[Step],
    place: usize,
    evicted: &mut Vec<Id>,
) -> (Option<Verdict>, Vec<Id>) {
    let ahead = Ahead(&steps[place + 1..]);
    let (mut verdict, mut read) = (None, Vec::new());
    match &steps[place] {
        Step::Access(id) => verdict = Some(policy.access(*id, &ahead, evicted)),
        Step::Resize(to) => policy.resize(*to, evicted),
        Step::Begin(values, package) => {
            let keys = keys_of(values, setup, place);
            let selected = (place as u64 % 5, 10);
            policy.begin(&Begin { keys: Some(&keys), package: *package, selected, ..Begin::default() });
        }
        Step::Score(id, score) => policy.scored(&[(*id, *score)]),
        Step::Load(ids) => policy.load(ids, &ahead, evicted),
        Step::Leave(id) => policy.leave(*id, evicted),
        Step::Pin(ids) => policy.pin(ids, &mut read, evicted),
    }
    (verdict, read)
}

/// Takes `policy` through `steps` and checks after each that nothing contradicts anything.
fn run(entry: &Entry, setup: &Setup, steps: &[Step]) -> Vec<Answer> {
    let mut policy = (entry.build)(setup.clone());
    let mut answers = Vec::new();
    let mut before = residents_of(&*policy);
    let mut capacity = setup.capacity;
    for (place, step) in steps.iter().enumerate() {
        let mut evicted = vec![Id::MAX];
        let mut expected = before.clone();
        let (verdict, read) = take(&mut *policy, setup, steps, place, &mut evicted);
        assert!(read.iter().all(|id| !before.contains(id)), "a resident was read");
        if let Step::Resize(to) = step {
            assert!(*to < capacity || evicted.len() == 1, "somebody left a cache that grew");
            capacity = *to;
        }
        assert_eq!(evicted.remove(0), Id::MAX, "`evicted` is appended to, never cleared");
        for id in &evicted {
            assert!(expected.remove(id), "{id} left without being resident");
        }
        let after = residents_of(&*policy);
        if let (Step::Access(id), Some(verdict)) = (step, verdict) {
            assert!(!evicted.contains(id), "{id} left for itself");
            let served = matches!(verdict, Verdict::Hit | Verdict::Packed);
            assert_eq!(served, before.contains(id), "a hit is a resident, and only that");
            // Who is served from a package may move to where somebody makes room for it.
            let made_room = verdict == Verdict::Admitted || policy.takes_packages() && served;
            assert!(made_room || evicted.is_empty(), "somebody left for nobody");
            if verdict == Verdict::Admitted {
                expected.insert(*id);
            }
        }
        if let Step::Load(ids) | Step::Pin(ids) = step {
            expected.extend(ids.iter().filter(|id| after.contains(id)));
        }
        assert_eq!(after, expected, "residents are those before, less who left, and who was admitted");
        for id in 0..setup.sizes.len() as Id {
            assert_eq!(policy.contains(id), after.contains(&id), "`contains` and `residents` differ on {id}");
        }
        let bytes: u64 = after.iter().map(|&id| setup.sizes.size(id)).sum();
        assert_eq!(policy.used(), bytes);
        assert_eq!(policy.capacity(), capacity);
        assert!(!entry.bounded || bytes <= capacity, "{bytes} bytes in a cache of {capacity}");
        let regions = policy.regions();
        assert_eq!(regions.iter().map(|region| region.used).sum::<u64>(), bytes);
        assert_eq!(regions.iter().map(|region| region.capacity).sum::<u64>(), capacity, "{regions:?}");
        for id in 0..setup.sizes.len() as Id {
            assert_eq!(policy.place(id).is_some(), after.contains(&id));
        }
        answers.push((verdict, evicted));
        before = after;
    }
    answers
}

proptest! {
    #[test]
    fn every_policy_tells_one_story_and_tells_it_again(
        sizes in any_sizes(), capacity in any_capacity(), steps in any_steps(), seed: u64
    ) {
        let setup = Setup::new(capacity, Arc::new(sizes), seed);
        for entry in REGISTRY {
            prop_assert_eq!(run(entry, &setup, &steps), run(entry, &setup, &steps), "{}", entry.name);
        }
    }
}

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
    other.restore(&original.save()).unwrap();
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
            let [mut saved, again] = restored(entry, &setup, &steps, steps.len()).map(|policy| policy.save());
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

    /// Bytes that somebody else sealed: whatever they say, no call panics and no promise is broken.
    #[test]
    fn no_policy_is_led_astray_by_a_state_that_only_looks_right(
        sizes in any_sizes(), capacity in any_capacity(), steps in any_steps(), seed: u64,
        bytes in proptest::collection::vec(0u8..20, 0..30), place: prop::sample::Index, flip in 0u8..,
    ) {
        let setup = Setup::new(capacity, Arc::new(sizes), seed);
        let keys = keys_of(&[1.0; SAMPLES], &setup, 0);
        for entry in REGISTRY {
            let [original, _] = restored(entry, &setup, &steps, steps.len());
            let mut near = original.save();
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
        assert_eq!(original.save(), other.save());
    }
}

#[test]
fn a_saved_resident_takes_few_bytes() {
    let samples = 100_000;
    let setup = Setup::new(20_000, Arc::new(vec![1; samples]), 0);
    let mut steps = Vec::from_iter((0..40_000).map(|slot| Step::Access(slot * 7 % samples as Id)));
    steps.push(Step::Score(7, 1.0));
    // An id below 2^24 takes three bytes; a bit a sample of the catalog says who was ever scored.
    let bits = samples / 8;
    for (name, most) in [
        ("lru", 60_000),
        ("minio", 60_000),
        ("random", 60_000),
        ("carousel", 60_000),
        ("quiver", 60_000),
        ("lfu", 80_000),
        ("app", 60_000 + bits),
        ("pq", 60_000 + bits),
        ("pq_lfu", 60_000 + bits + samples),
        ("icache", 60_000),
        ("impact", 60_000),
        ("belady", 80_000),
        ("oracle", 0),
    ] {
        let mut policy = (find(name).unwrap().build)(setup.clone());
        for place in 0..steps.len() {
            // Nobody is due again, and told so without a look at all that comes.
            match steps[place] {
                Step::Access(id) => drop(policy.access(id, &NoDue, &mut Vec::new())),
                _ => drop(take(&mut *policy, &setup, &steps, place, &mut Vec::new())),
            }
        }
        let bytes = policy.save().len();
        assert!(bytes <= most + 40, "{name}: {bytes} bytes, {most} expected");
    }
}

#[test]
fn every_policy_takes_an_empty_catalog() {
    for entry in REGISTRY {
        let setup = Setup::new(10, Arc::new(Vec::new()), 0);
        assert!(
            run(entry, &setup, &[Step::Resize(0), Step::Resize(7)]).iter().all(|(_, left)| left.is_empty())
        );
    }
}

/// The hits of each uniform epoch over equal sizes of which a fifth fits.
fn hits_of_uniform_epochs(name: &str, samples: usize, epochs: u64) -> Vec<usize> {
    let setup = Setup::new(samples as u64 / 5 * 100, Arc::new(vec![100; samples]), 0);
    let mut policy = (find(name).unwrap().build)(setup);
    let mut uniform = (sampling::find("uniform").unwrap().build)(sampling::Setup::new(samples, 11));
    let mut evicted = Vec::new();
    let epoch_of = |epoch| {
        let drawn = uniform.draw(&Draw { epoch, world: 1, carried: Some(&[]), ..Draw::default() });
        drawn.ids.into_iter().filter(|&id| policy.access(id, &NoDue, &mut evicted) == Verdict::Hit).count()
    };
    (0..epochs).map(epoch_of).collect()
}

#[test]
fn lru_hits_two_percent_of_uniform_epochs_at_a_fifth() {
    let hits = hits_of_uniform_epochs("lru", 10_000, 12);
    let steady = hits[2..].iter().sum::<usize>() as f64 / 100_000.0;
    let expected = 0.2 + 0.8 * 0.8f64.ln();
    assert!((steady - expected).abs() < 0.003, "{steady} beside {expected}");
}

#[test]
fn minio_hits_exactly_its_share_from_the_second_epoch() {
    assert_eq!(hits_of_uniform_epochs("minio", 10_000, 4), [0, 2_000, 2_000, 2_000]);
}

#[test]
fn oracle_hits_always() {
    assert_eq!(hits_of_uniform_epochs("oracle", 1_000, 2), [1_000, 1_000]);
}
