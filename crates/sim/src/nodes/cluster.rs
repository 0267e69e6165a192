//! The nodes: who owns what, and what each of them keeps.

use std::sync::Arc;

use hotset_core::cache::Cache;
use hotset_core::cluster::{Directory, Found, Node, Ownership, Placement, PlacementKind, View, localize};
use hotset_core::counters::Counters;
use hotset_core::importance::{SLICE, Score};
use hotset_core::packages::Packages;
use hotset_core::run::{Change, Config, JobRun, Outcome, Packing, residents_first};
use hotset_core::sampling::{Plan, Reevaluation, Residents};
use hotset_core::schedule::Schedule;
use hotset_core::{Id, Result};

/// One node.
struct Member {
    cache: Cache,
    run: JobRun,
    /// What it owns of samples that lie in no package, and of the plan under way.
    alone: Ownership,
    ownership: Arc<Ownership>,
}

impl Member {
    fn new(config: &Config, alone: Ownership) -> Self {
        let mut cache = Cache::new(config.policy(), config.sizes.len());
        let mut run = JobRun::new(Arc::clone(&config.sizes));
        run.join(&mut cache);
        Self { cache, run, ownership: Arc::new(alone.clone()), alone }
    }

    /// Samples are owned by these packages from now on.
    fn own_by(&mut self, packages: Option<&Arc<Packages>>) {
        let alone = self.alone.clone();
        let by_packages = packages.map(|packages| alone.clone().by_packages(Arc::clone(packages)));
        self.ownership = Arc::new(by_packages.unwrap_or(alone));
    }
}

/// A slot that was decided.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decided {
    /// What it costs.
    pub(super) verdict: Outcome,
    /// Whether its rank is on the node that decides it.
    pub(super) local: bool,
}

/// All nodes.
pub(super) struct Cluster {
    /// What a node is made from; its capacity is one node's.
    config: Config,
    kind: PlacementKind,
    view: View,
    placement: Arc<Placement>,
    /// Who owns what of the last plan, where that goes by who reads it.
    directory: Option<Arc<Directory>>,
    members: Vec<Member>,
    /// What nodes that are gone have counted is counted.
    gone: Vec<JobRun>,
    /// The plan under way, and the packages that it was made from.
    plan: Option<Arc<Plan>>,
    packages: Option<Arc<Packages>>,
    changes: Vec<Change>,
}

impl Cluster {
    /// So many nodes of `part` bytes each, which keep nothing yet.
    pub(super) fn new(count: usize, part: u64, config: Config, kind: PlacementKind) -> Self {
        let config = Config { capacity: part, ..config };
        let view = View::default();
        let placement = Arc::new(Placement::new(&view));
        let (directory, members, gone, plan, packages, changes) = Default::default();
        let mut cluster =
            Self { config, kind, view, placement, directory, members, gone, plan, packages, changes };
        cluster.resize(count, 0);
        cluster
    }

    /// There are so many nodes from `epoch` on: the last ones have come or gone. How many samples those that are left keep
    /// that are another's now, and their bytes: they let go of them with the next slots.
    pub(super) fn resize(&mut self, count: usize, epoch: u64) -> (u64, u64) {
        let view = View::new((0..count).map(|number| Node {
            name: name(number),
            address: String::new(),
            // Nodes that keep nothing divide the samples all the same.
            capacity: self.config.capacity.max(1),
            rack: None,
            draining: false,
            revision: epoch + 1,
        }));
        self.placement = Arc::new(Placement::new(&view));
        let before = std::mem::replace(&mut self.view, view);
        self.directory =
            self.directory.take().map(|directory| Arc::new(directory.renumbered(&before, &self.view)));
        let gone = self.members.split_off(count.min(self.members.len()));
        self.gone.extend(gone.into_iter().map(|member| member.run));
        let (mut leaving, mut bytes) = (0, 0);
        self.own();
        for member in &self.members {
            for id in member.cache.kept(0..u64::MAX).filter(|&id| !member.ownership.owns(id)) {
                leaving += 1;
                bytes += self.config.sizes.size(id);
            }
        }
        for number in self.members.len()..count {
            self.members.push(Member::new(&self.config, self.alone(number)));
        }
        (leaving, bytes)
    }

