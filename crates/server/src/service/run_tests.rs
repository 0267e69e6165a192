//! Which run a job is, and what becomes of its files.

use std::time::Duration;

use hotset_core::log::Playback;
use hotset_wire::proto::{Launch, OpenJob, Resume};

use super::bench::Bench;
use super::*;
use crate::cache_log::{self, Ending};
use crate::opening::JobOpening;
use crate::state::reading::tests::read;

fn resume(run: &str, epoch: Option<u64>, position: u64) -> Option<Resume> {
    Some(Resume { run: run.into(), epoch, position })
}

#[test]
fn the_state_of_a_job_whose_name_was_made_up_goes_with_the_last_who_is_in_it() {
    let bench = Bench::new();
    let [main, reader] = [1, 2].map(|process| bench.client(process));
    let asked = |reader| {
        let launch = Some(Launch { reader, ..Default::default() });
        OpenJob { lasting: false, launch, ..bench.asked("exp") }
    };
    let run = bench.open(&main, asked(false)).unwrap().run;
    bench.open(&reader, OpenJob { run, ..asked(true) }).unwrap();
    bench.begin(&main, "exp", 0).unwrap();
    bench.close(&main, "exp");
    assert!(bench.files() > 0, "a worker is still in it");
    bench.leave(&reader);
    bench.service.tidy(Instant::now());
    assert!(!bench.service.engine.has_job("exp"));
    assert_eq!(bench.files(), 0);
}

#[test]
fn a_name_that_was_given_starts_afresh_unless_it_is_resumed_and_keeps_one_earlier_run() {
    let bench = Bench::new();
    let mut runs = Vec::new();
    for process in 1..4 {
        let main = bench.client(process);
        let opened = bench.open(&main, bench.asked("exp")).unwrap();
        assert_eq!((opened.resumed, opened.earlier), (None, runs.first().map(|_| 1)));
        assert!(!runs.contains(&opened.run));
        runs.push(opened.run);
        assert!(bench.knows_nothing("exp"), "afresh");
        (0..2).for_each(|epoch| drop(bench.train(&main, "exp", epoch)));
        bench.close(&main, "exp");
        bench.leave(&main);
    }
    let kept = bench.service.states.runs("exp");
    let kept: std::collections::BTreeSet<_> = kept.iter().map(|found| found.run.clone()).collect();
    assert_eq!(kept, runs[1..].iter().cloned().collect());
    let main = bench.client(9);
    let asked = OpenJob { resume: resume("", None, 0), ..bench.asked("exp") };
    let opened = bench.open(&main, asked).unwrap();
    assert_eq!((opened.run, opened.resumed, opened.earlier), (runs[2].clone(), Some(2), None));
}

#[test]
fn a_run_that_begins_while_the_job_of_the_last_one_lingers_has_a_recording_of_its_own() {
    let bench = Bench::new();
    let mut runs = Vec::new();
    for process in 1..3 {
        let main = bench.client(process);
        runs.push(bench.open(&main, bench.asked("exp")).unwrap().run);
        let ids = bench.begin(&main, "exp", 0).unwrap();
        bench.report("exp", 0, 1, ids[0]);
        // Without the request that closes a job, as when a process ends at once.
        bench.leave(&main);
        assert!(bench.service.engine.has_job("exp"));
    }
    for run in runs {
        let path = bench.records.path().join(format!("exp-{run}.reports"));
        let (samples, losses) = crate::record::read(&path).unwrap();
        assert_eq!((samples, losses.iter().filter(|loss| !loss.is_nan()).count()), (3, 1));
    }
}

#[test]
fn a_run_that_goes_back_knows_what_it_knew_there() {
    let bench = Bench::new();
    let main = bench.client(1);
    let run = bench.open(&main, bench.asked("exp")).unwrap().run;
    let mut known = Vec::new();
    for epoch in 0..5 {
        let ids = bench.begin(&main, "exp", epoch).unwrap();
        for (at, &id) in ids.iter().enumerate() {
            bench.report("exp", epoch, at as u64 + 1, id);
            known.push(((epoch, at as u64 + 1), bench.scores("exp")));
        }
    }
    let shown = |scores: &[f32]| scores.iter().map(|score| score.to_string()).collect::<Vec<_>>();
    // The last four epochs are kept; each opening drops what is later than its own place.
    for (number, (place, scores)) in known.iter().rev().enumerate() {
        let job = format!("exp/load-{}", number + 1);
        let asked = OpenJob { resume: resume(&run, Some(place.0), place.1), ..bench.asked(&job) };
        let opened = bench.open(&main, asked).unwrap();
        if place.0 < 1 {
            assert_eq!((opened.run, opened.resumed), (run.clone(), None), "not so far back");
            assert!(bench.knows_nothing(&job));
        } else {
            assert_eq!((opened.run, opened.resumed), (run.clone(), Some(place.0)));
            assert_eq!(shown(&bench.scores(&job)), shown(scores), "{place:?}");
        }
    }
}

