//! `icache`, the cache of iCache (Chen et al., HPCA 2023, III-B and III-C): hard samples stay, easy ones come
//! in packages.
//!
//! **H region.** A sample is admitted when its IV is higher than the lowest resident's, which it evicts; but
//! an id that is still due in this epoch is never evicted for one that is not: then the lowest IV that is not
//! due again is evicted, or none. So an epoch without repetition reads exactly those samples of its plan that
//! were not resident at its start, and ends with the highest IVs that the cache can hold. `strict=true` is
//! the paper's plain heap, which ignores what is due and reads 5 to 11 % more. Each slot is decided with the
//! keys its plan was made from; the `high` module describes how the heap changes over without a stop.
//!
//! **L region.** Only where there are packages. `split=fixed` gives it a tenth of the capacity, or two
//! packages if they are more. `split=paper` gives the H region the share r_H / (r_H + r_L), where r is how
//! often a sample of that class was selected in the last epoch. An H-sample that comes in a package may move
//! over.
//!
//! Differs from the paper: capacity is bytes; what is due is taken into account; r are rates, since counts
//! would give the L region most of the cache whatever the importance; and while there is room a sample is
//! admitted whatever its class.

mod high;
mod low;

use std::sync::Arc;

use self::high::High;
use self::low::Low;
use super::{Begin, Due, Entry, NoDue, Place, Policy, Region, Setup, Sizes, Verdict, foreign};
use crate::bits::Bits;
use crate::importance::Keys;
use crate::saved::{Reader, Unsealed, Writer};
use crate::settings::{Domain, Parameter};
use crate::{Id, Result};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "split",
        default: "fixed",
        domain: Domain::Word(&["fixed", "paper"]),
        summary: "how the capacity is split between H and L",
    },
    Parameter {
        name: "strict",
        default: "false",
        domain: Domain::Switch,
        summary: "the paper's plain heap, which does not look at what is due",
    },
];

pub(super) const ENTRY: Entry = Entry {
    name: "icache",
    summary: "keeps the samples of highest loss; easy ones come in packages (iCache)",
    bounded: true,
    offline: false,
    plain: false,
    shared: true,
    parameters: PARAMETERS,
    build: |setup| Box::new(Icache::new(setup)),
};

/// How the capacity is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Split {
    Fixed,
    Paper,
}

/// iCache's policy: a region of hard samples and one of packages.
pub(super) struct Icache {
    name: &'static str,
    capacity: u64,
    sizes: Arc<dyn Sizes>,
    split: Split,
    high: High,
    low: Low,
    /// The bytes of the L region.
    low_limit: u64,
    /// What the plan before selected: slots of H-samples, all slots, H-samples, all samples.
    selected: Option<[u64; 4]>,
    /// The static buffer of `impact`, its bytes, and whether no sample leaves because a plan says so.
    buffer: Bits,
    buffered: u64,
    still: bool,
}

impl Icache {
    pub(super) fn new(setup: Setup) -> Self {
        let values = setup.values.or_defaults(PARAMETERS);
        let split = if values.text("split") == "paper" { Split::Paper } else { Split::Fixed };
        Self {
            name: "icache",
            capacity: setup.capacity,
            high: High::new(Arc::clone(&setup.sizes), values.switch("strict")),
            low: Low::new(Arc::clone(&setup.sizes)),
            sizes: setup.sizes,
            split,
            low_limit: 0,
            selected: None,
            buffer: Bits::default(),
            buffered: 0,
            still: false,
        }
    }

    /// `impact`: the residents stay while plans say so, and there may be a static buffer.
    pub(super) fn impact(setup: Setup) -> Self {
        Self { name: "impact", ..Self::new(setup) }
    }

    /// What the regions share.
    fn regions_capacity(&self) -> u64 {
        self.capacity.saturating_sub(self.buffered)
    }

    fn high_limit(&self) -> u64 {
        self.regions_capacity().saturating_sub(self.low_limit)
    }

    /// How many bytes the L region gets for packages of `package` bytes.
    fn low_share(&self, package: u64) -> u64 {
        self.split().max(package.saturating_mul(2)).min(self.regions_capacity())
    }

