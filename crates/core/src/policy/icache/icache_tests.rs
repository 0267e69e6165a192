//! The H region's rules, its change of heaps, and the L region.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::importance::{Keys, Ranking};

/// Due are those of this list.
struct Listed(Vec<Id>);

impl Due for Listed {
    fn next_due(&self, id: Id) -> Option<u64> {
        self.0.iter().position(|due| *due == id).map(|place| place as u64 + 1)
    }
}

fn keys(values: &[f32], capacity: u64) -> Arc<Keys> {
    let ranking = Ranking::of(values, 0, 0);
    Arc::new(Keys::new(values.to_vec(), &ranking, &vec![10u64; values.len()], capacity))
}

fn policy(values: &[f32], capacity: u64, strict: &str) -> Icache {
    let mut setup = Setup::new(capacity, Arc::new(vec![10; values.len()]), 0);
    setup.values = ENTRY.values([("strict", strict)]).unwrap();
    let mut policy = Icache::new(setup);
    begin(&mut policy, values);
    policy
}

fn begin(policy: &mut Icache, values: &[f32]) {
    let keys = keys(values, policy.capacity);
    policy.begin(&Begin { keys: Some(&keys), ..Begin::default() });
}

fn ask(policy: &mut Icache, id: Id, due: &[Id]) -> (Verdict, Vec<Id>) {
    let mut evicted = Vec::new();
    (policy.access(id, &Listed(due.to_vec()), &mut evicted), evicted)
}

fn ask_all(policy: &mut Icache, ids: &[Id]) {
    for &id in ids {
        ask(policy, id, &[]);
    }
}

const RISING: [f32; 6] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];

#[test]
fn a_higher_value_takes_the_place_of_the_lowest_and_a_lower_one_does_not() {
    let mut policy = policy(&RISING, 30, "false");
    ask_all(&mut policy, &[1, 2, 3]);
    assert_eq!(ask(&mut policy, 0, &[]), (Verdict::Bypassed, vec![]));
    assert_eq!(ask(&mut policy, 5, &[]), (Verdict::Admitted, vec![1]));
}

#[test]
fn who_is_still_due_never_leaves_for_one_that_is_not() {
    let mut policy = policy(&RISING, 30, "false");
    ask_all(&mut policy, &[1, 2, 3]);
    begin(&mut policy, &RISING);
    assert_eq!(ask(&mut policy, 5, &[1]), (Verdict::Admitted, vec![2]), "1 is lower but due");
    assert_eq!(ask(&mut policy, 4, &[1, 3, 5]), (Verdict::Bypassed, vec![]), "all are due");
    assert_eq!(ask(&mut policy, 4, &[1, 3, 5, 4]), (Verdict::Admitted, vec![1]), "so is the newcomer");
}

/// The paper's plain heap: the counter-example that reads 1 again, which was due.
#[test]
fn the_strict_heap_evicts_who_is_about_to_be_served() {
    let mut policy = policy(&RISING, 30, "true");
    ask_all(&mut policy, &[1, 2, 3]);
    begin(&mut policy, &RISING);
    assert_eq!(ask(&mut policy, 5, &[1]), (Verdict::Admitted, vec![1]));
    assert_eq!(ask(&mut policy, 1, &[]).0, Verdict::Bypassed);
}

#[test]
fn a_new_list_is_decided_with_its_own_keys_and_moves_over_a_few_with_each_slot() {
    let samples = 2_000;
    let rising: Vec<f32> = (0..samples).map(|id| id as f32).collect();
    let falling: Vec<f32> = rising.iter().rev().copied().collect();
    let mut policy = policy(&rising, 10_000, "false");
    for id in 0..1_000 {
        ask(&mut policy, id, &[]);
    }
    begin(&mut policy, &falling);
    // By the new keys 999 is the lowest, but until the heaps have changed over the old ones answer.
    assert_eq!(ask(&mut policy, 1_500, &[]), (Verdict::Admitted, vec![0]));
    for id in 0..40 {
        ask(&mut policy, id % 10 + 1, &[]);
    }
    // 1,500 is lower still by the new keys, and is the first to go.
    assert_eq!(ask(&mut policy, 0, &[]).1, [1_500]);
    assert_eq!(ask(&mut policy, 0, &[]).0, Verdict::Hit);
    assert_eq!(ask(&mut policy, 1_600, &[]).0, Verdict::Bypassed);
}

