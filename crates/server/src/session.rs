//! One connection: a thread that reads requests, calls the engine and answers.
//!
//! Requests are answered one after the other, in order. Whatever a client sends, it gets an answer or loses
//! its connection. A connection that cannot be used any more is closed for writing alone: the client may still
//! look at what it leases, so its leases end when it hangs up, and not before.
//!
//! A server that stops says nothing: it hangs up on every client, as a killed one does, and clients wait for the next
//! server or start one. Their leases stay until the process ends, since others may still be served meanwhile.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hotset_core::{Error, Kind, Result};
use hotset_engine::{Grant, Purpose, SessionId};
use hotset_wire::proto::{self, request, response};
use hotset_wire::socket::{self, Connection, MOST_DESCRIPTORS};
use hotset_wire::{PROTOCOL, proto::Response};

use crate::answer;
use crate::opening::Opening;
use crate::server::Host;
use crate::state::Peer;
use crate::watch::{Guest, counts_as_we_do};

/// How long a client has to say who it is, and to take an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a connection that is over is looked at.
const LOOK_UP: Duration = Duration::from_millis(200);
/// How often a client hears of a long request.
const PROGRESS: Duration = Duration::from_millis(250);
/// The most samples described in one answer.
const DESCRIBED: u64 = 1 << 16;

/// The most bytes of a state: 24 a sample of the largest dataset.
const MOST_STATE: usize = 24 << 32;

/// Serves one connection until it ends.
pub(crate) fn serve(mut connection: Connection, host: &Arc<Host>) {
    let session = host.engine.attach();
    if let Err(Trouble::Line(error) | Trouble::Request(error)) = converse(&mut connection, host, session) {
        tracing::debug!(%error, "a connection ended early");
    }
    let _ = rustix::net::shutdown(connection.as_fd(), rustix::net::Shutdown::Write);
    while host.check().is_ok() {
        if connection.hung_up() {
            host.engine.detach(session, Instant::now());
            host.states.left(&host.engine, session);
            return;
        }
        std::thread::sleep(LOOK_UP);
    }
}

/// Why a request was not answered.
enum Trouble {
    /// It cannot be; the client is told.
    Request(Error),
    /// The connection broke, perhaps in the middle of an answer: nothing more can be said on it.
    Line(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Request(error)
    }
}

impl From<socket::Error> for Trouble {
    fn from(error: socket::Error) -> Self {
        Self::Line(error.into())
    }
}

/// What a request came to.
type Answered = std::result::Result<(), Trouble>;

fn converse(connection: &mut Connection, host: &Arc<Host>, session: SessionId) -> Answered {
    let mut tick = || host.check();
    let first: Option<proto::Request> = connection.receive(Some(Instant::now() + PATIENCE), &mut tick)?;
    let Some(request::Kind::Hello(hello)) = first.and_then(|request| request.kind) else {
        return refuse(connection, host, &Error::invalid("the first frame of a connection must be a hello"));
    };
    if hello.protocol != PROTOCOL {
        let error = Error::invalid(format!(
            "this server (version {}) speaks protocol {PROTOCOL}, the client (version {}) speaks {}: use the same \
             version of hotset for both",
            host.version, hello.version, hello.protocol
        ));
        return refuse(connection, host, &error);
    }
    // Held for its end: a private server stays while such a client does.
    let _guest =
        (host.private && hello.main_pid != 0).then(|| watched(connection, host, hello.main_pid)).flatten();
    let welcome = proto::Welcome {
        protocol: PROTOCOL,
        version: host.version.to_owned(),
        instance: host.instance.clone(),
        pid: std::process::id(),
    };
    send(connection, host, response::Kind::Welcome(welcome))?;
    // A process of another namespace has no number here; its own will do.
    let process = connection.peer_process().unwrap_or(hello.main_pid);
    let peer = Peer { session, process };
    // The parts of a state that were put on this connection.
    let mut put = Vec::new();
    loop {
        let mut tick = || host.check();
        let Some(request) = connection.receive::<proto::Request>(None, &mut tick)? else { return Ok(()) };
        // A busy connection never waits, and so never ticks.
        host.check().map_err(Trouble::Line)?;
        let Some(kind) = request.kind else {
            refuse(connection, host, &Error::invalid("a request of a kind this server does not know"))?;
            continue;
        };
        if let request::Kind::Released(released) = kind {
            host.engine.release(session, &released.leases);
            continue;
        }
        match answer(connection, host, peer, &mut put, kind) {
            Ok(()) => {}
            // Whatever broke off because the server stops is no answer: the client asks the next server.
            Err(Trouble::Request(error)) if host.check().is_err() => return Err(Trouble::Line(error)),
            Err(Trouble::Request(error)) => refuse(connection, host, &error)?,
            Err(line) => return Err(line),
        }
    }
}

