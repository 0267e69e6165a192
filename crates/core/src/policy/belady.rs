//! `belady`, the offline optimum (Belady 1966), with bypass: a bound to compare with.
//!
//! It knows every plan of the run. The sample due farthest in the future is evicted; a sample due farther
//! than all residents, or never again, is not admitted. For equal sizes nothing hits more; for unequal sizes
//! it only bounds policies that consider one sample at a time.
//!
//! A resident's next use is known when it is requested and does not change until it is requested again, so it
//! is looked up once per slot. That holds only where all plans are known beforehand, as in the simulator.

use std::cmp::Reverse;

use super::heap::Heap;
use super::kept::{Kept, Order};
use super::{Due, Entry, Setup};
use crate::Id;
use crate::saved::{Reader, Writer};

pub(super) const ENTRY: Entry = Entry {
    name: "belady",
    summary: "evicts the sample due farthest in the future, knowing all plans: a bound to compare with",
    bounded: true,
    offline: true,
    plain: false,
    shared: false,
    parameters: &[],
    build: |setup| Box::new(belady(setup)),
};

const NEVER: u64 = u64::MAX;

struct Belady {
    /// By the slot in which each is due next, the farthest on top.
    heap: Heap<Reverse<u64>>,
    places: Vec<u32>,
    clock: u64,
    /// When the sample that is asked for now is due next.
    next: Reverse<u64>,
    /// The samples that gave way to it, and when they are due.
    gone: Vec<(Reverse<u64>, Id)>,
}

fn belady(setup: Setup) -> Kept<Belady> {
    let places = vec![0; setup.sizes.len()];
    let order = Belady { heap: Heap::new(), places, clock: 0, next: Reverse(NEVER), gone: Vec::new() };
    Kept::new("belady", setup, order)
}

impl Order for Belady {
    fn asked(&mut self, id: Id, due: &dyn Due) {
        self.clock += 1;
        self.next = Reverse(due.next_due(id).map_or(NEVER, |slots| self.clock.saturating_add(slots)));
        self.gone.clear();
    }

    fn touch(&mut self, id: Id) {
        self.heap.update(self.next, id, &mut self.places);
    }

    fn insert(&mut self, id: Id) {
        self.heap.push(self.next, id, &mut self.places);
    }

    fn pop(&mut self) -> Option<Id> {
        self.heap.pop(&mut self.places).map(|(_, id)| id)
    }

    fn give_way(&mut self, _id: Id, _due: &dyn Due) -> Option<Id> {
        // Farther in the future than the incoming one is smaller as a key.
        self.heap.first().filter(|(farthest, _)| *farthest < self.next)?;
        let gone = self.heap.pop(&mut self.places)?;
        self.gone.push(gone);
        Some(gone.1)
    }

    fn put_back(&mut self, _id: Id) {
        if let Some((due, id)) = self.gone.pop() {
            self.heap.push(due, id, &mut self.places);
        }
    }

    fn remove(&mut self, id: Id) {
        self.heap.remove(id, &mut self.places);
    }

    fn each(&self, each: &mut dyn FnMut(Id)) {
        self.heap.iter().for_each(|(_, id)| each(id));
    }

    fn save(&self, out: &mut Writer) {
        out.number(self.clock);
        // So that never is short.
        self.heap.iter().for_each(|(Reverse(due), _)| out.number(due.wrapping_add(1)));
    }

    fn restore(&mut self, residents: &[Id], saved: &mut Reader<'_>) -> Option<()> {
        self.clock = saved.number()?;
        for &id in residents {
            let due = saved.number()?.wrapping_sub(1);
            self.heap.push(Reverse(due), id, &mut self.places);
        }
        Some(())
    }
}
