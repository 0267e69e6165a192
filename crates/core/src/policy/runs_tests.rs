use super::*;
use crate::policy::NoDue;

/// Ten samples of ten bytes.
fn policy(capacity: u64) -> Runs {
    Runs::new(Setup::new(capacity, Arc::new(vec![10; 10]), 0))
}

fn load(policy: &mut Runs, members: &[Id], stays: bool) -> (bool, Vec<Id>) {
    let mut evicted = Vec::new();
    let is_read = policy.load(members, stays, &NoDue, &mut evicted);
    (is_read, evicted)
}

fn access(policy: &mut Runs, id: Id) -> Verdict {
    let mut evicted = Vec::new();
    let verdict = policy.access(id, &NoDue, &mut evicted);
    assert!(evicted.is_empty());
    verdict
}

#[test]
fn a_run_that_stays_is_packed_once_and_hits_in_later_plans_without_a_read() {
    let mut policy = policy(60);
    assert_eq!(load(&mut policy, &[0, 1], true), (true, vec![]));
    assert_eq!([0, 1, 0].map(|id| access(&mut policy, id)), [Verdict::Packed, Verdict::Packed, Verdict::Hit]);
    policy.begin(&Begin::default());
    assert_eq!(load(&mut policy, &[0, 1], true), (false, vec![]), "all of it is here");
    assert_eq!([0, 1].map(|id| access(&mut policy, id)), [Verdict::Hit; 2]);
}

#[test]
fn what_was_served_leaves_for_the_next_run_and_what_was_not_stays() {
    let mut policy = policy(40);
    load(&mut policy, &[0, 1, 2, 3], false);
    assert_eq!([2, 0].map(|id| access(&mut policy, id)), [Verdict::Packed; 2]);
    assert_eq!(load(&mut policy, &[4, 5], false), (true, vec![0, 2]));
    assert_eq!([1, 3, 4].map(|id| access(&mut policy, id)), [Verdict::Packed; 3]);
    // A run that does not fit is taken in as far as it does; the rest is read singly.
    assert_eq!(load(&mut policy, &[6, 7, 8, 9], false), (true, vec![4, 3, 1]));
    assert_eq!([6, 7, 8, 9].map(|id| access(&mut policy, id))[3], Verdict::Bypassed);
}

#[test]
fn a_run_that_is_read_once_more_is_packed_as_a_whole() {
    let mut policy = policy(60);
    load(&mut policy, &[0, 1], false);
    access(&mut policy, 0);
    load(&mut policy, &[2, 3, 4, 5], false);
    policy.remove(1);
    assert_eq!(load(&mut policy, &[0, 1], false), (true, vec![]));
    assert_eq!([0, 1].map(|id| access(&mut policy, id)), [Verdict::Packed; 2]);
}

#[test]
fn what_an_earlier_plan_read_and_did_not_serve_is_a_hit() {
    let mut policy = policy(60);
    load(&mut policy, &[0, 1], false);
    policy.begin(&Begin::default());
    assert_eq!(access(&mut policy, 1), Verdict::Hit);
    assert_eq!(load(&mut policy, &[2, 3, 4, 5, 6], false), (true, vec![1]), "the passed one leaves first");
}

#[test]
fn where_there_is_less_room_than_planned_runs_that_stay_give_way_to_those_that_pass() {
    let mut policy = policy(40);
    load(&mut policy, &[0, 1, 2], true);
    assert_eq!(load(&mut policy, &[4, 5, 6], false), (true, vec![2, 1]));
    assert_eq!(
        load(&mut policy, &[7, 8], true),
        (true, vec![]),
        "no run that passes gives way to one that stays"
    );
    assert!(!policy.contains(7));
    let mut evicted = Vec::new();
    policy.resize(20, &mut evicted);
    assert_eq!((evicted, policy.used()), (vec![0, 4], 20));
}

#[test]
fn with_plans_of_another_kind_it_admits_until_it_is_full() {
    let mut policy = policy(20);
    assert_eq!([3, 4, 5, 3].map(|id| access(&mut policy, id)), {
        [Verdict::Admitted, Verdict::Admitted, Verdict::Bypassed, Verdict::Hit]
    });
}

#[test]
fn a_run_that_is_still_there_is_not_read_and_waits_for_its_slots_as_hits() {
    let mut policy = policy(40);
    load(&mut policy, &[0, 1], false);
    for id in [0, 1] {
        access(&mut policy, id);
    }
    policy.begin(&Begin::default());
    assert_eq!(load(&mut policy, &[0, 1], false), (false, vec![]));
    assert_eq!(load(&mut policy, &[2, 3], false), (true, vec![]));
    assert_eq!(load(&mut policy, &[4, 5], false), (true, vec![]), "none that waits gives way");
    assert_eq!([0, 1, 2].map(|id| access(&mut policy, id)), [Verdict::Hit, Verdict::Hit, Verdict::Packed]);
}
