//! The pure part of Hotset: what is served, and what stays in the cache.
//!
//! No I/O, no threads, no clock and no randomness of its own: time and seeds come as arguments, so that the
//! simulator, the server and every test repeat to the sample.

pub mod benefit;
pub mod bits;
pub mod bytes;
pub mod cache;
pub mod cluster;
pub mod concurrency;
pub mod contents;
pub mod counters;
pub mod error;
pub mod id;
pub mod importance;
pub mod log;
pub mod packages;
pub mod policy;
pub mod positions;
mod remark;
pub mod rng;
pub mod run;
pub mod sampling;
pub mod saved;
pub mod schedule;
pub mod settings;
pub mod tally;
mod waits;

pub use bytes::Amount;
pub use error::{Error, Kind, Result};
pub use id::{Id, Index};
pub use remark::Remark;
pub use rng::Rng;
