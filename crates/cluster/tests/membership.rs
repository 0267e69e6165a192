//! Memberships in a real etcd. Ignored where it is not installed: `make test` installs it and runs them.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hotset_cluster::membership::{drain, nodes};
use hotset_cluster::{Address, Member, Membership};
use hotset_core::Kind;
use hotset_core::cluster::View;

use common::{Etcd, wait_until};

const TTL: Duration = Duration::from_secs(2);

fn member(name: &str, port: u16) -> Member {
    Member {
        name: name.into(),
        address: format!("127.0.0.1:{port}"),
        capacity: 1 << 30,
        rack: None,
        draining: false,
        version: "test".into(),
    }
}

fn join(address: &Address, name: &str, port: u16) -> Membership {
    Membership::join(address.clone(), member(name, port), TTL, Box::new(|_| {})).expect("joined")
}

fn names(view: &View) -> Vec<&str> {
    view.nodes().iter().map(|node| node.name.as_str()).collect()
}

#[test]
#[ignore = "needs etcd"]
fn nodes_that_come_and_go_are_seen_by_all_with_one_view_id() {
    let etcd = Etcd::start(1);
    let address = etcd.address("research");
    let heard: Arc<Mutex<Vec<u64>>> = Arc::default();
    let told = Arc::clone(&heard);
    let listener = Box::new(move |view: &Arc<View>| told.lock().unwrap().push(view.id()));
    let a = Membership::join(address.clone(), member("a", 1), TTL, listener).expect("joined");
    assert!(a.is_alive());
    let b = join(&address, "b", 2);
    wait_until("a sees b", || names(&a.view()) == ["a", "b"]);
    assert_eq!(a.view().id(), b.view().id());
    assert_eq!(nodes(&address).unwrap().len(), 2);
    let elsewhere = join(&etcd.address("other"), "c", 3);
    assert_eq!(names(&elsewhere.view()), ["c"], "another cluster in the same etcd");
    drop(b);
    wait_until("a sees b leave", || names(&a.view()) == ["a"]);
    let heard = heard.lock().unwrap();
    assert_eq!(heard.len(), 3, "one view for each change");
    assert_eq!(heard.last(), Some(&a.view().id()));
}

#[test]
#[ignore = "needs etcd"]
fn a_node_that_starts_again_takes_its_key_over_and_another_of_its_name_is_refused() {
    let etcd = Etcd::start(1);
    let address = etcd.address("research");
    let first = join(&address, "a", 1);
    let before = first.view().id();
    // One that was killed leaves its key: a second life at the same address does not wait for it to run out.
    let again = join(&address, "a", 1);
    assert_ne!(again.view().id(), before, "another life is another view");
    let refused = Membership::join(address.clone(), member("a", 2), TTL, Box::new(|_| {}));
    let error = refused.err().expect("refused");
    assert_eq!(error.kind, Kind::Invalid);
    assert!(error.message.contains("has a node `a` at 127.0.0.1:1"), "{error}");
    assert!(error.message.contains("`node`"), "{error}");
}

#[test]
#[ignore = "needs etcd"]
fn a_key_that_is_deleted_is_put_again() {
    let etcd = Etcd::start(1);
    let address = etcd.address("research");
    let a = join(&address, "a", 1);
    let before = a.view().id();
    etcd.control(&["del", "/hotset/research/nodes/a"]);
    wait_until("it has joined again", || a.view().id() != before && a.is_alive() && a.view().len() == 1);
}

#[test]
#[ignore = "needs etcd"]
fn draining_is_written_by_another_and_taken_over_and_outlives_a_lost_lease() {
    let etcd = Etcd::start(1);
    let address = etcd.address("research");
    let a = join(&address, "a", 1);
    drain(&address, "a", true).unwrap();
    let draining = |view: &View| view.nodes().first().is_some_and(|node| node.draining);
    wait_until("it drains", || draining(&a.view()));
    let before = a.view().id();
    etcd.control(&["del", "/hotset/research/nodes/a"]);
    wait_until("it has joined again", || a.view().len() == 1 && a.view().id() != before);
    assert!(draining(&a.view()));
    drain(&address, "a", false).unwrap();
    wait_until("it takes part again", || !draining(&a.view()));
    let unknown = drain(&address, "z", true).expect_err("there is none");
    assert!(unknown.message.contains("no node `z`"), "{unknown}");
}

