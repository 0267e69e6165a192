//! Asks other nodes.
//!
//! A call blocks its thread, which copies what comes into the places it brought; connections are tended by threads of
//! their own. Many threads may call at the same time. Every error means the same to a reader: read storage.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hotset_core::{Error, Kind, Result};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::time::timeout_at;
use tonic::{Code, Status};

use super::access::Token;
use super::breaker::Breaker;
use super::counters::{Counted, Counters, add};
use super::filling::Filling;
use super::peer::{Failure, Peer};
use super::{LARGEST_ASK, MOST_SLOTS, runtime};
use crate::etcd::{Tls, reason};
use hotset_core::cluster::{Given, Wanted};

/// Threads that look names of hosts up.
const LOOKUPS: usize = 4;

/// The other nodes, as this one asks them. Not to be called from within a runtime, which it would block.
pub struct Peers {
    runtime: Option<Runtime>,
    tls: Option<Tls>,
    token: Option<Token>,
    peers: Mutex<HashMap<String, Arc<Peer>>>,
    counters: Counters,
}

impl Peers {
    /// Other nodes that prove themselves by certificates of an authority, and to which this one does by a token. Nothing is
    /// connected before it is asked.
    pub fn new(tls: Option<Tls>, token: Option<String>) -> Result<Self> {
        let token = token.as_deref().map(Token::new).transpose()?;
        let runtime = Some(runtime("hotset-ask", LOOKUPS)?);
        Ok(Self { runtime, tls, token, peers: Mutex::default(), counters: Counters::default() })
    }

    /// Asks the node at `host:port` for slots, and fills the place of each that it gives. A place has its sample's size, and
    /// holds what it may where a slot is not [`Given`](super::AnswerKind::Given). An error means that nothing came.
    pub fn fetch(
        &self,
        address: &str,
        wanted: &Wanted,
        deadline: Duration,
        places: &mut [&mut [u8]],
    ) -> Result<Vec<Given>> {
        if wanted.slots.len() != places.len() || places.len() > MOST_SLOTS {
            let (slots, places) = (wanted.slots.len(), places.len());
            return Err(Error::internal(format!(
                "{slots} slots and {places} places: there are to be as many, and at most {MOST_SLOTS}"
            )));
        }
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let by = Instant::now() + deadline;
        let mut filling = Filling::new(places, &self.counters);
        let done = self.peer(address).and_then(|peer| {
            let token = || self.token.as_ref().map(Token::header);
            let fetched = async {
                let first = peer.fetch(wanted, token(), by, &mut filling).await;
                match first {
                    // A connection that has broken since it was last used is made anew.
                    Err(Failure::Broken(_)) => peer.fetch(wanted, token(), by, &mut filling).await,
                    done => done,
                }
            };
            self.call(&peer, (&peer.gate, &peer.breaker), by, fetched)
        });
        match done {
            Err(error) if filling.answered() == 0 => {
                filling.finish();
                Err(error)
            }
            _ => Ok(filling.finish()),
        }
    }

    /// Asks the node at `host:port` something of the local protocol.
    pub fn ask(&self, address: &str, request: &[u8], deadline: Duration) -> Result<Vec<u8>> {
        if request.len() > LARGEST_ASK {
            return Err(Error::invalid(format!("a request of more than {LARGEST_ASK} bytes")));
        }
        let by = Instant::now() + deadline;
        let peer = self.peer(address)?;
        let token = self.token.as_ref().map(Token::header);
        let asked = async {
            match peer.ask(request, token, by).await {
                Ok(reply) => Ok(Ok(reply)),
                // What the other side said is an answer too.
                Err(status) => said(&status).map(Err).ok_or_else(|| Failure::from(status)),
            }
        };
        self.call(&peer, (&peer.asking, &peer.asking_breaker), by, asked)?
    }

    /// Forgets all nodes but those at these addresses.
    pub fn retain<'a>(&self, addresses: impl IntoIterator<Item = &'a str>) {
        let addresses: HashSet<&str> = addresses.into_iter().collect();
        let mut gone = Vec::new();
        self.peers().retain(|address, peer| {
            let stays = addresses.contains(address.as_str());
            if !stays {
                gone.push(Arc::clone(peer));
            }
            stays
        });
        // Connections are closed without the lock.
        drop(gone);
    }

    /// What happened so far.
    pub fn counters(&self) -> Counted {
        self.counters.read()
    }

    fn peers(&self) -> MutexGuard<'_, HashMap<String, Arc<Peer>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn runtime(&self) -> Result<&Runtime> {
        self.runtime.as_ref().ok_or_else(|| Error::internal("other nodes are asked no more"))
    }

    fn peer(&self, address: &str) -> Result<Arc<Peer>> {
        if let Some(peer) = self.peers().get(address) {
            return Ok(Arc::clone(peer));
        }
        let _entered = self.runtime()?.enter();
        let peer = Arc::new(Peer::new(address, self.tls.as_ref())?);
        // Another thread may have been faster.
        Ok(Arc::clone(self.peers().entry(address.to_owned()).or_insert(peer)))
    }

    /// Makes a call, by the deadline and if the node is asked now.
    fn call<T>(
        &self,
        peer: &Peer,
        (gate, breaker): (&Semaphore, &Breaker),
        by: Instant,
        call: impl Future<Output = std::result::Result<T, Failure>>,
    ) -> Result<T> {
        let address = &peer.address;
        let busy = |why: &str| {
            add(&self.counters.busy, 1);
            Error::unavailable(format!("the node at {address} {why}"))
        };
        let late = || Failure::Other(Status::deadline_exceeded("no answer by the deadline"));
        self.runtime()?.block_on(async {
            let Ok(Ok(_place)) = timeout_at(by.into(), gate.acquire()).await else {
                return Err(busy("has too many calls of this one"));
            };
            let Some(turn) = breaker.enter(Instant::now()) else {
                return Err(busy("has failed and is left alone for a while"));
            };
            add(&self.counters.requests, 1);
            let error = match timeout_at(by.into(), call).await.unwrap_or_else(|_| Err(late())) {
                Ok(answer) => {
                    turn.succeeded();
                    return Ok(answer);
                }
                Err(Failure::Busy) => return Err(busy("has too much to do")),
                Err(Failure::Refused) => {
                    add(&self.counters.refused, 1);
                    let why = "does not let this one in: `peer_token_file` is to be the same on all nodes";
                    Error::invalid(format!("the node at {address} {why}"))
                }
                Err(Failure::Broken(status) | Failure::Other(status)) => {
                    Error::unavailable(format!("the node at {address} fails: {}", reason(&status)))
                }
            };
            if turn.failed(Instant::now()) {
                tracing::warn!(%error, "another node fails: its samples are read from storage meanwhile");
            }
            Err(error)
        })
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.peers().clear();
        if let Some(runtime) = self.runtime.take() {
            // A name that is being looked up is not waited for.
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}

/// What the other side said to a request, if it is that which failed and not the way there.
fn said(status: &Status) -> Option<Error> {
    let kind = match status.code() {
        Code::InvalidArgument => Kind::Invalid,
        Code::FailedPrecondition => Kind::Changed,
        Code::NotFound => Kind::Lost,
        Code::Aborted => Kind::Unavailable,
        _ => return None,
    };
    Some(Error::new(kind, status.message()))
}
