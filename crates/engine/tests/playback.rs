//! Live runs with all that may happen to an epoch, played back from the logs of their caches: left early, begun over, gone
//! back to, cut anew for other ranks, left for good in the middle, and measured on the way.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{self, MemoryLogs, Reader, dataset, place, request, sharded};
use crate::differential::{BATCH, accuracy, loss, sizes};
use hotset_core::benefit::Phase;
use hotset_core::log::{Event, Playback, Step, decode, encode};
use hotset_core::sampling::Plan;
use hotset_core::{Id, Index, policy, sampling};
use hotset_engine::{Config, Engine, JobRequest, Trained};
use hotset_store::Opened;

/// A job that is trained by one process after another.
struct Training<'a> {
    engine: &'a Engine,
    opened: &'a Opened,
    job: &'static str,
    /// How many times as long its batches take that are read from storage.
    gains: u32,
    reader: Reader<'a>,
}

impl<'a> Training<'a> {
    fn new(engine: &'a Engine, opened: &'a Opened, request: &JobRequest, gains: u32) -> Self {
        let job: &'static str = request.job.clone().leak();
        let reader = Reader::of_job(engine, opened, job);
        engine.open_job(reader.session, request.clone(), place(opened, request)).unwrap();
        Self { engine, opened, job, gains, reader }
    }

    /// Its process goes, and another comes.
    fn come_back(&mut self, request: &JobRequest) {
        self.engine.detach(self.reader.session, Instant::now());
        self.reader = Reader::of_job(self.engine, self.opened, self.job);
        self.engine.open_job(self.reader.session, request.clone(), None).unwrap();
    }

    fn begin(&self, epoch: u64, (rank, world): (u32, u32), start: u64) -> Arc<Plan> {
        let ids = self.engine.reevaluation(self.job, epoch, (rank, world)).unwrap();
        let losses: Vec<f32> = ids.iter().map(|&id| loss(id, epoch)).collect();
        let mut reader = Reader::of_job(self.engine, self.opened, self.job);
        for some in ids.chunks(BATCH) {
            let index = |&id: &Id| Index { epoch: None, sample: id.into() }.into_raw();
            reader.get_reevaluated(&some.iter().map(index).collect::<Vec<_>>(), epoch);
        }
        self.engine.reevaluated(self.job, epoch, rank, (&ids, &losses), true).unwrap();
        common::begin(self.engine, self.job, epoch, (rank, world), start)
    }

    /// Trains positions of a rank.
    fn walk(&mut self, plan: &Plan, rank: u32, positions: Range<usize>) {
        let epoch = plan.epoch();
        let mut last = None;
        for from in positions.clone().step_by(BATCH) {
            let at = from..(from + BATCH).min(positions.end);
            let ids: Vec<Id> = at.clone().map(|at| plan.ids()[plan.slot(rank, at)]).collect();
            let times = if last == Some(Phase::Misses) { self.gains } else { 1 };
            self.reader.since = Some(Duration::from_millis(10) * times);
            let index = |&id: &Id| Index { epoch: Some(epoch), sample: id.into() }.into_raw();
            let held = self.reader.get_as(rank, &ids.iter().map(index).collect::<Vec<_>>()).unwrap();
            last = self.engine.probed(self.job, epoch, plan.slot(rank, from));
            self.reader.release(held);
            let losses: Vec<f32> = ids.iter().map(|&id| loss(id, epoch)).collect();
            let trained = Trained { epoch, rank, upto: at.end as u64, ids: &ids, losses: &losses };
            self.engine.report(self.job, trained).unwrap();
        }
        self.engine.end_epoch(self.job, epoch, rank, Some(accuracy(epoch))).unwrap();
    }

    fn train(&mut self, epoch: u64) -> Arc<Plan> {
        let plan = self.begin(epoch, (0, 1), 0);
        self.walk(&plan, 0, 0..plan.rank_len());
        plan
    }
}

/// Trains epochs and leaves the second one early.
fn leaves_early(mut job: Training<'_>, _request: &JobRequest) {
    job.train(0);
    let plan = job.begin(1, (0, 1), 0);
    job.walk(&plan, 0, 0..plan.rank_len() / 3);
    job.train(2);
    job.train(3);
}

/// Begins the second epoch over, from its start and from its middle, and goes back to the first.
fn begins_over(mut job: Training<'_>, _request: &JobRequest) {
    job.train(0);
    let plan = job.begin(1, (0, 1), 0);
    let half = plan.rank_len() / 2 / BATCH * BATCH;
    job.walk(&plan, 0, 0..half);
    job.begin(1, (0, 1), 0);
    job.walk(&plan, 0, 0..half);
    job.begin(1, (0, 1), half as u64);
    job.walk(&plan, 0, half..plan.rank_len());
    job.train(2);
    job.train(0);
    job.train(1);
}

/// Comes back in mid-epoch with two ranks, one of which leaves before the other.
fn changes_world(mut job: Training<'_>, request: &JobRequest) {
    job.train(0);
    let plan = job.begin(1, (0, 1), 0);
    let third = plan.rank_len() / 3 / BATCH * BATCH;
    job.walk(&plan, 0, 0..third);
    job.come_back(request);
    let start = third / 2;
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| job.begin(1, (0, 2), start as u64));
        let second = scope.spawn(|| job.begin(1, (1, 2), start as u64));
        (first.join().unwrap(), second.join().unwrap())
    });
    assert_eq!(first.world(), 2);
    job.walk(&first, 0, start..first.rank_len());
    job.walk(&second, 1, start..start + 2 * BATCH);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| job.begin(2, (0, 2), 0));
        let second = scope.spawn(|| job.begin(2, (1, 2), 0));
        (first.join().unwrap(), second.join().unwrap())
    });
    let plan = job.begin(2, (0, 2), 0);
    job.walk(&plan, 0, 0..plan.rank_len());
    job.walk(&plan, 1, 0..plan.rank_len());
}

