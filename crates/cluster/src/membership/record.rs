//! What a node's key in etcd says: JSON, so that a person can read it, and unknown fields of later versions are passed by.

use hotset_core::cluster::Node;
use hotset_core::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::etcd::KeyValue;
use crate::etcd::is_plain;

/// The longest name of a node.
const LONGEST: usize = 253;

/// A node as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name, which no other node has.
    #[serde(skip)]
    pub name: String,
    /// Where other nodes reach it: `host:port`.
    pub address: String,
    /// The bytes that it gives to the cache.
    pub capacity: u64,
    /// The rack it is in, if that was said.
    #[serde(default)]
    pub rack: Option<String>,
    /// Whether it is about to leave.
    #[serde(default)]
    pub draining: bool,
    /// The version of Hotset that it runs.
    #[serde(default)]
    pub version: String,
}

impl Member {
    /// Refuses a name that cannot be part of a key.
    pub(super) fn check(&self) -> Result<()> {
        if self.name.is_empty() || self.name.len() > LONGEST || !self.name.bytes().all(is_plain) {
            return Err(Error::invalid(format!(
                "`node` cannot be `{}`: give 1 to {LONGEST} letters, digits, `-`, `_` or `.`",
                self.name
            )));
        }
        Ok(())
    }

    /// The value of its key.
    pub(super) fn write(&self) -> Vec<u8> {
        // Texts, numbers and no maps: nothing here can fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// A node, from its key; `None` for a key that no node has written.
pub(super) fn read(prefix: &str, key: &KeyValue) -> Option<(Node, Member)> {
    let name = std::str::from_utf8(&key.key).ok()?.strip_prefix(prefix)?.to_owned();
    let member = match serde_json::from_slice::<Member>(&key.value) {
        Ok(member) => Member { name, ..member },
        Err(error) => {
            tracing::warn!(node = name, %error, "a key of etcd is not a node's and is passed by");
            return None;
        }
    };
    let Member { name, address, capacity, rack, draining, .. } = member.clone();
    let revision = key.mod_revision.unsigned_abs();
    Some((Node { name, address, capacity, rack, draining, revision }, member))
}

#[cfg(test)]
mod tests {
    use super::{Member, read};
    use crate::etcd::KeyValue;

    fn key(name: &str, value: &[u8]) -> KeyValue {
        KeyValue {
            key: format!("/hotset/c/nodes/{name}").into(),
            value: value.to_vec(),
            mod_revision: 7,
            ..KeyValue::default()
        }
    }

    #[test]
    fn a_member_comes_back_and_fields_of_later_versions_are_passed_by() {
        let member = Member {
            name: "gpu-1".into(),
            address: "10.1.0.2:7070".into(),
            capacity: 1 << 30,
            rack: Some("r4".into()),
            draining: true,
            version: "0.1.0".into(),
        };
        let (node, back) = read("/hotset/c/nodes/", &key("gpu-1", &member.write())).unwrap();
        assert_eq!((node.name.as_str(), node.revision, node.draining), ("gpu-1", 7, true));
        assert_eq!(back, member);
        let later = br#"{"address":"a:1","capacity":5,"colour":"red"}"#;
        assert_eq!(read("/hotset/c/nodes/", &key("b", later)).map(|(node, _)| node.capacity), Some(5));
        assert!(read("/hotset/c/nodes/", &key("c", b"hello")).is_none());
    }

    #[test]
    fn names_that_cannot_be_keys_are_refused() {
        let named = |name: &str| Member {
            name: name.into(),
            ..read("/", &key("x", b"{}")).map_or_else(
                || Member {
                    name: String::new(),
                    address: String::new(),
                    capacity: 0,
                    rack: None,
                    draining: false,
                    version: String::new(),
                },
                |(_, member)| member,
            )
        };
        assert!(named("gpu-1.rack_2").check().is_ok());
        for wrong in ["", "a/b", "a b", &"x".repeat(300)] {
            assert!(named(wrong).check().is_err(), "{wrong}");
        }
    }
}
