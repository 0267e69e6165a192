//! Answers calls of other nodes, once they have proved that they are such.
//!
//! The source of answers blocks, so each call has a thread of a bounded pool for as long as the source takes. A call that
//! finds no room, with its peer or with all, is told to come back at once rather than queued: whoever asks has storage
//! to turn to.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hotset_core::{Error, Kind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout_at;
use tonic::body::Body;
use tonic::codec::{Codec, EncodeBody, SingleMessageCompressionOverride, Streaming};
use tonic::codegen::{BoxFuture, Service, http};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use super::accepted::Caller;
use super::access::Token;
use super::body::ReplyBody;
use super::budget::Budget;
use super::chunks::Chunks;
use super::counters::{Counters, add};
use super::messages::{ASK, AUTHORIZATION, AskReply, AskRequest, FETCH, FetchReply, FetchRequest};
use super::outbox::Outbox;
use super::serve::PeerSource;
use super::{LARGEST_ASK, MOST_SLOTS};
use hotset_core::cluster::Wanted;

/// The longest that a call is worked on, whatever its caller would wait.
pub(super) const LONGEST: Duration = Duration::from_secs(30);
/// The most fetches and asks at a time, of all peers.
pub(super) const FETCHES: usize = 128;
pub(super) const ASKS: usize = 1024;
/// The most bytes of replies under way.
const UNDER_WAY: usize = 128 << 20;
/// The largest request for slots: a number has five bytes at most, and the job's name is short.
const LARGEST_FETCH: usize = MOST_SLOTS * 5 + (64 << 10);

type Answered<T> = Result<T, Status>;

#[derive(Clone)]
pub(super) struct Answering(Arc<Shared>);

pub(super) struct Shared {
    source: Arc<dyn PeerSource>,
    token: Option<Token>,
    fetches: Arc<Semaphore>,
    asks: Arc<Semaphore>,
    budget: Arc<Budget>,
    pub(super) counters: Counters,
}

impl Shared {
    pub(super) fn new(source: Arc<dyn PeerSource>, token: Option<Token>) -> Arc<Self> {
        Arc::new(Self {
            source,
            token,
            fetches: Arc::new(Semaphore::new(FETCHES)),
            asks: Arc::new(Semaphore::new(ASKS)),
            budget: Budget::new(UNDER_WAY),
            counters: Counters::default(),
        })
    }

    /// Threads that fill chunks do so no more.
    pub(super) fn close(&self) {
        self.budget.close();
    }
}

impl Answering {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    async fn answer(self, request: http::Request<Body>) -> Answered<http::Response<Body>> {
        let shared = &self.0;
        let header = request.headers().get(AUTHORIZATION).map(http::HeaderValue::as_bytes);
        if shared.token.as_ref().is_some_and(|token| !token.is(header)) {
            add(&shared.counters.refused, 1);
            return Err(Status::unauthenticated("`peer_token_file` is missing or another"));
        }
        let caller = request.extensions().get::<Caller>().cloned();
        let caller = caller.ok_or_else(|| Status::internal("a call without a connection"))?;
        caller.proven.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + timeout(request.headers()).unwrap_or(LONGEST).min(LONGEST);
        match request.uri().path() {
            FETCH => self.fetch(caller, deadline, request.into_body()).await,
            ASK => self.ask(caller, deadline, request.into_body()).await,
            _ => Err(Status::unimplemented("there is no such call")),
        }
    }

    async fn fetch(self, caller: Caller, by: Instant, body: Body) -> Answered<http::Response<Body>> {
        let shared = self.0;
        let seats = shared.seats(&caller.seats, &shared.fetches)?;
        let codec = ProstCodec::<FetchReply, FetchRequest>::default();
        let wanted = Wanted::from(message(codec, body, LARGEST_FETCH, by).await?);
        if wanted.slots.len() > MOST_SLOTS {
            return Err(Status::invalid_argument(format!("more than {MOST_SLOTS} slots at a time")));
        }
        let outbox = Arc::new(Outbox::default());
        let filled = Arc::clone(&outbox);
        tokio::task::spawn_blocking(move || {
            shared.give(&wanted, by, &filled);
            drop(seats);
        });
        Ok(response(Body::new(ReplyBody::new(outbox, by))))
    }

