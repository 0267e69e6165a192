//! The H region: residents by importance, with a shadow of heaps (iCache III-B).
//!
//! Residents that are due again in this epoch and those that are not stand in two heaps, by the keys of the
//! plan being decided. When a new plan begins, the heaps of the one before become *old*: nothing is inserted
//! there any more. With every slot a few of their residents move over, with their new keys; until then the
//! old heaps answer which sample leaves, by the keys they were made with. No call waits for a rebuild, and since slots
//! are its clock, the same residents have moved at the same slot everywhere.

use std::sync::Arc;

use crate::Id;
use crate::importance::Keys;
use crate::policy::heap::Heap;
use crate::policy::{Due, Sizes};
use crate::saved::{Reader, Writer};

/// Residents that move to the new heaps with each slot: an epoch as long as the cache rebuilds in a 64th.
const MOVES: usize = 64;
/// Residents that one eviction may find still due on top of an old heap and pass over.
const PASSES: usize = 4096;
/// Heaps that may be waiting to be emptied; more only pile up in epochs that end at once.
const MOST_HEAPS: usize = 200;

const ABSENT: u8 = u8::MAX;

/// The region of hard samples.
pub(super) struct High {
    pub(super) used: u64,
    sizes: Arc<dyn Sizes>,
    keys: Arc<Keys>,
    /// Whether what is due is looked at.
    strict: bool,
    /// Residents that move over with each slot.
    moves: usize,
    /// The heap of those not due, of those due, and the old ones; which of them an id is in, `homes` says.
    heaps: Vec<Heap<u32>>,
    idle: u8,
    due: u8,
    old: Vec<u8>,
    free: Vec<u8>,
    homes: Vec<u8>,
    places: Vec<u32>,
}

impl High {
    pub(super) fn new(sizes: Arc<dyn Sizes>, strict: bool) -> Self {
        let samples = sizes.len();
        Self {
            used: 0,
            sizes,
            keys: Arc::default(),
            strict,
            moves: MOVES,
            heaps: vec![Heap::new(), Heap::new()],
            idle: 0,
            due: 1,
            old: Vec::new(),
            free: Vec::new(),
            homes: vec![ABSENT; samples],
            places: vec![0; samples],
        }
    }

    pub(super) fn contains(&self, id: Id) -> bool {
        self.homes.get(id as usize).is_some_and(|&home| home != ABSENT)
    }

    pub(super) fn residents(&self, each: &mut dyn FnMut(Id)) {
        self.heaps.iter().flat_map(Heap::iter).for_each(|(_, id)| each(id));
    }

    pub(super) fn is_high(&self, id: Id) -> bool {
        self.keys.is_high(id)
    }

    /// A new plan with new keys: today's heaps are old from now on.
    pub(super) fn begin(&mut self, keys: Option<&Arc<Keys>>, due: &dyn Due) {
        while self.heaps.len() - self.free.len() > MOST_HEAPS {
            self.rebuild(PASSES, due);
        }
        self.keys = keys.cloned().unwrap_or_default();
        self.old.extend([self.idle, self.due]);
        (self.idle, self.due) = (self.fresh(), self.fresh());
    }

    /// Moves some residents of old heaps to the new ones.
    pub(super) fn rebuild(&mut self, moves: usize, due: &dyn Due) {
        for _ in 0..moves {
            let Some(&old) = self.old.last() else { return };
            match self.heaps[old as usize].pop_any() {
                Some((_, id)) => self.settle(id, due),
                None => {
                    self.old.pop();
                    self.free.push(old);
                }
            }
        }
    }

    /// Lets a test move residents over when it wants to, and none with a slot.
    #[cfg(test)]
    pub(super) fn moves_by_hand(&mut self) {
        self.moves = 0;
    }

    /// Whether `id` stands in a heap of an earlier plan.
    #[cfg(test)]
    pub(super) fn is_old(&self, id: Id) -> bool {
        self.homes.get(id as usize).is_some_and(|home| self.old.contains(home))
    }

    /// A resident is served: from now on it is due again or not.
    pub(super) fn touch(&mut self, id: Id, due: &dyn Due) {
        self.rebuild(self.moves, due);
        let home = self.homes[id as usize];
        self.heaps[home as usize].remove(id, &mut self.places);
        self.settle(id, due);
    }

    /// Makes room within `limit` for `id`, which is not resident, and takes it in; or leaves all as it was
    /// when its importance does not merit it.
    pub(super) fn admit(&mut self, id: Id, limit: u64, due: &dyn Due, evicted: &mut Vec<Id>) -> bool {
        self.rebuild(self.moves, due);
        let Some(others) = limit.checked_sub(self.sizes.size(id)) else { return false };
        let key = self.keys.sortable(id);
        // It takes the place of none that more jobs wait for.
        let jobs = if self.strict { u32::MAX } else { due.jobs_due(id) };
        let mut left = Vec::new();
        while self.used > others {
            match self.lowest(jobs, due) {
                Some((lowest, home)) if lowest < key => left.extend(self.take(home)),
                _ => {
                    for (key, id, home) in left {
                        self.insert(home, key, id);
                    }
                    return false;
                }
            }
        }
        evicted.extend(left.into_iter().map(|(_, id, _)| id));
        self.settle(id, due);
        self.used += self.sizes.size(id);
        true
    }

