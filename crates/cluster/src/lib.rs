//! A cluster of servers that are one cache: who they are, and how they speak with each other.
//!
//! etcd coordinates. Every node puts a key under a lease that it renews; all nodes watch these keys, and what they see
//! is the cluster's [`View`](hotset_core::cluster::View) ([`membership`]). A node whose lease may have run out, by its own
//! clock, knows that it is no member any more before the others do. Which node owns a sample follows from the view
//! alone ([`hotset_core::cluster`]), so no sample needs a key of its own. Nodes ask each other for samples ([`peers`]).
//!
//! etcd is spoken to over gRPC through the few of its messages that are used ([`etcd`]).

pub mod etcd;
pub mod membership;
pub mod peers;

pub use etcd::{Address, Etcd};
pub use membership::{Member, Membership};
pub use peers::{PeerServer, PeerSource, Peers};
