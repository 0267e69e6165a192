//! Whole runs of every strategy with every policy.

use std::collections::BTreeSet;

use super::*;
use crate::Rng;
use crate::counters::PlanCounters;
use crate::packages::runs;
use crate::sampling::Equal;

const EPOCHS: u64 = 6;

fn config(strategy: &str, policy: &str, samples: usize, capacity: u64) -> Config {
    let (strategy, policy) = (sampling::find(strategy).unwrap(), policy::find(policy).unwrap());
    Config {
        strategy,
        strategy_values: Values::default(),
        policy,
        policy_values: Values::default(),
        sizes: Arc::new(Equal { samples, size: 10 }),
        capacity,
        seed: 3,
        epochs: Some(20),
        world: 1,
        pad: false,
        packages: None,
    }
}

/// A loss that falls, at another pace for every sample.
fn loss(id: Id, epoch: u64) -> f32 {
    let pace = Rng::new(u64::from(id), 0, "pace").unit();
    let luck = Rng::new(u64::from(id), epoch, "luck").unit();
    (3.0 * (-(epoch as f64) * pace / 3.0).exp() + luck / 4.0) as f32
}

/// What one epoch of a run did.
struct Epoch {
    plan: Arc<Plan>,
    before: BTreeSet<Id>,
    decided: Vec<Decided>,
    counters: Counters,
}

fn residents(run: &Run) -> BTreeSet<Id> {
    let mut ids = BTreeSet::new();
    run.policy().residents(&mut |id| {
        ids.insert(id);
    });
    ids
}

/// Runs all epochs, checks what must hold of any, and hands back what happened.
fn go(run: &mut Run, epochs: u64, losses: impl Fn(Id, u64) -> f32) -> Vec<Epoch> {
    let mut seen = Vec::new();
    for epoch in 0..epochs {
        if epoch > 0 {
            run.close(epoch - 1);
        }
        let reevaluated: Option<Vec<(Id, f32)>> = match run.reevaluation(epoch) {
            Reevaluation::Nothing => None,
            Reevaluation::Set(ids) => Some(ids.iter().map(|&id| (id, losses(id, epoch))).collect()),
            Reevaluation::All => {
                Some((0..run.config.sizes.len() as Id).map(|id| (id, losses(id, epoch))).collect())
            }
        };
        let plan = run.begin(epoch, &Inputs { reevaluated: reevaluated.as_deref(), ..Inputs::default() });
        let before = residents(run);
        let mut decided = Vec::new();
        let world = run.config.world as usize;
        let mut batches: Vec<Vec<Id>> = vec![Vec::new(); world];
        let mut done = vec![0; world];
        while let Some(slot) = run.decide() {
            check_bytes(run);
            decided.push(slot.clone());
            let rank = slot.slot % world;
            batches[rank].push(slot.id);
            if batches[rank].len() == 16 {
                let ids = std::mem::take(&mut batches[rank]);
                let values: Vec<f32> = ids.iter().map(|&id| losses(id, epoch)).collect();
                run.report(epoch, plan.rank_len(), done[rank], &ids, &values);
                done[rank] += 16;
            }
        }
        for (rank, ids) in batches.into_iter().enumerate() {
            let values: Vec<f32> = ids.iter().map(|&id| losses(id, epoch)).collect();
            run.report(epoch, plan.rank_len(), done[rank], &ids, &values);
        }
        let counters = run.counters().clone();
        check_counters(&counters, &plan, &decided);
        seen.push(Epoch { plan, before, decided, counters });
    }
    seen
}

fn check_bytes(run: &Run) {
    let policy = run.policy();
    if !run.config.policy.bounded {
        return;
    }
    assert!(policy.used() <= policy.capacity(), "{} of {}", policy.used(), policy.capacity());
    let regions = policy.regions();
    assert_eq!(regions.iter().map(|region| region.capacity).sum::<u64>(), policy.capacity());
    assert_eq!(regions.iter().map(|region| region.used).sum::<u64>(), policy.used());
}

fn check_counters(counters: &Counters, plan: &Plan, decided: &[Decided]) {
    assert_eq!((decided.len(), counters.plan.planned), (plan.len(), plan.len() as u64));
    assert_eq!(counters.served(), plan.len() as u64, "served = hit + packed + single");
    let distinct: BTreeSet<Id> = plan.ids()[..plan.len() - plan.padded()].iter().copied().collect();
    assert_eq!(counters.plan.distinct, distinct.len() as u64);
    assert!(
        counters.plan.storage_reads
            >= counters.plan.single + counters.plan.other_reads + counters.plan.pack_reads
    );
    let others = counters.plan.single + counters.plan.other_reads + counters.plan.pack_reads;
    assert_eq!(counters.plan.storage_reads == others, counters.plan.package_reads == 0);
    assert!(counters.plan.package_bytes_served <= counters.plan.package_bytes, "{counters:?}");
    assert_eq!(counters.plan.packed > 0, counters.plan.package_bytes_served > 0);
}

