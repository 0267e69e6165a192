//! The listener for other nodes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hotset_core::{Error, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;

use super::accepted::{Accepted, PROOF, Stream};
use super::access::{ServerTls, Token, acceptor, check_listener};
use super::answering::{ASKS, Answering, FETCHES, LONGEST, Shared};
use super::counters::{Counted, add};
use super::{ASKS_OF_A_PEER, KEEP_ALIVE, REQUESTS_OF_A_PEER, runtime};
use hotset_core::cluster::{Answer, Wanted};

/// The most connections at a time. A node has one to each other.
const CONNECTIONS: usize = 1024;
/// The pause after a connection could not be accepted, for want of descriptors say.
const PAUSE: Duration = Duration::from_millis(50);

/// Who answers other nodes: the cache of this one.
pub trait PeerSource: Send + Sync {
    /// Answers each slot, in the order asked. May wait until the deadline. `out` says whether more answers are wanted;
    /// slots without an answer count as failed.
    fn give(&self, wanted: &Wanted, deadline: Instant, out: &mut dyn FnMut(Answer<'_>) -> bool);

    /// Answers a request of the local protocol.
    fn ask(&self, request: &[u8]) -> Result<Vec<u8>>;
}

/// Listens until it is dropped. Calls under way then end, as soon as the source returns.
pub struct PeerServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

impl PeerServer {
    /// Listens for other nodes. Beyond loopback that takes TLS and a token.
    pub fn start(
        listen: SocketAddr,
        tls: Option<ServerTls>,
        token: Option<String>,
        source: Arc<dyn PeerSource>,
    ) -> Result<Self> {
        check_listener(listen, tls.is_some(), token.is_some())?;
        let token = token.as_deref().map(Token::new).transpose()?;
        let acceptor = tls.as_ref().map(acceptor).transpose()?;
        let runtime = runtime("hotset-peers", FETCHES + ASKS)?;
        let failed = |error: std::io::Error| {
            Error::unavailable(format!("cannot listen for other nodes on {listen}: {error}"))
        };
        let listener = runtime.block_on(TcpListener::bind(listen)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Shared::new(source, token);
        runtime.spawn(serve(listener, acceptor, Arc::clone(&shared)));
        tracing::info!(%address, tls = tls.is_some(), "listens for other nodes");
        Ok(Self { address, shared, runtime: Some(runtime) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What happened so far.
    pub fn counters(&self) -> Counted {
        self.shared.counters.read()
    }
}

impl Drop for PeerServer {
    fn drop(&mut self) {
        self.shared.close();
        if let Some(runtime) = self.runtime.take() {
            // Connections end at once. Threads end with their source, which knows its deadline.
            runtime.shutdown_timeout(LONGEST + Duration::from_secs(1));
        }
    }
}

async fn serve(listener: TcpListener, acceptor: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let (ready, incoming) = mpsc::channel(1);
    tokio::spawn(accept(listener, acceptor, ready, Arc::clone(&shared)));
    let incoming = ReceiverStream::new(incoming).map(Ok::<_, std::io::Error>);
    let served = Server::builder()
        .max_concurrent_streams(2 * (REQUESTS_OF_A_PEER + ASKS_OF_A_PEER) as u32)
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE))
        .serve_with_incoming(Answering::new(shared), incoming)
        .await;
    if let Err(error) = served {
        tracing::warn!(%error, "the listener for other nodes ended");
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    ready: mpsc::Sender<Accepted>,
    shared: Arc<Shared>,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "a node's connection cannot be accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            add(&shared.counters.refused, 1);
            continue;
        };
        let (acceptor, ready, shared) = (acceptor.clone(), ready.clone(), Arc::clone(&shared));
        // Each makes its handshake for itself: one that is slow holds up no other.
        tokio::spawn(async move {
            match shake_hands(stream, acceptor, place).await {
                // Nobody takes it when the listener has ended.
                Ok(accepted) => drop(ready.send(accepted).await),
                Err(error) => {
                    add(&shared.counters.refused, 1);
                    tracing::debug!(%error, "a connection is refused: it is no node's");
                }
            }
        });
    }
}

async fn shake_hands(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    place: OwnedSemaphorePermit,
) -> std::io::Result<Accepted> {
    stream.set_nodelay(true)?;
    let Some(acceptor) = acceptor else { return Ok(Accepted::new(Stream::Plain(stream), place)) };
    let stream = tokio::time::timeout(PROOF, acceptor.accept(stream)).await??;
    Ok(Accepted::new(Stream::Tls(Box::new(stream)), place))
}
