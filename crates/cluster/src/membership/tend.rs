//! The thread that keeps this node a member, and hears who else is one.
//!
//! One *term* is a lease: its key is put, it is renewed every third of its life, and keys are watched, until the lease is
//! lost, etcd stays silent, or the node leaves. Then the next term begins, with pauses that double up to two seconds.
//! Nothing is said twice: a term that fails as the last one did is logged once.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use hotset_core::cluster::{Node, View};
use hotset_core::{Error, Kind, Result};
use tokio::time::{Instant, sleep};
use tonic::Streaming;

use super::lifetime::Moment;
use super::{Listener, Member, Shared, record};
use crate::etcd::{Compare, Etcd, EventType, KeyValue, Listed, Operation, WatchResponse};

/// The first pause after a term that failed, and the longest.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What the thread works with.
pub(super) struct Tended<'a> {
    pub(super) shared: &'a Shared,
    pub(super) listener: &'a Listener,
    /// Told how the first term began.
    pub(super) joined: Option<mpsc::Sender<Result<()>>>,
}

/// Why a term ended.
enum Ended {
    /// The node leaves.
    Left,
    /// The lease was lost, or the watch broke off.
    Lost(String),
}

/// The nodes as they are known, by name.
type Nodes = BTreeMap<String, (Node, Member)>;

