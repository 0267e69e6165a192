//! Tar shards in the WebDataset layout: members that differ only in what follows the first dot of their file
//! name are one sample, `0007.jpg` and `0007.cls` for example.
//!
//! An index is made once, from the headers, and kept; it holds as long as every shard has its length and
//! version. A sample's bytes are the run of the shard from its first part to its last, read in one request;
//! parts are places in that run, and one that a sample may be without has none. What lies between them (headers, members that are not asked for) is read along
//! and skipped. Shards are indexed side by side, a number at a time, and taken in their order.

mod braces;
mod member;
mod plan;
mod tar;
mod window;

use std::cell::Cell;
use std::time::Instant;

use hotset_core::{Error, Result, Rng};

use crate::catalog::{Builder, Catalog, Sample, Shape};
use crate::labels::Labels;
use crate::layout::{Layout, Selection};
use crate::listing::{Listing, ListingKey, Object, Origin};
use crate::opened_place::OpenedPlace;
use crate::options::Options;
use crate::parallel::{Wanted, in_parallel};
use crate::place::Place;
use crate::retries::named;
use crate::store::{ObjectVersion, Objects, ReadError};
use member::Found;
use plan::Plan;

/// What compressed shards end with.
const COMPRESSED: [&str; 8] =
    [".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.lz4"];

/// Shards that are found and not indexed yet.
pub(crate) struct Shards {
    place: String,
    parts: Vec<String>,
    label: String,
    pub(crate) opened: OpenedPlace,
    /// The shards, in their order, as they are now.
    pub(crate) objects: Vec<Object>,
}

