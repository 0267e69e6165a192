//! Code of others that may panic on input it does not like.
//!
//! A panic of ours ends the server, since bookkeeping that broke off half-way must not serve anything. A reader of a
//! file format and the client of a store have no bookkeeping of ours: their panic is caught, and the file or the answer
//! refused.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

thread_local! {
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread, at this moment, is caught and harmless. For panic hooks.
pub fn panic_is_contained() -> bool {
    CONTAINED.get()
}

/// What `work` returns; `None` if it panicked. `work` touches nothing that outlives it.
pub(crate) fn contained<T>(work: impl FnOnce() -> T) -> Option<T> {
    let before = CONTAINED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    CONTAINED.set(before);
    done.ok()
}

/// The same for what is waited for: each step of it is contained, and nothing else that its thread does meanwhile.
pub(crate) struct Contained<F>(pub(crate) F);

impl<F: Future + Unpin> Future for Contained<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match contained(|| Pin::new(&mut self.0).poll(context)) {
            Some(step) => step.map(Some),
            None => Poll::Ready(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_inside_is_caught_and_one_outside_is_not_contained() {
        assert_eq!(contained(panic_is_contained), Some(true));
        assert_eq!(contained(|| -> u8 { panic!("as meant") }), None);
        assert!(!panic_is_contained());
    }
}
