//! Plans by runs (`order=runs`): every sample once, in an order that storage can read run after run.
//!
//! One request a sample is what every reader of shards beats. Where small samples lie in *runs*, neighbours that one
//! request reads, a plan goes like this. Runs come in an order drawn anew each epoch and pass through a
//! [buffer](buffer::MixingBuffer) of part of the cache, from which slots are drawn at random. The rest of the cache
//! keeps the runs that the first epoch reads first: they are read once, and from the second epoch on their samples are
//! spread evenly over the epoch, as are those that lie in no run. So an epoch makes one request for each run that is not
//! kept, and reads no byte twice.
//!
//! Everything follows from seed, epoch, catalog and the cache that was asked for, and nothing from what is resident: the
//! plan names every run, and the policy [`runs`](crate::policy) says whether it must still be read.
//!
//! How long runs are, and whether there are any that mix well enough, is settled before the first plan
//! ([`RunChoice`]). How well a plan mixes is counted in it ([`mixing`]).

mod buffer;
mod choice;
mod mixing;

pub use self::choice::RunChoice;

use std::sync::Arc;

use self::buffer::MixingBuffer;
use self::mixing::Mixing;
use super::uniform::carried_front;
use super::{Draw, Event, Setup};
use crate::packages::Packages;
use crate::policy::Sizes;
use crate::settings::{Domain, Parameter, Values};
use crate::{Id, Rng};

/// The name of [`ORDER`].
const ORDER_NAME: &str = "order";

pub(super) const ORDER: Parameter = Parameter {
    name: ORDER_NAME,
    default: "exact",
    domain: Domain::Word(&["exact", "runs", "auto"]),
    summary: "how slots are drawn: each sample by itself, by runs of neighbours in shards, or by runs where they mix well",
};

pub(super) const MIX_SHARE: Parameter = Parameter {
    name: "mix_share",
    default: "0.5",
    domain: Domain::Number(0.01, 1.0),
    summary: "share of the cache in which runs are mixed; the rest keeps whole runs",
};

/// Whether these settings of a strategy ask for plans by runs.
pub fn is_asked<'a, 'b>(settings: impl IntoIterator<Item = (&'a str, &'b str)>) -> bool {
    settings.into_iter().any(|(name, text)| name == ORDER_NAME && text.trim() != ORDER.default)
}

/// How a job's plans by runs are drawn.
pub(super) struct ByRuns {
    sizes: Arc<dyn Sizes>,
    capacity: u64,
    mix_share: f64,
    seed: u64,
    /// How well the last plan mixes.
    mixing: Option<Mixing>,
}

/// An epoch of all samples, and when which run is read.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Order {
    pub(super) ids: Vec<Id>,
    pub(super) events: Vec<(u32, Event)>,
}

impl ByRuns {
    /// As the settings of a strategy have it; `None` where its order is `exact`.
    pub(super) fn of(setup: &Setup) -> Option<Self> {
        is_asked(setup.values.iter())
            .then(|| Self::new(&setup.sizes, &setup.values, setup.capacity, setup.seed))
    }

    fn new(sizes: &Arc<dyn Sizes>, values: &Values, capacity: u64, seed: u64) -> Self {
        Self {
            sizes: Arc::clone(sizes),
            capacity,
            mix_share: values.share(MIX_SHARE.name),
            seed,
            mixing: None,
        }
    }

    /// The bytes that runs may be mixed in.
    fn mix_bytes(&self) -> u64 {
        (self.capacity as f64 * self.mix_share) as u64
    }

    /// The runs in the order of a draw.
    fn shuffled(&self, packages: &Packages, number: u64) -> Vec<u32> {
        let mut order: Vec<u32> = packages.living().collect();
        Rng::new(self.seed, number, "runs").shuffle(&mut order);
        order
    }

    /// How many of the runs in the order of the first epoch stay, and their bytes: as many as fit beside the buffer, or
    /// all where the cache holds every sample.
    fn staying(&self, packages: &Packages, first: &[u32]) -> (usize, u64) {
        let total: u64 = (0..self.sizes.len() as Id).map(|id| self.sizes.size(id)).sum();
        let room = if total <= self.capacity { u64::MAX } else { self.capacity - self.mix_bytes() };
        let mut bytes = 0u64;
        let stays = |&&run: &&u32| {
            let with = bytes.saturating_add(packages.bytes(run));
            let fits = with <= room;
            bytes = if fits { with } else { bytes };
            fits
        };
        (first.iter().take_while(stays).count(), bytes)
    }

