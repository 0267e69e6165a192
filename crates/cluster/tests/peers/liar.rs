//! A node that says what a test wants, whatever it was asked.

#[allow(missing_docs, clippy::all, unreachable_pub, dead_code)]
pub(super) mod generated {
    tonic::include_proto!("hotset.peers");
}

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use generated::peers_server::{Peers, PeersServer};
use generated::{Answer, AskReply, AskRequest, FetchReply, FetchRequest, Kind};
use tokio::runtime::Runtime;
use tokio_stream::StreamExt;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use twox_hash::XxHash3_64;

use super::loopback;

pub(super) type Said = Vec<Result<FetchReply, Status>>;

pub(super) struct Liar {
    pub(super) address: SocketAddr,
    /// Connections that were made.
    pub(super) connections: Arc<AtomicUsize>,
    /// Calls that came.
    pub(super) calls: Arc<AtomicUsize>,
    _runtime: Runtime,
}

struct Lies {
    say: Box<dyn Fn(FetchRequest) -> Said + Send + Sync>,
    calls: Arc<AtomicUsize>,
}

#[tonic::async_trait]
impl Peers for Lies {
    type FetchStream = tokio_stream::Iter<std::vec::IntoIter<Result<FetchReply, Status>>>;

    async fn fetch(&self, request: Request<FetchRequest>) -> Result<Response<Self::FetchStream>, Status> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        Ok(Response::new(tokio_stream::iter((self.say)(request.into_inner()))))
    }

    async fn ask(&self, _: Request<AskRequest>) -> Result<Response<AskReply>, Status> {
        Err(Status::unimplemented("it only lies"))
    }
}

impl Liar {
    pub(super) fn start(say: impl Fn(FetchRequest) -> Said + Send + Sync + 'static) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let entered = runtime.enter();
        let incoming = TcpIncoming::bind(loopback()).expect("a port").with_nodelay(Some(true));
        drop(entered);
        let address = incoming.local_addr().expect("an address");
        let (connections, calls) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let counted = Arc::clone(&connections);
        let incoming = incoming.map(move |stream| {
            counted.fetch_add(1, Ordering::SeqCst);
            stream
        });
        let lies = Lies { say: Box::new(say), calls: Arc::clone(&calls) };
        runtime
            .spawn(async { Server::builder().serve_with_incoming(PeersServer::new(lies), incoming).await });
        Self { address, connections, calls, _runtime: runtime }
    }
}

/// A right answer.
pub(super) fn truth(bytes: &[u8]) -> Answer {
    let checksum = XxHash3_64::oneshot(bytes);
    Answer { kind: Kind::Given.into(), hit: true, length: bytes.len() as u32, checksum }
}

/// A right chunk.
pub(super) fn chunk(samples: &[&[u8]]) -> FetchReply {
    FetchReply { answers: samples.iter().map(|bytes| truth(bytes)).collect(), data: samples.concat().into() }
}
