//! Makes a job's plans, one after the other: its strategy, what was reported to it, and what is packed.
//!
//! A plan takes as long as its dataset is large, so a server keeps the planner apart from everything that
//! requests need, and hands it what it must know of the cache: what is resident, how large the L region is.
//!
//! A plan that was made and will not be served (training starts over, or comes with other ranks) is taken back:
//! the planner remembers how its strategy stood before the last plan, and makes the same one again when it is
//! asked for the same epoch.
//!
//! What is packed is chosen with each plan, by [`PackagePlanner`].

use std::collections::BTreeMap;
use std::sync::Arc;

use super::package_planner::{PackagePlanner, PendingPackage, SavedPacking};
use super::{Config, Inputs};
use crate::cluster::Ownership;
use crate::importance::{Report, SLICE, Score, Table, cut};
use crate::log::{Event, JobLog};
use crate::packages::{Packages, Packing};
use crate::sampling::{self, Draw, DrawStream, Drawn, Plan, Reevaluation, Residents, Strategy, under_way};
use crate::{Error, Id, Result};

/// A plan, and what carrying it out needs.
pub struct PlannedEpoch {
    /// The plan.
    pub plan: Arc<Plan>,
    /// The packages that it was made from, and the bytes of one.
    pub packages: Option<(Arc<Packages>, u64)>,
    /// What is packed while it is carried out.
    pub packing: Packing,
}

/// What a plan may know of the cache.
#[derive(Default)]
pub struct CacheView {
    /// What is resident, where [`Planner::looks_at_residents`].
    pub residents: Option<Residents>,
    /// Where jobs are that share the cache: a sample that one of them has just reached.
    pub others_at: Option<Id>,
    /// The L region's bytes when the plan begins, and the most that it can have: see [`crate::policy::Policy::low`].
    pub low: (u64, u64),
}

/// The plan made last: its epoch, the ranks it was cut over, the ids it left out.
pub type LastPlan = (u64, u32, Vec<Id>);

/// How the planner stood before it made a plan.
#[derive(Clone)]
struct PlannerMark {
    epoch: u64,
    strategy: Vec<u8>,
    last: Option<LastPlan>,
    stream: Option<DrawStream>,
}

/// Everything that a job's plans are made from.
pub struct Planner {
    config: Config,
    strategy: Box<dyn Strategy>,
    table: Table,
    last: Option<LastPlan>,
    /// What is left of the last draw, where epochs have a length of their own.
    stream: Option<DrawStream>,
    before: Option<PlannerMark>,
    /// The newest epoch that is over.
    closed: Option<u64>,
    packing: PackagePlanner,
    log: JobLog,
}

impl Planner {
    /// Before its first plan. `packs` is whether the policy has a region for packages.
    pub fn new(config: Config, packs: bool) -> Self {
        let samples = config.sizes.len();
        let strategy = (config.strategy.build)(sampling::Setup {
            samples,
            seed: config.seed,
            sizes: Arc::clone(&config.sizes),
            capacity: config.capacity,
            epochs: config.epochs,
            values: config.strategy_values.clone(),
        });
        let origin = config.packages.clone().filter(|_| packs && strategy.serves_packages());
        Self {
            packing: PackagePlanner::new(origin, config.capacity, config.seed, &config.sizes),
            table: Table::of_scores(samples, strategy.score()),
            last: None,
            stream: DrawStream::of(&config.strategy_values),
            before: None,
            closed: None,
            log: JobLog::default(),
            config,
            strategy,
        }
    }

    /// Notes what it is told to a job's log.
    pub fn set_log(&mut self, log: &JobLog) {
        self.log = log.clone();
    }

    /// The strategy.
    pub fn strategy(&self) -> &dyn Strategy {
        &*self.strategy
    }

    /// What was reported.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Whether packages are used. They are not where there are none and no place for them, with a policy that has no
    /// region for them, with a strategy that serves nothing from them, and where two of them are more than a quarter
    /// of the cache.
    pub fn packs(&self) -> bool {
        self.packages().is_some()
    }

    /// The packages that are complete.
    pub fn packages(&self) -> Option<&Arc<Packages>> {
        self.packing.packages()
    }