#[test]
fn what_a_rank_reported_of_an_epoch_when_another_had_begun_the_next_is_known_after_going_back() {
    let bench = Bench::new();
    let main = bench.client(1);
    let run = bench.open(&main, bench.asked("exp")).unwrap().run;
    let ids = bench.begin(&main, "exp", 0).unwrap();
    (0..2).for_each(|at| bench.report("exp", 0, at + 1, ids[at as usize]));
    bench.begin(&main, "exp", 1).unwrap();
    bench.report("exp", 0, 3, ids[2]);
    bench.report("exp", 1, 1, ids[0]);
    for job in ["exp/load-1", "exp/load-2"] {
        let asked = OpenJob { resume: resume(&run, Some(0), 3), ..bench.asked(job) };
        assert_eq!(bench.open(&main, asked).unwrap().resumed, Some(0));
        let scores = bench.scores(job);
        assert!(ids.iter().all(|&id| scores[id as usize] == id as f32 * 7.0), "{scores:?}");
    }
}

#[test]
fn who_was_in_a_run_goes_on_with_it_on_another_server_and_who_was_not_starts_afresh() {
    let bench = Bench::new();
    let main = bench.client(1);
    let run = bench.open(&main, bench.asked("exp")).unwrap().run;
    bench.train(&main, "exp", 0);
    let after = bench.killed();
    let main = after.client(1);
    let again = after.open(&main, OpenJob { run: run.clone(), ..after.asked("exp") }).unwrap();
    assert_eq!((again.run, again.resumed, again.earlier), (run.clone(), None, None));
    assert!(after.scores("exp").iter().all(|score| !score.is_nan()));
    after.leave(&main);
    let fresh = after.open(&after.client(2), after.asked("exp")).unwrap();
    assert!(fresh.run != run && fresh.earlier == Some(0));
    assert!(after.knows_nothing("exp"));
}

#[test]
fn a_second_live_run_of_a_name_is_refused_and_named() {
    let bench = Bench::new();
    let [one, two] = [1, 2].map(|process| bench.client(process));
    let run = bench.open(&one, bench.asked("exp")).unwrap().run;
    bench.begin(&one, "exp", 0).unwrap();
    bench.open(&two, bench.asked("exp")).unwrap();
    let refused = bench.begin(&two, "exp", 0).unwrap_err();
    assert!(refused.message.contains("`exp`") && refused.message.contains("`job=`"), "{refused}");
    // Nor from a checkpoint of it.
    let asked = OpenJob { resume: resume(&run, Some(0), 0), ..bench.asked("exp/load-1") };
    assert!(bench.open(&two, asked.clone()).is_err_and(|error| error.message.contains("`job=`")));
    // When the first is gone the second may.
    bench.leave(&one);
    assert_eq!(bench.open(&two, asked).unwrap().resumed, Some(0));
    bench.begin(&two, "exp/load-1", 0).unwrap();
}

#[test]
fn a_process_does_not_go_on_with_a_run_that_another_trained_as_its_rank_unless_it_resumes_it() {
    let bench = Bench::new();
    let parent = bench.client(1);
    let run = bench.open(&parent, bench.asked("exp")).unwrap().run;
    // Forked with the sampler, they are in the run.
    let forked = |job: &str, process| {
        let child = bench.client(process);
        let launch = Some(Launch { reader: true, ..Default::default() });
        bench.open(&child, OpenJob { run: run.clone(), launch, ..bench.asked(job) }).unwrap();
        child
    };
    let first = forked("exp", 2);
    bench.train(&first, "exp", 0);
    bench.leave(&first);
    let again = forked("exp", 2);
    bench.train(&again, "exp", 1);
    bench.leave(&again);
    let second = forked("exp", 3);
    let refused = bench.begin(&second, "exp", 0).unwrap_err();
    assert!(refused.message.contains("make the `Sampler` in the process that trains"), "{refused}");
    let asked = OpenJob { resume: resume(&run, Some(1), 0), ..bench.asked("exp/load-1") };
    assert_eq!(bench.open(&second, asked).unwrap().resumed, Some(1));
    bench.train(&second, "exp/load-1", 1);
}

