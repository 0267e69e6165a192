//! Logarithms in whole numbers, the same on every machine.
//!
//! Owners must not hang on how a processor or a library rounds. So log2 comes from a table of 1,025 values, worked out
//! digit by digit when this is compiled, with a straight line between two of them: wrong by less than two in ten million,
//! and never falling where its argument grows.

/// Bits after the point.
pub(super) const POINT: u32 = 40;

const STEPS: usize = 1024;

/// log2(1 + i / STEPS).
static TABLE: [u64; STEPS + 1] = {
    let mut table = [0; STEPS + 1];
    let mut i = 0;
    while i <= STEPS {
        table[i] = digits(i);
        i += 1;
    }
    table
};

/// log2(1 + i / STEPS), digit by digit: squaring a number doubles its logarithm.
const fn digits(i: usize) -> u64 {
    if i == STEPS {
        return 1 << POINT;
    }
    let one = 1u128 << 63;
    let mut number = one + (one / STEPS as u128) * i as u128;
    let mut log = 0;
    let mut digit = POINT;
    while digit > 0 {
        digit -= 1;
        number = (number * number) >> 63;
        if number >= 2 * one {
            number >>= 1;
            log |= 1 << digit;
        }
    }
    log
}

/// log2 of a number, with [`POINT`] bits after the point; of 0 that of 1.
pub(super) fn log2(number: u64) -> u64 {
    let number = number.max(1);
    let whole = number.ilog2();
    // The digits behind the first, from the left.
    let rest = (u128::from(number) << (64 - whole)) as u64;
    let (step, within) = ((rest >> 54) as usize, (rest >> 22) & u64::from(u32::MAX));
    let (below, above) = (TABLE[step], TABLE[step + 1]);
    (u64::from(whole) << POINT) + below + (((above - below) * within) >> 32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn as_float(log: u64) -> f64 {
        log as f64 / (1u64 << POINT) as f64
    }

    #[test]
    fn powers_of_two_are_exact_and_the_largest_is_below_64() {
        for power in 0..64u32 {
            assert_eq!(log2(1 << power), u64::from(power) << POINT);
        }
        assert_eq!(log2(0), 0);
        assert!(log2(u64::MAX) < 64 << POINT);
    }

    proptest! {
        #[test]
        fn it_is_the_logarithm_and_never_falls(number in 1u64.., other in 1u64..) {
            prop_assert!((as_float(log2(number)) - (number as f64).log2()).abs() < 2e-7);
            let (less, more) = (number.min(other), number.max(other));
            prop_assert!(log2(less) <= log2(more));
            prop_assert!(log2(less) <= log2(less.saturating_add(1)));
        }
    }
}