/// Calls `check` with every strategy and every policy that runs alone.
fn every_pair(check: impl Fn(&'static sampling::Entry, &'static policy::Entry)) {
    for strategy in sampling::drawing() {
        for policy in policy::REGISTRY.iter().filter(|policy| !policy.offline) {
            check(strategy, policy);
        }
    }
}

#[test]
fn every_pair_keeps_its_bytes_and_its_count_and_repeats_from_its_seed() {
    every_pair(|strategy, policy| {
        let sizes: Vec<u64> = (0..300u64).map(|id| 5 + id * 7 % 23).collect();
        let given = Origin::Given(Arc::new(runs(&sizes, 300, |id| (id % 100 != 99).then_some(1))));
        for (world, packages) in
            [(1, None), (3, None), (1, Some(Origin::Made(400))), (1, Some(given.clone())), (3, Some(given))]
        {
            let config = Config {
                sizes: Arc::new(sizes.clone()),
                world,
                packages,
                ..config(strategy.name, policy.name, 300, 3_200)
            };
            let first = go(&mut Run::new(config.clone()).unwrap(), EPOCHS, loss);
            let second = go(&mut Run::new(config).unwrap(), EPOCHS, loss);
            for (one, other) in first.iter().zip(&second) {
                assert_eq!(one.decided, other.decided, "{} {}", strategy.name, policy.name);
                assert_eq!(one.counters, other.counters);
            }
        }
    });
}

#[test]
fn nothing_makes_it_panic_or_go_on_for_ever() {
    let odd = |id: Id, epoch: u64| match (u64::from(id) + epoch) % 5 {
        0 => f32::NAN,
        1 => f32::INFINITY,
        2 => -1.0,
        _ => 0.0,
    };
    every_pair(|strategy, policy| {
        for (samples, capacity) in
            [(0, 0), (0, 100), (1, 0), (1, 10), (40, 0), (40, 400), (40, 9), (40, 1_000)]
        {
            for world in [1, 7, 64] {
                let config = Config {
                    world,
                    pad: world == 7,
                    packages: Some(Origin::Made(10)),
                    ..config(strategy.name, policy.name, samples, capacity)
                };
                go(&mut Run::new(config.clone()).unwrap(), 4, odd);
                go(&mut Run::new(config).unwrap(), 4, |_, _| 1.0);
            }
        }
    });
    assert!(Run::new(Config { world: 0, ..config("iis", "icache", 10, 10) }).is_err());
}

#[test]
fn without_packages_a_plan_reads_exactly_what_was_not_resident_at_its_start() {
    for strategy in ["uniform", "cis", "iis", "hybrid", "infobatch"] {
        for policy in ["minio", "icache", "impact"] {
            for epoch in go(&mut Run::new(config(strategy, policy, 400, 800)).unwrap(), 9, loss) {
                let missing = epoch.plan.ids().iter().filter(|id| !epoch.before.contains(id)).count();
                assert_eq!(epoch.counters.plan.single, missing as u64, "{strategy} {policy}");
            }
        }
    }
}

#[test]
fn for_equal_sizes_nothing_hits_more_than_belady() {
    for strategy in sampling::drawing().map(|entry| entry.name).filter(|name| *name != "quiver") {
        let hits = |epochs: &[Epoch]| epochs.iter().map(|epoch| epoch.counters.plan.hit).sum::<u64>();
        let base = go(&mut Run::new(config(strategy, "minio", 300, 600)).unwrap(), EPOCHS, loss);
        let plans: Vec<Arc<Plan>> = base.iter().map(|epoch| Arc::clone(&epoch.plan)).collect();
        let mut run = Run::new(config(strategy, "belady", 300, 600)).unwrap();
        run.foresee(&plans);
        let best = go(&mut run, EPOCHS, loss);
        assert!(best.iter().zip(&plans).all(|(epoch, plan)| epoch.plan == *plan));
        for policy in policy::REGISTRY.iter().filter(|policy| policy.bounded && !policy.offline) {
            let other = go(&mut Run::new(config(strategy, policy.name, 300, 600)).unwrap(), EPOCHS, loss);
            assert!(hits(&other) <= hits(&best), "{strategy} {}", policy.name);
        }
    }
}

