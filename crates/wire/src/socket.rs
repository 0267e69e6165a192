//! One end of a Unix socket: frames with their descriptors, whole or not at all.
//!
//! A usual frame is one system call on each side: the socket's own timeout of one [`SLICE`] both waits and
//! reads, and what was read beyond a frame is kept for the next. Between slices, and whenever a signal arrives,
//! the caller's [`Tick`] runs, so that Ctrl-C is never far away.
//!
//! Descriptors ride on a frame's first byte. The kernel ends a read behind the piece that carried them, and they
//! leave here with nothing else behind them in their piece, so they belong to the last frame that begins in that
//! read. Descriptors that are not taken are closed, and are an error.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use prost::Message;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt,
};

use crate::frame::{self, HEAD, Incoming, KEPT};
use crate::peer::Peer;

/// The longest a wait goes without a tick.
pub const SLICE: Duration = Duration::from_millis(200);

/// The most descriptors one frame carries.
pub const MOST_DESCRIPTORS: usize = 64;

/// What a waiting caller runs between slices; its error ends the wait.
pub type Tick<'a> = &'a mut dyn FnMut() -> hotset_core::Result<()>;

/// Why a frame was not sent or received.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The frame itself is wrong.
    #[error(transparent)]
    Frame(#[from] frame::Error),
    /// The other end is closed.
    #[error("the other end of the socket was closed")]
    HungUp,
    /// The deadline passed.
    #[error("the other end of the socket did not answer in time")]
    TimedOut,
    /// The caller's tick said to stop.
    #[error(transparent)]
    Interrupted(hotset_core::Error),
    /// Descriptors are missing, too many or in the wrong place.
    #[error("a frame came with wrong descriptors: {0}")]
    Descriptors(String),
    /// The system refused.
    #[error("the socket failed: {0}")]
    System(#[from] Errno),
}

impl From<Error> for hotset_core::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Interrupted(error) => error,
            Error::Frame(frame::Error::TooLong(_)) => Self::invalid(error.to_string()),
            Error::Frame(_) | Error::Descriptors(_) => Self::internal(error.to_string()),
            Error::HungUp | Error::TimedOut | Error::System(_) => Self::unavailable(error.to_string()),
        }
    }
}

/// Descriptors that came with a read, and the part of the stream that read covered.
#[derive(Debug)]
struct Arrival {
    first: u64,
    end: u64,
    descriptors: Vec<OwnedFd>,
}

/// One end of a Unix socket that speaks frames.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    incoming: Incoming,
    /// Where in the stream the next frame begins, and where the bytes read so far end.
    position: u64,
    read: u64,
    arrivals: VecDeque<Arrival>,
    /// Descriptors of the frame received last.
    descriptors: Vec<OwnedFd>,
    outgoing: Vec<u8>,
    /// How much of `outgoing` is sent.
    sent: usize,
}

impl Connection {
    /// Speaks frames over `stream`.
    pub fn new(stream: UnixStream) -> Result<Self, Error> {
        rustix::io::ioctl_fionbio(&stream, false)?;
        sockopt::set_socket_timeout(&stream, sockopt::Timeout::Recv, Some(SLICE))?;
        sockopt::set_socket_timeout(&stream, sockopt::Timeout::Send, Some(SLICE))?;
        Ok(Self {
            stream,
            incoming: Incoming::default(),
            position: 0,
            read: 0,
            arrivals: VecDeque::new(),
            descriptors: Vec::new(),
            outgoing: Vec::new(),
            sent: 0,
        })
    }

    /// Refuses messages longer than `most` from now on.
    pub fn limit(&mut self, most: usize) {
        self.incoming.limit(most);
    }

    /// The process at the other end.
    pub fn peer(&self) -> Result<Peer, Error> {
        Peer::of(self.stream.as_fd())
            .map_err(|error| Error::System(Errno::from_io_error(&error).unwrap_or(Errno::IO)))
    }

    /// The process that opened the other end, as it is numbered here, if it is.
    pub fn peer_process(&self) -> Option<u32> {
        let credentials = sockopt::socket_peercred(&self.stream).ok()?;
        u32::try_from(credentials.pid.as_raw_nonzero().get()).ok()
    }

