//! Reads from storage: what is queued, in which order, and what waits for it.
//!
//! Every trip to storage is a request for one object in memory or several, from the dataset's own objects or from a
//! package. Requests that a reader waits for go first, then those along plans, then what packing asks for, which gets one
//! turn in four. Plans say which reads are one request; queued reads that no plan makes and that lie side by side, up to a
//! mebibyte, become one when the first is begun. A request is taken off a queue as a [`Fetch`], which a thread of the
//! [pool](pool) carries out without the lock; what became of it is said to [`complete`]. Requests for what is in memory
//! under another name are not made: see [`equal`]. How many are made at a time is given, or [found out](limits). What another node of a cluster decides is asked of that node: see [`asking`].

mod asking;
mod complete;
mod equal;
mod fetch;
mod gates;
mod limits;
mod peer;
mod pool;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hotset_core::packages::Packages;
use hotset_core::run::TOGETHER;
use hotset_core::{Error, Id, Result};
use hotset_store::package::PackageStore;

pub(crate) use asking::{MOST_BYTES, MOST_SLOTS, Question};
pub(crate) use fetch::{Fetch, PackingRead, Wanted};
pub use peer::ContentPeer;
pub(crate) use pool::wake;

use equal::{Coming, Following};
use fetch::{Brought, Part};
use gates::{Gates, PARKED_AT_ONCE};
use pool::Pool;

use crate::dataset::Dataset;
use crate::residency::Residency;

/// One turn in so many is for packing, while others wait too.
const PACKING_SHARE: u64 = 4;

/// Why a read is made, which says how it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The plan asks for it: it was counted when that was decided.
    Planned,
    /// The plan asks for it, in one request with others that have gone without it.
    Extra,
    /// The plan counts on bytes that are not there.
    Recovery,
    /// Its bytes are there, and it is measured how long a read takes.
    Probe,
    /// Another node decides it, counts it, and is asked for it.
    Asked,
    /// No plan serves it.
    Unplanned,
}

/// Whose counters a read is charged to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Payer {
    pub(crate) job: u64,
    pub(crate) epoch: Option<u64>,
    pub(crate) cause: Cause,
}

/// Where a request finds its bytes.
#[derive(Clone)]
pub(crate) enum Origin {
    /// In the dataset's own objects: a sample, or several side by side.
    Store,
    /// In a package that is a run of samples in the dataset's own objects.
    Run(u32, Arc<Packages>),
    /// In a package that was written.
    Package(u32, Arc<Packages>, Arc<PackageStore>),
    /// At the node that owns them.
    Node(Question),
}

impl Origin {
    /// The package, and those that it is one of.
    pub(crate) fn package(&self) -> Option<(u32, &Arc<Packages>)> {
        match self {
            Self::Store | Self::Node(_) => None,
            Self::Run(number, packages) | Self::Package(number, packages, _) => Some((*number, packages)),
        }
    }
}

/// An object whose bytes have not come.
struct Pending {
    dataset: Arc<Dataset>,
    payer: Payer,
    /// The request that brings it, once it is queued.
    request: Option<u64>,
    /// Batches that wait for it.
    waiters: Vec<u64>,
    /// Whether it is read by itself, because a request for several did not bring it.
    alone: bool,
    /// Why its last attempt failed, if it is being tried again.
    failure: Option<String>,
}

/// A request that is queued, or waits for its package to be written.
struct Request {
    origin: Origin,
    objects: Vec<u32>,
    payer: Payer,
    urgent: bool,
    /// When it was first due, if its package was not written then.
    due: Option<Instant>,
    following: Following,
}

/// What was taken off the queues.
pub(crate) enum Begun {
    /// A trip to be made.
    Fetch(Fetch),
    /// One that need not be made, and what it brings.
    Found(Fetch, Brought),
    /// One that waits for another.
    Waits,
}

/// Reads that are queued or under way.
#[derive(Default)]
pub(crate) struct Fetching {
    pending: HashMap<u32, Pending>,
    requests: HashMap<u64, Request>,
    last_request: u64,
    urgent: VecDeque<u64>,
    ahead: VecDeque<u64>,
    packing: VecDeque<PackingRead>,
    /// What other nodes are to be asked for.
    asking: VecDeque<u64>,
    /// How many questions each of them is answering.
    asked: HashMap<String, usize>,
    /// Requests begun so far.
    turns: u64,
    coming: Coming,
    /// How many requests are under way at each host, where that is found out.
    gates: Option<Gates>,
    pool: Pool,
}

