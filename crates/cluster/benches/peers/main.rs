//! Samples from another node, beside a bare gRPC stream of the same bytes and beside Redis, all with the same TLS.
//!
//! Both ends are processes of their own: one that serves, in a network namespace or on loopback, and one that asks. All arms of a
//! section take turns, on the same samples; medians and quartiles over rounds are printed, and ratios are taken within a round.
//! `cargo bench -p hotset-cluster --bench peers`; as root it makes two namespaces, and with `redis-server` on the path
//! the rows of Redis are there.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "it measures, and is not shipped"
)]

mod asking;
mod bare;
#[path = "../../tests/common/certificates.rs"]
mod certificates;
mod place;
mod redis;
mod serving;
mod text;

#[allow(missing_docs, clippy::all, unreachable_pub, dead_code)]
mod generated {
    tonic::include_proto!("hotset.peers");
}

use std::path::Path;

use hotset_cluster::etcd::Tls;
use hotset_cluster::peers::ServerTls;

use certificates::Authority;
use place::Place;

/// What both ends know, beside certificates.
const TOKEN: &str = "a-token-for-benchmarks";
/// Bytes of samples that are sent over and over, of each size: more than caches of processors hold.
const DATASET: usize = 64 << 20;

/// Samples of one size, and how they are asked for.
struct Section {
    name: &'static str,
    size: usize,
    batch: usize,
}

const SECTIONS: [Section; 2] =
    [Section { name: "110 KB", size: 110_000, batch: 64 }, Section { name: "0.9 KB", size: 900, batch: 256 }];

impl Section {
    /// How many samples there are.
    fn samples(&self) -> usize {
        DATASET / self.size
    }

    /// The bytes of one.
    fn sample(&self, at: usize) -> Vec<u8> {
        (0..self.size).map(|byte| (byte * 31 + at * 7) as u8).collect()
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", folder, host] => serving::run(Path::new(folder), host),
        ["ask", folder, host, ports] => asking::run(Path::new(folder), host, ports),
        // `cargo test --benches` runs it too, and waits for nothing it would say.
        _ if arguments.iter().any(|argument| argument == "--test") => {}
        _ => both(),
    }
}

/// Starts both ends.
fn both() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = Place::new();
    println!("{}", place.name());
    let authority = Authority::new();
    let ServerTls { certificate, key, .. } = authority.server(place.host());
    for (name, text) in
        [("certificate", certificate), ("key", key), ("authority", authority.client().authority)]
    {
        std::fs::write(folder.path().join(name), text).expect("a file");
    }
    let own = std::env::current_exe().expect("this program");
    let mut server = place.serving(&own, folder.path());
    let ports = text::line(&mut server);
    place.asking(&own, folder.path(), &ports);
    // The end of its input ends it, and what it has started.
    drop(server.stdin.take());
    server.wait().expect("a server that has ended");
}

/// What a listener has, as the folder of both ends holds it.
fn server_tls(folder: &Path) -> ServerTls {
    let read = |name| std::fs::read_to_string(folder.join(name)).expect("a file");
    ServerTls { certificate: read("certificate"), key: read("key"), clients: None }
}

/// What a client has.
fn client_tls(folder: &Path) -> Tls {
    let authority = std::fs::read_to_string(folder.join("authority")).expect("a file");
    Tls { authority, identity: None }
}
