//! Opening a dataset: its listing, from disk if nothing changed, and a store with its wrappers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use blake3::Hasher;
use hotset_core::{Id, Result};

use crate::catalog::{Catalog, hex};
use crate::digest::Hashes;
use crate::fault::Faulty;
use crate::layout::{Layout, Selection};
use crate::listing::{Listing, ListingFile, ListingKey, kept_or};
use crate::manifest::Manifest;
use crate::opened_place::OpenedPlace;
use crate::options::Options;
use crate::place::Place;
use crate::remote::is_credential;
use crate::shards::Shards;
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
    /// The file name extensions to take; empty: the layout's own. For shards the parts of a sample, in order.
    pub extensions: Vec<String>,
    /// Where a shard's labels are: a member like `cls`, a field of one like `json:label`, or `none`; empty: `cls`
    /// where there is one.
    pub label: String,
    /// Where a manifest's keys lie; empty: beside the manifest.
    pub root: String,
    /// Settings of the store, like `throttle.latency`.
    pub storage_options: BTreeMap<String, String>,
}

/// A dataset that is open.
#[derive(Clone)]
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
    /// The hashes of its samples, where somebody has looked them up.
    pub hashes: Option<Arc<Hashes>>,
}

impl Opened {
    /// A part of it, as a dataset of its own.
    pub fn select(&self, ids: &[Id]) -> Result<Self> {
        let catalog = self.catalog.select(ids)?;
        let mut hasher = Hasher::new();
        // The samples and their order are in the catalog's own name.
        hasher.update(self.identity.as_bytes()).update(catalog.identity().as_bytes());
        let identity = hex(&hasher);
        Ok(Self { catalog: Arc::new(catalog), identity, hashes: None, ..self.clone() })
    }
}

