//! What every registered strategy must keep, over numbers of ranks and samples that do not come out even.

mod restart;

use std::collections::BTreeSet;

use super::*;
use crate::Rng;
use crate::importance::{Report, cut};

const EPOCHS: u64 = 6;

/// Empty, single, primes, and one around each multiple of some world.
const SAMPLES: [usize; 12] = [0, 1, 2, 3, 7, 8, 9, 16, 31, 97, 120, 1_009];

/// A job that trains, reports a loss of every serving, and keeps what a resumed one would find.
struct Job {
    strategy: Box<dyn Strategy>,
    table: Table,
    carried: Vec<Id>,
    seed: u64,
    world: u32,
    pad: bool,
}

impl Job {
    fn new(entry: &Entry, samples: usize, seed: u64, world: u32, pad: bool) -> Self {
        let setup = Setup { capacity: samples as u64 / 5, epochs: Some(20), ..Setup::new(samples, seed) };
        Self::of(entry, setup, world, pad)
    }

    fn of(entry: &Entry, setup: Setup, world: u32, pad: bool) -> Self {
        let (table, seed) = (Table::new(setup.samples), setup.seed);
        let strategy = (entry.build)(setup);
        let pad = pad || strategy.pads();
        Self { strategy, table, carried: Vec::new(), seed, world, pad }
    }

    fn plan(&mut self, epoch: u64) -> Plan {
        let reevaluated: Vec<(Id, f32)> = match self.strategy.reevaluates(epoch) {
            Reevaluation::Nothing => Vec::new(),
            Reevaluation::Set(ids) => ids.iter().map(|&id| (id, loss(id, epoch))).collect(),
            Reevaluation::All => (0..self.table.len() as Id).map(|id| (id, loss(id, epoch))).collect(),
        };
        let order = uniform::shuffled(self.table.len() as Id, self.seed, epoch, &[]);
        let drawn = self.strategy.draw(&Draw {
            epoch,
            world: self.world,
            order: Some(&order),
            carried: Some(&self.carried),
            importance: Some(&self.table),
            reevaluated: Some(&reevaluated),
            accuracy: (epoch > 0).then(|| loss(2, epoch).into()),
            // Storage that is slow at times and at others fast enough for full passes.
            rates: Some(Rates { storage: loss(3, epoch).into(), training: 3.0 }),
            ..Draw::default()
        });
        let plan = Plan::cut(epoch, self.world, self.pad, drawn);
        self.carried = plan.left_out().to_vec();
        self.table.planned(epoch as u32);
        while self.table.settle() {}
        plan
    }

    /// Trains these of a plan's slots, all ranks in step.
    fn train(&mut self, plan: &Plan, slots: std::ops::Range<usize>) {
        for (step, &id) in plan.ids().iter().enumerate().take(slots.end).skip(slots.start) {
            let late = step / self.world as usize >= cut(plan.rank_len());
            let (epoch, step) = (plan.epoch() as u32, step as u32);
            self.table.apply(&[Report {
                id,
                value: loss(id, plan.epoch()),
                loss: loss(id, plan.epoch()),
                epoch,
                step,
                late,
            }]);
        }
    }

    fn epoch(&mut self, epoch: u64) -> Plan {
        let plan = self.plan(epoch);
        self.train(&plan, 0..plan.len());
        self.strategy.close(epoch, &self.table);
        plan
    }
}

/// Some samples are always hard, some change from epoch to epoch, and some losses are equal or none.
fn loss(id: Id, epoch: u64) -> f32 {
    match id % 8 {
        0 => 1.0,
        1 => f32::NAN,
        2 | 3 => Rng::new(u64::from(id), epoch, "loss").unit() as f32 * 4.0,
        _ => (id % 31) as f32 / 10.0,
    }
}

