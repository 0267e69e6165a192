//! The allocator against a plain model: an array with one owner a granule.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Allocate(u32),
    Free(usize),
    Pin(usize),
    Slide(u32, u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..40u32).prop_map(Step::Allocate),
        3 => any::<usize>().prop_map(Step::Free),
        1 => any::<usize>().prop_map(Step::Pin),
        1 => (1..60u32, 1..200u32).prop_map(|(need, budget)| Step::Slide(need, budget)),
    ]
}

/// Segment and granule to owner.
struct Plain {
    owners: BTreeMap<u32, Vec<u32>>,
}

impl Plain {
    fn put(&mut self, block: Block, owner: u32) {
        let segment = self.owners.get_mut(&block.segment).unwrap();
        for granule in &mut segment[block.start as usize..(block.start + block.granules) as usize] {
            assert_eq!(*granule, 0, "a block was given twice");
            *granule = owner;
        }
    }

    fn clear(&mut self, block: Block, owner: u32) {
        let segment = self.owners.get_mut(&block.segment).unwrap();
        for granule in &mut segment[block.start as usize..(block.start + block.granules) as usize] {
            assert_eq!(*granule, owner);
            *granule = 0;
        }
    }

    fn longest_hole(&self) -> usize {
        let runs = self.owners.values().flat_map(|s| s.split(|&owner| owner != 0).map(<[u32]>::len));
        runs.max().unwrap_or(0)
    }
}

proptest! {
    #[test]
    fn blocks_never_overlap_and_a_hole_that_fits_is_found(steps in prop::collection::vec(step(), 1..200)) {
        let mut allocator = Allocator::default();
        let mut plain = Plain { owners: BTreeMap::new() };
        for (segment, granules) in [(1, 100), (2, 64)] {
            allocator.add(segment, granules, false);
            plain.owners.insert(segment, vec![0; granules as usize]);
        }
        let mut blocks: BTreeMap<u32, (Block, bool)> = BTreeMap::new();
        let mut owner = 0;
        for step in steps {
            match step {
                Step::Allocate(need) => {
                    owner += 1;
                    let fits = plain.longest_hole() >= need as usize;
                    let block = allocator.allocate(need, owner);
                    prop_assert_eq!(block.is_some(), fits);
                    if let Some(block) = block {
                        plain.put(block, owner);
                        blocks.insert(owner, (block, false));
                    }
                }
                Step::Free(pick) if !blocks.is_empty() => {
                    let owner = *blocks.keys().nth(pick % blocks.len()).unwrap();
                    let (block, _) = blocks.remove(&owner).unwrap();
                    plain.clear(block, owner);
                    let empty = allocator.free(block);
                    prop_assert_eq!(empty, plain.owners[&block.segment].iter().all(|&o| o == 0));
                }
                Step::Pin(pick) if !blocks.is_empty() => {
                    let owner = *blocks.keys().nth(pick % blocks.len()).unwrap();
                    blocks.get_mut(&owner).unwrap().1 ^= true;
                }
                Step::Slide(need, budget) => {
                    let mut moves = Vec::new();
                    let pinned: Vec<u32> =
                        blocks.iter().filter(|(_, (_, pinned))| *pinned).map(|(&owner, _)| owner).collect();
                    let done =
                        allocator.slide(need, budget, &|owner| !pinned.contains(&owner), &mut |m| moves.push(m));
                    let spent: u32 = moves.iter().map(|m| m.from.granules).sum();
                    prop_assert!(spent <= budget);
                    for Move { owner, from, to } in moves {
                        prop_assert!(!pinned.contains(&owner));
                        prop_assert_eq!(blocks[&owner].0, from);
                        plain.clear(from, owner);
                        plain.put(to, owner);
                        blocks.get_mut(&owner).unwrap().0 = to;
                    }
                    if done {
                        prop_assert!(plain.longest_hole() >= need as usize);
                    }
                    let room = plain.owners.values().any(|s| {
                        s.iter().filter(|&&owner| owner == 0).count() >= need as usize
                    });
                    if pinned.is_empty() && budget >= 164 && room {
                        prop_assert!(done, "with nothing pinned and budget for all, room is made");
                    }
                }
                _ => {}
            }
        }
    }
}

#[test]
fn a_private_segment_is_filled_by_name_alone() {
    let mut allocator = Allocator::default();
    allocator.add(1, 10, true);
    assert_eq!(allocator.allocate(1, 7), None);
    let block = allocator.allocate_in(1, 10, 7).unwrap();
    assert_eq!(allocator.allocate_in(1, 1, 8), None);
    assert!(allocator.free(block));
    allocator.remove(1);
    assert_eq!(allocator.allocate_in(1, 1, 8), None);
}

#[test]
fn a_closing_segment_takes_nothing_more() {
    let mut allocator = Allocator::default();
    allocator.add(1, 10, false);
    let block = allocator.allocate(4, 1).unwrap();
    allocator.close(1);
    assert_eq!(allocator.allocate(1, 2), None);
    assert!(allocator.free(block));
    assert_eq!(allocator.allocate(1, 2), None);
}