/// Watches a client's training process, or the client itself where that process has another number here.
fn watched<'a>(connection: &Connection, host: &'a Host, main_pid: u32) -> Option<Guest<'a>> {
    if connection.peer().is_ok_and(|peer| peer.process.is_some_and(counts_as_we_do)) {
        host.watch.add(main_pid);
        return None;
    }
    Some(host.watch.guest())
}

/// Answers one request, or says why not.
fn answer(
    connection: &mut Connection,
    host: &Arc<Host>,
    peer: Peer,
    put: &mut Vec<u8>,
    kind: request::Kind,
) -> Answered {
    let (engine, session) = (&host.engine, peer.session);
    let answer = match kind {
        request::Kind::GetBatch(asked) => return get_batch(connection, host, session, &asked),
        request::Kind::BeginEpoch(asked) => return begin_epoch(connection, host, peer, &asked),
        request::Kind::GetMemory(asked) => return get_memory(connection, host, &asked),
        request::Kind::Reevaluate(asked) => {
            let ids = engine.reevaluation(&asked.job, asked.epoch, (asked.rank, asked.world))?;
            let bytes = ids.iter().map(|id| id.to_le_bytes());
            return send_memory(connection, host, 4 * ids.len(), bytes);
        }
        request::Kind::Reevaluated(asked) => {
            let losses = (asked.ids.as_slice(), asked.losses.as_slice());
            engine.reevaluated(&asked.job, asked.epoch, asked.rank, losses, asked.last)?;
            response::Kind::Noted(proto::Noted {})
        }
        request::Kind::EndEpoch(asked) => {
            engine.end_epoch(&asked.job, asked.epoch, asked.rank, asked.accuracy)?;
            response::Kind::Noted(proto::Noted {})
        }
        request::Kind::PutState(asked) => {
            if put.len() + asked.part.len() > MOST_STATE {
                put.clear();
                return Err(Error::invalid(format!("the state is larger than {MOST_STATE} bytes")).into());
            }
            put.extend(asked.part);
            response::Kind::Noted(proto::Noted {})
        }
        request::Kind::OpenDataset(asked) => {
            let mut told = Instant::now();
            let opened = host.catalogs.open(engine, session, asked, &mut |done| {
                host.check()?;
                if connection.hung_up() {
                    return Err(Error::unavailable("the client has gone, and nothing is listed for it"));
                }
                if told.elapsed() >= PROGRESS {
                    told = Instant::now();
                    let progress = proto::Progress { what: "listing".into(), done };
                    // A client that has gone meanwhile is noticed next time.
                    let _ = send(connection, host, response::Kind::Progress(progress));
                }
                Ok(())
            })?;
            response::Kind::DatasetOpened(opened)
        }
        request::Kind::OpenJob(asked) => {
            let state = std::mem::take(put);
            let state = asked.restore.then_some(state.as_slice());
            let opening = Opening::new(asked)?.sweeping(host.leftovers.clone(), peer.process);
            let opened = host.states.open(engine, peer, opening, state)?;
            let grant = opened.grant;
            response::Kind::JobOpened(proto::JobOpened {
                strategy: grant.strategy,
                policy: grant.policy,
                asked: grant.asked,
                granted: grant.granted,
                remarks: grant.remarks,
                one_host: grant.one_host,
                run: opened.run,
                resumed: opened.resumed,
                earlier: opened.earlier,
            })
        }
        request::Kind::CloseJob(asked) => {
            host.states.closes(engine, session, &asked.job);
            engine.close_job(session, &asked.job);
            host.states.closed(engine, session, &asked.job, asked.moves);
            response::Kind::JobClosed(proto::JobClosed {})
        }
        request::Kind::Report(asked) => {
            let (accepted, rejected) = host.states.report(engine, &asked)?;
            host.recorder.note(engine, &host.states, &asked);
            response::Kind::Reported(proto::Reported { accepted, rejected })
        }
        request::Kind::GetStats(asked) => response::Kind::Stats(stats(host, &asked.job)),
        request::Kind::Describe(asked) => response::Kind::Described(describe(host, &asked)?),
        request::Kind::Hello(_) => return Err(Error::invalid("a connection says hello only once").into()),
        request::Kind::Released(_) => return Ok(()),
    };
    send(connection, host, answer)
}

