//! Calls over one connection, one at a time, and leases that end at any time.
//!
//! A call takes the link out of the shared state and puts it back, so the lock itself is held for an instant only, and a
//! lease can end in any thread, at any moment, even inside a call's own callbacks. What a lease cannot send at
//! once goes out when the link comes back. The end of one lease waits for the next call, where the server
//! [can see it](crate::ends) and does not ask for it at once.
//!
//! Everything here belongs to the process that made it. In a forked child the link is neither used nor closed:
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
use crate::ends::EndsPage;
use crate::inherited::InheritedEntry;
use crate::proto::{Released, Request};
use crate::socket::{Connection, SLICE, Tick};

/// A connection and what was learned over it.
#[derive(Debug)]
pub(crate) struct Link {
    // Before the connection, so that it is dropped first.
    inherited: InheritedEntry,
    pub(crate) connection: Connection,
    pub(crate) segments: Segments,
}

impl Link {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { inherited: InheritedEntry::new(connection.as_fd()), connection, segments: Segments::new() }
    }

    /// Lets go of it in a forked child: the maps end, the descriptor is not touched.
    fn disown(self) {
        mem::forget(self.inherited);
        mem::forget(self.connection);
    }
}

#[derive(Debug, Default)]
struct CallState {
    /// `None` during a call, and once closed.
    link: Option<Link>,
    closed: bool,
    /// The thread that has the link.
    caller: Option<ThreadId>,
    leases: usize,
    /// Leases that ended and that the server was not told of.
    released: Vec<u64>,
    /// Where the server can see one of them.
    ends: Option<EndsPage>,
}

/// What a client, its calls and its leases have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    path: PathBuf,
    process: u32,
    // Never dropped by itself: in a child its contents may be half written.
    state: Mutex<ManuallyDrop<CallState>>,
    came_back: Condvar,
}

impl Shared {
    pub(crate) fn new(path: &Path, connection: Connection) -> Arc<Self> {
        let state = CallState { link: Some(Link::new(connection)), ..CallState::default() };
        Arc::new(Self {
            path: path.to_owned(),
            process: process::id(),
            state: Mutex::new(ManuallyDrop::new(state)),
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
            let mut state = self.lock();
            state.closed = true;
            state.settle();
            drop(state);
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

    /// Waits for the link and works with it. `work` gets a tick that also ends in a child and after a close.
    pub(crate) fn call<T>(
        &self,
        deadline: Option<Instant>,
        tick: Tick<'_>,
        work: impl FnOnce(&mut Link, Tick<'_>) -> std::result::Result<T, Fault>,
    ) -> Result<T> {
        let link = self.take_line(deadline, tick)?;
        // Broken until `work` says otherwise, so that a panic in it leaves no half-read answer behind.
        let mut turn = Turn { shared: self, link: None, broken: true };
        let link = turn.link.insert(link);
        let outcome = work(link, &mut || {
            tick()?;
            self.check_open()
        });
        turn.broken = outcome.as_ref().is_err_and(|fault| fault.broken);
        outcome.map_err(|fault| fault.error)
    }

    fn take_line(&self, deadline: Option<Instant>, tick: Tick<'_>) -> Result<Link> {
        self.check_process()?;
        let thread = thread::current().id();
        loop {
            let mut state = self.lock();
            if state.closed {
                return Err(self.was_closed());
            }
            if state.caller == Some(thread) {
                return Err(Error::invalid("a call on this connection is already running in this thread"));
            }
            if let Some(mut link) = state.link.take() {
                state.caller = Some(thread);
                if !state.released.is_empty() {
                    link.connection.queue(&state.take_released())?;
                }
                return Ok(link);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                let path = self.path.display();
                return Err(Error::unavailable(format!(
                    "the connection to `{path}` stayed busy with another call"
                )));
            }
            let slice = left.unwrap_or(SLICE).min(SLICE);
            drop(self.came_back.wait_timeout(state, slice).unwrap_or_else(PoisonError::into_inner));
            tick()?;
            self.check_process()?;
        }
    }

    /// Ends of leases can be seen by the server from now on.
    pub(crate) fn set_ends(&self, ends: Option<EndsPage>) {
        self.lock().ends = ends;
    }

    /// Counts a lease.
    pub(crate) fn leased(&self) {
        self.lock().leases += 1;
    }

    /// Ends a lease, and tells the server now if that needs no waiting and cannot wait.
    pub(crate) fn release(&self, lease: u64) {
        if self.check_process().is_ok() {
            let mut state = self.lock();
            state.leases = state.leases.saturating_sub(1);
            state.released.push(lease);
            state.settle();
        }
    }

    fn was_closed(&self) -> Error {
        Error::unavailable(format!("the connection to the server at `{}` is closed", self.path.display()))
    }

    fn lock(&self) -> MutexGuard<'_, ManuallyDrop<CallState>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Only in a child: a thread of the parent was just inside.
            Err(TryLockError::WouldBlock) => return,
        };
        let mut state = ManuallyDrop::into_inner(mem::take(&mut *state));
        if self.process != process::id()
            && let Some(link) = state.link.take()
        {
            link.disown();
        }
    }
}

impl CallState {
    /// Does what was waiting for the link, if it is here.
    fn settle(&mut self) {
        let waits = self.can_wait();
        let Some(link) = &mut self.link else { return };
        if self.closed {
            link.segments.clear();
            if self.leases == 0 {
                self.link = None;
            }
        } else if !self.released.is_empty() && !waits {
            let message = Request::from(Released { leases: self.released.clone() });
            // An error here is found by the next call too, which can report it.
            if !matches!(link.connection.try_send(&message), Ok(false)) {
                self.released.clear();
            }
        }
    }

    /// Whether the server is told with the next call: of one lease, if it does not ask for it at once.
    fn can_wait(&self) -> bool {
        match (&self.ends, &self.released[..]) {
            (Some(ends), [lease]) => ends.note(*lease),
            _ => false,
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

/// Puts the link back, however the call ends.
struct Turn<'a> {
    shared: &'a Shared,
    link: Option<Link>,
    broken: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Some(link) = self.link.take() else { return };
        // A callback of the call may have forked.
        if self.shared.check_process().is_err() {
            return link.disown();
        }
        let mut state = self.shared.lock();
        state.caller = None;
        state.closed |= self.broken;
        state.link = Some(link);
        state.settle();
        let closed = state.closed;
        drop(state);
        if closed {
            self.shared.came_back.notify_all();
        } else {
            self.shared.came_back.notify_one();
        }
    }
}
