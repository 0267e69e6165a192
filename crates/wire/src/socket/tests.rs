//! Both ends of a socket pair, and now and then the raw stream in place of one.

use std::io::{Read, Write};
use std::thread;

use super::*;
use crate::proto::{Describe, GetBatch, Progress, Request, Response};
use proptest::prelude::*;
use rustix::pipe::pipe;

fn pair() -> (Connection, Connection) {
    let (one, other) = UnixStream::pair().unwrap();
    (Connection::new(one).unwrap(), Connection::new(other).unwrap())
}

fn progress(done: u64) -> Response {
    Progress { what: "listing".into(), done }.into()
}

fn send<M: Message>(connection: &mut Connection, message: &M, descriptors: &[BorrowedFd<'_>]) {
    connection.send(message, descriptors, soon(10_000), &mut || Ok(())).unwrap();
}

fn receive<M: Message + Default>(connection: &mut Connection) -> Result<Option<M>, Error> {
    connection.receive(soon(10_000), &mut || Ok(()))
}

fn soon(milliseconds: u64) -> Option<Instant> {
    Some(Instant::now() + Duration::from_millis(milliseconds))
}

/// Sends raw bytes with descriptors.
fn send_raw(stream: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(100))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    let sent = sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::empty()).unwrap();
    assert_eq!(sent, bytes.len());
}

/// Whether every copy of a pipe's writing end but ours is closed, once ours is.
fn all_closed(reader: OwnedFd, writer: OwnedFd) -> bool {
    drop(writer);
    let mut asked = [PollFd::new(&reader, PollFlags::IN)];
    poll(&mut asked, Some(&Timespec::default())).unwrap() == 1 && asked[0].revents().contains(PollFlags::HUP)
}

#[test]
fn messages_cross_in_both_directions_in_their_order() {
    let (mut one, mut other) = pair();
    for done in 0..100 {
        send(&mut one, &progress(done), &[]);
    }
    for done in 0..100 {
        assert_eq!(receive::<Response>(&mut other).unwrap(), Some(progress(done)));
    }
    send(&mut other, &progress(7), &[]);
    assert_eq!(receive::<Response>(&mut one).unwrap(), Some(progress(7)));
}

#[test]
fn a_message_larger_than_any_buffer_crosses_whole() {
    let (mut one, mut other) = pair();
    let message = Request::from(GetBatch { indices: (0..2_000_000).collect(), ..GetBatch::default() });
    let sender = thread::spawn(move || send(&mut one, &message, &[]));
    let Some(Request { kind: Some(crate::proto::request::Kind::GetBatch(got)) }) =
        receive(&mut other).unwrap()
    else {
        panic!("another message arrived")
    };
    assert!(got.indices.iter().copied().eq(0..2_000_000));
    sender.join().unwrap();
}

#[test]
fn the_end_between_frames_is_no_error_and_in_a_frame_is_one() {
    let (mut one, mut other) = pair();
    send(&mut one, &progress(1), &[]);
    drop(one);
    assert!(receive::<Response>(&mut other).unwrap().is_some());
    assert!(receive::<Response>(&mut other).unwrap().is_none());

    for kept in [1, 4, 7] {
        let (mut raw, stream) = UnixStream::pair().unwrap();
        let mut other = Connection::new(stream).unwrap();
        let mut bytes = Vec::new();
        frame::encode(&progress(1), &mut bytes).unwrap();
        raw.write_all(&bytes[..kept]).unwrap();
        drop(raw);
        assert!(matches!(receive::<Response>(&mut other), Err(Error::HungUp)));
    }
}

#[test]
fn descriptors_come_with_their_own_frame_whatever_was_read_at_once() {
    let (mut one, mut other) = pair();
    let (first, second) = (pipe().unwrap(), pipe().unwrap());
    send(&mut one, &progress(1), &[]);
    send(&mut one, &progress(2), &[first.1.as_fd()]);
    send(&mut one, &progress(3), &[]);
    send(&mut one, &progress(4), &[second.1.as_fd(), second.1.as_fd()]);
    for (done, count) in [(1, 0), (2, 1), (3, 0), (4, 2)] {
        assert_eq!(receive::<Response>(&mut other).unwrap(), Some(progress(done)));
        let descriptors = other.take_descriptors(count).unwrap();
        for descriptor in &descriptors {
            rustix::io::write(descriptor, &[done as u8]).unwrap();
            let flags = rustix::io::fcntl_getfd(descriptor).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        }
    }
    let mut bytes = [0; 8];
    assert_eq!(rustix::io::read(&first.0, &mut bytes).unwrap(), 1);
    assert_eq!(rustix::io::read(&second.0, &mut bytes).unwrap(), 2);
    assert!(all_closed(first.0, first.1) && all_closed(second.0, second.1));
}

