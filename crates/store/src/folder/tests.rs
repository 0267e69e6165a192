//! What a folder lists, in which order, and what it refuses.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};

use hotset_core::{Id, Kind};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

/// A directory with these files, each holding its own name.
fn tree(files: &[&str]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for file in files {
        let path = directory.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
    directory
}

fn listed(root: &Path, layout: Layout, extensions: &[&str]) -> Result<Listing> {
    let extensions: Vec<String> = extensions.iter().map(|extension| extension.to_string()).collect();
    list(root, &Selection::new(layout, &extensions).unwrap(), &mut |_| Ok(()))
}

fn keys(listing: &Listing) -> Vec<String> {
    (0..listing.catalog.len() as Id).map(|id| listing.catalog.key(id)).collect()
}

fn refused(root: &Path, layout: Layout) -> String {
    let error = listed(root, layout, &[]).unwrap_err();
    assert_eq!(error.kind, Kind::Invalid);
    error.message
}

/// Order and labels as torchvision 0.29's `ImageFolder` gave them for this tree.
#[test]
fn images_are_listed_as_torchvision_lists_them() {
    let directory = tree(&[
        "root/a/b/1.png",
        "root/a/b/10.png",
        "root/a/b/2.png",
        "root/a/z.jpg",
        "root/a/A.JPG",
        "root/a/_.Jpeg",
        "root/a/a b.bmp",
        "root/a/.hidden.png",
        "root/a/.dot/x.ppm",
        "root/a/b-c/1.pgm",
        "root/a/b.c/1.tif",
        "root/a/b0/1.tiff",
        "root/a/b b/1.webp",
        "root/a/notes.txt",
        "root/a/jpg",
        "root/a/x.jpg.txt",
        "root/a/dir.png/inner.png",
        "root/a-b/1.jpg",
        "root/a.b/1.jpg",
        "root/a b/1.jpg",
        "root/B/1.jpg",
        "root/é/ü.png",
        "root/é/z.png",
        "root/é/𝄞.png",
        "root/é/ｚ.png",
        "root/Z/nested/deep/er/1.jpg",
        "root/Z/empty/.keep",
        "root/0/zero.jpg",
        "root/loose.jpg",
        "outside/o.jpg",
        "outside/sub/s.jpg",
    ]);
    let (root, outside) = (directory.path().join("root"), directory.path().join("outside"));
    fs::write(root.join("0/zero.jpg"), b"").unwrap();
    symlink(&outside, root.join("linked")).unwrap();
    symlink(&outside, root.join("a/b/link")).unwrap();
    symlink(outside.join("o.jpg"), root.join("a/file-link.jpg")).unwrap();
    symlink("o.jpg", outside.join("again.png")).unwrap();

    let listing = listed(&root, Layout::Images, &[]).unwrap();
    let catalog = &listing.catalog;
    assert_eq!(catalog.classes(), ["0", "B", "Z", "a", "a b", "a-b", "a.b", "linked", "é"]);
    let expected = [
        ("0/zero.jpg", 0),
        ("B/1.jpg", 1),
        ("Z/nested/deep/er/1.jpg", 2),
        ("a/.hidden.png", 3),
        ("a/A.JPG", 3),
        ("a/_.Jpeg", 3),
        ("a/a b.bmp", 3),
        ("a/file-link.jpg", 3),
        ("a/z.jpg", 3),
        ("a/.dot/x.ppm", 3),
        ("a/b/1.png", 3),
        ("a/b/10.png", 3),
        ("a/b/2.png", 3),
        ("a/b b/1.webp", 3),
        ("a/b-c/1.pgm", 3),
        ("a/b.c/1.tif", 3),
        ("a/b/link/again.png", 3),
        ("a/b/link/o.jpg", 3),
        ("a/b/link/sub/s.jpg", 3),
        ("a/b0/1.tiff", 3),
        ("a/dir.png/inner.png", 3),
        ("a b/1.jpg", 4),
        ("a-b/1.jpg", 5),
        ("a.b/1.jpg", 6),
        ("linked/again.png", 7),
        ("linked/o.jpg", 7),
        ("linked/sub/s.jpg", 7),
        ("é/z.png", 8),
        ("é/ü.png", 8),
        ("é/ｚ.png", 8),
        ("é/𝄞.png", 8),
    ];
    let found: Vec<(String, i64)> =
        keys(&listing).into_iter().zip(0..).map(|(key, id)| (key, catalog.label(id).unwrap())).collect();
    let found: Vec<(&str, i64)> = found.iter().map(|(key, label)| (key.as_str(), *label)).collect();
    assert_eq!(found, expected);
    assert_eq!(catalog.size(0), 0);
    assert_eq!(catalog.size(1), "root/B/1.jpg".len() as u64);
}

#[test]
fn files_are_all_that_are_not_hidden_in_the_order_of_paths() {
    let directory =
        tree(&["b/x", "b.txt", "b0", ".hidden", ".git/config", "a/.x", "a/c/.d/e", "a/c/é", "B/y"]);
    symlink("nowhere", directory.path().join("broken")).unwrap();
    let listing = listed(directory.path(), Layout::Files, &[]).unwrap();
    assert_eq!(keys(&listing), ["B/y", "a/c/é", "b.txt", "b/x", "b0"]);
    assert!(!listing.catalog.labelled());
    let only = listed(directory.path(), Layout::Files, &["TXT"]).unwrap();
    assert_eq!(keys(&only), ["b.txt"]);
}

#[test]
fn a_link_that_leads_back_is_left_out() {
    let directory = tree(&["a/1.png", "a/sub/2.png"]);
    symlink(directory.path().join("a"), directory.path().join("a/sub/back")).unwrap();
    symlink(directory.path(), directory.path().join("a/root")).unwrap();
    for layout in [Layout::Images, Layout::Files] {
        let listing = listed(directory.path(), layout, &[]).unwrap();
        assert_eq!(keys(&listing), ["a/1.png", "a/sub/2.png"]);
    }
}

#[test]
fn folders_without_samples_are_refused_with_what_to_do() {
    let empty = tree(&[]);
    let message = refused(empty.path(), Layout::Images);
    assert!(message.contains("no class folders and no images") && message.contains(".webp"), "{message}");
    assert!(refused(empty.path(), Layout::Files).contains("no files below"));

    let flat = tree(&["1.png", "2.png", "notes.txt"]);
    let message = refused(flat.path(), Layout::Images);
    assert!(message.contains("`2` images and no class folders"), "{message}");
    assert!(message.contains("`hotset.Dataset`"), "{message}");

    let half = tree(&["a/1.png", "b/notes.txt", "c/d/notes.txt"]);
    let message = refused(half.path(), Layout::Images);
    assert!(message.contains("class folders `b`, `c` of") && message.contains(".jpg .jpeg"), "{message}");

    let error = listed(half.path(), Layout::Files, &[".bin"]).unwrap_err();
    assert!(error.message.contains("no files that end in .bin below"), "{}", error.message);
}

#[test]
fn what_torchvision_would_list_and_cannot_be_read_is_refused_by_name() {
    let broken = tree(&["a/1.png"]);
    symlink("nowhere", broken.path().join("a/2.png")).unwrap();
    symlink("nowhere", broken.path().join("a/notes")).unwrap();
    let message = refused(broken.path(), Layout::Images);
    assert!(message.contains("a/2.png`") && message.contains("leads nowhere"), "{message}");

    let pipe = tree(&["a/1.png"]);
    let mode = rustix::fs::Mode::RUSR;
    let path = pipe.path().join("a/2.png");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(
        refused(pipe.path(), Layout::Images)
            .contains("a/2.png` cannot be a sample: it is not a regular file")
    );
    assert_eq!(keys(&listed(pipe.path(), Layout::Files, &[]).unwrap()), ["a/1.png"]);
}

#[test]
fn a_name_that_is_not_utf8_is_refused_only_where_it_counts() {
    let directory = tree(&["a/1.png"]);
    fs::write(directory.path().join("a").join(OsStr::from_bytes(b"\xff.txt")), b"").unwrap();
    assert_eq!(keys(&listed(directory.path(), Layout::Images, &[]).unwrap()), ["a/1.png"]);
    fs::write(directory.path().join("a").join(OsStr::from_bytes(b"\xff.png")), b"").unwrap();
    assert!(refused(directory.path(), Layout::Images).contains("its name is not UTF-8"));
}

#[test]
fn a_folder_without_permission_is_refused_by_name() {
    // The superuser may list everything.
    if rustix::process::geteuid().is_root() {
        return;
    }
    let directory = tree(&["a/1.png", "a/locked/2.png"]);
    let locked = directory.path().join("a/locked");
    let allow = |mode| fs::set_permissions(&locked, fs::Permissions::from_mode(mode)).unwrap();
    allow(0o000);
    let messages = Layout::ALL.map(|layout| refused(directory.path(), layout));
    allow(0o700);
    for message in messages {
        assert_eq!(message, format!("no permission to list `{}`", locked.display()));
    }
}

#[test]
fn a_file_of_4_gib_is_refused_by_name() {
    let directory = tree(&["a/1.png"]);
    let large = fs::File::create(directory.path().join("a/large.png")).unwrap();
    large.set_len(1 << 32).unwrap();
    assert!(refused(directory.path(), Layout::Images).contains("`a/large.png` has `4294967296` bytes"));
}

#[test]
fn progress_is_told_on_the_way_and_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    for number in 0..2_001 {
        fs::write(directory.path().join(number.to_string()), b"").unwrap();
    }
    let mut told = Vec::new();
    let selection = Selection::new(Layout::Files, &[]).unwrap();
    let mut tell = |count| {
        told.push(count);
        Ok(())
    };
    list(directory.path(), &selection, &mut tell).unwrap();
    assert_eq!(told, [1_000, 2_000, 2_001]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn files_come_in_the_order_of_their_whole_paths(
        paths in prop::collection::btree_set("[ab]([./-][ab0]){0,3}", 1..20)
    ) {
        // A path that is a directory of another one cannot be a file too.
        let below = |path: &str| paths.iter().any(|other| other.starts_with(&format!("{path}/")));
        let mut files: Vec<&str> = paths.iter().map(String::as_str).filter(|path| !below(path)).collect();
        files.retain(|path| path.split('/').all(|name| !name.starts_with('.')));
        prop_assume!(!files.is_empty());
        let directory = tree(&files);
        prop_assert_eq!(keys(&listed(directory.path(), Layout::Files, &[]).unwrap()), files);
    }
}
