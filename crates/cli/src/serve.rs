//! `hotset serve`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hotset_core::bytes::{Amount, human};
use hotset_core::{Error, Result};
use hotset_engine::{Concurrency, machine_memory};
use hotset_server::{Audience, Group, Options, Quota, Server, SharedAt, loopback, user_number};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::cluster::{EtcdSettings, NodeSettings};
use crate::place;
use crate::settings::{LogFormat, Settings};

/// The most reads in flight.
const MOST: usize = 1 << 14;
/// Seconds that a plan waits for ranks that have not come or not reported.
const PATIENCE: u64 = 10;

/// The memory of a shared cache by default.
const TENANTS: &str = "25%";
/// Reads in flight by default: enough to hide a few milliseconds of latency.
pub(crate) const CONCURRENCY: usize = 32;
/// With pauses of up to two seconds these outlast a store that is away for a minute.
const RETRIES: u32 = 40;

/// Run one cache for all trainings of this user on this host.
///
/// Trainings started afterwards find it by themselves. It keeps the samples of all jobs in shared memory, up to
/// --memory, and reads from storage with at most --concurrency requests at a time. It ends on Ctrl-C or SIGTERM.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hotset serve                              # as much memory as jobs ask for, within the machine's
  hotset serve --memory 40% --concurrency 64
  hotset serve --metrics 9464 --log-format json
  hotset serve --group ml --socket /run/hotset/server.sock --quota memory=64GiB
  hotset serve --tenants --socket /run/hotset/shared.sock --memory 25%
  hotset serve --shared /run/hotset/shared.sock    # after `hotset digest`
  hotset serve --cluster etcd://etcd-0:2379,etcd-1:2379/research --listen 10.1.0.4:7070 \
      --peer-token-file token --peer-certificate node.pem --peer-key node.key --peer-authority ca.pem
  hotset serve --config /etc/hotset.toml    # the same names: memory = \"40%\"")]
pub(crate) struct Serve {
    /// Where to listen [default: server.sock in $HOTSET_RUNTIME_DIR, $XDG_RUNTIME_DIR/hotset or /tmp/hotset-UID]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The most that all jobs may keep together: bytes (8GiB) or a share of this machine's memory (40%)
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Storage reads in flight at a time, or `auto`: as many as each store turns out to be good for [default: 32]
    #[arg(long, value_name = "N", value_parser = in_flight)]
    concurrency: Option<Concurrency>,
    /// Retries after a transient read error, backing off to two seconds [default: 40]
    #[arg(long, value_name = "N")]
    retries: Option<u32>,
    /// Seconds for which a job's cache stays after its last process has gone [default: 10]
    #[arg(long, value_name = "SECONDS")]
    linger: Option<u64>,
    /// Where listings are kept between runs [default: listings in $HOTSET_CACHE_DIR or ~/.cache/hotset]
    #[arg(long, value_name = "DIRECTORY")]
    listings: Option<PathBuf>,
    /// Where the state of jobs is kept, to go on after a restart [default: state, beside listings]
    #[arg(long, value_name = "DIRECTORY")]
    state: Option<PathBuf>,
    /// Record runs to files in this directory: the losses that jobs report, for `hotset record`, and what happens to each
    /// cache, for `hotset simulate --log`
    #[arg(long, env = "HOTSET_RECORD", value_name = "DIRECTORY")]
    record: Option<PathBuf>,
    /// What to log to standard error: error, warn, info, debug or trace, also by module
    #[arg(long, env = "HOTSET_LOG", value_name = "FILTER")]
    log: Option<String>,
    /// How log lines look [default: text]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// A port of loopback (9464), or an address of it (127.0.0.1:9464), on which Prometheus may scrape metrics; 0 chooses a
    /// free one
    #[arg(long, value_name = "PORT")]
    metrics: Option<String>,
    /// Let members of this group use the server too: they may read through it whatever its user can read. Needs --socket
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Be a shared cache for the servers of all users of this host: keep contents by their hash, read nothing. Needs --socket
    #[arg(long)]
    tenants: bool,
    /// Ask this shared cache before storage, by the hashes that `hotset digest` keeps, and offer it what is read
    #[arg(long, env = "HOTSET_SHARED", value_name = "PATH")]
    shared: Option<OsString>,
    /// The user whose shared cache that is, where it is neither root's nor yours: a name or a number
    #[arg(long, env = "HOTSET_SHARED_USER", value_name = "USER")]
    shared_user: Option<String>,
    /// The most that one user may take: memory=8GiB,jobs=4,connections=256,requests=5000, or some of these
    #[arg(long, value_name = "LIMITS")]
    quota: Option<String>,
    #[command(flatten)]
    etcd: EtcdSettings,
    #[command(flatten)]
    node: NodeSettings,
    /// A TOML file with any of these settings; flags win over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Work for the given processes alone, ignore Ctrl-C, and end after them
    #[arg(long, hide = true)]
    embedded: bool,
    #[arg(long, hide = true, value_name = "PID")]
    watch: Vec<u32>,
    /// Write `ready` or an error to this descriptor
    #[arg(long, hide = true, value_name = "FD")]
    ready_fd: Option<RawFd>,
}

