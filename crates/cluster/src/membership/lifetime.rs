//! Until when this node's lease surely lives, by its own clock.
//!
//! etcd counts a lease's life from when it renewed it, which was after it was asked to. So a lease lives at least for
//! its length after the request was *sent*. The clock is one that goes on while a machine sleeps, and nobody sets; a
//! tenth is taken off, for clocks that do not go equally fast.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment by the clock of this machine, since it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(Duration);

impl Moment {
    pub(super) fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        Self(Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32))
    }
}

/// Until when a lease surely lives; 0: it does not.
#[derive(Default)]
pub(super) struct Lifetime(AtomicU64);

impl Lifetime {
    /// The lease was renewed for so long, by a request that was sent at that moment.
    pub(super) fn renewed(&self, sent: Moment, life: Duration) {
        let until = sent.0 + life / 10 * 9;
        self.0.store(until.as_nanos() as u64, Ordering::Release);
    }

    /// The lease is over.
    pub(super) fn ended(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Whether it surely lives.
    pub(super) fn is_alive(&self) -> bool {
        self.is_alive_at(Moment::now())
    }

    fn is_alive_at(&self, now: Moment) -> bool {
        (now.0.as_nanos() as u64) < self.0.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::{Lifetime, Moment};
    use std::time::Duration;

    #[test]
    fn a_lease_lives_from_when_its_renewal_was_sent_and_a_tenth_less() {
        let at = |seconds| Moment(Duration::from_secs(seconds));
        let lifetime = Lifetime::default();
        assert!(!lifetime.is_alive_at(at(0)));
        lifetime.renewed(at(100), Duration::from_secs(10));
        assert!(lifetime.is_alive_at(at(108)));
        assert!(!lifetime.is_alive_at(at(109)));
        lifetime.renewed(at(107), Duration::from_secs(10));
        assert!(lifetime.is_alive_at(at(115)));
        lifetime.ended();
        assert!(!lifetime.is_alive_at(at(108)));
    }
}
