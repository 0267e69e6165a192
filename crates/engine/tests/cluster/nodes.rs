//! Several engines in one process, joined without a network, and the trainings over them.
#![allow(unreachable_pub, reason = "the tests beside it use it")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use hotset_core::cache::Cache;
use hotset_core::cluster::{Given, Node, Placement, PlacementKind, View, Wanted};
use hotset_core::counters::{Counters, PlanCounters};
use hotset_core::packages::Packing;
use hotset_core::policy::{self, Setup};
use hotset_core::run::JobRun;
use hotset_core::sampling::{Plan, Reevaluation, Residents};
use hotset_core::schedule::Schedule;
use hotset_core::{Error, Id, Index, Result};
use hotset_engine::{
    Cluster, Concurrency, Config, Engine, JobRequest, JobStats, Placed, Role, SessionId, Trained, Unplaced,
};
use hotset_store::Opened;

use crate::common::{Memory, Reader, config, dataset, place, request, sharded};
use crate::differential::loss;

/// How a node answers those that ask it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    Right,
    /// It cannot be reached.
    Dead,
    /// It says after a while that it cannot.
    Slow,
    /// It does not answer until the deadline.
    Hung,
    /// It gives half of what it is asked for, and then no more.
    Half,
    /// It has another view of the nodes.
    Stale,
    /// What came has another length, or another checksum, than it should.
    Wrong,
}

/// What all nodes see.
pub struct Shared {
    engines: Mutex<Vec<Weak<Engine>>>,
    /// The nodes that the next plan is laid over, and the node of each rank.
    pub view: Mutex<Arc<View>>,
    pub ranks: Mutex<Vec<usize>>,
    pub home: Mutex<usize>,
    pub locality: bool,
    placement: PlacementKind,
    pub manners: Mutex<BTreeMap<usize, Manner>>,
    /// So many plans cannot be settled, or got.
    pub unsettled: AtomicU64,
    pub ungot: AtomicU64,
    pub asked: AtomicU64,
    /// Questions that each node is answering, and the most at a time of any.
    answering: Mutex<BTreeMap<usize, u64>>,
    pub most_at_a_time: AtomicU64,
    /// The most slots of a question.
    pub most_slots: AtomicU64,
    /// Of which epoch each node has said what it keeps, and how many samples that was.
    pub gathered: Mutex<Vec<(u64, usize, usize)>>,
    /// Nodes that are gone.
    pub gone: Mutex<BTreeSet<usize>>,
    samples: usize,
}

/// One node's side of it.
struct Direct {
    name: String,
    shared: Arc<Shared>,
}

pub fn name(number: usize) -> String {
    format!("node-{number}")
}

pub fn view(nodes: impl Iterator<Item = usize>, revision: u64) -> Arc<View> {
    Arc::new(View::new(nodes.map(|number| Node {
        name: name(number),
        address: format!("{number}"),
        capacity: 1 << 20,
        rack: None,
        draining: false,
        revision,
    })))
}

/// Nodes that are all about to leave.
pub fn draining(count: usize) -> Arc<View> {
    let nodes = view(0..count, 1);
    let draining = |node: &Node| Node { draining: true, ..node.clone() };
    Arc::new(View::new(nodes.nodes().iter().map(draining)))
}

impl Shared {
    fn engine(&self, number: usize) -> Result<Arc<Engine>> {
        let engine = self.engines.lock().unwrap().get(number).and_then(Weak::upgrade);
        engine.ok_or_else(|| Error::unavailable("the node is gone"))
    }
}

fn fails(left: &AtomicU64) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

impl Cluster for Direct {
    fn name(&self) -> &str {
        &self.name
    }

    fn placement(&self) -> PlacementKind {
        self.shared.placement
    }

    fn settle(&self, _job: &str, drawn: Unplaced) -> Result<Placed> {
        if fails(&self.shared.unsettled) {
            return Err(Error::unavailable("this node is no longer the home"));
        }
        let view = Arc::clone(&self.shared.view.lock().unwrap());
        let placement = Arc::new(Placement::new(&view));
        let ranks: Vec<String> = self.shared.ranks.lock().unwrap().iter().map(|&node| name(node)).collect();
        let ranks = ranks.iter().map(|name| Some(name.as_str()));
        drawn.place((view, placement), &self.name, ranks, self.shared.locality)
    }