impl Shards {
    /// Finds the shards that `written` names: a tar file, a pattern of names, or a place that holds some.
    /// `go_on` is asked meanwhile, and its error ends it.
    pub(crate) fn find(
        written: &str,
        parts: &[String],
        label: &str,
        options: &Options,
        go_on: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Self> {
        check_name(written)?;
        let (root, names) = match cut(written) {
            Some((root, pattern)) => (root, Some(braces::expand(pattern)?)),
            None => (written, None),
        };
        let place = Place::resolve(root)?;
        let opened = OpenedPlace::open(&place, options)?;
        let objects = match names {
            Some(names) => look(&opened, &names, &place.shown(), go_on)?,
            None => list(&opened, go_on)?,
        };
        let place = match cut(written) {
            Some((_, pattern)) => format!("{}/{pattern}", place.shown().trim_end_matches('/')),
            None => place.shown(),
        };
        Ok(Self { place, parts: parts.to_vec(), label: label.to_owned(), opened, objects })
    }

    pub(crate) fn listing_key(&self) -> ListingKey {
        let details = self.parts.iter().chain([&self.label]).cloned().collect();
        ListingKey { place: self.place.clone(), layout: Layout::Shards.name(), details }
    }

    /// Makes the index; `progress` hears now and then how many samples there are so far.
    pub(crate) fn index(&self, progress: &mut dyn FnMut(u64) -> Result<()>) -> Result<Listing> {
        let first = self
            .objects
            .first()
            .ok_or_else(|| Error::invalid(format!("`{}` holds no shards", self.place)))?;
        let plan = Plan::new(&self.parts, &self.label, &member::first(&self.opened, first)?, &first.key)?;
        let shape = Shape { classes: Vec::new(), labels: plan.label.is_some(), parts: plan.names() };
        let mut builder = Builder::of(shape);
        let mut labels = Labels::default();
        let taken = Cell::new(0);
        let push = |number: usize, found: Vec<Found>| {
            let key = &self.objects[number].key;
            let directory = builder.directory(key)?;
            let version = self.objects[number].look.version;
            for found in &found {
                let of = || format!("`{key}/{}`", found.name);
                let label = found.label.as_deref().map(|text| labels.label(text, &of)).transpose()?;
                let sample = Sample {
                    offset: Some(found.offset),
                    size: found.size,
                    version,
                    label,
                    spans: &found.spans,
                };
                builder.push_sample(directory, &found.name, &sample)?;
            }
            taken.set(taken.get() + found.len() as u64);
            Ok(())
        };
        let work = |number: usize, wanted: &Wanted| {
            member::index(&self.opened, &self.objects[number], &plan, wanted)
        };
        in_parallel(self.objects.len(), &work, push, &mut || progress(taken.get()))?;
        labels.name(&mut builder)?;
        let catalog: Catalog = builder.finish();
        if catalog.is_empty() {
            return Err(Error::invalid(format!("the shards of `{}` hold no samples", self.place)));
        }
        Ok(Listing { catalog, origin: Origin { objects: self.objects.clone(), ..Origin::default() } })
    }
}

impl Shards {
    /// The samples of some shards, spread over all of them, until there are enough or it is time: for measuring.
    pub(crate) fn index_some(&self, samples: usize, until: Instant) -> Result<Catalog> {
        let first = self
            .objects
            .first()
            .ok_or_else(|| Error::invalid(format!("`{}` holds no shards", self.place)))?;
        let plan = Plan::new(&self.parts, "none", &member::first(&self.opened, first)?, &first.key)?;
        let shape = Shape { classes: Vec::new(), labels: false, parts: plan.names() };
        let mut builder = Builder::of(shape);
        let mut taken = 0;
        let mut order: Vec<&Object> = self.objects.iter().collect();
        Rng::new(0, 0, "survey").shuffle(&mut order);
        for shard in order {
            if taken >= samples || (taken > 0 && Instant::now() >= until) {
                break;
            }
            let directory = builder.directory(&shard.key)?;
            for found in member::index(&self.opened, shard, &plan, &Wanted::default())? {
                let sample = Sample {
                    offset: Some(found.offset),
                    size: found.size,
                    version: shard.look.version,
                    label: None,
                    spans: &found.spans,
                };
                builder.push_sample(directory, &found.name, &sample)?;
                taken += 1;
            }
        }
        Ok(builder.finish())
    }
}

/// Refuses names that other readers of shards take and this one does not, with what to write.
fn check_name(written: &str) -> Result<()> {
    let name = written.to_lowercase();
    if let Some(ending) = COMPRESSED.iter().find(|ending| name.ends_with(**ending)) {
        return Err(Error::invalid(format!(
            "`{written}` is compressed (`{ending}`), and single samples cannot be read from inside it: unpack it, and \
             give the plain `.tar`"
        )));
    }
    let joined: Vec<&str> = name.split("::").collect();
    if joined.len() > 1 && joined.iter().all(|each| each.ends_with(".tar")) {
        return Err(Error::invalid(format!(
            "`{written}` joins shards by `::`; name them with one pattern like `train-{{000..099}}.tar` or \
             `{{a,b}}.tar`, or name the directory or prefix they lie in"
        )));
    }
    Ok(())
}

/// A pattern or a tar file, cut into the place it lies in and its name there; `None` for a place.
fn cut(written: &str) -> Option<(&str, &str)> {
    let brace = written.find('{');
    if brace.is_none() && !written.to_lowercase().ends_with(".tar") {
        return None;
    }
    let fixed = &written[..brace.unwrap_or(written.len())];
    Some(match fixed.rfind('/') {
        Some(0) => ("/", &written[1..]),
        Some(slash) => (&written[..slash], &written[slash + 1..]),
        None => (".", written),
    })
}

/// Every shard below a place.
fn list(opened: &OpenedPlace, go_on: &mut dyn FnMut() -> Result<()>) -> Result<Vec<Object>> {
    let tar = Selection::new(Layout::Files, &[".tar".to_owned()])?;
    let catalog = opened.list(&tar, &mut |_| go_on())?.catalog;
    let object = |id| Object {
        key: catalog.key(id),
        look: ObjectVersion { size: catalog.size(id), version: catalog.version(id) },
    };
    Ok((0..catalog.len() as u32).map(object).collect())
}

/// Looks at every shard that is named.
fn look(
    opened: &OpenedPlace,
    names: &[String],
    place: &str,
    go_on: &mut dyn FnMut() -> Result<()>,
) -> Result<Vec<Object>> {
    let mut objects = Vec::with_capacity(names.len());
    let one = |number: usize, _: &Wanted| {
        let key = &names[number];
        opened.look(key).map_err(|error| match error {
            ReadError::Vanished => Error::invalid(format!("there is no shard `{key}` below `{place}`")),
            error => named(key, error),
        })
    };
    let push = |number: usize, look| {
        objects.push(Object { key: names[number].clone(), look });
        Ok(())
    };
    in_parallel(names.len(), &one, push, go_on)?;
    Ok(objects)
}

#[cfg(test)]
mod tests;
