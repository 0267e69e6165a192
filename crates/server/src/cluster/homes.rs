//! Which node makes the plans of a job: its home, as etcd says.
//!
//! A home's key is created if there is none, by a transaction, under the lease by which the node is a member: it goes when
//! the node does. The revision at which it was created is the job's *fence*. A plan is handed out only after its digest was
//! put by a transaction that compares the fence, so a node that believes itself home and is home no more hands out nothing. All nodes
//! watch the keys, and know whom to ask without asking etcd.
//!
//! Another key says which node keeps a copy of the job, and from which state on it has all of it. It outlives the home, and only
//! that node may become home after it: a copy that is older than what was acknowledged is of no use.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hotset_cluster::etcd::{Compare, EventType, KeyValue, Operation};
use hotset_cluster::{Address, Etcd};
use hotset_core::{Error, Result};
use tokio::runtime::{Builder, Runtime};

use crate::lock::Lock;

/// The pause before keys are watched again, after a watch broke off.
const PAUSE: Duration = Duration::from_millis(200);
/// How often a claim is tried while keys come and go.
const ATTEMPTS: usize = 8;

/// A job's home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Home {
    /// The name of the node.
    pub(super) node: String,
    /// The revision at which its key was created.
    pub(super) fence: i64,
    /// The lease that its key is under.
    lease: i64,
}

/// A plan of which etcd knows, as its key says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Settled {
    pub(super) epoch: u64,
    pub(super) digest: u64,
}

/// The node that keeps a copy of a job, as its key says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Keeper {
    pub(super) node: String,
    /// The job's opening.
    pub(super) opening: String,
    /// The first state of which it has all that came after.
    pub(super) generation: u64,
}

impl Keeper {
    fn write(&self) -> Vec<u8> {
        format!("{} {} {}", self.opening, self.generation, self.node).into_bytes()
    }

    fn read(value: &[u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(value).ok()?.splitn(3, ' ');
        let (opening, generation) = (parts.next()?.to_owned(), parts.next()?.parse().ok()?);
        Some(Self { node: parts.next()?.to_owned(), opening, generation })
    }
}

/// The homes of all jobs of a cluster.
pub(super) struct Homes {
    runtime: Option<Runtime>,
    etcd: Arc<Etcd>,
    keys: Arc<Keys>,
    known: Arc<Lock<BTreeMap<String, Home>>>,
}

/// Where the keys of jobs, of plans and of keepers are.
struct Keys {
    jobs: String,
    plans: String,
    keepers: String,
}

impl Keys {
    fn of(address: &Address) -> Self {
        let [jobs, plans, keepers] = ["jobs", "plans", "keepers"].map(|kind| address.prefix(kind));
        Self { jobs, plans, keepers }
    }

    /// A job and its home, from its key.
    fn read(&self, key: &KeyValue) -> Option<(String, Home)> {
        let job = self.job(key)?;
        let node = std::str::from_utf8(&key.value).ok()?.to_owned();
        Some((job, Home { node, fence: key.create_revision, lease: key.lease }))
    }

    fn job(&self, key: &KeyValue) -> Option<String> {
        Some(std::str::from_utf8(&key.key).ok()?.strip_prefix(&self.jobs)?.to_owned())
    }
}

impl Homes {
    /// The homes of a cluster, watched from now on.
    pub(super) fn watch(address: &Address) -> Result<Self> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("hotset-homes").enable_all().build();
        let runtime = runtime.map_err(|error| {
            Error::unavailable(format!("cannot start the thread that watches the homes of jobs: {error}"))
        })?;
        let etcd = {
            let _entered = runtime.enter();
            Arc::new(Etcd::new(address)?)
        };
        let keys = Arc::new(Keys::of(address));
        let known = Arc::<Lock<BTreeMap<String, Home>>>::default();
        runtime.spawn(watch(Arc::clone(&etcd), Arc::clone(&keys), Arc::clone(&known)));
        Ok(Self { runtime: Some(runtime), etcd, keys, known })
    }

    /// The home of a job, as far as is known here.
    pub(super) fn of(&self, job: &str) -> Option<Home> {
        self.known.lock().get(job).cloned()
    }

