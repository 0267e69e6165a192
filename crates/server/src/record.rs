//! Reports as they came, for a simulation of the run.
//!
//! With a directory to record to, every accepted report of a job is appended to a file named after the job and its run,
//! behind a first entry that says how many samples its dataset has. A run that goes on goes on with its file, behind an
//! entry without samples that says from where: what was recorded later than that is of a future that did not come.
//! `hotset record` makes a trace of it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hotset_core::{Error, Result};
use hotset_engine::Engine;
use hotset_wire::proto::Report;

use crate::lock::Lock;
use crate::runs::{Run, base_name};
use crate::state::log::{self, Log};
use crate::write_queue::WriteQueue;

/// The recordings of jobs, if there is a directory for them.
pub(crate) struct Recorder {
    directory: Option<PathBuf>,
    /// By job, with the run that each is of: another run of a name may begin before the first one's job is gone.
    recordings: Lock<HashMap<String, OfRun>>,
}

/// A run and its recording.
type OfRun = (String, Arc<WriteQueue<Recording>>);

/// The recording of a job's run.
enum Recording {
    /// Nothing was noted yet: where it goes, and its first entries.
    Ahead {
        path: PathBuf,
        samples: Report,
        resumed: Option<Report>,
    },
    Open(Log),
    /// It cannot be written.
    Stopped,
}

impl Recorder {
    pub(crate) fn new(directory: Option<PathBuf>) -> Result<Self> {
        if let Some(directory) = &directory {
            std::fs::create_dir_all(directory).map_err(|error| {
                Error::invalid(format!(
                    "cannot record to `{}`: {error}; choose another `record`",
                    directory.display()
                ))
            })?;
        }
        Ok(Self { directory, recordings: Lock::default() })
    }

    /// Closes the recordings of jobs that have ended.
    pub(crate) fn tidy(&self, engine: &Engine) {
        self.recordings.lock().retain(|job, _| engine.has_job(job));
    }

    /// Notes a report of a run.
    pub(crate) fn note(&self, engine: &Engine, run: &Run, report: &Report) {
        let Some(directory) = self.directory.as_ref().filter(|_| !report.ids.is_empty()) else { return };
        let recording = {
            let mut recordings = self.recordings.lock();
            let ahead = || {
                let recording = Recording::new(directory, engine, run, &report.job);
                (run.run.clone(), Arc::new(WriteQueue::new(recording)))
            };
            let entry = recordings.entry(report.job.clone()).or_insert_with(ahead);
            if entry.0 != run.run {
                *entry = ahead();
            }
            Arc::clone(&entry.1)
        };
        let report = report.clone();
        let noted = recording.push(move |recording| recording.append(&report));
        recording.finish(noted);
    }
}

impl Recording {
    fn new(directory: &Path, engine: &Engine, run: &Run, job: &str) -> Self {
        let base = base_name(job);
        let name = file_word(base);
        let entry = |epoch, upto| Report { job: base.to_owned(), epoch, upto, ..Report::default() };
        let samples = engine.job_stats(Some(job)).first().map_or(0, |stats| stats.samples);
        Self::Ahead {
            path: directory.join(format!("{name}-{}.reports", run.run)),
            samples: entry(0, samples),
            resumed: run.place.map(|(epoch, position)| entry(epoch, position)),
        }
    }

    fn append(&mut self, report: &Report) {
        if let Self::Ahead { path, samples, resumed } = self {
            *self = begin(path, samples, resumed.as_ref());
        }
        if let Self::Open(log) = self
            && let Err(error) = log.append(report)
        {
            // A recording that broke off is told from a whole one by this line alone, so it says which.
            tracing::warn!(job = report.job, %error, "the recording of a job has stopped");
            *self = Self::Stopped;
        }
    }
}

/// A job's name as part of a file's.
pub(crate) fn file_word(name: &str) -> String {
    name.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect()
}

/// A recording, which goes on where a server before this one left it.
fn begin(path: &Path, samples: &Report, resumed: Option<&Report>) -> Recording {
    let opened = log::read(path).and_then(|(before, length)| {
        let mut log = Log::go_on(path, length)?;
        for entry in before.is_empty().then_some(samples).into_iter().chain(resumed) {
            log.append(entry).map_err(|error| Error::unavailable(error.to_string()))?;
        }
        Ok(log)
    });
    match opened {
        Ok(log) => {
            tracing::info!(job = samples.job, file = %path.display(), "reports are recorded");
            Recording::Open(log)
        }
        Err(error) => {
            tracing::warn!(job = samples.job, %error, "reports cannot be recorded");
            Recording::Stopped
        }
    }
}

