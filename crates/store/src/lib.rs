//! Where samples come from: catalogs, and reads behind one small trait.
//!
//! [`open`] lists a place once and hands out two things: a [`Catalog`], which says what the samples are and
//! never changes, and a [`Store`], which reads one of them at a time and refuses bytes that are no longer
//! what was listed. A place is a local directory or a prefix of an object store. Listings are kept on disk and
//! checked cheaply, so that a large dataset opens at once the second time. Wrappers make a store slow (`throttle`) or unreliable (`fault`)
//! on purpose.

mod binary;
pub mod catalog;
mod contained;
pub mod digest;
mod directory;
mod fault;
mod files;
mod folder;
mod labels;
mod layout;
mod left_out;
mod listing;
mod manifest;
pub mod measure;
mod names;
mod neighbours;
mod open;
mod opened_place;
mod options;
pub mod package;
mod parallel;
mod place;
pub mod regular;
mod remote;
mod retries;
mod runtime;
mod shards;
mod store;
mod survey;
mod throttle;
mod unchanged;

pub use catalog::{Catalog, Label, LabelKind};
pub use contained::panic_is_contained;
pub use layout::Layout;
pub use open::{Opened, Request, forget, open, open_again};
pub use remote::is_credential;
pub use store::{Location, ObjectVersion, ReadError, Store, UNKNOWN};
pub use survey::{Part, open_part};