impl Fetching {
    /// An object was made, whose read is to be queued.
    pub(crate) fn expect(&mut self, object: u32, dataset: &Arc<Dataset>, payer: Payer) {
        let dataset = Arc::clone(dataset);
        let (waiters, alone, failure) = (Vec::new(), false, None);
        let before =
            self.pending.insert(object, Pending { dataset, payer, request: None, waiters, alone, failure });
        debug_assert!(before.is_none(), "object {object} left, and its read was not forgotten");
    }

    /// An object left before its bytes had come.
    pub(crate) fn forget(&mut self, object: u32) {
        self.pending.remove(&object);
    }

    /// Queues the read of expected objects as one request.
    pub(crate) fn enqueue(&mut self, objects: Vec<u32>, urgent: bool) {
        let request = self.add(Origin::Store, objects, urgent);
        self.push(request, urgent);
    }

    /// Queues the read of a package for expected objects; of one that is not `written` yet, when it is.
    pub(crate) fn enqueue_package(&mut self, origin: Origin, objects: Vec<u32>, written: bool) {
        let request = self.add(origin, objects, false);
        if written {
            self.push(request, false);
        }
    }

    fn add(&mut self, origin: Origin, objects: Vec<u32>, urgent: bool) -> Option<u64> {
        let payer = self.pending.get(objects.first()?)?.payer;
        self.last_request += 1;
        let number = self.last_request;
        for object in &objects {
            if let Some(pending) = self.pending.get_mut(object) {
                pending.request = Some(number);
            }
        }
        let (due, following) = (None, Following::Never);
        self.requests.insert(number, Request { origin, objects, payer, urgent, due, following });
        Some(number)
    }

    fn push(&mut self, request: Option<u64>, urgent: bool) {
        let of_node =
            |number| self.requests.get(number).is_some_and(|of| matches!(of.origin, Origin::Node(_)));
        match (request.as_ref().is_some_and(of_node), urgent) {
            (false, true) => self.urgent.extend(request),
            (false, false) => self.ahead.extend(request),
            (true, true) => request.into_iter().for_each(|request| self.asking.push_front(request)),
            (true, false) => self.asking.extend(request),
        }
    }

    /// A reader waits for an object: its request goes before those that none waits for.
    pub(crate) fn hurry(&mut self, object: u32) {
        // A request that was begun is on its way.
        let number = self.pending.get(&object).and_then(|pending| pending.request);
        let request = number.and_then(|number| self.requests.get_mut(&number));
        if request.is_some_and(|request| !std::mem::replace(&mut request.urgent, true)) {
            self.push(number, true);
        }
    }

    /// A batch waits for an object, unless its bytes are there.
    pub(crate) fn await_object(&mut self, object: u32, waiter: u64) {
        if let Some(pending) = self.pending.get_mut(&object) {
            pending.waiters.push(waiter);
        }
    }

    /// Whether an object is read for another job than this.
    pub(crate) fn is_read_for_another(&self, object: u32, job: u64) -> bool {
        self.pending.get(&object).is_some_and(|pending| pending.payer.job != job)
    }

    /// Whether the bytes of an object have not come.
    pub(crate) fn is_pending(&self, object: u32) -> bool {
        self.pending.contains_key(&object)
    }

    /// Whether an object comes from the node that owns its sample, as long as that is not known to fail.
    pub(crate) fn is_asked(&self, object: u32) -> bool {
        self.pending.get(&object).is_some_and(|pending| pending.payer.cause == Cause::Asked && !pending.alone)
    }

    /// Why the last attempt at an object failed, or else that at any.
    pub(crate) fn last_failure(&self, object: Option<u32>) -> Option<&str> {
        let own = object.and_then(|object| self.pending.get(&object)?.failure.as_deref());
        // A read that was never begun waits for others.
        own.or_else(|| self.pending.values().find_map(|pending| pending.failure.as_deref()))
    }

    /// An attempt to read these objects failed, and another will be made.
    fn note_failure(&mut self, objects: &[u32], failure: &str) {
        for object in objects {
            if let Some(pending) = self.pending.get_mut(object) {
                pending.failure = Some(failure.to_owned());
            }
        }
    }

    /// Whose counters an object's read is charged to, and how many batches wait for it.
    fn payer(&self, object: u32) -> Result<(Payer, usize)> {
        let pending = self.pending.get(&object);
        let lost = || Error::internal(format!("object {object} was read and is not expected"));
        pending.map(|pending| (pending.payer, pending.waiters.len())).ok_or_else(lost)
    }

    /// An object's bytes have come, or will not; the batches that wait for it.
    pub(crate) fn arrived(&mut self, object: u32) -> Vec<u64> {
        self.pending.remove(&object).map(|pending| pending.waiters).unwrap_or_default()
    }

