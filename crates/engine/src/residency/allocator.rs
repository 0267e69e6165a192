//! Where in the segments each block lies: bookkeeping only, no bytes.
//!
//! Best fit over all segments, in granules of 16 bytes, freed neighbours joined. When no hole is large
//! enough, [`Allocator::slide`] closes holes: it moves the block behind a hole to the hole's beginning, so
//! that the hole wanders up and grows by every hole it meets, until it is large enough or a budget of moved
//! granules is spent. Blocks that may not move (leased, or being filled) stand still and split the walk. A
//! *private* segment takes only what is allocated in it by name; a *closing* one takes nothing more.

use std::collections::{BTreeMap, BTreeSet};

/// The unit of allocation, in bytes: views are aligned to it.
pub(crate) const GRANULE: u64 = 16;

/// The granules that `bytes` take; at least one, so that every sample has a place.
pub(crate) fn granules(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(GRANULE).max(1)).unwrap_or(u32::MAX)
}

/// A place in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) segment: u32,
    pub(crate) start: u32,
    pub(crate) granules: u32,
}

/// One block's move within its segment, for the keeper of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) owner: u32,
    pub(crate) from: Block,
    pub(crate) to: Block,
}

struct Segment {
    granules: u32,
    free_granules: u32,
    open: bool,
    /// Holes: start to length.
    free: BTreeMap<u32, u32>,
    /// Blocks: start to owner and length.
    live: BTreeMap<u32, (u32, u32)>,
}

/// The blocks of all segments.
#[derive(Default)]
pub(crate) struct Allocator {
    segments: BTreeMap<u32, Segment>,
    /// Holes of open segments, smallest first.
    by_size: BTreeSet<(u32, u32, u32)>,
}

impl Allocator {
    /// Adds an empty segment. A private one serves [`Self::allocate_in`] alone.
    pub(crate) fn add(&mut self, segment: u32, granules: u32, private: bool) {
        let book = Segment {
            granules,
            free_granules: 0,
            open: !private,
            free: BTreeMap::new(),
            live: BTreeMap::new(),
        };
        self.segments.insert(segment, book);
        self.insert_hole(segment, 0, granules);
    }

    /// A block for `owner`, if a hole is large enough.
    pub(crate) fn allocate(&mut self, need: u32, owner: u32) -> Option<Block> {
        let &(length, segment, start) = self.by_size.range((need, 0, 0)..).next()?;
        Some(self.carve(segment, start, length, need, owner))
    }

    /// A block in this very segment.
    pub(crate) fn allocate_in(&mut self, segment: u32, need: u32, owner: u32) -> Option<Block> {
        let book = self.segments.get(&segment)?;
        let (start, length) =
            book.free.iter().find(|&(_, &length)| length >= need).map(|(&start, &length)| (start, length))?;
        Some(self.carve(segment, start, length, need, owner))
    }

    /// Gives a block back. True when its segment is empty now.
    pub(crate) fn free(&mut self, block: Block) -> bool {
        let Some(book) = self.segments.get_mut(&block.segment) else { return false };
        let owned = book.live.remove(&block.start);
        debug_assert_eq!(owned.map(|(_, length)| length), Some(block.granules));
        self.insert_hole(block.segment, block.start, block.granules);
        self.is_empty(block.segment)
    }

    /// A block belongs to another owner from now on.
    pub(crate) fn set_owner(&mut self, block: Block, owner: u32) {
        let live = self.segments.get_mut(&block.segment).and_then(|book| book.live.get_mut(&block.start));
        live.into_iter().for_each(|(of, _)| *of = owner);
    }

    /// Takes nothing more into `segment`, so that it empties.
    pub(crate) fn close(&mut self, segment: u32) {
        if let Some(book) = self.segments.get_mut(&segment) {
            book.open = false;
            for (&start, &length) in &book.free {
                self.by_size.remove(&(length, segment, start));
            }
        }
    }

    /// Lets a closed segment take blocks again.
    pub(crate) fn reopen(&mut self, segment: u32) {
        if let Some(book) = self.segments.get_mut(&segment) {
            book.open = true;
            self.by_size.extend(book.free.iter().map(|(&start, &length)| (length, segment, start)));
        }
    }

    /// Forgets an empty segment.
    pub(crate) fn remove(&mut self, segment: u32) {
        debug_assert!(self.is_empty(segment));
        self.close(segment);
        self.segments.remove(&segment);
    }

