//! What a person sees of jobs.

use hotset_wire::proto::{Region, Stats};

use super::*;

fn shown(job: JobStats, epochs: usize, width: usize) -> String {
    let stats = Stats { server: Some(ServerStats::default()), jobs: vec![job] };
    render(&[Found { socket: "/run/x.sock".into(), stats, ..Found::default() }], epochs, width)
}

fn packing() -> JobStats {
    let epoch = |epoch| EpochStats {
        epoch,
        served: 35_000,
        hit: 7_000,
        packed: 25_200,
        single: 2_800,
        coverage: 0.7,
        storage_reads: 41_000,
        storage_requests: 2_891,
        storage_bytes: 60 << 20,
        package_reads: 90,
        package_waste: 0.25,
        ..EpochStats::default()
    };
    let region = |name: &str, capacity, used| Region { name: name.into(), capacity, used };
    JobStats {
        job: "run/train".into(),
        place: "s3://bucket/a/rather/long/prefix/of/training/images".into(),
        strategy: "hybrid".into(),
        policy: "impact".into(),
        samples: 50_000,
        regions: vec![
            region("h", 13 << 20, 12 << 20),
            region("l", 2 << 20, 1 << 20),
            region("buffer", 5 << 20, 5 << 20),
        ],
        packages: Some(PackageStats {
            place: "/scratch/packages".into(),
            packages: 52,
            samples: 38_000,
            bytes: 54 << 20,
            packing: 3,
        }),
        notes: [("reevaluated".to_owned(), 1_234.0), ("s".to_owned(), 1_234.0)].into(),
        remarks: vec!["the place of packages `/scratch/packages` is full".into()],
        epochs: (0..9).map(epoch).collect(),
        total: Some(EpochStats { overdue: 1, packages_lost: 2, ..EpochStats::default() }),
        ..JobStats::default()
    }
}

#[test]
fn a_job_shows_its_last_epochs_and_what_no_plan_asked_for() {
    let epoch = |epoch| EpochStats { epoch, served: 100, hit: 20, single: 80, ..EpochStats::default() };
    let job = JobStats {
        job: "run/train".into(),
        strategy: "uniform".into(),
        policy: "lru".into(),
        epochs: (0..9).map(epoch).collect(),
        unplanned: Some(EpochStats { served: 3, hit: 3, ..EpochStats::default() }),
        ..JobStats::default()
    };
    let text = shown(job, 2, 100);
    assert!(text.contains("uniform + lru") && text.contains("20.0 %"), "{text}");
    let rows: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(rows.ends_with(&["7", "8", "unplanned"]), "{text}");
    assert!(!text.contains("packages") && !text.contains("regions") && !text.contains("waste"), "{text}");
}

