//! What a trainer calls: one synchronous connection to its host's server.
//!
//! A call sends one request and reads frames until the answer: progress goes to a callback, segments are mapped
//! and kept for the batches that lie in them. An error from the server leaves the connection as it was; a call
//! that fails on the way, runs out of time or is interrupted closes it, because its answer may still come and
//! must not be taken for another's.
//!
//! Calls from several threads take turns. Another process must open its own ([`crate::after_fork_in_child`]).

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hotset_core::{Error, Result};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt::Timeout,
    sockopt::set_socket_timeout,
};

use crate::PROTOCOL;
use crate::batch::{Batch, Segments};
use crate::calls::{Fault, Link, Shared};
use crate::ends::EndsPage;
use crate::frame;
use crate::mapping::Mapping;
use crate::plan::Plan;
use crate::proto::{self, Request, Response, response::Kind as Answer};
use crate::socket::{self, Connection, SLICE, Tick};

/// How much longer than its reader a client waits for a batch: the server knows which sample is late and why, so
/// that its error should come first.
const GRACE: Duration = Duration::from_secs(2);

/// Bytes of a state put in one call.
const PART: usize = 16 << 20;

/// Hears how far a long request is; its error ends the call.
pub type Progress<'a> = &'a mut dyn FnMut(&proto::Progress) -> Result<()>;

/// A connection to a server.
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
    welcome: proto::Welcome,
    last: LastBatch,
}

/// The job of the batch that was got last, and when it was asked for.
#[derive(Debug, Default)]
struct LastBatch(Mutex<Option<(String, Instant)>>);

impl LastBatch {
    fn take(&self) -> Option<(String, Instant)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, last: (String, Instant)) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
    }
}

impl Client {
    /// Connects to the server at `path` for the training process `main_pid`.
    pub fn connect(path: &Path, main_pid: u32, timeout: Duration, tick: Tick<'_>) -> Result<Self> {
        Self::connect_to(path, None, main_pid, timeout, tick)
    }

