//! Epochs of one length (`epoch_length`): draws follow one another over the edges of epochs.
//!
//! Some strategies draw fewer ids than there are samples, and how many is known only when the epoch is planned.
//! Learning-rate schedules and progress bars want the number of steps before the first. With `epoch_length` every
//! epoch has exactly so many slots a rank. What a strategy draws is one stream: an epoch takes the next slots of it,
//! begins with what is left of the draw before, and draws as often as it takes to fill up. What is left of its last
//! draw begins the next epoch.
//!
//! All draws of an epoch are made when it is planned, from the reports before its cut. So reports, re-evaluation,
//! accuracies, warm-up and `full_last` belong to the trainer's own epochs, a plan is the same for any number of
//! loader workers, and nothing has to be asked of the trainer in the middle of an epoch. The price is age: the last
//! slots of an epoch, and what the next one begins with, were drawn from losses of up to one epoch before.
//!
//! A sample may come twice in an epoch, from two draws; within a draw it does not, unless the strategy repeats.

use super::Drawn;
use crate::Id;
use crate::bits::Bits;
use crate::settings::{Domain, Parameter, Values};

/// The setting, which every strategy takes.
pub(super) const EPOCH_LENGTH: Parameter = Parameter {
    name: "epoch_length",
    default: "as drawn",
    domain: Domain::NumberOrAuto(1.0, u32::MAX as f64),
    summary: "slots of a rank in every epoch, or `auto` for its share of the samples; without it as many as are drawn",
};

/// One endless stream of draws, cut into epochs of one length.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DrawStream {
    /// Slots of a rank; none for its share of the samples.
    length: Option<u64>,
    /// What is left of the last draw.
    rest: Drawn,
}

impl DrawStream {
    /// What `values` ask for.
    pub fn of(values: &Values) -> Option<Self> {
        let text = values.text(EPOCH_LENGTH.name);
        (!text.is_empty()).then(|| Self {
            length: values.number(EPOCH_LENGTH.name).map(|length| length as u64),
            rest: Drawn::default(),
        })
    }

    /// The slots of an epoch, of all ranks together. Never none, unless there are no samples.
    pub fn slots(&self, samples: usize, world: u32) -> usize {
        let world = world.max(1) as usize;
        let share = (samples / world).max(usize::from(samples > 0));
        let length = self.length.map_or(share, |length| usize::try_from(length).unwrap_or(usize::MAX));
        length.saturating_mul(world)
    }

    /// What is left of the last draw.
    pub fn rest(&self) -> &Drawn {
        &self.rest
    }

    /// Begins the next epoch with `rest`.
    pub fn set_rest(&mut self, rest: Drawn) {
        self.rest = rest;
    }

    /// The next `slots` of the stream. `draw` makes the draw of that number in this epoch, and is told whether it
    /// begins the epoch. Packages that are not `alive` are no longer read for what is left of an earlier draw: its
    /// samples are read singly.
    pub fn next(
        &mut self,
        slots: usize,
        alive: impl Fn(u32) -> bool,
        mut draw: impl FnMut(u32, bool) -> Drawn,
    ) -> Drawn {
        let mut stream = std::mem::take(&mut self.rest);
        stream.events.retain(|(_, event)| event.package().is_none_or(&alive));
        for number in 0.. {
            if stream.ids.len() >= slots {
                break;
            }
            let drawn = draw(number, stream.ids.is_empty());
            if drawn.ids.is_empty() {
                break;
            }
            stream.append(drawn);
        }
        self.rest = stream.split_off(slots);
        stream.unserved = not_served(std::mem::take(&mut stream.unserved), &stream.ids);
        stream
    }
}

/// Which draw of a strategy that always draws `drawn` ids is under way where epoch `epoch` of `slots` begins, if the
/// epoch does not begin one: the epoch it is drawn in, its number there, and how many of its ids are left.
pub fn under_way(epoch: u64, slots: usize, drawn: usize) -> Option<(u64, u32, usize)> {
    let (slots, drawn) = (slots as u128, drawn as u128);
    if slots == 0 || drawn == 0 {
        return None;
    }
    let before = u128::from(epoch) * slots;
    let draws = before.div_ceil(drawn);
    let left = draws * drawn - before;
    let last = draws.checked_sub(1).filter(|_| left > 0)?;
    let of = last * drawn / slots;
    let first = (of * slots).div_ceil(drawn);
    Some((u64::try_from(of).ok()?, u32::try_from(last - first).ok()?, left as usize))
}

impl Drawn {
    /// Goes on with `other` after its last slot. What it is decided with is the newer.
    fn append(&mut self, other: Self) {
        let (before, after) = (self.ids.len(), self.ids.len() + other.ids.len());
        if !self.weights.is_empty() || !other.weights.is_empty() {
            self.weights.resize(before, 1.0);
            self.weights.extend(other.weights);
            self.weights.resize(after, 1.0);
        }
        if !self.substituted.is_empty() || !other.substituted.is_empty() {
            self.substituted.resize(before, false);
            self.substituted.extend(other.substituted);
            self.substituted.resize(after, false);
        }
        self.ids.extend(other.ids);
        self.events.extend(
            other.events.into_iter().map(|(slot, event)| (slot.saturating_add(before as u32), event)),
        );
        self.keys = other.keys.or(self.keys.take());
        self.selected_high += other.selected_high;
        self.unserved.extend(other.unserved);
        self.still = other.still;
    }

