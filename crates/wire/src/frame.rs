//! Frames: a 32-bit little-endian length, then that many bytes of one message.
//!
//! [`encode`] appends a frame to bytes that go out; [`Incoming`] collects what arrives, in any pieces, and
//! hands out whole frames. A length beyond [`MOST`] is refused before anything is allocated for it, and a
//! lesser one takes memory only as its bytes arrive, so that four bytes from a stranger cost nothing.

use prost::Message;

/// The most bytes a message may take. The largest real ones are descriptions of many samples, cut by the server
/// into far smaller runs.
pub const MOST: usize = 64 << 20;

/// The bytes of a frame's length.
pub const HEAD: usize = 4;

/// What a connection keeps for frames to come; the usual frame fits, so that one system call reads it.
const USUAL: usize = 64 << 10;

/// What a connection keeps after a frame that was larger than usual.
pub(crate) const KEPT: usize = 1 << 20;

/// A frame that cannot be sent or understood.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Longer than [`MOST`], or than what is expected.
    #[error("a message of `{0}` bytes is longer than one frame may be")]
    TooLong(usize),
    /// Not the message that was expected.
    #[error("a frame does not hold the message expected: {0}")]
    Undecodable(#[from] prost::DecodeError),
}

/// Appends `message` as one frame to `into`; leaves `into` as it was if the message is too long.
pub fn encode<M: Message>(message: &M, into: &mut Vec<u8>) -> Result<(), Error> {
    let length = message.encoded_len();
    let head = u32::try_from(length).ok().filter(|_| length <= MOST).ok_or(Error::TooLong(length))?;
    into.reserve(HEAD + length);
    into.extend_from_slice(&head.to_le_bytes());
    message.encode_raw(into);
    Ok(())
}

/// What has arrived and was not yet taken.
#[derive(Debug)]
pub struct Incoming {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    most: usize,
}

impl Default for Incoming {
    fn default() -> Self {
        Self { bytes: Vec::new(), start: 0, end: 0, most: MOST }
    }
}

impl Incoming {
    /// Refuses messages longer than `most` from now on, where less than [`MOST`] is expected.
    pub fn limit(&mut self, most: usize) {
        self.most = most.min(MOST);
    }

