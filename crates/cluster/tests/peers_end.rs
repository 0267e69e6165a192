//! Nothing is left when both ends are dropped. Alone in its process, whose threads and descriptors it counts.
#![allow(clippy::expect_used, reason = "a test may fail")]

#[path = "common/certificates.rs"]
mod certificates;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hotset_cluster::peers::{Answer, Wanted};
use hotset_cluster::{PeerServer, PeerSource, Peers};

const LONG: Duration = Duration::from_secs(60);
const TOKEN: &str = "0123456789-abcdefghij";
const READERS: usize = 8;

/// Gives samples until nobody wants them.
struct Endless(AtomicUsize);

impl PeerSource for Endless {
    fn give(&self, wanted: &Wanted, deadline: Instant, out: &mut dyn FnMut(Answer<'_>) -> bool) {
        self.0.fetch_add(1, Ordering::SeqCst);
        for _ in &wanted.slots {
            while wanted.epoch == 1 && Instant::now() < deadline && Arc::strong_count(&STAY) > 1 {
                std::thread::sleep(Duration::from_millis(1));
            }
            if !out(Answer::given(&[7; 1000], true)) {
                return;
            }
        }
    }

    fn ask(&self, request: &[u8]) -> hotset_core::Result<Vec<u8>> {
        Ok(request.to_vec())
    }
}

/// Sources of the second epoch wait while there is another of it.
static STAY: std::sync::LazyLock<Arc<()>> = std::sync::LazyLock::new(Arc::default);

fn threads() -> usize {
    fs::read_dir("/proc/self/task").expect("threads").count()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("descriptors").count()
}

fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < LONG, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn fetch(peers: &Peers, address: SocketAddr, epoch: u64) -> bool {
    let wanted = Wanted { view: 1, job: "job".into(), epoch, plan: 1, slots: (0..100).collect() };
    let mut bytes = vec![0; 100 * 1000];
    let mut places: Vec<&mut [u8]> = bytes.chunks_mut(1000).collect();
    peers.fetch(&address.to_string(), &wanted, LONG, &mut places).is_ok()
}

#[test]
fn a_server_that_is_dropped_while_it_answers_leaves_no_thread_and_no_socket() {
    let authority = certificates::Authority::new();
    let (server, client) = (authority.server("127.0.0.1"), authority.client());
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let before = (threads(), descriptors());
    for round in 0..3 {
        let source = Arc::new(Endless(AtomicUsize::new(0)));
        let inside = Arc::clone(&source);
        let node =
            PeerServer::start(listen, Some(server.clone()), Some(TOKEN.into()), source).expect("a server");
        let peers = Peers::new(Some(client.clone()), Some(TOKEN.into())).expect("a client");
        let address = node.address();
        assert!(fetch(&peers, address, 0), "round {round}");
        let stay = Arc::clone(&STAY);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(|| fetch(&peers, address, 1))).collect();
            wait_until("all are inside", || inside.0.load(Ordering::SeqCst) == READERS + 1);
            let dropping = scope.spawn(move || drop(node));
            // Connections end before their sources do.
            let mut served = readers.into_iter().map(|reader| reader.join().expect("no panic"));
            assert!(served.all(|served| !served), "nothing was given");
            drop(stay);
            dropping.join().expect("it ends");
        });
        assert_eq!(Arc::strong_count(&inside), 1, "the source is free");
        drop(peers);
    }
    // A thread that was joined may be seen for a moment more.
    wait_until("all threads have ended", || threads() == before.0);
    assert_eq!(descriptors(), before.1);
}
