//! The time of an epoch through PyTorch's own loader, as it shares out work.
//!
//! Batches go to workers in turn. A worker makes one batch after another, sample by sample, and has two to make at a time; it is
//! given the next when one was taken. The trainer takes them in order. At the end of an epoch most workers are
//! idle, and the next one begins with none read: that is part of what an epoch costs.

use std::collections::VecDeque;

use super::Measured;

/// Batches that are walked through; the rest goes on as the second half of these.
const WALKED: u64 = 4_096;
/// Batches that a worker has to make at a time (`prefetch_factor`).
const AHEAD: u64 = 2;

/// How samples come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    pub(super) workers: u32,
    /// Whether samples are fetched from storage one by one, or are in memory.
    pub(super) fetches: bool,
}

/// Seconds of an epoch, all of it; `computing` is a sample's share of training.
pub(super) fn epoch(measured: &Measured, way: Way, computing: f64) -> f64 {
    let batch = measured.loader.batch.min(measured.samples) as f64;
    let batches = measured.samples as f64 / batch;
    let prepared = measured.prepared_in(way.workers);
    // A loader that was run says it better than a model of it.
    let seen = measured.loaded.filter(|_| way.workers == measured.loader.workers);
    let made =
        seen.map_or_else(|| measured.made_in(way.workers), |rate| f64::from(way.workers.max(1)) / rate);
    let each = if way.fetches { made } else { prepared.min(made) };
    if way.workers == 0 {
        return measured.starting + batches * batch * (each + computing);
    }
    measured.starting + walk(batches, way.workers, batch * each, batch * computing)
}

fn walk(batches: f64, workers: u32, making: f64, training: f64) -> f64 {
    let walked = (batches.ceil() as u64).min(WALKED);
    let ahead = AHEAD * u64::from(workers);
    let mut free = vec![0.0f64; workers as usize];
    let mut taken: VecDeque<f64> = VecDeque::with_capacity(ahead as usize);
    let (mut now, mut half) = (0.0f64, 0.0);
    for number in 0..walked {
        let given = if number < ahead { 0.0 } else { taken.pop_front().unwrap_or(0.0) };
        // The last batch may be a short one.
        let share = (batches - number as f64).min(1.0);
        let worker = &mut free[(number % u64::from(workers)) as usize];
        *worker = worker.max(given) + making * share;
        now = now.max(*worker);
        taken.push_back(now);
        now += training * share;
        if number + 1 == walked / 2 {
            half = now;
        }
    }
    if (walked as f64) < batches {
        let each = (now - half) / (walked - walked / 2) as f64;
        now += each * (batches - walked as f64);
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_makes_a_batch_while_another_is_trained() {
        assert!(
            (walk(10.0, 1, 2.0, 1.0) - 21.0).abs() < 1e-9,
            "making is the limit, and the last is trained"
        );
        assert!((walk(10.0, 1, 1.0, 2.0) - 21.0).abs() < 1e-9, "training is, and the first is waited for");
    }

    #[test]
    fn workers_share_the_batches_and_the_last_round_may_leave_most_idle() {
        assert!((walk(16.0, 4, 1.0, 0.0) - 4.0).abs() < 1e-9);
        assert!((walk(17.0, 4, 1.0, 0.0) - 5.0).abs() < 1e-9);
        assert!((walk(16.5, 4, 1.0, 0.0) - 4.5).abs() < 1e-9);
    }

    #[test]
    fn a_long_epoch_goes_on_as_it_began() {
        let (long, longer) = (walk(4_096.0, 8, 1.0, 0.0), walk(8_192.0, 8, 1.0, 0.0));
        assert!((longer / long - 2.0).abs() < 1e-3, "{long} {longer}");
    }
}
