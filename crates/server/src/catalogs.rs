//! Opened datasets: listed once, and joined by name.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hotset_core::{Error, Result};
use hotset_engine::{Engine, SessionId};
use hotset_store::digest::Digest;
use hotset_store::{Opened, Request, forget, open, open_again};
use hotset_wire::proto::{DatasetOpened, OpenDataset};

use crate::lock::Lock;

/// A place that is being listed, by one client at a time, and what came of the last listing.
#[derive(Default)]
struct Listing {
    taken: bool,
    last: Option<(Request, Opened)>,
}

/// How often a client that waits for its turn is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// A client's turn at listing a place, until it is dropped. No lock is held meanwhile.
struct Turn(Arc<Lock<Listing>>);

impl Turn {
    /// Takes a turn, when no other client has it. `go_on` is asked meanwhile: one that has gone is not waited for, or
    /// the listing would go on for it.
    fn take(listing: Arc<Lock<Listing>>, go_on: &mut dyn FnMut() -> Result<()>) -> Result<Self> {
        loop {
            let mut own = listing.lock();
            if own.taken {
                own = own.wait_for(LOOK);
            }
            if !own.taken {
                own.taken = true;
                drop(own);
                return Ok(Self(listing));
            }
            drop(own);
            go_on()?;
        }
    }

    /// What the client before has listed for the same request.
    fn last(&self, request: &Request) -> Option<Opened> {
        let listing = self.0.lock();
        listing.last.as_ref().filter(|(same, _)| same == request).map(|(_, opened)| opened.clone())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut listing = self.0.lock();
        listing.taken = false;
        listing.signal();
    }
}

/// What the server remembers of its datasets beside the engine.
pub(crate) struct Catalogs {
    listings: Option<PathBuf>,
    /// Where digests are kept.
    digests: Option<PathBuf>,
    /// The places being listed, so that six workers list one once. A worker that waited for its turn takes what was listed
    /// meanwhile, without looking at every file again.
    turns: Lock<HashMap<String, Arc<Lock<Listing>>>>,
    /// How each dataset was asked for, to forget its listing when it turns out to be old.
    requests: Lock<HashMap<String, Request>>,
}

impl Catalogs {
    pub(crate) fn new(listings: Option<PathBuf>, digests: Option<PathBuf>) -> Self {
        Self { listings, digests, turns: Lock::default(), requests: Lock::default() }
    }

    /// Opens a dataset for a session; `progress` is told how many samples were listed. Its error ends the listing, unless
    /// others wait for it too.
    pub(crate) fn open(
        &self,
        engine: &Engine,
        session: SessionId,
        asked: OpenDataset,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<DatasetOpened> {
        if let Some(joined) = self.join(engine, session, &asked.expect) {
            return Ok(joined);
        }
        let request = Request {
            place: asked.place,
            layout: asked.layout.parse()?,
            extensions: asked.extensions,
            label: asked.label,
            root: asked.root,
            storage_options: asked.storage_options.into_iter().collect(),
        };
        let listing = Arc::clone(self.turns.lock().entry(request.place.clone()).or_default());
        let turn = Turn::take(listing, &mut || progress(0))?;
        if let Some(joined) = self.join(engine, session, &asked.expect) {
            return Ok(joined);
        }
        // A job that goes on after a restart has read from the store before.
        let open = if asked.expect.is_empty() { open } else { open_again };
        let mut opened = match turn.last(&request) {
            Some(opened) => Opened { cached: true, ..opened },
            None => {
                let mut tell = |done: u64| {
                    let told = progress(done);
                    if self.is_awaited(&request.place, &turn) { Ok(()) } else { told }
                };
                let opened = open(&request, self.listings.as_deref(), &mut tell);
                // A client that comes from now on lists for itself.
                self.turns.lock().remove(&request.place);
                let opened = opened?;
                turn.0.lock().last = Some((request.clone(), opened.clone()));
                opened
            }
        };
        if !asked.select.is_empty() {
            opened = opened.select(&asked.select)?;
        }
        // One that is open here has its hashes.
        if let Some(digests) = self.digests.as_ref().filter(|_| engine.catalog(&opened.identity).is_err()) {
            opened.hashes = Digest::open(digests, &opened.place).of(&opened.catalog).map(Arc::new);
            if let Some(hashes) = &opened.hashes {
                tracing::info!(
                    place = opened.place,
                    known = hashes.known(),
                    "samples whose hashes are known"
                );
            }
        }
        if !asked.expect.is_empty() && asked.expect != opened.identity {
            return Err(Error::changed(format!(
                "`{}` no longer holds the dataset this job has opened: open the dataset again",
                opened.place
            )));
        }
        let dataset = engine.open_dataset(session, &opened);
        tracing::info!(
            place = opened.place,
            samples = opened.catalog.len(),
            cached = opened.cached,
            "dataset opened"
        );
        let mut requests = self.requests.lock();
        requests.retain(|dataset, _| engine.catalog(dataset).is_ok());
        requests.insert(dataset.clone(), request);
        Ok(describe(dataset, &opened.catalog, opened.cached))
    }

    /// Whether others wait for the turn that one has at a place.
    fn is_awaited(&self, place: &str, turn: &Turn) -> bool {
        let turns = self.turns.lock();
        let kept = turns.get(place).is_some_and(|kept| Arc::ptr_eq(kept, &turn.0));
        Arc::strong_count(&turn.0) > 1 + usize::from(kept)
    }

    /// Joins a dataset that is open here.
    fn join(&self, engine: &Engine, session: SessionId, expected: &str) -> Option<DatasetOpened> {
        if expected.is_empty() {
            return None;
        }
        let catalog = engine.join_dataset(session, expected)?;
        Some(describe(expected.to_owned(), &catalog, true))
    }

    /// Forgets the kept listing of a dataset whose data has changed, so that opening it again lists it anew.
    pub(crate) fn outdated(&self, dataset: &str) {
        let request = self.requests.lock().get(dataset).cloned();
        if let (Some(listings), Some(request)) = (&self.listings, &request) {
            forget(listings, request);
        }
    }
}

fn describe(dataset: String, catalog: &hotset_store::Catalog, cached: bool) -> DatasetOpened {
    DatasetOpened {
        dataset,
        samples: catalog.len() as u64,
        bytes: catalog.bytes(),
        largest: catalog.largest(),
        classes: catalog.classes().to_vec(),
        labelled: catalog.labelled(),
        cached,
        parts: catalog.parts().to_vec(),
    }
}

#[cfg(test)]
#[path = "catalogs_tests.rs"]
mod tests;
