//! Several services in one process, over a real etcd: nodes that train together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hotset_core::Result;
use hotset_core::cluster::PlacementKind;
use hotset_wire::proto::{
    self, BeginEpoch, CloseJob, GetBatch, GetMemory, JobOpened, JobSettings, Launch, MemoryKind, OpenDataset,
    OpenJob, Released, Report, Request, request, response,
};

use super::ClusterOptions;
use super::etcd_tests::etcd;
use crate::access::{Accounts, Audience, Quota};
use crate::options::Options;
use crate::service::{Caller, Client, Reply, Service};

const SAMPLES: usize = 600;
const PATIENCE: Duration = Duration::from_secs(5);

/// Nodes over one dataset.
struct Nodes {
    nodes: Vec<Server>,
    data: tempfile::TempDir,
    _etcd: etcd::Etcd,
}

/// One node.
struct Server {
    service: Arc<Service>,
    state: tempfile::TempDir,
}

/// A process of a node.
struct Process<'a> {
    server: &'a Server,
    client: Mutex<Client>,
    data: &'a Path,
    rank: u32,
}

struct Stays;

impl Caller for Stays {
    fn check(&mut self) -> Result<()> {
        Ok(())
    }

    fn progress(&mut self, _: proto::Progress) {}
}

fn options(state: &Path, cluster: Option<ClusterOptions>) -> Options {
    Options {
        socket: PathBuf::new(),
        audience: Audience::Own,
        quota: Quota::default(),
        tenants: false,
        shared: None,
        digests: None,
        embedded: false,
        watch: Vec::new(),
        memory: Some(1 << 30),
        concurrency: hotset_engine::Concurrency::Fixed(4),
        retries: 2,
        linger: Duration::ZERO,
        patience: PATIENCE,
        metrics: None,
        listings: None,
        record: None,
        state: Some(state.to_owned()),
        cluster,
    }
}

impl Server {
    fn start(etcd: &etcd::Etcd, name: &str, placement: PlacementKind) -> Self {
        let state = tempfile::tempdir().unwrap();
        let cluster = ClusterOptions {
            address: etcd.address("train"),
            node: name.into(),
            listen: "127.0.0.1:0".parse().unwrap(),
            advertise: None,
            rack: None,
            token: None,
            certificate: None,
            authority: None,
            locality: true,
            placement,
        };
        let options = options(state.path(), Some(cluster));
        let service = Arc::new(Service::new(&options, Arc::new(Accounts::new(Quota::default()))).unwrap());
        service.join_cluster(options.cluster.as_ref().unwrap(), 1 << 30, PATIENCE).unwrap();
        Self { service, state }
    }

    /// The newest epoch's figures of a job here.
    fn epoch(&self, job: &str, epoch: u64) -> proto::EpochStats {
        let job = self.service.stats(job).jobs.pop().unwrap();
        job.epochs.into_iter().find(|found| found.epoch == epoch).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.service.stop();
    }
}

impl Nodes {
    fn start(names: &[&str]) -> Self {
        Self::start_by(&Vec::from_iter(names.iter().map(|name| (*name, PlacementKind::Hash))))
    }

    /// Nodes of these names, each with the placement that it is given.
    fn start_by(names: &[(&str, PlacementKind)]) -> Self {
        let data = tempfile::tempdir().unwrap();
        for id in 0..SAMPLES {
            fs::write(data.path().join(format!("{id:05}")), sample(id)).unwrap();
        }
        let etcd = etcd::Etcd::start(1);
        let nodes = names.iter().map(|(name, placement)| Server::start(&etcd, name, *placement)).collect();
        let nodes = Self { nodes, data, _etcd: etcd };
        nodes.meet(names.len());
        nodes
    }

    /// Waits until all see so many.
    fn meet(&self, count: usize) {
        etcd::wait_until("the nodes see each other", || {
            let seen = |server: &Server| server.service.node().unwrap().view().len();
            self.nodes.iter().all(|server| seen(server) == count)
        });
    }

    fn process(&self, node: usize, rank: u32) -> Process<'_> {
        let server = &self.nodes[node];
        let user = rustix::process::geteuid().as_raw();
        // The same number on all hosts, as it may be.
        let client = Mutex::new(server.service.connect(100 + rank % 2, user, None));
        Process { server, client, data: self.data.path(), rank }
    }
}

/// What a sample is.
fn sample(id: usize) -> Vec<u8> {
    (0..40 + id % 7).map(|at| (id * 31 + at) as u8).collect()
}

