//! Beginning and leaving epochs.
//!
//! A plan takes as long as its dataset is large, so it is made outside the lock ([`crate::planning`]): by
//! the request that begins an epoch which is not planned yet, and by a thread of its own for the epoch after, so that
//! prefetch crosses the epoch's edge. A trainer that begins an epoch leaves its others; a reader that joins one
//! after a restart changes nothing, except that epochs the server before had under way are closed behind it.

use std::sync::Arc;

use hotset_core::cluster::Layout;
use hotset_core::counters::WaitReason;
use hotset_core::sampling::Plan;
use hotset_core::{Error, Result};

use super::given::GivenOrder;
use super::job::Job;
use crate::benefits::divide_anew;
use crate::engine::{Engine, LOOK_UP};
use crate::planning::make;
use crate::read_on::read_ahead;
use crate::rooms::Rooms;
use crate::serving::{Buffers, MOST_RANKS};
use crate::state::State;
use crate::sync;

impl Engine {
    /// Begins an epoch for a rank: the plan, all ranks' parts in it. A trainer begins it over if its rank
    /// had begun it; a reader that joins enters it as it stands. A plan that needs what other ranks report waits
    /// for them, but not for long.
    pub fn begin_epoch(
        &self,
        job: &str,
        epoch: u64,
        (rank, world): (u32, u32),
        start: u64,
        join: bool,
    ) -> Result<Arc<Plan>> {
        self.begin(job, epoch, (rank, world), start, Joining { join, ..Joining::HERE })
    }

    /// The same for a rank that is on this node or on another.
    pub(crate) fn begin(
        &self,
        job: &str,
        epoch: u64,
        (rank, world): (u32, u32),
        start: u64,
        how: Joining,
    ) -> Result<Arc<Plan>> {
        let begun = self.begin_with(job, epoch, (rank, world), start, (how, None))?;
        begun.ok_or_else(|| Error::internal(format!("epoch {epoch} of job `{job}` was not begun")))
    }

    /// The same in the order that the rank has, where it has one; `None` where that order is wanted first.
    pub(super) fn begin_with(
        &self,
        job: &str,
        epoch: u64,
        (rank, world): (u32, u32),
        start: u64,
        (how, order): (Joining, Option<&GivenOrder>),
    ) -> Result<Option<Arc<Plan>>> {
        let join = how.join;
        check_rank(rank, world)?;
        check_epoch(epoch)?;
        let mut state = self.shared.lock();
        let asked = state.jobs.planned(job)?;
        let serial = asked.serial;
        if !join {
            asked.ask_for(epoch, rank);
            self.shared.planned.notify_all();
        }
        let mut waits = false;
        loop {
            let State { jobs, rooms, config, .. } = &mut *state;
            let asked = jobs.still(serial)?;
            if let Some(order) = order {
                asked.check_order(rooms, epoch, (rank, start), order)?;
            }
            if !asked.needs_plan(rooms, epoch, world, join)? {
                break;
            }
            // Counted where it is made.
            let follows = asked.nodes.role().is_follower();
            waits = !follows;
            // One that is only cut anew is made from nothing that could still come.
            let is_drawn = asked.run.schedule(epoch).is_some();
            let gathered = join || follows || is_drawn || asked.is_gathered(epoch, false);
            if !asked.ranks.is_planning() && (gathered || asked.ranks.begins_late(config.patience)) {
                if !gathered {
                    asked.run.tally_mut().overdue(epoch);
                    tracing::warn!(job, epoch, "planned without all ranks: one has not come or not reported");
                    asked.give_up_ranks(epoch);
                }
                if !asked.take_order(epoch, order)? {
                    return Ok(None);
                }
                asked.ranks.set_planning(Some(epoch));
                drop(state);
                state = make(&self.shared, serial, epoch, Some((world, start)))?;
                continue;
            }
            if state.is_stopping() {
                return Err(Error::unavailable("the server is stopping"));
            }
            let (back, _) = sync::wait(&self.shared.planned, state, LOOK_UP);
            state = back;
        }
        let State { jobs, rooms, .. } = &mut *state;
        let entered = jobs.still(serial)?;
        let plan = entered.enter(rooms, epoch, (rank, world), start, how)?;
        if waits {
            entered.run.tally_mut().waited_for(Some(epoch), WaitReason::Plan);
        }
        if rooms.caches_mut().set_gpus(serial, world) {
            divide_anew(&self.shared, &mut state);
        }
        read_ahead(&self.shared, state, serial)?;
        Ok(Some(plan))
    }
}

/// How a rank begins an epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Joining {
    /// As a reader that joins, which changes nothing.
    pub(crate) join: bool,
    /// On another node.
    pub(crate) away: bool,
}

