//! Packages on storage: objects that hold many whole samples each and are read in one request (iCache III-C).
//!
//! Small samples cost a request each, and a request costs more than their bytes. So samples that the cache does
//! not keep are copied together, many to a package, and come back a package at a time. What a package is byte for
//! byte stands in `format.rs`: it names its dataset, and every sample in it has a checksum, so that bytes which
//! rotted, were cut off or belong to other data are told and never served. A [`Draft`] makes one, [`Package`] reads it.
//!
//! A job's packages are in a [`PackageStore`]. All that lie at one place, a directory or a prefix of an object store, are
//! a [`PackagePlace`], which is what `hotset pack` shows and tidies. Below the place:
//!
//! ```text
//! <16 hex digits of the dataset>/<16 hex digits of the owner>/<number>.hotset
//! ```
//!
//! A package is there whole or not at all. Nothing is removed that is not named so and does not begin as a package
//! does, and a place that the dataset's own listing would see is refused ([`overlaps`]).

mod backing;
mod bucket;
mod damage;
mod draft;
mod failure;
mod folder;
mod format;
mod guarded_path;
mod name;
mod overlap;
mod package_place;
mod package_store;
mod scan;

#[cfg(test)]
mod format_tests;
#[cfg(test)]
mod package_store_tests;

pub use damage::{Damage, Foreign, Part};
pub use draft::{Draft, Misfit};
pub use failure::WriteError;
pub use format::{Index, LONGEST, MOST_SAMPLES, Package, header_len};
pub use name::{Name, Stored};
pub use overlap::overlaps;
pub use package_place::{Owner, PackagePlace};
pub use package_store::{Dataset, PackageStore};
pub use scan::{Damaged, Found, Scan, Swept};
