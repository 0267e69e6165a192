//! What becomes of state files.

use hotset_wire::proto::{JobSettings, Launch, OpenJob};

use super::*;

#[test]
fn what_nobody_used_for_a_month_goes_and_what_is_not_ours_stays() {
    let place = tempfile::tempdir().unwrap();
    for name in ["a.state", "a.log", "b.aside", "notes.txt"] {
        fs::write(place.path().join(name), "x").unwrap();
    }
    drop_old(place.path(), SystemTime::now());
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 4);
    drop_old(place.path(), SystemTime::now() + KEPT + Duration::from_secs(60));
    let left: Vec<_> = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["notes.txt"]);
}

#[test]
fn a_damaged_state_is_listed_with_its_reason() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("a.state"), "garbage").unwrap();
    let found = list(place.path());
    assert!(found[0].1.as_ref().unwrap_err().message.contains("damaged"));
}

/// A server's engine and states over a dataset of three samples.
struct Bench {
    engine: Engine,
    states: States,
    dataset: String,
    place: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            fs::write(data.path().join(name), name).unwrap();
        }
        let asked = hotset_store::Request {
            place: data.path().to_str().unwrap().into(),
            layout: hotset_store::Layout::Files,
            extensions: Vec::new(),
            label: String::new(),
            root: String::new(),
            storage_options: Default::default(),
        };
        let opened = hotset_store::open(&asked, None, &mut |_| Ok(())).unwrap();
        let engine = Engine::new(hotset_engine::Config {
            concurrency: 1,
            memory: None,
            machine: 1 << 30,
            available: || 1 << 30,
            retries: 0,
            linger: Duration::ZERO,
            patience: Duration::from_secs(1),
        });
        // Somebody else has the dataset open, so that it stays.
        engine.open_dataset(engine.attach(), &opened);
        let place = tempfile::tempdir().unwrap();
        let states = States::new(Some(place.path().to_owned()));
        Self { engine, states, dataset: opened.identity, place }
    }

    fn peer(&self, process: u32) -> Peer {
        Peer { session: self.engine.attach(), process }
    }

    fn asked(&self, job: &str) -> OpenJob {
        OpenJob {
            job: job.into(),
            settings: Some(JobSettings {
                dataset: self.dataset.clone(),
                cache: "100%".into(),
                strategy: "iis".into(),
                ..JobSettings::default()
            }),
            lasting: true,
            ..Default::default()
        }
    }

    fn open(&self, peer: Peer, asked: OpenJob) -> Result<Opened> {
        self.states.open(&self.engine, peer, Opening::new(asked).unwrap(), None)
    }

    fn begin(&self, peer: Peer, job: &str, epoch: u64) -> Result<Vec<u32>> {
        self.states.begins(peer, job, 0)?;
        let plan = self.engine.begin_epoch(job, epoch, (0, 1), 0, false)?;
        self.states.begun(&self.engine, job, epoch);
        Ok(plan.rank_ids(0).collect())
    }

    /// Trains an epoch, with losses that follow from sample and epoch.
    fn train(&self, peer: Peer, job: &str, epoch: u64) -> Vec<u32> {
        let ids = self.begin(peer, job, epoch).unwrap();
        for (at, &id) in ids.iter().enumerate() {
            self.report(job, epoch, at as u64 + 1, id);
        }
        ids
    }

    fn report(&self, job: &str, epoch: u64, upto: u64, id: u32) {
        let scores = vec![(id * 7 + epoch as u32 * 5 % 11) as f32];
        let report = Report { job: job.into(), epoch, upto, ids: vec![id], scores, ..Default::default() };
        self.states.report(&self.engine, &report).unwrap();
    }

    fn leave(&self, peer: Peer) {
        self.engine.detach(peer.session, std::time::Instant::now());
        self.states.left(&self.engine, peer.session);
    }

    fn files(&self) -> usize {
        fs::read_dir(self.place.path()).unwrap().count()
    }
}

fn resume(run: &str, epoch: Option<u64>, position: u64) -> Option<Resume> {
    Some(Resume { run: run.into(), epoch, position })
}

#[test]
fn the_state_of_a_job_whose_name_was_made_up_goes_with_the_last_who_is_in_it() {
    let bench = Bench::new();
    let [main, reader] = [1, 2].map(|process| bench.peer(process));
    let asked = |reader| {
        let launch = Some(Launch { reader, ..Default::default() });
        OpenJob { lasting: false, launch, ..bench.asked("exp") }
    };
    let run = bench.open(main, asked(false)).unwrap().run;
    bench.open(reader, OpenJob { run, ..asked(true) }).unwrap();
    bench.begin(main, "exp", 0).unwrap();
    bench.engine.close_job(main.session, "exp");
    bench.states.closed(&bench.engine, main.session, "exp", false);
    assert!(bench.files() > 0, "a worker is still in it");
    bench.leave(reader);
    bench.engine.tidy(std::time::Instant::now());
    bench.states.tidy(&bench.engine, false);
    assert!(!bench.engine.has_job("exp"));
    assert_eq!(bench.files(), 0);
}

