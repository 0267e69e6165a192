//! What an engine is made from, and what is asked of it.
//!
//! A job's settings are one list, [`JobRequest`]. They are written and read by name (serde), under the names that the
//! protocol's `JobSettings` has, so that nothing else in Rust lists them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hotset_core::bytes::Amount;
use hotset_core::log::Recorder;
use serde::{Deserialize, Serialize};

/// What takes the logs of caches.
pub trait Logs: Send + Sync {
    /// A cache was opened by this job: who is told what happens to it, if anyone is. Asked under the engine's lock.
    fn open(&self, job: &str, policy: &str) -> Option<Arc<dyn Recorder>>;
}

/// Settings of an engine.
#[derive(Clone)]
pub struct Config {
    /// Reads in flight at a time, over all jobs.
    pub concurrency: Concurrency,
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
    /// Takes the log of each cache that is opened, if something does.
    pub logs: Option<Arc<dyn Logs>>,
    /// How long a plan waits for ranks that have not come or not reported, from the first that came.
    pub patience: Duration,
}

/// How many reads are in flight at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concurrency {
    /// So many, over all stores.
    Fixed(usize),
    /// As many as each host turns out to be good for.
    Auto,
}

/// Declares [`JobRequest`] from the list of a job's settings, each with the name users know it by if that is another.
macro_rules! job_settings {
    ($($(#[$attribute:meta])* $setting:ident $(as $shown:literal)?: $type:ty,)*) => {
        /// What a job asks for when it is opened: its name and its settings.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct JobRequest {
            /// Names the job on this server. Opening a job that exists joins it.
            #[serde(skip)]
            pub job: String,
            $($(#[$attribute])* pub $setting: $type,)*
        }

        impl JobRequest {
            /// The first setting in which two requests differ, as users call it.
            pub fn difference(&self, other: &Self) -> Option<&'static str> {
                $(if self.$setting != other.$setting {
                    return Some([stringify!($setting) $(, $shown)?].last().copied().unwrap_or_default());
                })*
                None
            }
        }
    };
}

job_settings! {
    /// The dataset's name, as opened.
    dataset: String,
    /// The cache it wants: bytes, or a share of the dataset.
    #[serde(with = "amount")]
    cache: Amount,
    /// Its strategy; `None` for a dataset without a sampler, kept as it is asked for.
    #[serde(with = "unset")]
    strategy: Option<String>,
    /// Its policy; `None` for the strategy's own.
    #[serde(with = "unset")]
    policy: Option<String>,
    /// The seed of its plans.
    seed: u64,
    /// Read along the plan before samples are asked for.
    prefetch: bool,
    /// Repeat samples rather than leave a remainder out.
    pad: bool,
    /// Settings of the strategy, by name.
    strategy_settings as "settings": BTreeMap<String, String>,
    /// Settings of the policy, by name.
    policy_settings: BTreeMap<String, String>,
    /// How many epochs the run has, if that is known.
    #[serde(with = "unset")]
    epochs: Option<u64>,
    /// Where its packages lie, or [`OFF`] for none; `None`: in the dataset's own objects, where many samples share one.
    #[serde(with = "unset")]
    packages: Option<String>,
    /// The least bytes of a package; 0: a mebibyte, or an eighth of the cache where that is less.
    package_bytes as "package_size": u64,
}

/// A setting that is not given: the message has the empty value of its type there.
mod unset {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T, S>(setting: &Option<T>, serializer: S) -> Result<S::Ok, S::Error>
    where
        T: Clone + Default + Serialize,
        S: Serializer,
    {
        setting.clone().unwrap_or_default().serialize(serializer)
    }

    pub(super) fn deserialize<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
    where
        T: Default + PartialEq + Deserialize<'de>,
        D: Deserializer<'de>,
    {
        T::deserialize(deserializer).map(|setting| (setting != T::default()).then_some(setting))
    }
}

/// An amount of memory, as text.
mod amount {
    use hotset_core::bytes::Amount;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(amount: &Amount, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&amount.exact())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Amount, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|error| D::Error::custom(format!("`cache`: {error}")))
    }
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
    /// Whether its plans use packages.
    pub packs: bool,
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
