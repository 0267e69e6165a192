//! The one source of randomness: a generator made from a seed, an epoch and the name of what is drawn.
//!
//! Every draw has a stream of its own, so that drawing more for one thing never changes another, and any
//! epoch can be drawn without the ones before. Seed, epoch and name are mixed by splitmix64 into the state
//! of a PCG; bounded numbers are Lemire's, without bias. Values never change between versions or machines:
//! plans are worked out again from their seed after a restart, and on every host of a job.

use std::collections::BTreeMap;

use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;

/// Draws numbers that repeat from what it was made from.
#[derive(Debug, Clone)]
pub struct Rng {
    generator: Pcg64Mcg,
    drawn: u64,
}

impl Rng {
    /// The generator of `stream` in `epoch`. What belongs to no epoch uses epoch 0 and a name of its own.
    pub fn new(seed: u64, epoch: u64, stream: &'static str) -> Self {
        let mut state = 0;
        for word in [seed, epoch].into_iter().chain(stream.bytes().map(u64::from)) {
            state = splitmix64(state ^ word);
        }
        let upper = splitmix64(state);
        let state = u128::from(upper) << 64 | u128::from(splitmix64(upper));
        Self { generator: Pcg64Mcg::new(state), drawn: 0 }
    }

    fn next(&mut self) -> u64 {
        self.drawn = self.drawn.wrapping_add(1);
        self.generator.next_u64()
    }

    /// How far it has come: what [`Self::skip`] takes a new one to.
    pub fn drawn(&self) -> u64 {
        self.drawn
    }

    /// Goes on by as many numbers, in steps of their logarithm.
    pub fn skip(&mut self, numbers: u64) {
        self.drawn = self.drawn.wrapping_add(numbers);
        self.generator.advance(u128::from(numbers));
    }

    /// A number from `0..n`, each as likely; 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        let mut wide = u128::from(self.next()) * u128::from(n);
        if (wide as u64) < n {
            // The lowest 2^64 mod n products of each interval are surplus; dividing is rarely needed.
            let surplus = n.wrapping_neg() % n;
            while (wide as u64) < surplus {
                wide = u128::from(self.next()) * u128::from(n);
            }
        }
        (wide >> 64) as u64
    }

    /// A number from 0 up to but not including 1, in steps of 2^-53.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Brings `items` into random order, each order as likely. The last place is settled first.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    /// The last `k` of `0..n` as [`shuffle`](Self::shuffle) would leave them, in time and memory of `k`
    /// alone. More than `n` are all `n`.
    pub fn shuffled_tail(&mut self, n: u32, k: u32) -> Vec<u32> {
        // Only places that an item was moved to differ from the identity. Ordered, not hashed: the
        // standard hash brings randomness of its own.
        let mut moved = BTreeMap::new();
        let mut tail = Vec::new();
        for last in (n.saturating_sub(k)..n).rev() {
            let here = moved.remove(&last).unwrap_or(last);
            let from = if last == 0 { 0 } else { self.below(u64::from(last) + 1) as u32 };
            tail.push(if from == last { here } else { moved.insert(from, here).unwrap_or(from) });
        }
        tail.reverse();
        tail
    }
}

/// A random permutation of `0..n` of which any place can be asked for, in no memory: a hash of
/// (seed, epoch, place) that never gives two places the same number.
///
/// Six half rounds of a Feistel network over the next power of two, walked along its cycle until it lands
/// below `n`, twice on average at most. Good enough to break ties and to spread ids; a plan is shuffled.
#[derive(Debug, Clone, Copy)]
pub struct Scatter {
    n: u32,
    key: u64,
    upper: u32,
    lower: u32,
}

impl Scatter {
    /// The permutation of `0..n` of `stream` in `epoch`.
    pub fn new(n: u32, seed: u64, epoch: u64, stream: &'static str) -> Self {
        let bits = n.saturating_sub(1).checked_ilog2().map_or(2, |log| (log + 1).max(2));
        let key = Rng::new(seed, epoch, stream).next();
        Self { n, key, upper: bits / 2, lower: bits - bits / 2 }
    }

    /// The number at `place`, which must be below `n`.
    pub fn at(&self, place: u32) -> u32 {
        let mut number = u64::from(place);
        loop {
            let (mut upper, mut lower) = (number >> self.lower, number & ((1 << self.lower) - 1));
            for round in 0..3 {
                upper ^= splitmix64(self.key ^ lower ^ (round << 40)) >> (64 - self.upper);
                lower ^= splitmix64(self.key ^ upper ^ (round << 40 | 1 << 48)) >> (64 - self.lower);
            }
            number = upper << self.lower | lower;
            if number < u64::from(self.n) {
                return number as u32;
            }
        }
    }
}

