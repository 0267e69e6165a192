//! What other nodes ask for and do not fetch, or never ask for, does not hold this one up.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hotset_core::cluster::{AnswerKind, Node, View, Wanted};

use super::failures::answers;
use super::nodes::{Made, Manner, Nodes, name, view};
use crate::common::training::settles;
use crate::common::within;

#[test]
fn what_was_not_given_in_time_is_left_and_holds_no_memory() {
    let made = Made { locality: false, wait: Duration::from_millis(200), ..Made::new(1_200, 2, &[0]) };
    let nodes = Nodes::new(&made);
    nodes.stores[1].hold();
    within("storage that hangs", || {
        let plan = nodes.begin(0, 0).unwrap();
        nodes.train(0, &plan, 0..600, 16);
        let failed = nodes.counted(0, 0).clock.node_failed;
        assert!(failed > 200, "{failed}");
        settles("what was not given is left", || nodes.counted(1, 0).clock.abandoned >= failed);
        nodes.stores[1].let_go();
        nodes.train(0, &plan, 600..1_200, 16);
        let clock = nodes.counted(0, 0).clock;
        assert!(clock.node_reads > 100, "it gives again: {clock:?}");
        let all = nodes.counted(1, 0);
        assert_eq!(all.clock.abandoned, clock.node_failed, "and leaves nothing else");
        assert_eq!(nodes.sum(0).served() + all.clock.abandoned, 1_200, "each slot counts once");
    });
}

#[test]
fn ranks_whose_node_never_asks_do_not_end_the_prefetch_of_others() {
    let made = Made { locality: false, cache: "10%", ..Made::new(12_000, 2, &[0, 1]) };
    let nodes = Nodes::new(&made);
    // Node 1 does not reach node 0, and trains on from storage.
    nodes.set(0, Manner::Dead);
    within("a node that never asks", || {
        let plan = nodes.begin(0, 0).unwrap();
        nodes.begin(1, 0).unwrap();
        nodes.train_all(&plan, &[0..4_000, 0..4_000], 16);
        assert!(nodes.counted(1, 0).clock.node_failed > 1_000);
        settles("reads end", || nodes.engines[0].stats().reads_in_flight == 0);
        // What comes next is there.
        let before = nodes.stores[0].reads.load(Ordering::SeqCst);
        nodes.stores[0].hold();
        nodes.train(0, &plan, 4_000..4_016, 16);
        assert_eq!(nodes.stores[0].reads.load(Ordering::SeqCst), before);
        nodes.stores[0].let_go();
        nodes.train_all(&plan, &[4_016..6_000, 4_000..6_000], 16);
        assert_eq!(nodes.counted(0, 0).clock.recovery_reads, nodes.counted(0, 0).clock.node_failed);
    });
}

#[test]
fn a_node_that_restarts_in_the_middle_of_an_epoch_reads_nothing_that_was_served_before() {
    let made = Made { locality: false, ..Made::new(8_000, 2, &[0, 1]) };
    let mut nodes = Nodes::new(&made);
    within("a restart", || {
        let plan = nodes.begin(0, 0).unwrap();
        nodes.begin(1, 0).unwrap();
        nodes.train_all(&plan, &[0..3_200, 0..3_200], 16);
        settles("reads end", || nodes.engines[1].stats().reads_in_flight == 0);
        let before = nodes.stores[1].reads.load(Ordering::SeqCst);
        let engine = made.engine(&nodes.shared, 1);
        let session = engine.attach();
        engine.open_dataset(session, &nodes.opened[1]);
        engine.open_job_as(session, nodes.request.clone(), None, made.role(1)).unwrap();
        nodes.replace(1, engine, session);
        nodes.engines[1].plan_ahead("job", 0, plan.digest()).unwrap();
        // A rank of the other node asks before this one has heard of any.
        nodes.train(0, &plan, 3_200..3_600, 16);
        nodes.engines[1].note_begun("job", 0, (0, 2), 3_600, false).unwrap();
        nodes.engines[1].begin_epoch("job", 0, (1, 2), 3_200, false).unwrap();
        nodes.train_all(&plan, &[3_600..4_000, 3_200..4_000], 16);
        settles("reads end", || nodes.engines[1].stats().reads_in_flight == 0);
        let read = nodes.stores[1].reads.load(Ordering::SeqCst) - before;
        // Half of what is left of the epoch, of both ranks, and a little before it.
        assert!(read < 1_300, "{read} are read of 800 that are to be");
    });
}

