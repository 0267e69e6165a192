//! A job as a client asks for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use hotset_core::bytes::human;
use hotset_core::packages::size;
use hotset_core::{Error, Result};
use hotset_engine::{Engine, JobRequest, OFF, Packaging, Place};
use hotset_store::package::{self, Dataset, Shelf};
use hotset_wire::proto;

use crate::leftovers::Leftovers;
use crate::settings;

/// The highest number that is taken for one that was counted up to: everything below it takes memory.
const MOST_PACKAGES: u32 = 1 << 24;

/// Digits of a run's name.
const RUN: usize = 16;

/// See the module's head.
pub(crate) struct Opening {
    pub(crate) request: JobRequest,
    /// Whether its name means something beyond its training process.
    pub(crate) lasting: bool,
    /// How to reach the place of its packages. May hold credentials: never written down.
    pub(crate) package_options: BTreeMap<String, String>,
    /// Where packages are noted that must not outlive their job.
    pub(crate) leftovers: Option<Arc<Leftovers>>,
    /// The process that asks for it.
    pub(crate) process: u32,
    /// The run that the client is in; `None` where it is new to the job.
    pub(crate) run: Option<String>,
    pub(crate) launch: proto::Launch,
    /// Where it goes on, if it does.
    pub(crate) resume: Option<proto::Resume>,
}

impl Opening {
    /// Where its packages come from; `None` where it can have none.
    pub(crate) fn packaging(&self, engine: &Engine) -> Result<Option<Place>> {
        if self.request.strategy.is_none() {
            return Ok(None);
        }
        match self.request.packages.as_deref() {
            None => self.runs(engine),
            Some(OFF) => Ok(None),
            Some(place) => self.shelf(engine, place).map(Some),
        }
    }

    /// The runs in the dataset's own objects, where those hold many samples each.
    fn runs(&self, engine: &Engine) -> Result<Option<Place>> {
        let catalog = engine.catalog(&self.request.dataset)?;
        let cache = self.request.cache.of(catalog.bytes()).min(catalog.bytes());
        let Some(least) = size(self.request.package_bytes, cache) else {
            // Where samples lie alone there would be none anyway, and nobody asked for them.
            return Ok(catalog.run_packages(1).map(|_| {
                Place::Unusable(format!(
                    "an eighth of the cache of {} is less than 64 KiB, too little to be worth a request: raise `cache`, \
                     or set `package_size`",
                    human(cache)
                ))
            }));
        };
        let runs = catalog.run_packages(least);
        Ok(runs.map(|runs| {
            if runs.largest() > 0 {
                return Place::Runs(Arc::new(runs));
            }
            Place::Unusable(format!(
                "no {} of samples below 64 KiB lie side by side in one object, so each sample is read alone",
                human(least)
            ))
        }))
    }

    /// Whose packages they are: a run that goes on from an earlier place finds those it had. Packages of a job whose name
    /// was made up are removed with it.
    fn shelf_name(&self) -> &str {
        if self.lasting { kept(&self.request.job) } else { &self.request.job }
    }

    /// The shelf at `place`, with what lies there; what an earlier server left unfinished is removed.
    fn shelf(&self, engine: &Engine, place: &str) -> Result<Place> {
        let dataset =
            Dataset { place: &engine.place(&self.request.dataset)?, identity: &self.request.dataset };
        if package::inside(dataset.place, place) {
            return Err(Error::invalid(format!(
                "packages at `{place}` would be listed with the dataset `{}`: give `packages=` a directory or prefix \
                 outside of it, beside it for example",
                dataset.place
            )));
        }
        let opened =
            Shelf::open(place, &self.package_options, dataset, self.shelf_name()).and_then(|shelf| {
                shelf.sweep()?;
                let scan = shelf.scan(&mut |_| {})?;
                let found = scan.packages.iter().map(|found| (found.number, found.ids())).collect();
                let next = scan.next().filter(|next| *next <= MOST_PACKAGES).ok_or_else(|| {
                    Error::invalid(format!(
                        "a package at `{place}` has a number above {MOST_PACKAGES}: remove it, or choose another place"
                    ))
                })?;
                if let Some(leftovers) = &self.leftovers {
                    let owner = kept(&self.request.job);
                    leftovers.sweep(shelf.place(), &self.package_options, owner);
                    if !self.lasting {
                        leftovers.note(owner, self.process, &self.request.dataset, shelf.place());
                    }
                }
                Ok(Packaging { shelf: Arc::new(shelf), found, next, keep: self.lasting })
            });
        Ok(opened.map_or_else(|error| Place::Unusable(error.message), Place::Shelf))
    }

    /// With packages noted, and those swept that other servers left.
    pub(crate) fn sweeping(self, leftovers: Option<Arc<Leftovers>>, process: u32) -> Self {
        Self { leftovers, process, ..self }
    }

    pub(crate) fn new(asked: proto::OpenJob) -> Result<Self> {
        let some = |text: String| (!text.is_empty()).then_some(text);
        let request = settings::request(asked.job, &asked.settings.unwrap_or_default())?;
        let named = [Some(&asked.run), asked.resume.as_ref().map(|resume| &resume.run)];
        named.into_iter().flatten().try_for_each(|run| check_run(run))?;
        Ok(Self {
            request,
            lasting: asked.lasting,
            package_options: asked.package_options,
            run: some(asked.run),
            launch: asked.launch.unwrap_or_default(),
            resume: asked.resume,
            leftovers: None,
            process: 0,
        })
    }
}

/// What a job's state and packages are kept under: a job that goes on from an earlier place is a job of its own in the
/// engine, `NAME/load-2`, so that ranks and readers that have not gone back yet do not meet it.
pub(crate) fn kept(job: &str) -> &str {
    match job.rsplit_once("/load-") {
        Some((name, number)) if !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit()) => name,
        _ => job,
    }
}

/// Refuses what cannot be the name of a run, which is part of the names of files.
pub(crate) fn check_run(run: &str) -> Result<()> {
    if run.is_empty() || run.len() == RUN && run.bytes().all(|c| c.is_ascii_hexdigit()) {
        return Ok(());
    }
    Err(Error::invalid(format!("the state is damaged: its run `{run}` is not {RUN} hexadecimal digits")))
}

/// A name that no other run has.
pub(crate) fn new_run() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{:016x}", RandomState::new().hash_one(std::process::id()))
}
