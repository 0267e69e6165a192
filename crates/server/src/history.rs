//! What came of jobs: a summary when one ends, said in the log and kept for `hotset runs`.
//!
//! A summary is worked out from the figures that the engine leaves of a job that has ended. It is a line of JSON in `runs.jsonl`
//! beside the states of jobs. Several servers of a user write one file, one at a time. A file that grows too long is written
//! anew with its last lines.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use hotset_core::bytes::human;
use hotset_core::tally::HISTORY;
use hotset_core::{Error, Result};
use hotset_engine::JobStats;
use hotset_store::regular;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::answer::LITTLE;
use crate::lock::assert_unlocked;

/// The file's name.
const FILE: &str = "runs.jsonl";
/// The bytes at which it is written anew, and the lines that stay then.
const LONGEST: u64 = 1 << 20;
const LINES: usize = 500;

/// What a training waited for most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// It hardly waited: its own computing.
    Training,
    /// Reads from storage.
    Storage,
    /// Other nodes of its cluster.
    Nodes,
    /// Memory, because batches were kept.
    Memory,
}

impl Limit {
    /// As a reader says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::Storage => "storage",
            Self::Nodes => "other nodes",
            Self::Memory => "memory",
        }
    }
}

/// What came of one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// When it ended, in seconds since 1970.
    pub ended: u64,
    /// Its name.
    pub job: String,
    /// Its strategy.
    pub strategy: String,
    /// Its policy.
    pub policy: String,
    /// Where its dataset lies.
    pub place: String,
    /// Epochs of which something was served.
    pub epochs: u64,
    /// How long its epochs took, and what a reader waited of that, in seconds.
    pub seconds: f64,
    /// See `seconds`.
    pub waited: f64,
    /// Samples served, and those of them without a read.
    pub served: u64,
    /// See `served`.
    pub hits: u64,
    /// Samples, requests and bytes that came from storage.
    pub reads: u64,
    /// See `reads`.
    pub requests: u64,
    /// See `reads`.
    pub bytes: u64,
    /// The bytes that plain reading would have taken: each sample served, in a request of its own.
    pub plain_bytes: u64,
    /// What it waited for most.
    pub limit: Limit,
}

impl Summary {
    /// That of a job that ended at some time; `None` if nothing was served, or it trained nothing.
    pub fn of(job: &JobStats, ended: SystemTime) -> Option<Self> {
        let (total, clock) = (&job.total, &job.total.clock);
        if total.served() == 0 || job.strategy.is_empty() {
            return None;
        }
        let (seconds, waited) = (job.total_span.seconds, job.total_span.waited);
        let reasons = [
            (clock.storage_waits + clock.probe_waits, Limit::Storage),
            (clock.node_waits, Limit::Nodes),
            (clock.memory_waits, Limit::Memory),
        ];
        let most = reasons.into_iter().max_by_key(|(waits, _)| *waits).filter(|(waits, _)| *waits > 0);
        let limit = most.filter(|_| waited >= LITTLE * seconds).map_or(Limit::Training, |(_, limit)| limit);
        let served = job.epochs.iter().filter(|(_, counters)| counters.served() > 0).count() as u64;
        // Of so many, those before are kept as a sum.
        let before =
            job.epochs.first().filter(|_| job.epochs.len() >= HISTORY).map_or(0, |(epoch, _)| *epoch);
        let mean = job.bytes as f64 / job.samples.max(1) as f64;
        Some(Self {
            ended: ended.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            job: job.job.clone(),
            strategy: job.strategy.clone(),
            policy: job.policy.clone(),
            place: job.place.clone(),
            epochs: before + served,
            seconds,
            waited,
            served: total.served(),
            hits: total.plan.hit,
            reads: total.storage_reads(),
            requests: total.storage_requests(),
            bytes: total.storage_bytes(),
            plain_bytes: (total.served() as f64 * mean) as u64,
            limit,
        })
    }

    /// The same in a sentence.
    pub fn text(&self) -> String {
        let share = |part: f64, all: f64| if all > 0.0 { 100.0 * part / all } else { 0.0 };
        format!(
            "{} epochs in {:.0} s, {:.0} % of it waiting; {} samples with {} reads in {} requests, {} in place of {}; limited by {}",
            self.epochs,
            self.seconds,
            share(self.waited, self.seconds),
            self.served,
            self.reads,
            self.requests,
            human(self.bytes),
            human(self.plain_bytes),
            self.limit.name(),
        )
    }
}

/// Where summaries are kept.
pub(crate) struct History {
    directory: Option<PathBuf>,
}

impl History {
    /// In a directory; `None`: they are told and not kept.
    pub(crate) fn new(directory: Option<&Path>) -> Self {
        Self { directory: directory.map(Path::to_owned) }
    }

    /// Jobs have ended.
    pub(crate) fn note(&self, ended: &[JobStats]) {
        let now = SystemTime::now();
        for summary in ended.iter().filter_map(|job| Summary::of(job, now)) {
            tracing::info!(job = summary.job, strategy = summary.strategy, "{}", summary.text());
            if let Some(directory) = &self.directory
                && let Err(error) = append(directory, &summary)
            {
                tracing::warn!(job = summary.job, %error, "what came of a job is not kept");
            }
        }
    }
}