    /// The same, where the server may also be of the user `trusted`. What a server gives out is trained on, so whose it is
    /// must be said.
    pub fn connect_to(
        path: &Path,
        trusted: Option<u32>,
        main_pid: u32,
        timeout: Duration,
        tick: Tick<'_>,
    ) -> Result<Self> {
        let deadline = Instant::now().checked_add(timeout);
        let connection = Connection::new(open(path, deadline, tick)?)?;
        let owner = connection.peer()?.user;
        if owner != rustix::process::geteuid().as_raw() && Some(owner) != trusted {
            return Err(Error::invalid(format!(
                "the server at `{}` belongs to another user, `{owner}`: name one of your own, or set HOTSET_SERVER_USER \
                 to `{owner}` if you trust that user with what you train on",
                path.display()
            )));
        }
        let hello = proto::Hello { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").into(), main_pid };
        let mut client = Self {
            shared: Shared::new(path, connection),
            welcome: proto::Welcome::default(),
            last: LastBatch::default(),
        };
        let hear = |answer, descriptors: Vec<OwnedFd>, _: &mut Segments| match answer {
            Answer::Welcome(welcome) => {
                let ends = descriptors.first().map(EndsPage::open).transpose();
                Some(ends.map(|ends| (welcome, ends)))
            }
            _ => None,
        };
        let (welcome, ends) = client.call("hello", hello, timeout, tick, &mut |_| Ok(()), hear)?;
        client.welcome = welcome;
        client.shared.set_ends(ends);
        if client.welcome.protocol != PROTOCOL {
            return Err(Error::invalid(format!(
                "this client speaks protocol `{PROTOCOL}`, the server at `{}` (version `{}`) speaks `{}`: \
                 install the same version for both",
                path.display(),
                client.welcome.version,
                client.welcome.protocol,
            )));
        }
        Ok(client)
    }

    /// What the server said of itself.
    pub fn welcome(&self) -> &proto::Welcome {
        &self.welcome
    }

    /// Whether no call can succeed any more; so it is in a forked child.
    pub fn closed(&self) -> bool {
        self.shared.closed()
    }

    /// Ends calls, now or within a slice. Batches stay valid: the socket is closed behind the last of them.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Opens a catalog.
    pub fn open_dataset(
        &self,
        request: proto::OpenDataset,
        wait: Duration,
        tick: Tick<'_>,
        progress: Progress<'_>,
    ) -> Result<proto::DatasetOpened> {
        let what = format!("the listing of `{}`", without_user(&request.place));
        self.call(&what, request, wait, tick, progress, |answer, _, _| match answer {
            Answer::DatasetOpened(opened) => Some(Ok(opened)),
            _ => None,
        })
    }

    /// Opens a job, or joins it.
    pub fn open_job(
        &self,
        request: proto::OpenJob,
        wait: Duration,
        tick: Tick<'_>,
    ) -> Result<proto::JobOpened> {
        self.ask("open_job", request, wait, tick, |answer| match answer {
            Answer::JobOpened(opened) => Some(opened),
            _ => None,
        })
    }

    /// Ends a job.
    pub fn close_job(&self, request: proto::CloseJob, wait: Duration, tick: Tick<'_>) -> Result<()> {
        self.ask("close_job", request, wait, tick, |answer| {
            matches!(answer, Answer::JobClosed(_)).then_some(())
        })
    }

    /// Begins an epoch for one rank: its plan.
    pub fn begin_epoch(&self, request: proto::BeginEpoch, wait: Duration, tick: Tick<'_>) -> Result<Plan> {
        let begun = self.begin_given(request, None, wait, tick)?;
        begun.ok_or_else(|| self.unexpected("begin_epoch"))
    }

    /// The same in the order that the request names, with the ids of that order, as 32-bit little-endian integers, if they
    /// are there. `None` where the server wants them.
    pub fn begin_given(
        &self,
        mut request: proto::BeginEpoch,
        ids: Option<&[u8]>,
        wait: Duration,
        tick: Tick<'_>,
    ) -> Result<Option<Plan>> {
        if let Some(ids) = ids {
            self.put_state(ids, wait, tick)?;
            request.put = true;
        }
        // The server's error says more than that it was waited for in vain.
        let told = wait.saturating_sub(GRACE);
        request.wait_ms = u64::try_from(told.as_millis()).unwrap_or(u64::MAX);
        self.call(
            "begin_epoch",
            request,
            wait,
            tick,
            &mut |_| Ok(()),
            |answer, descriptors, _| match answer {
                Answer::EpochBegun(begun) if begun.wants_order => ids.is_none().then_some(Ok(None)),
                Answer::EpochBegun(begun) => Some(match descriptors.split_first() {
                    Some((ids, weights)) => Plan::new(ids, weights.first(), begun.length)
                        .map(|plan| Some(plan.with_warnings(begun.warnings))),
                    None => Err(Error::internal("a plan came without its memory")),
                }),
                _ => None,
            },
        )
    }

    /// Gets samples, waiting as long as the request says. It says how long ago the last one was.
    pub fn get_batch(&self, mut request: proto::GetBatch, tick: Tick<'_>) -> Result<Batch> {
        let (asked, job) = (request.indices.len(), request.job.clone());
        let wait = Duration::from_millis(request.wait_ms).saturating_add(GRACE);
        let (last, now) = (self.last.take(), Instant::now());
        let since = last.filter(|(of, _)| *of == job).map(|(_, last)| now.saturating_duration_since(last));
        request.since_us = since.and_then(|since| u64::try_from(since.as_micros()).ok());
        let batch = self.answered(request, asked, wait, tick)?;
        // What follows an error says nothing of how long a batch takes.
        self.last.set((job, now));
        Ok(batch)
    }

    fn answered(
        &self,
        request: proto::GetBatch,
        asked: usize,
        wait: Duration,
        tick: Tick<'_>,
    ) -> Result<Batch> {
        self.call("get_batch", request, wait, tick, &mut |_| Ok(()), |answer, _, segments| match answer {
            Answer::Batch(mut answer) => {
                let dropped = std::mem::take(&mut answer.dropped);
                let batch = Batch::new(answer, asked, segments, &self.shared);
                for segment in dropped {
                    segments.remove(&segment);
                }
                Some(batch)
            }
            _ => None,
        })
    }

    /// Reports scores of trained samples.
    pub fn report(&self, request: proto::Report, wait: Duration, tick: Tick<'_>) -> Result<proto::Reported> {
        self.ask("report", request, wait, tick, |answer| match answer {
            Answer::Reported(reported) => Some(reported),
            _ => None,
        })
    }

    /// Whose losses under the current model a rank must tell before an epoch.
    pub fn reevaluate(&self, request: proto::Reevaluate, wait: Duration, tick: Tick<'_>) -> Result<Mapping> {
        self.memory("reevaluate", request, wait, tick)
    }

    /// Tells losses under the current model.
    pub fn reevaluated(&self, request: proto::Reevaluated, wait: Duration, tick: Tick<'_>) -> Result<()> {
        self.note("reevaluated", request, wait, tick)
    }

    /// Says that a rank has trained an epoch to its end.
    pub fn end_epoch(&self, request: proto::EndEpoch, wait: Duration, tick: Tick<'_>) -> Result<()> {
        self.note("end_epoch", request, wait, tick)
    }

    /// The state or the scores of a job.
    pub fn get_memory(&self, request: proto::GetMemory, wait: Duration, tick: Tick<'_>) -> Result<Mapping> {
        self.memory("get_memory", request, wait, tick)
    }

    /// Puts a state, part by part, for the next job that is opened to go on from it.
    pub fn put_state(&self, state: &[u8], wait: Duration, tick: Tick<'_>) -> Result<()> {
        for part in state.chunks(PART) {
            self.note("put_state", proto::PutState { part: part.to_vec() }, wait, tick)?;
        }
        Ok(())
    }

    /// A call that is answered with sealed memory.
    fn memory(
        &self,
        what: &str,
        request: impl Into<Request>,
        wait: Duration,
        tick: Tick<'_>,
    ) -> Result<Mapping> {
        self.call(what, request, wait, tick, &mut |_| Ok(()), |answer, descriptors, _| match answer {
            Answer::Memory(memory) => Some(match descriptors.first() {
                Some(descriptor) => Mapping::new(descriptor, memory.length),
                None => Err(Error::internal("an answer came without its memory")),
            }),
            _ => None,
        })
    }

    /// A call that is answered with nothing but that it was heard.
    fn note(&self, what: &str, request: impl Into<Request>, wait: Duration, tick: Tick<'_>) -> Result<()> {
        self.ask(what, request, wait, tick, |answer| matches!(answer, Answer::Noted(_)).then_some(()))
    }

    /// Keys, labels and sizes of a run of samples.
    pub fn describe(
        &self,
        request: proto::Describe,
        wait: Duration,
        tick: Tick<'_>,
    ) -> Result<proto::Described> {
        self.ask("describe", request, wait, tick, |answer| match answer {
            Answer::Described(described) => Some(described),
            _ => None,
        })
    }

    /// The counters of a job, or of all.
    pub fn stats(&self, request: proto::GetStats, wait: Duration, tick: Tick<'_>) -> Result<proto::Stats> {
        self.ask("stats", request, wait, tick, |answer| match answer {
            Answer::Stats(stats) => Some(stats),
            _ => None,
        })
    }

    /// A call whose answer is one message.
    fn ask<T>(
        &self,
        what: &str,
        request: impl Into<Request>,
        wait: Duration,
        tick: Tick<'_>,
        take: impl FnOnce(Answer) -> Option<T>,
    ) -> Result<T> {
        self.call(what, request, wait, tick, &mut |_| Ok(()), |answer, _, _| take(answer).map(Ok))
    }

    /// A call. `take` makes something of the answer, its descriptors and the segments known; it gives `None` for
    /// an answer to another question.
    fn call<T>(
        &self,
        what: &str,
        request: impl Into<Request>,
        wait: Duration,
        tick: Tick<'_>,
        progress: Progress<'_>,
        take: impl FnOnce(Answer, Vec<OwnedFd>, &mut Segments) -> Option<Result<T>>,
    ) -> Result<T> {
        let deadline = Instant::now().checked_add(wait);
        let request = request.into();
        self.shared.call(deadline, tick, |line, tick| {
            let explain = |error| self.explain(error, what, wait);
            match line.connection.send(&request, &[], deadline, tick) {
                Err(error @ socket::Error::Frame(frame::Error::TooLong(_))) => {
                    return Err(Fault::harmless(error));
                }
                // A server that refuses a connection says why and hangs up, without listening.
                Ok(()) | Err(socket::Error::HungUp) => {}
                Err(error) => return Err(Fault::broken(explain(error))),
            }
            let (answer, descriptors) = loop {
                let response = line.connection.receive::<Response>(deadline, tick);
                match response.and_then(|response| response.ok_or(socket::Error::HungUp)).map_err(explain) {
                    Ok(Response { kind: Some(answer) }) => {
                        if let Some(last) = interim(line, answer, progress).map_err(Fault::broken)? {
                            break last;
                        }
                    }
                    Ok(Response { kind: None }) => return Err(Fault::broken(self.unexpected(what))),
                    Err(error) => return Err(Fault::broken(error)),
                }
            };
            if let Answer::Failure(failure) = answer {
                return Err(Fault::harmless(failure));
            }
            match take(answer, descriptors, &mut line.segments) {
                Some(outcome) => outcome.map_err(Fault::broken),
                None => Err(Fault::broken(self.unexpected(what))),
            }
        })
    }

    /// Names the server and the call in an error of the socket.
    fn explain(&self, error: socket::Error, what: &str, wait: Duration) -> Error {
        let path = self.shared.path().display();
        match error {
            socket::Error::HungUp => Error::unavailable(format!("the server at `{path}` went away")),
            socket::Error::TimedOut => Error::unavailable(format!(
                "the server at `{path}` did not answer {} within {:.3} s: wait longer with `wait=`",
                named(what),
                wait.as_secs_f64()
            )),
            error => error.into(),
        }
    }

    fn unexpected(&self, what: &str) -> Error {
        let path = self.shared.path().display();
        Error::internal(format!(
            "the server at `{path}` answered {} with the answer to another question",
            named(what)
        ))
    }
}

/// A place without the name and password that a URL may hold.
fn without_user(place: &str) -> String {
    let Some((scheme, rest)) = place.split_once("://") else { return place.to_owned() };
    let host = rest.find('/').unwrap_or(rest.len());
    let from = rest[..host].rfind('@').map_or(0, |at| at + 1);
    format!("{scheme}://{}", &rest[from..])
}

/// A call in a message: its name in backticks, unless it is told in words.
fn named(what: &str) -> String {
    if what.contains(' ') { what.to_owned() } else { format!("`{what}`") }
}

/// Deals with an interim answer, or gives back the last one and its descriptors.
fn interim(
    line: &mut Link,
    answer: Answer,
    progress: Progress<'_>,
) -> Result<Option<(Answer, Vec<OwnedFd>)>> {
    match answer {
        Answer::Progress(far) => {
            line.connection.take_descriptors(0)?;
            progress(&far)?;
        }
        Answer::Segments(proto::Segments { segments }) => {
            let descriptors = line.connection.take_descriptors(segments.len())?;
            for (segment, descriptor) in segments.iter().zip(&descriptors) {
                let mapping = Arc::new(Mapping::new(descriptor, segment.length)?);
                line.segments.insert(segment.segment, mapping);
            }
        }
        answer => {
            let count = match &answer {
                Answer::EpochBegun(begun) if begun.wants_order => 0,
                Answer::EpochBegun(begun) => 1 + usize::from(begun.weighted),
                Answer::Memory(_) => 1,
                Answer::Welcome(welcome) => usize::from(welcome.ends),
                _ => 0,
            };
            return Ok(Some((answer, line.connection.take_descriptors(count)?)));
        }
    }
    Ok(None)
}

/// A socket to `path`. Connecting waits too, where a server has many callers at once.
pub(crate) fn open(path: &Path, deadline: Option<Instant>, tick: Tick<'_>) -> Result<UnixStream> {
    let refused =
        |error: Errno| Error::unavailable(format!("no server answers at `{}`: {error}", path.display()));
    let address = SocketAddrUnix::new(path).map_err(|error| {
        Error::invalid(format!("`{}` cannot be a socket's name: {error}", path.display()))
    })?;
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(refused)?;
    set_socket_timeout(&socket, Timeout::Send, Some(SLICE)).map_err(refused)?;
    loop {
        match connect(&socket, &address) {
            Ok(()) => return Ok(UnixStream::from(socket)),
            Err(error @ (Errno::AGAIN | Errno::INTR)) => {
                tick()?;
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    return Err(refused(error));
                }
            }
            Err(error) => return Err(refused(error)),
        }
    }
}
