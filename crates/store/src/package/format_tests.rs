use hotset_core::{Error, Id, Kind};
use proptest::prelude::*;

use super::format::{ENTRY, HEAD, SUMMED, checksum_of_both};
use super::{Damage, Draft, Foreign, Index, Misfit, Package, Part, header_len};

const IDENTITY: &str = "a dataset";

/// A package of these samples, in this order.
fn packed(number: u32, samples: &[(Id, Vec<u8>)]) -> Vec<u8> {
    let sizes: Vec<(Id, u64)> = samples.iter().map(|(id, bytes)| (*id, bytes.len() as u64)).collect();
    let mut draft = Draft::new(IDENTITY, number, &sizes).unwrap();
    for (id, bytes) in samples {
        draft.put(*id, bytes).unwrap();
    }
    draft.finish().unwrap()
}

fn three() -> Vec<(Id, Vec<u8>)> {
    vec![(7, b"seven".to_vec()), (3, Vec::new()), (u32::MAX, b"the last one there is".to_vec())]
}

/// Some samples with ids in no order, none twice.
fn samples() -> impl Strategy<Value = Vec<(Id, Vec<u8>)>> {
    let one = (any::<Id>(), proptest::collection::vec(any::<u8>(), 0..40));
    proptest::collection::vec(one, 1..12).prop_map(|mut samples| {
        let mut seen = std::collections::BTreeSet::new();
        samples.retain(|(id, _)| seen.insert(*id));
        samples
    })
}

