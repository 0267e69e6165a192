//! Nodes that are slow, that fail, and that come back.

use std::net::TcpListener;
use std::sync::Mutex;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use hotset_cluster::PeerServer;
use hotset_cluster::peers::AnswerKind::{Failed, Given};
use hotset_cluster::peers::{Answer, CHUNK};
use hotset_core::Kind;

use super::{
    LONG, client, fetch, fetch_sizes, from, giving, is_served, kinds, loopback, sample, start, wait_until,
    wanted,
};

const SHORT: Duration = Duration::from_millis(300);

#[test]
fn a_deadline_reaches_the_source_and_what_came_by_then_is_used() {
    let (said, heard) = mpsc::channel();
    let said = Mutex::new(said);
    let node = start(from(move |_, deadline, out| {
        let left = deadline.saturating_duration_since(Instant::now());
        said.lock().expect("no panic").send(left).expect("heard");
        // A chunk of its own is sent before the next sample is there.
        out(Answer::given(&sample(0, CHUNK), true));
        out(Answer::given(&sample(1, CHUNK), true));
        std::thread::sleep(left + Duration::from_millis(50));
        out(Answer::given(&sample(2, CHUNK), true));
    }));
    let peers = client();
    let sizes = [CHUNK; 3];
    let (given, bytes) =
        fetch_sizes(&peers, node.address(), &wanted(0..3), SHORT, &sizes).expect("those that came");
    assert_eq!(kinds(&given), [Given, Failed, Failed], "the second waited for the third to fill its chunk");
    assert!(bytes[0] == sample(0, CHUNK));
    assert!(heard.recv().expect("asked") <= SHORT);
    let error = fetch_sizes(&peers, node.address(), &wanted(0..3), SHORT, &sizes).expect_err("left alone");
    assert_eq!(error.kind, Kind::Unavailable);
    assert!(heard.try_recv().is_err(), "a node that is late is not asked at once again");
}

#[test]
fn a_deadline_of_a_caller_who_would_wait_for_ever_is_capped() {
    let (said, heard) = mpsc::channel();
    let said = Mutex::new(said);
    let node = start(from(move |_, deadline, out| {
        let left = deadline.saturating_duration_since(Instant::now());
        said.lock().expect("no panic").send(left).expect("heard");
        out(Answer::given(b"x", true));
    }));
    let forever = Duration::from_secs(3600);
    fetch_sizes(&client(), node.address(), &wanted(0..1), forever, &[1]).expect("a sample");
    assert!(heard.recv().expect("asked") < LONG);
}

#[test]
fn a_source_that_is_silent_costs_one_deadline() {
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let node = start(from(move |_, _, out| {
        let _ = held.lock().expect("no panic").recv_timeout(LONG);
        assert!(!out(Answer::given(b"x", true)), "nobody waits any more");
    }));
    let peers = client();
    let silent = fetch_sizes(&peers, node.address(), &wanted(0..1), SHORT, &[1]).expect_err("no answer");
    assert!(silent.message.contains("deadline"), "{silent}");
    for _ in 0..20 {
        fetch_sizes(&peers, node.address(), &wanted(0..1), LONG, &[1]).expect_err("left alone");
    }
    assert_eq!((peers.counters().requests, peers.counters().busy), (1, 20));
    release.send(()).expect("it waits");
    drop(node);
}

#[test]
fn a_source_that_panics_fails_its_request_and_no_other() {
    let node = start(from(|wanted, _, out| {
        out(Answer::given(&sample(0, 100), true));
        assert!(wanted.slots.len() == 2, "a panic, as is wanted here");
        out(Answer::given(&sample(1, 100), true));
    }));
    let (given, bytes) = fetch(&client(), node.address(), 3, 100).expect("what came before");
    assert_eq!(kinds(&given), [Given, Failed, Failed]);
    assert!(bytes[0] == sample(0, 100));
    assert!(is_served(&client(), node.address()));
}

#[test]
fn a_node_that_dies_while_it_answers_leaves_what_it_gave() {
    let (began, begun) = mpsc::channel();
    let (release, held) = mpsc::channel::<()>();
    let inside = Mutex::new((began, held));
    let node = start(from(move |_, _, out| {
        for slot in 0..3 {
            out(Answer::given(&sample(slot, CHUNK), true));
        }
        let inside = inside.lock().expect("no panic");
        inside.0.send(()).expect("heard");
        let _ = inside.1.recv_timeout(LONG);
    }));
    let address = node.address();
    let peers = client();
    let fetched = std::thread::scope(|scope| {
        let fetching = scope.spawn(|| fetch(&peers, address, 5, CHUNK));
        begun.recv().expect("it gives");
        // The last chunk is on its way when the next sample comes; the others have come.
        wait_until("two have come", || peers.counters().given == 2);
        let dropping = scope.spawn(|| drop(node));
        let fetched = fetching.join().expect("no panic");
        release.send(()).expect("it waits");
        dropping.join().expect("it ends");
        fetched
    });
    let (given, bytes) = fetched.expect("those that came");
    assert_eq!(kinds(&given), [Given, Given, Failed, Failed, Failed]);
    assert!((0..2).all(|slot| bytes[slot as usize] == sample(slot, CHUNK)));
    assert_eq!(peers.counters().failed, 3);
}

#[test]
fn a_dead_node_is_left_alone_and_asked_again_when_it_is_back() {
    let address = TcpListener::bind(loopback()).and_then(|listener| listener.local_addr()).expect("a port");
    let peers = client();
    let dead = fetch(&peers, address, 2, 100).expect_err("nobody is there");
    assert_eq!(dead.kind, Kind::Unavailable);
    let before = peers.counters();
    assert_eq!((before.requests, before.failed), (1, 2));
    let again = fetch(&peers, address, 2, 100).expect_err("left alone");
    assert!(again.message.contains("left alone"), "{again}");
    assert_eq!(peers.counters().requests, 1);
    let node = PeerServer::start(address, None, None, giving(100)).expect("the port is free");
    wait_until("it is asked again", || is_served(&peers, address));
    let asked = peers.counters().requests;
    assert!(is_served(&peers, address) && is_served(&peers, address), "and always from then on");
    assert_eq!(peers.counters().requests, asked + 2);
    assert_eq!(node.counters().given, 6);
}

#[test]
fn a_connection_that_broke_between_two_fetches_is_made_anew() {
    let node = start(giving(100));
    let (peers, address) = (client(), node.address());
    for _ in 0..5 {
        assert!(is_served(&peers, address));
    }
    drop(node);
    let node = PeerServer::start(address, None, None, giving(100)).expect("the port is free");
    assert!(is_served(&peers, address), "without an error in between");
    assert_eq!((node.counters().requests, peers.counters().failed), (1, 0));
}