#[test]
fn a_name_that_was_given_starts_afresh_unless_it_is_resumed_and_keeps_one_earlier_run() {
    let bench = Bench::new();
    let mut runs = Vec::new();
    for process in 1..4 {
        let main = bench.peer(process);
        let opened = bench.open(main, bench.asked("exp")).unwrap();
        assert_eq!((opened.resumed, opened.earlier), (None, runs.first().map(|_| 1)));
        assert!(!runs.contains(&opened.run));
        runs.push(opened.run);
        assert!(bench.engine.scores("exp").unwrap().iter().all(|score| score.is_nan()), "afresh");
        (0..2).for_each(|epoch| drop(bench.train(main, "exp", epoch)));
        bench.engine.close_job(main.session, "exp");
        bench.states.closed(&bench.engine, main.session, "exp", false);
        bench.leave(main);
    }
    let kept = files::runs(bench.place.path(), "exp");
    let kept: std::collections::BTreeSet<_> = kept.iter().map(|found| found.run.clone()).collect();
    assert_eq!(kept, runs[1..].iter().cloned().collect());
    let main = bench.peer(9);
    let asked = OpenJob { resume: resume("", None, 0), ..bench.asked("exp") };
    let opened = bench.open(main, asked).unwrap();
    assert_eq!((opened.run, opened.resumed, opened.earlier), (runs[2].clone(), Some(2), None));
}

#[test]
fn a_run_that_goes_back_knows_what_it_knew_there() {
    let bench = Bench::new();
    let main = bench.peer(1);
    let run = bench.open(main, bench.asked("exp")).unwrap().run;
    let mut known = Vec::new();
    for epoch in 0..5 {
        let ids = bench.begin(main, "exp", epoch).unwrap();
        for (at, &id) in ids.iter().enumerate() {
            bench.report("exp", epoch, at as u64 + 1, id);
            known.push(((epoch, at as u64 + 1), bench.engine.scores("exp").unwrap()));
        }
    }
    let shown = |scores: &[f32]| scores.iter().map(|score| score.to_string()).collect::<Vec<_>>();
    // The last four epochs are kept; each opening drops what is later than its own place.
    for (number, (place, scores)) in known.iter().rev().enumerate() {
        let job = format!("exp/load-{}", number + 1);
        let asked = OpenJob { resume: resume(&run, Some(place.0), place.1), ..bench.asked(&job) };
        let opened = bench.open(main, asked).unwrap();
        if place.0 < 1 {
            assert_eq!((opened.run, opened.resumed), (run.clone(), None), "not so far back");
            assert!(bench.engine.scores(&job).unwrap().iter().all(|score| score.is_nan()));
        } else {
            assert_eq!((opened.run, opened.resumed), (run.clone(), Some(place.0)));
            assert_eq!(shown(&bench.engine.scores(&job).unwrap()), shown(scores), "{place:?}");
        }
    }
}

#[test]
fn what_a_rank_reported_of_an_epoch_when_another_had_begun_the_next_is_known_after_going_back() {
    let bench = Bench::new();
    let main = bench.peer(1);
    let run = bench.open(main, bench.asked("exp")).unwrap().run;
    let ids = bench.begin(main, "exp", 0).unwrap();
    (0..2).for_each(|at| bench.report("exp", 0, at + 1, ids[at as usize]));
    bench.begin(main, "exp", 1).unwrap();
    bench.report("exp", 0, 3, ids[2]);
    bench.report("exp", 1, 1, ids[0]);
    for job in ["exp/load-1", "exp/load-2"] {
        let asked = OpenJob { resume: resume(&run, Some(0), 3), ..bench.asked(job) };
        assert_eq!(bench.open(main, asked).unwrap().resumed, Some(0));
        let scores = bench.engine.scores(job).unwrap();
        assert!(ids.iter().all(|&id| scores[id as usize] == id as f32 * 7.0), "{scores:?}");
    }
}

#[test]
fn who_was_in_a_run_goes_on_with_it_on_another_server_and_who_was_not_starts_afresh() {
    let bench = Bench::new();
    let main = bench.peer(1);
    let run = bench.open(main, bench.asked("exp")).unwrap().run;
    bench.train(main, "exp", 0);
    bench.engine.end_job("exp");
    let states = States::new(Some(bench.place.path().to_owned()));
    let after = Bench { states, ..bench };
    let again = after.open(main, OpenJob { run: run.clone(), ..after.asked("exp") }).unwrap();
    assert_eq!((again.run, again.resumed, again.earlier), (run.clone(), None, None));
    assert!(after.engine.scores("exp").unwrap().iter().all(|score| !score.is_nan()));
    after.leave(main);
    let fresh = after.open(after.peer(2), after.asked("exp")).unwrap();
    assert!(fresh.run != run && fresh.earlier == Some(0));
    assert!(after.engine.scores("exp").unwrap().iter().all(|score| score.is_nan()));
}

