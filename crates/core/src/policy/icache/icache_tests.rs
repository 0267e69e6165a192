//! The H region's rules, its change of heaps, and the L region.

use std::collections::BTreeMap;

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
    policy.load(&[0, 1, 2, 90], false, &NoDue, &mut evicted);
    policy.load(&[3, 4, 5, 6], false, &NoDue, &mut evicted);
    assert!(evicted.is_empty() && policy.used() == 200);
    assert_eq!((ask(&mut policy, 0, &[]).0, ask(&mut policy, 0, &[]).0), (Verdict::Packed, Verdict::Hit));
    // A hard sample moves over and takes the place of an easy one.
    let (verdict, left) = ask(&mut policy, 90, &[]);
    assert_eq!((verdict, left.len(), policy.place(90)), (Verdict::Packed, 1, Some(Place::High)));
    policy.load(&[7, 8, 9, 10], false, &NoDue, &mut evicted);
    assert_eq!(evicted, [0, 1, 2], "the first package leaves, without the one that moved");
    policy.begin(&info());
    assert_eq!(ask(&mut policy, 3, &[]).0, Verdict::Hit, "it was resident before this epoch");
}

/// A plain list of residents, each with the key it stands by: that of the plan in which it was last moved over.
#[derive(Default)]
struct Model {
    residents: BTreeMap<Id, f32>,
    /// Evictions of samples that stood by an earlier plan's key.
    by_old_keys: u64,
}

const ROOM: usize = 12;

impl Model {
    /// What the policy should answer, from where its residents stand right before.
    fn expect(&self, id: Id, due: &[Id], values: &[f32], strict: bool) -> (Verdict, Vec<Id>) {
        if self.residents.contains_key(&id) {
            return (Verdict::Hit, vec![]);
        }
        if self.residents.len() < ROOM {
            return (Verdict::Admitted, vec![]);
        }
        let due_too = strict || due.contains(&id);
        let may_leave = |resident: &&Id| due_too || !due.contains(resident);
        let order = |a: &&Id, b: &&Id| self.residents[a].total_cmp(&self.residents[b]).then(a.cmp(b));
        match self.residents.keys().filter(may_leave).min_by(order) {
            Some(lowest) if self.residents[lowest] < values[id as usize] => {
                (Verdict::Admitted, vec![*lowest])
            }
            _ => (Verdict::Bypassed, vec![]),
        }
    }

    /// One epoch of slots; before each, `moves` residents move over.
    fn epoch(
        &mut self,
        policy: &mut Icache,
        values: &[f32],
        ids: &[Id],
        strict: bool,
        moves: impl Fn(usize) -> usize,
    ) {
        begin(policy, values);
        for (place, &id) in ids.iter().enumerate() {
            let due = &ids[place + 1..];
            policy.high.rebuild(moves(place), &Listed(due.to_vec()));
            for (&resident, key) in &mut self.residents {
                if !policy.high.is_old(resident) {
                    *key = values[resident as usize];
                }
            }
            let old: Vec<Id> = self.residents.keys().copied().filter(|&id| policy.high.is_old(id)).collect();
            let expected = self.expect(id, due, values, strict);
            assert_eq!(ask(policy, id, due), expected, "slot {place}, sample {id}, {old:?} by old keys");
            for left in &expected.1 {
                self.by_old_keys += u64::from(old.contains(left));
                self.residents.remove(left);
            }
            if expected.0 != Verdict::Bypassed {
                self.residents.insert(id, values[id as usize]);
            }
        }
    }
}

/// Few residents move over with a slot, so that evictions are answered by old heaps and new ones at once; or all do.
#[test]
fn it_does_what_a_plain_list_does_while_residents_move_over() {
    let mut by_old_keys = 0;
    for seed in 0..400 {
        let mut rng = crate::Rng::new(seed, 0, "icache model");
        let strict = seed % 2 == 0;
        let moves = [0, 1, 3, 1_000][(seed / 2 % 4) as usize];
        let mut policy = policy(&[1.0; 40], 10 * ROOM as u64, if strict { "true" } else { "false" });
        policy.high.moves_by_hand();
        let mut model = Model::default();
        for _ in 0..6 {
            let values: Vec<f32> = (0..40).map(|_| rng.below(9) as f32).collect();
            let ids: Vec<Id> = (0..rng.below(60)).map(|_| rng.below(40) as Id).collect();
            model.epoch(&mut policy, &values, &ids, strict, |place| if place % 2 == 0 { moves } else { 0 });
        }
        assert!(moves < 1_000 || model.by_old_keys == 0, "all have moved over");
        by_old_keys += model.by_old_keys;
    }
    assert!(by_old_keys > 1_000, "{by_old_keys} evictions by the keys of earlier plans");
}
