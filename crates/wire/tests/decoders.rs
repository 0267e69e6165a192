//! Frames and messages from bytes of every kind: decoding never panics, never takes memory for what has not arrived, and
//! what it makes of bytes is what encoding makes of it again.
//!
//! Bytes are random; random fields in the shape that messages have, so that every kind of request and response is
//! reached; and real frames with bytes flipped, cut, repeated and moved. `HOTSET_FUZZ=1000000` makes so many cases of each.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use hotset_wire::frame::{self, HEAD, Incoming, MOST};
use hotset_wire::proto::{
    BeginEpoch, ContentList, GetBatch, GetContents, Hello, JobSettings, OpenDataset, OpenJob, PutContents,
    Report, Request, Response, Segment, Segments, Welcome,
};
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;
use prost::encoding::encode_varint;

/// Cases of each test.
fn cases() -> ProptestConfig {
    let asked = std::env::var("HOTSET_FUZZ").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: asked.unwrap_or(20_000), failure_persistence: None, ..ProptestConfig::default() }
}

/// Decodes bytes as both kinds of message; what can be decoded is the same after it was encoded.
fn decode(bytes: &[u8]) {
    if let Ok(request) = Request::decode(bytes) {
        let once = request.encode_to_vec();
        assert_eq!(Request::decode(&*once).unwrap().encode_to_vec(), once);
        // What is shown in a log is made of it too.
        let _ = format!("{request:?}");
    }
    if let Ok(response) = Response::decode(bytes) {
        let once = response.encode_to_vec();
        assert_eq!(Response::decode(&*once).unwrap().encode_to_vec(), once);
    }
}

/// Takes frames out of a stream that arrives in these pieces; how many there were.
fn take_all(stream: &[u8], pieces: &[usize]) -> usize {
    let (mut incoming, mut rest, mut frames) = (Incoming::default(), stream, 0);
    let mut pieces = pieces.iter().cycle();
    loop {
        loop {
            match incoming.message() {
                Ok(Some(message)) => decode(message),
                Ok(None) => break,
                Err(error) => {
                    assert!(matches!(error, frame::Error::TooLong(length) if length > MOST));
                    return frames;
                }
            }
            incoming.take();
            frames += 1;
        }
        if rest.is_empty() {
            return frames;
        }
        let room = incoming.room();
        assert!(room.len() <= 2 * stream.len().max(64 << 10), "memory for what has not arrived");
        let count = pieces.next().map_or(1, |piece| (*piece).clamp(1, rest.len())).min(room.len());
        room[..count].copy_from_slice(&rest[..count]);
        incoming.arrived(count);
        rest = &rest[count..];
    }
}

/// Fields as messages have them: numbers, fixed numbers, bytes, and fields inside fields.
fn fields() -> impl Strategy<Value = Vec<u8>> {
    let number = (1u64..60, any::<u64>()).prop_map(|(field, value)| {
        let mut bytes = Vec::new();
        encode_varint(field << 3, &mut bytes);
        encode_varint(value, &mut bytes);
        bytes
    });
    let fixed = (1u64..60, any::<bool>(), any::<u64>()).prop_map(|(field, long, value)| {
        let mut bytes = Vec::new();
        encode_varint(field << 3 | if long { 1 } else { 5 }, &mut bytes);
        bytes.extend_from_slice(&value.to_le_bytes()[..if long { 8 } else { 4 }]);
        bytes
    });
    let inside = |inner: BoxedStrategy<Vec<u8>>| {
        (1u64..60, vec(inner, 0..4)).prop_map(|(field, parts)| {
            let inner = parts.concat();
            let mut bytes = Vec::new();
            encode_varint(field << 3 | 2, &mut bytes);
            encode_varint(inner.len() as u64, &mut bytes);
            bytes.extend(inner);
            bytes
        })
    };
    let leaf = prop_oneof![number, fixed, vec(any::<u8>(), 0..40)];
    let fields = leaf.prop_recursive(5, 60, 4, move |inner| inside(inner.boxed()));
    vec(fields, 0..6).prop_map(|fields| fields.concat())
}

