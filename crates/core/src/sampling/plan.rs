//! A plan: the ids of one epoch, cut over ranks.
//!
//! The global order is the one the cache is asked in. Rank r's j-th slot is global slot `j * world + r`, so
//! that all ranks together walk the plan from its beginning to its end, their parts are disjoint and of equal
//! length, and a run that resumes in the middle skips the same share of every part.
//!
//! A remainder smaller than the number of ranks is left out, for the next plan's first places; or with `pad`
//! the plan's beginning is repeated until it comes out even, as torch's `DistributedSampler` does.

use std::sync::Arc;

use crate::Id;
use crate::importance::Keys;
use crate::saved::{Reader, Writer};

/// What a saved plan is told by; another name where it is written otherwise, so that older ones are refused.
const SEAL: &str = "plan 2";

/// Something that happens before a slot is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// This package is read.
    Load(u32),
    /// The same, and what lies in it stays from now on.
    Keep(u32),
    /// This sample leaves the cache.
    Leave(Id),
}

impl Event {
    /// The package that is read, if one is.
    pub fn package(self) -> Option<u32> {
        match self {
            Self::Load(package) | Self::Keep(package) => Some(package),
            Self::Leave(_) => None,
        }
    }
}

/// What a strategy has drawn, before it is cut over ranks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Drawn {
    /// Every slot's id.
    pub ids: Vec<Id>,
    /// Every slot's weight in the loss; empty where all are 1.
    pub weights: Vec<f32>,
    /// Whether each slot serves another id than the one selected for it; empty where none does.
    pub substituted: Vec<bool>,
    /// What happens before which slot, in the order of slots.
    pub events: Vec<(u32, Event)>,
    /// The keys that it was drawn from and is decided with.
    pub keys: Option<Arc<Keys>>,
    /// Slots whose selected id is an H-sample.
    pub selected_high: u64,
    /// Ids that were selected and are not served.
    pub unserved: Vec<Id>,
    /// Whether residents stay while it is decided, with a policy that has a static phase.
    pub still: bool,
}

impl From<Vec<Id>> for Drawn {
    fn from(ids: Vec<Id>) -> Self {
        Self { ids, ..Self::default() }
    }
}

/// The ids of one epoch in the order they are served.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    epoch: u64,
    world: u32,
    ids: Vec<Id>,
    left_out: Vec<Id>,
    padded: usize,
    silent: bool,
    still: bool,
    /// Of every slot, and then of those that were left out; empty where all are 1.
    weights: Vec<f32>,
    substituted: Vec<bool>,
    events: Vec<(u32, Event)>,
    keys: Option<Arc<Keys>>,
    selected_high: u64,
    unserved: Vec<Id>,
}

impl Plan {
    /// Cuts what was drawn over `world` ranks; a world of 0 is one of 1. With `pad` there are at least
    /// `world` slots unless nothing was drawn, so a caller bounds `world` first.
    pub fn cut(epoch: u64, world: u32, pad: bool, drawn: impl Into<Drawn>) -> Self {
        let world = world.max(1);
        let Drawn { ids, mut weights, mut substituted, mut events, keys, selected_high, unserved, still } =
            drawn.into();
        let (mut ids, mut left_out, mut padded) = (ids, Vec::new(), 0);
        let remainder = ids.len() % world as usize;
        if pad && remainder > 0 {
            let drawn = ids.len();
            padded = world as usize - remainder;
            ids.reserve_exact(padded);
            for slot in 0..padded {
                ids.push(ids[slot % drawn]);
                if let Some(&weight) = weights.get(slot % drawn) {
                    weights.push(weight);
                }
            }
        } else {
            left_out = ids.split_off(ids.len() - remainder);
        }
        weights.truncate(ids.len() + left_out.len());
        if !substituted.is_empty() {
            substituted.resize(ids.len(), false);
        }
        events.retain(|&(slot, _)| (slot as usize) < ids.len());
        Self {
            epoch,
            world,
            ids,
            left_out,
            padded,
            silent: false,
            still,
            weights,
            substituted,
            events,
            keys,
            selected_high,
            unserved,
        }
    }

    /// The same order cut over another number of ranks. What is left out at the end may differ.
    #[must_use]
    pub fn recut(&self, world: u32) -> Self {
        let kept = self.ids.len() - self.padded;
        let mut ids = self.ids[..kept].to_vec();
        ids.extend_from_slice(&self.left_out);
        let mut weights = self.weights.clone();
        if !weights.is_empty() {
            weights.drain(kept..self.ids.len());
        }
        let drawn = Drawn {
            weights,
            still: self.still,
            substituted: self.substituted[..kept.min(self.substituted.len())].to_vec(),
            events: self.events.clone(),
            keys: self.keys.clone(),
            selected_high: self.selected_high,
            unserved: self.unserved.clone(),
            ids,
        };
        let plan = Self::cut(self.epoch, world, self.padded > 0 || self.silent, drawn);
        Self { silent: self.silent, ..plan }
    }

