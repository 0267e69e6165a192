//! Opening a dataset: its listing, from disk if nothing changed, and a store with its wrappers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use blake3::Hasher;
use hotset_core::Result;

use crate::catalog::{Catalog, hex};
use crate::fault::Faulty;
use crate::files::Files;
use crate::folder;
use crate::layout::{Layout, Selection};
use crate::listing::Slot;
use crate::options::Options;
use crate::place::{Place, refuse};
use crate::store::Store;
use crate::throttle::Throttled;

/// Which dataset to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// A directory, with or without `file://`. A relative one is looked up from the process's own.
    pub place: String,
    /// How files become samples.
    pub layout: Layout,
    /// The file name extensions to take; empty: the layout's own.
    pub extensions: Vec<String>,
    /// Settings of the store, like `throttle.latency`.
    pub storage_options: BTreeMap<String, String>,
}

/// A dataset that is open.
pub struct Opened {
    /// What its samples are.
    pub catalog: Arc<Catalog>,
    /// Where they are read.
    pub store: Arc<dyn Store>,
    /// Whether the listing came from disk.
    pub cached: bool,
    /// Its canonical place, for showing.
    pub place: String,
    /// Names the dataset on a server: a hash of its catalog, the versions of its files, its canonical place
    /// and its storage options. A dataset that was written in place has another one.
    pub identity: String,
}

/// Opens a dataset. Listings are kept in the directory `listings`, if there is one; `progress` hears now and
/// then how many samples were found.
pub fn open(request: &Request, listings: Option<&Path>, progress: &mut dyn FnMut(u64)) -> Result<Opened> {
    let options = Options::parse(&request.storage_options)?;
    let selection = Selection::new(request.layout, &request.extensions)?;
    let place = Place::resolve(&request.place)?;
    let files = Files::open(place.path()).map_err(|error| refuse(place.path(), &error))?;
    let slot = listings.map(|listings| Slot::new(listings, &place, &selection));
    let kept = slot.as_ref().and_then(Slot::load);
    let cached = kept.is_some();
    let catalog = match kept {
        Some(catalog) => {
            progress(catalog.len() as u64);
            catalog
        }
        None => {
            let began = SystemTime::now();
            let listing = folder::list(place.path(), &selection, progress)?;
            if let Some(slot) = slot {
                slot.save(&listing, began);
            }
            listing.catalog
        }
    };
    tracing::info!(
        place = place.as_str(),
        samples = catalog.len(),
        bytes = catalog.bytes(),
        cached,
        "opened"
    );
    Ok(Opened {
        identity: identity(&catalog, &place, &request.storage_options),
        catalog: Arc::new(catalog),
        store: wrap(files, &options),
        cached,
        place: place.as_str().to_owned(),
    })
}

/// Drops the kept listing of a dataset, after a read found that its data changed. What cannot be opened at
/// all has no listing that would be used.
pub fn forget(listings: &Path, request: &Request) {
    if let (Ok(place), Ok(selection)) =
        (Place::resolve(&request.place), Selection::new(request.layout, &request.extensions))
    {
        Slot::new(listings, &place, &selection).forget();
    }
}

/// Faults lie below the throttle: in a store that is slow a failure is slow too.
fn wrap(files: Files, options: &Options) -> Arc<dyn Store> {
    let mut store: Box<dyn Store> = Box::new(files);
    if let Some(fault) = options.fault {
        store = Box::new(Faulty::new(store, fault));
    }
    if let Some(throttle) = options.throttle {
        store = Box::new(Throttled::new(store, throttle));
    }
    Arc::from(store)
}

fn identity(catalog: &Catalog, place: &Place, options: &BTreeMap<String, String>) -> String {
    let mut hasher = Hasher::new();
    let mut part = |text: &str| {
        hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
    };
    part(catalog.identity());
    part(catalog.versions_identity());
    part(place.as_str());
    for (name, value) in options {
        part(name);
        part(value);
    }
    hex(&hasher)
}
