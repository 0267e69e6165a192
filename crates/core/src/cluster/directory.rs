//! Placement `directory`, by who read what (iCache, HPCA 2023, III-E): whoever reads a sample first keeps it.
//!
//! A directory says which node owns each sample while one plan is carried out. It is made with its plan, on the node that
//! draws it, from the directory of the plan before and from what nodes keep. Samples are taken by *units*, which are
//! packages where samples lie in packages, and else the samples themselves.
//!
//! 1. A unit that its owner still keeps stays there. Entries are leased: they live as long as their node is in the view and
//!    does not drain. Any other unit is free.
//! 2. Ranks exchange samples ([`localize`]), so that what is kept is served where it is; what is free goes to any slot.
//! 3. In plan order, a free unit belongs to the node whose rank is served it first, as long as there is room in that node's
//!    part. Where there is none it belongs to the node that has most room, and to its reader where nobody has any.
//!
//! A unit that is neither kept nor in the plan has no entry; [`Ownership`] has the hash say who would own it. So every
//! sample has one owner at any time. A lookup is one load.
//!
//! Differs from the paper: there a key-value store is asked at each read, and each node puts into it what it has read. Here
//! all that a plan reads is looked up, and put, when the plan is laid; the directory travels with the plan, so
//! no read waits for a lookup, every node knows the same, and what is counted follows from the plan.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::view::digest;
use super::{Node, Ownership, View, localize};
use crate::packages::Packages;
use crate::policy::Sizes;
use crate::sampling::{Plan, Residents};
use crate::saved::{Reader, Writer};
use crate::{Error, Id, Result};

/// The most units that owners are kept of.
pub const MOST_UNITS: usize = 1_000_000;

/// Who owns each sample of a dataset, as far as that was said.
#[derive(Clone, PartialEq, Eq)]
pub struct Directory {
    /// One more than the number of a sample's owner in the view; 0 where it has none.
    owners: Vec<u16>,
    digest: u64,
}

/// What a directory is made from.
pub struct Found<'a> {
    /// The nodes of the plan before, and who owned what by it.
    pub before: Option<(&'a View, Ownership)>,
    /// What all nodes keep; `None` while that plan is still being decided, when every entry of it stands.
    pub kept: Option<&'a Residents>,
    /// The size of every sample.
    pub sizes: &'a dyn Sizes,
    /// The packages that samples lie in, if they do.
    pub packages: Option<&'a Packages>,
}

impl Directory {
    /// Lays a plan over the nodes of a view by who reads what. `ranks` has the number of the node that each rank is on. With
    /// `locality` ranks exchange samples so that most are their own node's.
    pub fn lay(
        plan: Plan,
        view: &View,
        ranks: &[Option<usize>],
        locality: bool,
        found: &Found<'_>,
    ) -> Result<(Plan, Self)> {
        check_units(found.units())?;
        let racks = view.racks();
        // A rank that is on no node of the view owns nothing.
        let nodes: Vec<usize> = ranks.iter().map(|rank| rank.unwrap_or(view.len())).collect();
        let exchanged = |plan: Plan, owners: &[u16]| match locality {
            true => localize(plan, &nodes, &racks, |id| entry(owners, id)),
            false => plan,
        };
        let mut laying = Laying::new(view, found);
        let plan = exchanged(plan, &laying.owners);
        for (slot, &id) in plan.ids().iter().enumerate() {
            laying.read(id, ranks.get(slot % plan.world() as usize).copied().flatten());
        }
        // What is served more than once, and what its first reader has no room for.
        let plan = exchanged(plan, &laying.owners);
        Ok((plan, Self::of(laying.owners)))
    }

    fn of(owners: Vec<u16>) -> Self {
        let bytes: Vec<u8> = owners.iter().flat_map(|owner| owner.to_le_bytes()).collect();
        Self { digest: digest(0, &bytes), owners }
    }

    /// The same with the numbers that nodes have in another view. Entries of nodes that own nothing there are gone.
    #[must_use]
    pub fn renumbered(&self, from: &View, to: &View) -> Self {
        let numbers = numbers(from, to);
        let there = |owner: usize| numbers.get(owner).copied().flatten();
        Self::of((0..self.owners.len() as Id).map(|id| named(self.owner(id).and_then(there))).collect())
    }

    /// The number of the node that owns a sample, if that was said.
    pub fn owner(&self, id: Id) -> Option<usize> {
        entry(&self.owners, id)
    }

    /// How many samples have an owner.
    pub fn entries(&self) -> usize {
        self.owners.iter().filter(|owner| **owner > 0).count()
    }

    /// Equal where nodes of the same numbers own the same.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Neighbours of one owner take as much as one: the owner, and whether others follow and how many.
    pub(super) fn save(&self, writer: &mut Writer) {
        writer.number(self.owners.len() as u64);
        for same in self.owners.chunk_by(|one, other| one == other) {
            writer.number(u64::from(same[0]) << 1 | u64::from(same.len() > 1));
            if same.len() > 1 {
                writer.number(same.len() as u64);
            }
        }
    }

    /// What [`Self::save`] wrote, of `nodes` nodes; nothing if it cannot be that.
    pub(super) fn restore(reader: &mut Reader<'_>, nodes: usize) -> Option<Self> {
        let samples = usize::try_from(Id::try_from(reader.number()?).ok()?).ok()?;
        let mut owners = Vec::new();
        while owners.len() < samples {
            let number = reader.number()?;
            let owner = u16::try_from(number >> 1).ok().filter(|&owner| usize::from(owner) <= nodes)?;
            let length = if number & 1 == 1 { usize::try_from(reader.number()?).ok()? } else { 1 };
            let left = samples - owners.len();
            owners.extend(std::iter::repeat_n(
                owner,
                Some(length).filter(|&length| 0 < length && length <= left)?,
            ));
        }
        Some(Self::of(owners))
    }
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Directory").field("digest", &self.digest).finish_non_exhaustive()
    }
}

