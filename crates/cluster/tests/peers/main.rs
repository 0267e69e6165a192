//! Samples from other nodes, over loopback.
#![allow(clippy::expect_used, reason = "a test may fail")]

mod access;
mod bounds;
#[path = "../common/certificates.rs"]
mod certificates;
mod faults;
mod liar;
mod lies;
mod samples;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hotset_cluster::peers::{Answer, AnswerKind, Given, Wanted};
use hotset_cluster::{PeerServer, PeerSource, Peers};
use hotset_core::{Error, Result};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);

/// Where answers of a test come from.
struct Source<F>(F);

impl<F: Fn(&Wanted, Instant, &mut dyn FnMut(Answer<'_>) -> bool) + Send + Sync> PeerSource for Source<F> {
    fn give(&self, wanted: &Wanted, deadline: Instant, out: &mut dyn FnMut(Answer<'_>) -> bool) {
        (self.0)(wanted, deadline, out);
    }

    fn ask(&self, request: &[u8]) -> Result<Vec<u8>> {
        match request {
            b"panic" => panic!("asked to"),
            b"wrong" => Err(Error::invalid("`strategy` is wrong")),
            b"later" => Err(Error::unavailable("storage does not answer")),
            _ => Ok(request.iter().rev().copied().collect()),
        }
    }
}

/// A source that gives every slot its sample of this size.
fn giving(size: usize) -> Arc<dyn PeerSource> {
    from(move |wanted, _, out| {
        for &slot in &wanted.slots {
            assert!(out(Answer::given(&sample(slot, size), slot % 2 == 0)), "all are wanted");
        }
    })
}

fn from(
    give: impl Fn(&Wanted, Instant, &mut dyn FnMut(Answer<'_>) -> bool) + Send + Sync + 'static,
) -> Arc<dyn PeerSource> {
    Arc::new(Source(give))
}

/// The bytes of a slot's sample.
fn sample(slot: u32, size: usize) -> Vec<u8> {
    (0..size as u32).map(|at| (at.wrapping_mul(31) ^ slot.wrapping_mul(7919) ^ (at >> 8)) as u8).collect()
}

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// A node without TLS and token.
fn start(source: Arc<dyn PeerSource>) -> PeerServer {
    PeerServer::start(loopback(), None, None, source).expect("a server")
}

fn client() -> Peers {
    Peers::new(None, None).expect("a client")
}

fn wanted(slots: impl IntoIterator<Item = u32>) -> Wanted {
    Wanted { view: 7, job: "job".into(), epoch: 3, plan: 9, slots: slots.into_iter().collect() }
}

/// Fetches slots whose samples have these sizes.
fn fetch_sizes(
    peers: &Peers,
    address: impl ToString,
    wanted: &Wanted,
    deadline: Duration,
    sizes: &[usize],
) -> Result<(Vec<Given>, Vec<Vec<u8>>)> {
    let mut bytes: Vec<Vec<u8>> = sizes.iter().map(|&size| vec![0; size]).collect();
    let mut places: Vec<&mut [u8]> = bytes.iter_mut().map(Vec::as_mut_slice).collect();
    let given = peers.fetch(&address.to_string(), wanted, deadline, &mut places)?;
    Ok((given, bytes))
}

/// Fetches the first slots, whose samples have one size.
fn fetch(
    peers: &Peers,
    address: impl ToString,
    slots: u32,
    size: usize,
) -> Result<(Vec<Given>, Vec<Vec<u8>>)> {
    fetch_sizes(peers, address, &wanted(0..slots), LONG, &vec![size; slots as usize])
}

fn kinds(given: &[Given]) -> Vec<AnswerKind> {
    given.iter().map(|given| given.kind).collect()
}

/// Whether a node answers with the right bytes.
fn is_served(peers: &Peers, address: impl ToString) -> bool {
    fetch(peers, address, 2, 100).is_ok_and(|(_, bytes)| bytes == [sample(0, 100), sample(1, 100)])
}

/// Waits until something is so.
fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < LONG, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
