//! Deciding the next slot in plan order: what server and simulator share, call for call.
//!
//! A policy hears of a slot in this order: that its plan begins, if it is the plan's first; the events that come
//! before it; then the slot itself. It may look at what is due in every plan under way.

use std::collections::BTreeMap;

use crate::Id;
use crate::policy::{Due, Future, Policy, Verdict};
use crate::sampling::Event;
use crate::schedule::{Outcome, Schedule};

/// The plans under way, by epoch.
pub type Schedules = BTreeMap<u64, Schedule>;

/// The next slot to decide, over all plans under way: its epoch, its number, what it serves.
pub(super) fn peek(schedules: &mut Schedules) -> Option<(u64, usize, Id)> {
    schedules
        .iter_mut()
        .find_map(|(&epoch, schedule)| schedule.next_undecided().map(|slot| (epoch, slot, schedule.id(slot))))
}

/// Asks the policy about a slot that [`peek`] gave. Packages that are read right before it are appended to `loads`, who
/// leaves to `evicted`. With a `future` the policy sees that instead of the plans under way.
pub(super) fn ask(
    policy: &mut dyn Policy,
    schedules: &mut Schedules,
    (epoch, slot, id): (u64, usize, Id),
    mut future: Option<&mut Future>,
    loads: &mut Vec<u32>,
    evicted: &mut Vec<Id>,
) -> Outcome {
    let schedule = &schedules[&epoch];
    if let (begin, false) = schedule.begins() {
        policy.begin(&begin);
    }
    let upcoming = Upcoming { schedules, epoch };
    let mut event = schedule.next_event();
    while let Some(happens) = schedule.event(event, slot) {
        event += 1;
        match happens {
            Event::Leave(id) => policy.leave(id, evicted),
            Event::Load(package) => {
                let members = schedule.packages().map_or(&[][..], |packages| packages.members(package));
                policy.load(members, &upcoming, evicted);
                loads.push(package);
            }
        }
    }
    let verdict = match &mut future {
        Some(future) => {
            let verdict = policy.access(id, *future, evicted);
            future.pass(id);
            verdict
        }
        None => policy.access(id, &upcoming, evicted),
    };
    if let Some(schedule) = schedules.get_mut(&epoch) {
        schedule.set_told(event);
    }
    match verdict {
        Verdict::Hit => Outcome::Hit,
        Verdict::Packed => Outcome::Packed,
        Verdict::Admitted | Verdict::Bypassed => Outcome::Single,
    }
}

/// What is due in the plans under way.
struct Upcoming<'a> {
    schedules: &'a Schedules,
    epoch: u64,
}

impl Due for Upcoming<'_> {
    fn next_due(&self, id: Id) -> Option<u64> {
        let mut before = 0;
        for (&epoch, schedule) in self.schedules.range(self.epoch..) {
            let frontier = if epoch == self.epoch { schedule.frontier() } else { 0 };
            let due = if epoch == self.epoch { schedule.due(id) } else { schedule.first_due(id) };
            if let Some(slot) = due {
                return Some(before + (slot - frontier) as u64);
            }
            before += (schedule.plan().len() - frontier) as u64;
        }
        None
    }

    fn due_in_epoch(&self, id: Id) -> bool {
        self.schedules.get(&self.epoch).is_some_and(|schedule| schedule.due(id).is_some())
    }
}
