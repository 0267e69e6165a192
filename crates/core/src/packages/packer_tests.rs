//! What is packed, in which order, and what is read for it.

use std::sync::Arc;

use super::*;
use crate::cluster::{Node, Placement, View};
use crate::importance::Ranking;
use crate::sampling::{Drawn, Equal};

const SAMPLES: usize = 4_000;
const SIZES: Equal = Equal { samples: SAMPLES, size: 100 };

fn keys(values: Vec<f32>) -> Keys {
    let ranking = Ranking::of(&values, 0, 0);
    Keys::new(values, &ranking, &SIZES, 80_000)
}

/// A plan that serves `ids`, and not the others that were selected.
fn plan(ids: &[Id], unserved: &[Id]) -> Plan {
    let drawn = Drawn { ids: ids.to_vec(), unserved: unserved.to_vec(), ..Drawn::default() };
    Plan::cut(1, 1, false, drawn)
}

/// The highest 800 ids are hard.
fn rising() -> Keys {
    keys((0..SAMPLES).map(|id| id as f32).collect())
}

/// The same, with these ids hard instead.
fn rising_but(hard: &[Id]) -> Keys {
    let mut values: Vec<f32> = (0..SAMPLES).map(|id| id as f32).collect();
    hard.iter().for_each(|&id| values[id as usize] = 1e6);
    keys(values)
}

fn packer() -> Packer {
    Packer::new(10_000, 80_000, 3).unwrap()
}

fn choose(packages: &Packages, keys: &Keys, plan: &Plan, busy: &Bits) -> Chosen {
    packer().choose(&PackingInputs {
        epoch: 1,
        packages,
        keys,
        sizes: &SIZES,
        plan,
        residents: None,
        busy,
        region: u64::MAX,
        ownership: None,
    })
}

fn ids(chosen: &Chosen) -> Vec<Id> {
    chosen.drafts.iter().flat_map(|draft| draft.ids.iter().copied()).collect()
}

/// All L-samples of `keys` in packages of a hundred.
fn packed(keys: &Keys) -> Packages {
    let mut packages = Packages::new(SAMPLES);
    for draft in choose(&packages, keys, &plan(&[], &[]), &Bits::default()).drafts {
        packages.add(&draft.ids, &SIZES);
    }
    packages
}

#[test]
fn at_first_every_low_sample_is_packed_and_no_high_one() {
    let packages = packed(&rising());
    assert!((0..3_200).all(|id| packages.of(id).is_some()));
    assert!((3_200..4_000).all(|id| packages.of(id).is_none()));
    assert!(packages.living().all(|package| packages.bytes(package) >= 10_000));
}

#[test]
fn then_the_substituted_come_first_and_a_twentieth_is_the_most() {
    // A third of what is easy now was hard, and lies in no package.
    let packages = packed(&rising());
    let hard: Vec<Id> = (0..800).collect();
    let turned = rising_but(&hard);
    let served: Vec<Id> = (3_200..3_990).collect();
    let chosen = choose(&packages, &turned, &plan(&served, &[3_990, 3_991, 5]), &Bits::default());
    let all = ids(&chosen);
    assert!(
        all.contains(&3_990) && all.contains(&3_991) && !all.contains(&5),
        "5 is hard, and lies in a package"
    );
    assert!(!all.contains(&3_995), "it would have to be read, and was not selected");
    assert!(all.len() <= SAMPLES / 20 && all.iter().all(|id| !turned.is_high(*id)), "{}", all.len());
    assert_eq!(chosen.single.len(), 2);
}