    /// What it was cut from, as far as it is served.
    pub fn into_drawn(self) -> Drawn {
        let Self { ids, mut weights, substituted, events, keys, selected_high, unserved, still, .. } = self;
        weights.truncate(ids.len());
        Drawn { ids, weights, substituted, events, keys, selected_high, unserved, still }
    }

    /// The same plan with its first slots exchanged: each serves what slot `from` of its place did. What belongs to a sample
    /// goes with it; events stay with their slots.
    #[must_use]
    pub(crate) fn exchanged(mut self, from: &[u32]) -> Self {
        fn take<T: Copy>(all: &mut [T], from: &[u32]) {
            let taken: Vec<T> = from.iter().filter_map(|&slot| all.get(slot as usize).copied()).collect();
            if let Some(first) = all.get_mut(..taken.len()) {
                first.copy_from_slice(&taken);
            }
        }
        take(&mut self.ids, from);
        take(&mut self.weights, from);
        take(&mut self.substituted, from);
        self
    }

    /// The same plan, whose padded slots have weight 0, are not reported and count for no coverage.
    #[must_use]
    pub fn with_silent_padding(mut self) -> Self {
        self.silent = true;
        self
    }

    /// All of it as bytes, for a catalog of `samples`. Scores that are `known` where it is restored, by id, are
    /// not written again.
    pub fn save(&self, samples: usize, known: &[f32]) -> Vec<u8> {
        let mut writer = Writer::new(samples);
        for number in [self.epoch, u64::from(self.world), self.padded as u64, self.selected_high] {
            writer.number(number);
        }
        for ids in [&self.ids, &self.left_out, &self.unserved] {
            writer.ids(ids.iter().copied());
        }
        let optional = [
            self.silent,
            self.still,
            !self.weights.is_empty(),
            !self.substituted.is_empty(),
            self.keys.is_some(),
        ];
        writer.bits(optional.into_iter());
        // Weights are few different numbers: each is written once, and then by its number.
        let mut different: Vec<u32> = self.weights.iter().map(|weight| weight.to_bits()).collect();
        different.sort_unstable();
        different.dedup();
        writer.number(different.len() as u64);
        different.iter().for_each(|&bits| writer.fixed(u64::from(bits), 4));
        for weight in &self.weights {
            writer.number(different.binary_search(&weight.to_bits()).unwrap_or_default() as u64);
        }
        writer.bits(self.substituted.iter().copied());
        writer.number(self.events.len() as u64);
        for (slot, event) in &self.events {
            let (kind, of) = match event {
                Event::Load(package) => (0, package),
                Event::Leave(id) => (1, id),
                Event::Keep(package) => (2, package),
            };
            writer.number(u64::from(*slot));
            writer.number(u64::from(*of) << 2 | kind);
        }
        if let Some(keys) = &self.keys {
            keys.write(&mut writer, known);
        }
        writer.seal(SEAL)
    }

    /// What [`Self::save`] wrote for as many samples beside the same `known` scores; nothing if it cannot be that.
    pub fn restore(samples: usize, saved: &[u8], known: &[f32]) -> Option<Self> {
        let mut reader = Reader::open(saved, SEAL, samples)?;
        let (epoch, world) = (reader.number()?, u32::try_from(reader.number()?).ok()?);
        let (padded, selected_high) = (usize::try_from(reader.number()?).ok()?, reader.number()?);
        let (ids, left_out, unserved) = (reader.ids()?, reader.ids()?, reader.ids()?);
        let optional: Vec<bool> = reader.bits(5)?.collect();
        let [silent, still, weighted, substituted, keyed] = optional[..] else { return None };
        let mut different = Vec::new();
        for _ in 0..reader.number()? {
            different.push(f32::from_bits(reader.fixed(4)? as u32));
        }
        let mut weights = Vec::new();
        for _ in 0..if weighted { ids.len() + left_out.len() } else { 0 } {
            weights.push(*different.get(usize::try_from(reader.number()?).ok()?)?);
        }
        let substituted = reader.bits(if substituted { ids.len() } else { 0 })?.collect();
        let mut events = Vec::new();
        for _ in 0..reader.number()? {
            let (slot, event) = (u32::try_from(reader.number()?).ok()?, reader.number()?);
            let of = u32::try_from(event >> 2).ok()?;
            let event = match event & 3 {
                0 => Event::Load(of),
                1 => Event::Leave(of),
                2 => Event::Keep(of),
                _ => return None,
            };
            events.push((slot, event));
        }
        let keys = if keyed { Some(Arc::new(Keys::read(&mut reader, samples, known)?)) } else { None };
        reader.end()?;
        let whole = world > 0 && ids.len().is_multiple_of(world as usize) && padded <= ids.len();
        let leaving =
            |(_, event): &(u32, Event)| !matches!(event, Event::Leave(id) if *id as usize >= samples);
        let plan = Self {
            epoch,
            world,
            ids,
            left_out,
            padded,
            silent,
            still,
            weights,
            substituted,
            events,
            keys,
            selected_high,
            unserved,
        };
        (whole && plan.events.iter().all(leaving)).then_some(plan)
    }

