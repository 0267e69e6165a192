//! What a server does for its clients, however they are connected: a request in, a reply out.
//!
//! Handlers know no socket. What must be handed over is a descriptor beside the reply's message, and what a long
//! request needs of its client meanwhile is asked of a [`Caller`]. The Unix socket's [session](crate::session) is one
//! transport; tests are another.

mod jobs;
mod samples;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use hotset_core::{Error, Result};
use hotset_engine::{Config, Engine, Logs, NewSegment, available_memory, machine_memory};
use hotset_wire::proto::{self, request, response};

use crate::access::Accounts;
use crate::answer;
use crate::cache_log::CacheLogs;
use crate::catalogs::Catalogs;
use crate::leftovers::Leftovers;
use crate::options::Options;
use crate::record::Recorder;
use crate::runs::{Peer, Runs, unique};
use crate::sharing::Sharing;
use crate::state::StateDirectory;

/// The engine, and all that a server knows around it.
pub(crate) struct Service {
    engine: Engine,
    catalogs: Catalogs,
    runs: Runs,
    states: StateDirectory,
    leftovers: Option<Leftovers>,
    recorder: Recorder,
    logs: Option<Arc<CacheLogs>>,
    accounts: Arc<Accounts>,
    sharing: Option<Arc<Sharing>>,
    /// Random at each start.
    instance: String,
    started: Instant,
}

/// A client of the service, from its first request to its last.
pub(crate) struct Client {
    peer: Peer,
    user: u32,
    /// The parts of a state that it has put.
    put: Vec<u8>,
}

/// What is said to a request.
pub(crate) struct Reply {
    pub(crate) message: response::Kind,
    /// Sealed memory that the message speaks of, in its order.
    pub(crate) descriptors: Vec<OwnedFd>,
    /// Segments that the client must map before it reads the message.
    pub(crate) segments: Vec<NewSegment>,
}

impl From<response::Kind> for Reply {
    fn from(message: response::Kind) -> Self {
        Self { message, descriptors: Vec::new(), segments: Vec::new() }
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
            concurrency: options.concurrency.max(1),
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
            leftovers: options.state.as_deref().map(Leftovers::new),
            recorder,
            logs,
            accounts,
            sharing,
            instance: unique(),
            started: Instant::now(),
        })
    }

    /// Its name, another at each start.
    pub(crate) fn instance(&self) -> &str {
        &self.instance
    }

    /// Takes in a client of `user` that runs in `process`.
    pub(crate) fn connect(&self, process: u32, user: u32) -> Client {
        Client { peer: Peer { session: self.engine.attach(), process }, user, put: Vec::new() }
    }

    /// Lets go of all that a client holds: it has gone.
    pub(crate) fn disconnect(&self, client: &Client) {
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
        let peer = client.peer;
        let message = match request {
            request::Kind::GetBatch(asked) => return self.get_batch(peer, &asked, caller).map(Some),
            request::Kind::BeginEpoch(asked) => return self.begin_epoch(peer, &asked).map(Some),
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
                let opened = self.catalogs.open(&self.engine, peer.session, asked, &mut |done| {
                    caller.check()?;
                    // Before the first sample there is nothing to tell.
                    if done > 0 {
                        caller.progress(proto::Progress { what: "listing".into(), done });
                    }
                    Ok(())
                })?;
                response::Kind::DatasetOpened(opened)
            }
            request::Kind::OpenJob(asked) => response::Kind::JobOpened(self.open_job(client, asked)?),
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

    /// The figures of a job, or of all.
    pub(crate) fn stats(&self, job: &str) -> proto::Stats {
        let server = proto::ServerStats {
            version: crate::VERSION.to_owned(),
            pid: std::process::id(),
            instance: self.instance.clone(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            refused: answer::refused(&self.accounts),
            shared: self.sharing.as_ref().map(|sharing| sharing.stats()),
            ..answer::server_stats(&self.engine.stats())
        };
        let jobs = self.engine.job_stats((!job.is_empty()).then_some(job));
        proto::Stats { server: Some(server), jobs: jobs.into_iter().map(answer::job_stats).collect() }
    }

    /// Ends every wait for the engine: the server stops.
    pub(crate) fn stop(&self) {
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
