//! What every registered policy must keep, whatever is asked of it: its answers, its residents and its bytes
//! tell one story after every step.

mod restart;

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::importance::Ranking;
use crate::sampling::{self, Draw};

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
    Remove(Vec<Id>),
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
        1 => proptest::collection::btree_set(0..SAMPLES as Id, 0..SAMPLES)
            .prop_map(|ids| Step::Remove(Vec::from_iter(ids))),
    ];
    proptest::collection::vec(step, 0..150)
}

fn residents_of(policy: &dyn Policy) -> BTreeSet<Id> {
    let mut ids = BTreeSet::new();
    policy.residents(&mut |id| assert!(ids.insert(id), "{id} is resident twice"));
    ids
}

/// What was answered to a step: the verdict of an access, and the samples that left.
type Answer = (Option<Verdict>, Vec<Id>);

/// The keys of a plan that begins at `place`.
fn keys_of(values: &[f32], setup: &Setup, place: usize) -> Arc<Keys> {
    let ranking = Ranking::of(values, setup.seed, place as u64);
    Arc::new(Keys::new(values.to_vec(), &ranking, &*setup.sizes, setup.capacity))
}

/// Takes `policy` through the step at `place`: the verdict, and the samples that had to be read to be pinned.
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
        Step::Load(ids) => drop(policy.load(ids, ids.len() % 2 == 0, &ahead, evicted)),
        Step::Leave(id) => policy.leave(*id, evicted),
        Step::Pin(ids) => policy.pin(ids, &mut read, evicted),
        Step::Remove(ids) => {
            let left = ids.iter().copied().filter(|&id| policy.remove(id));
            evicted.extend(left);
        }
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
            assert!(*to < capacity || evicted.len() == 1, "a sample left a cache that grew");
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
            // A sample that is served from a package may move to where another makes room for it.
            let made_room = verdict == Verdict::Admitted || policy.takes_packages() && served;
            assert!(made_room || evicted.is_empty(), "a sample left, and none came");
            if verdict == Verdict::Admitted {
                expected.insert(*id);
            }
        }
        if let Step::Load(ids) | Step::Pin(ids) = step {
            expected.extend(ids.iter().filter(|id| after.contains(id)));
        }
        if let Step::Remove(ids) = step
            && entry.bounded
        {
            assert!(after.iter().all(|id| !ids.contains(id)), "what another node owns stayed");
            assert!(evicted.iter().all(|id| ids.contains(id)), "what this node owns left");
        }
        assert_eq!(
            after, expected,
            "residents are those before, less those that left, and the one that was admitted"
        );
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