#[test]
fn ranks_of_one_launch_share_a_run_and_a_launch_that_is_started_over_begins_another() {
    let bench = Bench::new();
    let launched = |attempt, rank| {
        let (name, parent) = ("torchrun".into(), "7".into());
        let launch = Some(Launch { name, attempt, parent, rank: Some(rank), ..Launch::default() });
        OpenJob { launch, ..bench.asked("exp") }
    };
    let [one, two, late] = [1, 2, 3].map(|process| bench.client(process));
    let run = bench.open(&one, launched(0, 0)).unwrap().run;
    assert_eq!(bench.open(&two, launched(0, 1)).unwrap().run, run);
    bench.train(&one, "exp", 0);
    bench.leave(&one);
    bench.leave(&two);
    assert_eq!(
        bench.open(&late, launched(0, 2)).unwrap().run,
        run,
        "a rank that comes when the others have ended"
    );

    // Started over while a connection of the attempt before is still open.
    let again = bench.client(4);
    let opened = bench.open(&again, launched(1, 0)).unwrap();
    assert!(opened.run != run && opened.earlier == Some(0));
    let refused = bench.open(&late, launched(0, 2)).err().unwrap();
    assert!(refused.message.contains("earlier attempt"), "{refused}");
    let asked = OpenJob { resume: resume(&run, Some(0), 3), job: "exp/load-1".into(), ..launched(1, 0) };
    assert_eq!(bench.open(&again, asked.clone()).unwrap().run, run, "with a checkpoint it goes on");
    bench.train(&again, "exp/load-1", 1);
    let slow = bench.client(6);
    bench.open(&slow, launched(1, 1)).unwrap();
    let launch = launched(1, 1).launch;
    assert_eq!(bench.open(&slow, OpenJob { launch, ..asked }).unwrap().run, run, "a rank that comes later");

    // Another launch of the same name is a second run.
    let other = Launch { name: "other".into(), rank: Some(0), ..Default::default() };
    let asked = OpenJob { launch: Some(other), ..bench.asked("exp/load-1") };
    assert!(bench.open(&bench.client(5), asked).is_err_and(|error| error.message.contains("`job=`")));
}

#[test]
fn the_name_of_a_run_cannot_lead_out_of_the_directory() {
    let bench = Bench::new();
    for run in ["../../etc/passwd", "0123456789abcde/", "0123456789abcdef0"] {
        let asked = OpenJob { resume: resume(run, Some(0), 0), ..bench.asked("exp") };
        assert!(JobOpening::new(asked).is_err_and(|error| error.message.contains("damaged")), "{run}");
    }
}

#[test]
fn an_epoch_that_was_trained_to_its_end_is_not_trained_again() {
    for (trained, starts) in [(3, 3), (2, 2)] {
        let bench = Bench::new();
        let first = bench.client(1);
        bench.open(&first, bench.asked("exp")).unwrap();
        (0..2).for_each(|epoch| {
            bench.train(&first, "exp", epoch);
        });
        let ids = bench.begin(&first, "exp", 2).unwrap();
        // The last one is left out, or comes in a batch of its own.
        for (at, &id) in ids.iter().enumerate().take(ids.len() - usize::from(trained == 2)) {
            bench.report("exp", 2, at as u64 + 1, id);
        }
        bench.leave(&first);
        bench.service.tidy(Instant::now() + Duration::from_secs(600));
        let again = bench
            .open(&bench.client(2), OpenJob { resume: resume("", None, 0), ..bench.asked("exp") })
            .unwrap();
        assert_eq!(again.resumed, Some(starts));
    }
}

