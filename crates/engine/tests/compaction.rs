//! The arena moves objects to make room, while readers lease: nothing that is looked at moves or changes.
//!
//! Small samples that stay and large ones that come and go leave holes that none of the large fit, in an arena that is
//! nearly full: so room is made by moving, again and again.

use std::collections::VecDeque;
use std::time::Instant;

use crate::common::{Held, Reader, dataset, engine, epoch_indices, request, within};
use hotset_core::Index;
use hotset_engine::Engine;
use hotset_store::Opened;

const MIB: u64 = 1 << 20;
/// Epochs that are trained at least, and at most until much was moved: how much each moves is up to the threads.
const EPOCHS: std::ops::Range<u64> = 4..24;
const MUCH: u64 = 10 * MIB;
const READERS: usize = 3;
/// Batches that each reader keeps beside the one it asks for.
const KEPT: usize = 1;

/// Every twentieth sample is large, and all differ in size.
fn sizes() -> Vec<u64> {
    (0..800u64).map(|id| if id % 20 == 7 { 2 * MIB + id * 1357 } else { 40_000 + id * 97 }).collect()
}

/// One of the readers: takes its batches and keeps the last few, whose bytes it checks again before it lets go of them.
fn read(engine: &Engine, opened: &Opened, batches: &[&[u64]], dies: bool) {
    let mut reader = Reader::new(engine, opened);
    let mut kept: VecDeque<(&[u64], Held)> = VecDeque::new();
    for (number, batch) in batches.iter().enumerate() {
        let held = reader.get(batch).unwrap();
        kept.push_back((batch, held));
        if kept.len() > KEPT {
            let (indices, held) = kept.pop_front().unwrap();
            reader.check(indices, &held);
            reader.release(held);
        }
        if dies && number % 4 == 3 {
            // As a killed worker: its leases end with its connection, and another takes its place.
            kept.clear();
            engine.detach(reader.session, Instant::now());
            reader = Reader::new(engine, opened);
        }
    }
    kept.iter().for_each(|(indices, held)| reader.check(indices, held));
    engine.detach(reader.session, Instant::now());
}

#[test]
fn objects_move_while_readers_lease_and_die_and_every_byte_is_right() {
    within("moving objects under load", || {
        let (opened, _) = dataset(&sizes());
        let engine = engine();
        let mut keeper = Reader::new(&engine, &opened);
        engine.open_job(keeper.session, request(&opened, "40MiB", "lru"), None).unwrap();
        // Kept from the first epoch to the last, scattered over the arena, until little of the reserve is left.
        let sizes = sizes();
        let mut treasure: Vec<(Vec<u64>, Held)> = Vec::new();
        let mut worth = 0;
        let mut epochs = 0..EPOCHS.end;
        while let Some(epoch) =
            epochs.next().filter(|epoch| *epoch < EPOCHS.start || engine.stats().moved <= MUCH)
        {
            let indices = epoch_indices(&engine, epoch);
            let batches = indices.chunks(8).enumerate();
            let (mine, theirs): (Vec<_>, Vec<_>) =
                batches.partition(|(number, _)| epoch == 0 && number % 2 == 1);
            let theirs: Vec<&[u64]> = theirs.into_iter().map(|(_, batch)| batch).collect();
            std::thread::scope(|scope| {
                for worker in 0..READERS {
                    let own: Vec<&[u64]> = theirs.iter().skip(worker).step_by(READERS).copied().collect();
                    let (engine, opened) = (&engine, &opened);
                    scope.spawn(move || read(engine, opened, &own, worker == 0));
                }
                for (_, batch) in mine {
                    let held = keeper.get(batch).unwrap();
                    if worth < 50 * MIB {
                        worth += batch
                            .iter()
                            .map(|&index| sizes[Index::from_raw(index).sample as usize])
                            .sum::<u64>();
                        treasure.push((batch.to_vec(), held));
                    } else {
                        keeper.release(held);
                    }
                }
            });
            for (indices, held) in &treasure {
                keeper.check(indices, held);
            }
            assert_eq!(engine.stats().leases, treasure.len() as u64, "what dead readers leased is back");
        }
        let stats = engine.stats();
        assert!(stats.moved > MUCH, "little was moved: {stats:?}");
        let stats = engine.job_stats(None).remove(0);
        for (epoch, counters) in stats.epochs.iter().filter(|(epoch, _)| *epoch < EPOCHS.start) {
            assert_eq!(
                (counters.served(), counters.clock.abandoned),
                (800, 0),
                "epoch {epoch}: {counters:?}"
            );
        }
    });
}
