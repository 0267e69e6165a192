//! Bytes obeying core: the arena, leases, single-flight reads, prefetch along plans, jobs.
//!
//! An [`Engine`] holds jobs. A job's plan and policy (both from core) say what is served and who stays;
//! the engine reads ahead along the plan, lays samples into an arena of shared memory, and leases batches to
//! readers, which map that memory and never get bytes over a socket.

mod allocator;
mod arena;
mod beside;
mod config;
mod cramped;
mod decide;
mod engine;
mod epochs;
mod gather;
mod job;
mod jobs;
mod leases;
mod loader;
mod memory;
mod mind;
mod object;
mod order;
mod pace;
mod packer;
mod planning;
mod press;
mod reads;
mod ready;
mod remarks;
mod reports;
mod segment;
mod snapshot;
mod state;
mod stats;
mod waiter;

pub use config::{Config, JobGrant, JobRequest, OFF};
pub use engine::{Engine, SessionId};
pub use gather::Purpose;
pub use job::Cut;
pub use memory::{available_memory, machine_memory};
pub use pace::Span;
pub use press::{Packaging, Place};
pub use reports::Trained;
pub use snapshot::{ScheduleSnapshot, Snapshot};
pub use stats::{EngineStats, JobStats, PackageStats};
pub use waiter::{Entry, Grant, NewSegment};
