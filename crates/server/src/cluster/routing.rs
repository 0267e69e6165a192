//! Requests of clients, on their way to the home of their job.
//!
//! A client asks its own host's server. What decides a training goes on to the home, where the client is a guest: it opens the
//! job there, begins epochs, reports. What only moves bytes stays. An answer that would have come in memory of its own comes inline, and is put
//! into memory here. A job that has moved meanwhile is lost to its clients, who open it anew and name the run that they
//! were in.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hotset_core::{Error, Kind, Result};
use hotset_engine::{JobGrant, Role};
use hotset_wire::nodes::{Begun, Forward, Forwarded, Invite, Leave, Noted, Opened, answer, question};
use hotset_wire::proto::{self, Launch, OpenDataset, OpenJob, Request, Response, request, response};

use super::asking::Patience;
use super::followed::Followed;
use super::home::{HomeJob, Left};
use super::homes::Home;
use super::node::{At, Node};
use crate::answer as replies;
use crate::runs::{base_name, unique};
use crate::service::{Caller, Client, Reply, Service};

/// How long a home may be silent before a request to it fails: as long as a client waits by default. One that waits less gives up
/// by itself, and a job that has another home by then goes on there.
const SILENCE: Duration = Duration::from_secs(600);
/// The same of a node that does not matter much.
const FAREWELL: Duration = Duration::from_secs(5);
/// How long a job is looked for whose home moves.
const MOVING: Duration = Duration::from_secs(60);
/// The pause before it is looked for again.
const PAUSE: Duration = Duration::from_millis(200);
/// The most bytes of a state that are handed on at a time.
const PART: usize = 16 << 20;

/// What became of a request.
pub(crate) enum Routed {
    /// Its reply.
    Done(Reply),
    /// It is for this node.
    Here(request::Kind),
}

/// A job that is opened on the node that is its home.
pub(crate) struct AtHome {
    node: Arc<Node>,
    fence: i64,
    invite: Invite,
}

impl AtHome {
    /// What this node is to the job.
    pub(crate) fn role(&self) -> Role {
        Role::Home { capacity: self.invite.opened.as_ref().map_or(0, |opened| opened.capacity) }
    }

    /// The job has begun: others may take part from now on.
    pub(crate) fn begun(&self, job: &str, grant: &JobGrant) {
        let mut invite = self.invite.clone();
        if let Some(opened) = &mut invite.opened {
            (opened.opening, opened.follows_seed) = (unique(), !grant.one_host);
            opened.packs = grant.packs;
        }
        let takes_scores = self.node.service().is_ok_and(|service| service.engine.takes_scores(job));
        let home = Arc::new(HomeJob::new(job.to_owned(), invite, self.fence, takes_scores));
        let before = self.node.jobs.here.lock().insert(job.to_owned(), home);
        before.into_iter().for_each(|before| before.leave(Left::Anew));
    }

    /// A process has opened the job, and is a rank of it if its launcher says so.
    pub(crate) fn joined(&self, client: &Client, asked: &OpenJob) {
        let launch = asked.launch.as_ref().filter(|launch| !launch.reader);
        let rank = launch.and_then(|launch| launch.rank);
        if let Some((rank, home)) = rank.zip(self.node.home_job(&asked.job)) {
            home.note_rank(rank, None, client.node().unwrap_or(&self.node.name));
        }
    }
}

/// A rank that begins an epoch of a job whose home is here.
pub(crate) struct Beginning {
    home: Arc<HomeJob>,
    begun: Begun,
}

impl Beginning {
    /// It has begun: other nodes hear of it. The job, whose plan is to be copied before its rank hears of it.
    pub(crate) fn told(self, digest: u64) -> Arc<HomeJob> {
        self.home.begun(Begun { digest, ..self.begun });
        self.home
    }
}

