//! `quiver`, the chunks of Quiver (Kumar and Sivathanu, FAST 2020, 4.3): jobs that walk together read once.
//!
//! With the strategy `quiver`, jobs walk the chunks of a dataset in one order. An eighth of the cache, two
//! chunks, is the *window*: a sample that one job has read and another still waits for stays there until as
//! many bytes have come after it, so every job that keeps pace is served from the window, whichever job did
//! the reading. A job that falls further behind reads alone and holds up no other. The rest of the cache
//! stands still, as with `minio`: what came first stays. A sample that no other job waits for is not admitted
//! to a full cache, so a single job has no window and reads what does not fit.
//!
//! Differs from the paper: samples are evicted one by one, the oldest of the window first, and not in chunks
//! that are marked when the next is complete and forced out after a time; and a cache larger than two chunks
//! keeps the rest from epoch to epoch.

use super::kept::{Kept, Order};
use super::list::List;
use super::shelf::Shelf;
use super::{Due, Entry, Setup};
use crate::Id;
use crate::saved::{Reader, Writer};

/// The window is one resident in so many.
const WINDOW: usize = 8;

pub(super) const ENTRY: Entry = Entry {
    name: "quiver",
    summary: "keeps what other jobs wait for until they pass it, and of the rest what came first (Quiver)",
    bounded: true,
    offline: false,
    plain: false,
    shared: true,
    parameters: &[],
    build: |setup| Box::new(quiver(setup)),
};

struct Quiver {
    /// What stands still, the newest last.
    still: Shelf,
    /// What jobs walk through, the oldest first.
    window: List,
    /// Whether a job waits for the sample that is asked for.
    waited_for: bool,
    /// What gave way to it, and whether it was in the window.
    gone: Vec<bool>,
}

fn quiver(setup: Setup) -> Kept<Quiver> {
    let samples = setup.sizes.len();
    let (still, window) = (Shelf::new(samples), List::new(samples));
    Kept::new("quiver", setup, Quiver { still, window, waited_for: false, gone: Vec::new() })
}

impl Quiver {
    /// Whether the window has its part of all residents, or more.
    fn is_window_full(&self) -> bool {
        self.window.len() * WINDOW >= self.still.len() + self.window.len()
    }
}

impl Order for Quiver {
    fn asked(&mut self, id: Id, due: &dyn Due) {
        self.waited_for = due.due_in_epoch(id);
        self.gone.clear();
    }

    fn insert(&mut self, id: Id) {
        if self.waited_for && !self.is_window_full() {
            self.window.push(id);
        } else {
            self.still.push(id);
        }
    }

    fn pop(&mut self) -> Option<Id> {
        self.window.pop_oldest().or_else(|| self.still.pop())
    }

    fn give_way(&mut self, _id: Id, _due: &dyn Due) -> Option<Id> {
        if !self.waited_for {
            return None;
        }
        let of_window = self.is_window_full();
        let id = if of_window { self.window.pop_oldest() } else { self.still.pop() };
        self.gone.extend(id.map(|_| of_window));
        id
    }

    fn put_back(&mut self, id: Id) {
        match self.gone.pop() {
            Some(true) => self.window.push_oldest(id),
            _ => self.still.push(id),
        }
    }

    fn remove(&mut self, id: Id) {
        if self.still.contains(id) {
            self.still.remove(id);
        } else {
            self.window.remove(id);
        }
    }

    fn each(&self, each: &mut dyn FnMut(Id)) {
        self.still.iter().chain(self.window.iter()).for_each(each);
    }

    fn save(&self, out: &mut Writer) {
        out.number(self.window.len() as u64);
    }

    fn restore(&mut self, residents: &[Id], saved: &mut Reader<'_>) -> Option<()> {
        let window = usize::try_from(saved.number()?).ok()?;
        let (still, window) = residents.split_at(residents.len().checked_sub(window)?);
        still.iter().for_each(|&id| self.still.push(id));
        window.iter().for_each(|&id| self.window.push(id));
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::policy::{NoDue, Policy};

    /// A job waits for every sample.
    struct Waited;

    impl Due for Waited {
        fn next_due(&self, _id: Id) -> Option<u64> {
            Some(1)
        }
    }

    #[test]
    fn what_is_waited_for_passes_through_the_window_and_the_rest_stands_still() {
        let mut quiver = quiver(Setup::new(160, Arc::new(vec![10; 99]), 0));
        let mut evicted = Vec::new();
        for id in 0..20 {
            quiver.access(id, &NoDue, &mut evicted);
        }
        assert!(evicted.is_empty(), "what no job waits for takes no place of another");
        for id in 20..26 {
            quiver.access(id, &Waited, &mut evicted);
        }
        // Two of sixteen are the window: the newest of the others make room for it once.
        assert_eq!(evicted, [15, 14, 20, 21, 22, 23]);
    }
}
