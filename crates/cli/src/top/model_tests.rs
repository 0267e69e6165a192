//! What is remembered of servers and jobs that come and go.

use std::path::PathBuf;

use hotset_core::Error;
use hotset_wire::proto::{EpochStats, ServerStats, Stats};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn job(name: &str, served: u64) -> JobStats {
    let total = EpochStats { served, ..EpochStats::default() };
    JobStats { job: name.into(), total: Some(total), ..JobStats::default() }
}

fn answer(socket: &str, uptime: u64, jobs: &[JobStats]) -> servers::Asked {
    let server = ServerStats { uptime_seconds: uptime as f64, ..ServerStats::default() };
    let stats = Stats { server: Some(server), jobs: jobs.to_vec() };
    (socket.into(), Ok(Found { socket: socket.into(), stats, ..Found::default() }))
}

fn model() -> Model {
    Model::new(&Servers::default(), SECOND)
}

fn states(view: &View) -> Vec<(&str, State)> {
    view.jobs.iter().map(|view| (view.job.job.as_str(), view.state)).collect()
}

#[test]
fn a_job_that_ended_stays_marked_for_a_minute() {
    let mut model = model();
    model.take(vec![answer("a", 1, &[job("one", 0), job("two", 0)])], SECOND);
    model.take(vec![answer("a", 2, &[job("two", 10)])], 2 * SECOND);
    let view = model.view(7 * SECOND);
    assert_eq!(states(&view), [("one", State::Ended(5)), ("two", State::Live)]);
    assert_eq!(view.jobs[1].rate.map(|rate| rate.samples_per_second), Some(10.0));
    model.take(vec![answer("a", 61, &[job("two", 10)])], 61 * SECOND);
    assert_eq!(states(&model.view(61 * SECOND)).len(), 2);
    model.take(vec![answer("a", 62, &[job("two", 10)])], 62 * SECOND);
    assert_eq!(states(&model.view(62 * SECOND)), [("two", State::Live)]);
}

#[test]
fn a_job_that_comes_back_is_no_longer_ended() {
    let mut model = model();
    model.take(vec![answer("a", 1, &[job("one", 0)])], SECOND);
    model.take(vec![answer("a", 2, &[])], 2 * SECOND);
    model.take(vec![answer("a", 3, &[job("one", 3)])], 3 * SECOND);
    assert_eq!(states(&model.view(3 * SECOND)), [("one", State::Live)]);
}

#[test]
fn a_server_that_is_gone_is_said_with_the_reason_and_shown_again_when_it_answers() {
    let mut model = model();
    let refused = || ("a".to_owned(), Err(Error::unavailable("connection refused")));
    model.take(vec![answer("a", 1, &[job("one", 5)])], SECOND);
    model.take(vec![refused()], 2 * SECOND);
    model.take(vec![refused()], 3 * SECOND);
    let view = model.view(4 * SECOND);
    assert_eq!(view.servers[0].gone, Some((2, "connection refused".into())), "since it was missed first");
    assert_eq!(states(&view), [("one", State::Gone(2))]);
    model.take(vec![answer("a", 5, &[job("one", 6)])], 5 * SECOND);
    let view = model.view(5 * SECOND);
    assert_eq!((view.servers[0].gone.clone(), view.jobs[0].state), (None, State::Live));
    assert_eq!(view.jobs[0].rate, None, "what it did meanwhile is not known");
}

#[test]
fn a_server_whose_socket_is_gone_has_ended_and_is_forgotten_after_a_minute() {
    let mut model = model();
    model.take(vec![answer("a", 1, &[job("one", 5)])], SECOND);
    model.take(Vec::new(), 2 * SECOND);
    assert_eq!(model.view(2 * SECOND).servers[0].gone, Some((0, "it has ended".into())));
    assert_eq!(model.view(2 * SECOND).notice, None);
    model.take(Vec::new(), 62 * SECOND);
    let view = model.view(62 * SECOND);
    assert!(view.servers.is_empty() && view.jobs.is_empty() && view.selected.is_none());
    assert!(view.notice.unwrap().contains("start a training or `hotset serve`"));
}

#[test]
fn of_a_socket_that_nobody_answers_nothing_is_said_unless_it_was_named() {
    let stale = || vec![("left.sock".to_owned(), Err(Error::unavailable("connection refused")))];
    let mut model = model();
    assert!(model.view(SECOND).notice.unwrap().contains("asking"));
    model.take(stale(), SECOND);
    assert!(model.view(SECOND).notice.unwrap().contains("no Hotset server is running"));
    let servers = Servers { server: Some(PathBuf::from("left.sock")), ..Servers::default() };
    let mut named = Model::new(&servers, SECOND);
    named.take(stale(), SECOND);
    assert_eq!(named.view(SECOND).notice.as_deref(), Some("connection refused"));
    named.take(vec![answer("left.sock", 1, &[])], 2 * SECOND);
    assert_eq!(named.view(2 * SECOND).notice, None, "it has come");
}

#[test]
fn the_selection_stays_with_its_job_and_ends_at_the_ends() {
    let mut model = model();
    model.take(vec![answer("a", 1, &[job("b", 0), job("c", 0)])], SECOND);
    let selected = |model: &Model| model.view(SECOND).selected_job().map(|view| view.job.job.clone());
    assert_eq!(selected(&model).as_deref(), Some("b"));
    model.act(Asked::Up);
    assert_eq!(selected(&model).as_deref(), Some("b"));
    model.act(Asked::Down);
    model.act(Asked::Down);
    assert_eq!(selected(&model).as_deref(), Some("c"));
    model.take(vec![answer("a", 2, &[job("a", 0), job("b", 0), job("c", 0)])], 2 * SECOND);
    assert_eq!(selected(&model).as_deref(), Some("c"));
    let mut empty = Model::new(&Servers::default(), SECOND);
    for asked in [Asked::Up, Asked::Down, Asked::Sort] {
        empty.act(asked);
    }
    assert_eq!(selected(&empty), None);
}

#[test]
fn jobs_are_sorted_by_what_a_key_says() {
    let mut model = model();
    let jobs = |fast: u64, slow: u64| [job("a/slow", slow), job("b/fast", fast)];
    model.take(vec![answer("a", 1, &jobs(0, 0))], SECOND);
    model.take(vec![answer("a", 2, &jobs(100, 1))], 2 * SECOND);
    let first = |model: &Model| model.view(2 * SECOND).jobs[0].job.job.clone();
    assert_eq!(first(&model), "a/slow");
    model.act(Asked::Sort);
    assert_eq!((first(&model).as_str(), model.view(SECOND).sort), ("b/fast", Sort::Samples));
    for _ in 0..3 {
        model.act(Asked::Sort);
    }
    assert_eq!(first(&model), "a/slow", "round again");
}

#[test]
fn one_job_alone_is_shown_where_it_is_asked_for() {
    let servers = Servers { job: "run".into(), ..Servers::default() };
    let mut model = Model::new(&servers, SECOND);
    model.take(vec![answer("a", 1, &[job("run/train", 0), job("other", 0)])], SECOND);
    assert_eq!(states(&model.view(SECOND)), [("run/train", State::Live)]);
}
