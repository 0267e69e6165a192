//! Dividing memory between caches.
//!
//! Where all that is asked for fits, each cache has it. Otherwise memory goes where it saves most (Quiver 4.4): each cache has a
//! *gain*, the sum over its jobs of benefit times GPUs, and those with the most gain for a byte come first, each with what it
//! asks for, the last one with what is left. Caches whose jobs gain too little have nothing, unless that is all of them.
//! Before anything was measured of a cache it has its part in proportion to what is asked for.
//!
//! With `quiver` two chunks are enough for what jobs that walk together share, all but one read in as many as there are jobs: that
//! part of the gain is for two chunks, and the rest for what is asked for beyond them.
//!
//! Differs from the paper: a cache may have something between none, two chunks and all that it asks for, since what is
//! beyond two chunks stands still here and is hit in every epoch.

use crate::benefit::ELIGIBLE;
use crate::sampling::two_chunks;

/// What a cache saves whose jobs have these benefits and GPUs; `None` if nothing was measured, or if one was not and the others
/// gain too little. One that was not measured is taken for a mean one of the others, and one that gains too little saves
/// nothing.
fn gain(jobs: &[(Option<f64>, u32)]) -> Option<f64> {
    let known: Vec<f64> = jobs.iter().filter_map(|(benefit, _)| *benefit).collect();
    let mean = known.iter().sum::<f64>() / known.len() as f64;
    let taken = jobs.iter().map(|(benefit, gpus)| (benefit.unwrap_or(mean), gpus));
    let gains =
        taken.filter(|(benefit, _)| *benefit > ELIGIBLE).map(|(benefit, &gpus)| benefit * f64::from(gpus));
    let sum: f64 = gains.sum();
    (!known.is_empty() && (sum > 0.0 || known.len() == jobs.len())).then_some(sum)
}

/// What a job brings to the division of memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wish {
    /// The bytes it asks for.
    pub bytes: u64,
    /// What it gains, once that was measured.
    pub benefit: Option<f64>,
    /// The GPUs that it trains on: one a rank.
    pub gpus: u32,
}

/// What a cache asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ask {
    /// The most bytes that it has a use for.
    pub bytes: u64,
    /// What they would save, once that was measured; 0 where its jobs gain too little.
    pub gain: Option<f64>,
    /// The bytes of two chunks and the jobs that walk through them, where jobs walk together.
    pub chunks: Option<(u64, usize)>,
}

/// Bytes that a cache asks for at once.
struct Step {
    ask: usize,
    bytes: u64,
    /// What a byte of them saves.
    density: f64,
}

impl Ask {
    /// Of a cache with that policy, whose jobs train a dataset of so many bytes: what they ask for together, and no more than
    /// that dataset.
    pub fn of(policy: &str, dataset: u64, wishes: impl IntoIterator<Item = Wish>) -> Self {
        let (mut bytes, mut jobs) = (0u64, Vec::new());
        for wish in wishes {
            bytes = bytes.saturating_add(wish.bytes);
            jobs.push((wish.benefit, wish.gpus));
        }
        let chunks = (policy == "quiver").then(|| (two_chunks(dataset), jobs.len()));
        Self { bytes: bytes.min(dataset), gain: gain(&jobs), chunks }
    }

    /// What it asks for first, and then, where that is less dense.
    fn steps(&self, ask: usize) -> Vec<Step> {
        let gain = self.gain.unwrap_or_default();
        let step = |bytes: u64, gain: f64| Step { ask, bytes, density: gain / bytes.max(1) as f64 };
        if let Some((chunks, jobs)) = self.chunks.filter(|(chunks, jobs)| *chunks < self.bytes && *jobs > 1) {
            let alone = gain / jobs as f64;
            let (shared, rest) = (step(chunks, gain - alone), step(self.bytes - chunks, alone));
            if shared.density >= rest.density {
                return vec![shared, rest];
            }
        }
        vec![step(self.bytes, gain)]
    }
}

/// How many bytes each cache gets of `budget`.
pub fn divide(budget: u64, asks: &[Ask]) -> Vec<u64> {
    let mut parts = in_proportion(budget, asks);
    let fits = parts.iter().zip(asks).all(|(&part, ask)| part == ask.bytes);
    let gains = |ask: &Ask| ask.gain.is_some_and(|gain| gain > 0.0);
    if fits || !asks.iter().any(gains) {
        return parts;
    }
    // What was not measured has its part already.
    let measured = parts.iter_mut().zip(asks).filter(|(_, ask)| ask.gain.is_some());
    measured.for_each(|(part, _)| *part = 0);
    let mut left = budget - parts.iter().sum::<u64>();
    let asking = asks.iter().enumerate().filter(|(_, ask)| gains(ask));
    let mut steps: Vec<Step> = asking.flat_map(|(number, ask)| ask.steps(number)).collect();
    steps.sort_by(|a, b| b.density.total_cmp(&a.density));
    for step in steps {
        let given = step.bytes.min(left);
        (parts[step.ask], left) = (parts[step.ask] + given, left - given);
    }
    parts
}

