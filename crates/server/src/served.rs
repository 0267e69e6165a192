//! What a server is there for: the jobs of trainings, or contents that users share.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use hotset_core::{Error, Result};
use hotset_engine::machine_memory;
use hotset_wire::EndsPage;
use hotset_wire::proto::{self, request};

use crate::access::Accounts;
use crate::options::Options;
use crate::service::{Caller, Client, Reply, Service};
use crate::tenants::Tenants;

/// What a node gives to its cluster where it is not said: what jobs could have of this machine's memory.
fn usual_memory() -> u64 {
    machine_memory() / 8 * 7
}

/// One of the two.
pub(crate) enum Served {
    /// Trainings: datasets, plans, batches.
    Jobs(Arc<Service>),
    /// Contents by their hashes.
    Contents(Tenants),
}

/// A client of either.
pub(crate) enum ServedClient {
    Job(Client),
    User(u32),
}

impl Served {
    pub(crate) fn new(options: &Options, accounts: Arc<Accounts>) -> Result<Self> {
        if !options.tenants {
            let service = Arc::new(Service::new(options, accounts)?);
            if let Some(cluster) = &options.cluster {
                service.join_cluster(
                    cluster,
                    options.memory.unwrap_or_else(usual_memory),
                    options.patience,
                )?;
            }
            return Ok(Self::Jobs(service));
        }
        let capacity = options.memory.ok_or_else(|| Error::invalid("a shared cache needs `memory`"))?;
        Ok(Self::Contents(Tenants::new(options, capacity, accounts)))
    }

    /// What the server says of itself to a client that comes.
    pub(crate) fn welcome(&self) -> proto::Welcome {
        let instance = match self {
            Self::Jobs(service) => service.instance(),
            Self::Contents(tenants) => tenants.instance(),
        };
        proto::Welcome {
            protocol: hotset_wire::PROTOCOL,
            version: crate::VERSION.to_owned(),
            instance: instance.to_owned(),
            pid: std::process::id(),
            ends: false,
        }
    }

    /// Takes in a client, and what it needs to note ends of leases.
    pub(crate) fn connect(&self, process: u32, user: u32) -> (ServedClient, Option<OwnedFd>) {
        let Self::Jobs(service) = self else { return (ServedClient::User(user), None) };
        let page =
            EndsPage::create().inspect_err(|error| tracing::debug!(%error, "every end takes a message"));
        let (page, descriptor) = page.ok().unzip();
        (ServedClient::Job(service.connect(process, user, page)), descriptor)
    }

    pub(crate) fn disconnect(&self, client: &ServedClient) {
        if let (Self::Jobs(service), ServedClient::Job(client)) = (self, client) {
            service.disconnect(client);
        }
    }

    /// The reply to a request; `None` for one that is never answered.
    pub(crate) fn handle(
        &self,
        client: &mut ServedClient,
        request: request::Kind,
        caller: &mut dyn Caller,
    ) -> Result<Option<Reply>> {
        match (self, client) {
            (Self::Jobs(service), ServedClient::Job(client)) => service.handle(client, request, caller),
            (Self::Contents(tenants), ServedClient::User(user)) => {
                tenants.handle(*user, request, caller).map(Some)
            }
            _ => Err(Error::internal("a client of another kind of server")),
        }
    }

    pub(crate) fn stats(&self) -> proto::Stats {
        match self {
            Self::Jobs(service) => service.stats(""),
            Self::Contents(tenants) => tenants.stats(),
        }
    }

    /// Lets go of what nobody wants any more.
    pub(crate) fn tidy(&self, now: Instant) {
        if let Self::Jobs(service) = self {
            service.tidy(now);
        }
    }

    /// The last process that it was for is gone.
    pub(crate) fn end(&self) {
        if let Self::Jobs(service) = self {
            service.end();
        }
    }

    /// Hands on to others what is more than this server's own, before it stops.
    pub(crate) fn leave(&self) {
        if let Self::Jobs(service) = self {
            service.leave_cluster();
        }
    }

    /// Ends every wait: the server stops.
    pub(crate) fn stop(&self) {
        if let Self::Jobs(service) = self {
            service.stop();
        }
    }
    /// Sessions have ended: what is still to be written is.
    pub(crate) fn farewell(&self) {
        if let Self::Jobs(service) = self {
            service.end_logs();
        }
    }
}
