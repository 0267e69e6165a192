//! The simulator: a real training's losses replayed over strategies, policies and cache sizes.
//!
//! It runs the very objects of [`hotset_core`], asked in the same order with the same arguments as the
//! server asks them, so that what is counted here is what a server counts, to the sample. Times are modelled:
//! a storage with latency, bandwidth and a limit of requests in flight, and a trainer that takes a fixed time
//! a batch.

mod arrivals;
pub mod doctor;
pub mod figure;
mod files;
pub mod grid;
pub mod nodes;
mod npy;
mod other_reads;
pub mod outcome;
pub mod replay;
pub mod report;
mod scenario;
pub mod sizes;
pub mod spec;
pub mod timeline;
mod trace;
pub mod trainings;

pub use trace::Trace;
