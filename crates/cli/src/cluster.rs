//! The settings that make a server a node of a cluster, shared by the commands that speak to one.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use hotset_cluster::Address;
use hotset_cluster::etcd::Tls;
use hotset_cluster::peers::ServerTls;
use hotset_core::cluster::PlacementKind;
use hotset_core::{Error, Result};
use hotset_server::{ClusterOptions, PeerToken};
use serde::Deserialize;

use crate::settings::Settings;

/// Where the password of etcd's user is.
const PASSWORD: &str = "HOTSET_ETCD_PASSWORD";

/// Whether something is done.
#[derive(Debug, Clone, Copy, Default, Deserialize, ValueEnum, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Switch {
    #[default]
    On,
    Off,
}

/// Where a cluster's etcd is.
#[derive(Debug, Default, Args)]
pub(crate) struct EtcdSettings {
    /// Be a node of this cluster: etcd's hosts, and a name that all nodes of the cluster give. The password of a user is read from
    /// $HOTSET_ETCD_PASSWORD
    #[arg(long, env = "HOTSET_CLUSTER", value_name = "etcd://[USER@]HOST:PORT[,...]/NAME", help_heading = HEADING)]
    pub(crate) cluster: Option<String>,
    /// Speak TLS with etcd, whose certificate an authority in this file has signed
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    etcd_authority: Option<PathBuf>,
    /// The certificate that etcd asks of its clients, where it asks one
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    etcd_certificate: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    etcd_key: Option<PathBuf>,
}

/// This node's place in it.
#[derive(Debug, Default, Args)]
pub(crate) struct NodeSettings {
    /// The name of this node, which no other has and which it keeps when it restarts [default: this host's]
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    node: Option<String>,
    /// Where to listen for other nodes. Beyond loopback that takes a token and TLS, the --peer files
    #[arg(long, value_name = "HOST:PORT", help_heading = HEADING)]
    listen: Option<String>,
    /// Where other nodes reach this one, as its certificate names it [default: where it listens]
    #[arg(long, value_name = "HOST:PORT", help_heading = HEADING)]
    advertise: Option<String>,
    /// The rack of this node: with nodes of its own rack a rank exchanges samples first
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    rack: Option<String>,
    /// A file with what all nodes of the cluster know: at least 16 characters
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    peer_token_file: Option<PathBuf>,
    /// The certificate of this node, and those between it and the authority, as PEM
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    peer_certificate: Option<PathBuf>,
    /// The key of that certificate, as PEM
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    peer_key: Option<PathBuf>,
    /// The authority that signs the certificates of all nodes, as PEM
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    peer_authority: Option<PathBuf>,
    /// Whether ranks exchange samples within blocks, so that most are on their own node [default: on]
    #[arg(long, value_name = "on|off", help_heading = HEADING)]
    locality: Option<Switch>,
    /// Which node keeps a sample, the same on all nodes of a cluster: the one that a hash gives it to, or whoever reads it first, by
    /// a directory of 1,000,000 samples at most [default: hash]
    #[arg(long, value_name = "hash|directory", help_heading = HEADING)]
    placement: Option<String>,
}

const HEADING: &str = "One cache over several hosts";

impl EtcdSettings {
    /// The cluster's address, if one is named; flags win over the file.
    pub(crate) fn address(&self, file: &Settings) -> Result<Option<Address>> {
        let named = self.cluster.as_ref().filter(|cluster| !cluster.is_empty()).or(file.cluster.as_ref());
        let Some(named) = named else { return Ok(None) };
        let mut address = Address::parse(named)?;
        if let Some(user) = &address.user {
            let password = std::env::var(PASSWORD).ok().filter(|password| !password.is_empty());
            let missing =
                || Error::invalid(format!("etcd's user `{user}` needs a password: put it into {PASSWORD}"));
            address.password = Some(password.ok_or_else(missing)?);
        }
        let certificate = self.etcd_certificate.as_ref().or(file.etcd_certificate.as_ref());
        let key = self.etcd_key.as_ref().or(file.etcd_key.as_ref());
        let authority = self.etcd_authority.as_ref().or(file.etcd_authority.as_ref());
        address.tls = tls("etcd", authority, certificate, key)?;
        Ok(Some(address))
    }
}

impl NodeSettings {
    /// This node of a cluster; flags win over the file.
    pub(crate) fn options(&self, address: Address, file: &Settings) -> Result<ClusterOptions> {
        let node = self.node.clone().or_else(|| file.node.clone()).unwrap_or_else(host_name);
        let listen = self.listen.as_ref().or(file.listen.as_ref());
        let listen = listen.ok_or_else(|| {
            Error::invalid(
                "`cluster` needs `listen`: the HOST:PORT of this host at which the other nodes reach this one",
            )
        })?;
        let certificate = self.peer_certificate.as_ref().or(file.peer_certificate.as_ref());
        let key = self.peer_key.as_ref().or(file.peer_key.as_ref());
        let authority = self.peer_authority.as_ref().or(file.peer_authority.as_ref());
        let token = self.peer_token_file.as_ref().or(file.peer_token_file.as_ref());
        let token = token.map(|path| read(path, "peer_token_file")).transpose()?;
        let server = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(ServerTls {
                certificate: read(certificate, "peer_certificate")?,
                key: read(key, "peer_key")?,
                clients: authority.map(|path| read(path, "peer_authority")).transpose()?,
            }),
            _ => return Err(together("peer_certificate", "peer_key")),
        };
        let locality = self.locality.or(file.locality).unwrap_or_default();
        Ok(ClusterOptions {
            address,
            node,
            listen: resolved(listen)?,
            advertise: self.advertise.clone().or_else(|| file.advertise.clone()),
            rack: self.rack.clone().or_else(|| file.rack.clone()),
            token: token.map(|token| PeerToken(token.trim().to_owned())),
            certificate: server,
            authority: tls("peer", authority, certificate, key)?,
            locality: locality == Switch::On,
            placement: self.placement(file)?,
        })
    }
}

