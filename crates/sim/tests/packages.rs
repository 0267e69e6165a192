//! What packages cost over a whole training: reads, waste, requests, and the bytes they take.
//!
//! On a training that is made up, and on a real one where the shared trace is there.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use hotset_core::counters::Counters;
use hotset_core::packages::{FEW, Origin};
use hotset_core::run::{Config, Inputs, Outcome, Run};
use hotset_core::sampling::{Equal, Event, Plan};
use hotset_core::{Id, Rng, policy, sampling};
use hotset_sim::Trace;

/// What came of a training.
struct Trained {
    epochs: Vec<Counters>,
    /// The bytes of living packages while each epoch is trained, over the dataset's.
    living: Vec<f64>,
}

impl Trained {
    fn mean(&self, from: usize, of: impl Fn(&Counters) -> f64) -> f64 {
        let epochs = &self.epochs[from..];
        epochs.iter().map(of).sum::<f64>() / epochs.len() as f64
    }
}

/// `iis`+`icache` with packages of 1,500-byte samples over `epochs` of losses, at a share of the dataset.
fn train(
    samples: usize,
    percent: u64,
    split: &'static str,
    epochs: u64,
    losses: impl Fn(u64, Id) -> f32,
) -> Trained {
    let bytes = samples as u64 * 1500;
    let (strategy, policy) = (sampling::find("iis").unwrap(), policy::find("icache").unwrap());
    let mut run = Run::new(Config {
        strategy,
        strategy_values: strategy.values([]).unwrap(),
        policy,
        policy_values: policy.values([("split", split)]).unwrap(),
        sizes: Arc::new(Equal { samples, size: 1500 }),
        capacity: bytes * percent / 100,
        seed: 0,
        epochs: Some(epochs),
        world: 1,
        pad: false,
        packages: Some(Origin::Made(0)),
    })
    .unwrap();
    let mut trained = Trained { epochs: Vec::new(), living: Vec::new() };
    for epoch in 0..epochs {
        if let Some(before) = epoch.checked_sub(1) {
            run.close(before);
        }
        let plan = run.begin(epoch, &Inputs::default());
        check(&mut run, &plan);
        for (number, ids) in plan.ids().chunks(256).enumerate() {
            let losses: Vec<f32> = ids.iter().map(|&id| losses(epoch, id)).collect();
            run.report(epoch, plan.rank_len(), number * 256, ids, &losses);
        }
        let packages = run.packages().unwrap();
        let living: u64 = packages.living().map(|package| packages.extent(package)).sum();
        trained.living.push(living as f64 / bytes as f64);
        trained.epochs.push(run.counters().clone());
    }
    trained
}

/// Decides a plan: no package is read for a handful of slots, and hardly anything that lies in one that is read has a read
/// of its own (an L region that grows may push a resident out).
fn check(run: &mut Run, plan: &Plan) {
    let load =
        |(_, event): &(u32, Event)| if let Event::Load(package) = event { Some(*package) } else { None };
    let mut served: BTreeMap<u32, usize> = plan.events().iter().filter_map(load).map(|at| (at, 0)).collect();
    let packages = run.packages().unwrap().clone();
    let mut alone = 0;
    while let Some(slot) = run.decide() {
        if let Some(count) = packages.of(slot.id).and_then(|package| served.get_mut(&package)) {
            *count += usize::from(slot.outcome == Outcome::Packed);
            alone += usize::from(slot.outcome == Outcome::Single);
        }
    }
    let most = plan.len() / 50;
    assert!(
        alone <= most,
        "epoch {}: {alone} samples of packages that were read are read again",
        plan.epoch()
    );
    let least = served.iter().filter(|(package, _)| packages.packed(**package) as usize >= 2 * FEW);
    for (package, slots) in least {
        assert!(*slots >= FEW, "epoch {}: package {package} is read for {slots} slots", plan.epoch());
    }
}