    /// What a node owns of samples that lie in no package.
    fn alone(&self, number: usize) -> Ownership {
        let alone = Ownership::new(Arc::clone(&self.placement), self.config.seed, Some(number));
        match &self.directory {
            Some(directory) => alone.by_directory(Arc::clone(directory)),
            None => alone,
        }
    }

    /// Every node owns what it does from now on.
    fn own(&mut self) {
        let alone: Vec<Ownership> = (0..self.members.len()).map(|number| self.alone(number)).collect();
        for (member, alone) in self.members.iter_mut().zip(alone) {
            member.alone = alone;
            member.own_by(self.packages.as_ref());
        }
    }

    /// Lays a plan over the nodes. With `locality` ranks exchange samples so that most are their own node's.
    pub(super) fn lay(&mut self, plan: Plan, locality: bool) -> Result<Plan> {
        let ranks = self.ranks(plan.world());
        if self.kind == PlacementKind::Hash {
            let owner = |id| self.owner(id);
            return Ok(if locality { localize(plan, &ranks, &self.view.racks(), owner) } else { plan });
        }
        let (kept, ranks) = (self.residents(), Vec::from_iter(ranks.into_iter().map(Some)));
        let before = self.members.first().map(|member| (&self.view, Ownership::clone(&member.ownership)));
        let packages = self.packages.as_deref();
        let found = Found { before, kept: Some(&kept), sizes: &*self.config.sizes, packages };
        let (plan, directory) = Directory::lay(plan, &self.view, &ranks, locality, &found)?;
        self.directory = Some(Arc::new(directory));
        self.own();
        Ok(plan)
    }

    /// Whether its policy has a region for packages.
    pub(super) fn takes_packages(&self) -> bool {
        self.members.first().is_some_and(|member| member.cache.policy().takes_packages())
    }

    /// The bytes of all L regions when a plan begins, and the most that they can have.
    pub(super) fn low(&self) -> (u64, u64) {
        let all = self.members.iter().map(|member| member.cache.policy().low());
        all.fold((0, 0), |sum, low| (sum.0 + low.0, sum.1 + low.1))
    }

    /// Samples are owned by these packages from now on.
    pub(super) fn own_by(&mut self, packages: Option<&Arc<Packages>>) {
        self.packages = packages.cloned();
        self.members.iter_mut().for_each(|member| member.own_by(packages));
    }

    /// The packages that the plan under way was made from.
    pub(super) fn packages(&self) -> Option<&Packages> {
        self.packages.as_deref()
    }

    /// Who owns what.
    pub(super) fn ownership(&self) -> Option<&Ownership> {
        self.members.first().map(|member| &*member.ownership)
    }

    /// The number of the node that owns a sample.
    fn owner(&self, id: Id) -> Option<usize> {
        self.members.first()?.ownership.owner(id)
    }

    /// The node that each of so many ranks is on.
    fn ranks(&self, world: u32) -> Vec<usize> {
        (0..world).map(|rank| self.reader(rank, world)).collect()
    }

    /// The node that a rank is on.
    fn reader(&self, rank: u32, world: u32) -> usize {
        rank as usize * self.members.len() / world.max(1) as usize
    }

    /// What all nodes keep.
    pub(super) fn residents(&self) -> Residents {
        let policies = self.members.iter().map(|member| member.cache.policy());
        Residents::of_all(policies, self.config.sizes.len())
    }

    /// Which scores the policies take the moment they are reported.
    pub(super) fn takes(&self) -> Option<Score> {
        self.members.first()?.cache.policy().takes()
    }

    /// Tells each policy of the scores of what its node owns.
    pub(super) fn scored(&mut self, scores: &[(Id, f32)]) {
        for member in &mut self.members {
            let own = scores.iter().copied().filter(|(id, _)| member.ownership.owns(*id));
            let own: Vec<(Id, f32)> = own.collect();
            if !own.is_empty() {
                member.cache.scored(member.run.member(), &own);
            }
        }
    }

