//! Work that waits for storage, some at a time, with its outcomes in order.
//!
//! Whoever waits for all of it is asked now and then whether it still does. When it does not, no new work begins, and work
//! of many requests ends after the one under way.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use hotset_core::{Error, Result};

/// How much is under way at a time.
const AT_ONCE: usize = 16;
/// How often `look` is asked while no work ends.
const LOOK: Duration = Duration::from_millis(200);

/// Whether work is still wanted.
#[derive(Default)]
pub(crate) struct Wanted(AtomicBool);

impl Wanted {
    /// An error when it is not. Nobody is told of it: what ended the work is.
    pub(crate) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Error::unavailable("no longer wanted")) } else { Ok(()) }
    }

    fn end(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does `work` for all of `count` numbers, some at a time, and hands the outcomes on in their order. `look` is asked
/// after each and while none comes; its error ends it all.
pub(crate) fn in_parallel<T: Send>(
    count: usize,
    work: &(dyn Fn(usize, &Wanted) -> Result<T> + Sync),
    mut take: impl FnMut(usize, T) -> Result<()>,
    look: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let wanted = Wanted::default();
    // A worker waits for room here, so that what is ahead of its turn stays little.
    let (sender, receiver) = mpsc::sync_channel(AT_ONCE);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(count) {
            let sender = sender.clone();
            let (next, wanted) = (&next, &wanted);
            scope.spawn(move || {
                while wanted.check().is_ok() {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count || sender.send((number, work(number, wanted))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut early: BTreeMap<usize, T> = BTreeMap::new();
        let mut turn = 0;
        let mut outcome = Ok(());
        while outcome.is_ok() {
            outcome = match receiver.recv_timeout(LOOK) {
                Ok((number, done)) => done.and_then(|done| {
                    early.insert(number, done);
                    while let Some(done) = early.remove(&turn) {
                        take(turn, done)?;
                        turn += 1;
                    }
                    look()
                }),
                Err(RecvTimeoutError::Timeout) => look(),
                Err(RecvTimeoutError::Disconnected) => break,
            };
        }
        wanted.end();
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
        let slow_first = |number: usize, _: &Wanted| {
            std::thread::sleep(std::time::Duration::from_millis(if number == 0 { 20 } else { 0 }));
            Ok(number * 2)
        };
        let take = |number, done| {
            taken.push((number, done));
            Ok(())
        };
        in_parallel(50, &slow_first, take, &mut || Ok(())).unwrap();
        assert_eq!(taken, (0..50).map(|number| (number, number * 2)).collect::<Vec<_>>());

        let started = AtomicUsize::new(0);
        let failing = |number: usize, _: &Wanted| {
            started.fetch_add(1, Ordering::SeqCst);
            if number == 3 { Err(Error::invalid("three")) } else { Ok(()) }
        };
        let error = in_parallel(100_000, &failing, |_, ()| Ok(()), &mut || Ok(())).unwrap_err();
        assert_eq!(error.message, "three");
        assert!(started.load(Ordering::SeqCst) < 100_000);
        in_parallel(0, &|_, _| Ok(()), |_, ()| panic!("there is nothing to do"), &mut || Ok(())).unwrap();
    }

    #[test]
    fn work_of_many_requests_ends_when_nobody_waits_for_it() {
        let endless = |_: usize, wanted: &Wanted| -> Result<()> {
            loop {
                wanted.check()?;
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let gone = || Err(Error::unavailable("the client has gone"));
        let error = in_parallel(3, &endless, |_, ()| Ok(()), &mut { gone }).unwrap_err();
        assert_eq!(error.message, "the client has gone");
    }
}
