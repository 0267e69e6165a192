//! What the engine asks of the other nodes: plans, and samples.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hotset_core::cluster::{self, AnswerKind, Given, PlacementKind, View, Wanted};
use hotset_core::sampling::{Reevaluation, Residents};
use hotset_core::{Error, Id, Kind, Result};
use hotset_engine::{Cluster, Placed, Unplaced};
use hotset_wire::nodes::{GetPlan, GetReevaluation, GetResidents, answer, question};

use super::asking::Patience;
use super::followed::Followed;
use super::home::{HomeJob, Left};
use super::homes::Settled;
use super::node::Node;
use crate::runs::base_name;

/// How long a plan is asked of a home that is silent.
const PLAN: Duration = Duration::from_secs(60);
/// How long nodes have to say what they keep, all together.
pub(super) const RESIDENTS: Duration = Duration::from_secs(3);
/// How many are asked at the same time.
const AT_ONCE: usize = 32;
/// How long a node has to say whether its lease lives.
const ANSWER: Duration = Duration::from_secs(1);
/// The pause before etcd is asked once more.
const PAUSE: Duration = Duration::from_millis(200);

impl Cluster for Node {
    fn name(&self) -> &str {
        &self.name
    }

    fn placement(&self) -> PlacementKind {
        self.kind
    }

    /// The plan is laid over the nodes that have the job open, and may be handed out once etcd has its digest: a node that is
    /// home no more is told so there.
    fn settle(&self, job: &str, drawn: Unplaced) -> Result<Placed> {
        let home = self.home_job(job).ok_or_else(|| no_home(job))?;
        let world = drawn.plan().world();
        let ranks = home.ranks(world, &self.name, self.patience);
        let unknown = ranks.iter().filter(|rank| rank.is_none()).count();
        if unknown > 0 {
            tracing::warn!(job, unknown, world, "a plan is laid out without knowing the nodes of all ranks");
        }
        let view = self.view_of(&home);
        let nodes = (Arc::clone(&view), self.placement(&view));
        let epoch = drawn.plan().epoch();
        let placed =
            drawn.place(nodes, &self.name, ranks.iter().map(|rank| rank.as_deref()), self.locality)?;
        let settled = Settled { epoch, digest: placed.layout.digest() };
        self.put(job, &home, settled)?;
        home.planned(epoch, settled.digest);
        Ok(placed)
    }

    fn plan(&self, job: &str, epoch: u64, _world: Option<u32>) -> Result<Placed> {
        let followed = self.followed_job(job).ok_or_else(|| no_home(job))?;
        let samples = self.samples_of(job)?;
        let question = question::Kind::GetPlan(GetPlan { job: job.to_owned(), epoch });
        let saved = self.ask_home_of(&followed, question, |said| match said {
            answer::Kind::Plan(plan) => Some(plan.plan),
            _ => None,
        })?;
        let placed = Placed::restore(&saved, samples, &self.name)?;
        self.compare_kinds(job, placed.layout.kind());
        Ok(placed)
    }

    /// A node that does not answer in time counts as one that keeps nothing.
    fn residents(&self, job: &str, after: Option<u64>, samples: usize) -> Residents {
        let found = Mutex::new(Residents::none(samples));
        let nodes: Vec<String> =
            self.home_job(job).map_or_else(Vec::new, |home| home.nodes().into_keys().collect());
        let until = Instant::now() + RESIDENTS;
        let misfit =
            || Error::changed("what it keeps does not fit the dataset: all nodes are to see the same data");
        let ask = |node: &String| {
            let saved = self.residents_of(node, (job, after), until)?;
            found.lock().unwrap_or_else(PoisonError::into_inner).add_saved(&saved, samples).ok_or_else(misfit)
        };
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(node) = nodes.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(error) = ask(node) {
                    tracing::warn!(job, node, %error, "a plan is made as if a node kept nothing");
                }
            }
        };
        std::thread::scope(|scope| {
            (0..nodes.len().min(AT_ONCE)).for_each(|_| drop(scope.spawn(work)));
        });
        found.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn reevaluation(&self, job: &str, epoch: u64) -> Result<Reevaluation> {
        let followed = self.followed_job(job).ok_or_else(|| no_home(job))?;
        let samples = self.samples_of(job)?;
        let question = question::Kind::GetReevaluation(GetReevaluation { job: job.to_owned(), epoch });
        let said = self.ask_home_of(&followed, question, |said| match said {
            answer::Kind::Reevaluation(said) => Some(said),
            _ => None,
        })?;
        let (ids, rest) = said.ids.as_chunks();
        let ids: Arc<[Id]> = ids.iter().map(|id| Id::from_le_bytes(*id)).collect();
        if !rest.is_empty() || ids.iter().any(|&id| id as usize >= samples) {
            return Err(Error::changed(
                "what is re-evaluated does not fit the dataset: all nodes are to see the same data",
            ));
        }
        match ids.is_empty() {
            _ if said.all => Ok(Reevaluation::All),
            true => Ok(Reevaluation::Nothing),
            false => Ok(Reevaluation::Set(ids)),
        }
    }

    fn fetch(
        &self,
        owner: &cluster::Node,
        wanted: &Wanted,
        deadline: Duration,
        places: &mut [&mut [u8]],
    ) -> Result<Vec<Given>> {
        // It may have moved since the plan was made.
        let address = self
            .address_of(&owner.name)
            .ok_or_else(|| Error::unavailable(format!("the node `{}` has left the cluster", owner.name)))?;
        self.asking.peers.fetch(&address, wanted, deadline, places)
    }
}