#[test]
fn a_restart_reads_each_of_its_files_once() {
    let bench = Bench::new();
    let main = bench.client(1);
    let run = bench.open(&main, bench.asked("exp")).unwrap().run;
    (0..2).for_each(|epoch| drop(bench.train(&main, "exp", epoch)));
    let after = bench.killed();
    read();
    let asked = OpenJob { run, ..after.asked("exp") };
    after.open(&after.client(1), asked).unwrap();
    let mut files = read();
    files.sort();
    let names =
        files.iter().map(|file| file.file_name().unwrap().to_str().unwrap().split_once('.').unwrap().1);
    assert_eq!(names.collect::<Vec<_>>(), ["1.log", "1.state"], "the newest state, and the reports after it");
}

#[test]
fn who_trains_does_not_wait_for_who_opens_a_job_of_the_same_name() {
    let bench = Bench::new();
    let main = bench.client(1);
    bench.open(&main, bench.asked("exp")).unwrap();
    let claim = bench.service.runs.claim("exp");
    bench.train(&main, "exp", 0);
    bench.leave(&main);
    drop(claim);
    assert!(bench.files() > 0);
}

#[test]
fn a_second_process_that_opens_a_job_waits_for_the_first_and_joins_its_run() {
    let bench = Bench::new();
    let launch = || Some(Launch { name: "torchrun".into(), parent: "7".into(), ..Launch::default() });
    let asked = || OpenJob { launch: launch(), ..bench.asked("exp") };
    let service = &bench.service;
    let runs: Vec<String> = std::thread::scope(|scope| {
        let open = |process| {
            let asked = asked();
            move || service.open_job(&mut service.connect(process, 0, None), asked, None).unwrap().run
        };
        let threads: Vec<_> = (1..9).map(|process| scope.spawn(open(process))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(runs.iter().all(|run| *run == runs[0]), "{runs:?}");
}

#[test]
fn what_many_ranks_report_while_epochs_begin_is_known_in_the_same_order_after_a_kill() {
    let bench = Bench::new();
    let main = bench.client(1);
    let run = bench.open(&main, bench.asked("exp")).unwrap().run;
    bench.train(&main, "exp", 0);
    let service = &bench.service;
    std::thread::scope(|scope| {
        for rank in 0..4 {
            scope.spawn(move || {
                for number in 0..50 {
                    let (ids, scores) = (vec![number % 3], vec![(rank * 100 + number) as f32]);
                    let job = "exp".into();
                    let report = proto::Report { job, upto: 3, ids, scores, ..proto::Report::default() };
                    service.report(&report).unwrap();
                }
            });
        }
        for epoch in 1..4 {
            bench.begin(&main, "exp", epoch).unwrap();
        }
    });
    let scores = bench.scores("exp");
    let after = bench.killed();
    let asked = OpenJob { run, ..after.asked("exp") };
    after.open(&after.client(1), asked).unwrap();
    assert_eq!(after.scores("exp"), scores);
}

#[test]
fn what_happens_to_a_cache_is_recorded_and_plays_back_to_the_same_counts() {
    let bench = Bench::new();
    let clients = [1, 2].map(|process| bench.client(process));
    for (client, job) in clients.iter().zip(["a", "b"]) {
        bench.open_dataset(client);
        bench.open(client, bench.asked(job)).unwrap();
    }
    for epoch in 0..3 {
        bench.train(&clients[0], "a", epoch);
        bench.begin(&clients[1], "b", epoch).unwrap();
    }
    bench.close(&clients[0], "a");
    bench.service.end_logs();
    let files = std::fs::read_dir(bench.records.path()).unwrap().map(|file| file.unwrap().path());
    let logs: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "log")).collect();
    assert_eq!(logs.len(), 1, "one for both jobs: {logs:?}");
    let mut playback = Playback::new();
    let ending = cache_log::read(&logs[0], |event| playback.play(&event)).unwrap();
    assert_eq!((ending, playback.ended()), (Ending::Whole, None));
    let counted: Vec<(&str, u64)> = playback
        .jobs()
        .map(|job| (job.setup().job.as_str(), job.epochs().values().map(|both| both.live.planned).sum()))
        .collect();
    assert_eq!(counted.iter().map(|(job, _)| *job).collect::<Vec<_>>(), ["a", "b"]);
    assert!(counted.iter().all(|(_, planned)| *planned >= 7), "{counted:?}");
    assert!(playback.jobs().flat_map(|job| job.epochs().values()).all(|both| both.same));
}
