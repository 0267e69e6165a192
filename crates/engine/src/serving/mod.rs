//! Where plans meet bytes: what a job decides, and what its readers ask for.
//!
//! Deciding and reading ahead is in [`decide`], what a request takes and waits for in [`gather`], the lease that answers it
//! in [`leases`], how long all that takes in [`probe`]; what other nodes are asked for in [`visit`], and what they ask in [`give`]. All of it is a job acting on the [rooms](crate::rooms): memory, reads, clients.

mod decide;
mod gather;
mod give;
mod leases;
mod probe;
mod visit;

pub(crate) use decide::{Budget, Buffers};
pub use gather::{Asked, Purpose};
pub(crate) use gather::{Batch, CaughtUp, Gathered, MOST_RANKS, Place, Slots};
pub(crate) use give::{Known, Taken as TakenForNode};
pub(crate) use probe::Staging;
