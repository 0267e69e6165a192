//! Packages that are there before any are made: samples that lie side by side in one object.
//!
//! A chain of neighbours is cut into runs of at least so many bytes, of equal length, counting what lies between them,
//! since a request brings that too. Samples that need no package end a chain, and a chain that fills no run stays in
//! none: its samples are read singly.

use super::Packages;
use super::packer::{LARGE, cut};
use crate::Id;
use crate::policy::Sizes;

/// The runs, of at least `least` bytes, of a dataset in which `gap(id)` bytes lie between `id` and `id + 1`, if both
/// lie side by side.
pub fn runs(sizes: &dyn Sizes, least: u64, gap: impl Fn(Id) -> Option<u64>) -> Packages {
    let end = sizes.len() as Id;
    let mut packages = Packages::new(sizes.len());
    let mut chain: Vec<Id> = Vec::new();
    for id in 0..end {
        let small = sizes.size(id) < LARGE;
        if small {
            chain.push(id);
        }
        if !small || id + 1 == end || gap(id).is_none() {
            let length = |id: Id| sizes.size(id) + gap(id).unwrap_or_default();
            for run in cut(&chain, least, length) {
                // What lies behind its last sample is not read.
                let behind = run.last().and_then(|&last| gap(last)).unwrap_or_default();
                let extent = run.iter().map(|&id| length(id)).sum::<u64>() - behind;
                packages.add_run(&run, sizes, extent);
            }
            chain.clear();
        }
    }
    packages
}

impl Packages {
    /// Runs that were cut before: each from a first sample on so many, those of them that there are.
    pub(crate) fn of_runs(sizes: &dyn Sizes, cut: impl IntoIterator<Item = (Id, u32)>) -> Self {
        let mut packages = Self::new(sizes.len());
        let end = sizes.len() as Id;
        for (first, count) in cut {
            let run: Vec<Id> = (first.min(end)..first.saturating_add(count).min(end)).collect();
            let Some((last, before)) = run.split_last() else { continue };
            let gaps = before.iter().map(|&id| sizes.size(id) + sizes.gap_after(id).unwrap_or_default());
            packages.add_run(&run, sizes, gaps.sum::<u64>() + sizes.size(*last));
        }
        packages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_cut_into_equal_runs_and_no_sample_lies_in_two() {
        // Two shards of 25 and 5 samples; one in the first is too large for a package.
        let mut sizes = vec![100u64; 30];
        sizes[10] = LARGE;
        let packages = runs(&sizes, 400, |id| (id != 24).then_some(0));
        let members: Vec<&[Id]> = packages.living().map(|run| packages.members(run)).collect();
        let flat: Vec<Id> = members.concat();
        assert_eq!(flat, (0..30).filter(|id| *id != 10).collect::<Vec<_>>());
        assert_eq!(members.iter().map(|run| run.len()).collect::<Vec<_>>(), [5, 5, 5, 5, 4, 5]);
        assert!(packages.living().all(|run| packages.bytes(run) >= 400));
        assert!(members.iter().all(|run| run.windows(2).all(|pair| pair[1] == pair[0] + 1)));
    }

    #[test]
    fn runs_that_were_cut_before_are_the_same() {
        let (sizes, gap) = (vec![100u64; 30], |id: Id| (id != 24).then_some(0));
        let packages = runs(&sizes, 400, gap);
        let cut = packages.living().map(|run| packages.members(run)).map(|ids| (ids[0], ids.len() as u32));
        assert_eq!(Packages::of_runs(&sizes, cut), packages);
    }

    #[test]
    fn what_lies_between_samples_counts_as_it_is_read_too() {
        let sizes = vec![10u64; 100];
        let packages = runs(&sizes, 1_000, |_| Some(90));
        assert_eq!(packages.living().map(|run| packages.members(run).len()).collect::<Vec<_>>(), [10; 10]);
        assert_eq!(packages.largest(), 100, "only samples take room in a cache");
        assert_eq!(packages.extent(3), 9 * 100 + 10);
    }

    #[test]
    fn a_chain_that_fills_no_run_lies_in_none() {
        let sizes = vec![100u64; 9];
        let packages = runs(&sizes, 400, |id| (id % 3 != 2).then_some(0));
        assert_eq!(packages.living().count(), 0);
        assert!((0..9).all(|id| packages.of(id).is_none()));
    }
}
