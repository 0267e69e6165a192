//! A server of one connection, played by a closure in a thread.

// Each test file uses a part of it, and outside a test function clippy does not know a test.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::cell::Cell;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hotset_core::Result;
use hotset_wire::proto::{Batch, GetBatch, Request, Response, Segment, Segments, Welcome, request};
use hotset_wire::{Client, Connection, PROTOCOL, frame};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::pwrite;

/// Long enough for a busy machine; nothing waits for it to pass.
pub const WAIT: Duration = Duration::from_secs(20);

/// A tick that does nothing.
pub fn idle() -> impl FnMut() -> Result<()> {
    || Ok(())
}

/// The server's side of one connection.
pub struct Actor {
    connection: Connection,
}

impl Actor {
    /// The next request; `None` when the client has closed.
    pub fn next(&mut self) -> Option<request::Kind> {
        let deadline = Some(Instant::now() + WAIT);
        self.connection.receive::<Request>(deadline, &mut idle()).unwrap()?.kind
    }

    /// Whether the client has closed; never waits.
    pub fn hung_up(&self) -> bool {
        self.connection.hung_up()
    }

    /// Answers.
    pub fn say(&mut self, message: impl Into<Response>) {
        self.say_with(message, &[]);
    }

    /// Answers with descriptors.
    pub fn say_with(&mut self, message: impl Into<Response>, descriptors: &[&OwnedFd]) {
        let descriptors: Vec<BorrowedFd<'_>> =
            descriptors.iter().map(|descriptor| descriptor.as_fd()).collect();
        self.connection.send(&message.into(), &descriptors, None, &mut idle()).unwrap();
    }

    /// Sends an answer without its last byte.
    pub fn say_half(&mut self, message: impl Into<Response>) {
        let mut bytes = Vec::new();
        frame::encode(&message.into(), &mut bytes).unwrap();
        bytes.pop();
        std::fs::File::from(self.connection.as_fd().try_clone_to_owned().unwrap()).write_all(&bytes).unwrap();
    }

    /// Sends segments, sealed as the arena's are.
    pub fn segments(&mut self, segments: &[(u32, &[u8])]) {
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE;
        let memories: Vec<OwnedFd> = segments.iter().map(|(_, bytes)| memory(bytes, seals)).collect();
        let segments = segments
            .iter()
            .map(|&(segment, bytes)| Segment { segment, length: bytes.len() as u64 })
            .collect();
        self.say_with(Segments { segments }, &memories.iter().collect::<Vec<_>>());
    }
}

/// A listening socket whose one caller is served by a closure.
pub struct Stage {
    path: PathBuf,
    thread: Cell<Option<JoinHandle<()>>>,
    _directory: tempfile::TempDir,
}

impl Stage {
    /// Says welcome, then plays `scene`.
    pub fn new(scene: impl FnOnce(Actor) + Send + 'static) -> Self {
        Self::silent(|mut actor| {
            actor.next();
            actor.say(Welcome {
                protocol: PROTOCOL,
                version: "test".into(),
                instance: "instance".into(),
                pid: 7,
                ends: false,
            });
            scene(actor);
        })
    }

    /// Plays `scene` from the first request on.
    pub fn silent(scene: impl FnOnce(Actor) + Send + 'static) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("server.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let thread = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            scene(Actor { connection: Connection::new(stream).unwrap() });
        });
        Self { path, thread: Cell::new(Some(thread)), _directory: directory }
    }

    pub fn connect(&self) -> Result<Client> {
        Client::connect(&self.path, std::process::id(), WAIT, &mut idle())
    }

    pub fn client(&self) -> Client {
        self.connect().unwrap()
    }

    /// Waits for the end of the scene, and fails if it did.
    pub fn join(&self) {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Sealed memory with these bytes in it.
pub fn memory(bytes: &[u8], seals: SealFlags) -> OwnedFd {
    let descriptor = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&descriptor, bytes.len() as u64).unwrap();
    pwrite(&descriptor, bytes, 0).unwrap();
    fcntl_add_seals(&descriptor, seals).unwrap();
    descriptor
}

/// A request for `count` samples.
pub fn get(count: u64) -> GetBatch {
    GetBatch {
        job: "j".into(),
        rank: 0,
        indices: (0..count).collect(),
        wait_ms: u64::try_from(WAIT.as_millis()).unwrap(),
        ..GetBatch::default()
    }
}

/// An answer with samples at (segment, offset, length).
pub fn batch(lease: u64, places: &[(u32, u64, u64)]) -> Batch {
    Batch {
        lease,
        segment: places.iter().map(|place| place.0).collect(),
        offset: places.iter().map(|place| place.1).collect(),
        length: places.iter().map(|place| place.2).collect(),
        ..Batch::default()
    }
}
