//! This server as a node of a cluster: several servers that are one cache, and train jobs together.
//!
//! Trainers talk to the server of their own host. A job that has plans has a *home*, one node, which etcd names
//! ([`homes`]); all that decides what is trained happens there. Other nodes *follow* it ([`followed`]): they have the job open
//! too, decide the slots whose samples they own, and hand their clients' requests on to the home ([`routing`]), where such a
//! client is a guest ([`guests`]). The home knows who takes part, where each rank is and what has happened ([`home`]), and
//! lays each plan over the nodes before it is told ([`settling`]). Batches never go to another node: what they need of others'
//! samples the engine asks for by slots.
//!
//! Nodes ask each other ([`asking`]) and answer ([`door`], [`answers`]); nothing is pushed. No lock is held while another node or
//! etcd is asked, every wait has an end, and what cannot be had is an error that names the node, or etcd.

mod answers;
mod asking;
mod copies;
mod copying;
mod door;
mod followed;
mod guests;
mod home;
mod homes;
mod keeping;
mod node;
mod options;
mod routing;
mod settling;

#[cfg(test)]
mod etcd_tests;
#[cfg(test)]
mod node_tests;

pub use homes::homes;
pub(crate) use node::Node;
pub use options::{ClusterOptions, PeerToken};
pub(crate) use routing::{AtHome, Routed};
