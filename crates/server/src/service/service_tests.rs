//! Requests and replies without a socket.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;

use hotset_wire::proto::{
    BeginEpoch, GetBatch, GetMemory, GetStats, Hello, MemoryKind, OpenDataset, PutState, Released, Report,
};

use super::bench::{Bench, Caller, bytes};
use super::*;
use crate::access::Quota;

#[test]
fn a_job_is_trained_without_a_socket() {
    let bench = Bench::new();
    let client = bench.client(1);
    assert_eq!(bench.open_dataset(&client).samples, 3);
    bench.open(&client, bench.asked("exp")).unwrap();
    let ids = bench.begin(&client, "exp", 0).unwrap();

    let index = |id: u32| hotset_core::Index { epoch: Some(0), sample: id.into() }.into_raw();
    let asked = GetBatch {
        job: "exp".into(),
        indices: ids.iter().map(|&id| index(id)).collect(),
        wait_ms: 60_000,
        ..GetBatch::default()
    };
    let reply = bench.ask(&client, asked).unwrap();
    let response::Kind::Batch(batch) = reply.message else { panic!("{:?}", reply.message) };
    let segment = |number| reply.segments.iter().find(|new| new.segment == number).unwrap();
    let file = |number| File::from(segment(number).descriptor.try_clone().unwrap());
    for (at, &id) in ids.iter().enumerate() {
        let mut sample = vec![0; batch.length[at] as usize];
        file(batch.segment[at]).read_exact_at(&mut sample, batch.offset[at]).unwrap();
        assert_eq!(sample, [b'a' + id as u8]);
    }
    let released = Released { leases: vec![batch.lease] };
    let none = bench.service.handle(
        &mut client.borrow_mut(),
        request::Kind::Released(released),
        &mut Caller::default(),
    );
    assert!(none.unwrap().is_none(), "it is never answered");

    bench.report("exp", 0, 1, ids[0]);
    let reply = bench.ask(&client, GetStats { job: "exp".into() }).unwrap();
    let response::Kind::Stats(stats) = reply.message else { panic!("{:?}", reply.message) };
    let epoch = &stats.jobs[0].epochs[0];
    assert_eq!((epoch.planned, epoch.served, epoch.reported), (3, 3, 1));
    assert_eq!(stats.server.unwrap().leases, 0);
}

#[test]
fn a_state_goes_from_one_service_to_another_in_parts() {
    let bench = Bench::new();
    let client = bench.client(1);
    bench.open(&client, bench.asked("exp")).unwrap();
    bench.train(&client, "exp", 0);
    let (scores, asked) = (bench.scores("exp"), bench.asked("other"));
    let memory = GetMemory { job: "exp".into(), kind: MemoryKind::State.into() };
    let state = bytes(bench.ask(&client, memory).unwrap());

    let other = Bench::new();
    let client = other.client(1);
    for part in state.chunks(state.len() / 3) {
        other.ask(&client, PutState { part: part.to_vec() }).unwrap();
    }
    let settings =
        asked.settings.map(|settings| proto::JobSettings { dataset: other.dataset.clone(), ..settings });
    let asked = proto::OpenJob { restore: true, settings, ..asked };
    let refused = other.open(&client, asked.clone()).unwrap_err();
    assert!(refused.message.contains("the checkpoint is of dataset"), "{refused}");

    // The same dataset, on another server.
    let other = bench.killed();
    let client = other.client(2);
    for part in state.chunks(state.len() / 3) {
        other.ask(&client, PutState { part: part.to_vec() }).unwrap();
    }
    let asked = proto::OpenJob { restore: true, ..other.asked("other") };
    assert_eq!(other.open(&client, asked).unwrap().resumed, Some(0));
    assert_eq!(other.scores("other"), scores);
}

/// Begins the first epoch of `exp` in that order; what was put before is it, or is not mentioned.
fn begin_in(bench: &Bench, client: &RefCell<Client>, order: &[u32], put: bool) -> Result<Reply> {
    let digest = hotset_core::sampling::order_digest(order.iter().copied());
    let asked = BeginEpoch { job: "exp".into(), world: 1, order: Some(digest), put, ..BeginEpoch::default() };
    bench.ask(client, asked)
}

fn put(bench: &Bench, client: &RefCell<Client>, order: &[u32]) {
    for id in order {
        bench.ask(client, PutState { part: id.to_le_bytes().to_vec() }).unwrap();
    }
}

