//! How a cache and the jobs in it were made.
//!
//! All that the same objects can be made from again, as a user has written it: names and settings, not what was worked out
//! from them. Of a dataset sizes are kept, and where samples lie side by side.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::cache::Cache;
use crate::packages::{Origin, Packages};
use crate::policy::{self, Sizes};
use crate::run::{Config, Planner};
use crate::{Id, Result, sampling};

/// Settings by name, as a user gave them.
pub(super) type Settings = BTreeMap<String, String>;

/// How a cache was made.
#[derive(Clone)]
pub struct Opening {
    /// What the dataset is called.
    pub dataset: String,
    /// Its samples.
    pub sizes: Arc<dyn Sizes>,
    /// The policy.
    pub policy: String,
    /// Its settings.
    pub settings: BTreeMap<String, String>,
    /// The bytes that it had at first.
    pub capacity: u64,
    /// The seed of its draws.
    pub seed: u64,
}

impl Opening {
    /// The cache, empty.
    pub fn cache(&self) -> Result<Cache> {
        let entry = policy::find(&self.policy)?;
        let policy = (entry.build)(policy::Setup {
            capacity: self.capacity,
            sizes: Arc::clone(&self.sizes),
            seed: self.seed,
            values: entry.values(texts(&self.settings))?,
        });
        Ok(Cache::new(policy, self.sizes.len()))
    }
}

impl fmt::Debug for Opening {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} samples of {}, {} {:?}", self.sizes.len(), self.dataset, self.policy, self.settings)
    }
}

impl PartialEq for Opening {
    fn eq(&self, other: &Self) -> bool {
        let plain = |one: &Self| {
            (one.dataset.clone(), one.policy.clone(), one.settings.clone(), one.capacity, one.seed)
        };
        let end = self.sizes.len() as Id;
        let sample = |one: &Self, id: Id| (one.sizes.size(id), one.sizes.gap_after(id));
        plain(self) == plain(other)
            && (self.sizes.len(), self.sizes.has_neighbours())
                == (other.sizes.len(), other.sizes.has_neighbours())
            && (0..end).all(|id| sample(self, id) == sample(other, id))
    }
}

/// Where a job's packages came from.
#[derive(Debug, Clone, PartialEq)]
pub enum SetupPackages {
    /// They are made.
    Made {
        /// The least bytes of one; 0: as the cache's size has it.
        bytes: u64,
        /// Those that were there, by number.
        found: Vec<(u32, Vec<Id>)>,
        /// The first number that was free.
        next: u32,
    },
    /// They are runs of samples, each from its first one on so many.
    Runs(Vec<(Id, u32)>),
}

impl SetupPackages {
    /// The runs that these packages are.
    pub fn runs(packages: &Packages) -> Self {
        let run = |package| {
            let members = packages.members(package);
            members.first().map(|&first| (first, members.len() as u32))
        };
        Self::Runs(packages.living().filter_map(run).collect())
    }
}

/// How a job was made.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// Its name.
    pub job: String,
    /// Its strategy.
    pub strategy: String,
    /// Its settings.
    pub settings: BTreeMap<String, String>,
    /// The bytes that its plans go by.
    pub capacity: u64,
    /// The seed of its draws.
    pub seed: u64,
    /// The number of epochs, if it is known.
    pub epochs: Option<u64>,
    /// Whether its plans are padded.
    pub pad: bool,
    /// Where its packages come from, if there are any.
    pub packages: Option<SetupPackages>,
}

impl Setup {
    /// Its planner, before the first plan.
    pub(super) fn planner(&self, opening: &Opening, packs: bool) -> Result<Planner> {
        let (strategy, policy) = (sampling::find(&self.strategy)?, policy::find(&opening.policy)?);
        let packages = self.packages.as_ref().map(|packages| match packages {
            SetupPackages::Made { bytes, .. } => Origin::Made(*bytes),
            SetupPackages::Runs(runs) => {
                Origin::Given(Arc::new(Packages::of_runs(&*opening.sizes, runs.iter().copied())))
            }
        });
        let config = Config {
            strategy,
            strategy_values: strategy.values(texts(&self.settings))?,
            policy,
            policy_values: policy.values(texts(&opening.settings))?,
            sizes: Arc::clone(&opening.sizes),
            capacity: self.capacity,
            seed: self.seed,
            epochs: self.epochs,
            world: 1,
            pad: self.pad,
            packages,
        };
        let mut planner = Planner::new(config, packs);
        if let Some(SetupPackages::Made { found, next, .. }) = &self.packages {
            found.iter().for_each(|(number, ids)| planner.found(*number, ids));
            planner.number_from(*next);
        }
        Ok(planner)
    }
}

fn texts(settings: &Settings) -> impl Iterator<Item = (&str, &str)> {
    settings.iter().map(|(name, value)| (name.as_str(), value.as_str()))
}