    async fn ask(self, caller: Caller, by: Instant, body: Body) -> Answered<http::Response<Body>> {
        let shared = self.0;
        let seats = shared.seats(&caller.asking, &shared.asks)?;
        let codec = ProstCodec::<AskReply, AskRequest>::default();
        let AskRequest { request } = message(codec, body, LARGEST_ASK, by).await?;
        let asked = tokio::task::spawn_blocking(move || {
            let reply = shared.source.ask(&request);
            drop(seats);
            reply
        });
        let reply = match timeout_at(by.into(), asked).await {
            Ok(Ok(Ok(reply))) => AskReply { reply: reply.into() },
            Ok(Ok(Err(error))) => return Err(status_of(&error)),
            Ok(Err(_)) => return Err(panicked()),
            Err(_) => return Err(late()),
        };
        let encoder = ProstCodec::<AskReply, AskRequest>::default().encoder();
        let once = tokio_stream::once(Ok(reply));
        let body =
            EncodeBody::new_server(encoder, once, None, SingleMessageCompressionOverride::default(), None);
        Ok(response(Body::new(body)))
    }
}

impl Shared {
    /// Room for a call, with its peer and with all.
    fn seats(&self, own: &Arc<Semaphore>, all: &Arc<Semaphore>) -> Answered<[OwnedSemaphorePermit; 2]> {
        add(&self.counters.requests, 1);
        let busy = |_| {
            add(&self.counters.busy, 1);
            Status::resource_exhausted("too many calls at a time: come back")
        };
        let own = Arc::clone(own).try_acquire_owned().map_err(busy)?;
        Ok([own, Arc::clone(all).try_acquire_owned().map_err(busy)?])
    }

    /// Has the source answer, on this thread.
    fn give(&self, wanted: &Wanted, by: Instant, outbox: &Outbox) {
        let mut chunks = Chunks::new(outbox, &self.budget, &self.counters, by, wanted.slots.len());
        let answer = || self.source.give(wanted, by, &mut |answer| chunks.put(answer));
        let how = std::panic::catch_unwind(AssertUnwindSafe(answer)).map_err(|_| panicked());
        chunks.end(how);
    }
}

impl Service<http::Request<Body>> for Answering {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let answered = self.clone().answer(request);
        Box::pin(async { Ok(answered.await.unwrap_or_else(Status::into_http)) })
    }
}

/// The one message of a request.
async fn message<C: Codec>(mut codec: C, body: Body, most: usize, by: Instant) -> Answered<C::Decode> {
    let mut messages = Streaming::new_request(codec.decoder(), body, None, Some(most));
    let message = timeout_at(by.into(), messages.message()).await.map_err(|_| late())??;
    message.ok_or_else(|| Status::invalid_argument("a call without a message"))
}

fn response(body: Body) -> http::Response<Body> {
    let mut response = http::Response::new(body);
    let kind = http::HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

fn late() -> Status {
    Status::deadline_exceeded("the deadline has passed")
}

fn panicked() -> Status {
    Status::internal("the node failed while it answered")
}

/// How long the caller waits, if it says so: up to eight digits and a unit.
fn timeout(headers: &http::HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (count, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let count: u64 = count.parse().ok().filter(|_| count.len() <= 8)?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

/// An error, as it is sent.
fn status_of(error: &Error) -> Status {
    let code = match error.kind {
        Kind::Invalid => Code::InvalidArgument,
        Kind::Changed => Code::FailedPrecondition,
        // `Unavailable` is what a broken connection says.
        Kind::Unavailable => Code::Aborted,
        Kind::Lost => Code::NotFound,
        _ => Code::Internal,
    };
    Status::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::timeout;
    use std::time::Duration;
    use tonic::codegen::http::{HeaderMap, HeaderValue};

    #[test]
    fn timeouts_are_read_and_what_is_none_is_passed_by() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", HeaderValue::from_str(text).expect("a header"));
            timeout(&headers)
        };
        assert_eq!(read("250m"), Some(Duration::from_millis(250)));
        assert_eq!(read("7S"), Some(Duration::from_secs(7)));
        assert_eq!(read("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        for wrong in ["", "S", "7", "7x", "-7S", "123456789S", "sevenS"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!(timeout(&HeaderMap::new()), None);
    }
}