    fn plan(&self, job: &str, epoch: u64, _world: Option<u32>) -> Result<Placed> {
        if fails(&self.shared.ungot) {
            return Err(Error::unavailable("the home does not answer"));
        }
        let home = *self.shared.home.lock().unwrap();
        let bytes = self.shared.engine(home)?.placed(job, epoch, Duration::from_secs(10))?;
        Placed::restore(&bytes, self.shared.samples, &self.name)
    }

    fn residents(&self, job: &str, after: Option<u64>, samples: usize) -> Residents {
        let (home, gone) = (*self.shared.home.lock().unwrap(), self.shared.gone.lock().unwrap().clone());
        let others = (0..self.shared.engines.lock().unwrap().len())
            .filter(|node| *node != home && !gone.contains(node));
        let is_right = |node: &usize| {
            self.shared.manners.lock().unwrap().get(node).is_none_or(|manner| *manner == Manner::Right)
        };
        let mut all = Residents::none(samples);
        for node in others.filter(is_right) {
            let engine = self.shared.engine(node).unwrap();
            let saved = engine.residents_after(job, after, Duration::from_secs(10)).unwrap();
            let residents = Residents::restore(&saved, samples).unwrap();
            let kept = engine.residents(job).unwrap();
            assert_eq!(kept.len(), residents.count(), "nothing changes before the plan");
            assert!(kept.iter().all(|&id| residents.contains(id)));
            self.shared.gathered.lock().unwrap().push((after.map_or(0, |epoch| epoch + 1), node, kept.len()));
            all.add_saved(&saved, samples).unwrap();
        }
        all
    }

    fn reevaluation(&self, job: &str, epoch: u64) -> Result<Reevaluation> {
        self.shared.engine(*self.shared.home.lock().unwrap())?.reevaluation_of(job, epoch)
    }

    fn fetch(
        &self,
        owner: &Node,
        wanted: &Wanted,
        deadline: Duration,
        places: &mut [&mut [u8]],
    ) -> Result<Vec<Given>> {
        self.shared.asked.fetch_add(places.len() as u64, Ordering::SeqCst);
        self.shared.most_slots.fetch_max(places.len() as u64, Ordering::SeqCst);
        let number: usize = owner.address.parse().unwrap();
        let now = {
            let mut answering = self.shared.answering.lock().unwrap();
            let now = answering.entry(number).or_default();
            *now += 1;
            *now
        };
        self.shared.most_at_a_time.fetch_max(now, Ordering::SeqCst);
        let given = self.ask((owner, number), wanted, deadline, places);
        *self.shared.answering.lock().unwrap().entry(number).or_default() -= 1;
        given
    }
}

impl Direct {
    fn ask(
        &self,
        (owner, number): (&Node, usize),
        wanted: &Wanted,
        deadline: Duration,
        places: &mut [&mut [u8]],
    ) -> Result<Vec<Given>> {
        assert_eq!(owner.name, name(number));
        let manner = self.shared.manners.lock().unwrap().get(&number).copied().unwrap_or(Manner::Right);
        let mut wanted = wanted.clone();
        match manner {
            Manner::Dead => return Err(Error::unavailable("connection refused")),
            Manner::Slow => {
                std::thread::sleep(Duration::from_millis(20));
                return Err(Error::unavailable("too busy"));
            }
            Manner::Hung => {
                std::thread::sleep(deadline);
                return Err(Error::unavailable("no answer by the deadline"));
            }
            Manner::Half => wanted.slots.truncate(wanted.slots.len().div_ceil(2)),
            Manner::Stale => wanted.view ^= 1,
            Manner::Wrong | Manner::Right => {}
        }
        let mut given = Vec::new();
        self.shared.engine(number)?.give(&wanted, Instant::now() + deadline, &mut |answer| {
            let place = &mut places[given.len()];
            let mut fits = answer.bytes.len() == place.len();
            if manner == Manner::Wrong && given.len() % 2 == 0 {
                // What did not pass the checks leaves a place as it likes.
                place.fill(0xee);
                fits = false;
            } else if fits {
                place.copy_from_slice(answer.bytes);
            }
            let came = Given { kind: answer.kind, hit: answer.hit };
            given.push(if fits || answer.bytes.is_empty() { came } else { Given::FAILED });
            true
        });
        Ok(given)
    }
}

