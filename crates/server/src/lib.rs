//! One server process per host: the socket, the service behind it, and the watch over its trainers.
//!
//! [`Server::bind`] takes the socket, [`Server::run`] accepts until it is told to stop or, for a private server, until
//! the last training process it watches is gone. Each connection is a thread of its own (`session`) that asks the
//! `service`, which knows no socket: it opens jobs (`opening`), knows which clients are in them (`runs`), writes down what a
//! restart needs (`state`) and what came of jobs (`history`), and calls the engine for the rest. A server may ask a shared cache before storage (`sharing`), or be
//! one (`tenants`).

mod access;
mod answer;
pub mod cache_log;
mod catalogs;
mod cluster;
pub mod history;
mod leftovers;
mod lock;
mod metrics;
mod opening;
mod options;
mod packaging;
pub mod record;
mod runs;
mod scrape;
mod served;
mod server;
mod service;
mod session;
mod settings;
mod sharing;
mod socket;
pub mod state;
mod tenants;
mod watch;
mod write_queue;

/// This version of Hotset.
const VERSION: &str = env!("CARGO_PKG_VERSION");

pub use access::{Audience, Group, Quota, user_number};
pub use cluster::{ClusterOptions, PeerToken, homes};
pub use options::Options;
pub use scrape::loopback;
pub use server::Server;
pub use sharing::SharedAt;
