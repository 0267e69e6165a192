//! Makes a job's plans, one after the other: its strategy, what was reported to it, and what is packed.
//!
//! A plan takes as long as its dataset is large, so a server keeps the planner apart from everything that
//! requests need, and hands it what it must know of the cache: who is resident, how large the L region is.
//!
//! A plan that was made and will not be served (training starts over, or comes with other ranks) is taken back:
//! the planner remembers how its strategy stood before the last plan, and makes the same one again when it is
//! asked for the same epoch.
//!
//! **Packages.** What is packed is chosen with each plan, and so is what is complete when the next one is made: see
//! [`crate::packages::Packer`]. The planner goes by that alone, and never asks when a package was written; who
//! carries the plan out waits for it, and says if it will not come ([`Planner::lost`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Config, Inputs};
use crate::bits::Bits;
use crate::importance::{Report, SLICE, Score, Table, cut};
use crate::packages::{self, Chosen, Draft, Origin, Packages, Packer, Scene, fit};
use crate::sampling::{self, Draw, Drawn, Plan, Reevaluation, Residents, Rolling, Strategy, under_way};
use crate::{Error, Id, Result};

/// A plan, and what carrying it out needs.
pub struct Made {
    /// The plan.
    pub plan: Arc<Plan>,
    /// The packages that it was made from, and the bytes of one.
    pub packages: Option<(Arc<Packages>, u64)>,
    /// What is packed while it is carried out.
    pub packing: Packing,
}

/// What is packed while a plan is carried out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Packing {
    /// Packages of these numbers and ids.
    pub packages: Vec<(u32, Vec<Id>)>,
    /// Older packages that are read whole for it, with the members that are needed of them.
    pub whole: Vec<(u32, Vec<Id>)>,
    /// Samples that are read one by one for it.
    pub single: Vec<Id>,
}

impl Packing {
    /// Whether nothing is packed.
    pub fn is_empty(&self) -> bool {
        self.packages.is_empty() && self.whole.is_empty() && self.single.is_empty()
    }
}

/// A package that was chosen, until it is both complete and written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Making {
    /// The epoch that it is made in.
    pub epoch: u64,
    /// What it holds, and whether the plan of the epoch after may use it.
    pub draft: Draft,
    /// Whether plans use it.
    pub complete: bool,
    /// Whether its write has ended.
    pub written: bool,
}

/// What a plan may know of the cache.
#[derive(Default)]
pub struct Sight {
    /// Who is resident, where [`Planner::looks_at_residents`].
    pub residents: Option<Residents>,
    /// The L region's bytes when the plan begins, and the most that it can have: see [`crate::policy::Policy::low`].
    pub low: (u64, u64),
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

/// Everything that a job's plans are made from.
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
    /// The packages that are being made and are not complete, and who is in one of them.
    packing: BTreeMap<u32, Making>,
    busy: Bits,
    /// Worn packages that retire when nobody in them is being packed.
    moved: BTreeSet<u32>,
    /// The newest epoch that was packed in.
    packed: Option<u64>,
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
                let bytes = packages::size(bytes, config.capacity);
                let packer = bytes.and_then(|bytes| Packer::new(bytes, config.capacity, config.seed));
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
            moved: BTreeSet::new(),
            packed: None,
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

    /// Package `number`, of these ids, was found complete.
    pub fn found(&mut self, number: u32, ids: &[Id]) {
        if let Some(packages) = &mut self.packages {
            Arc::make_mut(packages).place(number, ids, &*self.config.sizes);
            self.next = self.next.max(packages.next());
        }
    }

    /// Numbers of packages below `next` are taken.
    pub fn number_from(&mut self, next: u32) {
        self.next = self.next.max(next);
    }

    /// The packages that were chosen and are not both complete and written.
    pub fn making(&self) -> &BTreeMap<u32, Making> {
        &self.packing
    }

    /// The write of a package has ended. Plans do not ask for it: only who goes on after a kill must know.
    pub fn written(&mut self, number: u32) {
        if let Some(making) = self.packing.get_mut(&number) {
            making.written = true;
        }
        self.packing.retain(|_, making| !(making.complete && making.written));
    }

    /// What was chosen is complete as far as the plan of `epoch` goes.
    fn complete(&mut self, epoch: u64) {
        let Some(packages) = &mut self.packages else { return };
        // What comes late in an epoch is for the plan after the next. Training that went back has left later ones.
        let usable = |making: &Making| {
            let early = making.epoch + 1 == epoch && making.draft.early;
            !making.complete && (early || making.epoch > epoch || making.epoch + 1 < epoch)
        };
        let done: Vec<u32> =
            self.packing.iter().filter(|(_, making)| usable(making)).map(|(&number, _)| number).collect();
        if done.is_empty() && self.moved.is_empty() {
            return;
        }
        let packages = Arc::make_mut(packages);
        for number in done {
            let Some(making) = self.packing.get_mut(&number) else { continue };
            making.complete = true;
            packages.place(number, &making.draft.ids, &*self.config.sizes);
            making.draft.ids.iter().for_each(|&id| self.busy.remove(id));
        }
        self.packing.retain(|_, making| !(making.complete && making.written));
        let busy = &self.busy;
        self.moved.retain(|&package| {
            let stays = packages.members(package).iter().any(|&id| busy.contains(id));
            if !stays {
                packages.retire(package);
            }
            stays
        });
    }