    /// The weight of a slot in the loss.
    pub fn weight(&self, slot: usize) -> f32 {
        if self.is_silent(slot) { 0.0 } else { self.weights.get(slot).copied().unwrap_or(1.0) }
    }

    /// Whether residents stay while it is decided, with a policy that has a static phase.
    pub fn is_still(&self) -> bool {
        self.still
    }

    /// Whether any slot's weight differs from 1.
    pub fn is_weighted(&self) -> bool {
        !self.weights.is_empty() || (self.silent && self.padded > 0)
    }

    /// Whether a slot only makes ranks equal: weight 0, not reported, outside coverage.
    pub fn is_silent(&self, slot: usize) -> bool {
        self.silent && slot >= self.ids.len() - self.padded
    }

    /// Whether a slot serves another id than the one selected for it.
    pub fn is_substituted(&self, slot: usize) -> bool {
        self.substituted.get(slot).copied().unwrap_or(false)
    }

    /// What happens before which slot, in the order of slots.
    pub fn events(&self) -> &[(u32, Event)] {
        &self.events
    }

    /// The keys that it was drawn from and is decided with.
    pub fn keys(&self) -> Option<&Arc<Keys>> {
        self.keys.as_ref()
    }

    /// Ids that were selected and are not served, because others take their slots.
    pub fn unserved(&self) -> &[Id] {
        &self.unserved
    }

    /// Slots whose selected id is an H-sample.
    pub fn selected_high(&self) -> u64 {
        self.selected_high
    }

    /// A hash of its order and of how it is cut.
    pub fn digest(&self) -> u64 {
        let head = [self.epoch(), self.world().into(), self.events().len() as u64];
        let all = head.into_iter().chain(self.ids().iter().map(|&id| u64::from(id)));
        all.fold(0xcbf2_9ce4_8422_2325, |hash, word| (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3))
    }

    /// The [digest](super::order_digest) of the order that it was cut from, where that was given.
    pub fn order_digest(&self) -> u64 {
        let mut order = Vec::with_capacity(self.ids.len() + self.left_out.len());
        order.extend_from_slice(&self.ids[..self.ids.len() - self.padded]);
        order.extend_from_slice(&self.left_out);
        super::order_digest(order.into_iter())
    }

    /// The epoch it is for.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The number of ranks it is cut over, at least 1.
    pub fn world(&self) -> u32 {
        self.world
    }

    /// Every slot's id, in global order; the padded ones are the last.
    pub fn ids(&self) -> &[Id] {
        &self.ids
    }

    /// How many slots there are over all ranks.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Drawn ids that no rank is served; the next plan serves them first.
    pub fn left_out(&self) -> &[Id] {
        &self.left_out
    }

    /// How many slots, the last ones, repeat the beginning so that ranks are equal.
    pub fn padded(&self) -> usize {
        self.padded
    }

    /// The slots of each rank, the same for all.
    pub fn rank_len(&self) -> usize {
        self.ids.len() / self.world as usize
    }

    /// The ids that `rank` is served, in order; `.skip(start)` for a run that resumes. A rank beyond the
    /// world is served none.
    pub fn rank_ids(&self, rank: u32) -> impl ExactSizeIterator<Item = Id> + Clone {
        let first = if rank < self.world { rank as usize } else { self.ids.len() };
        self.ids.get(first..).unwrap_or_default().iter().step_by(self.world as usize).copied()
    }

