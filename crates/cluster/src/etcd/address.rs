//! Where a cluster's etcd is: `etcd://[user@]host:port[,host:port...]/name`.
//!
//! A password is no part of it, since command lines are read by others: it comes from a variable of the environment or
//! from a file. With a certificate of an authority, connections are encrypted and etcd must prove who it is.

use std::fmt;

use hotset_core::{Error, Result};

/// etcd's usual port.
const PORT: u16 = 2379;
/// The longest name of a cluster.
const LONGEST: usize = 64;

/// An etcd cluster, and the name of the Hotset cluster that lives in it.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// `host:port` of each endpoint.
    pub endpoints: Vec<String>,
    /// The name of the Hotset cluster.
    pub name: String,
    /// The user, where etcd asks for one.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<String>,
    /// What TLS needs; `None` speaks without.
    pub tls: Option<Tls>,
}

/// Certificates, as PEM texts.
#[derive(Clone, PartialEq, Eq)]
pub struct Tls {
    /// Whose signature makes a certificate valid.
    pub authority: String,
    /// The certificate of this node and its key, where the other side asks for one.
    pub identity: Option<(String, String)>,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "etcds" } else { "etcd" };
        write!(f, "{scheme}://{}/{}", self.endpoints.join(","), self.name)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tls {{ identity: {} }}", self.identity.is_some())
    }
}

impl Address {
    /// Reads an address, without password and certificates.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            Error::invalid(format!(
                "`cluster` cannot be `{}`: {why}; give it as `etcd://host:2379,host:2379/name`",
                without_password(text)
            ))
        };
        let rest = text.strip_prefix("etcd://").ok_or_else(|| wrong("it does not begin with `etcd://`"))?;
        let (hosts, name) = rest.split_once('/').ok_or_else(|| wrong("the cluster has no name"))?;
        let (user, hosts) = match hosts.rsplit_once('@') {
            None => (None, hosts),
            Some((user, _)) if user.contains(':') => {
                return Err(wrong(
                    "a password on a command line is seen by others: put it into HOTSET_ETCD_PASSWORD",
                ));
            }
            Some((user, hosts)) => (Some(user.to_owned()), hosts),
        };
        if name.is_empty() || name.len() > LONGEST || !name.bytes().all(is_plain) {
            return Err(wrong("the cluster's name is to have 1 to 64 letters, digits, `-`, `_` or `.`"));
        }
        let endpoint = |host: &str| {
            let (host, port) = match host.rsplit_once(':') {
                Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
                _ => (host, PORT),
            };
            (!host.is_empty() && port > 0).then(|| format!("{host}:{port}"))
        };
        let endpoints = hosts.split(',').map(endpoint).collect::<Option<Vec<String>>>();
        let endpoints = endpoints.ok_or_else(|| wrong("an endpoint is no `host:port`"))?;
        Ok(Self { endpoints, name: name.to_owned(), user, password: None, tls: None })
    }

    /// The key under which all of this cluster lies, to which a part is added.
    pub fn prefix(&self, part: &str) -> String {
        format!("/hotset/{}/{part}/", self.name)
    }
}

/// Whether a name may have this byte: it becomes part of a key.
pub(crate) fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

fn without_password(text: &str) -> String {
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((before, hosts))) if before.contains("://") => {
            let user = before.rsplit_once("://").map_or(before, |(_, user)| user);
            let user = user.split_once(':').map_or(user, |(user, _)| user);
            format!("{scheme}://{user}@{hosts}")
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn endpoints_user_and_name_are_read() -> hotset_core::Result<()> {
        let address = Address::parse("etcd://ada@etcd-0:2379,etcd-1,[fd00::1]:4001/research")?;
        assert_eq!(address.endpoints, ["etcd-0:2379", "etcd-1:2379", "[fd00::1]:4001"]);
        assert_eq!((address.user.as_deref(), address.name.as_str()), (Some("ada"), "research"));
        assert_eq!(address.prefix("nodes"), "/hotset/research/nodes/");
        Ok(())
    }

    #[test]
    fn what_is_wrong_is_said_and_no_password_is_repeated() {
        for (text, why) in [
            ("10.0.0.1:2379/a", "does not begin with"),
            ("etcd://host:2379", "has no name"),
            ("etcd://host:2379/", "name is to have"),
            ("etcd://host:2379/a b", "name is to have"),
            ("etcd://host:x/a", "is no `host:port`"),
            ("etcd://,host/a", "is no `host:port`"),
            ("etcd://ada:secret@host/a", "HOTSET_ETCD_PASSWORD"),
        ] {
            let message = Address::parse(text).map(|_| String::new()).unwrap_or_else(|error| error.message);
            assert!(message.contains(why), "{text}: {message}");
            assert!(!message.contains("secret"), "{message}");
        }
    }
}
