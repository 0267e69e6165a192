//! The listing of an object store, into a catalog.
//!
//! What the local listing makes of a tree of files this makes of keys: the same samples in the same order, with
//! the same labels. `images` asks once for the class prefixes and then lists them side by side, a number of
//! classes at a time, each pushed and dropped in its turn. `files` is one listing from end to end, since which
//! prefixes there are is not known before. Pages are taken as they come: beside the catalog only the keys of
//! the classes under way, or for `files` one compact copy of all, are held.

use std::cell::Cell;
use std::time::SystemTime;

use futures_util::{StreamExt, TryStreamExt, stream};
use hotset_core::{Error, Result};
use object_store::ObjectMeta;
use object_store::path::Path;

use super::failure::refuse;
use super::{Remote, version};
use crate::catalog::{Builder, Catalog, Directory};
use crate::folder::shortened;
use crate::layout::{Layout, Selection};
use crate::listing::{Listing, Origin, seconds};
use crate::names::{LONGEST, Names};

/// Classes listed at a time.
const AT_ONCE: usize = 32;
/// After so many keys progress is told again.
const PROGRESS: u64 = 1_000;

/// Lists the samples of a store. `tell` hears now and then how many there are so far.
pub(crate) fn list(remote: &Remote, selection: &Selection, tell: &mut dyn FnMut(u64)) -> Result<Listing> {
    let listed = seconds(SystemTime::now());
    let walk = Walk { remote, selection, seen: Cell::new(0) };
    let catalog = match selection.layout {
        Layout::Images => remote.runtime.block_on(walk.images(tell))?,
        Layout::Files | Layout::Shards | Layout::Manifest => remote.runtime.block_on(walk.files(tell))?,
    };
    tell(catalog.len() as u64);
    Ok(Listing { catalog, origin: Origin { listed, ..Origin::default() } })
}

/// Keys below a prefix, with what the listing says of them.
#[derive(Default)]
struct Keys {
    names: Names,
    sizes: Vec<u64>,
    versions: Vec<u32>,
}

struct Walk<'a> {
    remote: &'a Remote,
    selection: &'a Selection,
    seen: Cell<u64>,
}