    /// The L region's bytes by what the plan before selected.
    fn split(&self) -> u64 {
        let whole = self.regions_capacity();
        match (self.split, self.selected) {
            (Split::Paper, Some([high_slots, slots, high, all])) if high > 0 && all > high => {
                let rate = |slots: u64, ids: u64| slots as f64 / ids as f64;
                let (r_high, r_low) =
                    (rate(high_slots, high), rate(slots.saturating_sub(high_slots), all - high));
                let low = if r_high + r_low > 0.0 { r_low / (r_high + r_low) } else { 0.1 };
                (whole as f64 * low) as u64
            }
            _ => whole / 10,
        }
    }

    fn is_buffered(&self, id: Id) -> bool {
        self.buffer.contains(id)
    }

    fn in_buffer(&self) -> impl Iterator<Item = Id> + '_ {
        self.buffer.iter()
    }

    /// Makes the H region small enough that all fit together with `bytes` more.
    fn make_room(&mut self, bytes: u64, due: &dyn Due, evicted: &mut Vec<Id>) {
        let others = self.low.used + self.buffered + bytes;
        self.high.shrink_to(self.capacity.saturating_sub(others), due, evicted);
    }

    /// Takes `id` into the H region if it merits it. An L region that was made smaller gives way.
    fn admit(&mut self, id: Id, due: &dyn Due, evicted: &mut Vec<Id>) -> bool {
        let limit = self.high_limit();
        if self.still && self.high.used + self.sizes.size(id) > limit {
            return false;
        }
        let admitted = self.high.admit(id, limit, due, evicted);
        if admitted {
            self.low.shrink_to(self.regions_capacity().saturating_sub(self.high.used), evicted);
        }
        admitted
    }
}

impl Policy for Icache {
    fn access(&mut self, id: Id, due: &dyn Due, evicted: &mut Vec<Id>) -> Verdict {
        if self.is_buffered(id) {
            return Verdict::Hit;
        }
        if self.high.contains(id) {
            self.high.touch(id, due);
            return Verdict::Hit;
        }
        if self.low.contains(id) {
            let packed = self.low.serve(id);
            // It leaves the one region when the other has taken it in; together they hold it twice for now.
            let room = self.high_limit().min(self.regions_capacity().saturating_sub(self.low.used));
            if self.high.is_high(id) && !self.still && self.high.admit(id, room, due, evicted) {
                self.low.remove(id);
            }
            return if packed { Verdict::Packed } else { Verdict::Hit };
        }
        if self.admit(id, due, evicted) { Verdict::Admitted } else { Verdict::Bypassed }
    }

    fn contains(&self, id: Id) -> bool {
        self.high.contains(id) || self.low.contains(id) || self.is_buffered(id)
    }

