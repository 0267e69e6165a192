//! Dividing memory between caches.

/// How many bytes each cache gets of `budget`: what it asks for where that is enough for all, and otherwise a part in
/// proportion. What rounding leaves over stays free.
pub fn divide(budget: u64, asks: &[u64]) -> Vec<u64> {
    let asked: u128 = asks.iter().map(|&ask| u128::from(ask)).sum();
    if asked <= u128::from(budget) {
        return asks.to_vec();
    }
    asks.iter().map(|&ask| (u128::from(ask) * u128::from(budget) / asked) as u64).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parts_fit_and_are_in_proportion(budget: u64, asks in proptest::collection::vec(any::<u64>(), 1..9)) {
            let parts = divide(budget, &asks);
            let sum: u128 = parts.iter().map(|&part| u128::from(part)).sum();
            let asked: u128 = asks.iter().map(|&ask| u128::from(ask)).sum();
            prop_assert!(sum <= u128::from(budget));
            prop_assert!(asked <= u128::from(budget) || sum + asks.len() as u128 > u128::from(budget));
            for (part, ask) in parts.iter().zip(&asks) {
                prop_assert!(part <= ask);
                prop_assert!(asked > u128::from(budget) || part == ask);
            }
        }
    }

    #[test]
    fn equal_asks_get_equal_parts_in_any_order() {
        assert_eq!(divide(100, &[80, 80, 40]), [40, 40, 20]);
        assert_eq!(divide(100, &[60, 40]), [60, 40]);
    }
}