impl Walk<'_> {
    async fn images(&self, tell: &mut dyn FnMut(u64)) -> Result<Catalog> {
        let place = self.remote.address.shown();
        let prefix = Some(&self.remote.address.prefix).filter(|prefix| !prefix.as_ref().is_empty());
        let top = self.remote.listings.list_with_delimiter(prefix).await;
        let top = top.map_err(|failure| refuse(&place, &failure))?;
        let mut prefixes = top.common_prefixes;
        prefixes.sort_unstable_by(|a, b| a.as_ref().cmp(b.as_ref()));
        if prefixes.is_empty() {
            let name = |meta: &ObjectMeta| self.remote.address.below(&meta.location).to_owned();
            return Err(
                self.no_classes(top.objects.iter().filter(|meta| self.selection.takes(&name(meta))).count())
            );
        }
        let class = |prefix: &Path| self.remote.address.below(prefix).to_owned();
        let classes: Vec<String> = prefixes.iter().map(class).collect();
        let mut builder = Builder::new(classes.clone());
        let mut empty = Vec::new();
        let mut lists = stream::iter(&prefixes).map(|prefix| self.keys(Some(prefix))).buffered(AT_ONCE);
        let mut told = 0;
        for (label, class) in (0u32..).zip(&classes) {
            // A step of all listings under way at a time, so that progress is told while they run.
            let Some(keys) = lists.next().await else { break };
            let keys = keys?;
            if self.seen.get() >= told + PROGRESS {
                told = self.seen.get();
                tell(told);
            }
            if keys.len() == 0 {
                empty.push(format!("`{class}`"));
            }
            keys.push_into(&mut builder, Some(label))?;
        }
        if !empty.is_empty() {
            return Err(Error::invalid(format!(
                "no images in the class folders {} of `{place}`; the extensions taken are {}",
                shortened(&empty),
                self.selection.shown()
            )));
        }
        Ok(builder.finish())
    }

    async fn files(&self, tell: &mut dyn FnMut(u64)) -> Result<Catalog> {
        let prefix = Some(&self.remote.address.prefix).filter(|prefix| !prefix.as_ref().is_empty());
        let mut keys = Keys::default();
        let mut found = self.remote.listings.list(prefix);
        while let Some(meta) = found.next().await {
            self.take(&meta.map_err(|failure| self.refused(&failure))?, &mut keys)?;
            if keys.len().is_multiple_of(PROGRESS as usize) {
                tell(keys.len() as u64);
            }
        }
        let mut builder = Builder::new(Vec::new());
        keys.push_into(&mut builder, None)?;
        let catalog = builder.finish();
        if catalog.is_empty() {
            let taken = self.selection.shown();
            let which = if taken.is_empty() { String::new() } else { format!(" that end in {taken}") };
            return Err(Error::invalid(format!("no files{which} below `{}`", self.remote.address.shown())));
        }
        Ok(catalog)
    }

    /// The keys below a prefix that are samples.
    async fn keys(&self, prefix: Option<&Path>) -> Result<Keys> {
        let found = self.remote.listings.list(prefix).map_err(|failure| self.refused(&failure));
        let take = |mut keys: Keys, meta: ObjectMeta| async move {
            self.take(&meta, &mut keys)?;
            Ok(keys)
        };
        let mut keys = found.try_fold(Keys::default(), take).await?;
        keys.shrink();
        Ok(keys)
    }

    fn take(&self, meta: &ObjectMeta, keys: &mut Keys) -> Result<()> {
        let key = self.remote.address.below(&meta.location);
        let (folder, name) = key.rsplit_once('/').unwrap_or(("", key));
        if !self.selection.takes(name) || folder.split('/').any(|part| self.selection.hides(part)) {
            return Ok(());
        }
        self.seen.set(self.seen.get() + 1);
        keys.push(key, meta.size, version::version(meta))
    }

    fn refused(&self, failure: &object_store::Error) -> Error {
        refuse(&self.remote.address.shown(), failure)
    }

    fn no_classes(&self, flat: usize) -> Error {
        let place = self.remote.address.shown();
        Error::invalid(if flat > 0 {
            format!(
                "`{place}` holds `{flat}` images and no class folders; put the images of each class below a prefix \
                 of its own, or use `hotset.Dataset` for a flat one"
            )
        } else {
            format!(
                "`{place}` holds no class folders and no images; the extensions taken are {}",
                self.selection.shown()
            )
        })
    }
}

impl Keys {
    fn len(&self) -> usize {
        self.sizes.len()
    }

    fn push(&mut self, key: &str, size: u64, version: u32) -> Result<()> {
        if !self.names.push(key) {
            return Err(Error::invalid(format!("the key `{key}` is longer than `{LONGEST}` bytes")));
        }
        self.sizes.push(size);
        self.versions.push(version);
        Ok(())
    }

    fn shrink(&mut self) {
        self.names.shrink();
        self.sizes.shrink_to_fit();
        self.versions.shrink_to_fit();
    }

    /// Pushes the keys in the order of the local listing: with classes by folder and then by name, else by the
    /// whole key. An empty object that other keys lie below is what some tools leave for a folder.
    fn push_into(&self, builder: &mut Builder, label: Option<u32>) -> Result<()> {
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        let key = |index: u32| self.names.get(index as usize);
        order.sort_unstable_by(|a, b| key(*a).cmp(key(*b)));
        let folders = |at: usize| {
            let below = order.get(at + 1).map(|next| key(*next));
            self.sizes[order[at] as usize] == 0
                && below
                    .and_then(|next| next.strip_prefix(key(order[at])))
                    .is_some_and(|rest| rest.starts_with('/'))
        };
        let mut taken: Vec<u32> = (0..order.len()).filter(|at| !folders(*at)).map(|at| order[at]).collect();
        let apart = |index: u32| key(index).rsplit_once('/').unwrap_or(("", key(index)));
        if label.is_some() {
            taken.sort_by(|a, b| apart(*a).cmp(&apart(*b)));
        }
        // Folders in the order of whole keys come back after what lies below them.
        let mut known: std::collections::HashMap<&str, Directory> = std::collections::HashMap::new();
        for index in taken {
            let (folder, name) = apart(index);
            let directory = match known.get(folder) {
                Some(directory) => *directory,
                None => *known.entry(folder).or_insert(builder.directory(folder)?),
            };
            builder.push(
                directory,
                name,
                self.sizes[index as usize],
                self.versions[index as usize],
                label,
            )?;
        }
        Ok(())
    }
}
