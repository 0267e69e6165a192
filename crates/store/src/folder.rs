//! The listing of a local directory, in one streaming pass.
//!
//! `images` goes class by class, each sorted when it is complete, so that no more than a class is held beside
//! the catalog. The order is torchvision's: classes by name, then folders by their whole path (so `a-b` comes
//! before `a/b`), then files by name; always by code points, which is the order of UTF-8 bytes. `files`
//! walks the tree in the order of whole paths and holds the entries of one branch.
//!
//! Linked directories are followed. One that leads back to a directory it lies in is left out with a warning;
//! torchvision lists such a loop forty times over.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hotset_core::{Error, Result};

use crate::catalog::{self, Builder, Catalog};
use crate::directory::{Directory, File, Progress, Stamp};
use crate::layout::{Layout, Selection};
use crate::left_out::LeftOut;
use crate::listing::{ListedDirectory, Listing, Origin};
use crate::place::refuse;

/// Lists the samples below `root`. `tell` hears now and then how many there are so far.
pub(crate) fn list(
    root: &Path,
    selection: &Selection,
    tell: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Listing> {
    let mut progress = Progress { seen: 0, dangling: LeftOut::default(), tell };
    let mut walk = Walk { root, selection, ancestors: Vec::new(), directories: Vec::new() };
    let catalog = match selection.layout {
        Layout::Images => walk.images(&mut progress),
        Layout::Files | Layout::Shards | Layout::Manifest => walk.files(&mut progress),
    };
    if let Some(first) = progress.dangling.shown() {
        tracing::warn!(links = progress.dangling.count, first, "links that lead nowhere are left out");
    }
    let catalog = catalog?;
    (progress.tell)(catalog.len() as u64)?;
    let origin = Origin { directories: walk.directories, ..Origin::default() };
    Ok(Listing { catalog, origin })
}

/// A walk over the directories below a root.
struct Walk<'a> {
    root: &'a Path,
    selection: &'a Selection,
    /// The directories that the current one lies in, by device and inode.
    ancestors: Vec<(u64, u64)>,
    /// Every directory read so far.
    directories: Vec<ListedDirectory>,
}

/// A directory to be read, by its path below the root, and how many directories it lies in.
struct Pending {
    path: String,
    depth: usize,
}

/// What is left to do of a walk in the order of paths.
enum Step {
    File(catalog::Directory, File),
    Directory(Pending),
}

impl Step {
    /// What a step is sorted by, below a directory whose path takes `prefix` bytes: its name, and for a
    /// directory the `/` after it, which is where its files stand in the order of whole paths.
    fn order(&self, prefix: usize) -> impl Iterator<Item = u8> {
        let (name, slash) = match self {
            Self::File(_, file) => (file.name.as_str(), None),
            Self::Directory(next) => (&next.path[prefix..], Some(b'/')),
        };
        name.bytes().chain(slash)
    }
}

