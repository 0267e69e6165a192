//! The L region: packages come in, and the sample that came first leaves (iCache III-C).
//!
//! A sample that came in this epoch is `packed` when it is first served, and a hit afterwards; what is left
//! from the epoch before is a hit.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::Id;
use crate::bits::Bits;
use crate::policy::Sizes;
use crate::saved::{Reader, Writer};

const ABSENT: u32 = u32::MAX;

/// The region of packages.
pub(super) struct Low {
    pub(super) used: u64,
    sizes: Arc<dyn Sizes>,
    /// The order in which samples came. One that has left in between is passed over: its ticket is not this one any more.
    queue: VecDeque<(Id, u32)>,
    /// The ticket of every resident. Empty until the first package.
    tickets: Vec<u32>,
    next: u32,
    /// The first ticket of this epoch.
    epoch: u32,
    /// Those that were not served since they came.
    unserved: Bits,
}

impl Low {
    pub(super) fn new(sizes: Arc<dyn Sizes>) -> Self {
        Self {
            used: 0,
            sizes,
            queue: VecDeque::new(),
            tickets: Vec::new(),
            next: 0,
            epoch: 0,
            unserved: Bits::default(),
        }
    }

    pub(super) fn contains(&self, id: Id) -> bool {
        self.tickets.get(id as usize).is_some_and(|&ticket| ticket != ABSENT)
    }

    pub(super) fn residents(&self, each: &mut dyn FnMut(Id)) {
        self.queued().for_each(|(id, _)| each(id));
    }

    /// The residents, in the order they came, with their tickets.
    fn queued(&self) -> impl Iterator<Item = (Id, u32)> + '_ {
        self.queue.iter().copied().filter(|&(id, ticket)| self.tickets[id as usize] == ticket)
    }

    /// Whether `ticket` is of this epoch.
    fn came(&self, ticket: u32) -> bool {
        // Tickets start over after 2^32, and a queue is never half as long.
        ticket.wrapping_sub(self.epoch) < u32::MAX / 2
    }

    /// An epoch begins: all residents were here before it.
    pub(super) fn begin(&mut self) {
        self.epoch = self.next;
    }

    /// Serves a resident. True if it came in a package of this epoch and is served for the first time.
    pub(super) fn serve(&mut self, id: Id) -> bool {
        let packed = self.came(self.tickets[id as usize]) && self.unserved.contains(id);
        self.unserved.remove(id);
        packed
    }

    /// Takes `id` in, which is not here.
    pub(super) fn push(&mut self, id: Id) {
        if self.tickets.is_empty() {
            self.tickets = vec![ABSENT; self.sizes.len()];
            self.unserved = Bits::new(self.tickets.len());
        }
        self.tickets[id as usize] = self.next;
        self.queue.push_back((id, self.next));
        self.next = if self.next + 1 == ABSENT { 0 } else { self.next + 1 };
        self.unserved.insert(id);
        self.used += self.sizes.size(id);
    }

    /// Lets a resident stay as if it came now; its package comes again. It is a hit all the same.
    pub(super) fn renew(&mut self, id: Id) {
        self.remove(id);
        self.push(id);
        self.unserved.remove(id);
    }

    /// Takes `id` out, which goes elsewhere.
    pub(super) fn remove(&mut self, id: Id) {
        self.tickets[id as usize] = ABSENT;
        self.unserved.remove(id);
        self.used -= self.sizes.size(id);
    }

    /// Lets those that came first go until the others take at most `bytes`.
    pub(super) fn shrink_to(&mut self, bytes: u64, evicted: &mut Vec<Id>) {
        while self.used > bytes
            && let Some((id, ticket)) = self.queue.pop_front()
        {
            if self.tickets[id as usize] == ticket {
                self.remove(id);
                evicted.push(id);
            }
        }
    }
    /// The residents in the order they came, how many of them before this epoch, and which were not served yet.
    pub(super) fn save(&self, out: &mut Writer) {
        let queued: Vec<(Id, u32)> = self.queued().collect();
        out.ids(queued.iter().map(|&(id, _)| id));
        out.number(queued.iter().filter(|&&(_, ticket)| !self.came(ticket)).count() as u64);
        out.bits(queued.iter().map(|&(id, _)| self.unserved.contains(id)));
    }

    /// Takes what [`Self::save`] wrote, while there is no resident. Tickets begin anew: only their order is looked at.
    pub(super) fn restore(&mut self, saved: &mut Reader<'_>) -> Option<()> {
        let ids = saved.ids()?;
        self.epoch = u32::try_from(saved.number()?).ok().filter(|&before| before as usize <= ids.len())?;
        for (&id, unserved) in ids.iter().zip(saved.bits(ids.len())?) {
            self.used.checked_add(self.sizes.size(id))?;
            (!self.contains(id)).then_some(())?;
            self.push(id);
            if !unserved {
                self.unserved.remove(id);
            }
        }
        Some(())
    }
}