impl Node {
    /// Hands a request on, if it is not this node that answers it.
    pub(crate) fn route(
        self: &Arc<Self>,
        service: &Service,
        client: &mut Client,
        request: request::Kind,
        caller: &mut dyn Caller,
    ) -> Result<Routed> {
        if let request::Kind::OpenJob(asked) = request {
            if !has_plans(&asked) {
                return Ok(Routed::Here(request::Kind::OpenJob(asked)));
            }
            let opened = self.open_job(service, client, asked, caller)?;
            return Ok(Routed::Done(response::Kind::JobOpened(opened).into()));
        }
        let Some(followed) = job_of(&request).and_then(|job| self.followed_job(job)) else {
            return Ok(Routed::Here(request));
        };
        let reply = match &request {
            request::Kind::BeginEpoch(asked) if asked.join => return Ok(Routed::Here(request)),
            request::Kind::BeginEpoch(asked) => {
                let asked = asked.clone();
                let told = self.forward(client, &followed, request, caller)?;
                let told = told.response.and_then(|response| response.kind);
                let Some(response::Kind::EpochBegun(begun)) = told else {
                    return Err(strange(&followed.home()));
                };
                let (job, epoch, rank) = (&asked.job, asked.epoch, (asked.rank, asked.world));
                // One that was made before, for a training that has gone back since, is not begun.
                followed.begins(epoch, begun.digest);
                service.engine.plan_ahead(job, epoch, begun.digest)?;
                let plan = service.engine.begin_epoch(job, epoch, rank, asked.start, false)?;
                let descriptors = replies::plan_memory(&plan, asked.rank)?;
                Reply { descriptors, ..response::Kind::EpochBegun(begun).into() }
            }
            request::Kind::CloseJob(asked) => {
                service.engine.close_job(client.session(), &asked.job);
                // A home that does not hear it hears that the client has gone.
                if let Err(error) = self.forward(client, &followed, request, caller) {
                    tracing::debug!(%error, "the home of a job does not know yet that a client has left it");
                }
                response::Kind::JobClosed(proto::JobClosed {}).into()
            }
            request::Kind::Reevaluate(asked) => {
                let (job, epoch, rank) = (asked.job.clone(), asked.epoch, asked.rank);
                let told = self.forward(client, &followed, request, caller)?;
                let wanted = told.memory.iter().any(|ids| !ids.is_empty());
                if wanted && let Err(error) = service.engine.reevaluates_here(&job, epoch, rank) {
                    // What is read for it counts as `recovery`.
                    tracing::warn!(job, epoch, %error, "this node does not know what is re-evaluated");
                }
                replied(told, &followed.home())?
            }
            request::Kind::Report(_)
            | request::Kind::Reevaluated(_)
            | request::Kind::EndEpoch(_)
            | request::Kind::GetMemory(_) => {
                replied(self.forward(client, &followed, request, caller)?, &followed.home())?
            }
            _ => return Ok(Routed::Here(request)),
        };
        Ok(Routed::Done(reply))
    }

    /// A rank is about to begin an epoch, if this node is the home of its job: where it is known from now on.
    pub(crate) fn begins(&self, client: &Client, asked: &proto::BeginEpoch) -> Option<Beginning> {
        let home = self.home_job(&asked.job)?;
        let node = client.node().unwrap_or(&self.name).to_owned();
        home.note_rank(asked.rank, Some(asked.world), &node);
        home.forget_heard(asked.rank);
        let proto::BeginEpoch { epoch, rank, world, start, .. } = *asked;
        Some(Beginning { home, begun: Begun { node, epoch, rank, world, start, digest: 0 } })
    }

    /// Something was reported to the engine here, of the state of that number.
    pub(crate) fn reported(&self, report: &proto::Report, generation: u64) -> Result<()> {
        if let Some(home) = self.home_job(&report.job) {
            self.copy_report(report, generation)?;
            home.heard(report);
            home.reported(report);
        }
        Ok(())
    }

    /// Notes how a dataset was opened, for nodes that are to open it too.
    pub(crate) fn note_dataset(&self, asked: OpenDataset, name: &str) {
        let asked = OpenDataset { expect: name.to_owned(), ..asked };
        self.clients.datasets.lock().insert(name.to_owned(), asked);
    }

    /// A client of this node has gone: so it has at the homes of its jobs.
    pub(crate) fn left(self: &Arc<Self>, client: u64) {
        let visited = self.clients.visits.lock().remove(&client);
        for home in visited.unwrap_or_default() {
            let weak = Arc::downgrade(self);
            // A home that is cut off hears it later: until then the job is not over there. One that has left the cluster has no guests.
            let tell = move || {
                while let Some(node) = weak.upgrade()
                    && node.address_of(&home).is_some()
                {
                    let mut check = || node.check();
                    let left = question::Kind::Leave(Leave { client });
                    match node.ask(&home, left, Patience::of(FAREWELL, &mut check)) {
                        Err(error) if error.kind == Kind::Unavailable && !node.is_stopping() => {
                            tracing::debug!(%error, "the home of a job does not know yet that a client has gone");
                        }
                        _ => return,
                    }
                    drop(node);
                    std::thread::sleep(FAREWELL);
                }
            };
            if let Err(error) = std::thread::Builder::new().name("hotset-leave".into()).spawn(tell) {
                tracing::warn!(%error, "the home of a job is not told that a client has gone");
            }
        }
    }

