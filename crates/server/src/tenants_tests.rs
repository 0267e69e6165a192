//! A shared cache without a socket.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::*;
use crate::access::{Audience, Quota};

const ALICE: u32 = 41_001;
const BOB: u32 = 41_002;

/// A caller whose request comes with memory.
struct With(Option<OwnedFd>);

impl Caller for With {
    fn check(&mut self) -> Result<()> {
        Ok(())
    }

    fn progress(&mut self, _: proto::Progress) {}

    fn memory(&mut self) -> Result<OwnedFd> {
        self.0.take().ok_or_else(|| Error::invalid("no memory came"))
    }
}

fn tenants(capacity: u64, quota: Quota) -> Tenants {
    let options = Options {
        socket: PathBuf::new(),
        audience: Audience::Everyone,
        quota,
        tenants: true,
        shared: None,
        digests: None,
        embedded: false,
        watch: Vec::new(),
        memory: None,
        concurrency: hotset_engine::Concurrency::Fixed(1),
        retries: 0,
        linger: Duration::ZERO,
        patience: Duration::ZERO,
        metrics: None,
        listings: None,
        record: None,
        state: None,
        cluster: None,
    };
    Tenants::new(&options, capacity, Arc::new(Accounts::new(quota)))
}

fn memory(size: u64) -> File {
    let memory = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&memory, size).unwrap();
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW).unwrap();
    File::from(memory)
}

fn named(contents: &[(&[u8], usize)]) -> Option<ContentList> {
    let hashes = contents.iter().map(|(bytes, _)| blake3::hash(bytes).as_bytes().to_vec()).collect();
    Some(ContentList { hashes, lengths: contents.iter().map(|(_, length)| *length as u64).collect() })
}

fn put(tenants: &Tenants, user: u32, bytes: &[u8]) -> Result<Vec<bool>> {
    let memory = memory(bytes.len() as u64);
    memory.write_all_at(bytes, 0).unwrap();
    let request = proto::PutContents { contents: named(&[(bytes, bytes.len())]) };
    let reply = tenants.handle(user, request::Kind::PutContents(request), &mut With(Some(memory.into())))?;
    let response::Kind::ContentsPut(put) = reply.message else { panic!("{:?}", reply.message) };
    assert!(reply.descriptors.is_empty() && reply.segments.is_empty(), "it hands out nothing of its own");
    Ok(put.kept)
}

fn get(tenants: &Tenants, user: u32, bytes: &[u8]) -> Option<Vec<u8>> {
    let memory = memory(bytes.len() as u64);
    let request = proto::GetContents { contents: named(&[(bytes, bytes.len())]) };
    let own = memory.try_clone().unwrap().into();
    let reply = tenants.handle(user, request::Kind::GetContents(request), &mut With(Some(own))).unwrap();
    let response::Kind::ContentsGot(got) = reply.message else { panic!("{:?}", reply.message) };
    assert!(reply.descriptors.is_empty() && reply.segments.is_empty(), "it hands out nothing of its own");
    let mut read = vec![0; bytes.len()];
    memory.read_exact_at(&mut read, 0).unwrap();
    got.found[0].then_some(read)
}

fn refused(tenants: &Tenants, reason: &str) -> u64 {
    tenants.stats().server.unwrap().refused.get(reason).copied().unwrap_or_default()
}

#[test]
fn what_one_user_puts_another_gets_by_its_hash() {
    let tenants = tenants(1 << 20, Quota::default());
    assert_eq!(get(&tenants, BOB, b"shared"), None);
    assert_eq!(put(&tenants, ALICE, b"shared").unwrap(), [true]);
    assert_eq!(put(&tenants, BOB, b"shared").unwrap(), [true]);
    assert_eq!(get(&tenants, BOB, b"shared").unwrap(), b"shared");
    let kept = tenants.stats().server.unwrap().contents.unwrap();
    assert_eq!((kept.contents, kept.asked, kept.found, kept.put), (1, 2, 1, 1));
}

#[test]
fn a_hash_with_another_length_gets_nothing() {
    let tenants = tenants(1 << 20, Quota::default());
    put(&tenants, ALICE, b"shared").unwrap();
    for length in [0, 5, 7, 1000] {
        let request = proto::GetContents { contents: named(&[(b"shared", length)]) };
        let mut caller = With(Some(memory(1000).into()));
        let reply = tenants.handle(BOB, request::Kind::GetContents(request), &mut caller).unwrap();
        let response::Kind::ContentsGot(got) = reply.message else { panic!("{:?}", reply.message) };
        assert_eq!(got.found, [false], "{length}");
    }
}

