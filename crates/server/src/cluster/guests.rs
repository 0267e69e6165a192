//! Clients of other nodes, while this one is the home of their job.
//!
//! Each is a client of this node's service too. It leaves when its own node says so, or when that node leaves the cluster. Processes of
//! several hosts may have one number, so each has another here, above those that processes have. It follows from node and process, so
//! that a process whose node was started again, or whose job has another home now, is known to be the one that it was.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use hotset_core::{Error, Result};
use hotset_wire::nodes::{Forwarded, Noted, answer};
use hotset_wire::proto::{self, OpenDataset, Response, request, response};

use super::node::{At, Node};
use super::routing::job_of;
use crate::lock::Lock;
use crate::service::{Caller, Client};

/// The first number that no process has: theirs end at 2^22.
const FIRST_PROCESS: u32 = 1 << 31;

/// The most clients of which it is known that they have left.
const LEFT: usize = 1024;

/// A client of another node: the node, its start, and the client's number there.
pub(super) type GuestId = (String, String, u64);

/// All of them; `C` is what they are clients as.
pub(super) struct Guests<C = Client> {
    clients: Lock<HashMap<GuestId, Guest<C>>>,
    /// The newest start of each node.
    starts: Lock<HashMap<String, String>>,
    /// The last clients that have left, of which a request may still come that was sent before.
    left: Lock<VecDeque<GuestId>>,
}

struct Guest<C> {
    /// `None` while a request of it is worked on.
    client: Option<C>,
    gone: bool,
}

impl<C> Default for Guests<C> {
    fn default() -> Self {
        Self { clients: Lock::default(), starts: Lock::default(), left: Lock::default() }
    }
}

impl<C> Guests<C> {
    /// Does something as a guest, of which `connect` makes a client when it comes first. One request of it is worked on at a time.
    /// What became of the client, if it has gone meanwhile: it is to be disconnected.
    pub(super) fn with<T>(
        &self,
        id: &GuestId,
        process: u32,
        connect: impl FnOnce(u32) -> C,
        work: impl FnOnce(&mut C) -> T,
    ) -> Result<(T, Option<C>)> {
        let mut clients = self.clients.lock();
        let taken = loop {
            match clients.get_mut(id) {
                None if self.left.lock().contains(id) => {
                    return Err(Error::unavailable("the client has gone"));
                }
                None => break None,
                Some(Guest { gone: true, .. }) => return Err(Error::unavailable("the client has gone")),
                Some(guest) => match guest.client.take() {
                    Some(client) => break Some(client),
                    None => clients = clients.wait(),
                },
            }
        };
        let is_new = taken.is_none();
        if is_new {
            clients.insert(id.clone(), Guest { client: None, gone: false });
        }
        drop(clients);
        if is_new {
            self.starts.lock().insert(id.0.clone(), id.1.clone());
        }
        let mut client = taken.unwrap_or_else(|| connect(number(&id.0, process)));
        let done = work(&mut client);
        let mut clients = self.clients.lock();
        let left = match clients.get_mut(id) {
            Some(guest) if !guest.gone => {
                guest.client = Some(client);
                None
            }
            _ => {
                clients.remove(id);
                Some(client)
            }
        };
        clients.signal();
        Ok((done, left))
    }

    /// Takes a guest out that has left, as its node says; what it sent before and comes later is refused. Its client, unless a
    /// request of it is worked on, after which it goes.
    pub(super) fn leave(&self, id: &GuestId) -> Option<C> {
        {
            let mut left = self.left.lock();
            left.push_back(id.clone());
            if left.len() > LEFT {
                left.pop_front();
            }
        }
        self.see_off(id)
    }

    /// Takes a guest out of whose node nothing is heard. It may come again with its node.
    fn see_off(&self, id: &GuestId) -> Option<C> {
        let mut clients = self.clients.lock();
        let guest = clients.get_mut(id)?;
        guest.gone = true;
        let client = guest.client.take()?;
        clients.remove(id);
        Some(client)
    }

    /// Whether a client was here before, and has not gone.
    pub(super) fn has(&self, id: &GuestId) -> bool {
        self.clients.lock().get(id).is_some_and(|guest| !guest.gone)
    }

    /// Takes out the guests whose node has gone, or was started again.
    pub(super) fn leave_where(&self, gone: impl Fn(&str) -> bool) -> Vec<C> {
        let starts = self.starts.lock().clone();
        let left =
            |node: &str, start: &str| gone(node) || starts.get(node).is_some_and(|newest| newest != start);
        let ids: Vec<GuestId> = {
            let clients = self.clients.lock();
            clients.keys().filter(|(node, start, _)| left(node, start)).cloned().collect()
        };
        // An earlier start of a node does not come again; a node that was away does.
        let is_over = |id: &GuestId| starts.get(&id.0).is_some_and(|newest| *newest != id.1);
        ids.iter().filter_map(|id| if is_over(id) { self.leave(id) } else { self.see_off(id) }).collect()
    }
}

