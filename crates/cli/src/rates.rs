//! How fast jobs are: what successive answers of a server say together.
//!
//! A server counts, and says for how long it has run. Two of its answers give a rate: what was counted between them over
//! the time between them, by the server's own clock, so that a slow answer changes nothing. A batch is served at once,
//! therefore a rate is taken over the last [`WINDOW`] seconds, or over the last two answers where these are further apart.
//!
//! Where a server has restarted, a job has another dataset, or a count of servings went back because an epoch is begun over,
//! earlier answers say nothing any more and the measuring starts afresh. Bytes may go back by themselves, when another job
//! turns out to have what a plan asked for; these are no rate below zero.

use std::collections::{BTreeMap, VecDeque};

use hotset_wire::proto::{JobStats, ServerStats};
use serde::Serialize;

use crate::servers::Found;

/// Over how many seconds rates are taken: long enough for several batches of a slow training.
const WINDOW: f64 = 10.0;

/// How fast a job is now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Rate {
    pub(crate) samples_per_second: f64,
    /// Bytes that storage delivers.
    pub(crate) storage_bytes_per_second: f64,
    /// Bytes of the samples served, taking each for one of mean size: the server counts samples.
    pub(crate) served_bytes_per_second: f64,
    /// Until the epoch under way has ended, if it goes on like this; nothing of a job that stands still.
    pub(crate) seconds_left: Option<f64>,
}

/// How far a job is in the epoch that was begun last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) epoch: u64,
    /// Slots that are served, or that no reader will ask for.
    pub(crate) done: u64,
    pub(crate) planned: u64,
}

impl Progress {
    /// Nothing of a job that has no plans.
    pub(crate) fn of(job: &JobStats) -> Option<Self> {
        let epoch = job.epochs.last()?;
        let done = epoch.served.saturating_add(epoch.abandoned).min(epoch.planned);
        Some(Self { epoch: epoch.epoch, done, planned: epoch.planned })
    }

    /// From 0 to 1. A node that owns nothing of an epoch has done all that there is.
    pub(crate) fn share(self) -> f64 {
        if self.planned == 0 { 1.0 } else { self.done as f64 / self.planned as f64 }
    }

    /// In whole percents: an epoch of which something is left is not at 100.
    pub(crate) fn percent(self) -> u64 {
        (100.0 * self.share()).floor() as u64
    }

    fn seconds_left(self, samples_per_second: f64) -> Option<f64> {
        let slots = self.planned.saturating_sub(self.done);
        (slots > 0 && samples_per_second > 0.0).then(|| slots as f64 / samples_per_second)
    }
}

/// The answers of servers so far, as far as rates need them.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    /// By socket and job.
    jobs: BTreeMap<(String, String), Past>,
}

/// What was seen of a job while its counts went on.
#[derive(Debug, Default)]
struct Past {
    instance: String,
    dataset: String,
    marks: VecDeque<Mark>,
}

/// What a job had counted at a time of its server.
#[derive(Debug, Clone, Copy)]
struct Mark {
    at: f64,
    served: u64,
    storage_bytes: u64,
}

impl Rates {
    /// Takes in what servers answered now, and says in their answers how fast their jobs are.
    pub(crate) fn take<'a>(&mut self, found: impl IntoIterator<Item = &'a mut Found>) {
        let mut before = std::mem::take(&mut self.jobs);
        for one in found {
            let Found { socket, stats, rates } = one;
            let Some(server) = &stats.server else { continue };
            for job in &stats.jobs {
                let key = (socket.clone(), job.job.clone());
                let mut past = before.remove(&key).unwrap_or_default();
                rates.extend(past.take(server, job).map(|rate| (job.job.clone(), rate)));
                self.jobs.insert(key, past);
            }
        }
    }
}

impl Past {
    fn take(&mut self, server: &ServerStats, job: &JobStats) -> Option<Rate> {
        let total = job.total.as_ref();
        let now = Mark {
            at: server.uptime_seconds,
            served: total.map_or(0, |total| total.served),
            storage_bytes: total.map_or(0, |total| total.storage_bytes),
        };
        let went_back = |last: &Mark| now.at < last.at || now.served < last.served;
        let another = self.instance != server.instance || self.dataset != job.dataset;
        if another || self.marks.back().is_some_and(went_back) {
            self.instance.clone_from(&server.instance);
            self.dataset.clone_from(&job.dataset);
            self.marks.clear();
        }
        self.marks.push_back(now);
        // The one before the window's beginning stays while the next one lies inside it.
        while self.marks.len() > 2 && self.marks.get(1).is_some_and(|next| now.at - next.at >= WINDOW) {
            self.marks.pop_front();
        }
        let first = self.marks.front()?;
        let seconds = now.at - first.at;
        (seconds > 0.0).then(|| rate(job, first, &now, seconds))
    }
}

fn rate(job: &JobStats, first: &Mark, now: &Mark, seconds: f64) -> Rate {
    let samples_per_second = now.served.saturating_sub(first.served) as f64 / seconds;
    let mean = if job.samples == 0 { 0.0 } else { job.bytes as f64 / job.samples as f64 };
    Rate {
        samples_per_second,
        storage_bytes_per_second: now.storage_bytes.saturating_sub(first.storage_bytes) as f64 / seconds,
        served_bytes_per_second: samples_per_second * mean,
        seconds_left: Progress::of(job).and_then(|progress| progress.seconds_left(samples_per_second)),
    }
}

#[cfg(test)]
#[path = "rates_tests.rs"]
mod tests;
