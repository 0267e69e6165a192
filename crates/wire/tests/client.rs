//! A client against a small server in a thread: what it believes, what it refuses, and when leases end.

mod stage;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use hotset_core::{Error, Kind};
use hotset_wire::proto::request::Kind as Asked;
use hotset_wire::proto::{
    self, Batch, DatasetOpened, EpochBegun, Failure, JobClosed, LabelKind, Progress, Reported, Segment,
    Segments, Welcome,
};
use hotset_wire::{Client, EndsPage, PROTOCOL};
use stage::{Stage, WAIT, batch, get, idle, memory};

#[test]
fn hello_is_answered_with_the_servers_instance() {
    let stage = Stage::new(|_| ());
    let client = stage.client();
    assert_eq!((client.welcome().instance.as_str(), client.welcome().pid), ("instance", 7));
    assert!(!client.closed());
}

#[test]
fn another_protocol_is_refused_naming_both() {
    let stage = Stage::silent(|mut actor| {
        assert!(matches!(actor.next(), Some(Asked::Hello(hello)) if hello.protocol == PROTOCOL));
        actor.say(Welcome { protocol: 99, version: "9.9".into(), ..Welcome::default() });
    });
    let error = stage.connect().unwrap_err();
    assert_eq!(error.kind, Kind::Invalid);
    assert!(error.message.contains(&format!("`{PROTOCOL}`")) && error.message.contains("`99`"), "{error}");
}

#[test]
fn a_path_without_a_server_is_unavailable_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("none.sock");
    let error = Client::connect(&path, 1, WAIT, &mut idle()).unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable);
    assert!(error.message.contains("none.sock"), "{error}");
    let long = directory.path().join("n".repeat(200));
    assert_eq!(Client::connect(&long, 1, WAIT, &mut idle()).unwrap_err().kind, Kind::Invalid);
}

#[test]
fn a_failure_of_the_server_comes_out_as_it_is_and_leaves_the_connection_open() {
    let failure = Error::changed("`a.jpg` has `5` bytes, `4` were listed").of_sample(3, "a.jpg");
    let sent = failure.clone();
    let stage = Stage::new(move |mut actor| {
        actor.next();
        actor.say(Failure::from(sent));
        actor.next();
        actor.say(JobClosed {});
    });
    let client = stage.client();
    assert_eq!(client.get_batch(get(1), &mut idle()).unwrap_err(), failure);
    assert!(!client.closed());
    client.close_job(proto::CloseJob { job: "j".into(), moves: false }, WAIT, &mut idle()).unwrap();
}

#[test]
fn progress_goes_to_the_callback_before_the_answer() {
    let stage = Stage::new(|mut actor| {
        actor.next();
        for done in 1..4 {
            actor.say(Progress { what: "listing".into(), done });
        }
        actor.say(DatasetOpened { samples: 3, ..DatasetOpened::default() });
    });
    let mut seen = Vec::new();
    let opened =
        stage.client().open_dataset(proto::OpenDataset::default(), WAIT, &mut idle(), &mut |progress| {
            seen.push(progress.done);
            Ok(())
        });
    assert_eq!((opened.unwrap().samples, seen), (3, vec![1, 2, 3]));
}

#[test]
fn a_batch_shows_the_bytes_of_its_segments_after_server_and_client_are_gone() {
    let stage = Stage::new(|mut actor| {
        actor.next();
        actor.segments(&[(4, b"abcdefgh"), (9, b"0123456789")]);
        let mut answer = batch(1, &[(9, 2, 3), (4, 0, 8), (4, 8, 0), (9, 9, 1)]);
        answer.label = vec![-1, 0, 1, 2];
        answer.set_label_kind(LabelKind::Whole);
        actor.say(answer);
    });
    let client = stage.client();
    let got = client.get_batch(get(4), &mut idle()).unwrap();
    stage.join();
    drop(client);
    let samples: Vec<&[u8]> = (0..got.len()).map(|position| got.get(position).unwrap()).collect();
    assert_eq!(samples, [b"234".as_slice(), b"abcdefgh", b"", b"9"]);
    assert_eq!((got.labels.values.as_slice(), got.lease.mappings.len()), ([-1, 0, 1, 2].as_slice(), 2));
    assert!(got.get(4).is_none());
}

