//! The datasets that clients have opened.
//!
//! A dataset is what never changes of it: its name, its catalog, its store. Jobs and reads share it. It is known here
//! while a client has it open, a job trains it, or bytes of it are in memory.

use std::collections::HashSet;
use std::sync::Arc;

use hotset_core::{Error, Id, Kind, Result};
use hotset_store::digest::Hashes;
use hotset_store::{Catalog, Opened, Store};
use slab::Slab;

/// One dataset.
pub(crate) struct Dataset {
    /// Its number among those that are open.
    pub(crate) key: u32,
    pub(crate) name: String,
    pub(crate) place: String,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) store: Arc<dyn Store>,
    /// The hashes of its samples, where they are known.
    pub(crate) hashes: Option<Arc<Hashes>>,
}

impl Dataset {
    /// A sample's bytes.
    pub(crate) fn size(&self, id: Id) -> u64 {
        self.catalog.size(id)
    }

    /// How many samples it has.
    pub(crate) fn samples(&self) -> usize {
        self.catalog.len()
    }
}

struct Open {
    dataset: Arc<Dataset>,
    clients: HashSet<u64>,
}

/// The datasets that are open.
#[derive(Default)]
pub(crate) struct Datasets {
    open: Slab<Open>,
}

impl Datasets {
    /// Opens a dataset for a client.
    pub(crate) fn open(&mut self, opened: &Opened, client: u64) {
        if self.join(&opened.identity, client).is_some() {
            return;
        }
        let entry = self.open.vacant_entry();
        let dataset = Arc::new(Dataset {
            key: entry.key() as u32,
            name: opened.identity.clone(),
            place: opened.place.clone(),
            catalog: Arc::clone(&opened.catalog),
            store: Arc::clone(&opened.store),
            hashes: opened.hashes.clone(),
        });
        entry.insert(Open { dataset, clients: HashSet::from([client]) });
    }

    /// Opens a dataset for another client, if it is known here.
    pub(crate) fn join(&mut self, name: &str, client: u64) -> Option<Arc<Dataset>> {
        let (_, open) = self.open.iter_mut().find(|(_, open)| open.dataset.name == name)?;
        open.clients.insert(client);
        Some(Arc::clone(&open.dataset))
    }

    /// The dataset of this name.
    pub(crate) fn named(&self, name: &str) -> Result<&Arc<Dataset>> {
        let found = self.open.iter().find(|(_, open)| open.dataset.name == name);
        found
            .map(|(_, open)| &open.dataset)
            .ok_or_else(|| Error::new(Kind::Lost, format!("this server has not opened dataset `{name}`")))
    }

    /// A client has gone.
    pub(crate) fn leave(&mut self, client: u64) {
        for (_, open) in &mut self.open {
            open.clients.remove(&client);
        }
    }

    /// Forgets the datasets that no client has open and that are not `used` otherwise; which they were.
    pub(crate) fn forget_unused(&mut self, used: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut gone = Vec::new();
        self.open.retain(|key, open| {
            let stays = !open.clients.is_empty() || used(key as u32);
            if !stays {
                gone.push(key as u32);
            }
            stays
        });
        gone
    }
}
