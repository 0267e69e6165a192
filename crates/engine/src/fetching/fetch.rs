//! One trip to storage, ready to be made without the lock.
//!
//! A fetch brings the bytes of its parts: samples that have room in the arena, or that packing asks for. A sample, and
//! several that lie side by side, come from the dataset's own objects and are checked by its store. A sample is taken out
//! of a package that was written only if its checksum is right.

use std::sync::Arc;

use hotset_core::contents::Hash;
use hotset_core::{Error, Id};
use hotset_store::ReadError;
use hotset_store::package::{Package, PackageStore};

use super::gates::host_of;
use super::{Cause, Origin, Payer, Question};
use crate::dataset::Dataset;
use crate::packing::PackingQueue;
use crate::residency::{ContentKey, Target};

/// Where a part's bytes go.
enum Into {
    Object(u32, Target),
    Packing(Vec<u8>),
}

/// One sample that a fetch brings.
pub(crate) struct Part {
    pub(super) id: Id,
    into: Into,
}

impl Part {
    pub(super) fn object(id: Id, object: u32, target: Target) -> Self {
        Self { id, into: Into::Object(object, target) }
    }

    fn packing(dataset: &Dataset, id: Id) -> Self {
        let bytes = vec![0; usize::try_from(dataset.size(id)).unwrap_or_default()];
        Self { id, into: Into::Packing(bytes) }
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        match &mut self.into {
            Into::Object(_, target) => target.bytes(),
            Into::Packing(bytes) => bytes,
        }
    }

    /// The object that it fills.
    pub(super) fn key(&self) -> Option<u32> {
        match self.into {
            Into::Object(object, _) => Some(object),
            Into::Packing(_) => None,
        }
    }

    /// The bytes that packing asked for.
    pub(super) fn into_packed(self) -> Vec<u8> {
        match self.into {
            Into::Object(..) => Vec::new(),
            Into::Packing(bytes) => bytes,
        }
    }
}

/// What packing reads, because it is not in memory.
pub(crate) struct PackingRead {
    pub(crate) job: u64,
    pub(crate) epoch: Option<u64>,
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) queue: Arc<PackingQueue>,
    pub(crate) wanted: Wanted,
}

/// See [`PackingRead`].
pub(crate) enum Wanted {
    /// A sample that was chosen to be read.
    Sample(Id),
    /// A sample that was to pass through memory and is gone.
    Lost(Id),
    /// A worn package, for these samples.
    Package(u32, Vec<Id>),
}

/// One trip to storage.
pub(crate) struct Fetch {
    pub(super) dataset: Arc<Dataset>,
    pub(super) origin: Source,
    pub(super) payer: Payer,
    pub(super) parts: Vec<Part>,
    /// Where what was asked for by packing goes.
    pub(super) packing: Option<Arc<PackingQueue>>,
}

/// Where a fetch finds its bytes.
pub(super) enum Source {
    /// In the dataset's own objects, between these samples.
    Samples(Id, Id),
    /// In the dataset's own objects, between these samples, as a package of so many.
    Run { first: Id, last: Id, samples: u32 },
    /// In a package that was written and holds so many samples.
    Package { number: u32, samples: u32, store: Arc<PackageStore> },
    /// At the node that owns them.
    Node(Question),
}

/// What an attempt brought.
pub(crate) struct Brought {
    /// For each part whether its bytes are there and right.
    pub(super) parts: Vec<bool>,
    /// The bytes that were read.
    pub(super) bytes: u64,
    /// Why the package is of no use, if it is not.
    pub(super) damage: Option<String>,
    pub(super) from: Giver,
    /// For each part the hash that its bytes were found to have; empty if none was looked at.
    pub(super) proofs: Vec<Option<Hash>>,
}

/// Who brought what a fetch asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Giver {
    Storage,
    /// A shared cache, and storage was not asked.
    Peer,
    /// The node that owns it.
    Node,
    /// Memory, where these contents lay: one for each part.
    Memory(Vec<ContentKey>),
}

impl Brought {
    /// All parts came, and so many bytes were read for them.
    pub(super) fn whole(parts: usize, bytes: u64, from: Giver) -> Self {
        Self { parts: vec![true; parts], bytes, damage: None, from, proofs: Vec::new() }
    }

    /// None of the parts came from another node.
    pub(super) fn nothing(parts: usize) -> Self {
        Self { parts: vec![false; parts], ..Self::whole(0, 0, Giver::Node) }
    }
}

impl Fetch {
    pub(super) fn new(dataset: Arc<Dataset>, origin: Origin, payer: Payer, parts: Vec<Part>) -> Self {
        let ends = |ids: &mut dyn Iterator<Item = Id>| {
            ids.fold(None, |ends: Option<(Id, Id)>, id| {
                Some(ends.map_or((id, id), |(first, last)| (first.min(id), last.max(id))))
            })
            .unwrap_or_default()
        };
        let origin = match origin {
            Origin::Store => {
                let (first, last) = ends(&mut parts.iter().map(|part| part.id));
                Source::Samples(first, last)
            }
            Origin::Run(number, packages) => {
                let (first, last) = ends(&mut packages.members(number).iter().copied());
                Source::Run { first, last, samples: packages.packed(number) }
            }
            Origin::Package(number, packages, store) => {
                // Dead copies are read too.
                Source::Package { number, samples: packages.packed(number), store }
            }
            Origin::Node(question) => Source::Node(question),
        };
        Self { dataset, origin, payer, parts, packing: None }
    }

