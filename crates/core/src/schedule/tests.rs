//! Slots as they are decided, taken, served and left behind.

use super::*;

fn schedule(world: u32, ids: &[Id]) -> Schedule {
    let samples = ids.iter().max().map_or(0, |&id| id as usize + 1);
    Schedule::new(Arc::new(Plan::cut(0, world, false, ids.to_vec())), samples)
}

fn decide_all(schedule: &mut Schedule) {
    while let Some(slot) = schedule.next_undecided() {
        schedule.decide(slot, Outcome::Single);
    }
}

#[test]
fn a_request_takes_the_earliest_slot_of_its_id_and_rank() {
    let mut schedule = schedule(2, &[5, 5, 3, 5, 5, 3]);
    assert_eq!(schedule.find(1, 5), Some(1));
    assert_eq!(schedule.find(0, 5), Some(0));
    decide_all(&mut schedule);
    schedule.take(0);
    assert_eq!(schedule.find(0, 5), Some(4), "a slot that is waited for is not given twice");
    schedule.serve(0);
    schedule.serve(4);
    let first = |slot| schedule.serving(slot).unwrap().first;
    assert!(first(0) && !first(4), "the same id again is not a new one");
    assert_eq!(schedule.find(0, 5), None);
}

#[test]
fn due_looks_beyond_the_slot_being_decided() {
    let mut schedule = schedule(1, &[1, 2, 1, 3]);
    assert_eq!(schedule.next_undecided(), Some(0));
    assert_eq!(schedule.positions().due(1, true), Some(2));
    assert_eq!(schedule.positions().due(3, true), Some(3));
    schedule.decide(0, Outcome::Single);
    schedule.next_undecided();
    schedule.decide(1, Outcome::Single);
    assert_eq!(schedule.positions().due(2, true), None);
    assert!(schedule.waits_before(2, 2) && !schedule.waits_before(2, 1) && !schedule.waits_before(3, 4));
}

#[test]
fn overtaken_slots_are_left_behind_except_those_that_are_waited_for() {
    let mut schedule = schedule(1, &[0, 1, 2, 3, 4, 5, 6, 7]);
    for _ in 0..6 {
        let slot = schedule.next_undecided().unwrap();
        schedule.decide(slot, if slot.is_multiple_of(2) { Outcome::Hit } else { Outcome::Single });
        if slot.is_multiple_of(2) {
            schedule.wait(slot);
        }
    }
    schedule.take(1);
    let mut decided = Vec::new();
    assert_eq!(schedule.overtake(7, 2, &mut decided), 4);
    assert_eq!(decided, [(0, Stage::Waiting), (2, Stage::Waiting), (3, Stage::Unread), (4, Stage::Waiting)]);
    assert_eq!(schedule.find(0, 3), None);
    assert_eq!(schedule.stage(1), Stage::Taken);
    assert_eq!(schedule.overtake(7, 2, &mut decided), 0);
}

#[test]
fn a_rank_that_leaves_early_leaves_its_slots_and_no_others() {
    let ids: Vec<Id> = (0..12).collect();
    let mut schedule = schedule(3, &ids);
    for _ in 0..7 {
        let slot = schedule.next_undecided().unwrap();
        schedule.decide(slot, Outcome::Single);
    }
    schedule.take(1);
    schedule.serve(1);
    let mut decided = Vec::new();
    assert_eq!(schedule.close(1, &mut decided), 3);
    assert_eq!(decided, [(4, Stage::Unread)]);
    assert!(!schedule.closed());
    let mut rest = Vec::new();
    while let Some(slot) = schedule.next_undecided() {
        rest.push(slot);
        schedule.decide(slot, Outcome::Single);
    }
    assert_eq!(rest, [8, 9, 11], "slots of the rank that left are passed over");
}

#[test]
fn a_resumed_rank_skips_what_it_has_trained() {
    let ids: Vec<Id> = (0..6).collect();
    let mut schedule = schedule(2, &ids);
    assert!(schedule.begin(0, 2, &mut Vec::new()));
    assert!(!schedule.begin(0, 0, &mut Vec::new()), "beginning again changes nothing");
    assert!(schedule.begin(1, 0, &mut Vec::new()));
    let mut order = Vec::new();
    while let Some(slot) = schedule.next_undecided() {
        order.push(slot);
        schedule.decide(slot, Outcome::Single);
    }
    assert_eq!(order, [1, 3, 4, 5]);
}

#[test]
fn an_epoch_begun_again_serves_all_of_it_again() {
    let ids: Vec<Id> = (0..4).collect();
    let mut schedule = schedule(1, &ids);
    schedule.begin(0, 0, &mut Vec::new());
    for _ in 0..3 {
        let slot = schedule.next_undecided().unwrap();
        schedule.decide(slot, Outcome::Single);
    }
    schedule.take(0);
    schedule.serve(0);
    assert_eq!(schedule.find(0, 0), None);
    let mut back = Vec::new();
    schedule.begin_again(0, 0, &mut Vec::new(), &mut back);
    assert_eq!(back, [0]);
    assert_eq!(schedule.find(0, 0), Some(0));
    assert_eq!((schedule.stage(0), schedule.outcome(0)), (Stage::Again, Some(Outcome::Single)));
    assert_eq!(schedule.stage(1), Stage::Unread);
    assert_eq!(schedule.next_undecided(), Some(3), "nothing is decided twice");
}

#[test]
fn an_order_that_is_cut_anew_stays_decided_as_it_was_and_none_of_its_ranks_has_begun() {
    let ids: Vec<Id> = (0..12).collect();
    let mut before = schedule(2, &ids);
    assert!((0..2).all(|rank| before.begin(rank, 0, &mut Vec::new())));
    for _ in 0..8 {
        let slot = before.next_undecided().unwrap();
        before.decide(slot, if slot == 5 { Outcome::Hit } else { Outcome::Single });
    }
    before.set_away(1, true);
    (0..4).for_each(|slot| before.serve(slot));
    let mut cut = before.recut(3);
    assert!(cut.is_recut() && !cut.is_restored() && !cut.begun());
    assert_eq!((cut.plan().world(), cut.frontier()), (3, 8));
    assert_eq!(
        (cut.stage(3), cut.stage(5), cut.outcome(5)),
        (Stage::Served, Stage::Unread, Some(Outcome::Hit))
    );
    let locals: Vec<bool> = (0..4).map(|slot| cut.serving(slot).unwrap().local).collect();
    assert_eq!(locals, [true, false, true, false], "what was given to other nodes is known");
    (0..3).for_each(|rank| assert!(cut.begin(rank, 1, &mut Vec::new())));
    assert_eq!(cut.next_undecided(), Some(8), "nothing is decided twice");
}
