use std::collections::BTreeSet;

use proptest::{prop_assert, prop_assert_eq, proptest};

use super::*;
use crate::packages::{Origin, runs};
use crate::run::{Config, Inputs, Run};
use crate::sampling::{self, Strategy};

/// Samples of 100 bytes in shards of 1,000, labelled by `label`.
struct Shards {
    samples: usize,
    label: fn(Id) -> i64,
}

impl Sizes for Shards {
    fn len(&self) -> usize {
        self.samples
    }

    fn size(&self, _id: Id) -> u64 {
        100
    }

    fn gap_after(&self, id: Id) -> Option<u64> {
        (id % 1_000 != 999 && (id as usize) + 1 < self.samples).then_some(0)
    }

    fn label(&self, id: Id) -> Option<i64> {
        Some((self.label)(id)).filter(|&label| label >= 0)
    }

    fn has_neighbours(&self) -> bool {
        true
    }
}

fn shards(samples: usize, label: fn(Id) -> i64) -> Arc<dyn Sizes> {
    Arc::new(Shards { samples, label })
}

fn values(settings: &[(&str, &str)]) -> Values {
    sampling::find("uniform").unwrap().values(settings.iter().copied()).unwrap()
}

fn random(id: Id) -> i64 {
    Rng::new(1, u64::from(id), "label").below(10) as i64
}

fn by_runs(sizes: &Arc<dyn Sizes>, capacity: u64) -> ByRuns {
    ByRuns::new(sizes, &values(&[("order", "runs")]), capacity, 7)
}

/// Plays a plan as a cache of `capacity` bytes would: the bytes it holds at most, and the runs that are read.
fn play(order: &Order, packages: &Packages, kept: &mut BTreeSet<u32>, sizes: &dyn Sizes) -> (u64, usize) {
    let (mut here, mut peak, mut reads) = (BTreeSet::new(), 0, 0);
    for &run in kept.iter() {
        here.extend(packages.members(run).iter().copied());
    }
    let mut events = order.events.iter().peekable();
    for (slot, id) in order.ids.iter().enumerate() {
        while let Some((_, event)) = events.next_if(|(at, _)| *at as usize <= slot) {
            let run = event.package().unwrap();
            reads += usize::from(!kept.contains(&run));
            here.extend(packages.members(run).iter().copied());
            if matches!(event, Event::Keep(_)) {
                kept.insert(run);
            }
        }
        peak = peak.max(here.iter().map(|&id| sizes.size(id)).sum());
        assert!(here.contains(id) || packages.of(*id).is_none(), "slot {slot} comes before its run");
        if packages.of(*id).is_none_or(|run| !kept.contains(&run)) {
            here.remove(id);
        }
    }
    (peak, reads)
}

#[test]
fn every_sample_comes_once_and_requests_are_the_runs_that_are_not_kept() {
    let sizes = shards(8_000, random);
    let packages = runs(&*sizes, 2_000, |id| sizes.gap_after(id));
    let (capacity, all) = (160_000, packages.living().count());
    let (order, mut kept) = (by_runs(&sizes, capacity), BTreeSet::new());
    for number in 0..4 {
        let drawn = order.draw_from(&packages, number, 1, None);
        assert_eq!(BTreeSet::from_iter(drawn.ids.iter().copied()).len(), 8_000);
        assert_eq!(drawn.ids.len(), 8_000);
        let before = kept.len();
        let (peak, reads) = play(&drawn, &packages, &mut kept, &*sizes);
        assert_eq!(reads, all - before, "epoch {number}");
        assert!(peak <= capacity, "epoch {number}: {peak} bytes");
    }
    // Half of a cache of a tenth: a twentieth of 400 runs, whole ones.
    assert_eq!((all, kept.len()), (400, 40));
}

#[test]
fn orders_repeat_from_the_seed_and_differ_from_epoch_to_epoch() {
    let sizes = shards(3_000, random);
    let packages = runs(&*sizes, 1_000, |id| sizes.gap_after(id));
    let order = |seed, number| {
        let settings = values(&[("order", "runs")]);
        ByRuns::new(&sizes, &settings, 90_000, seed).draw_from(&packages, number, 1, None)
    };
    assert_eq!(order(1, 3), order(1, 3));
    assert_ne!(order(1, 3).ids, order(2, 3).ids);
    assert_ne!(order(1, 3).ids, order(1, 4).ids);
}

