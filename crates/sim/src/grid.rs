//! Many runs at once, on as many threads as there are cores.
//!
//! Runs share nothing but what they read, so their results do not depend on how many go at a time. They are
//! handed out one by one, and come back in the order they were given.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use hotset_core::{Error, Result};

/// Runs `run` for each of `jobs` on `threads` threads. `done` hears from any of them when one is done. The
/// first error, in the order of the jobs, is the result of all.
pub fn each<J: Sync, T: Send>(
    jobs: &[J],
    threads: usize,
    run: impl Fn(&J) -> Result<T> + Sync,
    done: impl Fn(usize) + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let finished = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<Result<T>>>> = Mutex::new(jobs.iter().map(|_| None).collect());
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(at) else { break };
                    let result = run(job);
                    if result.is_err() {
                        // The others have nothing to add.
                        next.store(jobs.len(), Ordering::Relaxed);
                    }
                    results.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(result);
                    done(finished.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = results.iter().flatten().find_map(|result| result.as_ref().err()) {
        return Err(error.clone());
    }
    results
        .into_iter()
        .map(|result| result.unwrap_or_else(|| Err(Error::internal("a run was left out"))))
        .collect()
}

/// As many threads as this machine has cores.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_jobs_whatever_the_threads() {
        let jobs: Vec<u64> = (0..100).collect();
        for threads in [0, 1, 2, 7, 1000] {
            let told = AtomicUsize::new(0);
            let squares = each(
                &jobs,
                threads,
                |job| Ok(job * job),
                |_| {
                    told.fetch_add(1, Ordering::Relaxed);
                },
            );
            assert_eq!(squares.unwrap()[99], 9801);
            assert_eq!(told.into_inner(), 100);
        }
        assert!(each(&[] as &[u64], 2, |job| Ok(*job), |_| ()).unwrap().is_empty());
    }

    #[test]
    fn one_error_ends_all() {
        let jobs: Vec<u64> = (0..1000).collect();
        let run = |job: &u64| if *job == 3 { Err(Error::invalid("no")) } else { Ok(*job) };
        assert_eq!(each(&jobs, 2, run, |_| ()).unwrap_err().message, "no");
    }
}