    /// Whether a segment takes any block that fits.
    pub(crate) fn is_open(&self, segment: u32) -> bool {
        self.segments.get(&segment).is_some_and(|book| book.open)
    }

    pub(crate) fn is_empty(&self, segment: u32) -> bool {
        self.segments.get(&segment).is_none_or(|book| book.live.is_empty())
    }

    /// The open segment with the most room, and its free granules.
    pub(crate) fn emptiest(&self) -> Option<(u32, u32)> {
        let open = self.segments.iter().filter(|(_, book)| book.open);
        open.map(|(&segment, book)| (segment, book.free_granules)).max_by_key(|&(_, free)| free)
    }

    /// Closes holes until one of `need` granules exists or `budget` granules were moved. True if one does.
    pub(crate) fn slide(
        &mut self,
        need: u32,
        budget: u32,
        movable: &dyn Fn(u32) -> bool,
        moved: &mut dyn FnMut(Move),
    ) -> bool {
        let mut left = budget;
        let mut roomy: Vec<_> = self
            .segments
            .iter()
            .filter(|(_, book)| book.open && book.free_granules >= need)
            .map(|(&segment, book)| (book.free_granules, segment))
            .collect();
        roomy.sort_unstable_by(|a, b| b.cmp(a));
        for (_, segment) in roomy {
            let mut at = 0;
            while left > 0 {
                let Some((start, length)) = self.hole_at_or_after(segment, at) else { break };
                if length >= need {
                    return true;
                }
                let behind = start + length;
                let Some((owner, size)) = self.block_at(segment, behind) else { break };
                if !movable(owner) {
                    at = behind;
                    continue;
                }
                if size > left {
                    return false;
                }
                left -= size;
                moved(self.shift(segment, start, length, owner, size));
                at = start + size;
            }
        }
        false
    }

    /// Moves the block behind a hole to the hole's beginning.
    fn shift(&mut self, segment: u32, start: u32, length: u32, owner: u32, size: u32) -> Move {
        self.remove_hole(segment, start, length);
        if let Some(book) = self.segments.get_mut(&segment) {
            book.live.remove(&(start + length));
            book.live.insert(start, (owner, size));
        }
        self.insert_hole(segment, start + size, length);
        let from = Block { segment, start: start + length, granules: size };
        Move { owner, from, to: Block { start, ..from } }
    }

    fn carve(&mut self, segment: u32, start: u32, length: u32, need: u32, owner: u32) -> Block {
        self.remove_hole(segment, start, length);
        if length > need {
            self.insert_hole(segment, start + need, length - need);
        }
        if let Some(book) = self.segments.get_mut(&segment) {
            book.live.insert(start, (owner, need));
        }
        Block { segment, start, granules: need }
    }

    fn hole_at_or_after(&self, segment: u32, at: u32) -> Option<(u32, u32)> {
        let book = self.segments.get(&segment)?;
        book.free.range(at..).next().map(|(&start, &length)| (start, length))
    }

    fn block_at(&self, segment: u32, start: u32) -> Option<(u32, u32)> {
        self.segments.get(&segment)?.live.get(&start).copied()
    }

    fn remove_hole(&mut self, segment: u32, start: u32, length: u32) {
        if let Some(book) = self.segments.get_mut(&segment) {
            book.free.remove(&start);
            book.free_granules -= length;
            self.by_size.remove(&(length, segment, start));
        }
    }

    /// Adds a hole, joined with the holes that touch it.
    fn insert_hole(&mut self, segment: u32, start: u32, length: u32) {
        let (mut start, mut length) = (start, length);
        let Some(book) = self.segments.get(&segment) else { return };
        let before = book.free.range(..start).next_back().map(|(&s, &l)| (s, l));
        let after = book.free.get(&(start + length)).copied();
        if let Some(after) = after {
            self.remove_hole(segment, start + length, after);
            length += after;
        }
        if let Some((s, l)) = before.filter(|&(s, l)| s + l == start) {
            self.remove_hole(segment, s, l);
            start = s;
            length += l;
        }
        if let Some(book) = self.segments.get_mut(&segment) {
            debug_assert!(start + length <= book.granules);
            book.free.insert(start, length);
            book.free_granules += length;
            if book.open {
                self.by_size.insert((length, segment, start));
            }
        }
    }
}

#[cfg(test)]
#[path = "allocator_tests.rs"]
mod tests;