#[test]
fn worn_packages_are_moved_whole_the_worst_first_and_read_in_one_request() {
    let packages = packed(&rising());
    let (worst, worse) = (packages.members(0).to_vec(), packages.members(1).to_vec());
    let high = rising_but(&[&worst[..60], &worse[..40]].concat());
    // Not resident, hard ones are wanted as well.
    assert_eq!(choose(&packages, &high, &plan(&[], &[]), &Bits::default()).moved, [] as [u32; 0]);
    let residents = Residents::from_ids(SAMPLES, &[&worst[..60], &worse[..40]].concat());
    let (plan, busy) = (plan(&worst[60..70], &[]), Bits::default());
    let inputs = PackingInputs {
        epoch: 2,
        packages: &packages,
        keys: &high,
        sizes: &SIZES,
        plan: &plan,
        residents: Some(&residents),
        busy: &busy,
        region: u64::MAX,
        ownership: None,
    };
    let chosen = packer().choose(&inputs);
    assert_eq!(chosen.moved, [0, 1]);
    assert_eq!(ids(&chosen).len(), 40 + 60, "the hard ones leave it and are not packed");
    // Ten pass, and the other thirty are a handful.
    assert_eq!(
        chosen.whole.iter().map(|(package, ids)| (*package, ids.len())).collect::<Vec<_>>(),
        [(1, 60)]
    );
    assert!(worst[70..].iter().all(|id| chosen.single.contains(id)));
}

#[test]
fn while_worn_packages_hold_more_than_an_eighth_there_is_no_limit() {
    let packages = packed(&rising());
    let of = |package: u32, until: usize| packages.members(package)[..until].to_vec();
    let share = |worn: u32| {
        let hard: Vec<Id> = (0..worn).flat_map(|package| of(package, 30)).collect();
        let residents = Residents::from_ids(SAMPLES, &hard);
        let (keys, plan, busy) = (rising_but(&hard), plan(&[], &[]), Bits::default());
        let (packages, residents) = (&packages, Some(&residents));
        let inputs = PackingInputs {
            epoch: 2,
            packages,
            keys: &keys,
            sizes: &SIZES,
            plan: &plan,
            residents,
            busy: &busy,
            region: u64::MAX,
            ownership: None,
        };
        packer().choose(&inputs).moved.len()
    };
    assert_eq!((share(4), share(8)), (2, 8));
}

#[test]
fn hard_samples_that_the_h_region_has_no_room_for_are_packed() {
    let packages = packed(&rising());
    // 800 are hard, and the H region has room for 500: the lowest 300 stay out of it.
    let served: Vec<Id> = (3_200..4_000).collect();
    let (keys, plan, busy) = (rising(), plan(&served, &[]), Bits::default());
    let (packages, region) = (&packages, 50_000);
    let inputs = PackingInputs {
        epoch: 2,
        packages,
        keys: &keys,
        sizes: &SIZES,
        plan: &plan,
        residents: None,
        busy: &busy,
        region,
        ownership: None,
    };
    let chosen = packer().choose(&inputs);
    let all = ids(&chosen);
    assert_eq!(all.len(), SAMPLES / 20, "as many as an epoch's limit allows");
    assert!(all.iter().all(|id| (3_200..3_500).contains(id)), "{all:?}");
    assert!(chosen.single.is_empty() && chosen.whole.is_empty(), "they pass anyway");
}

#[test]
fn what_the_plan_serves_is_packed_in_its_order_then_residents_then_the_others() {
    let order = [900, 17, 2_500, 3];
    let residents = Residents::from_ids(SAMPLES, &[5, 6]);
    let (packages, keys, plan, busy) = (Packages::new(SAMPLES), rising(), plan(&order, &[]), Bits::default());
    let inputs = PackingInputs {
        epoch: 1,
        packages: &packages,
        keys: &keys,
        sizes: &SIZES,
        plan: &plan,
        residents: Some(&residents),
        busy: &busy,
        region: u64::MAX,
        ownership: None,
    };
    let chosen = packer().choose(&inputs);
    let all = ids(&chosen);
    assert_eq!((all[..4] == order, all.len()), (true, 3_200));
    assert_eq!(all[4..6].iter().collect::<std::collections::BTreeSet<_>>(), [5, 6].iter().collect());
    assert_eq!((chosen.single.len(), chosen.whole.len()), (3_200 - 6, 0), "what passes is not read");
}