#[test]
fn the_plain_heap_of_the_paper_reads_more() {
    let reads = |strict: &str| {
        let mut config = config("iis", "icache", 2_000, 4_000);
        config.policy_values = config.policy.values([("strict", strict)]).unwrap();
        let epochs = go(&mut Run::new(config).unwrap(), 12, loss);
        epochs[3..].iter().map(|epoch| epoch.counters.plan.single).sum::<u64>()
    };
    let (plain, due) = (reads("true"), reads("false"));
    assert!(plain as f64 > due as f64 * 1.02, "{plain} beside {due}");
}

#[test]
fn the_split_of_the_paper_settles_where_rates_say() {
    let mut config = Config { packages: Some(Origin::Made(400)), ..config("iis", "icache", 2_000, 4_000) };
    config.policy_values = config.policy.values([("split", "paper")]).unwrap();
    let mut run = Run::new(config).unwrap();
    let epochs = go(&mut run, 8, loss);
    let regions = run.policy().regions();
    // Counts instead of rates would give the H region the share of all slots that are of H-samples.
    let last = &epochs[7].plan;
    let counted = last.selected_high() as f64 / last.len() as f64;
    assert!((counted - 0.27).abs() < 0.01, "{counted}");
    // H-samples, the upper fifth, are selected with 0.94 on average and L-samples with 0.64.
    let share = regions[0].capacity as f64 / 4_000.0;
    assert!((share - 0.595).abs() < 0.02, "{regions:?}");
}

/// Why the H-list is cut at the whole capacity: cut at the H region, its share of the slots sets the region
/// that sets the list, and both fall away.
#[test]
fn a_list_cut_at_its_own_region_would_vanish() {
    let epochs = go(&mut Run::new(config("iis", "icache", 2_000, 4_000)).unwrap(), 8, loss);
    let plan = &epochs[7].plan;
    let keys = plan.keys().unwrap();
    let mut ranked: Vec<Id> = (0..2_000).collect();
    ranked.sort_by_key(|&id| std::cmp::Reverse(keys.sortable(id)));
    let mut share = 0.9;
    let mut shares = Vec::new();
    for _ in 0..3 {
        let list: BTreeSet<Id> = ranked[..(400.0 * share) as usize].iter().copied().collect();
        share = plan.ids().iter().filter(|id| list.contains(id)).count() as f64 / plan.len() as f64;
        shares.push(share);
    }
    assert!((shares[0] - 0.25).abs() < 0.01 && (shares[1] - 0.07).abs() < 0.01, "{shares:?}");
    assert!(shares[2] < 0.03, "{shares:?}");
}

#[test]
fn easy_samples_come_in_packages_at_a_fraction_of_the_requests() {
    let config = Config {
        sizes: Arc::new(Equal { samples: 4_000, size: 1_500 }),
        packages: Some(Origin::Made(100_000)),
        ..config("iis", "icache", 4_000, 1_200_000)
    };
    let mut run = Run::new(config).unwrap();
    let epochs = go(&mut run, 12, loss);
    for epoch in &epochs[4..] {
        let PlanCounters { packed, substituted, storage_requests, package_reads, .. } = epoch.counters.plan;
        let packages: usize = epoch.decided.iter().map(|slot| slot.packages.len()).sum();
        assert!(packages as f64 / (packed as f64) < 0.05, "{packages} for {packed}");
        assert!(packed > 1_500 && substituted > 100 && storage_requests < 1_200, "{:?}", epoch.counters);
        assert_eq!(package_reads, packages as u64);
        let ids: BTreeSet<Id> = epoch.plan.ids().iter().copied().collect();
        assert_eq!(ids.len(), epoch.plan.len(), "no sample is served twice");
        let keys = epoch.plan.keys().unwrap();
        assert!(epoch.plan.unserved().iter().all(|&id| !keys.is_high(id)), "no hard sample is substituted");
    }
}

