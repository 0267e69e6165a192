//! What is packed, and when (iCache III-C).
//!
//! Once there is an H-list and no package, random L-samples are packed, all of them. In each later epoch it
//! packs first the L-samples that lie in no package, those that were selected and substituted in the last
//! epoch before the others; then the L-samples of packages of which less than three quarters are L-samples
//! still, the worst package first; together at most a twentieth of the dataset's bytes. Samples of 64 KiB or
//! more are never packed: a read of their own is as good.
//!
//! Whoever is chosen is packed in the order in which the plan serves it, which is random, and those that the plan
//! does not serve come last: so bytes are taken as they pass, and few packages are being filled at a time.
//!
//! Differs from the paper: what lies in no package comes first, since otherwise some samples would wait for
//! tens of epochs; and there is a bound on how much is packed.

use super::Packages;
use crate::bits::Bits;
use crate::importance::Keys;
use crate::policy::Sizes;
use crate::sampling::Plan;
use crate::{Id, Rng};

/// Samples of this many bytes are never packed.
pub(super) const LARGE: u64 = 64 << 10;
/// The share of L-samples below which a package is packed anew.
const WORN: f64 = 0.75;
/// The share of the dataset's bytes packed in an epoch.
const SHARE: u64 = 20;

/// What is to be packed in one epoch: the ids of each new package.
pub type Packing = Vec<Vec<Id>>;

/// Chooses what is packed. See the module's head.
#[derive(Debug, Clone)]
pub struct Packer {
    /// The least bytes of a package.
    bytes: u64,
    seed: u64,
}

impl Packer {
    /// One that makes packages of at least `bytes`; none if two of them are more than a quarter of the
    /// cache's `capacity`.
    pub fn new(bytes: u64, capacity: u64, seed: u64) -> Option<Self> {
        fit(bytes, capacity).then_some(Self { bytes, seed })
    }

    /// The least bytes of a package.
    pub fn package_bytes(&self) -> u64 {
        self.bytes
    }

    /// What is packed during `epoch`, while `plan` is carried out, which was made from `keys`. Those that are `busy`
    /// are being packed already.
    pub fn choose(
        &self,
        epoch: u64,
        packages: &Packages,
        keys: &Keys,
        sizes: &dyn Sizes,
        plan: &Plan,
        busy: &Bits,
    ) -> Packing {
        let samples = packages.samples() as Id;
        let fits = |id: Id| !keys.is_high(id) && sizes.size(id) < LARGE && !busy.contains(id);
        let mut rng = Rng::new(self.seed, epoch, "packer");
        let loose = |id: &Id| packages.of(*id).is_none() && fits(*id);
        let mut first: Vec<Id> =
            plan.unserved().iter().copied().filter(|id| *id < samples && loose(id)).collect();
        rng.shuffle(&mut first);
        let mut ids = first.clone();
        first.sort_unstable();
        let mut others: Vec<Id> =
            (0..samples).filter(|id| loose(id) && first.binary_search(id).is_err()).collect();
        rng.shuffle(&mut others);
        ids.append(&mut others);
        let begins = packages.living().next().is_none() && busy.count() == 0;
        if !begins {
            ids.extend(self.worn(packages, fits));
            let whole = (0..samples).fold(0u64, |sum, id| sum.saturating_add(sizes.size(id)));
            let mut left = (whole / SHARE).max(self.bytes);
            let within = |id: &&Id| {
                let rest = left.checked_sub(sizes.size(**id));
                left = rest.unwrap_or(left);
                rest.is_some()
            };
            let fitting = ids.iter().take_while(within).count();
            ids.truncate(fitting);
        }
        let mut slots = vec![u32::MAX; packages.samples()];
        for (slot, &id) in (0u32..).zip(plan.ids()) {
            let first = &mut slots[id as usize];
            *first = slot.min(*first);
        }
        ids.sort_by_key(|id| slots[*id as usize]);
        cut(&ids, self.bytes, |id| sizes.size(id))
    }

    /// The L-samples of worn packages, the worst package first.
    fn worn(&self, packages: &Packages, fits: impl Fn(Id) -> bool) -> Vec<Id> {
        let share = |package: u32| {
            let low = packages.members(package).iter().filter(|id| fits(**id)).count();
            low as f64 / f64::from(packages.packed(package).max(1))
        };
        let mut worn: Vec<(f64, u32)> = packages
            .living()
            .map(|package| (share(package), package))
            .filter(|(share, _)| *share < WORN)
            .collect();
        worn.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let members = worn.iter().flat_map(|(_, package)| packages.members(*package).iter().copied());
        members.filter(|id| fits(*id)).collect()
    }
}

/// Whether two packages of `bytes` are at most a quarter of a cache of `capacity`.
pub(crate) fn fit(bytes: u64, capacity: u64) -> bool {
    bytes > 0 && bytes.checked_mul(8).is_some_and(|eight| eight <= capacity)
}