/// Real messages of many kinds, as frames.
fn real() -> Vec<Vec<u8>> {
    let settings = JobSettings { dataset: "d".into(), cache: "20%".into(), ..JobSettings::default() };
    let list = Some(ContentList { hashes: vec![vec![7; 32]; 3], lengths: vec![1, 2, u64::MAX] });
    let options = [("secret".to_owned(), "x".to_owned())];
    let requests: Vec<Request> = vec![
        Hello { protocol: 7, version: "0.1".into(), main_pid: 7 }.into(),
        OpenDataset { place: "/data".into(), storage_options: options.into(), ..OpenDataset::default() }
            .into(),
        OpenJob { job: "j".into(), settings: Some(settings), ..OpenJob::default() }.into(),
        BeginEpoch { job: "j".into(), epoch: 3, rank: 1, world: 2, ..BeginEpoch::default() }.into(),
        GetBatch { job: "j".into(), indices: (0..300).collect(), ..GetBatch::default() }.into(),
        Report { job: "j".into(), ids: vec![1, 2], scores: vec![0.5, f32::NAN], ..Report::default() }.into(),
        GetContents { contents: list.clone() }.into(),
        PutContents { contents: list }.into(),
    ];
    let responses: Vec<Response> = vec![
        Welcome { protocol: 7, version: "0.1".into(), instance: "i".into(), pid: 1, ends: true }.into(),
        Segments { segments: vec![Segment { segment: 1, length: 64 << 20 }; 5] }.into(),
    ];
    let mut frames = vec![Vec::new(); requests.len() + responses.len()];
    let (first, second) = frames.split_at_mut(requests.len());
    first.iter_mut().zip(&requests).for_each(|(into, request)| frame::encode(request, into).unwrap());
    second.iter_mut().zip(&responses).for_each(|(into, response)| frame::encode(response, into).unwrap());
    frames
}

/// One way to spoil bytes.
fn spoil(bytes: &mut Vec<u8>, (way, at, other): (u8, usize, usize)) {
    if bytes.is_empty() {
        return;
    }
    let (at, other) = (at % bytes.len(), other % bytes.len());
    let (from, to) = (at.min(other), at.max(other));
    match way % 6 {
        0 => bytes[at] ^= 1 << (other % 8),
        1 => bytes.truncate(at),
        2 => bytes[at] = 0xff,
        3 => bytes.extend_from_within(from..to),
        4 => drop(bytes.drain(from..to)),
        _ => bytes[from..].rotate_left(to - from),
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn random_bytes(bytes in vec(any::<u8>(), 0..2000), pieces in vec(1usize..300, 1..8)) {
        decode(&bytes);
        take_all(&bytes, &pieces);
    }

    #[test]
    fn random_fields(bytes in fields(), pieces in vec(1usize..300, 1..8)) {
        decode(&bytes);
        let mut framed = u32::try_from(bytes.len()).unwrap().to_le_bytes().to_vec();
        framed.extend(&bytes);
        prop_assert_eq!(take_all(&framed, &pieces), 1);
    }

    #[test]
    fn spoilt_frames(
        chosen in vec(any::<prop::sample::Index>(), 1..5),
        ways in vec(any::<(u8, usize, usize)>(), 0..6),
        pieces in vec(1usize..300, 1..8),
    ) {
        let real = real();
        let mut stream: Vec<u8> = chosen.iter().flat_map(|index| index.get(&real).clone()).collect();
        prop_assert_eq!(take_all(&stream, &pieces), chosen.len());
        ways.into_iter().for_each(|way| spoil(&mut stream, way));
        take_all(&stream, &pieces);
        decode(stream.get(HEAD..).unwrap_or_default());
    }
}

#[test]
fn fields_inside_fields_without_end_are_refused() {
    let mut bytes = Vec::new();
    for _ in 0..10_000 {
        let mut outer = Vec::new();
        encode_varint(30 << 3 | 2, &mut outer);
        encode_varint(bytes.len() as u64, &mut outer);
        outer.extend(&bytes);
        bytes = outer;
    }
    decode(&bytes);
}

#[test]
fn a_length_of_four_gibibytes_is_refused_before_memory_is_taken() {
    let mut incoming = Incoming::default();
    incoming.room()[..HEAD].copy_from_slice(&u32::MAX.to_le_bytes());
    incoming.arrived(HEAD);
    assert!(matches!(incoming.message(), Err(frame::Error::TooLong(_))));
}
