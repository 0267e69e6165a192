//! State files as they are written, damaged and read.

use std::collections::BTreeMap;

use proptest::prelude::*;

use hotset_engine::JobRequest;

use super::*;

pub(crate) fn snapshot() -> Snapshot {
    let draft = Draft { ids: vec![3, 0], early: true };
    let pending = PendingPackage { epoch: 2, draft, complete: true, written: false };
    Snapshot {
        request: JobRequest {
            job: "run/train".into(),
            dataset: "dataset".into(),
            cache: "20%".parse().unwrap(),
            strategy: Some("uniform".into()),
            strategy_settings: BTreeMap::from([("fraction".into(), "0.5".into())]),
            epochs: Some(90),
            ..JobRequest::default()
        },
        samples: 4,
        policy: vec![3, 1],
        planner: Saved {
            table: vec![1, 2, 3],
            strategy: vec![4],
            last: Some((3, 2, vec![1])),
            closed: Some(1),
            packing: SavedPacking {
                pending: BTreeMap::from([(7, pending)]),
                moved: [2].into(),
                packed: Some(3),
                living: Some([2, 6].into()),
            },
            rest: vec![8, 9],
        },
        schedules: vec![SavedSchedule {
            plan: vec![5, 6],
            package: Some(9),
            packages: vec![2, 6],
            states: vec![1, 2, 4],
            told: Some(1),
            layout: vec![3, 1],
        }],
        cuts: BTreeMap::from([(2, Cut { rank_len: 2, world: 2 })]),
        begun: BTreeMap::from([(0, 2), (1, 1)]),
        counted: tally::Saved {
            epochs: BTreeMap::from([(3, Counters::of_named([("hit", 7), ("recovery_reads", 2)]))]),
            unplanned: Counters::of_named([("single", 4)]),
            past: Counters::of_named([("hit", 9), ("late", 1)]),
            seen: Bits::from_bytes(&[5, 0, 0, 0, 0, 0, 0, 0]),
        },
    }
}

fn of() -> Of<'static> {
    Of { job: "run/train", run: "0123456789abcdef", lasting: true }
}

#[test]
fn what_is_written_is_read() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("job.state");
    assert!(read(&path).unwrap().is_none());
    write(&path, &snapshot(), &of()).unwrap();
    let state = read(&path).unwrap().unwrap();
    assert!(state.lasting);
    assert_eq!(state.run, of().run);
    assert_eq!(decode(state).unwrap(), snapshot());
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1, "nothing else is left behind");
}

proptest! {
    #[test]
    fn a_damaged_file_is_refused_and_never_believed(cut in 0usize..200, flip in 0usize..200, bit in 0u8..8) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("job.state");
        write(&path, &snapshot(), &of()).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        let at = flip % whole.len();
        flipped[at] ^= 1 << bit;
        std::fs::write(&path, &flipped).unwrap();
        prop_assert!(read(&path).is_err());
        std::fs::write(&path, &whole[..cut % whole.len()]).unwrap();
        prop_assert!(read(&path).is_err());
    }

    #[test]
    fn any_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("job.state");
        std::fs::write(&path, &bytes).unwrap();
        prop_assert!(read(&path).is_err());
    }
}

#[test]
fn a_state_is_for_its_user_alone_and_is_written_to_nothing_but_itself() {
    use std::os::unix::fs::PermissionsExt;

    let place = tempfile::tempdir().unwrap();
    let (path, victim) = (place.path().join("job.state"), place.path().join("victim"));
    fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, path.with_extension("new")).unwrap();
    write(&path, &snapshot(), &of()).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    assert!(read(&path).unwrap().is_some());
}