impl Process<'_> {
    fn ask(&self, request: impl Into<Request>) -> Result<Reply> {
        let (mut client, request): (_, Request) = (self.client.lock().unwrap(), request.into());
        Ok(self.server.service.handle(&mut client, request.kind.unwrap(), &mut Stays)?.unwrap())
    }

    fn open(&self, job: &str, strategy: &str) -> Result<JobOpened> {
        self.open_in(job, strategy, "")
    }

    /// Opens a job again, being in a run of it.
    fn open_in(&self, job: &str, strategy: &str, run: &str) -> Result<JobOpened> {
        let place = self.data.to_str().unwrap().to_owned();
        let asked = OpenDataset { place, layout: "files".into(), ..OpenDataset::default() };
        let response::Kind::DatasetOpened(dataset) = self.ask(asked)?.message else { panic!("no dataset") };
        let settings = JobSettings {
            dataset: dataset.dataset,
            cache: "20%".into(),
            strategy: strategy.into(),
            prefetch: true,
            ..JobSettings::default()
        };
        let launch = Launch { name: "launch".into(), rank: Some(self.rank), ..Launch::default() };
        let (job, settings, launch, run) = (job.into(), Some(settings), Some(launch), run.into());
        match self.ask(OpenJob { job, settings, launch, run, lasting: true, ..OpenJob::default() })?.message {
            response::Kind::JobOpened(opened) => Ok(opened),
            other => panic!("{other:?}"),
        }
    }

    fn begin(&self, job: &str, epoch: u64, world: u32) -> Result<(Vec<u32>, u64)> {
        let asked = BeginEpoch { job: job.into(), epoch, rank: self.rank, world, ..BeginEpoch::default() };
        let reply = self.ask(asked)?;
        let response::Kind::EpochBegun(begun) = &reply.message else { panic!("{:?}", reply.message) };
        let digest = begun.digest;
        let ids = words(reply).into_iter().map(u32::from_le_bytes).collect();
        Ok((ids, digest))
    }

    /// Asks for all of an epoch, looks at every byte, and reports losses.
    fn train(&self, job: &str, epoch: u64, world: u32) -> Result<(Vec<u32>, u64)> {
        let (ids, digest) = self.begin(job, epoch, world)?;
        for (number, batch) in ids.chunks(16).enumerate() {
            self.batch(job, epoch, batch)?;
            let upto = (number * 16 + batch.len()) as u64;
            let scores = batch.iter().map(|&id| loss(id, epoch)).collect();
            let (job, rank, ids) = (job.to_owned(), self.rank, batch.to_vec());
            self.ask(Report { job, epoch, rank, upto, ids, scores })?;
        }
        Ok((ids, digest))
    }

    fn batch(&self, job: &str, epoch: u64, ids: &[u32]) -> Result<()> {
        let index = |&id: &u32| hotset_core::Index { epoch: Some(epoch), sample: id.into() }.into_raw();
        let indices = ids.iter().map(index).collect();
        let asked =
            GetBatch { job: job.into(), rank: self.rank, indices, wait_ms: 30_000, ..GetBatch::default() };
        let reply = self.ask(asked)?;
        let response::Kind::Batch(batch) = &reply.message else { panic!("{:?}", reply.message) };
        assert_eq!(batch.length, ids.iter().map(|&id| sample(id as usize).len() as u64).collect::<Vec<_>>());
        let released = request::Kind::Released(Released { leases: vec![batch.lease] });
        let none = self.server.service.handle(&mut self.client.lock().unwrap(), released, &mut Stays)?;
        assert!(none.is_none());
        Ok(())
    }

    fn close(&self, job: &str) {
        self.ask(CloseJob { job: job.into(), moves: false }).unwrap();
    }

    fn scores(&self, job: &str) -> Result<Vec<f32>> {
        let asked = GetMemory { job: job.into(), kind: MemoryKind::Scores.into() };
        Ok(words(self.ask(asked)?).into_iter().map(f32::from_le_bytes).collect())
    }
}

fn loss(id: u32, epoch: u64) -> f32 {
    ((id * 37 + epoch as u32 * 11) % 101) as f32 / 10.0
}

fn words(reply: Reply) -> Vec<[u8; 4]> {
    let memory = super::guests::bytes_of(reply.descriptors.into_iter().next().unwrap()).unwrap();
    memory.chunks_exact(4).map(|word| word.try_into().unwrap()).collect()
}