/// Nodes that train one job.
pub struct Nodes {
    pub engines: Vec<Arc<Engine>>,
    pub stores: Vec<Arc<Memory>>,
    pub opened: Vec<Opened>,
    pub shared: Arc<Shared>,
    pub request: JobRequest,
    /// The session that keeps the job open on each node.
    pub sessions: Vec<SessionId>,
}

/// What nodes are made from.
#[derive(Clone)]
pub struct Made {
    pub sizes: Vec<u64>,
    pub nodes: usize,
    /// The node of each rank.
    pub ranks: Vec<usize>,
    pub locality: bool,
    pub placement: PlacementKind,
    pub wait: Duration,
    pub prefetch: bool,
    pub cache: &'static str,
    pub strategy: &'static str,
    pub policy: &'static str,
    /// Of the strategy.
    pub settings: &'static [(&'static str, &'static str)],
    /// Samples of a shard, where they lie in shards.
    pub each: Option<usize>,
    /// Where packages are written.
    pub packages: Option<String>,
}

impl Made {
    pub fn new(samples: u64, nodes: usize, ranks: &[usize]) -> Self {
        Self {
            sizes: (0..samples).map(|id| 60 + id * 7919 % 90).collect(),
            nodes,
            ranks: ranks.to_vec(),
            locality: true,
            placement: PlacementKind::Hash,
            wait: Duration::from_secs(20),
            prefetch: true,
            cache: "20%",
            strategy: "uniform",
            policy: "minio",
            settings: &[],
            each: None,
            packages: None,
        }
    }

    pub fn with(self, strategy: &'static str, policy: &'static str) -> Self {
        Self { strategy, policy, ..self }
    }

    pub fn request(&self, opened: &Opened) -> JobRequest {
        JobRequest {
            strategy: Some(self.strategy.into()),
            strategy_settings: self
                .settings
                .iter()
                .map(|&(name, value)| (name.into(), value.into()))
                .collect(),
            prefetch: self.prefetch,
            packages: self.packages.clone(),
            package_bytes: if self.each.is_some() || self.packages.is_some() { 2_000 } else { 1 << 20 },
            ..request(opened, self.cache, self.policy)
        }
    }

    /// A node's engine, which has no job yet.
    pub fn engine(&self, shared: &Arc<Shared>, number: usize) -> Arc<Engine> {
        let engine = Arc::new(Engine::new(Config { concurrency: Concurrency::Fixed(4), ..config() }));
        let direct = Direct { name: name(number), shared: Arc::clone(shared) };
        engine.join_cluster(Arc::new(direct), self.wait);
        engine
    }

    pub fn role(&self, number: usize) -> Role {
        let capacity = self.capacity();
        if number == 0 { Role::Home { capacity } } else { Role::Follower { capacity } }
    }

    pub fn capacity(&self) -> u64 {
        let whole: u64 = self.sizes.iter().sum();
        let share = self.cache.trim_end_matches('%').parse::<u64>().unwrap();
        whole.min(whole * share / 100 * self.nodes as u64)
    }
}

/// What a node of the simulator counts that carries out these plans.
pub fn carried_out(made: &Made, plans: impl Iterator<Item = (Schedule, Packing)>) -> Vec<PlanCounters> {
    let sizes = Arc::new(made.sizes.clone());
    let share = made.cache.trim_end_matches('%').parse::<u64>().unwrap();
    let setup = Setup::new(made.sizes.iter().sum::<u64>() * share / 100, sizes.clone(), 7);
    let mut cache = Cache::new((policy::find(made.policy).unwrap().build)(setup), sizes.len());
    let mut run = JobRun::new(sizes);
    run.join(&mut cache);
    let mut counted = Vec::new();
    for (schedule, packing) in plans {
        let plan = Arc::clone(schedule.plan());
        run.planned(schedule, &packing);
        run.enter(plan.epoch());
        let mut changes = Vec::new();
        while run.next_block().is_some() {
            run.step(&mut cache, &mut changes);
        }
        run.serve(plan.epoch(), 0..plan.len());
        counted.push(run.tally().epochs()[&plan.epoch()].plan.clone());
        run.remove(plan.epoch());
    }
    counted
}

