//! From held objects to a lease, and its end.
//!
//! When every object of a batch is whole, its holds become one lease, and its servings are counted. A lease ends when its
//! reader says so, or goes.

use hotset_core::run::Outcome;
use hotset_core::schedule::Stage;
use hotset_core::tally::Serving;
use hotset_core::{Error, Id, Result};
use hotset_store::LabelKind;

use crate::allocator::GRANULE;
use crate::gather::Wanted;
use crate::state::State;
use crate::waiter::{Entry, Grant, Item, NewSegment, Role};

impl State {
    /// Turns the holds of a whole batch into one lease, and counts its servings.
    pub(crate) fn grant(
        &mut self,
        session: u64,
        wanted: &Wanted,
        items: &[Item],
        late: usize,
    ) -> Result<Grant> {
        let serial = wanted.job;
        let lease = self.next_serial();
        let mut grant = Grant {
            lease,
            entries: Vec::with_capacity(items.len()),
            label_kind: LabelKind::None,
            labels: Vec::new(),
            label_lengths: Vec::new(),
            parts: Vec::new(),
            segments: Vec::new(),
            dropped: Vec::new(),
            remark: None,
        };
        let mut objects = Vec::with_capacity(items.len());
        for item in items {
            let object = &mut self.objects[item.object as usize];
            object.holds -= 1;
            object.leases += 1;
            objects.push(item.object);
            let catalog = &self.datasets[object.dataset as usize].catalog;
            let (block, length) = (object.block, catalog.size(item.id));
            let offset = u64::from(block.start) * GRANULE;
            grant.entries.push(Entry { segment: block.segment, offset, length });
            grant.label_kind = catalog.label_kind();
            catalog.append_label(item.id, &mut grant.labels, &mut grant.label_lengths);
            grant.parts.extend_from_slice(catalog.spans(item.id));
            self.count(serial, item, length);
        }
        if let Some(job) = self.jobs.get_mut(&serial)
            && let Some(item) = items.first()
        {
            job.run.tally_mut().late(item.epoch(), late as u64);
            if items.iter().any(|item| matches!(item.role, Role::Unplanned { .. })) {
                let samples = self.datasets[job.dataset as usize].catalog.len();
                grant.remark = job.notice_beside(wanted.rank, samples);
            } else if !wanted.matched && matches!(item.role, Role::Kept { .. }) {
                let samples = self.datasets[job.dataset as usize].catalog.len();
                job.order.look(session, items.iter().map(|item| item.id), samples);
                grant.remark = job.notice_order(wanted.rank);
            }
        }
        if let Some(book) = self.sessions.get_mut(&session) {
            book.leases.insert(lease);
            book.reads = true;
            // Most neighbours share a segment.
            let mut last = None;
            for entry in &grant.entries {
                if last != Some(entry.segment) && book.known.insert(entry.segment) {
                    let (descriptor, length) = self.arena.descriptor(entry.segment).ok_or_else(|| {
                        Error::internal(format!("segment {} holds a sample and is gone", entry.segment))
                    })?;
                    grant.segments.push(NewSegment { segment: entry.segment, length, descriptor });
                }
                last = Some(entry.segment);
            }
            grant.dropped = std::mem::take(&mut book.dropped);
        }
        if self.jobs.get(&serial).is_some_and(|job| job.press.is_some()) {
            let passing: Vec<(Id, u32)> = items.iter().map(|item| (item.id, item.object)).collect();
            self.pass(serial, &passing);
        }
        self.leases.insert(lease, (session, objects));
        Ok(grant)
    }

    fn count(&mut self, serial: u64, item: &Item, length: u64) {
        let Some(job) = self.jobs.get_mut(&serial) else { return };
        match item.role {
            Role::Planned { epoch, slot, before, generation } => {
                job.window -= if before == Stage::Waiting { length.min(job.window) } else { 0 };
                job.beside.along += 1;
                if job.schedule(epoch, generation).is_some() {
                    job.run.serve(epoch, slot);
                }
            }
            Role::Kept { hit } | Role::Unplanned { hit } => {
                let outcome = if hit { Outcome::Hit } else { Outcome::Single };
                let serving = Serving { id: item.id, outcome, first: false, substituted: false };
                job.run.tally_mut().served(None, serving);
            }
            Role::Reevaluated => {}
        }
    }

    /// Ends leases of a session; those it does not have are passed over.
    pub(crate) fn release(&mut self, session: u64, leases: &[u64]) {
        for lease in leases {
            let owned = self.sessions.get_mut(&session).is_some_and(|book| book.leases.remove(lease));
            let Some((_, objects)) = owned.then(|| self.leases.remove(lease)).flatten() else { continue };
            for key in objects {
                if let Some(object) = self.objects.get_mut(key as usize) {
                    object.leases -= 1;
                    self.settle(key);
                    self.unspill(key);
                }
            }
        }
    }
}

impl Item {
    /// The epoch its serving is counted in.
    pub(crate) fn epoch(&self) -> Option<u64> {
        match self.role {
            Role::Planned { epoch, .. } => Some(epoch),
            Role::Kept { .. } | Role::Unplanned { .. } | Role::Reevaluated => None,
        }
    }
}
