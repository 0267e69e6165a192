//! How often each sample rides.

use super::*;
use crate::importance::{Report, Table};

fn carousel(samples: usize, capacity: u64, fresh: &str, ride: &str) -> Carousel {
    let values = ENTRY.values([("fresh", fresh), ("ride", ride)]).unwrap();
    Carousel::new(Setup { capacity, values, ..Setup::new(samples, 5) })
}

fn draw(strategy: &mut Carousel, epoch: u64, importance: Option<&Table>) -> Drawn {
    strategy.draw(&Draw { epoch, world: 1, carried: Some(&[]), importance, ..Draw::default() })
}

#[test]
fn every_sample_is_visited_about_as_often() {
    for (fresh, epochs) in [("0.25", 16u64), ("0.5", 8)] {
        let mut strategy = carousel(2_000, 400, fresh, "fifo");
        draw(&mut strategy, 0, None);
        // From several beginnings on: every stretch of so many epochs keeps the bound.
        for stretch in 0..3 {
            let mut visits = vec![0u32; 2_000];
            for epoch in 1..=epochs {
                for id in draw(&mut strategy, stretch * epochs + epoch, None).ids {
                    visits[id as usize] += 1;
                }
            }
            let mean = epochs as f64;
            let (least, most) = (visits.iter().min().unwrap(), visits.iter().max().unwrap());
            assert!(f64::from(*least) >= 0.4 * mean, "{fresh} {stretch}: {least} of {mean}");
            assert!(f64::from(*most) <= 1.6 * mean, "{fresh} {stretch}: {most} of {mean}");
        }
    }
}

#[test]
fn no_sample_rides_longer_than_the_bound_when_the_hard_ones_stay() {
    let mut table = Table::new(1_000);
    let loss = |id| (id % 97) as f32;
    let reports = |id| Report { id, value: loss(id), loss: loss(id), epoch: 0, step: 0, late: false };
    table.apply(&(0..1_000).map(reports).collect::<Vec<_>>());
    let mut strategy = carousel(1_000, 200, "0.25", "hard");
    draw(&mut strategy, 0, Some(&table));
    let mut rides = vec![0u32; 1_000];
    let (mut longest, mut easy, mut hard) = (0, 0u32, 0u32);
    for epoch in 1..=40 {
        let drawn = draw(&mut strategy, epoch, Some(&table));
        let mut events = drawn.events.iter().peekable();
        for (slot, &id) in (0..).zip(&drawn.ids) {
            while let Some((_, event)) = events.next_if(|(at, _)| *at <= slot) {
                let Event::Leave(left) = event else { unreachable!() };
                rides[*left as usize] = 0;
            }
            rides[id as usize] += 1;
            longest = longest.max(rides[id as usize]);
            *(if id % 97 < 48 { &mut easy } else { &mut hard }) += 1;
        }
    }
    assert!(longest <= 12, "{longest} rounds, and 3 / 0.25 are allowed");
    assert!(hard > easy + easy / 10, "{hard} servings of hard ones beside {easy}");
}

#[test]
fn the_share_of_new_servings_is_as_asked() {
    for fresh in ["0.1", "0.25", "0.5", "0.6", "0.7", "0.79"] {
        for ride in ["fifo", "hard"] {
            let (read, asked) = (read_in_20_epochs(fresh, ride), fresh.parse::<f64>().unwrap() * 20_000.0);
            assert!((f64::from(read) - asked).abs() <= 0.01 * 20_000.0, "{ride} {fresh}: {read} of 20,000");
        }
    }
}