impl Nodes {
    pub fn new(made: &Made) -> Self {
        let shared = Arc::new(Shared {
            engines: Mutex::default(),
            view: Mutex::new(view(0..made.nodes, 1)),
            ranks: Mutex::new(made.ranks.clone()),
            home: Mutex::new(0),
            locality: made.locality,
            placement: made.placement,
            manners: Mutex::default(),
            unsettled: AtomicU64::new(0),
            ungot: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            answering: Mutex::default(),
            most_at_a_time: AtomicU64::new(0),
            most_slots: AtomicU64::new(0),
            gathered: Mutex::default(),
            gone: Mutex::default(),
            samples: made.sizes.len(),
        });
        let (mut engines, mut stores, mut all, mut sessions) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for number in 0..made.nodes {
            let opened = match made.each {
                None => {
                    let (opened, store) = dataset(&made.sizes);
                    stores.push(store);
                    opened
                }
                Some(each) => sharded(&made.sizes, each).0,
            };
            let engine = made.engine(&shared, number);
            let session = engine.attach();
            engine.open_dataset(session, &opened);
            let request = made.request(&opened);
            let runs = place(&opened, &request);
            engine.open_job_as(session, request, runs, made.role(number)).unwrap();
            engines.push(engine);
            all.push(opened);
            sessions.push(session);
        }
        let request = made.request(&all[0]);
        *shared.engines.lock().unwrap() = engines.iter().map(Arc::downgrade).collect();
        Self { engines, stores, opened: all, shared, request, sessions }
    }

    /// A node has another engine, which has the job open.
    pub fn replace(&mut self, number: usize, engine: Arc<Engine>, session: SessionId) {
        self.shared.engines.lock().unwrap()[number] = Arc::downgrade(&engine);
        (self.engines[number], self.sessions[number]) = (engine, session);
    }

    /// A node is gone, and what it had.
    pub fn lose(&mut self, number: usize, made: &Made) {
        self.shared.gone.lock().unwrap().insert(number);
        self.set(number, Manner::Dead);
        let engine = Arc::new(Engine::new(config()));
        engine.join_cluster(
            Arc::new(Direct { name: name(number), shared: Arc::clone(&self.shared) }),
            made.wait,
        );
        self.replace(number, engine, self.sessions[number]);
    }

    /// The nodes that are there and follow.
    fn followers(&self) -> impl Iterator<Item = (usize, &Arc<Engine>)> {
        let (home, gone) = (self.home(), self.shared.gone.lock().unwrap().clone());
        self.engines.iter().enumerate().filter(move |(number, _)| *number != home && !gone.contains(number))
    }

    pub fn home(&self) -> usize {
        *self.shared.home.lock().unwrap()
    }

    pub fn world(&self) -> u32 {
        self.shared.ranks.lock().unwrap().len() as u32
    }

    pub fn node_of(&self, rank: u32) -> usize {
        self.shared.ranks.lock().unwrap()[rank as usize]
    }

    pub fn set(&self, node: usize, manner: Manner) {
        self.shared.manners.lock().unwrap().insert(node, manner);
    }

    /// A rank begins an epoch, as servers have it: at the home, then where it is; the others hear of it.
    pub fn begin(&self, rank: u32, epoch: u64) -> Result<Arc<Plan>> {
        self.begin_at(rank, epoch, 0)
    }

    pub fn begin_at(&self, rank: u32, epoch: u64, start: u64) -> Result<Arc<Plan>> {
        let (home, node, of) = (self.home(), self.node_of(rank), (rank, self.world()));
        let plan = if node == home {
            self.engines[home].begin_epoch("job", epoch, of, start, false)?
        } else {
            self.engines[home].note_begun("job", epoch, of, start, false)?
        };
        for (number, engine) in self.followers() {
            engine.plan_ahead("job", epoch, plan.digest())?;
            let there = if number == node {
                engine.begin_epoch("job", epoch, of, start, false)?
            } else {
                engine.note_begun("job", epoch, of, start, false)?
            };
            assert_eq!(there, plan, "all nodes have the same plan");
        }
        Ok(plan)
    }