/// Ends in the middle of its second epoch.
fn ends_early(mut job: Training<'_>, _request: &JobRequest) {
    job.train(0);
    let plan = job.begin(1, (0, 1), 0);
    job.walk(&plan, 0, 0..plan.rank_len() / 2);
    job.engine.close_job(job.reader.session, job.job);
}

type Script = fn(Training<'_>, &JobRequest);
const SCRIPTS: [Script; 4] = [leaves_early, begins_over, changes_world, ends_early];

/// Trains a job by each script at once, with one policy, and plays back all logs. What happened, over all of them.
fn play_back(opened: &Opened, strategy: &str, policy: &str, packages: bool) -> Vec<Event> {
    let (logs, memory) = (Arc::new(MemoryLogs::default()), Some(opened.catalog.bytes() / 4));
    let engine = Engine::new(Config { logs: Some(logs.clone()), memory, ..common::config() });
    let places = tempfile::tempdir().unwrap();
    let own = |(seed, script): (u64, &Script)| {
        let job = format!("{strategy}-{policy}-{seed}");
        let place = places.path().join(&job).to_str().unwrap().to_owned();
        let request = JobRequest {
            packages: packages.then_some(place),
            package_bytes: 1200,
            job,
            seed,
            strategy: Some(strategy.into()),
            // So long that it is worth measuring.
            epochs: Some(100),
            ..request(opened, "20%", policy)
        };
        (request, *script)
    };
    let scripts: Vec<(JobRequest, Script)> = (1..).zip(&SCRIPTS).map(own).collect();
    let jobs =
        scripts.iter().map(|(request, _)| Training::new(&engine, opened, request, request.seed as u32));
    let jobs: Vec<Training<'_>> = jobs.collect();
    std::thread::scope(|scope| {
        for (job, (request, script)) in jobs.into_iter().zip(&scripts) {
            scope.spawn(move || script(job, request));
        }
    });
    engine.note_counts();
    let mut all = Vec::new();
    let mut played = 0;
    for log in logs.all() {
        let mut playback = Playback::new();
        for event in &log {
            playback.play(&decode(&encode(event)).unwrap());
        }
        assert_eq!(playback.ended(), None, "{strategy}+{policy}");
        for job in playback.jobs() {
            let name = &job.setup().job;
            let mut compared = 0;
            for (epoch, counted) in job.epochs() {
                assert_eq!(counted.live, counted.played, "epoch {epoch} of {name}");
                assert!(counted.same, "epoch {epoch} of {name} before its end");
                compared += counted.live.hit + counted.live.single + counted.live.packed;
            }
            assert!(compared > 400, "{name}: {compared} servings");
            played += 1;
        }
        all.extend(log);
    }
    assert_eq!(played, SCRIPTS.len());
    all
}

/// How many steps of that kind there were.
fn steps(events: &[Event], is: fn(&Step) -> bool) -> usize {
    events.iter().filter(|event| matches!(event, Event::Epoch { step, .. } if is(step))).count()
}

/// So large that no window holds an epoch.
fn large() -> Vec<u64> {
    sizes().into_iter().map(|size| 80 * size).collect()
}

#[test]
fn whatever_becomes_of_epochs_a_log_plays_back_to_the_same_counts() {
    let opened = dataset(&large()).0;
    let mut all = Vec::new();
    for (strategy, policy) in [
        ("pads", "app"),
        ("batchloss", "pq"),
        ("iis", "pq_lfu"),
        ("carousel", "carousel"),
        ("iis", "icache"),
        ("quiver", "quiver"),
        ("uniform", "minio"),
        ("hybrid", "impact"),
    ] {
        all.extend(play_back(&opened, strategy, policy, false));
    }
    assert!(steps(&all, |step| matches!(step, Step::BegunAgain { .. })) >= 16);
    assert!(steps(&all, |step| matches!(step, Step::Recut { world: 2 })) >= 8);
    assert!(steps(&all, |step| matches!(step, Step::Closed { .. })) >= 8);
    let seen = |is: fn(&Event) -> bool| all.iter().filter(|event| is(event)).count();
    assert!(seen(|event| matches!(event, Event::Rewound(..))) >= 8);
    assert!(seen(|event| matches!(event, Event::Left(_))) >= 8);
    assert!(seen(|event| matches!(event, Event::Weighed { .. })) > 0, "a job was measured");
}

#[test]
fn every_policy_and_every_strategy_is_played_back() {
    let opened = dataset(&sizes()).0;
    for policy in policy::REGISTRY.iter().filter(|policy| !policy.offline && policy.bounded) {
        play_back(&opened, "iis", policy.name, false);
    }
    for strategy in sampling::REGISTRY {
        play_back(&opened, strategy.name, strategy.policy, false);
    }
}

#[test]
fn packages_and_runs_of_shards_are_played_back() {
    for (opened, packages) in [(dataset(&sizes()).0, true), (sharded(&sizes(), 70).0, false)] {
        for (strategy, policy) in [("iis", "icache"), ("hybrid", "impact"), ("uniform", "lru")] {
            let all = play_back(&opened, strategy, policy, packages);
            let packed = all.iter().any(|event| match event {
                Event::Counted(_, epochs) => epochs.iter().any(|(_, counted)| counted.packed > 0),
                _ => false,
            });
            assert_eq!(packed, policy != "lru", "{strategy}+{policy} {packages}");
        }
    }
}
