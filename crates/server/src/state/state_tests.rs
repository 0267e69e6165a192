//! What becomes of state files.

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
fn two_jobs_have_two_files() {
    let place = Path::new("/state");
    assert_ne!(path(place, "run/train"), path(place, "run/test"));
    assert_eq!(path(place, "a"), path(place, "a"));
}

#[test]
fn a_damaged_state_is_listed_with_its_reason() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("a.state"), "garbage").unwrap();
    let found = list(place.path());
    assert!(found[0].1.as_ref().unwrap_err().message.contains("damaged"));
}

#[test]
fn the_state_of_a_job_that_was_closed_goes_with_the_last_who_is_in_it() {
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
    let opened = hotset_store::open(&asked, None, &mut |_| {}).unwrap();
    let engine = Engine::new(hotset_engine::Config {
        concurrency: 1,
        memory: None,
        machine: 1 << 30,
        retries: 0,
        linger: Duration::ZERO,
        patience: Duration::from_secs(1),
    });
    let place = tempfile::tempdir().unwrap();
    let states = States::new(Some(place.path().to_owned()));
    let open = |session| {
        let asked = hotset_wire::proto::OpenJob {
            job: "exp".into(),
            dataset: opened.identity.clone(),
            cache: "100%".into(),
            strategy: "uniform".into(),
            lasting: true,
            ..Default::default()
        };
        states.open(&engine, session, Opening::new(asked).unwrap(), None).unwrap();
    };
    let sessions = [engine.attach(), engine.attach()];
    for session in sessions {
        engine.open_dataset(session, &opened);
        open(session);
    }
    engine.begin_epoch("exp", 0, (0, 1), 0, false).unwrap();
    states.begun(&engine, "exp", 0);
    let files = || fs::read_dir(place.path()).unwrap().count();
    assert!(files() > 0);

    let [main, worker] = sessions;
    let leave = |session| {
        engine.detach(session, std::time::Instant::now());
        engine.tidy(std::time::Instant::now());
        states.tidy(&engine, false);
    };
    engine.close_job(main, "exp");
    states.closed(&engine, "exp");
    assert!(files() > 0, "a worker is still in it");
    leave(worker);
    assert!(!engine.has_job("exp"));
    assert_eq!(files(), 0);

    // Whoever does not close it finds it again.
    open(main);
    engine.begin_epoch("exp", 0, (0, 1), 0, false).unwrap();
    states.begun(&engine, "exp", 0);
    leave(main);
    assert!(!engine.has_job("exp") && files() > 0);
}
