//! `fifo`, first in first out.

use std::collections::VecDeque;

use super::Entry;
use super::kept::{Kept, Order};
use crate::Id;

pub(super) const ENTRY: Entry = Entry {
    name: "fifo",
    summary: "evicts the sample that came first",
    bounded: true,
    offline: false,
    plain: true,
    shared: true,
    parameters: &[],
    build: |setup| Box::new(Kept::new("fifo", setup, Fifo::default())),
};

/// Residents, the first to come in front.
#[derive(Default)]
struct Fifo(VecDeque<Id>);

impl Order for Fifo {
    fn insert(&mut self, id: Id) {
        self.0.push_back(id);
    }

    fn pop(&mut self) -> Option<Id> {
        self.0.pop_front()
    }

    fn put_back(&mut self, id: Id) {
        self.0.push_front(id);
    }

    fn each(&self, each: &mut dyn FnMut(Id)) {
        self.0.iter().copied().for_each(each);
    }
}