    /// The global slot of `rank`'s `position`-th.
    pub fn slot(&self, rank: u32, position: usize) -> usize {
        position * self.world as usize + rank as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(plan: &Plan) -> Vec<Vec<Id>> {
        (0..plan.world()).map(|rank| plan.rank_ids(rank).collect()).collect()
    }

    #[test]
    fn ranks_take_turns_and_the_remainder_is_left_out() {
        let plan = Plan::cut(0, 3, false, vec![10, 11, 12, 13, 14, 15, 16, 17]);
        assert_eq!(parts(&plan), [[10, 13], [11, 14], [12, 15]]);
        assert_eq!((plan.left_out(), plan.padded(), plan.rank_len()), (&[16, 17][..], 0, 2));
    }

    #[test]
    fn padding_repeats_the_beginning_as_distributed_sampler_does() {
        let plan = Plan::cut(0, 3, true, vec![10, 11, 12, 13, 14, 15, 16]);
        assert_eq!(parts(&plan), [[10, 13, 16], [11, 14, 10], [12, 15, 11]]);
        assert_eq!((plan.left_out(), plan.padded(), plan.rank_len()), (&[][..], 2, 3));
    }

    #[test]
    fn fewer_samples_than_ranks_are_left_out_or_repeated_as_often_as_needed() {
        let bare = Plan::cut(0, 5, false, vec![7, 8]);
        assert_eq!((bare.rank_len(), bare.left_out(), bare.is_empty()), (0, &[7, 8][..], true));
        assert_eq!(bare.rank_ids(4).len(), 0);
        let padded = Plan::cut(0, 5, true, vec![7, 8]);
        assert_eq!(padded.ids(), [7, 8, 7, 8, 7]);
        assert_eq!((padded.rank_len(), padded.padded()), (1, 3));
    }

    #[test]
    fn nothing_drawn_is_nothing_served() {
        for pad in [false, true] {
            let plan = Plan::cut(4, 8, pad, Vec::<Id>::new());
            assert_eq!((plan.len(), plan.rank_len(), plan.padded()), (0, 0, 0));
            assert_eq!((plan.epoch(), plan.world()), (4, 8));
        }
        assert_eq!(Plan::cut(0, 0, false, vec![3]).rank_ids(0).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn what_was_saved_is_the_same_plan() {
        use crate::importance::Ranking;
        let values = vec![1.0, f32::NAN, 0.5, 2.0, 0.0];
        let keys = Keys::new(values.clone(), &Ranking::of(&values, 0, 0), &vec![10u64; 5], 20);
        let drawn = Drawn {
            ids: vec![3, 1, 4, 0, 3, 2, 1],
            weights: vec![1.0, 2.0, 0.0, 1.0, 1.0, 2.0, 1.0],
            substituted: vec![false, true, false, false, true, false, false],
            events: vec![(0, Event::Load(7)), (3, Event::Leave(4))],
            keys: Some(Arc::new(keys)),
            selected_high: 2,
            unserved: vec![2],
            still: true,
        };
        let uneven = Plan::cut(9, 3, false, drawn.clone());
        assert_eq!(uneven.left_out(), [1]);
        assert_eq!(Plan::restore(5, &uneven.save(5, &[]), &[]), Some(uneven), "with the weights of all");
        let plan = Plan::cut(9, 2, true, drawn).with_silent_padding();
        let saved = plan.save(5, &[]);
        assert_eq!(Plan::restore(5, &saved, &[]).as_ref(), Some(&plan));
        for cut in 0..saved.len() {
            assert_eq!(Plan::restore(5, &saved[..cut], &[]), None);
        }
        assert_eq!(Plan::restore(6, &saved, &[]), None, "another dataset's");
        let known = [1.0, f32::NAN, 0.75, 2.0, 0.0];
        let beside = plan.save(5, &known);
        assert!(beside.len() + 16 == saved.len(), "four of five scores are known");
        assert_eq!(Plan::restore(5, &beside, &known), Some(plan));
        let plain = Plan::cut(0, 1, false, vec![1, 0]);
        assert_eq!(Plan::restore(2, &plain.save(2, &[]), &[]), Some(plain));
    }

    #[test]
    fn cut_again_the_order_stays() {
        let weights: Vec<f32> = (0..11).map(|slot| slot as f32).collect();
        let drawn = Drawn { ids: (0..11).collect(), weights, ..Drawn::default() };
        let plan = Plan::cut(3, 4, false, drawn.clone());
        let again = plan.recut(3);
        assert_eq!(again.ids(), (0..9).collect::<Vec<Id>>());
        assert_eq!((again.left_out(), again.world(), again.weight(8)), (&[9, 10][..], 3, 8.0));
        let all = again.recut(11);
        assert_eq!((0..11).map(|slot| all.weight(slot)).collect::<Vec<_>>(), drawn.weights, "as planned");
        let padded = Plan::cut(0, 4, true, drawn).recut(3);
        assert_eq!((padded.len(), padded.padded()), (12, 1));
        assert_eq!(
            (padded.weight(10), padded.weight(11)),
            (10.0, 0.0),
            "as planned, and as the first slot's"
        );
    }

    #[test]
    fn a_slot_is_where_the_rank_finds_its_id() {
        let plan = Plan::cut(0, 4, true, (100..122).collect::<Vec<Id>>());
        for rank in 0..4 {
            for (position, id) in plan.rank_ids(rank).enumerate() {
                assert_eq!(plan.ids()[plan.slot(rank, position)], id);
            }
        }
        assert_eq!(plan.rank_ids(4).len(), 0, "a rank beyond the world is served nothing");
    }
}
