//! The pure part of Hotset: what is served, and who stays in the cache.
//!
//! No I/O, no threads, no clock and no randomness of its own: time and seeds come as arguments, so that the
//! simulator, the server and every test repeat to the sample.

pub mod bytes;
pub mod counters;
pub mod error;
pub mod id;
pub mod policy;
pub mod rng;
pub mod sampling;
pub mod schedule;

pub use bytes::Amount;
pub use error::{Error, Kind, Result};
pub use id::{Id, Index};
pub use rng::Rng;