#[test]
fn a_package_is_complete_at_its_last_served_member_or_at_its_place_among_all() {
    let order: Vec<Id> = (0..1_600).collect();
    let chosen = choose(&Packages::new(SAMPLES), &rising(), &plan(&order, &[]), &Bits::default());
    assert_eq!(chosen.drafts.len(), 32);
    // Sixteen packages are served, the last of them by the plan's last slot; of the other sixteen the last two of 32
    // come after 95 %.
    let late: Vec<usize> =
        (0..).zip(&chosen.drafts).filter(|(_, draft)| !draft.early).map(|(at, _)| at).collect();
    assert_eq!(late, [15, 30, 31]);
}

#[test]
fn large_samples_and_small_caches_have_no_packages() {
    assert!(Packer::new(10_000, 79_999, 0).is_none() && Packer::new(0, 10, 0).is_none());
    let sizes = vec![LARGE; 10];
    let keys = Keys::new(vec![1.0; 10], &Ranking::of(&[1.0; 10], 0, 0), &sizes, LARGE * 8);
    let packer = Packer::new(LARGE, LARGE * 8, 0).unwrap();
    let (packages, plan, busy) = (Packages::new(10), plan(&[], &[]), Bits::default());
    let (packages, keys, plan, busy) = (&packages, &keys, &plan, &busy);
    let inputs = PackingInputs {
        epoch: 1,
        packages,
        keys,
        sizes: &sizes,
        plan,
        residents: None,
        busy,
        region: u64::MAX,
        ownership: None,
    };
    assert_eq!(packer.choose(&inputs), Chosen::default());
}

fn owned(node: usize, packages: Option<&Packages>) -> Ownership {
    let nodes = (0..3).map(|at| Node {
        name: format!("node-{at}"),
        address: String::new(),
        capacity: 1,
        rack: None,
        draining: false,
        revision: 1,
    });
    let alone = Ownership::new(Arc::new(Placement::new(&View::new(nodes))), 5, Some(node));
    packages.into_iter().fold(alone, |alone, packages| alone.by_packages(Arc::new(packages.clone())))
}

#[test]
fn on_a_cluster_a_package_holds_what_one_node_owns_and_stays_with_it() {
    let keys = rising();
    let mut packages = Packages::new(SAMPLES);
    let served: Vec<Id> = (0..SAMPLES as Id).rev().filter(|id| id % 3 > 0).collect();
    for (epoch, hard) in [(1, Vec::new()), (2, (0..1_500).step_by(2).collect::<Vec<Id>>())] {
        let keys = if epoch == 1 { keys.clone() } else { rising_but(&hard) };
        let (plan, ownership) = (plan(&served, &[]), owned(0, Some(&packages)));
        let residents = Residents::from_ids(SAMPLES, &hard);
        let chosen = packer().choose(&PackingInputs {
            epoch,
            packages: &packages,
            keys: &keys,
            sizes: &SIZES,
            plan: &plan,
            residents: Some(&residents),
            busy: &Bits::new(SAMPLES),
            region: u64::MAX,
            ownership: Some(&ownership),
        });
        assert!(chosen.drafts.len() > 3, "{} packages in epoch {epoch}", chosen.drafts.len());
        let mut firsts: Vec<usize> = Vec::new();
        for draft in &chosen.drafts {
            let owner = ownership.package_owner(draft.ids[0]);
            assert!(draft.ids.iter().all(|&id| ownership.owner(id) == owner), "each has one owner");
            assert!(draft.ids.len() >= 100, "of at least the bytes of a package");
            let place = |id: &Id| served.iter().position(|served| served == id).unwrap_or(usize::MAX);
            firsts.push(draft.ids.iter().map(place).min().unwrap());
        }
        assert!(firsts.is_sorted(), "in the order in which the plan serves them");
        let before: Vec<Option<usize>> = (0..SAMPLES as Id).map(|id| ownership.owner(id)).collect();
        for draft in &chosen.drafts {
            packages.add(&draft.ids, &SIZES);
        }
        let after = owned(0, Some(&packages));
        assert!((0..SAMPLES as Id).all(|id| after.owner(id) == before[id as usize]), "nothing has moved");
    }
}
