//! A shard read through a window, for the headers in it.
//!
//! Remote shards are read in long stretches, one after the other, since a request costs more than the bytes of
//! small members; where members are larger than a stretch, only the beginning of each is read. Of local ones
//! only headers are.

use hotset_core::{Error, Result};

use super::tar::Source;
use crate::listing::Object;
use crate::retries::with_retries;
use crate::store::{Location, Store};

const STRETCH: u64 = 1 << 20;
const BEGINNING: u64 = 64 << 10;
const HEADERS: u64 = 4 << 10;

pub(super) struct Window<'a> {
    store: &'a dyn Store,
    object: &'a Object,
    remote: bool,
    buffer: Vec<u8>,
    /// Where the buffer begins in the shard.
    begin: u64,
}

impl<'a> Window<'a> {
    pub(super) fn new(store: &'a dyn Store, object: &'a Object, remote: bool) -> Self {
        Self { store, object, remote, buffer: Vec::new(), begin: 0 }
    }

    fn fetch(&mut self, offset: u64, count: u64) -> Result<()> {
        let end = self.begin + self.buffer.len() as u64;
        let stretch = match (self.remote, offset.saturating_sub(end) > STRETCH) {
            (false, _) => HEADERS,
            (true, true) => BEGINNING,
            (true, false) => STRETCH,
        };
        let length = stretch.max(count).min(self.len().saturating_sub(offset));
        if length < count {
            return Err(Error::internal(format!("`{}` was asked for bytes behind its end", self.object.key)));
        }
        self.begin = offset;
        self.buffer.resize(length as usize, 0);
        let Object { key, look } = self.object;
        let at = Location { key, offset, version: look.version, whole: false };
        let read = with_retries(key, || self.store.read(at, &mut self.buffer));
        if read.is_err() {
            self.buffer.clear();
        }
        read
    }
}

impl Source for Window<'_> {
    fn len(&self) -> u64 {
        self.object.look.size
    }

    fn bytes(&mut self, offset: u64, count: u64) -> Result<&[u8]> {
        let inside = |window: &Self| {
            let from = offset.checked_sub(window.begin)?;
            (from + count <= window.buffer.len() as u64).then_some(from as usize)
        };
        let from = match inside(self) {
            Some(from) => from,
            None => {
                self.fetch(offset, count)?;
                0
            }
        };
        Ok(&self.buffer[from..from + count as usize])
    }
}