    /// The bytes that have arrived and were not yet taken.
    pub fn held(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The message of the next frame, once all of it is here.
    pub fn message(&self) -> Result<Option<&[u8]>, Error> {
        let held = self.held();
        let Some((head, rest)) = held.split_first_chunk::<HEAD>() else { return Ok(None) };
        let length = u32::from_le_bytes(*head) as usize;
        if length > self.most {
            return Err(Error::TooLong(length));
        }
        Ok(rest.get(..length))
    }

    /// Forgets the frame that [`Self::message`] gave out.
    pub fn take(&mut self) {
        if let Ok(Some(message)) = self.message() {
            self.start += HEAD + message.len();
        }
    }

    /// Where the next bytes go: room for at least one more, and for the whole next frame if that is usual.
    pub fn room(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == 0 && self.bytes.len() > KEPT {
            self.bytes = Vec::new();
        }
        if self.bytes.len() < USUAL {
            self.bytes.resize(USUAL, 0);
        } else if self.end == self.bytes.len() {
            // Doubling what arrived: the length announced is only believed as its bytes come.
            self.bytes.resize((self.end * 2).min(HEAD + MOST), 0);
        }
        &mut self.bytes[self.end..]
    }

    /// Says that `count` bytes were written to the front of [`Self::room`].
    pub fn arrived(&mut self, count: usize) {
        self.end = (self.end + count).min(self.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{GetBatch, Request, Response};
    use proptest::prelude::*;

    fn feed(incoming: &mut Incoming, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = incoming.room();
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            incoming.arrived(count);
            bytes = &bytes[count..];
        }
    }

    /// Decodes every frame in `bytes` until one is refused; returns how many were whole.
    fn decode_all(bytes: &[u8]) -> usize {
        let mut incoming = Incoming::default();
        feed(&mut incoming, &bytes[..bytes.len().min(MOST)]);
        let mut count = 0;
        while let Ok(Some(message)) = incoming.message() {
            let _ = Request::decode(message);
            let _ = Response::decode(message);
            incoming.take();
            count += 1;
        }
        count
    }

    fn request() -> impl Strategy<Value = Request> {
        (".{0,20}", any::<u32>(), proptest::collection::vec(any::<u64>(), 0..300), any::<u64>()).prop_map(
            |(job, rank, indices, wait_ms)| {
                GetBatch { job, rank, indices, wait_ms, ..GetBatch::default() }.into()
            },
        )
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_memory_is_taken() {
        let mut incoming = Incoming::default();
        feed(&mut incoming, &(MOST as u32 + 1).to_le_bytes());
        assert!(matches!(incoming.message(), Err(Error::TooLong(length)) if length == MOST + 1));
        assert_eq!(incoming.bytes.len(), USUAL);
    }

    #[test]
    fn where_less_is_expected_less_is_the_limit() {
        let mut incoming = Incoming::default();
        incoming.limit(1000);
        feed(&mut incoming, &1000u32.to_le_bytes());
        assert!(incoming.message().unwrap().is_none());
        let mut incoming = Incoming::default();
        incoming.limit(1000);
        feed(&mut incoming, &1001u32.to_le_bytes());
        assert!(matches!(incoming.message(), Err(Error::TooLong(1001))));
    }

    #[test]
    fn a_long_frame_takes_memory_only_as_it_arrives() {
        let mut incoming = Incoming::default();
        feed(&mut incoming, &(MOST as u32).to_le_bytes());
        feed(&mut incoming, &vec![0; 1 << 20]);
        assert!(incoming.message().unwrap().is_none());
        assert!(incoming.bytes.len() <= 2 << 20, "{}", incoming.bytes.len());
    }

    #[test]
    fn memory_of_a_long_frame_is_given_back() {
        let mut incoming = Incoming::default();
        let length = 8 << 20;
        feed(&mut incoming, &(length as u32).to_le_bytes());
        feed(&mut incoming, &vec![0; length]);
        assert_eq!(incoming.message().unwrap().unwrap().len(), length);
        incoming.take();
        incoming.room();
        assert_eq!(incoming.bytes.len(), USUAL);
    }

    #[test]
    fn a_message_beyond_the_limit_is_not_encoded() {
        let message = GetBatch { job: "j".repeat(MOST + 1), ..GetBatch::default() };
        let mut bytes = vec![1, 2, 3];
        assert!(matches!(encode(&message, &mut bytes), Err(Error::TooLong(_))));
        assert_eq!(bytes, [1, 2, 3]);
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in_however_they_are_cut(
            requests in proptest::collection::vec(request(), 1..6),
            cuts in proptest::collection::vec(1usize..2000, 1..20),
        ) {
            let mut bytes = Vec::new();
            for request in &requests {
                encode(request, &mut bytes).unwrap();
            }
            let (mut incoming, mut seen, mut rest) = (Incoming::default(), Vec::new(), bytes.as_slice());
            for cut in cuts.iter().cycle() {
                let (piece, others) = rest.split_at((*cut).min(rest.len()));
                feed(&mut incoming, piece);
                while let Some(message) = incoming.message().unwrap() {
                    seen.push(Request::decode(message).unwrap());
                    incoming.take();
                }
                rest = others;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(seen, requests);
            prop_assert!(incoming.held().is_empty());
        }

        #[test]
        fn no_bytes_make_decoding_panic(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
            decode_all(&bytes);
            let _ = Request::decode(bytes.as_slice());
            let _ = Response::decode(bytes.as_slice());
        }

        #[test]
        fn a_frame_cut_short_is_no_frame(request in request(), keep in 0.0..1.0f64) {
            let mut bytes = Vec::new();
            encode(&request, &mut bytes).unwrap();
            let keep = (bytes.len() as f64 * keep) as usize;
            prop_assert_eq!(decode_all(&bytes[..keep]), 0);
            let _ = Request::decode(&bytes[HEAD.min(keep)..keep]);
        }

        #[test]
        fn flipped_bits_of_a_frame_never_make_decoding_panic(
            request in request(),
            flips in proptest::collection::vec((any::<usize>(), 0u8..8), 1..8),
        ) {
            let mut bytes = Vec::new();
            encode(&request, &mut bytes).unwrap();
            for (place, bit) in flips {
                let place = place % bytes.len();
                bytes[place] ^= 1 << bit;
            }
            decode_all(&bytes);
        }
    }
}