#[test]
fn what_does_not_have_the_hash_that_was_said_is_refused_counted_and_given_to_nobody() {
    let tenants = tenants(1 << 20, Quota::default());
    let memory = memory(6);
    memory.write_all_at(b"poison", 0).unwrap();
    let request = proto::PutContents { contents: named(&[(b"shared", 6)]) };
    let mut caller = With(Some(memory.into()));
    let told = tenants.handle(ALICE, request::Kind::PutContents(request), &mut caller).err().unwrap();
    assert!(told.message.contains("does not have the hash"), "{told}");
    assert_eq!((get(&tenants, BOB, b"shared"), get(&tenants, BOB, b"poison")), (None, None));
    assert_eq!((refused(&tenants, "content"), tenants.contents.lock().taken()), (1, 0));
}

#[test]
fn bytes_that_change_while_they_are_hashed_are_never_given_out_changed() {
    let tenants = tenants(1 << 30, Quota::default());
    let length = 1 << 20;
    let (right, wrong) = (vec![7u8; length], vec![8u8; length]);
    let memory = memory(length as u64);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                memory.write_all_at(&wrong, 0).unwrap();
                memory.write_all_at(&right, 0).unwrap();
            }
        });
        for _ in 0..100 {
            let request = proto::PutContents { contents: named(&[(&right, length)]) };
            let own = memory.try_clone().unwrap().into();
            // It may be refused or not: what is kept then was hashed.
            let _ = tenants.handle(ALICE, request::Kind::PutContents(request), &mut With(Some(own)));
            if let Some(got) = get(&tenants, BOB, &right) {
                assert!(got == right, "a byte was changed after it was hashed");
            }
            tenants.contents.lock().take_room(1, (1 << 30) - 512).unwrap();
            tenants.contents.lock().give_back(1, (1 << 30) - 512);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn memory_is_bounded_for_all_and_for_each() {
    let quota = Quota { memory: Some(4 << 10), ..Quota::default() };
    let tenants = tenants(16 << 10, quota);
    put(&tenants, BOB, b"bob's own").unwrap();
    for number in 0..1000u32 {
        put(&tenants, ALICE, &[number.to_le_bytes(); 100].concat()).unwrap();
    }
    assert!(tenants.contents.lock().taken() <= 16 << 10);
    assert_eq!(get(&tenants, BOB, b"bob's own").unwrap(), b"bob's own", "a flood takes nothing from others");
    let told = put(&tenants, ALICE, &[0; 5000]).unwrap_err();
    assert!(told.message.contains("`--quota memory=`"), "{told}");
    assert_eq!(refused(&tenants, "memory"), 1);
}

#[test]
fn lists_that_lie_about_themselves_are_refused() {
    let tenants = tenants(1 << 20, Quota::default());
    let list = |hashes: Vec<Vec<u8>>, lengths: Vec<u64>| Some(ContentList { hashes, lengths });
    for contents in [
        list(vec![vec![0; 32]], vec![]),
        list(vec![vec![0; 31]], vec![1]),
        list(vec![vec![0; 32]; 2], vec![u64::MAX, 1]),
        list(vec![vec![0; 32]], vec![4 << 30]),
        list(vec![vec![0; 32]; 1025], vec![0; 1025]),
    ] {
        let get = request::Kind::GetContents(proto::GetContents { contents: contents.clone() });
        let put = request::Kind::PutContents(proto::PutContents { contents });
        for request in [get, put] {
            assert!(tenants.handle(ALICE, request, &mut With(Some(memory(100).into()))).is_err());
        }
    }
    let none = request::Kind::GetContents(proto::GetContents { contents: None });
    assert!(tenants.handle(ALICE, none, &mut With(None)).is_err(), "it came without memory");
}

#[test]
fn figures_are_for_its_own_user_and_training_is_for_another_server() {
    let tenants = tenants(1 << 20, Quota::default());
    let own = rustix::process::geteuid().as_raw();
    let stats = || request::Kind::GetStats(proto::GetStats::default());
    assert!(tenants.handle(own, stats(), &mut With(None)).is_ok());
    assert!(tenants.handle(own + 1, stats(), &mut With(None)).is_err());
    let open = request::Kind::OpenDataset(proto::OpenDataset::default());
    let told = tenants.handle(own, open, &mut With(None)).err().unwrap();
    assert!(told.message.contains("HOTSET_SHARED"), "{told}");
}
