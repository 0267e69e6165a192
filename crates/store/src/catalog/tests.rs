//! What a catalog says is what was pushed, in little memory.

use super::*;
use hotset_core::Kind;
use proptest::prelude::*;

/// A catalog of (folder, name, size, version, label).
fn build(classes: &[&str], samples: &[(&str, &str, u64, u32, Option<u32>)]) -> Catalog {
    let mut builder = Builder::new(classes.iter().map(|class| class.to_string()).collect());
    for &(folder, name, size, version, label) in samples {
        let directory = builder.directory(folder).unwrap();
        builder.push(directory, name, size, version, label).unwrap();
    }
    builder.finish()
}

#[test]
fn a_sample_of_a_large_dataset_takes_at_most_48_bytes() {
    let classes: Vec<String> = (0..100).map(|class| format!("n{:08}", 1_440_764 + class)).collect();
    let mut builder = Builder::new(classes.clone());
    for (label, class) in classes.iter().enumerate() {
        let directory = builder.directory(class).unwrap();
        for number in 0..1000 {
            let name = format!("{class}_{}.JPEG", 10_026 + number);
            builder.push(directory, &name, 110_000, number, Some(label as u32)).unwrap();
        }
    }
    let catalog = builder.finish();
    assert_eq!(catalog.len(), 100_000);
    assert!(catalog.memory() / catalog.len() <= 48, "{} bytes a sample", catalog.memory() / catalog.len());
    assert_eq!(catalog.key(99_999), "n01440863/n01440863_11025.JPEG");
    assert_eq!(catalog.label(99_999), Some(99));
    assert_eq!(catalog.bytes(), 11_000_000_000);
}

#[test]
fn totals_and_classes_are_those_of_what_was_pushed() {
    let catalog = build(&["a", "b"], &[("a", "1", 3, 7, Some(0)), ("b", "2", 0, 8, Some(1))]);
    assert_eq!((catalog.len(), catalog.bytes(), catalog.largest()), (2, 3, 3));
    assert_eq!(catalog.classes(), ["a", "b"]);
    assert!(catalog.labelled() && !catalog.is_empty());
    catalog
        .with_location(1, |at| assert_eq!(at, Location { key: "b/2", offset: 0, version: 8, whole: true }));
    let nothing = build(&[], &[]);
    assert!(nothing.is_empty() && !nothing.labelled());
}

#[test]
fn the_identity_follows_keys_lengths_and_labels_and_no_versions() {
    let base = build(&["a", "b"], &[("a", "x", 3, 1, Some(0))]);
    let touched = build(&["a", "b"], &[("a", "x", 3, 2, Some(0))]);
    assert_eq!(base.identity(), touched.identity());
    assert_ne!(base.versions_identity(), touched.versions_identity());
    for other in [
        build(&["a", "b"], &[("a", "y", 3, 1, Some(0))]),
        build(&["a", "b"], &[("b", "x", 3, 1, Some(0))]),
        build(&["a", "b"], &[("a", "x", 4, 1, Some(0))]),
        build(&["a", "b"], &[("a", "x", 3, 1, Some(1))]),
        build(&[], &[("a", "x", 3, 1, None)]),
    ] {
        assert_ne!(base.identity(), other.identity());
    }
    assert_eq!(base.identity().len(), 32);
}

#[test]
fn a_sample_of_4_gib_is_refused_by_name() {
    let mut builder = Builder::new(Vec::new());
    let directory = builder.directory("a").unwrap();
    assert!(builder.push(directory, "fits", u64::from(u32::MAX), 0, None).is_ok());
    let error = builder.push(directory, "large", 1 << 32, 0, None).unwrap_err();
    assert_eq!(error.kind, Kind::Invalid);
    assert!(error.message.contains("`a/large`") && error.message.contains("4 GiB"));
    assert_eq!(builder.finish().len(), 1);
}

#[test]
fn a_label_without_its_class_and_a_class_without_a_label_are_our_own_faults() {
    let mut builder = Builder::new(vec!["only".into()]);
    let directory = builder.directory("").unwrap();
    for label in [None, Some(1)] {
        assert_eq!(builder.push(directory, "x", 0, 0, label).unwrap_err().kind, Kind::Internal);
    }
    assert_eq!(builder.push(Directory(1), "x", 0, 0, Some(0)).unwrap_err().kind, Kind::Internal);
}

proptest! {
    #[test]
    fn every_sample_comes_back_as_it_was_pushed(
        samples in prop::collection::vec(("[a-c]{0,2}", "[x-z]{1,3}", 0u64..9, any::<u32>(), 0u32..3), 1..60)
    ) {
        let classes = ["a", "b", "c"];
        let pushed: Vec<_> = samples.iter().map(|(f, n, s, v, l)| (&**f, &**n, *s, *v, Some(*l))).collect();
        let catalog = build(&classes, &pushed);
        for (id, (folder, name, size, version, label)) in samples.iter().enumerate() {
            let id = id as Id;
            let key = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            prop_assert_eq!(catalog.key(id), key);
            prop_assert_eq!(catalog.size(id), *size);
            prop_assert_eq!(catalog.version(id), *version);
            prop_assert_eq!(catalog.label(id), Some(i64::from(*label)));
        }
        let walked: Vec<Id> = catalog.runs().flat_map(|(_, _, ids)| ids).collect();
        prop_assert_eq!(walked, (0..samples.len() as Id).collect::<Vec<_>>());
    }
}
