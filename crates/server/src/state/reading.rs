//! The one place where state files and logs are read.

use std::io;
use std::path::Path;

use hotset_store::regular;

use crate::lock::assert_unlocked;

/// All bytes of a file.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    assert_unlocked();
    #[cfg(test)]
    tests::READ.with_borrow_mut(|read| read.push(path.to_owned()));
    regular::read(path)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;
    use std::path::PathBuf;

    thread_local! {
        /// What this thread has read, in order.
        pub(super) static READ: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
    }

    /// The files that this thread has read since this was last asked.
    pub(crate) fn read() -> Vec<PathBuf> {
        READ.take()
    }
}
