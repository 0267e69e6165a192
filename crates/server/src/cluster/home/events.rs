//! What has happened to a job, numbered from 1, for the nodes that follow it. A bounded number is kept.

use std::collections::VecDeque;

use hotset_wire::nodes::{Event, event};

/// The most events that are kept, and the most scores in them.
pub(super) const EVENTS: usize = 4096;
const SCORES: usize = 4 << 20;

/// The last events.
#[derive(Default)]
pub(super) struct Events {
    kept: VecDeque<Event>,
    last: u64,
    /// The scores in those that are kept.
    scores: usize,
}

impl Events {
    /// Something has happened.
    pub(super) fn push(&mut self, kind: event::Kind) {
        self.scores += scores(&kind);
        self.last += 1;
        self.kept.push_back(Event { kind: Some(kind) });
        while self.kept.len() > EVENTS || self.scores > SCORES {
            let Some(event) = self.kept.pop_front() else { return };
            self.scores -= event.kind.as_ref().map_or(0, scores);
        }
    }

    /// The number of the last one.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Those after one; `None` where some of them are not kept, or that one has not happened.
    pub(super) fn after(&self, number: u64) -> Option<Vec<Event>> {
        let first = self.last - self.kept.len() as u64;
        let known = number > 0 && (first..=self.last).contains(&number);
        known.then(|| self.kept.iter().skip((number - first) as usize).cloned().collect())
    }
}

fn scores(kind: &event::Kind) -> usize {
    match kind {
        event::Kind::Reported(report) => report.ids.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotset_wire::nodes::Planned;
    use hotset_wire::proto::Report;

    #[test]
    fn a_bounded_number_of_events_and_of_scores_is_kept() {
        let mut events = Events::default();
        assert_eq!((events.last(), events.after(0), events.after(1)), (0, None, None));
        let planned = |epoch| event::Kind::Planned(Planned { epoch, digest: epoch });
        (0..EVENTS as u64 + 2).for_each(|epoch| events.push(planned(epoch)));
        assert_eq!(events.after(1), None, "the second is gone");
        assert_eq!(events.after(2).map(|all| all.len()), Some(EVENTS));
        assert_eq!(events.after(events.last()), Some(Vec::new()));
        let report = || event::Kind::Reported(Report { ids: vec![0; SCORES / 2], ..Report::default() });
        (0..3).for_each(|_| events.push(report()));
        let last = events.last();
        assert_eq!((events.after(last - 3), events.after(last - 2).map(|all| all.len())), (None, Some(2)));
        events.push(planned(0));
        assert_eq!(events.after(last - 2).map(|all| all.len()), Some(3), "what was counted is what is kept");
    }
}
