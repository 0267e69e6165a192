//! The listing of an object store, into a catalog.
//!
//! What the local listing makes of a tree of files this makes of keys: the same samples in the same order, with
//! the same labels. `images` asks once for the class prefixes and then lists them side by side, a number of
//! classes at a time on all cores, each pushed and dropped in its turn. `files` is one listing from end to end, since which
//! prefixes there are is not known before. Pages are taken as they come: beside the catalog only the keys of
//! the classes under way, or for `files` one compact copy of all, are held.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use futures_util::{StreamExt, stream};
use hotset_core::{Error, Result};
use object_store::ObjectMeta;
use object_store::path::Path;
use tokio::task::JoinHandle;

use super::connect::{Client, connect};
use super::pages::Place;
use super::{Address, Remote, pages, version};
use crate::catalog::{Builder, Catalog, Directory};
use crate::folder::shortened;
use crate::layout::{Layout, Selection};
use crate::left_out::LeftOut;
use crate::listing::{Listing, Origin, seconds};
use crate::names::{LONGEST, Names};
use crate::retries::Retries;
use crate::runtime::for_a_listing;

/// Classes listed at a time.
const AT_ONCE: usize = 32;
/// How often it is told how many keys there are. By time, since a store may have few keys on a page and be slow.
const LOOK: Duration = Duration::from_millis(200);

