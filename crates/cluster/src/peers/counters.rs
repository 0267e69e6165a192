//! What happened between nodes, counted on each side.

use std::sync::atomic::{AtomicU64, Ordering};

use hotset_core::cluster::AnswerKind;

/// Counts of one side. The server counts what it answers, the client what came of what it asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// Calls: fetches and asks.
    pub requests: u64,
    /// Samples whose bytes were given.
    pub given: u64,
    /// Samples of which the owner said to read storage.
    pub yours: u64,
    /// Samples asked for under another view.
    pub stale: u64,
    /// Samples of a job, epoch or plan that the owner does not know.
    pub unknown: u64,
    /// Samples that did not come, those of `wrong` too.
    pub failed: u64,
    /// Samples that came with another length or checksum.
    pub wrong: u64,
    /// Connections and calls that were not let in: no TLS, no certificate, no token or the wrong one.
    pub refused: u64,
    /// Calls that were told to come back, or came to nothing because the other node is left alone.
    pub busy: u64,
    /// Bytes of samples that came.
    pub bytes_in: u64,
    /// Bytes of samples that went.
    pub bytes_out: u64,
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) requests: AtomicU64,
    given: AtomicU64,
    yours: AtomicU64,
    stale: AtomicU64,
    unknown: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) wrong: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) busy: AtomicU64,
    pub(super) bytes_in: AtomicU64,
    pub(super) bytes_out: AtomicU64,
}

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Counters {
    /// Counts one answer.
    pub(super) fn answer(&self, kind: AnswerKind) {
        let counter = match kind {
            AnswerKind::Given => &self.given,
            AnswerKind::Yours => &self.yours,
            AnswerKind::Stale => &self.stale,
            AnswerKind::Unknown => &self.unknown,
            AnswerKind::Failed => &self.failed,
        };
        add(counter, 1);
    }

    pub(super) fn read(&self) -> Counted {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counted {
            requests: read(&self.requests),
            given: read(&self.given),
            yours: read(&self.yours),
            stale: read(&self.stale),
            unknown: read(&self.unknown),
            failed: read(&self.failed),
            wrong: read(&self.wrong),
            refused: read(&self.refused),
            busy: read(&self.busy),
            bytes_in: read(&self.bytes_in),
            bytes_out: read(&self.bytes_out),
        }
    }
}
