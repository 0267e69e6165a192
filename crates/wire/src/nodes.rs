//! The messages of `proto/nodes.proto`: what the nodes of a cluster ask each other about jobs.

// Generated: the comments in `nodes.proto` are the documentation.
#[allow(missing_docs, unreachable_pub, clippy::all)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/hotset.nodes.rs"));
}

pub use generated::*;
