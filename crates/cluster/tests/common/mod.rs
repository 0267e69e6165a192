//! A real etcd on loopback, for one test.
#![allow(clippy::expect_used, reason = "a test may fail")]

use std::fs::File;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hotset_cluster::Address;

/// etcd's members, which end with the test.
pub(crate) struct Etcd {
    members: Vec<Member>,
    _folder: tempfile::TempDir,
}

struct Member {
    client: u16,
    arguments: Vec<String>,
    log: PathBuf,
    process: Option<Child>,
}

/// Waits until something is so.
pub(crate) fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Etcd {
    /// Starts so many members, and waits until they answer.
    pub(crate) fn start(members: usize) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let held: Vec<[TcpListener; 2]> = (0..members)
            .map(|_| [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port")))
            .collect();
        let port = |listener: &TcpListener| listener.local_addr().expect("an address").port();
        let ports: Vec<[u16; 2]> = held.iter().map(|[client, peer]| [port(client), port(peer)]).collect();
        drop(held);
        let all: Vec<String> = ports
            .iter()
            .enumerate()
            .map(|(at, [_, peer])| format!("m{at}=http://127.0.0.1:{peer}"))
            .collect();
        let member = |(at, &[client, peer]): (usize, &[u16; 2])| {
            let arguments = [
                ("name", format!("m{at}")),
                ("data-dir", folder.path().join(format!("m{at}")).display().to_string()),
                ("listen-client-urls", format!("http://127.0.0.1:{client}")),
                ("advertise-client-urls", format!("http://127.0.0.1:{client}")),
                ("listen-peer-urls", format!("http://127.0.0.1:{peer}")),
                ("initial-advertise-peer-urls", format!("http://127.0.0.1:{peer}")),
                ("initial-cluster", all.join(",")),
                ("heartbeat-interval", "50".into()),
                ("election-timeout", "500".into()),
            ];
            let arguments = arguments.into_iter().map(|(name, value)| format!("--{name}={value}")).collect();
            Member { client, arguments, log: folder.path().join(format!("m{at}.log")), process: None }
        };
        let members = ports.iter().enumerate().map(member).collect();
        let mut etcd = Self { members, _folder: folder };
        (0..etcd.members.len()).for_each(|at| etcd.begin(at));
        let address = etcd.address("started");
        wait_until("etcd answers", || hotset_cluster::membership::nodes(&address).is_ok());
        etcd
    }

    /// Starts one member, which was killed or never begun.
    pub(crate) fn begin(&mut self, at: usize) {
        let member = &mut self.members[at];
        let log = File::options().create(true).append(true).open(&member.log).expect("a log");
        let process = Command::new("etcd")
            .args(&member.arguments)
            .env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        member.process = Some(process.expect("etcd is missing: `make etcd` installs it"));
    }

    /// Kills one member.
    pub(crate) fn kill(&mut self, at: usize) {
        if let Some(mut process) = self.members[at].process.take() {
            process.kill().expect("a member that can be killed");
            process.wait().expect("a member that has ended");
        }
    }

    /// How many members there are.
    pub(crate) fn members(&self) -> usize {
        self.members.len()
    }

    /// The address of a cluster of that name.
    pub(crate) fn address(&self, name: &str) -> Address {
        let endpoints: Vec<String> =
            self.members.iter().map(|member| format!("127.0.0.1:{}", member.client)).collect();
        Address::parse(&format!("etcd://{}/{name}", endpoints.join(","))).expect("an address")
    }

    /// Runs `etcdctl`.
    pub(crate) fn control(&self, arguments: &[&str]) {
        let endpoint = format!("127.0.0.1:{}", self.members[0].client);
        let done = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &endpoint])
            .args(arguments)
            .stdout(Stdio::null())
            .status();
        assert!(done.expect("etcdctl is missing: `make etcd` installs it").success(), "{arguments:?}");
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|at| self.kill(at));
    }
}
