//! Nodes that each decide what they own, beside one cache that decides all.

use std::sync::Arc;

use proptest::prelude::*;

use super::{Change, JobRun, Outcome};
use crate::cache::Cache;
use crate::cluster::{Directory, Found, Node, Ownership, Placement, View};
use crate::counters::PlanCounters;
use crate::policy::{self, Setup};
use crate::sampling::{Drawn, Event, Plan};
use crate::schedule::Schedule;
use crate::tally::Tally;
use crate::{Id, Rng};

const SAMPLES: usize = 120;

fn placement(nodes: usize) -> Arc<Placement> {
    let node = |at: usize| Node {
        name: format!("node-{at}"),
        address: String::new(),
        capacity: 1 << 20,
        rack: None,
        draining: false,
        revision: 1,
    };
    Arc::new(Placement::new(&View::new((0..nodes).map(node))))
}

fn sizes() -> Arc<Vec<u64>> {
    Arc::new((0..SAMPLES as u64).map(|id| 1 + id % 7).collect())
}

fn plans(seed: u64, repeats: bool) -> Vec<Arc<Plan>> {
    let plan = |epoch| {
        let mut rng = Rng::new(seed, epoch, "plans");
        let mut ids: Vec<Id> = (0..SAMPLES as Id).collect();
        rng.shuffle(&mut ids);
        if repeats {
            ids = (0..150).map(|_| rng.below(SAMPLES as u64) as Id).collect();
        }
        Arc::new(Plan::cut(epoch, 2, false, ids))
    };
    (0..4).map(plan).collect()
}

/// Decides and serves all of `plans` on one node: what each slot cost, and what was counted.
fn carry_out(
    policy: &str,
    capacity: u64,
    plans: &[Arc<Plan>],
    ownership: Option<&Ownership>,
) -> (Vec<Vec<Outcome>>, Tally) {
    let setup = Setup::new(capacity, sizes(), 3);
    let mut cache = Cache::new((policy::find(policy).unwrap().build)(setup), SAMPLES);
    let mut run = JobRun::new(sizes());
    run.join(&mut cache);
    let mut all = Vec::new();
    for plan in plans {
        let schedule = Schedule::new(Arc::clone(plan), SAMPLES);
        run.put(match ownership {
            Some(ownership) => schedule.with_ownership(Arc::new(ownership.clone())),
            None => schedule,
        });
        run.enter(plan.epoch());
        let mut changes = Vec::new();
        while run.next_block().is_some() {
            run.step(&mut cache, &mut changes);
        }
        let outcome = |change: &Change| match *change {
            Change::Decided { outcome, .. } => Some(outcome),
            _ => None,
        };
        run.serve(plan.epoch(), 0..plan.len());
        all.push(changes.iter().filter_map(outcome).collect());
        run.remove(plan.epoch());
        if let Some(ownership) = ownership {
            let mut kept = cache.kept(0..SAMPLES as u64);
            assert!(kept.all(|id| ownership.owns(id)), "a node keeps only what it owns");
        }
    }
    (all, std::mem::replace(run.tally_mut(), Tally::new(sizes())))
}

fn sum<'a>(tallies: impl IntoIterator<Item = &'a Tally>) -> PlanCounters {
    let mut sum = PlanCounters::default();
    tallies.into_iter().for_each(|tally| sum.add(&tally.total().plan));
    sum
}