/// The plans of a job from its first epoch on, each told what the one before left out.
fn plans(entry: &Entry, samples: usize, seed: u64, world: u32, pad: bool) -> Vec<Plan> {
    let mut job = Job::new(entry, samples, seed, world, pad);
    (0..EPOCHS).map(|epoch| job.epoch(epoch)).collect()
}

/// Calls `check` with every strategy, number of samples, world and padding.
fn everywhere(check: impl Fn(&Entry, usize, u32, bool)) {
    for entry in REGISTRY {
        for samples in SAMPLES {
            for world in 1..=8 {
                check(entry, samples, world, false);
                check(entry, samples, world, true);
            }
        }
    }
}

fn distinct(ids: &[Id]) -> BTreeSet<Id> {
    ids.iter().copied().collect()
}

#[test]
fn ranks_are_of_equal_length_and_together_the_plan() {
    everywhere(|entry, samples, world, pad| {
        for plan in plans(entry, samples, 1, world, pad) {
            let mut merged = vec![None; plan.len()];
            for rank in 0..world {
                assert_eq!(plan.rank_ids(rank).len(), plan.rank_len());
                for (position, id) in plan.rank_ids(rank).enumerate() {
                    assert_eq!(merged[plan.slot(rank, position)].replace(id), None, "two ranks share a slot");
                }
            }
            assert_eq!(merged.into_iter().collect::<Option<Vec<_>>>().as_deref(), Some(plan.ids()));
            assert!(plan.left_out().len() < world as usize && plan.padded() < world as usize);
            let pads = pad || (entry.build)(Setup::new(samples, 1)).pads();
            assert!(if pads { plan.left_out().is_empty() } else { plan.padded() == 0 });
        }
    });
}

#[test]
fn ids_are_of_the_catalog_and_no_sample_comes_twice_unless_the_strategy_repeats() {
    everywhere(|entry, samples, world, pad| {
        let repeats = (entry.build)(Setup::new(samples, 2)).repeats();
        for plan in plans(entry, samples, 2, world, pad) {
            let drawn = &plan.ids()[..plan.len() - plan.padded()];
            assert!(drawn.iter().chain(plan.left_out()).all(|&id| (id as usize) < samples));
            if !repeats {
                let all = [drawn, plan.left_out()].concat();
                assert_eq!(distinct(&all).len(), all.len());
            }
        }
    });
}

#[test]
fn the_same_seed_gives_the_same_plans_and_another_seed_others() {
    everywhere(|entry, samples, world, pad| {
        assert_eq!(plans(entry, samples, 3, world, pad), plans(entry, samples, 3, world, pad));
        if samples > 90 && (entry.build)(Setup::new(samples, 3)).shuffles() {
            assert_ne!(plans(entry, samples, 3, world, pad)[0], plans(entry, samples, 4, world, pad)[0]);
        }
    });
}

#[test]
fn epochs_differ_in_their_order() {
    let shuffles = |entry: &&Entry| (entry.build)(Setup::new(97, 5)).shuffles();
    for entry in REGISTRY.iter().filter(shuffles) {
        let plans = plans(entry, 97, 5, 1, false);
        assert!(plans.windows(2).all(|pair| pair[0].ids() != pair[1].ids()));
    }
}

/// Of strategies that serve every sample; one that selects states its own promise.
#[test]
fn every_id_is_served_within_two_epochs() {
    everywhere(|entry, samples, world, pad| {
        let strategy = (entry.build)(Setup::new(samples, 6));
        if !strategy.is_whole() {
            return;
        }
        // Without padding too few samples for one slot a rank are never served.
        if samples < world as usize && !pad && !strategy.pads() {
            return;
        }
        for pair in plans(entry, samples, 6, world, pad).windows(2) {
            let served = distinct(&[pair[0].ids(), pair[1].ids()].concat());
            assert_eq!(served.len(), samples);
        }
    });
}

