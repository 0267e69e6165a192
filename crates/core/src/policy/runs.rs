//! `runs`, for plans by runs: some runs stay whole, the others pass through a buffer that mixes them.
//!
//! The plan says which runs stay and when each is read ([`crate::sampling`], `order=runs`), so there is little to decide.
//! What a run brings is resident from the read on, and packed when it is first served. A sample of a run that stays is a
//! hit from then on. The others wait for their slots, and have been *passed* once they are served: they leave when the next
//! run needs their room. A run of which every sample is still resident is not read again: those are hits.
//!
//! Where the cache is smaller than the plan was made for, runs that stay give way to those that pass, the newest first:
//! a run that does not stay costs one request in the next epoch, a sample that is not there when it is due costs one itself.
//! A sample that comes alone is admitted where there is room and makes none, so with plans of another kind this is `minio`.

use std::sync::Arc;

use super::list::List;
use super::shelf::Shelf;
use super::{Begin, Due, Entry, Place, Policy, Region, Setup, Sizes, Verdict, foreign};
use crate::bits::Bits;
use crate::saved::{Reader, Unsealed, Writer};
use crate::{Id, Result};

pub(super) const ENTRY: Entry = Entry {
    name: NAME,
    summary: "keeps whole runs of shards, and the others while a plan by runs mixes them",
    bounded: true,
    offline: false,
    plain: false,
    shared: false,
    parameters: &[],
    build: |setup| Box::new(Runs::new(setup)),
};

/// The policy of plans by runs.
pub const NAME: &str = "runs";

struct Runs {
    capacity: u64,
    sizes: Arc<dyn Sizes>,
    resident: Bits,
    /// Those of runs that stay, the newest last, and their bytes.
    staying: Shelf,
    staying_bytes: u64,
    /// All others. Those that wait for their slots are the last, in the order they came.
    passing: List,
    passing_bytes: u64,
    /// The plan in which each waits for its slot; 0: none.
    waits: Vec<u16>,
    /// Those of them that a read of this plan has brought.
    brought: Bits,
    /// The plan that is being decided, never 0.
    plan: u16,
}

impl Runs {
    fn new(setup: Setup) -> Self {
        let samples = setup.sizes.len();
        Self {
            capacity: setup.capacity,
            resident: Bits::new(samples),
            staying: Shelf::new(samples),
            staying_bytes: 0,
            passing: List::new(samples),
            passing_bytes: 0,
            waits: vec![0; samples],
            brought: Bits::new(samples),
            plan: 1,
            sizes: setup.sizes,
        }
    }

    fn waits(&self, id: Id) -> bool {
        self.waits[id as usize] == self.plan
    }

    fn is_packed(&self, id: Id) -> bool {
        self.waits(id) && self.brought.contains(id)
    }

    /// Takes `id` in, which is not here.
    fn insert(&mut self, id: Id, stays: bool, waits: bool) {
        self.resident.insert(id);
        self.waits[id as usize] = if waits { self.plan } else { 0 };
        let size = self.sizes.size(id);
        if stays {
            self.staying.push(id);
            self.staying_bytes += size;
            return;
        }
        self.passing_bytes += size;
        if waits { self.passing.push(id) } else { self.passing.push_oldest(id) }
    }

    fn take_out(&mut self, id: Id) {
        self.resident.remove(id);
        self.brought.remove(id);
        self.waits[id as usize] = 0;
        if self.staying.contains(id) {
            self.staying.remove(id);
            self.staying_bytes -= self.sizes.size(id);
        } else {
            self.passing.remove(id);
            self.passing_bytes -= self.sizes.size(id);
        }
    }

    /// Lets the oldest that was passed leave, if there is one.
    fn pop_passed(&mut self) -> Option<Id> {
        let oldest = self.passing.oldest().filter(|&id| !self.waits(id))?;
        self.take_out(oldest);
        Some(oldest)
    }

    /// Lets the newest of those that stay leave.
    fn pop_staying(&mut self) -> Option<Id> {
        let newest = self.staying.last()?;
        self.take_out(newest);
        Some(newest)
    }

    /// Makes room for `bytes` more; true if there is enough.
    fn make_room(&mut self, bytes: u64, stays: bool, evicted: &mut Vec<Id>) -> bool {
        let fits = |this: &Self| this.used().saturating_add(bytes) <= this.capacity;
        if bytes > self.capacity {
            return false;
        }
        while !fits(self) {
            let gone = self.pop_passed().or_else(|| if stays { None } else { self.pop_staying() });
            match gone {
                Some(id) => evicted.push(id),
                None => return false,
            }
        }
        true
    }
}

