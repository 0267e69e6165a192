//! Listings whose client has gone.

use std::fs;
use std::time::{Duration, Instant};

use super::*;

/// A listing of so many files is told of at 1,000, at 2,000 and at its end.
const FILES: usize = 2_500;

struct Bench {
    engine: Engine,
    catalogs: Catalogs,
    data: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        for number in 0..FILES {
            fs::write(data.path().join(number.to_string()), "sample").unwrap();
        }
        let engine = Engine::new(hotset_engine::Config {
            concurrency: hotset_engine::Concurrency::Fixed(1),
            memory: None,
            machine: 1 << 30,
            available: || 1 << 30,
            retries: 0,
            linger: Duration::ZERO,
            logs: None,
            patience: Duration::from_secs(1),
        });
        Self { engine, catalogs: Catalogs::new(None, None), data }
    }

    fn place(&self) -> String {
        self.data.path().to_str().unwrap().to_owned()
    }

    fn open(&self, progress: &mut dyn FnMut(u64) -> Result<()>) -> Result<DatasetOpened> {
        let asked = OpenDataset { place: self.place(), layout: "files".into(), ..OpenDataset::default() };
        self.catalogs.open(&self.engine, self.engine.attach(), asked, progress)
    }
}

fn gone() -> Result<()> {
    Err(Error::unavailable("the client has gone"))
}

#[test]
fn a_listing_whose_client_has_gone_ends_and_the_next_one_lists() {
    let bench = Bench::new();
    let mut told = Vec::new();
    let error = bench.open(&mut |done| {
        told.push(done);
        gone()
    });
    assert_eq!(error.unwrap_err().message, "the client has gone");
    assert_eq!(told, [1_000]);
    let opened = bench.open(&mut |_| Ok(())).unwrap();
    assert_eq!((opened.samples, opened.cached), (FILES as u64, false));
}

#[test]
fn a_listing_that_another_client_waits_for_goes_on() {
    let bench = &Bench::new();
    let is_awaited = || {
        let turn = bench.catalogs.turns.lock().get(&bench.place()).map(Arc::clone);
        // This one, too, is a hold on it.
        turn.is_some_and(|turn| Arc::strong_count(&turn) > 3)
    };
    std::thread::scope(|scope| {
        let mut second = None;
        let mut told = Vec::new();
        let first = bench.open(&mut |done| {
            told.push(done);
            second.get_or_insert_with(|| scope.spawn(move || bench.open(&mut |_| Ok(()))));
            while !is_awaited() {
                std::thread::yield_now();
            }
            gone()
        });
        assert_eq!(first.unwrap().samples, FILES as u64);
        assert_eq!(told, [1_000, 2_000, FILES as u64]);
        let second = second.unwrap().join().unwrap().unwrap();
        assert_eq!((second.samples, second.cached), (FILES as u64, true), "listed once for both");
    });
}

#[test]
fn a_listing_that_only_clients_wait_for_that_have_gone_ends() {
    let bench = &Bench::new();
    let holds = || {
        let turn = bench.catalogs.turns.lock().get(&bench.place()).map(Arc::clone);
        // The server's, this one, and one of each client.
        turn.map_or(0, |turn| Arc::strong_count(&turn) - 2)
    };
    std::thread::scope(|scope| {
        let mut second = None;
        let first = bench.open(&mut |_| {
            if second.is_none() {
                second = Some(scope.spawn(move || bench.open(&mut |_| gone())));
                while holds() < 2 {
                    std::thread::yield_now();
                }
            }
            // It leaves as soon as it is looked at.
            let end = Instant::now() + Duration::from_secs(10);
            while holds() > 1 && Instant::now() < end {
                std::thread::yield_now();
            }
            gone()
        });
        assert_eq!(first.unwrap_err().message, "the client has gone");
        assert_eq!(second.unwrap().join().unwrap().unwrap_err().message, "the client has gone");
    });
}