    /// The jobs that a node is the home of.
    #[cfg(test)]
    pub(super) fn at(&self, node: &str) -> Vec<String> {
        let known = self.known.lock();
        known.iter().filter(|(_, home)| home.node == node).map(|(job, _)| job.clone()).collect()
    }

    /// Waits until something changes, but no longer than `time`.
    pub(super) fn wait(&self, time: Duration) {
        drop(self.known.lock().wait_for(time));
    }

    /// The home of a job, which is `node` from now on if there was none.
    pub(super) fn claim(&self, job: &str, node: &str, lease: i64) -> Result<Home> {
        let key = format!("{}{job}", self.keys.jobs);
        for _ in 0..ATTEMPTS {
            let put = Operation::Put(key.clone(), node.as_bytes().to_vec(), lease);
            let (created, revision) = self.transact(vec![Compare::Absent(key.clone())], vec![put])?;
            let home = match created {
                true => Some(Home { node: node.to_owned(), fence: revision, lease }),
                // It is another's; or this node's, by an attempt whose answer was lost.
                false => self.find(&key)?,
            };
            let Some(home) = home else { continue };
            self.note(job, &home);
            return Ok(home);
        }
        Err(changes(job))
    }

    /// The home that a key says.
    fn find(&self, key: &str) -> Result<Option<Home>> {
        let listed = self.block_on(self.etcd.list(key))?;
        let held = listed.keys.iter().find(|held| held.key == key.as_bytes());
        Ok(held.and_then(|held| self.keys.read(held)).map(|(_, home)| home))
    }

    /// Notes what etcd has said of a job's home.
    fn note(&self, job: &str, home: &Home) {
        let mut known = self.known.lock();
        if known.get(job).is_none_or(|other| other.fence <= home.fence) {
            known.insert(job.to_owned(), home.clone());
        }
    }

    /// Whether a key that a claim has found is of this lease: one of another is of an earlier life of the node.
    pub(super) fn is_under(home: &Home, lease: i64) -> bool {
        home.lease == lease
    }

    /// Puts the digest of a plan, if the job's home is still the one of that fence.
    pub(super) fn settle(
        &self,
        (job, plan): (&str, &str),
        fence: i64,
        settled: Settled,
        lease: i64,
    ) -> Result<bool> {
        let value = format!("{{\"epoch\":{},\"digest\":\"{:016x}\"}}", settled.epoch, settled.digest);
        let compare = vec![Compare::Created(format!("{}{job}", self.keys.jobs), fence)];
        let put = Operation::Put(format!("{}{plan}", self.keys.plans), value.into_bytes(), lease);
        Ok(self.transact(compare, vec![put])?.0)
    }

    /// Puts which node keeps a copy of a job, or that none does, if the job's home is still the one of that fence.
    pub(super) fn put_keeper(
        &self,
        (job, plan): (&str, &str),
        fence: i64,
        keeper: Option<&Keeper>,
    ) -> Result<bool> {
        let compare = vec![Compare::Created(format!("{}{job}", self.keys.jobs), fence)];
        let key = format!("{}{plan}", self.keys.keepers);
        let change = match keeper {
            Some(keeper) => Operation::Put(key, keeper.write(), 0),
            None => Operation::Delete(key),
        };
        Ok(self.transact(compare, vec![change])?.0)
    }

    /// Makes a node the home of a job that has none, if it is the keeper of which the home before has told, with a copy of that
    /// opening and generation or a later one. The home that there is then; `None`: its copy is not the one.
    pub(super) fn succeed(
        &self,
        (job, plan): (&str, &str),
        (opening, generation): (&str, u64),
        node: &str,
        lease: i64,
    ) -> Result<Option<Home>> {
        let (key, keeper) = (format!("{}{job}", self.keys.jobs), format!("{}{plan}", self.keys.keepers));
        for _ in 0..ATTEMPTS {
            let listed = self.block_on(self.etcd.list(&keeper))?;
            let held = listed.keys.iter().find(|held| held.key == keeper.as_bytes());
            let told = held.and_then(|held| Some((held.mod_revision, Keeper::read(&held.value)?)));
            let is_it =
                |told: &Keeper| told.node == node && told.opening == opening && told.generation <= generation;
            let Some((revision, _)) = told.filter(|(_, told)| is_it(told)) else { return Ok(None) };
            let compare = vec![Compare::Absent(key.clone()), Compare::Revision(keeper.clone(), revision)];
            let put = Operation::Put(key.clone(), node.as_bytes().to_vec(), lease);
            let (created, revision) = self.transact(compare, vec![put])?;
            let home = match created {
                true => Some(Home { node: node.to_owned(), fence: revision, lease }),
                false => self.find(&key)?,
            };
            if let Some(home) = home {
                self.note(job, &home);
                return Ok(Some(home));
            }
        }
        Err(changes(job))
    }

