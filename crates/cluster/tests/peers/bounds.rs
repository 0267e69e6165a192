//! What is under way is bounded.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use hotset_cluster::peers::{Answer, CHUNK, REQUESTS_OF_A_PEER};
use tonic::transport::Endpoint;

use super::liar::generated::FetchRequest;
use super::liar::generated::peers_client::PeersClient;
use super::{client, fetch, from, sample, start, wait_until};

/// Counts who is inside, and the most that ever were.
#[derive(Default)]
struct Inside {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Inside {
    fn enter(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
    }

    fn leave(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn a_thousand_fetches_of_one_node_are_all_served_a_few_at_a_time() {
    let inside = Arc::new(Inside::default());
    let seen = Arc::clone(&inside);
    let node = start(from(move |wanted, _, out| {
        seen.enter();
        for &slot in &wanted.slots {
            out(Answer::given(&sample(slot, 1000), true));
        }
        seen.leave();
    }));
    let peers = client();
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..1000).map(|_| scope.spawn(|| fetch(&peers, node.address(), 4, 1000))).collect();
        for thread in threads {
            let (given, bytes) = thread.join().expect("no panic").expect("samples");
            assert!(given.iter().all(|given| given.hit));
            assert!((0..4).all(|slot| bytes[slot as usize] == sample(slot, 1000)));
        }
    });
    let most = inside.most.load(Ordering::SeqCst);
    assert!(most <= REQUESTS_OF_A_PEER, "{most} at a time");
    let counted = node.counters();
    assert_eq!((counted.requests, counted.given, counted.busy), (1000, 4000, 0));
}

#[test]
fn nodes_that_ask_too_much_together_are_told_to_come_back() {
    const ALL: usize = 128;
    let open = Arc::new((Mutex::new(false), Condvar::new()));
    let inside = Arc::new(Inside::default());
    let (gate, seen) = (Arc::clone(&open), Arc::clone(&inside));
    let node = start(from(move |_, _, out| {
        seen.enter();
        let closed = gate.0.lock().expect("no panic");
        drop(gate.1.wait_while(closed, |open| !*open).expect("no panic"));
        out(Answer::given(b"x", true));
    }));
    let others: Vec<_> = (0..5).map(|_| client()).collect();
    let served = std::thread::scope(|scope| {
        let calls = others.iter().flat_map(|peers| (0..REQUESTS_OF_A_PEER).map(move |_| peers));
        let threads: Vec<_> =
            calls.map(|peers| scope.spawn(|| fetch(peers, node.address(), 1, 1).is_ok())).collect();
        let beyond = (threads.len() - ALL) as u64;
        wait_until("all that may are inside, and the others are not", || {
            inside.now.load(Ordering::SeqCst) == ALL && node.counters().busy == beyond
        });
        *open.0.lock().expect("no panic") = true;
        open.1.notify_all();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).filter(|ok| *ok).count()
    });
    assert_eq!(served, ALL);
    assert_eq!(inside.most.load(Ordering::SeqCst), ALL);
    let busy: u64 = others.iter().map(|peers| peers.counters().busy).sum();
    assert_eq!(busy, node.counters().busy, "they were told so");
    let again = others.iter().all(|peers| fetch(peers, node.address(), 1, 1).is_ok());
    assert!(again, "a node that had too much to do is not left alone");
}

#[test]
fn an_asker_that_does_not_read_stops_the_owner_until_the_deadline() {
    const SLOTS: u32 = 64;
    let (accepted, stopped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (count, ended) = (Arc::clone(&accepted), Arc::clone(&stopped));
    let node = start(from(move |wanted, _, out| {
        for &slot in &wanted.slots {
            if !out(Answer::given(&sample(slot, CHUNK), true)) {
                ended.store(true, Ordering::SeqCst);
                return;
            }
            count.fetch_add(1, Ordering::SeqCst);
        }
    }));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let replies = runtime.block_on(async {
        let endpoint = Endpoint::from_shared(format!("http://{}", node.address())).expect("an endpoint");
        let endpoint = endpoint.initial_stream_window_size(1 << 16);
        let mut peers = PeersClient::new(endpoint.connect_lazy());
        let request = FetchRequest { slots: (0..SLOTS).collect(), ..FetchRequest::default() };
        let mut request = tonic::Request::new(request);
        request.set_timeout(Duration::from_secs(1));
        peers.fetch(request).await.expect("a stream")
    });
    wait_until("the owner gives up", || stopped.load(Ordering::SeqCst));
    // One is being sent, one is next, two wait, one is being filled.
    let most = accepted.load(Ordering::SeqCst);
    assert!(most <= 5, "{most} chunks in memory");
    drop(replies);
}
