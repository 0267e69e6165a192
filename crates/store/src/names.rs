//! A compact list of strings: their text end to end, and four bytes each for where they end.
//!
//! Ends are relative to the block they lie in, so that all the text together may pass 4 GiB.

/// How many strings a block holds.
const BLOCK: usize = 1 << 15;

/// The longest string, in bytes, so that the text of a block fits 32 bits.
pub(crate) const LONGEST: usize = (u32::MAX as usize) / BLOCK;

/// Strings by their number.
#[derive(Debug, Default)]
pub(crate) struct Names {
    text: String,
    /// Where each string ends in its block.
    ends: Vec<u32>,
    /// Where each block begins in the text.
    blocks: Vec<usize>,
}

impl Names {
    /// Adds a string; `false` if it is too long.
    #[must_use]
    pub(crate) fn push(&mut self, name: &str) -> bool {
        if name.len() > LONGEST {
            return false;
        }
        if self.ends.len().is_multiple_of(BLOCK) {
            self.blocks.push(self.text.len());
        }
        self.text.push_str(name);
        let begin = self.blocks.last().copied().unwrap_or(0);
        self.ends.push((self.text.len() - begin) as u32);
        true
    }

    pub(crate) fn get(&self, index: usize) -> &str {
        let block = self.blocks[index / BLOCK];
        let start = if index.is_multiple_of(BLOCK) { 0 } else { self.ends[index - 1] as usize };
        &self.text[block + start..block + self.ends[index] as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn shrink(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.blocks.shrink_to_fit();
    }

    /// Heap bytes.
    pub(crate) fn memory(&self) -> usize {
        self.text.capacity()
            + self.ends.capacity() * size_of::<u32>()
            + self.blocks.capacity() * size_of::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_across_the_edges_of_blocks() {
        let mut names = Names::default();
        let name = |index: usize| format!("{index:x}").repeat(index % 3);
        let count = 2 * BLOCK + 2;
        assert!((0..count).all(|index| names.push(&name(index))));
        assert_eq!(names.len(), count);
        for index in (0..count).step_by(7).chain([BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, count - 1]) {
            assert_eq!(names.get(index), name(index));
        }
    }

    #[test]
    fn a_name_that_could_overflow_a_block_is_refused() {
        let mut names = Names::default();
        assert!(names.push(&"x".repeat(LONGEST)));
        assert!(!names.push(&"x".repeat(LONGEST + 1)));
        assert_eq!(names.len(), 1);
    }
}
