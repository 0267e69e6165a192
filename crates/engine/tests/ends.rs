//! Ends of leases that clients do not tell at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{Held, Reader, dataset, engine, epoch_indices, request};
use hotset_engine::{Ends, Engine, JobRequest};
use hotset_store::Opened;
use proptest::prelude::*;

/// Where a client notes the lease that ended last, and sees whether it should tell it at once.
#[derive(Default)]
struct Page {
    ended: AtomicU64,
    urgent: AtomicBool,
}

impl Ends for Page {
    fn ended(&self) -> u64 {
        self.ended.load(Ordering::SeqCst)
    }

    fn set_urgent(&self, urgent: bool) {
        self.urgent.store(urgent, Ordering::SeqCst);
    }
}

/// A reader that has at most one batch at a time, and tells its end when it must.
struct Lazy<'a> {
    reader: Reader<'a>,
    page: Option<Arc<Page>>,
    held: Option<Held>,
    untold: Option<Held>,
}

impl<'a> Lazy<'a> {
    /// One that tells every end at once, or as late as it may.
    fn new(engine: &'a Engine, opened: &Opened, late: bool) -> Self {
        let page = late.then(Arc::<Page>::default);
        let ends = page.clone().map(|page| page as Arc<dyn Ends>);
        let reader = Reader::attached(engine, opened, engine.attach_with(ends));
        Self { reader, page, held: None, untold: None }
    }

    fn is_urgent(&self) -> bool {
        self.page.as_ref().is_none_or(|page| page.urgent.load(Ordering::SeqCst))
    }

    fn get(&mut self, indices: &[u64]) {
        self.untold.take().into_iter().for_each(|held| self.reader.release(held));
        self.held = Some(self.reader.get(indices).unwrap());
    }

    fn drop_batch(&mut self) {
        let Some(held) = self.held.take() else { return };
        self.page.iter().for_each(|page| page.ended.store(held.lease, Ordering::SeqCst));
        if self.is_urgent() { self.reader.release(held) } else { self.untold = Some(held) }
    }
}

/// A job that reads nothing ahead, of samples that are kept by nothing.
fn passing(engine: &Engine, opened: &Opened, reader: &Lazy<'_>) -> Vec<u64> {
    let asked = JobRequest { prefetch: false, ..request(opened, "1MiB", "lru") };
    engine.open_job(reader.reader.session, asked, None).unwrap();
    epoch_indices(engine, 0)
}

fn spilled(engine: &Engine) -> u64 {
    engine.job_stats(None)[0].epochs[0].1.clock.spilled
}

#[test]
fn an_end_that_was_not_told_is_heard_where_memory_is_short() {
    let (opened, _) = dataset(&[1 << 20; 200]);
    let engine = engine();
    let mut idle = Lazy::new(&engine, &opened, true);
    let indices = passing(&engine, &opened, &idle);
    idle.get(&indices[..40]);
    idle.drop_batch();
    assert!(idle.untold.is_some() && !idle.is_urgent(), "there was room for it");
    // Both would be more than the reserve.
    let mut other = Lazy::new(&engine, &opened, true);
    other.get(&indices[40..80]);
    assert_eq!((spilled(&engine), engine.stats().leases), (0, 1));
    assert!(idle.is_urgent() && other.is_urgent(), "memory was short");
    other.drop_batch();
    assert!(other.untold.is_none(), "so that it was told at once");
    assert!(!idle.is_urgent() && !other.is_urgent(), "and is not any more");
    let late = Lazy::new(&engine, &opened, true);
    assert!(!late.is_urgent());
    // What was told twice is ended once.
    idle.get(&indices[80..100]);
    assert_eq!(engine.stats().leases, 1);
}

#[test]
fn a_reader_that_comes_while_memory_is_short_hears_of_it() {
    let (opened, _) = dataset(&[1 << 20; 200]);
    let engine = engine();
    let mut first = Lazy::new(&engine, &opened, true);
    let indices = passing(&engine, &opened, &first);
    first.get(&indices[..100]);
    assert_eq!(spilled(&engine), 1);
    let mut second = Lazy::new(&engine, &opened, true);
    assert!(second.is_urgent());
    second.get(&indices[100..101]);
    second.drop_batch();
    assert!(second.is_urgent(), "what was spilled is still leased");
    first.drop_batch();
    assert!(!first.is_urgent() && !second.is_urgent());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Readers take and drop batches in any order: what is told late costs no room.
    #[test]
    fn ends_that_are_told_late_cost_no_room(
        steps in proptest::collection::vec((0usize..3, prop::option::of(1usize..22)), 1..24)
    ) {
        let run = |late: bool| {
            let (opened, _) = dataset(&[2 << 20; 120]);
            let engine = engine();
            let mut readers = [(); 3].map(|()| Lazy::new(&engine, &opened, late));
            let indices = passing(&engine, &opened, &readers[0]);
            let (mut from, mut seen) = (0, Vec::new());
            for &(reader, asks) in &steps {
                readers[reader].drop_batch();
                if let Some(count) = asks.filter(|count| from + count <= indices.len()) {
                    readers[reader].get(&indices[from..][..count]);
                    from += count;
                }
                // Nothing here may look at leases: that would hear of their ends.
                seen.push(spilled(&engine));
            }
            (seen, engine.stats().leases, engine.stats().occupied)
        };
        prop_assert_eq!(run(true), run(false));
    }
}