fn read_in_20_epochs(fresh: &str, ride: &str) -> u32 {
    let mut table = Table::new(1_000);
    let loss = |id| (id % 97) as f32;
    let reports = |id| Report { id, value: loss(id), loss: loss(id), epoch: 0, step: 0, late: false };
    table.apply(&(0..1_000).map(reports).collect::<Vec<_>>());
    let mut strategy = carousel(1_000, 200, fresh, ride);
    let mut resident = vec![false; 1_000];
    draw(&mut strategy, 0, Some(&table)).ids[..200].iter().for_each(|&id| resident[id as usize] = true);
    let mut read = 0;
    for epoch in 1..=20 {
        let drawn = draw(&mut strategy, epoch, Some(&table));
        assert_eq!(drawn.ids.len(), 1_000);
        let mut events = drawn.events.iter().peekable();
        for (slot, &id) in (0..).zip(&drawn.ids) {
            while let Some((_, Event::Leave(left))) = events.next_if(|(at, _)| *at <= slot) {
                resident[*left as usize] = false;
            }
            read += u32::from(!std::mem::replace(&mut resident[id as usize], true));
            assert!(resident.iter().filter(|here| **here).count() <= 200 || slot % 50 != 0);
        }
    }
    read
}

#[test]
fn with_enough_storage_it_is_uniform_over_a_static_cache() {
    let mut strategy = carousel(1_000, 200, "0.8", "fifo");
    for epoch in 0..3 {
        let mut drawn = draw(&mut strategy, epoch, None);
        assert!(drawn.events.is_empty());
        drawn.ids.sort_unstable();
        assert_eq!(drawn.ids, Vec::from_iter(0..1_000));
    }
}

#[test]
fn measured_rates_set_the_share_within_its_bounds() {
    let strategy = carousel(1_000, 200, "auto", "fifo");
    let with = |storage, training| {
        let rates = Some(super::super::Rates { storage, training });
        strategy.fresh(&Draw { rates, ..Draw::default() })
    };
    assert_eq!((with(400.0, 1_000.0), with(1.0, 1_000.0), with(9.0, 3.0)), (0.4, 0.25, 1.0));
    assert_eq!((with(f64::NAN, 1.0), with(1.0, 0.0), strategy.fresh(&Draw::default())), (0.25, 0.25, 0.25));
}

#[test]
fn who_was_about_to_leave_when_full_passes_begin_rides_on() {
    let mut strategy = carousel(530, 100, "auto", "fifo");
    let mut riders_after = |epoch, storage| {
        let rates = Some(super::super::Rates { storage, training: 1.0 });
        strategy.draw(&Draw { epoch, world: 1, carried: Some(&[]), rates, ..Draw::default() });
        strategy.window.as_ref().map(Window::riders)
    };
    assert_eq!(riders_after(0, 0.3), Some(100));
    assert!(riders_after(1, 0.3) < Some(100), "the epoch ends within a round");
    assert_eq!(riders_after(2, 1.0), Some(100), "a full pass over a static cache");
}

#[test]
fn a_restored_window_goes_on_the_same() {
    for epochs in [0, 1, 4] {
        let mut strategy = carousel(500, 100, "0.3", "fifo");
        for epoch in 0..epochs {
            draw(&mut strategy, epoch, None);
        }
        let saved = strategy.save();
        let mut restored = carousel(500, 100, "0.3", "fifo");
        restored.restore(&saved).unwrap();
        for epoch in epochs..epochs + 4 {
            assert_eq!(draw(&mut strategy, epoch, None), draw(&mut restored, epoch, None));
        }
        if epochs > 0 {
            assert!(carousel(501, 100, "0.3", "fifo").restore(&saved).is_err());
            assert!(restored.restore(&saved[..saved.len() - 3]).is_err());
        }
    }
}

#[test]
fn the_share_that_was_chosen_is_told_and_whether_the_cache_stands_still() {
    let mut strategy = carousel(1_000, 200, "auto", "fifo");
    assert_eq!(strategy.notes(), [], "nothing was planned");
    let mut notes = |epoch, storage| {
        let rates = Some(super::super::Rates { storage, training: 1.0 });
        strategy.draw(&Draw { epoch, world: 1, carried: Some(&[]), rates, ..Draw::default() });
        strategy.notes()
    };
    assert_eq!(notes(0, 0.4), [("fresh", 0.4), ("still", 1.0)], "the first epoch is a full pass");
    assert_eq!(notes(1, 0.4), [("fresh", 0.4), ("still", 0.0)]);
    assert_eq!(notes(2, 0.01), [("fresh", 0.25), ("still", 0.0)], "never below `least`");
    assert_eq!(notes(3, 0.9), [("fresh", 0.9), ("still", 1.0)], "storage brings all that does not stay");
}