impl Node {
    /// Says once where the home of a job lays plans by another rule than this node would.
    fn compare_kinds(&self, job: &str, placement: PlacementKind) {
        if placement != self.kind && !self.kinds_differ.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                job,
                home = %placement,
                here = %self.kind,
                "the job's home has another `--placement` than this node, and its own counts: give all nodes of the cluster \
                 the same"
            );
        }
    }

    /// How many samples the dataset of a job has.
    fn samples_of(&self, job: &str) -> Result<usize> {
        let engine = &self.service()?.engine;
        let dataset = engine.dataset_of(job).ok_or_else(|| no_home(job))?;
        Ok(engine.catalog(&dataset)?.len())
    }

    /// Asks the home of a job that this node follows. A job that moves meanwhile is lost to whoever asked, who opens it anew.
    fn ask_home_of<T>(
        &self,
        followed: &Followed,
        question: question::Kind,
        expected: impl FnOnce(answer::Kind) -> Option<T>,
    ) -> Result<T> {
        let home = followed.home();
        let lost = || Error::new(Kind::Lost, format!("job `{}` has moved to another node", followed.job));
        let mut check = || {
            self.check()?;
            if followed.is_over() || followed.home() != home { Err(lost()) } else { Ok(()) }
        };
        match self.ask(&home, question, Patience::of(PLAN, &mut check))?? {
            answer::Kind::Moved(_) => Err(lost()),
            said => expected(said)
                .ok_or_else(|| Error::internal(format!("the node `{home}` answers something else"))),
        }
    }

    /// What a node keeps of a job, as it was saved.
    fn residents_of(&self, node: &str, (job, after): (&str, Option<u64>), until: Instant) -> Result<Vec<u8>> {
        let mut check = || match Instant::now() < until {
            true => self.check(),
            false => Err(Error::unavailable(format!("the node `{node}` does not say in time what it keeps"))),
        };
        let patience = Patience { silence: RESIDENTS, wait: ANSWER, check: &mut check };
        let question = question::Kind::GetResidents(GetResidents { job: job.to_owned(), after });
        self.ask_for(node, question, patience, |said| match said {
            answer::Kind::Residents(residents) => Some(residents.residents),
            _ => None,
        })
    }

    /// The nodes that have a job open, each with what it gives to the job.
    fn view_of(&self, home: &HomeJob) -> Arc<View> {
        let mut granted: BTreeMap<String, u64> = home.nodes();
        let own = self
            .service()
            .ok()
            .and_then(|service| service.engine.job_stats(Some(&home.job)).pop().map(|stats| stats.capacity));
        granted.insert(self.name.clone(), own.unwrap_or_default());
        let members = self.view();
        let taking = members.nodes().iter().filter_map(|node| Some(giving(node, *granted.get(&node.name)?)));
        Arc::new(View::new(taking))
    }

    /// Has etcd know of a plan, as long as this node is the job's home; waits for etcd as long as a plan waits.
    fn put(&self, job: &str, home: &HomeJob, settled: Settled) -> Result<()> {
        let until = Instant::now() + self.patience;
        loop {
            self.check()?;
            let put = self
                .living_lease()
                .and_then(|lease| self.homes.settle((base_name(job), job), home.fence(), settled, lease));
            match put {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    home.leave(Left::Moved);
                    return Err(Error::new(
                        Kind::Lost,
                        format!("another node is the home of job `{job}` now: its plans come from there"),
                    ));
                }
                // Another home would draw the same, and lay it over other nodes: there must not be one.
                Err(error)
                    if error.kind == Kind::Unavailable
                        && home.opened().follows_seed
                        && self.all_are_without_etcd() =>
                {
                    tracing::warn!(job, epoch = settled.epoch, %error, "a plan is handed out that etcd does not know of");
                    return Ok(());
                }
                Err(error) if error.kind != Kind::Unavailable || Instant::now() >= until => {
                    return Err(Error::new(
                        error.kind,
                        format!(
                            "the plan of epoch {} of job `{job}` cannot be handed out: {}",
                            settled.epoch, error.message
                        ),
                    ));
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }
}

impl Node {
    /// Whether every other node says that its own lease does not surely live, so that none of them can have become the home of
    /// a job. One that does not answer may have.
    fn all_are_without_etcd(&self) -> bool {
        let view = self.view();
        let mut others = view.nodes().iter().filter(|node| node.name != self.name);
        others.all(|node| {
            let nothing = Wanted { view: 0, job: String::new(), epoch: 0, plan: 0, slots: vec![0] };
            let told = self.asking.peers.fetch(&node.address, &nothing, ANSWER, &mut [&mut []]);
            told.is_ok_and(|told| told.iter().all(|given| given.kind == AnswerKind::Stale))
        })
    }
}

/// A node that gives so much to a job. It makes another view when it gives something else.
fn giving(node: &cluster::Node, capacity: u64) -> cluster::Node {
    let digest = blake3::hash(format!("{} {capacity}", node.revision).as_bytes());
    let revision = digest.as_bytes()[..8].iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
    cluster::Node { capacity, revision, ..node.clone() }
}

fn no_home(job: &str) -> Error {
    Error::new(Kind::Lost, format!("job `{job}` is not open on this node of the cluster"))
}