#[test]
fn places_outside_what_was_sent_are_refused_and_close_the_connection() {
    let cases: [(&str, Batch); 7] = [
        ("beyond the end", batch(1, &[(4, 6, 3)])),
        ("far beyond the end", batch(1, &[(4, u64::MAX, 1)])),
        ("a length that wraps", batch(1, &[(4, 2, u64::MAX)])),
        ("an unknown segment", batch(1, &[(5, 0, 1)])),
        ("too many entries", batch(1, &[(4, 0, 1), (4, 1, 1)])),
        ("no entries", batch(1, &[])),
        ("too many labels", Batch { label: vec![1, 2], ..batch(1, &[(4, 0, 1)]) }),
    ];
    for (case, answer) in cases {
        let stage = Stage::new(move |mut actor| {
            actor.next();
            actor.segments(&[(4, b"abcdefgh")]);
            actor.say(answer);
            assert!(actor.next().is_none(), "the connection stays open");
        });
        let client = stage.client();
        let error = client.get_batch(get(1), &mut idle()).unwrap_err();
        assert_eq!(error.kind, Kind::Internal, "{case}: {error}");
        assert!(client.closed(), "{case}");
        assert_eq!(client.get_batch(get(1), &mut idle()).unwrap_err().kind, Kind::Unavailable);
        stage.join();
    }
}

#[test]
fn a_segment_without_its_seal_or_its_length_is_refused() {
    for (seals, length) in [(rustix::fs::SealFlags::GROW, 8), (rustix::fs::SealFlags::SHRINK, 9)] {
        let stage = Stage::new(move |mut actor| {
            actor.next();
            let memory = memory(b"abcdefgh", seals);
            let message = Segments { segments: vec![Segment { segment: 4, length }] };
            actor.say_with(message, &[&memory]);
        });
        assert_eq!(stage.client().get_batch(get(1), &mut idle()).unwrap_err().kind, Kind::Internal);
    }
}

#[test]
fn a_dropped_segment_is_forgotten_but_its_batch_stays() {
    let stage = Stage::new(|mut actor| {
        actor.next();
        actor.segments(&[(4, b"abcdefgh")]);
        actor.say(Batch { dropped: vec![4], ..batch(1, &[(4, 0, 8)]) });
        actor.next();
        actor.say(batch(2, &[(4, 0, 8)]));
    });
    let client = stage.client();
    let got = client.get_batch(get(1), &mut idle()).unwrap();
    assert!(client.get_batch(get(1), &mut idle()).unwrap_err().message.contains("segment `4`"));
    assert_eq!(got.get(0).unwrap(), b"abcdefgh");
}

#[test]
fn a_lease_ends_with_its_last_clone_and_not_before() {
    let (heard, hears) = mpsc::channel();
    let stage = Stage::new(move |mut actor| {
        actor.next();
        actor.segments(&[(4, b"abcdefgh")]);
        actor.say(batch(31, &[(4, 0, 8)]));
        while let Some(asked) = actor.next() {
            if let Asked::Report(_) = asked {
                actor.say(Reported::default());
            }
            heard.send(asked).unwrap();
        }
    });
    let client = stage.client();
    let got = client.get_batch(get(1), &mut idle()).unwrap();
    let kept = std::sync::Arc::clone(&got.lease);
    drop(got);
    // Had the lease ended, that would have been told before this.
    client.report(proto::Report::default(), WAIT, &mut idle()).unwrap();
    assert!(matches!(hears.recv_timeout(WAIT).unwrap(), Asked::Report(_)));
    drop(kept);
    let Asked::Released(released) = hears.recv_timeout(WAIT).unwrap() else { panic!("another request") };
    assert_eq!(released.leases, [31]);
}

