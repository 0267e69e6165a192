//! Bytes by their hash, from a cache that users share.
//!
//! A request for samples whose hashes are all known is put to it first. Either it brings all of them, and storage is not
//! asked, or storage is read as if it had not been there, and what comes is offered to it. Packages that were written are
//! read as they are: one request brings many samples.

use hotset_core::contents::Hash;

use super::fetch::{Brought, Fetch, Giver, Source};

/// A cache that is asked by hash.
pub trait ContentPeer: Send + Sync {
    /// Fills every place with the bytes of its hash and says whether it did; if not, what they hold is unspecified. Bytes
    /// that do not have the hash are never given out.
    fn fill(&self, wanted: &mut [(Hash, &mut [u8])]) -> bool;

    /// Hears of bytes that were read, and copies them if it wants them. Does not wait.
    fn offer(&self, hash: &Hash, bytes: &[u8]);
}

impl Fetch {
    /// What a peer brought, if that was all.
    pub(super) fn ask_peer(&mut self, peer: &dyn ContentPeer) -> Option<Brought> {
        let bytes = self.extent()?;
        let hashes = self.dataset.hashes.clone()?;
        let wanted = self.parts.iter_mut().map(|part| Some((*hashes.get(part.id)?, part.bytes())));
        let mut wanted: Vec<(Hash, &mut [u8])> = wanted.collect::<Option<_>>()?;
        let filled = peer.fill(&mut wanted);
        let proofs = wanted.into_iter().map(|(hash, _)| Some(hash)).collect();
        filled.then(|| Brought { proofs, ..Brought::whole(self.parts.len(), bytes, Giver::Peer) })
    }

    /// Offers what storage brought.
    pub(super) fn offer_to(&mut self, peer: &dyn ContentPeer) {
        let Some(hashes) = self.dataset.hashes.clone() else { return };
        if matches!(self.origin, Source::Package { .. }) {
            return;
        }
        for part in &mut self.parts {
            if let Some(hash) = hashes.get(part.id) {
                peer.offer(hash, part.bytes());
            }
        }
    }
}