/// Lists the samples of a store. `tell` hears now and then how many there are so far, and its error ends the listing with
/// all requests under way.
pub(crate) fn list(
    remote: &Remote,
    selection: &Selection,
    tell: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Listing> {
    let listed = seconds(SystemTime::now());
    // Declared first, so that it ends when nothing of the client is left.
    let runtime = for_a_listing()?;
    let _entered = runtime.enter();
    let walk = Arc::new(Walk {
        client: connect(&remote.address, &remote.options)?,
        address: remote.address.clone(),
        shown: remote.address.shown(),
        selection: selection.clone(),
        seen: AtomicU64::new(0),
        reached: remote.reached.load(Ordering::Relaxed),
    });
    let listing = async {
        match selection.layout {
            Layout::Images => walk.images().await,
            Layout::Files | Layout::Shards | Layout::Manifest => walk.files().await,
        }
    };
    let catalog = runtime.block_on(told(listing, &walk.seen, tell))?;
    tell(catalog.len() as u64)?;
    Ok(Listing { catalog, origin: Origin { listed, ..Origin::default() } })
}

/// What `listing` comes to, while `tell` hears how many keys it has `seen`.
async fn told<T>(
    listing: impl Future<Output = Result<T>>,
    seen: &AtomicU64,
    tell: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<T> {
    let mut listing = std::pin::pin!(listing);
    loop {
        match tokio::time::timeout(LOOK, &mut listing).await {
            Ok(listed) => return listed,
            Err(_) => tell(seen.load(Ordering::Relaxed))?,
        }
    }
}

/// Keys below a prefix, with what the listing says of them.
#[derive(Default)]
struct Keys {
    names: Names,
    sizes: Vec<u64>,
    versions: Vec<u32>,
    /// Those that are samples, in the order of the catalog; set by `arrange`.
    order: Vec<u32>,
    /// Keys that no path can name.
    unnamed: LeftOut,
}

struct Walk {
    client: Client,
    address: Address,
    shown: String,
    selection: Selection,
    seen: AtomicU64,
    /// Whether the store has answered before.
    reached: bool,
}

impl Walk {
    async fn images(self: &Arc<Self>) -> Result<Catalog> {
        let mut unnamed = LeftOut::default();
        let top = pages::top(&self.place(self.prefix()), Retries::with(self.reached), &mut unnamed).await?;
        let mut prefixes = top.common_prefixes;
        prefixes.sort_unstable_by(|a, b| a.as_ref().cmp(b.as_ref()));
        if prefixes.is_empty() {
            let takes = |meta: &&ObjectMeta| self.selection.takes(self.address.below(&meta.location));
            warn_of(&unnamed);
            return Err(self.no_classes(top.objects.iter().filter(takes).count()));
        }
        let classes: Vec<String> =
            prefixes.iter().map(|prefix| self.address.below(prefix).to_owned()).collect();
        let mut builder = Builder::new(classes.clone());
        let mut empty = Vec::new();
        // Each class is taken apart on the runtime's own threads, and put into the catalog on this one.
        let start = |prefix| Spawned(tokio::spawn(Arc::clone(self).class(prefix)));
        let mut lists = stream::iter(prefixes).map(start).buffered(AT_ONCE);
        for (label, class) in (0u32..).zip(&classes) {
            let Some(keys) = lists.next().await else { break };
            let mut keys = keys?;
            unnamed.extend(std::mem::take(&mut keys.unnamed));
            if keys.order.is_empty() {
                empty.push(format!("`{class}`"));
            }
            keys.push_into(&mut builder, Some(label))?;
        }
        warn_of(&unnamed);
        if !empty.is_empty() {
            return Err(Error::invalid(format!(
                "no images in the class folders {} of `{}`; the extensions taken are {}",
                shortened(&empty),
                self.shown,
                self.selection.shown()
            )));
        }
        Ok(builder.finish())
    }

    async fn files(&self) -> Result<Catalog> {
        let (mut keys, mut unnamed) = (Keys::default(), LeftOut::default());
        let take = |meta: &ObjectMeta| self.take(meta, &mut keys);
        let retries = Retries::with(self.reached);
        pages::each(&self.place(self.prefix()), retries, &mut unnamed, take).await?;
        warn_of(&unnamed);
        keys.arrange(false);
        let mut builder = Builder::new(Vec::new());
        keys.push_into(&mut builder, None)?;
        let catalog = builder.finish();
        if catalog.is_empty() {
            let taken = self.selection.shown();
            let which = if taken.is_empty() { String::new() } else { format!(" that end in {taken}") };
            return Err(Error::invalid(format!("no files{which} below `{}`", self.shown)));
        }
        Ok(catalog)
    }

    /// The keys of a class that are samples.
    async fn class(self: Arc<Self>, prefix: Path) -> Result<Keys> {
        let (mut keys, mut unnamed) = (Keys::default(), LeftOut::default());
        let take = |meta: &ObjectMeta| self.take(meta, &mut keys);
        pages::each(&self.place(Some(&prefix)), Retries::default(), &mut unnamed, take).await?;
        keys.unnamed = unnamed;
        keys.arrange(true);
        Ok(keys)
    }

    fn take(&self, meta: &ObjectMeta, keys: &mut Keys) -> Result<()> {
        let key = self.address.below(&meta.location);
        let (folder, name) = key.rsplit_once('/').unwrap_or(("", key));
        if !self.selection.takes(name) || folder.split('/').any(|part| self.selection.hides(part)) {
            return Ok(());
        }
        self.seen.fetch_add(1, Ordering::Relaxed);
        keys.push(key, meta.size, version::version(meta))
    }

    fn place<'a>(&'a self, prefix: Option<&'a Path>) -> Place<'a> {
        Place { client: &self.client, prefix, shown: &self.shown }
    }

    fn prefix(&self) -> Option<&Path> {
        Some(&self.address.prefix).filter(|prefix| !prefix.as_ref().is_empty())
    }

    fn no_classes(&self, flat: usize) -> Error {
        let place = &self.shown;
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
    fn push(&mut self, key: &str, size: u64, version: u32) -> Result<()> {
        if !self.names.push(key) {
            return Err(Error::invalid(format!("the key `{key}` is longer than `{LONGEST}` bytes")));
        }
        self.sizes.push(size);
        self.versions.push(version);
        Ok(())
    }

    /// Finds the order of the local listing: in a class by folder and then by name, else by the whole key. An
    /// empty object that other keys lie below is what some tools leave for a folder.
    fn arrange(&mut self, class: bool) {
        let Self { names, sizes, order, .. } = self;
        let key = |index: u32| names.get(index as usize);
        order.extend(0..sizes.len() as u32);
        // Stores mostly list in this order already.
        if !order.is_sorted_by(|a, b| key(*a) <= key(*b)) {
            order.sort_unstable_by(|a, b| key(*a).cmp(key(*b)));
        }
        let is_folder = |index: u32, next: Option<u32>| {
            let below = next.and_then(|next| key(next).strip_prefix(key(index)));
            sizes[index as usize] == 0 && below.is_some_and(|rest| rest.starts_with('/'))
        };
        let mut kept = 0;
        for at in 0..order.len() {
            if !is_folder(order[at], order.get(at + 1).copied()) {
                order[kept] = order[at];
                kept += 1;
            }
        }
        order.truncate(kept);
        let in_order = |a: &u32, b: &u32| apart(key(*a)) <= apart(key(*b));
        if class && !order.is_sorted_by(in_order) {
            order.sort_by(|a, b| apart(key(*a)).cmp(&apart(key(*b))));
        }
    }

    /// Pushes the keys that are samples.
    fn push_into(&self, builder: &mut Builder, label: Option<u32>) -> Result<()> {
        // Folders in the order of whole keys come back after what lies below them.
        let mut known: HashMap<&str, Directory> = HashMap::new();
        let mut last: Option<(&str, Directory)> = None;
        for &index in &self.order {
            let (folder, name) = apart(self.names.get(index as usize));
            let directory = match last.filter(|(last, _)| *last == folder) {
                Some((_, directory)) => directory,
                None => match known.get(folder) {
                    Some(directory) => *directory,
                    None => *known.entry(folder).or_insert(builder.directory(folder)?),
                },
            };
            last = Some((folder, directory));
            let (size, version) = (self.sizes[index as usize], self.versions[index as usize]);
            builder.push(directory, name, size, version, label)?;
        }
        Ok(())
    }
}

fn warn_of(unnamed: &LeftOut) {
    if let Some(first) = unnamed.shown() {
        tracing::warn!(
            places = unnamed.count,
            first,
            "objects whose keys no path can name (`a//b`, `a/./b`) are left out"
        );
    }
}

/// The folder of a key and its name there.
fn apart(key: &str) -> (&str, &str) {
    key.rsplit_once('/').unwrap_or(("", key))
}

/// Work on the runtime's own threads that ends with the task that waits for it.
struct Spawned(JoinHandle<Result<Keys>>);

impl Future for Spawned {
    type Output = Result<Keys>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = |error| Err(Error::internal(format!("the listing of a class ended: {error}")));
        Pin::new(&mut self.0).poll(context).map(|done| done.unwrap_or_else(ended))
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys(names: &[String], empty: &[bool]) -> Keys {
        let mut keys = Keys::default();
        for (name, empty) in names.iter().zip(empty) {
            keys.push(name, u64::from(!empty), 7).unwrap();
        }
        keys
    }

    proptest! {
        #[test]
        fn keys_come_in_the_order_of_a_plain_sort_whatever_order_they_were_listed_in(
            names in prop::collection::hash_set("[ab/-]{0,3}[abc]", 0..40),
            empty in prop::collection::vec(any::<bool>(), 40),
            class in any::<bool>(),
        ) {
            let names: Vec<String> = names.into_iter().filter(|name| !name.starts_with('/')).collect();
            let mut keys = keys(&names, &empty);
            keys.arrange(class);
            let below = |folder: &String| names.iter().any(|name| name.starts_with(&format!("{folder}/")));
            // A folder stands right before what lies below it, unless a name like `a-` comes in between.
            let is_next = |folder: &String| {
                let next = names.iter().filter(|name| *name > folder).min();
                next.is_some_and(|next| next.starts_with(&format!("{folder}/")))
            };
            let is_sample = |(name, empty): &(&String, &bool)| !(**empty && below(name) && is_next(name));
            let mut plain: Vec<&String> =
                names.iter().zip(&empty).filter(is_sample).map(|(name, _)| name).collect();
            if class {
                plain.sort_by_key(|name| apart(name));
            } else {
                plain.sort();
            }
            let found: Vec<&str> = keys.order.iter().map(|index| keys.names.get(*index as usize)).collect();
            prop_assert_eq!(found, plain);
        }
    }
}
