//! A node: its membership, what it asks and answers, and the jobs that it has with others.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use hotset_cluster::peers::Counted;
use hotset_cluster::{Address, Member, Membership, PeerServer, Peers, membership};
use hotset_core::cluster::{Placement, PlacementKind, View};
use hotset_core::{Error, Result};
use hotset_wire::nodes::{answer, question};
use hotset_wire::proto::{self, OpenDataset};

use super::answers::Answers;
use super::asking::{Asked, Asking, Patience};
use super::copies::Copies;
use super::door::Door;
use super::followed::Followed;
use super::guests::Guests;
use super::home::{HomeJob, Left};
use super::homes::{Home, Homes};
use super::keeping;
use super::options::ClusterOptions;
use crate::lock::Lock;
use crate::runs::base_name;
use crate::service::Service;

/// How long a node waits for the key of an earlier life to run out.
const EARLIER: Duration = Duration::from_secs(10);

/// This server's part in a cluster.
pub(crate) struct Node {
    pub(super) name: String,
    /// Where etcd is.
    pub(super) address: Address,
    pub(super) locality: bool,
    /// By which rule this node lays plans, and whether it was said that a home does so by another.
    pub(super) kind: PlacementKind,
    pub(super) kinds_differ: AtomicBool,
    /// How long a plan waits for nodes and ranks.
    pub(super) patience: Duration,
    pub(super) service: Weak<Service>,
    pub(super) homes: Homes,
    pub(super) asking: Asking,
    pub(super) answers: Arc<Answers>,
    pub(super) jobs: NodeJobs,
    pub(super) clients: NodeClients,
    placement: Lock<Option<(u64, Arc<Placement>)>>,
    membership: OnceLock<Membership>,
    server: OnceLock<PeerServer>,
    stopping: AtomicBool,
}

/// The jobs that a node has with others.
#[derive(Default)]
pub(super) struct NodeJobs {
    /// Those that it is the home of.
    pub(super) here: Lock<HashMap<String, Arc<HomeJob>>>,
    /// Openings of those that have ended here, the last ones.
    pub(super) ended: Lock<VecDeque<String>>,
    /// Those that it follows, and those that are just being opened to be followed.
    pub(super) followed: Lock<HashMap<String, Arc<Followed>>>,
    pub(super) opening: Lock<HashSet<String>>,
    /// What it would go on with of them.
    pub(super) copies: Copies,
}

/// A node's clients at other nodes, and those of others here.
#[derive(Default)]
pub(super) struct NodeClients {
    pub(super) guests: Guests,
    /// The nodes at which each client of this one is a guest.
    pub(super) visits: Lock<HashMap<u64, BTreeSet<String>>>,
    /// How each dataset was asked for, by the name that it has here.
    pub(super) datasets: Lock<HashMap<String, OpenDataset>>,
    /// Nodes that wait here for something to happen to a job.
    pub(super) waiting: AtomicUsize,
}

/// Where a job's home is.
pub(super) enum At {
    /// Here, under this fence.
    Here(i64),
    /// At the node of that name.
    There(String),
}

impl Node {
    /// Joins the cluster; returns when other nodes can see this one.
    pub(crate) fn start(
        service: &Arc<Service>,
        options: &ClusterOptions,
        capacity: u64,
        patience: Duration,
    ) -> Result<Arc<Self>> {
        let token = options.token.clone().map(|token| token.0);
        if token.is_none() {
            tracing::warn!(
                listen = %options.listen,
                "every user of this host can ask this node, and have it open data: set `peer_token_file` unless that is meant"
            );
        }
        let peers = Peers::new(options.authority.clone(), token.clone())?;
        let node = Arc::new(Self {
            name: options.node.clone(),
            address: options.address.clone(),
            locality: options.locality,
            kind: options.placement,
            kinds_differ: AtomicBool::new(false),
            patience,
            service: Arc::downgrade(service),
            homes: Homes::watch(&options.address)?,
            asking: Asking::new(peers, options.node.clone(), service.instance().to_owned()),
            answers: Arc::default(),
            jobs: NodeJobs::default(),
            clients: NodeClients::default(),
            placement: Lock::default(),
            membership: OnceLock::new(),
            server: OnceLock::new(),
            stopping: AtomicBool::new(false),
        });
        let door = Arc::new(Door::new(&node));
        let server = PeerServer::start(options.listen, options.certificate.clone(), token, door)?;
        let member = Member {
            name: options.node.clone(),
            address: options.advertised(server.address())?,
            capacity,
            rack: options.rack.clone(),
            draining: false,
            version: crate::VERSION.to_owned(),
        };
        // There is one server and one membership for a node's life.
        let _ = node.server.set(server);
        let told = Arc::downgrade(&node);
        let heard = move |view: &Arc<View>| {
            if let Some(node) = told.upgrade() {
                node.asking.peers.retain(view.nodes().iter().map(|node| node.address.as_str()));
            }
        };
        let membership = Membership::join(options.address.clone(), member, membership::TTL, Box::new(heard))?;
        let _ = node.membership.set(membership);
        keeping::start(&node)?;
        Ok(node)
    }

    /// Ends what this node waits for: the server stops.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.jobs.here.lock().values().for_each(|job| job.leave(Left::Moved));
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// An error once the server stops.
    pub(super) fn check(&self) -> Result<()> {
        if self.is_stopping() { Err(Error::unavailable("the server is stopping")) } else { Ok(()) }
    }

    pub(super) fn service(&self) -> Result<Arc<Service>> {
        self.service.upgrade().ok_or_else(|| Error::unavailable("the server is stopping"))
    }

    /// The nodes, as this one sees them.
    pub(crate) fn view(&self) -> Arc<View> {
        self.membership.get().map(Membership::view).unwrap_or_default()
    }

