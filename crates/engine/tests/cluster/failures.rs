//! Other nodes that do not do as they should: what is served is right all the same, and nothing hangs.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hotset_core::cluster::{AnswerKind, Wanted};

use super::nodes::{Made, Manner, Nodes};
use crate::common::training::settles;
use crate::common::{content, within};

fn all_of(manner: Manner) {
    for prefetch in [true, false] {
        let made = Made { locality: false, prefetch, ..Made::new(1_600, 2, &[0, 1]) };
        let nodes = Nodes::new(&made);
        nodes.epoch(0, 16);
        nodes.set(1, manner);
        for epoch in 1..3 {
            nodes.epoch(epoch, 16);
            nodes.check_residents();
            let asker = nodes.counted(0, epoch).clock;
            assert!(asker.node_failed > 0, "{manner:?}");
            assert_eq!(asker.recovery_reads, asker.node_failed, "{manner:?}");
            assert_eq!(asker.failed, 0, "{manner:?}");
            let others = nodes.counted(1, epoch);
            assert_eq!((others.clock.recovery_reads, others.clock.node_failed), (0, 0), "{manner:?}");
        }
        nodes.set(1, Manner::Right);
        // What was asked ahead may have failed before.
        (3..5).for_each(|epoch| drop(nodes.epoch(epoch, 16)));
        for epoch in 1..3 {
            let all = nodes.counted(1, epoch).clock.abandoned + nodes.sum(epoch).served();
            assert_eq!(all, 1_600, "{manner:?}: what its owner did not serve it has abandoned");
        }
        assert_eq!(nodes.sum(4).served(), 1_600);
        assert_eq!(nodes.sum(4).clock.node_failed, 0, "a node that is right again is asked again");
    }
}

#[test]
fn a_node_that_cannot_be_reached_costs_reads_alone() {
    within("dead", || all_of(Manner::Dead));
}

#[test]
fn a_node_that_answers_too_late_costs_reads_alone() {
    within("slow", || all_of(Manner::Slow));
}

#[test]
fn a_node_that_gives_less_than_all_costs_reads_of_the_rest() {
    within("half", || all_of(Manner::Half));
}

#[test]
fn a_node_of_another_view_gives_nothing() {
    within("stale", || all_of(Manner::Stale));
}

#[test]
fn what_did_not_come_as_it_was_sent_is_not_served() {
    within("wrong", || all_of(Manner::Wrong));
}

#[test]
fn an_owner_whose_storage_hangs_is_waited_for_until_the_deadline() {
    let made = Made { locality: false, wait: Duration::from_millis(200), ..Made::new(400, 2, &[0]) };
    let nodes = Nodes::new(&made);
    nodes.stores[1].hold();
    within("storage that hangs", || {
        let plan = nodes.begin(0, 0).unwrap();
        nodes.train(0, &plan, 0..200, 16);
        nodes.stores[1].let_go();
        nodes.train(0, &plan, 200..400, 16);
    });
    let clock = nodes.counted(0, 0).clock;
    assert!(clock.node_failed >= 50 && clock.recovery_reads == clock.node_failed, "{clock:?}");
    assert!(clock.node_reads >= 50, "{clock:?}");
}

#[test]
fn a_plan_that_cannot_be_settled_is_an_error_and_is_made_again() {
    for prefetch in [false, true] {
        let made = Made { prefetch, ..Made::new(400, 2, &[0, 1]).with("iis", "icache") };
        let nodes = Nodes::new(&made);
        within("settling", || {
            let plan = nodes.begin(0, 0).unwrap();
            nodes.begin(1, 0).unwrap();
            nodes.shared.unsettled.store(3, Ordering::SeqCst);
            (0..2).for_each(|rank| nodes.train(rank, &plan, 0..200, 16));
            // One that is made ahead fails once, and is left to who asks for it.
            let left = if prefetch { 2 } else { 3 };
            settles("no plan is made ahead", || !nodes.engines[0].plans("job"));
            assert_eq!(nodes.shared.unsettled.load(Ordering::SeqCst), left);
            for _ in 0..left {
                let error = nodes.begin(1, 1).unwrap_err();
                assert!(error.message.contains("no longer the home"), "{error}");
            }
            let alone = Nodes::new(&made);
            let plan = alone.begin(0, 0).unwrap();
            alone.begin(1, 0).unwrap();
            (0..2).for_each(|rank| alone.train(rank, &plan, 0..200, 16));
            assert_eq!(
                nodes.epoch(1, 16).ids(),
                alone.epoch(1, 16).ids(),
                "the plan is what it would have been"
            );
        });
    }
}

