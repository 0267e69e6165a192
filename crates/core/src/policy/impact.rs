//! `impact`, the cache of ImPACT (TC 2025, III-C): `icache` with a static buffer for re-evaluated samples.
//!
//! While `hybrid` warms up, until the set S of samples whose ranks change most is known, the cache is static,
//! as with `minio`. Then the ids of S are kept in a buffer inside the capacity, in neither region, so that
//! they can be re-evaluated before every epoch without a read. Everything else is `icache`. A trainer that
//! never re-evaluates S, and a strategy without such a set, get plain `icache`.
//!
//! Differs from the paper: capacity is bytes, and samples still due in the epoch stay, as in `icache`. S
//! holds fewer of the hardest samples than chance would, so it reads slightly more than `icache` does.

use super::icache::{Icache, PARAMETERS};
use super::{Begin, Due, Entry, Place, Policy, Region, Verdict};
use crate::saved::Unsealed;
use crate::{Id, Result};

pub(super) const ENTRY: Entry = Entry {
    name: "impact",
    summary: "`icache` with a static buffer for the samples that `hybrid` re-evaluates (ImPACT)",
    bounded: true,
    offline: false,
    plain: false,
    shared: false,
    parameters: PARAMETERS,
    build: |setup| Box::new(Impact(Icache::impact(setup))),
};

struct Impact(Icache);

impl Policy for Impact {
    fn access(&mut self, id: Id, due: &dyn Due, evicted: &mut Vec<Id>) -> Verdict {
        self.0.access(id, due, evicted)
    }

    fn contains(&self, id: Id) -> bool {
        self.0.contains(id)
    }

    fn used(&self) -> u64 {
        self.0.used()
    }

    fn capacity(&self) -> u64 {
        self.0.capacity()
    }

    fn resize(&mut self, capacity: u64, evicted: &mut Vec<Id>) {
        self.0.resize(capacity, evicted);
    }

    fn residents(&self, each: &mut dyn FnMut(Id)) {
        self.0.residents(each);
    }

    fn remove(&mut self, id: Id) -> bool {
        self.0.remove(id)
    }

    fn begin(&mut self, begin: &Begin<'_>) {
        self.0.begin(begin);
    }

    fn takes_packages(&self) -> bool {
        true
    }

    fn low(&self) -> (u64, u64) {
        self.0.low()
    }

    fn load(&mut self, members: &[Id], stays: bool, due: &dyn Due, evicted: &mut Vec<Id>) -> bool {
        self.0.load(members, stays, due, evicted)
    }

    fn pin(&mut self, ids: &[Id], read: &mut Vec<Id>, evicted: &mut Vec<Id>) {
        self.0.buffer(ids, read, evicted);
    }

    fn place(&self, id: Id) -> Option<Place> {
        self.0.place(id)
    }

    fn regions(&self) -> Vec<Region> {
        self.0.regions()
    }

    fn save(&self) -> Unsealed {
        self.0.save()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<()> {
        self.0.restore(saved)
    }
}
