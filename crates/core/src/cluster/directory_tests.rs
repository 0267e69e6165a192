use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::Rng;
use crate::cluster::{Layout, Placement};
use crate::sampling::Equal;

/// Nodes of these names and parts.
fn view(nodes: &[(&str, u64)]) -> View {
    View::new(nodes.iter().map(|&(name, capacity)| Node {
        name: name.into(),
        address: String::new(),
        capacity,
        rack: None,
        draining: false,
        revision: 1,
    }))
}

/// As before, one of them about to leave.
fn drained(view: &View, name: &str) -> View {
    View::new(view.nodes().iter().map(|node| Node { draining: node.name == name, ..node.clone() }))
}

fn shuffled(n: u32, epoch: u64) -> Vec<Id> {
    let mut ids: Vec<Id> = (0..n).collect();
    Rng::new(7, epoch, "directory").shuffle(&mut ids);
    ids
}

fn plan(epoch: u64, world: u32, ids: Vec<Id>) -> Plan {
    Plan::cut(epoch, world, false, ids)
}

/// A plan of all samples on as many nodes as ranks.
fn laid(view: &View, epoch: u64, locality: bool, found: &Found<'_>) -> (Plan, Directory) {
    let ranks: Vec<Option<usize>> = (0..view.len()).map(Some).collect();
    let plan = plan(epoch, ranks.len() as u32, shuffled(found.sizes.len() as u32, epoch));
    Directory::lay(plan, view, &ranks, locality, found).unwrap()
}

fn of(view: &View, directory: &Directory) -> Ownership {
    Ownership::new(Arc::new(Placement::new(view)), 3, Some(0)).by_directory(Arc::new(directory.clone()))
}

fn owned(directory: &Directory, nodes: usize, samples: u32) -> Vec<usize> {
    let mut counts = vec![0; nodes];
    (0..samples).filter_map(|id| directory.owner(id)).for_each(|owner| counts[owner] += 1);
    counts
}

#[test]
fn whoever_reads_a_sample_first_owns_it() {
    let (view, sizes) = (view(&[("a", 1 << 20), ("b", 1 << 20)]), vec![10u64; 1_000]);
    let found = Found { before: None, kept: None, sizes: &sizes, packages: None };
    let drawn = plan(0, 2, vec![5, 6, 7, 8, 6, 5]);
    let (same, directory) = Directory::lay(drawn.clone(), &view, &[Some(0), Some(1)], false, &found).unwrap();
    assert_eq!(same, drawn, "no rank exchanges anything");
    assert_eq!([5, 6, 7, 8, 9].map(|id| directory.owner(id)), [Some(0), Some(1), Some(0), Some(1), None]);
    assert_eq!(directory.entries(), 4);
    // A rank that is on no node reads for whoever has most room.
    let (_, directory) = Directory::lay(drawn, &view, &[None, Some(1)], false, &found).unwrap();
    assert_eq!([5, 6, 7, 8].map(|id| directory.owner(id)), [Some(0), Some(1), Some(0), Some(1)]);
}

#[test]
fn what_is_read_by_a_node_without_room_goes_to_the_one_with_most() {
    let (view, sizes) = (view(&[("a", 30), ("b", 100), ("c", 50)]), vec![10u64; 40]);
    let found = Found { before: None, kept: None, sizes: &sizes, packages: None };
    let (_, directory) =
        Directory::lay(plan(0, 1, (0..40).collect()), &view, &[Some(0)], true, &found).unwrap();
    let owners: Vec<Option<usize>> = (0..40).map(|id| directory.owner(id)).collect();
    assert_eq!(owners[..8], [0, 0, 0, 1, 1, 1, 1, 1].map(Some));
    assert_eq!(owned(&directory, 3, 18), [3, 10, 5], "each part is filled");
    assert!(
        owners[18..].iter().all(|owner| *owner == Some(0)),
        "nobody has room: whoever reads it keeps it or not"
    );
}

