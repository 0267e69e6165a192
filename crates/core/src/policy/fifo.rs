//! `fifo`, first in first out.

use super::Entry;
use super::kept::{Kept, Order};
use super::list::List;
use crate::Id;

pub(super) const ENTRY: Entry = Entry {
    name: "fifo",
    summary: "evicts the sample that came first",
    bounded: true,
    offline: false,
    plain: true,
    shared: true,
    parameters: &[],
    build: |setup| {
        let order = Fifo(List::new(setup.sizes.len()));
        Box::new(Kept::new("fifo", setup, order))
    },
};

/// Residents in the order in which they came.
struct Fifo(List);

impl Order for Fifo {
    fn insert(&mut self, id: Id) {
        self.0.push(id);
    }

    fn pop(&mut self) -> Option<Id> {
        self.0.pop_oldest()
    }

    fn remove(&mut self, id: Id) {
        self.0.remove(id);
    }

    fn put_back(&mut self, id: Id) {
        self.0.push_oldest(id);
    }

    fn each(&self, each: &mut dyn FnMut(Id)) {
        self.0.iter().for_each(each);
    }
}