    /// Makes no packages from now on; those that are complete are used while they last.
    pub fn stop_packing(&mut self) {
        self.packer = None;
    }

    /// A package was lost, or will not be made: the next plan does without it.
    pub fn lost(&mut self, package: u32) {
        let Some(packages) = &mut self.packages else { return };
        match self.packing.remove(&package) {
            Some(making) if !making.complete => {
                for &id in &making.draft.ids {
                    self.busy.remove(id);
                    // It stays where it lies, and that package does not retire.
                    packages.of(id).map(|package| self.moved.remove(&package));
                }
            }
            _ => {
                Arc::make_mut(packages).retire(package);
                self.moved.remove(&package);
            }
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
        self.packed = self.packed.filter(|packed| *packed < epoch);
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
        self.complete(epoch);
        // An epoch of a length of its own comes out even.
        let pad = self.rolling.is_none() && (self.config.pad || self.strategy.pads());
        let package = self.package();
        let buffer = package.map_or(0, |bytes| sight.low.0.max(bytes.saturating_mul(2)).min(sight.low.1));
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
        let packing = self.choose(epoch, &plan, sight.residents.as_ref(), sight.low.1.saturating_sub(buffer));
        Made { plan: Arc::new(plan), packages: self.packages.clone().zip(package), packing }
    }

    /// The bytes of the largest package, in use or to be made.
    fn package(&self) -> Option<u64> {
        let largest = self.packages.as_ref().map_or(0, |packages| packages.largest());
        self.package.map(|least| largest.max(least))
    }

    fn choose(&mut self, epoch: u64, plan: &Plan, residents: Option<&Residents>, region: u64) -> Packing {
        // A plan that is made again packs nothing more.
        let again = self.packed.is_some_and(|packed| packed >= epoch);
        let chosen = match (&self.packer, &self.packages, plan.keys()) {
            (Some(packer), Some(packages), Some(keys)) if self.table.reported() > 0 && !again => {
                let (sizes, busy) = (&*self.config.sizes, &self.busy);
                packer.choose(&Scene { epoch, packages, keys, sizes, plan, residents, busy, region })
            }
            _ => Chosen::default(),
        };
        self.packed = self.packed.max(Some(epoch));
        let first = self.next;
        self.next += chosen.drafts.len() as u32;
        let packages = (first..).zip(&chosen.drafts).map(|(number, draft)| (number, draft.ids.clone()));
        let packing = Packing { packages: packages.collect(), whole: chosen.whole, single: chosen.single };
        self.moved.extend(chosen.moved);
        for (number, draft) in (first..).zip(chosen.drafts) {
            self.makes(number, Making { epoch, draft, complete: false, written: false });
        }
        packing
    }

    fn makes(&mut self, number: u32, making: Making) {
        if !making.complete {
            making.draft.ids.iter().for_each(|&id| {
                self.busy.insert(id);
            });
        }
        self.packing.insert(number, making);
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

    /// All that plans are made from, so that a planner of the same configuration goes on the same. What lies in
    /// packages that are complete is not part of it: they say that themselves.
    pub fn save(&self) -> Saved {
        let made = self.packages.as_ref().filter(|_| self.packer.is_some());
        Saved {
            table: self.table.save(),
            strategy: self.strategy.save(),
            last: self.last.clone(),
            closed: self.closed,
            packing: self.packing.clone(),
            moved: self.moved.clone(),
            packed: self.packed,
            living: made.map(|packages| packages.living().collect()),
            rest: self.save_rest(),
        }
    }

    fn save_rest(&self) -> Vec<u8> {
        let rest = self.rolling.as_ref().map(Rolling::rest).filter(|rest| !rest.ids.is_empty());
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
        if !saved.packing.values().all(|making| inside(&making.draft.ids)) {
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
        if self.packer.is_none() {
            return Ok(());
        }
        let written: BTreeMap<u32, &[Id]> = found.iter().map(|(number, ids)| (*number, &ids[..])).collect();
        if let Some(living) = &saved.living {
            let mut packages = Packages::new(samples);
            for number in living {
                let making = saved.packing.get(number).map(|making| &making.draft.ids[..]);
                if let Some(ids) = written.get(number).copied().or(making) {
                    packages.place(*number, ids, &*self.config.sizes);
                }
            }
            self.packages = Some(Arc::new(packages));
        }
        for (&number, making) in &saved.packing {
            self.makes(number, Making { written: written.contains_key(&number), ..making.clone() });
            self.next = self.next.max(number.saturating_add(1));
        }
        self.packing.retain(|_, making| !(making.complete && making.written));
        (self.moved, self.packed) = (saved.moved.clone(), saved.packed);
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
    /// The packages that were being made, or that no plan used yet.
    pub packing: BTreeMap<u32, Making>,
    /// Worn packages that retire when what moves out of them is complete.
    pub moved: BTreeSet<u32>,
    /// The newest epoch that was packed in.
    pub packed: Option<u64>,
    /// The packages that plans use, where some are made; `None`: all that are found.
    pub living: Option<BTreeSet<u32>>,
    /// What is left of the strategy's last draw, where epochs have a length of their own; empty: nothing.
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
