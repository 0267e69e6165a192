//! What a forked child does to its parent's connection: nothing; and what the parent and its server do to bytes that the
//! child looks at: nothing either. One test, so that no other thread forks.

// Outside a test function clippy does not know a test.
#![allow(clippy::unwrap_used)]

mod stage;

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process;
use std::sync::mpsc;

use hotset_core::Kind;
use hotset_wire::proto::request::Kind as Asked;
use hotset_wire::proto::{GetStats, Reported, Segment, Segments};
use hotset_wire::{after_fork_in_child, after_fork_in_parent, before_fork};
use memmap2::MmapMut;
use rustix::fs::{MemfdFlags, SealFlags};
use stage::{Stage, WAIT, batch, get, idle};

/// The sockets open in this process.
fn sockets() -> usize {
    let names = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = names.filter_map(|name| std::fs::read_link(name.unwrap().path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
}

/// Runs `scene` in a forked child; the code it exits with, or 101 if it panicked.
fn in_child(scene: impl FnOnce() -> i32) -> i32 {
    in_child_beside(scene, || ())
}

/// The same, with something done in the parent meanwhile.
fn in_child_beside(scene: impl FnOnce() -> i32, beside: impl FnOnce()) -> i32 {
    // SAFETY: the child only runs `scene` and leaves by `_exit`; its locks and memory are those of this thread,
    // and the C library keeps its allocator usable across a fork.
    match unsafe { libc::fork() } {
        0 => {
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(scene)).unwrap_or(101);
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(code) }
        }
        child => {
            let child = rustix::process::Pid::from_raw(child).unwrap();
            beside();
            let options = rustix::process::WaitOptions::empty();
            let (_, status) = rustix::process::waitpid(Some(child), options).unwrap().unwrap();
            status.exit_status().unwrap_or(102)
        }
    }
}

#[test]
fn a_fork_leaves_lease_and_socket_to_the_parent_and_the_leased_bytes_to_both() {
    a_child_closes_its_copy_of_the_socket_and_leaves_the_lease_to_its_parent();
    a_child_sees_what_its_parent_leased_at_the_fork_whatever_the_server_writes_there_later();
    a_process_that_leases_nothing_copies_nothing();
}

/// Memory as a server has it: written here, read-only for every process that gets the descriptor.
fn writable(bytes: &[u8]) -> (OwnedFd, MmapMut) {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let descriptor = rustix::fs::memfd_create("test", flags).unwrap();
    rustix::fs::ftruncate(&descriptor, bytes.len() as u64).unwrap();
    // SAFETY: nothing else maps it yet, and it is sealed against shrinking before anything does.
    let mut map = unsafe { MmapMut::map_mut(&descriptor) }.unwrap();
    map.copy_from_slice(bytes);
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE;
    rustix::fs::fcntl_add_seals(&descriptor, seals).unwrap();
    (descriptor, map)
}

