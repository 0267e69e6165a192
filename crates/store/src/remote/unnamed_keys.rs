//! The listing of a place that holds keys which no path can name, such as `a//b` or `a/./b`.
//!
//! Stores take such keys, and the client fails on a whole page that has one. So pages are made smaller until the
//! key is alone on its own, and the listing goes on behind it: behind all keys with the same wrong part, which
//! would fail likewise. The rest of the page, and of the place, is listed as usual.

use std::borrow::Cow;

use hotset_core::Result;
use object_store::list::PaginatedListOptions;
use object_store::path::{Error as PathError, PathPart};
use object_store::{Error as Failure, ListResult, ObjectMeta};

use super::failure::refuse;
use super::pages::Place;
use crate::contained::Contained;
use crate::left_out::LeftOut;
use crate::retries::Retries;

/// Keys of a page, as stores have them.
const MOST: usize = 1_000;

/// The key that made a listing fail because no path can name it.
pub(super) fn unnamed_key(failure: &Failure) -> Option<&str> {
    match failure {
        Failure::InvalidPath {
            source: PathError::EmptySegment { path } | PathError::BadSegment { path, .. },
        } => Some(path),
        _ => None,
    }
}

/// Hands the pages of `place` behind the key `after` to `take`; `grouped` as folders have it, by the next `/`.
/// `failure` is what the usual listing ended with, and this one too where it gets no further.
pub(super) async fn list_past_unnamed(
    place: &Place<'_>,
    grouped: bool,
    mut after: Option<String>,
    failure: &Failure,
    mut retries: Retries,
    unnamed: &mut LeftOut,
    mut take: impl FnMut(ListResult) -> Result<()>,
) -> Result<()> {
    let stuck = || refuse(place.shown, failure);
    let Some(pages) = &place.client.pages else { return Err(stuck()) };
    let prefix = place.prefix.map(|prefix| format!("{prefix}/"));
    let delimiter = grouped.then_some(Cow::Borrowed("/"));
    let (mut most, mut token, mut skipped) = (MOST, None, false);
    loop {
        let options = PaginatedListOptions {
            offset: after.clone(),
            delimiter: delimiter.clone(),
            max_keys: Some(most),
            page_token: token.take(),
            ..PaginatedListOptions::default()
        };
        let page = Contained(pages.list_paginated(prefix.as_deref(), options)).await;
        // Some stores do not know `after`, or have no order: they would be asked for the same for ever.
        let forward = |next: &String| after.as_ref().is_none_or(|after| after < next);
        match page.ok_or_else(|| place.gave_up())? {
            Ok(mut page) => {
                // One that gives longer pages than it was asked for had others beside the key that was passed over.
                if skipped && page.result.objects.len() + page.result.common_prefixes.len() > most {
                    return Err(stuck());
                }
                // An object `a/` that stands for a folder is told as `a`, which comes before `a-`.
                let before = |object: &ObjectMeta| after.as_deref() >= Some(object.location.as_ref());
                let folders = page.result.objects.iter().filter(|object| before(object));
                let folder = folders.map(|object| format!("{}/", object.location)).max();
                page.result.objects.retain(|object| !before(object));
                let end = end_of(&page.result).max(folder);
                if !end.iter().all(forward) {
                    return Err(stuck());
                }
                retries.restore();
                take(page.result)?;
                let Some(next) = page.page_token else { return Ok(()) };
                match end {
                    Some(end) => after = Some(end),
                    None => token = Some(next),
                }
                most = (2 * most).min(MOST);
            }
            Err(failure) => match unnamed_key(&failure) {
                Some(_) if most > 1 => most /= 2,
                Some(key) => {
                    let next = behind(key);
                    if !forward(&next) {
                        return Err(stuck());
                    }
                    unnamed.add(key);
                    skipped = true;
                    after = Some(next);
                }
                None => place.waited(&mut retries, &failure).await?,
            },
        }
    }
}

/// Behind which key the next page begins.
fn end_of(page: &ListResult) -> Option<String> {
    let objects = page.objects.iter().map(|object| object.location.to_string());
    objects.chain(page.common_prefixes.iter().map(|prefix| all_below(&format!("{prefix}/")))).max()
}

/// Behind which key none comes that has the same wrong part as `key`.
fn behind(key: &str) -> String {
    let mut end = 0;
    for part in key.split_inclusive('/') {
        end += part.len();
        let name = part.strip_suffix('/').unwrap_or(part);
        if name.len() < part.len() && (name.is_empty() || PathPart::parse(name).is_err()) {
            return all_below(&key[..end]);
        }
    }
    key.to_owned()
}

/// What comes behind all keys that begin with `prefix`.
fn all_below(prefix: &str) -> String {
    format!("{prefix}{}", char::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_goes_on_behind_all_keys_with_the_same_wrong_part() {
        let last = char::MAX;
        for (key, expected) in [
            ("train/a//b/c", format!("train/a//{last}")),
            ("train//", format!("train//{last}")),
            ("train/./b", format!("train/./{last}")),
            ("train/a/..", "train/a/..".to_owned()),
            ("train/a\nb", "train/a\nb".to_owned()),
        ] {
            assert_eq!(behind(key), expected);
        }
    }
}
