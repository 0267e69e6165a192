use proptest::prelude::*;

use super::*;

const BATCH: usize = 8;

/// How fast a training is, in milliseconds a batch.
#[derive(Debug, Clone, Copy)]
struct Training {
    workers: usize,
    compute: u64,
    decode: u64,
    miss: u64,
}

impl Training {
    /// What it gains: readers work beside each other, and the trainer beside them.
    fn gains(self) -> f64 {
        let step = |wait: u64| (self.compute as f64).max((wait + self.decode) as f64 / self.workers as f64);
        step(self.miss) / step(0)
    }

    /// The requests of a loader: when each batch is asked for, by which worker. A worker asks for its next batch when it has
    /// handed over the last and the trainer has taken an earlier one.
    fn requests(self, batches: usize, waits: impl Fn(usize) -> u64) -> Vec<(u64, usize)> {
        let (mut asked, mut done, mut taken) = (vec![0; batches], vec![0; batches], vec![0; batches]);
        for batch in 0..batches {
            let own = batch.checked_sub(self.workers).map_or(0, |before| done[before]);
            let room = batch.checked_sub(self.workers * IN_FLIGHT).map_or(0, |before| taken[before]);
            asked[batch] = own.max(room);
            done[batch] = asked[batch] + waits(batch) + self.decode;
            let free = batch.checked_sub(1).map_or(0, |before| taken[before] + self.compute);
            taken[batch] = free.max(done[batch]);
        }
        let mut requests: Vec<(u64, usize)> = asked.into_iter().zip(0..).collect();
        requests.sort_unstable();
        requests
    }

    /// What a probe finds.
    fn probed(self) -> Progress {
        let length = Length::within(1000, self.workers, 1).unwrap();
        let mut probe = Probe::new(3, 10 * BATCH, BATCH, length);
        let waits = |batch: usize| match probe.phase(3, batch * BATCH) {
            Some(Phase::Hits) => 0,
            // Half of what lies outside it is in the cache.
            None if batch.is_multiple_of(2) => 0,
            _ => self.miss,
        };
        let mut last = vec![None; self.workers];
        for (now, batch) in self.requests(300, waits) {
            let before: Option<u64> = last[batch % self.workers].replace(now);
            let took = before.map(|before| Duration::from_millis(now - before));
            let at = (3, batch * BATCH, batch * BATCH + BATCH - 1);
            probe.asked((batch % self.workers) as u64, took, Some(at));
            if probe.progress() != Progress::UnderWay {
                break;
            }
        }
        probe.progress()
    }
}

proptest! {
    #[test]
    fn it_finds_what_a_training_gains(
        workers in 1usize..9, compute in 5u64..200, decode in 1u64..50, miss in 0u64..400,
    ) {
        let training = Training { workers, compute, decode, miss };
        let Progress::Measured(found) = training.probed() else { panic!("{training:?}") };
        let truth = training.gains();
        prop_assert!((found / truth - 1.0).abs() < 0.2, "{training:?}: {found:.2}, and it gains {truth:.2}");
    }
}

#[test]
fn a_trainer_slower_than_storage_gains_nothing_and_one_that_waits_gains_much() {
    let slow = Training { workers: 2, compute: 100, decode: 5, miss: 50 };
    assert_eq!(slow.probed(), Progress::Measured(1.0));
    let fast = Training { compute: 10, ..slow };
    let Progress::Measured(found) = fast.probed() else { panic!() };
    assert!((2.5..3.0).contains(&found), "{found}");
}

#[test]
fn runs_are_as_long_as_there_is_room_for() {
    assert_eq!(Length::within(1000, 6, 1), Some(Length { discarded: 12, measured: 20 }));
    assert_eq!(Length::within(40, 6, 1), Some(Length { discarded: 12, measured: 8 }));
    assert_eq!(Length::within(31, 6, 1), None, "four batches are the least");
    assert_eq!(Length::within(1000, 8, 2), Some(Length { discarded: 16, measured: 40 }));
    assert_eq!(Length { discarded: 12, measured: 20 }.batches(), 64);
}

/// A probe of four batches of two slots each, after two, from slot 100 on.
fn short() -> Probe {
    Probe::new(1, 100, 2, Length { discarded: 2, measured: 4 })
}

