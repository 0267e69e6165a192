//! What a server does for its clients, however they are connected: a request in, a reply out.
//!
//! Handlers know no socket. What must be handed over is a descriptor beside the reply's message, and what a long
//! request needs of its client meanwhile is asked of a [`Caller`]. The Unix socket's [session](crate::session) is one
//! transport; tests are another.

mod copying;
mod jobs;
mod samples;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hotset_core::{Error, Result};
use hotset_engine::{
    Config, Ends, Engine, Logs, NewSegment, ReadOn, SessionId, available_memory, machine_memory,
};
use hotset_wire::EndsPage;
use hotset_wire::proto::{self, request, response};

use crate::access::Accounts;
use crate::answer;
use crate::cache_log::CacheLogs;
use crate::catalogs::Catalogs;
use crate::cluster::{ClusterOptions, Node, Routed};
use crate::history::History;
use crate::leftovers::Leftovers;
use crate::options::Options;
use crate::record::Recorder;
use crate::runs::{Peer, Runs, unique};
use crate::sharing::Sharing;
use crate::state::StateDirectory;

/// How long another node that is asked for samples has to answer.
const FETCH: Duration = Duration::from_secs(5);

/// The engine, and all that a server knows around it.
pub(crate) struct Service {
    pub(crate) engine: Engine,
    catalogs: Catalogs,
    pub(crate) runs: Runs,
    states: StateDirectory,
    history: History,
    leftovers: Option<Leftovers>,
    recorder: Recorder,
    logs: Option<Arc<CacheLogs>>,
    accounts: Arc<Accounts>,
    sharing: Option<Arc<Sharing>>,
    /// The other servers that it is one cache with.
    cluster: OnceLock<Arc<Node>>,
    /// Clients so far.
    clients: AtomicU64,
    /// Random at each start.
    instance: String,
    started: Instant,
}

/// A client of the service, from its first request to its last.
pub(crate) struct Client {
    peer: Peer,
    user: u32,
    /// Its number here.
    number: u64,
    /// The node that it is a client of, where that is another one.
    node: Option<String>,
    /// The parts of a state that it has put.
    put: Vec<u8>,
}

/// The page in which a client notes which lease has ended.
struct SeenEnds(EndsPage);

impl Ends for SeenEnds {
    fn ended(&self) -> u64 {
        self.0.noted()
    }

    fn set_urgent(&self, urgent: bool) {
        self.0.set_urgent(urgent);
    }
}

/// What is said to a request.
pub(crate) struct Reply {
    pub(crate) message: response::Kind,
    /// Sealed memory that the message speaks of, in its order.
    pub(crate) descriptors: Vec<OwnedFd>,
    /// Segments that the client must map before it reads the message.
    pub(crate) segments: Vec<NewSegment>,
    /// What is done when the reply was sent and is dropped.
    pub(crate) read_on: Option<ReadOn>,
}

impl From<response::Kind> for Reply {
    fn from(message: response::Kind) -> Self {
        Self { message, descriptors: Vec::new(), segments: Vec::new(), read_on: None }
    }
}

/// A client while its request is worked on.
pub(crate) trait Caller {
    /// An error once the reply is of no use: the client has gone, or the server stops.
    fn check(&mut self) -> Result<()>;

    /// The memory that came with its request.
    fn memory(&mut self) -> Result<OwnedFd> {
        Err(Error::invalid("this request comes with memory"))
    }

    /// Hears how far a long request is.
    fn progress(&mut self, progress: proto::Progress);
}

