//! Where a job's packages come from: runs in the dataset's own objects, or a place that is written to.

use std::sync::Arc;

use hotset_core::bytes::human;
use hotset_core::packages::{LARGE, size, too_small};
use hotset_core::{Error, Result};
use hotset_engine::{Engine, JobRequest, OFF, Packaging, Place};
use hotset_store::package::{self, Dataset, PackageStore};

use crate::leftovers::Leftovers;
use crate::opening::JobOpening;
use crate::runs::base_name;

/// The highest number that is taken for one that was counted up to: everything below it takes memory.
const MOST_PACKAGES: u32 = 1 << 24;

/// Who tidies up a place for packages.
#[derive(Clone, Copy)]
pub(crate) enum Tidying<'a> {
    /// This server's: what an earlier one left unfinished is removed. With leftovers its packages are noted if they must not
    /// outlive the process, which opens it, and those are removed that other servers left.
    Own(Option<&'a Leftovers>, u32),
    /// Another node's, which is the home of the job; others may be writing there.
    Elsewhere,
}

/// Where a job's packages come from; `None` where it can have none.
pub(crate) fn place(engine: &Engine, opening: &JobOpening, tidying: Tidying<'_>) -> Result<Option<Place>> {
    if opening.request.strategy.is_none() {
        return Ok(None);
    }
    if let Some(runs) = Place::of_plans(&opening.request, &engine.catalog(&opening.request.dataset)?)? {
        return Ok(Some(runs));
    }
    match opening.request.packages.as_deref() {
        None => runs(engine, &opening.request),
        Some(OFF) => Ok(None),
        Some(place) => store(engine, opening, place, tidying).map(Some),
    }
}

/// The runs in the dataset's own objects, where those hold many samples each.
fn runs(engine: &Engine, request: &JobRequest) -> Result<Option<Place>> {
    let catalog = engine.catalog(&request.dataset)?;
    let cache = request.cache.of(catalog.bytes()).min(catalog.bytes());
    let Some(least) = size(request.package_bytes, cache) else {
        // Where samples lie alone there would be none anyway, and they were not asked for.
        return Ok(catalog.run_packages(1).map(|_| Place::Unusable(too_small(cache))));
    };
    let runs = catalog.run_packages(least);
    Ok(runs.map(|runs| {
        if runs.largest() > 0 {
            return Place::Runs(Arc::new(runs));
        }
        Place::Unusable(format!(
            "no {} of samples below {} lie side by side in one object, so each sample is read alone",
            human(least),
            human(LARGE)
        ))
    }))
}

/// Whose packages they are: a run that goes on from an earlier place finds those it had. Packages of a job whose name
/// was made up are removed with it.
fn owner_name(opening: &JobOpening) -> &str {
    let job = &opening.request.job;
    if opening.lasting { base_name(job) } else { job }
}

/// The packages at `place`, with what lies there.
fn store(engine: &Engine, opening: &JobOpening, place: &str, tidying: Tidying<'_>) -> Result<Place> {
    let (request, options) = (&opening.request, &opening.package_options);
    let dataset = Dataset { place: &engine.place(&request.dataset)?, identity: &request.dataset };
    if package::overlaps(dataset.place, place) {
        return Err(Error::invalid(format!(
            "packages at `{place}` would be listed with the dataset `{}`: give `packages=` a directory or prefix \
             outside of it, beside it for example",
            dataset.place
        )));
    }
    let opened =
        PackageStore::open(place, options, dataset, owner_name(opening)).and_then(|store| {
            if matches!(tidying, Tidying::Own(..)) {
                store.sweep()?;
            }
            let scan = store.scan(&mut |_| {})?;
            let found = scan.packages.iter().map(|found| (found.number, found.ids())).collect();
            let next = scan.next().filter(|next| *next <= MOST_PACKAGES).ok_or_else(|| {
                Error::invalid(format!(
                    "a package at `{place}` has a number above {MOST_PACKAGES}: remove it, or choose another place"
                ))
            })?;
            if let Tidying::Own(Some(leftovers), process) = tidying {
                let owner = base_name(&request.job);
                leftovers.sweep(store.place(), options, owner);
                if !opening.lasting {
                    leftovers.note(owner, process, &request.dataset, store.place());
                }
            }
            Ok(Packaging { store: Arc::new(store), found, next, keep: opening.lasting })
        });
    Ok(opened.map_or_else(|error| Place::Unusable(error.message), Place::Store))
}
