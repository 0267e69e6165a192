//! Answering other nodes.
//!
//! Slots are answered in the order in which they are asked for, some at a time: those that are taken together wait for each
//! other's bytes. When the deadline is over, what has come is given and the rest has no answer; whoever asked reads it from storage, and its slots are left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hotset_core::cluster::{Answer, AnswerKind, Wanted};
use hotset_core::{Error, Kind, Result};

use crate::engine::{Engine, LOOK_UP, Wait};
use crate::fetching;
use crate::read_on::ReadOn;
use crate::residency::View;
use crate::serving::{Known, TakenForNode};
use crate::sessions::Item;
use crate::state::State;
use crate::sync::{self, MutexGuard};

/// Slots, and bytes, that are taken together.
const SLOTS: usize = 256;
const BYTES: u64 = 4 << 20;
/// How long a plan is waited for that is asked about before it has come. It is on its way, or lost until its asker reads storage.
const PLAN_COMES: Duration = Duration::from_secs(1);
/// Slots decided in one hold of the lock.
const SLICE: usize = 4096;

/// What is handed out for a slot.
enum Bytes {
    /// They lie in the arena, and are leased.
    Leased(u32, View),
    /// They were copied out of a batch's own memory.
    Copied(Vec<u8>),
    /// They have not come.
    Missing,
}

impl Engine {
    /// Answers slots that another node asks for, in their order; `out` says whether more answers are wanted. Waits for bytes
    /// until the deadline; slots without an answer then have none.
    pub fn give(&self, wanted: &Wanted, deadline: Instant, out: &mut dyn FnMut(Answer<'_>) -> bool) {
        let refused = match self.await_plan(wanted, deadline) {
            Ok((serial, generation)) => {
                self.shared.lock().giving += 1;
                let given = self.give_slots((serial, generation), wanted, deadline, out);
                self.shared.lock().giving -= 1;
                drop(ReadOn { shared: Arc::clone(&self.shared), job: serial });
                if let Err(error) = given {
                    tracing::debug!(job = wanted.job, %error, "another node is not answered");
                }
                return;
            }
            Err(kind) => kind,
        };
        wanted.slots.iter().all(|_| out(Answer::without(refused)));
    }

    /// Waits for the plan of a question: its job and its generation, or what the answer is.
    fn await_plan(&self, wanted: &Wanted, deadline: Instant) -> std::result::Result<(u64, u64), AnswerKind> {
        let deadline = deadline.min(Instant::now() + PLAN_COMES);
        let mut state = self.shared.lock();
        loop {
            let Ok(job) = state.jobs.named(&wanted.job) else { return Err(AnswerKind::Unknown) };
            let left = deadline.saturating_duration_since(Instant::now());
            match job.knows(wanted) {
                Known::Plan(generation) => return Ok((job.serial, generation)),
                Known::Stale => return Err(AnswerKind::Stale),
                Known::Later if !left.is_zero() && !state.is_stopping() => {
                    let (back, _) = sync::wait(&self.shared.planned, state, LOOK_UP.min(left));
                    state = back;
                }
                Known::Later | Known::Unknown => return Err(AnswerKind::Unknown),
            }
        }
    }

    fn give_slots(
        &self,
        plan: (u64, u64),
        wanted: &Wanted,
        deadline: Instant,
        out: &mut dyn FnMut(Answer<'_>) -> bool,
    ) -> Result<()> {
        let mut slots: Vec<usize> = wanted.slots.iter().map(|&slot| slot as usize).collect();
        let mut slots = &mut slots[..];
        self.shared.lock().note_question(plan, wanted.epoch, slots)?;
        while !slots.is_empty() {
            let mut state = self.shared.lock();
            if Instant::now() >= deadline {
                return state.leave_asked(plan, wanted.epoch, slots);
            }
            let together = state.together(plan, wanted.epoch, slots)?;
            let (now, later) = slots.split_at_mut(together);
            slots = later;
            let (state, taken) = self.take_slots(state, plan, wanted.epoch, now)?;
            let items: Vec<Item> = taken.iter().filter_map(|taken| taken.item).collect();
            let state = self.await_items(state, &items, deadline);
            if !self.hand_out(state, (plan, wanted.epoch), (now, &taken), out)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Decides what comes before slots, and takes them.
    fn take_slots<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        (serial, generation): (u64, u64),
        epoch: u64,
        slots: &[usize],
    ) -> Result<(MutexGuard<'a, State>, Vec<TakenForNode>)> {
        loop {
            let transient = state.reserve() / 8 * 7;
            let State { jobs, rooms, .. } = &mut *state;
            let job = jobs.still(serial)?;
            job.same_schedule(epoch, generation).ok_or_else(|| gone(epoch))?;
            let owned: Vec<usize> =
                slots.iter().copied().filter(|&slot| job.may_be_asked(epoch, slot)).collect();
            // Before deciding: what they have left behind is not read.
            job.overtake_for_node(rooms, epoch, &owned)?;
            let span = owned.iter().copied().min().zip(owned.iter().copied().max());
            let decided =
                span.map(|span| job.decide_for_node(rooms, (epoch, span), transient, &mut { SLICE }));
            if !decided.unwrap_or(Ok(false))? {
                let taken = job.take_for_node(rooms, epoch, slots)?;
                fetching::wake(&self.shared, &mut state);
                return Ok((state, taken));
            }
            fetching::wake(&self.shared, &mut state);
            state = self.shared.give_way(state);
        }
    }

    /// Waits until what is held has come, or will not, or the deadline is over.
    fn await_items<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        items: &[Item],
        deadline: Instant,
    ) -> MutexGuard<'a, State> {
        loop {
            let missing = items.iter().map(|item| item.object);
            let missing: Vec<u32> =
                missing.filter(|&object| !state.rooms.residency().get(object).is_ready()).collect();
            if missing.is_empty() || Instant::now() >= deadline || state.is_stopping() {
                return state;
            }
            // One that fails ends the wait, and not that for the others.
            (state, _) = self.await_objects(state, &missing, &mut Wait::until(deadline, &mut || true));
        }
    }

    /// Hands out what has come; whether more is wanted. It counts as served when it is leased, as a batch does: whoever asked
    /// may be gone, or have the bytes and be in the next epoch before this one looks again.
    fn hand_out<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        (plan, epoch): ((u64, u64), u64),
        (slots, taken): (&[usize], &[TakenForNode]),
        out: &mut dyn FnMut(Answer<'_>) -> bool,
    ) -> Result<bool> {
        let bytes: Vec<Bytes> = taken.iter().map(|taken| state.bytes_of(taken.item.as_ref())).collect();
        let (mut given, mut kept, mut left) = (Vec::new(), Vec::new(), Vec::new());
        for ((&slot, taken), bytes) in slots.iter().zip(taken).zip(&bytes) {
            if matches!(bytes, Bytes::Missing) {
                kept.extend(taken.item);
                left.push(slot);
            } else {
                given.extend(taken.item);
            }
        }
        state.give_back(plan.0, &kept);
        let left = state.leave_asked(plan, epoch, &left);
        state.given(plan.0, &given);
        self.shared.room.notify_all();
        drop(state);
        let answered = taken.iter().zip(&bytes).take_while(|(taken, bytes)| {
            out(match (taken.item, bytes) {
                (None, _) => Answer::without(AnswerKind::Yours),
                (Some(_), Bytes::Leased(_, view)) => Answer::given(view.bytes(), taken.hit),
                (Some(_), Bytes::Copied(bytes)) => Answer::given(bytes, taken.hit),
                (Some(_), Bytes::Missing) => Answer::without(AnswerKind::Failed),
            })
        });
        let more = answered.count() == taken.len();
        let leased = |bytes| if let Bytes::Leased(object, _) = bytes { Some(object) } else { None };
        let leased: Vec<u32> = bytes.into_iter().filter_map(leased).collect();
        state = self.shared.lock();
        leased.into_iter().for_each(|object| state.rooms.end_lending(object));
        self.shared.room.notify_all();
        left.map(|()| more)
    }
}

impl State {
    /// How many of these slots of a plan are taken together.
    fn together(&self, (serial, generation): (u64, u64), epoch: u64, slots: &[usize]) -> Result<usize> {
        let job = self.jobs.get(serial).and_then(|job| Some((job, job.run.schedule(epoch)?)));
        let same = job.filter(|(_, schedule)| schedule.generation() == generation);
        let (job, schedule) = same.ok_or_else(|| gone(epoch))?;
        let mut bytes = 0;
        let fits = |&&slot: &&usize| {
            let inside = (slot < schedule.plan().len()).then(|| job.dataset.size(schedule.id(slot)));
            bytes += inside.unwrap_or_default();
            bytes <= BYTES
        };
        Ok(slots.iter().take(SLOTS).take_while(fits).count().max(1))
    }

