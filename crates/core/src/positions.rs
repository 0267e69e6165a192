//! Where a plan serves each sample, and how far the plan is decided.
//!
//! A plan's [schedule](crate::schedule) owns this and moves it on; the [cache](crate::cache) that decides the plan, which
//! other jobs may share, asks it what is still due. Slots of one sample are chained, so that a question costs the
//! number of times that the plan repeats that sample. Both sides go under one lock: the fields are atomic because two
//! own them, not because two threads meet here.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};

use crate::Id;
use crate::sampling::Plan;

const NONE: u32 = u32::MAX;

/// The slots of each sample in one plan, and the first slot that is not decided.
#[derive(Debug)]
pub struct Positions {
    /// The first slot of each sample that is not done.
    first: Vec<AtomicU32>,
    /// The next slot of the same sample. Empty while no sample repeats.
    next: Vec<u32>,
    /// The first slot not yet decided.
    frontier: AtomicUsize,
}

impl Positions {
    /// Those of a plan of which nothing is decided. `samples` is the catalog's length.
    pub(crate) fn new(plan: &Plan, samples: usize) -> Self {
        let slots = plan.ids().len();
        let mut first = vec![NONE; samples];
        let mut next = Vec::new();
        for (slot, &id) in plan.ids().iter().enumerate().rev() {
            let head = &mut first[id as usize];
            if *head != NONE && next.is_empty() {
                next = vec![NONE; slots];
            }
            if let Some(link) = next.get_mut(slot) {
                *link = *head;
            }
            *head = slot as u32;
        }
        let first = first.into_iter().map(AtomicU32::new).collect();
        Self { first, next, frontier: AtomicUsize::new(0) }
    }

    /// The first slot not yet decided.
    pub(crate) fn frontier(&self) -> usize {
        self.frontier.load(Relaxed)
    }

    pub(crate) fn set_frontier(&self, slot: usize) {
        self.frontier.store(slot, Relaxed);
    }

    /// Samples of the catalog.
    pub(crate) fn samples(&self) -> usize {
        self.first.len()
    }

    /// Whether the plan serves a sample twice.
    pub(crate) fn repeats(&self) -> bool {
        !self.next.is_empty()
    }

    /// The slots of a sample from the first on that is not done.
    pub(crate) fn slots(&self, id: Id) -> impl Iterator<Item = usize> + '_ {
        let mut at = self.first[id as usize].load(Relaxed);
        std::iter::from_fn(move || {
            let slot = (at != NONE).then_some(at as usize)?;
            at = self.after(slot);
            Some(slot)
        })
    }

    /// Slots of a sample are done: passes over them, as far as `is_done` goes.
    pub(crate) fn pass(&self, id: Id, is_done: impl Fn(usize) -> bool) {
        let first = &self.first[id as usize];
        let mut at = first.load(Relaxed);
        while at != NONE && is_done(at as usize) {
            at = self.after(at as usize);
        }
        first.store(at, Relaxed);
    }

    /// A slot of a sample that was done is not.
    pub(crate) fn reopen(&self, id: Id, slot: usize) {
        self.first[id as usize].fetch_min(slot as u32, Relaxed);
    }

    /// The first undecided slot of a sample; not the one being decided, where one is.
    pub(crate) fn due(&self, id: Id, deciding: bool) -> Option<usize> {
        let from = self.frontier() + usize::from(deciding);
        self.slots(id).find(|&slot| slot >= from)
    }

    /// Bytes on the heap.
    pub(crate) fn memory(&self) -> usize {
        4 * (self.first.len() + self.next.len())
    }

    fn after(&self, slot: usize) -> u32 {
        self.next.get(slot).copied().unwrap_or(NONE)
    }
}
