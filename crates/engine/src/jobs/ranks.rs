//! A job's ranks: which epochs they have begun, asked for and reported, and what a plan still waits for.
//!
//! A plan that is made from losses waits until every rank has reported what it needs of the epoch before; one that is made
//! from what a trainer evaluates, until every rank has left that epoch and evaluated its share. A rank that does not come
//! is given up after a while, and the next plans do not wait for it until it is heard of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hotset_core::Id;
use hotset_core::bits::Bits;
use hotset_core::cluster::{Layout, Ownership};
use hotset_core::importance::cut;
use hotset_core::sampling::Plan;
use hotset_core::schedule::Schedule;

use super::job::Job;

/// Epochs whose plans' lengths are remembered, for reports that come late.
const LENGTHS: usize = 4;

/// How a plan was cut: the slots of each rank, and the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Slots of each rank.
    pub rank_len: u64,
    /// Ranks.
    pub world: u32,
}

/// Whether the samples that are re-evaluated before an epoch were chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Choice {
    /// No rank has asked for them.
    #[default]
    Open,
    /// A rank chooses, and the others wait for it.
    UnderWay,
    Made,
}

/// What the next plan waits for.
#[derive(Debug, Default)]
struct Gathering {
    epoch: u64,
    /// When the first rank asked what to re-evaluate, or began.
    asked: Option<Instant>,
    /// When the first rank began.
    began: Option<Instant>,
    /// Ranks that re-evaluate samples for it, and those of them that are done.
    evaluating: BTreeSet<u32>,
    evaluated: BTreeSet<u32>,
    choice: Choice,
    /// Samples that are re-evaluated and whose read was not made yet.
    unread: Bits,
}

/// How far each rank of a job is, and what the next plan waits for.
#[derive(Debug, Default)]
pub(crate) struct Ranks {
    /// How the last plans were cut.
    cuts: BTreeMap<u64, Cut>,
    /// The newest epoch each rank has begun.
    begun: BTreeMap<u32, u64>,
    /// The newest epoch each rank has asked for, planned or not.
    arrived: BTreeMap<u32, u64>,
    /// How many of its slots each rank has reported, and of which epoch.
    reported: BTreeMap<u32, (u64, u64)>,
    /// Ranks that a plan was made without, and that were not heard of since.
    absent: BTreeSet<u32>,
    /// Ranks that have not followed one that went back, and the epoch that it went back to.
    following: BTreeMap<u32, u64>,
    /// The epoch whose plan is being made.
    planning: Option<u64>,
    gathering: Gathering,
}

impl Ranks {
    /// Goes on where another server was.
    pub(crate) fn restore(&mut self, cuts: BTreeMap<u64, Cut>, begun: BTreeMap<u32, u64>) {
        (self.cuts, self.arrived) = (cuts, begun.clone());
        self.begun = begun;
    }

    /// Goes on where the home of a job was, as far as that is not known here.
    pub(crate) fn take_over(&mut self, cuts: &BTreeMap<u64, Cut>, begun: &BTreeMap<u32, u64>) {
        for (&epoch, &cut) in cuts {
            self.cuts.entry(epoch).or_insert(cut);
        }
        for (&rank, &epoch) in begun {
            for newest in [self.begun.entry(rank), self.arrived.entry(rank)] {
                let newest = newest.or_insert(epoch);
                *newest = epoch.max(*newest);
            }
        }
    }

    /// Remembers how a plan is cut. What was reported of one that was cut otherwise says nothing of how far its ranks are.
    pub(crate) fn note_cut(&mut self, plan: &Plan) {
        let (epoch, cut) = (plan.epoch(), Cut { rank_len: plan.rank_len() as u64, world: plan.world() });
        if self.cuts.insert(epoch, cut).is_some_and(|before| before.world != cut.world) {
            self.reported.retain(|_, (of, _)| *of != epoch);
        }
        while self.cuts.len() > LENGTHS {
            self.cuts.pop_first();
        }
    }

    pub(crate) fn cut(&self, epoch: u64) -> Option<Cut> {
        self.cuts.get(&epoch).copied()
    }

    pub(crate) fn cuts(&self) -> &BTreeMap<u64, Cut> {
        &self.cuts
    }

    /// The newest epoch of each rank.
    pub(crate) fn begun(&self) -> &BTreeMap<u32, u64> {
        &self.begun
    }

    /// The newest epoch of a rank.
    pub(crate) fn begun_by(&self, rank: u32) -> Option<u64> {
        self.begun.get(&rank).copied()
    }