/// An error where there are more units than owners are kept of.
pub fn check_units(units: usize) -> Result<()> {
    if units <= MOST_UNITS {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "`placement` is `directory`, which keeps the owner of each sample, or run of samples: of {MOST_UNITS} at most, and \
         there are {units}. Give all nodes `--placement hash`"
    )))
}

/// What the owner of a sample is called.
fn entry(owners: &[u16], id: Id) -> Option<usize> {
    owners.get(id as usize)?.checked_sub(1).map(usize::from)
}

fn named(owner: Option<usize>) -> u16 {
    owner.and_then(|owner| u16::try_from(owner + 1).ok()).unwrap_or_default()
}

/// Whether a node may own anything.
fn owns(number: usize, node: &Node) -> bool {
    !node.draining && node.capacity > 0 && number < usize::from(u16::MAX)
}

/// The number that each node of a view has in another, if it may own something there.
fn numbers(from: &View, to: &View) -> Vec<Option<usize>> {
    let there = |node: &Node| to.index_of(&node.name).filter(|&number| owns(number, &to.nodes()[number]));
    from.nodes().iter().map(there).collect()
}

impl Found<'_> {
    /// How many units there are.
    fn units(&self) -> usize {
        let Some(packages) = self.packages else { return self.sizes.len() };
        let within = |one: u32| packages.members(one).len();
        let (count, within) =
            packages.living().fold((0, 0), |(count, sum), one| (count + 1, sum + within(one)));
        count + self.sizes.len().saturating_sub(within)
    }

    /// The samples of the unit that a sample is in.
    fn unit<'b>(&'b self, id: &'b Id) -> &'b [Id] {
        let members = self.packages.and_then(|packages| Some(packages.members(packages.of(*id)?)));
        members.filter(|members| !members.is_empty()).unwrap_or(std::slice::from_ref(id))
    }

    /// The number, in the view of the plan before, of the node that a unit stays on.
    fn keeper(&self, unit: &[Id], ownership: &Ownership) -> Option<usize> {
        match self.kept {
            Some(kept) => unit.iter().find(|id| kept.contains(**id)).and_then(|&id| ownership.owner(id)),
            None => unit.first().and_then(|&id| ownership.entry(id)),
        }
    }

    /// The bytes of a unit, or of what is kept of it.
    fn bytes(&self, unit: &[Id], kept: Option<&Residents>) -> u64 {
        let counts = |id: &&Id| kept.is_none_or(|kept| kept.contains(**id));
        unit.iter().filter(counts).map(|&id| self.sizes.size(id)).sum()
    }
}

/// A directory on its way.
struct Laying<'a> {
    found: &'a Found<'a>,
    owners: Vec<u16>,
    /// The bytes that each node has left of its part; `None` for one that owns nothing.
    room: Vec<Option<u64>>,
    /// Nodes, that with most room first. A node whose room has shrunk since stands there with what it had.
    most: BinaryHeap<(u64, Reverse<usize>)>,
}

impl<'a> Laying<'a> {
    /// With what stays where it is.
    fn new(view: &View, found: &'a Found<'a>) -> Self {
        let part = |(number, node): (usize, &Node)| owns(number, node).then_some(node.capacity);
        let room = view.nodes().iter().enumerate().map(part).collect();
        let owners = vec![0; found.sizes.len()];
        let mut laying = Self { found, owners, room, most: BinaryHeap::new() };
        if let Some((from, ownership)) = &found.before {
            let numbers = numbers(from, view);
            for id in 0..found.sizes.len() as Id {
                let unit = found.unit(&id);
                // Once for each unit.
                if unit.first() != Some(&id) {
                    continue;
                }
                let keeper =
                    found.keeper(unit, ownership).and_then(|keeper| numbers.get(keeper).copied().flatten());
                if let Some(keeper) = keeper {
                    laying.give(unit, keeper, found.bytes(unit, found.kept));
                }
            }
        }
        laying.most =
            (0..).zip(&laying.room).filter_map(|(node, room)| Some(((*room)?, Reverse(node)))).collect();
        laying
    }

    /// A rank of the node `reader` is served a sample.
    fn read(&mut self, id: Id, reader: Option<usize>) {
        if self.owners[id as usize] > 0 {
            return;
        }
        let found = self.found;
        let unit = found.unit(&id);
        let bytes = found.bytes(unit, None);
        let room = |reader: &usize| self.room[*reader];
        let own = reader.as_ref().and_then(room);
        let owner = match own {
            Some(room) if room >= bytes => reader,
            Some(_) => self.with_most(bytes).or(reader),
            None => self.with_most(bytes),
        };
        if let Some(owner) = owner {
            self.give(unit, owner, bytes);
        }
    }

    fn give(&mut self, unit: &[Id], owner: usize, bytes: u64) {
        unit.iter().for_each(|&id| self.owners[id as usize] = named(Some(owner)));
        if let Some(room) = &mut self.room[owner] {
            *room = room.saturating_sub(bytes);
        }
    }

    /// The node with most room, if it has so much; of equals the first.
    fn with_most(&mut self, bytes: u64) -> Option<usize> {
        loop {
            let mut top = self.most.peek_mut()?;
            let (room, Reverse(node)) = *top;
            let now = self.room[node].unwrap_or_default();
            if now == room {
                return (room >= bytes).then_some(node);
            }
            top.0 = now;
        }
    }
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
