//! The end that asks: every arm of a section in turn, round by round.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hotset_cluster::Peers;
use hotset_cluster::peers::Wanted;

use crate::bare::Stream;
use crate::redis::Client;
use crate::{SECTIONS, Section, TOKEN, client_tls};

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(1500);
const DEADLINE: Duration = Duration::from_secs(20);
/// Readers at a time.
const READERS: [usize; 2] = [1, 4];

/// One way to get samples: fetches a batch, for the reader of that number.
type Fetch<'a> = &'a (dyn Fn(usize, &[u32], &mut [&mut [u8]]) + Sync);

/// Measures all, with the ports that the other end has said.
pub(super) fn run(folder: &Path, host: &str, ports: &str) {
    let ports: Vec<u16> = ports.split(',').map(|port| port.parse().expect("a port")).collect();
    let redis = ports[2 * SECTIONS.len()];
    if redis == 0 {
        println!("`redis-server` is missing (`make redis` installs it): there are no rows of it");
    }
    let tls = client_tls(folder);
    let peers = Peers::new(Some(tls.clone()), Some(TOKEN.into())).expect("a client");
    for (section, ports) in SECTIONS.iter().zip(ports.chunks(2)) {
        let address = format!("{host}:{}", ports[0]);
        let peer = |_: usize, slots: &[u32], places: &mut [&mut [u8]]| {
            let wanted = Wanted { view: 1, job: "bench".into(), epoch: 0, plan: 1, slots: slots.to_vec() };
            let given = peers.fetch(&address, &wanted, DEADLINE, places).expect("samples");
            assert!(given.iter().all(|given| given.hit));
        };
        let stream = Stream::new(host, ports[1], &tls, section.size);
        let bare = |_: usize, slots: &[u32], _: &mut [&mut [u8]]| stream.fetch(slots);
        let most = READERS.into_iter().max().unwrap_or(1);
        let clients: Vec<Mutex<Client>> =
            (0..most).filter(|_| redis > 0).map(|_| Mutex::new(Client::new(host, redis, &tls))).collect();
        let mget = |reader: usize, slots: &[u32], places: &mut [&mut [u8]]| {
            clients[reader].lock().expect("a client").get(section.samples(), slots, places);
        };
        prove(section, &peer);
        let mut arms: Vec<(&str, Fetch<'_>)> = vec![("peer", &peer), ("bare stream", &bare)];
        if redis > 0 {
            prove(section, &mget);
            arms.push(("Redis MGET", &mget));
        }
        for readers in READERS {
            measure(section, readers, &arms);
        }
    }
}

/// That an arm brings the right bytes.
fn prove(section: &Section, fetch: Fetch<'_>) {
    let mut bytes = vec![0; section.batch * section.size];
    let mut places: Vec<&mut [u8]> = bytes.chunks_mut(section.size).collect();
    let slots: Vec<u32> = (0..section.batch as u32).map(|slot| slot * 3 + 1).collect();
    fetch(0, &slots, &mut places);
    for (place, slot) in places.iter().zip(slots) {
        assert!(**place == section.sample(slot as usize % section.samples()), "other bytes of slot {slot}");
    }
}

fn measure(section: &Section, readers: usize, arms: &[(&str, Fetch<'_>)]) {
    let mut rates = vec![Vec::new(); arms.len()];
    for _ in 0..ROUNDS {
        for ((_, fetch), rates) in arms.iter().zip(&mut rates) {
            rates.push(rate(*fetch, section, readers));
        }
    }
    println!("\n{}, batches of {}, {readers} readers", section.name, section.batch);
    for ((name, _), rates) in arms.iter().zip(&rates) {
        let [low, median, high] = quartiles(rates);
        let bytes = median * section.size as f64 / 1e6;
        println!("  {name:<18} {median:>9.0} samples/s ({low:.0} to {high:.0}), {bytes:.0} MB/s");
    }
    for ((name, _), others) in arms.iter().zip(&rates).skip(1) {
        let shares: Vec<f64> = rates[0].iter().zip(others).map(|(peer, other)| peer / other).collect();
        let [low, median, high] = quartiles(&shares);
        println!("  {:<18} {median:>9.2} ({low:.2} to {high:.2})", format!("peer / {name}"));
    }
}

/// Samples a second that so many readers get.
fn rate(fetch: Fetch<'_>, section: &Section, readers: usize) -> f64 {
    let next = AtomicUsize::new(0);
    let began = Instant::now();
    std::thread::scope(|scope| {
        let next = &next;
        for reader in 0..readers {
            scope.spawn(move || {
                let mut bytes = vec![0; section.batch * section.size];
                let mut places: Vec<&mut [u8]> = bytes.chunks_mut(section.size).collect();
                while began.elapsed() < ROUND {
                    let first = next.fetch_add(section.batch, Ordering::Relaxed) as u32;
                    let slots: Vec<u32> = (first..first + section.batch as u32).collect();
                    fetch(reader, &slots, &mut places);
                }
            });
        }
    });
    next.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()
}

fn quartiles(rates: &[f64]) -> [f64; 3] {
    let mut rates = rates.to_vec();
    rates.sort_by(f64::total_cmp);
    [rates.len() / 4, rates.len() / 2, rates.len() * 3 / 4].map(|at| rates[at])
}