    /// Notes how far the ranks are for which slots of a plan are asked.
    fn note_question(&mut self, (serial, generation): (u64, u64), epoch: u64, slots: &[usize]) -> Result<()> {
        let job = self.jobs.still(serial)?;
        job.same_schedule(epoch, generation).ok_or_else(|| gone(epoch))?;
        let allowed: Vec<usize> =
            slots.iter().copied().filter(|&slot| job.may_be_asked(epoch, slot)).collect();
        job.note_question(epoch, &allowed)
    }

    /// Slots of a plan were asked for and are not given any more.
    fn leave_asked(&mut self, (serial, generation): (u64, u64), epoch: u64, slots: &[usize]) -> Result<()> {
        let Self { jobs, rooms, .. } = self;
        let Some(job) = jobs.get_mut(serial) else { return Ok(()) };
        match job.same_schedule(epoch, generation).is_some() {
            true => job.leave_asked(rooms, epoch, slots),
            false => Ok(()),
        }
    }

    /// What is held for another node is served; the holds go.
    fn given(&mut self, serial: u64, items: &[Item]) {
        let Self { jobs, rooms, .. } = self;
        match jobs.get_mut(serial) {
            Some(job) => job.given(rooms, items),
            None => items.iter().for_each(|item| rooms.let_go(item)),
        }
    }

    /// The bytes of what is held for another node.
    fn bytes_of(&mut self, item: Option<&Item>) -> Bytes {
        let Some(object) = item.map(|item| item.object) else { return Bytes::Missing };
        if !self.rooms.residency().get(object).is_whole() {
            return Bytes::Missing;
        }
        if let Some(view) = self.rooms.lend(object) {
            return Bytes::Leased(object, view);
        }
        self.rooms.residency().copy(object).map_or(Bytes::Missing, Bytes::Copied)
    }
}

fn gone(epoch: u64) -> Error {
    Error::new(Kind::Lost, format!("epoch {epoch} is over here, or was planned anew"))
}

impl Wait<'_> {
    /// Until then, for what `alive` says is there.
    pub(crate) fn until(deadline: Instant, alive: &mut dyn FnMut() -> bool) -> Wait<'_> {
        let began = Instant::now();
        Wait::new(began, deadline.saturating_duration_since(began), alive)
    }
}