#[test]
fn runs_of_shards_are_packages_from_the_first_epoch_and_nothing_is_packed() {
    let sizes: Arc<dyn Sizes> = Arc::new(Equal { samples: 4_000, size: 1_500 });
    let given = Origin::Given(Arc::new(runs(&*sizes, 100_000, |id| (id % 500 != 499).then_some(0))));
    let config = Config { sizes, packages: Some(given), ..config("iis", "icache", 4_000, 1_200_000) };
    let epochs = go(&mut Run::new(config).unwrap(), 12, loss);
    for epoch in &epochs {
        let PlanCounters { packed, pack_reads, pack_bytes_written, storage_requests, single, .. } =
            epoch.counters.plan;
        assert_eq!((pack_reads, pack_bytes_written), (0, 0));
        let packages: usize = epoch.decided.iter().map(|slot| slot.packages.len()).sum();
        assert_eq!(storage_requests, single + packages as u64);
        assert!(packages as f64 / (packed as f64) < 0.05, "{packages} for {packed}");
        let ids: BTreeSet<Id> = epoch.plan.ids().iter().copied().collect();
        assert_eq!(ids.len(), epoch.plan.len(), "no sample is served twice");
    }
    let (first, last) = (&epochs[0].counters, &epochs[11].counters);
    assert_eq!((first.plan.packed, first.plan.single), (4_000, 0), "every sample lies in a run");
    assert!(last.plan.single < 400, "{last:?}");
}

#[test]
fn a_job_alone_reads_with_quiver_what_does_not_fit() {
    let epochs = go(&mut Run::new(config("quiver", "quiver", 1_000, 2_000)).unwrap(), 6, loss);
    let reads: Vec<u64> = epochs.iter().map(|epoch| epoch.counters.plan.single).collect();
    assert_eq!(reads, [1_000, 800, 800, 800, 800, 800]);
}

#[test]
fn carousel_reads_its_share_and_its_policy_follows() {
    let mut config = config("carousel", "carousel", 1_000, 2_000);
    config.strategy_values = config.strategy.values([("fresh", "0.25")]).unwrap();
    let epochs = go(&mut Run::new(config).unwrap(), 10, loss);
    assert_eq!(epochs[0].counters.plan.single, 1_000);
    let reads: u64 = epochs[1..].iter().map(|epoch| epoch.counters.plan.single).sum();
    assert!(reads.abs_diff(9 * 250) <= 50, "{reads}");
}

#[test]
fn a_report_lands_on_its_own_sample() {
    let mut run = Run::new(config("iis", "icache", 100, 200)).unwrap();
    go(&mut run, 3, |id, _| id as f32);
    assert!((0..100).all(|id| run.table().value(id) == Some(id as f32)));
}

#[test]
fn a_set_that_is_re_evaluated_is_read_once_with_a_buffer_and_every_epoch_without() {
    let other = |policy: &str| {
        let epochs = go(&mut Run::new(config("hybrid", policy, 400, 1_600)).unwrap(), 14, loss);
        epochs.iter().map(|epoch| epoch.counters.plan.other_reads).filter(|reads| *reads > 0).count()
    };
    assert_eq!(other("impact"), 1);
    assert!(other("lru") > 2);
}

/// The hits of all epochs but the first, in the orders that a trainer gives, with a cache of a fifth.
fn hits_of_orders(policy: &str, order: impl Fn(u64) -> Vec<Id>) -> u64 {
    let mut run = Run::new(config("given", policy, 5_000, 10_000)).unwrap();
    let mut hits = 0;
    for epoch in 0..EPOCHS {
        let order = order(epoch);
        let plan = run.begin(epoch, &Inputs { order: Some(&order), ..Inputs::default() });
        assert_eq!(plan.ids(), order);
        while run.decide().is_some() {}
        hits += if epoch > 0 { run.counters().plan.hit } else { 0 };
    }
    hits
}

#[test]
fn orders_that_repeat_some_samples_hit_more_with_lfu_and_those_that_repeat_none_with_minio() {
    let shuffled = |epoch| {
        let mut ids: Vec<Id> = (0..5_000).collect();
        Rng::new(5, epoch, "order").shuffle(&mut ids);
        ids
    };
    assert_eq!(hits_of_orders("minio", shuffled), 1_000 * (EPOCHS - 1));
    assert!(hits_of_orders("lfu", shuffled) < 1_000 * (EPOCHS - 1));
    // Every tenth sample comes four times as often as another.
    let weighted = |epoch| {
        let mut rng = Rng::new(5, epoch, "weights");
        let mut below = |end: usize| (rng.unit() * end as f64) as Id;
        let mut draw = || {
            if below(13) < 4 {
                return below(500) * 10;
            }
            let other = below(4_500);
            other + other / 9 + 1
        };
        (0..5_000).map(|_| draw()).collect::<Vec<Id>>()
    };
    assert!(hits_of_orders("lfu", weighted) * 10 > hits_of_orders("minio", weighted) * 11);
}
