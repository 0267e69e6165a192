//! The keys below a prefix, page after page, and on after a failure.
//!
//! A page can fail after its head has come, when no client would ask for it again. The listing then goes on behind
//! the last key it had, which is right as long as keys come in their order; where they do not (some stores
//! have none) a failure in the middle ends it.

use futures_util::StreamExt;
use hotset_core::Result;
use object_store::path::Path;
use object_store::{ListResult, ObjectMeta, ObjectStore};

use super::failure::{refuse, tell};
use crate::patience::Patience;

/// Hands every object below `prefix` to `take`, in the order of the store. `place` is for errors.
pub(super) async fn each(
    store: &dyn ObjectStore,
    prefix: Option<&Path>,
    place: &str,
    mut take: impl FnMut(&ObjectMeta) -> Result<()>,
) -> Result<()> {
    let mut patience = Patience::default();
    let mut last: Option<Path> = None;
    let mut in_order = true;
    loop {
        let mut found = match &last {
            None => store.list(prefix),
            Some(last) => store.list_with_offset(prefix, last),
        };
        let failure = loop {
            match found.next().await {
                None => return Ok(()),
                Some(Err(failure)) => break failure,
                Some(Ok(meta)) => {
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
pub(super) async fn top(store: &dyn ObjectStore, prefix: Option<&Path>, place: &str) -> Result<ListResult> {
    let mut patience = Patience::default();
    loop {
        let failure = match store.list_with_delimiter(prefix).await {
            Ok(found) => return Ok(found),
            Err(failure) => failure,
        };
        waited(&mut patience, place, &failure).await?;
    }
}

/// Waits before the next attempt, or says why there is none.
async fn waited(patience: &mut Patience, place: &str, failure: &object_store::Error) -> Result<()> {
    let told = tell(failure);
    match told.retriable().then(|| patience.pause(&told)).flatten() {
        Some(pause) => {
            tokio::time::sleep(pause).await;
            Ok(())
        }
        None => Err(refuse(place, failure)),
    }
}
