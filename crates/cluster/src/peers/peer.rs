//! One other node: the connection to it, and how it is doing.

use std::time::Instant;

use hotset_core::{Error, Result};
use tokio::sync::Semaphore;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};

use super::access::check_address;
use super::breaker::Breaker;
use super::filling::Filling;
use super::messages::{AUTHORIZATION, AskReply, AskRequest, FetchRequest, PeersClient};
use super::{ASKS_OF_A_PEER, KEEP_ALIVE, LARGEST_ASK, REQUESTS_OF_A_PEER};
use crate::etcd::Tls;
use hotset_core::cluster::Wanted;

/// Bytes that one reply may be ahead of its reader, and all replies of a connection together.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 32 << 20;
/// The largest frame of HTTP/2: each costs a wake-up.
const FRAME: u32 = 256 << 10;

pub(super) struct Peer {
    pub(super) address: String,
    channel: Channel,
    /// As many calls as the other side would take.
    pub(super) gate: Semaphore,
    /// The same of questions.
    pub(super) asking: Semaphore,
    pub(super) breaker: Breaker,
    /// The same of questions: a node whose storage is slow gives no samples in time, and answers all the same.
    pub(super) asking_breaker: Breaker,
}

/// Why a call did not end well.
pub(super) enum Failure {
    /// The connection is broken, or there is none.
    Broken(Status),
    /// The other side has too much to do.
    Busy,
    /// The other side does not let this node in.
    Refused,
    /// It came to nothing in another way.
    Other(Status),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        match status.code() {
            Code::Unavailable | Code::Unknown | Code::Cancelled => Self::Broken(status),
            Code::ResourceExhausted => Self::Busy,
            Code::Unauthenticated | Code::PermissionDenied => Self::Refused,
            _ => Self::Other(status),
        }
    }
}

impl Peer {
    /// Prepares a connection; it is made when it is needed. Must be called within a runtime.
    pub(super) fn new(address: &str, tls: Option<&Tls>) -> Result<Self> {
        check_address(address, tls.is_some())?;
        let wrong = |why: &dyn std::fmt::Display| {
            Error::invalid(format!("cannot ask the node at `{address}`: {why}"))
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
            .map_err(|error| wrong(&error))?
            .connect_timeout(KEEP_ALIVE)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(FRAME)
            .tcp_nodelay(true);
        if let Some(tls) = tls {
            let host = endpoint.uri().host().ok_or_else(|| wrong(&"it is no `host:port`"))?;
            // An address of IPv6 is in brackets there, and not in certificates.
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            let mut config = ClientTlsConfig::new()
                .ca_certificate(Certificate::from_pem(&tls.authority))
                .domain_name(host)
                .timeout(KEEP_ALIVE);
            if let Some((certificate, key)) = &tls.identity {
                config = config.identity(Identity::from_pem(certificate, key));
            }
            endpoint = endpoint.tls_config(config).map_err(|error| wrong(&error))?;
        }
        Ok(Self {
            address: address.to_owned(),
            channel: endpoint.connect_lazy(),
            gate: Semaphore::new(REQUESTS_OF_A_PEER),
            asking: Semaphore::new(ASKS_OF_A_PEER),
            breaker: Breaker::default(),
            asking_breaker: Breaker::default(),
        })
    }

    /// Asks for what is not answered yet, and takes it in.
    pub(super) async fn fetch(
        &self,
        wanted: &Wanted,
        token: Option<MetadataValue<Ascii>>,
        by: Instant,
        filling: &mut Filling<'_, '_>,
    ) -> std::result::Result<(), Failure> {
        let request = prepared(FetchRequest::rest(wanted, filling.answered()), token, by);
        let client = PeersClient::new(self.channel.clone());
        let mut client = client.max_decoding_message_size(filling.largest());
        let mut replies = client.fetch(request).await?.into_inner();
        while let Some(chunk) = replies.message().await? {
            if !filling.take(&chunk) {
                return Err(Failure::Other(Status::data_loss("it answers what it was not asked")));
            }
        }
        Ok(())
    }

    /// Asks something of the local protocol.
    pub(super) async fn ask(
        &self,
        request: &[u8],
        token: Option<MetadataValue<Ascii>>,
        by: Instant,
    ) -> std::result::Result<Vec<u8>, Status> {
        let request = AskRequest { request: bytes::Bytes::copy_from_slice(request) };
        let client = PeersClient::new(self.channel.clone());
        let mut client = client.max_decoding_message_size(LARGEST_ASK).max_encoding_message_size(LARGEST_ASK);
        let AskReply { reply } = client.ask(prepared(request, token, by)).await?.into_inner();
        Ok(reply.into())
    }
}

fn prepared<M>(message: M, token: Option<MetadataValue<Ascii>>, by: Instant) -> Request<M> {
    let mut request = Request::new(message);
    request.set_timeout(by.saturating_duration_since(Instant::now()));
    if let Some(token) = token {
        request.metadata_mut().insert(AUTHORIZATION, token);
    }
    request
}
