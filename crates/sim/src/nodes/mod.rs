//! One training over several nodes: each has a cache of its own, and all of them are one.
//!
//! Planner, schedules, caches and tallies are those of [`hotset_core`], in the same hands as on servers: one planner draws
//! the plan, it is laid over the nodes by the hash or by a directory, and every node passes all of it and decides the slots whose samples
//! it owns. A slot is served on the node that decides it; where its rank is on another node, its bytes travel.
//!
//! Every node has the cache, the ranks and the requests in flight that a scenario describes; bandwidth is the storage's, for
//! all of them together. Between two epochs a node may come, with its ranks, or go, with what it keeps. What changes its
//! owner then is let go of, and the new owner reads it when it is due, as on servers; so it is with what went with a node. By a
//! directory nothing changes its owner that a node keeps and that stays.
//!
//! Packages are chosen by owner, as the home of a job does, and written at once; the one that owns a package makes and reads it.
//!
//! Left out: the time a peer takes, which is that of a hit.

mod cluster;
mod cost;
mod figures;

use std::sync::Arc;

use hotset_core::cluster::{PlacementKind, check_units};
use hotset_core::importance::Score;
use hotset_core::packages;
use hotset_core::run::{
    Batch, CacheView, Inputs, Outcome as Verdict, Packing, Planner, reports, valid_scores,
};
use hotset_core::sampling::{Plan, Reevaluation};
use hotset_core::{Error, Result, policy};

pub use self::cost::{Cost, cost};
pub use self::figures::{Figures, NodesEpoch, NodesOutcome};

use self::cluster::Cluster;
use crate::arrivals::Arrivals;
use crate::other_reads::OtherReads;
use crate::outcome::Epoch;
use crate::scenario::{Job, Scenario};
use crate::timeline::{StorageClock, Timeline};

/// A change of the nodes, before an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// One more node comes.
    Join(u64),
    /// The last node goes, and what it keeps is lost.
    Lose(u64),
}

impl Change {
    /// The epoch that it comes before.
    pub fn epoch(self) -> u64 {
        match self {
            Self::Join(epoch) | Self::Lose(epoch) => epoch,
        }
    }
}

/// The nodes of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nodes {
    /// How many there are at first.
    pub count: usize,
    /// Whether ranks exchange samples, so that most are their own node's.
    pub locality: bool,
    /// By which rule samples have their owners.
    pub placement: PlacementKind,
    /// What changes, if anything does.
    pub change: Option<Change>,
}

impl Nodes {
    /// So many, for good.
    pub fn new(count: usize) -> Self {
        Self { count, locality: true, placement: PlacementKind::Hash, change: None }
    }

    /// How many there are in the end.
    pub fn finally(&self) -> usize {
        match self.change {
            None => self.count,
            Some(Change::Join(_)) => self.count + 1,
            Some(Change::Lose(_)) => self.count.saturating_sub(1),
        }
    }

    fn check(&self, scenario: &Scenario, job: &Job) -> Result<()> {
        if self.count == 0 || self.count > 1 << 10 {
            return Err(Error::invalid(format!(
                "`nodes` is {}: give a number from 1 to {}",
                self.count,
                1 << 10
            )));
        }
        if self.finally() == 0 {
            return Err(Error::invalid("`lose` leaves no node: give `nodes` two at least"));
        }
        let ranks = self.count.max(self.finally()) * scenario.compute.ranks as usize;
        if ranks > scenario.samples() && !scenario.pad {
            return Err(Error::invalid(format!(
                "there are {ranks} ranks on the nodes, but {} samples: give fewer `nodes` or `ranks`",
                scenario.samples()
            )));
        }
        if let Some(change) = self.change.filter(|change| change.epoch() >= scenario.epochs() as u64) {
            return Err(Error::invalid(format!(
                "a node is to join or be lost before epoch {}, but the epochs are 0 to {}",
                change.epoch(),
                scenario.epochs() - 1
            )));
        }
        if self.placement == PlacementKind::Directory && scenario.packages.is_none() {
            check_units(scenario.samples())?;
        }
        if policy::find(&job.policy.name)?.offline {
            return Err(Error::invalid(format!(
                "policy `{}` must know every plan beforehand, which no node does: choose another for `nodes`",
                job.policy
            )));
        }
        Ok(())
    }
}