    /// Queues the read of an object by itself, that a request for several did not bring.
    pub(crate) fn enqueue_alone(&mut self, object: u32, cause: Cause) -> Result<()> {
        let lost = || Error::internal(format!("object {object} is to be read alone and is not expected"));
        let pending = self.pending.get_mut(&object).ok_or_else(lost)?;
        (pending.payer.cause, pending.alone) = (cause, true);
        let urgent = !pending.waiters.is_empty();
        self.enqueue(vec![object], urgent);
        Ok(())
    }

    /// The read of an object is another's to pay for.
    pub(crate) fn charge_to(&mut self, object: u32, payer: Payer) {
        self.pending.get_mut(&object).into_iter().for_each(|pending| pending.payer = payer);
    }

    /// Queues what packing reads.
    pub(crate) fn enqueue_packing(&mut self, read: PackingRead) {
        self.packing.push_back(read);
    }

    /// Queues the requests of a job that wait for packages which are `done`.
    pub(crate) fn let_read(&mut self, job: u64, done: impl Fn(u32) -> bool) {
        let waiting = self.requests.iter().filter(|(_, request)| {
            request.payer.job == job && request.origin.package().is_some_and(|(number, _)| done(number))
        });
        let mut numbers: Vec<(u64, bool)> =
            waiting.map(|(&number, request)| (number, request.due.is_some())).collect();
        numbers.sort_unstable();
        numbers.into_iter().for_each(|(number, due)| self.push(Some(number), due));
    }

    /// Takes out the requests of a job, which has ended: the objects they were to bring.
    pub(crate) fn withdraw(&mut self, job: u64) -> Vec<u32> {
        let of_job = |_: &u64, request: &mut Request| request.payer.job == job;
        let withdrawn: Vec<(u64, Request)> = self.requests.extract_if(of_job).collect();
        withdrawn
            .into_iter()
            .flat_map(|(number, request)| self.still_pending(number, request.objects))
            .collect()
    }

    /// Takes out the requests whose packages were due longer than `patience` ago: payer, package and objects of each.
    pub(crate) fn take_overdue(&mut self, patience: Duration) -> Vec<(Payer, u32, Vec<u32>)> {
        let late = |_: &u64, request: &mut Request| request.due.is_some_and(|due| due.elapsed() >= patience);
        let overdue: Vec<(u64, Request)> = self.requests.extract_if(late).collect();
        let of_package = |(number, request): (u64, Request)| {
            let (package, _) = request.origin.package()?;
            Some((request.payer, package, self.still_pending(number, request.objects)))
        };
        overdue.into_iter().filter_map(of_package).collect()
    }

    /// Those objects of a request that it is still to bring: others have left, and their keys may be others'.
    fn still_pending(&self, number: u64, mut objects: Vec<u32>) -> Vec<u32> {
        objects
            .retain(|object| self.pending.get(object).is_some_and(|pending| pending.request == Some(number)));
        objects
    }

    /// Takes the next request off the queues. `is_written` says of a job's package whether it can be read.
    pub(crate) fn begin(
        &mut self,
        residency: &mut Residency,
        is_written: impl Fn(u64, u32) -> bool,
    ) -> Option<Begun> {
        self.turns += 1;
        if self.turns.is_multiple_of(PACKING_SHARE)
            && let Some(read) = self.packing.pop_front()
        {
            return Some(Begun::Fetch(Fetch::for_packing(read)));
        }
        let mut parked = 0;
        while let Some(number) = self.next_queued() {
            // It may have been begun from the other queue.
            let Some(request) = self.requests.get_mut(&number) else { continue };
            if let Some((package, _)) = request.origin.package()
                && !is_written(request.payer.job, package)
            {
                request.due.get_or_insert_with(Instant::now);
                continue;
            }
            if matches!(request.following, Following::Since(_)) {
                continue;
            }
            if let Some(begun) = self.begin_equal(number, residency) {
                return Some(begun);
            }
            if !self.passes_gate(number) {
                parked += 1;
                if parked == PARKED_AT_ONCE {
                    return Some(Begun::Waits);
                }
                continue;
            }
            let Some(request) = self.requests.remove(&number) else { continue };
            if let Some(fetch) = self.begin_request(number, request, residency) {
                self.enter_gate(&fetch);
                self.lead(&fetch);
                return Some(Begun::Fetch(fetch));
            }
        }
        self.packing.pop_front().map(|read| Begun::Fetch(Fetch::for_packing(read)))
    }

