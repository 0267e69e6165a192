//! Chunks on their way from the thread that fills them to the connection that sends them.
//!
//! The thread blocks and the connection must not, so one side waits by a condition and the other by a waker. A few chunks
//! wait at most: a thread whose asker does not read stops until it does, until the asker has gone, or until the deadline.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tonic::Status;

use super::chunks::Chunk;

/// The most chunks that wait.
const WAITING: usize = 2;

#[derive(Default)]
pub(super) struct Outbox {
    state: Mutex<State>,
    taken: Condvar,
}

#[derive(Default)]
struct State {
    chunks: VecDeque<Chunk>,
    /// How it ended, once nothing more comes.
    end: Option<Result<(), Status>>,
    /// Whether nobody takes anything any more.
    gone: bool,
    waker: Option<Waker>,
}

impl Outbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a chunk in, by then; whether more is wanted. After the deadline nothing is.
    pub(super) fn put(&self, chunk: Chunk, deadline: Instant) -> bool {
        let mut state = self.state();
        while !state.gone && state.chunks.len() >= WAITING {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // What nobody took in time is freed now, whether the asker is still there or not.
                state.gone = true;
                state.chunks.clear();
            } else {
                state = self.taken.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        if state.gone {
            return false;
        }
        state.chunks.push_back(chunk);
        wake(state);
        true
    }

    /// Nothing more comes.
    pub(super) fn end(&self, how: Result<(), Status>) {
        let mut state = self.state();
        state.end.get_or_insert(how);
        wake(state);
    }

    /// Whether nobody takes anything any more.
    pub(super) fn is_left(&self) -> bool {
        self.state().gone
    }

    /// Takes nothing any more.
    pub(super) fn leave(&self) {
        let mut state = self.state();
        state.gone = true;
        state.chunks.clear();
        self.taken.notify_all();
    }

    /// The next chunk, or how it ended.
    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<Result<Chunk, Result<(), Status>>> {
        let mut state = self.state();
        if let Some(chunk) = state.chunks.pop_front() {
            self.taken.notify_all();
            return Poll::Ready(Ok(chunk));
        }
        if state.gone {
            return Poll::Ready(Err(Err(Status::deadline_exceeded("the deadline has passed"))));
        }
        if let Some(end) = &state.end {
            return Poll::Ready(Err(end.clone()));
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Wakes the connection, without the lock.
fn wake(mut state: MutexGuard<'_, State>) {
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}