    /// Each node keeps, or reads, what it owns of that which is re-evaluated before an epoch; what was read.
    pub(super) fn reevaluate(&mut self, epoch: u64, reevaluation: &Reevaluation) -> Vec<Id> {
        let mut all_read = Vec::new();
        for member in &mut self.members {
            let number = member.run.member();
            let owned = |id: &Id| member.ownership.owns(*id);
            let mut read = Vec::new();
            match reevaluation {
                Reevaluation::Nothing => {}
                Reevaluation::All => {
                    let own: Vec<Id> = (0..self.config.sizes.len() as Id).filter(owned).collect();
                    read = member.cache.look_up_missing(number, epoch, &own);
                }
                Reevaluation::Set(ids) => {
                    let own: Vec<Id> = ids.iter().copied().filter(owned).collect();
                    for slice in residents_first(member.cache.policy(), &own).chunks(SLICE) {
                        member.cache.pin(number, epoch, slice, &mut read);
                    }
                }
            }
            read.iter().for_each(|&id| member.run.tally_mut().reads_beside(epoch, id));
            all_read.extend(read);
        }
        all_read
    }

    /// Every node begins a plan, made from these packages of so many bytes, and makes what it owns of those that are chosen.
    pub(super) fn begin(
        &mut self,
        plan: &Arc<Plan>,
        packages: Option<(Arc<Packages>, u64)>,
        packing: &Packing,
    ) {
        let readers = self.ranks(plan.world());
        for (number, member) in self.members.iter_mut().enumerate() {
            if let Some(last) = &self.plan {
                member.run.remove(last.epoch());
            }
            let mut schedule = Schedule::new(Arc::clone(plan), self.config.sizes.len())
                .with_packages(packages.clone())
                .with_ownership(Arc::clone(&member.ownership));
            for (rank, &reader) in (0..).zip(&readers) {
                schedule.set_away(rank, reader != number);
            }
            member.run.planned(schedule, &packing.owned_by(&member.ownership));
            member.run.enter(plan.epoch());
        }
        self.plan = Some(Arc::clone(plan));
    }

    /// Every node passes the next slot. The one that owns its sample decides and serves it; where its rank is on another
    /// one, that one serves it too, and counts nothing.
    pub(super) fn decide(&mut self, epoch: u64, slot: usize) -> Decided {
        let world = self.plan.as_ref().map_or(1, |plan| plan.world());
        let reader = self.reader(slot as u32 % world, world);
        let (mut verdict, mut local) = (Outcome::Elsewhere, false);
        for (number, member) in self.members.iter_mut().enumerate() {
            self.changes.clear();
            member.run.step(&mut member.cache, &mut self.changes);
            let decided = self.changes.iter().find_map(|change| match change {
                Change::Decided { slot: of, outcome, .. } if *of == slot => Some(*outcome),
                _ => None,
            });
            if let Some(outcome) = decided.filter(|outcome| *outcome != Outcome::Elsewhere) {
                (verdict, local) = (outcome, number == reader);
                member.run.serve(epoch, [slot]);
            } else if number == reader {
                member.run.serve(epoch, [slot]);
            }
        }
        Decided { verdict, local }
    }

    /// What all nodes have counted of an epoch.
    pub(super) fn counters(&self, epoch: u64) -> Counters {
        let runs = self.members.iter().map(|member| &member.run).chain(&self.gone);
        let mut sum = Counters::default();
        runs.filter_map(|run| run.tally().epochs().get(&epoch)).for_each(|counted| sum.add(counted));
        sum
    }

    /// Whether no node keeps what another owns, so that nothing is kept twice.
    #[cfg(test)]
    pub(super) fn is_kept_once_by_its_owner(&self) -> bool {
        let owns = |member: &Member| member.cache.kept(0..u64::MAX).all(|id| member.ownership.owns(id));
        self.members.iter().all(owns)
    }

    /// How many nodes there are, and how much the one that owns most bytes, and the one that keeps most, has over the mean.
    pub(super) fn balance(&self) -> (usize, f64, f64) {
        let mut owned = vec![0u64; self.members.len()];
        for id in 0..self.config.sizes.len() as Id {
            if let Some(owner) = self.owner(id) {
                owned[owner] += self.config.sizes.size(id);
            }
        }
        let kept: Vec<u64> = self.members.iter().map(|member| member.cache.policy().used()).collect();
        (self.members.len(), over_mean(&owned), over_mean(&kept))
    }
}

/// Names sort as numbers do.
fn name(number: usize) -> String {
    format!("node-{number:04}")
}

/// The largest over the mean; 1 where all are nothing.
fn over_mean(all: &[u64]) -> f64 {
    let mean = all.iter().sum::<u64>() as f64 / all.len().max(1) as f64;
    if mean > 0.0 { all.iter().copied().max().unwrap_or(0) as f64 / mean } else { 1.0 }
}