    /// The packages that the next plan is made from, and the bytes of the largest.
    pub fn sized_packages(&self) -> Option<(Arc<Packages>, u64)> {
        self.packages().cloned().zip(self.packing.largest())
    }

    /// Package `number`, of these ids, was found complete.
    pub fn found(&mut self, number: u32, ids: &[Id]) {
        self.packing.found(number, ids);
    }

    /// Another planner has made a plan from these packages, which are all that are complete: this one goes on from there.
    pub fn adopt(&mut self, packages: &Arc<Packages>) {
        self.packing.adopt(packages);
    }

    /// Numbers of packages below `next` are taken.
    pub fn number_from(&mut self, next: u32) {
        self.packing.number_from(next);
    }

    /// The packages that were chosen and are not both complete and written.
    pub fn pending_packages(&self) -> &BTreeMap<u32, PendingPackage> {
        self.packing.pending()
    }

    /// The write of a package has ended. Plans do not ask for it: only a run that goes on after a kill must know.
    pub fn written(&mut self, number: u32) {
        self.packing.written(number);
    }

    /// Makes no packages from now on; those that are complete are used while they last.
    pub fn stop_packing(&mut self) {
        self.log.note(Event::PackingStopped);
        self.packing.stop();
    }

    /// A package was lost, or will not be made: the next plan does without it.
    pub fn lost(&mut self, package: u32) {
        self.log.note(|member| Event::PackageLost(member, package));
        self.packing.lost(package);
    }

    /// Whether a plan needs to know what is resident.
    pub fn looks_at_residents(&self) -> bool {
        self.strategy.looks_at_residents(self.packs())
    }

    /// Training goes back to `epoch`: what it reports from now on counts, whatever was reported of later epochs.
    pub fn rewind(&mut self, epoch: u64) {
        self.log.note(|member| Event::Rewound(member, epoch));
        self.table.rewind(u32::try_from(epoch).unwrap_or(u32::MAX));
        self.closed = self
            .closed
            .filter(|closed| *closed < epoch)
            .or(epoch.checked_sub(1).filter(|_| self.closed.is_some()));
        self.packing.rewind(epoch);
    }

    /// `epoch` is over: all its reports are in. Said twice it changes nothing.
    pub fn close(&mut self, epoch: u64) {
        if self.closed.is_none_or(|closed| closed < epoch) {
            self.log.note(|member| Event::Closed(member, epoch));
            self.closed = Some(epoch);
            self.strategy.close(epoch, &self.table);
        }
    }

    /// Whose losses under the current model the plan of `epoch` needs; asked once the epoch before is closed.
    pub fn reevaluation(&self, epoch: u64) -> Reevaluation {
        self.strategy.reevaluates(epoch)
    }

    /// The bytes within which a plan shuffles what lies in packages.
    fn buffer(&self, view: &CacheView) -> u64 {
        let package = self.packing.largest();
        package.map_or(0, |bytes| view.low.0.max(bytes.saturating_mul(2)).min(view.low.1))
    }

    /// Makes the plan of `epoch` for `world` ranks, and chooses what is packed meanwhile.
    pub fn plan(&mut self, epoch: u64, world: u32, inputs: &Inputs<'_>, view: &CacheView) -> PlannedEpoch {
        let plan = self.draw(epoch, world, inputs, view);
        let packing = self.pack(&plan, view, None);
        PlannedEpoch { plan: Arc::new(plan), packages: self.sized_packages(), packing }
    }

