//! Samples from other nodes.
//!
//! Every node of a cluster holds a job's whole plan. One whose reader needs samples that another node owns asks it for
//! slots of the plan, many at a time and ahead of need ([`Peers`]). The owner decides in its own cache ([`PeerSource`])
//! and answers each slot, in the order asked: here are the bytes, or read storage yourself. Whatever goes wrong here
//! ends as "read storage": a node that is dead, slow or wrong costs time alone, and little of that.
//!
//! Answers stream in chunks of about [`CHUNK`]. The owner copies a sample once, into its chunk, and the asker once, out of
//! its chunk into the place that was made for it; a checksum goes with each sample. What is under way is bounded on both
//! sides: the owner by requests at a time and by bytes that were not sent yet, the asker by the windows of HTTP/2.
//!
//! A node listens beyond loopback with TLS and a token alone ([`access`]).

mod accepted;
pub mod access;
mod answering;
mod body;
mod breaker;
mod budget;
mod chunks;
mod client;
mod counters;
mod filling;
mod messages;
mod outbox;
mod peer;
mod serve;

pub use self::access::ServerTls;
pub use self::client::Peers;
pub use self::counters::Counted;
pub use self::serve::{PeerServer, PeerSource};
pub use hotset_core::cluster::{Answer, AnswerKind, Given, Wanted};

use std::time::Duration;

use hotset_core::{Error, Result};
use tokio::runtime::{Builder, Runtime};

/// Bytes of samples in a chunk. A larger sample has a chunk of its own.
pub const CHUNK: usize = 1 << 20;
/// The most answers in a chunk, where few have bytes.
pub(crate) const CHUNK_ANSWERS: usize = 4096;
/// What an answer takes in a message, at most.
pub(crate) const ANSWER: usize = 24;
/// The most slots that are asked for at a time.
pub const MOST_SLOTS: usize = 1 << 16;
/// The largest sample that is sent. A length has 32 bits, and a chunk must fit into memory twice.
pub const LARGEST_SAMPLE: usize = 1 << 30;
/// The largest request of the local protocol, and its reply: the same as on the local socket.
pub const LARGEST_ASK: usize = 64 << 20;
/// The most fetches that one node makes at another at a time; further ones wait.
pub const REQUESTS_OF_A_PEER: usize = 32;
/// The most questions that one node has at another at a time. Some wait for what happens there, so they have seats of
/// their own.
pub const ASKS_OF_A_PEER: usize = 256;
/// How long a connection is silent before it is looked after, and how long the other side then has to answer.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// A runtime for connections, with room for so many threads that block.
pub(crate) fn runtime(name: &str, blocking: usize) -> Result<Runtime> {
    // TLS of one connection is the work of one thread.
    let workers = std::thread::available_parallelism().map_or(1, |count| count.get().min(4));
    Builder::new_multi_thread()
        .worker_threads(workers)
        .max_blocking_threads(blocking)
        .thread_name(name)
        .enable_all()
        .build()
        .map_err(|error| Error::unavailable(format!("cannot start the threads `{name}`: {error}")))
}
