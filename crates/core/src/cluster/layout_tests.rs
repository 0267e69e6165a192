//! Plans that lie over nodes, and layouts as they travel.

use super::*;

fn view(names: &[&str]) -> (Arc<View>, Arc<Placement>) {
    let view = View::new(names.iter().zip(1..).map(|(name, revision)| Node {
        name: (*name).into(),
        address: format!("{name}:7"),
        capacity: 1 << 30,
        rack: (revision % 2 == 0).then(|| "r".into()),
        draining: revision == 3,
        revision,
    }));
    let placement = Arc::new(Placement::new(&view));
    (Arc::new(view), placement)
}

fn laid(own: &str, locality: bool) -> (Plan, Layout) {
    let plan = Plan::cut(4, 4, false, (0..4_000).collect::<Vec<Id>>());
    let ranks = [Some("a"), Some("b"), None, Some("gone")];
    Layout::lay(plan, view(&["a", "b", "c"]), own, "dataset", ranks, None, locality)
}

#[test]
fn what_was_saved_is_the_same_layout_on_every_node() {
    let (plan, layout) = laid("a", true);
    assert_eq!(plan.digest(), layout.digest());
    let saved = layout.save();
    assert_eq!(Layout::restore(&saved, "a").as_ref(), Some(&layout));
    let other = Layout::restore(&saved, "b").unwrap();
    assert_eq!((other.own(), other.view(), other.digest()), (Some(1), layout.view(), layout.digest()));
    assert_eq!(Layout::restore(&saved, "elsewhere").unwrap().own(), None);
    assert!((0..saved.len()).all(|cut| Layout::restore(&saved[..cut], "a").is_none()));
}

#[test]
fn packages_travel_with_the_plan_and_have_one_owner_each() {
    let (sizes, mut packages) = (vec![10u64; 4_000], Packages::new(4_000));
    for first in (0..3_000).step_by(30) {
        packages.add(&Vec::from_iter((first..first + 30).rev()), &sizes);
    }
    // What has moved on since leaves its package where it is.
    packages.add(&(29..3_000).step_by(30).collect::<Vec<Id>>(), &sizes);
    let plan = Plan::cut(4, 4, false, (0..4_000).collect::<Vec<Id>>());
    let ranks = [Some("a"), Some("b"), None, Some("gone")];
    let packages = (Arc::new(packages), 300);
    let nodes = view(&["a", "b", "c"]);
    let (_, layout) = Layout::lay(plan, nodes, "a", "dataset", ranks, Some(&packages), true);
    let packing = Packing { packages: vec![(101, vec![3_500, 7])], ..Packing::default() };
    let layout = layout.with_packing(packing.clone());
    let saved = layout.save();
    let other = Layout::restore(&saved, "b").unwrap();
    assert_eq!((other.made(), other.packing()), (Some(&packages), &packing));
    assert!((0..saved.len()).step_by(7).all(|cut| Layout::restore(&saved[..cut], "a").is_none()));
    let (by_package, alone) = (other.ownership(None), laid("a", false).1.ownership(None));
    for package in packages.0.living() {
        let members = packages.0.members(package);
        let first = packages.0.first(package).unwrap();
        assert!(members.iter().all(|&id| by_package.owner(id) == alone.owner(first)));
    }
    assert!((3_000..4_000).all(|id| by_package.owner(id) == alone.owner(id)));
}

#[test]
fn every_sample_has_the_same_owner_on_every_node() {
    let saved = laid("a", true).1.save();
    let nodes: Vec<Layout> = ["a", "b", "c"].map(|own| Layout::restore(&saved, own).unwrap()).into();
    for id in 0..1_000 {
        let owners: Vec<usize> = (0..3).filter(|&node| nodes[node].ownership(None).owns(id)).collect();
        assert_eq!(owners, Vec::from_iter(nodes[0].ownership(None).owner(id)));
        assert_ne!(owners, [2], "it drains");
    }
}

