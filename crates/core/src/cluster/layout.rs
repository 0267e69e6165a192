//! How one plan lies over nodes: who owns what, and on which node each rank is.
//!
//! A layout is made with its plan, on the node that draws it, and travels with it. So a plan is carried out to its end as it
//! was laid, whatever becomes of the nodes meanwhile. All nodes have the same one but for their own number in it.
//!
//! Where packages are made, the layout brings along which there are, since samples are owned by the package that they lie in,
//! and which are made while the plan is carried out.

use std::sync::Arc;

use super::view::digest;
use super::{Directory, Found, Node, Ownership, Placement, PlacementKind, View, localize};
use crate::packages::{Packages, Packing};
use crate::policy::Sizes;
use crate::sampling::{Plan, Residents};
use crate::saved::{Reader, Writer};
use crate::{Id, Result};

/// The nodes that carry out one plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    view: Arc<View>,
    placement: Arc<Placement>,
    /// Who owns what by who read it, where that is the placement.
    directory: Option<Arc<Directory>>,
    /// A hash of the dataset's name.
    dataset: u64,
    /// Whether the samples of a run have one owner.
    by_runs: bool,
    /// The packages that the plan was made from, where some are made, and the bytes of one.
    made: Option<(Arc<Packages>, u64)>,
    /// What all nodes pack while they carry the plan out.
    packing: Packing,
    /// This node's number in the view.
    own: Option<usize>,
    /// The number of the node that each rank is on; `None`: on none of the view.
    ranks: Vec<Option<usize>>,
    /// The plan's digest.
    plan: u64,
    /// Slots that were trained when the plan was cut anew.
    trained: u64,
}