impl Tended<'_> {
    pub(super) async fn run(mut self) {
        let etcd = match Etcd::new(&self.shared.address) {
            Ok(etcd) => etcd,
            Err(error) => return self.tell_joined(Err(error)),
        };
        let (mut pause, mut said) = (PAUSE, String::new());
        let mut draining = self.shared.member.draining;
        loop {
            let ended = self.term(&etcd, &mut draining).await;
            self.shared.lifetime.ended();
            let reason = match ended {
                Ok(Ended::Left) => return,
                Ok(Ended::Lost(reason)) => {
                    pause = PAUSE;
                    reason
                }
                Err(error) if self.joined.is_some() => return self.tell_joined(Err(error)),
                Err(error) => error.message,
            };
            if reason != said {
                tracing::warn!(reason, "this node is no member of the cluster; it tries to join again");
                said = reason;
            }
            tokio::select! {
                () = self.shared.stop.notified() => return,
                () = sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
            }
        }
    }

    /// The node joined, or cannot.
    fn tell_joined(&mut self, joined: Result<()>) {
        // The thread that joins waits for it.
        self.joined.take().into_iter().for_each(|said| drop(said.send(joined.clone())));
    }

    /// One lease, from its grant to its end.
    async fn term(&mut self, etcd: &Etcd, draining: &mut bool) -> Result<Ended> {
        let sent = Moment::now();
        let lease = etcd.grant(self.shared.ttl).await?;
        let listed = match self.register(etcd, lease, *draining).await {
            Ok(listed) => listed,
            Err(error) => {
                // What was not put under it needs it no more; it runs out by itself if this fails.
                let _ = etcd.revoke(lease).await;
                return Err(error);
            }
        };
        self.shared.lease.store(lease, Ordering::Release);
        self.shared.lifetime.renewed(sent, self.shared.ttl);
        let watched = etcd.watch(&self.shared.prefix(), listed.revision + 1).await?;
        let mut nodes = self.known(&listed.keys);
        self.publish(&nodes);
        tracing::info!(node = self.shared.member.name, nodes = nodes.len(), "joined the cluster");
        self.tell_joined(Ok(()));
        let ended = self.hold(etcd, lease, watched, &mut nodes, draining).await;
        if matches!(ended, Ended::Left) {
            // Others see it go at once; without this they see it when the lease runs out.
            if let Err(error) = etcd.revoke(lease).await {
                tracing::warn!(%error, "the lease of this node could not be ended; it runs out by itself");
            }
        }
        Ok(ended)
    }

    /// Puts this node's key under a lease; all keys, as they were afterwards.
    ///
    /// A key of this name that is there already is one of an earlier life of this node, which runs out, or is another
    /// node's. An earlier life listened at the same address, where it cannot be alive now: its key is taken over.
    async fn register(&self, etcd: &Etcd, lease: i64, draining: bool) -> Result<Listed> {
        let (key, member) = (self.shared.key(), &self.shared.member);
        let value = Member { draining, ..member.clone() }.write();
        let patience = Instant::now() + self.shared.ttl * 2;
        loop {
            let listed = etcd.list(&self.shared.prefix()).await?;
            let held = listed.keys.iter().find(|held| held.key == key.as_bytes());
            let other = held.and_then(|held| record::read(&self.shared.prefix(), held));
            let other = other.filter(|(node, _)| node.address != member.address);
            let compare = match held {
                None => Compare::Absent(key.clone()),
                Some(held) => Compare::Revision(key.clone(), held.mod_revision),
            };
            if other.is_none() {
                let put = vec![Operation::Put(key.clone(), value.clone(), lease)];
                if etcd.transact(vec![compare], put).await?.0 {
                    return etcd.list(&self.shared.prefix()).await;
                }
            }
            if let Some((node, _)) = other.filter(|_| Instant::now() >= patience) {
                return Err(Error::invalid(format!(
                    "the cluster has a node `{}` at {}: give this one another name with `node`",
                    node.name, node.address
                )));
            }
            // An earlier life of another address runs out, if that is what it is.
            etcd.renew(lease).await?;
            sleep(PAUSE).await;
        }
    }

    /// Renews the lease and hears of others, until something ends it.
    async fn hold(
        &self,
        etcd: &Etcd,
        lease: i64,
        mut watched: Streaming<WatchResponse>,
        nodes: &mut Nodes,
        draining: &mut bool,
    ) -> Ended {
        let third = self.shared.ttl / 3;
        let mut due = Instant::now() + third;
        loop {
            let answer = tokio::select! {
                () = self.shared.stop.notified() => return Ended::Left,
                () = tokio::time::sleep_until(due) => {
                    match self.renew(etcd, lease).await {
                        Some(ended) => return ended,
                        None => due = Instant::now() + if self.shared.lifetime.is_alive() { third } else { PAUSE },
                    }
                    continue;
                }
                answer = watched.message() => answer,
            };
            let answer = match answer {
                Ok(Some(answer)) if !answer.canceled => answer,
                Ok(Some(answer)) => {
                    return Ended::Lost(format!("etcd ended the watch: {}", answer.cancel_reason));
                }
                // Another endpoint may go on: the lease is still there, and so is what was heard.
                Ok(None) | Err(_) => match self.watch_again(etcd, nodes).await {
                    Ok(again) => {
                        watched = again;
                        *draining = self.is_draining(nodes, *draining);
                        continue;
                    }
                    Err(error) if error.kind == Kind::Unavailable && self.shared.lifetime.is_alive() => {
                        sleep(PAUSE).await;
                        continue;
                    }
                    Err(error) => return Ended::Lost(error.message),
                },
            };
            let prefix = self.shared.prefix();
            for event in answer.events {
                let kind = event.r#type();
                let Some(key) = event.kv else { continue };
                if let Some(name) =
                    std::str::from_utf8(&key.key).ok().and_then(|key| key.strip_prefix(&prefix))
                {
                    // The key of a node that has gone says nothing.
                    let put = kind == EventType::Put;
                    match put.then(|| record::read(&prefix, &key)).flatten() {
                        Some(node) => drop(nodes.insert(name.to_owned(), node)),
                        None => drop(nodes.remove(name)),
                    }
                }
            }
            *draining = self.is_draining(nodes, *draining);
            self.publish(nodes);
            match nodes.get(&self.shared.member.name) {
                None => return Ended::Lost("its key is gone".into()),
                Some((node, _)) if node.address != self.shared.member.address => {
                    return Ended::Lost(format!("another node of its name is at {}", node.address));
                }
                Some(_) => {}
            }
        }
    }

    /// Renews the lease; why the term is over, if it is.
    async fn renew(&self, etcd: &Etcd, lease: i64) -> Option<Ended> {
        let sent = Moment::now();
        match etcd.renew(lease).await {
            Ok(Some(life)) => {
                self.shared.lifetime.renewed(sent, life);
                None
            }
            Ok(None) => Some(Ended::Lost("its lease ran out".into())),
            Err(error) if error.kind != Kind::Unavailable => Some(Ended::Lost(error.message)),
            Err(error) => {
                if !self.shared.lifetime.is_alive() {
                    tracing::debug!(%error, "the lease may have run out");
                }
                None
            }
        }
    }

    /// Looks up all keys and watches them from there.
    async fn watch_again(&self, etcd: &Etcd, nodes: &mut Nodes) -> Result<Streaming<WatchResponse>> {
        let listed = etcd.list(&self.shared.prefix()).await?;
        let watched = etcd.watch(&self.shared.prefix(), listed.revision + 1).await?;
        *nodes = self.known(&listed.keys);
        self.publish(nodes);
        Ok(watched)
    }

    fn known(&self, keys: &[KeyValue]) -> Nodes {
        let prefix = self.shared.prefix();
        let nodes = keys.iter().filter_map(|key| record::read(&prefix, key));
        nodes.map(|(node, member)| (node.name.clone(), (node, member))).collect()
    }

    /// Whether this node was asked to drain.
    fn is_draining(&self, nodes: &Nodes, before: bool) -> bool {
        let own = nodes.get(&self.shared.member.name);
        let now = own.map_or(before, |(node, _)| node.draining);
        if now != before {
            tracing::info!(draining = now, "this node was asked to drain, or to take part again");
        }
        now
    }

    /// Tells of the nodes, if they are others than before.
    fn publish(&self, nodes: &Nodes) {
        let view = Arc::new(View::new(nodes.values().map(|(node, _)| node.clone())));
        if view.id() != self.shared.view().id() {
            self.shared.set_view(&view);
            (self.listener)(&view);
        }
    }
}
