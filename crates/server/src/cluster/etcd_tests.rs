//! Nodes over a real etcd.

use std::time::Duration;

use hotset_cluster::Etcd;

use super::homes::{Homes, Keeper, Settled};

#[path = "../../../cluster/tests/common/mod.rs"]
#[allow(dead_code, reason = "what other tests need of it")]
pub(super) mod etcd;

const TTL: Duration = Duration::from_secs(60);

/// A node's part in a cluster: its homes, and a lease of its own.
struct Part {
    name: &'static str,
    homes: Homes,
    runtime: tokio::runtime::Runtime,
    etcd: Etcd,
}

impl Part {
    fn new(etcd: &etcd::Etcd, name: &'static str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let entered = runtime.enter();
        let own = Etcd::new(&etcd.address("homes")).unwrap();
        drop(entered);
        Self { name, homes: Homes::watch(&etcd.address("homes")).unwrap(), runtime, etcd: own }
    }

    fn lease(&self) -> i64 {
        self.runtime.block_on(self.etcd.grant(TTL)).unwrap()
    }

    fn revoke(&self, lease: i64) {
        self.runtime.block_on(self.etcd.revoke(lease)).unwrap();
    }

    fn settles(&self, fence: i64, lease: i64, digest: u64) -> bool {
        self.homes.settle(("exp", "exp"), fence, Settled { epoch: 3, digest }, lease).unwrap()
    }
}

#[test]
#[ignore = "takes an etcd, which `make test` installs"]
fn of_two_nodes_that_both_believe_themselves_home_one_can_hand_out_a_plan() {
    let etcd = etcd::Etcd::start(1);
    let [a, b] = ["a", "b"].map(|name| Part::new(&etcd, name));
    let (lease_a, lease_b) = (a.lease(), b.lease());
    let first = a.homes.claim("exp", a.name, lease_a).unwrap();
    assert_eq!((first.node.as_str(), Homes::is_under(&first, lease_a)), ("a", true));
    let seen = b.homes.claim("exp", b.name, lease_b).unwrap();
    assert_eq!((seen.node.as_str(), seen.fence), ("a", first.fence), "it has a home");
    assert!(a.settles(first.fence, lease_a, 1));

    // The first one's lease ends and it does not hear of it.
    a.revoke(lease_a);
    let lease_a = a.lease();
    let second = b.homes.claim("exp", b.name, lease_b).unwrap();
    assert_eq!((second.node.as_str(), second.fence > first.fence), ("b", true));
    for digest in 0..10 {
        assert!(!a.settles(first.fence, lease_a, digest), "it is home no more");
        assert!(b.settles(second.fence, lease_b, digest));
    }

    // What goes back and forth leaves one of the two, whichever claims first.
    let (mut fences, mut leases) = ([first.fence, second.fence], [lease_a, lease_b]);
    let parts = [&a, &b];
    for turn in 0..6 {
        let [out, other] = [1 - turn % 2, turn % 2];
        parts[out].revoke(leases[out]);
        leases[out] = parts[out].lease();
        let home = parts[other].homes.claim("exp", parts[other].name, leases[other]).unwrap();
        assert_eq!(home.node, parts[other].name);
        fences[other] = home.fence;
        let settled = [0, 1].map(|part| parts[part].settles(fences[part], leases[part], part as u64));
        assert_eq!(settled, [other == 0, other == 1]);
    }
}

#[test]
#[ignore = "takes an etcd, which `make test` installs"]
fn a_node_that_lets_go_of_a_job_lets_go_of_its_own_key_alone() {
    let etcd = etcd::Etcd::start(1);
    let [a, b] = ["a", "b"].map(|name| Part::new(&etcd, name));
    let lease_a = a.lease();
    let first = a.homes.claim("exp/plan-1", a.name, lease_a).unwrap();
    a.homes.release("exp/plan-1", first.fence, &[], false).unwrap();
    let second = b.homes.claim("exp/plan-1", b.name, b.lease()).unwrap();
    assert_eq!(second.node, "b");
    a.homes.release("exp/plan-1", first.fence, &[], false).unwrap();
    etcd::wait_until("both see the home", || {
        [&a, &b].iter().all(|part| part.homes.of("exp/plan-1").is_some_and(|home| home == second))
    });
    assert_eq!((b.homes.at("b"), b.homes.at("a")), (vec!["exp/plan-1".to_owned()], vec![]));
}

#[test]
#[ignore = "takes an etcd, which `make test` installs"]
fn only_the_node_that_keeps_the_last_copy_becomes_home_after_another() {
    let etcd = etcd::Etcd::start(1);
    let [a, b, c] = ["a", "b", "c"].map(|name| Part::new(&etcd, name));
    let (lease_a, lease_b, lease_c) = (a.lease(), b.lease(), c.lease());
    let job = ("exp", "exp-iis");
    let home = a.homes.claim("exp", a.name, lease_a).unwrap();
    let keeper = |node: &str, generation| Keeper { node: node.into(), opening: "one".into(), generation };
    let told = |keeper: Option<&Keeper>| a.homes.put_keeper(job, home.fence, keeper).unwrap();
    let succeeds = |part: &Part, lease, opening, generation| {
        part.homes.succeed(job, (opening, generation), part.name, lease).unwrap()
    };
    // `c` keeps a copy until epoch 3, and `b` from then on.
    assert!(told(Some(&keeper("c", 1))) && told(Some(&keeper("b", 3))));
    let seen = succeeds(&b, lease_b, "one", 4).unwrap();
    assert_eq!((seen.node.as_str(), seen.fence), ("a", home.fence), "it lives");
    a.revoke(lease_a);
    assert!(!told(Some(&keeper("c", 9))), "it is home no more");
    assert_eq!(succeeds(&c, lease_c, "one", 2), None, "its copy is an old one");
    assert_eq!(succeeds(&b, lease_b, "one", 2), None, "so is this");
    assert_eq!(succeeds(&b, lease_b, "another", 4), None, "it is of another start of the job");
    let next = succeeds(&b, lease_b, "one", 3).unwrap();
    assert_eq!((next.node.as_str(), next.fence > home.fence), ("b", true));
    assert_eq!(succeeds(&b, lease_b, "one", 3), Some(next.clone()), "once more, if the answer was lost");
    // Where no node keeps a copy none becomes home, and nothing stays of a job that has ended.
    assert!(b.homes.put_keeper(job, next.fence, None).unwrap());
    b.revoke(lease_b);
    assert_eq!(succeeds(&c, lease_c, "one", 9), None);
    let home = c.homes.claim("exp", c.name, lease_c).unwrap();
    assert!(c.homes.put_keeper(job, home.fence, Some(&keeper("b", 1))).unwrap());
    assert!(c.homes.settle(job, home.fence, Settled { epoch: 3, digest: 4 }, lease_c).unwrap());
    c.homes.release("exp", home.fence, &["exp-iis"], true).unwrap();
    assert_eq!(c.homes.claim("exp", c.name, lease_c).unwrap(), home, "another of its name goes on");
    c.homes.release("exp", home.fence, &[], false).unwrap();
    let left = c.runtime.block_on(c.etcd.list("/hotset/homes/")).unwrap().keys;
    let left: Vec<String> = left.into_iter().map(|key| String::from_utf8(key.key).unwrap()).collect();
    assert!(left.is_empty(), "{left:?}");
}
