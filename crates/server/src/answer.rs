//! From the engine's words to the protocol's.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::OwnedFd;

use hotset_core::counters::Counters;
use hotset_core::sampling::Plan;
use hotset_core::{Error, Result};
use hotset_engine::{EngineStats, JobStats};
use hotset_wire::proto;
use rustix::fs::{MemfdFlags, SealFlags};

/// A rank's ids in sealed memory, as 32-bit little-endian integers.
pub(crate) fn plan_memory(plan: &Plan, rank: u32) -> Result<OwnedFd> {
    let failed = |error: &dyn std::fmt::Display| {
        Error::unavailable(format!("cannot hand over a plan of {} ids: {error}", plan.rank_len()))
    };
    let descriptor = rustix::fs::memfd_create("hotset-plan", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(|error| failed(&error))?;
    let mut writer = BufWriter::with_capacity(64 << 10, File::from(descriptor));
    for id in plan.rank_ids(rank) {
        writer.write_all(&id.to_le_bytes()).map_err(|error| failed(&error))?;
    }
    let descriptor = OwnedFd::from(writer.into_inner().map_err(|error| failed(&error))?);
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&descriptor, seals).map_err(|error| failed(&error))?;
    Ok(descriptor)
}

/// The server's own figures; who and when it is the caller fills in.
pub(crate) fn server_stats(stats: &EngineStats) -> proto::ServerStats {
    proto::ServerStats {
        memory_limit: stats.memory.unwrap_or(0),
        capacity: stats.capacity,
        reserve: stats.reserve,
        arena: stats.arena,
        segments: stats.segments,
        occupied: stats.occupied,
        passing: stats.passing,
        leases: stats.leases,
        readers: stats.readers,
        reads_in_flight: stats.reads_in_flight,
        concurrency: stats.concurrency,
        moved_bytes: stats.moved,
        ..proto::ServerStats::default()
    }
}

/// One job's figures.
pub(crate) fn job_stats(stats: JobStats) -> proto::JobStats {
    let samples = stats.samples;
    proto::JobStats {
        job: stats.job,
        dataset: stats.dataset,
        place: stats.place,
        strategy: stats.strategy,
        policy: stats.policy,
        samples,
        bytes: stats.bytes,
        capacity: stats.capacity,
        resident_samples: stats.resident_samples,
        resident_bytes: stats.resident_bytes,
        epochs: stats.epochs.iter().map(|(epoch, counters)| epoch_stats(*epoch, counters, samples)).collect(),
        unplanned: Some(epoch_stats(0, &stats.unplanned, samples)),
        total: Some(epoch_stats(0, &stats.total, samples)),
    }
}

fn epoch_stats(epoch: u64, counters: &Counters, samples: u64) -> proto::EpochStats {
    let waits = counters.waits.iter().enumerate().filter(|(_, waits)| waits.batches() > 0);
    proto::EpochStats {
        epoch,
        planned: counters.planned,
        served: counters.served(),
        hit: counters.hit,
        packed: counters.packed,
        single: counters.single,
        substituted: counters.substituted,
        distinct: counters.distinct,
        coverage: if samples == 0 { 0.0 } else { counters.distinct as f64 / samples as f64 },
        storage_reads: counters.storage_reads,
        other_reads: counters.other_reads,
        storage_requests: counters.storage_requests,
        storage_bytes: counters.storage_bytes,
        refill: counters.refill,
        abandoned: counters.abandoned,
        spilled: counters.spilled,
        late: counters.late,
        failed: counters.failed,
        reported: counters.reported,
        rejected_scores: counters.rejected_scores,
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
    }
}
