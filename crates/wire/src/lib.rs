//! What goes over the Unix socket: messages, frames, descriptors, and the client that maps the arena.
//!
//! [`proto`] holds the messages of `proto/hotset.proto`; [`frame`] puts them between lengths; [`socket`] sends
//! and receives frames with their descriptors, on both sides; [`client`] is what a trainer calls, and
//! [`mapping`], [`batch`] and [`plan`] are the memory it gets to see. [`nodes`] holds what servers of a cluster ask each other. [`contents`] is what a server asks a shared cache. `inherited` closes sockets after a fork,
//! and `forked` gives the child copies of what its parent leases.
//!
//! Nothing here starts a thread, so a process that uses it can fork at any time.

pub mod batch;
mod calls;
pub mod client;
pub mod contents;
pub mod ends;
mod forked;
pub mod frame;
mod inherited;
pub mod lease;
pub mod mapping;
pub mod nodes;
pub mod peer;
pub mod plan;
pub mod proto;
pub mod socket;
pub mod state;

pub use batch::{Batch, Labels};
pub use client::Client;
pub use ends::EndsPage;
pub use forked::{after_fork_in_child, after_fork_in_parent, before_fork};
pub use lease::Lease;
pub use mapping::Mapping;
pub use peer::Peer;
pub use plan::Plan;
pub use socket::{Connection, Tick};

/// The protocol spoken here; two sides that name different ones do not talk.
pub const PROTOCOL: u32 = 7;