impl NodeSettings {
    fn placement(&self, file: &Settings) -> Result<PlacementKind> {
        let named = self.placement.as_deref().or(file.placement.as_deref());
        named.map_or(Ok(PlacementKind::default()), str::parse)
    }
}

/// What it takes to know the other side, from files of settings that begin with `whose`.
fn tls(
    whose: &str,
    authority: Option<&PathBuf>,
    certificate: Option<&PathBuf>,
    key: Option<&PathBuf>,
) -> Result<Option<Tls>> {
    let read = |path: &PathBuf, what: &str| read(path, &format!("{whose}_{what}"));
    let identity = match (certificate, key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some((read(certificate, "certificate")?, read(key, "key")?)),
        _ => return Err(together(&format!("{whose}_certificate"), &format!("{whose}_key"))),
    };
    match authority {
        Some(authority) => Ok(Some(Tls { authority: read(authority, "authority")?, identity })),
        None if identity.is_some() => {
            Err(together(&format!("{whose}_certificate"), &format!("{whose}_authority")))
        }
        None => Ok(None),
    }
}

fn together(one: &str, other: &str) -> Error {
    Error::invalid(format!("`{one}` and `{other}` go together: give both, or neither"))
}

fn read(path: &Path, setting: &str) -> Result<String> {
    std::fs::read_to_string(path)
        .map_err(|error| Error::invalid(format!("cannot read `{setting}` (`{}`): {error}", path.display())))
}

fn resolved(listen: &str) -> Result<SocketAddr> {
    let wrong = |why: String| {
        Error::invalid(format!("`listen` cannot be `{listen}`: {why}; give it as `host:port`, of this host"))
    };
    let mut found = listen.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    found.next().ok_or_else(|| wrong("it has no address".into()))
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> Address {
        Address::parse("etcd://127.0.0.1/a").unwrap()
    }

    fn file(text: &str) -> Settings {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn flags_win_over_the_file_and_a_node_is_named_after_its_host() {
        let file = file("cluster = \"etcd://127.0.0.1/file\"\nlisten = \"127.0.0.1:1\"\nlocality = \"off\"");
        let flags = EtcdSettings { cluster: Some("etcd://127.0.0.1/flag".into()), ..EtcdSettings::default() };
        assert_eq!(flags.address(&file).unwrap().unwrap().name, "flag");
        assert_eq!(EtcdSettings::default().address(&file).unwrap().unwrap().name, "file");
        assert_eq!(EtcdSettings::default().address(&Settings::default()).unwrap(), None);
        let flags = NodeSettings { listen: Some("localhost:2".into()), ..NodeSettings::default() };
        let options = flags.options(address(), &file).unwrap();
        assert_eq!((options.listen.port(), options.locality, options.node), (2, false, host_name()));
    }

    #[test]
    fn a_placement_is_one_of_two_in_flag_and_file() {
        let placement = |flag: Option<&str>, written: &str| {
            let flags = NodeSettings { placement: flag.map(Into::into), ..NodeSettings::default() };
            flags.placement(&file(written))
        };
        assert_eq!(placement(None, "").unwrap(), PlacementKind::Hash);
        assert_eq!(placement(None, "placement = \"directory\"").unwrap(), PlacementKind::Directory);
        assert_eq!(placement(Some("hash"), "placement = \"directory\"").unwrap(), PlacementKind::Hash);
        let error = placement(Some("etcd"), "").unwrap_err();
        assert!(error.message.contains("`placement`") && error.message.contains("`etcd`"), "{error}");
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = NodeSettings::default().options(address(), &Settings::default()).unwrap_err();
        assert!(error.message.contains("`listen`"), "{error}");
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.pem");
        std::fs::write(&path, "text").unwrap();
        let flags = || NodeSettings { listen: Some("127.0.0.1:0".into()), ..NodeSettings::default() };
        let without = NodeSettings { peer_certificate: Some(path.clone()), ..flags() };
        let error = without.options(address(), &Settings::default()).unwrap_err();
        assert!(error.message.contains("`peer_certificate` and `peer_key`"), "{error}");
        let absent = NodeSettings { peer_token_file: Some(place.path().join("none")), ..flags() };
        let error = absent.options(address(), &Settings::default()).unwrap_err();
        assert!(error.message.contains("`peer_token_file`"), "{error}");
        let flags = NodeSettings { peer_token_file: Some(path), ..flags() };
        let token = flags.options(address(), &Settings::default()).unwrap().token;
        assert_eq!(token.map(|token| token.0).as_deref(), Some("text"));
    }
}
