//! Bytes that several samples have in common, each once.
//!
//! A digest says what hash a sample's bytes have. When they have come and were found to have it, they are a *content*: a
//! block of the arena that belongs to no object but to all that have it, whatever their dataset. An object whose bytes
//! are there already, under that hash, gives its own block back and takes the content. The block goes with the last of them,
//! so what one cache evicts stays for another that keeps it.
//!
//! Objects stay what they are: each has the claims, holds and leases of its own sample. A content counts what is needed to
//! treat its block as that of one object: how many have it, how many of those a cache keeps, and how many leases are on them.
//!
//! *Whose memory it is.* Every cache is charged the full size of what it keeps, whoever keeps it too: what a policy decides
//! may not depend on another dataset. Memory is charged once, as kept while any cache keeps it. The difference is
//! [`spared`](Residency::spared): what objects keep, less that, is what memory keeps.
//!
//! Without hashes there are no contents, and an object has its block to itself.

use std::collections::HashMap;
use std::num::NonZeroU32;

use hotset_core::contents::Hash;
use slab::Slab;

use super::Residency;
use super::allocator::Block;
use super::object::{Fill, Object};

/// Names a content among those there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ContentKey(NonZeroU32);

impl ContentKey {
    fn new(index: usize) -> Self {
        Self(NonZeroU32::MIN.saturating_add(index as u32))
    }

    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// What a block of the arena belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Object(u32),
    Content(ContentKey),
}

impl Owner {
    /// Objects are far fewer than this.
    const CONTENT: u32 = 1 << 31;

    pub(super) fn of(number: u32) -> Self {
        if number & Self::CONTENT == 0 {
            Self::Object(number)
        } else {
            Self::Content(ContentKey::new((number & !Self::CONTENT) as usize))
        }
    }

    /// Its number, as the allocator knows it.
    fn number(self) -> u32 {
        match self {
            Self::Object(key) => key,
            Self::Content(key) => key.index() as u32 | Self::CONTENT,
        }
    }
}

/// Bytes that have the hash they are known by.
#[derive(Debug)]
struct Content {
    hash: Hash,
    block: Block,
    length: u64,
    /// The dataset that brought it.
    dataset: u32,
    /// Whether another had it too.
    shared: bool,
    /// Objects that have it.
    objects: u32,
    /// Those of them that a cache keeps.
    kept: u32,
    /// Leases on any of them.
    leases: u32,
}

/// All contents.
#[derive(Default)]
pub(super) struct Contents {
    all: Slab<Content>,
    by_hash: HashMap<Hash, ContentKey>,
    /// Bytes that objects keep beyond those that memory does.
    spared: u64,
}

impl Contents {
    fn get(&self, key: ContentKey) -> &Content {
        &self.all[key.index()]
    }

    fn get_mut(&mut self, key: ContentKey) -> &mut Content {
        &mut self.all[key.index()]
    }

    pub(super) fn block(&self, key: ContentKey) -> Block {
        self.get(key).block
    }

    /// Its block was moved.
    pub(super) fn moved(&mut self, key: ContentKey, to: Block) {
        self.get_mut(key).block = to;
    }

    pub(super) fn is_movable(&self, key: ContentKey) -> bool {
        self.get(key).leases == 0
    }

    pub(super) fn is_kept(&self, key: ContentKey) -> bool {
        self.get(key).kept > 0
    }

    /// One of its objects is leased once more.
    pub(super) fn lease(&mut self, key: ContentKey) {
        self.get_mut(key).leases += 1;
    }

    /// A lease on one of its objects has ended.
    pub(super) fn end_lease(&mut self, key: ContentKey) {
        self.get_mut(key).leases -= 1;
    }

    /// A cache keeps one of its objects from now on, which takes so many bytes. False if one is kept already.
    pub(super) fn keep(&mut self, key: ContentKey, room: u64) -> bool {
        let content = self.get_mut(key);
        content.kept += 1;
        let first = content.kept == 1;
        self.spared += if first { 0 } else { room };
        first
    }

    /// No cache keeps one of its objects any longer. False if another is kept still.
    pub(super) fn unkeep(&mut self, key: ContentKey, room: u64) -> bool {
        let content = self.get_mut(key);
        content.kept -= 1;
        let last = content.kept == 0;
        self.spared -= if last { 0 } else { room };
        last
    }