impl Serve {
    pub(crate) fn run(self) -> Result<()> {
        end_at_a_panic();
        // SAFETY: the descriptor was made for this process and named on its command line; nothing else here
        // knows its number.
        let mut ready = self.ready_fd.map(|fd| File::from(unsafe { OwnedFd::from_raw_fd(fd) }));
        let bound = self.bind();
        if let Some(ready) = &mut ready {
            let said = match &bound {
                Ok(_) => "ready\n".to_owned(),
                Err(error) => format!("{}\n", error.to_string().replace('\n', " ")),
            };
            // The process that started this one may have gone meanwhile; the watch will notice.
            let _ = ready.write_all(said.as_bytes());
        }
        drop(ready);
        bound?.run()
    }

    fn bind(&self) -> Result<Server> {
        let file = self.config.as_deref().map(Settings::read).transpose()?.unwrap_or_default();
        let log =
            self.log.clone().or_else(|| file.log.clone()).unwrap_or_else(|| self.usual_log().to_owned());
        let filtered = tracing_subscriber::registry().with(log_filter(&log)?);
        let colour = std::io::stderr().is_terminal();
        let lines = fmt::layer().with_ansi(colour).with_writer(std::io::stderr);
        // A second server in one process keeps the first one's log.
        let _ = match self.log_format.or(file.log_format).unwrap_or_default() {
            LogFormat::Text => filtered.with(lines).try_init(),
            LogFormat::Json => filtered.with(lines.json()).try_init(),
        };
        let tenants = self.tenants || file.tenants.unwrap_or_default();
        let address = self.etcd.address(&file)?;
        if address.is_some() && (tenants || self.embedded) {
            return Err(Error::invalid(
                "`cluster` is for a server of trainings that others find: leave out `tenants`, or be no node",
            ));
        }
        let cluster = address.map(|address| self.node.options(address, &file)).transpose()?;
        let audience = self.audience(file.group, tenants)?;
        let shared = self.shared_at(file.shared, file.shared_user)?;
        let socket = match self.socket.clone().or(file.socket) {
            Some(socket) => socket,
            None if audience != Audience::Own => {
                return Err(Error::invalid(
                    "other users cannot reach the usual socket: give `socket` a place that they can, such as \
                     /run/hotset/server.sock",
                ));
            }
            None => {
                place::prepare(&place::runtime())?;
                place::runtime().join("server.sock")
            }
        };
        let memory = self.memory.clone().or(file.memory);
        let options = Options {
            socket,
            embedded: self.embedded,
            watch: self.watch.clone(),
            memory: match (tenants, memory.as_deref()) {
                (false, memory) => memory.map(share_of_machine).transpose()?,
                (true, memory) => Some(of_machine(memory.unwrap_or(TENANTS))?),
            },
            concurrency: match (self.concurrency, file.concurrency.as_deref()) {
                (Some(given), _) => given,
                (None, Some(text)) => in_flight(text)?,
                (None, None) => Concurrency::Fixed(CONCURRENCY),
            },
            retries: self.retries.or(file.retries).unwrap_or(RETRIES),
            linger: Duration::from_secs(self.linger.or(file.linger).unwrap_or(10)),
            patience: Duration::from_secs(PATIENCE),
            audience,
            tenants,
            shared: shared.filter(|_| !tenants),
            digests: place::digests(),
            quota: Quota::parse(&self.quota.clone().or(file.quota).unwrap_or_default(), machine_memory())?,
            metrics: self.metrics.clone().or(file.metrics).as_deref().map(loopback).transpose()?,
            record: self.record.clone().or(file.record),
            state: self.state.clone().or(file.state).or_else(place::state),
            listings: self.listings.clone().or(file.listings).or_else(place::listings),
            cluster,
        };
        Server::bind(options)
    }

