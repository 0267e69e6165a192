//! The order of a run's reports and states.
//!
//! Under the journal's lock the engine takes a report, or is asked for a state, and what is to be written is queued.
//! So the log after a state has the reports that came after it, and no other, in the order in which the engine took
//! them. Files are written without the lock; a client that reports, or begins an epoch, goes on when that is written.

use hotset_core::{Error, Result};
use hotset_engine::Snapshot;
use hotset_wire::proto::Report;

use super::files::RunFiles;
use super::log;
use crate::lock::Lock;
use crate::write_queue::{Ticket, WriteQueue};

/// What a run writes down, in order.
pub(crate) struct Journal {
    order: Lock<Order>,
    writes: WriteQueue<RunFiles>,
}

/// Where the run is, as far as it was written down or is about to be.
#[derive(Default)]
struct Order {
    /// The epoch whose beginning was written down, and that write.
    epoch: Option<u64>,
    begun: Ticket,
    /// Whether something was reported since.
    reported: bool,
}

impl Journal {
    /// The journal of a run that writes its first state when an epoch begins.
    pub(crate) fn new(files: RunFiles) -> Self {
        Self { order: Lock::default(), writes: WriteQueue::new(files) }
    }

    /// The journal of a run that goes on in `epoch`, whose state is written.
    pub(crate) fn resumed(files: RunFiles, epoch: u64, reported: bool) -> Self {
        let order = Order { epoch: Some(epoch), begun: Ticket::default(), reported };
        Self { order: Lock::new(order), writes: WriteQueue::new(files) }
    }

    /// Writes down a report that the engine takes.
    pub(crate) fn report<T>(&self, report: &Report, take: impl FnOnce() -> Result<T>) -> Result<T> {
        let entry = log::entry(report).map_err(|error| Error::invalid(error.to_string()))?;
        let mut order = self.order.lock();
        let taken = take()?;
        order.reported = true;
        let ticket = self.writes.push(move |files| files.append(&entry));
        drop(order);
        self.writes.finish(ticket);
        Ok(taken)
    }

    /// Writes down the state of the job as an epoch begins, if it is the first rank that begins it.
    pub(crate) fn begin(&self, epoch: u64, lasting: bool, snapshot: impl FnOnce() -> Option<Snapshot>) {
        let mut order = self.order.lock();
        if order.epoch != Some(epoch) {
            let Some(snapshot) = snapshot() else { return };
            let first = order.epoch.is_none();
            let begun = self.writes.push(move |files| {
                files.write(&snapshot, lasting, epoch);
                if first {
                    // One earlier run stays: it may have been meant to go on.
                    files.drop_other_runs(lasting);
                }
            });
            *order = Order { epoch: Some(epoch), begun, reported: false };
        }
        let begun = order.begun;
        drop(order);
        self.writes.finish(begun);
    }

    /// What `take` gives at a moment when no report is between the engine and the log.
    pub(crate) fn between<T>(&self, take: impl FnOnce() -> T) -> T {
        let _order = self.order.lock();
        take()
    }

    /// The epoch that is under way, if nothing was reported of it.
    pub(crate) fn unreported(&self) -> Option<u64> {
        let order = self.order.lock();
        order.epoch.filter(|_| !order.reported)
    }

    /// Waits for what is being written; nothing is written from now on.
    pub(crate) fn close(&self) {
        drop(self.writes.close());
    }

    /// Closes it and drops all that was written.
    pub(crate) fn drop_files(&self) {
        if let Some(mut files) = self.writes.close() {
            files.drop_all();
        }
    }
}
