//! Bytes obeying core: the arena, leases, single-flight reads, prefetch along plans, jobs.
//!
//! An [`Engine`] holds jobs. A job's plan and policy (both from core) say what is served and what stays;
//! the engine reads ahead along the plan, lays samples into an arena of shared memory, and leases batches to
//! readers, which map that memory and never get bytes over a socket.

mod benefits;
mod caches;
mod cluster;
mod config;
mod dataset;
mod engine;
mod fetching;
mod following;
mod giving;
mod jobs;
mod memory;
mod opening;
mod packing;
mod placing;
mod planner;
mod planning;
mod read_on;
mod ready;
mod reports;
mod residency;
mod rooms;
mod serving;
mod sessions;
mod snapshot;
mod state;
mod stats;
mod sync;

pub use cluster::{Cluster, PackageNews, Placed, Role, Unplaced};
pub use config::{Concurrency, Config, JobGrant, JobRequest, Logs, OFF};
pub use engine::{Engine, SessionId};
pub use fetching::ContentPeer;
pub use jobs::{Cut, GivenOrder, Span};
pub use memory::{available_memory, machine_memory};
pub use packing::{Packaging, Place};
pub use read_on::ReadOn;
pub use reports::Trained;
pub use serving::{Asked, Purpose};
pub use sessions::{Ends, Entry, Grant, NewSegment};
pub use snapshot::Snapshot;
pub use stats::{EngineStats, JobStats, PackageStats};