#[test]
fn a_closed_client_keeps_its_socket_until_the_last_lease_ends() {
    let (look, looks) = mpsc::channel::<()>();
    let (found, finds) = mpsc::channel();
    let stage = Stage::new(move |mut actor| {
        actor.next();
        actor.segments(&[(4, b"abcdefgh")]);
        actor.say(batch(31, &[(4, 0, 8)]));
        while looks.recv_timeout(WAIT).is_ok() {
            found.send(actor.hung_up()).unwrap();
        }
        assert!(actor.next().is_none());
    });
    let hung_up = || {
        look.send(()).unwrap();
        finds.recv_timeout(WAIT).unwrap()
    };
    let client = stage.client();
    let got = client.get_batch(get(1), &mut idle()).unwrap();
    client.close();
    assert!(client.closed());
    drop(client);
    assert!(!hung_up());
    drop(got);
    assert!(hung_up());
    drop(look);
    stage.join();
}

#[test]
fn a_lease_that_ends_during_another_threads_call_is_told_before_the_next() {
    let (heard, hears) = mpsc::channel();
    let (answer, answers) = mpsc::channel::<()>();
    let stage = Stage::new(move |mut actor| {
        actor.next();
        actor.segments(&[(4, b"abcdefgh")]);
        actor.say(batch(31, &[(4, 0, 8)]));
        actor.next();
        heard.send(None).unwrap();
        answers.recv_timeout(WAIT).unwrap();
        actor.say(Reported::default());
        while let Some(asked) = actor.next() {
            heard.send(Some(asked)).unwrap();
            actor.say(JobClosed {});
        }
    });
    let client = stage.client();
    let got = client.get_batch(get(1), &mut idle()).unwrap();
    thread::scope(|scope| {
        let reporter = scope.spawn(|| client.report(proto::Report::default(), WAIT, &mut idle()));
        assert!(hears.recv_timeout(WAIT).unwrap().is_none());
        // While the call waits for an answer: were this to wait for the call, none would ever be sent.
        drop(got);
        answer.send(()).unwrap();
        reporter.join().unwrap().unwrap();
    });
    let Some(Asked::Released(released)) = hears.recv_timeout(WAIT).unwrap() else {
        panic!("another request")
    };
    assert_eq!(released.leases, [31]);
}

#[test]
fn the_end_of_one_lease_waits_for_the_next_call_unless_the_server_asks_for_it() {
    let (heard, hears) = mpsc::channel();
    let (page, descriptor) = EndsPage::create().unwrap();
    let stage = Stage::silent(move |mut actor| {
        actor.next();
        actor.say_with(Welcome { protocol: PROTOCOL, ends: true, ..Welcome::default() }, &[&descriptor]);
        let mut lease = 30;
        while let Some(asked) = actor.next() {
            match &asked {
                Asked::GetBatch(_) => {
                    lease += 1;
                    if lease == 31 {
                        actor.segments(&[(4, b"abcdefgh")]);
                    }
                    actor.say(batch(lease, &[(4, 0, 8)]));
                }
                Asked::Released(released) => heard.send(released.leases.clone()).unwrap(),
                _ => {
                    heard.send(Vec::new()).unwrap();
                    actor.say(Reported::default());
                }
            }
        }
    });
    let client = stage.client();
    let next = || client.get_batch(get(1), &mut idle()).unwrap();
    let hear = || hears.recv_timeout(WAIT).unwrap();
    drop(next());
    assert_eq!(page.noted(), 31);
    client.report(proto::Report::default(), WAIT, &mut idle()).unwrap();
    assert_eq!([hear(), hear()], [vec![31], vec![]], "it goes before the next call");
    let two = [next(), next()];
    drop(two);
    assert_eq!(hear(), [32, 33], "more than one is told at once");
    page.set_urgent(true);
    drop(next());
    assert_eq!(hear(), [34], "and so is each that the server asks for");
    page.set_urgent(false);
    drop(next());
    assert_eq!(page.noted(), 35);
    client.close();
    assert!(hears.recv_timeout(WAIT).is_err(), "a connection that is closed ends all of its leases");
    stage.join();
}