/// Appends a line, alone: other servers append too, and one of them may just shorten the file.
fn append(directory: &Path, summary: &Summary) -> Result<()> {
    assert_unlocked();
    let path = directory.join(FILE);
    let failed =
        |error: std::io::Error| Error::unavailable(format!("cannot write `{}`: {error}", path.display()));
    let mut line = serde_json::to_vec(summary)
        .map_err(|error| Error::internal(format!("a summary is no JSON: {error}")))?;
    line.push(b'\n');
    let mut file = alone(&path).map_err(failed)?;
    file.write_all(&line).map_err(failed)?;
    if file.metadata().map_err(failed)?.len() > LONGEST { shorten(&path).map_err(failed) } else { Ok(()) }
}

/// The file to append to, which no other server has until it is dropped.
fn alone(path: &Path) -> std::io::Result<File> {
    loop {
        let file = regular::append(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        // Unless it was shortened meanwhile, and another is in its place.
        if file.metadata()?.nlink() > 0 {
            return Ok(file);
        }
    }
}

/// Keeps the last lines alone, of a file that no other server has.
fn shorten(path: &Path) -> std::io::Result<()> {
    let text = regular::read(path)?;
    let mut from = text.len();
    for line in text.split_inclusive(|&byte| byte == b'\n').rev().take(LINES) {
        if (text.len() - from + line.len()) as u64 > LONGEST / 2 {
            break;
        }
        from -= line.len();
    }
    let aside = path.with_extension("part");
    let written = regular::create(&aside).and_then(|mut file| file.write_all(&text[from..]));
    let done = written.and_then(|()| fs::rename(&aside, path));
    done.inspect_err(|_| drop(fs::remove_file(&aside)))
}

/// What came of the last jobs whose servers keep their states in a directory, the oldest first. Lines that are torn are left out.
pub fn summaries(directory: &Path) -> Result<Vec<Summary>> {
    let path = directory.join(FILE);
    let text = match regular::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(Error::invalid(format!("cannot read `{}`: {error}", path.display()))),
    };
    Ok(text.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(job: &str) -> Summary {
        Summary {
            ended: 7,
            job: job.into(),
            strategy: "uniform".into(),
            policy: "minio".into(),
            place: "/data".into(),
            epochs: 3,
            seconds: 100.0,
            waited: 40.0,
            served: 3_000,
            hits: 400,
            reads: 2_600,
            requests: 2_600,
            bytes: 2_600 << 10,
            plain_bytes: 3_000 << 10,
            limit: Limit::Storage,
        }
    }

    #[test]
    fn a_summary_says_what_a_reader_wants_to_know() {
        let said = "3 epochs in 100 s, 40 % of it waiting; 3000 samples with 2600 reads in 2600 requests, 2.5 MiB in place of \
                    2.9 MiB; limited by storage";
        assert_eq!(summary("exp").text(), said);
        let never = Summary { seconds: 0.0, waited: 0.0, ..summary("exp") };
        assert!(never.text().starts_with("3 epochs in 0 s, 0 % of it waiting"));
    }

    #[test]
    fn summaries_are_kept_in_order_and_torn_lines_left_out() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().to_owned();
        assert!(summaries(&directory).unwrap().is_empty(), "there are none yet");
        append(&directory, &summary("one")).unwrap();
        let mut file = regular::append(&directory.join(FILE)).unwrap();
        file.write_all(b"{\"job\": \"torn\", \"end\n").unwrap();
        append(&directory, &summary("two")).unwrap();
        assert_eq!(summaries(&directory).unwrap(), [summary("one"), summary("two")]);
    }

    #[test]
    fn a_file_that_grows_too_long_keeps_its_last_lines() {
        let place = tempfile::tempdir().unwrap();
        let long = Summary { place: "x".repeat(4_000), ..summary("long") };
        let count = LONGEST / 4_000 + 5;
        for number in 0..count {
            append(place.path(), &Summary { ended: number, ..long.clone() }).unwrap();
        }
        let kept = summaries(place.path()).unwrap();
        assert!(kept.len() <= LINES && kept.last().unwrap().ended == count - 1);
        (0..3 * count).for_each(|_| append(place.path(), &summary("short")).unwrap());
        assert!(fs::metadata(place.path().join(FILE)).unwrap().len() <= LONGEST + 8_000);
        let left = fs::read_dir(place.path()).unwrap().count();
        assert_eq!(left, 1, "nothing is left aside");
    }

    #[test]
    fn what_cannot_be_written_is_said_and_changes_nothing() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        let error = append(&file, &summary("exp")).unwrap_err();
        assert!(error.message.contains("runs.jsonl"), "{error}");
        assert!(summaries(&file).is_err() || summaries(&file).unwrap().is_empty());
    }

    #[test]
    fn servers_that_write_and_shorten_at_once_lose_nothing_of_late() {
        let place = tempfile::tempdir().unwrap();
        let long = Summary { place: "x".repeat(4_000), ..summary("long") };
        let each = LONGEST / 4_000;
        std::thread::scope(|scope| {
            for server in 0..3 {
                let (place, long) = (place.path(), &long);
                scope.spawn(move || {
                    for number in 0..each {
                        append(place, &Summary { ended: server * each + number, ..long.clone() }).unwrap();
                    }
                });
            }
        });
        let kept: Vec<u64> = summaries(place.path()).unwrap().iter().map(|summary| summary.ended).collect();
        for server in 0..3 {
            let mine: Vec<u64> = kept.iter().copied().filter(|ended| ended / each == server).collect();
            assert!(
                mine.windows(2).all(|pair| pair[0] + 1 == pair[1]),
                "none between others is missing: {mine:?}"
            );
        }
        assert!(!kept.is_empty());
    }
}
