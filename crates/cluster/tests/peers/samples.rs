//! Bytes, and their order.

use hotset_cluster::peers::{Answer, AnswerKind, CHUNK, MOST_SLOTS};
use hotset_core::Kind;

use super::{LONG, client, fetch, fetch_sizes, from, giving, kinds, sample, start, wanted};

#[test]
fn thousands_of_small_samples_come_in_the_order_asked() {
    let node = start(giving(900));
    let peers = client();
    let slots: Vec<u32> = (0..5000).map(|slot| (slot * 2477) % 5000).collect();
    let (given, bytes) =
        fetch_sizes(&peers, node.address(), &wanted(slots.clone()), LONG, &[900; 5000]).expect("samples");
    for ((slot, given), bytes) in slots.iter().zip(&given).zip(&bytes) {
        assert_eq!((given.kind, given.hit), (AnswerKind::Given, slot % 2 == 0));
        assert!(*bytes == sample(*slot, 900), "slot {slot}");
    }
    let (served, came) = (node.counters(), peers.counters());
    assert_eq!((served.requests, served.given, served.bytes_out), (1, 5000, 4_500_000));
    assert_eq!((came.requests, came.given, came.bytes_in, came.failed), (1, 5000, 4_500_000, 0));
}

#[test]
fn samples_of_all_sizes_come_also_those_larger_than_a_chunk() {
    let sizes = [0, 1, 110_000, CHUNK - 1, CHUNK, CHUNK + 1, 3, 9 * CHUNK + 17, 0, 42, CHUNK];
    let node = start(from(move |wanted, _, out| {
        for &slot in &wanted.slots {
            out(Answer::given(&sample(slot, sizes[slot as usize]), true));
        }
    }));
    let slots = 0..sizes.len() as u32;
    let (given, bytes) =
        fetch_sizes(&client(), node.address(), &wanted(slots.clone()), LONG, &sizes).expect("samples");
    assert_eq!(kinds(&given), vec![AnswerKind::Given; sizes.len()]);
    for (slot, bytes) in slots.zip(&bytes) {
        assert!(*bytes == sample(slot, sizes[slot as usize]), "slot {slot}");
    }
}

#[test]
fn each_answer_keeps_its_kind_and_what_was_asked_arrives_whole() {
    let node = start(from(|asked, _, out| {
        assert_eq!(*asked, wanted(0..6), "view, job, epoch, plan and slots");
        out(Answer::given(b"first", false));
        for kind in [AnswerKind::Yours, AnswerKind::Stale, AnswerKind::Unknown, AnswerKind::Failed] {
            out(Answer { kind, hit: true, bytes: b"not sent" });
        }
        out(Answer::given(b"last!", true));
        assert!(!out(Answer::given(b"extra", true)), "nobody asked for a seventh");
    }));
    let peers = client();
    let (given, bytes) = fetch(&peers, node.address(), 6, 5).expect("answers");
    let expected = [
        AnswerKind::Given,
        AnswerKind::Yours,
        AnswerKind::Stale,
        AnswerKind::Unknown,
        AnswerKind::Failed,
        AnswerKind::Given,
    ];
    assert_eq!(kinds(&given), expected);
    assert_eq!(
        given.iter().map(|given| given.hit).collect::<Vec<_>>(),
        [false, false, false, false, false, true]
    );
    assert_eq!((&bytes[0][..], &bytes[5][..]), (&b"first"[..], &b"last!"[..]));
    for counted in [node.counters(), peers.counters()] {
        assert_eq!((counted.given, counted.yours, counted.stale), (2, 1, 1));
        assert_eq!((counted.unknown, counted.failed), (1, 1));
    }
}

#[test]
fn slots_that_the_owner_says_nothing_of_have_failed() {
    let node = start(from(|_, _, out| {
        out(Answer::given(b"one", true));
    }));
    let (given, _) = fetch(&client(), node.address(), 3, 3).expect("an answer");
    assert_eq!(kinds(&given), [AnswerKind::Given, AnswerKind::Failed, AnswerKind::Failed]);
}

#[test]
fn as_many_slots_as_can_be_asked_for_are_answered_and_more_are_not_asked() {
    let node = start(from(|wanted, _, out| {
        for _ in &wanted.slots {
            out(Answer::without(AnswerKind::Yours));
        }
    }));
    let peers = client();
    let most = MOST_SLOTS as u32;
    let slots = wanted(u32::MAX - most..u32::MAX);
    let (given, _) = fetch_sizes(&peers, node.address(), &slots, LONG, &[0; MOST_SLOTS]).expect("answers");
    assert!(given.iter().all(|given| given.kind == AnswerKind::Yours));
    let error = fetch(&peers, node.address(), most + 1, 0).expect_err("too many");
    assert_eq!(error.kind, Kind::Internal);
    let other =
        fetch_sizes(&peers, node.address(), &wanted(0..2), LONG, &[1]).expect_err("a place is missing");
    assert!(other.message.contains("2 slots and 1 places"), "{other}");
    assert_eq!(fetch(&peers, node.address(), 0, 0).expect("nothing").0, []);
    assert_eq!(peers.counters().requests, 1);
}

#[test]
fn requests_of_the_local_protocol_are_answered_and_errors_keep_their_kind() {
    let node = start(giving(1));
    let (peers, address) = (client(), node.address().to_string());
    let large = vec![7; 10 << 20];
    assert_eq!(peers.ask(&address, b"abc", LONG).expect("a reply"), b"cba");
    assert_eq!(peers.ask(&address, &large, LONG).expect("a reply").len(), large.len());
    let wrong = peers.ask(&address, b"wrong", LONG).expect_err("an error");
    assert_eq!((wrong.kind, wrong.message.as_str()), (Kind::Invalid, "`strategy` is wrong"));
    assert_eq!(peers.ask(&address, b"later", LONG).expect_err("an error").kind, Kind::Unavailable);
    assert_eq!(peers.ask(&address, b"abc", LONG).expect("the node is asked as before"), b"cba");
    assert_eq!(peers.ask(&address, b"panic", LONG).expect_err("an error").kind, Kind::Unavailable);
    assert_eq!(node.counters().requests, 6);
}
