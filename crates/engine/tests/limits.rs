//! How many reads are in flight, where each host's limit is found out.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{self, Reader, dataset, epoch_indices_of, request, within};
use hotset_engine::{Concurrency, Config, Engine, JobRequest};
use hotset_store::{Location, Opened, ReadError, Store};

/// Asks for fewer requests beyond so many at a time, and takes a millisecond for each.
struct Narrow {
    store: Arc<dyn Store>,
    most: usize,
    under_way: AtomicUsize,
    refused: AtomicUsize,
    highest: AtomicUsize,
}

impl Store for Narrow {
    fn read(&self, at: Location<'_>, into: &mut [u8]) -> Result<(), ReadError> {
        let under_way = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.highest.fetch_max(under_way, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(1));
        let read = if under_way > self.most {
            self.refused.fetch_add(1, Ordering::SeqCst);
            Err(ReadError::Busy("503 SlowDown".into()))
        } else {
            self.store.read(at, into)
        };
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        read
    }
}

fn auto() -> Engine {
    Engine::new(Config { concurrency: Concurrency::Auto, ..common::config() })
}

fn asked(opened: &Opened, job: &str) -> JobRequest {
    JobRequest { job: job.into(), ..request(opened, "10%", "lru") }
}

/// Trains an epoch of a job, every byte of which is checked.
fn train(engine: &Engine, opened: &Opened, job: &'static str, epoch: u64) {
    let mut reader = Reader::of_job(engine, opened, job);
    engine.begin_epoch(job, epoch, (0, 1), 0, false).unwrap();
    for batch in epoch_indices_of(engine, job, epoch).chunks(64) {
        let held = reader.get(batch).unwrap();
        reader.release(held);
    }
    engine.end_epoch(job, epoch, 0, None).unwrap();
}

#[test]
fn a_store_that_asks_for_fewer_requests_gets_fewer_and_no_sample_fails() {
    let (mut opened, store) = dataset(&vec![100; 3_000]);
    let narrow = Narrow {
        store,
        most: 10,
        under_way: AtomicUsize::new(0),
        refused: AtomicUsize::new(0),
        highest: AtomicUsize::new(0),
    };
    let narrow = Arc::new(narrow);
    opened.store = Arc::clone(&narrow) as Arc<dyn Store>;
    let engine = auto();
    let main = Reader::of_job(&engine, &opened, "job");
    engine.open_job(main.session, asked(&opened, "job"), None).unwrap();
    assert_eq!(engine.stats().concurrency, 32, "where it begins");
    within("two epochs", || (0..2).for_each(|epoch| train(&engine, &opened, "job", epoch)));
    let (limit, refused) = (engine.stats().concurrency, narrow.refused.load(Ordering::SeqCst));
    let most = narrow.highest.load(Ordering::SeqCst);
    assert!(limit <= 14, "{limit}, {refused} refused, {most} at a time");
    assert!((1..600).contains(&refused), "{refused} of 6,000");
    let counted = engine.job_stats(Some("job")).remove(0).total;
    assert_eq!(counted.clock.failed, 0, "{counted:?}");
}

#[test]
fn a_host_that_does_not_answer_holds_up_no_other() {
    let (mut slow, store) = dataset(&vec![100; 2_000]);
    slow.place = "s3://slow/train".into();
    let (fast, _) = dataset(&vec![100; 1_000]);
    let engine = auto();
    let mut readers = Vec::new();
    for (opened, job) in [(&slow, "slow"), (&fast, "fast")] {
        let reader = Reader::of_job(&engine, opened, job);
        engine.open_job(reader.session, asked(opened, job), None).unwrap();
        readers.push(reader);
    }
    store.hold();
    engine.begin_epoch("slow", 0, (0, 1), 0, false).unwrap();
    let limit = engine.stats().concurrency;
    within("the reads of the slow host", || {
        while store.in_flight() < limit as usize {
            std::thread::yield_now();
        }
    });
    // All that may read from it do, and hundreds more are queued before what comes now.
    within("two epochs from the other host", || {
        (0..2).for_each(|epoch| train(&engine, &fast, "fast", epoch))
    });
    assert_eq!(store.in_flight(), 32, "no more than its limit");
    store.let_go();
    within("an epoch from the slow host", || train(&engine, &slow, "slow", 0));
}