    /// Opens a job for a client of this node, here or where its home is.
    fn open_job(
        self: &Arc<Self>,
        service: &Service,
        client: &mut Client,
        asked: OpenJob,
        caller: &mut dyn Caller,
    ) -> Result<proto::JobOpened> {
        let put = client.take_put();
        let until = Instant::now() + MOVING;
        loop {
            caller.check()?;
            let opened = match self.find_home_unless_between(&asked.job) {
                // etcd may come back, or the job's home.
                Err(error) if error.kind == Kind::Unavailable && Instant::now() < until => None,
                Err(error) => return Err(error),
                Ok(None) => None,
                Ok(Some(At::Here(fence))) => {
                    client.give_put(put.clone());
                    Some(self.open_here(service, client, asked.clone(), fence)?)
                }
                Ok(Some(At::There(home))) => self.open_there(service, client, &asked, &put, &home, caller)?,
            };
            if let Some(mut opened) = opened {
                opened.cluster = true;
                return Ok(opened);
            }
            if Instant::now() >= until {
                return Err(Error::unavailable(format!(
                    "job `{}` has no home among the nodes of the cluster: `hotset nodes` shows them",
                    asked.job
                )));
            }
            self.homes.wait(PAUSE);
        }
    }

    /// The home of a job; `None` while it has none and this node has the job open still: soon a node that has a copy of it takes it
    /// over, or this one gives it up.
    pub(super) fn find_home_unless_between(&self, job: &str) -> Result<Option<At>> {
        let homeless = |home: &Option<Home>| home.as_ref().is_none_or(|home| home.node == self.name);
        if self.followed_job(job).is_some() && homeless(&self.homes.of(base_name(job))) {
            return Ok(None);
        }
        self.find_home(job).map(Some)
    }

    /// Opens a job as its home.
    pub(super) fn open_here(
        self: &Arc<Self>,
        service: &Service,
        client: &mut Client,
        asked: OpenJob,
        fence: i64,
    ) -> Result<proto::JobOpened> {
        if let Some(followed) = self.followed_job(&asked.job) {
            self.stop_following(&followed);
        }
        let name = asked.settings.as_ref().map(|settings| settings.dataset.clone()).unwrap_or_default();
        let dataset = self.clients.datasets.lock().get(&name).cloned();
        let capacity = self.capacity(service, &asked)?;
        let opened = Some(Opened { capacity, ..Opened::default() });
        // Those that are invited join as they are: what the client goes on from is the home's affair.
        let job = OpenJob { restore: false, resume: None, run: String::new(), ..asked.clone() };
        let at_home =
            AtHome { node: Arc::clone(self), fence, invite: Invite { dataset, job: Some(job), opened } };
        service.open_job(client, asked, Some(&at_home))
    }

    /// The bytes that all nodes together may keep for a job.
    fn capacity(&self, service: &Service, asked: &OpenJob) -> Result<u64> {
        let request =
            crate::settings::request(asked.job.clone(), &asked.settings.clone().unwrap_or_default())?;
        let whole = service.engine.catalog(&request.dataset)?.bytes();
        let view = self.view();
        let nodes = view.nodes().iter().filter(|node| !node.draining).count().max(1) as u64;
        Ok(request.cache.of(whole).min(whole).saturating_mul(nodes).min(whole))
    }

