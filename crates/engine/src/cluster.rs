//! A job over several nodes, as one node's engine sees it.
//!
//! One node makes a job's plans, its *home*; the others follow. The home draws a plan as it would alone and has it
//! [settled](Cluster::settle): laid over the nodes, and told. A follower [gets](Cluster::plan) it. From then on all nodes do
//! the same: each passes the whole plan, decides the slots whose samples it owns, reads them ahead for whichever rank they
//! are, and [asks](Cluster::fetch) other nodes for what its own ranks are served and others own.
//!
//! A plan may go by what is resident: the home [gathers](Cluster::residents) what the others keep before it draws one. What is
//! re-evaluated before a plan each node keeps, or reads, as far as it owns it; it [asks](Cluster::reevaluation) the home what
//! that is.
//!
//! What is packed while a plan is carried out is chosen by the home, by who owns what, and travels with the plan; each node makes the
//! packages that it owns, and keeps for the home which were written and which were lost ([`PackageNews`]).
//!
//! How nodes find and reach each other is not known here. [`Cluster`] is asked without the engine's lock.

use std::sync::Arc;
use std::time::Duration;

use hotset_core::cluster::{Given, Layout, Node, Placement, PlacementKind, View, Wanted};
use hotset_core::packages::Packages;
use hotset_core::sampling::{Plan, Reevaluation, Residents};
use hotset_core::{Error, Result};
use hotset_store::Catalog;

/// The other nodes.
pub trait Cluster: Send + Sync {
    /// This node's name.
    fn name(&self) -> &str;

    /// By which rule this node lays plans. By `directory` what nodes keep is gathered before each of them.
    fn placement(&self) -> PlacementKind {
        PlacementKind::Hash
    }

    /// Lays a plan that this node has drawn over the nodes, and tells of it. Its error is told to the rank that asked, and
    /// the plan is drawn again when it is asked for again.
    fn settle(&self, job: &str, drawn: Unplaced) -> Result<Placed>;

    /// The plan of an epoch that the job's home has made, or will: waits for it. It is one for `world` ranks, if that is
    /// known.
    fn plan(&self, job: &str, epoch: u64, world: Option<u32>) -> Result<Placed>;

    /// What the other nodes keep of a job once each has decided every slot of an epoch, or now, as far as nodes say so in time.
    fn residents(&self, job: &str, after: Option<u64>, samples: usize) -> Residents;

    /// What is re-evaluated before an epoch, as the job's home says.
    fn reevaluation(&self, job: &str, epoch: u64) -> Result<Reevaluation>;

    /// Asks the owner for slots of a plan: what became of each, its place filled if it was given. Whatever does not come is
    /// read from storage.
    fn fetch(
        &self,
        owner: &Node,
        wanted: &Wanted,
        deadline: Duration,
        places: &mut [&mut [u8]],
    ) -> Result<Vec<Given>>;
}

/// What became of packages on a node that is not the job's home.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackageNews {
    /// Those whose write has ended.
    pub written: Vec<u32>,
    /// Those that were lost, or will not be made.
    pub lost: Vec<u32>,
}

impl PackageNews {
    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.written.is_empty() && self.lost.is_empty()
    }
}

/// What a node is to a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Role {
    /// The only one.
    #[default]
    Alone,
    /// It makes the job's plans, for nodes that may keep `capacity` bytes together.
    Home {
        /// The bytes that plans go by.
        capacity: u64,
    },
    /// It gets the job's plans, and would make them as the home does.
    Follower {
        /// The bytes that plans go by.
        capacity: u64,
    },
}

impl Role {
    /// The bytes that plans go by, where those are not the node's own.
    pub(crate) fn capacity(self) -> Option<u64> {
        match self {
            Self::Alone => None,
            Self::Home { capacity } | Self::Follower { capacity } => Some(capacity),
        }
    }

    pub(crate) fn is_alone(self) -> bool {
        self == Self::Alone
    }

    pub(crate) fn is_follower(self) -> bool {
        matches!(self, Self::Follower { .. })
    }
}

