//! `carousel`, example echoing (Choi et al. 2019) over a window as large as the cache, with exact plans.
//!
//! The window holds residents up to the capacity. Training goes in **rounds**: each serves every resident
//! once, in random order. Between rounds new samples are admitted along a permutation of all ids, and as many
//! bytes are evicted, first in, first out. `fresh` is the share of servings that are newly read; if it is
//! small enough, the trainer never waits for storage. `fresh=auto` is the largest share that the rates of the
//! last epoch allow, and at least `least`. A round may cross the edge of an epoch; an epoch is as many
//! servings as there are samples, and the first is a full pass. Use it with the policy `carousel`, which
//! follows the plan.
//!
//! When `fresh` is 1 - c or more, where c is the share of the dataset that the cache holds, epochs are full
//! passes over a static cache: that reads no more and trains exactly.
//!
//! `ride=hard` (experimental): among the older half of the window the lowest losses are evicted first, and no
//! sample stays for more than 3 / fresh rounds. Where a round evicts more than half, the next older samples
//! follow.

mod window;

use self::window::Window;
use super::uniform::{carried_front, shuffled};
use super::{Draw, Drawn, Entry, Event, FULL_LAST, Setup, Strategy, foreign};
use crate::Result;
use crate::saved::{Reader, Writer};
use crate::settings::{Domain, Parameter};

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "fresh",
        default: "auto",
        domain: Domain::NumberOrAuto(0.001, 1.0),
        summary: "share of servings that are newly read, or what the last epoch's rates allow",
    },
    Parameter {
        name: "least",
        default: "0.25",
        domain: Domain::Number(0.001, 1.0),
        summary: "the least `fresh` that `auto` chooses",
    },
    Parameter {
        name: "ride",
        default: "fifo",
        domain: Domain::Word(&["fifo", "hard"]),
        summary: "which leave: the first that came, or the lowest losses of the older half",
    },
    FULL_LAST,
];

pub(super) const ENTRY: Entry = Entry {
    name: "carousel",
    summary: "serves a window of residents in rounds, and replaces a share of it in each: training need not wait",
    policy: "carousel",
    parameters: PARAMETERS,
    build: |setup| Box::new(Carousel::new(setup)),
};

struct Carousel {
    setup: Setup,
    /// The share of the dataset's bytes that the cache holds.
    share: f64,
    window: Option<Window>,
    /// Of the last plan: `fresh` as it was chosen, and whether it was a full pass.
    last: Option<(f64, bool)>,
}

impl Carousel {
    fn new(mut setup: Setup) -> Self {
        setup.values = std::mem::take(&mut setup.values).or_defaults(PARAMETERS);
        let whole = (0..setup.end()).fold(0u64, |sum, id| sum.saturating_add(setup.sizes.size(id)));
        let share = if whole == 0 { 1.0 } else { setup.capacity as f64 / whole as f64 };
        Self { setup, share, window: None, last: None }
    }

    /// The share of newly read servings in the epoch to be drawn.
    fn fresh(&self, draw: &Draw<'_>) -> f64 {
        let measured = || {
            let rates = draw.rates.filter(|rates| rates.storage >= 0.0 && rates.training > 0.0);
            let allowed = rates.map_or(0.0, |rates| (rates.storage / rates.training).min(1.0));
            allowed.max(self.setup.values.share("least"))
        };
        self.setup.values.number("fresh").unwrap_or_else(measured)
    }

    fn is_hard(&self) -> bool {
        self.setup.values.text("ride") == "hard"
    }

    /// A full pass over a cache from which nothing leaves.
    fn pass(&mut self, draw: &Draw<'_>) -> Drawn {
        let setup = &self.setup;
        let ids = shuffled(setup.end(), setup.seed, draw.number(), draw.carried.unwrap_or_default());
        let window = self.window.get_or_insert_with(|| Window::new(setup, ids.clone()));
        window.halt();
        for &id in &ids {
            window.board_if_room(id, &*setup.sizes);
        }
        ids.into()
    }
}

impl Strategy for Carousel {
    fn draw(&mut self, draw: &Draw<'_>) -> Drawn {
        let fresh = self.fresh(draw);
        let still = fresh >= 1.0 - self.share || self.setup.is_full_last(draw.epoch);
        let empty = self.window.as_ref().is_none_or(Window::is_empty);
        self.last = Some((fresh, still || empty));
        if still || empty {
            return self.pass(draw);
        }
        let hard = self.is_hard();
        let Some(window) = &mut self.window else { return self.pass(draw) };
        let mut drawn = Drawn::from(carried_front(self.setup.end(), draw.carried.unwrap_or_default()));
        for &id in &drawn.ids {
            window.board_if_room(id, &*self.setup.sizes);
        }
        let world = draw.world.max(1) as usize;
        let slots = self.setup.samples - self.setup.samples % world;
        let importance = draw.importance.filter(|_| hard);
        while drawn.ids.len() < slots {
            if !window.is_turning() {
                window.turn(&self.setup, fresh, importance);
            }
            let slot = drawn.ids.len() as u32;
            let Some(id) = window.serve(&*self.setup.sizes, |id| drawn.events.push((slot, Event::Leave(id))))
            else {
                break;
            };
            drawn.ids.push(id);
        }
        drawn
    }

    fn repeats(&self) -> bool {
        true
    }

    fn needs_losses(&self) -> bool {
        self.is_hard()
    }

    fn adapts(&self) -> bool {
        self.setup.values.number("fresh").is_none()
    }

    /// `fresh`: the share that was chosen. `still`: 1 if the plan is a full pass over a cache that nothing leaves,
    /// as the first one is and every one for which storage is fast enough.
    fn notes(&self) -> Vec<(&'static str, f64)> {
        let notes = |(fresh, still)| vec![("fresh", fresh), ("still", f64::from(u8::from(still)))];
        self.last.map(notes).unwrap_or_default()
    }

    fn save(&self) -> Vec<u8> {
        let mut out = Writer::new(self.setup.samples);
        if let Some(window) = &self.window {
            window.save(&mut out);
        }
        out.seal(ENTRY.name)
    }

    fn restore(&mut self, saved: &[u8]) -> Result<()> {
        let mut saved = Reader::open(saved, ENTRY.name, self.setup.samples).ok_or_else(foreign)?;
        self.window = None;
        if !saved.is_empty() {
            self.window = Some(Window::restore(&self.setup, &mut saved).ok_or_else(foreign)?);
        }
        saved.end().ok_or_else(foreign)
    }
}

#[cfg(test)]
#[path = "carousel_tests.rs"]
mod tests;
