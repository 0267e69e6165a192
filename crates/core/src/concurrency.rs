//! How many requests a store is asked at a time, found out while it is read from (`--concurrency auto`).
//!
//! More requests at a time are of use up to the store's own limit, of requests or of bytes. Beyond it they wait there, some
//! stores get slower, and some ask for fewer. Only the rate at which reads end tells where that is, so the limit is changed
//! step by step, and a step is kept if the rate says so:
//!
//! 1. It doubles as long as that brings a tenth more, and is then halved as long as that costs next to nothing.
//! 2. Then it tries a quarter more and a fifth less in turn. More is kept where the rate rises by a thirtieth or so; less where
//!    next to nothing of the best rate is lost. After a step that was not kept the next one is farther off.
//! 3. A store that asks for fewer requests gets a third fewer at once, and is left alone for a while.
//!
//! A rate is taken over a *window* of six times as many reads as there are at a time, as many as that while it doubles or is halved, after those that were
//! begun under the limit before have ended. A window in which fewer reads were asked for than the limit allows says nothing, and begins again.
//!
//! Related: the additive increase of TCP would take thousands of reads to arrive, and what delays TCP's packets, a queue on the way, is
//! what a store with many disks looks like at its best; so neither loss nor delay is looked at, but the rate itself.

use std::time::Duration;

/// Where it begins.
const BEGIN: usize = 32;
/// By how much the rate must rise when the limit doubles.
const DOUBLING: f64 = 1.1;
/// By how much it must rise for a quarter more.
const GAIN: f64 = 1.03;
/// How much of the best rate must be left with a fifth less.
const LOSS: f64 = 0.98;
/// Windows between steps: at first, at most, and after the store has asked for fewer requests.
const PAUSE: u32 = 2;
const LONGEST_PAUSE: u32 = 32;
const LEFT_ALONE: u32 = 16;
/// Reads of a window, times the limit: those that were begun together end together, and one burst more or less must not tell.
const STEADY: usize = 6;
/// The fewest reads of a window.
const LEAST: usize = 16;
/// What a request costs a store beside its bytes, as bytes: about what a connection carries while it waits for the first.
const REQUEST: u64 = 64 << 10;

/// What the limit is being changed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Doubling,
    Halving,
    /// It stays for so many windows.
    Stays(u32),
    More,
    Less,
}

/// Reads that ended under one limit.
#[derive(Debug, Default)]
struct Window {
    /// Those that are passed over, because they began before.
    passed_over: usize,
    reads: usize,
    work: u64,
    began: Duration,
}

/// The limit of one store.
#[derive(Debug)]
pub struct Controller {
    most: usize,
    limit: usize,
    step: Step,
    /// The limit that was kept last, and its rate.
    kept: (usize, Option<f64>),
    /// The best rate since the limit was last raised.
    best: f64,
    pause: u32,
    /// Whether the next step is one to less.
    less: bool,
    window: Window,
    /// Reads that must end before the store is heard again that asks for fewer: they were begun before it got fewer.
    unheard: usize,
}

impl Controller {
    /// One that never goes beyond `most`.
    pub fn new(most: usize) -> Self {
        let limit = BEGIN.min(most.max(1));
        Self {
            most: most.max(1),
            limit,
            step: Step::Doubling,
            kept: (limit, None),
            best: 0.0,
            pause: PAUSE,
            less: false,
            window: Window { passed_over: limit, ..Window::default() },
            unheard: 0,
        }
    }

    /// How many requests may be under way.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// A read of so many bytes has ended `now`, by any clock that goes forward. `under_way` counts it.
    pub fn ended(&mut self, now: Duration, under_way: usize, bytes: u64) {
        self.unheard = self.unheard.saturating_sub(1);
        if under_way < self.limit {
            self.begin_window(now, self.limit);
            return;
        }
        let window = &mut self.window;
        if window.passed_over > 0 {
            window.passed_over -= 1;
            window.began = now;
            return;
        }
        window.reads += 1;
        window.work += bytes + REQUEST;
        let quick = matches!(self.step, Step::Doubling | Step::Halving);
        let enough = if quick { self.limit } else { STEADY * self.limit };
        if window.reads >= enough.max(LEAST) {
            let took = now.saturating_sub(window.began).as_secs_f64();
            let rate = window.work as f64 / took.max(1e-9);
            self.decide(rate);
            self.begin_window(now, under_way);
        }
    }