proptest! {
    #[test]
    fn a_node_decides_its_slots_as_a_cache_does_that_is_asked_about_nothing_else(
        nodes in 1usize..5, capacity in 0u64..400, seed: u64, repeats: bool
    ) {
        let (placement, plans) = (placement(nodes), plans(seed, repeats));
        for name in ["lru", "lfu", "random", "minio"] {
            for node in 0..nodes {
                let ownership = Ownership::new(Arc::clone(&placement), seed, Some(node));
                let (decided, tally) = carry_out(name, capacity, &plans, Some(&ownership));
                let own = |plan: &Arc<Plan>| {
                    let ids = plan.ids().iter().copied().filter(|&id| ownership.owns(id));
                    Arc::new(Plan::cut(plan.epoch(), 1, false, Vec::from_iter(ids)))
                };
                let alone: Vec<Arc<Plan>> = plans.iter().map(own).collect();
                let (expected, counted) = carry_out(name, capacity, &alone, None);
                let owned = decided.into_iter().map(|epoch| {
                    epoch.into_iter().filter(|outcome| *outcome != Outcome::Elsewhere).collect::<Vec<_>>()
                });
                prop_assert_eq!(owned.collect::<Vec<_>>(), expected, "{} on node {}", name, node);
                prop_assert_eq!(tally.save(), counted.save());
            }
        }
    }

    #[test]
    fn every_slot_is_decided_by_one_node_and_counted_once(
        nodes in 1usize..5, seed: u64, repeats: bool
    ) {
        let (placement, plans) = (placement(nodes), plans(seed, repeats));
        let each: Vec<_> = (0..nodes)
            .map(|node| carry_out("minio", 1 << 20, &plans, Some(&Ownership::new(Arc::clone(&placement), 1, Some(node)))))
            .collect();
        let (expected, one) = carry_out("minio", 1 << 20, &plans, None);
        for (epoch, expected) in expected.iter().enumerate() {
            for (slot, outcome) in expected.iter().enumerate() {
                let decided = each.iter().map(|(all, _)| all[epoch][slot]);
                let decided: Vec<Outcome> = decided.filter(|outcome| *outcome != Outcome::Elsewhere).collect();
                prop_assert_eq!(decided, [*outcome], "epoch {}, slot {}", epoch, slot);
            }
        }
        prop_assert_eq!(sum(each.iter().map(|(_, tally)| tally)), sum([&one]));
    }
}

#[test]
fn events_reach_a_node_that_decides_no_slot_after_them() {
    let placement = placement(2);
    let ownership = Ownership::new(placement, 5, Some(0));
    let (own, other): (Vec<Id>, Vec<Id>) = (0..SAMPLES as Id).partition(|&id| ownership.owns(id));
    let ids = vec![own[0], own[1], other[0], other[1]];
    let drawn = Drawn { ids, events: vec![(3, Event::Leave(own[0]))], ..Drawn::default() };
    let plan = Arc::new(Plan::cut(0, 1, false, drawn));
    let next = Arc::new(Plan::cut(1, 1, false, vec![own[0], own[1]]));
    let (decided, _) = carry_out("carousel", 1 << 20, &[plan, next], Some(&ownership));
    use Outcome::{Elsewhere, Hit, Single};
    assert_eq!(decided, [vec![Single, Single, Elsewhere, Elsewhere], vec![Single, Hit]]);
}

/// Takes a node through slots of a plan by the owners `ownership`; what leaves with each of them.
fn pass(cache: &mut Cache, run: &mut JobRun, plan: Plan, ownership: &Ownership) -> Vec<Vec<Id>> {
    let (epoch, slots) = (plan.epoch(), plan.len());
    run.put(Schedule::new(Arc::new(plan), MANY).with_ownership(Arc::new(ownership.clone())));
    run.enter(epoch);
    let left = (0..slots).map(|slot| {
        let mut changes = Vec::new();
        let block = Some((epoch, slot..slot + 1));
        assert_eq!(
            run.next_block().map(|(of, next)| (of, next.start)),
            block.map(|(of, next)| (of, next.start))
        );
        run.step_at((epoch, slot..slot + 1), cache, &mut changes);
        let left = changes.iter().filter_map(|change| match *change {
            Change::Evicted(id) => Some(id),
            _ => None,
        });
        left.collect()
    });
    let left = left.collect();
    run.serve(epoch, 0..slots);
    run.remove(epoch);
    left
}

