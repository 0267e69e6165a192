use proptest::prelude::*;

use super::*;
use crate::benefit::Phase;

/// A run of so many epochs of a thousand batches of ten.
fn at(epoch: u64, slot: usize, epochs: Option<u64>) -> Ahead {
    Ahead { epoch, slot, slots: 10_000, batch: 10, readers: 1, world: 1, epochs }
}

/// Trains the rest of an epoch; batches of misses take so many times as long as others. What changed.
fn train(gauge: &mut Gauge, epoch: u64, from: usize, misses: u32) -> Vec<f64> {
    let (mut found, mut before) = (Vec::new(), None);
    for first in (from..10_000).step_by(10) {
        let took = Duration::from_millis(10) * if before == Some(Phase::Misses) { misses } else { 1 };
        before = gauge.probe().and_then(|probe| probe.phase(epoch, first));
        found.extend(gauge.asked(7, Some(took), Some((epoch, first, first + 9))).0);
    }
    found
}

/// One that was told a time.
fn timed() -> Gauge {
    let mut gauge = Gauge::default();
    gauge.changed();
    gauge.asked(7, Some(Duration::from_millis(10)), None);
    gauge
}

#[test]
fn a_job_is_measured_once_it_has_others_and_a_client_tells_times() {
    let mut gauge = Gauge::default();
    gauge.changed();
    assert!(!gauge.begin(&at(0, 0, None)), "no client has told a time");
    gauge.asked(7, Some(Duration::from_millis(10)), None);
    assert!(gauge.begin(&at(0, 50, None)) && !gauge.begin(&at(0, 50, None)));
    assert_eq!(train(&mut gauge, 0, 0, 3), [3.0]);
    assert_eq!((gauge.benefit(), gauge.measured()), (Some(3.0), Some(0)));
    assert!(gauge.probe().is_none());
}

#[test]
fn without_a_change_it_is_repeated_when_probes_are_below_half_a_percent_of_what_was_trained() {
    let mut gauge = timed();
    assert!(gauge.begin(&at(0, 0, None)));
    train(&mut gauge, 0, 0, 3);
    // The first took 44 batches; two of them are 0.5 % of 17,600.
    for epoch in 1..18 {
        assert!(!gauge.begin(&at(epoch, 0, None)), "{epoch}");
        train(&mut gauge, epoch, 0, 3);
    }
    assert!(gauge.begin(&at(18, 0, None)));
}

#[test]
fn a_change_is_answered_at_once_while_the_run_has_room() {
    let mut gauge = timed();
    // 20,000 batches have room for 199: four of 44, and one of 22.
    for epoch in 0..4 {
        assert!(gauge.begin(&at(epoch, 0, Some(20))), "{epoch}");
        train(&mut gauge, epoch, 0, 3);
        gauge.changed();
    }
    assert!(gauge.begin(&at(4, 0, Some(20))));
    assert_eq!(gauge.probed, 198);
    train(&mut gauge, 4, 0, 3);
    gauge.changed();
    assert!(!gauge.begin(&at(5, 0, Some(20))));
}

#[test]
fn a_run_too_short_is_not_measured_nor_is_the_end_of_an_epoch() {
    let short = Ahead { slots: 6000, ..at(0, 0, Some(1)) };
    assert!(!timed().begin(&short), "12 batches are 2 % of 600, and not below");
    assert!(timed().begin(&Ahead { slots: 6500, ..short }));
    assert!(!timed().begin(&at(0, 9900, None)));
    assert!(timed().begin(&at(0, 9800, None)));
}

#[test]
fn what_differs_by_less_than_a_quarter_changes_nothing() {
    let mut gauge = timed();
    for (epoch, (misses, found)) in
        [(8, vec![8.0]), (7, vec![]), (9, vec![]), (5, vec![5.0])].into_iter().enumerate()
    {
        let epoch = epoch as u64;
        assert!(gauge.begin(&at(epoch, 0, Some(100))));
        assert_eq!(train(&mut gauge, epoch, 0, misses), found);
        assert_eq!(gauge.measured(), Some(epoch));
        gauge.changed();
    }
}

#[test]
fn one_that_is_given_up_leaves_what_was_known_and_is_not_begun_again_at_once() {
    let mut gauge = timed();
    assert!(gauge.begin(&at(0, 0, None)));
    train(&mut gauge, 0, 0, 2);
    gauge.changed();
    assert!(gauge.begin(&at(1, 0, None)) && gauge.give_up() && !gauge.give_up());
    assert_eq!((gauge.benefit(), gauge.measured()), (Some(2.0), Some(0)));
    assert!(!gauge.begin(&at(1, 500, None)));
}

#[test]
fn a_run_without_end_and_one_that_ends_soon_are_measured_as_far_as_they_may() {
    let mut endless = timed();
    endless.changed();
    assert!(endless.begin(&at(0, 0, Some(u64::MAX))));
    // Of a hundred epochs one is left: 2 % of that is too little.
    let mut late = timed();
    late.changed();
    assert!(!late.begin(&Ahead { slots: 6000, ..at(99, 0, Some(100)) }));
}

proptest! {
    #[test]
    fn probes_stay_below_two_percent_and_one_that_is_repeated_below_one(
        epochs in proptest::option::of(1u64..40),
        readers in 1usize..9,
        steps in proptest::collection::vec((any::<bool>(), any::<bool>(), 0usize..9_000), 1..60),
    ) {
        let (mut gauge, mut repeated) = (timed(), false);
        for (epoch, (changes, gives_up, slot)) in (0..).zip(steps) {
            if changes {
                gauge.changed();
            }
            let before = gauge.probed;
            gauge.begin(&Ahead { readers, ..at(epoch, slot, epochs) });
            repeated |= before > 0 && gauge.probed > before;
            if gives_up {
                gauge.give_up();
            }
            train(&mut gauge, epoch, 0, 2);
            let run = (epochs.unwrap_or(EPOCHS) * 1000).max(gauge.batches);
            let most = if repeated { CHANGED_SHARE } else { SHARE };
            prop_assert!((gauge.probed as f64) < most * run as f64);
        }
    }
}