fn get_batch(
    connection: &mut Connection,
    host: &Arc<Host>,
    session: SessionId,
    asked: &proto::GetBatch,
) -> Answered {
    let wait = Duration::from_millis(asked.wait_ms);
    let mut alive = || !connection.hung_up() && host.check().is_ok();
    let (job, rank, indices) = (&asked.job, asked.rank, &asked.indices);
    let purpose = match asked.reevaluation {
        Some(epoch) => Purpose::Reevaluated(epoch),
        None if asked.matched => Purpose::Matched,
        None => Purpose::Served,
    };
    let grant = match host.engine.get_batch_for(session, job, rank, (indices, purpose), wait, &mut alive) {
        Ok(grant) => grant,
        Err(error) => {
            if error.kind == Kind::Changed {
                host.engine.dataset_of(&asked.job).iter().for_each(|dataset| host.catalogs.outdated(dataset));
            }
            return Err(error.into());
        }
    };
    send_grant(connection, host, grant)
}

fn send_grant(connection: &mut Connection, host: &Arc<Host>, grant: Grant) -> Answered {
    for some in grant.segments.chunks(MOST_DESCRIPTORS) {
        let segments =
            some.iter().map(|new| proto::Segment { segment: new.segment, length: new.length }).collect();
        let descriptors: Vec<_> = some.iter().map(|new| new.descriptor.as_fd()).collect();
        let message = Response { kind: Some(response::Kind::Segments(proto::Segments { segments })) };
        connection.send(&message, &descriptors, Some(Instant::now() + PATIENCE), &mut || host.check())?;
    }
    let batch = proto::Batch {
        lease: grant.lease,
        segment: grant.entries.iter().map(|entry| entry.segment).collect(),
        offset: grant.entries.iter().map(|entry| entry.offset).collect(),
        length: grant.entries.iter().map(|entry| entry.length).collect(),
        label: grant.labels,
        label_kind: answer::label_kind(grant.label_kind).into(),
        label_length: grant.label_lengths,
        dropped: grant.dropped,
        parts: grant.parts,
        remark: grant.remark.unwrap_or_default(),
    };
    send(connection, host, response::Kind::Batch(batch))
}

