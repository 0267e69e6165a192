//! Opening a dataset: its listing, from disk if nothing changed, and a store with its wrappers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use blake3::Hasher;
use hotset_core::Result;

use crate::catalog::{Catalog, hex};
use crate::fault::Faulty;
use crate::files::Files;
use crate::folder;
use crate::layout::{Layout, Selection};
use crate::listing::{Listing, Origin, Question, Slot, seconds};
use crate::options::Options;
use crate::place::{Place, refuse};
use crate::remote::{self, Remote, is_credential};
use crate::store::Store;
use crate::throttle::Throttled;

/// Which dataset to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// A directory, with or without `file://`, or a prefix of an object store, like `s3://bucket/train`. A relative
    /// directory is looked up from the process's own.
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
    let slot = listings.map(|listings| Slot::new(listings, question(&place, &selection)));
    let (catalog, cached, store): (_, _, Box<dyn Store>) = match &place {
        Place::Directory(path) => {
            options.local()?;
            let root = Path::new(path);
            let files = Files::open(root).map_err(|error| refuse(root, &error))?;
            let holds = |origin: &Origin| origin.directories_hold(root);
            let (catalog, cached) =
                kept_or(slot, holds, progress, |progress| folder::list(root, &selection, progress))?;
            (catalog, cached, Box::new(files))
        }
        Place::Remote(address) => {
            let remote = Remote::open(address.clone(), &options.client)?;
            let holds = |origin: &Origin| fresh(origin, options.max_age, SystemTime::now());
            let (catalog, cached) =
                kept_or(slot, holds, progress, |progress| remote::list(&remote, &selection, progress))?;
            (catalog, cached, Box::new(remote))
        }
    };
    let place = place.shown();
    tracing::info!(place, samples = catalog.len(), bytes = catalog.bytes(), cached, "opened");
    Ok(Opened {
        identity: identity(&catalog, &place, &request.storage_options),
        catalog: Arc::new(catalog),
        store: wrap(store, &options),
        cached,
        place,
    })
}

/// Drops the kept listing of a dataset, after a read found that its data changed. What cannot be opened at
/// all has no listing that would be used.
pub fn forget(listings: &Path, request: &Request) {
    if let (Ok(place), Ok(selection)) =
        (Place::resolve(&request.place), Selection::new(request.layout, &request.extensions))
    {
        Slot::new(listings, question(&place, &selection)).forget();
    }
}

fn question(place: &Place, selection: &Selection) -> Question {
    let details = selection.extensions.clone();
    Question { place: place.shown(), layout: selection.layout.name(), details }
}

/// The catalog kept in `slot`, if its origin `holds`, else a new one, which is kept; whether it was kept.
fn kept_or(
    slot: Option<Slot>,
    holds: impl FnOnce(&Origin) -> bool,
    progress: &mut dyn FnMut(u64),
    list: impl FnOnce(&mut dyn FnMut(u64)) -> Result<Listing>,
) -> Result<(Catalog, bool)> {
    if let Some(catalog) = slot.as_ref().and_then(|slot| slot.load(holds)) {
        progress(catalog.len() as u64);
        return Ok((catalog, true));
    }
    let began = SystemTime::now();
    let listing = list(progress)?;
    if let Some(slot) = slot {
        slot.save(&listing, began);
    }
    Ok((listing.catalog, false))
}

/// Whether the listing of an object store is young enough to be trusted.
fn fresh(origin: &Origin, max_age: Duration, now: SystemTime) -> bool {
    let age = seconds(now).checked_sub(origin.listed);
    let fresh = age.is_some_and(|age| Duration::from_secs(age) < max_age);
    if fresh {
        tracing::info!(
            age,
            "a kept listing is used; set `listing.max_age` to `0s` in `storage_options` to list anew"
        );
    }
    fresh
}

/// Faults lie below the throttle: in a store that is slow a failure is slow too.
fn wrap(mut store: Box<dyn Store>, options: &Options) -> Arc<dyn Store> {
    if let Some(fault) = options.fault {
        store = Box::new(Faulty::new(store, fault));
    }
    if let Some(throttle) = options.throttle {
        store = Box::new(Throttled::new(store, throttle));
    }
    Arc::from(store)
}

/// Credentials and the age of listings have no part in what a dataset is: they change while it stays.
fn identity(catalog: &Catalog, place: &str, options: &BTreeMap<String, String>) -> String {
    let mut hasher = Hasher::new();
    let mut part = |text: &str| {
        hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
    };
    part(catalog.identity());
    part(catalog.versions_identity());
    part(place);
    for (name, value) in
        options.iter().filter(|(name, _)| !is_credential(name) && !name.starts_with("listing."))
    {
        part(name);
        part(value);
    }
    hex(&hasher)
}