/// Cuts ids into as many packages of at least `least` bytes as they fill, of equal bytes and a little larger than
/// need be. Nothing if they fill none.
pub(super) fn cut(ids: &[Id], least: u64, length: impl Fn(Id) -> u64) -> Packing {
    let mut rest: u64 = ids.iter().map(|&id| length(id)).sum();
    let mut count = rest / least.max(1);
    let (mut packing, mut open, mut bytes) = (Packing::new(), Vec::new(), 0u64);
    for &id in ids {
        open.push(id);
        bytes += length(id);
        if count > 0 && bytes >= rest.div_ceil(count) {
            packing.push(std::mem::take(&mut open));
            (rest, count) = (rest - bytes, count - 1);
            bytes = 0;
        }
    }
    packing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::importance::Ranking;
    use crate::sampling::Drawn;

    const SAMPLES: usize = 4_000;

    fn keys(values: Vec<f32>) -> Keys {
        let ranking = Ranking::of(&values, 0, 0);
        Keys::new(values, &ranking, &vec![100u64; SAMPLES], 80_000)
    }

    /// A plan that serves `ids`, and not the others that were selected.
    fn plan(ids: &[Id], unserved: &[Id]) -> Plan {
        let drawn = Drawn { ids: ids.to_vec(), unserved: unserved.to_vec(), ..Drawn::default() };
        Plan::cut(1, 1, false, drawn)
    }

    fn rising() -> Keys {
        keys((0..SAMPLES).map(|id| id as f32).collect())
    }

    fn packed(keys: &Keys) -> (Packer, Packages) {
        let (packer, mut packages) = (Packer::new(10_000, 80_000, 3).unwrap(), Packages::new(SAMPLES));
        for ids in
            packer.choose(1, &packages, keys, &vec![100u64; SAMPLES], &plan(&[], &[]), &Bits::default())
        {
            packages.add(&ids, &vec![100u64; SAMPLES]);
        }
        (packer, packages)
    }

    #[test]
    fn at_first_every_low_sample_is_packed_and_no_high_one() {
        let (_, packages) = packed(&rising());
        assert!((0..3_200).all(|id| packages.of(id).is_some()));
        assert!((3_200..4_000).all(|id| packages.of(id).is_none()));
        assert!(packages.living().all(|package| packages.bytes(package) >= 10_000));
    }

    #[test]
    fn then_the_substituted_come_first_and_a_twentieth_is_the_most() {
        let (packer, packages) = packed(&rising());
        // Everything that was hard is easy now, and the other way round.
        let turned = keys((0..SAMPLES).map(|id| (SAMPLES - id) as f32).collect());
        let packing = packer.choose(
            2,
            &packages,
            &turned,
            &vec![100u64; SAMPLES],
            &plan(&[], &[3_990, 3_991, 5]),
            &Bits::default(),
        );
        let mut first: Vec<Id> = packing[0][..2].to_vec();
        first.sort_unstable();
        assert_eq!(first, [3_990, 3_991], "5 lies in a package already");
        let ids: Vec<Id> = packing.concat();
        assert!(ids.len() * 100 <= SAMPLES * 100 / 20 && ids.iter().all(|id| !turned.is_high(*id)));
    }

    #[test]
    fn worn_packages_are_packed_anew_the_worst_first() {
        let (packer, packages) = packed(&rising());
        let (worst, worse) = (packages.members(0).to_vec(), packages.members(1).to_vec());
        let mut values: Vec<f32> = (0..SAMPLES).map(|id| id as f32).collect();
        worst[..60].iter().chain(&worse[..40]).for_each(|&id| values[id as usize] = 1e6);
        let high = keys(values);
        let ids = packer
            .choose(2, &packages, &high, &vec![100u64; SAMPLES], &plan(&[], &[]), &Bits::default())
            .concat();
        let place = |id: Id| ids.iter().position(|other| *other == id);
        let (first, second) = (place(worst[99]), place(worse[99]));
        assert!(first.is_some() && second.is_some() && first < second);
    }

    #[test]
    fn whoever_the_plan_serves_is_packed_in_its_order_and_the_others_after() {
        let packer = Packer::new(10_000, 80_000, 3).unwrap();
        let order = [900, 17, 2_500, 3];
        let packing = packer.choose(
            1,
            &Packages::new(SAMPLES),
            &rising(),
            &vec![100u64; SAMPLES],
            &plan(&order, &[]),
            &Bits::default(),
        );
        assert_eq!(packing[0][..4], order);
        assert_eq!(packing.concat().len(), 3_200);
    }

    #[test]
    fn large_samples_and_small_caches_have_no_packages() {
        assert!(Packer::new(10_000, 79_999, 0).is_none() && Packer::new(0, 10, 0).is_none());
        let sizes = vec![LARGE; 10];
        let keys = Keys::new(vec![1.0; 10], &Ranking::of(&[1.0; 10], 0, 0), &sizes, LARGE * 8);
        let packer = Packer::new(LARGE, LARGE * 8, 0).unwrap();
        assert!(
            packer.choose(1, &Packages::new(10), &keys, &sizes, &plan(&[], &[]), &Bits::default()).is_empty()
        );
    }
}
