//! The keys below a prefix, page after page, and on after a failure.
//!
//! A page can fail after its head has come, when no client would ask for it again. The listing then goes on behind
//! the last key it had, which is right as long as keys come in their order; where they do not (some stores
//! have none) a failure in the middle ends it. A page with a key that no path can name fails as well: the rest is
//! then listed around such keys (`around`).

use futures_util::StreamExt;
use hotset_core::{Error, Result};
use object_store::path::Path;
use object_store::{ListResult, ObjectMeta};

use super::address::check_length;
use super::connect::Client;
use super::failure::{GAVE_UP, refuse, tell};
use super::unnamed_keys::{list_past_unnamed, unnamed_key};
use crate::contained::Contained;
use crate::left_out::LeftOut;
use crate::retries::Retries;

/// What is listed.
pub(super) struct Place<'a> {
    pub(super) client: &'a Client,
    pub(super) prefix: Option<&'a Path>,
    /// For errors.
    pub(super) shown: &'a str,
}

/// Hands every object of `place` to `take`, in the order of the store.
pub(super) async fn each(
    place: &Place<'_>,
    mut retries: Retries,
    unnamed: &mut LeftOut,
    mut take: impl FnMut(&ObjectMeta) -> Result<()>,
) -> Result<()> {
    let store = &place.client.objects;
    let mut take = |meta: &ObjectMeta| {
        place.short(&meta.location)?;
        take(meta)
    };
    let mut last: Option<Path> = None;
    let mut in_order = true;
    loop {
        let mut found = match &last {
            None => store.list(place.prefix),
            Some(last) => store.list_with_offset(place.prefix, last),
        };
        let failure = loop {
            match Contained(found.next()).await.ok_or_else(|| place.gave_up())? {
                None => return Ok(()),
                Some(Err(failure)) => break failure,
                Some(Ok(meta)) => {
                    take(&meta)?;
                    in_order &= last.as_ref().is_none_or(|last| *last < meta.location);
                    last = Some(meta.location);
                    retries.restore();
                }
            }
        };
        if !in_order {
            return Err(refuse(place.shown, &failure));
        }
        if unnamed_key(&failure).is_some() {
            let after = last.map(String::from);
            let take = |page: ListResult| page.objects.iter().try_for_each(&mut take);
            return list_past_unnamed(place, false, after, &failure, retries, unnamed, take).await;
        }
        place.waited(&mut retries, &failure).await?;
    }
}

/// What lies directly below `place`.
pub(super) async fn top(
    place: &Place<'_>,
    mut retries: Retries,
    unnamed: &mut LeftOut,
) -> Result<ListResult> {
    let found = loop {
        let found = Contained(place.client.objects.list_with_delimiter(place.prefix)).await;
        match found.ok_or_else(|| place.gave_up())? {
            Ok(found) => break found,
            Err(failure) if unnamed_key(&failure).is_some() => {
                let mut whole = ListResult {
                    common_prefixes: Vec::new(),
                    objects: Vec::new(),
                    extensions: Default::default(),
                };
                let take = |page: ListResult| {
                    whole.common_prefixes.extend(page.common_prefixes);
                    whole.objects.extend(page.objects);
                    Ok(())
                };
                list_past_unnamed(place, true, None, &failure, retries, unnamed, take).await?;
                break whole;
            }
            Err(failure) => place.waited(&mut retries, &failure).await?,
        }
    };
    found.common_prefixes.iter().try_for_each(|prefix| place.short(prefix))?;
    Ok(found)
}

impl Place<'_> {
    /// Refuses a key that no request could hold.
    fn short(&self, key: &Path) -> Result<()> {
        check_length(key.as_ref())
            .map_err(|why| Error::invalid(format!("in `{}` the key {why}; remove it", self.shown)))
    }

    pub(super) fn gave_up(&self) -> Error {
        Error::invalid(format!("`{}` could not be listed: {GAVE_UP}", self.shown))
    }

    /// Waits before the next attempt, or says why there is none.
    pub(super) async fn waited(&self, retries: &mut Retries, failure: &object_store::Error) -> Result<()> {
        let told = tell(failure);
        match told.retriable().then(|| retries.pause_after(&told)).flatten() {
            Some(pause) => {
                tokio::time::sleep(pause).await;
                Ok(())
            }
            None => Err(refuse(self.shown, failure)),
        }
    }
}