#[test]
fn what_was_left_out_comes_first_in_the_next_plan() {
    everywhere(|entry, samples, world, pad| {
        // An order that is given says by itself what comes first.
        if entry.takes_order() {
            return;
        }
        let repeats = (entry.build)(Setup::new(samples, 7)).repeats();
        for pair in plans(entry, samples, 7, world, pad).windows(2) {
            let carried = pair[0].left_out();
            let next = [pair[1].ids(), pair[1].left_out()].concat();
            let first = &next[..carried.len()];
            if repeats {
                // Drawn twice and left out twice, it is owed once.
                assert!(carried.iter().all(|id| first.contains(id)), "{}", entry.name);
            } else {
                assert_eq!(first, carried, "{}", entry.name);
            }
        }
    });
}

#[test]
fn a_run_that_resumes_goes_on_as_if_never_interrupted() {
    everywhere(|entry, samples, world, pad| {
        let uninterrupted = plans(entry, samples, 8, world, pad);
        let mut job = Job::new(entry, samples, 8, world, pad);
        for epoch in 0..EPOCHS {
            // Killed in the middle of an epoch: what was saved when it began, and what was reported since.
            let mut resumed = Job::new(entry, samples, 8, world, pad);
            resumed.strategy.restore(&job.strategy.save()).unwrap();
            (resumed.table, resumed.carried) = (job.table.clone(), job.carried.clone());
            let plan = job.epoch(epoch);
            let again = resumed.plan(epoch);
            assert_eq!(again, plan);
            assert_eq!(plan, uninterrupted[epoch as usize]);
        }
    });
}

/// Of strategies that plan from the seed alone.
#[test]
fn an_epoch_can_be_drawn_without_those_before() {
    everywhere(|entry, samples, world, pad| {
        if !(entry.build)(Setup::new(samples, 8)).follows_seed() {
            return;
        }
        for (epoch, whole) in (0..).zip(plans(entry, samples, 8, world, pad)) {
            let mut fresh = (entry.build)(Setup::new(samples, 8));
            let carried = pad.then_some(&[][..]);
            let drawn = fresh.draw(&Draw { epoch, world, carried, ..Draw::default() });
            assert_eq!(Plan::cut(epoch, world, pad, drawn), whole);
        }
    });
}

#[test]
fn a_saved_state_of_something_else_is_refused() {
    for entry in REGISTRY {
        let refused = (entry.build)(Setup::new(50, 0)).restore(&[7; 3]);
        assert!(refused.is_err_and(|error| error.message.contains("saved state")), "{}", entry.name);
    }
}

#[test]
fn what_comes_after_an_epoch_is_waited_for() {
    for entry in REGISTRY {
        let mut job = Job::new(entry, 97, 0, 1, false);
        let facts = Facts::of(&*job.strategy);
        assert!(!facts.reevaluates || job.strategy.waits_for_trainer(), "{}", entry.name);
        assert!(!facts.takes_irreducible || facts.reevaluates, "{}", entry.name);
        for epoch in 0..EPOCHS {
            job.epoch(epoch);
            let asked = job.strategy.reevaluates(epoch + 1);
            assert!(facts.reevaluates || asked == Reevaluation::Nothing, "{}", entry.name);
        }
    }
}

/// A job with a loss of every sample, drawn from the same seed once with and once without an accuracy.
#[test]
fn a_strategy_that_does_not_wait_for_its_trainer_draws_the_same_whatever_the_trainer_says() {
    for entry in REGISTRY {
        let drawn = |accuracy: Option<f64>| {
            let mut strategy = (entry.build)(Setup { capacity: 40, ..Setup::new(97, 1) });
            let mut table = Table::new(97);
            let ids = (0..EPOCHS).map(|epoch| {
                let report = |id| Report {
                    id,
                    value: 1.0 + id as f32,
                    loss: 1.0,
                    epoch: epoch as u32,
                    step: id,
                    late: false,
                };
                table.apply(&(0..97).map(report).collect::<Vec<_>>());
                let draw = Draw { epoch, world: 1, importance: Some(&table), accuracy, ..Draw::default() };
                strategy.draw(&draw).ids
            });
            ids.collect::<Vec<_>>()
        };
        if !(entry.build)(Setup::new(97, 1)).waits_for_trainer() {
            assert_eq!(drawn(None), drawn(Some(0.5)), "{}", entry.name);
        }
    }
}

