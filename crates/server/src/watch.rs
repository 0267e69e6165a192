//! The watch over the training processes a private server works for.
//!
//! A process is watched by pidfd: unlike a parent's death signal it does not follow a thread, and unlike a
//! pipe it is not held open by forked workers. When the last is gone the server stays a moment, in case
//! another process of the job is about to connect. A client of another PID namespace, as in another container, names
//! its training process by a number that means another process here, or none: it is a guest, and counts as long as it is
//! connected.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// How long a private server outlives its last trainer.
const GRACE: Duration = Duration::from_secs(2);

/// The processes that are watched, and the guests that count.
#[derive(Default)]
pub(crate) struct Watch {
    processes: Mutex<HashMap<u32, OwnedFd>>,
    guests: AtomicUsize,
}

/// A client that counts while this lives.
pub(crate) struct Guest<'a>(&'a Watch);

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.0.guests.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether a process is of our PID namespace, so that the numbers it tells are ours.
pub(crate) fn counts_as_we_do(process: u32) -> bool {
    let namespace = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/pid")).ok();
    namespace("self").is_some_and(|own| namespace(&process.to_string()) == Some(own))
}

impl Watch {
    /// Lets a client count that cannot be watched.
    pub(crate) fn guest(&self) -> Guest<'_> {
        self.guests.fetch_add(1, Ordering::SeqCst);
        Guest(self)
    }

    /// Watches a process, if it still lives.
    pub(crate) fn add(&self, process: u32) {
        let mut processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        if processes.contains_key(&process) {
            return;
        }
        let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
        match pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
            Some(Ok(descriptor)) => {
                processes.insert(process, descriptor);
            }
            Some(Err(error)) => tracing::debug!(process, %error, "a training process cannot be watched"),
            None => {}
        }
    }

    /// Forgets processes that ended; whether any is left.
    fn any_left(&self) -> bool {
        let mut processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        processes.retain(|process, descriptor| {
            let mut asked = [PollFd::new(descriptor, PollFlags::IN)];
            let ended = matches!(poll(&mut asked, Some(&Timespec::default())), Ok(1));
            if ended {
                tracing::debug!(process, "a training process ended");
            }
            !ended
        });
        !processes.is_empty() || self.guests.load(Ordering::SeqCst) > 0
    }

    /// Whether the last process is gone for good. `alone` is the caller's memory of since when.
    pub(crate) fn over(&self, alone: &mut Option<Instant>) -> bool {
        if self.any_left() {
            *alone = None;
            return false;
        }
        alone.get_or_insert_with(Instant::now).elapsed() >= GRACE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ended_is_forgotten_and_the_watch_is_over_after_a_grace() {
        let watch = Watch::default();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        watch.add(child.id());
        let mut alone = None;
        assert!(!watch.over(&mut alone) && alone.is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!watch.over(&mut alone), "there is a grace");
        assert!(alone.is_some());
        alone = Some(Instant::now() - GRACE);
        assert!(watch.over(&mut alone));
    }

    #[test]
    fn a_guest_counts_until_it_leaves() {
        let watch = Watch::default();
        let guest = watch.guest();
        assert!(watch.any_left());
        drop(guest);
        assert!(!watch.any_left());
        assert!(counts_as_we_do(std::process::id()) && !counts_as_we_do(u32::MAX));
    }

    #[test]
    fn a_process_that_never_lived_is_not_watched() {
        let watch = Watch::default();
        watch.add(u32::MAX);
        assert!(!watch.any_left());
    }
}