#[test]
fn descriptors_that_are_not_taken_are_closed_and_an_error() {
    let (mut one, mut other) = pair();
    let (reader, writer) = pipe().unwrap();
    send(&mut one, &progress(1), &[writer.as_fd()]);
    send(&mut one, &progress(2), &[]);
    receive::<Response>(&mut other).unwrap();
    assert!(matches!(receive::<Response>(&mut other), Err(Error::Descriptors(_))));
    assert!(all_closed(reader, writer));
}

#[test]
fn another_number_of_descriptors_than_expected_closes_them() {
    for expected in [0, 1, 3] {
        let (mut one, mut other) = pair();
        let (reader, writer) = pipe().unwrap();
        send(&mut one, &progress(1), &[writer.as_fd(), writer.as_fd()]);
        receive::<Response>(&mut other).unwrap();
        assert!(matches!(other.take_descriptors(expected), Err(Error::Descriptors(_))));
        assert!(all_closed(reader, writer));
    }
}

#[test]
fn more_descriptors_than_the_limit_are_refused_on_both_sides() {
    let (raw, stream) = UnixStream::pair().unwrap();
    let mut other = Connection::new(stream).unwrap();
    let (reader, writer) = pipe().unwrap();
    let many = [writer.as_fd(); MOST_DESCRIPTORS + 1];
    let refused = other.send(&progress(1), &many, None, &mut || Ok(()));
    assert!(matches!(refused, Err(Error::Descriptors(_))));
    let mut bytes = Vec::new();
    frame::encode(&progress(1), &mut bytes).unwrap();
    send_raw(&raw, &bytes, &many);
    assert!(matches!(receive::<Response>(&mut other), Err(Error::Descriptors(_))));
    assert!(all_closed(reader, writer));
}

#[test]
fn descriptors_inside_a_frame_are_refused() {
    let mut bytes = Vec::new();
    frame::encode(&progress(1), &mut bytes).unwrap();
    // Alone, and behind descriptors that are in their place.
    for in_place in [0, 1] {
        let (raw, stream) = UnixStream::pair().unwrap();
        let mut other = Connection::new(stream).unwrap();
        let (reader, writer) = pipe().unwrap();
        let descriptors = [writer.as_fd()];
        send_raw(&raw, &bytes[..3], &descriptors[..in_place]);
        assert!(matches!(other.receive::<Response>(soon(50), &mut || Ok(())), Err(Error::TimedOut)));
        send_raw(&raw, &bytes[3..], &descriptors);
        assert!(matches!(receive::<Response>(&mut other), Err(Error::Descriptors(_))));
        drop(other);
        assert!(all_closed(reader, writer));
    }
}

#[test]
fn a_wait_ends_at_its_deadline_and_can_be_taken_up_again() {
    let (mut one, mut other) = pair();
    for milliseconds in [0, 50, 300] {
        let begin = Instant::now();
        let outcome = other.receive::<Response>(soon(milliseconds), &mut || Ok(()));
        assert!(matches!(outcome, Err(Error::TimedOut)));
        assert!(begin.elapsed() >= Duration::from_millis(milliseconds));
    }
    send(&mut one, &progress(1), &[]);
    assert_eq!(receive::<Response>(&mut other).unwrap(), Some(progress(1)));
}

#[test]
fn a_tick_runs_in_every_slice_and_ends_the_wait_with_its_own_error() {
    let (_one, mut other) = pair();
    let (begin, mut ticks) = (Instant::now(), 0);
    let outcome = other.receive::<Response>(None, &mut || {
        ticks += 1;
        if ticks == 3 { Err(hotset_core::Error::invalid("enough")) } else { Ok(()) }
    });
    assert!(matches!(outcome, Err(Error::Interrupted(error)) if error.message == "enough"));
    assert!(begin.elapsed() >= 2 * SLICE);
}

