//! A bare gRPC stream: chunks that were made before, and dropped when they have come.

use std::net::SocketAddr;

use bytes::Bytes;
use hotset_cluster::etcd::Tls;
use hotset_cluster::peers::{CHUNK, ServerTls};
use tokio::runtime::{Builder, Runtime};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

use crate::Section;
use crate::generated::peers_client::PeersClient;
use crate::generated::peers_server::{Peers as Service, PeersServer};
use crate::generated::{AskReply, AskRequest, FetchReply, FetchRequest};

/// Chunks of samples.
struct Chunks {
    chunks: Vec<Bytes>,
    per_chunk: usize,
}

#[tonic::async_trait]
impl Service for Chunks {
    type FetchStream = tokio_stream::Iter<std::vec::IntoIter<Result<FetchReply, Status>>>;

    async fn fetch(&self, request: Request<FetchRequest>) -> Result<Response<Self::FetchStream>, Status> {
        let slots = request.into_inner().slots;
        let chunk = |slots: &[u32]| {
            let whole = &self.chunks[slots[0] as usize / self.per_chunk % self.chunks.len()];
            let data = whole.slice(..whole.len() / self.per_chunk * slots.len());
            Ok(FetchReply { answers: Vec::new(), data })
        };
        let chunks: Vec<_> = slots.chunks(self.per_chunk).map(chunk).collect();
        Ok(Response::new(tokio_stream::iter(chunks)))
    }

    async fn ask(&self, _: Request<AskRequest>) -> Result<Response<AskReply>, Status> {
        Err(Status::unimplemented(""))
    }
}

/// As many threads as a node has for this.
pub(super) fn runtime() -> Runtime {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get().min(4));
    Builder::new_multi_thread().worker_threads(threads).enable_all().build().expect("a runtime")
}

/// Serves a section; where it listens.
pub(super) fn serve(section: &Section, host: &str, tls: &ServerTls, runtime: &Runtime) -> u16 {
    let per_chunk = (CHUNK / section.size).max(1);
    let samples: Vec<Vec<u8>> = (0..section.samples()).map(|at| section.sample(at)).collect();
    let chunks = samples.chunks_exact(per_chunk).map(|chunk| chunk.concat().into()).collect();
    let entered = runtime.enter();
    let listen = SocketAddr::new(host.parse().expect("an address"), 0);
    let incoming = TcpIncoming::bind(listen).expect("a port").with_nodelay(Some(true));
    drop(entered);
    let port = incoming.local_addr().expect("an address").port();
    let tls = ServerTlsConfig::new().identity(Identity::from_pem(&tls.certificate, &tls.key));
    runtime.spawn(async move {
        let server = Server::builder().tls_config(tls).expect("TLS");
        server.serve_with_incoming(PeersServer::new(Chunks { chunks, per_chunk }), incoming).await
    });
    port
}

/// Asks such a server.
pub(super) struct Stream {
    runtime: Runtime,
    channel: Channel,
    size: usize,
}

impl Stream {
    pub(super) fn new(host: &str, port: u16, tls: &Tls, size: usize) -> Self {
        let runtime = runtime();
        let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.authority));
        let entered = runtime.enter();
        let channel = Endpoint::from_shared(format!("https://{host}:{port}"))
            .and_then(|endpoint| endpoint.tls_config(config))
            .expect("an endpoint")
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(32 << 20)
            .max_frame_size(256 << 10)
            .tcp_nodelay(true)
            .connect_lazy();
        drop(entered);
        Self { runtime, channel, size }
    }

    pub(super) fn fetch(&self, slots: &[u32]) {
        self.runtime.block_on(async {
            let client = PeersClient::new(self.channel.clone());
            let mut client = client.max_decoding_message_size(2 * CHUNK);
            let request = FetchRequest { slots: slots.to_vec(), ..FetchRequest::default() };
            let mut replies = client.fetch(request).await.expect("a stream").into_inner();
            let mut bytes = 0;
            while let Some(reply) = replies.message().await.expect("a chunk") {
                bytes += reply.data.len();
            }
            assert_eq!(bytes, slots.len() * self.size);
        });
    }
}
