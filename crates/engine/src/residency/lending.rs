//! Bytes that are looked at by the engine itself, to be packed or given to another node.

use super::object::Fill;
use super::{Residency, View};

impl Residency {
    /// Leases an object that is whole to look at its bytes. `None` if it lies in memory of one batch's own, which goes
    /// with the batch.
    pub(crate) fn lend(&mut self, key: u32) -> Option<View> {
        let object = &self.objects[key as usize];
        if object.fill != Fill::Ready || self.is_spilled(key) {
            return None;
        }
        let target = self.arena.target(self.block(object), object.length())?;
        self.hold(key);
        self.lease(key);
        self.lent += 1;
        Some(View::leased(target))
    }

    /// The bytes of an object were looked at.
    pub(crate) fn end_lending(&mut self, key: u32) {
        self.lent -= 1;
        self.end_lease(key);
    }

    /// A copy of the bytes of an object that is whole, wherever it lies.
    pub(crate) fn copy(&self, key: u32) -> Option<Vec<u8>> {
        let object = self.objects.get(key as usize).filter(|object| object.is_whole())?;
        let target = self.arena.target(self.block(object), object.length())?;
        Some(View::leased(target).bytes().to_vec())
    }
}
