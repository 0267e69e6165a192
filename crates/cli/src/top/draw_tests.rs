//! What is on the screen, line for line.

use std::time::Duration;

use hotset_wire::proto::{EpochStats, JobStats, NodeStats, PackageStats, RankWait, ServerStats};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::Color;

use super::super::view::Sort;
use super::*;
use crate::rates::Rate;

fn buffer(view: &View, (width, height): (u16, u16), colour: bool) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, view, Palette { colour })).unwrap();
    terminal.backend().buffer().clone()
}

/// The lines of a screen without the blanks at their ends.
fn screen(view: &View, width: u16, height: u16) -> Vec<String> {
    let buffer = buffer(view, (width, height), false);
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| row(y).trim_end().to_owned()).collect()
}

fn training() -> JobView {
    let wait = |rank| RankWait { rank, batches: 120, p50: 0.001, p95: 0.02, p99: 0.1, sum: 1.5 };
    let epoch = EpochStats {
        epoch: 3,
        planned: 1_000,
        served: 450,
        hit: 90,
        packed: 324,
        single: 36,
        storage_reads: 400,
        storage_bytes: 40 << 20,
        waits: vec![wait(0), wait(1)],
        ..EpochStats::default()
    };
    let rate = Rate {
        samples_per_second: 100.0,
        storage_bytes_per_second: 5e6,
        served_bytes_per_second: 1e7,
        seconds_left: Some(5.5),
    };
    let job = JobStats {
        job: "resnet50/train".into(),
        place: "s3://bucket/train".into(),
        strategy: "hybrid".into(),
        policy: "impact".into(),
        samples: 1_000,
        bytes: 100 << 20,
        capacity: 20 << 20,
        packages: Some(PackageStats { packages: 52, samples: 900, ..PackageStats::default() }),
        eligibility: "eligible: read from storage its batches take 3.10 times as long".into(),
        benefit: Some(3.1),
        epochs: vec![epoch],
        ..JobStats::default()
    };
    JobView { socket: "/run/hotset/server.sock".into(), job, rate: Some(rate), state: State::Live }
}

fn two_jobs() -> View {
    let unplanned = EpochStats { served: 10, hit: 10, ..EpochStats::default() };
    let job = JobStats {
        job: "resnet50/val".into(),
        policy: "minio".into(),
        unplanned: Some(unplanned),
        ..JobStats::default()
    };
    let val = JobView { job, state: State::Ended(12), rate: None, ..training() };
    let stats = ServerStats {
        pid: 77,
        capacity: 80 << 20,
        reserve: 20 << 20,
        occupied: 60 << 20,
        passing: 10 << 20,
        ..ServerStats::default()
    };
    let server = ServerView { socket: training().socket, stats, gone: None };
    View {
        notice: None,
        every: Duration::from_secs(1),
        servers: vec![server],
        jobs: vec![training(), val],
        selected: Some(0),
        sort: Sort::Name,
    }
}

#[test]
fn eighty_columns_show_each_job_and_all_about_the_selected_one() {
    let lines = screen(&two_jobs(), 80, 30);
    let expected = [
        "hotset top: 1 server, 2 jobs, every 1 s",
        "server 77 at /run/hotset/server.sock, up 0 s",
        "  cache 80 MiB + reserve 20 MiB, 60 MiB in use (10 MiB passing), 0 readers, 0",
        "    leases, 0 of 0 reads in flight",
        "  ███████████████████████████▒▒▒▒▒░░░░░░░░░░░░░░░░░░░░░░ 50 % kept, 10 % passing",
    ];
    assert_eq!(lines[..5], expected, "{}", lines.join("\n"));
    let head: Vec<&str> = lines[5].split_whitespace().collect();
    assert_eq!(head, ["job", "epoch", "progress", "left", "samples/s", "hit", "packed", "single"]);
    let words = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words(&lines[6]), "> resnet50/train 3 ████░░░░░ 45 % 5 s 100 20.0 % 72.0 % 8.0 %");
    assert_eq!(words(&lines[7]), "resnet50/val - ended 12 s - - 100.0 % 0.0 % 0.0 %");
    let text = lines.join("\n");
    for told in [
        "job resnet50/train · hybrid + impact · s3://bucket/train",
        "now: 100 samples/s, about 9.5 MiB/s; 4.8 MiB/s from storage; epoch 3 at 45 %",
        "eligible: read from storage",
        "packages: 52 runs of 900 samples",
        "40 MiB",
    ] {
        assert!(text.contains(told), "{told}\n{text}");
    }
    assert!(text.contains("rank") && text.contains("1.0 ms"), "waiting of each rank\n{text}");
    assert!(lines[29].starts_with("q quit  arrows, j, k: select  s sort (now by job)"));
}