/// Opens a dataset. Listings are kept in the directory `listings`, if there is one; `progress` hears now and
/// then how many samples were found, and ends the listing with an error of its own.
pub fn open(
    request: &Request,
    listings: Option<&Path>,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Opened> {
    open_with(request, listings, progress, Options::parse(&request.storage_options)?)
}

/// Opens a dataset again whose store has answered before: if it is away now, it is waited for.
pub fn open_again(
    request: &Request,
    listings: Option<&Path>,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Opened> {
    let options = Options { known: true, ..Options::parse(&request.storage_options)? };
    open_with(request, listings, progress, options)
}

fn open_with(
    request: &Request,
    listings: Option<&Path>,
    progress: &mut dyn FnMut(u64) -> Result<()>,
    options: Options,
) -> Result<Opened> {
    // Nothing is counted before samples are looked for.
    let prepared = Prepared::new(request, &options, &mut || progress(0))?;
    let file = listings.map(|listings| ListingFile::new(listings, prepared.key(&request.storage_options)));
    let (catalog, cached) = match &prepared {
        Prepared::Tree { opened, selection, .. } => {
            let holds = |listing: &Listing, tell: &mut dyn FnMut(u64) -> Result<()>| {
                opened.holds(&listing.origin, options.max_age) && opened.unchanged(&listing.catalog, tell)
            };
            kept_or(file, holds, progress, |progress| opened.list(selection, progress))?
        }
        Prepared::Shards(shards) => {
            let holds = |listing: &Listing, _: &mut dyn FnMut(u64) -> Result<()>| {
                listing.origin.objects == shards.objects
            };
            kept_or(file, holds, progress, |progress| shards.index(progress))?
        }
        Prepared::Manifest(manifest) => {
            let holds = |listing: &Listing, tell: &mut dyn FnMut(u64) -> Result<()>| {
                manifest.holds(&listing.origin) && manifest.opened.unchanged(&listing.catalog, tell)
            };
            kept_or(file, holds, progress, |progress| manifest.list(progress))?
        }
    };
    let place = prepared.key(&request.storage_options).place;
    tracing::info!(place, samples = catalog.len(), bytes = catalog.bytes(), cached, "opened");
    Ok(Opened {
        identity: identity(&catalog, &place, &request.storage_options),
        catalog: Arc::new(catalog),
        store: wrap(Box::new(prepared.into_opened()), &options),
        cached,
        place,
        hashes: None,
    })
}

/// Drops the kept listing of a dataset, after a read found that its data changed. What cannot be opened at
/// all has no listing that would be used.
pub fn forget(listings: &Path, request: &Request) {
    let prepared = Options::parse(&request.storage_options)
        .and_then(|options| Prepared::new(request, &options, &mut || Ok(())));
    if let Ok(prepared) = prepared {
        ListingFile::new(listings, prepared.key(&request.storage_options)).forget();
    }
}

/// A dataset that is found and not listed yet.
enum Prepared {
    /// Files or objects, one for each sample.
    Tree { place: String, selection: Selection, opened: OpenedPlace },
    /// Tar files with many samples each.
    Shards(Shards),
    /// What a table names.
    Manifest(Manifest),
}

impl Prepared {
    /// Finds it; `go_on` is asked now and then, and ends a long search with an error of its own.
    fn new(request: &Request, options: &Options, go_on: &mut dyn FnMut() -> Result<()>) -> Result<Self> {
        match request.layout {
            Layout::Images | Layout::Files => {
                let selection = Selection::new(request.layout, &request.extensions)?;
                let place = Place::resolve(&request.place)?;
                let opened = OpenedPlace::open(&place, options)?;
                Ok(Self::Tree { place: place.shown(), selection, opened })
            }
            Layout::Shards => {
                Shards::find(&request.place, &request.extensions, &request.label, options, go_on)
                    .map(Self::Shards)
            }
            Layout::Manifest => {
                Manifest::find(&request.place, &request.root, &request.label, options).map(Self::Manifest)
            }
        }
    }

    /// What its listing is kept under. One name may mean another bucket at another address, or in another account.
    fn key(&self, options: &BTreeMap<String, String>) -> ListingKey {
        let mut key = self.local_key();
        let wrapped = |name: &str| name.starts_with("throttle.") || name.starts_with("fault.");
        let meant = means_another(options).filter(|(name, _)| !wrapped(name));
        key.details.extend(meant.map(|(name, value)| format!("{name}={value}")));
        key
    }

    fn local_key(&self) -> ListingKey {
        match self {
            Self::Tree { place, selection, .. } => {
                let details = selection.extensions.clone();
                ListingKey { place: place.clone(), layout: selection.layout.name(), details }
            }
            Self::Shards(shards) => shards.listing_key(),
            Self::Manifest(manifest) => manifest.listing_key(),
        }
    }

    fn into_opened(self) -> OpenedPlace {
        match self {
            Self::Tree { opened, .. } => opened,
            Self::Shards(shards) => shards.opened,
            Self::Manifest(manifest) => manifest.opened,
        }
    }
}

/// Faults lie below the throttle: in a store that is slow a failure is slow too.
pub(crate) fn wrap(mut store: Box<dyn Store>, options: &Options) -> Arc<dyn Store> {
    if let Some(fault) = options.fault {
        store = Box::new(Faulty::new(store, fault));
    }
    if let Some(throttle) = options.throttle {
        store = Box::new(Throttled::new(store, throttle));
    }
    Arc::from(store)
}

/// The options that tell one dataset from another. Credentials and the age of listings do not: they change while it stays.
fn means_another(options: &BTreeMap<String, String>) -> impl Iterator<Item = (&String, &String)> {
    options.iter().filter(|(name, _)| !is_credential(name) && !name.starts_with("listing."))
}

/// What a dataset is.
fn identity(catalog: &Catalog, place: &str, options: &BTreeMap<String, String>) -> String {
    let mut hasher = Hasher::new();
    let mut part = |text: &str| {
        hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
    };
    part(catalog.identity());
    part(catalog.versions_identity());
    part(place);
    for (name, value) in means_another(options) {
        part(name);
        part(value);
    }
    hex(&hasher)
}
