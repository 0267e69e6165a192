//! What happened to a cache and to the jobs in it, in the order in which it did.
//!
//! Plans, sizes and reports do not say when a job joined, which job's slot was asked first, after which slot a policy heard
//! of a score, or what of an epoch was left: that is time. The cache, each job's run and its planner note whatever they
//! are told that changes what they decide or count, and hand it to one [`Recorder`]; [`Playback`] tells fresh ones the
//! same, so that they decide and count the same. What the live run counted is in the log too, for comparison. A
//! log is kept only while something takes it.

mod codec;
mod decode;
mod playback;
mod setup;
mod state;

use std::sync::{Arc, OnceLock};

pub use self::codec::encode;
pub use self::decode::decode;
pub use self::playback::{Compared, JobPlayback, Playback};
pub use self::setup::{Opening, Setup, SetupPackages};

use crate::Id;
use crate::counters::PlanCounters;
use crate::importance::Report;
use crate::run::RunState;
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

/// What a trainer told for a plan.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Told {
    /// Losses under the current model.
    pub reevaluated: Vec<(Id, f32)>,
    /// The accuracy after the epoch before.
    pub accuracy: Option<f64>,
    /// The order of the epoch.
    pub order: Option<Arc<[Id]>>,
}

/// Slots of a plan that are equally far apart, as those of a rank's batch are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    /// The first.
    pub first: usize,
    /// From one to the next.
    pub step: usize,
    /// How many.
    pub count: usize,
}

impl Slots {
    /// One slot.
    pub fn one(first: usize) -> Self {
        Self { first, step: 1, count: 1 }
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..self.count).map(move |number| self.first + number * self.step)
    }

    /// Takes in those of `next` that go on from here. False if they do not.
    fn extend(&mut self, next: Self) -> bool {
        let step = if self.count == 1 { next.first.wrapping_sub(self.first) } else { self.step };
        let follows = next.count == 1 && step > 0 && step < 1 << 32;
        let follows = follows && self.first + self.count * step == next.first;
        if follows {
            (self.step, self.count) = (step, self.count + 1);
        }
        follows
    }
}

/// How a slot stood before a reader took it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// It was not decided.
    Ahead,
    /// It was decided.
    Decided,
    /// It was served before its epoch was begun over.
    Again,
}

/// What happened to a plan under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It was put in: slots of it can be decided.
    Ready,
    /// A rank began it with so many of its slots trained before.
    Begun {
        /// The rank.
        rank: u32,
        /// Its slots that were trained.
        start: usize,
    },
    /// A rank began it over from there.
    BegunAgain {
        /// The rank.
        rank: u32,
        /// Where.
        start: usize,
    },
    /// Its slots were counted as planned.
    Entered,
    /// It was counted anew.
    Forgotten,
    /// A rank left it.
    Closed {
        /// The rank.
        rank: u32,
    },
    /// Its decided slots from there on were left.
    Abandoned {
        /// The first slot.
        from: usize,
    },
    /// Slots far behind one that was asked for were left.
    Overtaken {
        /// The one that was asked for.
        slot: usize,
        /// How far behind.
        margin: usize,
    },
    /// Its order was cut anew, for another number of ranks.
    Recut {
        /// The ranks.
        world: u32,
    },
    /// It was taken out.
    Removed,
    /// A reader took slots.
    Taken(Slots),
    /// A reader gave slots back.
    GivenBack(Slots, Before),
    /// Slots were served.
    Served(Slots),
    /// Slots that were left had been served before, to ranks that are gone.
    WereServed(Slots),
    /// A slot that was passed over was asked for: whether its bytes were there.
    Settled {
        /// The slot.
        slot: usize,
        /// Whether no read was made for it.
        hit: bool,
    },
}