fn seconds(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}

/// One reader asks for every batch of the plan, and each takes so long.
fn walk(probe: &mut Probe, epoch: u64, mut slots: Range<usize>, took: Option<Duration>) {
    while slots.start < slots.end {
        probe.asked(0, took, Some((epoch, slots.start, slots.start + 1)));
        slots.start += 2;
    }
}

#[test]
fn the_runs_lie_behind_each_other_and_the_time_told_is_that_of_the_batch_before() {
    let mut probe = short();
    assert_eq!((probe.misses.clone(), probe.hits()), (100..112, 112..124));
    assert_eq!(probe.phase(1, 99), None);
    assert_eq!((probe.phase(1, 111), probe.phase(1, 112)), (Some(Phase::Misses), Some(Phase::Hits)));
    assert_eq!((probe.phase(0, 111), probe.phase(1, 124)), (None, None));
    walk(&mut probe, 1, 80..102, seconds(9));
    walk(&mut probe, 1, 102..114, seconds(6));
    walk(&mut probe, 1, 114..124, seconds(2));
    assert_eq!(probe.progress(), Progress::UnderWay, "the last batch is not over");
    walk(&mut probe, 1, 124..126, seconds(2));
    assert_eq!(probe.progress(), Progress::Measured(3.0));
}

#[test]
fn an_epoch_that_ends_within_one_ends_it() {
    let mut probe = short();
    walk(&mut probe, 1, 100..108, seconds(6));
    walk(&mut probe, 2, 0..2, seconds(600));
    assert_eq!(probe.progress(), Progress::UnderWay, "one reader may be ahead of another");
    walk(&mut probe, 2, 2..4, seconds(6));
    assert_eq!(probe.progress(), Progress::Unmeasured);
}

#[test]
fn clients_that_tell_no_time_leave_it_unmeasured() {
    let mut probe = short();
    walk(&mut probe, 1, 90..130, None);
    assert_eq!(probe.progress(), Progress::Unmeasured);
}

#[test]
fn one_that_is_cut_measures_what_is_left_or_nothing() {
    for (at, found) in
        [(122, Progress::Unmeasured), (124, Progress::Measured(1.0)), (0, Progress::Unmeasured)]
    {
        let mut probe = short();
        probe.cut(at);
        assert!(probe.hits().start == 112 && probe.hits().end <= 124);
        walk(&mut probe, 1, 90..130, seconds(1));
        assert_eq!(probe.progress(), found, "cut at {at}");
    }
}

#[test]
fn a_batch_that_is_only_partly_of_a_run_is_not_measured() {
    let mut probe = short();
    walk(&mut probe, 1, 99..131, seconds(1));
    assert_eq!(probe.progress(), Progress::Unmeasured, "five of six were inside, two are passed over");
}

#[test]
fn a_pause_is_no_part_of_it_and_no_time_makes_it_absurd() {
    let probed = |times: &dyn Fn(usize, Phase) -> Duration| {
        let mut probe = Probe::new(0, 0, BATCH, Length { discarded: 2, measured: 20 });
        for batch in 0..48 {
            let at = (0, batch * BATCH, batch * BATCH + BATCH - 1);
            let before = batch.checked_sub(1).and_then(|before| probe.phase(0, before * BATCH));
            probe.asked(0, before.map(|phase| times(batch, phase)), Some(at));
        }
        probe.progress()
    };
    let steady = |phase| Duration::from_millis(if phase == Phase::Misses { 80 } else { 20 });
    let paused = probed(&|batch, phase| {
        if batch == 10 || batch == 34 { Duration::from_secs(60) } else { steady(phase) }
    });
    assert!(matches!(paused, Progress::Measured(benefit) if (benefit - 4.0).abs() < 1e-9), "{paused:?}");
    let lied = probed(&|_, phase| if phase == Phase::Misses { Duration::MAX } else { steady(phase) });
    assert_eq!(lied, Progress::Measured(100.0));
    let other = probed(&|_, phase| if phase == Phase::Hits { Duration::MAX } else { steady(phase) });
    assert_eq!(other, Progress::Measured(0.1));
}