/// Puts the right checksum before an index that was changed, as a hostile writer would.
fn resummed(mut bytes: Vec<u8>, count: usize) -> Vec<u8> {
    let sum = checksum_of_both(&bytes[..SUMMED], &bytes[HEAD..HEAD + count * ENTRY]);
    bytes[SUMMED..HEAD].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn what_is_packed_comes_back_in_the_order_given() {
    let bytes = packed(5, &three());
    let package = Package::parse(&bytes, IDENTITY, 5).unwrap();
    assert_eq!(package.ids().collect::<Vec<_>>(), [7, 3, u32::MAX]);
    for (id, sample) in three() {
        assert_eq!(package.sample(id), Some(Ok(sample.as_slice())));
    }
    assert_eq!(package.sample(4), None);
    let index = Index::parse(&bytes[..header_len(&bytes[..HEAD]).unwrap() as usize]).unwrap();
    assert_eq!(&index, package.index());
    assert_eq!((index.number(), index.count(), index.length()), (5, 3, bytes.len() as u64));
    for (id, offset, length) in index.spans() {
        let sample = &bytes[offset as usize..][..length as usize];
        assert_eq!(package.sample(id), Some(Ok(sample)));
    }
}

#[test]
fn a_package_of_another_dataset_number_or_format_is_foreign() {
    let bytes = packed(5, &three());
    let told = |bytes: &[u8], identity, number| Package::parse(bytes, identity, number).unwrap_err();
    assert_eq!(told(&bytes, "another dataset", 5), Damage::Foreign(Foreign::Dataset));
    assert_eq!(told(&bytes, IDENTITY, 6), Damage::Foreign(Foreign::Number(5)));
    let mut newer = bytes.clone();
    newer[8] = 2;
    assert_eq!(told(&newer, IDENTITY, 5), Damage::Foreign(Foreign::Format(2)));
    assert_eq!(told(b"\xff\xd8\xff a picture", IDENTITY, 5), Damage::Foreign(Foreign::Magic));
    assert_eq!(told(b"HOT", IDENTITY, 5), Damage::Torn { expected: 72, found: 3 });
    assert!(!Damage::Foreign(Foreign::Magic).removable() && !Damage::Foreign(Foreign::Format(2)).removable());
    assert!(told(&bytes, IDENTITY, 6).removable());
}

#[test]
fn damage_says_what_is_wrong_and_what_becomes_of_it() {
    let mut bytes = packed(5, &three());
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let package = Package::parse(&bytes, IDENTITY, 5).unwrap();
    let damage = package.sample(u32::MAX).unwrap().unwrap_err();
    assert_eq!(damage, Damage::Flipped(Part::Sample(u32::MAX)));
    assert_eq!(package.sample(7), Some(Ok(&b"seven"[..])), "its neighbours can be used");
    let error = Error::from(damage);
    assert_eq!(error.kind, Kind::Changed);
    assert!(
        error.message.contains("sample `4294967295`") && error.message.contains("packed anew"),
        "{error}"
    );
}

#[test]
fn a_draft_takes_samples_in_any_order_and_finishes_only_when_all_are_there() {
    let mut draft = Draft::new(IDENTITY, 5, &[(7, 5), (3, 0), (u32::MAX, 21)]).unwrap();
    assert_eq!(draft.put(u32::MAX, b"the last one there is"), Ok(false));
    assert_eq!(draft.put(u32::MAX, b"another, of that size"), Ok(false), "twice is harmless");
    assert_eq!(draft.missing().collect::<Vec<_>>(), [7, 3]);
    assert_eq!(draft.put(9, b"x"), Err(Misfit::Stranger(9)));
    assert_eq!(draft.put(7, b"sev"), Err(Misfit::Size { id: 7, expected: 5, found: 3 }));
    assert_eq!(draft.put(7, b"seven"), Ok(false));
    assert_eq!(draft.put(3, b""), Ok(true));
    assert_eq!(draft.length(), packed(5, &three()).len() as u64);
    assert_eq!(draft.finish().unwrap(), packed(5, &three()));
    let early = Draft::new(IDENTITY, 5, &[(7, 5), (3, 0)]).unwrap();
    assert_eq!(early.finish(), Err(Misfit::Missing(2)));
}

#[test]
fn what_cannot_be_a_package_is_refused_before_anything_is_allocated() {
    let refused = |samples: &[(Id, u64)]| Draft::new(IDENTITY, 0, samples).unwrap_err();
    assert_eq!(refused(&[]), Misfit::Empty);
    assert_eq!(refused(&[(1, 5), (2, 5), (1, 5)]), Misfit::Twice);
    assert!(matches!(refused(&[(1, u64::MAX), (2, u64::MAX)]), Misfit::TooLarge { samples: 2, .. }));
    assert!(matches!(refused(&[(1, 1 << 30)]), Misfit::TooLarge { .. }));
    let many: Vec<(Id, u64)> = (0..=1 << 20).map(|id| (id, 0)).collect();
    assert!(matches!(refused(&many), Misfit::TooLarge { .. }));
}

#[test]
fn a_hostile_index_with_a_right_checksum_is_refused() {
    let bytes = packed(5, &three());
    let change = |at: usize, with: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + with.len()].copy_from_slice(with);
        Package::parse(&resummed(bytes, 3), IDENTITY, 5).map(|_| ()).unwrap_err()
    };
    let flipped = Damage::Flipped(Part::Index);
    let second = HEAD + ENTRY;
    assert_eq!(change(second, &7u32.to_le_bytes()), flipped, "an id that is there twice");
    assert_eq!(change(second + 4, &u32::MAX.to_le_bytes()), flipped, "a sample beyond the end");
    assert_eq!(change(second + 8, &u64::MAX.to_le_bytes()), flipped, "an offset beyond all");
    assert_eq!(change(second + 8, &(HEAD as u64).to_le_bytes()), flipped, "a sample that is the index");
    assert_eq!(change(56, &u64::MAX.to_le_bytes()), flipped, "a length beyond all bounds");
}

