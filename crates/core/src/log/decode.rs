//! Events from their bytes.
//!
//! Whatever bytes come, an event comes out or nothing does: nothing is allocated for more than the bytes that are there.

use std::sync::Arc;

use super::codec::OWNER;
use super::setup::{Opening, Settings, Setup, SetupPackages};
use super::{Before, Circumstances, Event, Slots, Step, Told};
use crate::Id;
use crate::counters::{Counters, PlanCounters};
use crate::importance::Report;
use crate::policy::Sizes;
use crate::sampling::Rates;
use crate::saved::Reader;

/// The event of these bytes, if they are whole.
pub fn decode(bytes: &[u8]) -> Option<Event> {
    let mut from = Decoder { from: Reader::open(bytes, OWNER, 0)?, most: bytes.len() };
    let event = from.event()?;
    from.from.end()?;
    Some(event)
}

/// Samples as a log has them.
struct Listed {
    sizes: Vec<u64>,
    /// What lies between each sample and the next, where some lie side by side.
    gaps: Option<Vec<Option<u64>>>,
}

impl Sizes for Listed {
    fn len(&self) -> usize {
        self.sizes.len()
    }

    fn size(&self, id: Id) -> u64 {
        self.sizes[id as usize]
    }

    fn gap_after(&self, id: Id) -> Option<u64> {
        *self.gaps.as_ref()?.get(id as usize)?
    }

    fn has_neighbours(&self) -> bool {
        self.gaps.is_some()
    }
}

pub(super) struct Decoder<'a> {
    from: Reader<'a>,
    /// The bytes of the event: nothing in it is more.
    most: usize,
}