/// Replays one run over nodes.
pub fn run(scenario: &Scenario, job: &Job, nodes: &Nodes) -> Result<NodesOutcome> {
    nodes.check(scenario, job)?;
    let part = job.amount.of(scenario.bytes);
    let whole = part.saturating_mul(nodes.count as u64);
    // A package is read by one node, so it is as large as that one's cache allows.
    let packages = scenario.packages.and_then(|asked| packages::size(asked, part));
    let packages = packages.filter(|&bytes| packages::fit(bytes, part));
    let config = job.config(scenario, whole, packages)?;
    let cluster = Cluster::new(nodes.count, part, config.clone(), nodes.placement);
    let packs = cluster.takes_packages();
    let mut replay = Replay::new(scenario, nodes, cluster, Planner::new(config, packs));
    let mut epochs = Vec::with_capacity(scenario.epochs());
    let mut spread = Vec::with_capacity(scenario.epochs());
    for epoch in 0..scenario.epochs() as u64 {
        let (counted, figures) = replay.epoch(epoch)?;
        epochs.push(counted);
        spread.push(figures);
    }
    let outcome = job.outcome(scenario, whole, epochs);
    Ok(NodesOutcome { nodes: nodes.count, placement: nodes.placement, outcome, spread })
}

/// A scenario of so many nodes like the one it describes.
fn on(nodes: usize, scenario: &Scenario) -> Scenario {
    let mut whole = scenario.clone();
    whole.storage.concurrency = scenario.storage.concurrency.saturating_mul(nodes);
    whole.compute.ranks = scenario.compute.ranks.saturating_mul(nodes as u32);
    whole
}

/// A run on its way.
struct Replay<'a> {
    nodes: &'a Nodes,
    one: &'a Scenario,
    whole: Scenario,
    cluster: Cluster,
    planner: Planner,
    timeline: Timeline,
    storage: StorageClock,
}

impl<'a> Replay<'a> {
    fn new(one: &'a Scenario, nodes: &'a Nodes, cluster: Cluster, planner: Planner) -> Self {
        let whole = on(nodes.count, one);
        Self {
            timeline: Timeline::new(whole.compute, 0.0),
            storage: StorageClock::new(whole.storage),
            nodes,
            one,
            whole,
            cluster,
            planner,
        }
    }

    /// The next epoch, from its plan to its last report.
    fn epoch(&mut self, epoch: u64) -> Result<(Epoch, NodesEpoch)> {
        let mut figures = NodesEpoch::default();
        if let Some(change) = self.nodes.change.filter(|change| change.epoch() == epoch) {
            (figures.moved, figures.moved_bytes) = self.change(change);
        }
        if let Some(before) = epoch.checked_sub(1) {
            self.planner.close(before);
        }
        let (plan, packing) = self.plan(epoch)?;
        let mut other_reads = OtherReads::new(&self.cluster.counters(epoch), &packing, plan.len());
        let (mut arrivals, mut events) = (Arrivals::new(), plan.events().iter().peekable());
        let (batch, world) = (self.whole.compute.batch, plan.world() as usize);
        let mut trained = 0;
        for slot in 0..plan.len() {
            let decided = self.cluster.decide(epoch, slot);
            figures.count(&decided, self.one.sizes.size(plan.ids()[slot]));
            let (storage, earliest) = (&mut self.storage, self.timeline.earliest());
            let mut request = |bytes| storage.request(bytes, earliest);
            let packages = self.cluster.packages();
            while let Some((_, event)) = events.next_if(|(at, _)| *at as usize <= slot) {
                if let (Some(package), Some(packages)) = (event.package(), packages) {
                    arrivals.come(package, request(packages.extent(package)));
                }
            }
            other_reads.work(slot).for_each(|bytes| {
                request(bytes);
            });
            let ready = match decided.verdict {
                Verdict::Hit | Verdict::Elsewhere => 0,
                Verdict::Single => request(self.one.sizes.size(plan.ids()[slot])),
                Verdict::Packed => arrivals.ready(plan.ids()[slot], packages),
            };
            self.timeline.serve(ready, plan.weight(slot) > 0.0);
            if (slot + 1) % (batch * world) == 0 {
                while trained + self.whole.compute.prefetch < (slot + 1) / (batch * world) {
                    self.report(&plan, trained);
                    trained += 1;
                }
            }
        }
        while trained * batch < plan.rank_len() {
            self.report(&plan, trained);
            trained += 1;
        }
        let time = self.timeline.end_epoch();
        let mut counters = self.cluster.counters(epoch);
        (counters.clock.late, counters.waits) = (time.late, time.waits.clone());
        let plan = &counters.plan;
        (figures.hit_local, figures.hit_peer) = (plan.hit - plan.hit_peer, plan.hit_peer);
        (figures.nodes, figures.owned, figures.kept) = self.cluster.balance();
        Ok((Epoch { counters, time }, figures))
    }

