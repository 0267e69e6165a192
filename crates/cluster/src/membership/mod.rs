//! Who is in the cluster: a key for each node, under a lease that the node renews.
//!
//! A thread tends the membership (`tend`). It puts this node's key, renews its lease every third of its life, watches the
//! keys of all, and tells of each new [`View`]. When the lease is lost it joins again, under a new revision. What it
//! does not hear of etcd it does not guess: the last view stays until there is another, and
//! [`is_alive`](Membership::is_alive) says whether this node is surely a member still.
//!
//! A node that is asked to drain has that in its key: it is written by others, and the node takes it over.

mod lifetime;
mod record;
mod tend;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use hotset_core::cluster::View;
use hotset_core::{Error, Result};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

pub use self::record::Member;

use self::lifetime::Lifetime;
use self::tend::Tended;
use crate::etcd::{Address, Compare, Etcd, Operation};

/// How long a node that says nothing is a member.
pub const TTL: Duration = Duration::from_secs(6);
/// Keys of nodes.
const NODES: &str = "nodes";

/// Told each new view, by the thread that tends the membership.
pub type Listener = Box<dyn Fn(&Arc<View>) + Send>;

/// What the thread and its owner see.
struct Shared {
    address: Address,
    member: Member,
    ttl: Duration,
    view: Mutex<Arc<View>>,
    lifetime: Lifetime,
    /// The lease that this node's key is under; 0 before it has one.
    lease: AtomicI64,
    stop: Notify,
}

impl Shared {
    fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set_view(&self, view: &Arc<View>) {
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(view);
    }

    fn prefix(&self) -> String {
        self.address.prefix(NODES)
    }

    fn key(&self) -> String {
        self.prefix() + &self.member.name
    }
}

/// This node's place in a cluster. Leaves it when it is dropped.
pub struct Membership {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Membership {
    /// Joins; returns when this node's key is there. `listener` hears of every view from then on, that one included.
    pub fn join(address: Address, member: Member, ttl: Duration, listener: Listener) -> Result<Self> {
        member.check()?;
        let runtime = runtime()?;
        let shared = Arc::new(Shared {
            address,
            member,
            ttl,
            view: Mutex::default(),
            lifetime: Lifetime::default(),
            lease: AtomicI64::new(0),
            stop: Notify::new(),
        });
        let (said, joined) = mpsc::channel();
        let own = Arc::clone(&shared);
        let run = move || {
            let tended = Tended { shared: &own, listener: &listener, joined: Some(said) };
            runtime.block_on(tended.run());
        };
        let thread = std::thread::Builder::new().name("hotset-cluster".into()).spawn(run);
        let thread = thread.map_err(|error| {
            Error::unavailable(format!("cannot start the thread of the cluster: {error}"))
        })?;
        let membership = Self { shared, thread: Some(thread) };
        let gone = || Error::internal("the thread of the cluster ended before it joined");
        joined.recv().map_err(|_| gone())??;
        Ok(membership)
    }

    /// The newest view.
    pub fn view(&self) -> Arc<View> {
        self.shared.view()
    }

    /// Whether this node's lease surely lives, by its own clock: until then no other node takes over what it owns.
    pub fn is_alive(&self) -> bool {
        self.shared.lifetime.is_alive()
    }

    /// The lease that this node's key is under, for keys that are to go when it does; `None` while it does not surely live.
    pub fn lease(&self) -> Option<i64> {
        let lease = self.shared.lease.load(Ordering::Acquire);
        (lease != 0 && self.is_alive()).then_some(lease)
    }

    /// The name of this node.
    pub fn name(&self) -> &str {
        &self.shared.member.name
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.shared.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            // It ends by itself; one that has panicked ended the process.
            let _ = thread.join();
        }
    }
}

/// The nodes of a cluster, asked once.
pub fn nodes(address: &Address) -> Result<Vec<(hotset_core::cluster::Node, Member)>> {
    runtime()?.block_on(async {
        let listed = Etcd::new(address)?.list(&address.prefix(NODES)).await?;
        Ok(listed.keys.iter().filter_map(|key| record::read(&address.prefix(NODES), key)).collect())
    })
}

/// Has a node drain, or take part again: it owns nothing, or its share, from the next view on.
pub fn drain(address: &Address, name: &str, draining: bool) -> Result<()> {
    let prefix = address.prefix(NODES);
    let unknown = || Error::invalid(format!("the cluster `{}` has no node `{name}`", address.name));
    runtime()?.block_on(async {
        let etcd = Etcd::new(address)?;
        // Another may write the key at the same time.
        for _ in 0..8 {
            let listed = etcd.list(&prefix).await?;
            let key = listed.keys.iter().find(|key| key.key == format!("{prefix}{name}").into_bytes());
            let key = key.ok_or_else(unknown)?;
            let (_, member) = record::read(&prefix, key).ok_or_else(unknown)?;
            if member.draining == draining {
                return Ok(());
            }
            let value = Member { draining, ..member }.write();
            let compare = vec![Compare::Revision(format!("{prefix}{name}"), key.mod_revision)];
            let operations = vec![Operation::Rewrite(format!("{prefix}{name}"), value)];
            if etcd.transact(compare, operations).await?.0 {
                return Ok(());
            }
        }
        Err(Error::unavailable(format!("the key of node `{name}` changes all the time: try again")))
    })
}

fn runtime() -> Result<Runtime> {
    let built = Builder::new_current_thread().enable_all().build();
    built.map_err(|error| Error::unavailable(format!("cannot start the runtime of the cluster: {error}")))
}
