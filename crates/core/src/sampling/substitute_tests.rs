//! What a plan made with packages serves, and from where.

use std::collections::BTreeSet;

use super::super::Residents;
use super::*;
use crate::importance::Ranking;
use crate::policy;

const SAMPLES: usize = 400;

/// Ids from 320 up are hard; every id below 300 lies in one of 15 packages, and so do 320 to 339.
fn world() -> (Arc<Keys>, Packages) {
    let values: Vec<f32> = (0..SAMPLES).map(|id| id as f32).collect();
    let sizes = vec![10u64; SAMPLES];
    let keys = Keys::new(values.clone(), &Ranking::of(&values, 0, 0), &sizes, 800);
    let mut packages = Packages::new(SAMPLES);
    for package in 0..15 {
        let mut ids: Vec<Id> = (package * 20..package * 20 + 20).collect();
        ids.extend((package == 3).then_some(320..340).into_iter().flatten());
        packages.add(&ids, &sizes);
    }
    (Arc::new(keys), packages)
}

fn served(selected: Vec<Id>, front: usize, mode: Mode) -> Drawn {
    let (keys, packages) = world();
    let draw = Draw { packages: Some((&packages, 500)), ..Draw::default() };
    substitute(selected, front, keys, &draw, mode, 7)
}

fn every_second() -> Vec<Id> {
    let mut ids: Vec<Id> = (0..SAMPLES as Id).filter(|id| id % 2 == 0).collect();
    Rng::new(1, 0, "test").shuffle(&mut ids);
    ids
}

#[test]
fn nobody_is_served_twice_and_every_selected_hard_sample_is_served() {
    let drawn = served(every_second(), 0, Mode::Low);
    let ids: BTreeSet<Id> = drawn.ids.iter().copied().collect();
    assert_eq!((ids.len(), drawn.ids.len()), (200, 200));
    assert!((320..400).step_by(2).all(|id| ids.contains(&id)));
    let unselected = drawn.ids.iter().filter(|id| *id % 2 == 1).count();
    assert_eq!(drawn.substituted.iter().filter(|flag| **flag).count(), unselected);
    assert!(unselected > 50);
}

#[test]
fn as_few_packages_are_read_as_the_slots_need() {
    let drawn = served(every_second(), 0, Mode::Low);
    // 160 L slots, 20 L samples a package.
    assert_eq!(drawn.events.len(), 8);
    let slots: Vec<u32> = drawn.events.iter().map(|(slot, _)| *slot).collect();
    assert!(slots.is_sorted());
}

#[test]
fn what_a_package_serves_comes_after_it_was_read_and_before_the_region_turns_over() {
    let (_, packages) = world();
    let drawn = served(every_second(), 0, Mode::Low);
    let mut window: Vec<u32> = Vec::new();
    let mut events = drawn.events.iter().peekable();
    for (slot, &id) in drawn.ids.iter().enumerate() {
        while let Some((_, Event::Load(package))) = events.next_if(|(at, _)| *at as usize <= slot) {
            window.push(*package);
            while window.iter().map(|&package| packages.bytes(package)).sum::<u64>() > 500 {
                window.remove(0);
            }
        }
        // Hard samples of packages that are not read, and L samples of none, are read singly.
        if let Some(package) = packages.of(id)
            && drawn.events.iter().any(|(_, event)| *event == Event::Load(package))
        {
            assert!(window.contains(&package), "{id} of {package} at {slot}");
        }
    }
}

#[test]
fn slots_keep_their_ids_when_packages_run_out() {
    let everybody: Vec<Id> = (0..SAMPLES as Id).collect();
    let drawn = served(everybody.clone(), 0, Mode::Low);
    let ids: BTreeSet<Id> = drawn.ids.iter().copied().collect();
    assert_eq!(ids.len(), SAMPLES);
    assert!(!drawn.substituted.contains(&true));
    assert_eq!(drawn.events.len(), 15);
}

#[test]
fn the_first_slots_are_left_alone() {
    let drawn = served(every_second(), 9, Mode::Low);
    assert_eq!(drawn.ids[..9], every_second()[..9]);
}

#[test]
fn off_serves_what_was_selected() {
    let drawn = served(every_second(), 0, Mode::Off);
    assert_eq!((drawn.ids, drawn.events.len(), drawn.selected_high), (every_second(), 0, 40));
}

/// A cache that was asked for these ids, and was sent these packages.
fn residents(high: &[Id], packages: &[&[Id]], keys: &Arc<Keys>) -> Residents {
    let mut policy =
        (policy::find("icache").unwrap().build)(policy::Setup::new(1_500, Arc::new(vec![10; SAMPLES]), 0));
    policy.begin(&policy::Begin { keys: Some(keys), package: Some(250), ..policy::Begin::default() });
    high.iter().for_each(|&id| {
        policy.access(id, &policy::NoDue, &mut Vec::new());
    });
    packages.iter().for_each(|members| policy.load(members, &policy::NoDue, &mut Vec::new()));
    Residents::of(&*policy, SAMPLES)
}

#[test]
fn residents_keep_their_slots_and_those_of_the_region_come_before_any_package() {
    let (keys, packages) = world();
    let here = residents(&[0, 2, 380], &[&[4, 6, 7]], &keys);
    let draw = Draw { packages: Some((&packages, 500)), residents: Some(&here), ..Draw::default() };
    let selected = every_second();
    let drawn = substitute(selected.clone(), 0, keys, &draw, Mode::Low, 7);
    for id in [0, 2, 380] {
        let place = |ids: &[Id]| ids.iter().position(|other| *other == id);
        assert_eq!(place(&drawn.ids), place(&selected));
    }
    let first_load = drawn.events[0].0 as usize;
    let early = drawn.ids[..first_load].iter().filter(|id| [4, 6].contains(id)).count();
    assert_eq!(early, 2, "both are served from the region before it turns over");
    assert_eq!(drawn.ids.iter().collect::<BTreeSet<_>>().len(), selected.len());
}

#[test]
fn hard_residents_take_the_slots_of_easy_ones_where_that_is_asked() {
    let (keys, _) = world();
    let here = residents(&[0, 321, 323, 380], &[], &keys);
    let draw = Draw { residents: Some(&here), ..Draw::default() };
    let drawn = substitute(every_second(), 0, Arc::clone(&keys), &draw, Mode::High, 7);
    for (slot, id) in every_second().into_iter().enumerate() {
        let served = drawn.ids[slot];
        if keys.is_high(id) || id == 0 {
            assert_eq!(served, id);
        } else {
            assert!([321, 323, 380].contains(&served) && drawn.substituted[slot]);
        }
    }
    assert!(drawn.ids.contains(&321) && drawn.ids.contains(&323), "those not in the plan come first");
}
