//! Shared caches that answer, lie, are slow or are not there.

use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::thread;

use hotset_wire::PROTOCOL;
use hotset_wire::contents::checked_memory;
use hotset_wire::proto::{
    ContentsGot, ContentsPut, Failure, Request, Response, Welcome, request::Kind as Asked,
};
use hotset_wire::socket::Connection;

use super::*;

/// What a cache of the test says to a request for contents, after it wrote to their memory what it likes.
type Answer = fn(&[u8]) -> Option<Response>;

/// Listens and answers every connection by `answer`; the place, which is there as long as the directory is.
fn cache(give: &'static [u8], answer: Answer) -> (tempfile::TempDir, SharedAt) {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("shared.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut connection = Connection::new(stream).unwrap();
                let mut tick = || Ok(());
                while let Ok(Some(request)) = connection.receive::<Request>(None, &mut tick) {
                    let response = match request.kind.unwrap() {
                        Asked::Hello(_) => Some(Welcome { protocol: PROTOCOL, ..Welcome::default() }.into()),
                        Asked::GetContents(_) => {
                            let memory = connection.take_descriptors(1).unwrap().pop().unwrap();
                            let memory = checked_memory(memory, 0).unwrap();
                            memory.write_all_at(give, 0).unwrap();
                            answer(give)
                        }
                        _ => {
                            connection.take_descriptors(1).unwrap();
                            Some(ContentsPut { kept: vec![true] }.into())
                        }
                    };
                    let Some(response) = response else { return };
                    connection.send(&response, &[], None, &mut tick).unwrap();
                }
            });
        }
    });
    (place, SharedAt { socket, user: None })
}

fn fill(sharing: &Sharing, content: &[u8]) -> bool {
    let mut into = vec![0; content.len()];
    let hash = *blake3::hash(content).as_bytes();
    let filled = sharing.fill(&mut [(hash, &mut into)]);
    assert!(!filled || into == content, "wrong bytes");
    filled
}

fn found(_: &[u8]) -> Option<Response> {
    Some(ContentsGot { found: vec![true] }.into())
}

#[test]
fn what_has_the_right_hash_is_taken() {
    let (_place, at) = cache(b"content", found);
    let sharing = Sharing::new(at).unwrap();
    assert!(fill(&sharing, b"content"));
    let stats = sharing.stats();
    assert_eq!((stats.asked, stats.found, stats.wrong, stats.failed), (1, 1, 0, 0));
}

#[test]
fn a_cache_that_gives_other_bytes_is_asked_no_more() {
    let (_place, at) = cache(b"poisons", found);
    let sharing = Sharing::new(at).unwrap();
    assert!(!fill(&sharing, b"content"));
    assert!(!fill(&sharing, b"content"));
    let stats = sharing.stats();
    assert_eq!((stats.asked, stats.found, stats.wrong), (1, 0, 1));
    sharing.offer(blake3::hash(b"x").as_bytes(), b"x");
    assert_eq!(sharing.stats().dropped, 1);
}

#[test]
fn one_that_hangs_up_answers_nonsense_or_is_not_there_costs_one_failure_and_is_left_alone() {
    let hangs_up: Answer = |_| None;
    let nonsense: Answer = |_| Some(ContentsGot { found: vec![true; 7] }.into());
    let refuses: Answer = |_| Some(Failure::from(Error::invalid("`--quota requests=`")).into());
    let mut places: Vec<_> = [hangs_up, nonsense, refuses].map(|answer| cache(b"content", answer)).into();
    let nowhere = tempfile::tempdir().unwrap();
    let socket = nowhere.path().join("nobody.sock");
    places.push((nowhere, SharedAt { socket, user: None }));
    for (_place, at) in places {
        let sharing = Sharing::new(at).unwrap();
        for _ in 0..100 {
            assert!(!fill(&sharing, b"content"));
        }
        let stats = sharing.stats();
        assert_eq!((stats.failed, stats.found), (1, 0), "{stats:?}");
    }
}

#[test]
fn one_that_never_answers_is_waited_for_once() {
    let slow: Answer = |_| {
        thread::sleep(Duration::from_secs(60));
        None
    };
    let (_place, at) = cache(b"content", slow);
    let sharing = Sharing::new(at).unwrap();
    for _ in 0..20 {
        assert!(!fill(&sharing, b"content"));
    }
    assert_eq!((sharing.stats().asked, sharing.stats().failed), (1, 1));
}

#[test]
fn what_was_read_is_offered_unless_the_digest_says_another_hash() {
    let (_place, at) = cache(b"", found);
    let sharing = Sharing::new(at).unwrap();
    sharing.offer(blake3::hash(b"content").as_bytes(), b"content");
    sharing.offer(blake3::hash(b"another").as_bytes(), b"content");
    while sharing.stats().offered + sharing.stats().dropped < 2 {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!((sharing.stats().offered, sharing.stats().dropped), (1, 1));
}
