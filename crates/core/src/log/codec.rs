//! Events as bytes: what a log's file holds of each.
//!
//! A number that says which event it is, then its fields in order. Numbers are short where they are small; of ids the
//! distance from the one before is written, so that a batch in order takes a byte a sample. A checksum comes last, so that
//! what is damaged or cut short is told from what is whole. What is written here is read by `decode`; an event that changes
//! gets another number.

use super::setup::{Opening, Settings, Setup, SetupPackages};
use super::{Before, Event, Slots, Step};
use crate::Id;
use crate::counters::{Counters, PlanCounters};
use crate::importance::Report;
use crate::saved::Writer;

/// The name in the checksum of an event.
pub(super) const OWNER: &str = "log";

/// The bytes of an event.
pub fn encode(event: &Event) -> Vec<u8> {
    let mut to = Encoder(Writer::new(0));
    to.event(event);
    to.0.seal(OWNER)
}

pub(super) struct Encoder(Writer);

impl Encoder {
    pub(super) fn number(&mut self, number: impl TryInto<u64>) -> &mut Self {
        self.0.number(number.try_into().unwrap_or(u64::MAX));
        self
    }

    fn float(&mut self, value: f32) -> &mut Self {
        self.0.fixed(value.to_bits().into(), 4);
        self
    }