#[test]
fn what_is_kept_stays_and_what_is_not_goes_to_its_next_reader() {
    let (view, sizes) = (view(&[("a", 4_000), ("b", 4_000), ("c", 4_000)]), vec![10u64; 3_000]);
    let (_, first) = laid(&view, 0, true, &Found { before: None, kept: None, sizes: &sizes, packages: None });
    assert_eq!(owned(&first, 3, 3_000), [1_000; 3]);
    let kept = Residents::from_ids(3_000, &Vec::from_iter((0..3_000).filter(|id| id % 3 == 0)));
    let before = || Some((&view, of(&view, &first)));
    let found = Found { before: before(), kept: Some(&kept), sizes: &sizes, packages: None };
    let (plan, second) = laid(&view, 1, true, &found);
    assert!((0..3_000).step_by(3).all(|id| second.owner(id) == first.owner(id)));
    let moved = (0..3_000).filter(|&id| second.owner(id) != first.owner(id)).count();
    assert!(moved > 1_000, "{moved} of what nobody keeps have another owner");
    // What is kept is served where it is, and what is free where it will be.
    let local = (0..plan.len()).filter(|&slot| second.owner(plan.ids()[slot]) == Some(slot % 3)).count();
    assert!(local as f64 > 0.99 * plan.len() as f64, "{local} of {} are local", plan.len());
    // While the plan before is being decided nothing is known of what will be kept.
    let (_, open) =
        laid(&view, 1, true, &Found { before: before(), kept: None, sizes: &sizes, packages: None });
    assert_eq!(open, first);
}

#[test]
fn a_node_that_leaves_or_drains_frees_what_it_owned_and_others_keep_theirs() {
    let (all, sizes) = (view(&[("a", 1 << 20), ("b", 1 << 20), ("c", 1 << 20)]), vec![10u64; 3_000]);
    let (_, first) = laid(&all, 0, true, &Found { before: None, kept: None, sizes: &sizes, packages: None });
    let kept = Residents::from_ids(3_000, &Vec::from_iter(0..3_000));
    let left = view(&[("b", 1 << 20), ("c", 1 << 20)]);
    for (now, gives) in [(&left, 1), (&drained(&all, "a"), 0)] {
        let found = Found {
            before: Some((&all, of(&all, &first))),
            kept: Some(&kept),
            sizes: &sizes,
            packages: None,
        };
        let (_, second) = laid(now, 1, true, &found);
        let name = |view: &View, owner: Option<usize>| owner.map(|owner| view.nodes()[owner].name.clone());
        for id in 0..3_000 {
            let (was, is) = (name(&all, first.owner(id)), name(now, second.owner(id)));
            assert!(is.is_some() && is.as_deref() != Some("a"), "every sample has an owner that stays");
            assert!(is == was || was.as_deref() == Some("a"), "what others keep stays");
        }
        let renumbered = first.renumbered(&all, now);
        assert_eq!(renumbered.entries(), 2_000);
        assert!(
            (0..3_000)
                .all(|id| renumbered.owner(id).is_none_or(|owner| owner == first.owner(id).unwrap() - gives))
        );
    }
    // One that comes takes what nobody keeps, and nothing of what others do.
    let part = 10_000;
    let (two, three) = (view(&[("a", part), ("b", part)]), view(&[("a", part), ("b", part), ("c", part)]));
    let (_, first) = laid(&two, 0, true, &Found { before: None, kept: None, sizes: &sizes, packages: None });
    let kept = Residents::from_ids(3_000, &shuffled(3_000, 0)[..2_000]);
    let found =
        Found { before: Some((&two, of(&two, &first))), kept: Some(&kept), sizes: &sizes, packages: None };
    let (_, second) = laid(&three, 1, true, &found);
    assert!((0..3_000).all(|id| !kept.contains(id) || second.owner(id) == first.owner(id)));
    assert_eq!(owned(&second, 3, 3_000)[2], 1_000);
}

#[test]
fn a_run_has_one_owner() {
    let (view, sizes) = (view(&[("a", 1 << 20), ("b", 1 << 20)]), vec![10u64; 100]);
    let mut runs = Packages::new(100);
    for first in (0..80).step_by(8) {
        runs.add(&Vec::from_iter(first..first + 8), &sizes);
    }
    let found = Found { before: None, kept: None, sizes: &sizes, packages: Some(&runs) };
    assert_eq!(found.units(), 30);
    let (_, first) = laid(&view, 0, true, &found);
    let is_whole = |directory: &Directory| {
        let same = |first: Id| (first..first + 8).all(|id| directory.owner(id) == directory.owner(first));
        (0..80).step_by(8).all(same)
    };
    assert!(is_whole(&first) && first.entries() == 100);
    // A run of which a sample is kept stays where it is.
    let kept = Residents::from_ids(100, &[3, 12]);
    let found = Found { before: Some((&view, of(&view, &first))), kept: Some(&kept), ..found };
    let (_, second) = laid(&view, 1, true, &found);
    assert!(is_whole(&second));
    assert_eq!([0, 8].map(|run| second.owner(run)), [0, 8].map(|run| first.owner(run)));
}

