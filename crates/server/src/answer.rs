//! From the engine's words to the protocol's.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::OwnedFd;

use hotset_core::counters::Counters;
use hotset_core::sampling::Plan;
use hotset_core::{Error, Id, Result};
use hotset_engine::{EngineStats, JobStats, Span};
use hotset_wire::proto;
use rustix::fs::{MemfdFlags, SealFlags};

use crate::access::Accounts;

/// The share of an epoch below which waiting for storage is nothing to mend.
pub(crate) const LITTLE: f64 = 0.05;

/// Words written at once.
const PIECE: usize = 16 << 10;

/// A rank's ids in sealed memory, as 32-bit little-endian integers, and their weights if they differ from 1.
pub(crate) fn plan_memory(plan: &Plan, rank: u32) -> Result<Vec<OwnedFd>> {
    let mut descriptors = vec![memory(pieces(plan.rank_ids(rank).map(Id::to_le_bytes)))?];
    if plan.is_weighted() {
        let weights = (0..plan.rank_len()).map(|position| plan.weight(plan.slot(rank, position)));
        descriptors.push(memory(pieces(weights.map(f32::to_le_bytes)))?);
    }
    Ok(descriptors)
}

/// Many words in few pieces: a write for each would take longer than to make them.
fn pieces(mut words: impl Iterator<Item = [u8; 4]>) -> impl Iterator<Item = Vec<u8>> {
    std::iter::from_fn(move || {
        let some: Vec<[u8; 4]> = words.by_ref().take(PIECE).collect();
        (!some.is_empty()).then(|| some.into_flattened())
    })
}

/// What `parts` are, one after the other, in sealed memory.
pub(crate) fn memory<B: AsRef<[u8]>>(parts: impl IntoIterator<Item = B>) -> Result<OwnedFd> {
    let failed =
        |error: &dyn std::fmt::Display| Error::unavailable(format!("cannot hand over memory: {error}"));
    let descriptor =
        rustix::fs::memfd_create("hotset-answer", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(|error| failed(&error))?;
    let mut writer = BufWriter::with_capacity(64 << 10, File::from(descriptor));
    for part in parts {
        writer.write_all(part.as_ref()).map_err(|error| failed(&error))?;
    }
    let descriptor = OwnedFd::from(writer.into_inner().map_err(|error| failed(&error))?);
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&descriptor, seals).map_err(|error| failed(&error))?;
    Ok(descriptor)
}

/// The server's own figures; the caller fills in its process and time.
pub(crate) fn server_stats(stats: &EngineStats) -> proto::ServerStats {
    proto::ServerStats {
        memory_limit: stats.memory.unwrap_or(0),
        capacity: stats.capacity,
        reserve: stats.reserve,
        arena: stats.arena,
        segments: stats.segments,
        occupied: stats.occupied,
        passing: stats.passing,
        spared: stats.spared,
        leases: stats.leases,
        readers: stats.readers,
        reads_in_flight: stats.reads_in_flight,
        concurrency: stats.concurrency,
        moved_bytes: stats.moved,
        ..proto::ServerStats::default()
    }
}

/// How often something was refused, by its reason.
pub(crate) fn refused(accounts: &Accounts) -> BTreeMap<String, u64> {
    accounts.refused().into_iter().map(|(reason, count)| (reason.to_owned(), count)).collect()
}

/// One job's figures.
pub(crate) fn job_stats(stats: JobStats) -> proto::JobStats {
    let samples = stats.samples;
    let epochs = stats.epochs.iter().map(|(epoch, counters)| {
        let Span { seconds, waited } = stats.spans.get(epoch).copied().unwrap_or_default();
        proto::EpochStats { seconds, waited, ..epoch_stats(*epoch, counters, samples) }
    });
    // What is read ahead for an epoch is counted before anyone begins it.
    let (epochs, ahead): (Vec<_>, Vec<_>) = epochs.partition(|epoch| epoch.planned > 0);
    let eligibility = eligibility(&stats);
    let mut remarks = stats.remarks;
    remarks.extend(epochs.iter().rev().find(|epoch| is_whole(epoch)).and_then(not_the_bottleneck));
    proto::JobStats {
        job: stats.job,
        dataset: stats.dataset,
        place: stats.place,
        strategy: stats.strategy,
        policy: stats.policy,
        samples,
        bytes: stats.bytes,
        capacity: stats.capacity,
        cache_members: stats.cache_members,
        benefit: stats.benefit,
        benefit_epoch: stats.benefit_epoch,
        eligible: stats.standing.is_eligible(),
        eligibility,
        probing: stats.probing,
        resident_samples: stats.resident_samples,
        resident_bytes: stats.resident_bytes,
        epochs,
        ahead: ahead.into_iter().next(),
        unplanned: Some(epoch_stats(0, &stats.unplanned, samples)),
        total: Some(proto::EpochStats {
            seconds: stats.total_span.seconds,
            waited: stats.total_span.waited,
            ..epoch_stats(0, &stats.total, samples)
        }),
        regions: stats
            .regions
            .iter()
            .map(|region| proto::Region {
                name: region.name.to_owned(),
                capacity: region.capacity,
                used: region.used,
            })
            .collect(),
        notes: stats.notes.into_iter().map(|(name, figure)| (name.to_owned(), figure)).collect(),
        remarks,
        packages: stats.packages.map(|packages| proto::PackageStats {
            place: packages.place,
            packages: packages.packages,
            samples: packages.samples,
            bytes: packages.bytes,
            packing: packages.packing,
        }),
    }
}