    /// The store asks for fewer requests. What it says of requests that were begun before it got fewer is not heard.
    pub fn refused(&mut self, now: Duration) {
        if self.unheard > 0 {
            return;
        }
        let before = self.limit;
        self.unheard = before;
        self.limit = (before * 2 / 3).max(1);
        (self.kept, self.best) = ((self.limit, None), 0.0);
        (self.step, self.pause, self.less) = (Step::Stays(LEFT_ALONE), PAUSE, false);
        self.begin_window(now, before);
    }

    /// Reads that end from now on are of this window, but for those that are `under_way`.
    fn begin_window(&mut self, now: Duration, under_way: usize) {
        self.window = Window { passed_over: under_way, began: now, ..Window::default() };
    }

    /// What becomes of the limit that had this rate.
    fn decide(&mut self, rate: f64) {
        let (kept, before) = (self.kept.0, self.kept.1.unwrap_or(0.0));
        match self.step {
            Step::Doubling if rate >= before * DOUBLING => {
                self.keep(rate);
                self.limit = (self.limit * 2).min(self.most);
                if self.limit == self.kept.0 {
                    self.step = Step::Stays(self.pause);
                }
            }
            Step::Doubling => {
                self.limit = (kept / 2).max(1);
                self.step = Step::Halving;
            }
            Step::Halving if rate >= self.best * LOSS && self.limit > 1 => {
                self.keep(rate);
                self.limit /= 2;
            }
            Step::Halving => self.go_back(kept),
            Step::Stays(windows) => {
                self.kept.1 = Some(rate);
                self.best = self.best.max(rate);
                self.step = if windows > 0 { Step::Stays(windows - 1) } else { self.next_step() };
            }
            Step::More if rate >= before * GAIN => {
                self.keep(rate);
                (self.best, self.pause) = (rate, PAUSE);
                self.step = self.next_step();
            }
            Step::Less if rate >= self.best.max(before) * LOSS => {
                self.keep(rate);
                self.pause = PAUSE;
                self.step = self.next_step();
            }
            Step::More | Step::Less => {
                self.less = !self.less;
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                // The store may be slower than it was.
                self.best = before;
                self.go_back(kept);
            }
        }
    }

    fn keep(&mut self, rate: f64) {
        self.kept = (self.limit, Some(rate));
        self.best = self.best.max(rate);
    }

    fn go_back(&mut self, kept: usize) {
        (self.limit, self.step) = (kept, Step::Stays(self.pause));
    }