#[test]
fn an_order_is_put_in_parts_where_it_is_wanted_and_is_there_after_a_kill() {
    let bench = Bench::new();
    let given = |bench: &Bench| {
        let settings = bench.asked("exp").settings;
        let settings = settings.map(|settings| proto::JobSettings { strategy: "given".into(), ..settings });
        proto::OpenJob { settings, ..bench.asked("exp") }
    };
    let wants = |reply: &Reply| match &reply.message {
        response::Kind::EpochBegun(begun) => begun.wants_order,
        other => panic!("{other:?}"),
    };
    let order = [2, 0, 2, 1];
    let client = bench.client(1);
    let run = bench.open(&client, given(&bench)).unwrap().run;
    let reply = begin_in(&bench, &client, &order, false).unwrap();
    assert!(wants(&reply) && reply.descriptors.is_empty(), "it was not given yet");
    put(&bench, &client, &order[1..]);
    let refused = begin_in(&bench, &client, &order, true).err().unwrap();
    assert!(refused.message.contains("did not arrive as it was sent"), "{refused}");
    put(&bench, &client, &order);
    let begun = begin_in(&bench, &client, &order, true).unwrap();
    let slots = order.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>();
    assert!(!wants(&begun) && bytes(begun) == slots);

    let bench = bench.killed();
    let client = bench.client(2);
    bench.open(&client, proto::OpenJob { run, ..given(&bench) }).unwrap();
    assert_eq!(bytes(begin_in(&bench, &client, &order, false).unwrap()), slots, "it has the order itself");
}

#[test]
fn a_caller_that_has_gone_ends_its_request_and_one_that_stays_hears_how_far_it_is() {
    let bench = Bench::new();
    let client = bench.client(1);
    let asked = || {
        let place = bench.data.path().to_str().unwrap().to_owned();
        request::Kind::OpenDataset(OpenDataset { place, layout: "files".into(), ..OpenDataset::default() })
    };
    let mut caller = Caller { gone: true, ..Caller::default() };
    let gone = bench.service.handle(&mut client.borrow_mut(), asked(), &mut caller);
    assert!(gone.is_err_and(|error| error.message.contains("has gone")) && caller.heard.is_empty());
    caller.gone = false;
    bench.service.handle(&mut client.borrow_mut(), asked(), &mut caller).unwrap();
    assert_eq!(caller.heard.last().map(|progress| progress.done), Some(3));
}

#[test]
fn what_cannot_be_answered_is_an_error_and_the_client_asks_on() {
    let bench = Bench::new();
    let client = bench.client(1);
    assert!(bench.ask(&client, Hello::default()).is_err());
    assert!(bench.ask(&client, BeginEpoch { job: "none".into(), ..BeginEpoch::default() }).is_err());
    let refused = bench.ask(&client, Report { job: "none".into(), ..Report::default() });
    assert_eq!(refused.err().unwrap().kind, hotset_core::Kind::Lost);
    bench.open(&client, bench.asked("exp")).unwrap();
}

#[test]
fn jobs_and_caches_beyond_a_quota_are_refused_by_its_name_and_joining_costs_nothing() {
    let bench = Bench::within(Quota { jobs: Some(1), ..Quota::default() });
    let (client, stranger) = (bench.client(1), bench.stranger());
    bench.open(&client, bench.asked("one")).unwrap();
    bench.open(&client, bench.asked("one")).unwrap();
    let refused = bench.open(&client, bench.asked("two")).unwrap_err();
    assert!(refused.message.contains("`--quota jobs=`"), "{refused}");
    bench.open_dataset(&stranger);
    bench.open(&stranger, bench.asked("two")).unwrap();
    assert_eq!(bench.service.stats("").server.unwrap().refused["jobs"], 1);

    let bench = Bench::within(Quota { memory: Some(1), ..Quota::default() });
    let asked = proto::OpenJob {
        settings: bench
            .asked("one")
            .settings
            .map(|settings| proto::JobSettings { cache: "1MiB".into(), ..settings }),
        ..bench.asked("one")
    };
    let refused = bench.open(&bench.client(1), asked).unwrap_err();
    assert!(refused.message.contains("`--quota memory=`"), "{refused}");
}

#[test]
fn nothing_is_written_for_another_user() {
    let bench = Bench::new();
    let packed = |job: &str| {
        let packages = bench.state.path().join("packages").to_str().unwrap().to_owned();
        let settings = bench.asked(job).settings.map(|settings| proto::JobSettings { packages, ..settings });
        proto::OpenJob { settings, ..bench.asked(job) }
    };
    bench.open(&bench.client(1), packed("own")).unwrap();
    let stranger = bench.stranger();
    bench.open_dataset(&stranger);
    let refused = bench.open(&stranger, packed("theirs")).unwrap_err();
    assert!(refused.message.contains("`packages=`"), "{refused}");
    bench.open(&stranger, bench.asked("theirs")).unwrap();
}
