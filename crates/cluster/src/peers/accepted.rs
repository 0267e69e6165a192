//! A connection that was accepted: of TCP alone, or with TLS on it.
//!
//! It must make a call with the right token soon, or is closed: one that is open costs memory, and anybody can open some.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::{ASKS_OF_A_PEER, REQUESTS_OF_A_PEER};

/// How long a connection has to prove that it is a node's.
pub(super) const PROOF: Duration = Duration::from_secs(10);

/// What calls of one connection share.
#[derive(Clone)]
pub(super) struct Caller {
    /// Room for requests at a time.
    pub(super) seats: Arc<Semaphore>,
    /// Room for questions at a time.
    pub(super) asking: Arc<Semaphore>,
    /// Whether a call had the right token.
    pub(super) proven: Arc<AtomicBool>,
}

pub(super) struct Accepted {
    stream: Stream,
    caller: Caller,
    patience: Option<Pin<Box<Sleep>>>,
    _place: OwnedSemaphorePermit,
}

pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Accepted {
    /// A connection, and its place among all.
    pub(super) fn new(stream: Stream, place: OwnedSemaphorePermit) -> Self {
        let seats = Arc::new(Semaphore::new(REQUESTS_OF_A_PEER));
        let asking = Arc::new(Semaphore::new(ASKS_OF_A_PEER));
        let caller = Caller { seats, asking, proven: Arc::default() };
        Self { stream, caller, patience: Some(Box::pin(tokio::time::sleep(PROOF))), _place: place }
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut (dyn Both + Unpin)> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream),
            Stream::Tls(stream) => Pin::new(stream.as_mut()),
        }
    }

    /// Whether it has had its time, and proved nothing.
    fn is_overdue(&mut self, context: &mut Context<'_>) -> bool {
        let Some(patience) = &mut self.patience else { return false };
        if self.caller.proven.load(Ordering::Relaxed) {
            self.patience = None;
            return false;
        }
        patience.as_mut().poll(context).is_ready()
    }
}

trait Both: AsyncRead + AsyncWrite {}
impl<S: AsyncRead + AsyncWrite> Both for S {}

impl Connected for Accepted {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.caller.clone()
    }
}

impl AsyncRead for Accepted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_overdue(context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        self.stream().poll_read(context, buffer)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(context)
    }
}