/// A sampler tells its length before the first plan is made.
#[test]
fn the_first_epoch_is_of_every_sample() {
    everywhere(|entry, samples, world, pad| {
        let first = Job::new(entry, samples, 9, world, pad).plan(0);
        let drawn = [&first.ids()[..first.len() - first.padded()], first.left_out()].concat();
        assert_eq!((drawn.len(), distinct(&drawn).len()), (samples, samples), "{}", entry.name);
    });
}

#[test]
fn epochs_are_as_long_as_strategies_say_beforehand() {
    everywhere(|entry, samples, world, pad| {
        let example = entry.example([], Some(20)).unwrap();
        let selected = example.selected(samples);
        for (epoch, plan) in (0..).zip(plans(entry, samples, 9, world, pad)) {
            let drawn = plan.len() - plan.padded() + plan.left_out().len();
            if example.is_whole() {
                assert_eq!(drawn, samples, "{}", entry.name);
            }
            assert!(drawn <= samples, "{}", entry.name);
            // What was carried over is drawn beside what is selected; ids without a loss are selected always.
            let unknown = (0..samples as Id).filter(|&id| loss(id, epoch).is_nan()).count();
            let most = if example.may_be_full(epoch) { samples } else { selected + unknown + world as usize };
            assert!(drawn <= most, "{} epoch {epoch}: {drawn} of {most}", entry.name);
        }
    });
}

#[test]
fn as_many_are_selected_as_was_said_where_every_loss_is_known() {
    for (entry, fraction) in REGISTRY.iter().flat_map(|entry| [0.2, 0.7, 1.0].map(|share| (entry, share))) {
        if entry.parameters.iter().all(|parameter| parameter.name != "fraction") {
            continue;
        }
        let given = fraction.to_string();
        let values = entry.values([("fraction", given.as_str())]).unwrap();
        let mut strategy = (entry.build)(Setup { values, ..Setup::new(1_009, 3) });
        let mut table = Table::new(1_009);
        let all = |id| Report { id, value: id as f32, loss: id as f32, epoch: 0, step: 0, late: false };
        table.apply(&(0..1_009).map(all).collect::<Vec<_>>());
        let draw = Draw { epoch: 2, world: 1, importance: Some(&table), ..Draw::default() };
        let drawn = strategy.draw(&draw).ids.len();
        if strategy.may_be_full(2) {
            assert_eq!(strategy.selected(1_009), 1_009, "{}", entry.name);
        } else {
            assert_eq!(drawn, strategy.selected(1_009), "{} {fraction}", entry.name);
        }
    }
}

#[test]
fn the_last_epochs_are_uniform_where_that_is_asked() {
    for entry in REGISTRY.iter().filter(|entry| entry.parameters.iter().any(|p| p.name == "full_last")) {
        let values = entry.values([("full_last", "0.5")]).unwrap();
        let mut strategy = (entry.build)(Setup { epochs: Some(8), values, ..Setup::new(40, 0) });
        let mut table = Table::new(40);
        let all = |id| Report { id, value: id as f32, loss: id as f32, epoch: 0, step: 0, late: false };
        table.apply(&(0..40).map(all).collect::<Vec<_>>());
        for epoch in 4..8 {
            let drawn = strategy.draw(&Draw { epoch, world: 1, importance: Some(&table), ..Draw::default() });
            assert_eq!(distinct(&drawn.ids).len(), 40, "{}", entry.name);
            assert!(drawn.ids.len() == 40 && drawn.weights.iter().all(|weight| *weight == 1.0));
        }
    }
}