/// What each asks for where that is enough for all, and otherwise a part in proportion. What rounding leaves over stays free.
fn in_proportion(budget: u64, asks: &[Ask]) -> Vec<u64> {
    let asked: u128 = asks.iter().map(|ask| u128::from(ask.bytes)).sum();
    let part = |ask: &Ask| match u128::from(budget) {
        budget if asked <= budget => ask.bytes,
        budget => (u128::from(ask.bytes) * budget / asked) as u64,
    };
    asks.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asks(bytes: &[u64]) -> Vec<Ask> {
        bytes.iter().map(|&bytes| Ask { bytes, gain: None, chunks: None }).collect()
    }

    fn measured(bytes: u64, gain: f64) -> Ask {
        Ask { bytes, gain: Some(gain), chunks: None }
    }

    fn any_ask() -> impl Strategy<Value = Ask> {
        let gain = proptest::option::of(prop_oneof![Just(0.0), 1.6f64..100.0]);
        let chunks = proptest::option::of((0u64..1 << 40, 1usize..6));
        (0u64..1 << 40, gain, chunks).prop_map(|(bytes, gain, chunks)| Ask { bytes, gain, chunks })
    }

    proptest! {
        #[test]
        fn before_a_probe_parts_fit_and_are_in_proportion(
            budget: u64, bytes in proptest::collection::vec(any::<u64>(), 1..9),
        ) {
            let parts = divide(budget, &asks(&bytes));
            let sum: u128 = parts.iter().map(|&part| u128::from(part)).sum();
            let asked: u128 = bytes.iter().map(|&ask| u128::from(ask)).sum();
            prop_assert!(sum <= u128::from(budget));
            prop_assert!(asked <= u128::from(budget) || sum + bytes.len() as u128 > u128::from(budget));
            for (part, ask) in parts.iter().zip(&bytes) {
                prop_assert!(part <= ask);
                prop_assert!(asked > u128::from(budget) || part == ask);
            }
        }

        #[test]
        fn parts_fit_and_those_that_were_not_measured_have_no_less_than_their_proportion(
            budget in 0u64..1 << 42, asks in proptest::collection::vec(any_ask(), 1..9),
        ) {
            let (parts, before) = (divide(budget, &asks), in_proportion(budget, &asks));
            prop_assert!(parts.iter().sum::<u64>() <= budget);
            for ((part, before), ask) in parts.iter().zip(&before).zip(&asks) {
                prop_assert!(*part <= ask.bytes);
                prop_assert!(ask.gain.is_some() || part == before);
            }
        }

        #[test]
        fn more_gain_or_more_memory_is_never_less_for_a_cache(
            budget in 0u64..1 << 42, more in 0u64..1 << 40, asks in proptest::collection::vec(any_ask(), 2..9),
            factor in 1.0f64..10.0,
        ) {
            let before = divide(budget, &asks);
            let mut gains = asks.clone();
            gains[0].gain = gains[0].gain.map(|gain| gain * factor);
            prop_assert!(divide(budget, &gains)[0] >= before[0]);
            if asks.iter().all(|ask| ask.gain.is_some_and(|gain| gain > 0.0)) {
                let after = divide(budget + more, &asks);
                prop_assert!(before.iter().zip(&after).all(|(before, after)| before <= after));
            }
        }
    }

    #[test]
    fn equal_asks_get_equal_parts_in_any_order() {
        assert_eq!(divide(100, &asks(&[80, 80, 40])), [40, 40, 20]);
        assert_eq!(divide(100, &asks(&[60, 40])), [60, 40]);
    }

    #[test]
    fn the_most_gain_for_a_byte_comes_first_and_the_last_has_what_is_left() {
        let asks = [measured(80, 4.0), measured(40, 3.0), measured(40, 0.0), measured(50, 1.6)];
        assert_eq!(divide(100, &asks), [60, 40, 0, 0]);
        assert_eq!(divide(140, &asks), [80, 40, 0, 20]);
        assert_eq!(divide(205, &asks), [80, 40, 0, 50], "what gains nothing has nothing");
        assert_eq!(divide(210, &asks), [80, 40, 40, 50], "unless all fit");
    }

    #[test]
    fn if_none_gains_all_have_their_parts() {
        assert_eq!(divide(60, &[measured(80, 0.0), measured(40, 0.0)]), [40, 20]);
    }

    #[test]
    fn what_was_not_measured_has_its_part_in_proportion() {
        let unknown = Ask { bytes: 100, gain: None, chunks: None };
        assert_eq!(divide(120, &[measured(100, 9.0), unknown, measured(100, 2.0)]), [80, 40, 0]);
    }

    #[test]
    fn jobs_that_walk_together_share_two_chunks_first() {
        let walked = |jobs| Ask { bytes: 100, gain: Some(4.0), chunks: Some((20, jobs)) };
        let plain = measured(50, 2.5);
        assert_eq!(divide(60, &[plain, walked(4)]), [40, 20], "three of four reads are shared");
        assert_eq!(divide(90, &[plain, walked(4)]), [50, 40]);
        assert_eq!(divide(60, &[plain, walked(1)]), [50, 10], "a job alone shares none");
    }

    #[test]
    fn a_cache_saves_what_its_jobs_gain_on_their_gpus() {
        assert_eq!(gain(&[(Some(3.0), 2), (Some(1.5), 8), (Some(2.0), 1)]), Some(8.0));
        assert_eq!(gain(&[(Some(1.0), 1)]), Some(0.0));
        assert_eq!(gain(&[(None, 4)]), None);
        assert_eq!(gain(&[(Some(2.0), 1), (None, 4)]), Some(10.0));
        assert_eq!(gain(&[(Some(1.0), 1), (None, 1)]), None, "the second may gain");
    }
}