    /// A node comes or goes, with its ranks; how many kept samples have another owner now, and their bytes.
    fn change(&mut self, change: Change) -> (u64, u64) {
        let count = self.nodes.finally();
        self.whole = on(count, self.one);
        self.timeline = Timeline::new(self.whole.compute, self.timeline.ended());
        self.storage = StorageClock::new(self.whole.storage);
        self.cluster.resize(count, change.epoch())
    }

    /// Makes the plan of an epoch, and chooses what is packed; what it needs of losses under the current model is read first.
    fn plan(&mut self, epoch: u64) -> Result<(Arc<Plan>, Packing)> {
        let reevaluation = self.planner.reevaluation(epoch);
        self.timeline.begin_epoch(reevaluation == Reevaluation::Nothing);
        let reevaluated = self.whole.reevaluate(epoch, &reevaluation, self.planner.table());
        if let Some(losses) = &reevaluated {
            let read = self.cluster.reevaluate(epoch, &reevaluation);
            let sizes = read.into_iter().map(|id| self.one.sizes.size(id));
            self.timeline.evaluate(&mut self.storage, sizes, losses.len());
        }
        let inputs = Inputs {
            reevaluated: reevaluated.as_deref(),
            accuracy: None,
            rates: Some(self.whole.rates()),
            order: None,
        };
        let residents = self.planner.looks_at_residents().then(|| self.cluster.residents());
        let view = CacheView { residents, low: self.cluster.low(), ..CacheView::default() };
        let plan = self.planner.draw(epoch, self.whole.compute.ranks, &inputs, &view);
        let packages = self.planner.sized_packages();
        self.cluster.own_by(packages.as_ref().map(|(packages, _)| packages));
        let plan = self.cluster.lay(plan, self.nodes.locality)?;
        let packing = self.planner.pack(&plan, &view, self.cluster.ownership());
        packing.packages.iter().for_each(|(number, _)| self.planner.written(*number));
        let plan = Arc::new(plan);
        self.cluster.begin(&plan, packages, &packing);
        Ok((plan, packing))
    }

    /// Reports the batch `step` of every rank.
    fn report(&mut self, plan: &Plan, step: usize) {
        for rank in 0..plan.world() {
            let Batch { position, ids, losses } = self.whole.losses(plan, rank, step);
            let scores = self.planner.score().of(&losses);
            let all = reports((plan.epoch(), plan.rank_len(), position), &ids, &losses, &scores);
            let valid: Vec<_> = all.into_iter().filter(|report| !report.value.is_nan()).collect();
            let mut done = 0;
            while done < valid.len() {
                done += self.planner.report(&valid[done..]);
            }
            let Some(kind) = self.cluster.takes() else { continue };
            let scores = if kind == self.planner.score() { scores } else { Score::of(kind, &losses) };
            valid_scores(&ids, &scores, |slice| self.cluster.scored(slice));
        }
    }
}

#[cfg(test)]
mod tests;
