//! What a forked child does to its parent's connection: nothing. One test, so that no other thread is at work.

// Outside a test function clippy does not know a test.
#![allow(clippy::unwrap_used)]

mod stage;

use std::os::fd::{AsFd, AsRawFd};
use std::process;
use std::sync::mpsc;
use std::time::Duration;

use hotset_core::Kind;
use hotset_wire::after_fork_in_child;
use hotset_wire::proto::request::Kind as Asked;
use hotset_wire::proto::{GetStats, Reported};
use stage::{Stage, WAIT, batch, get, idle};

/// The sockets open in this process.
fn sockets() -> usize {
    let names = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = names.filter_map(|name| std::fs::read_link(name.unwrap().path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
}

/// Runs `scene` in a forked child; the code it exits with, or 101 if it panicked.
fn in_child(scene: impl FnOnce() -> i32) -> i32 {
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
            let options = rustix::process::WaitOptions::empty();
            let (_, status) = rustix::process::waitpid(Some(child), options).unwrap().unwrap();
            status.exit_status().unwrap_or(102)
        }
    }
}

#[test]
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

        // The descriptor's number goes to another file, which nobody may close.
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

    assert!(hears.recv_timeout(Duration::from_millis(100)).is_err(), "the child spoke or hung up");
    after_fork_in_child();
    inherited.report(Default::default(), WAIT, &mut idle()).unwrap();
    assert!(matches!(hears.recv_timeout(WAIT).unwrap(), Some(Asked::Report(_))));
    drop(held);
    assert!(matches!(hears.recv_timeout(WAIT).unwrap(), Some(Asked::Released(_))));
    drop(inherited);
    assert!(hears.recv_timeout(WAIT).unwrap().is_none());
}