#[test]
fn what_was_by_hash_and_is_kept_stays() {
    let (view, sizes) = (view(&[("a", 1 << 20), ("b", 1 << 20)]), vec![10u64; 1_000]);
    let hash = Ownership::new(Arc::new(Placement::new(&view)), 3, Some(0));
    let kept = Residents::from_ids(1_000, &Vec::from_iter(0..500));
    let found =
        Found { before: Some((&view, hash.clone())), kept: Some(&kept), sizes: &sizes, packages: None };
    let (_, directory) = laid(&view, 1, true, &found);
    assert!((0..500).all(|id| directory.owner(id) == hash.owner(id)));
    let found = Found { kept: None, ..found };
    assert_eq!(owned(&laid(&view, 1, false, &found).1, 2, 1_000), [500, 500], "a hash has no entries");
}

#[test]
fn more_units_than_it_can_have_are_refused_with_what_to_give() {
    let view = view(&[("a", 1 << 40)]);
    let lay = |samples: usize, runs: Option<&Packages>| {
        let sizes = Equal { samples, size: 1 };
        let found = Found { before: None, kept: None, sizes: &sizes, packages: runs };
        Directory::lay(plan(0, 1, vec![0, 1]), &view, &[Some(0)], true, &found)
            .map(|(_, directory)| directory)
    };
    assert_eq!(lay(MOST_UNITS, None).unwrap().entries(), 2);
    let error = lay(MOST_UNITS + 1, None).unwrap_err();
    assert_eq!(error.kind, crate::Kind::Invalid);
    assert!(error.message.contains("1000001") && error.message.contains("`--placement hash`"), "{error}");
    let mut runs = Packages::new(MOST_UNITS + 1);
    runs.add(&[0, 1], &Equal { samples: MOST_UNITS + 1, size: 1 });
    assert_eq!(lay(MOST_UNITS + 1, Some(&runs)).unwrap().entries(), 2, "a run is one");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_node_finds_the_same_owner_of_every_sample_from_what_was_saved(
        parts in proptest::collection::vec(0u64..40_000, 1..6),
        world in 1usize..7,
        samples in 1u32..1_500,
        share in 0.0f64..1.0,
        locality: bool,
        seed: u64,
    ) {
        let names = ["a", "b", "c", "d", "e"];
        let nodes: Vec<(&str, u64)> = names.into_iter().zip(parts).collect();
        let view = Arc::new(view(&nodes));
        let placement = Arc::new(Placement::new(&view));
        let sizes: Vec<u64> = (0..u64::from(samples)).map(|id| 20 + id % 90).collect();
        let mut rng = Rng::new(seed, 0, "directory");
        let ranks: Vec<Option<&str>> =
            (0..world).map(|_| names.get(rng.below(nodes.len() as u64 + 1) as usize).copied()).collect();
        let mut before: Option<Layout> = None;
        for epoch in 0..3 {
            let some: Vec<Id> = shuffled(samples, epoch ^ seed).into_iter().filter(|_| rng.unit() < share).collect();
            let kept = Residents::from_ids(samples as usize, &some);
            let drawn = plan(epoch, world as u32, shuffled(samples, epoch));
            let pair = (Arc::clone(&view), Arc::clone(&placement));
            let (drawn, layout) = Layout::lay(drawn, pair, "a", "dataset", ranks.clone(), None, false);
            let (laid, layout) = layout
                .by_directory(drawn, (before.as_ref(), Some(&kept)), &sizes, None, locality)
                .unwrap();
            prop_assert_eq!(laid.digest(), layout.digest());
            let saved = layout.save();
            prop_assert!(saved.len() < 2 * samples as usize + 400, "{} bytes", saved.len());
            let own: Vec<Layout> = nodes.iter().map(|(name, _)| Layout::restore(&saved, name).unwrap()).collect();
            prop_assert_eq!(&own[0], &layout);
            prop_assert!((0..saved.len()).step_by(97).all(|cut| Layout::restore(&saved[..cut], "a").is_none()));
            let whole = layout.ownership(None);
            for id in 0..samples {
                let owners: Vec<usize> = (0..own.len()).filter(|&node| own[node].ownership(None).owns(id)).collect();
                prop_assert_eq!(owners, Vec::from_iter(whole.owner(id)));
                prop_assert!(whole.owner(id).is_none_or(|owner| view.nodes()[owner].capacity > 0));
            }
            // What was kept stays.
            if let Some(before) = &before {
                let was = before.ownership(None);
                prop_assert!(some.iter().all(|&id| whole.owner(id) == was.owner(id)));
            }
            before = Some(layout);
        }
    }
}
