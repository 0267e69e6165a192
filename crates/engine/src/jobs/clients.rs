//! The clients of a job, and since when there are none.

use std::collections::HashSet;
use std::time::{Duration, Instant};

/// The clients that have a job open.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    open: HashSet<u64>,
    /// When the last of them went.
    left: Option<Instant>,
    /// Whether one of them has said that the run is over, so that nothing is kept for its return.
    over: bool,
}

impl Clients {
    /// A client opens the job. True if it is the first after all others went.
    pub(crate) fn join(&mut self, client: u64) -> bool {
        self.open.insert(client);
        self.over = false;
        self.left.take().is_some()
    }

    /// A client has gone.
    pub(crate) fn leave(&mut self, client: u64, now: Instant) {
        if self.open.remove(&client) && self.open.is_empty() {
            self.left = Some(now);
        }
    }

    /// A client says that the run is over. True if it was the last.
    pub(crate) fn close(&mut self, client: u64) -> bool {
        self.open.remove(&client);
        self.over = true;
        self.open.is_empty()
    }

    /// Whether the last client has gone for good, or for longer than `linger`.
    pub(crate) fn are_gone(&self, linger: Duration, now: Instant) -> bool {
        self.left.is_some_and(|left| self.over || now.saturating_duration_since(left) >= linger)
    }
}