impl Joining {
    /// As a trainer on this node.
    pub(crate) const HERE: Self = Self { join: false, away: false };
}

pub(crate) fn check_rank(rank: u32, world: u32) -> Result<()> {
    if world == 0 || world > MOST_RANKS || rank >= world {
        return Err(Error::invalid(format!(
            "rank {rank} of {world} is impossible: `rank` lies between 0 and `world` - 1, `world` between 1 \
             and {MOST_RANKS}"
        )));
    }
    Ok(())
}

pub(crate) fn check_epoch(epoch: u64) -> Result<()> {
    if epoch > hotset_core::id::LAST_EPOCH {
        return Err(Error::invalid(format!(
            "epoch {epoch} is too large: the last is {}",
            hotset_core::id::LAST_EPOCH
        )));
    }
    Ok(())
}

impl Job {
    /// A rank asks for an epoch, to begin it.
    fn ask_for(&mut self, epoch: u64, rank: u32) {
        self.ranks.arrive(rank, epoch);
        if self.ranks.go_back(rank, epoch)
            && let Some(planner) = &self.planner
        {
            planner.rewind(epoch);
            self.nodes.go_back();
        }
        self.ranks.want_to_begin();
    }

    /// Whether an epoch has no plan for this world yet. A plan for another world goes if no rank has begun it; if
    /// those that had are gone and a trainer comes with another number of ranks, its order is cut anew: over several nodes with
    /// their knowledge.
    fn needs_plan(&mut self, rooms: &mut Rooms, epoch: u64, world: u32, join: bool) -> Result<bool> {
        match self.run.schedule(epoch) {
            None => Ok(true),
            Some(schedule) if schedule.plan().world() == world => Ok(false),
            Some(schedule) if schedule.begun() && (join || !schedule.is_restored()) => {
                Err(Error::invalid(format!(
                    "epoch {epoch} of job `{}` was begun by {} ranks and now by one of {world}: use the same \
                     `world` in every rank",
                    self.name(),
                    schedule.plan().world()
                )))
            }
            Some(schedule) if schedule.begun() && schedule.layout().is_some() => Ok(true),
            Some(schedule) if schedule.begun() => {
                self.recut(rooms, epoch, world, None)?;
                Ok(false)
            }
            Some(_) => {
                self.drop_schedule(rooms, epoch)?;
                Ok(true)
            }
        }
    }

    /// Cuts the order of an epoch that others had begun over another number of ranks. Over several nodes the layout says where those
    /// are; what was asked of other nodes for the ranks before is let go of.
    pub(crate) fn recut(
        &mut self,
        rooms: &mut Rooms,
        epoch: u64,
        world: u32,
        layout: Option<Arc<Layout>>,
    ) -> Result<()> {
        let kept = self.schedule(epoch)?.plan().recut(world).len();
        let cut_off = self.run.abandon_from(epoch, kept);
        self.abandon(rooms, epoch, 0, &cut_off)?;
        self.pass_visitors(rooms, epoch, None)?;
        self.nodes.reach.forget(epoch);
        if let Some(plan) = self.run.recut(epoch, world) {
            self.ranks.note_cut(&plan);
        }
        if let Some(layout) = layout {
            self.nodes.planned(epoch);
            self.nodes.laid(&layout);
            self.schedule(epoch)?.set_layout(layout);
        }
        Ok(())
    }

