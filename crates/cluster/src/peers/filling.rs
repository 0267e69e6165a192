//! Answers, as they come, and the places that they fill.
//!
//! Nothing that comes is trusted: a sample that has another length or checksum than it should fails, and those beside it do
//! not.

use twox_hash::XxHash3_64;

use super::counters::{Counters, add};
use super::messages::{FetchReply, Kind};
use super::{ANSWER, CHUNK, CHUNK_ANSWERS};
use hotset_core::cluster::{AnswerKind, Given};

pub(super) struct Filling<'a, 'b> {
    places: &'a mut [&'b mut [u8]],
    given: Vec<Given>,
    counters: &'a Counters,
}

impl<'a, 'b> Filling<'a, 'b> {
    pub(super) fn new(places: &'a mut [&'b mut [u8]], counters: &'a Counters) -> Self {
        let given = Vec::with_capacity(places.len());
        Self { places, given, counters }
    }

    /// How many slots were answered.
    pub(super) fn answered(&self) -> usize {
        self.given.len()
    }

    /// The largest message that can come.
    pub(super) fn largest(&self) -> usize {
        let sample = self.places.iter().map(|place| place.len()).max().unwrap_or_default();
        sample.max(CHUNK) + (CHUNK_ANSWERS + 1) * ANSWER
    }

    /// Takes a chunk in; whether it was one that can be.
    pub(super) fn take(&mut self, chunk: &FetchReply) -> bool {
        let mut data = &chunk.data[..];
        for answer in &chunk.answers {
            let Some(place) = self.places.get_mut(self.given.len()) else { return false };
            let came;
            (came, data) = data.split_at_checked(answer.length as usize).unwrap_or((&[], &[]));
            // A kind of a later version is none that can be used.
            let mut kind = Kind::try_from(answer.kind).map_or(AnswerKind::Failed, AnswerKind::from);
            if kind == AnswerKind::Given && !fill(place, came, answer.checksum) {
                add(&self.counters.wrong, 1);
                kind = AnswerKind::Failed;
            }
            if kind == AnswerKind::Given {
                add(&self.counters.bytes_in, came.len() as u64);
            }
            self.counters.answer(kind);
            self.given.push(Given { kind, hit: answer.hit && kind == AnswerKind::Given });
        }
        true
    }

    /// What came of each slot: those that nothing was said of have failed.
    pub(super) fn finish(mut self) -> Vec<Given> {
        let missing = self.places.len() - self.given.len();
        add(&self.counters.failed, missing as u64);
        self.given.resize(self.places.len(), Given::FAILED);
        self.given
    }
}

/// Fills a place; whether it now holds what was sent.
fn fill(place: &mut [u8], bytes: &[u8], checksum: u64) -> bool {
    if place.len() != bytes.len() {
        return false;
    }
    place.copy_from_slice(bytes);
    place.is_empty() || XxHash3_64::oneshot(place) == checksum
}

#[cfg(test)]
mod tests {
    use super::super::counters::Counters;
    use super::super::messages::{Answer, FetchReply, Kind};
    use super::Filling;
    use hotset_core::cluster::AnswerKind::{self, Failed, Given, Stale, Yours};
    use twox_hash::XxHash3_64;

    fn answer(kind: Kind, bytes: &[u8]) -> Answer {
        let checksum = XxHash3_64::oneshot(bytes);
        Answer { kind: kind.into(), hit: true, length: bytes.len() as u32, checksum }
    }

    fn take(chunk: &FetchReply, lengths: &[usize]) -> (bool, Vec<AnswerKind>, Vec<Vec<u8>>, u64) {
        let mut bytes: Vec<Vec<u8>> = lengths.iter().map(|&length| vec![0; length]).collect();
        let counters = Counters::default();
        let mut places: Vec<&mut [u8]> = bytes.iter_mut().map(Vec::as_mut_slice).collect();
        let mut filling = Filling::new(&mut places, &counters);
        let right = filling.take(chunk);
        let given = filling.finish().into_iter().map(|given| given.kind).collect();
        (right, given, bytes, counters.read().wrong)
    }

    #[test]
    fn samples_are_told_apart_and_those_that_do_not_come_have_failed() {
        let answers = vec![answer(Kind::Given, b"abc"), answer(Kind::Yours, b""), answer(Kind::Given, b"de")];
        let (right, given, bytes, wrong) = take(&FetchReply { answers, data: "abcde".into() }, &[3, 5, 2, 1]);
        assert!(right);
        assert_eq!(given, [Given, Yours, Given, Failed]);
        assert_eq!((&bytes[0][..], &bytes[2][..], wrong), (&b"abc"[..], &b"de"[..], 0));
    }

    #[test]
    fn another_length_or_checksum_fails_a_sample_and_none_beside_it() {
        let mut answers =
            vec![answer(Kind::Given, b"abc"), answer(Kind::Given, b"de"), answer(Kind::Given, b"f")];
        answers[1].checksum ^= 1;
        let reply = FetchReply { answers, data: "abcdef".into() };
        assert_eq!(take(&reply, &[3, 2, 1]).1, [Given, Failed, Given]);
        let (_, given, _, wrong) = take(&reply, &[4, 2, 1]);
        assert_eq!((given, wrong), (vec![Failed, Failed, Given], 2));
    }

    #[test]
    fn what_no_node_sends_is_no_sample() {
        let long = FetchReply { answers: vec![answer(Kind::Given, b"abc"); 2], data: "abc".into() };
        assert_eq!(take(&long, &[3, 3]).1, [Given, Failed], "bytes that are missing");
        let (right, given, ..) = take(&long, &[3]);
        assert!(!right && given == [Given], "more answers than slots");
        let mut later = FetchReply { answers: vec![answer(Kind::Stale, b""); 2], data: "".into() };
        later.answers[1].kind = 99;
        assert_eq!(take(&later, &[3, 3]).1, [Stale, Failed]);
    }
}
