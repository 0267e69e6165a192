//! Where both ends are: two network namespaces that a pair of interfaces joins, or loopback.

use std::path::Path;
use std::process::{Child, Command, Stdio};

const HOSTS: [&str; 2] = ["10.98.0.1", "10.98.0.2"];
const LINK: &str = "joined";

/// Namespaces with the id of this process, which end with it.
pub(super) struct Place {
    namespaces: Option<[String; 2]>,
}

impl Place {
    pub(super) fn new() -> Self {
        let names = ["serves", "asks"].map(|role| format!("hotset-bench-{}-{role}", std::process::id()));
        if !ip(&["netns", "add", &names[0]]) {
            return Self { namespaces: None };
        }
        let [serves, asks] = &names;
        let made = ip(&["netns", "add", asks])
            && ip(&["-n", serves, "link", "add", LINK, "type", "veth", "peer", "name", LINK, "netns", asks])
            && names.iter().zip(HOSTS).all(|(name, host)| {
                ip(&["-n", name, "address", "add", &format!("{host}/24"), "dev", LINK])
                    && ip(&["-n", name, "link", "set", LINK, "up"])
                    && ip(&["-n", name, "link", "set", "lo", "up"])
            });
        let place = Self { namespaces: Some(names) };
        assert!(made, "namespaces cannot be joined");
        place
    }

    pub(super) fn name(&self) -> &'static str {
        match self.namespaces {
            Some(_) => "between two network namespaces",
            None => "over loopback: network namespaces take root and `ip`",
        }
    }

    /// The address of the end that serves.
    pub(super) fn host(&self) -> &'static str {
        if self.namespaces.is_some() { HOSTS[0] } else { "127.0.0.1" }
    }

    /// Starts the end that serves.
    pub(super) fn serving(&self, own: &Path, folder: &Path) -> Child {
        let mut command = self.within(0, own);
        command.arg("serve").arg(folder).arg(self.host()).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().expect("a process")
    }

    /// Runs the end that asks.
    pub(super) fn asking(&self, own: &Path, folder: &Path, ports: &str) {
        let status = self
            .within(1, own)
            .arg("ask")
            .arg(folder)
            .arg(self.host())
            .arg(ports)
            .status()
            .expect("a process");
        assert!(status.success(), "the end that asks has failed");
    }

    fn within(&self, at: usize, own: &Path) -> Command {
        let Some(names) = &self.namespaces else { return Command::new(own) };
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &names[at]]).arg(own);
        command
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for name in self.namespaces.iter().flatten() {
            ip(&["netns", "delete", name]);
        }
    }
}

fn ip(arguments: &[&str]) -> bool {
    let status = Command::new("ip").args(arguments).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
