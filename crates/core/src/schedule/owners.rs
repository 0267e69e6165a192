//! What one node of a cluster has to do with a plan: which slots it decides, and which ranks are its own.

use std::sync::Arc;

use super::{Outcome, Schedule, Stage};
use crate::Id;
use crate::bits::Bits;
use crate::cluster::{Layout, Ownership};

/// What of a plan is this node's; all where it is alone.
#[derive(Default)]
pub(super) struct Share {
    /// Which slots it decides, and how many those are.
    ownership: Option<(Arc<Ownership>, usize)>,
    /// How the plan lies over nodes, on a server that is not alone.
    layout: Option<Arc<Layout>>,
    /// Slots that were given to other nodes, where there are any.
    given: Bits,
}

impl Share {
    pub(super) fn ownership(&self) -> Option<&Arc<Ownership>> {
        self.ownership.as_ref().map(|(ownership, _)| ownership)
    }

    /// Whether a slot was given to another node.
    pub(super) fn is_given(&self, slot: usize) -> bool {
        self.given.contains(slot as Id)
    }

    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        self.given.memory()
    }
}

impl Schedule {
    /// The same, on a node that decides only the slots whose samples it owns.
    #[must_use]
    pub fn with_ownership(mut self, ownership: Arc<Ownership>) -> Self {
        self.set_ownership(ownership);
        self
    }

    /// Lets this node decide only the slots whose samples it owns. It takes a step for each slot.
    pub fn set_ownership(&mut self, ownership: Arc<Ownership>) {
        let owned = self.plan.ids().iter().filter(|&&id| ownership.owns(id)).count();
        self.share.ownership = Some((ownership, owned));
    }

    /// Lets this node decide what it owns by the layout that its plan was made with, and knows the ranks of others.
    pub fn set_layout(&mut self, layout: Arc<Layout>) {
        if let Some(made) = layout.made() {
            self.packages = Some(made.clone());
        }
        let runs = self.packages.as_ref().map(|(packages, _)| packages);
        self.set_ownership(Arc::new(layout.ownership(runs)));
        for rank in 0..self.plan.world() {
            self.set_away(rank, !layout.is_own(rank));
        }
        self.share.layout = Some(layout);
    }

    /// The slots have the owners that they had `before` the plan was cut anew, and were given to other nodes as far as then.
    pub(super) fn take_share(&mut self, before: Share) {
        if let Some((ownership, _)) = before.ownership {
            self.set_ownership(ownership);
        }
        let slots = 0..self.plan.len() as u64;
        before.given.range(slots).for_each(|slot| self.note_given(slot as usize, true));
    }

    /// So many slots were trained before this node had the plan: those that are not decided are passed over. A rank that begins before
    /// that goes back to them.
    pub fn pass_trained(&mut self, trained: usize) {
        self.recut |= trained > 0;
        for slot in 0..trained.min(self.plan.len()) {
            if self.stages[slot] == Stage::Ahead {
                self.finish(slot, Stage::Left);
            }
        }
        (0..self.ranks.len()).for_each(|rank| self.pass_done(rank));
    }

    /// How its plan lies over nodes, on a server that is not alone.
    pub fn layout(&self) -> Option<&Arc<Layout>> {
        self.share.layout.as_ref()
    }

    /// Which slots this node decides, where it is not alone.
    pub fn ownership(&self) -> Option<&Arc<Ownership>> {
        self.share.ownership()
    }

    /// Whether this node decides a slot.
    pub fn owns(&self, slot: usize) -> bool {
        self.owns_sample(self.id(slot))
    }

    /// Whether this node owns a sample.
    pub fn owns_sample(&self, id: Id) -> bool {
        self.share.ownership().is_none_or(|ownership| ownership.owns(id))
    }

    /// How many slots this node decides.
    pub fn owned(&self) -> usize {
        self.share.ownership.as_ref().map_or(self.plan.len(), |(_, owned)| *owned)
    }

    /// Passes a decided slot that is neither this node's nor of one of its ranks.
    pub fn pass(&mut self, slot: usize) {
        debug_assert_eq!(self.outcomes[slot], Some(Outcome::Elsewhere));
        self.finish(slot, Stage::Left);
        self.pass_done(slot % self.ranks.len());
    }

    /// A slot is given to another node from now on, or to a rank of this one.
    pub fn note_given(&mut self, slot: usize, given: bool) {
        let all = &mut self.share.given;
        if given && all.memory() == 0 {
            *all = Bits::new(self.plan.len());
        }
        if given {
            all.insert(slot as Id);
        } else {
            all.remove(slot as Id);
        }
    }

    /// A slot that was served to a rank of another node is to be served once more, if it was.
    pub fn reopen(&mut self, slot: usize) {
        let rank = slot % self.ranks.len();
        self.stages[slot] = if slot < self.frontier() { Stage::Again } else { Stage::Ahead };
        self.positions.reopen(self.plan.ids()[slot], slot);
        let of = &mut self.ranks[rank];
        (of.served, of.oldest) =
            (of.served.saturating_sub(1), of.oldest.min(slot / self.plan.world() as usize));
    }

    /// A decided slot of a rank that is not heard of: what it needs is seen when it is asked for.
    pub fn see_later(&mut self, slot: usize) {
        debug_assert_eq!(self.stages[slot], Stage::Unread);
        self.stages[slot] = Stage::Again;
    }

    /// Whether the turn of a slot has come and another node decides it.
    pub(super) fn is_elsewhere(&self, slot: usize) -> bool {
        self.outcomes[slot] == Some(Outcome::Elsewhere)
    }
}
