//! Many hosts, one cache: who the nodes are, which of them owns a sample, and which rank best serves it.
//!
//! A sample is kept on at most one node, its *owner*. By placement `hash` owners follow from a [`View`] of the nodes alone
//! ([`Placement`]), so every node works them out for itself and none is asked; by `directory` whoever read a sample first
//! keeps it, and a plan brings the owners with it ([`Directory`]). Each node holds a job's whole plan and decides, in plan order,
//! the slots whose samples it owns ([`Ownership`]); ranks exchange samples so that most are their own node's ([`localize`]).
//! Who is where while one plan is carried out is the plan's [`Layout`], which travels with it; what nodes ask each other is
//! [`Wanted`]. All of it is pure: a server gets the nodes from etcd, the simulator makes them up.

mod directory;
mod kind;
mod layout;
mod locality;
mod logarithm;
mod ownership;
mod placement;
mod view;
mod wanted;

pub use self::directory::{Directory, Found, MOST_UNITS, check_units};
pub use self::kind::PlacementKind;
pub use self::layout::Layout;
pub use self::locality::{BLOCK, localize};
pub use self::ownership::Ownership;
pub use self::placement::{BINS, Placement};
pub use self::view::{Node, View};
pub use self::wanted::{Answer, AnswerKind, Given, Wanted};
