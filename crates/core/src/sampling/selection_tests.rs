//! The selected fraction, and what is in it.

use proptest::prelude::*;

use super::*;
use crate::Rng;

fn draw_by(values: &[f32], fraction: f64, seed: u64, front: Vec<Id>) -> Vec<Id> {
    systematic(&Ranking::of(values, seed, 1), fraction, front, &mut Rng::new(seed, 1, "selection"))
}

fn expected(values: &[f32], fraction: f64) -> usize {
    let reported = values.iter().filter(|value| !value.is_nan()).count();
    let beta = 1.0 / fraction - 1.0;
    let sum: f64 = (0..reported).map(|place| ((place as f64 + 0.5) / reported as f64).powf(beta)).sum();
    (sum + (values.len() - reported) as f64).round() as usize
}

#[test]
fn the_fraction_is_exact_with_all_losses_equal_too() {
    for seed in 0..20 {
        assert_eq!(draw_by(&[1.0; 1_000], 0.7, seed, Vec::new()).len(), 700);
        let rising: Vec<f32> = (0..1_000).map(|id| id as f32).collect();
        assert_eq!(draw_by(&rising, 0.7, seed, Vec::new()).len(), 700);
    }
    assert_eq!(draw_by(&[1.0; 1_000], 1.0, 0, Vec::new()).len(), 1_000);
}

#[test]
fn equal_losses_drop_others_each_seed_and_every_sample_as_often() {
    let mut taken = [0u32; 100];
    for seed in 0..2_000 {
        draw_by(&[1.0; 100], 0.7, seed, Vec::new()).into_iter().for_each(|id| taken[id as usize] += 1);
    }
    // 1,400 +- 20.5
    assert!(taken.iter().all(|count| count.abs_diff(1_400) < 103), "{taken:?}");
}

#[test]
fn the_hardest_are_taken_most_often_and_the_unknown_always() {
    let mut values: Vec<f32> = (0..100).map(|id| id as f32).collect();
    values.push(f32::NAN);
    let mut taken = [0u32; 101];
    for seed in 0..2_000 {
        draw_by(&values, 0.7, seed, Vec::new()).into_iter().for_each(|id| taken[id as usize] += 1);
    }
    assert_eq!(taken[100], 2_000);
    for (id, &count) in taken[..100].iter().enumerate() {
        let share = ((id as f64 + 0.5) / 100.0).powf(3.0 / 7.0);
        let spread = (2_000.0 * share * (1.0 - share)).sqrt();
        assert!((f64::from(count) - 2_000.0 * share).abs() < 5.0 * spread + 1.0, "{id}: {count}");
    }
    let tenths: Vec<u32> = taken[..100].chunks(10).map(|tenth| tenth.iter().sum()).collect();
    assert!(tenths.is_sorted(), "{tenths:?}");
}

proptest! {
    #[test]
    fn the_number_taken_is_the_rounded_sum_and_none_is_taken_twice(
        values in proptest::collection::vec(prop_oneof![3 => 0.0f32..3.0, 1 => Just(1.0), 1 => Just(f32::NAN)], 0..200),
        fraction in 0.05f64..1.0, seed: u64,
    ) {
        let mut drawn = draw_by(&values, fraction, seed, Vec::new());
        // The sum of rounded parts may differ from the sum by 2^-33 each, which can turn a rounding.
        prop_assert!(drawn.len().abs_diff(expected(&values, fraction)) <= 1);
        drawn.sort_unstable();
        prop_assert!(drawn.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn carried_ids_come_first_and_once(
        values in proptest::collection::vec(0.0f32..3.0, 10..60), seed: u64
    ) {
        let drawn = draw_by(&values, 0.5, seed, vec![7, 3]);
        prop_assert_eq!(&drawn[..2], &[7, 3]);
        prop_assert!(drawn[2..].iter().all(|id| ![7, 3].contains(id)));
    }
}
