//! The memory that samples lie in: segments, and what lies where.
//!
//! Segments are added when they are needed, up to a limit that follows what jobs were granted, and closed
//! when they are empty and the limit has fallen. A sample larger than a segment
//! gets one of its own size. A *spill* is a segment for one batch, outside the limit. Segment numbers are
//! never used twice, so a client can tell an old one from a new one.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use hotset_core::Result;

use super::allocator::{Allocator, Block, GRANULE, granules};
use super::segment::{Segment, Target};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Segments are a sixteenth of the arena between these bounds: few enough to map and pass, small enough to
/// give back.
const SEGMENT: std::ops::RangeInclusive<u64> = 64 * MIB..=4 * GIB;

/// The most bytes moved to make room for one block: about a millisecond's work under the lock.
const MOVES: u64 = 8 * MIB;

/// The segments, within a limit.
#[derive(Default)]
pub(crate) struct Arena {
    allocator: Allocator,
    segments: BTreeMap<u32, Segment>,
    /// Spilled segments, outside the limit.
    spills: BTreeMap<u32, u64>,
    next: u32,
    limit: u64,
    total: u64,
    occupied: u64,
    moved: u64,
    dropped: Vec<u32>,
}

impl Arena {
    /// Sets how many bytes segments may take together.
    pub(crate) fn set_limit(&mut self, limit: u64) {
        if limit == self.limit {
            return;
        }
        self.limit = limit;
        let lasting = || self.segments.iter().filter(|(segment, _)| !self.spills.contains_key(segment));
        let (open, closed): (Vec<_>, Vec<_>) = lasting()
            .map(|(&segment, of)| (segment, of.length()))
            .partition(|&(segment, _)| self.allocator.is_open(segment));
        let mut open: u64 = open.iter().map(|(_, length)| length).sum();
        // Those that were closed take blocks again where the limit has risen.
        for (segment, length) in closed {
            if open + length <= limit {
                self.allocator.reopen(segment);
                open += length;
            }
        }
        // Segments that exceed a lowered limit take nothing more and go when they are empty. Those that are closed already
        // are as many as there could be.
        let mut excess = open.saturating_sub(limit);
        while excess > 0 {
            let Some((segment, _)) = self.allocator.emptiest() else { break };
            let length = self.segments.get(&segment).map_or(0, Segment::length);
            if length > excess && !self.allocator.is_empty(segment) {
                break;
            }
            self.allocator.close(segment);
            excess = excess.saturating_sub(length);
            self.drop_if_empty(segment);
        }
    }

    /// A block of `bytes` for `owner`, moving others if need be; `None` when there is no room.
    pub(crate) fn allocate(
        &mut self,
        bytes: u64,
        owner: u32,
        movable: &dyn Fn(u32) -> bool,
        moved: &mut dyn FnMut(u32, Block),
    ) -> Result<Option<Block>> {
        let need = granules(bytes);
        if let Some(block) = self.allocator.allocate(need, owner) {
            return Ok(Some(self.occupy(block)));
        }
        if self.grow(need)? {
            return Ok(self.allocator.allocate(need, owner).map(|block| self.occupy(block)));
        }
        let (segments, total_moved) = (&self.segments, &mut self.moved);
        let found = self.allocator.slide(need, granules(MOVES), movable, &mut |m| {
            let length = u64::from(m.from.granules) * GRANULE;
            if let Some(segment) = segments.get(&m.from.segment) {
                segment.shift(u64::from(m.from.start) * GRANULE, u64::from(m.to.start) * GRANULE, length);
            }
            *total_moved += length;
            moved(m.owner, m.to);
        });
        if !found {
            return Ok(None);
        }
        Ok(self.allocator.allocate(need, owner).map(|block| self.occupy(block)))
    }

    /// A segment of its own for blocks of `sizes` bytes, outside the limit.
    pub(crate) fn spill(&mut self, sizes: impl Iterator<Item = u64>) -> Result<u32> {
        let length = sizes.map(|bytes| u64::from(granules(bytes)) * GRANULE).sum::<u64>().max(GRANULE);
        let segment = self.add(length, true)?;
        self.spills.insert(segment, length);
        Ok(segment)
    }

