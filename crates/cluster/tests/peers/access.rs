//! Who is let in.

use std::io::{Read, Write};
use std::net::TcpStream;

use hotset_cluster::etcd::Tls;
use hotset_cluster::peers::ServerTls;
use hotset_cluster::{PeerServer, Peers};
use hotset_core::Kind;

use super::certificates::Authority;
use super::{LONG, client, fetch, giving, is_served, loopback, start, wait_until};

const TOKEN: &str = "0123456789-abcdefghij";

fn secured(tls: ServerTls) -> PeerServer {
    PeerServer::start(loopback(), Some(tls), Some(TOKEN.into()), giving(100)).expect("a server")
}

fn asking(tls: Option<Tls>, token: Option<&str>) -> Peers {
    Peers::new(tls, token.map(Into::into)).expect("a client")
}

#[test]
fn with_tls_and_the_token_samples_come() {
    let authority = Authority::new();
    let node = secured(authority.server("127.0.0.1"));
    let peers = asking(Some(authority.client()), Some(TOKEN));
    assert!(is_served(&peers, node.address()));
    assert_eq!(peers.ask(&node.address().to_string(), b"abc", LONG).expect("a reply"), b"cba");
    assert_eq!(node.counters().refused, 0);
    let named = secured(authority.server("localhost"));
    assert!(is_served(&peers, format!("localhost:{}", named.address().port())), "by a name");
}

#[test]
fn without_the_token_nothing_is_answered_and_it_is_counted_on_both_sides() {
    let authority = Authority::new();
    let node = secured(authority.server("127.0.0.1"));
    let almost = format!("{TOKEN}x");
    for (calls, token) in
        [None, Some("another-token-altogether"), Some(almost.as_str())].into_iter().enumerate()
    {
        let peers = asking(Some(authority.client()), token);
        let error = fetch(&peers, node.address(), 2, 100).expect_err("refused");
        assert_eq!(error.kind, Kind::Invalid);
        assert!(error.message.contains("peer_token_file") && !error.message.contains(TOKEN), "{error}");
        assert_eq!((peers.counters().refused, peers.counters().failed), (1, 2));
        let asked = asking(Some(authority.client()), token).ask(&node.address().to_string(), b"abc", LONG);
        assert_eq!(asked.expect_err("refused").kind, Kind::Invalid);
        assert_eq!(node.counters().refused, 2 * (calls as u64 + 1));
    }
    assert_eq!((node.counters().requests, node.counters().given), (0, 0), "the source was not asked");
}

#[test]
fn a_token_is_asked_for_on_loopback_too() {
    let node = PeerServer::start(loopback(), None, Some(TOKEN.into()), giving(100)).expect("a server");
    assert!(is_served(&asking(None, Some(TOKEN)), node.address()));
    assert_eq!(fetch(&client(), node.address(), 2, 100).expect_err("refused").kind, Kind::Invalid);
    assert_eq!(node.counters().refused, 1);
}

#[test]
fn a_node_that_another_authority_signed_is_not_asked() {
    let (authority, other) = (Authority::new(), Authority::new());
    let node = secured(other.server("127.0.0.1"));
    let peers = asking(Some(authority.client()), Some(TOKEN));
    let error = fetch(&peers, node.address(), 2, 100).expect_err("refused");
    assert_eq!(error.kind, Kind::Unavailable);
    assert!(error.message.contains("certificate"), "{error}");
    wait_until("it is counted", || node.counters().refused > 0);
    assert_eq!(node.counters().requests, 0, "no token was sent");
}

#[test]
fn a_certificate_of_another_host_is_none() {
    let authority = Authority::new();
    let node = secured(authority.server("node-2"));
    let error = fetch(&asking(Some(authority.client()), Some(TOKEN)), node.address(), 2, 100);
    assert!(error.expect_err("refused").message.contains("certificate"));
    assert_eq!(node.counters().requests, 0);
}

