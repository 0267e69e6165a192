//! What `hotset top` shows, without how: nothing here knows of terminals or of time.

use std::cmp::Ordering;
use std::time::Duration;

use hotset_wire::proto::{EpochStats, JobStats, ServerStats};

use crate::figures::waited;
use crate::rates::{Progress, Rate};

/// All that is drawn.
#[derive(Debug, Clone, Default)]
pub(super) struct View {
    /// What is to be said before all else, such as that there is no server.
    pub(super) notice: Option<String>,
    /// The time between two questions.
    pub(super) every: Duration,
    pub(super) servers: Vec<ServerView>,
    /// In the order of `sort`.
    pub(super) jobs: Vec<JobView>,
    /// Which of the jobs; there is one wherever there are jobs.
    pub(super) selected: Option<usize>,
    pub(super) sort: Sort,
}

#[derive(Debug, Clone, Default)]
pub(super) struct ServerView {
    pub(super) socket: String,
    pub(super) stats: ServerStats,
    /// For how many seconds it has not answered, and why.
    pub(super) gone: Option<(u64, String)>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct JobView {
    pub(super) socket: String,
    pub(super) job: JobStats,
    /// Where it is known.
    pub(super) rate: Option<Rate>,
    pub(super) state: State,
}

/// Whether figures are of now; if not, since how many seconds they are the last ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Live,
    /// The job has ended.
    Ended(u64),
    /// Its server is gone.
    Gone(u64),
}

/// What jobs are sorted by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Name,
    /// The fastest first.
    Samples,
    /// Those that wait longest in their epoch first.
    Wait,
    /// Those that read most from storage first.
    Storage,
}

impl View {
    pub(super) fn selected_job(&self) -> Option<&JobView> {
        self.jobs.get(self.selected?)
    }

    /// The server of the selected job; the first one where there are no jobs.
    pub(super) fn selected_server(&self) -> Option<&ServerView> {
        let of_job = |job: &JobView| self.servers.iter().find(|server| server.socket == job.socket);
        self.selected_job().map_or_else(|| self.servers.first(), of_job)
    }
}

impl JobView {
    /// The server and the job.
    pub(super) fn name(&self) -> (String, String) {
        (self.socket.clone(), self.job.job.clone())
    }

    pub(super) fn progress(&self) -> Option<Progress> {
        Progress::of(&self.job)
    }

    /// The epoch that is shown: that which was begun last; of a job without plans, what it was served so far.
    pub(super) fn epoch(&self) -> Option<&EpochStats> {
        self.job.epochs.last().or(self.job.unplanned.as_ref())
    }

    fn samples_per_second(&self) -> f64 {
        self.rate.map_or(0.0, |rate| rate.samples_per_second)
    }

    fn storage_bytes_per_second(&self) -> f64 {
        self.rate.map_or(0.0, |rate| rate.storage_bytes_per_second)
    }

    fn waited(&self) -> f64 {
        self.epoch().map_or(0.0, waited)
    }
}

impl Sort {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Name => "job",
            Self::Samples => "samples/s",
            Self::Wait => "wait",
            Self::Storage => "read/s",
        }
    }

    pub(super) fn next(self) -> Self {
        match self {
            Self::Name => Self::Samples,
            Self::Samples => Self::Wait,
            Self::Wait => Self::Storage,
            Self::Storage => Self::Name,
        }
    }

    /// What is equal is in the order of names.
    pub(super) fn sort(self, jobs: &mut [JobView]) {
        let most = |figure: fn(&JobView) -> f64| {
            move |a: &JobView, b: &JobView| figure(b).total_cmp(&figure(a)).then_with(|| by_name(a, b))
        };
        match self {
            Self::Name => jobs.sort_by(by_name),
            Self::Samples => jobs.sort_by(most(JobView::samples_per_second)),
            Self::Wait => jobs.sort_by(most(JobView::waited)),
            Self::Storage => jobs.sort_by(most(JobView::storage_bytes_per_second)),
        }
    }
}

fn by_name(a: &JobView, b: &JobView) -> Ordering {
    (&a.job.job, &a.socket).cmp(&(&b.job.job, &b.socket))
}
