//! What happened to a cache, in the order in which it did.
//!
//! Plans, sizes and reports do not say when a job joined, which job's slot was asked first, or after which slot a policy
//! heard of a score: that is time. The log says it, and nothing else, so that a [replay](crate::run::Replay) from it
//! makes the same decisions. It is kept only while something takes it away.

use crate::Id;
use crate::sampling::Rates;

/// A job's number in its cache; never given twice.
pub type MemberId = u32;

/// What a plan is made from that neither reports nor the cache say.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Circumstances {
    /// How fast the epoch before was, if it was measured.
    pub rates: Option<Rates>,
    /// Where jobs are that share the cache: the sample that was served last to the one with most of its epoch before it.
    pub others_at: Option<Id>,
}

/// One thing that happened to a cache.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A job joined.
    Joined(MemberId),
    /// A job left.
    Left(MemberId),
    /// The capacity changed.
    Resized(u64),
    /// What a job gains from a cache was measured.
    Weighed {
        /// The job.
        member: MemberId,
        /// Its [benefit](crate::benefit).
        benefit: f64,
    },
    /// A job's plan was made, from what is kept then.
    Planned {
        /// The job.
        member: MemberId,
        /// The plan's epoch.
        epoch: u64,
        /// The ranks it was cut over.
        world: u32,
        /// What else it was made from that time decides.
        circumstances: Circumstances,
    },
    /// The next slots of a job's plans were decided.
    Decided {
        /// The job.
        member: MemberId,
        /// How many.
        slots: u64,
    },
    /// The policy heard of scores.
    Scored {
        /// The job.
        member: MemberId,
        /// They, as the policy takes them.
        scores: Vec<(Id, f32)>,
    },
    /// A job's state was written down: a server that goes on from it goes on here.
    Saved(MemberId),
    /// Samples were kept to be re-evaluated before an epoch.
    Pinned {
        /// The job.
        member: MemberId,
        /// The epoch.
        epoch: u64,
        /// The samples.
        ids: Vec<Id>,
    },
    /// Samples were looked up to be re-evaluated before an epoch.
    LookedUp {
        /// The job.
        member: MemberId,
        /// The epoch.
        epoch: u64,
        /// The samples.
        ids: Vec<Id>,
    },
}

/// A log that grows until it is taken.
#[derive(Debug, Default)]
pub(super) struct Log {
    events: Vec<Event>,
}

impl Log {
    pub(super) fn push(&mut self, event: Event) {
        // Slots of one job that follow each other are one event.
        if let (Event::Decided { member, slots }, Some(Event::Decided { member: last, slots: sum })) =
            (&event, self.events.last_mut())
            && member == last
        {
            *sum += slots;
            return;
        }
        self.events.push(event);
    }

    pub(super) fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }
}