#[test]
fn two_hundred_columns_show_every_figure_in_one_line() {
    let lines = screen(&two_jobs(), 200, 30);
    let head = lines.iter().find(|line| line.contains("samples/s  ")).unwrap();
    for title in ["strategy+policy", "left", "wait", "reads", "read", "read/s", "keeps", "benefit"] {
        assert!(head.split_whitespace().any(|word| word == title), "{title}: {head}");
    }
    let row = lines.iter().find(|line| line.starts_with("> ")).unwrap();
    for cell in ["hybrid+impact", "3.00 s", "400", "40 MiB", "4.8 MiB", "3.10"] {
        assert!(row.contains(cell), "{cell}: {row}");
    }
}

#[test]
fn forty_columns_show_names_progress_and_rates() {
    let lines = screen(&two_jobs(), 40, 30);
    let text = lines.join("\n");
    let row = lines.iter().find(|line| line.starts_with("> ")).unwrap();
    assert_eq!(row.split_whitespace().collect::<Vec<_>>().join(" "), "> resnet50/train ███░░░░ 45 % 100");
    assert!(text.contains("ended 12 s") && text.contains("50 % kept"), "{text}");
    assert!(lines[29].starts_with("q quit  j/k select  s sort: job"), "{text}");
}

#[test]
fn no_size_is_too_small_and_none_panics() {
    let mut long = two_jobs();
    long.jobs[0].job.job = "a/very/long/name/of/a/training/of/many/words/train".into();
    for view in [two_jobs(), long, View::default()] {
        for width in (0..60).chain([80, 200, 400]) {
            for height in [0, 1, 2, 3, 5, 8, 13, 24, 60] {
                buffer(&view, (width, height), true);
            }
        }
    }
}

#[test]
fn without_colours_nothing_is_coloured_and_with_them_words_are_the_same() {
    let mut view = two_jobs();
    view.servers[0].gone = Some((5, "no answer".into()));
    view.notice = Some("something is wrong".into());
    let plain = buffer(&view, (80, 30), false);
    assert!(plain.content.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    let coloured = buffer(&view, (80, 30), true);
    assert!(coloured.content.iter().any(|cell| cell.fg == Color::Red));
    let words = |buffer: &Buffer| buffer.content.iter().map(|cell| cell.symbol()).collect::<String>();
    assert_eq!(words(&plain), words(&coloured));
}

#[test]
fn a_server_that_is_gone_is_said_above_its_jobs() {
    let mut view = two_jobs();
    view.servers[0].gone = Some((5, "connection refused".into()));
    view.jobs[0].state = State::Gone(5);
    view.jobs[0].rate = None;
    let text = screen(&view, 120, 30).join("\n");
    for told in [
        "server 77 at /run/hotset/server.sock has been gone for 5 s: connection refused; still asking",
        "its server has been gone for 5 s; these are its last figures",
        "gone 5 s",
    ] {
        assert!(text.contains(told), "{told}\n{text}");
    }
    assert!(!text.contains("% kept"), "its memory is no more\n{text}");
}

#[test]
fn without_a_server_it_says_what_to_do() {
    let view = View { notice: Some("no Hotset server is running".into()), ..View::default() };
    let lines = screen(&view, 80, 10);
    assert!(lines[0].starts_with("hotset top: 0 servers, 0 jobs"));
    assert_eq!(lines[1], "no Hotset server is running");
    let idle = View { jobs: Vec::new(), selected: None, ..two_jobs() };
    let lines = screen(&idle, 100, 10);
    assert!(lines.iter().any(|line| line == "  no jobs"), "{}", lines.join("\n"));
}

#[test]
fn a_node_of_a_cluster_says_its_part() {
    let mut view = two_jobs();
    let node = NodeStats { name: "gpu-1".into(), nodes: 3, member: true, ..NodeStats::default() };
    view.servers[0].stats.node = Some(node);
    let text = screen(&view, 120, 30).join("\n");
    assert!(text.contains("node gpu-1 of 3: home of 0 jobs"), "{text}");
}

#[test]
fn what_finds_no_room_is_counted_and_many_jobs_are_scrolled_through() {
    let mut view = two_jobs();
    let named = |number| {
        let mut one = training();
        one.job.job = format!("job{number:02}");
        one
    };
    view.jobs = (0..40).map(named).collect();
    view.selected = Some(39);
    let lines = screen(&view, 80, 24);
    let text = lines.join("\n");
    assert!(lines.iter().any(|line| line.starts_with("> job39")), "{text}");
    assert!(lines[22].starts_with("and ") && lines[22].ends_with(" lines below"), "{text}");
}

#[test]
fn names_lose_their_middle() {
    assert_eq!(columns::shortened("resnet50/train", 9), "resn…rain");
    assert_eq!(columns::shortened("resnet50/train", 8), "res…rain");
    assert_eq!(["train", "trains"].map(|name| columns::shortened(name, 5)), ["train", "tr…ns"]);
    assert_eq!([2, 1, 0].map(|width| columns::shortened("train", width)), ["…n", "…", ""]);
}
