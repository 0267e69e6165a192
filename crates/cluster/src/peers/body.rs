//! The reply to a fetch, as HTTP/2 sends it: chunks, then how it ended.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::time::Sleep;
use tonic::Status;
use tonic::codegen::http::HeaderMap;

use super::outbox::Outbox;

pub(super) struct ReplyBody {
    outbox: Arc<Outbox>,
    /// The bytes of a chunk whose head was sent.
    data: Bytes,
    deadline: Pin<Box<Sleep>>,
    ended: bool,
}

impl ReplyBody {
    pub(super) fn new(outbox: Arc<Outbox>, deadline: Instant) -> Self {
        let deadline = Box::pin(tokio::time::sleep_until(deadline.into()));
        Self { outbox, data: Bytes::new(), deadline, ended: false }
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, Result<(), Status>>> {
        if let Poll::Ready(next) = self.outbox.poll(context) {
            return Poll::Ready(next.map(|chunk| {
                let (head, data) = chunk.into_frames();
                self.data = data;
                head
            }));
        }
        ready!(self.deadline.as_mut().poll(context));
        self.outbox.leave();
        Poll::Ready(Err(Err(Status::deadline_exceeded("the deadline has passed"))))
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if !self.data.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.data)))));
        }
        let how = match ready!(self.poll_end(context)) {
            Ok(head) => return Poll::Ready(Some(Ok(Frame::data(head)))),
            Err(how) => how,
        };
        self.ended = true;
        let mut trailers = HeaderMap::new();
        let status = how.err().unwrap_or_else(|| Status::ok(""));
        Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

impl Drop for ReplyBody {
    fn drop(&mut self) {
        self.outbox.leave();
    }
}
