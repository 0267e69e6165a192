//! `quiver`, the chunks of Quiver (Kumar and Sivathanu, FAST 2020, 4.3), for one job.
//!
//! Samples are admitted as their chunk is walked, and those of the chunk that came first leave once there is no
//! room; but no sample leaves that is still due in this epoch. With the strategy `quiver` an epoch begins on the
//! chunks that are resident, so a job alone reads what does not fit, as it would with `minio`.
//!
//! Differs from the paper: residents leave one by one, in the order they came, so that chunks stay while the
//! allocation has room. Sharing between jobs is not part of it.

use std::collections::VecDeque;

use super::kept::{Kept, Order};
use super::{Due, Entry};
use crate::Id;

pub(super) const ENTRY: Entry = Entry {
    name: "quiver",
    summary: "keeps chunks in the order they came, until they were used (Quiver)",
    bounded: true,
    offline: false,
    plain: false,
    shared: true,
    parameters: &[],
    build: |setup| Box::new(Kept::new("quiver", setup, Quiver::default())),
};

/// Residents, the first to come in front.
#[derive(Default)]
struct Quiver(VecDeque<Id>);

impl Order for Quiver {
    fn insert(&mut self, id: Id) {
        self.0.push_back(id);
    }

    fn pop(&mut self) -> Option<Id> {
        self.0.pop_front()
    }

    fn give_way(&mut self, _id: Id, due: &dyn Due) -> Option<Id> {
        self.0.pop_front_if(|oldest| !due.due_in_epoch(*oldest))
    }

    fn put_back(&mut self, id: Id) {
        self.0.push_front(id);
    }

    fn each(&self, each: &mut dyn FnMut(Id)) {
        self.0.iter().copied().for_each(each);
    }
}