#[test]
fn epochs_that_end_at_once_pile_up_nothing() {
    let mut policy = policy(&RISING, 30, "false");
    ask_all(&mut policy, &[1, 2, 3]);
    for _ in 0..2_000 {
        begin(&mut policy, &RISING);
    }
    assert_eq!(ask(&mut policy, 5, &[]), (Verdict::Admitted, vec![1]));
}

#[test]
fn a_package_fills_the_low_region_and_its_samples_are_packed_once() {
    let mut values = vec![1.0f32; 100];
    values[90..].fill(9.0);
    let mut policy = Icache::new(Setup::new(200, Arc::new(vec![10; 100]), 0));
    let keys = keys(&values, 100);
    let info = || Begin { keys: Some(&keys), package: Some(40), selected: (10, 70), ..Begin::default() };
    policy.begin(&info());
    assert_eq!(policy.regions().iter().map(|region| region.capacity).collect::<Vec<_>>(), [120, 80]);
    for id in 20..40 {
        ask(&mut policy, id, &[]);
    }
    let mut evicted = Vec::new();
    policy.load(&[0, 1, 2, 90], &NoDue, &mut evicted);
    policy.load(&[3, 4, 5, 6], &NoDue, &mut evicted);
    assert!(evicted.is_empty() && policy.used() == 200);
    assert_eq!((ask(&mut policy, 0, &[]).0, ask(&mut policy, 0, &[]).0), (Verdict::Packed, Verdict::Hit));
    // A hard sample moves over and takes the place of an easy one.
    let (verdict, left) = ask(&mut policy, 90, &[]);
    assert_eq!((verdict, left.len(), policy.place(90)), (Verdict::Packed, 1, Some(Place::High)));
    policy.load(&[7, 8, 9, 10], &NoDue, &mut evicted);
    assert_eq!(evicted, [0, 1, 2], "the first package leaves, without the one that moved");
    policy.begin(&info());
    assert_eq!(ask(&mut policy, 3, &[]).0, Verdict::Hit, "it was resident before this epoch");
}

proptest! {
    /// Few enough residents that all of them have changed over when a slot is decided.
    #[test]
    fn it_does_what_a_plain_list_does(
        epochs in proptest::collection::vec(
            (
                proptest::collection::vec(0.0f32..9.0, 20),
                proptest::collection::vec(0u32..20, 0..40),
            ),
            1..6,
        ),
        strict: bool,
    ) {
        let mut policy = policy(&[1.0; 20], 50, if strict { "true" } else { "false" });
        let mut model: BTreeMap<Id, f32> = BTreeMap::new();
        for (values, ids) in epochs {
            begin(&mut policy, &values);
            for (place, &id) in ids.iter().enumerate() {
                let due = &ids[place + 1..];
                model.iter_mut().for_each(|(id, value)| *value = values[*id as usize]);
                let known = model.contains_key(&id);
                let anybody = strict || due.contains(&id);
                let mut lowest: Vec<(f32, Id)> = model.iter().map(|(&id, &value)| (value, id)).collect();
                lowest.retain(|(_, id)| anybody || !due.contains(id));
                lowest.sort_by(|a, b| a.partial_cmp(b).unwrap());
                let expected = if known {
                    (Verdict::Hit, vec![])
                } else if model.len() < 5 {
                    (Verdict::Admitted, vec![])
                } else {
                    match lowest.first() {
                        Some((value, lowest)) if *value < values[id as usize] => (Verdict::Admitted, vec![*lowest]),
                        _ => (Verdict::Bypassed, vec![]),
                    }
                };
                prop_assert_eq!(ask(&mut policy, id, due), expected.clone());
                expected.1.iter().for_each(|left| {
                    model.remove(left);
                });
                if expected.0 == Verdict::Admitted {
                    model.insert(id, values[id as usize]);
                }
            }
        }
    }
}
