//! A small etcd client: ranges, transactions, leases and watches.
//!
//! There are several endpoints, of which any will do. A call goes to the one that answered last; if that does not answer
//! within [`DEADLINE`] the next is tried, each once, so that a call ends after as many deadlines as there are endpoints.
//! All calls may be made twice: transactions are guarded by what they compare, and a lease that was granted unheard
//! runs out. Users and passwords become a token, which is asked for again when etcd has forgotten it.

mod address;
mod messages;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hotset_core::{Error, Result};
use tokio_stream::StreamExt;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status, Streaming};

pub(crate) use self::address::is_plain;
pub use self::address::{Address, Tls};
use self::messages::{
    AuthClient, AuthenticateRequest, KvClient, LeaseClient, LeaseGrantRequest, LeaseKeepAliveRequest,
    LeaseRevokeRequest, RangeRequest, TxnRequest, WatchClient, WatchRequest, prefix_end,
};
pub use self::messages::{Compare, Event, EventType, KeyValue, Operation, WatchResponse};

/// What etcd says to a call.
type Answered<T> = std::result::Result<T, Status>;

/// How long one endpoint has to answer.
pub const DEADLINE: Duration = Duration::from_secs(2);
/// How often a connection that is used for a watch alone is looked after.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// A connection to an etcd cluster. Nothing is connected before the first call.
pub struct Etcd {
    endpoints: Vec<(String, Channel)>,
    /// The endpoint that answered last.
    current: AtomicUsize,
    user: Option<(String, String)>,
    token: Mutex<Option<MetadataValue<Ascii>>>,
}

/// All keys with a prefix, and the revision of etcd's store at which they were so.
#[derive(Debug, Default)]
pub struct Listed {
    /// The keys.
    pub keys: Vec<KeyValue>,
    /// The revision.
    pub revision: i64,
}

impl Etcd {
    /// Prepares connections to all endpoints. Must be called within a runtime.
    pub fn new(address: &Address) -> Result<Self> {
        let endpoint = |host: &String| Ok((host.clone(), channel(address, host)?));
        Ok(Self {
            endpoints: address.endpoints.iter().map(endpoint).collect::<Result<_>>()?,
            current: AtomicUsize::new(0),
            user: address.user.clone().zip(address.password.clone()),
            token: Mutex::default(),
        })
    }

    /// All keys that begin with `prefix`.
    pub async fn list(&self, prefix: &str) -> Result<Listed> {
        let message = RangeRequest { key: prefix.into(), range_end: prefix_end(prefix.as_bytes()) };
        let call = async |channel: Channel, request| {
            KvClient::new(channel).max_decoding_message_size(usize::MAX).range(request).await
        };
        let answer = self.call("cannot list keys", message, call).await?;
        Ok(Listed { revision: answer.header.map_or(0, |header| header.revision), keys: answer.kvs })
    }

    /// Carries out all of `operations` if every comparison holds; whether they did, and the revision.
    pub async fn transact(&self, compare: Vec<Compare>, operations: Vec<Operation>) -> Result<(bool, i64)> {
        let message = TxnRequest {
            compare: compare.into_iter().map(Into::into).collect(),
            success: operations.into_iter().map(Into::into).collect(),
            failure: Vec::new(),
        };
        let call = async |channel, request| KvClient::new(channel).txn(request).await;
        let answer = self.call("cannot write keys", message, call).await?;
        Ok((answer.succeeded, answer.header.map_or(0, |header| header.revision)))
    }

    /// A lease that lives for `ttl` unless it is renewed, in whole seconds.
    pub async fn grant(&self, ttl: Duration) -> Result<i64> {
        let message = LeaseGrantRequest { ttl: ttl.as_secs().max(1) as i64, id: 0 };
        let call = async |channel, request| LeaseClient::new(channel).lease_grant(request).await;
        Ok(self.call("cannot get a lease", message, call).await?.id)
    }

    /// Renews a lease; how long it lives from now on, `None` if it is over.
    pub async fn renew(&self, lease: i64) -> Result<Option<Duration>> {
        let message = LeaseKeepAliveRequest { id: lease };
        let call = async |channel, request: Request<LeaseKeepAliveRequest>| {
            let (metadata, extensions, message) = request.into_parts();
            let once = Request::from_parts(metadata, extensions, tokio_stream::once(message));
            let mut answers = LeaseClient::new(channel).lease_keep_alive(once).await?.into_inner();
            let silent = || Status::unavailable("the lease was not renewed");
            Ok(tonic::Response::new(answers.message().await?.ok_or_else(silent)?))
        };
        let seconds = self.call("cannot renew a lease", message, call).await?.ttl;
        Ok(u64::try_from(seconds).ok().filter(|&seconds| seconds > 0).map(Duration::from_secs))
    }