    /// Whether the other end is closed; never waits.
    pub fn hung_up(&self) -> bool {
        let flags = PollFlags::RDHUP | PollFlags::HUP;
        let mut asked = [PollFd::new(&self.stream, flags)];
        matches!(poll(&mut asked, Some(&Timespec::default())), Ok(1)) && asked[0].revents().intersects(flags)
    }

    /// Sends `message` with `descriptors`, waiting until `deadline`. After an error the frame is either not sent
    /// at all, or its rest goes out before anything else.
    pub fn send<M: Message>(
        &mut self,
        message: &M,
        descriptors: &[BorrowedFd<'_>],
        deadline: Option<Instant>,
        tick: Tick<'_>,
    ) -> Result<(), Error> {
        if descriptors.len() > MOST_DESCRIPTORS {
            return Err(Error::Descriptors(format!(
                "`{}` are more than `{MOST_DESCRIPTORS}`",
                descriptors.len()
            )));
        }
        let mut wait = Wait { deadline, tick };
        if !descriptors.is_empty() {
            self.flush(&[], &mut wait)?;
        }
        let begin = self.outgoing.len();
        frame::encode(message, &mut self.outgoing)?;
        let outcome = self.flush(descriptors, &mut wait);
        if outcome.is_err() && self.sent <= begin {
            self.outgoing.truncate(begin);
        }
        outcome
    }

    /// Puts `message` before whatever is sent next, in the same system call where that carries no descriptors.
    pub fn queue<M: Message>(&mut self, message: &M) -> Result<(), Error> {
        Ok(frame::encode(message, &mut self.outgoing)?)
    }

    /// Sends `message` if that needs no waiting: `false` if it does, and nothing of it was sent. If only a part of
    /// it went out, the rest goes before anything else.
    pub fn try_send<M: Message>(&mut self, message: &M) -> Result<bool, Error> {
        let begin = self.outgoing.len();
        frame::encode(message, &mut self.outgoing)?;
        let outcome = loop {
            match self.send_piece(&[], SendFlags::DONTWAIT) {
                Ok(true) => return Ok(true),
                Ok(false) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break Ok(self.sent > begin),
                Err(errno) => break Err(gone(errno)),
            }
        };
        if self.sent <= begin {
            self.outgoing.truncate(begin);
        }
        outcome
    }

    /// Receives the next message, waiting until `deadline`; `None` when the other end closed between frames. A
    /// wait that ended early can be taken up again.
    pub fn receive<M: Message + Default>(
        &mut self,
        deadline: Option<Instant>,
        tick: Tick<'_>,
    ) -> Result<Option<M>, Error> {
        self.take_descriptors(0)?;
        let mut wait = Wait { deadline, tick };
        let mut first = true;
        loop {
            if let Some(message) = self.incoming.message()? {
                let end = self.position + (HEAD + message.len()) as u64;
                let message = M::decode(message).map_err(frame::Error::from)?;
                self.descriptors = claim(&mut self.arrivals, self.position, end)?;
                self.incoming.take();
                self.position = end;
                return Ok(Some(message));
            }
            if !mem::take(&mut first) {
                wait.pause()?;
            }
            if self.fill(&mut wait)? == 0 {
                return if self.incoming.held().is_empty() { Ok(None) } else { Err(Error::HungUp) };
            }
        }
    }

    /// The descriptors of the frame received last, which must be `count`; otherwise all are closed.
    pub fn take_descriptors(&mut self, count: usize) -> Result<Vec<OwnedFd>, Error> {
        let descriptors = mem::take(&mut self.descriptors);
        if descriptors.len() == count {
            return Ok(descriptors);
        }
        Err(Error::Descriptors(format!("`{}` arrived, `{count}` were expected", descriptors.len())))
    }

    /// Sends all of `outgoing`, with `descriptors` on the first byte that leaves.
    fn flush(&mut self, mut descriptors: &[BorrowedFd<'_>], wait: &mut Wait<'_>) -> Result<(), Error> {
        while self.sent < self.outgoing.len() {
            let flags = if wait.last_slice(&self.stream, PollFlags::OUT) {
                SendFlags::DONTWAIT
            } else {
                SendFlags::empty()
            };
            match self.send_piece(descriptors, flags) {
                Ok(true) => break,
                Ok(false) => descriptors = &[],
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(gone(errno)),
            }
            wait.pause()?;
        }
        Ok(())
    }

    /// Sends what one system call takes; whether nothing is left.
    fn send_piece(&mut self, descriptors: &[BorrowedFd<'_>], flags: SendFlags) -> Result<bool, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(Errno::INVAL);
        }
        let piece = [IoSlice::new(&self.outgoing[self.sent..])];
        self.sent += sendmsg(&self.stream, &piece, &mut control, flags | SendFlags::NOSIGNAL)?;
        if self.sent < self.outgoing.len() {
            return Ok(false);
        }
        self.outgoing.clear();
        self.outgoing.shrink_to(KEPT);
        self.sent = 0;
        Ok(true)
    }

    /// Reads what one system call gives, with its descriptors; 0 at the end of the stream.
    fn fill(&mut self, wait: &mut Wait<'_>) -> Result<usize, Error> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        loop {
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut flags = RecvFlags::CMSG_CLOEXEC;
            flags.set(RecvFlags::DONTWAIT, wait.last_slice(&self.stream, PollFlags::IN));
            let mut room = [IoSliceMut::new(self.incoming.room())];
            let received = match recvmsg(&self.stream, &mut room, &mut control, flags) {
                Ok(received) => received,
                Err(Errno::AGAIN | Errno::INTR) => {
                    wait.pause()?;
                    continue;
                }
                Err(errno) => return Err(gone(errno)),
            };
            let mut descriptors = Vec::new();
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(more) = message {
                    descriptors.extend(more);
                }
            }
            // Padding may leave room for one more than was asked for.
            if received.flags.contains(ReturnFlags::CTRUNC) || descriptors.len() > MOST_DESCRIPTORS {
                return Err(Error::Descriptors(format!("more than `{MOST_DESCRIPTORS}` in one frame")));
            }
            let first = self.read;
            self.read += received.bytes as u64;
            self.incoming.arrived(received.bytes);
            if !descriptors.is_empty() {
                self.arrivals.push_back(Arrival { first, end: self.read, descriptors });
            }
            return Ok(received.bytes);
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// The descriptors of the frame at `begin..end` of the stream.
fn claim(arrivals: &mut VecDeque<Arrival>, begin: u64, end: u64) -> Result<Vec<OwnedFd>, Error> {
    let mut descriptors = Vec::new();
    // A read that goes on behind this frame has a later frame beginning in it, which owns its descriptors.
    while let Some(arrival) = arrivals.pop_front_if(|arrival| arrival.end <= end) {
        if begin < arrival.first || !descriptors.is_empty() {
            return Err(Error::Descriptors(format!(
                "`{}` arrived inside a frame",
                arrival.descriptors.len()
            )));
        }
        descriptors = arrival.descriptors;
    }
    Ok(descriptors)
}

/// A peer that closed is told apart from a system that fails.
fn gone(errno: Errno) -> Error {
    match errno {
        Errno::CONNRESET | Errno::PIPE | Errno::NOTCONN => Error::HungUp,
        errno => Error::System(errno),
    }
}

/// A deadline, and what runs until then.
struct Wait<'a> {
    deadline: Option<Instant>,
    tick: Tick<'a>,
}

impl Wait<'_> {
    /// Whether less than a slice is left, so that the socket's own timeout would be too long; if so, what is left
    /// was waited for already.
    fn last_slice(&self, stream: &UnixStream, event: PollFlags) -> bool {
        let Some(deadline) = self.deadline else { return false };
        let left = deadline.saturating_duration_since(Instant::now());
        if left >= SLICE {
            return false;
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
        // A failed poll says no more than a readless one: the call that follows tells.
        let _ = poll(&mut [PollFd::new(stream, event)], Some(&timeout));
        true
    }

    /// Between two attempts: runs the tick, and ends the wait at its deadline.
    fn pause(&mut self) -> Result<(), Error> {
        (self.tick)().map_err(Error::Interrupted)?;
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => Err(Error::TimedOut),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