    /// Who owns what under a view by hash, which is worked out once.
    pub(super) fn placement(&self, view: &View) -> Arc<Placement> {
        if let Some((of, placement)) = &*self.placement.lock()
            && *of == view.id()
        {
            return Arc::clone(placement);
        }
        let placement = Arc::new(Placement::new(view));
        *self.placement.lock() = Some((view.id(), Arc::clone(&placement)));
        placement
    }

    /// The lease of this node, as long as it surely lives.
    pub(super) fn lease(&self) -> Option<i64> {
        self.membership.get()?.lease()
    }

    /// The same; an error where it may have run out.
    pub(super) fn living_lease(&self) -> Result<i64> {
        let away = || {
            Error::unavailable(
                "this node is no member of its cluster now, because etcd (`--cluster`) does not answer it or has let its \
                 lease run out",
            )
        };
        self.lease().ok_or_else(away)
    }

    /// Whether this node is about to leave.
    pub(super) fn is_draining(&self) -> bool {
        let view = self.view();
        view.index_of(&self.name).is_some_and(|number| view.nodes()[number].draining)
    }

    /// Its figures.
    pub(crate) fn stats(&self) -> proto::NodeStats {
        let view = self.view();
        let given = self.server.get().map(PeerServer::counters).unwrap_or_default();
        let asked = self.asking.peers.counters();
        proto::NodeStats {
            name: self.name.clone(),
            nodes: view.len() as u64,
            view: view.id(),
            member: self.lease().is_some(),
            draining: self.is_draining(),
            home_of: self.jobs.here.lock().len() as u64,
            follows: self.jobs.followed.lock().len() as u64,
            given: Some(peer_stats(&given, given.bytes_out)),
            asked: Some(peer_stats(&asked, asked.bytes_in)),
        }
    }

    /// The jobs that a node is the home of.
    #[cfg(test)]
    pub(super) fn jobs_at(&self, node: &str) -> Vec<String> {
        self.homes.at(node)
    }

    /// The address of a node.
    pub(super) fn address_of(&self, node: &str) -> Option<String> {
        let view = self.view();
        Some(view.nodes()[view.index_of(node)?].address.clone())
    }

    /// Asks a node something.
    pub(super) fn ask(&self, node: &str, kind: question::Kind, mut patience: Patience<'_>) -> Asked {
        self.asking.ask(node, &|| self.address_of(node), kind, &mut patience)
    }

    /// Asks a node something, and expects one kind of answer.
    pub(super) fn ask_for<T>(
        &self,
        node: &str,
        kind: question::Kind,
        patience: Patience<'_>,
        expected: impl FnOnce(answer::Kind) -> Option<T>,
    ) -> Result<T> {
        let said = self.ask(node, kind, patience)??;
        expected(said)
            .ok_or_else(|| Error::unavailable(format!("the node `{node}` is not the job's home now")))
    }

    /// Where the home of a job is, or of the jobs of its name. It is here from now on where there is none, unless this node is about
    /// to leave and another is not.
    pub(super) fn find_home(&self, job: &str) -> Result<At> {
        let name = base_name(job);
        let until = std::time::Instant::now() + EARLIER;
        loop {
            self.check()?;
            let known = self.homes.of(name);
            let home = match known {
                Some(home) => home,
                None => match self.other_than_this() {
                    Some(other) => return Ok(At::There(other)),
                    None => self.homes.claim(name, &self.name, self.living_lease()?)?,
                },
            };
            if let Some(at) = self.at(&home)? {
                return Ok(at);
            }
            if std::time::Instant::now() >= until {
                return Err(Error::unavailable(format!(
                    "the key of job `{name}` in etcd is of an earlier start of this node and does not run out"
                )));
            }
            self.homes.wait(Duration::from_millis(100));
        }
    }

    /// Where a home is; `None` for a key of an earlier life of this node, which runs out.
    fn at(&self, home: &Home) -> Result<Option<At>> {
        if home.node != self.name {
            return Ok(Some(At::There(home.node.clone())));
        }
        let lease = self.living_lease()?;
        Ok(Homes::is_under(home, lease).then_some(At::Here(home.fence)))
    }

    /// The node that a node which is about to leave has made home.
    fn other_than_this(&self) -> Option<String> {
        if !self.is_draining() {
            return None;
        }
        let view = self.view();
        let stays = view.nodes().iter().find(|node| !node.draining && node.name != self.name);
        stays.map(|node| node.name.clone())
    }

    /// The job, if this node is its home.
    pub(crate) fn home_job(&self, job: &str) -> Option<Arc<HomeJob>> {
        self.jobs.here.lock().get(job).cloned()
    }

    /// The job, if this node follows it.
    pub(super) fn followed_job(&self, job: &str) -> Option<Arc<Followed>> {
        self.jobs.followed.lock().get(job).cloned()
    }

    /// All jobs that this node follows.
    pub(super) fn followed_jobs(&self) -> Vec<Arc<Followed>> {
        self.jobs.followed.lock().values().cloned().collect()
    }

    /// All jobs that this node is the home of.
    pub(super) fn home_jobs(&self) -> BTreeMap<String, Arc<HomeJob>> {
        self.jobs.here.lock().iter().map(|(job, home)| (job.clone(), Arc::clone(home))).collect()
    }
}

fn peer_stats(counted: &Counted, bytes: u64) -> proto::PeerStats {
    proto::PeerStats {
        requests: counted.requests,
        samples: counted.given,
        declined: counted.yours + counted.stale + counted.unknown,
        failed: counted.failed,
        wrong: counted.wrong,
        refused: counted.refused,
        busy: counted.busy,
        bytes,
    }
}