/// Does the same in all processes at a time.
fn all<'a, T: Send>(
    processes: &'a [Process<'a>],
    work: impl Fn(&Process<'a>) -> Result<T> + Sync,
) -> Vec<Result<T>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = processes.iter().map(|process| scope.spawn(|| work(process))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// What ranks trained, all together.
fn together(trained: Vec<Result<(Vec<u32>, u64)>>) -> (Vec<u32>, u64) {
    let trained: Vec<(Vec<u32>, u64)> = trained.into_iter().collect::<Result<_>>().unwrap();
    let digests: BTreeSet<u64> = trained.iter().map(|(_, digest)| *digest).collect();
    assert_eq!(digests.len(), 1, "all have one plan");
    let mut ids: Vec<u32> = trained.into_iter().flat_map(|(ids, _)| ids).collect();
    ids.sort_unstable();
    (ids, digests.into_iter().next().unwrap_or_default())
}

#[test]
#[ignore = "takes an etcd, which `make test` installs"]
fn a_node_of_a_cluster_refuses_orders_of_a_trainers_own() {
    let nodes = Nodes::start(&["a"]);
    let refused = nodes.process(0, 0).open("exp", "given").unwrap_err();
    assert!(
        refused.message.contains("an order of your own (`ids=`) is planned on one host alone"),
        "{refused}"
    );
}

#[test]
#[ignore = "takes an etcd, which `make test` installs"]
fn two_nodes_train_one_job_by_its_losses() {
    let nodes = Nodes::start(&["a", "b"]);
    let ranks: Vec<Process<'_>> = (0..4).map(|rank| nodes.process(rank as usize / 2, rank)).collect();
    let opened: Vec<JobOpened> = ranks.iter().map(|rank| rank.open("exp", "iis").unwrap()).collect();
    assert!(opened.iter().all(|other| other.cluster && other.one_host && other.run == opened[0].run));
    let node = |at: usize| nodes.nodes[at].service.node().unwrap();
    assert_eq!((node(0).jobs_at("a"), node(0).jobs_at("b")), (vec!["exp".to_owned()], vec![]));

    let mut served = BTreeMap::new();
    for epoch in 0..4 {
        let (ids, _) = together(all(&ranks, |rank| rank.train("exp", epoch, 4)));
        let distinct: BTreeSet<u32> = ids.iter().copied().collect();
        assert_eq!(distinct.len(), ids.len(), "no sample twice in epoch {epoch}");
        served.insert(epoch, ids.len());
    }
    assert_eq!(served[&0], SAMPLES, "the first epoch serves all");
    assert!(served[&3] < SAMPLES * 9 / 10, "then it goes by losses: {served:?}");
    let counted: Vec<_> = (0..2).map(|at| nodes.nodes[at].epoch("exp", 2)).collect();
    let sum = |figure: fn(&proto::EpochStats) -> u64| counted.iter().map(figure).sum::<u64>();
    assert_eq!(sum(|epoch| epoch.served), served[&2] as u64, "each slot is counted once: {counted:?}");
    assert!(sum(|epoch| epoch.recovery_reads) < served[&2] as u64 / 20, "{counted:?}");
    assert!(counted.iter().all(|epoch| epoch.served > 0), "both decide");

    // What was reported anywhere is known everywhere, and written down by the home alone.
    let scores = ranks[0].scores("exp").unwrap();
    assert_eq!(ranks[3].scores("exp").unwrap().len(), scores.len());
    assert!(scores.iter().all(|score| !score.is_nan()));
    let files = |at: usize| fs::read_dir(nodes.nodes[at].state.path()).unwrap().count();
    assert!(files(0) > 0 && files(1) == 0);

    ranks.iter().for_each(|rank| rank.close("exp"));
    etcd::wait_until("the job is over on both nodes", || {
        nodes.nodes.iter().all(|server| !server.service.engine.has_job("exp"))
            && node(1).jobs_at("a").is_empty()
    });
}

#[test]
#[ignore = "takes an etcd, which `make test` installs"]
fn the_homes_directory_counts_and_each_node_serves_what_it_has_read() {
    let nodes = Nodes::start_by(&[("a", PlacementKind::Directory), ("b", PlacementKind::Hash)]);
    let ranks: Vec<Process<'_>> = (0..2).map(|rank| nodes.process(rank as usize, rank)).collect();
    ranks.iter().for_each(|rank| drop(rank.open("exp", "uniform").unwrap()));
    let node = |at: usize| nodes.nodes[at].service.node().unwrap();
    assert_eq!(node(1).jobs_at("a"), ["exp"], "`a` is the home");
    for epoch in 0..4 {
        let (ids, _) = together(all(&ranks, |rank| rank.train("exp", epoch, 2)));
        assert_eq!(ids, Vec::from_iter(0..SAMPLES as u32), "epoch {epoch}");
    }
    let counted: Vec<_> = (0..2).map(|at| nodes.nodes[at].epoch("exp", 3)).collect();
    let sum = |figure: fn(&proto::EpochStats) -> u64| counted.iter().map(figure).sum::<u64>();
    assert_eq!(sum(|epoch| epoch.served), SAMPLES as u64, "each slot is counted once: {counted:?}");
    let away = sum(|epoch| epoch.node_reads);
    assert!(away < SAMPLES as u64 / 20, "{away} come from other nodes: {counted:?}");
    assert!(sum(|epoch| epoch.hit) > SAMPLES as u64 / 3, "two fifths are kept: {counted:?}");
    let said = [0, 1].map(|at| node(at).kinds_differ.load(std::sync::atomic::Ordering::Relaxed));
    assert_eq!(said, [false, true], "the node that is set otherwise says so");
    ranks.iter().for_each(|rank| rank.close("exp"));
}

#[test]
#[ignore = "takes an etcd, which `make test` installs"]
fn a_client_that_goes_without_a_word_leaves_the_job_at_its_home() {
    let nodes = Nodes::start(&["a", "b"]);
    let [first, second] = [(0, 0), (1, 1)].map(|(node, rank)| nodes.process(node, rank));
    for rank in [&first, &second] {
        rank.open("exp", "iis").unwrap();
    }
    first.close("exp");
    let service = |at: usize| &nodes.nodes[at].service;
    assert!(service(0).engine.has_job("exp"), "a rank of another node is in it");
    service(1).disconnect(&second.client.lock().unwrap());
    etcd::wait_until("the job lingers no more", || {
        nodes.nodes.iter().for_each(|server| server.service.tidy(std::time::Instant::now()));
        !service(0).engine.has_job("exp")
    });
    etcd::wait_until("the job has no home", || service(1).node().unwrap().jobs_at("a").is_empty());
    nodes.process(1, 1).open("exp", "iis").unwrap();
    etcd::wait_until("the node that opens it next is its home", || {
        service(0).node().unwrap().jobs_at("b") == ["exp".to_owned()]
    });
}

#[test]
#[ignore = "takes an etcd, which `make test` installs"]
fn when_a_home_is_handed_over_another_node_goes_on_with_what_was_learned() {
    let nodes = Nodes::start(&["a", "b", "c"]);
    let ranks: Vec<Process<'_>> = (1..3).map(|node| nodes.process(node, node as u32 - 1)).collect();
    // `a` is the home, and has no rank.
    let opener = nodes.process(0, 9);
    opener.open("exp", "iis").unwrap();
    let runs: Vec<String> = ranks.iter().map(|rank| rank.open("exp", "iis").unwrap().run).collect();
    opener.close("exp");
    for epoch in 0..2 {
        together(all(&ranks, |rank| rank.train("exp", epoch, 2)));
    }
    let known = ranks[0].scores("exp").unwrap();
    nodes.nodes[0].service.leave_cluster();
    etcd::wait_until("another node is the home", || {
        let node = nodes.nodes[0].service.node().unwrap();
        node.jobs_at("b").len() + node.jobs_at("c").len() == 1
    });
    let left = &nodes.nodes[0].service.engine;
    etcd::wait_until("the job has left its first home", || !left.has_job("exp"));
    assert!(left.take_ended().is_empty(), "it goes on elsewhere: nothing has come of it yet");
    // Whoever finds the job lost opens it again, and says which run it is in.
    for (rank, run) in ranks.iter().zip(&runs) {
        let opened = rank.open_in("exp", "iis", run).unwrap();
        assert_eq!(&opened.run, run);
    }
    let same = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| a == b);
    let kept = ranks[1].scores("exp").unwrap();
    assert!(same(&kept, &known), "nothing is forgotten: {known:?}, then {kept:?}");
    for epoch in 2..4 {
        let (ids, _) = together(all(&ranks, |rank| rank.train("exp", epoch, 2)));
        assert!(ids.len() < SAMPLES * 9 / 10, "epoch {epoch} goes by losses: {}", ids.len());
    }
}