#[test]
fn calls_of_several_threads_take_turns() {
    let stage = Stage::new(|mut actor| {
        while let Some(Asked::Report(report)) = actor.next() {
            actor.say(Reported { accepted: report.upto, rejected: 0 });
        }
    });
    let client = stage.client();
    thread::scope(|scope| {
        for thread in 0..4u64 {
            let client = &client;
            scope.spawn(move || {
                for upto in (thread * 1000)..(thread * 1000 + 200) {
                    let report = proto::Report { upto, ..proto::Report::default() };
                    assert_eq!(client.report(report, WAIT, &mut idle()).unwrap().accepted, upto);
                }
            });
        }
    });
}

#[test]
fn a_call_inside_a_call_of_the_same_thread_is_an_error_not_a_deadlock() {
    let stage = Stage::new(|mut actor| {
        actor.next();
        actor.say(Progress::default());
        actor.say(DatasetOpened::default());
    });
    let client = stage.client();
    let mut inner = None;
    client
        .open_dataset(proto::OpenDataset::default(), WAIT, &mut idle(), &mut |_| {
            inner = Some(client.stats(proto::GetStats::default(), WAIT, &mut idle()));
            Ok(())
        })
        .unwrap();
    assert_eq!(inner.unwrap().unwrap_err().kind, Kind::Invalid);
}

#[test]
fn an_interrupted_call_closes_the_connection_and_gives_the_interruption() {
    let stage = Stage::new(|mut actor| {
        actor.next();
        assert!(actor.next().is_none());
    });
    let client = stage.client();
    let error = client.get_batch(get(1), &mut || Err(Error::internal("ctrl-c"))).unwrap_err();
    assert_eq!(error.message, "ctrl-c");
    assert!(client.closed());
    stage.join();
}

#[test]
fn a_call_that_runs_out_of_time_closes_the_connection_and_names_itself() {
    let stage = Stage::new(|mut actor| {
        actor.next();
        assert!(actor.next().is_none());
    });
    let client = stage.client();
    let error = client.stats(proto::GetStats::default(), Duration::from_millis(50), &mut idle()).unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable);
    assert!(error.message.contains("`stats`") && error.message.contains("within 0.050 s"), "{error}");
    assert!(client.closed());
    stage.join();
}

#[test]
fn closing_ends_a_call_of_another_thread() {
    let (began, begins) = mpsc::channel();
    let stage = Stage::new(move |mut actor| {
        actor.next();
        began.send(()).unwrap();
        assert!(actor.next().is_none());
    });
    let client = stage.client();
    thread::scope(|scope| {
        let call = scope.spawn(|| client.stats(proto::GetStats::default(), WAIT, &mut idle()));
        begins.recv_timeout(WAIT).unwrap();
        client.close();
        assert_eq!(call.join().unwrap().unwrap_err().kind, Kind::Unavailable);
    });
    stage.join();
}

#[test]
fn a_server_that_dies_between_or_inside_frames_went_away() {
    for half in [false, true] {
        let stage = Stage::new(move |mut actor| {
            actor.next();
            if half {
                actor.say_half(Reported::default());
            }
        });
        let client = stage.client();
        let error = client.report(proto::Report::default(), WAIT, &mut idle()).unwrap_err();
        assert_eq!(error.kind, Kind::Unavailable);
        assert!(error.message.ends_with("went away") && error.message.contains("server.sock"), "{error}");
        assert!(client.closed());
    }
}

#[test]
fn the_answer_to_another_question_closes_the_connection() {
    let stage = Stage::new(|mut actor| {
        actor.next();
        actor.say(JobClosed {});
    });
    let client = stage.client();
    assert_eq!(client.stats(proto::GetStats::default(), WAIT, &mut idle()).unwrap_err().kind, Kind::Internal);
    assert!(client.closed());
}

