//! Reading on along plans: when an answer is out, and when memory has come free.
//!
//! A batch that was granted moves its job's window, and what enters the window is decided and asked for. Its reader need not
//! wait for that: it is done when the answer was sent, by the same thread. Reading ahead ends where the window is full, or
//! where others have the memory that it needs; in that case the ends of leases let it go on.

use std::sync::Arc;

use hotset_core::Result;

use crate::engine::{Engine, SessionId, Shared};
use crate::fetching;
use crate::planning::look_ahead;
use crate::state::State;
use crate::sync::MutexGuard;

/// A job whose window has moved on: it reads on when this is dropped, unless it has meanwhile.
#[must_use = "dropped at once it makes its reader wait"]
pub struct ReadOn {
    pub(crate) shared: Arc<Shared>,
    pub(crate) job: u64,
}

impl Drop for ReadOn {
    fn drop(&mut self) {
        let state = self.shared.lock();
        if state.jobs.get(self.job).is_some_and(|job| job.window.is_behind())
            && !state.is_stopping()
            && let Err(error) = read_ahead(&self.shared, state, self.job)
        {
            tracing::error!(%error, "cannot read ahead");
        }
    }
}

impl Engine {
    /// Has every job read on whose window has moved on, so that what is counted is what all answers so far bring about.
    pub(crate) fn read_on(&self) {
        let behind = self.shared.lock().jobs.behind();
        behind.into_iter().for_each(|job| drop(ReadOn { shared: Arc::clone(&self.shared), job }));
    }

    /// Ends leases of a session.
    pub fn release(&self, session: SessionId, leases: &[u64]) {
        let mut state = self.shared.lock();
        for &lease in leases {
            let objects = state.rooms.sessions_mut().release(session.0, lease);
            state.rooms.end_leases(objects);
        }
        self.after_leases(state);
    }

    /// Ends the leases whose ends were not told: for memory that nobody asks for.
    pub(crate) fn hear(&self) {
        let mut state = self.shared.lock();
        if state.rooms.hear() {
            self.after_leases(state);
        }
    }

    /// Leases have ended: what waits for memory goes on. Once nothing does, ends need not be told at once.
    fn after_leases<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        if state.rooms.sessions().any_waits_for_memory() {
            self.shared.room.notify_all();
        }
        for job in state.jobs.short() {
            loop {
                match state.read_ahead(job) {
                    Ok(true) => state = self.shared.give_way(state),
                    Ok(false) => break,
                    Err(error) => {
                        tracing::error!(%error, "cannot read ahead");
                        break;
                    }
                }
            }
        }
        if state.rooms.sessions().is_urgent() && !state.rooms.is_pressed() && state.jobs.short().is_empty() {
            state.rooms.sessions_mut().set_urgent(false);
        }
        fetching::wake(&self.shared, &mut state);
    }
}

/// Reads on along a job's plans, a slice a hold of the lock.
pub(crate) fn read_ahead<'a>(
    shared: &'a Arc<Shared>,
    mut state: MutexGuard<'a, State>,
    job: u64,
) -> Result<()> {
    loop {
        let more = state.read_ahead(job)?;
        fetching::wake(shared, &mut state);
        if !more {
            state.jobs.get_mut(job).into_iter().for_each(|job| job.window.set_behind(false));
            look_ahead(shared, &mut state, job);
            return Ok(());
        }
        state = shared.give_way(state);
    }
}
