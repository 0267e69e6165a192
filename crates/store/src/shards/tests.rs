//! Shards are indexed, kept and read as what was put into them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::tar::tests::member;
use crate::catalog::ABSENT;
use crate::{Layout, Opened, ReadError, Request, open};

/// A shard of samples `from..to`, each a `jpg`, a `cls` and a `json`.
fn shard(from: usize, to: usize) -> Vec<u8> {
    let sample = |number: usize| {
        [
            member(&format!("s{number:04}.jpg"), b'0', &content(number)),
            member(&format!("s{number:04}.cls"), b'0', format!("{}\n", number % 3).as_bytes()),
            member(
                &format!("s{number:04}.json"),
                b'0',
                format!("{{\"of\": {{\"name\": \"n{}\"}}}}", number % 2).as_bytes(),
            ),
        ]
        .concat()
    };
    [(from..to).flat_map(sample).collect(), vec![0; 1024]].concat()
}

fn content(number: usize) -> Vec<u8> {
    (0..number * 997).map(|byte| (byte * 31 + number) as u8).collect()
}

/// Three shards of five samples each.
fn dataset() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for number in 0..3 {
        fs::write(root.path().join(format!("t-{number:02}.tar")), shard(number * 5, number * 5 + 5)).unwrap();
    }
    root
}

fn request(root: &Path, pattern: &str, parts: &[&str], label: &str) -> Request {
    Request {
        place: root.join(pattern).display().to_string(),
        layout: Layout::Shards,
        extensions: parts.iter().map(|part| part.to_string()).collect(),
        label: label.into(),
        root: String::new(),
        storage_options: BTreeMap::new(),
    }
}

fn opened(root: &Path, pattern: &str, parts: &[&str], label: &str) -> Opened {
    open(&request(root, pattern, parts, label), None, &mut |_| Ok(())).unwrap()
}

fn read(opened: &Opened, id: u32) -> Result<Vec<u8>, ReadError> {
    let mut bytes = vec![0; opened.catalog.size(id) as usize];
    opened.catalog.with_location(id, |at| opened.store.read(at, &mut bytes)).map(|()| bytes)
}

#[test]
fn a_link_that_would_be_a_part_is_refused_by_name_and_any_other_is_passed_over() {
    let root = tempfile::tempdir().unwrap();
    for kind in [b'1', b'2'] {
        let linked = [member("t0001.jpg", kind, b""), member("t0001.cls", b'0', b"1")].concat();
        let shard = [shard(0, 2)[..shard(0, 2).len() - 1024].to_vec(), linked, vec![0; 1024]].concat();
        fs::write(root.path().join("t.tar"), shard).unwrap();
        let error =
            open(&request(root.path(), "t.tar", &["jpg"], "cls"), None, &mut |_| Ok(())).err().unwrap();
        for said in ["`t0001.jpg`", "`t.tar`", "is a link", "--hard-dereference"] {
            assert!(error.message.contains(said), "{}", error.message);
        }
    }
    let beside = [member("latest.txt", b'2', b""), shard(0, 2)].concat();
    fs::write(root.path().join("t.tar"), beside).unwrap();
    assert_eq!(opened(root.path(), "t.tar", &["jpg"], "cls").catalog.len(), 2);
}

#[test]
fn one_part_is_exactly_its_member_and_labels_are_those_of_cls() {
    let root = dataset();
    for pattern in ["t-{00..02}.tar", ""] {
        let opened = opened(root.path(), pattern, &["jpg"], "");
        assert_eq!(opened.catalog.len(), 15);
        assert_eq!(opened.catalog.parts(), ["jpg"]);
        for number in 0..15 {
            let id = number as u32;
            assert_eq!(read(&opened, id).unwrap(), content(number));
            assert_eq!(opened.catalog.label(id), Some(number as i64 % 3));
            assert_eq!(opened.catalog.key(id), format!("t-{:02}.tar/s{number:04}", number / 5));
            assert!(opened.catalog.spans(id).is_empty());
        }
    }
}

#[test]
fn several_parts_come_in_one_run_in_the_order_asked_for() {
    let root = dataset();
    let opened = opened(root.path(), "t-01.tar", &["json", "png;jpg"], "json:of.name");
    assert_eq!(opened.catalog.parts(), ["json", "png;jpg"]);
    assert_eq!(opened.catalog.classes(), ["n0", "n1"]);
    for number in 5..10 {
        let id = number as u32 - 5;
        let bytes = read(&opened, id).unwrap();
        let spans = opened.catalog.spans(id);
        let part = |at: usize| &bytes[spans[2 * at] as usize..][..spans[2 * at + 1] as usize];
        assert_eq!(part(0), format!("{{\"of\": {{\"name\": \"n{}\"}}}}", number % 2).as_bytes());
        assert_eq!(part(1), content(number));
        assert_eq!(opened.catalog.label(id), Some(number as i64 % 2));
    }
}