#[test]
fn a_batch_says_how_long_ago_the_last_one_of_its_job_was() {
    let (tell, told) = mpsc::channel();
    let stage = Stage::new(move |mut actor| {
        while let Some(next) = actor.next() {
            // Batches that were dropped are told of too.
            let Asked::GetBatch(asked) = next else { continue };
            tell.send(asked.since_us).unwrap();
            match asked.wait_ms {
                0 => actor.say(Failure::from(Error::invalid("no"))),
                _ => actor.say(batch(0, &[])),
            }
        }
    });
    let client = stage.client();
    let ask = |request| {
        let answered = client.get_batch(request, &mut idle()).is_ok();
        (answered, told.recv().unwrap())
    };
    assert_eq!(ask(get(0)), (true, None), "the first has none before it");
    thread::sleep(Duration::from_millis(5));
    let (answered, since) = ask(get(0));
    assert!(answered && since.unwrap() >= 5_000, "{since:?}");
    assert_eq!(ask(proto::GetBatch { job: "other".into(), ..get(0) }), (true, None));
    assert_eq!(ask(get(0)), (true, None));
    assert!(ask(proto::GetBatch { wait_ms: 0, ..get(0) }).1.is_some());
    assert_eq!(ask(get(0)), (true, None), "what follows an error says nothing");
}

#[test]
fn an_epoch_is_read_from_sealed_memory() {
    let stage = Stage::new(|mut actor| {
        actor.next();
        let bytes: Vec<u8> = (0..1000u32).flat_map(|id| (id * 3).to_le_bytes()).collect();
        let memory = memory(&bytes, rustix::fs::SealFlags::SHRINK);
        actor.say_with(EpochBegun { length: 1000, ..EpochBegun::default() }, &[&memory]);
        actor.next();
        actor.say(EpochBegun { length: 1, ..EpochBegun::default() });
    });
    let client = stage.client();
    let plan = client.begin_epoch(proto::BeginEpoch::default(), WAIT, &mut idle()).unwrap();
    assert_eq!(plan.ids(998, 2000).collect::<Vec<_>>(), [998 * 3, 999 * 3]);
    let error = client.begin_epoch(proto::BeginEpoch::default(), WAIT, &mut idle()).unwrap_err();
    assert_eq!(error.kind, Kind::Internal);
    assert_eq!(plan.len(), 1000);
}

#[test]
fn an_order_is_sent_where_it_is_wanted_and_a_server_that_wants_it_twice_is_wrong() {
    let stage = Stage::new(|mut actor| {
        let wanted = EpochBegun { wants_order: true, ..EpochBegun::default() };
        assert!(matches!(actor.next(), Some(Asked::BeginEpoch(asked)) if !asked.put));
        actor.say(wanted.clone());
        assert!(matches!(actor.next(), Some(Asked::PutState(put)) if put.part == [5, 0, 0, 0]));
        actor.say(proto::Noted {});
        assert!(
            matches!(actor.next(), Some(Asked::BeginEpoch(asked)) if asked.put && asked.order == Some(3))
        );
        let memory = memory(&[5, 0, 0, 0], rustix::fs::SealFlags::SHRINK);
        actor.say_with(EpochBegun { length: 1, ..EpochBegun::default() }, &[&memory]);
        actor.next();
        actor.say(proto::Noted {});
        actor.next();
        actor.say(wanted);
    });
    let client = stage.client();
    let asked = proto::BeginEpoch { order: Some(3), ..proto::BeginEpoch::default() };
    assert!(client.begin_given(asked.clone(), None, WAIT, &mut idle()).unwrap().is_none());
    let ids = 5u32.to_le_bytes();
    let plan = client.begin_given(asked.clone(), Some(&ids), WAIT, &mut idle()).unwrap().unwrap();
    assert_eq!(plan.ids(0, 9).collect::<Vec<_>>(), [5]);
    let error = client.begin_given(asked, Some(&ids), WAIT, &mut idle()).unwrap_err();
    assert_eq!(error.kind, Kind::Internal);
}

#[test]
fn a_request_too_long_for_a_frame_is_invalid_and_harmless() {
    let stage = Stage::new(|mut actor| {
        actor.next();
        actor.say(JobClosed {});
    });
    let client = stage.client();
    let request = proto::GetBatch { indices: vec![u64::MAX; 7 << 20], ..get(0) };
    assert_eq!(client.get_batch(request, &mut idle()).unwrap_err().kind, Kind::Invalid);
    client.close_job(proto::CloseJob::default(), WAIT, &mut idle()).unwrap();
}