#[test]
fn a_plan_that_the_home_does_not_give_is_an_error_and_is_asked_for_again() {
    let nodes = Nodes::new(&Made::new(400, 2, &[1]));
    nodes.shared.ungot.store(1, Ordering::SeqCst);
    within("getting", || {
        let error = nodes.begin(0, 0).unwrap_err();
        assert!(error.message.contains("does not answer"), "{error}");
        nodes.epoch(0, 16);
    });
    assert_eq!(nodes.sum(0).served(), 400);
}

#[test]
fn a_node_that_hangs_does_not_take_all_threads_from_those_that_answer() {
    let made = Made { locality: false, wait: Duration::from_millis(300), ..Made::new(3_000, 3, &[0]) };
    let nodes = Nodes::new(&made);
    nodes.set(1, Manner::Hung);
    let plan = nodes.begin(0, 0).unwrap();
    within("a node that hangs", || nodes.train(0, &plan, 0..500, 8));
    assert!((2..=4).contains(&nodes.shared.most_at_a_time.load(Ordering::SeqCst)));
    let clock = nodes.counted(0, 0).clock;
    assert!(clock.node_failed > 100 && clock.node_reads > 100, "{clock:?}");
    assert!((1..=63).contains(&clock.node_waits), "of 63 batches some waited for it: {clock:?}");
    assert_eq!(nodes.counted(2, 0).clock.recovery_reads, 0);
}

/// What a node answers to slots of the plan of epoch 0.
pub(super) fn answers(
    nodes: &Nodes,
    node: usize,
    wanted: &Wanted,
    wait: Duration,
) -> Vec<(AnswerKind, Vec<u8>)> {
    let mut all = Vec::new();
    nodes.engines[node].give(wanted, Instant::now() + wait, &mut |answer| {
        all.push((answer.kind, answer.bytes.to_vec()));
        true
    });
    all
}

#[test]
fn what_a_node_does_not_know_or_own_it_says() {
    let nodes = Nodes::new(&Made { prefetch: false, ..Made::new(400, 2, &[0, 1]) });
    let plan = within("begin", || nodes.begin(1, 0).unwrap());
    let view = nodes.shared.view.lock().unwrap().id();
    let own: Vec<u32> = nodes.engines[0].owned("job").unwrap();
    let slots = |owned: bool| {
        let of_rank = (0..plan.len()).filter(|slot| slot % 2 == 1);
        let slots = of_rank.filter(|&slot| own.binary_search(&plan.ids()[slot]).is_ok() == owned);
        slots.take(3).map(|slot| slot as u32).collect::<Vec<u32>>()
    };
    let wanted = Wanted { view, job: "job".into(), epoch: 0, plan: plan.digest(), slots: slots(true) };
    let kinds = |wanted: &Wanted| -> Vec<AnswerKind> {
        let short = Duration::from_millis(30);
        answers(&nodes, 0, wanted, short).into_iter().map(|(kind, _)| kind).collect()
    };
    use AnswerKind::{Given, Stale, Unknown, Yours};
    assert_eq!(kinds(&Wanted { view: view ^ 1, ..wanted.clone() }), [Stale; 3]);
    assert_eq!(kinds(&Wanted { plan: 7, ..wanted.clone() }), [Unknown; 3]);
    assert_eq!(kinds(&Wanted { epoch: 9, ..wanted.clone() }), [Unknown; 3], "no plan comes by the deadline");
    assert_eq!(kinds(&Wanted { job: "other".into(), ..wanted.clone() }), [Unknown; 3]);
    assert_eq!(kinds(&Wanted { slots: slots(false), ..wanted.clone() }), [Yours; 3]);
    assert_eq!(kinds(&Wanted { slots: vec![u32::MAX, 400], ..wanted.clone() }), [Yours; 2]);
    let given = answers(&nodes, 0, &wanted, Duration::from_secs(20));
    assert_eq!(given.len(), 3);
    for (slot, (kind, bytes)) in wanted.slots.iter().zip(&given) {
        let id = plan.ids()[*slot as usize];
        assert_eq!((*kind, bytes), (Given, &content(id.into(), nodes.opened[0].catalog.size(id) as usize)));
    }
    // Asked for once more, as after a connection that broke, they are given once more.
    let again = answers(&nodes, 0, &wanted, Duration::from_secs(20));
    assert_eq!(
        again.iter().map(|(_, bytes)| bytes).collect::<Vec<_>>(),
        given.iter().map(|(_, bytes)| bytes).collect::<Vec<_>>()
    );
    assert_eq!(nodes.counted(0, 0).served(), 3, "and count once");
}