#[test]
fn slots_of_ranks_that_are_here_and_slots_far_ahead_of_all_are_not_given() {
    let nodes = Nodes::new(&Made { locality: false, ..Made::new(12_000, 2, &[0, 1]) });
    let plan = within("begin", || {
        let plan = nodes.begin(0, 0).unwrap();
        nodes.begin(1, 0).unwrap();
        nodes.train_all(&plan, &[0..160, 0..160], 16);
        plan
    });
    let own = nodes.engines[0].owned("job").unwrap();
    let after = |from: usize, rank: usize| {
        let mut slots = (from..plan.len()).filter(|slot| slot % 2 == rank);
        slots.find(|&slot| own.binary_search(&plan.ids()[slot]).is_ok()).unwrap() as u32
    };
    let view = nodes.shared.view.lock().unwrap().id();
    let slots = vec![after(500, 0), after(11_000, 1), after(11_000, 0), after(600, 1)];
    let wanted = Wanted { view, job: "job".into(), epoch: 0, plan: plan.digest(), slots };
    use AnswerKind::{Given, Yours};
    let kinds: Vec<AnswerKind> =
        answers(&nodes, 0, &wanted, Duration::from_secs(20)).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [Yours, Yours, Yours, Given]);
    within("what is left", || nodes.train_all(&plan, &[160..6_000, 160..6_000], 16));
    let sum = nodes.sum(0);
    assert_eq!((sum.served(), sum.clock.abandoned, sum.clock.node_failed), (12_000, 0, 0));
}

#[test]
fn questions_that_come_out_of_order_are_all_given() {
    let nodes = Nodes::new(&Made { locality: false, ..Made::new(12_000, 2, &[0, 1]) });
    let plan = within("begin", || {
        nodes.begin(1, 0).unwrap();
        nodes.begin(0, 0).unwrap()
    });
    let own = nodes.engines[0].owned("job").unwrap();
    let view = nodes.shared.view.lock().unwrap().id();
    // As far apart as two questions of a node that asks ahead may be, where no batch has been taken yet.
    for from in [8_000, 20] {
        let owned =
            (from..from + 400).filter(|&slot| slot % 2 == 1 && own.binary_search(&plan.ids()[slot]).is_ok());
        let slots: Vec<u32> = owned.map(|slot| slot as u32).collect();
        assert!(slots.len() > 50);
        let wanted = Wanted { view, job: "job".into(), epoch: 0, plan: plan.digest(), slots };
        let answers = answers(&nodes, 0, &wanted, Duration::from_secs(20));
        assert!(answers.iter().all(|(kind, _)| *kind == AnswerKind::Given), "those from {from}");
    }
    within("the epoch", || nodes.train_all(&plan, &[0..6_000, 0..6_000], 16));
    let sum = nodes.sum(0);
    assert_eq!((sum.served(), sum.clock.abandoned, sum.clock.node_failed), (12_000, 0, 0));
}

#[test]
fn a_question_is_no_larger_than_can_come_at_once() {
    let nodes = Nodes::new(&Made { locality: false, cache: "100%", ..Made::new(9_600, 2, &[0; 32]) });
    // The node with all the ranks owns nothing.
    let both = view(0..2, 1);
    let first = |node: &Node| Node { draining: node.name == name(0), ..node.clone() };
    *nodes.shared.view.lock().unwrap() = Arc::new(View::new(both.nodes().iter().map(first)));
    within("many ranks", || (0..32).for_each(|rank| drop(nodes.begin(rank, 0).unwrap())));
    settles("all that ranks want soon is asked for", || nodes.shared.asked.load(Ordering::SeqCst) > 8_000);
    let most = nodes.shared.most_slots.load(Ordering::SeqCst);
    assert!((1..=4_096).contains(&most), "{most} slots at once");
}