#[test]
#[ignore = "needs etcd"]
fn a_member_of_etcd_that_dies_is_passed_by_and_no_lease_is_lost() {
    let mut etcd = Etcd::start(3);
    let address = etcd.address("research");
    let (a, b) = (join(&address, "a", 1), join(&address, "b", 2));
    wait_until("both are seen", || a.view().len() == 2 && b.view().len() == 2);
    let before = a.view().id();
    for at in 0..etcd.members() {
        etcd.kill(at);
        let c = join(&address, "c", 3);
        wait_until("a third is seen by both", || a.view().len() == 3 && b.view().len() == 3);
        drop(c);
        wait_until("it is seen to leave", || a.view().len() == 2 && b.view().len() == 2);
        assert!(a.is_alive() && b.is_alive());
        etcd.begin(at);
        wait_until("the member is back", || {
            let own = Address { endpoints: vec![address.endpoints[at].clone()], ..address.clone() };
            nodes(&own).is_ok()
        });
    }
    assert_eq!(a.view().id(), before, "none of them had to join again");
}

#[test]
#[ignore = "needs etcd"]
fn without_etcd_a_node_knows_that_it_may_be_no_member_and_joins_again_later() {
    let mut etcd = Etcd::start(1);
    let address = etcd.address("research");
    let a = join(&address, "a", 1);
    let before = a.view();
    etcd.kill(0);
    wait_until("its lease may have run out", || !a.is_alive());
    assert_eq!(a.view().id(), before.id(), "the last view stays until there is another");
    let refused = Membership::join(address.clone(), member("b", 2), TTL, Box::new(|_| {}));
    let error = refused.err().expect("refused");
    assert_eq!(error.kind, Kind::Unavailable);
    assert!(error.message.contains("etcd does not answer"), "{error}");
    etcd.begin(0);
    wait_until("it is a member again", || a.is_alive() && a.view().len() == 1);
}

#[test]
#[ignore = "needs etcd"]
fn users_prove_who_they_are_and_a_forgotten_token_is_asked_for_again() {
    let etcd = Etcd::start(1);
    for arguments in [
        &["user", "add", "root:top"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "ada:secret"],
        &["role", "add", "cache"],
        &["role", "grant-permission", "cache", "--prefix=true", "readwrite", "/hotset/research/"],
        &["user", "grant-role", "ada", "cache"],
        &["auth", "enable"],
    ] {
        etcd.control(arguments);
    }
    let user = |name: &str, password: &str, cluster: &str| Address {
        user: Some(name.into()),
        password: Some(password.into()),
        ..etcd.address(cluster)
    };
    let a = join(&user("ada", "secret", "research"), "a", 1);
    assert!(a.is_alive());
    let said = |address: &Address| nodes(address).map_err(|error| (error.kind, error.message));
    assert_eq!(said(&user("ada", "secret", "research")).map(|nodes| nodes.len()), Ok(1));
    for wrong in
        [user("ada", "guessed", "research"), user("ada", "secret", "other"), etcd.address("research")]
    {
        let (kind, message) = said(&wrong).expect_err("refused");
        assert_eq!(kind, Kind::Invalid, "{message}");
        assert!(!message.contains("secret"), "{message}");
    }
    // Another password ends all tokens of the user.
    etcd.control(&["--user", "root:top", "role", "grant-permission", "cache", "read", "/elsewhere"]);
    let before = a.view().id();
    drain(&user("ada", "secret", "research"), "a", true).unwrap();
    wait_until("it drains", || a.view().id() != before);
    assert!(a.is_alive());
}
