//! Noticing a training without a sampler.
//!
//! A dataset without a sampler is kept as it is asked for, which is right for one that is read in order, such as a
//! validation set. One that is asked for in random order is trained on, by a loader with `shuffle=True`: nothing of it is
//! planned or read ahead. The order is that of each reader, since loader workers take turns. In a shuffle every second
//! step of a reader goes back; in order there is one for each pass. What is seen is judged whenever more than half of the
//! samples were asked for, each counted once: a few samples by hand, or a held-out part in the random order of its
//! split, are no training.

use std::collections::HashMap;

use hotset_core::Id;
use hotset_core::bits::Bits;

use super::job::Job;

/// Samples below which nothing is judged.
const LEAST: u64 = 64;
/// One step back in so many is no order.
const BACK: u64 = 4;

/// What was seen since the last judgement.
#[derive(Debug, Default)]
pub(super) struct OrderWatch {
    /// The samples that were asked for.
    seen: Bits,
    distinct: u64,
    asked: u64,
    back: u64,
    /// The sample that each reader asked for last.
    last: HashMap<u64, Id>,
    noticed: bool,
    told: bool,
}

impl OrderWatch {
    /// Looks at what a reader asks for, of so many `samples`.
    pub(super) fn look(&mut self, reader: u64, ids: impl Iterator<Item = Id>, samples: usize) {
        if self.noticed {
            return;
        }
        if self.asked == 0 {
            self.seen = Bits::new(samples);
        }
        let mut last = self.last.get(&reader).copied();
        for id in ids {
            self.asked += 1;
            self.back += u64::from(last.is_some_and(|last| last > id));
            self.distinct += u64::from(self.seen.insert(id));
            last = Some(id);
        }
        if let Some(last) = last {
            self.last.insert(reader, last);
        }
        if self.distinct * 2 > samples as u64 && self.distinct >= LEAST {
            *self = Self { noticed: self.back * BACK > self.asked, ..Self::default() };
        }
    }
}

impl Job {
    /// What to tell a reader of `rank`.
    pub(crate) fn notice_order(&mut self, rank: u32) -> Option<String> {
        if !self.notices.order.noticed || self.notices.order.told || rank != 0 {
            return None;
        }
        self.notices.order.told = true;
        self.order_remark()
    }

    /// What was noticed, in words.
    pub(crate) fn order_remark(&self) -> Option<String> {
        self.notices.order.noticed.then(|| {
            "samples are asked for in random order and no Sampler plans them, so that none is read ahead and no strategy \
             chooses what is trained and kept. Make `sampler = hotset.Sampler(dataset)` of what is loaded, and write \
             `DataLoader(dataset, sampler=sampler)` instead of `shuffle=True`; or read a validation set in order"
                .to_owned()
        })
    }
}