    /// The newest epoch of all.
    pub(crate) fn newest(&self) -> Option<u64> {
        self.begun.values().max().copied()
    }

    /// Whether all ranks that have begun any epoch are in later ones.
    pub(crate) fn have_left(&self, epoch: u64) -> bool {
        !self.begun.is_empty() && self.begun.values().all(|&begun| begun > epoch)
    }

    /// A rank asks for an epoch, and so has left those before.
    pub(crate) fn arrive(&mut self, rank: u32, epoch: u64) {
        self.arrived.insert(rank, epoch);
        self.absent.remove(&rank);
        if self.gathering.epoch != epoch || self.gathering.asked.is_none() {
            self.gathering = Gathering { epoch, asked: Some(Instant::now()), ..Gathering::default() };
        }
    }

    /// A rank that asked for an epoch wants to begin it.
    pub(crate) fn want_to_begin(&mut self) {
        self.gathering.began.get_or_insert_with(Instant::now);
    }

    /// A rank has begun an epoch, of so many ranks; one that joins may be behind others of its rank.
    pub(crate) fn begin(&mut self, (rank, world): (u32, u32), epoch: u64, join: bool) {
        let begun = self.begun.entry(rank).or_insert(epoch);
        *begun = if join { epoch.max(*begun) } else { epoch };
        self.begun.retain(|&rank, _| rank < world);
    }

    /// A rank that begins an earlier epoch than its last has gone back, or started over: what was reported of the future
    /// that it left no longer outweighs what it will report. The others follow: what the first has reported until then
    /// stays. True if the planner must forget that future.
    pub(crate) fn go_back(&mut self, rank: u32, epoch: u64) -> bool {
        let follows = self.following.remove(&rank).is_some_and(|back| epoch >= back);
        if follows || self.begun.get(&rank).is_none_or(|&begun| begun <= epoch) {
            return false;
        }
        let others = self.begun.iter().filter(|&(&other, &begun)| other != rank && begun > epoch);
        self.following = others.map(|(&other, _)| (other, epoch)).collect();
        // Where they had come in that future says nothing of this one.
        self.arrived.retain(|other, _| !self.following.contains_key(other));
        self.reported.retain(|_, (of, _)| *of < epoch);
        true
    }

    /// A rank has reported so many of its slots of an epoch.
    pub(crate) fn report(&mut self, rank: u32, epoch: u64, upto: u64) {
        let heard = self.reported.entry(rank).or_insert((epoch, 0));
        *heard = (*heard).max((epoch, upto));
        self.absent.remove(&rank);
    }

    /// Whether a rank has told anything, losses or what it evaluated.
    pub(crate) fn has_told(&self) -> bool {
        !self.reported.is_empty() || !self.gathering.evaluated.is_empty()
    }

    /// A rank re-evaluates samples for the next plan.
    pub(crate) fn evaluates(&mut self, rank: u32) {
        self.gathering.evaluating.insert(rank);
    }

    /// A rank has re-evaluated its share.
    pub(crate) fn evaluated(&mut self, rank: u32) {
        self.gathering.evaluated.insert(rank);
    }

    /// Whether a rank must choose which of so many samples are re-evaluated before `epoch`, or another does. One that comes
    /// too late for it has nothing to choose.
    pub(crate) fn choose(&mut self, epoch: u64, samples: usize) -> Choice {
        if self.gathering.epoch != epoch {
            return Choice::Made;
        }
        let before = self.gathering.choice;
        if before == Choice::Open {
            (self.gathering.choice, self.gathering.unread) = (Choice::UnderWay, Bits::new(samples));
        }
        before
    }

    /// The samples that are re-evaluated before `epoch` were chosen, or could not be and the next rank that asks tries.
    pub(crate) fn chosen(&mut self, epoch: u64, done: bool) {
        if self.gathering.epoch == epoch {
            self.gathering.choice = if done { Choice::Made } else { Choice::Open };
        }
    }

    /// A sample must be read to be re-evaluated.
    pub(crate) fn must_read(&mut self, id: Id) {
        self.gathering.unread.insert(id);
    }

    /// Whether a sample must be read to be re-evaluated before `epoch`, and was not.
    pub(crate) fn is_unread(&self, epoch: u64, id: Id) -> bool {
        self.gathering.epoch == epoch && self.gathering.unread.contains(id)
    }

    /// A sample is read to be re-evaluated.
    pub(crate) fn reads(&mut self, id: Id) {
        self.gathering.unread.remove(id);
    }

