//! The state that a job goes on from, as bytes and back.

use super::codec::Encoder;
use super::decode::Decoder;
use crate::bits::Bits;
use crate::counters::Counters;
use crate::packages::Draft;
use crate::run::{PendingPackage, RunState, Saved, SavedPacking, SavedSchedule};
use crate::tally;

impl Encoder {
    pub(super) fn state(&mut self, state: &RunState) -> &mut Self {
        self.bytes(&state.policy).saved(&state.planner);
        self.each(&state.schedules, |to, schedule| {
            to.bytes(&schedule.plan).bytes(&schedule.states);
            to.option(schedule.package, |to, package| to.number(package));
            to.each(&schedule.packages, |to, package| to.number(*package));
            to.option(schedule.told, |to, told| to.number(told))
        });
        self.each(&state.begun, |to, (rank, epoch)| to.number(*rank).number(*epoch));
        let tally::Saved { epochs, unplanned, past, seen } = &state.counted;
        self.each(epochs, |to, (epoch, counters)| to.number(*epoch).named(counters));
        self.named(unplanned).named(past).bytes(&seen.to_bytes())
    }

    fn saved(&mut self, saved: &Saved) -> &mut Self {
        self.bytes(&saved.table).bytes(&saved.strategy).bytes(&saved.rest);
        self.option(saved.last.as_ref(), |to, (epoch, world, left_out)| {
            to.number(*epoch).number(*world).ids(left_out)
        });
        self.option(saved.closed, |to, epoch| to.number(epoch));
        let SavedPacking { pending, moved, packed, living } = &saved.packing;
        self.each(pending, |to, (number, pending)| {
            to.number(*number).number(pending.epoch).ids(&pending.draft.ids);
            to.flag(pending.draft.early).flag(pending.complete).flag(pending.written)
        });
        self.each(moved, |to, package| to.number(*package));
        self.option(*packed, |to, epoch| to.number(epoch));
        self.option(living.as_ref(), |to, living| to.each(living, |to, package| to.number(*package)))
    }

    /// Counters, those of the clock too, which go on as they were.
    fn named(&mut self, counters: &Counters) -> &mut Self {
        let named: Vec<_> = counters.named().collect();
        self.each(&named, |to, (name, value)| to.text(name).number(*value))
    }
}

impl Decoder<'_> {
    pub(super) fn state(&mut self) -> Option<RunState> {
        let (policy, planner) = (self.bytes()?, self.saved()?);
        let schedules = self.many(|from| {
            let (plan, states) = (from.bytes()?, from.bytes()?);
            let (package, packages) = (from.option(Self::number)?, from.many(Self::number)?);
            let told = from.option(Self::number)?;
            // Logs are not kept where plans lie over nodes.
            Some(SavedSchedule { plan, package, packages, states, told, layout: Vec::new() })
        })?;
        let begun = self.many(|from| Some((from.number()?, from.number()?)))?.into_iter().collect();
        let epochs = self.many(|from| Some((from.number()?, from.named()?)))?.into_iter().collect();
        let (unplanned, past) = (self.named()?, self.named()?);
        let counted = tally::Saved { epochs, unplanned, past, seen: Bits::from_bytes(&self.bytes()?) };
        Some(RunState { policy, planner, schedules, begun, counted })
    }

    fn saved(&mut self) -> Option<Saved> {
        let (table, strategy, rest) = (self.bytes()?, self.bytes()?, self.bytes()?);
        let last = self.option(|from| Some((from.number()?, from.number()?, from.ids()?)))?;
        let closed = self.option(Self::number)?;
        let pending = self.many(Self::pending)?.into_iter().collect();
        let moved = self.many(Self::number)?.into_iter().collect();
        let packed = self.option(Self::number)?;
        let living = self.option(|from| Some(from.many(Self::number)?.into_iter().collect()))?;
        let packing = SavedPacking { pending, moved, packed, living };
        Some(Saved { table, strategy, last, closed, packing, rest })
    }

    fn pending(&mut self) -> Option<(u32, PendingPackage)> {
        let (number, epoch, ids) = (self.number()?, self.number()?, self.ids()?);
        let draft = Draft { ids, early: self.flag()? };
        Some((number, PendingPackage { epoch, draft, complete: self.flag()?, written: self.flag()? }))
    }

    fn named(&mut self) -> Option<Counters> {
        let named = self.many(|from| Some((from.text()?, from.number::<u64>()?)))?;
        Some(Counters::of_named(named.iter().map(|(name, value)| (name.as_str(), *value))))
    }
}