    fn double(&mut self, value: f64) -> &mut Self {
        self.0.fixed(value.to_bits(), 8);
        self
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    pub(super) fn flag(&mut self, flag: bool) -> &mut Self {
        self.number(u64::from(flag))
    }

    pub(super) fn option<T>(
        &mut self,
        value: Option<T>,
        some: impl FnOnce(&mut Self, T) -> &mut Self,
    ) -> &mut Self {
        match value {
            Some(value) => some(self.flag(true), value),
            None => self.flag(false),
        }
    }

    /// How many there are, and each.
    pub(super) fn each<T: IntoIterator<IntoIter: ExactSizeIterator>>(
        &mut self,
        all: T,
        each: impl Fn(&mut Self, T::Item) -> &mut Self,
    ) -> &mut Self {
        let all = all.into_iter();
        self.number(all.len());
        all.for_each(|one| {
            each(self, one);
        });
        self
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.each(bytes, |to, byte| {
            to.0.fixed(u64::from(*byte), 1);
            to
        })
    }

    /// Ids, each as its distance from the one before.
    fn id(&mut self, last: &mut Id, id: Id) -> &mut Self {
        let distance = i64::from(id) - i64::from(std::mem::replace(last, id)) - 1;
        self.number((distance << 1 ^ distance >> 63) as u64)
    }

    pub(super) fn ids(&mut self, ids: &[Id]) -> &mut Self {
        self.number(ids.len());
        let mut last = 0;
        ids.iter().for_each(|&id| {
            self.id(&mut last, id);
        });
        self
    }

    fn scores(&mut self, scores: &[(Id, f32)]) -> &mut Self {
        self.number(scores.len());
        let mut last = 0;
        scores.iter().for_each(|&(id, score)| {
            self.id(&mut last, id).float(score);
        });
        self
    }

    fn settings(&mut self, settings: &Settings) -> &mut Self {
        self.each(settings, |to, (name, value)| to.text(name).text(value))
    }

    fn slots(&mut self, slots: Slots) -> &mut Self {
        self.number(slots.first).number(slots.step).number(slots.count)
    }

    /// Reports, most of which are of one epoch and whose steps follow one another.
    fn reports(&mut self, reports: &[Report]) {
        self.number(reports.len());
        let (mut last, mut epoch, mut step) = (0, 0, 0u32);
        for report in reports {
            let same = report.value.to_bits() == report.loss.to_bits();
            let follows = report.epoch == epoch && report.step == step.wrapping_add(1);
            self.number(u64::from(report.late) | u64::from(same) << 1 | u64::from(follows) << 2);
            if !follows {
                self.number(report.epoch).number(report.step);
            }
            (epoch, step) = (report.epoch, report.step);
            self.id(&mut last, report.id).float(report.loss);
            if !same {
                self.float(report.value);
            }
        }
    }

    fn counters(&mut self, counters: &PlanCounters) {
        let named: Vec<_> = Counters { plan: counters.clone(), ..Counters::default() }.named().collect();
        self.each(named, |to, (name, value)| to.text(name).number(value));
    }

    fn opening(&mut self, opening: &Opening) {
        self.text(&opening.dataset).text(&opening.policy).settings(&opening.settings);
        self.number(opening.capacity).number(opening.seed);
        let (sizes, together) = (&opening.sizes, opening.sizes.has_neighbours());
        self.number(sizes.len()).number(u64::from(together));
        for id in 0..sizes.len() as Id {
            self.number(sizes.size(id));
            if together {
                self.number(sizes.gap_after(id).map_or(0, |gap| gap + 1));
            }
        }
    }

    fn setup(&mut self, setup: &Setup) {
        self.text(&setup.job).text(&setup.strategy).settings(&setup.settings);
        self.number(setup.capacity).number(setup.seed).number(u64::from(setup.pad));
        self.option(setup.epochs, |to, epochs| to.number(epochs));
        match &setup.packages {
            None => {
                self.number(0u32);
            }
            Some(SetupPackages::Made { bytes, found, next }) => {
                self.number(1u32).number(*bytes).number(*next).number(found.len());
                found.iter().for_each(|(number, ids)| {
                    self.number(*number).ids(ids);
                });
            }
            Some(SetupPackages::Runs(runs)) => {
                self.number(2u32).number(runs.len());
                runs.iter().for_each(|&(first, count)| {
                    self.number(first).number(count);
                });
            }
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Ready => self.number(0u32),
            Step::Begun { rank, start } => self.number(1u32).number(rank).number(start),
            Step::BegunAgain { rank, start } => self.number(2u32).number(rank).number(start),
            Step::Entered => self.number(3u32),
            Step::Forgotten => self.number(4u32),
            Step::Closed { rank } => self.number(5u32).number(rank),
            Step::Abandoned { from } => self.number(6u32).number(from),
            Step::Overtaken { slot, margin } => self.number(7u32).number(slot).number(margin),
            Step::Recut { world } => self.number(8u32).number(world),
            Step::Removed => self.number(9u32),
            Step::Taken(slots) => self.number(10u32).slots(slots),
            Step::GivenBack(slots, before) => {
                let before = match before {
                    Before::Ahead => 0u32,
                    Before::Decided => 1,
                    Before::Again => 2,
                };
                self.number(11u32).slots(slots).number(before)
            }
            Step::Served(slots) => self.number(12u32).slots(slots),
            Step::WereServed(slots) => self.number(13u32).slots(slots),
            Step::Settled { slot, hit } => self.number(14u32).number(slot).number(u64::from(hit)),
        };
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::Opened(opening) => self.number(0u32).opening(opening),
            Event::Joined(member) => {
                self.number(1u32).number(*member);
            }
            Event::Made(member, setup) => self.number(2u32).number(*member).setup(setup),
            Event::Left(member) => {
                self.number(3u32).number(*member);
            }
            Event::Resized(capacity) => {
                self.number(4u32).number(*capacity);
            }
            Event::Weighed { member, benefit } => {
                self.number(5u32).number(*member).double(*benefit);
            }
            Event::Planned { member, epoch, world, circumstances } => {
                self.number(6u32).number(*member).number(*epoch).number(*world);
                self.option(circumstances.rates, |to, rates| to.double(rates.storage).double(rates.training));
                self.option(circumstances.others_at, |to, id| to.number(id));
            }
            Event::Told(member, told) => {
                let number = if told.order.is_some() { 25u32 } else { 7 };
                self.number(number).number(*member).scores(&told.reevaluated);
                self.option(told.accuracy, |to, accuracy| to.double(accuracy));
                if let Some(order) = &told.order {
                    self.ids(order);
                }
            }
            Event::Drawn { member, digest } => {
                self.number(8u32).number(*member);
                self.0.fixed(*digest, 8);
            }
            Event::Reported { member, reports } => self.number(9u32).number(*member).reports(reports),
            Event::Closed(member, epoch) => {
                self.number(10u32).number(*member).number(*epoch);
            }
            Event::Rewound(member, epoch) => {
                self.number(11u32).number(*member).number(*epoch);
            }
            Event::PackageLost(member, package) => {
                self.number(12u32).number(*member).number(*package);
            }
            Event::PackingStopped(member) => {
                self.number(13u32).number(*member);
            }
            Event::Decided { member, slots } => {
                self.number(14u32).number(*member).number(*slots);
            }
            Event::Passed(member) => {
                self.number(15u32).number(*member);
            }
            Event::Epoch { member, epoch, step } => {
                self.number(16u32).number(*member).number(*epoch).step(*step);
            }
            Event::RanksGone(member) => {
                self.number(17u32).number(*member);
            }
            Event::Scored { member, scores } => {
                self.number(18u32).number(*member).scores(scores);
            }
            Event::Saved(member) => {
                self.number(19u32).number(*member);
            }
            Event::Pinned { member, epoch, ids } => {
                self.number(20u32).number(*member).number(*epoch).ids(ids);
            }
            Event::LookedUp { member, epoch, ids } => {
                self.number(21u32).number(*member).number(*epoch).ids(ids);
            }
            Event::Counted(member, epochs) => {
                self.number(22u32).number(*member).number(epochs.len());
                epochs.iter().for_each(|(epoch, counters)| self.number(*epoch).counters(counters));
            }
            Event::Resumed { member, state, opened } => {
                self.number(24u32).number(*member).flag(*opened).state(state);
            }
            Event::End => {
                self.number(23u32);
            }
        }
    }
}