    /// Makes the plan alone. What is packed while it is carried out is [chosen](Self::pack) once it lies over nodes.
    pub fn draw(&mut self, epoch: u64, world: u32, inputs: &Inputs<'_>, view: &CacheView) -> Plan {
        self.step_back(epoch);
        self.packing.complete(epoch);
        // An epoch of a length of its own comes out even.
        let pad = self.stream.is_none() && (self.config.pad || self.strategy.pads());
        let buffer = self.buffer(view);
        let carried = match &self.last {
            // A padded plan leaves no id out.
            _ if pad => Some(&[][..]),
            Some((last, over, left_out)) if *last + 1 == epoch && *over == world => Some(left_out.as_slice()),
            _ => None,
        };
        let carried = carried.map(<[Id]>::to_vec);
        let draw = Draw {
            epoch,
            part: 0,
            world,
            carried: carried.as_deref(),
            importance: Some(&self.table),
            reevaluated: inputs.reevaluated,
            accuracy: inputs.accuracy,
            rates: inputs.rates,
            residents: view.residents.as_ref(),
            others_at: view.others_at,
            order: inputs.order,
            packages: self.packing.packages().map(|packages| (&**packages, buffer)),
        };
        let drawn = match &mut self.stream {
            None => self.strategy.draw(&draw),
            Some(stream) => {
                let follows = self.last.as_ref().is_some_and(|(last, ..)| *last + 1 == epoch);
                draw_from(stream, &mut *self.strategy, follows, self.config.sizes.len(), &draw)
            }
        };
        let plan = Plan::cut(epoch, world, pad, drawn);
        self.last = Some((epoch, world, plan.left_out().to_vec()));
        let plan = if pad && self.strategy.pads() { plan.with_silent_padding() } else { plan };
        // The plan is made: what came late in the epoch before counts from now on.
        self.table.planned(u32::try_from(epoch).unwrap_or(u32::MAX));
        while self.table.settle() {}
        self.log.note(|member| Event::Drawn { member, digest: plan.digest() });
        plan
    }

    /// What is packed while a plan is carried out that was made from the same view; by owners, where several nodes do.
    pub fn pack(&mut self, plan: &Plan, view: &CacheView, ownership: Option<&Ownership>) -> Packing {
        // Without a report there is nothing that the choice could be made from.
        if self.table.reported() == 0 {
            return self.packing.choose_nothing(plan.epoch());
        }
        let region = view.low.1.saturating_sub(self.buffer(view));
        self.packing.choose(plan.epoch(), plan, view.residents.as_ref(), region, ownership)
    }

    /// Remembers how it stands before the plan of `epoch`, or goes back to how it stood.
    fn step_back(&mut self, epoch: u64) {
        match self.before.take() {
            Some(before) if before.epoch == epoch => {
                // The table stands as it is: what was reported meanwhile is newer than the plan that is made again.
                if self.strategy.restore(&before.strategy).is_ok() {
                    self.last.clone_from(&before.last);
                    self.stream.clone_from(&before.stream);
                }
                self.before = Some(before);
            }
            _ => {
                self.before = Some(PlannerMark {
                    epoch,
                    strategy: self.strategy.save(),
                    last: self.last.clone(),
                    stream: self.stream.clone(),
                });
            }
        }
    }

    /// The scores that this planner's strategy makes of one mini-batch's losses.
    pub fn score(&self) -> Score {
        self.strategy.score()
    }

    /// Takes reports, at most [`SLICE`]; how many. The caller goes on with the others.
    pub fn report(&mut self, reports: &[Report]) -> usize {
        let applied = self.table.apply(reports);
        self.log.note(|member| Event::Reported { member, reports: reports[..applied].to_vec() });
        applied
    }

    /// All that plans are made from, so that a planner of the same configuration goes on the same. What lies in
    /// packages that are complete is not part of it: they say that themselves.
    pub fn save(&self) -> Saved {
        let packing = self.packing.save();
        Saved {
            table: self.table.save(),
            strategy: self.strategy.save(),
            last: self.last.clone(),
            closed: self.closed,
            packing,
            rest: self.save_rest(),
        }
    }

    fn save_rest(&self) -> Vec<u8> {
        let rest = self.stream.as_ref().map(DrawStream::rest).filter(|rest| !rest.ids.is_empty());
        rest.map_or_else(Vec::new, |rest| {
            Plan::cut(0, 1, false, rest.clone()).save(self.config.sizes.len(), &self.table.snapshot())
        })
    }

