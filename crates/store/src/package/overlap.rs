//! Whether packages would lie where the dataset is listed.
//!
//! A listing that sees packages takes them for samples or classes. So a place below the dataset's is refused, and so
//! is a dataset that lies where packages of this place would be written.

use std::path::{Component, Path, PathBuf};

use super::name::is_directory;
use crate::place::path;
use crate::remote::Address;

/// A place as its parts, with links followed as far as there is something.
struct Parts {
    /// The store; empty for directories.
    base: String,
    parts: Vec<String>,
}

impl Parts {
    fn of(place: &str) -> Option<Self> {
        if let Some(address) = Address::parse(place) {
            let address = address.ok()?;
            // Several schemes name one kind of store.
            let (_, host) = address.base.split_once("://")?;
            let parts = address.prefix.parts().map(|part| part.as_ref().to_owned()).collect();
            return Some(Self { base: format!("{:?} {host}", address.kind), parts });
        }
        let path = settled(&path(place).ok()?);
        let parts = path.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
        Some(Self { base: String::new(), parts: parts.collect() })
    }
}

/// Whether a listing of `dataset_place` would see packages written to `packages_place`. Neither need exist.
pub fn overlaps(dataset_place: &str, packages_place: &str) -> bool {
    let (Some(dataset), Some(packages)) = (Parts::of(dataset_place), Parts::of(packages_place)) else {
        return false;
    };
    if dataset.base != packages.base {
        return false;
    }
    let below = dataset.parts.strip_prefix(packages.parts.as_slice());
    packages.parts.starts_with(&dataset.parts)
        || below.is_some_and(|below| below.first().is_some_and(|part| is_directory(part)))
}

/// The absolute path, with links followed and `..` taken as far as there is something.
pub(super) fn settled(path: &Path) -> PathBuf {
    let mut settled = PathBuf::new();
    for component in std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).components() {
        match component {
            Component::ParentDir => {
                settled.pop();
            }
            other => {
                settled.push(other);
                if let Ok(canonical) = settled.canonicalize() {
                    settled = canonical;
                }
            }
        }
    }
    settled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_below_the_dataset_is_inside_and_its_neighbour_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let at = |below: &str| root.join(below).display().to_string();
        std::fs::create_dir_all(root.join("train/cats")).unwrap();
        std::os::unix::fs::symlink(root.join("train"), root.join("link")).unwrap();
        for within in
            ["train", "train/", "train/packages", "train/cats/x/y", "link/packages", "new/../train/packages"]
        {
            assert!(overlaps(&at("train"), &at(within)), "{within}");
        }
        assert!(overlaps(&at("train"), &format!("file://{}", at("train/packages"))));
        for beside in ["training", "packages", "", "train/../packages", "link/../packages"] {
            assert!(!overlaps(&at("train"), &at(beside)), "{beside}");
        }
    }

    #[test]
    fn a_dataset_below_the_place_is_refused_only_where_packages_go() {
        assert!(!overlaps("/nowhere/data/train", "/nowhere/data"));
        assert!(overlaps("/nowhere/data/0123456789abcdef", "/nowhere/data"));
        assert!(overlaps("/nowhere/data/0123456789abcdef/fedcba9876543210", "/nowhere/data"));
    }

    #[test]
    fn prefixes_are_whole_parts_of_one_bucket() {
        assert!(overlaps("s3://bucket/train", "s3a://bucket/train/packages/"));
        assert!(overlaps("s3://bucket", "s3://bucket/packages"));
        assert!(!overlaps("s3://bucket/train", "s3://bucket/training"));
        assert!(!overlaps("s3://bucket/train", "s3://bucket/packages"));
        assert!(!overlaps("s3://bucket/train-{000..099}.tar", "s3://bucket/packages"));
        assert!(!overlaps("s3://bucket/train", "s3://other/train/packages"));
        assert!(!overlaps("s3://bucket/train", "gs://bucket/train/packages"));
        assert!(!overlaps("s3://bucket", "/bucket/packages"));
    }
}
