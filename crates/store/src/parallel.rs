//! Work that waits for storage, some at a time, with its outcomes in order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use hotset_core::Result;

/// How much is under way at a time.
const AT_ONCE: usize = 16;

/// Does `work` for all of `count` numbers, some at a time, and hands the outcomes on in their order.
pub(crate) fn in_parallel<T: Send>(
    count: usize,
    work: &(dyn Fn(usize) -> Result<T> + Sync),
    mut take: impl FnMut(usize, T) -> Result<()>,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    // A worker waits for room here, so that what is ahead of its turn stays little.
    let (sender, receiver) = mpsc::sync_channel(AT_ONCE);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(count) {
            let sender = sender.clone();
            let (next, stop) = (&next, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count || sender.send((number, work(number))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut early: BTreeMap<usize, T> = BTreeMap::new();
        let mut turn = 0;
        let mut outcome = Ok(());
        for (number, done) in &receiver {
            outcome = done.and_then(|done| {
                early.insert(number, done);
                while let Some(done) = early.remove(&turn) {
                    take(turn, done)?;
                    turn += 1;
                }
                Ok(())
            });
            if outcome.is_err() {
                stop.store(true, Ordering::Relaxed);
                break;
            }
        }
        drop(receiver);
        outcome
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotset_core::Error;

    #[test]
    fn outcomes_come_in_order_and_a_failure_ends_it() {
        let mut taken = Vec::new();
        let slow_first = |number: usize| {
            std::thread::sleep(std::time::Duration::from_millis(if number == 0 { 20 } else { 0 }));
            Ok(number * 2)
        };
        in_parallel(50, &slow_first, |number, done| {
            taken.push((number, done));
            Ok(())
        })
        .unwrap();
        assert_eq!(taken, (0..50).map(|number| (number, number * 2)).collect::<Vec<_>>());

        let started = AtomicUsize::new(0);
        let failing = |number: usize| {
            started.fetch_add(1, Ordering::SeqCst);
            if number == 3 { Err(Error::invalid("three")) } else { Ok(()) }
        };
        let error = in_parallel(100_000, &failing, |_, ()| Ok(())).unwrap_err();
        assert_eq!(error.message, "three");
        assert!(started.load(Ordering::SeqCst) < 100_000);
        in_parallel(0, &|_| Ok(()), |_, ()| panic!("there is nothing to do")).unwrap();
    }
}