#[test]
fn where_clients_need_certificates_those_without_are_not_let_in() {
    let authority = Authority::new();
    let mut tls = authority.server("127.0.0.1");
    tls.clients = Some(authority.client().authority);
    let node = secured(tls);
    assert!(!is_served(&asking(Some(authority.client()), Some(TOKEN)), node.address()));
    assert_eq!(node.counters().requests, 0);
    assert!(node.counters().refused > 0);
    let stranger = Tls { identity: Some(Authority::new().identity("node")), ..authority.client() };
    assert!(!is_served(&asking(Some(stranger), Some(TOKEN)), node.address()));
    let member = Tls { identity: Some(authority.identity("node")), ..authority.client() };
    assert!(is_served(&asking(Some(member), Some(TOKEN)), node.address()));
}

#[test]
fn plain_text_and_garbage_are_refused_and_others_are_served_meanwhile() {
    let authority = Authority::new();
    let node = secured(authority.server("127.0.0.1"));
    assert!(fetch(&asking(None, Some(TOKEN)), node.address(), 2, 100).is_err(), "no TLS");
    wait_until("it is counted", || node.counters().refused > 0);
    let before = node.counters().refused;
    let mut garbage = TcpStream::connect(node.address()).expect("a connection");
    garbage.write_all(&[0xa5; 4096]).expect("bytes that are sent");
    wait_until("garbage is counted", || node.counters().refused > before);
    let silent = TcpStream::connect(node.address()).expect("a connection");
    assert!(is_served(&asking(Some(authority.client()), Some(TOKEN)), node.address()));
    assert_eq!(node.counters().requests, 1);
    drop(silent);
}

#[test]
fn frames_that_are_none_end_their_connection_alone() {
    let node = start(giving(100));
    let peers = client();
    assert!(is_served(&peers, node.address()));
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    // Data of 16 MiB on a stream that was never opened, and a frame of headers that are none.
    let huge = [0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1];
    let headers = [0, 0, 4, 1, 4, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff];
    for frame in [&huge[..], &headers, b"GET / HTTP/1.1\r\nhost: node\r\n\r\n", &[0xa5; 512]] {
        let mut stream = TcpStream::connect(node.address()).expect("a connection");
        stream.set_read_timeout(Some(LONG)).expect("a timeout");
        // The other side may have closed it before all was sent.
        let _ = stream.write_all(preface).and_then(|()| stream.write_all(&settings));
        let _ = stream.write_all(frame);
        let mut said = Vec::new();
        let ended = stream.read_to_end(&mut said);
        let in_time = |error: &std::io::Error| error.kind() != std::io::ErrorKind::WouldBlock;
        assert!(ended.as_ref().err().is_none_or(in_time), "it is closed: {ended:?}");
    }
    assert!(is_served(&peers, node.address()));
    assert_eq!(node.counters().requests, 2);
}

#[test]
fn settings_that_would_open_a_node_to_others_are_refused() {
    let authority = Authority::new();
    let anywhere = "0.0.0.0:0".parse().expect("an address");
    for (tls, token) in
        [(None, None), (None, Some(TOKEN.into())), (Some(authority.server("127.0.0.1")), None)]
    {
        let error = PeerServer::start(anywhere, tls, token, giving(1)).err().expect("refused");
        assert_eq!(error.kind, Kind::Invalid);
        assert!(error.message.contains("`peer_"), "{error}");
    }
    let short = PeerServer::start(loopback(), None, Some("short".into()), giving(1)).err().expect("refused");
    assert!(short.message.contains("peer_token_file"), "{short}");
    let in_the_clear = fetch(&asking(None, Some(TOKEN)), "192.0.2.1:7000", 1, 1).expect_err("refused");
    assert!(in_the_clear.message.contains("peer_authority"), "{in_the_clear}");
    let mixed = ServerTls { key: authority.server("127.0.0.1").key, ..authority.server("127.0.0.1") };
    let error = PeerServer::start(loopback(), Some(mixed), None, giving(1)).err().expect("refused");
    assert!(error.message.contains("peer_key"), "{error}");
}
