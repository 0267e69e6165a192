//! Leaves a node that fails alone for a while, so that it costs one deadline and not one for each batch.
//!
//! After a failure nobody asks it for a pause, which doubles with every further failure up to [`LONGEST`]. Then one call is
//! let through: if it succeeds all are, and if not the next pause begins.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The first pause, and the longest.
pub(super) const SHORTEST: Duration = Duration::from_millis(100);
pub(super) const LONGEST: Duration = Duration::from_secs(4);

#[derive(Default)]
pub(super) struct Breaker(Mutex<State>);

#[derive(Default)]
struct State {
    /// Until when nobody asks; `None`: nothing has failed since the last success.
    until: Option<Instant>,
    pause: Duration,
    /// Whether one call is under way to see how it is.
    trying: bool,
}

/// A call that was let through. Unless it tells how it went, it is as if it had not been.
pub(super) struct Turn<'a> {
    breaker: &'a Breaker,
    trial: bool,
}

impl Breaker {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a call through, or not.
    pub(super) fn enter(&self, now: Instant) -> Option<Turn<'_>> {
        let mut state = self.state();
        let trial = match state.until {
            None => false,
            Some(until) if now < until || state.trying => return None,
            Some(_) => true,
        };
        state.trying |= trial;
        Some(Turn { breaker: self, trial })
    }
}

impl Turn<'_> {
    /// It succeeded: all are let through.
    pub(super) fn succeeded(mut self) {
        self.trial = false;
        *self.breaker.state() = State::default();
    }

    /// It failed; whether that is the first failure since a success.
    pub(super) fn failed(mut self, now: Instant) -> bool {
        let trial = std::mem::take(&mut self.trial);
        let mut state = self.breaker.state();
        let first = state.until.is_none();
        // Several that fail together are one failure.
        if first || trial {
            state.pause = (state.pause * 2).clamp(SHORTEST, LONGEST);
            state.until = Some(now + state.pause);
        }
        if trial {
            state.trying = false;
        }
        first
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.trial {
            self.breaker.state().trying = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Breaker, LONGEST, SHORTEST};
    use std::time::{Duration, Instant};

    #[test]
    fn failures_open_it_for_pauses_that_double_and_one_call_is_let_through() {
        let (breaker, mut now) = (Breaker::default(), Instant::now());
        let turns: Vec<_> = (0..3).map(|_| breaker.enter(now).expect("closed")).collect();
        let firsts: Vec<bool> = turns.into_iter().map(|turn| turn.failed(now)).collect();
        assert_eq!(firsts, [true, false, false], "one failure, said once");
        let mut pause = SHORTEST;
        for _ in 0..8 {
            assert!(breaker.enter(now + pause - Duration::from_millis(1)).is_none());
            now += pause;
            let trial = breaker.enter(now).expect("one is let through");
            assert!(breaker.enter(now).is_none(), "and no other");
            assert!(!trial.failed(now));
            pause = (pause * 2).min(LONGEST);
        }
        assert_eq!(pause, LONGEST);
        now += pause;
        breaker.enter(now).expect("one is let through").succeeded();
        assert!(breaker.enter(now).is_some() && breaker.enter(now).is_some());
        assert!(breaker.enter(now).expect("closed").failed(now), "and it begins anew");
        assert!(breaker.enter(now + SHORTEST).is_some());
    }

    #[test]
    fn a_trial_that_says_nothing_makes_way_for_the_next() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        breaker.enter(now).expect("closed").failed(now);
        let later = now + SHORTEST;
        drop(breaker.enter(later).expect("one is let through"));
        assert!(breaker.enter(later).is_some());
    }
}
