//! Where a job's packages come from, as its opener found it.

use std::sync::Arc;

use hotset_core::log::SetupPackages;
use hotset_core::packages::{Origin, Packages};
use hotset_core::policy::Sizes;
use hotset_core::sampling::{self, RunChoice};
use hotset_core::{Error, Id, Result};
use hotset_store::Catalog;
use hotset_store::package::PackageStore;

use crate::config::JobRequest;
use crate::jobs::PackageSource;

/// Where a job's packages are written, as its opener found it.
pub struct Packaging {
    /// The packages that are there, and those to come.
    pub store: Arc<PackageStore>,
    /// The packages that are complete, by number, with their ids.
    pub found: Vec<(u32, Vec<Id>)>,
    /// The first number above all that are taken there, by what is no package too.
    pub next: u32,
    /// Whether they stay when the job ends.
    pub keep: bool,
}

/// Where a job's packages come from.
pub enum Place {
    /// They are made, and written to a place of their own.
    Store(Packaging),
    /// They are runs of samples in the dataset's own objects: nothing is written.
    Runs(Arc<Packages>),
    /// Nowhere, for this reason.
    Unusable(String),
}

impl Place {
    /// The runs that a job's plans are made of, where it asks for plans by runs.
    pub fn of_plans(request: &JobRequest, catalog: &Arc<Catalog>) -> Result<Option<Self>> {
        let Some(name) = request.strategy.as_deref() else { return Ok(None) };
        let settings = request.strategy_settings.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        let values = sampling::find(name)?.values(settings)?;
        if !sampling::asks_for_runs(values.iter()) {
            return Ok(None);
        }
        if let Some(place) = &request.packages {
            return Err(Error::invalid(format!(
                "plans by runs read the dataset's own shards, and `packages` is `{place}`: leave it out, or set \
                 `order=exact`"
            )));
        }
        let cache = request.cache.of(catalog.bytes()).min(catalog.bytes());
        let sizes = Arc::clone(catalog) as Arc<dyn Sizes>;
        let choice = RunChoice::of(&values, &sizes, (cache, request.package_bytes), request.seed)?;
        Ok(choice.map(|choice| match choice {
            RunChoice::Runs(runs) => Self::Runs(runs),
            RunChoice::Exact(why) => Self::Unusable(why),
        }))
    }

    /// What plans are told of them, where they are made of at least `bytes`.
    pub(crate) fn origin(&self, bytes: u64) -> Option<Origin> {
        match self {
            Self::Store(_) => Some(Origin::Made(bytes)),
            Self::Runs(runs) => Some(Origin::Given(Arc::clone(runs))),
            Self::Unusable(_) => None,
        }
    }

    /// The same for a log, with those that were `found`.
    pub(crate) fn setup(&self, bytes: u64, found: &[(u32, Vec<Id>)]) -> Option<SetupPackages> {
        match self {
            Self::Store(packaging) => {
                Some(SetupPackages::Made { bytes, found: found.to_vec(), next: packaging.next })
            }
            Self::Runs(runs) => Some(SetupPackages::runs(runs)),
            Self::Unusable(_) => None,
        }
    }

    /// Where they are read from.
    pub(crate) fn source(&self) -> Option<PackageSource> {
        match self {
            Self::Store(packaging) => Some(PackageSource::Store(Arc::clone(&packaging.store))),
            Self::Runs(_) => Some(PackageSource::Runs),
            Self::Unusable(_) => None,
        }
    }

    /// Those that were made already of a dataset of so many samples.
    pub(crate) fn found(&self, samples: usize) -> Vec<(u32, Vec<Id>)> {
        let Self::Store(packaging) = self else { return Vec::new() };
        let inside = |(_, ids): &&(u32, Vec<Id>)| ids.iter().all(|&id| (id as usize) < samples);
        packaging.found.iter().filter(inside).cloned().collect()
    }
}