#[test]
fn a_part_that_may_be_missing_has_no_place_where_it_is() {
    let (root, listings) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let tar = [
        member("0.jpg", b'0', b"image"),
        member("0.mask.png", b'0', b"mask"),
        member("1.jpg", b'0', b"another"),
        member("2.mask.png", b'0', b""),
        member("2.jpg", b'0', b""),
        member("3.jpg", b'0', b""),
        vec![0; 1024],
    ];
    fs::write(root.path().join("x.tar"), tar.concat()).unwrap();
    let request = request(root.path(), "x.tar", &["jpg", "mask.png?"], "");
    for cached in [false, true] {
        let opened = open(&request, Some(listings.path()), &mut |_| Ok(())).unwrap();
        assert_eq!(opened.cached, cached);
        assert_eq!(opened.catalog.parts(), ["jpg", "mask.png?"]);
        let part = |id: u32, at: usize| {
            let (bytes, spans) = (read(&opened, id).unwrap(), opened.catalog.spans(id));
            let [begin, length] = [spans[2 * at], spans[2 * at + 1]];
            (begin != ABSENT).then(|| bytes[begin as usize..][..length as usize].to_vec())
        };
        let found: Vec<_> = (0..4).map(|id| (part(id, 0), part(id, 1))).collect();
        let some = |bytes: &[u8]| Some(bytes.to_vec());
        assert_eq!(
            found,
            [
                (some(b"image"), some(b"mask")),
                (some(b"another"), None),
                (some(b""), some(b"")),
                (some(b""), None)
            ]
        );
        assert_eq!(opened.catalog.spans(3), [0, 0, ABSENT, 0]);
    }
    let refused = |parts: &[&str]| {
        open(&self::request(root.path(), "x.tar", parts, ""), None, &mut |_| Ok(())).err().unwrap().message
    };
    assert!(refused(&["jpg", "mask.png"]).contains("has no `mask.png`"));
    assert!(refused(&["jpg", "mask.png"]).contains("as `mask.png?`"));
    assert!(
        refused(&["mask.png?", "txt?"])
            .contains("the sample `1` of the shard `x.tar` has none of its `parts`")
    );
}

#[test]
fn what_is_missing_or_compressed_is_named() {
    let root = dataset();
    let refused = |pattern: &str, parts: &[&str], label: &str| {
        open(&request(root.path(), pattern, parts, label), None, &mut |_| Ok(())).err().unwrap().message
    };
    assert!(refused("t-{00..03}.tar", &[], "").contains("no shard `t-03.tar`"));
    assert!(
        refused("t-00.tar", &["png"], "").contains("the sample `s0000` of the shard `t-00.tar` has no `png`")
    );
    assert!(refused("t-00.tar", &["jpg"], "txt").contains("has no `txt`"));
    assert!(refused("t-00.tar", &["jpg"], "json:nothing").contains("has no `nothing`"));
    fs::write(root.path().join("z.tar"), [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]).unwrap();
    assert!(refused("z.tar", &[], "").contains("`z.tar` is gzip"));
    for name in ["x.tar.gz", "x.TGZ", "x-{0..3}.tar.zst"] {
        let error = refused(name, &[], "");
        assert!(error.contains("is compressed (`.t") && error.contains("unpack it"), "{error}");
    }
    let joined = refused("t-00.tar::t-01.tar", &[], "");
    assert!(joined.contains("joins shards by `::`") && joined.contains("`{a,b}.tar`"), "{joined}");
    fs::write(root.path().join("cut.tar"), &shard(4, 6)[..6_000]).unwrap();
    assert!(refused("cut.tar", &[], "").contains("`cut.tar` is no whole tar file"));
}

#[test]
fn an_index_is_kept_until_a_shard_changes_and_a_changed_shard_is_told() {
    let (root, listings) = (dataset(), tempfile::tempdir().unwrap());
    let request = request(root.path(), "t-{00..02}.tar", &["jpg", "json"], "");
    let opened = || open(&request, Some(listings.path()), &mut |_| Ok(())).unwrap();
    let (first, second) = (opened(), opened());
    assert_eq!((first.cached, second.cached), (false, true));
    assert_eq!(first.identity, second.identity);
    let path = root.path().join("t-01.tar");
    fs::write(&path, shard(20, 25)).unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(2);
    fs::File::open(&path).unwrap().set_modified(later).unwrap();
    assert!(matches!(read(&second, 7), Err(ReadError::Modified)));
    let third = opened();
    assert!(!third.cached);
    assert_eq!(third.catalog.key(5), "t-01.tar/s0020");
}

#[test]
fn members_larger_than_the_window_are_passed_over() {
    let root = tempfile::tempdir().unwrap();
    let large = vec![7; 300_000];
    let tar: Vec<u8> = (0..4)
        .flat_map(|number| member(&format!("{number}.bin"), b'0', &large))
        .chain(vec![0; 1024])
        .collect();
    fs::write(root.path().join("x.tar"), tar).unwrap();
    let opened = opened(root.path(), "x.tar", &[], "");
    assert_eq!((opened.catalog.len(), opened.catalog.labelled()), (4, false));
    assert_eq!(read(&opened, 3).unwrap(), large);
}

#[test]
fn a_part_of_a_dataset_has_the_samples_of_some_shards_and_they_can_be_read() {
    let root = dataset();
    let part = crate::Part { samples: 6, time: std::time::Duration::from_secs(10) };
    let some = crate::open_part(&request(root.path(), "t-{00..02}.tar", &["jpg"], ""), part).unwrap();
    assert_eq!(some.catalog.len(), 10, "two shards of five, since one is not enough");
    for id in 0..10 {
        let key = some.catalog.key(id);
        let number: usize = key[key.len() - 4..].parse().unwrap();
        assert_eq!(read(&some, id).unwrap(), content(number), "{key}");
    }
}