fn begin_epoch(
    connection: &mut Connection,
    host: &Arc<Host>,
    peer: Peer,
    asked: &proto::BeginEpoch,
) -> Answered {
    if !asked.join {
        host.states.begins(peer, &asked.job, asked.rank)?;
    }
    let ranks = (asked.rank, asked.world);
    let plan = host.engine.begin_epoch(&asked.job, asked.epoch, ranks, asked.start, asked.join)?;
    host.states.begun(&host.engine, &asked.job, asked.epoch);
    let memory = answer::plan_memory(&plan, asked.rank)?;
    // Each warning is told once, to the rank that speaks for the run.
    let untold = if asked.rank == 0 && !asked.join { host.engine.untold(&asked.job)? } else { Vec::new() };
    let begun = proto::EpochBegun {
        length: plan.rank_len() as u64,
        weighted: memory.len() > 1,
        warnings: untold
            .into_iter()
            .map(|remark| proto::Warning { name: remark.name.to_owned(), text: remark.text })
            .collect(),
    };
    let message = Response { kind: Some(response::Kind::EpochBegun(begun)) };
    let deadline = Some(Instant::now() + PATIENCE);
    let descriptors: Vec<_> = memory.iter().map(AsFd::as_fd).collect();
    Ok(connection.send(&message, &descriptors, deadline, &mut || host.check())?)
}

fn send_memory<B: AsRef<[u8]>>(
    connection: &mut Connection,
    host: &Arc<Host>,
    length: usize,
    parts: impl IntoIterator<Item = B>,
) -> Answered {
    let memory = answer::memory(parts)?;
    let message = Response { kind: Some(response::Kind::Memory(proto::Memory { length: length as u64 })) };
    let deadline = Some(Instant::now() + PATIENCE);
    Ok(connection.send(&message, &[memory.as_fd()], deadline, &mut || host.check())?)
}

fn get_memory(connection: &mut Connection, host: &Arc<Host>, asked: &proto::GetMemory) -> Answered {
    match asked.kind() {
        proto::MemoryKind::State => {
            let state = host.states.export(&host.engine, &asked.job)?;
            send_memory(connection, host, state.len(), [state])
        }
        proto::MemoryKind::Scores => {
            let scores = host.engine.scores(&asked.job)?;
            send_memory(connection, host, 4 * scores.len(), scores.into_iter().map(f32::to_le_bytes))
        }
    }
}

fn describe(host: &Arc<Host>, asked: &proto::Describe) -> Result<proto::Described> {
    let catalog = host.engine.catalog(&asked.dataset)?;
    let samples = catalog.len() as u64;
    let count = asked.count.min(DESCRIBED).min(samples.saturating_sub(asked.first));
    let ids = || (asked.first..asked.first.saturating_add(count)).map(|id| id as hotset_core::Id);
    let (mut labels, mut label_lengths) = (Vec::new(), Vec::new());
    ids().for_each(|id| catalog.append_label(id, &mut labels, &mut label_lengths));
    Ok(proto::Described {
        keys: ids().map(|id| catalog.key(id)).collect(),
        labels,
        sizes: ids().map(|id| catalog.size(id)).collect(),
        label_kind: answer::label_kind(catalog.label_kind()).into(),
        label_lengths,
    })
}

pub(crate) fn stats(host: &Arc<Host>, job: &str) -> proto::Stats {
    let server = proto::ServerStats {
        version: host.version.to_owned(),
        pid: std::process::id(),
        instance: host.instance.clone(),
        uptime_seconds: host.started.elapsed().as_secs_f64(),
        ..answer::server_stats(&host.engine.stats())
    };
    let jobs = host.engine.job_stats((!job.is_empty()).then_some(job));
    proto::Stats { server: Some(server), jobs: jobs.into_iter().map(answer::job_stats).collect() }
}

fn refuse(connection: &mut Connection, host: &Arc<Host>, error: &Error) -> Answered {
    send(connection, host, response::Kind::Failure(error.clone().into()))
}

fn send(connection: &mut Connection, host: &Arc<Host>, kind: response::Kind) -> Answered {
    let message = Response { kind: Some(kind) };
    Ok(connection.send(&message, &[], Some(Instant::now() + PATIENCE), &mut || host.check())?)
}
