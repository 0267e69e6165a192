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
        let number = |name: Option<&str>| view.index_of(name?);
        let mut ranks: Vec<Option<usize>> = ranks.into_iter().map(number).collect();
        ranks.resize(plan.world() as usize, None);
        let mut layout = Self {
            own: view.index_of(own),
            dataset: digest(0, dataset.as_bytes()),
            by_runs: packages.is_some_and(|(packages, _)| !packages.wear()),
            made: packages.filter(|(packages, _)| packages.wear()).cloned(),
            packing: Packing::default(),
            plan: 0,
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
        writer.bits([self.by_runs, self.made.is_some(), self.directory.is_some()].into_iter());
        if let Some((made, bytes)) = &self.made {
            writer.number(made.samples() as u64);
            writer.number(*bytes);
            writer.sealed(&made.save());
            writer.sealed(&self.packing.save(made.samples()));
        }
        writer.fixed(self.dataset, 8);
        writer.fixed(self.plan, 8);
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
        let [by_runs, has_made, has_directory] = reader.bits(3)?.collect::<Vec<_>>()[..] else { return None };
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
        let directory = match has_directory {
            true => Some(Arc::new(Directory::restore(&mut reader, view.len())?)),
            false => None,
        };
        reader.end()?;
        let (own, placement) = (view.index_of(own), Arc::new(Placement::new(&view)));
        let view = Arc::new(view);
        Some(Self { view, placement, directory, dataset, by_runs, made, packing, own, ranks, plan })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(names: &[&str]) -> (Arc<View>, Arc<Placement>) {
        let view = View::new(names.iter().zip(1..).map(|(name, revision)| Node {
            name: (*name).into(),
            address: format!("{name}:7"),
            capacity: 1 << 30,
            rack: (revision % 2 == 0).then(|| "r".into()),
            draining: revision == 3,
            revision,
        }));
        let placement = Arc::new(Placement::new(&view));
        (Arc::new(view), placement)
    }

    fn laid(own: &str, locality: bool) -> (Plan, Layout) {
        let plan = Plan::cut(4, 4, false, (0..4_000).collect::<Vec<Id>>());
        let ranks = [Some("a"), Some("b"), None, Some("gone")];
        Layout::lay(plan, view(&["a", "b", "c"]), own, "dataset", ranks, None, locality)
    }

    #[test]
    fn what_was_saved_is_the_same_layout_on_every_node() {
        let (plan, layout) = laid("a", true);
        assert_eq!(plan.digest(), layout.digest());
        let saved = layout.save();
        assert_eq!(Layout::restore(&saved, "a").as_ref(), Some(&layout));
        let other = Layout::restore(&saved, "b").unwrap();
        assert_eq!((other.own(), other.view(), other.digest()), (Some(1), layout.view(), layout.digest()));
        assert_eq!(Layout::restore(&saved, "elsewhere").unwrap().own(), None);
        assert!((0..saved.len()).all(|cut| Layout::restore(&saved[..cut], "a").is_none()));
    }

    #[test]
    fn packages_travel_with_the_plan_and_have_one_owner_each() {
        let (sizes, mut packages) = (vec![10u64; 4_000], Packages::new(4_000));
        for first in (0..3_000).step_by(30) {
            packages.add(&Vec::from_iter((first..first + 30).rev()), &sizes);
        }
        // What has moved on since leaves its package where it is.
        packages.add(&(29..3_000).step_by(30).collect::<Vec<Id>>(), &sizes);
        let plan = Plan::cut(4, 4, false, (0..4_000).collect::<Vec<Id>>());
        let ranks = [Some("a"), Some("b"), None, Some("gone")];
        let packages = (Arc::new(packages), 300);
        let nodes = view(&["a", "b", "c"]);
        let (_, layout) = Layout::lay(plan, nodes, "a", "dataset", ranks, Some(&packages), true);
        let packing = Packing { packages: vec![(101, vec![3_500, 7])], ..Packing::default() };
        let layout = layout.with_packing(packing.clone());
        let saved = layout.save();
        let other = Layout::restore(&saved, "b").unwrap();
        assert_eq!((other.made(), other.packing()), (Some(&packages), &packing));
        assert!((0..saved.len()).step_by(7).all(|cut| Layout::restore(&saved[..cut], "a").is_none()));
        let (by_package, alone) = (other.ownership(None), laid("a", false).1.ownership(None));
        for package in packages.0.living() {
            let members = packages.0.members(package);
            let first = packages.0.first(package).unwrap();
            assert!(members.iter().all(|&id| by_package.owner(id) == alone.owner(first)));
        }
        assert!((3_000..4_000).all(|id| by_package.owner(id) == alone.owner(id)));
    }

    #[test]
    fn every_sample_has_the_same_owner_on_every_node() {
        let saved = laid("a", true).1.save();
        let nodes: Vec<Layout> = ["a", "b", "c"].map(|own| Layout::restore(&saved, own).unwrap()).into();
        for id in 0..1_000 {
            let owners: Vec<usize> = (0..3).filter(|&node| nodes[node].ownership(None).owns(id)).collect();
            assert_eq!(owners, Vec::from_iter(nodes[0].ownership(None).owner(id)));
            assert_ne!(owners, [2], "it drains");
        }
    }

    #[test]
    fn a_rank_is_on_the_node_that_was_named_or_on_none() {
        let (_, layout) = laid("b", false);
        let nodes: Vec<Option<usize>> = (0..5).map(|rank| layout.node_of(rank)).collect();
        assert_eq!(nodes, [Some(0), Some(1), None, None, None]);
        assert_eq!(
            (0..5).map(|rank| layout.is_own(rank)).collect::<Vec<_>>(),
            [false, true, false, false, false]
        );
        let (_, outside) = laid("elsewhere", false);
        assert!((0..5).all(|rank| !outside.is_own(rank)), "a node outside the view has no ranks");
    }

    #[test]
    fn samples_fall_to_ranks_of_their_owner_and_each_to_one() {
        // Two ranks are at `a`, one at `b`, none at `d`, and one is not known.
        let plan = Plan::cut(4, 4, false, (0..4_000).collect::<Vec<Id>>());
        let ranks = [Some("a"), Some("b"), Some("a"), None];
        let (_, layout) = Layout::lay(plan, view(&["a", "b", "d"]), "b", "dataset", ranks, None, true);
        let ownership = layout.ownership(None);
        // As if `b`'s samples of even numbers were owned by `d`.
        let owner = |id: Id| {
            ownership.owner(id).map(|owner| if owner == 1 && id.is_multiple_of(2) { 2 } else { owner })
        };
        let shares: Vec<Vec<Id>> = (0..4).map(|rank| layout.share(rank, 0..1_000, owner)).collect();
        let mut all = shares.concat();
        all.sort_unstable();
        assert_eq!(all, Vec::from_iter(0..1_000), "each falls to one rank");
        for (rank, share) in shares.iter().enumerate() {
            let foreign = share.iter().filter(|&&id| owner(id) != layout.node_of(rank as u32)).count();
            let elsewhere = (0..1_000).filter(|&id| owner(id) == Some(2)).count();
            assert!(foreign.abs_diff(elsewhere / 4) <= 1, "rank {rank} has {foreign} of others");
        }
        assert!(shares[0].len().abs_diff(shares[2].len()) <= 2, "ranks of one node have as much");
    }

    #[test]
    fn ranks_have_mostly_what_their_node_owns_if_that_is_wanted() {
        let share = |locality| {
            let (plan, layout) = laid("a", locality);
            let ownership = layout.ownership(None);
            let local = |(slot, &id): (usize, &Id)| ownership.owner(id) == layout.node_of(slot as u32 % 4);
            let of_nodes = plan.ids().iter().enumerate().filter(|(slot, _)| slot % 4 < 2);
            of_nodes.filter(|&(slot, id)| local((slot, id))).count() as f64 / 2_000.0
        };
        assert!(share(true) > 0.95 && (0.4..0.6).contains(&share(false)), "{} {}", share(true), share(false));
    }
}