#[test]
fn a_plan_does_not_begin_with_a_whole_buffer() {
    let sizes = shards(100_000, random);
    let packages = runs(&*sizes, 1_000, |id| sizes.gap_after(id));
    let drawn = by_runs(&sizes, 5_000_000).draw_from(&packages, 0, 1, None);
    let at_first = drawn.events.iter().filter(|(slot, _)| *slot == 0).count();
    assert_eq!(at_first, 256, "of 2,500 runs that the buffer holds");
    let soon = drawn.events.iter().filter(|(slot, _)| *slot < 10_000).count();
    assert!((1_900..2_100).contains(&(soon - at_first)), "{soon}: two runs for each that is served");
}

#[test]
fn where_everything_fits_all_runs_stay_and_later_epochs_read_none() {
    let sizes = shards(4_000, random);
    let packages = runs(&*sizes, 2_000, |id| sizes.gap_after(id));
    let (order, mut kept) = (by_runs(&sizes, 480_000), BTreeSet::new());
    let reads: Vec<usize> = (0..3)
        .map(|number| play(&order.draw_from(&packages, number, 1, None), &packages, &mut kept, &*sizes).1)
        .collect();
    assert_eq!(reads, [200, 0, 0]);
}

#[test]
fn what_was_carried_over_comes_first_and_events_keep_their_places() {
    let events = vec![(0, Event::Load(0)), (2, Event::Load(1))];
    let led = Order { ids: vec![4, 5, 6, 7], events }.led_by(&[5, 9]);
    assert_eq!(led.ids, [5, 9, 4, 6, 7]);
    assert_eq!(led.events, [(2, Event::Load(0)), (3, Event::Load(1))]);
}

#[test]
fn the_longest_runs_that_mix_are_chosen_and_sorted_shards_are_said() {
    let choose = |sizes: &Arc<dyn Sizes>, order: &str, capacity: u64| {
        RunChoice::of(&values(&[("order", order)]), sizes, (capacity, 0), 0)
    };
    let largest = |choice: Option<RunChoice>| match choice {
        Some(RunChoice::Runs(runs)) => runs.largest(),
        other => panic!("{other:?}"),
    };
    let mixed = shards(200_000, random);
    assert!(choose(&mixed, "exact", 4 << 20).unwrap().is_none());
    // Half of 4 MiB holds 32 runs of 64 KiB, but shards of 100 KB hold one such run each, or three of half the length.
    assert_eq!(largest(choose(&mixed, "auto", 4 << 20).unwrap()), 33_400);
    // A label a shard: no run is short enough for a batch of 256 to hold as many as a shuffle.
    let sorted = shards(200_000, |id| i64::from(id / 1_000));
    let Some(RunChoice::Exact(why)) = choose(&sorted, "auto", 400_000).unwrap() else { panic!() };
    assert!(why.contains("different labels") && why.contains("raise `cache`"), "{why}");
    assert!(largest(choose(&sorted, "runs", 400_000).unwrap()) > 4_096, "what is asked for is done");
    // Without labels it is runs that count, and few of them are in a small buffer.
    let bare = shards(200_000, |_| -1);
    let Some(RunChoice::Exact(why)) = choose(&bare, "auto", 4 << 20).unwrap() else { panic!() };
    assert!(why.contains("different runs"), "{why}");
    let tiny = choose(&mixed, "runs", 1_000).unwrap_err().message;
    assert!(tiny.contains("raise `cache` or `mix_share`"), "{tiny}");
    let single: Arc<dyn Sizes> = Arc::new(vec![100u64; 50]);
    assert!(choose(&single, "runs", 4 << 20).unwrap_err().message.contains("objects of their own"));
}

