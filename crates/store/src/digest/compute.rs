//! Hashing what is not hashed yet.

use std::time::{Duration, Instant};

use hotset_core::{Error, Id, Result};

use super::{Digest, Hash, name};
use crate::catalog::Catalog;
use crate::open::Opened;
use crate::parallel::{Wanted, in_parallel};
use crate::retries::Retries;
use crate::store::{ReadError, Store};

/// The most bytes of samples that lie side by side and are read together.
const TOGETHER: u64 = 4 << 20;
/// How often what is known is written down, so that little is lost when the work is broken off.
const SAVED: Duration = Duration::from_secs(10);

/// What became of the samples of a dataset.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Samples that were hashed now.
    pub hashed: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Samples whose hash was known.
    pub known: u64,
    /// Samples without a hash, because their store tells no versions.
    pub unversioned: u64,
    /// Samples that could not be read.
    pub failed: Vec<Failed>,
}

/// A sample that could not be read.
#[derive(Debug)]
pub struct Failed {
    /// Its key.
    pub key: String,
    /// Why.
    pub why: String,
}

/// Hashes the samples of a dataset that `into` does not know, many at a time, and keeps what it finds there. `progress`
/// hears of every sample that is done with; its error ends the work, and what was done is kept.
pub fn digest(
    opened: &Opened,
    into: &mut Digest,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Outcome> {
    let (catalog, store) = (&*opened.catalog, &*opened.store);
    let mut outcome = Outcome::default();
    let mut wanted = Vec::new();
    for id in 0..catalog.len() as Id {
        match name(catalog, id) {
            None => outcome.unversioned += 1,
            Some(name) if into.hashes.contains_key(&name) => outcome.known += 1,
            Some(_) => wanted.push(id),
        }
    }
    progress(outcome.known + outcome.unversioned)?;
    let groups = together(catalog, &wanted);
    let mut saved = Instant::now();
    let ended = in_parallel(
        groups.len(),
        &|number, wanted| hash_all(catalog, store, groups[number], wanted),
        |_, hashes| {
            let count = hashes.len() as u64;
            for (id, hash) in hashes {
                match (hash, name(catalog, id)) {
                    (Ok(hash), Some(name)) => {
                        into.hashes.insert(name, hash);
                        outcome.hashed += 1;
                        outcome.bytes += catalog.size(id);
                    }
                    (Err(why), _) => outcome.failed.push(Failed { key: catalog.key(id), why }),
                    (Ok(_), None) => {}
                }
            }
            if saved.elapsed() >= SAVED {
                into.save()?;
                saved = Instant::now();
            }
            progress(count)
        },
        &mut || Ok(()),
    );
    into.forget_old(catalog);
    into.save()?;
    ended.map(|()| outcome)
}

/// Cuts `ids` into runs of neighbours that one read brings.
fn together<'a>(catalog: &Catalog, ids: &'a [Id]) -> Vec<&'a [Id]> {
    let mut groups = Vec::new();
    let mut begin = 0;
    for next in 1..=ids.len() {
        let goes_on = ids.get(next).is_some_and(|&id| {
            let before = ids[next - 1];
            before + 1 == id
                && catalog.gap_after(before).is_some()
                && catalog.extent(ids[begin], id) <= TOGETHER
        });
        if !goes_on {
            groups.push(&ids[begin..next]);
            begin = next;
        }
    }
    groups
}

type Hashed = Vec<(Id, std::result::Result<Hash, String>)>;

/// Hashes neighbours, read together or, where that fails, one by one.
fn hash_all(catalog: &Catalog, store: &dyn Store, ids: &[Id], wanted: &Wanted) -> Result<Hashed> {
    match read(catalog, store, ids, wanted)? {
        Ok(samples) => {
            let hash = |bytes: &Vec<u8>| *blake3::hash(bytes).as_bytes();
            Ok(ids.iter().zip(&samples).map(|(&id, bytes)| (id, Ok(hash(bytes)))).collect())
        }
        Err(error) => match ids {
            [id] => Ok(vec![(*id, Err(error.to_string()))]),
            ids => {
                let alone = ids.iter().map(|id| hash_all(catalog, store, std::slice::from_ref(id), wanted));
                Ok(alone.collect::<Result<Vec<_>>>()?.concat())
            }
        },
    }
}

/// The bytes of neighbours. The outer error says that they are no longer wanted.
fn read(
    catalog: &Catalog,
    store: &dyn Store,
    ids: &[Id],
    wanted: &Wanted,
) -> Result<std::result::Result<Vec<Vec<u8>>, ReadError>> {
    let (Some(&first), Some(&last)) = (ids.first(), ids.last()) else { return Ok(Ok(Vec::new())) };
    let length = |id| usize::try_from(catalog.size(id)).map_err(|_| Error::internal("a sample too large"));
    let mut samples: Vec<Vec<u8>> = ids.iter().map(|&id| Ok(vec![0; length(id)?])).collect::<Result<_>>()?;
    let mut retries = Retries::default();
    loop {
        wanted.check()?;
        let done = match &mut samples[..] {
            [one] => catalog.with_location(first, |at| store.read(at, one)),
            many => {
                let targets = ids.iter().copied().zip(many.iter_mut().map(Vec::as_mut_slice));
                catalog.read_together(store, (first, last), targets).map(drop)
            }
        };
        match done {
            Err(error) if error.retriable() => match retries.pause(&error) {
                Some(pause) => std::thread::sleep(pause),
                None => return Ok(Err(error)),
            },
            done => return Ok(done.map(|()| samples)),
        }
    }
}