    /// Enters a planned epoch: closes what the rank leaves behind.
    fn enter(
        &mut self,
        rooms: &mut Rooms,
        epoch: u64,
        (rank, world): (u32, u32),
        start: u64,
        Joining { join, away }: Joining,
    ) -> Result<Arc<Plan>> {
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        if !join {
            self.decide_trained(rooms, epoch, start)?;
        }
        let schedule = self.schedule(epoch)?;
        let plan = Arc::clone(schedule.plan());
        let (anew, is_recut) = (!schedule.begun() && !schedule.is_recut(), schedule.is_recut());
        let given = (0..plan.world()).map(|rank| schedule.served(rank) as u64).sum();
        let first = start.saturating_mul(plan.world() as usize);
        // What was passed because the rank was on another node is to be served here.
        let moved = schedule.layout().is_some() && schedule.is_away(rank) && !away;
        if schedule.layout().is_some() && schedule.is_away(rank) != away {
            schedule.set_away(rank, away);
            if away {
                self.pass_visitors(rooms, epoch, Some(rank))?;
            }
        }
        if !join && !away {
            self.nodes.visitors.begin(epoch, first);
        }
        if !join {
            self.nodes.reach.begin(epoch, rank, start.min(plan.rank_len()));
        }
        let mut left = Vec::new();
        let fresh = self.run.begin(epoch, rank, start, &mut left);
        let schedule = self.schedule(epoch)?;
        // One that is restored, or that others had begun, may have slots that were served and not trained, by any rank.
        let over = moved || is_recut || (!fresh && (schedule.served(rank) > 0 || start > 0));
        if !join && (over || schedule.is_restored()) {
            self.run.begin_again(epoch, rank, start, &mut left);
        }
        // A training that starts over counts its epochs over; what was read ahead for them stays counted, and what was given
        // to other nodes for ranks of which this one has not heard.
        let counted = self.run.tally().epochs().get(&epoch);
        if anew && counted.is_some_and(|counters| counters.served() > given) {
            self.forget(epoch);
        }
        self.ranks.begin((rank, world), epoch, join);
        self.run.enter(epoch);
        self.run.note_counts(epoch.saturating_sub(1));
        let others: Vec<u64> = self.run.schedules().keys().copied().filter(|&other| other != epoch).collect();
        self.abandon(rooms, epoch, 0, &left)?;
        for other in others {
            self.leave(rooms, other, epoch, (rank, world), join)?;
        }
        Ok(plan)
    }

    /// Decides the slots that another server has served before a trainer goes on at `start`, so that the policy stands
    /// where that server's stood. Only the first epoch after a restart pays this.
    fn decide_trained(&mut self, rooms: &mut Rooms, epoch: u64, start: usize) -> Result<()> {
        let schedule = self.schedule(epoch)?;
        if !schedule.is_restored() {
            return Ok(());
        }
        let trained = start.saturating_mul(schedule.plan().world() as usize);
        let mut buffers = Buffers::default();
        while let Some((of, block)) = self.run.next_block() {
            if of > epoch || (of == epoch && block.start >= trained) {
                break;
            }
            self.decide(rooms, false, &mut buffers)?;
        }
        Ok(())
    }

    /// What becomes of another epoch when a rank begins `epoch`. Earlier ones close for it, and so do later ones
    /// that it had begun: its training starts over. Later ones that no rank has begun were planned for a future
    /// that did not come, except the very next.
    fn leave(
        &mut self,
        rooms: &mut Rooms,
        other: u64,
        epoch: u64,
        (rank, world): (u32, u32),
        join: bool,
    ) -> Result<()> {
        let schedule = self.schedule(other)?;
        let restored = schedule.is_restored();
        if join && !(restored && other < epoch) {
            return Ok(());
        }
        if other > epoch && !schedule.begun_by(rank) {
            let outdated = !schedule.begun() && other != epoch + 1;
            return if outdated { self.drop_schedule(rooms, other) } else { Ok(()) };
        }
        // Ranks of another world will not come back to it.
        if !schedule.begun() || schedule.plan().world() != world {
            return self.drop_schedule(rooms, other);
        }
        if restored {
            // Its slots were served by the server before: their policy is asked, so that it stands where that
            // server's stood. Only the first epoch after a restart pays this.
            let mut buffers = Buffers::default();
            while self.run.next_block().is_some_and(|(epoch, _)| epoch == other) {
                self.decide(rooms, false, &mut buffers)?;
            }
        }
        let mut decided = Vec::new();
        let count = self.run.close(other, rank, &mut decided);
        let rest = if self.schedule(other)?.closed() { Some(self.run.abandon_from(other, 0)) } else { None };
        self.abandon(rooms, other, count, &decided)?;
        if let Some(rest) = rest {
            self.abandon(rooms, other, 0, &rest)?;
            self.remove_schedule(other);
        }
        Ok(())
    }

    /// Takes out a plan that serves nothing more; nothing passes of it any more that is packed.
    fn remove_schedule(&mut self, epoch: u64) {
        self.run.remove(epoch);
        self.nodes.reach.forget(epoch);
        self.packages.queue().into_iter().for_each(|queue| queue.look_around());
    }

    /// Forgets an epoch's plan and lets go of what it waits for.
    pub(crate) fn drop_schedule(&mut self, rooms: &mut Rooms, epoch: u64) -> Result<()> {
        let begun = self.schedule(epoch)?.begun();
        let decided = self.run.abandon_from(epoch, 0);
        let schedule = self.schedule(epoch)?;
        // What another node decides is counted there.
        let count = decided.iter().filter(|&&(slot, _)| schedule.owns(slot)).count();
        self.abandon(rooms, epoch, count, &decided)?;
        self.remove_schedule(epoch);
        if !begun {
            self.forget(epoch);
        }
        Ok(())
    }
}
