//! The trainer's side of a replay: plans from reports, and reports from plans.
//!
//! An epoch's plan is drawn from what was reported before the cut; then every sample it serves reports the
//! loss that the trace has for it in that epoch, batch by batch as its rank trains them. A sample of weight 0
//! is not trained and reports nothing.

use std::sync::Arc;

use hotset_core::importance::{Report, Score, Table, cut};
use hotset_core::packages::Packages;
use hotset_core::sampling::{self, Draw, Plan, Reevaluation, Residents, Setup, Strategy};
use hotset_core::{Id, Result};

use crate::world::{Job, World, texts};

/// See the module's head.
pub(crate) struct Planner<'a> {
    world: &'a World,
    strategy: Box<dyn Strategy>,
    table: Table,
    left_out: Vec<Id>,
}

impl<'a> Planner<'a> {
    pub(crate) fn new(world: &'a World, job: &Job, capacity: u64) -> Result<Self> {
        let entry = sampling::find(&job.strategy.name)?;
        let strategy = (entry.build)(Setup {
            samples: world.samples(),
            seed: job.seed,
            sizes: Arc::clone(&world.sizes),
            capacity,
            epochs: Some(world.epochs() as u64),
            values: entry.values(texts(&job.strategy))?,
        });
        Ok(Self { world, strategy, table: Table::new(world.samples()), left_out: Vec::new() })
    }

    /// Whether plans depend on who is resident.
    pub(crate) fn looks_at_residents(&self) -> bool {
        self.strategy.looks_at_residents()
    }

    /// Closes the epoch before; whose losses under the current model the plan of `epoch` needs.
    pub(crate) fn close_before(&mut self, epoch: u64) -> Reevaluation {
        if let Some(before) = epoch.checked_sub(1) {
            self.strategy.close(before, &self.table);
        }
        self.strategy.reevaluates(epoch)
    }

    /// Makes the plan of `epoch`.
    pub(crate) fn plan(
        &mut self,
        epoch: u64,
        reevaluation: &Reevaluation,
        residents: Option<&Residents>,
        packages: Option<(&Packages, u64)>,
    ) -> Plan {
        let reevaluated = self.reevaluate(epoch, reevaluation);
        let (ranks, pads) = (self.world.compute.ranks, self.strategy.pads());
        let drawn = self.strategy.draw(&Draw {
            epoch,
            world: ranks,
            carried: Some(&self.left_out),
            importance: Some(&self.table),
            reevaluated: reevaluated.as_deref(),
            accuracy: None,
            rates: Some(self.world.rates()),
            residents,
            packages,
        });
        let mut plan = Plan::cut(epoch, ranks, self.world.pad || pads, drawn);
        if pads {
            plan = plan.with_silent_padding();
        }
        self.left_out = plan.left_out().to_vec();
        self.table.planned(epoch as u32);
        while self.table.settle() {}
        plan
    }

    /// The losses of those asked for under the model at the end of the epoch before: the trace's re-evaluated
    /// ones, or where there are none those at which they will be trained.
    fn reevaluate(&self, epoch: u64, reevaluation: &Reevaluation) -> Option<Vec<(Id, f32)>> {
        let row = match &self.world.reevaluated {
            Some(trace) => trace.row(epoch.saturating_sub(1) as usize),
            None => self.world.trace.row(epoch as usize),
        };
        let of = |id: Id| Some((id, row[id as usize])).filter(|(_, loss)| !loss.is_nan());
        match reevaluation {
            Reevaluation::Nothing => None,
            Reevaluation::Set(ids) => Some(ids.iter().copied().filter_map(of).collect()),
            Reevaluation::All => Some((0..row.len() as Id).filter_map(of).collect()),
        }
    }

    /// Trains a plan: its samples report. How many did.
    pub(crate) fn train(&mut self, plan: &Plan) -> u64 {
        let late_from = cut(plan.rank_len());
        let before = self.table.taken();
        let mut batch = Batch::default();
        let mut reports = Vec::new();
        for rank in 0..plan.world() {
            for from in (0..plan.rank_len()).step_by(self.world.compute.batch) {
                batch.collect(self.world, plan, rank, from);
                reports.clear();
                let scores = self.strategy.score().of(&batch.losses);
                reports.extend(
                    (from..).zip(batch.ids.iter().zip(scores)).filter(|(_, (_, score))| !score.is_nan()).map(
                        |(position, (&id, value))| Report {
                            id,
                            value,
                            epoch: plan.epoch() as u32,
                            step: position as u32,
                            late: position >= late_from,
                        },
                    ),
                );
                let mut applied = 0;
                while applied < reports.len() {
                    applied += self.table.apply(&reports[applied..]);
                }
            }
        }
        self.table.taken() - before
    }
}

/// One rank's mini-batch as it is trained.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) ids: Vec<Id>,
    pub(crate) losses: Vec<f32>,
}

impl Batch {
    /// Gathers the batch that begins at `from` of `rank`'s slots; not a number where nothing is reported.
    pub(crate) fn collect(&mut self, world: &World, plan: &Plan, rank: u32, from: usize) {
        self.ids.clear();
        self.losses.clear();
        let row = world.trace.row(plan.epoch() as usize);
        for position in from..(from + world.compute.batch).min(plan.rank_len()) {
            let slot = plan.slot(rank, position);
            let id = plan.ids()[slot];
            self.ids.push(id);
            self.losses.push(if plan.weight(slot) > 0.0 { row[id as usize] } else { f32::NAN });
        }
    }

    /// Scores of those that have one.
    pub(crate) fn scores(&self, score: Score) -> Vec<(Id, f32)> {
        let scores = score.of(&self.losses);
        self.ids.iter().copied().zip(scores).filter(|(_, score)| !score.is_nan()).collect()
    }
}
