//! Answers, gathered into chunks.
//!
//! A chunk is a `FetchReply` that is never built as one: its answers are encoded into a head, which ends with the length
//! of the bytes that follow, and those go to the connection from where they were copied to.

use std::sync::Arc;
use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use tonic::Status;
use twox_hash::XxHash3_64;

use super::budget::{Budget, Charge};
use super::counters::{Counters, add};
use super::messages::{self, FetchReply, Kind};
use super::outbox::Outbox;
use super::{CHUNK, CHUNK_ANSWERS, LARGEST_SAMPLE};
use hotset_core::cluster::{Answer, AnswerKind};

/// `FetchReply::data`.
const DATA: u32 = 2;
/// A gRPC message begins with whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Answers, and the bytes of the given ones.
#[derive(Default)]
pub(super) struct Chunk {
    answers: Vec<messages::Answer>,
    data: Vec<u8>,
    charge: Option<Charge>,
}

/// Bytes that pay for themselves until they are sent.
struct Charged {
    data: Vec<u8>,
    _charge: Option<Charge>,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Chunk {
    /// What is sent: a head, and the bytes.
    pub(super) fn into_frames(self) -> (Bytes, Bytes) {
        let answers = FetchReply { answers: self.answers, data: Bytes::new() };
        let length = self.data.len();
        let mut ahead = answers.encoded_len();
        if length > 0 {
            ahead += key_len(DATA) + encoded_len_varint(length as u64);
        }
        let mut head = BytesMut::with_capacity(PREFIX + ahead);
        head.put_u8(0);
        // At most `LARGEST_SAMPLE` and its answers.
        head.put_u32((ahead + length) as u32);
        answers.encode_raw(&mut head);
        if length > 0 {
            encode_key(DATA, WireType::LengthDelimited, &mut head);
            encode_varint(length as u64, &mut head);
        }
        let data = Charged { data: self.data, _charge: self.charge };
        (head.freeze(), if length > 0 { Bytes::from_owner(data) } else { Bytes::new() })
    }
}

/// Fills chunks with answers and puts full ones into the outbox.
pub(super) struct Chunks<'a> {
    outbox: &'a Outbox,
    budget: &'a Arc<Budget>,
    counters: &'a Counters,
    deadline: Instant,
    /// Slots that were asked for and not answered.
    left: usize,
    chunk: Chunk,
    /// Whether the asker has gone, or the deadline has passed.
    stopped: bool,
}

impl<'a> Chunks<'a> {
    pub(super) fn new(
        outbox: &'a Outbox,
        budget: &'a Arc<Budget>,
        counters: &'a Counters,
        deadline: Instant,
        slots: usize,
    ) -> Self {
        Self { outbox, budget, counters, deadline, left: slots, chunk: Chunk::default(), stopped: false }
    }

    /// Takes the next answer; whether more are wanted.
    pub(super) fn put(&mut self, answer: Answer<'_>) -> bool {
        // An asker that has gone spares the copies.
        self.stopped |= self.outbox.is_left();
        if self.stopped || self.left == 0 {
            return false;
        }
        let answer = match answer.kind {
            AnswerKind::Given if answer.bytes.len() > LARGEST_SAMPLE => Answer::without(AnswerKind::Yours),
            AnswerKind::Given => answer,
            kind => Answer::without(kind),
        };
        let length = answer.bytes.len();
        let is_full = self.chunk.data.len() + length > CHUNK || self.chunk.answers.len() >= CHUNK_ANSWERS;
        if (is_full && !self.flush()) || (length > 0 && !self.charge(length)) {
            self.stopped = true;
            return false;
        }
        self.chunk.data.extend_from_slice(answer.bytes);
        // Of what was copied: memory that changes meanwhile is noticed by nobody else.
        let copied = &self.chunk.data[self.chunk.data.len() - length..];
        let checksum = if length > 0 { XxHash3_64::oneshot(copied) } else { 0 };
        self.chunk.answers.push(messages::Answer {
            kind: Kind::from(answer.kind).into(),
            hit: answer.hit,
            length: length as u32,
            checksum,
        });
        self.left -= 1;
        self.counters.answer(answer.kind);
        add(&self.counters.bytes_out, length as u64);
        true
    }

    /// Sends what is there, and how it ended.
    pub(super) fn end(mut self, how: Result<(), Status>) {
        self.stopped |= !self.flush();
        let late = || Err(Status::deadline_exceeded("the deadline has passed"));
        self.outbox.end(if self.stopped { late() } else { how });
    }

    /// Has room for so many bytes, in the chunk and in what may be under way.
    fn charge(&mut self, length: usize) -> bool {
        if self.chunk.charge.is_none() {
            let room = length.max(CHUNK);
            let Some(charge) = self.budget.take(room, self.deadline) else { return false };
            self.chunk.charge = Some(charge);
            self.chunk.data.reserve_exact(room);
        }
        true
    }

    fn flush(&mut self) -> bool {
        let chunk = std::mem::take(&mut self.chunk);
        chunk.answers.is_empty() || self.outbox.put(chunk, self.deadline)
    }
}