impl Service {
    pub(crate) fn new(options: &Options, accounts: Arc<Accounts>) -> Result<Self> {
        let recorder = Recorder::new(options.record.clone())?;
        let logs = options.record.clone().map(CacheLogs::new).transpose()?.map(Arc::new);
        let config = Config {
            concurrency: options.concurrency,
            memory: options.memory,
            machine: machine_memory(),
            available: available_memory,
            retries: options.retries,
            linger: options.linger,
            logs: logs.clone().map(|logs| logs as Arc<dyn Logs>),
            patience: options.patience,
        };
        let engine = Engine::new(config);
        let sharing = options.shared.clone().map(Sharing::new).transpose()?;
        if let Some(sharing) = &sharing {
            engine.share(Arc::clone(sharing) as _);
        }
        Ok(Self {
            engine,
            catalogs: Catalogs::new(options.listings.clone(), options.digests.clone()),
            runs: Runs::default(),
            states: StateDirectory::new(options.state.clone()),
            history: History::new(options.state.as_deref()),
            leftovers: options.state.as_deref().map(Leftovers::new),
            recorder,
            logs,
            accounts,
            sharing,
            cluster: OnceLock::new(),
            clients: AtomicU64::new(0),
            instance: unique(),
            started: Instant::now(),
        })
    }

    /// This server as a node of a cluster, if it is one.
    #[cfg(test)]
    pub(crate) fn node(&self) -> Option<&Arc<Node>> {
        self.cluster.get()
    }

    /// Its name, another at each start.
    pub(crate) fn instance(&self) -> &str {
        &self.instance
    }

    /// Takes in a client of `user` that runs in `process`, and notes there which lease has ended, if it can.
    pub(crate) fn connect(&self, process: u32, user: u32, ends: Option<EndsPage>) -> Client {
        let ends = ends.map(|page| Arc::new(SeenEnds(page)) as Arc<dyn Ends>);
        let peer = Peer { session: self.engine.attach_with(ends), process };
        let number = self.clients.fetch_add(1, Ordering::Relaxed);
        Client { peer, user, number, node: None, put: Vec::new() }
    }

    /// Takes in a client of another node.
    pub(crate) fn connect_guest(&self, process: u32, node: String) -> Client {
        let user = rustix::process::geteuid().as_raw();
        Client { node: Some(node), ..self.connect(process, user, None) }
    }

    /// Makes this server a node of a cluster, which knows of `capacity` bytes that it gives.
    pub(crate) fn join_cluster(
        self: &Arc<Self>,
        options: &ClusterOptions,
        capacity: u64,
        patience: Duration,
    ) -> Result<()> {
        let node = Node::start(self, options, capacity, patience)?;
        self.engine.join_cluster(Arc::clone(&node) as _, FETCH);
        // There is one for a server's life.
        let _ = self.cluster.set(node);
        Ok(())
    }

    /// Lets go of all that a client holds: it has gone.
    pub(crate) fn disconnect(&self, client: &Client) {
        self.disconnect_here(client);
        if let Some(node) = self.cluster.get() {
            node.left(client.number);
        }
    }

    /// The same on this node alone.
    pub(crate) fn disconnect_here(&self, client: &Client) {
        let session = client.peer.session;
        self.engine.detach(session, Instant::now());
        self.leave_all(session);
    }

    /// The reply to a request; `None` for one that is never answered.
    pub(crate) fn handle(
        &self,
        client: &mut Client,
        request: request::Kind,
        caller: &mut dyn Caller,
    ) -> Result<Option<Reply>> {
        let Some(node) = self.cluster.get() else { return self.handle_here(client, request, caller) };
        match node.route(self, client, request, caller)? {
            Routed::Done(reply) => Ok(Some(reply)),
            Routed::Here(request) => self.handle_here(client, request, caller),
        }
    }