#[test]
fn an_owner_that_has_no_plan_yet_waits_for_it() {
    let nodes = Nodes::new(&Made { locality: false, ..Made::new(400, 2, &[0]) });
    within("a plan that comes late", || {
        let plan = nodes.engines[0].begin_epoch("job", 0, (0, 1), 0, false).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| nodes.train(0, &plan, 0..400, 16));
            std::thread::sleep(Duration::from_millis(50));
            nodes.engines[1].plan_ahead("job", 0, plan.digest()).unwrap();
            nodes.engines[1].note_begun("job", 0, (0, 1), 0, false).unwrap();
        });
    });
    let clock = nodes.counted(0, 0).clock;
    assert_eq!((clock.node_failed, clock.recovery_reads), (0, 0));
    assert!(clock.node_reads > 150, "{clock:?}");
}

#[test]
fn a_plan_that_all_ranks_have_left_is_not_waited_for() {
    let nodes = Nodes::new(&Made::new(400, 2, &[0, 1]));
    within("a plan that is over", || {
        let first = nodes.epoch(0, 16);
        nodes.begin(0, 1).unwrap();
        let asked = |wait| nodes.engines[0].placed("job", 0, wait);
        assert!(asked(Duration::ZERO).is_ok(), "rank 1 may be in epoch 0 still");
        nodes.begin(1, 1).unwrap();
        // As a node asks that was away meanwhile, and hears now that there was a plan.
        let error = asked(Duration::from_secs(3600)).unwrap_err();
        assert!(error.message.contains("epoch 0 of job `job` is over"), "{error}");
        let began_over = nodes.begin(0, 0).unwrap();
        assert_eq!(began_over.ids(), first.ids());
        assert!(asked(Duration::ZERO).is_ok());
    });
}

#[test]
fn a_sample_that_storage_does_not_have_is_told_to_its_reader_alone() {
    let nodes = Nodes::new(&Made { locality: false, ..Made::new(400, 2, &[0]) });
    nodes.stores.iter().for_each(|store| store.vanished.lock().unwrap().push(7));
    let plan = nodes.begin(0, 0).unwrap();
    let at = plan.ids().iter().position(|&id| id == 7).unwrap();
    within("a sample that is gone", || {
        nodes.train(0, &plan, 0..at, 16);
        let reader = crate::common::Reader::new(&nodes.engines[0], &nodes.opened[0]);
        let index = hotset_core::Index { epoch: Some(0), sample: 7 }.into_raw();
        for _ in 0..2 {
            assert_eq!(reader.ask(&[index]).unwrap_err().sample, Some(7));
        }
        nodes.train(0, &plan, at + 1..400, 16);
    });
}