/// A loss that falls, at another pace for every sample, with luck: the ranks of samples turn over as in a training.
fn made_up(epoch: u64, id: Id) -> f32 {
    let pace = Rng::new(u64::from(id), 0, "pace").unit();
    let mood = Rng::new(u64::from(id), epoch / 4, "mood").unit();
    let luck = Rng::new(u64::from(id), epoch, "luck").unit();
    (3.0 * (-(epoch as f64) * pace / 8.0).exp() + 0.4 * pace + mood / 3.0 + luck / 4.0) as f32
}

#[test]
fn over_a_long_training_waste_and_storage_stay_bounded_and_reads_do_not_grow() {
    for percent in [20, 40, 60, 80] {
        for split in ["fixed", "paper"] {
            let trained = train(6_000, percent, split, 40, made_up);
            let living = trained.living.iter().fold(0.0f64, |most, living| most.max(*living));
            assert!(living <= 1.3, "{percent} % {split}: packages take {living:.2} times the dataset");
            let wasted = trained.mean(20, Counters::package_waste);
            assert!(split != "fixed" || wasted <= 0.2, "{percent} % {split}: waste {wasted:.3}");
            let early = trained.epochs[4..16].iter().map(|c| c.plan.storage_reads as f64).sum::<f64>() / 12.0;
            let late = trained.mean(20, |counters| counters.plan.storage_reads as f64);
            assert!(late <= early * 1.05, "{percent} % {split}: {early:.0} reads an epoch, then {late:.0}");
        }
    }
}

/// Requests of a training whose packages never retire, in epochs 2 to 15 and in the late half.
const UNRETIRED: [(u64, [u64; 14], f64); 4] = [
    (20, [3082, 4281, 4108, 1916, 2265, 1694, 1385, 2459, 1454, 1913, 1844, 2376, 1838, 3263], 2605.0),
    (40, [4899, 6303, 5656, 4910, 4077, 3422, 2732, 3394, 3366, 2243, 3103, 2936, 2955, 3409], 3144.6),
    (60, [5834, 6152, 5855, 5072, 4386, 3130, 2954, 2893, 3013, 2074, 1805, 2318, 2403, 3149], 3163.2),
    (80, [5397, 5194, 3993, 3611, 2990, 2141, 2306, 1818, 1959, 2098, 2169, 2111, 2360, 2624], 2123.9),
];

#[test]
#[ignore = "needs the shared trace: HOTSET_SHARED=folder cargo test --release -p hotset-sim --test packages -- --ignored"]
fn on_a_real_training_packages_read_what_they_should() {
    let beside = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("HOTSET_SHARED").map_or(beside, Into::into);
    let trace = Trace::open(&shared.join("traces/resnet18-cifar10.npz"), "loss").unwrap();
    let bounds = [(32_500.0, 0.2), (25_500.0, 0.2), (17_500.0, 0.2), (8_000.0, 0.2)];
    for ((percent, early, late), (reads, waste)) in UNRETIRED.into_iter().zip(bounds) {
        let trained = train(50_000, percent, "fixed", 90, |epoch, id| trace.row(epoch as usize)[id as usize]);
        let read = trained.mean(45, |counters| counters.plan.storage_reads as f64);
        assert!(read <= reads, "{percent} %: {read:.0} reads an epoch");
        let wasted = trained.mean(45, Counters::package_waste);
        assert!(wasted <= waste, "{percent} %: waste {wasted:.3}");
        let requests = trained.mean(45, |counters| counters.plan.storage_requests as f64);
        assert!(requests <= late * 1.25, "{percent} %: {requests:.0} requests an epoch");
        for (epoch, today) in (2..).zip(early) {
            let requests = trained.epochs[epoch].plan.storage_requests;
            assert!(
                requests as f64 <= today as f64 * 1.25,
                "{percent} %: {requests} requests in epoch {epoch}"
            );
        }
        assert!(trained.living.iter().all(|living| *living <= 1.3), "{percent} %: {:?}", trained.living);
    }
}
