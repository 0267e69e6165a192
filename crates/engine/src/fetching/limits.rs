//! How many reads are in flight: a number that was given, or what each host turns out to be good for.
//!
//! With a number the pool has as many threads, and there is nothing else to ask. Where it is found out, a request passes the
//! [gate](super::gates) of its host before it is begun, and lets another pass when it has ended.

use super::fetch::{Brought, Fetch, Giver};
use super::gates::{Gates, host_of};
use super::{Fetching, Origin};
use crate::config::Concurrency;
use crate::dataset::Dataset;

impl Fetching {
    /// Finds out how many requests each host is good for, from now on.
    pub(crate) fn find_limits(&mut self) {
        self.gates = Some(Gates::new());
    }

    /// The most reads in flight, over all stores, where that is `concurrency`.
    pub(crate) fn limit(&self, concurrency: Concurrency) -> usize {
        match (concurrency, &self.gates) {
            (Concurrency::Fixed(limit), _) => limit,
            (Concurrency::Auto, gates) => gates.as_ref().map_or(1, Gates::limit),
        }
    }

    /// The most threads that read.
    pub(super) fn threads_for(&self, concurrency: Concurrency) -> usize {
        match (concurrency, &self.gates) {
            (Concurrency::Fixed(limit), _) => limit,
            (Concurrency::Auto, gates) => gates.as_ref().map_or(1, Gates::threads),
        }
    }

    /// The most reads in flight of a dataset.
    pub(crate) fn limit_of(&self, concurrency: Concurrency, dataset: &Dataset) -> usize {
        match (concurrency, &self.gates) {
            (Concurrency::Fixed(limit), _) => limit,
            (Concurrency::Auto, gates) => {
                gates.as_ref().map_or(1, |gates| gates.limit_of(host_of(&dataset.place)))
            }
        }
    }

    /// A fetch has ended, and let others begin at its host: what it brought of storage, if that was asked.
    pub(super) fn leave_gate(&mut self, fetch: &Fetch, brought: Option<&Brought>) {
        let (Some(gates), Some(host)) = (&mut self.gates, fetch.gated_host()) else { return };
        let asked = brought.filter(|brought| matches!(brought.from, Giver::Storage));
        for number in gates.leave(host, asked.map(|brought| brought.bytes)) {
            let urgent = self.requests.get(&number).is_some_and(|request| request.urgent);
            if urgent { self.urgent.push_front(number) } else { self.ahead.push_front(number) }
        }
    }

    /// The host of a fetch asks for fewer requests.
    pub(super) fn note_refusal(&mut self, fetch: &Fetch) {
        if let (Some(gates), Some(host)) = (&mut self.gates, fetch.gated_host()) {
            gates.refused(host);
        }
    }

    /// A fetch begins.
    pub(super) fn enter_gate(&mut self, fetch: &Fetch) {
        if let (Some(gates), Some(host)) = (&mut self.gates, fetch.gated_host()) {
            gates.enter(host);
        }
    }

    /// Whether a request may be begun now; it is parked if not.
    pub(super) fn passes_gate(&mut self, number: u64) -> bool {
        let (Some(gates), Some(request)) = (&mut self.gates, self.requests.get(&number)) else { return true };
        let dataset = request.objects.first().and_then(|object| self.pending.get(object));
        let place = match &request.origin {
            Origin::Package(_, _, store) => Some(store.place()),
            Origin::Store | Origin::Run(..) => dataset.map(|pending| &*pending.dataset.place),
            Origin::Node(_) => None,
        };
        let urgent = request.urgent;
        place.is_none_or(|place| gates.lets_in(host_of(place), number, urgent))
    }
}
