//! The version of an object, in 32 bits.
//!
//! A hash of its ETag, or, where a store has none (plain web servers), of the time it was written. The lowest
//! bit says which, so that a listing and an answer that know different things are not compared.

use object_store::ObjectMeta;

use crate::store::UNKNOWN;

/// The lowest bit of a version that is a time.
const TIME: u32 = 1;

/// The version that a listing or an answer gives; unknown if it says nothing.
pub(crate) fn version(meta: &ObjectMeta) -> u32 {
    match (&meta.e_tag, meta.last_modified.timestamp()) {
        (Some(tag), _) => of_tag(tag),
        (None, 0) => UNKNOWN,
        (None, seconds) => of_time(seconds),
    }
}

/// Whether an answer is the version that was listed.
pub(crate) fn same(listed: u32, now: &ObjectMeta) -> bool {
    if listed == UNKNOWN {
        return true;
    }
    let found = if listed & TIME == 0 {
        now.e_tag.as_deref().map_or(UNKNOWN, of_tag)
    } else {
        match now.last_modified.timestamp() {
            0 => UNKNOWN,
            seconds => of_time(seconds),
        }
    };
    found == listed
}

/// Some stores quote tags in one answer and not in another, and call them weak when they compress.
fn of_tag(tag: &str) -> u32 {
    hash(tag.trim().trim_start_matches("W/").trim_matches('"').as_bytes()) & !TIME
}

fn of_time(seconds: i64) -> u32 {
    hash(&seconds.to_le_bytes()) | TIME
}

/// Never 0 or 1, so that a version of either kind is known.
fn hash(bytes: &[u8]) -> u32 {
    let digest = blake3::hash(bytes);
    let word = digest.as_bytes().first_chunk::<4>().copied().map_or(0, u32::from_le_bytes);
    word.max(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(tag: Option<&str>, seconds: i64) -> ObjectMeta {
        ObjectMeta {
            location: "a".into(),
            last_modified: std::time::SystemTime::UNIX_EPOCH
                .checked_add(std::time::Duration::from_secs(seconds as u64))
                .unwrap()
                .into(),
            size: 0,
            e_tag: tag.map(str::to_owned),
            version: None,
        }
    }

    #[test]
    fn a_tag_is_the_same_however_it_is_quoted() {
        let listed = version(&meta(Some("0x8D"), 7));
        for tag in ["\"0x8D\"", "0x8D", "W/\"0x8D\""] {
            assert!(same(listed, &meta(Some(tag), 9)));
        }
        assert!(!same(listed, &meta(Some("\"0x8E\""), 7)));
        assert!(!same(listed, &meta(None, 7)), "an answer without the tag that was listed is not trusted");
    }

    #[test]
    fn without_a_tag_the_time_counts_and_without_both_anything_goes() {
        let listed = version(&meta(None, 7));
        assert!(same(listed, &meta(None, 7)) && same(listed, &meta(Some("x"), 7)));
        assert!(!same(listed, &meta(None, 8)));
        assert_eq!(version(&meta(None, 0)), UNKNOWN);
        assert!(same(UNKNOWN, &meta(Some("x"), 1)));
    }
}