#[test]
fn a_plan_says_how_well_it_mixes() {
    let sizes = shards(20_000, random);
    let packages = runs(&*sizes, 1_000, |id| sizes.gap_after(id));
    let draw = |order: &mut Box<dyn Strategy>| {
        let packages = Some((&packages, 0));
        order.draw(&sampling::Draw { epoch: 1, world: 1, packages, ..sampling::Draw::default() });
        order.notes()
    };
    let setup = |capacity, order| sampling::Setup {
        sizes: Arc::clone(&sizes),
        capacity,
        values: values(&[("order", order)]),
        ..sampling::Setup::new(20_000, 3)
    };
    let entry = sampling::find("uniform").unwrap();
    let [(runs_name, few), (labels_name, labels)] = draw(&mut (entry.build)(setup(80_000, "runs")))[..]
    else {
        panic!()
    };
    assert_eq!((runs_name, labels_name), ("mix_runs", "mix_labels"));
    assert!((0.2..0.6).contains(&few) && (0.97..1.03).contains(&labels), "{few} {labels}");
    let many = draw(&mut (entry.build)(setup(1_600_000, "runs")))[0].1;
    assert!(many > 0.95 && many > few, "{many}");
    assert!(draw(&mut (entry.build)(setup(80_000, "exact"))).is_empty());
}

proptest! {
    #[test]
    fn whatever_the_cache_and_the_runs_each_sample_comes_once_and_after_its_run(
        samples in 1usize..3_000, length in 100u64..30_000, capacity in 0u64..400_000, world in 1u32..9,
        number in 0u64..4, share in 0.01f64..1.0, seed: u64,
    ) {
        let sizes = shards(samples, random);
        let packages = runs(&*sizes, length, |id| sizes.gap_after(id));
        let share = share.to_string();
        let settings = values(&[("order", "runs"), ("mix_share", share.as_str())]);
        let order = ByRuns::new(&sizes, &settings, capacity, seed);
        let mut kept = BTreeSet::new();
        play(&order.draw_from(&packages, 0, world, None), &packages, &mut kept, &*sizes);
        let drawn = order.draw_from(&packages, number, world, None);
        let (peak, _) = play(&drawn, &packages, &mut kept, &*sizes);
        let distinct: BTreeSet<Id> = drawn.ids.iter().copied().collect();
        prop_assert_eq!((distinct.len(), drawn.ids.len()), (samples, samples));
        // A run that is larger than the buffer comes alone, beside those that stay.
        let largest = packages.living().map(|run| packages.bytes(run)).max().unwrap_or(0);
        prop_assert!(peak <= capacity.max(largest) + largest + 100, "{} of {}", peak, capacity);
    }
}

/// Samples of different sizes in shards of 70.
struct Uneven(usize);

impl Sizes for Uneven {
    fn len(&self) -> usize {
        self.0
    }

    fn size(&self, id: Id) -> u64 {
        60 + u64::from(id) * 7919 % 90
    }

    fn gap_after(&self, id: Id) -> Option<u64> {
        (id % 70 != 69 && (id as usize) + 1 < self.0).then_some(20)
    }

    fn has_neighbours(&self) -> bool {
        true
    }
}

#[test]
fn a_run_by_its_policy_reads_no_sample_alone() {
    let sizes: Arc<dyn Sizes> = Arc::new(Uneven(600));
    let strategy = sampling::find("uniform").unwrap();
    for (share, world) in [("0.5", 1), ("0.9", 1), ("0.5", 3)] {
        let values = values(&[("order", "runs"), ("mix_share", share)]);
        let capacity = 36_000;
        let Some(RunChoice::Runs(packages)) = RunChoice::of(&values, &sizes, (capacity, 300), 5).unwrap()
        else {
            panic!()
        };
        let all = packages.living().count() as u64;
        let mut run = Run::new(Config {
            strategy,
            strategy_values: values,
            policy: crate::policy::find("runs").unwrap(),
            policy_values: Values::default(),
            sizes: Arc::clone(&sizes),
            capacity,
            seed: 5,
            epochs: None,
            world,
            pad: false,
            packages: Some(Origin::Given(packages)),
        })
        .unwrap();
        for epoch in 0..4 {
            let planned = run.begin(epoch, &Inputs::default());
            let passing =
                planned.events().iter().filter(|(_, event)| matches!(event, Event::Load(_))).count() as u64;
            while run.decide().is_some() {}
            let plan = &run.counters().plan;
            assert_eq!(plan.single, 0, "{share} {world} epoch {epoch}: {plan:?}");
            assert_eq!(plan.storage_requests, plan.package_reads);
            // A run that is still there from the epoch before need not be read.
            let most = if epoch == 0 { all } else { passing };
            let least = if epoch == 0 { all } else { passing * 3 / 4 };
            assert!(
                (least..=most).contains(&plan.package_reads) && passing < all,
                "{epoch}: {most}, {plan:?}"
            );
        }
    }
}
