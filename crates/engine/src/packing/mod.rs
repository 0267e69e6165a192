//! Making packages while an epoch goes by.
//!
//! What is packed was chosen with the plan. Samples that the plan serves are taken as they pass: a batch that is granted
//! leaves a lease on them in the job's [`PackingQueue`], and the [packer](packer), a thread of the job's own, copies them
//! into drafts. What does not pass is taken from memory, or read behind the training's own reads.

mod open;
mod packer;
mod place;
mod queue;

pub(crate) use open::NewPackages;
pub(crate) use packer::begin;
pub use place::{Packaging, Place};
pub(crate) use queue::PackingQueue;
