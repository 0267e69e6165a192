//! A cache of one region: the residents, their bytes, and the order in which they leave.
//!
//! Every such policy is an [`Order`] and nothing else. Here is what they share: a resident is served; a sample that
//! is larger than the capacity is bypassed; otherwise residents are evicted one by one until it fits. If the order
//! refuses a victim, all evictions are undone and the sample is bypassed.

use std::sync::Arc;

use super::{Due, Policy, Setup, Sizes, Verdict, foreign};
use crate::bits::Bits;
use crate::importance::Score;
use crate::saved::{Reader, Unsealed, Writer};
use crate::{Id, Result};

/// The order in which residents leave. It is told which sample comes, and says which goes.
pub(super) trait Order: Send {
    /// A slot asks for `id`, whatever comes of it.
    fn asked(&mut self, _id: Id, _due: &dyn Due) {}
    /// The slot is served from `id`, which is resident.
    fn touch(&mut self, _id: Id) {}
    /// Takes `id` in.
    fn insert(&mut self, id: Id);
    /// Takes out the resident that leaves first when the capacity shrinks.
    fn pop(&mut self) -> Option<Id>;
    /// Takes out `id`, which is resident, at no more cost than [`Self::insert`] has.
    fn remove(&mut self, id: Id);
    /// Takes out the resident that leaves for `id`; none where all stay.
    fn give_way(&mut self, _id: Id, _due: &dyn Due) -> Option<Id> {
        self.pop()
    }
    /// Puts `id` back as it was, the last that gave way: all stay after all.
    fn put_back(&mut self, id: Id) {
        self.insert(id);
    }
    /// Whether residents leave when the plan says so.
    fn follows_plan(&self) -> bool {
        false
    }
    /// See [`Policy::takes`].
    fn takes(&self) -> Option<Score> {
        None
    }
    /// Takes a reported score.
    fn scored(&mut self, _id: Id, _score: f32, _resident: bool) {}
    /// Calls `each` with every resident, in the order in which [`Self::restore`] wants them.
    fn each(&self, each: &mut dyn FnMut(Id));
    /// Writes what it knows beside that order.
    fn save(&self, _out: &mut Writer) {}
    /// Takes in those that [`Self::each`] gave, and what [`Self::save`] wrote.
    fn restore(&mut self, residents: &[Id], _saved: &mut Reader<'_>) -> Option<()> {
        residents.iter().for_each(|&id| self.insert(id));
        Some(())
    }
}

/// A cache of one region, whose residents leave in the order `O`.
pub(super) struct Kept<O> {
    name: &'static str,
    capacity: u64,
    used: u64,
    sizes: Arc<dyn Sizes>,
    resident: Bits,
    pub(super) order: O,
}

impl<O: Order> Kept<O> {
    /// The policy of that name, empty.
    pub(super) fn new(name: &'static str, setup: Setup, order: O) -> Self {
        let resident = Bits::new(setup.sizes.len());
        Self { name, capacity: setup.capacity, used: 0, sizes: setup.sizes, resident, order }
    }

    fn enter(&mut self, id: Id) {
        self.resident.insert(id);
        self.used += self.sizes.size(id);
    }

    fn exit(&mut self, id: Id) {
        self.resident.remove(id);
        self.used -= self.sizes.size(id);
    }

    fn read(&mut self, saved: &[u8]) -> Option<()> {
        let mut saved = Reader::open(saved, self.name, self.sizes.len())?;
        self.capacity = saved.number()?;
        let residents = saved.ids()?;
        for &id in &residents {
            self.used = self.used.checked_add(self.sizes.size(id)).filter(|&used| used <= self.capacity)?;
            self.resident.insert(id).then_some(())?;
        }
        self.order.restore(&residents, &mut saved)?;
        saved.end()
    }
}

impl<O: Order> Policy for Kept<O> {
    fn access(&mut self, id: Id, due: &dyn Due, evicted: &mut Vec<Id>) -> Verdict {
        self.order.asked(id, due);
        if self.contains(id) {
            self.order.touch(id);
            return Verdict::Hit;
        }
        let Some(others) = self.capacity.checked_sub(self.sizes.size(id)) else { return Verdict::Bypassed };
        let before = evicted.len();
        while self.used > others {
            let Some(leaver) = self.order.give_way(id, due) else {
                for stays in evicted.drain(before..).rev() {
                    self.order.put_back(stays);
                    self.resident.insert(stays);
                    self.used += self.sizes.size(stays);
                }
                return Verdict::Bypassed;
            };
            self.exit(leaver);
            evicted.push(leaver);
        }
        self.order.insert(id);
        self.enter(id);
        Verdict::Admitted
    }

    fn contains(&self, id: Id) -> bool {
        self.resident.contains(id)
    }

    fn used(&self) -> u64 {
        self.used
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn resize(&mut self, capacity: u64, evicted: &mut Vec<Id>) {
        self.capacity = capacity;
        while self.used > capacity
            && let Some(leaver) = self.order.pop()
        {
            self.exit(leaver);
            evicted.push(leaver);
        }
    }

    fn residents(&self, each: &mut dyn FnMut(Id)) {
        self.order.each(each);
    }

    fn remove(&mut self, id: Id) -> bool {
        let resident = self.contains(id);
        if resident {
            self.order.remove(id);
            self.exit(id);
        }
        resident
    }

    fn leave(&mut self, id: Id, evicted: &mut Vec<Id>) {
        if self.order.follows_plan() && self.remove(id) {
            evicted.push(id);
        }
    }

    fn takes(&self) -> Option<Score> {
        self.order.takes()
    }

    fn scored(&mut self, scores: &[(Id, f32)]) {
        for &(id, score) in scores.iter().filter(|(id, _)| (*id as usize) < self.sizes.len()) {
            self.order.scored(id, score, self.resident.contains(id));
        }
    }

    fn save(&self) -> Unsealed {
        let mut out = Writer::new(self.sizes.len());
        out.number(self.capacity);
        let mut residents = Vec::with_capacity(self.resident.count());
        self.order.each(&mut |id| residents.push(id));
        out.ids(residents.into_iter());
        self.order.save(&mut out);
        out.unsealed(self.name)
    }

    fn restore(&mut self, saved: &[u8]) -> Result<()> {
        self.read(saved).ok_or_else(foreign)
    }
}