    fn next_queued(&mut self) -> Option<u64> {
        let queued = self.urgent.pop_front().or_else(|| self.ahead.pop_front());
        queued.or_else(|| self.gates.as_mut()?.unpark())
    }

    /// Begins a request. `None` if none of its objects is there any more.
    fn begin_request(&mut self, number: u64, request: Request, residency: &mut Residency) -> Option<Fetch> {
        let mut objects = self.still_pending(number, request.objects);
        let pending = self.pending.get(objects.first()?)?;
        let dataset = Arc::clone(&pending.dataset);
        if let ([object], Cause::Unplanned, false) = (&objects[..], pending.payer.cause, pending.alone) {
            objects = self.neighbours(*object, &dataset, residency);
        }
        let parts: Vec<Part> =
            objects.into_iter().filter_map(|object| Self::part(object, residency)).collect();
        (!parts.is_empty()).then(|| Fetch::new(dataset, request.origin, request.payer, parts))
    }

    /// An object whose read begins.
    fn part(object: u32, residency: &mut Residency) -> Option<Part> {
        let id = residency.get(object).id();
        Some(Part::object(id, object, residency.begin_read(object)?))
    }

    /// An object whose read no plan makes, and those of its kind that wait for bytes right beside it, in their order. Their
    /// own requests are taken out.
    fn neighbours(&mut self, object: u32, dataset: &Dataset, residency: &Residency) -> Vec<u32> {
        let id = residency.get(object).id();
        let (mut ends, mut objects) = ((id, id), VecDeque::from([object]));
        for up in [true, false] {
            loop {
                let last = if up { ends.1 } else { ends.0 };
                let Some(next) = (if up { last.checked_add(1) } else { last.checked_sub(1) }) else { break };
                let wider = (ends.0.min(next), ends.1.max(next));
                let apart = dataset.catalog.gap_after(last.min(next)).is_none();
                if apart || dataset.catalog.extent(wider.0, wider.1) > TOGETHER {
                    break;
                }
                let Some(beside) = self.unplanned(dataset, next, residency) else { break };
                if up {
                    objects.push_back(beside)
                } else {
                    objects.push_front(beside)
                }
                ends = wider;
            }
        }
        objects.into()
    }

    /// The object of a sample that is queued by itself and that no plan reads; its request is taken out.
    fn unplanned(&mut self, dataset: &Dataset, id: Id, residency: &Residency) -> Option<u32> {
        let object = residency.object(dataset.key, id)?;
        let pending = self.pending.get(&object)?;
        // One that failed together with others is read alone.
        if pending.payer.cause != Cause::Unplanned || pending.alone {
            return None;
        }
        let number = pending.request?;
        self.requests.get(&number).filter(|request| !matches!(request.following, Following::Since(_)))?;
        self.requests.remove(&number)?;
        Some(object)
    }

    /// Requests that are queued.
    fn queued(&self) -> usize {
        self.urgent.len() + self.ahead.len() + self.packing.len()
    }

    /// Requests that threads carry out now.
    pub(crate) fn in_flight(&self) -> usize {
        self.pool.reading()
    }

    /// Questions that other nodes are asked now.
    pub(crate) fn asked_in_flight(&self) -> usize {
        self.pool.asking()
    }
}

#[cfg(feature = "shuttle")]
impl Fetching {
    /// How many objects a batch waits for.
    pub(crate) fn awaited_by(&self, waiter: u64) -> usize {
        self.pending.values().flat_map(|pending| &pending.waiters).filter(|&&other| other == waiter).count()
    }

    /// Checks that what has not come is expected, and that every expected object is on its way.
    pub(crate) fn check(&self, residency: &Residency) {
        let missing = residency.objects().filter(|(_, object)| !object.is_ready());
        let missing: HashMap<u32, _> = missing.collect();
        assert_eq!(missing.len(), self.pending.len(), "objects that have not come, and reads of them");
        for (key, pending) in &self.pending {
            let Some(object) = missing.get(key) else { panic!("object {key} has come and is waited for") };
            let request = pending.request.and_then(|number| self.requests.get(&number));
            if object.is_queued() {
                let Some(request) = request else { panic!("object {key} is queued in no request") };
                assert!(request.objects.contains(key), "the request of object {key} is for others");
            }
        }
        for (number, request) in &self.requests {
            let queues = [&self.urgent, &self.ahead, &self.asking];
            let queued = queues.iter().any(|queue| queue.contains(number))
                || self.gates.as_ref().is_some_and(|gates| gates.holds(*number));
            assert!(
                queued || self.follows(*number) || request.origin.package().is_some(),
                "request {number} is in no queue"
            );
        }
    }
}
