//! Ranks that begin over, go back or move, and news of it that comes late.

use super::nodes::{Made, Nodes};
use crate::common::within;

#[test]
fn news_of_a_plan_that_comes_late_drops_nothing() {
    let made = Made { locality: false, ..Made::new(800, 2, &[0, 1]) };
    let nodes = Nodes::new(&made);
    within("late news", || {
        let plan = nodes.begin(0, 0).unwrap();
        nodes.begin(1, 0).unwrap();
        nodes.train_all(&plan, &[0..200, 0..200], 16);
        nodes.engines[1].plan_ahead("job", 0, plan.digest() ^ 1).unwrap();
        nodes.train_all(&plan, &[200..400, 200..400], 16);
    });
    let sum = nodes.sum(0);
    assert_eq!((sum.served(), sum.clock.abandoned, sum.clock.recovery_reads), (800, 0, 0));
}

#[test]
fn what_is_asked_for_before_it_is_known_that_its_rank_begins_over_is_given_and_counts_once() {
    let made = Made { locality: false, ..Made::new(400, 2, &[0]) };
    let nodes = Nodes::new(&made);
    within("begun over", || {
        let plan = nodes.begin(0, 0).unwrap();
        nodes.train(0, &plan, 0..96, 16);
        nodes.engines[0].begin_epoch("job", 0, (0, 1), 0, false).unwrap();
        nodes.train(0, &plan, 0..200, 16);
        nodes.engines[1].note_begun("job", 0, (0, 1), 0, false).unwrap();
        nodes.train(0, &plan, 200..400, 16);
        let asker = nodes.counted(0, 0).clock;
        assert_eq!((asker.node_failed, asker.abandoned), (0, 0));
        assert_eq!((nodes.sum(0).served(), nodes.counted(1, 0).clock.abandoned), (400, 0));
    });
}

#[test]
fn what_is_given_before_it_is_known_that_training_has_gone_back_stays_in_its_epoch() {
    let made = Made { locality: false, prefetch: false, ..Made::new(400, 2, &[0]) };
    let nodes = Nodes::new(&made);
    within("gone back", || {
        (0..2).for_each(|epoch| drop(nodes.epoch(epoch, 16)));
        let plan = nodes.engines[0].begin_epoch("job", 0, (0, 1), 0, false).unwrap();
        nodes.engines[1].plan_ahead("job", 0, plan.digest()).unwrap();
        nodes.train(0, &plan, 0..200, 16);
        nodes.engines[1].note_begun("job", 0, (0, 1), 0, false).unwrap();
        nodes.train(0, &plan, 200..400, 16);
        let sum = nodes.sum(0);
        assert_eq!((sum.plan.planned, sum.served(), sum.clock.node_failed), (400, 400, 0));
        assert_eq!((0..2).map(|node| nodes.stats(node).total.served()).sum::<u64>(), 1_200);
    });
}

#[test]
fn hits_of_other_nodes_are_never_more_than_hits_wherever_a_rank_moves() {
    let made = Made { locality: false, cache: "50%", ..Made::new(800, 2, &[0, 1]) };
    let nodes = Nodes::new(&made);
    let check = |what: &str| {
        for node in 0..2 {
            let plan = nodes.counted(node, 1).plan;
            assert!(plan.hit_peer <= plan.hit, "{what}: node {node}: {} of {}", plan.hit_peer, plan.hit);
        }
    };
    within("a rank that moves", || {
        nodes.epoch(0, 16);
        let plan = nodes.begin(0, 1).unwrap();
        nodes.begin(1, 1).unwrap();
        nodes.train_all(&plan, &[0..16, 0..320], 16);
        assert!(nodes.counted(0, 1).plan.hit_peer > 100);
        for (ranks, from) in [([0, 0], 0), ([1, 1], 64), ([0, 1], 0)] {
            *nodes.shared.ranks.lock().unwrap() = ranks.to_vec();
            (0..2).for_each(|rank| drop(nodes.begin_at(rank, 1, from).unwrap()));
            check("begun over");
            let from = from as usize;
            nodes.train_all(&plan, &[from..200, from..330], 16);
            check("trained");
        }
        nodes.train_all(&plan, &[200..400, 330..400], 16);
        nodes.epoch(2, 16);
        check("over");
        let sum = nodes.sum(1);
        assert!(sum.served() + sum.clock.abandoned >= 800, "{} and {}", sum.served(), sum.clock.abandoned);
        assert!(sum.served() <= 800, "{}", sum.served());
    });
}