/// Samples of the tests of a change of owners.
const MANY: usize = 20_000;

#[test]
fn what_another_node_owns_leaves_a_few_samples_with_each_slot() {
    let size: Arc<Vec<u64>> = Arc::new(vec![1; MANY]);
    let own = |nodes, node| Ownership::new(placement(nodes), 5, Some(node));
    for entry in policy::REGISTRY.iter().filter(|entry| entry.bounded) {
        let setup = Setup::new(1 << 20, Arc::clone(&size) as _, 3);
        let mut cache = Cache::new((entry.build)(setup), MANY);
        let mut run = JobRun::new(Arc::clone(&size) as _);
        run.join(&mut cache);
        (0..MANY as Id).for_each(|id| {
            cache.access(id);
        });
        let (alone, shared) = (own(1, 0), own(2, 0));
        let before = cache.residents();
        let plan = |epoch| Plan::cut(epoch, 1, false, Vec::from_iter((0..1_000).map(|slot| slot % 7)));
        assert!(pass(&mut cache, &mut run, plan(0), &alone).concat().is_empty(), "{}", entry.name);
        let mut left = pass(&mut cache, &mut run, plan(1), &shared);
        // All samples are looked at in so many slots, and no slot looks at more than its part.
        assert!(left.iter().all(|left| left.len() <= 32), "{}", entry.name);
        assert!(left.split_off(MANY / 32).concat().is_empty(), "{}", entry.name);
        let left = left.concat();
        assert_eq!(left.len() as u64 + cache.residents(), before, "{}", entry.name);
        assert!(left.iter().all(|&id| !shared.owns(id)), "{}", entry.name);
        assert!(cache.kept(0..MANY as u64).all(|id| shared.owns(id)), "{}", entry.name);
        assert!(before == 0 || (4 * before / 10..6 * before / 10).contains(&cache.residents()));
        // Owners that stay who they are let nothing go.
        assert!(pass(&mut cache, &mut run, plan(2), &shared).concat().is_empty(), "{}", entry.name);
    }
}

#[test]
fn short_plans_whose_owners_change_each_time_look_at_all_samples_together() {
    let sizes: Arc<Vec<u64>> = Arc::new(vec![1; MANY]);
    let view = View::new(["a", "b"].map(|name| Node {
        name: name.into(),
        address: String::new(),
        capacity: 1 << 20,
        rack: None,
        draining: false,
        revision: 0,
    }));
    let hash = Ownership::new(Arc::new(Placement::new(&view)), 5, Some(0));
    let setup = Setup::new(1 << 20, Arc::clone(&sizes) as _, 3);
    let mut cache = Cache::new((policy::find("lru").unwrap().build)(setup), MANY);
    let mut run = JobRun::new(Arc::clone(&sizes) as _);
    run.join(&mut cache);
    (0..MANY as Id).for_each(|id| drop(cache.access(id)));
    // Each plan is a 32nd of what it would take to look at all, and each has owners of its own.
    let (slots, plans) = (MANY as u32 / 32 / 32 + 1, 33);
    for epoch in 0..plans {
        let ids = Vec::from_iter((0..slots).map(|slot| (slot * 31 + epoch) % MANY as Id));
        let plan = Plan::cut(u64::from(epoch), 1, false, ids);
        let found = Found { before: None, kept: None, sizes: &*sizes, packages: None };
        let (plan, directory) = Directory::lay(plan, &view, &[Some(1)], false, &found).unwrap();
        let ownership = hash.clone().by_directory(Arc::new(directory));
        assert_ne!(ownership.digest(), hash.digest());
        pass(&mut cache, &mut run, plan, &ownership);
    }
    let foreign = cache.kept(0..MANY as u64).filter(|&id| !hash.owns(id)).count();
    assert_eq!(foreign, 0, "what another owns in all of these plans has left");
    assert!(cache.residents() > MANY as u64 / 3);
}
