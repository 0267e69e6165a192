//! One server process per host: the socket, sessions, catalogs, and the watch over its trainers.
//!
//! [`Server::bind`] takes the socket, [`Server::run`] accepts until it is told to stop or, for a private
//! server, until the last training process it watches is gone. Each connection is a thread of its own that
//! speaks the protocol and calls the engine; nothing else happens here.

mod answer;
mod catalogs;
mod leftovers;
mod metrics;
mod opening;
mod options;
pub mod record;
mod scrape;
mod server;
mod session;
mod settings;
mod socket;
pub mod state;
mod watch;

pub use options::Options;
pub use server::Server;
