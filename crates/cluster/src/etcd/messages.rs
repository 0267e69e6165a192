//! etcd's messages, and short ways to say the few things that are said in them.

#[allow(missing_docs, clippy::all, unreachable_pub)]
mod generated {
    tonic::include_proto!("etcdserverpb");
}

pub use generated::{Event, KeyValue, WatchResponse, event::EventType};

pub(super) use generated::auth_client::AuthClient;
pub(super) use generated::kv_client::KvClient;
pub(super) use generated::lease_client::LeaseClient;
pub(super) use generated::watch_client::WatchClient;
pub(super) use generated::{
    AuthenticateRequest, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, RangeRequest,
    TxnRequest, WatchRequest,
};

use generated::compare::{CompareTarget, TargetUnion};
use generated::request_op::Request;
use generated::watch_request::RequestUnion;
use generated::{DeleteRangeRequest, PutRequest, RequestOp, WatchCreateRequest};

/// What a transaction compares before it does anything.
#[derive(Debug, Clone)]
pub enum Compare {
    /// There is no such key.
    Absent(String),
    /// The key was last written at this revision.
    Revision(String, i64),
    /// The key was created at this revision, however often it was written since.
    Created(String, i64),
    /// The key is under this lease.
    Lease(String, i64),
}

/// What a transaction does.
#[derive(Debug, Clone)]
pub enum Operation {
    /// Writes a key under a lease; 0: under none.
    Put(String, Vec<u8>, i64),
    /// Writes a key, which stays under the lease it is under.
    Rewrite(String, Vec<u8>),
    /// Deletes a key.
    Delete(String),
}

impl From<Compare> for generated::Compare {
    fn from(compare: Compare) -> Self {
        let (key, target, value) = match compare {
            Compare::Absent(key) => (key, CompareTarget::Version, TargetUnion::Version(0)),
            Compare::Revision(key, revision) => (key, CompareTarget::Mod, TargetUnion::ModRevision(revision)),
            Compare::Created(key, revision) => {
                (key, CompareTarget::Create, TargetUnion::CreateRevision(revision))
            }
            Compare::Lease(key, lease) => (key, CompareTarget::Lease, TargetUnion::Lease(lease)),
        };
        Self { key: key.into(), target: target.into(), target_union: Some(value), ..Self::default() }
    }
}

impl From<Operation> for RequestOp {
    fn from(operation: Operation) -> Self {
        let request = match operation {
            Operation::Put(key, value, lease) => {
                Request::RequestPut(PutRequest { key: key.into(), value, lease, ..PutRequest::default() })
            }
            Operation::Rewrite(key, value) => Request::RequestPut(PutRequest {
                key: key.into(),
                value,
                ignore_lease: true,
                ..PutRequest::default()
            }),
            Operation::Delete(key) => Request::RequestDeleteRange(DeleteRangeRequest { key: key.into() }),
        };
        Self { request: Some(request) }
    }
}

impl WatchRequest {
    /// Asks for what happens to keys that begin with `prefix`, from a revision on.
    pub(super) fn of_prefix(prefix: &str, from: i64) -> Self {
        let create = WatchCreateRequest {
            key: prefix.into(),
            range_end: prefix_end(prefix.as_bytes()),
            start_revision: from,
        };
        Self { request_union: Some(RequestUnion::CreateRequest(create)) }
    }
}

/// The first key after all that begin with `prefix`; one zero byte, which is no end, after bytes that have no greater.
pub(super) fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let Some(last) = prefix.iter().rposition(|&byte| byte < u8::MAX) else { return vec![0] };
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    end
}

#[cfg(test)]
mod tests {
    use super::prefix_end;

    #[test]
    fn the_end_of_a_prefix_is_the_next_key_of_its_length() {
        assert_eq!(prefix_end(b"/hotset/a/"), b"/hotset/a0");
        assert_eq!(prefix_end(b"a\xff"), b"b");
        assert_eq!(prefix_end(b"\xff\xff"), b"\0");
        assert_eq!(prefix_end(b""), b"\0");
    }
}