    fn used(&self) -> u64 {
        self.high.used + self.low.used + self.buffered
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn resize(&mut self, capacity: u64, evicted: &mut Vec<Id>) {
        self.capacity = capacity;
        if self.buffered > capacity {
            // A buffer that does not fit is given up whole; its samples are read when they are needed.
            evicted.extend(self.in_buffer());
            (self.buffer, self.buffered) = (Bits::default(), 0);
        }
        self.low_limit = self.low_limit.min(self.regions_capacity());
        self.low.shrink_to(self.regions_capacity(), evicted);
        self.make_room(0, &NoDue, evicted);
    }

    fn residents(&self, each: &mut dyn FnMut(Id)) {
        self.high.residents(each);
        self.low.residents(each);
        self.in_buffer().for_each(each);
    }

    fn remove(&mut self, id: Id) -> bool {
        if self.high.contains(id) {
            self.high.remove(id);
        } else if self.low.contains(id) {
            self.low.remove(id);
        } else if self.is_buffered(id) {
            self.buffer.remove(id);
            self.buffered -= self.sizes.size(id);
        } else {
            return false;
        }
        true
    }

    fn begin(&mut self, begin: &Begin<'_>) {
        self.still = begin.still && self.name == "impact";
        self.high.begin(begin.keys, &NoDue);
        self.low.begin();
        self.low_limit = begin.package.map_or(0, |package| self.low_share(package));
        let high = begin.keys.map_or(0, |keys| keys.high_len() as u64);
        self.selected = Some([begin.selected.0, begin.selected.1, high, self.sizes.len() as u64]);
    }

    fn rekey(&mut self, keys: Option<&Arc<Keys>>) {
        self.high.begin(keys, &NoDue);
    }

    fn takes_packages(&self) -> bool {
        true
    }

    fn low(&self) -> (u64, u64) {
        (self.split(), self.regions_capacity())
    }

    fn load(&mut self, members: &[Id], _stays: bool, due: &dyn Due, evicted: &mut Vec<Id>) -> bool {
        // Those that are here since before stay as long as the others.
        for &id in members {
            if self.low.contains(id) {
                self.low.renew(id);
            }
        }
        let coming: Vec<Id> = members.iter().copied().filter(|&id| !self.contains(id)).collect();
        let bytes: u64 = coming.iter().map(|&id| self.sizes.size(id)).sum();
        let Some(others) = self.low_limit.checked_sub(bytes) else { return true };
        self.low.shrink_to(others, evicted);
        self.make_room(bytes, due, evicted);
        coming.into_iter().for_each(|id| self.low.push(id));
        true
    }

    fn place(&self, id: Id) -> Option<Place> {
        if self.low.contains(id) {
            Some(Place::Low)
        } else if self.is_buffered(id) {
            Some(Place::Buffer)
        } else {
            self.high.contains(id).then_some(Place::High)
        }
    }

    fn regions(&self) -> Vec<Region> {
        let mut regions = vec![
            Region { name: "h", capacity: self.high_limit(), used: self.high.used },
            Region { name: "l", capacity: self.low_limit, used: self.low.used },
        ];
        if self.buffered > 0 {
            regions.push(Region { name: "buffer", capacity: self.buffered, used: self.buffered });
        }
        regions
    }

    fn save(&self) -> Unsealed {
        let mut out = Writer::new(self.sizes.len());
        let flags = [self.still, self.selected.is_some()].map(u64::from);
        let head = [self.capacity, self.low_limit].into_iter().chain(flags);
        head.chain(self.selected.into_iter().flatten()).for_each(|number| out.number(number));
        self.high.save(&mut out);
        self.low.save(&mut out);
        out.ids(self.in_buffer().collect::<Vec<Id>>().into_iter());
        out.unsealed(self.name)
    }

    fn restore(&mut self, saved: &[u8]) -> Result<()> {
        self.read(saved).ok_or_else(foreign)
    }
}

impl Icache {
    fn read(&mut self, saved: &[u8]) -> Option<()> {
        let mut saved = Reader::open(saved, self.name, self.sizes.len())?;
        (self.capacity, self.low_limit) = (saved.number()?, saved.number()?);
        let (still, selected) = (saved.number()?, saved.number()?);
        (self.still, self.selected) = (still == 1, None);
        if selected == 1 {
            self.selected = Some([saved.number()?, saved.number()?, saved.number()?, saved.number()?]);
        }
        self.high.restore(&mut saved)?;
        self.low.restore(&mut saved)?;
        let mut twice = false;
        self.low.residents(&mut |id| twice |= self.high.contains(id));
        let buffer = saved.ids()?;
        if !buffer.is_empty() {
            self.buffer = Bits::new(self.sizes.len());
        }
        for id in buffer {
            twice |= self.contains(id);
            self.buffer.insert(id);
            self.buffered = self.buffered.checked_add(self.sizes.size(id))?;
        }
        let used = self.high.used.checked_add(self.low.used)?.checked_add(self.buffered)?;
        let fits = used <= self.capacity && self.low_limit <= self.regions_capacity();
        (fits && !twice).then_some(())?;
        saved.end()
    }

    /// Puts ids into the static buffer; those that are not resident are read.
    pub(super) fn buffer(&mut self, ids: &[Id], read: &mut Vec<Id>, evicted: &mut Vec<Id>) {
        self.still = false;
        if self.buffer == Bits::default() {
            self.buffer = Bits::new(self.sizes.len());
        }
        // Residents first, so that none of them leaves for another and must be read again.
        let (here, missing): (Vec<Id>, Vec<Id>) = ids.iter().partition(|id| self.contains(**id));
        for id in here.into_iter().chain(missing) {
            let size = self.sizes.size(id);
            if self.is_buffered(id) || self.buffered + size > self.capacity {
                continue;
            }
            if self.high.contains(id) {
                self.high.remove(id);
            } else if self.low.contains(id) {
                self.low.remove(id);
            } else {
                read.push(id);
            }
            self.low_limit = self.low_limit.min(self.capacity - self.buffered - size);
            self.make_room(size, &NoDue, evicted);
            self.low.shrink_to(self.capacity - self.buffered - size - self.high.used, evicted);
            self.buffer.insert(id);
            self.buffered += size;
        }
    }
}

#[cfg(test)]
#[path = "icache_tests.rs"]
mod tests;