    /// The shared cache to ask. A variable that is empty names none.
    fn shared_at(&self, socket: Option<PathBuf>, user: Option<String>) -> Result<Option<SharedAt>> {
        let named = self.shared.as_ref().filter(|socket| !socket.is_empty()).map(PathBuf::from);
        let Some(socket) = named.or(socket) else { return Ok(None) };
        let user = self.shared_user.clone().filter(|user| !user.is_empty()).or(user);
        let user = user.as_deref().map(user_number).transpose()?;
        Ok(Some(SharedAt { socket, user }))
    }

    /// Whom it works for.
    fn audience(&self, group: Option<String>, tenants: bool) -> Result<Audience> {
        match self.group.clone().or(group) {
            Some(group) => Ok(Audience::Group(Group::find(&group)?)),
            None if tenants => Ok(Audience::Everyone),
            None => Ok(Audience::Own),
        }
    }

    /// A private server speaks up only when a person should act.
    fn usual_log(&self) -> &'static str {
        if self.embedded { "warn" } else { "info" }
    }
}

/// Levels, for all or by module; where nothing is asked for, errors.
fn log_filter(log: &str) -> Result<Targets> {
    let asked: Vec<&str> = log.split(',').filter(|directive| !directive.is_empty()).collect();
    if asked.is_empty() {
        return Ok(Targets::new().with_default(LevelFilter::ERROR));
    }
    asked.join(",").parse().map_err(|error| Error::invalid(format!("`log` cannot be `{log}`: {error}")))
}

/// Ends the process at a panic in any thread: bookkeeping that broke off half-way must not serve anything. Clients find
/// the server gone, and a private one is started anew.
fn end_at_a_panic() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if hotset_store::panic_is_contained() {
            return;
        }
        usual(panic);
        std::process::abort();
    }));
}

/// Each read in flight has a thread, so there must be an end.
fn in_flight(text: &str) -> Result<Concurrency> {
    if text.trim() == "auto" {
        return Ok(Concurrency::Auto);
    }
    match text.trim().parse() {
        Ok(number @ 1..=MOST) => Ok(Concurrency::Fixed(number)),
        _ => Err(Error::invalid(format!(
            "`concurrency` is `{text}`: give `auto`, or a number from 1 to {MOST}"
        ))),
    }
}

/// The bytes that jobs may keep, so that they and the reserve beside them fit what was given.
fn share_of_machine(text: &str) -> Result<u64> {
    Ok(of_machine(text)? / 8 * 7)
}

/// Bytes, or a share of the machine's.
fn of_machine(text: &str) -> Result<u64> {
    let machine = machine_memory();
    let amount: Amount =
        text.parse().map_err(|error: Error| Error::invalid(format!("`memory`: {}", error.message)))?;
    let given = amount.of(machine);
    if given > machine {
        return Err(Error::invalid(format!(
            "`memory` is {} but this machine (or its control group) has {}",
            human(given),
            human(machine)
        )));
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::log_filter;

    #[test]
    fn what_is_logged_is_a_level_also_by_module() -> hotset_core::Result<()> {
        let logs = |filter: &str, module, level| {
            log_filter(filter).map(|filter| filter.would_enable(module, &level))
        };
        for (filter, store, engine) in [
            ("warn", Level::WARN, Level::WARN),
            ("hotset_store=debug,warn", Level::DEBUG, Level::WARN),
            ("hotset_store=debug,,info,", Level::DEBUG, Level::INFO),
            ("", Level::ERROR, Level::ERROR),
        ] {
            for (module, most) in [("hotset_store::remote", store), ("hotset_engine", engine)] {
                for level in [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE] {
                    assert_eq!(
                        logs(filter, module, level)?,
                        level <= most,
                        "`{filter}`: {module} at {level}"
                    );
                }
            }
        }
        assert!(!logs("hotset_store", "hotset_engine", Level::ERROR)?);
        Ok(())
    }

    #[test]
    fn a_level_that_there_is_not_is_refused_by_name() {
        let refused = log_filter("hotset_store=loud").map_err(|error| error.message);
        assert!(refused.is_err_and(|message| message.contains("`log` cannot be `hotset_store=loud`")));
    }
}
