//! A manifest opens what it names, and nothing else.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use hotset_core::Result;
use tempfile::TempDir;

use crate::{Layout, Opened, Request, open};

fn dataset() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("data/deep")).unwrap();
    for (name, content) in
        [("data/a.bin", "first"), ("data/deep/b.bin", "second"), ("data/pack", "0123456789")]
    {
        fs::write(root.path().join(name), content).unwrap();
    }
    root
}

fn opened(root: &Path, name: &str, text: &str, below: &str) -> Result<Opened> {
    fs::write(root.join(name), text).unwrap();
    let request = Request {
        place: root.join(name).display().to_string(),
        layout: Layout::Manifest,
        extensions: Vec::new(),
        label: String::new(),
        root: if below.is_empty() { String::new() } else { root.join(below).display().to_string() },
        storage_options: BTreeMap::new(),
    };
    open(&request, None, &mut |_| Ok(()))
}

fn read(opened: &Opened, id: u32) -> Vec<u8> {
    let mut bytes = vec![0; opened.catalog.size(id) as usize];
    opened.catalog.with_location(id, |at| opened.store.read(at, &mut bytes)).unwrap();
    bytes
}

#[test]
fn rows_are_samples_in_their_order_whole_or_part() {
    let root = dataset();
    let text = "key,label,offset,length\ndeep/b.bin,dog,,\npack,cat,3,4\na.bin,dog,,5\npack,ant,0,0\n";
    let opened = opened(root.path(), "m.csv", text, "data").unwrap();
    let catalog = &opened.catalog;
    assert_eq!(catalog.classes(), ["ant", "cat", "dog"]);
    let labels: Vec<_> = (0..4).map(|id| catalog.label(id).unwrap()).collect();
    assert_eq!(labels, [2, 1, 2, 0]);
    assert_eq!(
        (0..4).map(|id| read(&opened, id)).collect::<Vec<_>>(),
        [&b"second"[..], b"3456", b"first", b""]
    );
    assert_eq!((catalog.key(0), catalog.key(1)), ("deep/b.bin".into(), "pack".into()));
}

#[test]
fn keys_lie_beside_the_manifest_unless_a_root_is_named() {
    let root = dataset();
    let opened = opened(root.path(), "m.jsonl", "{\"key\": \"data/a.bin\"}\n", "").unwrap();
    assert_eq!(read(&opened, 0), b"first");
    assert!(!opened.catalog.labelled());
}

#[test]
fn what_is_not_as_the_table_says_is_told_with_its_row() {
    let root = dataset();
    let told = |text: &str| opened(root.path(), "m.csv", text, "data").err().unwrap().message;
    assert!(told("key\na.bin\nmissing.bin\n").contains("no `missing.bin`"));
    assert!(told("key\na.bin\nmissing.bin\n").contains("row `2`"));
    assert!(told("key,length\na.bin,6\n").contains("row `1`"));
    assert!(told("key,offset,length\npack,8,3\n").contains("from `8` on `3` bytes, and it has `10`"));
    assert!(told("key\n../m.csv\n").contains("does not lie below"));
    assert!(told("key\n").contains("names no samples"));
}

#[test]
fn a_manifest_is_kept_until_it_is_written_again() {
    let (root, listings) = (dataset(), tempfile::tempdir().unwrap());
    let request = Request {
        place: root.path().join("m.csv").display().to_string(),
        layout: Layout::Manifest,
        extensions: Vec::new(),
        label: String::new(),
        root: String::new(),
        storage_options: BTreeMap::new(),
    };
    let opened = || open(&request, Some(listings.path()), &mut |_| Ok(())).unwrap();
    fs::write(root.path().join("m.csv"), "key\ndata/a.bin\n").unwrap();
    assert_eq!((opened().cached, opened().cached), (false, true));
    fs::write(root.path().join("m.csv"), "key\ndata/a.bin\ndata/pack\n").unwrap();
    let third = opened();
    assert_eq!((third.cached, third.catalog.len()), (false, 2));
}
