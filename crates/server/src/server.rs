//! The accept loop, and when it ends.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hotset_core::{Error, Result};
use hotset_wire::proto::{Failure, Response};
use hotset_wire::socket::Connection;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::access::{Accounts, Audience, Quota, Visit};
use crate::options::Options;
use crate::scrape;
use crate::served::Served;
use crate::session;
use crate::socket::Socket;
use crate::watch::Watch;

/// How often the loop looks around when no client connects.
const TICK: Duration = Duration::from_millis(250);
/// How long sessions have to end when the server stops.
const FAREWELL: Duration = Duration::from_secs(3);
/// The most connections that a user has by default where others have some too.
const CONNECTIONS: u64 = 1024;

/// What every session of a server shares.
pub(crate) struct Host {
    pub(crate) service: Served,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) watch: Watch,
    /// Whether it works for the processes it watches alone.
    pub(crate) private: bool,
    stop: Arc<AtomicBool>,
    sessions: AtomicUsize,
}

impl Host {
    /// An error once the server is stopping.
    pub(crate) fn check(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::unavailable("the server is stopping"));
        }
        Ok(())
    }
}

/// A server that has its socket.
pub struct Server {
    options: Options,
    socket: Socket,
    host: Arc<Host>,
}

impl Server {
    /// Takes the socket.
    pub fn bind(options: Options) -> Result<Self> {
        let socket = Socket::bind(&options.socket, &options.audience)?;
        let accounts = Arc::new(Accounts::new(usual_quota(&options)));
        let host = Host {
            service: Served::new(&options, Arc::clone(&accounts))?,
            accounts,
            watch: Watch::default(),
            private: options.embedded,
            stop: Arc::new(AtomicBool::new(false)),
            sessions: AtomicUsize::new(0),
        };
        for &process in &options.watch {
            host.watch.add(process);
        }
        let host = Arc::new(host);
        if let Some(address) = options.metrics {
            let address = scrape::start(address, &host)?;
            tracing::info!(address = %format_args!("http://{address}/metrics"), "metrics can be scraped");
        }
        Ok(Self { options, socket, host })
    }

    /// Accepts connections until a signal, or the end of the watch, or the loss of the socket's name.
    pub fn run(self) -> Result<()> {
        let failed = |error: std::io::Error| Error::internal(format!("cannot handle signals: {error}"));
        signal_hook::flag::register(SIGTERM, Arc::clone(&self.host.stop)).map_err(failed)?;
        // A private server shares its terminal with the trainer, whose affair Ctrl-C is.
        let ignored = Arc::new(AtomicBool::new(false));
        let on_interrupt = if self.options.embedded { ignored } else { Arc::clone(&self.host.stop) };
        signal_hook::flag::register(SIGINT, on_interrupt).map_err(failed)?;
        tracing::info!(socket = %self.options.socket.display(), "listening");
        let mut alone = None;
        while !self.host.stop.load(Ordering::Relaxed) {
            if self.waits_for_client() {
                self.accept();
            }
            self.host.service.tidy(Instant::now());
            if self.options.embedded && self.host.watch.over(&mut alone) {
                tracing::info!("the last training process has ended");
                self.host.service.end();
                break;
            }
            if !self.socket.is_ours() {
                tracing::info!(socket = %self.options.socket.display(), "the socket's name is gone or taken");
                break;
            }
        }
        self.farewell();
        Ok(())
    }

    fn waits_for_client(&self) -> bool {
        let mut asked = [PollFd::new(&self.socket.listener, PollFlags::IN)];
        let tick = Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as i64 };
        matches!(poll(&mut asked, Some(&tick)), Ok(1))
    }

    fn accept(&self) {
        match self.socket.listener.accept() {
            Ok((stream, _)) => self.start_session(stream),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => {
                // Out of descriptors, most likely: existing sessions go on, and the next tick tries again.
                tracing::warn!(%error, "cannot accept a connection");
                std::thread::sleep(TICK);
            }
        }
    }

    fn start_session(&self, stream: UnixStream) {
        let mut connection = match Connection::new(stream) {
            Ok(connection) => connection,
            Err(error) => {
                tracing::warn!(%error, "cannot set up a connection");
                return;
            }
        };
        let visit = match self.admit(&connection) {
            Ok(visit) => visit,
            Err(error) => {
                tracing::debug!(%error, "a connection was refused");
                // It hears why if it can take that at once.
                let _ = connection.try_send(&Response::from(Failure::from(error)));
                return;
            }
        };
        let host = Arc::clone(&self.host);
        host.sessions.fetch_add(1, Ordering::Relaxed);
        let thread = std::thread::Builder::new().name("hotset-session".into()).stack_size(1 << 20);
        let started = thread.spawn(move || {
            session::serve(connection, visit, &host);
            host.sessions.fetch_sub(1, Ordering::Relaxed);
        });
        if let Err(error) = started {
            self.host.sessions.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!(%error, "cannot start a thread for a connection");
        }
    }

    /// Whether whoever has connected may use this server.
    fn admit(&self, connection: &Connection) -> Result<Visit> {
        let peer = connection.peer()?;
        if let Err(error) = self.options.audience.admits(&peer) {
            self.host.accounts.refuse("user");
            tracing::warn!(user = peer.user, "a connection of another user was refused");
            return Err(error);
        }
        self.host.accounts.connect(peer.user, Instant::now())
    }

    /// Lets sessions end before the process does.
    fn farewell(&self) {
        self.host.service.leave();
        self.host.stop.store(true, Ordering::Relaxed);
        self.host.service.stop();
        let began = Instant::now();
        while self.host.sessions.load(Ordering::Relaxed) > 0 && began.elapsed() < FAREWELL {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.host.service.farewell();
    }
}

/// The quota asked for. Where other users come too, none may have all the descriptors that this process can have.
fn usual_quota(options: &Options) -> Quota {
    if options.audience == Audience::Own {
        return options.quota;
    }
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let most = if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current };
    let usual = CONNECTIONS.min(most.unwrap_or(u64::MAX) / 4);
    Quota { connections: options.quota.connections.or(Some(usual)), ..options.quota }
}
