//! What makes a server a node of a cluster.

use std::net::SocketAddr;

use hotset_cluster::Address;
use hotset_cluster::etcd::Tls;
use hotset_cluster::peers::ServerTls;
use hotset_core::cluster::PlacementKind;
use hotset_core::{Error, Result};

/// The cluster, and this node's place in it.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// Where etcd is, and the cluster's name.
    pub address: Address,
    /// The name of this node.
    pub node: String,
    /// Where to listen for other nodes.
    pub listen: SocketAddr,
    /// Where other nodes reach it, `host:port`, if not there.
    pub advertise: Option<String>,
    /// The rack it is in.
    pub rack: Option<String>,
    /// What all nodes of the cluster know.
    pub token: Option<PeerToken>,
    /// What the listener proves itself with.
    pub certificate: Option<ServerTls>,
    /// What others prove themselves with.
    pub authority: Option<Tls>,
    /// Whether ranks exchange samples, so that most are their own node's.
    pub locality: bool,
    /// By which rule samples have their owners; one for the whole cluster.
    pub placement: PlacementKind,
}

/// A token, which is never shown.
#[derive(Clone)]
pub struct PeerToken(pub String);

impl std::fmt::Debug for PeerToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PeerToken")
    }
}

impl ClusterOptions {
    /// Where other nodes are told to reach a node that listens at `bound`.
    pub(super) fn advertised(&self, bound: SocketAddr) -> Result<String> {
        match &self.advertise {
            Some(advertise) => match advertise.rsplit_once(':') {
                Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                    Ok(advertise.clone())
                }
                _ => Err(Error::invalid(format!(
                    "`advertise` cannot be `{advertise}`: give it as `host:port`, as other nodes reach this one"
                ))),
            },
            None if bound.ip().is_unspecified() => Err(Error::invalid(format!(
                "`listen` is {bound}, which is no address that other nodes can reach: give one with `advertise` (HOST:PORT)"
            ))),
            None => Ok(bound.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(advertise: Option<&str>) -> ClusterOptions {
        ClusterOptions {
            address: Address::parse("etcd://127.0.0.1/a").unwrap(),
            node: "a".into(),
            listen: "127.0.0.1:0".parse().unwrap(),
            advertise: advertise.map(Into::into),
            rack: None,
            token: Some(PeerToken("0123456789abcdef".into())),
            certificate: None,
            authority: None,
            locality: true,
            placement: PlacementKind::Hash,
        }
    }

    #[test]
    fn a_node_is_reached_where_it_listens_unless_another_address_is_given() {
        let bound = "127.0.0.1:7070".parse().unwrap();
        assert_eq!(options(None).advertised(bound).unwrap(), "127.0.0.1:7070");
        assert_eq!(options(Some("gpu-1:7071")).advertised(bound).unwrap(), "gpu-1:7071");
        for wrong in ["gpu-1", ":7070", "gpu-1:x"] {
            let error = options(Some(wrong)).advertised(bound).unwrap_err();
            assert!(error.message.contains("`advertise`"), "{error}");
        }
        let everywhere = options(None).advertised("0.0.0.0:7070".parse().unwrap()).unwrap_err();
        assert!(everywhere.message.contains("`advertise`"), "{everywhere}");
        assert!(!format!("{:?}", options(None)).contains("0123456789"));
    }
}
