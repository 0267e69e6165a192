//! Epochs of one length, planned by every strategy.

use std::collections::BTreeSet;

use super::*;
use crate::packages::runs;
use crate::sampling::Equal;
use crate::{Rng, sampling};

const SAMPLES: usize = 100;

fn config(strategy: &'static sampling::Entry, length: &str) -> Config {
    Config {
        strategy,
        strategy_values: strategy.values([("epoch_length", length)]).unwrap(),
        policy: policy::find(strategy.policy).unwrap(),
        policy_values: Values::default(),
        sizes: Arc::new(Equal { samples: SAMPLES, size: 10 }),
        capacity: 300,
        seed: 3,
        epochs: None,
        world: 1,
        pad: false,
        packages: None,
    }
}

fn loss(id: Id, epoch: u64) -> f32 {
    Rng::new(u64::from(id), epoch, "loss").unit() as f32
}

/// Plans one epoch and reports it, all of it before the cut.
fn step(planner: &mut Planner, epoch: u64, world: u32) -> Arc<Plan> {
    if epoch > 0 {
        planner.close(epoch - 1);
    }
    let reevaluated: Vec<(Id, f32)> = match planner.reevaluation(epoch) {
        Reevaluation::Nothing => Vec::new(),
        Reevaluation::Set(ids) => ids.iter().map(|&id| (id, loss(id, epoch))).collect(),
        Reevaluation::All => (0..SAMPLES as Id).map(|id| (id, loss(id, epoch))).collect(),
    };
    let residents = Residents::default();
    let view =
        CacheView { residents: planner.looks_at_residents().then_some(residents), ..CacheView::default() };
    let inputs = Inputs { reevaluated: Some(&reevaluated), ..Inputs::default() };
    let plan = planner.plan(epoch, world, &inputs, &view).plan;
    let losses: Vec<f32> = plan.ids().iter().map(|&id| loss(id, epoch)).collect();
    let reported = reports((epoch, usize::MAX, 0), plan.ids(), &losses, &losses);
    let mut done = 0;
    while done < reported.len() {
        done += planner.report(&reported[done..]);
    }
    plan
}

#[test]
fn every_epoch_of_every_strategy_has_the_length_that_was_asked_for() {
    for entry in sampling::drawing() {
        for (length, world, expected) in [("auto", 1, 100), ("auto", 3, 33), ("17", 2, 17), ("230", 1, 230)] {
            let mut planner = Planner::new(config(entry, length), false);
            for epoch in 0..6 {
                let plan = step(&mut planner, epoch, world);
                let lengths = (plan.rank_len(), plan.left_out().len(), plan.padded());
                assert_eq!(lengths, (expected, 0, 0), "{} {length}, epoch {epoch}", entry.name);
            }
        }
    }
}

#[test]
fn draws_follow_one_another_over_the_edges_of_epochs() {
    let mut planner = Planner::new(config(sampling::find("iis").unwrap(), "auto"), false);
    let stream: Vec<Id> = (0..15).flat_map(|epoch| step(&mut planner, epoch, 1).ids().to_vec()).collect();
    let distinct = |ids: &[Id]| ids.iter().collect::<BTreeSet<_>>().len();
    assert_eq!(distinct(&stream[..100]), 100, "the first draw is full");
    let mut sets = BTreeSet::new();
    for draw in stream[100..].chunks_exact(70) {
        assert_eq!(distinct(draw), 70, "no sample twice in a draw");
        let mut ids = draw.to_vec();
        ids.sort_unstable();
        assert!(sets.insert(ids), "two draws of an epoch are not the same one");
    }
    assert_eq!(sets.len(), 20);
}

#[test]
fn what_is_left_is_saved_and_a_restored_planner_goes_on_the_same() {
    for entry in sampling::drawing() {
        let mut whole = Planner::new(config(entry, "60"), false);
        let mut first = Planner::new(config(entry, "60"), false);
        for epoch in 0..4 {
            step(&mut whole, epoch, 1);
            step(&mut first, epoch, 1);
        }
        let mut second = Planner::new(config(entry, "60"), false);
        second.restore(&first.save(), &[]).unwrap();
        for epoch in 4..8 {
            let (expected, plan) = (step(&mut whole, epoch, 1), step(&mut second, epoch, 1));
            assert_eq!(expected.ids(), plan.ids(), "{}, epoch {epoch}", entry.name);
        }
        let mut damaged = first.save();
        if !damaged.rest.is_empty() {
            damaged.rest.truncate(damaged.rest.len() / 2);
            assert!(Planner::new(config(entry, "60"), false).restore(&damaged, &[]).is_err());
        }
    }
}

#[test]
fn a_plan_that_is_made_once_more_is_the_same() {
    let mut planner = Planner::new(config(sampling::find("uniform").unwrap(), "60"), false);
    let first: Vec<Arc<Plan>> = (0..3).map(|epoch| step(&mut planner, epoch, 1)).collect();
    assert_eq!(step(&mut planner, 2, 1).ids(), first[2].ids());
}

#[test]
fn uniform_needs_its_seed_alone_wherever_it_goes_on() {
    for length in ["auto", "17", "60", "230"] {
        let entry = sampling::find("uniform").unwrap();
        let mut planner = Planner::new(config(entry, length), false);
        for epoch in 0..8 {
            let plan = step(&mut planner, epoch, 3);
            let mut elsewhere = Planner::new(config(entry, length), false);
            assert_eq!(step(&mut elsewhere, epoch, 3).ids(), plan.ids(), "{length}, epoch {epoch}");
        }
    }
}

#[test]
fn so_few_that_none_is_selected_still_fill_an_epoch() {
    let entry = sampling::find("iis").unwrap();
    let values = entry.values([("epoch_length", "5"), ("fraction", "0.1")]).unwrap();
    let sizes = Arc::new(Equal { samples: 1, size: 10 });
    let mut planner = Planner::new(Config { strategy_values: values, sizes, ..config(entry, "5") }, false);
    for epoch in 0..3 {
        let plan = planner.plan(epoch, 1, &Inputs::default(), &CacheView::default()).plan;
        assert_eq!(plan.ids(), [0; 5]);
        planner.report(&reports((epoch, usize::MAX, 0), &[0], &[1.0], &[1.0]));
        planner.close(epoch);
    }
}

#[test]
fn packages_serve_epochs_of_one_length_too() {
    let entry = sampling::find("iis").unwrap();
    let sizes = Arc::new(Equal { samples: SAMPLES, size: 10 });
    let given = runs(&*sizes, 40, |_| Some(0));
    let packages = Some(Origin::Given(Arc::new(given)));
    let mut run = Run::new(Config { packages, capacity: 600, ..config(entry, "auto") }).unwrap();
    assert!(run.packs());
    for epoch in 0..6 {
        if epoch > 0 {
            run.close(epoch - 1);
        }
        let plan = run.begin(epoch, &Inputs::default());
        let mut ids = Vec::new();
        while let Some(decided) = run.decide() {
            ids.push(decided.id);
        }
        assert_eq!(ids, plan.ids());
        let counters = run.counters();
        assert_eq!((plan.rank_len(), counters.served()), (SAMPLES, SAMPLES as u64));
        assert!(epoch == 0 || counters.plan.packed > 0, "epoch {epoch}: {counters:?}");
        let losses: Vec<f32> = ids.iter().map(|&id| loss(id, 0)).collect();
        run.report(epoch, plan.rank_len(), 0, &ids, &losses);
    }
}
