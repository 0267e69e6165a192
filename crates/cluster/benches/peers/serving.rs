//! The end that serves: for each section a node's server and a bare one, and one Redis.

use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use hotset_cluster::peers::{Answer, Wanted};
use hotset_cluster::{PeerServer, PeerSource};

use crate::redis::Redis;
use crate::{SECTIONS, Section, TOKEN, bare, client_tls, server_tls};

/// Samples of one size, in memory.
struct Samples(Vec<Vec<u8>>);

impl PeerSource for Samples {
    fn give(&self, wanted: &Wanted, _: Instant, out: &mut dyn FnMut(Answer<'_>) -> bool) {
        for &slot in &wanted.slots {
            if !out(Answer::given(&self.0[slot as usize % self.0.len()], true)) {
                return;
            }
        }
    }

    fn ask(&self, request: &[u8]) -> hotset_core::Result<Vec<u8>> {
        Ok(request.to_vec())
    }
}

/// Serves until it is killed. Its first line has the ports: two of each section, and Redis's, or 0.
pub(super) fn run(folder: &Path, host: &str) {
    let tls = server_tls(folder);
    let runtime = bare::runtime();
    let listen = SocketAddr::new(host.parse().expect("an address"), 0);
    let node = |section: &Section| {
        let samples = Arc::new(Samples((0..section.samples()).map(|at| section.sample(at)).collect()));
        PeerServer::start(listen, Some(tls.clone()), Some(TOKEN.into()), samples).expect("a server")
    };
    let nodes: Vec<PeerServer> = SECTIONS.iter().map(node).collect();
    let mut ports = Vec::new();
    for (section, node) in SECTIONS.iter().zip(&nodes) {
        ports.extend([node.address().port(), bare::serve(section, host, &tls, &runtime)]);
    }
    let redis = Redis::start(folder, host);
    if let Some(redis) = &redis {
        let mut client = redis.client(&client_tls(folder));
        SECTIONS.iter().for_each(|section| client.fill(section));
    }
    ports.push(redis.as_ref().map_or(0, |redis| redis.port));
    println!("{}", ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
    // Until the other end of the pipe has gone.
    let _ = std::io::stdin().read(&mut [0]);
}