/// Whether what a job reads is kept for it, and why; nothing of one that has no other beside it.
fn eligibility(stats: &JobStats) -> String {
    let alone = stats.benefit.is_none() && stats.cache_members < 2;
    if alone { String::new() } else { stats.standing.words(stats.benefit) }
}

/// Whether all that was planned was served, and it is known how long it took.
fn is_whole(epoch: &proto::EpochStats) -> bool {
    epoch.served >= epoch.planned && epoch.seconds > 0.0
}

/// What is said of an epoch that hardly waited for storage.
fn not_the_bottleneck(epoch: &proto::EpochStats) -> Option<String> {
    let share = epoch.waited / epoch.seconds;
    (share < LITTLE).then(|| {
        format!(
            "storage is not the bottleneck: in epoch {} a loader worker waited for it {:.1} s of {:.1} s ({:.0} %), and \
             more cache would save no more than that",
            epoch.epoch,
            epoch.waited,
            epoch.seconds,
            100.0 * share
        )
    })
}

fn epoch_stats(epoch: u64, counters: &Counters, samples: u64) -> proto::EpochStats {
    let waits = counters.waits.iter().enumerate().filter(|(_, waits)| waits.batches() > 0);
    proto::EpochStats {
        epoch,
        planned: counters.plan.planned,
        served: counters.served(),
        hit: counters.plan.hit,
        hit_peer: counters.plan.hit_peer,
        packed: counters.plan.packed,
        single: counters.plan.single,
        substituted: counters.plan.substituted,
        distinct: counters.plan.distinct,
        coverage: if samples == 0 { 0.0 } else { counters.plan.distinct as f64 / samples as f64 },
        storage_reads: counters.storage_reads(),
        shared_hits: counters.plan.shared_hits,
        other_reads: counters.plan.other_reads,
        storage_requests: counters.storage_requests(),
        storage_bytes: counters.storage_bytes(),
        recovery_reads: counters.clock.recovery_reads,
        recovery_requests: counters.clock.recovery_requests,
        recovery_bytes: counters.clock.recovery_bytes,
        probe_reads: counters.clock.probe_reads,
        probe_requests: counters.clock.probe_requests,
        probe_bytes: counters.clock.probe_bytes,
        joined: counters.clock.joined,
        joined_requests: counters.clock.joined_requests,
        joined_bytes: counters.clock.joined_bytes,
        peer_reads: counters.clock.peer_reads,
        peer_requests: counters.clock.peer_requests,
        peer_bytes: counters.clock.peer_bytes,
        node_reads: counters.clock.node_reads,
        node_bytes: counters.clock.node_bytes,
        node_failed: counters.clock.node_failed,
        abandoned: counters.clock.abandoned,
        spilled: counters.clock.spilled,
        late: counters.clock.late,
        storage_waits: counters.clock.storage_waits,
        node_waits: counters.clock.node_waits,
        memory_waits: counters.clock.memory_waits,
        probe_waits: counters.clock.probe_waits,
        plan_waits: counters.clock.plan_waits,
        failed: counters.clock.failed,
        reported: counters.clock.reported,
        rejected_scores: counters.clock.rejected_scores,
        package_reads: counters.plan.package_reads,
        package_bytes: counters.plan.package_bytes,
        package_bytes_served: counters.plan.package_bytes_served,
        package_waste: counters.package_waste(),
        pack_reads: counters.plan.pack_reads,
        pack_bytes_read: counters.plan.pack_bytes_read,
        pack_bytes_written: counters.plan.pack_bytes_written,
        overdue: counters.clock.overdue,
        packages_lost: counters.clock.packages_lost,
        waits: waits
            .map(|(rank, waits)| proto::RankWait {
                rank: rank as u32,
                batches: waits.batches(),
                p50: waits.quantile(0.5),
                p95: waits.quantile(0.95),
                p99: waits.quantile(0.99),
                sum: waits.sum(),
            })
            .collect(),
        seconds: 0.0,
        waited: 0.0,
    }
}

/// What labels are, in the protocol's words.
pub(crate) fn label_kind(kind: hotset_store::LabelKind) -> proto::LabelKind {
    use hotset_store::LabelKind;
    match kind {
        LabelKind::None => proto::LabelKind::Unlabelled,
        LabelKind::Whole => proto::LabelKind::Whole,
        LabelKind::Float => proto::LabelKind::Float,
        LabelKind::Wholes => proto::LabelKind::Wholes,
        LabelKind::Floats => proto::LabelKind::Floats,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(served: u64, seconds: f64, waited: f64) -> proto::EpochStats {
        proto::EpochStats { epoch: 3, planned: 100, served, seconds, waited, ..proto::EpochStats::default() }
    }

    #[test]
    fn storage_that_is_hardly_waited_for_is_said_not_to_be_the_bottleneck() {
        let said = not_the_bottleneck(&epoch(100, 40.0, 0.8)).unwrap();
        assert!(said.starts_with("storage is not the bottleneck: in epoch 3"), "{said}");
        assert!(said.contains("0.8 s of 40.0 s (2 %)"), "{said}");
        assert_eq!(not_the_bottleneck(&epoch(100, 40.0, 2.0)), None, "a twentieth is worth mending");
    }

    #[test]
    fn only_whole_epochs_say_something() {
        assert!(is_whole(&epoch(100, 1.0, 0.0)));
        assert!(!is_whole(&epoch(99, 1.0, 0.0)), "it is under way, or was left early");
        assert!(!is_whole(&epoch(100, 0.0, 0.0)), "how long it took is forgotten");
    }
}