/// The number that a process of another node has here.
fn number(node: &str, process: u32) -> u32 {
    let digest = blake3::hash(format!("{node} {process}").as_bytes());
    digest.as_bytes()[..4].iter().fold(0, |number, &byte| number << 8 | u32::from(byte)) | FIRST_PROCESS
}

/// A guest while its request is worked on.
struct GuestCaller<'a> {
    node: &'a Node,
    of: &'a str,
}

impl Caller for GuestCaller<'_> {
    fn check(&mut self) -> Result<()> {
        self.node.check()?;
        if self.node.view().index_of(self.of).is_none() {
            return Err(Error::unavailable("the client's node has left the cluster"));
        }
        Ok(())
    }

    fn progress(&mut self, _: proto::Progress) {}
}

impl Node {
    /// Answers a request of another node's client.
    pub(super) fn serve_guest(
        self: &Arc<Self>,
        guest: &GuestId,
        process: u32,
        request: Option<request::Kind>,
        dataset: Option<OpenDataset>,
    ) -> Result<answer::Kind> {
        let unknown = || Error::invalid("a request of a kind that this node does not know: use one version");
        let (service, request) = (self.service()?, request.ok_or_else(unknown)?);
        let mut home = None;
        match &request {
            request::Kind::PutState(_) => {}
            request::Kind::OpenJob(asked) => match self.find_home_unless_between(&asked.job)? {
                Some(At::Here(fence)) => home = Some(fence),
                Some(At::There(_)) | None => return Ok(answer::Kind::Moved(Noted {})),
            },
            other => {
                let job = job_of(other).ok_or_else(unknown)?;
                if self.home_job(job).is_none() || !self.clients.guests.has(guest) {
                    return Ok(answer::Kind::Moved(Noted {}));
                }
            }
        }
        let mut caller = GuestCaller { node: self, of: &guest.0 };
        let connect = |process| service.connect_guest(process, guest.0.clone());
        let (done, gone) = self.clients.guests.with(guest, process, connect, |client| -> Result<_> {
            if let Some(dataset) = dataset {
                service.open_dataset_here(client.session(), dataset, &mut |_| caller.check())?;
            }
            match (request, home) {
                (request::Kind::OpenJob(asked), Some(fence)) => {
                    let job = asked.job.clone();
                    let opened = self.open_here(&service, client, asked, fence)?;
                    Ok((response::Kind::JobOpened(opened).into(), self.home_job(&job)))
                }
                (request, _) => {
                    let reply = service.handle_here(client, request, &mut caller)?;
                    Ok((reply.ok_or_else(unknown)?, None))
                }
            }
        })?;
        if let Some(client) = gone {
            service.disconnect_here(&client);
        }
        let (reply, opened) = done?;
        let memory = reply.descriptors.into_iter().map(bytes_of).collect::<Result<_>>()?;
        Ok(answer::Kind::Forwarded(Forwarded {
            response: Some(Response { kind: Some(reply.message) }),
            memory,
            opened: opened.map(|job| job.opened()),
        }))
    }
}

/// What lies in memory that came with a reply.
pub(super) fn bytes_of(memory: OwnedFd) -> Result<Vec<u8>> {
    let failed =
        |error: std::io::Error| Error::internal(format!("memory of an answer cannot be read: {error}"));
    let file = File::from(memory);
    let mut bytes = vec![0; file.metadata().map_err(failed)?.len() as usize];
    file.read_exact_at(&mut bytes, 0).map_err(failed)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_the_number_that_it_had_and_no_other_process_has_it() {
        assert_eq!(number("gpu-1", 4711), number("gpu-1", 4711));
        let numbers: std::collections::HashSet<u32> = ["gpu-1", "gpu-2"]
            .iter()
            .flat_map(|node| (1..1000).map(|process| number(node, process)))
            .collect();
        assert_eq!(numbers.len(), 1998);
        assert!(numbers.iter().all(|&number| number >= FIRST_PROCESS));
    }
    #[test]
    fn a_client_that_has_left_does_not_come_again_and_one_whose_node_was_away_does() {
        let (guests, id) =
            (Guests::<u64>::default(), |client| ("gpu-1".to_owned(), "start".to_owned(), client));
        let come = |client| guests.with(&id(client), 7, |_| client, |_| ()).map(drop);
        come(1).unwrap();
        assert_eq!(guests.leave_where(|node| node == "gpu-1").len(), 1);
        come(1).unwrap();
        assert!(guests.leave(&id(1)).is_some() && guests.leave(&id(2)).is_none());
        for client in [1, 2] {
            assert!(come(client).unwrap_err().message.contains("has gone"), "its request came late");
        }
        come(3).unwrap();
    }
}