impl Layout {
    /// Lays a plan over the nodes of a view, for the node `own`. `ranks` names the node of each rank. With `locality` ranks
    /// exchange samples so that most are their own node's. Samples that lie in `packages`, made or given, are owned by those.
    pub fn lay<'a>(
        plan: Plan,
        (view, placement): (Arc<View>, Arc<Placement>),
        own: &str,
        dataset: &str,
        ranks: impl IntoIterator<Item = Option<&'a str>>,
        packages: Option<&(Arc<Packages>, u64)>,
        locality: bool,
    ) -> (Plan, Self) {
        let ranks = numbers(&view, ranks, plan.world());
        let mut layout = Self {
            own: view.index_of(own),
            dataset: digest(0, dataset.as_bytes()),
            by_runs: packages.is_some_and(|(packages, _)| !packages.wear()),
            made: packages.filter(|(packages, _)| packages.wear()).cloned(),
            packing: Packing::default(),
            plan: 0,
            trained: 0,
            ranks,
            view,
            placement,
            directory: None,
        };
        let packages = packages.map(|(packages, _)| packages);
        let plan = if locality { layout.localized(plan, packages) } else { plan };
        layout.plan = plan.digest();
        (plan, layout)
    }

    /// The same plan, which lies as it was drawn, laid by who reads what: after the layout of the plan `before`, if there was
    /// one, with what all nodes `keep` of it, once all of that is decided.
    pub fn by_directory(
        self,
        plan: Plan,
        (before, kept): (Option<&Self>, Option<&Residents>),
        sizes: &dyn Sizes,
        packages: Option<&(Arc<Packages>, u64)>,
        locality: bool,
    ) -> Result<(Plan, Self)> {
        let packages = packages.map(|(packages, _)| packages);
        let before = before.map(|before| (before.view(), before.ownership(packages)));
        let found = Found { before, kept, sizes, packages: packages.map(|packages| &**packages) };
        let (plan, directory) = Directory::lay(plan, &self.view, &self.ranks, locality, &found)?;
        let layout = Self { plan: plan.digest(), directory: Some(Arc::new(directory)), ..self };
        Ok((plan, layout))
    }

    /// How a plan lies that was cut anew from the one that lies so, of which so many slots were `trained`. Samples keep their owners; a
    /// rank that is on none of these nodes owns nothing.
    #[must_use]
    pub fn recut<'a>(
        &self,
        plan: &Plan,
        ranks: impl IntoIterator<Item = Option<&'a str>>,
        trained: u64,
    ) -> Self {
        let ranks = numbers(&self.view, ranks, plan.world());
        Self { ranks, plan: plan.digest(), trained, ..self.clone() }
    }

    /// Slots that were trained when the plan was cut anew: whoever has it only since then decides nothing of them.
    pub fn trained(&self) -> u64 {
        self.trained
    }

    /// Whether samples have the same owners by another layout.
    pub fn has_owners_of(&self, other: &Self) -> bool {
        let of = |layout: &Self| (layout.view.id(), layout.dataset, layout.by_runs);
        of(self) == of(other) && self.directory == other.directory && self.made == other.made
    }

    fn localized(&self, plan: Plan, runs: Option<&Arc<Packages>>) -> Plan {
        let ownership = self.ownership(runs);
        // A rank that is on no node of the view owns nothing.
        let ranks: Vec<usize> = self.ranks.iter().map(|rank| rank.unwrap_or(self.view.len())).collect();
        localize(plan, &ranks, &self.view.racks(), |id| ownership.owner(id))
    }

    /// The nodes.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Who owns what.
    pub fn placement(&self) -> &Arc<Placement> {
        &self.placement
    }

    /// By which rule samples have their owners.
    pub fn kind(&self) -> PlacementKind {
        if self.directory.is_some() { PlacementKind::Directory } else { PlacementKind::Hash }
    }

    /// This node's number in the view; `None` if it is not in it.
    pub fn own(&self) -> Option<usize> {
        self.own
    }

    /// The number of the node that a rank is on; `None` if that is not in the view.
    pub fn node_of(&self, rank: u32) -> Option<usize> {
        self.ranks.get(rank as usize).copied().flatten()
    }

    /// Whether a rank is on this node.
    pub fn is_own(&self, rank: u32) -> bool {
        self.own.is_some() && self.node_of(rank) == self.own
    }

    /// The part of some samples that falls to a rank: those that its node owns, cut over that node's ranks. What is owned
    /// where no rank is goes round all of them. Together the parts of all ranks are the samples, each once.
    pub fn share(
        &self,
        rank: u32,
        ids: impl Iterator<Item = Id>,
        owner: impl Fn(Id) -> Option<usize>,
    ) -> Vec<Id> {
        // The ranks of each node, and last all of them, for what is owned where none is.
        let mut ranks_of = vec![Vec::new(); self.view.len() + 1];
        for (number, node) in (0u32..).zip(&self.ranks) {
            node.iter().for_each(|&node| ranks_of[node].push(number));
            ranks_of[self.view.len()].push(number);
        }
        // How many samples of each owner came before.
        let mut before = vec![0usize; ranks_of.len()];
        let mut is_its = |id: Id| {
            let owner = owner(id).filter(|&owner| !ranks_of[owner].is_empty()).unwrap_or(self.view.len());
            before[owner] += 1;
            ranks_of[owner][(before[owner] - 1) % ranks_of[owner].len()] == rank
        };
        ids.filter(|&id| is_its(id)).collect()
    }

    /// The digest of the plan that lies so.
    pub fn digest(&self) -> u64 {
        self.plan
    }

    /// Whether the samples of a run have one owner.
    pub fn is_by_runs(&self) -> bool {
        self.by_runs
    }

    /// The packages that the plan was made from, where some are made, and the bytes of one.
    pub fn made(&self) -> Option<&(Arc<Packages>, u64)> {
        self.made.as_ref()
    }

    /// The same, with what all nodes pack while they carry the plan out.
    #[must_use]
    pub fn with_packing(self, packing: Packing) -> Self {
        Self { packing, ..self }
    }

    /// The same without packages that are made: samples are owned one by one.
    #[must_use]
    pub fn without_packages(self) -> Self {
        Self { made: None, packing: Packing::default(), ..self }
    }

    /// What all nodes pack while they carry the plan out.
    pub fn packing(&self) -> &Packing {
        &self.packing
    }

    /// Which samples this node owns; `runs` are those that the plan was laid by.
    pub fn ownership(&self, runs: Option<&Arc<Packages>>) -> Ownership {
        let alone = Ownership::new(Arc::clone(&self.placement), self.dataset, self.own);
        let alone = match &self.directory {
            Some(directory) => alone.by_directory(Arc::clone(directory)),
            None => alone,
        };
        let made = self.made.as_ref().map(|(made, _)| made);
        match made.or(runs.filter(|_| self.by_runs)) {
            Some(packages) => alone.by_packages(Arc::clone(packages)),
            None => alone,
        }
    }

    /// All of it as bytes, for any node.
    pub fn save(&self) -> Vec<u8> {
        let mut writer = Writer::new(0);
        writer.number(self.view.len() as u64);
        for node in self.view.nodes() {
            writer.text(&node.name);
            writer.text(&node.address);
            writer.number(node.capacity);
            writer.bits([node.draining, node.rack.is_some()].into_iter());
            node.rack.iter().for_each(|rack| writer.text(rack));
            writer.number(node.revision);
        }
        writer.number(self.ranks.len() as u64);
        // 0 is no node.
        self.ranks.iter().for_each(|rank| writer.number(rank.map_or(0, |node| node as u64 + 1)));
        let is_cut = self.trained > 0;
        writer.bits([self.by_runs, self.made.is_some(), self.directory.is_some(), is_cut].into_iter());
        if let Some((made, bytes)) = &self.made {
            writer.number(made.samples() as u64);
            writer.number(*bytes);
            writer.sealed(&made.save());
            writer.sealed(&self.packing.save(made.samples()));
        }
        writer.fixed(self.dataset, 8);
        writer.fixed(self.plan, 8);
        if is_cut {
            writer.number(self.trained);
        }
        self.directory.iter().for_each(|directory| directory.save(&mut writer));
        writer.seal("layout")
    }

    /// What [`Self::save`] wrote, for the node `own`; nothing if it cannot be that.
    pub fn restore(saved: &[u8], own: &str) -> Option<Self> {
        let mut reader = Reader::open(saved, "layout", 0)?;
        let mut nodes = Vec::new();
        for _ in 0..reader.number()? {
            let (name, address) = (reader.text()?.to_owned(), reader.text()?.to_owned());
            let capacity = reader.number()?;
            let [draining, has_rack] = reader.bits(2)?.collect::<Vec<_>>()[..] else { return None };
            let rack = if has_rack { Some(reader.text()?.to_owned()) } else { None };
            nodes.push(Node { name, address, capacity, rack, draining, revision: reader.number()? });
        }
        let view = View::new(nodes);
        let mut ranks = Vec::new();
        for _ in 0..reader.number()? {
            let node = usize::try_from(reader.number()?).ok()?.checked_sub(1);
            ranks.push(Some(node).filter(|node| node.is_none_or(|node| node < view.len()))?);
        }
        let [by_runs, has_made, has_directory, is_cut] = reader.bits(4)?.collect::<Vec<_>>()[..] else {
            return None;
        };
        let (mut made, mut packing) = (None, Packing::default());
        if has_made {
            let samples = usize::try_from(reader.number()?).ok()?;
            let bytes = reader.number()?;
            // No more is made room for than was written.
            let saved = reader.sealed()?;
            made = Some((Arc::new(Packages::restore(saved, samples)?), bytes));
            packing = Packing::restore(reader.sealed()?, samples)?;
        }
        let (dataset, plan) = (reader.fixed(8)?, reader.fixed(8)?);
        let trained = if is_cut { reader.number()? } else { 0 };
        let directory = match has_directory {
            true => Some(Arc::new(Directory::restore(&mut reader, view.len())?)),
            false => None,
        };
        reader.end()?;
        let (own, placement) = (view.index_of(own), Arc::new(Placement::new(&view)));
        let view = Arc::new(view);
        Some(Self { view, placement, directory, dataset, by_runs, made, packing, own, ranks, plan, trained })
    }
}

/// The number of the node that each of `world` ranks is on.
fn numbers<'a>(
    view: &View,
    ranks: impl IntoIterator<Item = Option<&'a str>>,
    world: u32,
) -> Vec<Option<usize>> {
    let number = |name: Option<&str>| view.index_of(name?);
    let mut numbers: Vec<Option<usize>> = ranks.into_iter().map(number).collect();
    numbers.resize(world as usize, None);
    numbers
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