    /// A rank trains positions of an epoch that it has begun, batch by batch, and reports.
    pub fn train(&self, rank: u32, plan: &Plan, positions: std::ops::Range<usize>, batch: usize) {
        let node = self.node_of(rank);
        let engine = &*self.engines[node];
        let mut reader = Reader::new(engine, &self.opened[node]);
        let epoch = plan.epoch();
        let ids: Vec<Id> = plan.rank_ids(rank).collect();
        let mut at = positions.start;
        while at < positions.end {
            let until = (at + batch).min(positions.end);
            let index = |&id: &Id| Index { epoch: Some(epoch), sample: id.into() }.into_raw();
            let indices: Vec<u64> = ids[at..until].iter().map(index).collect();
            let held = reader.get_as(rank, &indices).unwrap();
            reader.release(held);
            self.report(rank, plan, at..until);
            at = until;
        }
        engine.detach(reader.session, Instant::now());
    }

    /// Ranks train positions of an epoch, all at the same time.
    pub fn train_all(&self, plan: &Plan, positions: &[std::ops::Range<usize>], batch: usize) {
        std::thread::scope(|scope| {
            for (rank, positions) in (0..).zip(positions.iter().cloned()) {
                scope.spawn(move || self.train(rank, plan, positions, batch));
            }
        });
    }

    /// A rank reports what it has trained: to the home, of which the others hear.
    pub fn report(&self, rank: u32, plan: &Plan, positions: std::ops::Range<usize>) {
        let ids: Vec<Id> = positions.clone().map(|at| plan.ids()[plan.slot(rank, at)]).collect();
        let losses: Vec<f32> = ids.iter().map(|&id| loss(id, plan.epoch())).collect();
        let (epoch, upto) = (plan.epoch(), positions.end as u64);
        let trained = Trained { epoch, rank, upto, ids: &ids, losses: &losses };
        let home = self.home();
        self.engines[home].report("job", trained).unwrap();
        self.followers().for_each(|(_, engine)| engine.scored("job", trained).unwrap());
    }

    /// All ranks train an epoch, at the same time.
    pub fn epoch(&self, epoch: u64, batch: usize) -> Arc<Plan> {
        std::thread::scope(|scope| {
            let rank = |rank: u32| {
                let plan = self.begin(rank, epoch).unwrap();
                self.train(rank, &plan, 0..plan.rank_len(), batch);
                plan
            };
            let ranks: Vec<_> = (0..self.world()).map(|number| scope.spawn(move || rank(number))).collect();
            let plans: Vec<Arc<Plan>> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
            assert!(plans.iter().all(|plan| plan == &plans[0]));
            Arc::clone(&plans[0])
        })
    }

    /// The home hears what became of packages elsewhere.
    pub fn tell_of_packages(&self) {
        let home = &self.engines[self.home()];
        for (_, engine) in self.followers() {
            let news = engine.package_news("job");
            home.note_packages("job", &news);
            engine.package_news_told("job", &news);
            let left = engine.package_news("job");
            let again = |package: &u32| left.written.contains(package) || left.lost.contains(package);
            assert!(!news.written.iter().chain(&news.lost).any(again), "what was told is told once");
        }
    }

    pub fn stats(&self, node: usize) -> JobStats {
        self.engines[node].job_stats(Some("job")).remove(0)
    }

    /// What a node has counted of an epoch.
    pub fn counted(&self, node: usize, epoch: u64) -> Counters {
        let stats = self.engines[node].job_stats(Some("job")).pop();
        let epochs = stats.map(|stats| stats.epochs).unwrap_or_default();
        epochs.into_iter().find(|(of, _)| *of == epoch).map(|(_, counters)| counters).unwrap_or_default()
    }

    /// What all nodes have counted of an epoch.
    pub fn sum(&self, epoch: u64) -> Counters {
        let mut sum = Counters::default();
        (0..self.engines.len()).for_each(|node| sum.add(&self.counted(node, epoch)));
        sum
    }

    /// Whatever happens, no sample is kept on two nodes, and none on another than its owner.
    pub fn check_residents(&self) {
        let mut keepers: BTreeMap<Id, usize> = BTreeMap::new();
        let home = (self.home(), &self.engines[self.home()]);
        for (number, engine) in self.followers().chain([home]) {
            let owned = engine.owned("job").unwrap();
            for id in engine.residents("job").unwrap() {
                assert!(
                    owned.binary_search(&id).is_ok(),
                    "node {number} keeps sample {id} and does not own it"
                );
                assert_eq!(keepers.insert(id, number), None, "sample {id} is kept twice");
            }
        }
    }
}
