//! A part of a dataset that is too large to be listed whole.
//!
//! It ends with a number of samples or after a time, whichever comes first, and is made for measuring: what is read from
//! it says how fast storage is and how large samples are. Of a local tree some files are taken from each directory, in
//! a random order of directories; of an object store the keys that it lists first; of shards the samples of some of them.
//! Samples have no labels, their order is not that of the whole dataset, and nothing is kept on disk.
//!
//! A manifest is one table, and is read whole or not at all.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use hotset_core::{Error, Result, Rng};

use crate::catalog::{Builder, Catalog, Directory, hex};
use crate::directory::version;
use crate::layout::{Layout, Selection};
use crate::open::{Opened, Request, wrap};
use crate::opened_place::OpenedPlace;
use crate::options::Options;
use crate::place::{Place, refuse};
use crate::remote::{self, Remote};
use crate::shards::Shards;

/// Files of one directory that are taken before another one is looked at.
const OF_A_DIRECTORY: usize = 256;
/// Names of one directory that are looked at: one of millions is not read to its end.
const NAMES: usize = 20_000;

/// How much of a dataset is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Samples at most.
    pub samples: usize,
    /// For so long at most.
    pub time: Duration,
}

/// Opens a part of a dataset.
pub fn open_part(request: &Request, part: Part) -> Result<Opened> {
    let options = Options::parse(&request.storage_options)?;
    let until = Instant::now() + part.time;
    let bound = Bound { samples: part.samples.max(1), until };
    let (shown, opened, catalog) = match request.layout {
        Layout::Images | Layout::Files => {
            let selection = Selection::new(request.layout, &request.extensions)?;
            let place = Place::resolve(&request.place)?;
            let opened = OpenedPlace::open(&place, &options)?;
            let catalog = match &opened {
                OpenedPlace::Directory(_, root) => tree(root, &selection, bound)?,
                OpenedPlace::Remote(remote) => keys(remote, &selection, bound)?,
            };
            (place.shown(), opened, catalog)
        }
        Layout::Shards => {
            let go_on = &mut || bound.check(&request.place);
            let shards = Shards::find(&request.place, &request.extensions, &request.label, &options, go_on)?;
            let catalog = shards.index_some(part.samples, until)?;
            (request.place.clone(), shards.opened, catalog)
        }
        Layout::Manifest => return Err(too_large(&request.place)),
    };
    if catalog.is_empty() {
        return Err(Error::unavailable(format!(
            "no sample of `{shown}` was found in {:.0} s; give it longer with `seconds`",
            part.time.as_secs_f64()
        )));
    }
    Ok(Opened {
        identity: hex(blake3::Hasher::new().update(catalog.identity().as_bytes())),
        catalog: catalog.into(),
        store: wrap(Box::new(opened), &options),
        cached: false,
        place: shown,
        hashes: None,
    })
}

fn too_large(place: &str) -> Error {
    Error::invalid(format!(
        "`{place}` could not be listed in the time there is, and a part of it cannot be; give it longer with `seconds`"
    ))
}

/// When it is enough.
#[derive(Clone, Copy)]
struct Bound {
    samples: usize,
    until: Instant,
}

impl Bound {
    fn reached(&self, samples: usize) -> bool {
        samples >= self.samples || Instant::now() >= self.until
    }

    fn check(&self, place: &str) -> Result<()> {
        if Instant::now() < self.until { Ok(()) } else { Err(too_large(place)) }
    }
}

/// Files of a local tree: some of each directory, then more of those that were seen first.
fn tree(root: &Path, selection: &Selection, bound: Bound) -> Result<Catalog> {
    let mut builder = Builder::new(Vec::new());
    let mut draw = Rng::new(0, 0, "survey");
    let mut waiting = vec![String::new()];
    let mut left: Vec<(Directory, String, Vec<String>)> = Vec::new();
    let mut taken = 0;
    while !waiting.is_empty() && !bound.reached(taken) {
        let folder = waiting.swap_remove(draw.below(waiting.len() as u64) as usize);
        let (mut names, folders) = entries(&root.join(&folder), selection, bound)?;
        waiting.extend(folders.into_iter().map(|name| joined(&folder, &name)));
        draw.shuffle(&mut names);
        let rest = names.split_off(names.len().min(OF_A_DIRECTORY));
        let directory = builder.directory(&folder)?;
        taken += push(&mut builder, root, directory, &folder, &names, bound, taken)?;
        if !rest.is_empty() {
            left.push((directory, folder, rest));
        }
    }
    for (directory, folder, names) in left {
        taken += push(&mut builder, root, directory, &folder, &names, bound, taken)?;
    }
    Ok(builder.finish())
}

