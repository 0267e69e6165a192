//! What four jobs on one dataset read together, in trainings so long that each is measured: what probes read is in it.

use std::sync::atomic::Ordering;

use crate::common::training::{Training, settles};
use crate::common::{config, dataset, request};
use hotset_engine::{Config, Engine, JobRequest};

const SAMPLES: usize = 4000;
/// As many bytes as make a window of what is read ahead an eighth of them.
const SIZE: u64 = 2100;
const BATCH: usize = 10;
const EPOCHS: u64 = 10;

/// When a job starts, in epochs, how long a batch of it takes, and its seed.
type Job = (f64, f64, u64);

/// What trainings have read.
struct Read {
    /// Samples that each has read.
    jobs: Vec<u64>,
    /// Probes that have ended.
    measured: usize,
}

impl Read {
    fn all(&self) -> f64 {
        self.jobs.iter().sum::<u64>() as f64
    }
}

/// Trains jobs beside each other, each in its time, over a fifth of the dataset for all of them. Each sees every sample
/// once an epoch.
fn train(strategy: &str, policy: &str, jobs: &[Job]) -> Read {
    let (opened, store) = dataset(&[SIZE; SAMPLES]);
    let bytes = SAMPLES as u64 * SIZE;
    let engine = Engine::new(Config { memory: Some(bytes / 5), ..config() });
    let request = |number: usize| JobRequest {
        job: format!("job-{number}"),
        seed: jobs[number].2,
        strategy: Some(strategy.into()),
        epochs: Some(EPOCHS),
        ..request(&opened, "20%", policy)
    };
    // What is read for each, and when it asks for its next batch.
    let mut times: Vec<Option<f64>> =
        jobs.iter().map(|(start, ..)| Some(start * (SAMPLES / BATCH) as f64)).collect();
    let mut open: Vec<Option<Training<'_>>> = jobs.iter().map(|_| None).collect();
    let mut read = Read { jobs: vec![0; jobs.len()], measured: 0 };
    let next = |times: &[Option<f64>]| {
        let open = times.iter().enumerate().filter_map(|(job, time)| Some((job, (*time)?)));
        open.min_by(|a, b| a.1.total_cmp(&b.1))
    };
    while let Some((number, time)) = next(&times) {
        let job =
            open[number].get_or_insert_with(|| Training::open(&engine, &opened, request(number), (4, BATCH)));
        let goes_on = job.step(EPOCHS);
        // Time is batches here, and a plan takes none of it.
        settles("a plan is made", || !engine.plans(job.reader.job));
        if goes_on {
            times[number] = Some(time + jobs[number].1);
            continue;
        }
        settles("probes are counted", || engine.stats().reads_in_flight == 0);
        let stats = job.stats();
        for (epoch, counted) in &stats.epochs {
            let each = (counted.plan.distinct, counted.served());
            assert_eq!(each, (SAMPLES as u64, SAMPLES as u64), "epoch {epoch} of {}", stats.job);
        }
        assert_eq!(stats.total.clock.recovery_reads, 0, "{}", stats.job);
        (read.jobs[number], times[number]) = (stats.total.storage_reads(), None);
        read.measured += usize::from(stats.benefit.is_some());
        engine.end_job(job.reader.job);
    }
    assert_eq!(read.jobs.iter().sum::<u64>(), store.reads.load(Ordering::SeqCst), "all reads are counted");
    read
}

/// What one job reads alone: everything once, and in every later epoch what does not fit.
const ONE: f64 = (SAMPLES + 9 * SAMPLES * 4 / 5) as f64;

#[test]
fn one_job_alone_reads_what_does_not_fit() {
    assert_eq!(train("quiver", "quiver", &[(0.0, 1.0, 7)]).all(), ONE);
}

#[test]
fn four_jobs_of_quiver_read_what_one_reads() {
    for spread in [0.0, 0.5, 2.5] {
        let jobs = [1, 2, 3, 4].map(|seed| (spread * (seed - 1) as f64 / 3.0, 1.0, seed));
        let four = train("quiver", "quiver", &jobs);
        let (ratio, most) = (four.all() / ONE, 1.05 * (1.0 + spread / EPOCHS as f64));
        assert!(ratio <= most, "starts over {spread} epochs: {ratio:.3} times one, at most {most:.3}");
        assert_eq!(four.measured, 4);
    }
}

#[test]
fn a_job_of_quiver_of_half_the_speed_costs_the_others_little() {
    let four = train("quiver", "quiver", &[(0.0, 1.0, 1), (0.0, 1.0, 2), (0.0, 1.0, 3), (0.0, 2.0, 4)]);
    let fast = four.jobs[..3].iter().sum::<u64>() as f64 / ONE;
    assert!(fast <= 1.2, "three at full speed: {fast:.3} times one");
    assert_eq!(four.measured, 4);
}

#[test]
fn four_jobs_of_one_seed_read_what_one_reads() {
    let four = train("uniform", "minio", &[(0.0, 1.0, 7); 4]);
    let ratio = four.all() / ONE;
    assert!(ratio <= 1.05, "{ratio:.3} times one");
    assert_eq!(four.measured, 4);
}
