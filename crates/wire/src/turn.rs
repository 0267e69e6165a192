//! Turns on one connection: calls one at a time, leases that end at any time.
//!
//! A call takes the line out of the gate and puts it back, so the lock itself is held for an instant only, and a
//! lease can end in any thread, at any moment, even inside a call's own callbacks. What a lease cannot send at
//! once goes out when the line comes back.
//!
//! Everything here belongs to the process that made it. In a forked child the line is neither used nor closed:
//! its descriptor may be another file by then.

use std::mem::{self, ManuallyDrop};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, ThreadId};
use std::time::Instant;

use hotset_core::{Error, Result};

use crate::batch::Segments;
use crate::inherited::Place;
use crate::proto::{Released, Request};
use crate::socket::{Connection, SLICE, Tick};

/// A connection and what was learned over it.
#[derive(Debug)]
pub(crate) struct Line {
    // Before the connection, so that it is dropped first.
    place: Place,
    pub(crate) connection: Connection,
    pub(crate) segments: Segments,
}

impl Line {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { place: Place::new(connection.as_fd()), connection, segments: Segments::new() }
    }

    /// Lets go of it in a forked child: the maps end, the descriptor is not touched.
    fn disown(self) {
        mem::forget(self.place);
        mem::forget(self.connection);
    }
}

#[derive(Debug, Default)]
struct Gate {
    /// `None` during a call, and once closed.
    line: Option<Line>,
    closed: bool,
    /// Who has the line.
    caller: Option<ThreadId>,
    leases: usize,
    /// Leases that ended and that the server was not told of.
    released: Vec<u64>,
}

/// What a client, its calls and its leases have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    path: PathBuf,
    process: u32,
    // Never dropped by itself: in a child its contents may be half written.
    gate: Mutex<ManuallyDrop<Gate>>,
    came_back: Condvar,
}

impl Shared {
    pub(crate) fn new(path: &Path, connection: Connection) -> Arc<Self> {
        let gate = Gate { line: Some(Line::new(connection)), ..Gate::default() };
        Arc::new(Self {
            path: path.to_owned(),
            process: process::id(),
            gate: Mutex::new(ManuallyDrop::new(gate)),
            came_back: Condvar::new(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether no call can succeed any more.
    pub(crate) fn closed(&self) -> bool {
        self.check_process().is_err() || self.lock().closed
    }

    /// Ends calls, now or when the one under way notices; the socket stays until the last lease ends.
    pub(crate) fn close(&self) {
        if self.check_process().is_ok() {
            let mut gate = self.lock();
            gate.closed = true;
            gate.settle();
            drop(gate);
            self.came_back.notify_all();
        }
    }

    /// An error in a forked child.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.process == process::id() {
            return Ok(());
        }
        Err(Error::unavailable(format!(
            "this connection belongs to process `{}`; open another after a fork",
            self.process
        )))
    }

    /// An error once closed.
    pub(crate) fn check_open(&self) -> Result<()> {
        self.check_process()?;
        if self.lock().closed { Err(self.was_closed()) } else { Ok(()) }
    }

    /// Waits for the line and works with it. `work` gets a tick that also ends in a child and after a close.
    pub(crate) fn call<T>(
        &self,
        deadline: Option<Instant>,
        tick: Tick<'_>,
        work: impl FnOnce(&mut Line, Tick<'_>) -> std::result::Result<T, Fault>,
    ) -> Result<T> {
        let line = self.take_line(deadline, tick)?;
        // Broken until `work` says otherwise, so that a panic in it leaves no half-read answer behind.
        let mut turn = Turn { shared: self, line: None, broken: true };
        let line = turn.line.insert(line);
        let outcome = work(line, &mut || {
            tick()?;
            self.check_open()
        });
        turn.broken = outcome.as_ref().is_err_and(|fault| fault.broken);
        outcome.map_err(|fault| fault.error)
    }

    fn take_line(&self, deadline: Option<Instant>, tick: Tick<'_>) -> Result<Line> {
        self.check_process()?;
        let thread = thread::current().id();
        loop {
            let mut gate = self.lock();
            if gate.closed {
                return Err(self.was_closed());
            }
            if gate.caller == Some(thread) {
                return Err(Error::invalid("a call on this connection is already running in this thread"));
            }
            if let Some(mut line) = gate.line.take() {
                gate.caller = Some(thread);
                if !gate.released.is_empty() {
                    line.connection.queue(&gate.take_released())?;
                }
                return Ok(line);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                let path = self.path.display();
                return Err(Error::unavailable(format!(
                    "the connection to `{path}` stayed busy with another call"
                )));
            }
            let slice = left.unwrap_or(SLICE).min(SLICE);
            drop(self.came_back.wait_timeout(gate, slice).unwrap_or_else(PoisonError::into_inner));
            tick()?;
            self.check_process()?;
        }
    }

    /// Counts a lease.
    pub(crate) fn leased(&self) {
        self.lock().leases += 1;
    }

    /// Ends a lease, and tells the server now if that needs no waiting.
    pub(crate) fn release(&self, lease: u64) {
        if self.check_process().is_ok() {
            let mut gate = self.lock();
            gate.leases = gate.leases.saturating_sub(1);
            gate.released.push(lease);
            gate.settle();
        }
    }

    fn was_closed(&self) -> Error {
        Error::unavailable(format!("the connection to the server at `{}` is closed", self.path.display()))
    }

    fn lock(&self) -> MutexGuard<'_, ManuallyDrop<Gate>> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut gate = match self.gate.try_lock() {
            Ok(gate) => gate,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Only in a child: a thread of the parent was just inside.
            Err(TryLockError::WouldBlock) => return,
        };
        let mut gate = ManuallyDrop::into_inner(mem::take(&mut *gate));
        if self.process != process::id()
            && let Some(line) = gate.line.take()
        {
            line.disown();
        }
    }
}

impl Gate {
    /// Does what was waiting for the line, if it is here.
    fn settle(&mut self) {
        let Some(line) = &mut self.line else { return };
        if self.closed {
            line.segments.clear();
            if self.leases == 0 {
                self.line = None;
            }
        } else if !self.released.is_empty() {
            let message = Request::from(Released { leases: self.released.clone() });
            // An error here is found by the next call too, which can report it.
            if !matches!(line.connection.try_send(&message), Ok(false)) {
                self.released.clear();
            }
        }
    }

    fn take_released(&mut self) -> Request {
        Released { leases: mem::take(&mut self.released) }.into()
    }
}

/// A call that did not succeed.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) error: Error,
    /// Whether the two ends no longer agree on what comes next, so that there can be no other call.
    pub(crate) broken: bool,
}

impl Fault {
    /// A call after which there can be no other.
    pub(crate) fn broken(error: impl Into<Error>) -> Self {
        Self { error: error.into(), broken: true }
    }

    /// A call that leaves the connection in order.
    pub(crate) fn harmless(error: impl Into<Error>) -> Self {
        Self { error: error.into(), broken: false }
    }
}

/// Puts the line back, however the call ends.
struct Turn<'a> {
    shared: &'a Shared,
    line: Option<Line>,
    broken: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Some(line) = self.line.take() else { return };
        // A callback of the call may have forked.
        if self.shared.check_process().is_err() {
            return line.disown();
        }
        let mut gate = self.shared.lock();
        gate.caller = None;
        gate.closed |= self.broken;
        gate.line = Some(line);
        gate.settle();
        let closed = gate.closed;
        drop(gate);
        if closed {
            self.shared.came_back.notify_all();
        } else {
            self.shared.came_back.notify_one();
        }
    }
}