    /// Ends a lease, and the keys that are under it.
    pub async fn revoke(&self, lease: i64) -> Result<()> {
        let call = async |channel, request| LeaseClient::new(channel).lease_revoke(request).await;
        self.call("cannot end a lease", LeaseRevokeRequest { id: lease }, call).await.map(|_| ())
    }

    /// What happens to keys that begin with `prefix`, from a revision on.
    pub async fn watch(&self, prefix: &str, from: i64) -> Result<Streaming<WatchResponse>> {
        let message = WatchRequest::of_prefix(prefix, from);
        let call = async |channel, request: Request<WatchRequest>| {
            let (mut metadata, extensions, message) = request.into_parts();
            // An endpoint that has lost the others must say so, rather than nothing.
            metadata.insert("hasleader", MetadataValue::from_static("true"));
            // The stream of requests stays open as long as the one of answers.
            let asked = tokio_stream::once(message).chain(tokio_stream::pending());
            WatchClient::new(channel).watch(Request::from_parts(metadata, extensions, asked)).await
        };
        self.call("cannot watch keys", message, call).await
    }

    /// Makes a call at the endpoint that answered last, then at each other.
    async fn call<M: Clone, A>(
        &self,
        what: &str,
        message: M,
        make: impl AsyncFn(Channel, Request<M>) -> Answered<tonic::Response<A>>,
    ) -> Result<A> {
        let first = self.current.load(Ordering::Relaxed);
        let mut failures = Vec::new();
        for step in 0..self.endpoints.len() {
            let at = (first + step) % self.endpoints.len();
            let (host, channel) = &self.endpoints[at];
            match self.call_at(channel, &message, &make).await {
                Ok(answer) => {
                    self.current.store(at, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(status) if is_final(status.code()) => {
                    return Err(Error::invalid(format!("{what} in etcd at {host}: {}", status.message())));
                }
                Err(status) => failures.push(format!("{host}: {}", reason(&status))),
            }
        }
        Err(Error::unavailable(format!("{what}: etcd does not answer ({})", failures.join("; "))))
    }

    async fn call_at<M: Clone, A>(
        &self,
        channel: &Channel,
        message: &M,
        make: &impl AsyncFn(Channel, Request<M>) -> Answered<tonic::Response<A>>,
    ) -> Answered<A> {
        let attempt = async || -> Answered<A> {
            let mut request = Request::new(message.clone());
            if let Some(token) = self.token(channel).await? {
                request.metadata_mut().insert("token", token);
            }
            Ok(make(channel.clone(), request).await?.into_inner())
        };
        let in_time = async || {
            let silence = || Status::deadline_exceeded(format!("no answer in {} s", DEADLINE.as_secs()));
            tokio::time::timeout(DEADLINE, attempt()).await.unwrap_or_else(|_| Err(silence()))
        };
        match in_time().await {
            Err(status) if self.user.is_some() && is_forgotten(&status) => {
                *self.kept_token() = None;
                in_time().await
            }
            answer => answer,
        }
    }

    fn kept_token(&self) -> std::sync::MutexGuard<'_, Option<MetadataValue<Ascii>>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What proves who asks, where that is needed.
    async fn token(&self, channel: &Channel) -> Answered<Option<MetadataValue<Ascii>>> {
        let Some((name, password)) = self.user.clone() else { return Ok(None) };
        if let Some(token) = self.kept_token().clone() {
            return Ok(Some(token));
        }
        let message = AuthenticateRequest { name, password };
        let answer = AuthClient::new(channel.clone()).authenticate(message).await?.into_inner();
        let token = answer.token.parse().map_err(|_| Status::internal("etcd's token is no text"))?;
        Ok(self.kept_token().insert(token).clone().into())
    }
}

/// Whether another endpoint would say the same.
fn is_final(code: Code) -> bool {
    matches!(
        code,
        Code::InvalidArgument
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::FailedPrecondition
            | Code::Unimplemented
    )
}

/// Whether etcd does not know a token any more: they last for minutes, and not over restarts.
fn is_forgotten(status: &Status) -> bool {
    status.code() == Code::Unauthenticated || status.message().contains("invalid auth token")
}

/// Why a call failed, down to its cause.
pub(crate) fn reason(status: &Status) -> String {
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(status);
    let mut said = status.message().to_owned();
    while let Some(deeper) = cause {
        said = deeper.to_string();
        cause = deeper.source();
    }
    said
}

fn channel(address: &Address, host: &str) -> Result<Channel> {
    let scheme = if address.tls.is_some() { "https" } else { "http" };
    let wrong = |error: tonic::transport::Error| {
        Error::invalid(format!("`cluster`: cannot use the etcd endpoint `{host}`: {error}"))
    };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{host}"))
        .map_err(wrong)?
        .connect_timeout(DEADLINE)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(DEADLINE)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true);
    if let Some(tls) = &address.tls {
        let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.authority));
        if let Some((certificate, key)) = &tls.identity {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        endpoint = endpoint.tls_config(config).map_err(wrong)?;
    }
    Ok(endpoint.connect_lazy())
}
