//! Nodes that say wrong things.

use std::sync::atomic::Ordering;

use hotset_cluster::peers::AnswerKind::{Failed, Given};
use hotset_core::Kind;
use tonic::Status;

use super::liar::{Liar, chunk};
use super::{client, fetch, kinds};

const SAMPLES: [&[u8]; 3] = [b"one", b"two", b"six"];

#[test]
fn a_byte_that_was_flipped_fails_its_sample_alone_and_is_counted() {
    let liar = Liar::start(|_| {
        let mut said = chunk(&SAMPLES);
        let mut data = said.data.to_vec();
        data[4] ^= 1;
        said.data = data.into();
        vec![Ok(said)]
    });
    let peers = client();
    let (given, bytes) = fetch(&peers, liar.address, 3, 3).expect("answers");
    assert_eq!(kinds(&given), [Given, Failed, Given]);
    assert_eq!((&bytes[0][..], &bytes[2][..]), (SAMPLES[0], SAMPLES[2]));
    let counted = peers.counters();
    assert_eq!((counted.wrong, counted.failed, counted.given, counted.bytes_in), (1, 1, 2, 6));
}

#[test]
fn a_sample_of_another_length_fails_alone() {
    let liar = Liar::start(|_| vec![Ok(chunk(&[b"one", b"three", b"six"]))]);
    let (given, bytes) = fetch(&client(), liar.address, 3, 3).expect("answers");
    assert_eq!(kinds(&given), [Given, Failed, Given]);
    assert_eq!(&bytes[2][..], b"six");
}

#[test]
fn more_answers_than_slots_are_not_taken() {
    let liar = Liar::start(|_| vec![Ok(chunk(&SAMPLES)), Ok(chunk(&SAMPLES))]);
    let (given, bytes) = fetch(&client(), liar.address, 4, 3).expect("those that came");
    assert_eq!(kinds(&given), [Given; 4]);
    assert_eq!(&bytes[3][..], b"one");
}

#[test]
fn a_message_larger_than_any_that_was_asked_for_is_not_read() {
    let liar = Liar::start(|_| vec![Ok(chunk(&[&vec![7; 8 << 20]]))]);
    let error = fetch(&client(), liar.address, 1, 100).expect_err("too large");
    assert_eq!(error.kind, Kind::Unavailable);
    assert_eq!(liar.calls.load(Ordering::SeqCst), 1, "it is not asked for once more");
}

#[test]
fn a_stream_that_breaks_off_is_asked_for_its_rest_once() {
    let liar = Liar::start(|request| match request.slots.as_slice() {
        [0, 1, 2] => vec![Ok(chunk(&SAMPLES[..1])), Err(Status::unavailable("broken off"))],
        [1, 2] => vec![Ok(chunk(&SAMPLES[1..2])), Err(Status::unavailable("broken off"))],
        other => panic!("asked for {other:?}"),
    });
    let peers = client();
    let (given, bytes) = fetch(&peers, liar.address, 3, 3).expect("those that came");
    assert_eq!(kinds(&given), [Given, Given, Failed]);
    assert_eq!((&bytes[0][..], &bytes[1][..]), (SAMPLES[0], SAMPLES[1]));
    assert_eq!(liar.calls.load(Ordering::SeqCst), 2);
    let left_alone = fetch(&peers, liar.address, 3, 3).expect_err("left alone");
    assert!(left_alone.message.contains("left alone"), "{left_alone}");
}

#[test]
fn a_node_has_one_connection_and_none_when_it_has_left() {
    let liar = Liar::start(|request| request.slots.iter().map(|_| Ok(chunk(&[b"x"]))).collect());
    let peers = client();
    let served = || kinds(&fetch(&peers, liar.address, 2, 1).expect("answers").0) == [Given; 2];
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(served)).collect();
        assert!(threads.into_iter().all(|thread| thread.join().expect("no panic")));
    });
    peers.retain([liar.address.to_string().as_str()]);
    assert!(served());
    assert_eq!(liar.connections.load(Ordering::SeqCst), 1);
    peers.retain(["127.0.0.1:1"]);
    assert!(served());
    assert_eq!(liar.connections.load(Ordering::SeqCst), 2);
}
