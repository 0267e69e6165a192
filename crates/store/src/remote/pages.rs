//! The keys below a prefix, page after page, and on after a failure.
//!
//! A page can fail after its head has come, when no client would ask for it again. The listing then goes on behind
//! the last key it had, which is right as long as keys come in their order; where they do not (some stores
//! have none) a failure in the middle ends it.

use futures_util::StreamExt;
use hotset_core::{Error, Result};
use object_store::path::Path;
use object_store::{ListResult, ObjectMeta, ObjectStore};

use super::address::check_length;
use super::failure::{GAVE_UP, refuse, tell};
use crate::contained::Contained;
use crate::patience::Patience;

/// Hands every object below `prefix` to `take`, in the order of the store. `place` is for errors.
pub(super) async fn each(
    store: &dyn ObjectStore,
    prefix: Option<&Path>,
    place: &str,
    mut patience: Patience,
    mut take: impl FnMut(&ObjectMeta) -> Result<()>,
) -> Result<()> {
    let mut last: Option<Path> = None;
    let mut in_order = true;
    loop {
        let mut found = match &last {
            None => store.list(prefix),
            Some(last) => store.list_with_offset(prefix, last),
        };
        let failure = loop {
            match Contained(found.next()).await.ok_or_else(|| gave_up(place))? {
                None => return Ok(()),
                Some(Err(failure)) => break failure,
                Some(Ok(meta)) => {
                    short(&meta.location, place)?;
                    take(&meta)?;
                    in_order &= last.as_ref().is_none_or(|last| *last < meta.location);
                    last = Some(meta.location);
                    patience.restore();
                }
            }
        };
        if !in_order {
            return Err(refuse(place, &failure));
        }
        waited(&mut patience, place, &failure).await?;
    }
}

/// What lies directly below `prefix`.
pub(super) async fn top(
    store: &dyn ObjectStore,
    prefix: Option<&Path>,
    place: &str,
    mut patience: Patience,
) -> Result<ListResult> {
    loop {
        let found = Contained(store.list_with_delimiter(prefix)).await.ok_or_else(|| gave_up(place))?;
        let failure = match found {
            Ok(found) => {
                found.common_prefixes.iter().try_for_each(|prefix| short(prefix, place))?;
                return Ok(found);
            }
            Err(failure) => failure,
        };
        waited(&mut patience, place, &failure).await?;
    }
}

/// Refuses a key that no request could hold.
fn short(key: &Path, place: &str) -> Result<()> {
    check_length(key.as_ref()).map_err(|why| Error::invalid(format!("in `{place}` the key {why}; remove it")))
}

fn gave_up(place: &str) -> Error {
    Error::invalid(format!("`{place}` could not be listed: {GAVE_UP}"))
}

/// Waits before the next attempt, or says why there is none.
async fn waited(patience: &mut Patience, place: &str, failure: &object_store::Error) -> Result<()> {
    let told = tell(failure);
    match told.retriable().then(|| patience.pause_after(&told)).flatten() {
        Some(pause) => {
            tokio::time::sleep(pause).await;
            Ok(())
        }
        None => Err(refuse(place, failure)),
    }
}
