use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::layout::Layout;
use crate::open::{Opened, Request, open};

fn opened(place: &Path, layout: Layout, options: &[(&str, &str)]) -> Opened {
    let storage_options: BTreeMap<String, String> =
        options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let request = Request {
        place: place.to_str().unwrap().to_owned(),
        layout,
        extensions: Vec::new(),
        label: String::new(),
        root: String::new(),
        storage_options,
    };
    open(&request, None, &mut |_| Ok(())).unwrap()
}

fn tree(count: usize) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    for number in 0..count {
        // Every tenth is equal to the one before it.
        let content = if number % 10 == 9 { number - 1 } else { number };
        fs::write(place.path().join(format!("{number:03}")), format!("sample {content}")).unwrap();
    }
    place
}

#[test]
fn every_sample_has_the_hash_of_its_bytes_and_is_hashed_once() {
    let (place, kept) = (tree(40), tempfile::tempdir().unwrap());
    let opened = opened(place.path(), Layout::Files, &[]);
    let mut digest = Digest::open(kept.path(), &opened.place);
    let mut heard = 0;
    let outcome = super::digest(&opened, &mut digest, &mut |count| {
        heard += count;
        Ok(())
    })
    .unwrap();
    assert_eq!((outcome.hashed, outcome.known, outcome.failed.len(), heard), (40, 0, 0, 40));
    let mode = fs::metadata(digest.file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let mut again = Digest::open(kept.path(), &opened.place);
    let hashes = again.of(&opened.catalog).unwrap();
    for id in 0..40 {
        let bytes = fs::read(place.path().join(format!("{id:03}"))).unwrap();
        assert_eq!(hashes.get(id), Some(blake3::hash(&bytes).as_bytes()));
    }
    assert_eq!(hashes.get(8), hashes.get(9), "equal bytes have one hash");
    assert_eq!(super::digest(&opened, &mut again, &mut |_| Ok(())).unwrap().known, 40);
}

#[test]
fn the_hash_of_a_file_that_was_written_since_is_not_used() {
    let (place, kept) = (tree(3), tempfile::tempdir().unwrap());
    let before = opened(place.path(), Layout::Files, &[]);
    let mut digest = Digest::open(kept.path(), &before.place);
    super::digest(&before, &mut digest, &mut |_| Ok(())).unwrap();
    fs::remove_file(place.path().join("001")).unwrap();
    fs::write(place.path().join("001"), "sample X").unwrap();
    let after = opened(place.path(), Layout::Files, &[]);
    let hashes = digest.of(&after.catalog).unwrap();
    assert_eq!([0, 1, 2].map(|id| hashes.get(id).is_some()), [true, false, true]);
    let outcome = super::digest(&after, &mut digest, &mut |_| Ok(())).unwrap();
    assert_eq!((outcome.hashed, outcome.known), (1, 2));
    assert_eq!(Digest::open(kept.path(), &after.place).hashes.len(), 3, "what it was before is forgotten");
    assert!(digest.of(&before.catalog).unwrap().get(1).is_none());
    // What another listing of the place has is not known to be old.
    fs::write(place.path().join("003"), "one more").unwrap();
    let larger = opened(place.path(), Layout::Files, &[]);
    super::digest(&larger, &mut digest, &mut |_| Ok(())).unwrap();
    super::digest(&after, &mut digest, &mut |_| Ok(())).unwrap();
    assert_eq!(digest.of(&larger.catalog).unwrap().known(), 4);
}

#[test]
fn what_was_done_before_it_was_broken_off_is_not_done_again() {
    let (place, kept) = (tree(400), tempfile::tempdir().unwrap());
    let opened = opened(place.path(), Layout::Files, &[]);
    let mut digest = Digest::open(kept.path(), &opened.place);
    let mut done = 0;
    let ended = super::digest(&opened, &mut digest, &mut |count| {
        done += count;
        if done >= 100 { Err(Error::unavailable("interrupted")) } else { Ok(()) }
    });
    assert_eq!(ended.unwrap_err().message, "interrupted");
    let mut digest = Digest::open(kept.path(), &opened.place);
    let outcome = super::digest(&opened, &mut digest, &mut |_| Ok(())).unwrap();
    assert_eq!((outcome.known, outcome.hashed), (100, 300));
}

#[test]
fn a_sample_that_cannot_be_read_is_named_and_the_others_are_hashed() {
    let (place, kept) = (tree(20), tempfile::tempdir().unwrap());
    let opened = opened(place.path(), Layout::Files, &[]);
    fs::remove_file(place.path().join("007")).unwrap();
    let mut digest = Digest::open(kept.path(), &opened.place);
    let outcome = super::digest(&opened, &mut digest, &mut |_| Ok(())).unwrap();
    assert_eq!(outcome.hashed, 19);
    assert_eq!(outcome.failed[0].key, "007");
    assert!(outcome.failed[0].why.contains("gone"), "{}", outcome.failed[0].why);
}

#[test]
fn a_store_that_fails_now_and_then_is_asked_again() {
    let (place, kept) = (tree(50), tempfile::tempdir().unwrap());
    let opened = opened(place.path(), Layout::Files, &[("fault.rate", "0.3"), ("fault.seed", "5")]);
    let mut digest = Digest::open(kept.path(), &opened.place);
    let outcome = super::digest(&opened, &mut digest, &mut |_| Ok(())).unwrap();
    assert_eq!((outcome.hashed, outcome.failed.len()), (50, 0));
}

#[test]
fn a_file_that_is_not_whole_is_not_used() {
    let (place, kept) = (tree(3), tempfile::tempdir().unwrap());
    let opened = opened(place.path(), Layout::Files, &[]);
    let mut digest = Digest::open(kept.path(), &opened.place);
    super::digest(&opened, &mut digest, &mut |_| Ok(())).unwrap();
    let whole = fs::read(digest.file()).unwrap();
    for length in (0..whole.len()).step_by(7) {
        fs::write(digest.file(), &whole[..length]).unwrap();
        assert!(Digest::open(kept.path(), &opened.place).of(&opened.catalog).is_none(), "{length}");
    }
    for place in (0..whole.len()).step_by(11) {
        let mut changed = whole.clone();
        changed[place] ^= 1;
        assert!(decode(&changed, &opened.place).is_err(), "{place}");
    }
    assert!(decode(&whole, "elsewhere").is_err(), "it is of another place");
}