/// The samples' names and the directories in one directory.
fn entries(path: &Path, selection: &Selection, bound: Bound) -> Result<(Vec<String>, Vec<String>)> {
    let (mut names, mut folders) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(path).map_err(|error| refuse(path, &error))? {
        let Ok(entry) = entry else { continue };
        let Ok(name) = entry.file_name().into_string() else { continue };
        let kind = entry.file_type().and_then(|kind| match kind.is_symlink() {
            true => Ok(fs::metadata(entry.path())?.file_type()),
            false => Ok(kind),
        });
        match kind {
            Ok(kind) if kind.is_dir() && !selection.hides(&name) => folders.push(name),
            Ok(kind) if kind.is_file() && selection.takes(&name) => names.push(name),
            _ => {}
        }
        if names.len() + folders.len() >= NAMES || bound.reached(0) {
            break;
        }
    }
    Ok((names, folders))
}

/// Takes the files that are still there, and says how many those are.
fn push(
    builder: &mut Builder,
    root: &Path,
    directory: Directory,
    folder: &str,
    names: &[String],
    bound: Bound,
    before: usize,
) -> Result<usize> {
    let mut taken = 0;
    for name in names {
        if bound.reached(before + taken) {
            break;
        }
        let Ok(found) = fs::metadata(root.join(folder).join(name)) else { continue };
        builder.push(directory, name, found.len(), version(&found), None)?;
        taken += 1;
    }
    Ok(taken)
}

fn joined(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// The keys that an object store lists first. A page that does not come in time is not waited for.
fn keys(remote: &Remote, selection: &Selection, bound: Bound) -> Result<Catalog> {
    let mut builder = Builder::new(Vec::new());
    let prefix = Some(&remote.address.prefix).filter(|prefix| !prefix.as_ref().is_empty());
    let directory = builder.directory("")?;
    let shown = remote.address.shown();
    let found = remote.wait(async {
        let mut found = remote.client.list(prefix);
        let mut taken = 0;
        while !bound.reached(taken) {
            let left = bound.until.saturating_duration_since(Instant::now());
            let meta = match tokio::time::timeout(left, found.next()).await {
                Ok(Some(Ok(meta))) => meta,
                Ok(Some(Err(_))) if taken > 0 => break,
                Ok(Some(Err(failure))) => return Err(remote::refuse(&shown, &failure)),
                Ok(None) | Err(_) => break,
            };
            let key = remote.address.below(&meta.location);
            let (folder, name) = key.rsplit_once('/').unwrap_or(("", key));
            if selection.takes(name) && !folder.split('/').any(|part| selection.hides(part)) {
                builder.push(directory, key, meta.size, remote::version(&meta), None)?;
                taken += 1;
            }
        }
        Ok(())
    });
    match found {
        Some(outcome) => outcome?,
        None => return Err(Error::invalid(format!("`{shown}` could not be listed: {}", remote::GAVE_UP))),
    }
    Ok(builder.finish())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn request(place: &Path, layout: Layout) -> Request {
        Request {
            place: place.display().to_string(),
            layout,
            extensions: Vec::new(),
            label: String::new(),
            root: String::new(),
            storage_options: BTreeMap::new(),
        }
    }

    fn tree_of(folders: usize, files: usize) -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        for folder in 0..folders {
            let at = place.path().join(format!("{folder:03}"));
            fs::create_dir(&at).unwrap();
            for file in 0..files {
                fs::write(at.join(format!("{file:04}.bin")), vec![7; 10 + file]).unwrap();
            }
        }
        place
    }

    #[test]
    fn a_part_has_as_many_samples_as_were_asked_for_and_they_can_be_read() {
        let place = tree_of(20, 30);
        let part = Part { samples: 100, time: Duration::from_secs(10) };
        let opened = open_part(&request(place.path(), Layout::Files), part).unwrap();
        assert_eq!(opened.catalog.len(), 100);
        let folders: std::collections::BTreeSet<String> =
            (0..100).map(|id| opened.catalog.key(id)[..3].to_owned()).collect();
        assert!(folders.len() >= 3, "of several directories: {folders:?}");
        for id in 0..100 {
            let mut bytes = vec![0; opened.catalog.size(id) as usize];
            opened.catalog.with_location(id, |at| opened.store.read(at, &mut bytes)).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn one_large_directory_is_taken_beyond_its_first_files_and_a_small_tree_whole() {
        let part = Part { samples: 1_000, time: Duration::from_secs(10) };
        let large = open_part(&request(tree_of(1, 400).path(), Layout::Files), part).unwrap();
        assert_eq!(large.catalog.len(), 400);
        let small = open_part(&request(tree_of(3, 2).path(), Layout::Files), part).unwrap();
        assert_eq!(small.catalog.len(), 6);
    }

    #[test]
    fn no_time_is_an_error_that_names_the_setting_and_so_is_a_table() {
        let place = tree_of(2, 2);
        let part = Part { samples: 10, time: Duration::ZERO };
        for layout in [Layout::Files, Layout::Manifest] {
            let error = open_part(&request(place.path(), layout), part).err().unwrap();
            assert!(error.message.contains("`seconds`"), "{error}");
        }
    }
}
