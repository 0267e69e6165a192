//! The window of `carousel`: what rides, what boards next, and what is left of the round.

use std::collections::VecDeque;

use super::super::Setup;
use crate::bits::Bits;
use crate::importance::Table;
use crate::policy::Sizes;
use crate::saved::{Reader, Writer};
use crate::{Id, Rng};

/// Parts of the permutation that are shuffled in pairs when it is renewed.
const TENTHS: usize = 10;
/// Over `fresh`: the most rounds that a sample rides with `ride=hard`.
const LONGEST: f64 = 3.0;

/// The samples that ride, and those that board next.
pub(super) struct Window {
    capacity: u64,
    used: u64,
    /// Riders with the round they boarded in, in the order they came.
    riders: VecDeque<(Id, i64)>,
    riding: Bits,
    /// What boards next, from `cursor` on; renewed after each pass.
    permutation: Vec<Id>,
    cursor: usize,
    passes: u64,
    rounds: i64,
    /// What is left of this round, the next one last; a sample that is not riding yet boards with its slot.
    ahead: Vec<Id>,
    /// What leaves in this round, the next one last.
    leavers: Vec<Id>,
    /// The part of a newcomer that earlier rounds owe.
    owed: f64,
}

impl Window {
    /// An empty one, whose newcomers come in this order.
    pub(super) fn new(setup: &Setup, permutation: Vec<Id>) -> Self {
        Self {
            capacity: setup.capacity,
            used: 0,
            riders: VecDeque::new(),
            riding: Bits::new(setup.samples),
            permutation,
            cursor: 0,
            passes: 0,
            rounds: 0,
            ahead: Vec::new(),
            leavers: Vec::new(),
            owed: 0.0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.riders.is_empty()
    }

    /// How many ride and are not about to leave.
    #[cfg(test)]
    pub(super) fn riders(&self) -> usize {
        self.riders.len()
    }

    /// Whether a round is under way.
    pub(super) fn is_turning(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Ends the round where it is: what has not boarded does not, and what has not left stays.
    pub(super) fn halt(&mut self) {
        self.ahead.clear();
        // They ride on in front: none that stayed is due to leave before them.
        let boarded = self.riders.front().map_or(self.rounds, |(_, boarded)| *boarded);
        self.leavers.drain(..).for_each(|id| self.riders.push_front((id, boarded)));
    }

    /// Takes `id` in as a static cache does: if there is room.
    pub(super) fn board_if_room(&mut self, id: Id, sizes: &dyn Sizes) {
        let size = sizes.size(id);
        if !self.riding.contains(id) && size <= self.capacity - self.used {
            self.board(id, size);
        }
    }

    fn board(&mut self, id: Id, size: u64) {
        self.riding.insert(id);
        self.riders.push_back((id, self.rounds));
        self.used += size;
    }

    /// Begins a round: chooses what boards and what leaves, and the order of all that ride.
    pub(super) fn turn(&mut self, setup: &Setup, fresh: f64, importance: Option<&Table>) {
        if self.rounds == 0 {
            self.spread(fresh);
        }
        self.rounds += 1;
        let sizes = &*setup.sizes;
        let rode = self.riders.len() as f64;
        self.owed += fresh * rode;
        let newcomers = self.newcomers(self.owed as usize, setup);
        self.owed -= newcomers.len() as f64;
        // What could not board now is not owed for ever.
        self.owed = self.owed.min(self.riders.len() as f64);
        let coming: u64 = newcomers.iter().map(|&id| sizes.size(id)).sum();
        let excess = (self.used + coming).saturating_sub(self.capacity);
        self.leavers = match importance {
            Some(table) => self.easiest(excess, fresh, table, sizes),
            None => self.oldest(excess, sizes),
        };
        let mut leaving = Bits::new(setup.samples);
        self.leavers.iter().for_each(|&id| {
            leaving.insert(id);
        });
        self.riders.retain(|(id, _)| !leaving.contains(*id));
        self.ahead = self.riders.iter().map(|&(id, _)| id).chain(newcomers).collect();
        // A round that is longer or shorter than the window owes as much more or less.
        self.owed += fresh * (self.ahead.len() as f64 - rode);
        Rng::new(setup.seed, self.rounds as u64, "carousel").shuffle(&mut self.ahead);
        self.leavers.reverse();
    }

    /// Serves the next of the round. Before it boards, `leave` is told what leaves for it.
    pub(super) fn serve(&mut self, sizes: &dyn Sizes, mut leave: impl FnMut(Id)) -> Option<Id> {
        let id = self.ahead.pop()?;
        if !self.riding.contains(id) {
            let size = sizes.size(id);
            while size > self.capacity - self.used
                && let Some(leaver) = self.leavers.pop()
            {
                self.riding.remove(leaver);
                self.used -= sizes.size(leaver);
                leave(leaver);
            }
            // One that was carried over from another number of ranks may have taken its room.
            self.board_if_room(id, sizes);
        }
        if self.ahead.is_empty() {
            // With `ride=hard` some leave though their room is not needed.
            while let Some(leaver) = self.leavers.pop() {
                self.riding.remove(leaver);
                self.used -= sizes.size(leaver);
                leave(leaver);
            }
        }
        Some(id)
    }

    /// Those of the first pass came all at once: as if they had boarded round after round before.
    fn spread(&mut self, fresh: f64) {
        let count = self.riders.len() as f64;
        for (place, (_, boarded)) in self.riders.iter_mut().enumerate() {
            *boarded = -((1.0 - place as f64 / count) / fresh) as i64;
        }
    }

    /// The next `count` ids that do not ride, or as many as there are and fit.
    fn newcomers(&mut self, count: usize, setup: &Setup) -> Vec<Id> {
        let mut newcomers = Vec::with_capacity(count);
        let mut chosen = std::collections::BTreeSet::new();
        let mut looked = 0;
        let mut bytes = 0u64;
        while newcomers.len() < count && looked < self.permutation.len() {
            if self.cursor == self.permutation.len() {
                self.renew(setup.seed);
            }
            let id = self.permutation[self.cursor];
            let size = setup.sizes.size(id);
            let fits = size <= self.capacity && bytes + size <= self.capacity;
            if !self.riding.contains(id) && fits && chosen.insert(id) {
                newcomers.push(id);
                bytes += size;
            }
            self.cursor += 1;
            looked += 1;
        }
        newcomers
    }

    /// Another pass: neighbouring tenths are shuffled together, in pairs that alternate, so that no sample's
    /// visits come much closer or farther apart than others'.
    fn renew(&mut self, seed: u64) {
        self.passes += 1;
        self.cursor = 0;
        let samples = self.permutation.len();
        let edge = |tenth: usize| samples * tenth / TENTHS;
        let shift = (self.passes % 2) as usize;
        let mut rng = Rng::new(seed, self.passes, "carousel order");
        // Turned by a tenth, the pairs (1, 2) to (9, 0) lie beside each other as (0, 1) to (8, 9) do.
        self.permutation.rotate_left(edge(shift));
        let turned = |tenth: usize| if tenth == TENTHS { samples } else { edge(tenth + shift) - edge(shift) };
        for pair in (0..TENTHS).step_by(2) {
            let end = if pair + 2 == TENTHS { samples } else { turned(pair + 2) };
            rng.shuffle(&mut self.permutation[turned(pair)..end]);
        }
        self.permutation.rotate_right(edge(shift));
    }

    /// The first that came, until `excess` bytes are free.
    fn oldest(&self, excess: u64, sizes: &dyn Sizes) -> Vec<Id> {
        let (mut freed, mut leavers) = (0, Vec::new());
        for &(id, _) in &self.riders {
            if freed >= excess {
                break;
            }
            freed += sizes.size(id);
            leavers.push(id);
        }
        leavers
    }

    /// Those that have ridden long enough, then the lowest scores of the older half, until `excess` bytes are
    /// free; of more than half, oldest first, where half does not free as much.
    fn easiest(&self, excess: u64, fresh: f64, table: &Table, sizes: &dyn Sizes) -> Vec<Id> {
        let longest = (LONGEST / fresh) as i64;
        let due = |boarded: i64| self.rounds - boarded >= longest;
        let mut leavers: Vec<Id> =
            self.riders.iter().filter(|(_, boarded)| due(*boarded)).map(|(id, _)| *id).collect();
        let mut freed: u64 = leavers.iter().map(|&id| sizes.size(id)).sum();
        let half = self.riders.len().div_ceil(2);
        let score = |id: Id| table.value(id).map_or(u32::MAX, |value| (value + 0.0).to_bits());
        let mut older: Vec<(bool, u32, Id)> = Vec::new();
        let mut could = freed;
        for (place, &(id, boarded)) in self.riders.iter().enumerate() {
            if place >= half && could >= excess {
                break;
            }
            if !due(boarded) {
                could += sizes.size(id);
                older.push((place >= half, score(id), id));
            }
        }
        older.sort_unstable();
        for (_, _, id) in older {
            if freed >= excess {
                break;
            }
            freed += sizes.size(id);
            leavers.push(id);
        }
        leavers
    }

    /// Writes what [`Self::restore`] reads.
    pub(super) fn save(&self, out: &mut Writer) {
        out.fixed(self.owed.to_bits(), 8);
        [self.cursor as u64, self.passes, self.rounds as u64].iter().for_each(|&count| out.number(count));
        out.ids(self.riders.iter().map(|&(id, _)| id));
        self.riders.iter().for_each(|&(_, boarded)| out.number((self.rounds - boarded) as u64));
        for ids in [&self.ahead, &self.leavers, &self.permutation] {
            out.ids(ids.iter().copied());
        }
    }

    /// What [`Self::save`] wrote for the same setup, or nothing if it cannot be that.
    pub(super) fn restore(setup: &Setup, saved: &mut Reader<'_>) -> Option<Self> {
        let owed = f64::from_bits(saved.fixed(8)?);
        let [cursor, passes, rounds] = [saved.number()?, saved.number()?, saved.number()?];
        let riders = saved.ids()?;
        let mut rode = Vec::with_capacity(riders.len());
        for _ in &riders {
            rode.push(i64::from(u32::try_from(saved.number()?).ok()?));
        }
        let [ahead, leavers, permutation] = [saved.ids()?, saved.ids()?, saved.ids()?];
        let mut all = Bits::new(setup.samples);
        let whole = permutation.len() == setup.samples && permutation.iter().all(|&id| all.insert(id));
        // No run is so long, and sums of what is smaller cannot overflow.
        let counts = passes.max(rounds) <= u64::from(u32::MAX) && cursor <= setup.samples as u64;
        let most = setup.samples as f64;
        if !whole || !counts || !(-most..=most).contains(&owed) {
            return None;
        }
        let mut window = Self::new(setup, permutation);
        (window.owed, window.cursor, window.passes) = (owed, cursor as usize, passes);
        (window.rounds, window.ahead) = (rounds as i64, ahead);
        for &id in riders.iter().chain(&leavers) {
            window.riding.insert(id).then_some(())?;
            window.used = window.used.checked_add(setup.sizes.size(id))?;
        }
        window.leavers = leavers;
        window.riders = riders.into_iter().zip(rode.into_iter().map(|rode| window.rounds - rode)).collect();
        (window.used <= window.capacity).then_some(window)
    }
}
