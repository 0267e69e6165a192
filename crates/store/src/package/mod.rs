//! Packages on storage: objects that hold many whole samples each and are read in one request (iCache III-C).
//!
//! Small samples cost a request each, and a request costs more than their bytes. So samples that the cache does
//! not keep are copied together, many to a package, and come back a package at a time. What a package is byte for
//! byte stands in `format.rs`: it names its dataset, and every sample in it has a checksum, so that bytes which
//! rotted, were cut off or belong to other data are told and never served. A [`Draft`] makes one, [`Package`] reads it.
//!
//! A job's packages stand on a [`Shelf`]. All shelves of one place, which is a directory or a prefix of an object
//! store, are a [`Room`], which is what `hotset pack` shows and tidies. Below the place:
//!
//! ```text
//! <16 hex digits of the dataset>/<16 hex digits of the owner>/<number>.hotset
//! ```
//!
//! A package is there whole or not at all. Nothing is removed that is not named so and does not begin as a package
//! does, and a place that the dataset's own listing would see is refused ([`inside`]).

mod backing;
mod bucket;
mod damage;
mod draft;
mod failure;
mod folder;
mod format;
mod inside;
mod name;
mod room;
mod scan;
mod shelf;
mod way;

#[cfg(test)]
mod format_tests;
#[cfg(test)]
mod shelf_tests;

pub use damage::{Damage, Foreign, Part};
pub use draft::{Draft, Misfit};
pub use failure::WriteError;
pub use format::{Index, LONGEST, MOST_SAMPLES, Package, header_len};
pub use inside::inside;
pub use name::{Name, Stored};
pub use room::{Owner, Room};
pub use scan::{Damaged, Found, Scan, Swept};
pub use shelf::{Dataset, Shelf};