    /// A block in a spilled segment.
    pub(crate) fn allocate_in(&mut self, segment: u32, bytes: u64, owner: u32) -> Option<Block> {
        let block = self.allocator.allocate_in(segment, granules(bytes), owner)?;
        Some(self.occupy(block))
    }

    /// Gives a block back.
    pub(crate) fn free(&mut self, block: Block) {
        self.occupied -= u64::from(block.granules) * GRANULE;
        if self.allocator.free(block) && (self.total > self.limit || !self.allocator.is_open(block.segment)) {
            self.drop_if_empty(block.segment);
        }
    }

    /// Whether any segment lies outside the limit.
    pub(crate) fn has_spills(&self) -> bool {
        !self.spills.is_empty()
    }

    /// A block belongs to another owner from now on.
    pub(crate) fn set_owner(&mut self, block: Block, owner: u32) {
        self.allocator.set_owner(block, owner);
    }

    /// Whether a segment lies outside the limit.
    pub(crate) fn is_spill(&self, segment: u32) -> bool {
        self.spills.contains_key(&segment)
    }

    /// Copies a block into another of the same size.
    pub(crate) fn copy(&self, from: Block, to: Block) {
        let length = u64::from(from.granules.min(to.granules)) * GRANULE;
        if let (Some(mut from), Some(mut to)) = (self.target(from, length), self.target(to, length)) {
            to.bytes().copy_from_slice(from.bytes());
        }
    }

    /// Where `length` bytes of a block are written.
    pub(crate) fn target(&self, block: Block, length: u64) -> Option<Target> {
        self.segments.get(&block.segment)?.target(u64::from(block.start) * GRANULE, length)
    }

    /// The descriptor and length of a segment, for a reader that has not mapped it.
    pub(crate) fn descriptor(&self, segment: u32) -> Option<(Arc<OwnedFd>, u64)> {
        self.segments.get(&segment).map(|s| (s.descriptor(), s.length()))
    }

