//! What a plan made with packages serves, and from where.

use std::collections::BTreeSet;

use super::super::{Equal, Residents};
use super::*;
use crate::importance::Ranking;
use crate::policy;

const SAMPLES: usize = 400;
const SIZES: Equal = Equal { samples: SAMPLES, size: 10 };

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
    substitute(selected, front, keys, &draw, mode, (&SIZES, 7))
}

fn every_second() -> Vec<Id> {
    let mut ids: Vec<Id> = (0..SAMPLES as Id).filter(|id| id % 2 == 0).collect();
    Rng::new(1, 0, "test").shuffle(&mut ids);
    ids
}

#[test]
fn no_sample_is_served_twice_and_every_selected_hard_sample_is_served() {
    let drawn = served(every_second(), 0, Mode::Low);
    let ids: BTreeSet<Id> = drawn.ids.iter().copied().collect();
    assert_eq!((ids.len(), drawn.ids.len()), (200, 200));
    assert!((320..400).step_by(2).all(|id| ids.contains(&id)));
    let others = drawn.ids.iter().zip(every_second()).map(|(id, selected)| *id != selected);
    assert_eq!(drawn.substituted, others.collect::<Vec<_>>(), "slots that serve another id than selected");
    assert!(drawn.ids.iter().filter(|id| *id % 2 == 1).count() > 50);
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
    let all_samples: Vec<Id> = (0..SAMPLES as Id).collect();
    let drawn = served(all_samples.clone(), 0, Mode::Low);
    let ids: BTreeSet<Id> = drawn.ids.iter().copied().collect();
    assert_eq!(ids.len(), SAMPLES);
    assert!(drawn.unserved.is_empty());
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
    for members in packages {
        policy.load(members, false, &policy::NoDue, &mut Vec::new());
    }
    Residents::of(&*policy, SAMPLES)
}

#[test]
fn residents_keep_their_slots_and_those_of_the_region_come_before_any_package() {
    let (keys, packages) = world();
    let here = residents(&[0, 2, 380], &[&[4, 6, 7]], &keys);
    let draw = Draw { packages: Some((&packages, 500)), residents: Some(&here), ..Draw::default() };
    let selected = every_second();
    let drawn = substitute(selected.clone(), 0, keys, &draw, Mode::Low, (&SIZES, 7));
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
    let drawn = substitute(every_second(), 0, Arc::clone(&keys), &draw, Mode::High, (&SIZES, 7));
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

/// A training in which these are resident, in the H region.
fn drawn_beside(residents: &[Id], packages: &Packages, keys: &Arc<Keys>) -> Drawn {
    let here = Residents::from_ids(SAMPLES, residents);
    let draw = Draw { packages: Some((packages, 500)), residents: Some(&here), ..Draw::default() };
    substitute(every_second(), 0, Arc::clone(keys), &draw, Mode::Low, (&SIZES, 7))
}

fn read(drawn: &Drawn) -> Vec<u32> {
    let load = |(_, event): &(u32, Event)| match event {
        Event::Load(package) => *package,
        other => panic!("{other:?}"),
    };
    drawn.events.iter().map(load).collect()
}

#[test]
fn packages_of_which_a_part_is_resident_are_left_unread_where_others_suffice() {
    let (keys, packages) = world();
    // A fifth of each of the last six, which are not worn.
    let here: Vec<Id> = (9..15).flat_map(|package| package * 20..package * 20 + 4).collect();
    let read = read(&drawn_beside(&here, &packages, &keys));
    assert!(read.len() >= 7 && read.iter().all(|package| *package < 9), "{read:?}");
}

#[test]
fn the_package_with_most_selected_hard_samples_is_read_first() {
    let (keys, packages) = world();
    let selected: Vec<Id> = (0..SAMPLES as Id).filter(|id| id % 4 == 0 || *id >= 320).collect();
    for seed in 0..8 {
        let draw = Draw { packages: Some((&packages, 500)), ..Draw::default() };
        let drawn = substitute(selected.clone(), 0, Arc::clone(&keys), &draw, Mode::Low, (&SIZES, seed));
        assert_eq!(read(&drawn)[0], 3);
    }
}

#[test]
fn worn_packages_are_read_last_and_not_for_a_handful() {
    let (keys, mut packages) = world();
    // Hard samples that are resident fill half of two packages, and all but a few of another.
    let (sizes, hard) = (vec![10u64; SAMPLES], (320..400).collect::<Vec<Id>>());
    let half = packages.add(&[(0..40).collect::<Vec<Id>>(), hard[..40].to_vec()].concat(), &sizes);
    let little = packages.add(&[(40..60).collect::<Vec<Id>>(), hard[40..].to_vec()].concat(), &sizes);
    let drawn = drawn_beside(&hard, &packages, &keys);
    assert!(!read(&drawn).contains(&half) && !read(&drawn).contains(&little), "{:?}", read(&drawn));
    // Without the others the fuller one is used, and the other would be read for twenty slots.
    (0..15).for_each(|package| packages.retire(package));
    let drawn = drawn_beside(&hard, &packages, &keys);
    assert_eq!(read(&drawn), [half]);
    let ids: BTreeSet<Id> = drawn.ids.iter().copied().collect();
    assert_eq!(ids.len(), drawn.ids.len(), "no id is served twice");
    // A slot that is left over keeps its own id, one that lies in no package first.
    let kept = drawn.ids.iter().filter(|id| packages.of(**id).is_none() && !keys.is_high(**id)).count();
    assert_eq!(kept, 160 - 40);
}
