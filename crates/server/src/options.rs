//! What a server is made from.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hotset_engine::Concurrency;

use crate::access::{Audience, Quota};
use crate::cluster::ClusterOptions;
use crate::sharing::SharedAt;

/// Settings of a server. The environment is not looked at here.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen.
    pub socket: PathBuf,
    /// Whom it works for.
    pub audience: Audience,
    /// The most that one user may take.
    pub quota: Quota,
    /// Whether it is a shared cache, which keeps contents for users' own servers and reads nothing.
    pub tenants: bool,
    /// The shared cache that it asks before storage; `None` asks none.
    pub shared: Option<SharedAt>,
    /// Where the digests of datasets are kept, by which equal samples are found, here and in a shared cache.
    pub digests: Option<PathBuf>,
    /// A private server of one job: it ignores Ctrl-C and ends after the training processes it watches.
    pub embedded: bool,
    /// Training processes to watch from the start.
    pub watch: Vec<u32>,
    /// The bytes that all jobs may keep together; `None` leaves it to the machine's memory.
    pub memory: Option<u64>,
    /// Reads in flight at a time.
    pub concurrency: Concurrency,
    /// Retries after a transient read error.
    pub retries: u32,
    /// How long a job stays whose last process has gone.
    pub linger: Duration,
    /// How long a plan waits for ranks that have not come or not reported, from the first that came.
    pub patience: Duration,
    /// The address of loopback that metrics are scraped from; `None` for none.
    pub metrics: Option<SocketAddr>,
    /// Where listings are kept between runs; `None` keeps none.
    pub listings: Option<PathBuf>,
    /// Where the reports of jobs are recorded; `None` for nowhere.
    pub record: Option<PathBuf>,
    /// Where the state of jobs is kept; `None` keeps none.
    pub state: Option<PathBuf>,
    /// The cluster that it is a node of; `None` for none.
    pub cluster: Option<ClusterOptions>,
}
