//! Makes a job's plans, one after the other: its strategy, what was reported to it, and what is packed.
//!
//! A plan takes as long as its dataset is large, so a server keeps the planner apart from everything that
//! requests need, and hands it what it must know of the cache: who is resident, how large the L region is.
//!
//! A plan that was made and will not be served (training starts over, or comes with other ranks) is taken back:
//! the planner remembers how its strategy stood before the last plan, and makes the same one again when it is
//! asked for the same epoch.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Config, Inputs};
use crate::bits::Bits;
use crate::importance::{Report, SLICE, Score, Table, cut};
use crate::packages::{Origin, Packages, Packer, Packing, fit};
use crate::sampling::{self, Draw, Drawn, Plan, Reevaluation, Residents, Rolling, Strategy, under_way};
use crate::{Error, Id, Result};

/// A plan, and what carrying it out needs.
pub struct Made {
    /// The plan.
    pub plan: Arc<Plan>,
    /// The packages that it was made from, and the bytes of one.
    pub packages: Option<(Arc<Packages>, u64)>,
    /// What is packed while it is carried out: packages of these numbers and ids.
    pub packing: Vec<(u32, Vec<Id>)>,
}

/// What a plan may know of the cache.
#[derive(Default)]
pub struct Sight {
    /// Who is resident, where [`Planner::looks_at_residents`].
    pub residents: Option<Residents>,
    /// The bytes of the L region.
    pub low: u64,
}

/// The plan made last: its epoch, the ranks it was cut over, whom it left out.
pub type Last = (u64, u32, Vec<Id>);

/// How the planner stood before it made a plan.
#[derive(Clone)]
struct Before {
    epoch: u64,
    strategy: Vec<u8>,
    last: Option<Last>,
    rolling: Option<Rolling>,
}

