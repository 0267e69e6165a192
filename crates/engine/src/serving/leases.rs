//! From held objects to a lease.
//!
//! When every object of a batch is whole, its holds become one lease, and its servings are counted. A lease ends when its
//! reader says so, or goes.

use hotset_core::Result;
use hotset_core::run::Outcome;
use hotset_core::schedule::Stage;
use hotset_core::tally::Serving;
use hotset_store::LabelKind;

use super::gather::Batch;
use crate::jobs::Job;
use crate::rooms::Rooms;
use crate::sessions::{Entry, Grant, Item, Role};

impl Job {
    /// Turns the holds of a whole batch into one lease, and counts its servings; so many of its objects came late.
    pub(crate) fn grant(
        &mut self,
        rooms: &mut Rooms,
        lease: u64,
        batch: &Batch,
        items: &[Item],
        late: usize,
    ) -> Result<Grant> {
        let objects: Vec<u32> = items.iter().map(|item| item.object).collect();
        let (segments, dropped) = rooms.lease(batch.client, lease, objects)?;
        let catalog = &self.dataset.catalog;
        let mut grant = Grant {
            lease,
            entries: Vec::with_capacity(items.len()),
            label_kind: catalog.label_kind(),
            labels: Vec::new(),
            label_lengths: Vec::new(),
            parts: Vec::new(),
            segments,
            dropped,
            remark: None,
        };
        let labelled = grant.label_kind != LabelKind::None;
        for item in items {
            let (segment, offset, length) = rooms.residency().place(item.object);
            grant.entries.push(Entry { segment, offset, length });
            if labelled {
                catalog.append_label(item.id, &mut grant.labels, &mut grant.label_lengths);
            }
            grant.parts.extend_from_slice(catalog.spans(item.id));
        }
        items.chunk_by(|one, next| one.plan() == next.plan()).for_each(|items| self.count(items, false));
        if let Some(first) = items.first() {
            self.run.tally_mut().late(first.epoch(), late as u64);
            grant.remark = self.notice(batch, items);
        }
        items.iter().filter_map(|item| item.original).for_each(|object| rooms.hold(object, false));
        self.lend_to_packing(rooms, items);
        Ok(grant)
    }

    /// What to tell a reader, of what was noticed of what it asks for.
    fn notice(&mut self, batch: &Batch, items: &[Item]) -> Option<String> {
        let samples = self.dataset.samples();
        if items.iter().any(|item| matches!(item.role, Role::Unplanned { .. })) {
            return self.notice_unplanned(batch.rank, items.len(), samples);
        }
        if batch.matched || !matches!(items.first()?.role, Role::Kept { .. }) {
            return None;
        }
        self.notices.asked(batch.client, items.iter().map(|item| item.id), samples);
        self.notice_order(batch.rank)
    }

    /// Counts the servings of samples, all of one plan or none of any, to a rank of this node or `given` to another.
    pub(super) fn count(&mut self, items: &[Item], given: bool) {
        let Some((epoch, generation)) = items.first().and_then(Item::plan) else {
            self.run.tally_mut().served(None, items.iter().filter_map(unplanned));
            return;
        };
        let waited = |item: &&Item| matches!(item.role, Role::Planned { before: Stage::Waiting, .. });
        let left = items.iter().filter(waited).map(|item| self.dataset.size(item.id)).sum();
        self.window.leave(left);
        self.notices.served_planned(items.len());
        if self.same_schedule(epoch, generation).is_some() {
            let slots = items.iter().filter_map(Item::slot);
            if given { self.run.give(epoch, slots) } else { self.run.serve(epoch, slots) }
        }
    }

    /// Leases those of a batch to packing that go into packages.
    pub(super) fn lend_to_packing(&mut self, rooms: &mut Rooms, items: &[Item]) {
        if let Some(queue) = self.packages.queue() {
            queue.pass(rooms, items.iter().map(|item| (item.id, item.object)));
        }
    }
}

/// What the serving of a sample counts as that no plan asks for; nothing for one that is re-evaluated.
fn unplanned(item: &Item) -> Option<Serving> {
    let (Role::Kept { hit } | Role::Unplanned { hit }) = item.role else { return None };
    let outcome = if hit { Outcome::Hit } else { Outcome::Single };
    Some(Serving { id: item.id, outcome, first: false, substituted: false, local: true })
}
