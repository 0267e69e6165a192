//! The messages of `proto/state.proto`: what a server writes down of a job.

// Generated: the comments in `state.proto` are the documentation.
#[allow(missing_docs, unreachable_pub, clippy::all)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/hotset.state.v1.rs"));
}

pub use generated::*;