    /// A quarter more, or a fifth less, whichever it is now.
    fn next_step(&mut self) -> Step {
        let from = self.kept.0;
        let (step, to) = if self.less {
            (Step::Less, (from * 4 / 5).max(1))
        } else {
            (Step::More, (from + (from / 4).max(1)).min(self.most))
        };
        if to == from {
            self.less = !self.less;
            return Step::Stays(self.pause);
        }
        self.limit = to;
        step
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::*;
    use crate::Rng;

    const MS: u64 = 1_000;

    /// A store that works on so many requests at a time, each of which takes so many microseconds, more if it is overloaded.
    #[derive(Clone, Copy)]
    struct Store {
        at_a_time: usize,
        takes: u64,
        /// Whether every request takes longer the more there are beyond what it works on.
        slows: bool,
        /// Requests beyond so many are refused.
        refuses: usize,
    }

    const PLAIN: Store = Store { at_a_time: 32, takes: 20 * MS, slows: false, refuses: usize::MAX };

    /// Reads so many samples, as many at a time as `limit` says; the microseconds it takes, and what was refused.
    fn read(
        store: Store,
        reads: usize,
        mut ended: impl FnMut(u64, usize, bool) -> usize,
        first: usize,
    ) -> (u64, usize) {
        let (mut now, mut under_way, mut done, mut refused, mut accepted) =
            (0u64, BinaryHeap::new(), 0, 0, 0);
        let mut free: BinaryHeap<Reverse<u64>> = (0..store.at_a_time).map(|_| Reverse(0)).collect();
        let (mut limit, mut rng) = (first, Rng::new(1, 0, "store"));
        while done < reads {
            while under_way.len() < limit {
                if accepted >= store.refuses {
                    under_way.push((Reverse(now + MS), true));
                    continue;
                }
                accepted += 1;
                let over = (accepted as f64 / store.at_a_time as f64).max(1.0);
                let slower = if store.slows { over.powf(1.5) } else { 1.0 };
                let jitter = 0.8 + 0.4 * rng.unit();
                let Reverse(begins) = free.pop().unwrap();
                let ends = begins.max(now) + (store.takes as f64 * slower * jitter) as u64;
                free.push(Reverse(ends));
                under_way.push((Reverse(ends), false));
            }
            let (Reverse(at), is_refused) = under_way.pop().unwrap();
            now = now.max(at);
            refused += usize::from(is_refused);
            done += usize::from(!is_refused);
            accepted -= usize::from(!is_refused);
            limit = ended(now, under_way.len() + 1, is_refused);
        }
        (now, refused)
    }

    fn fixed(store: Store, reads: usize, limit: usize) -> u64 {
        read(store, reads, |_, _, _| limit, limit).0
    }

    fn controlled(store: Store, reads: usize) -> (u64, usize, Controller) {
        let mut controller = Controller::new(512);
        let first = controller.limit();
        let (took, refused) = read(
            store,
            reads,
            |now, under_way, is_refused| {
                let now = Duration::from_micros(now + 1);
                if is_refused {
                    controller.refused(now)
                } else {
                    controller.ended(now, under_way, 1_500)
                }
                controller.limit()
            },
            first,
        );
        (took, refused, controller)
    }

    #[test]
    fn it_is_as_fast_as_the_best_fixed_limit_whatever_the_store_works_on_at_a_time() {
        for at_a_time in [1, 8, 32, 100, 256] {
            let (store, reads) = (Store { at_a_time, ..PLAIN }, (at_a_time * 800).max(100_000));
            let best = [1, 8, 16, 32, 64, 128, 256, 512].map(|limit| fixed(store, reads, limit));
            let (took, _, controller) = controlled(store, reads);
            let share = *best.iter().min().unwrap() as f64 / took as f64;
            assert!(share >= 0.95, "{at_a_time}: {share}, {controller:?}");
            assert!(controller.limit() >= at_a_time, "{controller:?}");
        }
    }

    #[test]
    fn it_finds_the_best_of_a_store_that_slows_down_under_overload() {
        for at_a_time in [8, 32, 256] {
            let (store, reads) = (Store { at_a_time, slows: true, ..PLAIN }, (at_a_time * 800).max(100_000));
            let best = (0..=9).map(|bits| fixed(store, reads, 1 << bits)).min().unwrap();
            let (took, _, controller) = controlled(store, reads);
            let share = best as f64 / took as f64;
            assert!(share >= 0.95, "{at_a_time}: {share}, {controller:?}");
            assert!(controller.limit() < at_a_time * 2, "{controller:?}");
        }
    }

    #[test]
    fn a_store_that_asks_for_fewer_requests_gets_fewer() {
        let store = Store { at_a_time: 512, refuses: 60, ..PLAIN };
        let (_, refused, controller) = controlled(store, 40_000);
        assert!(controller.limit() <= 60 * 5 / 4, "{controller:?}");
        assert!(refused < 4_000, "{refused} refused of 40,000");
    }

    #[test]
    fn a_trainer_that_asks_for_less_than_it_might_says_nothing_of_the_store() {
        let mut controller = Controller::new(512);
        for at in 0..10_000u64 {
            controller.ended(Duration::from_micros(at * 500), 5, 1_500);
        }
        assert_eq!(controller.limit(), BEGIN);
    }

    #[test]
    fn it_stays_within_what_it_may_have() {
        for most in [0, 1, 3, 20] {
            let mut controller = Controller::new(most);
            for at in 0..5_000u64 {
                let limit = controller.limit();
                assert!((1..=most.max(1)).contains(&limit), "{limit} of {most}");
                controller.ended(Duration::from_micros(at * 100), limit, 1_500);
                if at % 1_000 == 999 {
                    controller.refused(Duration::from_micros(at * 100));
                }
            }
        }
    }
}