    /// Whether a rank has waited longer than `patience` to know what to re-evaluate.
    pub(crate) fn chose_late(&self, patience: Duration) -> bool {
        self.gathering.asked.is_some_and(|asked| asked.elapsed() >= patience)
    }

    /// Whether a rank has waited longer than `patience` to begin.
    pub(crate) fn begins_late(&self, patience: Duration) -> bool {
        self.gathering.began.is_some_and(|began| began.elapsed() >= patience)
    }

    /// Whether a plan is being made.
    pub(crate) fn is_planning(&self) -> bool {
        self.planning.is_some()
    }

    /// The plan of an epoch is being made from now on, or none is.
    pub(crate) fn set_planning(&mut self, epoch: Option<u64>) {
        self.planning = epoch;
    }

    /// Whether a rank has reported all that the plan of the epoch after is made from.
    fn has_reported(&self, epoch: u64, rank: u32, slots: u64) -> bool {
        let needed = cut(slots as usize) as u64;
        let passed = |&(of, upto): &(u64, u64)| of > epoch || (of == epoch && upto >= needed);
        self.reported.get(&rank).is_some_and(passed)
    }
}

impl Job {
    /// Whether every rank of the epoch before `epoch` has left it.
    pub(crate) fn has_everybody(&self, epoch: u64) -> bool {
        let Some(before) = epoch.checked_sub(1) else { return true };
        let Some(over) = self.ranks.cut(before) else { return true };
        (0..over.world).all(|rank| self.has_left(before, rank))
    }

    /// Whether a rank has gone on to a later epoch, or will not train this one. One that has not begun it yet may only be
    /// slower than the others: it is waited for.
    fn has_left(&self, epoch: u64, rank: u32) -> bool {
        self.ranks.arrived.get(&rank).is_some_and(|&arrived| arrived > epoch)
            || self.ranks.absent.contains(&rank)
            || self.run.schedule(epoch).is_none()
    }

    /// Whether every rank of the epoch before `epoch` has reported what its plan needs, or has come to `epoch`.
    pub(crate) fn is_gathered(&self, epoch: u64, ahead: bool) -> bool {
        let Some(planner) = &self.planner else { return true };
        let Some(before) = epoch.checked_sub(1) else { return true };
        let Some(over) = self.ranks.cut(before) else { return true };
        if planner.waits_for_trainer {
            let Gathering { epoch: of, evaluating, evaluated, .. } = &self.ranks.gathering;
            let evaluated = *of != epoch || evaluating.is_subset(evaluated);
            return !ahead && evaluated && self.has_everybody(epoch);
        }
        let decided = || self.run.schedule(before).is_none_or(Schedule::is_decided);
        if ahead && (planner.looks_back || self.nodes.keeps_directory()) && !decided() {
            return false;
        }
        let gathered =
            |rank| self.ranks.has_reported(before, rank, over.rank_len) || self.has_left(before, rank);
        !planner.needs_losses || (0..over.world).all(gathered)
    }

    /// Whether every slot of an epoch is decided that this node decides, or all ranks have left it.
    pub(crate) fn has_decided(&self, epoch: u64) -> bool {
        match self.run.schedule(epoch) {
            Some(schedule) => schedule.has_decided_own(),
            None => self.ranks.have_left(epoch),
        }
    }

    /// How the newest plan lies over nodes, where it is one for `world` ranks.
    pub(crate) fn nodes_of(&self, world: u32) -> Option<(Arc<Layout>, Arc<Ownership>)> {
        let newest = self.run.schedules().values().next_back()?;
        let nodes = (Arc::clone(newest.layout()?), Arc::clone(newest.ownership()?));
        (newest.plan().world() == world).then_some(nodes)
    }

    /// Goes on without the ranks that the plan of `epoch` has waited for.
    pub(crate) fn give_up_ranks(&mut self, epoch: u64) {
        let Some(before) = epoch.checked_sub(1) else { return };
        let Some(over) = self.ranks.cut(before) else { return };
        let trainer = self.planner.as_ref().is_some_and(|planner| planner.waits_for_trainer);
        let gathered = |rank: &u32| {
            let reported = !trainer && self.ranks.has_reported(before, *rank, over.rank_len);
            reported || self.has_left(before, *rank)
        };
        let missing: Vec<u32> = (0..over.world).filter(|rank| !gathered(rank)).collect();
        self.ranks.absent.extend(missing);
    }
}