#[test]
fn a_second_live_run_of_a_name_is_refused_and_named() {
    let bench = Bench::new();
    let [one, two] = [1, 2].map(|process| bench.peer(process));
    let run = bench.open(one, bench.asked("exp")).unwrap().run;
    bench.begin(one, "exp", 0).unwrap();
    bench.open(two, bench.asked("exp")).unwrap();
    let refused = bench.begin(two, "exp", 0).unwrap_err();
    assert!(refused.message.contains("`exp`") && refused.message.contains("`job=`"), "{refused}");
    // Nor from a checkpoint of it.
    let asked = OpenJob { resume: resume(&run, Some(0), 0), ..bench.asked("exp/load-1") };
    assert!(bench.open(two, asked.clone()).is_err_and(|error| error.message.contains("`job=`")));
    // When the first is gone the second may.
    bench.leave(one);
    assert_eq!(bench.open(two, asked).unwrap().resumed, Some(0));
    bench.begin(two, "exp/load-1", 0).unwrap();
}

#[test]
fn ranks_of_one_launch_share_a_run_and_a_launch_that_is_started_over_begins_another() {
    let bench = Bench::new();
    let launched = |attempt, rank| {
        let (name, parent) = ("torchrun".into(), "7".into());
        let launch = Some(Launch { name, attempt, parent, rank: Some(rank), reader: false });
        OpenJob { launch, ..bench.asked("exp") }
    };
    let [one, two, late] = [1, 2, 3].map(|process| bench.peer(process));
    let run = bench.open(one, launched(0, 0)).unwrap().run;
    assert_eq!(bench.open(two, launched(0, 1)).unwrap().run, run);
    bench.train(one, "exp", 0);
    bench.leave(one);
    bench.leave(two);
    assert_eq!(
        bench.open(late, launched(0, 2)).unwrap().run,
        run,
        "a rank that comes when the others have ended"
    );

    // Started over while a connection of the attempt before is still open.
    let again = bench.peer(4);
    let opened = bench.open(again, launched(1, 0)).unwrap();
    assert!(opened.run != run && opened.earlier == Some(0));
    let refused = bench.open(late, launched(0, 2)).err().unwrap();
    assert!(refused.message.contains("earlier attempt"), "{refused}");
    let asked = OpenJob { resume: resume(&run, Some(0), 3), job: "exp/load-1".into(), ..launched(1, 0) };
    assert_eq!(bench.open(again, asked.clone()).unwrap().run, run, "with a checkpoint it goes on");
    bench.train(again, "exp/load-1", 1);
    let slow = bench.peer(6);
    bench.open(slow, launched(1, 1)).unwrap();
    let launch = launched(1, 1).launch;
    assert_eq!(bench.open(slow, OpenJob { launch, ..asked }).unwrap().run, run, "a rank that comes later");

    // Another launch of the same name is a second run.
    let other = Launch { name: "other".into(), rank: Some(0), ..Default::default() };
    let asked = OpenJob { launch: Some(other), ..bench.asked("exp/load-1") };
    assert!(bench.open(bench.peer(5), asked).is_err_and(|error| error.message.contains("`job=`")));
}

#[test]
fn the_name_of_a_run_cannot_lead_out_of_the_directory() {
    let bench = Bench::new();
    for run in ["../../etc/passwd", "0123456789abcde/", "0123456789abcdef0"] {
        let asked = OpenJob { resume: resume(run, Some(0), 0), ..bench.asked("exp") };
        assert!(Opening::new(asked).is_err_and(|error| error.message.contains("damaged")), "{run}");
    }
}

#[test]
fn an_epoch_that_was_trained_to_its_end_is_not_trained_again() {
    for (trained, starts) in [(3, 3), (2, 2)] {
        let bench = Bench::new();
        let first = bench.peer(1);
        bench.open(first, bench.asked("exp")).unwrap();
        (0..2).for_each(|epoch| {
            bench.train(first, "exp", epoch);
        });
        let ids = bench.begin(first, "exp", 2).unwrap();
        // The last one is left out, or comes in a batch of its own.
        for (at, &id) in ids.iter().enumerate().take(ids.len() - usize::from(trained == 2)) {
            bench.report("exp", 2, at as u64 + 1, id);
        }
        bench.leave(first);
        bench.engine.tidy(std::time::Instant::now() + Duration::from_secs(600));
        bench.states.tidy(&bench.engine, false);
        let again =
            bench.open(bench.peer(2), OpenJob { resume: resume("", None, 0), ..bench.asked("exp") }).unwrap();
        assert_eq!(again.resumed, Some(starts));
    }
}