/// A plan that was drawn and lies over no nodes yet.
#[derive(Debug, Clone)]
pub struct Unplaced {
    pub(crate) plan: Plan,
    pub(crate) dataset: String,
    /// The packages that it was made from, and the bytes of one.
    pub(crate) packages: Option<(Arc<Packages>, u64)>,
    /// Of one that is under way and was cut over another number of ranks: how it lay before, and how many slots were trained. Slots stay
    /// where they are, and samples with their owners.
    pub(crate) laid: Option<(Arc<Layout>, u64)>,
    /// What a directory is made from, where that is the placement.
    pub(crate) kept: Option<Kept>,
}

/// Where samples are when a plan is drawn.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    /// How the plan before lies.
    pub(crate) before: Option<Arc<Layout>>,
    /// What all nodes keep of it, once it is decided.
    pub(crate) residents: Option<Residents>,
    pub(crate) catalog: Arc<Catalog>,
}

impl Unplaced {
    /// The plan as it was drawn.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Lays it over the nodes of a view, on the node `own`. `ranks` names the node of each rank, rank 0 first. With
    /// `locality` ranks exchange samples so that most are their own node's. One that is under way, and was cut over another number of
    /// ranks, stays with the nodes that it lies over. An error says that the dataset has too many samples for a directory.
    pub fn place<'a>(
        self,
        nodes: (Arc<View>, Arc<Placement>),
        own: &str,
        ranks: impl IntoIterator<Item = Option<&'a str>>,
        locality: bool,
    ) -> Result<Placed> {
        let Self { plan, dataset, packages, laid, kept } = self;
        if let Some((laid, trained)) = laid {
            let layout = Arc::new(laid.recut(&plan, ranks, trained));
            return Ok(Placed { plan: Arc::new(plan), layout });
        }
        let packages = packages.as_ref();
        let by_hash = locality && kept.is_none();
        let (mut plan, mut layout) = Layout::lay(plan, nodes, own, &dataset, ranks, packages, by_hash);
        if let Some(Kept { before, residents, catalog }) = kept {
            let before = (before.as_deref(), residents.as_ref());
            (plan, layout) = layout.by_directory(plan, before, &*catalog, packages, locality)?;
        }
        Ok(Placed { plan: Arc::new(plan), layout: Arc::new(layout) })
    }
}

/// A plan, and how it lies over nodes.
#[derive(Debug, Clone)]
pub struct Placed {
    /// The plan.
    pub plan: Arc<Plan>,
    /// How it lies.
    pub layout: Arc<Layout>,
}

impl Placed {
    /// Whether another is the same order cut over another number of ranks, with the same owners.
    pub(crate) fn is_cut_anew_as(&self, other: &Self) -> bool {
        let world = other.plan.world();
        self.plan.world() != world
            && self.layout.has_owners_of(&other.layout)
            && self.plan.recut(world).digest() == other.plan.digest()
    }

    /// Both as bytes, for a catalog of `samples`. Scores that the plan is decided with are written too.
    pub fn save(&self, samples: usize) -> Vec<u8> {
        let (layout, plan) = (self.layout.save(), self.plan.save(samples, &[]));
        [&(layout.len() as u64).to_le_bytes()[..], &layout, &plan].concat()
    }

    /// What [`Self::save`] wrote on another node, for the node `own`.
    pub fn restore(saved: &[u8], samples: usize, own: &str) -> Result<Self> {
        let misfit =
            || Error::changed("the plan does not fit the dataset: all nodes are to see the same data");
        let parts = || {
            let (length, rest) = saved.split_first_chunk::<8>()?;
            let (layout, plan) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
            Some((Layout::restore(layout, own)?, Plan::restore(samples, plan, &[])?))
        };
        let (layout, plan) = parts().ok_or_else(misfit)?;
        let fits = layout.made().is_none_or(|(packages, _)| packages.samples() == samples);
        if layout.digest() != plan.digest() || !fits {
            return Err(misfit());
        }
        Ok(Self { plan: Arc::new(plan), layout: Arc::new(layout) })
    }
}