impl Walk<'_> {
    /// As torchvision's `ImageFolder` lists.
    fn images(&mut self, progress: &mut Progress<'_>) -> Result<Catalog> {
        let mut flat = 0u64;
        let top = Pending { path: String::new(), depth: 0 };
        let selection = self.selection;
        let mut count = |name: &str| {
            flat += u64::from(selection.takes(name));
            false
        };
        let mut classes = self.read(&top, &mut count, progress)?.map_or_else(Vec::new, |top| top.directories);
        classes.sort_unstable();
        if classes.is_empty() {
            return Err(self.no_classes(flat));
        }
        let mut builder = Builder::new(classes.clone());
        let mut empty = Vec::new();
        for (label, class) in (0u32..).zip(&classes) {
            let mut folders = self.class(class, progress)?;
            folders.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            if folders.is_empty() {
                empty.push(format!("`{class}`"));
            }
            for (path, files) in folders {
                let directory = builder.directory(&path)?;
                for file in files {
                    builder.push(directory, &file.name, file.size, file.version, Some(label))?;
                }
            }
        }
        if !empty.is_empty() {
            return Err(Error::invalid(format!(
                "no images in the class folders {} of `{}`; the extensions taken are {}",
                shortened(&empty),
                self.root.display(),
                selection.shown()
            )));
        }
        Ok(builder.finish())
    }

    /// The folders of a class that hold images, with their images sorted.
    fn class(&mut self, class: &str, progress: &mut Progress<'_>) -> Result<Vec<(String, Vec<File>)>> {
        let selection = self.selection;
        let mut folders = Vec::new();
        let mut pending = vec![Pending { path: class.to_owned(), depth: 1 }];
        while let Some(next) = pending.pop() {
            let Some(directory) = self.read(&next, &mut |name| selection.takes(name), progress)? else {
                continue;
            };
            pending.extend(directory.directories.iter().map(|name| next.child(name)));
            let mut files = directory.files;
            if !files.is_empty() {
                files.sort_unstable_by(|a, b| a.name.cmp(&b.name));
                folders.push((next.path, files));
            }
        }
        Ok(folders)
    }

    /// Every file, in the order of paths.
    fn files(&mut self, progress: &mut Progress<'_>) -> Result<Catalog> {
        let selection = self.selection;
        let mut builder = Builder::new(Vec::new());
        let mut steps = vec![Step::Directory(Pending { path: String::new(), depth: 0 })];
        while let Some(step) = steps.pop() {
            let next = match step {
                Step::File(directory, file) => {
                    builder.push(directory, &file.name, file.size, file.version, None)?;
                    continue;
                }
                Step::Directory(next) => next,
            };
            let Some(directory) = self.read(&next, &mut |name| selection.takes(name), progress)? else {
                continue;
            };
            let prefix = if next.path.is_empty() { 0 } else { next.path.len() + 1 };
            let mut inside: Vec<Step> =
                directory.directories.iter().map(|name| Step::Directory(next.child(name))).collect();
            if !directory.files.is_empty() {
                let folder = builder.directory(&next.path)?;
                inside.extend(directory.files.into_iter().map(|file| Step::File(folder, file)));
            }
            inside.sort_unstable_by(|a, b| b.order(prefix).cmp(a.order(prefix)));
            steps.append(&mut inside);
        }
        let catalog = builder.finish();
        if catalog.is_empty() {
            let taken = self.selection.shown();
            let which = if taken.is_empty() { String::new() } else { format!(" that end in {taken}") };
            return Err(Error::invalid(format!("no files{which} below `{}`", self.root.display())));
        }
        Ok(catalog)
    }

    /// Reads a directory unless it is one of those it lies in.
    fn read(
        &mut self,
        at: &Pending,
        wanted: &mut dyn FnMut(&str) -> bool,
        progress: &mut Progress<'_>,
    ) -> Result<Option<Directory>> {
        let path = if at.path.is_empty() { self.root.to_owned() } else { self.root.join(&at.path) };
        self.ancestors.truncate(at.depth);
        let metadata = match fs::metadata(&path) {
            // Deleted since its parent was read: as if it had been deleted before.
            Err(error) if at.depth > 0 && error.kind() == io::ErrorKind::NotFound => return Ok(None),
            looked => looked.map_err(|error| refuse(&path, &error))?,
        };
        let itself = (metadata.dev(), metadata.ino());
        if self.ancestors.contains(&itself) {
            tracing::warn!(path = %path.display(), "a link that leads back to a folder it lies in is left out");
            return Ok(None);
        }
        self.ancestors.push(itself);
        self.directories.push(ListedDirectory { path: at.path.clone(), stamp: Stamp::of(&metadata) });
        Directory::read(&path, self.selection, wanted, progress).map(Some)
    }

    fn no_classes(&self, flat: u64) -> Error {
        let root = self.root.display();
        Error::invalid(if flat > 0 {
            format!(
                "`{root}` holds `{flat}` images and no class folders; put the images of each class into a folder \
                 of its own, or use `hotset.Dataset` for a flat folder"
            )
        } else {
            format!(
                "`{root}` holds no class folders and no images; the extensions taken are {}",
                self.selection.shown()
            )
        })
    }
}

impl Pending {
    fn child(&self, name: &str) -> Self {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}/{name}", self.path) };
        Self { path, depth: self.depth + 1 }
    }
}

/// The first few of many, for a message.
pub(crate) fn shortened(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let more = names.len().saturating_sub(SHOWN);
    let list = names[..names.len() - more].join(", ");
    if more > 0 { format!("{list} and {more} more") } else { list }
}

#[cfg(test)]
mod tests;