impl Policy for Runs {
    fn access(&mut self, id: Id, _due: &dyn Due, _evicted: &mut Vec<Id>) -> Verdict {
        if !self.resident.contains(id) {
            let fits = self.used().saturating_add(self.sizes.size(id)) <= self.capacity;
            if fits {
                self.insert(id, false, false);
            }
            return if fits { Verdict::Admitted } else { Verdict::Bypassed };
        }
        let packed = self.is_packed(id);
        self.waits[id as usize] = 0;
        if !self.staying.contains(id) {
            self.passing.remove(id);
            self.passing.push_oldest(id);
        }
        if packed { Verdict::Packed } else { Verdict::Hit }
    }

    fn contains(&self, id: Id) -> bool {
        self.resident.contains(id)
    }

    fn used(&self) -> u64 {
        self.staying_bytes + self.passing_bytes
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn resize(&mut self, capacity: u64, evicted: &mut Vec<Id>) {
        self.capacity = capacity;
        while self.used() > capacity {
            let gone = self.pop_passed().or_else(|| self.pop_staying());
            let gone = gone.or_else(|| self.passing.oldest().inspect(|&id| self.take_out(id)));
            evicted.extend(gone);
        }
    }

    fn residents(&self, each: &mut dyn FnMut(Id)) {
        self.staying.iter().for_each(&mut *each);
        self.passing.iter().for_each(each);
    }

    fn remove(&mut self, id: Id) -> bool {
        let here = self.resident.contains(id);
        if here {
            self.take_out(id);
        }
        here
    }

    /// What came in an earlier plan and was not served waits no more.
    fn begin(&mut self, _begin: &Begin<'_>) {
        self.plan = self.plan.checked_add(1).unwrap_or(1);
    }

    fn takes_packages(&self) -> bool {
        true
    }

    fn low(&self) -> (u64, u64) {
        (self.capacity, self.capacity)
    }

    fn load(&mut self, members: &[Id], stays: bool, _due: &dyn Due, evicted: &mut Vec<Id>) -> bool {
        let (here, missing): (Vec<Id>, Vec<Id>) = members.iter().partition(|id| self.resident.contains(**id));
        let is_read = !missing.is_empty();
        // Those that are here wait for their slots too, and make no room for the others.
        for id in here {
            let renewed = is_read || !stays || !self.staying.contains(id);
            if renewed {
                self.take_out(id);
                self.insert(id, stays, true);
            }
            if is_read {
                self.brought.insert(id);
            }
        }
        for id in missing {
            if self.make_room(self.sizes.size(id), stays, evicted) {
                self.insert(id, stays, true);
                self.brought.insert(id);
            }
        }
        is_read
    }

    fn place(&self, id: Id) -> Option<Place> {
        let place = if self.staying.contains(id) { Place::High } else { Place::Low };
        self.resident.contains(id).then_some(place)
    }

    fn regions(&self) -> Vec<Region> {
        let (stay, pass) = (self.staying_bytes, self.capacity.saturating_sub(self.staying_bytes));
        vec![
            Region { name: "kept", capacity: stay, used: stay },
            Region { name: "mix", capacity: pass, used: self.passing_bytes },
        ]
    }

    fn save(&self) -> Unsealed {
        let mut out = Writer::new(self.sizes.len());
        let (staying, passing): (Vec<Id>, Vec<Id>) =
            (self.staying.iter().collect(), self.passing.iter().collect());
        let all = staying.iter().chain(&passing).copied();
        let packed: Vec<Id> = all.filter(|&id| self.is_packed(id)).collect();
        out.number(self.capacity);
        [&staying, &passing, &packed].into_iter().for_each(|ids| out.ids(ids.iter().copied()));
        out.number(passing.iter().filter(|&&id| self.waits(id)).count() as u64);
        out.unsealed(NAME)
    }

    fn restore(&mut self, saved: &[u8]) -> Result<()> {
        self.read(saved).ok_or_else(foreign)
    }
}

impl Runs {
    fn read(&mut self, saved: &[u8]) -> Option<()> {
        let mut saved = Reader::open(saved, NAME, self.sizes.len())?;
        self.capacity = saved.number()?;
        for id in saved.ids()? {
            self.check(id)?;
            self.insert(id, true, false);
        }
        let (passing, packed) = (saved.ids()?, saved.ids()?);
        let waiting = usize::try_from(saved.number()?).ok()?;
        let passed = passing.len().checked_sub(waiting)?;
        // The oldest is put in last, since each is put before the others.
        for &id in passing[..passed].iter().rev() {
            self.check(id)?;
            self.insert(id, false, false);
        }
        for &id in &passing[passed..] {
            self.check(id)?;
            self.insert(id, false, true);
        }
        for id in packed {
            (self.staying.contains(id) || self.waits(id)).then_some(())?;
            self.waits[id as usize] = self.plan;
            self.brought.insert(id);
        }
        saved.end()
    }

    /// Whether a saved resident can be taken in.
    fn check(&self, id: Id) -> Option<()> {
        let used = self.used().checked_add(self.sizes.size(id))?;
        (!self.resident.contains(id) && used <= self.capacity).then_some(())
    }
}

#[cfg(test)]
#[path = "runs_tests.rs"]
mod tests;
