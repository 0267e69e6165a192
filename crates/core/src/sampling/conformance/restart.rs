//! A strategy that was saved at any moment and restored goes on the same, and takes no state but its own.

use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::*;
use crate::saved::Writer;

/// Settings that bring a strategy's state to all it can be within a few epochs.
fn restless(entry: &Entry) -> Vec<Values> {
    let settings: &[&[(&str, &str)]] = match entry.name {
        "hybrid" => &[&[("s_share", "0.9")], &[("warmup_max", "3")], &[("full_last", "0.1")]],
        "carousel" => &[&[("fresh", "0.3")], &[("ride", "hard")], &[("fresh", "0.2"), ("ride", "hard")]],
        "pads" | "batchloss" => &[&[("repeat", "3")]],
        _ => &[],
    };
    let given = settings.iter().map(|given| entry.values(given.iter().copied()).unwrap());
    given.chain([Values::default()]).collect()
}

/// The parts of an epoch between which a run may be interrupted.
const PARTS: usize = 4;

impl Job {
    /// Goes through one part of an epoch: draws its plan, trains half of it, trains the rest, closes it.
    fn part(&mut self, part: usize, plan: &mut Option<Plan>) {
        let epoch = (part / PARTS) as u64;
        match (part % PARTS, plan) {
            (0, plan) => *plan = Some(self.plan(epoch)),
            (1, Some(plan)) => self.train(plan, 0..plan.len() / 2),
            (2, Some(plan)) => self.train(plan, plan.len() / 2..plan.len()),
            _ => self.strategy.close(epoch, &self.table),
        }
    }
}

proptest! {
    #[test]
    fn every_strategy_goes_on_after_a_restart_as_if_there_had_been_none(
        sizes in proptest::collection::vec(prop_oneof![9 => 1u64..9, 1 => 0u64..60], 0..70),
        share in 0.0f64..1.2, seed: u64, world in 1u32..5, pad: bool, moment in 0..PARTS * 9,
    ) {
        let (samples, whole) = (sizes.len(), sizes.iter().sum::<u64>());
        let capacity = (whole as f64 * share) as u64;
        let setup = Setup { sizes: Arc::new(sizes), capacity, epochs: Some(20), ..Setup::new(samples, seed) };
        for entry in REGISTRY {
            for values in restless(entry) {
                let setup = Setup { values, ..setup.clone() };
                let (mut job, mut plan) = (Job::of(entry, setup.clone(), world, pad), None);
                (0..moment).for_each(|part| job.part(part, &mut plan));
                let mut resumed = Job::of(entry, setup.clone(), world, pad);
                resumed.strategy.restore(&job.strategy.save()).unwrap();
                resumed.table = Table::restore(samples, &job.table.save()).unwrap();
                (resumed.carried, resumed.pad) = (job.carried.clone(), job.pad);
                let mut again = plan.clone();
                for part in moment..PARTS * 12 {
                    job.part(part, &mut plan);
                    resumed.part(part, &mut again);
                    let next = (part / PARTS + 1) as u64;
                    let asked = [&job, &resumed].map(|job| job.strategy.reevaluates(next));
                    prop_assert_eq!(&asked[0], &asked[1], "{}", entry.name);
                    prop_assert_eq!(&plan, &again, "{} in part {} of {}", entry.name, part, moment);
                }
                prop_assert_eq!(job.strategy.save(), resumed.strategy.save(), "{}", entry.name);
            }
        }
    }

    #[test]
    fn no_strategy_takes_a_state_that_is_damaged_or_not_its_own(
        samples in 0usize..50, seed: u64, epochs in 0u64..6,
        place: prop::sample::Index, flip in 1u8.., foreign in proptest::collection::vec(any::<u8>(), 1..90),
    ) {
        for entry in REGISTRY {
            let mut job = Job::new(entry, samples, seed, 1, false);
            (0..epochs).for_each(|epoch| drop(job.epoch(epoch)));
            let refuses = |saved: &[u8]| Job::new(entry, samples, seed, 1, false).strategy.restore(saved).is_err();
            let mut saved = job.strategy.save();
            prop_assert!(refuses(&foreign), "{}", entry.name);
            if saved.is_empty() {
                continue;
            }
            let place = place.index(saved.len());
            prop_assert!(refuses(&saved[..place]), "{}", entry.name);
            for other in REGISTRY.iter().filter(|other| other.name != entry.name) {
                prop_assert!((other.build)(Setup::new(samples, seed)).restore(&saved).is_err(), "{}", other.name);
            }
            saved[place] ^= flip;
            prop_assert!(refuses(&saved), "{}", entry.name);
        }
    }

    /// Bytes that other code sealed: whatever they say, no call panics and ids are of the catalog.
    #[test]
    fn no_strategy_is_led_astray_by_a_state_that_only_looks_right(
        samples in 1usize..50, seed: u64, epochs in 0u64..6,
        bytes in proptest::collection::vec(0u8..20, 0..60), place: prop::sample::Index, flip in 0u8..,
    ) {
        for entry in REGISTRY {
            let mut job = Job::new(entry, samples, seed, 1, false);
            (0..epochs).for_each(|epoch| drop(job.epoch(epoch)));
            let mut near = job.strategy.save();
            near.truncate(near.len().saturating_sub(8));
            if !near.is_empty() {
                let place = place.index(near.len());
                near[place] ^= flip;
            }
            for payload in [&bytes, &near] {
                let mut writer = Writer::new(samples);
                payload.iter().for_each(|&byte| writer.fixed(byte.into(), 1));
                let mut job = Job::new(entry, samples, seed, 1, false);
                if job.strategy.restore(&writer.seal(entry.name)).is_err() {
                    continue;
                }
                for epoch in epochs..epochs + 4 {
                    prop_assert!(job.epoch(epoch).ids().iter().all(|&id| (id as usize) < samples));
                }
            }
        }
    }
}

#[test]
fn a_saved_sample_takes_few_bytes() {
    let samples = 100_000;
    for (name, epoch, most) in [
        // Of each sample how often, mean and variance; S, a twentieth of all, three bytes each.
        ("hybrid", 0, 6 * samples + 3 * samples / 20),
        ("hybrid", 4, 3 * samples / 20),
        ("pads", 4, 40),
        ("batchloss", 4, 40),
        // The order of all; a fifth of them rides, is numbered, and is served in this round or leaves.
        ("carousel", 4, 3 * samples + 7 * samples / 5),
        ("uniform", 4, 0),
        ("cis", 4, 0),
        ("iis", 4, 0),
        ("realtime", 4, 0),
        ("quiver", 4, 0),
        ("infobatch", 4, 0),
        ("given", 4, 0),
        ("sequential", 4, 0),
    ] {
        let mut setup = Setup { capacity: samples as u64 / 5, ..Setup::new(samples, 0) };
        if name == "hybrid" {
            setup.values = find(name).unwrap().values([("warmup_max", "4")]).unwrap();
        }
        let mut job = Job::of(find(name).unwrap(), setup, 1, false);
        (0..=epoch).for_each(|epoch| drop(job.epoch(epoch)));
        let bytes = job.strategy.save().len();
        assert!(bytes <= most + 60, "{name} after epoch {epoch}: {bytes} bytes, {most} expected");
        assert!(most == 0 || bytes > 8, "{name} saves nothing");
    }
}