    /// An epoch, what was carried over first; `None` where there are no runs.
    pub(super) fn draw(&mut self, draw: &Draw<'_>) -> Option<Order> {
        let (packages, _) = draw.packages?;
        let carried = carried_front(self.sizes.len() as Id, draw.carried.unwrap_or_default());
        let order = self.draw_from(packages, draw.number(), draw.world, None).led_by(&carried);
        self.mixing = Some(Mixing::of(&order.ids, packages, &*self.sizes));
        Some(order)
    }

    /// What a user wants to know of the last plan, by name.
    pub(super) fn notes(&self) -> Vec<(&'static str, f64)> {
        let runs = self.mixing.map(|mixing| ("mix_runs", mixing.runs));
        let labels = self.mixing.and_then(|mixing| mixing.labels).map(|labels| ("mix_labels", labels));
        runs.into_iter().chain(labels).collect()
    }

    /// The draw of that number, for `world` ranks: number 0 is the first of a run. `only` so many slots of it from a buffer that
    /// is full at once, to see how well it mixes.
    fn draw_from(&self, packages: &Packages, number: u64, world: u32, only: Option<usize>) -> Order {
        let first = self.shuffled(packages, 0);
        let (count, bytes) = self.staying(packages, &first);
        let mut stays = vec![false; packages.next() as usize];
        first[..count].iter().for_each(|&run| stays[run as usize] = true);
        // In the first epoch those that stay come first and are mixed as the others are.
        let mut passing = if number == 0 { first } else { self.shuffled(packages, number) };
        passing.retain(|&run| number == 0 || !stays[run as usize]);
        let apart = |id: &Id| packages.of(*id).is_none_or(|run| number != 0 && stays[run as usize]);
        let mut spread: Vec<Id> = (0..self.sizes.len() as Id).filter(apart).collect();
        let mut rng = Rng::new(self.seed, number, "by runs");
        rng.shuffle(&mut spread);

        let limit = self.mix_bytes().max(self.capacity.saturating_sub(bytes));
        // What the plan before left out is served first, on its own, and lies in the buffer without being drawn.
        let largest = packages.living().map(|run| packages.bytes(run)).max().unwrap_or(0);
        let limit = limit.saturating_sub(u64::from(world) * self.largest_sample(packages)).max(largest);
        let mut buffer = MixingBuffer::new(packages, &*self.sizes, passing, limit, only.is_some());
        let slots = only.unwrap_or(usize::MAX).min(self.sizes.len());
        let mut order = Order { ids: Vec::with_capacity(slots), events: Vec::new() };
        let mut met = vec![false; stays.len()];
        while order.ids.len() < slots {
            let slot = order.ids.len() as u32;
            buffer.fill(|run| {
                let event = if stays[run as usize] { Event::Keep(run) } else { Event::Load(run) };
                order.events.push((slot, event));
            });
            let left = spread.len() + buffer.left();
            let from_spread = (rng.below(left as u64) as usize) < spread.len();
            let next = if from_spread { spread.pop() } else { buffer.draw(&mut rng) };
            let Some(id) = next else { break };
            if from_spread
                && let Some(run) = packages.of(id)
                && !std::mem::replace(&mut met[run as usize], true)
            {
                order.events.push((slot, Event::Keep(run)));
            }
            order.ids.push(id);
        }
        order
    }

    fn largest_sample(&self, packages: &Packages) -> u64 {
        let members = packages.living().flat_map(|run| packages.members(run));
        members.map(|&id| self.sizes.size(id)).max().unwrap_or(0)
    }
}

impl Order {
    /// The same with these ids in its first places, and not in their own.
    pub(super) fn led_by(self, front: &[Id]) -> Self {
        if front.is_empty() {
            return self;
        }
        let mut moved = front.to_vec();
        moved.sort_unstable();
        let (mut ids, mut slots) = (front.to_vec(), Vec::with_capacity(self.ids.len()));
        for id in self.ids {
            slots.push(ids.len() as u32);
            if moved.binary_search(&id).is_err() {
                ids.push(id);
            }
        }
        let events =
            self.events.into_iter().filter_map(|(slot, event)| Some((*slots.get(slot as usize)?, event)));
        Self { events: events.collect(), ids }
    }
}

#[cfg(test)]
mod tests;