#[test]
fn a_send_that_finds_no_room_sends_nothing_or_finishes_later() {
    let (mut one, mut other) = pair();
    let message = Request::from(Describe { dataset: "d".repeat(5000), first: 0, count: 0 });
    let mut accepted = 0;
    while one.try_send(&message).unwrap() {
        accepted += 1;
        assert!(accepted < 10_000, "the socket never fills");
    }
    assert!(!one.try_send(&message).unwrap());
    let last = Request::from(Describe { dataset: "last".into(), first: 0, count: 0 });
    assert!(matches!(one.send(&last, &[], soon(50), &mut || Ok(())), Err(Error::TimedOut)));
    let sender = thread::spawn(move || send(&mut one, &last, &[]));
    for _ in 0..accepted {
        assert_eq!(receive::<Request>(&mut other).unwrap().as_ref(), Some(&message));
    }
    sender.join().unwrap();
    assert!(receive::<Request>(&mut other).unwrap().is_some());
    assert!(receive::<Request>(&mut other).unwrap().is_none());
}

#[test]
fn a_queued_message_leaves_with_the_next_one_and_before_it() {
    let (raw, mut stream) = UnixStream::pair().unwrap();
    let mut one = Connection::new(raw).unwrap();
    one.queue(&progress(1)).unwrap();
    assert!(one.try_send(&progress(2)).unwrap());
    let mut expected = Vec::new();
    frame::encode(&progress(1), &mut expected).unwrap();
    frame::encode(&progress(2), &mut expected).unwrap();
    let mut bytes = vec![0; 1000];
    let count = stream.read(&mut bytes).unwrap();
    assert_eq!(bytes[..count], expected);
}

#[test]
fn a_message_queued_before_one_with_descriptors_does_not_take_them() {
    let (mut one, mut other) = pair();
    let (_reader, writer) = pipe().unwrap();
    one.queue(&progress(1)).unwrap();
    send(&mut one, &progress(2), &[writer.as_fd()]);
    receive::<Response>(&mut other).unwrap();
    other.take_descriptors(0).unwrap();
    receive::<Response>(&mut other).unwrap();
    assert_eq!(other.take_descriptors(1).unwrap().len(), 1);
}

#[test]
fn a_closed_peer_is_seen_without_waiting() {
    let (mut one, other) = pair();
    assert!(!one.hung_up());
    let peer = one.peer().unwrap();
    assert_eq!(peer.user, rustix::process::getuid().as_raw());
    assert_eq!(peer.process, Some(std::process::id()));
    drop(other);
    assert!(one.hung_up());
    assert!(matches!(one.try_send(&progress(1)), Err(Error::HungUp)));
    assert!(matches!(one.send(&progress(1), &[], None, &mut || Ok(())), Err(Error::HungUp)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_bytes_from_a_peer_make_receiving_panic_or_hang(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let (mut raw, stream) = UnixStream::pair().unwrap();
        let mut connection = Connection::new(stream).unwrap();
        raw.write_all(&bytes).unwrap();
        drop(raw);
        while let Ok(Some(_)) = receive::<Request>(&mut connection) {}
    }

    #[test]
    fn frames_cross_however_the_stream_is_cut(cuts in proptest::collection::vec(1usize..40, 1..30)) {
        let (mut raw, stream) = UnixStream::pair().unwrap();
        let mut connection = Connection::new(stream).unwrap();
        let mut bytes = Vec::new();
        for done in 0..20 {
            frame::encode(&progress(done << (done * 3)), &mut bytes).unwrap();
        }
        let writer = thread::spawn(move || {
            let mut rest = bytes.as_slice();
            for cut in cuts.iter().cycle() {
                let (piece, others) = rest.split_at((*cut).min(rest.len()));
                raw.write_all(piece).unwrap();
                rest = others;
                if rest.is_empty() {
                    return;
                }
            }
        });
        for done in 0..20 {
            prop_assert_eq!(receive::<Response>(&mut connection).unwrap(), Some(progress(done << (done * 3))));
        }
        prop_assert!(receive::<Response>(&mut connection).unwrap().is_none());
        writer.join().unwrap();
    }
}