    /// Takes what [`Self::save`] gave, where these packages were `found` written. Those that were found and are of no
    /// plan before it are left out: they are chosen anew.
    pub fn restore(&mut self, saved: &Saved, found: &[(u32, Vec<Id>)]) -> Result<()> {
        let samples = self.config.sizes.len();
        let foreign = || Error::invalid("the state does not fit the dataset");
        self.table = if saved.table.is_empty() {
            Table::of_scores(samples, self.strategy.score())
        } else {
            Table::restore(samples, &saved.table).ok_or_else(foreign)?
        };
        let inside = |ids: &[Id]| ids.iter().all(|&id| (id as usize) < samples);
        if !saved.packing.pending.values().all(|pending| inside(&pending.draft.ids)) {
            return Err(foreign());
        }
        if saved.last.as_ref().is_some_and(|(_, world, left_out)| *world == 0 || !inside(left_out)) {
            return Err(foreign());
        }
        let rest = match saved.rest.as_slice() {
            [] => Drawn::default(),
            saved => Plan::restore(samples, saved, &self.table.snapshot()).ok_or_else(foreign)?.into_drawn(),
        };
        if let Some(stream) = &mut self.stream {
            stream.set_rest(rest);
        }
        self.strategy.restore(&saved.strategy)?;
        (self.last, self.closed) = (saved.last.clone(), saved.closed);
        self.packing.restore(&saved.packing, found);
        Ok(())
    }
}

/// What [`Planner::save`] gives.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Saved {
    /// The table of reports; empty where nothing was reported.
    pub table: Vec<u8>,
    /// The strategy's own.
    pub strategy: Vec<u8>,
    /// The last plan's epoch, world and left-out ids.
    pub last: Option<LastPlan>,
    /// The newest epoch that is over.
    pub closed: Option<u64>,
    /// What is packed.
    pub packing: SavedPacking,
    /// What is left of the strategy's last draw, where epochs have a length of their own; empty: nothing.
    pub rest: Vec<u8>,
}

/// The next epoch of what a strategy draws, where epochs have a length of their own; `follows` is whether the epoch
/// before was planned here.
fn draw_from(
    stream: &mut DrawStream,
    strategy: &mut dyn Strategy,
    follows: bool,
    samples: usize,
    draw: &Draw<'_>,
) -> Drawn {
    let slots = stream.slots(samples, draw.world);
    let by_seed = !strategy.needs_losses()
        && !strategy.looks_at_residents(true)
        && !strategy.adapts()
        && !strategy.repeats();
    let later = draw.residents.map(Residents::without_low);
    let mut make = |epoch: u64, part: u32, first: bool| {
        let residents = if first { draw.residents } else { later.as_ref() };
        let drawn = strategy.draw(&Draw { epoch, part, carried: Some(&[]), residents, ..draw.clone() });
        if drawn.ids.is_empty() {
            // So few samples that none was selected: an epoch of its length has them all.
            return Drawn { ids: (0..samples as Id).collect(), ..drawn };
        }
        drawn
    };
    if !follows {
        // Training begins, goes back or comes from elsewhere. What goes by its seed alone is drawn once more.
        let rest = under_way(draw.epoch, slots, samples).filter(|_| by_seed).map(|(epoch, part, left)| {
            let mut drawn = make(epoch, part, true);
            drawn.split_off(drawn.ids.len().saturating_sub(left))
        });
        stream.set_rest(rest.unwrap_or_default());
    }
    let alive = |package| draw.packages.is_some_and(|(packages, _)| !packages.is_dead(package));
    stream.next(slots, alive, |part, first| make(draw.epoch, part, first))
}

/// The reports of one mini-batch, its losses and the scores made of them: the slots `position..` of a rank that
/// has `rank_len` of them in `epoch`.
pub fn reports(
    (epoch, rank_len, position): (u64, usize, usize),
    ids: &[Id],
    losses: &[f32],
    scores: &[f32],
) -> Vec<Report> {
    let late = cut(rank_len);
    (position..)
        .zip(ids.iter().zip(scores.iter().zip(losses)))
        .map(|(position, (&id, (&value, &loss)))| Report {
            id,
            value,
            loss,
            epoch: u32::try_from(epoch).unwrap_or(u32::MAX),
            step: u32::try_from(position).unwrap_or(u32::MAX),
            late: position >= late,
        })
        .collect()
}

/// Calls `each` with the valid scores of a mini-batch, at most [`SLICE`] at a time, for a policy that takes them
/// at once.
pub fn valid_scores(ids: &[Id], scores: &[f32], mut each: impl FnMut(&[(Id, f32)])) {
    let valid: Vec<(Id, f32)> =
        ids.iter().copied().zip(scores.iter().copied()).filter(|(_, score)| !score.is_nan()).collect();
    valid.chunks(SLICE).for_each(&mut each);
}