#[test]
fn regions_packages_and_notes_are_shown_where_there_are_some() {
    let text = shown(packing(), 1, 200);
    for words in [
        "regions: h 12 MiB of 13 MiB (65 %), l 1 MiB of 2 MiB (10 %), buffer 5 MiB of 5 MiB (25 %)",
        "packages: 52 with 38000 samples, 54 MiB, 3 being packed, at /scratch/packages",
        "last plan: reevaluated 1234, s 1234",
        "note: the place of packages `/scratch/packages` is full",
        "note: plans made without waiting longer for a rank: 1",
        "note: packages found torn, damaged, foreign or gone, and dropped: 2",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    let last: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
    // epoch; served; hit, paper's, packed, single, coverage; reads, read, requests, packed a request, waste; late, wait
    let expected = "8 35000 20.0 % 92.0 % 72.0 % 8.0 % 70.0 % 41000 60 MiB 2891 280 25.0 % 0 0.00 s";
    assert_eq!(last.join(" "), expected, "{text}");
}

#[test]
fn runs_are_shown_as_what_they_are() {
    let mut job = packing();
    let runs = PackageStats { packages: 40, samples: 30_000, bytes: 45 << 20, ..Default::default() };
    job.packages = Some(runs);
    let text = shown(job, 1, 200);
    assert!(
        text.contains("packages: 40 runs of 30000 samples, 45 MiB, in the dataset's own objects"),
        "{text}"
    );
}

#[test]
fn carousel_says_its_share_and_when_the_cache_stands_still() {
    let job = |still| JobStats {
        strategy: "carousel".into(),
        notes: [("fresh".to_owned(), 0.250_04), ("still".to_owned(), still)].into(),
        ..JobStats::default()
    };
    let turning = shown(job(0.0), 1, 80);
    assert!(turning.contains("last plan: fresh 0.25") && !turning.contains("static"), "{turning}");
    let still = shown(job(1.0), 1, 80);
    assert!(still.contains("last plan: fresh 0.25, a full pass over a static cache"), "{still}");
}

#[test]
fn everything_fits_a_narrow_terminal_and_nothing_is_left_out() {
    for width in [100, 80, 60, 40] {
        let text = shown(packing(), 3, width);
        for line in text.lines() {
            // A path is one word, and is never cut.
            let fits = line.chars().count() <= width || line.split_whitespace().count() == 1;
            assert!(fits, "{width}: {line}");
        }
        for title in ["served", "(paper's)", "packed", "single", "coverage", "requests", "waste", "wait"] {
            assert!(text.contains(title), "{title} at {width}:\n{text}");
        }
    }
}

#[test]
fn an_epoch_that_is_only_read_ahead_has_no_shares() {
    let mut job = packing();
    let read =
        EpochStats { epoch: 9, package_reads: 4, package_waste: 1.0, storage_reads: 7, ..Default::default() };
    job.ahead = Some(read);
    let text = shown(job, 1, 200);
    let last: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(last.join(" "), "9 ahead 0 - - - - - 7 0 B 0 - - 0 0.00 s", "{text}");
}

#[test]
fn one_reader_is_no_readers() {
    let stats = ServerStats { readers: 1, leases: 2, ..ServerStats::default() };
    let memory = server("/run/x.sock", Some(&stats)).pop().unwrap();
    assert!(memory.contains(", 1 reader, 2 leases, "), "{memory}");
}

#[test]
fn what_a_server_refused_is_shown_where_it_did() {
    let refused = [("jobs".to_owned(), 2), ("user".to_owned(), 1)].into();
    let stats = ServerStats { refused, ..ServerStats::default() };
    assert_eq!(server("x.sock", Some(&stats)).pop().unwrap(), "  refused: jobs 2, user 1");
    assert_eq!(server("x.sock", Some(&ServerStats::default())).len(), 2);
}

#[test]
fn whether_a_job_is_eligible_is_said_with_the_reason_in_any_width() {
    let epoch = EpochStats { served: 100, single: 100, probe_reads: 17, ..EpochStats::default() };
    let measured = JobStats {
        eligibility: "not eligible: read from storage its batches take 1.02 times as long".into(),
        benefit_epoch: Some(3),
        epochs: vec![epoch],
        ..JobStats::default()
    };
    let text = shown(measured.clone(), 1, 200);
    assert!(text.contains("1.02 times as long, measured in epoch 3\n"), "{text}");
    assert!(text.contains("probe") && text.contains("17"), "{text}");
    let narrow = shown(JobStats { probing: true, ..measured }, 1, 40);
    assert!(narrow.lines().all(|line| line.chars().count() <= 40), "{narrow}");
    let words: Vec<&str> = narrow.split_whitespace().collect();
    assert!(words.join(" ").contains("1.02 times as long, being measured now"), "{narrow}");
    assert!(!shown(JobStats::default(), 1, 200).contains("eligible"), "a job that has no other beside it");
}

#[test]
fn a_shared_cache_is_shown_from_both_sides() {
    let shared =
        Some(SharedStats { socket: "s.sock".into(), asked: 5, found: 3, failed: 1, ..Default::default() });
    let stats = ServerStats { shared, ..ServerStats::default() };
    let told = server("x.sock", Some(&stats)).pop().unwrap();
    assert_eq!(told, "  shared cache s.sock: asked for 5, 3 found, 0 wrong; offered 0, 0 dropped; 1 failure");
    let contents = Some(ContentStats { contents: 1, asked: 2, found: 1, put: 1 });
    let stats = ServerStats { contents, ..ServerStats::default() };
    assert_eq!(server("x.sock", Some(&stats)).pop().unwrap(), "  1 content; asked for 2, 1 found; 1 put");
    let job = JobStats {
        epochs: vec![EpochStats { served: 9, peer_reads: 7, ..EpochStats::default() }],
        ..JobStats::default()
    };
    assert!(shown(job, 1, 200).contains("peer"));
}

#[test]
fn what_a_job_does_now_is_said_where_it_is_known() {
    let epoch = EpochStats { epoch: 3, planned: 400, served: 100, ..EpochStats::default() };
    let doing = JobStats { epochs: vec![epoch], ..JobStats::default() };
    let rate = Rate {
        samples_per_second: 50.4,
        storage_bytes_per_second: 2_048.0,
        served_bytes_per_second: 5_120.0,
        seconds_left: Some(300.0),
    };
    let told = "  now: 50 samples/s, about 5 KiB/s; 2 KiB/s from storage; epoch 3 at 25 %, 5 min left";
    assert_eq!(now(&doing, &rate), told);
    assert!(job(&doing, Some(&rate), 1, 200).contains(told));
    assert!(!job(&doing, None, 1, 200).contains("now:"), "the first time");
    let idle = now(&doing, &Rate::default());
    assert_eq!(idle, "  now: 0 samples/s, about 0 B/s; 0 B/s from storage; epoch 3 at 25 %");
    assert!(
        now(&JobStats::default(), &Rate::default()).ends_with("0 B/s from storage"),
        "a job without plans"
    );
}

#[test]
fn each_rank_says_how_long_it_waited() {
    let wait = |rank| RankWait { rank, batches: 12, p50: 0.0015, p95: 0.2, p99: 1.0, sum: 3.5 };
    let epoch = EpochStats { waits: vec![wait(0), wait(1)], ..EpochStats::default() };
    let text = ranks(&epoch, 80).unwrap();
    let last: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(last.join(" "), "1 12 3.50 s 1.5 ms 200.0 ms 1000.0 ms", "{text}");
    assert!(ranks(&epoch, 30).unwrap().lines().all(|line| line.chars().count() <= 30));
    assert_eq!(ranks(&EpochStats::default(), 80), None);
}
