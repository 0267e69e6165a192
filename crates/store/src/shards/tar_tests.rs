//! Members are where the headers say, and no bytes at all make the reader panic or run on.

use super::*;
use proptest::prelude::*;

impl Source for &[u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn bytes(&mut self, offset: u64, count: u64) -> Result<&[u8]> {
        let range = offset as usize..(offset + count) as usize;
        self.get(range).ok_or_else(|| Error::internal("asked for bytes that are not there"))
    }
}

/// A member with its header; `kind` is its type flag.
pub(crate) fn member(name: &str, kind: u8, content: &[u8]) -> Vec<u8> {
    let mut block = vec![0u8; 512];
    block[..name.len().min(100)].copy_from_slice(&name.as_bytes()[..name.len().min(100)]);
    block[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block.extend_from_slice(content);
    block.resize(block.len().next_multiple_of(512), 0);
    block
}

fn listed(tar: &[u8]) -> Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    members("shard", &mut &tar[..], &mut |member, source| {
        found.push((member.name, source.bytes(member.offset, member.size)?.to_vec()));
        Ok(true)
    })?;
    Ok(found)
}

fn whole() -> Vec<u8> {
    let long = "long/".repeat(40) + "name.jpg";
    let pax = "pax/".repeat(40) + "name.jpg";
    let record = |text: &str| {
        let length = text.len() + 5;
        format!("{length} {text}\n")
    };
    [
        member("folder/", b'5', b""),
        member("a.jpg", b'0', b"first"),
        member("a.cls", 0, b"7"),
        member("././@LongLink", b'L', format!("{long}\0").as_bytes()),
        member("cut", b'0', b"second"),
        member("x", b'x', record(&format!("path={pax}")).as_bytes()),
        member("cut", b'0', &[3; 600]),
        member("empty.jpg", b'0', b""),
        vec![0; 1024],
        b"what lies behind the end".to_vec(),
    ]
    .concat()
}

#[test]
fn members_come_with_their_names_and_bytes() {
    let found = listed(&whole()).unwrap();
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    let (long, pax) = ("long/".repeat(40) + "name.jpg", "pax/".repeat(40) + "name.jpg");
    assert_eq!(names, ["a.jpg", "a.cls", long.as_str(), pax.as_str(), "empty.jpg"]);
    assert_eq!(found[0].1, b"first");
    assert_eq!(found[3].1, [3; 600]);
    assert_eq!(found[4].1, b"");
}

#[test]
fn what_is_compressed_is_refused_by_its_first_bytes_and_named() {
    for (magic, what) in OTHERS {
        let bytes = [magic, &[0; 2048]].concat();
        let error = listed(&bytes).unwrap_err();
        assert!(error.message.contains(what) && error.message.contains("`shard`"), "{}", error.message);
    }
}

#[test]
fn what_is_cut_short_or_empty_is_no_tar_file() {
    let whole = whole();
    for length in [0, 100, 512, 512 * 2 + 3] {
        assert!(listed(&whole[..length]).is_err() || length == 512, "{length}");
    }
    let mut flipped = whole.clone();
    flipped[512 + 3] ^= 1;
    assert!(listed(&flipped).unwrap_err().message.contains("`512`"));
}

/// A pax record with its length.
fn record(text: &str) -> String {
    let length = |digits: usize| text.len() + 2 + digits;
    let digits = (1..).find(|digits| length(*digits).to_string().len() == *digits).unwrap();
    format!("{} {text}\n", length(digits))
}

#[test]
fn a_sparse_member_is_refused_by_name_however_it_is_written() {
    let zero =
        ["GNU.sparse.size=510000", "GNU.sparse.numblocks=1", "GNU.sparse.offset=0"].map(record).concat();
    let first = ["GNU.sparse.name=deep/a.jpg", "GNU.sparse.map=0,512,509488,512"].map(record).concat();
    let second = ["path=GNUSparseFile.7/a.jpg", "GNU.sparse.major=1", "GNU.sparse.name=deep/a.jpg"];
    let star = record("SCHILY.realsize=510000");
    for (records, name) in
        [(zero, "cut"), (first, "deep/a.jpg"), (second.map(record).concat(), "deep/a.jpg"), (star, "cut")]
    {
        let tar = [member("x", b'x', records.as_bytes()), member("cut", b'0', &[1; 600])].concat();
        let error = listed(&tar).unwrap_err();
        for said in [name, "`shard`", "`--sparse`"] {
            assert!(error.message.contains(said), "{}", error.message);
        }
    }
    assert!(listed(&member("a.jpg", b'S', b"")).unwrap_err().message.contains("`a.jpg`"));
    // What belongs to one member says nothing of the next.
    let folder =
        [member("x", b'x', record("GNU.sparse.major=1").as_bytes()), member("d/", b'5', b"")].concat();
    assert_eq!(listed(&[folder, member("b.jpg", b'0', b"b")].concat()).unwrap().len(), 1);
    // The map may be longer than anything else that is read of a header.
    let long = [record("GNU.sparse.major=0"), record("GNU.sparse.name=a.jpg"), "9".repeat(70_000)].concat();
    assert!(listed(&member("x", b'x', long.as_bytes())).unwrap_err().message.contains("`a.jpg`"));
}

#[test]
fn an_extended_header_that_cannot_be_read_is_not_passed_over() {
    for wrong in ["9999 path=a\n", "x path=a\n", "15 size=rubbish\n"] {
        let tar = [member("x", b'x', wrong.as_bytes()), member("a.jpg", b'0', b"a")].concat();
        assert!(listed(&tar).unwrap_err().message.contains("`0`"), "{wrong}");
    }
}

#[test]
fn links_come_with_what_they_lead_to() {
    let mut hard = member("b.jpg", b'1', b"");
    hard[157..162].copy_from_slice(b"a.jpg");
    hard[148..156].fill(b' ');
    let sum: u32 = hard[..512].iter().map(|byte| u32::from(*byte)).sum();
    hard[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let long = "long/".repeat(40);
    let tar = [
        hard,
        member("x", b'x', record(&format!("linkpath={long}")).as_bytes()),
        member("c.jpg", b'2', b""),
        member("././@LongLink", b'K', long.as_bytes()),
        member("d.jpg", b'1', b""),
    ]
    .concat();
    let mut links = Vec::new();
    members("shard", &mut &tar[..], &mut |member, _| {
        links.push((member.name, member.link.unwrap()));
        Ok(true)
    })
    .unwrap();
    let expected = [("b.jpg", "a.jpg"), ("c.jpg", long.as_str()), ("d.jpg", long.as_str())];
    assert_eq!(links, expected.map(|(name, to)| (name.to_owned(), to.to_owned())));
}

proptest! {
    #[test]
    fn random_blocks_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        let _ = listed(&bytes);
    }

    #[test]
    fn a_forged_file_never_panics(
        place in any::<prop::sample::Index>(),
        with in prop::collection::vec(any::<u8>(), 0..40),
        mend in any::<bool>(),
    ) {
        let mut bytes = whole();
        let place = place.index(bytes.len());
        let end = (place + with.len()).min(bytes.len());
        bytes.splice(place..end, with);
        if mend && place / 512 * 512 + 512 <= bytes.len() {
            // Past the checksum too.
            let block = &mut bytes[place / 512 * 512..][..512];
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
        let _ = listed(&bytes);
    }

    #[test]
    fn pax_records_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        Long::default().records(&bytes);
    }
}
