//! Rates of jobs by what their server answers, one time after another.

use hotset_wire::proto::{EpochStats, Stats};

use super::*;

const SOCKET: &str = "/run/server.sock";

/// A job of 1,000 samples of 100 bytes: `served` of 400 slots of epoch 3, and `bytes` from storage.
fn job(served: u64, bytes: u64) -> JobStats {
    let total = EpochStats { served: 1_200 + served, storage_bytes: bytes, ..EpochStats::default() };
    let epoch = EpochStats { epoch: 3, planned: 400, served, ..EpochStats::default() };
    JobStats {
        job: "run/train".into(),
        dataset: "d".into(),
        samples: 1_000,
        bytes: 100_000,
        epochs: vec![epoch],
        total: Some(total),
        ..JobStats::default()
    }
}

fn answer(instance: &str, uptime: f64, job: JobStats) -> Found {
    let server = ServerStats { instance: instance.into(), uptime_seconds: uptime, ..ServerStats::default() };
    let stats = Stats { server: Some(server), jobs: vec![job] };
    Found { socket: SOCKET.into(), stats, rates: BTreeMap::new() }
}

/// The rate after each of these answers.
fn rates(answers: impl IntoIterator<Item = Found>) -> Vec<Option<Rate>> {
    let mut rates = Rates::default();
    let one = |mut found: Found| {
        rates.take([&mut found]);
        found.rates.get("run/train").copied()
    };
    answers.into_iter().map(one).collect()
}

#[test]
fn the_first_answer_has_no_rate_and_the_second_has() {
    let seen = rates([answer("a", 5.0, job(0, 0)), answer("a", 7.0, job(100, 4_000))]);
    let expected = Rate {
        samples_per_second: 50.0,
        storage_bytes_per_second: 2_000.0,
        served_bytes_per_second: 5_000.0,
        seconds_left: Some(6.0),
    };
    assert_eq!(seen, [None, Some(expected)]);
}

#[test]
fn a_rate_is_over_the_last_seconds_and_not_over_all() {
    let mut counts = Rates::default();
    let mut last = None;
    for second in 0..60_u32 {
        // Ten a second at first, then a hundred, in batches of 200 every other second.
        let served =
            if second < 30 { u64::from(second) * 10 } else { 300 + u64::from(second - 30) / 2 * 200 };
        let mut found = answer("a", f64::from(second), job(served, 0));
        counts.take([&mut found]);
        last = found.rates.get("run/train").copied();
    }
    assert_eq!(last.unwrap().samples_per_second, 100.0);
    let far_apart =
        rates([answer("a", 0.0, job(0, 0)), answer("a", 60.0, job(60, 0)), answer("a", 120.0, job(180, 0))]);
    assert_eq!(far_apart[2].unwrap().samples_per_second, 2.0, "of the last minute alone");
}

#[test]
fn a_server_that_restarted_is_measured_afresh() {
    let seen = rates([
        answer("a", 100.0, job(200, 9_000)),
        answer("b", 101.0, job(300, 9_500)),
        answer("b", 102.0, job(310, 9_600)),
    ]);
    assert_eq!(seen[1], None, "counts that another process has made");
    assert_eq!(seen[2].unwrap().samples_per_second, 10.0);
    let back = rates([answer("a", 100.0, job(200, 0)), answer("a", 2.0, job(201, 0))]);
    assert_eq!(back[1], None, "a clock that went back");
}

#[test]
fn no_count_that_goes_back_gives_a_rate_below_zero() {
    let seen = rates([
        answer("a", 1.0, job(200, 9_000)),
        answer("a", 2.0, job(150, 9_000)),
        answer("a", 3.0, job(160, 8_000)),
    ]);
    assert_eq!(seen[1], None, "an epoch that is begun over");
    let rate = seen[2].unwrap();
    assert_eq!((rate.samples_per_second, rate.storage_bytes_per_second), (10.0, 0.0));
}

#[test]
fn a_job_that_stands_still_and_an_epoch_that_has_ended_have_no_time_left() {
    let still = rates([answer("a", 1.0, job(200, 0)), answer("a", 2.0, job(200, 0))])[1].unwrap();
    assert_eq!((still.samples_per_second, still.seconds_left), (0.0, None));
    let ended = rates([answer("a", 1.0, job(200, 0)), answer("a", 2.0, job(400, 0))])[1].unwrap();
    assert_eq!((ended.samples_per_second, ended.seconds_left), (200.0, None));
    let none = JobStats { epochs: Vec::new(), ..job(200, 0) };
    let unplanned =
        rates([answer("a", 1.0, JobStats { epochs: Vec::new(), ..job(100, 0) }), answer("a", 2.0, none)]);
    assert_eq!(unplanned[1].unwrap().seconds_left, None, "a dataset without a sampler");
}

#[test]
fn two_answers_at_once_and_a_job_of_nothing_divide_by_nothing() {
    assert_eq!(rates([answer("a", 1.0, job(0, 0)), answer("a", 1.0, job(9, 0))]), [None, None]);
    let empty = || JobStats { job: "run/train".into(), ..JobStats::default() };
    let seen = rates([answer("a", 1.0, empty()), answer("a", 2.0, empty())]);
    assert_eq!(seen[1], Some(Rate::default()));
}

#[test]
fn a_job_that_went_and_came_again_is_measured_afresh() {
    let mut counts = Rates::default();
    let mut first = answer("a", 1.0, job(0, 0));
    counts.take([&mut first]);
    counts.take([]);
    let mut again = answer("a", 9.0, job(50, 0));
    counts.take([&mut again]);
    assert!(again.rates.is_empty());
}

#[test]
fn what_no_reader_asks_for_is_done_too() {
    let epoch = EpochStats { epoch: 2, planned: 10, served: 4, abandoned: 1, ..EpochStats::default() };
    let half = JobStats { epochs: vec![epoch], ..JobStats::default() };
    let progress = Progress::of(&half).unwrap();
    assert_eq!((progress.epoch, progress.share()), (2, 0.5));
    assert_eq!(Progress { epoch: 0, done: 999, planned: 1_000 }.percent(), 99, "something is left");
    let over = EpochStats { planned: 10, served: 12, ..EpochStats::default() };
    let over = JobStats { epochs: vec![over], ..JobStats::default() };
    assert_eq!(Progress::of(&over).unwrap().share(), 1.0);
    let nothing = JobStats { epochs: vec![EpochStats::default()], ..JobStats::default() };
    assert_eq!(Progress::of(&nothing).unwrap().share(), 1.0);
    assert_eq!(Progress::of(&JobStats::default()), None);
}