    /// Lets the lowest go, those not due first, until residents take at most `bytes`.
    pub(super) fn shrink_to(&mut self, bytes: u64, due: &dyn Due, evicted: &mut Vec<Id>) {
        while self.used > bytes {
            let home = self.lowest(0, due).or_else(|| self.lowest(u32::MAX, due));
            let Some((_, id, _)) = home.and_then(|(_, home)| self.take(home)) else { return };
            evicted.push(id);
        }
    }

    /// Takes `id` out, which goes elsewhere.
    pub(super) fn remove(&mut self, id: Id) {
        let home = std::mem::replace(&mut self.homes[id as usize], ABSENT);
        self.heaps[home as usize].remove(id, &mut self.places);
        self.used -= self.sizes.size(id);
    }

    /// The lowest key among residents that may leave, which are due to at most so many `jobs`, and the heap it tops.
    fn lowest(&mut self, jobs: u32, due: &dyn Due) -> Option<(u32, u8)> {
        let due_too = jobs > 0;
        if !due_too {
            self.pass_over_due(due);
        }
        let top = |home: u8| self.heaps[home as usize].first().map(|(key, id)| (key, id, home));
        let homes = self.old.iter().copied().chain([self.idle]).chain(due_too.then_some(self.due));
        let (key, id, home) = homes.filter_map(top).min()?;
        (jobs == u32::MAX || due.jobs_due(id) <= jobs).then_some((key, home))
    }

    /// Moves those that are still due from the tops of old heaps to the new ones.
    fn pass_over_due(&mut self, due: &dyn Due) {
        let mut passes = PASSES;
        for place in 0..self.old.len() {
            let old = self.old[place];
            while passes > 0
                && let Some((_, id)) = self.heaps[old as usize].first()
                && due.due_in_epoch(id)
            {
                self.heaps[old as usize].pop(&mut self.places);
                self.settle(id, due);
                passes -= 1;
            }
        }
    }

    fn take(&mut self, home: u8) -> Option<(u32, Id, u8)> {
        let (key, id) = self.heaps[home as usize].pop(&mut self.places)?;
        self.homes[id as usize] = ABSENT;
        self.used -= self.sizes.size(id);
        Some((key, id, home))
    }

    fn insert(&mut self, home: u8, key: u32, id: Id) {
        self.heaps[home as usize].push(key, id, &mut self.places);
        self.homes[id as usize] = home;
        self.used += self.sizes.size(id);
    }

    /// Puts `id`, which is in no heap, where it belongs by the keys of this plan.
    fn settle(&mut self, id: Id, due: &dyn Due) {
        let home = if !self.strict && due.due_in_epoch(id) { self.due } else { self.idle };
        self.heaps[home as usize].push(self.keys.sortable(id), id, &mut self.places);
        self.homes[id as usize] = home;
    }

    /// Which sample stands where in which heap, by which key. Keys are written for all: the plan of those that stand by its
    /// keys may be over.
    pub(super) fn save(&self, out: &mut Writer) {
        out.number(self.old.len() as u64);
        for home in [self.idle, self.due].iter().chain(&self.old) {
            let heap = &self.heaps[*home as usize];
            out.ids(heap.iter().map(|(_, id)| id));
            heap.iter().for_each(|(key, _)| out.fixed(key.into(), 4));
        }
    }

    /// Takes what [`Self::save`] wrote, while there is no resident.
    pub(super) fn restore(&mut self, saved: &mut Reader<'_>) -> Option<()> {
        self.free.clear();
        (self.idle, self.due) = (0, 1);
        let old = u8::try_from(saved.number()?).ok().filter(|&old| usize::from(old) <= MOST_HEAPS)?;
        self.old = (2..2 + old).collect();
        self.heaps = (0..2 + old).map(|home| self.read(home, saved)).collect::<Option<_>>()?;
        Some(())
    }

    fn read(&mut self, home: u8, saved: &mut Reader<'_>) -> Option<Heap<u32>> {
        let mut items = Vec::new();
        for id in saved.ids()? {
            self.used = self.used.checked_add(self.sizes.size(id))?;
            let was = std::mem::replace(&mut self.homes[id as usize], home);
            (was == ABSENT).then_some(())?;
            items.push((0, id));
        }
        for (key, _) in &mut items {
            *key = saved.fixed(4)? as u32;
        }
        Heap::restore(items, &mut self.places)
    }

    fn fresh(&mut self) -> u8 {
        self.free.pop().unwrap_or_else(|| {
            self.heaps.push(Heap::new());
            (self.heaps.len() - 1) as u8
        })
    }
}