#[test]
fn a_count_of_billions_costs_nothing() {
    let mut head = packed(5, &three())[..HEAD].to_vec();
    for count in [0, (1 << 20) + 1, u32::MAX / 24, u32::MAX] {
        head[48..52].copy_from_slice(&count.to_le_bytes());
        head[52..56].copy_from_slice(&count.wrapping_mul(24).to_le_bytes());
        head[56..64].copy_from_slice(&(1u64 << 30).to_le_bytes());
        assert_eq!(header_len(&head), Err(Damage::Flipped(Part::Index)), "{count}");
    }
    head[48..52].copy_from_slice(&(1u32 << 20).to_le_bytes());
    head[52..56].copy_from_slice(&(24u32 << 20).to_le_bytes());
    let expected = 72 + (24 << 20);
    assert_eq!(header_len(&head), Ok(expected));
    assert_eq!(Index::parse(&head), Err(Damage::Torn { expected, found: 72 }), "nothing is there to read");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_sample_comes_back_whatever_order_it_was_put_in(
        samples in samples(), number: u32, seed: u64,
    ) {
        let sizes: Vec<(Id, u64)> = samples.iter().map(|(id, bytes)| (*id, bytes.len() as u64)).collect();
        let mut draft = Draft::new(IDENTITY, number, &sizes).unwrap();
        let mut order = samples.clone();
        order.rotate_left(seed as usize % samples.len());
        order.reverse();
        for (at, (id, bytes)) in order.iter().enumerate() {
            prop_assert_eq!(draft.missing().count(), samples.len() - at);
            prop_assert_eq!(draft.put(*id, bytes), Ok(at + 1 == samples.len()));
        }
        let bytes = draft.finish().unwrap();
        prop_assert_eq!(&bytes, &packed(number, &samples), "the order of puts leaves no trace");
        let package = Package::parse(&bytes, IDENTITY, number).unwrap();
        let back: Vec<(Id, Vec<u8>)> =
            package.samples().map(|(id, sample)| (id, sample.unwrap().to_vec())).collect();
        prop_assert_eq!(back, samples);
    }

    #[test]
    fn no_changed_byte_goes_unseen_and_none_makes_a_wrong_sample(
        samples in samples(), at: prop::sample::Index, change in 1u8..,
    ) {
        let mut bytes = packed(5, &samples);
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        match Package::parse(&bytes, IDENTITY, 5) {
            Err(_) => {}
            Ok(package) => {
                let damaged = samples.iter().filter(|(id, sample)| match package.sample(*id).unwrap() {
                    Ok(bytes) => {
                        assert_eq!(bytes, sample.as_slice(), "a wrong sample");
                        false
                    }
                    Err(damage) => damage == Damage::Flipped(Part::Sample(*id)),
                });
                prop_assert_eq!(damaged.count(), 1);
            }
        }
    }

    #[test]
    fn no_cut_and_no_addition_goes_unseen(samples in samples(), length: prop::sample::Index, added in 1usize..99) {
        let mut bytes = packed(5, &samples);
        let whole = bytes.len() as u64;
        let length = length.index(bytes.len());
        let cut = Package::parse(&bytes[..length], IDENTITY, 5).unwrap_err();
        prop_assert!(matches!(cut, Damage::Torn { found, .. } if found == length as u64), "{cut}");
        bytes.resize(bytes.len() + added, 0);
        let longer = Package::parse(&bytes, IDENTITY, 5).unwrap_err();
        prop_assert_eq!(longer, Damage::Torn { expected: whole, found: whole + added as u64 });
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(noise in proptest::collection::vec(any::<u8>(), 0..400), begin: bool) {
        let mut bytes = if begin { packed(5, &three())[..HEAD].to_vec() } else { Vec::new() };
        bytes.extend(&noise);
        // The checksum of noise is made right, so that what lies behind it is reached too.
        if begin && bytes.len() >= HEAD + 3 * ENTRY {
            bytes = resummed(bytes, 3);
        }
        let _ = header_len(&bytes);
        prop_assert!(Package::parse(&bytes, IDENTITY, 5).is_err());
    }
}
