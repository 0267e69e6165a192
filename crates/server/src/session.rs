//! One connection over the Unix socket: a thread that reads requests, has the service answer them, and sends replies.
//!
//! Frames, descriptors and the life of the connection are dealt with here; what is answered is the
//! [service's](crate::service) affair. Requests are answered one after the other, in order. Whatever a client sends, it
//! gets an answer or loses its connection. A connection that cannot be used any more is closed for writing alone: the
//! client may still look at what it leases, so its leases end when it hangs up, and not before.
//!
//! A server that stops says nothing: it hangs up on every client, as a killed one does, and clients wait for the next
//! server or start one. Their leases stay until the process ends, since others may still be served meanwhile.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hotset_core::{Error, Result};
use hotset_wire::PROTOCOL;
use hotset_wire::proto::{self, Response, request, response};
use hotset_wire::socket::{self, Connection, MOST_DESCRIPTORS};

use crate::access::Visit;
use crate::served::{Served, ServedClient};
use crate::server::Host;
use crate::service::{Caller, Reply};
use crate::watch::{Guest, counts_as_we_do};

/// How long a client has to introduce itself, and to take an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a connection that is over is looked at.
const LOOK_UP: Duration = Duration::from_millis(200);
/// How often a client hears of a long request.
const PROGRESS: Duration = Duration::from_millis(250);

/// The longest message to a shared cache: bytes go by other ways, and many connections must not take much memory.
const LONGEST_LIST: usize = 64 << 10;
/// How often it is looked whether a request that a quota holds up may be made.
const HELD_UP: Duration = Duration::from_millis(10);

/// Serves one connection until it ends.
pub(crate) fn serve(connection: Connection, visit: Visit, host: &Arc<Host>) {
    let mut session = Session { connection, visit, host, told: Instant::now() };
    if let Served::Contents(_) = host.service {
        session.connection.limit(LONGEST_LIST);
    }
    let mut client = None;
    if let Err(error) = session.converse(&mut client) {
        tracing::debug!(%error, "a connection ended early");
    }
    let Some(client @ ServedClient::Job(_)) = client else { return };
    let _ = rustix::net::shutdown(session.connection.as_fd(), rustix::net::Shutdown::Write);
    while host.check().is_ok() {
        if session.connection.hung_up() {
            host.service.disconnect(&client);
            return;
        }
        std::thread::sleep(LOOK_UP);
    }
}

struct Session<'a> {
    connection: Connection,
    visit: Visit,
    host: &'a Arc<Host>,
    /// When the client last heard of a long request.
    told: Instant,
}

impl Caller for Session<'_> {
    fn check(&mut self) -> Result<()> {
        self.host.check()?;
        if self.connection.hung_up() {
            return Err(Error::unavailable("the client has gone"));
        }
        Ok(())
    }

    fn memory(&mut self) -> Result<OwnedFd> {
        let came = self.connection.take_descriptors(1)?;
        came.into_iter().next().ok_or_else(|| Error::invalid("this request comes with memory"))
    }

    fn progress(&mut self, progress: proto::Progress) {
        if self.told.elapsed() >= PROGRESS {
            self.told = Instant::now();
            // A client that has gone meanwhile is noticed next time.
            let _ = self.send(response::Kind::Progress(progress), &[]);
        }
    }
}