/// The losses of a recording: how many samples, and for each epoch one value a sample, not a number where none came.
pub fn read(path: &Path) -> Result<(usize, Vec<f32>)> {
    let shown = path.display();
    if !path.exists() {
        return Err(Error::invalid(format!(
            "there is no recording `{shown}`: record a run with `hotset serve --record DIRECTORY`, or with \
             HOTSET_RECORD=DIRECTORY for a private server"
        )));
    }
    let (reports, _) = log::read(path)?;
    let Some((head, reports)) =
        reports.split_first().filter(|(head, _)| head.ids.is_empty() && head.upto > 0)
    else {
        return Err(Error::invalid(format!("`{shown}` is no recording: see `hotset serve --record`")));
    };
    let samples = head.upto as usize;
    let mut kept: Vec<&Report> = Vec::with_capacity(reports.len());
    for report in reports {
        if report.ids.is_empty() {
            kept.retain(|earlier| log::before(earlier, (report.epoch, report.upto)));
        } else {
            kept.push(report);
        }
    }
    let epochs = kept.iter().map(|report| report.epoch as usize + 1).max().unwrap_or(0);
    let cells = samples.checked_mul(epochs).filter(|&cells| cells <= MOST_CELLS).ok_or_else(|| {
        Error::invalid(format!("`{shown}` holds {epochs} epochs of {samples} samples: more than a trace can"))
    })?;
    let mut losses = vec![f32::NAN; cells];
    for report in kept {
        let row = report.epoch as usize * samples;
        for (&id, &score) in report.ids.iter().zip(&report.scores) {
            if (id as usize) < samples {
                losses[row + id as usize] = score;
            }
        }
    }
    Ok((samples, losses))
}

/// The largest trace: 64 GiB of values.
const MOST_CELLS: usize = 1 << 34;

#[cfg(test)]
mod tests {
    use super::*;

    fn report(epoch: u64, ids: &[u32], scores: &[f32]) -> Report {
        Report { job: "job".into(), epoch, ids: ids.to_vec(), scores: scores.to_vec(), ..Report::default() }
    }

    #[test]
    fn a_recording_becomes_one_row_an_epoch() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("job.reports");
        let mut log = Log::new(&path).unwrap();
        log.append(&Report { job: "job".into(), upto: 3, ..Report::default() }).unwrap();
        log.append(&report(0, &[2, 0], &[0.5, 1.5])).unwrap();
        log.append(&report(1, &[0, 9], &[2.5, 9.0])).unwrap();
        let (samples, losses) = read(&path).unwrap();
        assert_eq!(samples, 3);
        let shown: Vec<String> = losses.iter().map(|loss| loss.to_string()).collect();
        assert_eq!(shown, ["1.5", "NaN", "0.5", "2.5", "NaN", "NaN"]);
    }

    #[test]
    fn what_was_trained_after_the_place_that_a_run_went_back_to_is_no_part_of_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("job.reports");
        let mut log = Log::new(&path).unwrap();
        let mark = |epoch, upto| Report { job: "job".into(), epoch, upto, ..Report::default() };
        let at = |epoch, upto, id, score| Report { upto, ..report(epoch, &[id], &[score]) };
        log.append(&mark(0, 2)).unwrap();
        for (epoch, upto, id, score) in [(0, 1, 0, 0.5), (0, 2, 1, 1.5), (1, 1, 0, 2.5), (1, 2, 1, 3.5)] {
            log.append(&at(epoch, upto, id, score)).unwrap();
        }
        // Back to the middle of epoch 0, which is trained on with the other sample, and no more.
        log.append(&mark(0, 1)).unwrap();
        log.append(&at(0, 2, 1, 9.0)).unwrap();
        let (samples, losses) = read(&path).unwrap();
        assert_eq!((samples, losses), (2, vec![0.5, 9.0]));
    }

    #[test]
    fn what_is_no_recording_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x");
        std::fs::write(&path, "garbage").unwrap();
        assert!(read(&path).unwrap_err().message.contains("is no recording"));
        assert!(read(&path.with_extension("y")).unwrap_err().message.contains("there is no recording `"));
        let mut log = Log::new(&path).unwrap();
        log.append(&Report { upto: u64::MAX / 2, ..Report::default() }).unwrap();
        log.append(&report(3, &[0], &[1.0])).unwrap();
        assert!(read(&path).unwrap_err().message.contains("more than"));
    }
}