    /// Opens a job whose home is another node, there and here; `None` if that is not its home.
    fn open_there(
        self: &Arc<Self>,
        service: &Service,
        client: &Client,
        asked: &OpenJob,
        put: &[u8],
        home: &str,
        caller: &mut dyn Caller,
    ) -> Result<Option<proto::JobOpened>> {
        let name = asked.settings.as_ref().map(|settings| settings.dataset.clone()).unwrap_or_default();
        let unknown = || Error::new(Kind::Lost, format!("dataset `{name}` is not open on this server"));
        let dataset = self.clients.datasets.lock().get(&name).cloned().ok_or_else(unknown)?;
        let moved = Cell::new(false);
        let mut check = || {
            caller.check()?;
            let known = self.homes.of(base_name(&asked.job));
            moved.set(known.is_some_and(|known| known.node != home));
            if moved.get() { Err(Error::unavailable("the job has moved")) } else { Ok(()) }
        };
        let unless_moved = |told: Result<Option<Forwarded>>| if moved.get() { Ok(None) } else { told };
        for part in put.chunks(PART).filter(|_| asked.restore) {
            let put = request::Kind::PutState(proto::PutState { part: part.to_vec() });
            if unless_moved(self.ask_home(client, home, put, None, &mut check))?.is_none() {
                return Ok(None);
            }
        }
        let launch = asked.launch.clone().map(|launch| Launch { node: self.name.clone(), ..launch });
        let open = request::Kind::OpenJob(OpenJob { launch, ..asked.clone() });
        let told = unless_moved(self.ask_home(client, home, open, Some(dataset.clone()), &mut check))?;
        let Some(told) = told else { return Ok(None) };
        let opened = told.opened.ok_or_else(|| strange(home))?;
        let Some(Response { kind: Some(response::Kind::JobOpened(said)) }) = told.response else {
            return Err(strange(home));
        };
        let followed = self.take_part(home, dataset, asked.clone(), &opened)?;
        let request =
            crate::settings::request(asked.job.clone(), &asked.settings.clone().unwrap_or_default())?;
        let grant = service.engine.open_job_as(client.session(), request, None, followed.role)?;
        Ok(Some(proto::JobOpened { asked: grant.asked, granted: grant.granted, ..said }))
    }

    /// Asks the home of a job that this node follows.
    fn forward(
        &self,
        client: &Client,
        followed: &Followed,
        request: request::Kind,
        caller: &mut dyn Caller,
    ) -> Result<Forwarded> {
        let lost = || Error::new(Kind::Lost, format!("job `{}` has moved to another node", followed.job));
        let home = followed.home();
        let mut check = || {
            caller.check()?;
            if followed.is_over() || followed.home() != home { Err(lost()) } else { Ok(()) }
        };
        self.ask_home(client, &home, request, None, &mut check)?.ok_or_else(lost)
    }

    /// Hands a request on to a node; `None` if that is not the job's home.
    fn ask_home(
        &self,
        client: &Client,
        home: &str,
        request: request::Kind,
        dataset: Option<OpenDataset>,
        check: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<Forwarded>> {
        self.clients.visits.lock().entry(client.number()).or_default().insert(home.to_owned());
        let forward = question::Kind::Forward(Forward {
            client: client.number(),
            process: client.process(),
            request: Some(Request { kind: Some(request) }),
            dataset,
        });
        match self.ask(home, forward, Patience::of(SILENCE, check))?? {
            answer::Kind::Forwarded(told) => Ok(Some(told)),
            answer::Kind::Moved(Noted {}) => Ok(None),
            _ => Err(strange(home)),
        }
    }
}

/// Whether a job has plans, and so a home.
fn has_plans(asked: &OpenJob) -> bool {
    asked.settings.as_ref().is_some_and(|settings| !settings.strategy.is_empty())
}

/// The job that a request is about.
pub(super) fn job_of(request: &request::Kind) -> Option<&str> {
    match request {
        request::Kind::CloseJob(asked) => Some(&asked.job),
        request::Kind::BeginEpoch(asked) => Some(&asked.job),
        request::Kind::Report(asked) => Some(&asked.job),
        request::Kind::Reevaluate(asked) => Some(&asked.job),
        request::Kind::Reevaluated(asked) => Some(&asked.job),
        request::Kind::EndEpoch(asked) => Some(&asked.job),
        request::Kind::GetMemory(asked) => Some(&asked.job),
        _ => None,
    }
}

/// A reply, its memory made here.
fn replied(told: Forwarded, home: &str) -> Result<Reply> {
    let message = told.response.and_then(|response| response.kind).ok_or_else(|| strange(home))?;
    let descriptors = told.memory.iter().map(|bytes| replies::memory([bytes])).collect::<Result<_>>()?;
    Ok(Reply { descriptors, ..message.into() })
}

fn strange(home: &str) -> Error {
    Error::internal(format!(
        "the node `{home}` answers what this one does not understand: use one version on all nodes"
    ))
}