impl<'a> Session<'a> {
    /// Answers requests until the client hangs up. An error means that nothing more can be said on the connection, which
    /// perhaps broke in the middle of an answer.
    fn converse(&mut self, client: &mut Option<ServedClient>) -> Result<()> {
        let first = self.receive(Some(Instant::now() + PATIENCE))?;
        let Some(request::Kind::Hello(hello)) = first.and_then(|request| request.kind) else {
            return self.refuse(Error::invalid("the first frame of a connection must be a hello"));
        };
        if hello.protocol != PROTOCOL {
            return self.refuse(Error::invalid(format!(
                "this server (version {}) speaks protocol {PROTOCOL}, the client (version {}) speaks {}: use the same \
                 version of hotset for both",
                crate::VERSION,
                hello.version,
                hello.protocol
            )));
        }
        // Held for its end: a private server stays while such a client does.
        let _guest =
            (self.host.private && hello.main_pid != 0).then(|| self.watched(hello.main_pid)).flatten();
        // A process of another namespace has no number here; its own will do.
        let process = self.connection.peer_process().unwrap_or(hello.main_pid);
        let (connected, ends) = self.host.service.connect(process, self.visit.user);
        let client = client.insert(connected);
        let welcome = proto::Welcome { ends: ends.is_some(), ..self.host.service.welcome() };
        let descriptors: Vec<_> = ends.iter().map(AsFd::as_fd).collect();
        self.send(response::Kind::Welcome(welcome), &descriptors)?;
        // The client has it mapped, and so has the service.
        drop(descriptors);
        drop(ends);
        loop {
            let Some(request) = self.receive(None)? else { return Ok(()) };
            // A busy connection never waits, and so never ticks.
            self.host.check()?;
            let unknown = || Error::invalid("a request of a kind this server does not know");
            let host = self.host;
            let allowed = request.kind.ok_or_else(unknown).and_then(|request| self.within_quota(request));
            match allowed.and_then(|request| host.service.handle(client, request, self)) {
                Ok(Some(reply)) => self.reply(reply)?,
                Ok(None) => {}
                // Whatever broke off because the server stops is no answer: the client asks the next server.
                Err(error) if host.check().is_err() => return Err(error),
                Err(error) => self.refuse(error)?,
            }
        }
    }

    /// The next request. What is no frame of ours ends the connection, and is counted.
    fn receive(&mut self, deadline: Option<Instant>) -> Result<Option<proto::Request>> {
        let received = self.connection.receive(deadline, &mut || self.host.check());
        if let Err(socket::Error::Frame(_) | socket::Error::Descriptors(_)) = &received {
            self.host.accounts.refuse("frames");
        }
        Ok(received?)
    }

    /// A request, once its user may make another one: a training that asks too often is slow, and does not fail.
    fn within_quota(&mut self, request: request::Kind) -> Result<request::Kind> {
        let mut held_up = false;
        while !self.host.accounts.request(self.visit.user, Instant::now()) {
            if !std::mem::replace(&mut held_up, true) {
                self.host.accounts.refuse("requests");
            }
            std::thread::sleep(HELD_UP);
            Caller::check(self)?;
        }
        Ok(request)
    }

    /// Watches a client's training process, or the client itself where that process has another number here.
    fn watched(&self, main_pid: u32) -> Option<Guest<'a>> {
        if self.connection.peer().is_ok_and(|peer| peer.process.is_some_and(counts_as_we_do)) {
            self.host.watch.add(main_pid);
            return None;
        }
        Some(self.host.watch.guest())
    }

    /// Sends a reply, behind the segments that it needs.
    fn reply(&mut self, Reply { message, descriptors, segments, read_on }: Reply) -> Result<()> {
        for some in segments.chunks(MOST_DESCRIPTORS) {
            let segments =
                some.iter().map(|new| proto::Segment { segment: new.segment, length: new.length }).collect();
            let descriptors: Vec<_> = some.iter().map(|new| new.descriptor.as_fd()).collect();
            self.send(response::Kind::Segments(proto::Segments { segments }), &descriptors)?;
        }
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let sent = self.send(message, &descriptors);
        // Not before: the client should not have to wait for it.
        drop(read_on);
        sent
    }

    fn refuse(&mut self, error: Error) -> Result<()> {
        self.send(response::Kind::Failure(error.into()), &[])
    }

    fn send(&mut self, kind: response::Kind, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        let message = Response { kind: Some(kind) };
        let deadline = Some(Instant::now() + PATIENCE);
        let sent = self.connection.send(&message, descriptors, deadline, &mut || self.host.check());
        sent.map_err(|error: socket::Error| error.into())
    }
}