#[test]
fn a_rank_is_on_the_node_that_was_named_or_on_none() {
    let (_, layout) = laid("b", false);
    let nodes: Vec<Option<usize>> = (0..5).map(|rank| layout.node_of(rank)).collect();
    assert_eq!(nodes, [Some(0), Some(1), None, None, None]);
    assert_eq!(
        (0..5).map(|rank| layout.is_own(rank)).collect::<Vec<_>>(),
        [false, true, false, false, false]
    );
    let (_, outside) = laid("elsewhere", false);
    assert!((0..5).all(|rank| !outside.is_own(rank)), "a node outside the view has no ranks");
}

#[test]
fn samples_fall_to_ranks_of_their_owner_and_each_to_one() {
    // Two ranks are at `a`, one at `b`, none at `d`, and one is not known.
    let plan = Plan::cut(4, 4, false, (0..4_000).collect::<Vec<Id>>());
    let ranks = [Some("a"), Some("b"), Some("a"), None];
    let (_, layout) = Layout::lay(plan, view(&["a", "b", "d"]), "b", "dataset", ranks, None, true);
    let ownership = layout.ownership(None);
    // As if `b`'s samples of even numbers were owned by `d`.
    let owner =
        |id: Id| ownership.owner(id).map(|owner| if owner == 1 && id.is_multiple_of(2) { 2 } else { owner });
    let shares: Vec<Vec<Id>> = (0..4).map(|rank| layout.share(rank, 0..1_000, owner)).collect();
    let mut all = shares.concat();
    all.sort_unstable();
    assert_eq!(all, Vec::from_iter(0..1_000), "each falls to one rank");
    for (rank, share) in shares.iter().enumerate() {
        let foreign = share.iter().filter(|&&id| owner(id) != layout.node_of(rank as u32)).count();
        let elsewhere = (0..1_000).filter(|&id| owner(id) == Some(2)).count();
        assert!(foreign.abs_diff(elsewhere / 4) <= 1, "rank {rank} has {foreign} of others");
    }
    assert!(shares[0].len().abs_diff(shares[2].len()) <= 2, "ranks of one node have as much");
}

#[test]
fn ranks_have_mostly_what_their_node_owns_if_that_is_wanted() {
    let share = |locality| {
        let (plan, layout) = laid("a", locality);
        let ownership = layout.ownership(None);
        let local = |(slot, &id): (usize, &Id)| ownership.owner(id) == layout.node_of(slot as u32 % 4);
        let of_nodes = plan.ids().iter().enumerate().filter(|(slot, _)| slot % 4 < 2);
        of_nodes.filter(|&(slot, id)| local((slot, id))).count() as f64 / 2_000.0
    };
    assert!(share(true) > 0.95 && (0.4..0.6).contains(&share(false)), "{} {}", share(true), share(false));
}

#[test]
fn a_plan_that_is_cut_anew_has_the_same_owners_and_other_ranks() {
    let (plan, layout) = laid("a", true);
    let cut = plan.recut(5);
    let other = layout.recut(&cut, [Some("b"), Some("new"), Some("a")], 500);
    assert_eq!((other.trained(), Layout::restore(&other.save(), "a").as_ref()), (500, Some(&other)));
    assert_eq!((other.digest(), other.own()), (cut.digest(), layout.own()));
    assert_eq!(Vec::from_iter((0..5).map(|rank| other.node_of(rank))), [Some(1), None, Some(0), None, None]);
    assert!(layout.has_owners_of(&other));
    let (mine, its) = (layout.ownership(None), other.ownership(None));
    assert!((0..4_000).all(|id| mine.owner(id) == its.owner(id)));
    let drawn = Plan::cut(4, 4, false, (0..4_000).collect::<Vec<Id>>());
    let (_, elsewhere) = Layout::lay(drawn, view(&["a", "b"]), "a", "dataset", [Some("a")], None, true);
    assert!(!layout.has_owners_of(&elsewhere), "a node is gone");
}