    /// Lets go of a job, unless others of its name stay, if its home is still the one of that fence; of `ended` nothing stays in
    /// etcd.
    pub(super) fn release(&self, job: &str, fence: i64, ended: &[&str], stays: bool) -> Result<()> {
        let key = format!("{}{job}", self.keys.jobs);
        let of = |plan: &&str| {
            [&self.keys.plans, &self.keys.keepers].map(|prefix| Operation::Delete(format!("{prefix}{plan}")))
        };
        let mut changes: Vec<Operation> = ended.iter().flat_map(of).collect();
        if !stays {
            changes.push(Operation::Delete(key.clone()));
        }
        self.transact(vec![Compare::Created(key, fence)], changes)?;
        if stays {
            return Ok(());
        }
        let mut known = self.known.lock();
        if known.get(job).is_some_and(|home| home.fence == fence) {
            known.remove(job);
        }
        Ok(())
    }

    fn transact(&self, compare: Vec<Compare>, operations: Vec<Operation>) -> Result<(bool, i64)> {
        self.block_on(self.etcd.transact(compare, operations))
    }

    fn block_on<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        crate::lock::assert_unlocked();
        let runtime = self.runtime.as_ref().ok_or_else(|| Error::internal("etcd is asked no more"))?;
        runtime.block_on(call)
    }
}

fn changes(job: &str) -> Error {
    Error::unavailable(format!("the home of job `{job}` changes all the time in etcd: try again"))
}

/// The name of the home of each job, asked once.
pub fn homes(address: &Address) -> Result<BTreeMap<String, String>> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| Error::unavailable(format!("cannot start the runtime that asks etcd: {error}")))?;
    let keys = Keys::of(address);
    let listed = runtime.block_on(async { Etcd::new(address)?.list(&keys.jobs).await })?;
    Ok(listed.keys.iter().filter_map(|key| keys.read(key)).map(|(job, home)| (job, home.node)).collect())
}

impl Drop for Homes {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Keeps what is known as etcd says it is.
async fn watch(etcd: Arc<Etcd>, keys: Arc<Keys>, known: Arc<Lock<BTreeMap<String, Home>>>) {
    let mut said = String::new();
    loop {
        match watch_once(&etcd, &keys, &known).await {
            Err(error) if error.message != said => {
                tracing::warn!(%error, "the homes of jobs are not watched now");
                said = error.message;
            }
            Err(_) => {}
            Ok(()) => said.clear(),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Lists all keys and watches them from there, until the watch breaks off.
async fn watch_once(etcd: &Etcd, keys: &Keys, known: &Lock<BTreeMap<String, Home>>) -> Result<()> {
    let listed = etcd.list(&keys.jobs).await?;
    let found: BTreeMap<String, Home> = listed.keys.iter().filter_map(|key| keys.read(key)).collect();
    {
        let mut known = known.lock();
        // A claim of this node may have been made since.
        let later = known.extract_if(.., |_, home| home.fence > listed.revision).collect::<BTreeMap<_, _>>();
        *known = found.into_iter().chain(later).collect();
        known.signal();
    }
    let mut watched = etcd.watch(&keys.jobs, listed.revision + 1).await?;
    while let Ok(Some(answer)) = watched.message().await {
        if answer.canceled {
            return Ok(());
        }
        let mut known = known.lock();
        for event in answer.events {
            let kind = event.r#type();
            let Some(key) = event.kv else { continue };
            let Some(job) = keys.job(&key) else { continue };
            // What a claim has found meanwhile is newer.
            if known.get(&job).is_some_and(|home| home.fence > key.mod_revision) {
                continue;
            }
            match keys.read(&key).filter(|_| kind == EventType::Put) {
                Some((job, home)) => drop(known.insert(job, home)),
                None => drop(known.remove(&job)),
            }
        }
        known.signal();
    }
    Ok(())
}
