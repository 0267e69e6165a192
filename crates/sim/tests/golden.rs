//! Exact counts of every sensible pair on a small trace.
//!
//! The trace and the counts are files of the repository. Both are written anew, on purpose only, by
//! `HOTSET_GOLDEN=write cargo test -p hotset-sim --test golden`; look at what changed before committing it.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::fmt::Write;
use std::sync::{Arc, Once};

use hotset_core::sampling::Equal;
use hotset_core::{policy, sampling};
use hotset_sim::replay::{self, Job, Scenario};
use hotset_sim::{Trace, grid};

fn writes() -> bool {
    std::env::var_os("HOTSET_GOLDEN").is_some_and(|value| value == "write")
}

/// Both tests need it, in any order.
fn write_small() {
    static ONCE: Once = Once::new();
    if writes() {
        ONCE.call_once(|| std::fs::write(common::data("small.npz"), common::small()).unwrap());
    }
}

fn scenario(ranks: u32, packages: Option<u64>) -> Scenario {
    let path = common::data("small.npz");
    let (loss, reeval) = (Trace::open(&path, "loss").unwrap(), Trace::open(&path, "reeval").unwrap());
    let sizes = Arc::new(Equal { samples: common::SAMPLES, size: 1500 });
    let mut scenario = Scenario::new("small", loss, Some(reeval), sizes).unwrap();
    (scenario.compute.batch, scenario.compute.ranks, scenario.packages) = (16, ranks, packages);
    scenario
}

#[test]
fn the_small_trace_is_what_its_generator_makes() {
    let (path, made) = (common::data("small.npz"), common::small());
    write_small();
    assert!(made.len() < 100_000, "{}", made.len());
    assert!(std::fs::read(&path).unwrap() == made, "`{}` is stale", path.display());
}

#[test]
fn every_pair_counts_exactly_what_it_counted_before() {
    write_small();
    let mut cases = Vec::new();
    for strategy in sampling::drawing() {
        for policy in policy::REGISTRY {
            let pair = format!("{}+{}", strategy.name, policy.name);
            cases.push((pair.clone(), "20%", 1, None));
            if [strategy.policy, "lru"].contains(&policy.name) {
                cases.push((pair.clone(), "20%", 3, None));
                cases.push((pair.clone(), "7%", 1, None));
            }
            if ["icache", "impact"].contains(&policy.name) {
                cases.push((pair, "20%", 1, Some(16 << 10)));
            }
        }
    }
    let lines = grid::each(
        &cases,
        grid::cores(),
        |(pair, cache, ranks, packages)| {
            let scenario = scenario(*ranks, *packages);
            let job = Job::new(&pair.parse()?, *cache, cache.parse()?, 7)?;
            let head = format!("{pair},{cache},{ranks},{}", packages.unwrap_or(0));
            Ok(match replay::run(&scenario, &job) {
                Ok(outcome) => format!("{head},{}", counts(&outcome)),
                Err(error) => format!("{head},refused: {}", error.message.replace(',', ";")),
            })
        },
        |_| (),
    )
    .unwrap();
    let mut text = String::from(
        "pair,cache,ranks,package,served,hit,packed,single,substituted,distinct,storage_reads,other_reads,\
         pack_reads,storage_requests,storage_bytes,pack_bytes_written,reported,last_hit,last_reads\n",
    );
    lines.iter().for_each(|line| writeln!(text, "{line}").unwrap());
    let path = common::data("golden.csv");
    if writes() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    for (kept, now) in kept.lines().zip(text.lines()) {
        assert_eq!(kept, now, "counts differ from `{}`", path.display());
    }
    assert_eq!(kept.lines().count(), text.lines().count(), "a pair came or went: write the counts anew");
}

/// The sums over all epochs, and the last epoch's hits and reads.
fn counts(outcome: &hotset_sim::outcome::Outcome) -> String {
    let counters = || outcome.epochs.iter().map(|epoch| &epoch.counters);
    for counters in counters() {
        assert_eq!(counters.served(), counters.plan.planned);
        assert_eq!(counters.served(), counters.plan.hit + counters.plan.packed + counters.plan.single);
        assert!(
            counters.plan.distinct <= counters.served() && counters.plan.distinct <= common::SAMPLES as u64
        );
    }
    let sum = |of: &dyn Fn(&hotset_core::counters::Counters) -> u64| counters().map(of).sum::<u64>();
    let last = counters().next_back().unwrap();
    let numbers = [
        sum(&|counters| counters.served()),
        sum(&|counters| counters.plan.hit),
        sum(&|counters| counters.plan.packed),
        sum(&|counters| counters.plan.single),
        sum(&|counters| counters.plan.substituted),
        sum(&|counters| counters.plan.distinct),
        sum(&|counters| counters.plan.storage_reads),
        sum(&|counters| counters.plan.other_reads),
        sum(&|counters| counters.plan.pack_reads),
        sum(&|counters| counters.plan.storage_requests),
        sum(&|counters| counters.plan.storage_bytes),
        sum(&|counters| counters.plan.pack_bytes_written),
        sum(&|counters| counters.clock.reported),
        last.plan.hit,
        last.plan.storage_reads,
    ];
    numbers.map(|number| number.to_string()).join(",")
}
