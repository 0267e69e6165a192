//! How many requests are under way at each host, where that is found out (`--concurrency auto`).
//!
//! A host is where datasets and packages lie: a bucket, a server, this machine. Each has a gate with a
//! [controller](hotset_core::concurrency) of its own. A request for a host at its limit is parked, and goes back to the front of
//! the queue it came from when another has ended there. So a slow host holds up no other. What packing reads passes, since it is little.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use hotset_core::concurrency::Controller;

/// The most requests at a time at one host; each has a thread.
const MOST: usize = 512;
/// Requests that are parked in one hold of the lock.
pub(super) const PARKED_AT_ONCE: usize = 64;

/// The gates of all hosts.
pub(super) struct Gates {
    began: Instant,
    hosts: BTreeMap<String, Gate>,
}

/// What is under way at one host.
struct Gate {
    controller: Controller,
    under_way: usize,
    parked: VecDeque<u64>,
}

impl Gates {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), hosts: BTreeMap::new() }
    }

    fn gate(&mut self, host: &str) -> &mut Gate {
        let new = || Gate { controller: Controller::new(MOST), under_way: 0, parked: VecDeque::new() };
        self.hosts.entry(host.to_owned()).or_insert_with(new)
    }

    /// Whether a request for a host may be begun; it is parked if not, before the others if it is urgent.
    pub(super) fn lets_in(&mut self, host: &str, request: u64, urgent: bool) -> bool {
        let gate = self.gate(host);
        let open = gate.under_way < gate.controller.limit();
        match (open, urgent) {
            (true, _) => {}
            (false, true) => gate.parked.push_front(request),
            (false, false) => gate.parked.push_back(request),
        }
        open
    }

    /// A request for a host is begun.
    pub(super) fn enter(&mut self, host: &str) {
        self.gate(host).under_way += 1;
    }

    /// A request that had begun has ended, and brought so many bytes from storage, if it was asked. Those that may go
    /// on, the first one last.
    pub(super) fn leave(&mut self, host: &str, bytes: Option<u64>) -> Vec<u64> {
        let now = self.began.elapsed();
        let gate = self.gate(host);
        let before = gate.controller.limit();
        if let Some(bytes) = bytes {
            gate.controller.ended(now, gate.under_way, bytes);
        }
        gate.under_way = gate.under_way.saturating_sub(1);
        gate.note_change(host, before);
        let room = gate.controller.limit().saturating_sub(gate.under_way).min(gate.parked.len());
        let mut free: Vec<u64> = gate.parked.drain(..room).collect();
        free.reverse();
        free
    }

    /// A parked request that may go on. Those that [`Self::leave`] let go may have been withdrawn, or begun from another queue.
    pub(super) fn unpark(&mut self) -> Option<u64> {
        let open = |gate: &&mut Gate| gate.under_way < gate.controller.limit() && !gate.parked.is_empty();
        self.hosts.values_mut().find(open)?.parked.pop_front()
    }

    /// A host asks for fewer requests.
    pub(super) fn refused(&mut self, host: &str) {
        let now = self.began.elapsed();
        let gate = self.gate(host);
        let before = gate.controller.limit();
        gate.controller.refused(now);
        gate.note_change(host, before);
    }

    /// The most requests that may be under way at all hosts together.
    pub(super) fn limit(&self) -> usize {
        if self.hosts.is_empty() {
            return Controller::new(MOST).limit();
        }
        self.hosts.values().map(|gate| gate.controller.limit()).sum()
    }

    /// The threads that all hosts may have, with those of one that is not known yet.
    pub(super) fn threads(&self) -> usize {
        let known: usize = self.hosts.values().map(|gate| gate.controller.limit()).sum();
        known + Controller::new(MOST).limit()
    }

    /// The most requests that may be under way at a host.
    pub(super) fn limit_of(&self, host: &str) -> usize {
        self.hosts.get(host).map_or_else(|| Controller::new(MOST).limit(), |gate| gate.controller.limit())
    }

    /// Whether a request is parked.
    #[cfg(feature = "shuttle")]
    pub(super) fn holds(&self, request: u64) -> bool {
        self.hosts.values().any(|gate| gate.parked.contains(&request))
    }
}

impl Gate {
    fn note_change(&self, host: &str, before: usize) {
        let limit = self.controller.limit();
        if limit != before {
            tracing::debug!(host, limit, before, "another number of requests at a time");
        }
    }
}

/// The host of a place: all of it but the path, and nothing for a place on this machine.
pub(crate) fn host_of(place: &str) -> &str {
    let Some((scheme, rest)) = place.split_once("://") else { return "" };
    if scheme == "file" {
        return "";
    }
    let end = rest.find('/').unwrap_or(rest.len());
    &place[..scheme.len() + 3 + end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_one_bucket_or_on_one_server_has_one_host() {
        for (place, host) in [
            ("s3://bucket/train", "s3://bucket"),
            ("s3://bucket", "s3://bucket"),
            ("https://data.example:8080/a/b", "https://data.example:8080"),
            ("/data/train", ""),
            ("file:///data/train", ""),
        ] {
            assert_eq!(host_of(place), host);
        }
    }

    #[test]
    fn a_host_at_its_limit_parks_what_comes_and_holds_up_no_other() {
        let mut gates = Gates::new();
        let limit = gates.limit_of("s3://slow");
        for request in 0..limit as u64 + 3 {
            let enters = gates.lets_in("s3://slow", request, false);
            assert_eq!(enters, request < limit as u64);
            if enters {
                gates.enter("s3://slow");
            }
        }
        assert!(gates.lets_in("", 1_000, false), "another host");
        assert_eq!(gates.limit(), 2 * limit, "both are known now");
        assert_eq!(gates.leave("s3://slow", Some(1_500)), [limit as u64], "the first that was parked");
        assert!(gates.lets_in("s3://slow", limit as u64, false));
        gates.enter("s3://slow");
        assert!(!gates.lets_in("s3://slow", 7, true));
        assert_eq!(gates.leave("s3://slow", None), [7], "what is waited for goes first");
        assert_eq!(gates.unpark(), Some(limit as u64 + 1), "where what was let go was begun already");
    }

    #[test]
    fn a_host_that_asks_for_fewer_requests_has_a_lower_limit_at_once() {
        let mut gates = Gates::new();
        let limit = gates.limit_of("s3://busy");
        (0..limit).for_each(|_| gates.enter("s3://busy"));
        gates.refused("s3://busy");
        let fewer = gates.limit_of("s3://busy");
        assert!(fewer < limit);
        gates.refused("s3://busy");
        assert_eq!(gates.limit_of("s3://busy"), fewer, "that was asked for before it got fewer");
    }
}