    /// One of its objects has left. The block, if it was the last.
    pub(super) fn leave(&mut self, key: ContentKey) -> Option<Block> {
        let content = self.get_mut(key);
        content.objects -= 1;
        if content.objects > 0 {
            return None;
        }
        let gone = self.all.remove(key.index());
        self.by_hash.remove(&gone.hash);
        Some(gone.block)
    }
}

impl Residency {
    /// The content of a hash that a sample of a dataset may have: one that a cache keeps, or that another dataset brought or
    /// has had. What lingers of its own is read again, as ever.
    pub(crate) fn content(&self, hash: &Hash, dataset: u32, length: u64) -> Option<ContentKey> {
        let &key = self.contents.by_hash.get(hash)?;
        let content = self.contents.get(key);
        let own = content.dataset == dataset && !content.shared && content.kept == 0;
        // A digest that names a sample of another length is wrong.
        (!own && content.length == length).then_some(key)
    }

    /// Gives an object that is being read a content in place of its own block.
    pub(crate) fn adopt(&mut self, key: u32, content: ContentKey) {
        let own = self.objects[key as usize].block;
        self.take_content(key, content);
        self.arena.free(own);
    }

    fn take_content(&mut self, key: u32, content: ContentKey) {
        let kept = self.is_object_kept(key);
        if kept {
            self.set_kept(key, false);
        }
        let object = &mut self.objects[key as usize];
        object.content = Some(content);
        let entry = self.contents.get_mut(content);
        entry.objects += 1;
        entry.shared |= entry.dataset != object.dataset;
        if kept {
            self.set_kept(key, true);
        }
    }

    /// The bytes of an object that is being read have come, and have this hash: it takes the content, or is the first that
    /// has it.
    pub(crate) fn prove(&mut self, key: u32, hash: Hash) {
        let object = &self.objects[key as usize];
        debug_assert_eq!((object.fill, object.content), (Fill::Reading, None));
        // What lies apart, or outside the arena, is one reader's.
        if !object.current {
            return;
        }
        if let Some(&content) = self.contents.by_hash.get(&hash) {
            return self.adopt(key, content);
        }
        if self.arena.is_spill(object.block.segment) {
            return;
        }
        let (block, length, dataset) = (object.block, object.length(), object.dataset);
        let entry = Content { hash, block, length, dataset, shared: false, objects: 0, kept: 0, leases: 0 };
        let content = ContentKey::new(self.contents.all.insert(entry));
        self.contents.by_hash.insert(hash, content);
        self.arena.set_owner(block, Owner::Content(content).number());
        self.take_content(key, content);
    }

    /// Where an object's bytes lie.
    pub(super) fn block(&self, object: &Object) -> Block {
        object.content.map_or(object.block, |content| self.contents.block(content))
    }

    /// Whether there are any.
    pub(crate) fn has_contents(&self) -> bool {
        !self.contents.all.is_empty()
    }

    /// Bytes that caches keep beyond those that memory does, because several keep the same content.
    pub(crate) fn spared(&self) -> u64 {
        self.contents.spared
    }
}

#[cfg(feature = "shuttle")]
impl Residency {
    /// Checks that contents are as their objects say: the bytes that they take, and those of them that are kept.
    pub(super) fn check_contents(&self) -> (u64, u64) {
        let (mut occupied, mut kept, mut spared) = (0, 0, 0);
        for (index, content) in &self.contents.all {
            let key = ContentKey::new(index);
            assert_eq!(self.contents.by_hash.get(&content.hash), Some(&key), "a content has lost its hash");
            let room = u64::from(content.block.granules) * super::allocator::GRANULE;
            let (mut objects, mut keepers, mut leases) = (0, 0, 0);
            for (number, object) in self.objects().filter(|(_, object)| object.content == Some(key)) {
                objects += 1;
                keepers += u32::from(self.is_object_kept(number));
                leases += object.leases;
                assert_eq!(object.room(), room, "object {number} is as large as its content");
            }
            let counted = (content.objects, content.kept, content.leases);
            assert_eq!((objects, keepers, leases), counted, "objects of a content do not add up");
            assert!(objects > 0, "no object has a content");
            occupied += room;
            kept += if keepers > 0 { room } else { 0 };
            spared += u64::from(keepers.saturating_sub(1)) * room;
        }
        assert_eq!(self.contents.by_hash.len(), self.contents.all.len());
        assert_eq!(spared, self.contents.spared, "what is spared does not add up");
        (occupied, kept)
    }
}