/// See the module's head.
pub struct Planner {
    config: Config,
    strategy: Box<dyn Strategy>,
    table: Table,
    last: Option<Last>,
    /// What is left of the last draw, where epochs have a length of their own.
    rolling: Option<Rolling>,
    before: Option<Before>,
    /// The newest epoch that is over.
    closed: Option<u64>,
    packages: Option<Arc<Packages>>,
    packer: Option<Packer>,
    /// The least bytes of a package, where packages are used, also if no more are made.
    package: Option<u64>,
    /// The packages that are being made, and who is in one of them.
    packing: BTreeMap<u32, Vec<Id>>,
    busy: Bits,
    /// The number of the next package.
    next: u32,
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
        // Plans look at residents on account of packages, or make nothing of them.
        let uses = packs && strategy.looks_at_residents(true) && !strategy.looks_at_residents(false);
        let (packer, packages) = match config.packages.clone().filter(|_| uses) {
            Some(Origin::Made(bytes)) => {
                let packer = Packer::new(bytes, config.capacity, config.seed);
                let packages = packer.as_ref().map(|_| Arc::new(Packages::new(samples)));
                (packer, packages)
            }
            Some(Origin::Given(packages)) => {
                (None, Some(packages).filter(|packages| fit(packages.largest(), config.capacity)))
            }
            None => (None, None),
        };
        let least = packer.as_ref().map_or(0, Packer::package_bytes);
        Self {
            package: packages.as_ref().map(|packages| packages.largest().max(least)),
            packages,
            packing: BTreeMap::new(),
            busy: Bits::new(if packer.is_some() { samples } else { 0 }),
            next: 0,
            table: Table::of_scores(samples, strategy.score()),
            last: None,
            rolling: Rolling::of(&config.strategy_values),
            before: None,
            closed: None,
            config,
            strategy,
            packer,
        }
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
        self.packages.is_some()
    }

    /// The packages that are complete.
    pub fn packages(&self) -> Option<&Arc<Packages>> {
        self.packages.as_ref()
    }

    /// Package `number`, of these ids, is complete, or was found so.
    pub fn packed(&mut self, number: u32, ids: &[Id]) {
        if let Some(packages) = &mut self.packages {
            Arc::make_mut(packages).place(number, ids, &*self.config.sizes);
            self.next = self.next.max(packages.next());
        }
        self.given_up(number);
    }

    /// Numbers of packages below `next` are taken.
    pub fn number_from(&mut self, next: u32) {
        self.next = self.next.max(next);
    }

    /// A package was chosen and will not be made.
    pub fn given_up(&mut self, number: u32) {
        for id in self.packing.remove(&number).unwrap_or_default() {
            self.busy.remove(id);
        }
    }

    /// The packages that were chosen and are neither complete nor given up.
    pub fn unfinished(&self) -> Vec<(u32, Vec<Id>)> {
        self.packing.iter().map(|(number, ids)| (*number, ids.clone())).collect()
    }

    /// Makes no packages from now on; those that are complete are used while they last.
    pub fn stop_packing(&mut self) {
        self.packer = None;
    }

    /// A package was lost: the next plan does without it.
    pub fn lost(&mut self, package: u32) {
        if let Some(packages) = &mut self.packages {
            Arc::make_mut(packages).remove(package);
        }
    }

    /// Whether a plan needs to know who is resident.
    pub fn looks_at_residents(&self) -> bool {
        self.strategy.looks_at_residents(self.packages.is_some())
    }

    /// Training goes back to `epoch`: what it reports from now on counts, whatever was reported of later epochs.
    pub fn rewind(&mut self, epoch: u64) {
        self.table.rewind(u32::try_from(epoch).unwrap_or(u32::MAX));
        self.closed = self
            .closed
            .filter(|closed| *closed < epoch)
            .or(epoch.checked_sub(1).filter(|_| self.closed.is_some()));
    }

    /// `epoch` is over: all its reports are in. Said twice it changes nothing.
    pub fn close(&mut self, epoch: u64) {
        if self.closed.is_none_or(|closed| closed < epoch) {
            self.closed = Some(epoch);
            self.strategy.close(epoch, &self.table);
        }
    }

    /// Whose losses under the current model the plan of `epoch` needs; asked once the epoch before is closed.
    pub fn reevaluation(&self, epoch: u64) -> Reevaluation {
        self.strategy.reevaluates(epoch)
    }

    /// Makes the plan of `epoch` for `world` ranks.
    pub fn plan(&mut self, epoch: u64, world: u32, inputs: &Inputs<'_>, sight: &Sight) -> Made {
        self.step_back(epoch);
        // An epoch of a length of its own comes out even.
        let pad = self.rolling.is_none() && (self.config.pad || self.strategy.pads());
        let package = self
            .package
            .map(|least| self.packages.as_ref().map_or(0, |packages| packages.largest()).max(least));
        let buffer = package.map_or(0, |bytes| sight.low.max(2 * bytes));
        let carried = match &self.last {
            // A padded plan leaves nobody out.
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
            residents: sight.residents.as_ref(),
            packages: self.packages.as_deref().map(|packages| (packages, buffer)),
        };
        let drawn = match &mut self.rolling {
            None => self.strategy.draw(&draw),
            Some(rolling) => {
                let follows = self.last.as_ref().is_some_and(|(last, ..)| *last + 1 == epoch);
                roll(rolling, &mut *self.strategy, follows, self.config.sizes.len(), &draw)
            }
        };
        let plan = Plan::cut(epoch, world, pad, drawn);
        self.last = Some((epoch, world, plan.left_out().to_vec()));
        let plan = if pad && self.strategy.pads() { plan.with_silent_padding() } else { plan };
        // The plan is made: what came late in the epoch before counts from now on.
        self.table.planned(u32::try_from(epoch).unwrap_or(u32::MAX));
        while self.table.settle() {}
        let packing = self.choose(epoch, &plan);
        Made { plan: Arc::new(plan), packages: self.packages.clone().zip(package), packing }
    }

    fn choose(&mut self, epoch: u64, plan: &Plan) -> Vec<(u32, Vec<Id>)> {
        let chosen = match (&self.packer, &self.packages, plan.keys()) {
            (Some(packer), Some(packages), Some(keys)) if self.table.reported() > 0 => {
                packer.choose(epoch, packages, keys, &*self.config.sizes, plan, &self.busy)
            }
            _ => Packing::new(),
        };
        let first = self.next;
        self.next += chosen.len() as u32;
        let packing: Vec<(u32, Vec<Id>)> = (first..).zip(chosen).collect();
        packing.iter().for_each(|(number, ids)| self.packs_now(*number, ids));
        packing
    }

    fn packs_now(&mut self, number: u32, ids: &[Id]) {
        ids.iter().for_each(|&id| {
            self.busy.insert(id);
        });
        self.packing.insert(number, ids.to_vec());
    }

    /// Remembers how it stands before the plan of `epoch`, or goes back to how it stood.
    fn step_back(&mut self, epoch: u64) {
        match self.before.take() {
            Some(before) if before.epoch == epoch => {
                // The table stands as it is: what was reported meanwhile is newer than the plan that is made again.
                if self.strategy.restore(&before.strategy).is_ok() {
                    self.last.clone_from(&before.last);
                    self.rolling.clone_from(&before.rolling);
                }
                self.before = Some(before);
            }
            _ => {
                self.before = Some(Before {
                    epoch,
                    strategy: self.strategy.save(),
                    last: self.last.clone(),
                    rolling: self.rolling.clone(),
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
        self.table.apply(reports)
    }

    /// All that plans are made from, so that a planner of the same configuration goes on the same. Packages that are
    /// complete are not part of it: they say themselves what they hold.
    pub fn save(&self) -> Saved {
        Saved {
            table: self.table.save(),
            strategy: self.strategy.save(),
            last: self.last.clone(),
            closed: self.closed,
            packing: self.unfinished(),
            rest: self.save_rest(),
        }
    }

    fn save_rest(&self) -> Vec<u8> {
        let rest = self.rolling.as_ref().map(Rolling::rest).filter(|rest| !rest.ids.is_empty());
        rest.map_or_else(Vec::new, |rest| {
            Plan::cut(0, 1, false, rest.clone()).save(self.config.sizes.len(), &self.table.snapshot())
        })
    }

    /// Takes what [`Self::save`] gave, after all packages that were found complete were said to be.
    pub fn restore(&mut self, saved: &Saved) -> Result<()> {
        let samples = self.config.sizes.len();
        let foreign = || Error::invalid("the state does not fit the dataset");
        self.table = if saved.table.is_empty() {
            Table::of_scores(samples, self.strategy.score())
        } else {
            Table::restore(samples, &saved.table).ok_or_else(foreign)?
        };
        let inside = |ids: &[Id]| ids.iter().all(|&id| (id as usize) < samples);
        if !saved.packing.iter().all(|(_, ids)| inside(ids)) {
            return Err(foreign());
        }
        if saved.last.as_ref().is_some_and(|(_, world, left_out)| *world == 0 || !inside(left_out)) {
            return Err(foreign());
        }
        let rest = match saved.rest.as_slice() {
            [] => Drawn::default(),
            saved => Plan::restore(samples, saved, &self.table.snapshot()).ok_or_else(foreign)?.into_drawn(),
        };
        if let Some(rolling) = &mut self.rolling {
            rolling.set_rest(rest);
        }
        self.strategy.restore(&saved.strategy)?;
        (self.last, self.closed) = (saved.last.clone(), saved.closed);
        let complete = |planner: &Self, number: u32| {
            planner.packages.as_ref().is_some_and(|packages| packages.packed(number) > 0)
        };
        for (number, ids) in &saved.packing {
            if self.packer.is_some() && !complete(self, *number) {
                self.packs_now(*number, ids);
                self.next = self.next.max(number.saturating_add(1));
            }
        }
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
    pub last: Option<Last>,
    /// The newest epoch that is over.
    pub closed: Option<u64>,
    /// The packages that were being made.
    pub packing: Vec<(u32, Vec<Id>)>,
    /// What is left of the last draw, as a plan saves itself; empty where nothing is.
    pub rest: Vec<u8>,
}

/// The next epoch of what a strategy draws, where epochs have a length of their own; `follows` is whether the epoch
/// before was planned here.
fn roll(
    rolling: &mut Rolling,
    strategy: &mut dyn Strategy,
    follows: bool,
    samples: usize,
    draw: &Draw<'_>,
) -> Drawn {
    let slots = rolling.slots(samples, draw.world);
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
        rolling.set_rest(rest.unwrap_or_default());
    }
    let alive = |package| draw.packages.is_some_and(|(packages, _)| !packages.is_dead(package));
    rolling.next(slots, alive, |part, first| make(draw.epoch, part, first))
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