    /// What packing asks for. What was chosen with a plan was counted then; what was lost is read as recovery.
    pub(super) fn for_packing(read: PackingRead) -> Self {
        let PackingRead { job, epoch, dataset, queue, wanted } = read;
        let cause = if matches!(wanted, Wanted::Lost(_)) { Cause::Recovery } else { Cause::Planned };
        let (origin, ids) = match wanted {
            Wanted::Sample(id) | Wanted::Lost(id) => (Source::Samples(id, id), vec![id]),
            Wanted::Package(number, ids) => {
                let store = Arc::clone(queue.store());
                (Source::Package { number, samples: ids.len() as u32, store }, ids)
            }
        };
        let parts = ids.into_iter().map(|id| Part::packing(&dataset, id)).collect();
        Self { dataset, origin, payer: Payer { job, epoch, cause }, parts, packing: Some(queue) }
    }

    /// One attempt.
    pub(super) fn attempt(&mut self) -> Result<Brought, ReadError> {
        let (catalog, store) = (&self.dataset.catalog, &*self.dataset.store);
        let whole = |bytes, parts: &[Part]| Brought::whole(parts.len(), bytes, Giver::Storage);
        match &self.origin {
            Source::Samples(id, last) if id == last => {
                let Some(part) = self.parts.first_mut() else { return Ok(whole(0, &[])) };
                catalog.with_location(*id, |location| store.read(location, part.bytes()))?;
                Ok(whole(catalog.size(*id), &self.parts))
            }
            Source::Samples(first, last) | Source::Run { first, last, .. } => {
                let targets = self.parts.iter_mut().map(|part| (part.id, part.bytes()));
                let bytes = catalog.read_together(store, (*first, *last), targets)?;
                Ok(whole(bytes, &self.parts))
            }
            Source::Package { number, store, .. } => {
                let mut bytes = Vec::new();
                store.read(*number, &mut bytes)?;
                Ok(take_out(&bytes, &self.dataset.name, *number, &mut self.parts))
            }
            Source::Node(question) => Ok(question.ask(&mut self.parts)),
        }
    }

    /// The host whose limit it counts for; `None` for what packing reads and what other nodes are asked.
    pub(super) fn gated_host(&self) -> Option<&str> {
        match &self.origin {
            _ if self.packing.is_some() => None,
            Source::Samples(..) | Source::Run { .. } => Some(host_of(&self.dataset.place)),
            Source::Package { store, .. } => Some(host_of(store.place())),
            Source::Node(_) => None,
        }
    }

    /// The bytes that it asks of the dataset's own objects; `None` where it reads a package or asks another node.
    pub(super) fn extent(&self) -> Option<u64> {
        match self.origin {
            Source::Samples(first, last) if first == last => Some(self.dataset.size(first)),
            Source::Samples(first, last) | Source::Run { first, last, .. } => {
                Some(self.dataset.catalog.extent(first, last))
            }
            Source::Package { .. } | Source::Node(_) => None,
        }
    }

    /// The objects that wait for it.
    pub(super) fn objects(&self) -> Vec<u32> {
        self.parts.iter().filter_map(Part::key).collect()
    }

    /// A number that tells it from others, for pauses.
    pub(super) fn number(&self) -> u32 {
        match &self.origin {
            Source::Samples(first, _) | Source::Run { first, .. } => *first,
            Source::Package { number, .. } => *number,
            Source::Node(_) => self.parts.first().map_or(0, |part| part.id),
        }
    }

    /// Why the package is of no use any more, after an error. One that the store does not give now is used again in
    /// another epoch.
    pub(super) fn damage(&self, error: &ReadError) -> Option<String> {
        let Source::Package { number, .. } = self.origin else { return None };
        let spoilt = matches!(
            error,
            ReadError::Vanished | ReadError::Resized { .. } | ReadError::Short { .. } | ReadError::Modified
        );
        if !spoilt {
            tracing::warn!(package = number, %error, "a package cannot be read: its samples are read alone");
        }
        spoilt.then(|| error.to_string())
    }
}

/// Takes samples out of a package that was written.
fn take_out(bytes: &[u8], identity: &str, number: u32, parts: &mut [Part]) -> Brought {
    let mut brought = Brought::whole(parts.len(), bytes.len() as u64, Giver::Storage);
    brought.parts.fill(false);
    let package = match Package::parse(bytes, identity, number) {
        Ok(package) => package,
        Err(damage) => return Brought { damage: Some(damage.to_string()), ..brought },
    };
    for (part, whole) in parts.iter_mut().zip(&mut brought.parts) {
        let (id, into) = (part.id, part.bytes());
        let damage = match package.sample(id) {
            Some(Ok(sample)) if sample.len() == into.len() => {
                into.copy_from_slice(sample);
                None
            }
            Some(Ok(_)) => Some(Error::internal("a sample has another length").message),
            Some(Err(damage)) => Some(damage.to_string()),
            None => Some(format!("it does not hold sample {id}")),
        };
        *whole = damage.is_none();
        brought.damage = brought.damage.or(damage);
    }
    brought
}
