//! Opened datasets: listed once, joined by whoever expects them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use hotset_core::{Error, Result};
use hotset_engine::{Engine, SessionId};
use hotset_store::{Opened, Request, forget, open, open_again};
use hotset_wire::proto::{DatasetOpened, OpenDataset};

/// A turn at listing a place, with what came of the one before.
type Turn = Arc<Mutex<Option<(Request, Opened)>>>;

/// What the server remembers of its datasets beside the engine.
pub(crate) struct Catalogs {
    listings: Option<PathBuf>,
    /// One lock for each place being listed, so that six workers list it once. Whoever waited for its turn takes what was
    /// listed meanwhile, without looking at every file again.
    turns: Mutex<HashMap<String, Turn>>,
    /// How each dataset was asked for, to forget its listing when it turns out to be old.
    requests: Mutex<HashMap<String, Request>>,
}

impl Catalogs {
    pub(crate) fn new(listings: Option<PathBuf>) -> Self {
        Self { listings, turns: Mutex::default(), requests: Mutex::default() }
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
        let own = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(turns.entry(request.place.clone()).or_default())
        };
        let mut turn = own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(joined) = self.join(engine, session, &asked.expect) {
            return Ok(joined);
        }
        // A job that goes on after a restart has read from the store before.
        let open = if asked.expect.is_empty() { open } else { open_again };
        let mut opened = match turn.as_ref().filter(|(same, _)| *same == request) {
            Some((_, opened)) => Opened { cached: true, ..opened.clone() },
            None => {
                let mut tell = |done: u64| {
                    let told = progress(done);
                    if self.is_awaited(&request.place, &own) { Ok(()) } else { told }
                };
                let opened = open(&request, self.listings.as_deref(), &mut tell);
                // Whoever comes from now on looks for itself.
                self.turns.lock().unwrap_or_else(PoisonError::into_inner).remove(&request.place);
                turn.insert((request.clone(), opened?)).1.clone()
            }
        };
        if !asked.select.is_empty() {
            opened = opened.select(&asked.select)?;
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
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.retain(|dataset, _| engine.catalog(dataset).is_ok());
        requests.insert(dataset.clone(), request);
        Ok(describe(dataset, &opened.catalog, opened.cached))
    }

    /// Whether others wait for the turn that one has at a place.
    fn is_awaited(&self, place: &str, turn: &Turn) -> bool {
        let turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = turns.get(place).is_some_and(|kept| Arc::ptr_eq(kept, turn));
        Arc::strong_count(turn) > 1 + usize::from(kept)
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
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(listings), Some(request)) = (&self.listings, requests.get(dataset)) {
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
