//! What an engine is made from, and what is asked of it.

use std::collections::BTreeMap;
use std::time::Duration;

use hotset_core::bytes::Amount;

/// Settings of an engine.
#[derive(Debug, Clone)]
pub struct Config {
    /// Reads in flight at a time, over all jobs.
    pub concurrency: usize,
    /// The bytes that all jobs may keep together; `None` leaves it to the machine's memory.
    pub memory: Option<u64>,
    /// The bytes that this machine, or the control group we run in, has.
    pub machine: u64,
    /// The bytes of it that can still be had, asked when a job is opened.
    pub available: fn() -> u64,
    /// Retries after a transient read error.
    pub retries: u32,
    /// How long a job whose last reader has gone is kept.
    pub linger: Duration,
    /// How long a plan waits for ranks that have not come or not reported, from the first that came.
    pub patience: Duration,
}

/// What a job asks for when it is opened.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRequest {
    /// Names the job on this server. Opening a job that exists joins it.
    pub job: String,
    /// The dataset's name, as opened.
    pub dataset: String,
    /// The cache it wants: bytes, or a share of the dataset.
    pub cache: Amount,
    /// Its strategy; `None` for a dataset without a sampler, kept as it is asked for.
    pub strategy: Option<String>,
    /// Its policy; `None` for the strategy's own.
    pub policy: Option<String>,
    /// The seed of its plans.
    pub seed: u64,
    /// Read along the plan before samples are asked for.
    pub prefetch: bool,
    /// Repeat samples rather than leave a remainder out.
    pub pad: bool,
    /// Settings of the strategy, by name.
    pub strategy_settings: BTreeMap<String, String>,
    /// Settings of the policy, by name.
    pub policy_settings: BTreeMap<String, String>,
    /// How many epochs the run has, if that is known.
    pub epochs: Option<u64>,
    /// Where its packages lie, or [`OFF`] for none; `None`: in the dataset's own objects, where many samples share one.
    pub packages: Option<String>,
    /// The least bytes of a package; 0: a mebibyte, or an eighth of the cache where that is less.
    pub package_bytes: u64,
}

/// What a job names for a place if it wants no packages.
pub const OFF: &str = "off";

/// What a job was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobGrant {
    /// Its strategy; empty without a sampler.
    pub strategy: String,
    /// Its policy.
    pub policy: String,
    /// The bytes it asked for.
    pub asked: u64,
    /// The bytes it may keep.
    pub granted: u64,
    /// Whether its plans are made from what one server alone knows, so that all ranks must be on its host: losses,
    /// residents, how fast storage is.
    pub one_host: bool,
    /// What a user should know; nothing for a client that joins.
    pub remarks: Vec<String>,
}

/// The least reserve: enough for batches under way even when the cache itself is tiny.
const LEAST_RESERVE: u64 = if cfg!(feature = "shuttle") { 4 << 10 } else { 64 << 20 };

/// The memory beside `capacity` that holds what is only passing: the prefetch window, reads in flight,
/// slack of the allocator, and evicted bytes still leased.
pub(crate) fn reserve(capacity: u64) -> u64 {
    (capacity / 7).max(LEAST_RESERVE)
}