    /// Ends before slot `at`, and hands back what comes from there on, which is decided with the same keys. Slots
    /// selected high are divided in proportion, and those that were not served stay here.
    pub fn split_off(&mut self, at: usize) -> Self {
        let slots = self.ids.len();
        let at = at.min(slots);
        let high = (self.selected_high as u128 * (slots - at) as u128 / slots.max(1) as u128) as u64;
        self.selected_high -= high;
        let from = self.events.partition_point(|&(slot, _)| (slot as usize) < at);
        let later = self.events.split_off(from);
        Self {
            ids: self.ids.split_off(at),
            weights: self.weights.split_off(at.min(self.weights.len())),
            substituted: self.substituted.split_off(at.min(self.substituted.len())),
            events: later.into_iter().map(|(slot, event)| (slot - at as u32, event)).collect(),
            keys: if at < slots { self.keys.clone() } else { None },
            selected_high: high,
            unserved: Vec::new(),
            still: self.still,
        }
    }
}

/// `ids`, each once, without those that are `served`.
fn not_served(mut ids: Vec<Id>, served: &[Id]) -> Vec<Id> {
    let Some(&last) = ids.iter().max() else { return ids };
    let mut met = Bits::new(last as usize + 1);
    for &id in served.iter().filter(|id| **id <= last) {
        met.insert(id);
    }
    ids.retain(|&id| met.insert(id));
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::Event;

    fn stream(text: &str) -> DrawStream {
        let entry = crate::sampling::find("uniform").unwrap();
        DrawStream::of(&entry.values([("epoch_length", text)]).unwrap()).unwrap()
    }

    #[test]
    fn an_epoch_takes_the_next_slots_of_the_stream_whatever_draws_come_to() {
        let mut stream = stream("5");
        // Draws of 3, 4, 5, ... ids, numbered through.
        let (mut next, mut length) = (0, 3);
        let mut draws = Vec::new();
        let mut seen = Vec::new();
        for _ in 0..6 {
            let mut made = 0;
            let drawn = stream.next(
                5,
                |_| true,
                |number, first| {
                    assert_eq!(number, made);
                    made += 1;
                    draws.push(first);
                    let ids: Vec<Id> = (next..next + length).collect();
                    (next, length) = (next + length, length + 1);
                    Drawn::from(ids)
                },
            );
            assert_eq!(drawn.ids.len(), 5);
            seen.extend(drawn.ids);
        }
        assert_eq!(seen, (0..30).collect::<Vec<Id>>(), "nothing is lost and nothing comes twice");
        assert_eq!(stream.rest().ids, (30..next).collect::<Vec<Id>>());
        // Five draws are 25 ids: the first draw begins an epoch, and then the sixth does.
        assert_eq!(draws, [true, false, false, false, false, true]);
    }

    #[test]
    fn weights_events_and_marks_stay_with_their_slots() {
        let mut stream = stream("3");
        let with = Drawn {
            ids: vec![0, 1],
            weights: vec![2.0, 3.0],
            substituted: vec![true, false],
            events: vec![(0, Event::Load(7)), (1, Event::Leave(4))],
            selected_high: 2,
            ..Drawn::default()
        };
        let mut draws = vec![with.clone(), Drawn::from(vec![5]), with.clone(), with].into_iter().rev();
        let first = stream.next(3, |_| true, |_, _| draws.next().unwrap());
        assert_eq!((first.ids, first.weights), (vec![0, 1, 0], vec![2.0, 3.0, 2.0]));
        assert_eq!(first.events, [(0, Event::Load(7)), (1, Event::Leave(4)), (2, Event::Load(7))]);
        assert_eq!(stream.rest().events, [(0, Event::Leave(4))]);
        let second = stream.next(3, |_| true, |_, _| draws.next().unwrap());
        assert_eq!((second.ids, second.weights), (vec![1, 5, 0], vec![3.0, 1.0, 2.0]));
        assert_eq!(second.substituted, [false, false, true]);
        assert_eq!(second.events, [(0, Event::Leave(4)), (2, Event::Load(7))]);
    }

    #[test]
    fn packages_that_are_gone_are_not_read_for_what_is_left() {
        let mut stream = stream("1");
        let events = vec![(1, Event::Load(1)), (2, Event::Load(2))];
        stream.next(
            1,
            |_| true,
            |_, _| Drawn { ids: vec![0, 1, 2], events: events.clone(), ..Drawn::default() },
        );
        let next = stream.next(2, |package| package == 2, |_, _| Drawn::default());
        assert_eq!((next.ids, next.events), (vec![1, 2], vec![(1, Event::Load(2))]));
    }

    #[test]
    fn auto_is_a_ranks_share_of_the_samples() {
        assert_eq!((stream("auto").slots(10, 3), stream("4").slots(10, 3)), (9, 12));
        assert_eq!((stream("auto").slots(2, 3), stream("auto").slots(0, 1)), (3, 0));
    }

    #[test]
    fn what_is_under_way_is_told_without_the_epochs_before() {
        for (slots, drawn) in [(5, 3), (3, 5), (7, 7), (1, 4), (9, 2), (10, 4)] {
            let mut rest: Option<(u64, u32, usize)> = None;
            for epoch in 0..20 {
                assert_eq!(under_way(epoch, slots, drawn), rest, "epoch {epoch} of {slots} over {drawn}");
                let mut have = rest.map_or(0, |(_, _, left)| left);
                let mut number = 0;
                while have < slots {
                    have += drawn;
                    rest = Some((epoch, number, 0));
                    number += 1;
                }
                rest = rest.filter(|_| have > slots).map(|(of, number, _)| (of, number, have - slots));
            }
        }
    }
}