/// The step of splitmix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection under which near inputs part.
pub(crate) fn splitmix64(input: u64) -> u64 {
    let mut z = input.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert, prop_assert_eq, proptest};

    use super::*;

    fn first(seed: u64, epoch: u64, stream: &'static str) -> u64 {
        Rng::new(seed, epoch, stream).below(u64::MAX)
    }

    #[test]
    fn splitmix64_is_the_published_one() {
        assert_eq!(splitmix64(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(splitmix64(0x9e37_79b9_7f4a_7c15), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn values_never_change_between_versions() {
        let mut rng = Rng::new(7, 3, "golden");
        let numbers: Vec<u64> = (0..6).map(|_| rng.below(1_000_000)).collect();
        let mut order: Vec<u32> = (0..10).collect();
        rng.shuffle(&mut order);
        assert_eq!(numbers, [69_951, 12_744, 857_181, 825_311, 194_019, 472_705]);
        assert_eq!(order, [4, 6, 0, 8, 5, 1, 2, 7, 3, 9]);
        assert_eq!(rng.unit().to_bits(), 0x3fe2_ea7d_e155_948d);
    }

    #[test]
    fn seed_epoch_and_stream_each_change_what_is_drawn() {
        let base = first(1, 2, "a");
        assert_eq!(base, first(1, 2, "a"));
        for other in [first(2, 2, "a"), first(2, 1, "a"), first(1, 3, "a"), first(1, 2, "b"), first(1, 2, "")]
        {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn one_that_skips_goes_on_where_another_stands() {
        let mut rng = Rng::new(7, 3, "skip");
        for _ in 0..1_000 {
            rng.below(3 << 62);
        }
        assert!(rng.drawn() > 1_000, "some were drawn again");
        let mut other = Rng::new(7, 3, "skip");
        other.skip(rng.drawn());
        assert_eq!((other.drawn(), other.below(u64::MAX)), (rng.drawn(), rng.below(u64::MAX)));
    }

    #[test]
    fn every_number_below_the_bound_is_as_likely() {
        let mut rng = Rng::new(0, 0, "counts");
        let mut counts = [0u32; 7];
        for _ in 0..70_000 {
            counts[rng.below(7) as usize] += 1;
        }
        // Five standard deviations of 10,000 +- 93.
        assert!(counts.iter().all(|&count| count.abs_diff(10_000) < 465), "{counts:?}");
        assert_eq!((rng.below(0), rng.below(1)), (0, 0));
        // Three quarters of 2^64: a plain multiplication would make every third number twice as likely.
        let thirds = (0..9_000).filter(|_| rng.below(3 << 62).is_multiple_of(3)).count();
        assert!(thirds.abs_diff(3_000) < 225, "{thirds}");
    }

    #[test]
    fn each_order_of_three_is_as_likely() {
        let mut rng = Rng::new(0, 0, "orders");
        let mut counts = BTreeMap::new();
        for _ in 0..6_000 {
            let mut items = [0, 1, 2];
            rng.shuffle(&mut items);
            *counts.entry(items).or_insert(0u32) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|count| count.abs_diff(1_000) < 150), "{counts:?}");
    }

    #[test]
    fn scattered_places_differ_in_no_number_and_are_even() {
        for n in [1u32, 2, 3, 5, 64, 65, 1_000] {
            let scatter = Scatter::new(n, 1, 2, "scatter");
            let mut numbers: Vec<u32> = (0..n).map(|place| scatter.at(place)).collect();
            numbers.sort_unstable();
            assert_eq!(numbers, Vec::from_iter(0..n));
        }
        // How often number 0 of 16 stands in each place, over seeds: 1,000 +- 31.
        let mut counts = [0u32; 16];
        for seed in 0..16_000 {
            let scatter = Scatter::new(16, seed, 0, "scatter");
            counts[(0..16).position(|place| scatter.at(place) == 0).unwrap()] += 1;
        }
        assert!(counts.iter().all(|count| count.abs_diff(1_000) < 155), "{counts:?}");
    }

    proptest! {
        #[test]
        fn the_unit_interval_is_kept(seed: u64) {
            let mut rng = Rng::new(seed, 0, "unit");
            prop_assert!((0..100).all(|_| (0.0..1.0).contains(&rng.unit())));
        }

        #[test]
        fn a_tail_is_the_tail_of_the_full_shuffle(seed: u64, n in 0u32..60, k in 0u32..70) {
            let mut full: Vec<u32> = (0..n).collect();
            Rng::new(seed, 0, "tail").shuffle(&mut full);
            let tail = Rng::new(seed, 0, "tail").shuffled_tail(n, k);
            prop_assert_eq!(&tail[..], &full[n.saturating_sub(k) as usize..]);
        }
    }
}