fn a_child_sees_what_its_parent_leased_at_the_fork_whatever_the_server_writes_there_later() {
    // Three pages, of which the batches have a piece at the end of the first, one over the others' edge, and no bytes.
    let page = 4096;
    let bytes: Vec<u8> = (0..3 * page).map(|at| (at % 251) as u8).collect();
    let shown = bytes.clone();
    let stage = Stage::new(move |mut actor| {
        let (descriptor, mut map) = writable(&shown);
        let segments = vec![Segment { segment: 4, length: shown.len() as u64 }];
        actor.next();
        actor.say_with(Segments { segments }, &[&descriptor]);
        actor.say(batch(31, &[(4, page - 9, 9), (4, 0, 0)]));
        actor.next();
        actor.say(batch(32, &[(4, 2 * page - 5, 11)]));
        // Both leases end, and other samples come to lie in their place.
        for _ in 0..2 {
            assert!(matches!(actor.next(), Some(Asked::Released(_))));
        }
        map.fill(0xee);
        actor.next();
        actor.say(Reported::default());
    });
    let client = stage.client();
    let one = client.get_batch(get(2), &mut idle()).unwrap();
    let two = client.get_batch(get(1), &mut idle()).unwrap();
    let (go_on, going) = std::io::pipe().unwrap();
    before_fork();
    let code = in_child_beside(
        || {
            after_fork_in_child();
            let end = 2 * page as usize - 5;
            let expected = [&bytes[page as usize - 9..page as usize], &bytes[end..end + 11]];
            assert_eq!(one.get(0).unwrap(), expected[0], "before");
            (&go_on).read_exact(&mut [0]).unwrap();
            assert_eq!(one.get(0).unwrap(), expected[0]);
            assert_eq!(one.get(1).unwrap(), b"");
            assert_eq!(two.get(0).unwrap(), expected[1]);
            0
        },
        || {
            after_fork_in_parent();
            // SAFETY: read out of their owners once, here; the owners are forgotten below.
            drop(unsafe { std::ptr::read(&one) });
            // SAFETY: as above.
            drop(unsafe { std::ptr::read(&two) });
            client.report(Default::default(), WAIT, &mut idle()).unwrap();
            (&going).write_all(b"!").unwrap();
        },
    );
    std::mem::forget((one, two));
    assert_eq!(code, 0);
    stage.join();
}

fn a_process_that_leases_nothing_copies_nothing() {
    before_fork();
    let code = in_child(|| {
        after_fork_in_child();
        0
    });
    after_fork_in_parent();
    assert_eq!(code, 0);
}

fn a_child_closes_its_copy_of_the_socket_and_leaves_the_lease_to_its_parent() {
    let (heard, hears) = mpsc::channel();
    let stage = Stage::new(move |mut actor| {
        actor.next();
        actor.segments(&[(4, b"abcdefgh")]);
        actor.say(batch(31, &[(4, 0, 8)]));
        while let Some(asked) = actor.next() {
            if let Asked::Report(_) = asked {
                actor.say(Reported::default());
            }
            heard.send(Some(asked)).unwrap();
        }
        heard.send(None).unwrap();
    });
    let client = stage.client();
    let got = client.get_batch(get(1), &mut idle()).unwrap();
    let before = sockets();

    let (inherited, held) = (client, got);
    let code = in_child(|| {
        after_fork_in_child();
        assert_eq!(sockets(), before - 1);
        assert!(inherited.closed());
        let error = inherited.stats(GetStats::default(), WAIT, &mut idle()).unwrap_err();
        assert_eq!(error.kind, Kind::Unavailable);
        assert!(error.message.contains("fork"), "{error}");
        assert_eq!(held.get(0).unwrap(), b"abcdefgh");

        // The descriptor's number goes to another file, which must not be closed.
        let files: Vec<_> = (0..8).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        after_fork_in_child();
        // SAFETY: these are read out of their owners once, here, and the owners are never used again: the child
        // ends by `_exit`.
        drop(unsafe { std::ptr::read(&held) });
        // SAFETY: as above.
        drop(unsafe { std::ptr::read(&inherited) });
        for file in &files {
            let flags = rustix::io::fcntl_getfd(file.as_fd());
            assert!(flags.is_ok(), "descriptor `{}` was closed", file.as_raw_fd());
        }
        0
    });
    assert_eq!(code, 0, "in process {}", process::id());

    after_fork_in_child();
    inherited.report(Default::default(), WAIT, &mut idle()).unwrap();
    // The child is gone: had it spoken or hung up, that would come first.
    assert!(matches!(hears.recv_timeout(WAIT).unwrap(), Some(Asked::Report(_))));
    drop(held);
    assert!(matches!(hears.recv_timeout(WAIT).unwrap(), Some(Asked::Released(_))));
    drop(inherited);
    assert!(hears.recv_timeout(WAIT).unwrap().is_none());
}