    /// The same on this node, whatever others there are.
    pub(crate) fn handle_here(
        &self,
        client: &mut Client,
        request: request::Kind,
        caller: &mut dyn Caller,
    ) -> Result<Option<Reply>> {
        let peer = client.peer;
        let message = match request {
            request::Kind::GetBatch(asked) => return self.get_batch(peer, &asked, caller).map(Some),
            request::Kind::BeginEpoch(asked) => return self.begin_epoch(client, &asked, caller).map(Some),
            request::Kind::GetMemory(asked) => return self.get_memory(&asked).map(Some),
            request::Kind::Reevaluate(asked) => return self.reevaluate(&asked).map(Some),
            request::Kind::Released(released) => {
                self.engine.release(peer.session, &released.leases);
                return Ok(None);
            }
            request::Kind::Reevaluated(asked) => {
                let losses = (asked.ids.as_slice(), asked.losses.as_slice());
                self.engine.reevaluated(&asked.job, asked.epoch, asked.rank, losses, asked.last)?;
                response::Kind::Noted(proto::Noted {})
            }
            request::Kind::EndEpoch(asked) => {
                self.engine.end_epoch(&asked.job, asked.epoch, asked.rank, asked.accuracy)?;
                response::Kind::Noted(proto::Noted {})
            }
            request::Kind::PutState(asked) => {
                client.put_state(asked.part)?;
                response::Kind::Noted(proto::Noted {})
            }
            request::Kind::OpenDataset(asked) => {
                let opened = self.open_dataset_here(peer.session, asked, &mut |done| {
                    caller.check()?;
                    // Before the first sample there is nothing to tell.
                    if done > 0 {
                        caller.progress(proto::Progress { what: "listing".into(), done });
                    }
                    Ok(())
                })?;
                response::Kind::DatasetOpened(opened)
            }
            request::Kind::OpenJob(asked) => response::Kind::JobOpened(self.open_job(client, asked, None)?),
            request::Kind::CloseJob(asked) => {
                self.close_job(peer.session, &asked);
                response::Kind::JobClosed(proto::JobClosed {})
            }
            request::Kind::Report(asked) => response::Kind::Reported(self.report(&asked)?),
            request::Kind::GetStats(asked) => response::Kind::Stats(self.stats(&asked.job)),
            request::Kind::Describe(asked) => response::Kind::Described(self.describe(&asked)?),
            request::Kind::GetContents(_) | request::Kind::PutContents(_) => {
                return Err(Error::invalid(
                    "this server keeps nothing by hash: name one that runs with `--tenants` (HOTSET_SHARED)",
                ));
            }
            request::Kind::Hello(_) => return Err(Error::invalid("a connection says hello only once")),
        };
        Ok(Some(message.into()))
    }

    /// Opens a dataset for a session of this node.
    pub(crate) fn open_dataset_here(
        &self,
        session: SessionId,
        asked: proto::OpenDataset,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<proto::DatasetOpened> {
        let again = self.cluster.get().map(|node| (node, asked.clone()));
        let opened = self.catalogs.open(&self.engine, session, asked, progress)?;
        if let Some((node, asked)) = again {
            node.note_dataset(asked, &opened.dataset);
        }
        Ok(opened)
    }

    /// The figures of a job, or of all.
    pub(crate) fn stats(&self, job: &str) -> proto::Stats {
        let server = proto::ServerStats {
            version: crate::VERSION.to_owned(),
            pid: std::process::id(),
            instance: self.instance.clone(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            refused: answer::refused(&self.accounts),
            shared: self.sharing.as_ref().map(|sharing| sharing.stats()),
            node: self.cluster.get().map(|node| node.stats()),
            ..answer::server_stats(&self.engine.stats())
        };
        let jobs = self.engine.job_stats((!job.is_empty()).then_some(job));
        proto::Stats { server: Some(server), jobs: jobs.into_iter().map(answer::job_stats).collect() }
    }

    /// Hands on to other nodes what this one is the home of, before the server stops.
    pub(crate) fn leave_cluster(&self) {
        if let Some(node) = self.cluster.get() {
            node.leave();
        }
    }

    /// Ends every wait for the engine: the server stops.
    pub(crate) fn stop(&self) {
        if let Some(node) = self.cluster.get() {
            node.stop();
        }
        self.engine.stop();
    }

    /// Ends the logs of caches with what was counted: nothing more will happen.
    pub(crate) fn end_logs(&self) {
        if let Some(logs) = &self.logs {
            self.engine.note_counts();
            logs.finish();
        }
    }
}

/// Bytes in sealed memory, one part after the other, as a reply.
fn memory<B: AsRef<[u8]>>(length: usize, parts: impl IntoIterator<Item = B>) -> Result<Reply> {
    let message = response::Kind::Memory(proto::Memory { length: length as u64 });
    Ok(Reply { descriptors: vec![answer::memory(parts)?], ..message.into() })
}

#[cfg(test)]
mod bench;
#[cfg(test)]
mod run_tests;
#[cfg(test)]
mod service_tests;