/// One thing that happened to a cache or to a job in it.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The cache was opened.
    Opened(Arc<Opening>),
    /// A job joined.
    Joined(MemberId),
    /// How the job that has just joined was made.
    Made(MemberId, Arc<Setup>),
    /// The job that has just joined goes on from a state that was saved before.
    Resumed {
        /// The job.
        member: MemberId,
        /// The state.
        state: Arc<RunState>,
        /// Whether the cache was opened for it, and goes on from there too.
        opened: bool,
    },
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
    /// What was told for the plan that is made next.
    Told(MemberId, Arc<Told>),
    /// What the plan that was made last came to: a hash of its order.
    Drawn {
        /// The job.
        member: MemberId,
        /// The hash.
        digest: u64,
    },
    /// A planner took in reports.
    Reported {
        /// The job.
        member: MemberId,
        /// They, as the planner takes them.
        reports: Vec<Report>,
    },
    /// A planner heard that an epoch is over.
    Closed(MemberId, u64),
    /// A planner heard that training goes back to an epoch.
    Rewound(MemberId, u64),
    /// A planner heard that a package is lost.
    PackageLost(MemberId, u32),
    /// A planner heard that nothing is packed any more.
    PackingStopped(MemberId),
    /// The next slots of a job's plans were decided.
    Decided {
        /// The job.
        member: MemberId,
        /// How many.
        slots: u64,
    },
    /// Slots that need not be decided were passed over.
    Passed(MemberId),
    /// Something happened to a plan under way.
    Epoch {
        /// The job.
        member: MemberId,
        /// The plan's epoch.
        epoch: u64,
        /// What.
        step: Step,
    },
    /// The ranks that had begun a job's plans are gone.
    RanksGone(MemberId),
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
    /// What was counted of a job's epochs until here.
    Counted(MemberId, Vec<(u64, PlanCounters)>),
    /// The log ends here, whole.
    End,
}

impl Event {
    /// Takes in an event that goes on where this one ends. False if it does not.
    pub fn extend(&mut self, next: &Self) -> bool {
        match (self, next) {
            (Self::Decided { member, slots }, Self::Decided { member: of, slots: more }) if member == of => {
                *slots += more;
                true
            }
            (Self::Epoch { member, epoch, step }, Self::Epoch { member: of, epoch: other, step: next })
                if (&*member, &*epoch) == (of, other) =>
            {
                match (step, next) {
                    (Step::Taken(slots), Step::Taken(more))
                    | (Step::Served(slots), Step::Served(more))
                    | (Step::WereServed(slots), Step::WereServed(more)) => slots.extend(*more),
                    (Step::GivenBack(slots, before), Step::GivenBack(more, other)) => {
                        before == other && slots.extend(*more)
                    }
                    _ => false,
                }
            }
            _ => false,
        }
    }

    /// About how many bytes it takes in memory.
    pub fn memory(&self) -> usize {
        let more = match self {
            Self::Reported { reports, .. } => std::mem::size_of_val(&reports[..]),
            Self::Scored { scores, .. } => std::mem::size_of_val(&scores[..]),
            Self::Pinned { ids, .. } | Self::LookedUp { ids, .. } => std::mem::size_of_val(&ids[..]),
            Self::Resumed { state, .. } => state.policy.len() + state.planner.table.len(),
            Self::Told(_, told) => {
                let order = told.order.as_deref().unwrap_or_default();
                std::mem::size_of_val(&told.reevaluated[..]) + std::mem::size_of_val(order)
            }
            Self::Counted(_, epochs) => std::mem::size_of_val(&epochs[..]),
            _ => 0,
        };
        more + std::mem::size_of::<Self>()
    }
}

/// Takes a log as it grows. It is told with locks held: it must neither wait nor ask anything back.
pub trait Recorder: Send + Sync {
    /// Something happened.
    fn note(&self, event: Event);
}

/// The log of a cache, if one is kept.
#[derive(Clone, Default)]
pub(crate) struct CacheLog(Option<Arc<dyn Recorder>>);

impl CacheLog {
    pub(crate) fn new(recorder: Arc<dyn Recorder>) -> Self {
        Self(Some(recorder))
    }

    pub(crate) fn note(&self, event: impl FnOnce() -> Event) {
        if let Some(recorder) = &self.0 {
            recorder.note(event());
        }
    }
}

/// What a job's run and its planner note to the log of the cache, from when it has joined one that keeps a log.
#[derive(Clone, Default)]
pub struct JobLog(Arc<OnceLock<(MemberId, CacheLog)>>);

impl JobLog {
    /// The job has joined.
    pub(crate) fn join(&self, member: MemberId, log: &CacheLog) {
        if log.0.is_some() {
            // A job joins one cache in its life.
            let _ = self.0.set((member, log.clone()));
        }
    }

    /// Whether a log is kept.
    pub fn is_kept(&self) -> bool {
        self.0.get().is_some()
    }

    /// Notes what happened to a job.
    pub fn note(&self, event: impl FnOnce(MemberId) -> Event) {
        if let Some((member, log)) = self.0.get() {
            log.note(|| event(*member));
        }
    }

    pub(crate) fn step(&self, epoch: u64, step: impl FnOnce() -> Step) {
        self.note(|member| Event::Epoch { member, epoch, step: step() });
    }
}

#[cfg(test)]
mod tests;