impl Decoder<'_> {
    pub(super) fn number<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(self.from.number()?).ok()
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        match self.from.number()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn float(&mut self) -> Option<f32> {
        Some(f32::from_bits(self.from.fixed(4)? as u32))
    }

    fn double(&mut self) -> Option<f64> {
        Some(f64::from_bits(self.from.fixed(8)?))
    }

    pub(super) fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?).ok()
    }

    pub(super) fn bytes(&mut self) -> Option<Vec<u8>> {
        self.many(|from| Some(from.from.fixed(1)? as u8))
    }

    pub(super) fn option<T>(&mut self, some: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.flag()? { some(self).map(Some) } else { Some(None) }
    }

    /// So many as a number before them says, each of which takes a byte at least.
    pub(super) fn many<T>(&mut self, mut each: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count: usize = self.number()?;
        (count <= self.most).then_some(())?;
        (0..count).map(|_| each(self)).collect()
    }

    fn id(&mut self, last: &mut Id) -> Option<Id> {
        let number = self.from.number()?;
        let distance = (number >> 1) as i64 ^ -((number & 1) as i64);
        *last = Id::try_from(i64::from(*last).checked_add(distance)?.checked_add(1)?).ok()?;
        Some(*last)
    }

    pub(super) fn ids(&mut self) -> Option<Vec<Id>> {
        let mut last = 0;
        self.many(|from| from.id(&mut last))
    }

    fn scores(&mut self) -> Option<Vec<(Id, f32)>> {
        let mut last = 0;
        self.many(|from| Some((from.id(&mut last)?, from.float()?)))
    }

    fn settings(&mut self) -> Option<Settings> {
        Some(self.many(|from| Some((from.text()?, from.text()?)))?.into_iter().collect())
    }

    fn slots(&mut self) -> Option<Slots> {
        let slots = Slots { first: self.number()?, step: self.number()?, count: self.number()? };
        let last = slots.count.checked_sub(1)?.checked_mul(slots.step)?.checked_add(slots.first)?;
        // A plan has no more slots than an id can number.
        (slots.step > 0 && u32::try_from(last).is_ok()).then_some(slots)
    }

    fn reports(&mut self) -> Option<Vec<Report>> {
        let (mut last, mut epoch, mut step) = (0, 0u32, 0u32);
        self.many(|from| {
            let flags = from.from.number()?;
            (epoch, step) = match flags & 4 {
                0 => (from.number()?, from.number()?),
                _ => (epoch, step.wrapping_add(1)),
            };
            let (id, loss) = (from.id(&mut last)?, from.float()?);
            let value = if flags & 2 > 0 { loss } else { from.float()? };
            Some(Report { id, value, loss, epoch, step, late: flags & 1 > 0 })
        })
    }

    fn counters(&mut self) -> Option<PlanCounters> {
        let named = self.many(|from| Some((from.text()?, from.number::<u64>()?)))?;
        Some(Counters::of_named(named.iter().map(|(name, value)| (name.as_str(), *value))).plan)
    }

    fn opening(&mut self) -> Option<Opening> {
        let (dataset, policy, settings) = (self.text()?, self.text()?, self.settings()?);
        let (capacity, seed) = (self.number()?, self.number()?);
        let (samples, together): (usize, bool) = (self.number()?, self.flag()?);
        (samples <= self.most).then_some(())?;
        let mut listed = Listed { sizes: Vec::with_capacity(samples), gaps: together.then(Vec::new) };
        for _ in 0..samples {
            listed.sizes.push(self.number()?);
            if let Some(gaps) = &mut listed.gaps {
                gaps.push(self.from.number()?.checked_sub(1));
            }
        }
        Some(Opening { dataset, sizes: Arc::new(listed), policy, settings, capacity, seed })
    }

    fn setup(&mut self) -> Option<Setup> {
        let (job, strategy, settings) = (self.text()?, self.text()?, self.settings()?);
        let (capacity, seed, pad) = (self.number()?, self.number()?, self.flag()?);
        let epochs = self.option(|from| from.number())?;
        let packages = match self.from.number()? {
            0 => None,
            1 => {
                let (bytes, next) = (self.number()?, self.number()?);
                let found = self.many(|from| Some((from.number()?, from.ids()?)))?;
                Some(SetupPackages::Made { bytes, found, next })
            }
            2 => Some(SetupPackages::Runs(self.many(|from| Some((from.number()?, from.number()?)))?)),
            _ => return None,
        };
        Some(Setup { job, strategy, settings, capacity, seed, epochs, pad, packages })
    }

    fn step(&mut self) -> Option<Step> {
        Some(match self.from.number()? {
            0 => Step::Ready,
            1 => Step::Begun { rank: self.number()?, start: self.number()? },
            2 => Step::BegunAgain { rank: self.number()?, start: self.number()? },
            3 => Step::Entered,
            4 => Step::Forgotten,
            5 => Step::Closed { rank: self.number()? },
            6 => Step::Abandoned { from: self.number()? },
            7 => Step::Overtaken { slot: self.number()?, margin: self.number()? },
            8 => Step::Recut { world: self.number()? },
            9 => Step::Removed,
            10 => Step::Taken(self.slots()?),
            11 => {
                let slots = self.slots()?;
                let before = match self.from.number()? {
                    0 => Before::Ahead,
                    1 => Before::Decided,
                    2 => Before::Again,
                    _ => return None,
                };
                Step::GivenBack(slots, before)
            }
            12 => Step::Served(self.slots()?),
            13 => Step::WereServed(self.slots()?),
            14 => Step::Settled { slot: self.number()?, hit: self.flag()? },
            _ => return None,
        })
    }

    fn event(&mut self) -> Option<Event> {
        let kind = self.from.number()?;
        Some(match kind {
            0 => Event::Opened(Arc::new(self.opening()?)),
            1 => Event::Joined(self.number()?),
            2 => Event::Made(self.number()?, Arc::new(self.setup()?)),
            3 => Event::Left(self.number()?),
            4 => Event::Resized(self.number()?),
            5 => Event::Weighed { member: self.number()?, benefit: self.double()? },
            6 => {
                let (member, epoch, world) = (self.number()?, self.number()?, self.number()?);
                let rates =
                    self.option(|from| Some(Rates { storage: from.double()?, training: from.double()? }))?;
                let circumstances = Circumstances { rates, others_at: self.option(|from| from.number())? };
                Event::Planned { member, epoch, world, circumstances }
            }
            7 | 25 => {
                let (member, reevaluated) = (self.number()?, self.scores()?);
                let accuracy = self.option(|from| from.double())?;
                let order = if kind == 25 { Some(self.ids()?.into()) } else { None };
                Event::Told(member, Arc::new(Told { reevaluated, accuracy, order }))
            }
            8 => Event::Drawn { member: self.number()?, digest: self.from.fixed(8)? },
            9 => Event::Reported { member: self.number()?, reports: self.reports()? },
            10 => Event::Closed(self.number()?, self.number()?),
            11 => Event::Rewound(self.number()?, self.number()?),
            12 => Event::PackageLost(self.number()?, self.number()?),
            13 => Event::PackingStopped(self.number()?),
            14 => Event::Decided { member: self.number()?, slots: self.number()? },
            15 => Event::Passed(self.number()?),
            16 => Event::Epoch { member: self.number()?, epoch: self.number()?, step: self.step()? },
            17 => Event::RanksGone(self.number()?),
            18 => Event::Scored { member: self.number()?, scores: self.scores()? },
            19 => Event::Saved(self.number()?),
            20 => Event::Pinned { member: self.number()?, epoch: self.number()?, ids: self.ids()? },
            21 => Event::LookedUp { member: self.number()?, epoch: self.number()?, ids: self.ids()? },
            22 => {
                let member = self.number()?;
                Event::Counted(member, self.many(|from| Some((from.number()?, from.counters()?)))?)
            }
            23 => Event::End,
            24 => {
                let (member, opened) = (self.number()?, self.flag()?);
                Event::Resumed { member, state: Arc::new(self.state()?), opened }
            }
            _ => return None,
        })
    }
}