    /// Segments that went since this was last asked.
    pub(crate) fn take_dropped(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.dropped)
    }

    /// Bytes in segments, spilled ones included.
    pub(crate) fn total(&self) -> u64 {
        self.total + self.spills.values().sum::<u64>()
    }

    /// The bytes that segments may take together.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    pub(crate) fn occupied(&self) -> u64 {
        self.occupied
    }

    pub(crate) fn segments(&self) -> usize {
        self.segments.len()
    }

    pub(crate) fn moved(&self) -> u64 {
        self.moved
    }

    fn occupy(&mut self, block: Block) -> Block {
        self.occupied += u64::from(block.granules) * GRANULE;
        block
    }

    /// Adds a segment that can hold `need` granules, if the limit allows.
    fn grow(&mut self, need: u32) -> Result<bool> {
        let room = self.limit.saturating_sub(self.total) / GRANULE * GRANULE;
        let need = u64::from(need) * GRANULE;
        if room < need {
            return Ok(false);
        }
        let usual = (self.limit / 16).clamp(*SEGMENT.start(), *SEGMENT.end()).next_multiple_of(MIB);
        let length = usual.max(need).min(room);
        // What would be left over is too little for a segment worth having: take it along.
        let length = if room - length < 16 * MIB { room.min(*SEGMENT.end()) } else { length };
        let length = length.max(need);
        self.add(length, false)?;
        self.total += length;
        Ok(true)
    }

    fn add(&mut self, length: u64, private: bool) -> Result<u32> {
        let segment = Segment::new(length)?;
        self.next += 1;
        self.segments.insert(self.next, segment);
        self.allocator.add(self.next, u32::try_from(length / GRANULE).unwrap_or(u32::MAX), private);
        Ok(self.next)
    }

    fn drop_if_empty(&mut self, segment: u32) {
        if !self.allocator.is_empty(segment) {
            return;
        }
        self.allocator.remove(segment);
        if let Some(gone) = self.segments.remove(&segment) {
            if self.spills.remove(&segment).is_none() {
                self.total -= gone.length();
            }
            self.dropped.push(segment);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocate(arena: &mut Arena, bytes: u64, owner: u32) -> Option<Block> {
        arena.allocate(bytes, owner, &|_| true, &mut |_, _| {}).unwrap()
    }

    #[test]
    fn a_limit_that_falls_leaves_room_for_those_that_stay_and_one_that_rises_gives_it_back() {
        let mut arena = Arena::default();
        arena.set_limit(512 * MIB);
        let blocks: Vec<_> = (0..512).map(|owner| allocate(&mut arena, MIB, owner).unwrap()).collect();
        // Every other block goes: each segment is half full, and none is empty.
        blocks.iter().step_by(2).for_each(|&block| arena.free(block));
        for _ in 0..3 {
            arena.set_limit(256 * MIB);
            assert!(allocate(&mut arena, MIB, 1000).is_some(), "segments within the limit take blocks");
            arena.set_limit(257 * MIB);
        }
        assert_eq!(arena.segments(), 8, "nothing is empty");
        arena.set_limit(512 * MIB);
        let more = (0..250).filter(|&owner| allocate(&mut arena, MIB, 2000 + owner).is_some()).count();
        assert_eq!(more, 250, "what was closed takes blocks again");
    }

    #[test]
    fn segments_come_when_needed_and_go_when_empty() {
        let mut arena = Arena::default();
        arena.set_limit(80 * MIB);
        assert_eq!(arena.segments(), 0);
        let one = allocate(&mut arena, MIB, 1).unwrap();
        assert_eq!(arena.segments(), 1);
        let rest: Vec<_> = (2..=80).map(|owner| allocate(&mut arena, MIB, owner).unwrap()).collect();
        assert_eq!(allocate(&mut arena, MIB, 99), None, "the limit holds");
        assert!(arena.total() <= 80 * MIB);
        for block in rest {
            arena.free(block);
        }
        arena.free(one);
        assert_eq!(arena.segments(), 2, "room that is still granted stays");
        arena.set_limit(0);
        assert_eq!((arena.total(), arena.segments(), arena.occupied()), (0, 0, 0));
        assert!(!arena.take_dropped().is_empty());
    }

    #[test]
    fn a_sample_larger_than_a_segment_gets_one_of_its_own() {
        let mut arena = Arena::default();
        arena.set_limit(200 * MIB);
        let block = allocate(&mut arena, 150 * MIB, 1).unwrap();
        assert!(arena.target(block, 150 * MIB).is_some());
        assert_eq!(allocate(&mut arena, 60 * MIB, 2), None);
    }

    #[test]
    fn a_spill_lies_outside_the_limit_and_goes_with_its_last_block() {
        let mut arena = Arena::default();
        arena.set_limit(MIB);
        let segment = arena.spill([10, 0, 33].into_iter()).unwrap();
        let blocks: Vec<_> =
            [10, 0, 33].iter().map(|&bytes| arena.allocate_in(segment, bytes, 1).unwrap()).collect();
        assert_eq!(arena.segments(), 1);
        for block in blocks {
            arena.free(block);
        }
        assert_eq!((arena.segments(), arena.total()), (0, 0));
    }

    #[test]
    fn moved_bytes_stay_the_same_bytes() {
        let mut arena = Arena::default();
        arena.set_limit(MIB);
        let size = 64 << 10;
        let mut blocks: Vec<_> = (0..16).map(|owner| allocate(&mut arena, size, owner).unwrap()).collect();
        for (owner, &block) in blocks.iter().enumerate() {
            arena.target(block, size).unwrap().bytes().fill(owner as u8);
        }
        for owner in (0..16).step_by(2) {
            arena.free(blocks[owner]);
        }
        let mut moves = Vec::new();
        let big = arena
            .allocate(3 * size, 99, &|_| true, &mut |owner, to| moves.push((owner, to)))
            .unwrap()
            .unwrap();
        assert!(!moves.is_empty());
        for (owner, to) in moves {
            blocks[owner as usize] = to;
        }
        arena.target(big, 3 * size).unwrap().bytes().fill(99);
        for owner in (1..16).step_by(2) {
            assert!(arena.target(blocks[owner], size).unwrap().bytes().iter().all(|&b| b == owner as u8));
        }
        assert!(arena.moved() > 0);
    }

    #[test]
    fn a_lowered_limit_closes_segments_as_they_empty() {
        let mut arena = Arena::default();
        arena.set_limit(256 * MIB);
        let blocks: Vec<_> = (0..200).map(|owner| allocate(&mut arena, MIB, owner).unwrap()).collect();
        arena.set_limit(64 * MIB);
        for block in blocks {
            arena.free(block);
        }
        assert!(arena.total() <= 64 * MIB);
    }
}
