use std::path::Path;

fn hotset(arguments: &[&str]) -> u8 {
    let words = ["hotset", "simulate"].into_iter().chain(arguments.iter().copied());
    crate::run(words.map(str::to_owned).collect(), None)
}

fn trace() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sim/tests/data/small.npz");
    path.display().to_string()
}

#[test]
fn every_report_of_a_comparison_is_written() {
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str| place.path().join(name).display().to_string();
    let (csv, json, html) = (file("runs.csv"), file("runs.json"), file("report.html"));
    let code = hotset(&[
        "--trace",
        &trace(),
        "--run",
        "uniform+lru,iis[fraction=0.5,warmup=2]+icache",
        "--cache",
        "20%,150000",
        "--seeds",
        "2",
        "--csv",
        &csv,
        "--json",
        &json,
        "--html",
        &html,
        "--packages",
        "16KiB",
    ]);
    assert_eq!(code, 0);
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    assert_eq!(read(&csv).lines().count(), 1 + 2 * 2 * 2 * 12);
    let parsed: serde_json::Value = serde_json::from_str(&read(&json)).unwrap();
    assert_eq!(parsed["means"].as_array().unwrap().len(), 4);
    let epochs = parsed["runs"][0]["epochs"].as_array().unwrap();
    assert_eq!(epochs.len(), 12);
    for count in
        ["planned", "served", "hit", "packed", "single", "distinct", "storage_reads", "storage_bytes", "late"]
    {
        assert!(epochs[0][count].is_u64(), "{count} is a count: {}", epochs[0][count]);
    }
    assert!(epochs[0]["coverage"].is_f64() && epochs[0]["seconds"].is_f64());
    let html = read(&html);
    assert!(html.contains("<svg") && html.contains("iis[fraction=0.5,warmup=2]+icache"));
    assert!(
        !html.contains("<script") && !html.contains("href=") && !html.contains("src="),
        "nothing is fetched"
    );
}

#[test]
fn a_figure_needs_a_trace_and_the_list_does_not() {
    let place = tempfile::tempdir().unwrap();
    let html = place.path().join("figure.html").display().to_string();
    assert_eq!(hotset(&["--figure", "list"]), 0);
    assert_eq!(hotset(&["--figure", "impact-observations", "--trace", &trace(), "--html", &html]), 0);
    assert!(std::fs::read_to_string(&html).unwrap().matches("<svg").count() >= 4);
    assert_eq!(hotset(&["--figure", "impact-5a"]), 1);
    assert_eq!(hotset(&["--figure", "icache-14", "--trace", &trace()]), 1);
}

#[test]
fn nodes_are_compared_and_what_a_change_of_them_costs_is_told() {
    let place = tempfile::tempdir().unwrap();
    let json = place.path().join("nodes.json").display().to_string();
    let trace = trace();
    let nodes = |more: &[&str]| {
        let plain = ["--trace", &trace, "--run", "uniform+lru,iis", "--nodes", "2,3", "--json", &json];
        let code = hotset(&[&plain[..], more].concat());
        assert_eq!(code, 0, "{more:?}");
        serde_json::from_str::<serde_json::Value>(&std::fs::read_to_string(&json).unwrap()).unwrap()
    };
    let rows = nodes(&["--seeds", "2"]);
    assert_eq!(rows.as_array().unwrap().len(), 4, "a row for two pairs on two and three nodes, over seeds");
    assert_eq!((&rows[0]["nodes"], &rows[1]["nodes"], &rows[0]["seeds"]), (&2.into(), &3.into(), &2.into()));
    assert!(rows[0]["change"].is_null());
    let local = |rows: &serde_json::Value| rows[0]["local"].as_f64().unwrap();
    let apart = nodes(&["--locality", "off"]);
    assert!(local(&rows) > 0.8 && local(&apart) < 0.7, "{} and {}", local(&rows), local(&apart));
    let both = nodes(&["--placement", "hash,directory"]);
    let names: Vec<&str> =
        both.as_array().unwrap().iter().map(|row| row["placement"].as_str().unwrap()).collect();
    assert_eq!(names, ["hash", "directory"].repeat(4), "a row for each pair, nodes and placement");
    assert_eq!(both[0]["reads"], nodes(&[])[0]["reads"], "the hash unless another is named");
    for event in ["join", "lose"] {
        let rows = nodes(&[&format!("--{event}"), "6"]);
        assert_eq!((&rows[3]["change"]["event"], &rows[3]["change"]["epoch"]), (&event.into(), &6.into()));
        assert_eq!(rows[3]["change"]["moved"].as_f64().unwrap() > 0.0, event == "join");
    }
    for wrong in [&["--nodes", "0"][..], &["--nodes", "1", "--lose", "3"], &["--nodes", "2", "--join", "99"]]
    {
        assert_eq!(hotset(&[&["--trace", &trace, "--run", "iis"], wrong].concat()), 1, "{wrong:?}");
    }
    for wrong in [
        &["--join", "3"][..],
        &["--nodes", "2", "--jobs", "2"],
        &["--nodes", "2", "--locality", "x"],
        &["--nodes", "2", "--placement", "x"],
    ] {
        assert_eq!(hotset(&[&["--trace", &trace, "--run", "iis"], wrong].concat()), 2, "{wrong:?}");
    }
}

#[test]
fn what_cannot_be_run_ends_with_an_error_and_no_report() {
    for wrong in [
        &["--cache", "-5"][..],
        &["--cache", ""],
        &["--cache", "0.2"],
        &["--cache", "20"],
        &["--run", "iis+unknown"],
        &["--run", "iis[fraction=7]"],
        &["--epochs", "0"],
        &["--epochs", "13"],
        &["--batch", "0"],
        &["--ranks", "0"],
        &["--seeds", "0"],
        &["--concurrency", "0"],
        &["--bandwidth", "0"],
        &["--bandwidth", "20%"],
        &["--sample-size", "20%"],
        &["--sample-size", "0"],
        &["--ranks", "100000"],
        &["--threads", "0"],
        &["--packages", "0"],
        &["--array", "losses"],
        &["--reevaluated", "losses"],
        &["--irreducible", "losses"],
        &["--measure-from", "12"],
        &["--images", "/no/such/folder"],
        &["--sizes", "/no/such/sizes.npy"],
        &["--html", "/no/such/folder/report.html"],
        &["--jobs", "0"],
        &["--jobs", "2000"],
        &["--jobs", "/no/such/jobs.toml"],
        &["--jobs", "2", "--run", "carousel"],
        &["--jobs", "2", "--run", "uniform+belady"],
    ] {
        let trace = trace();
        let arguments: Vec<&str> = ["--trace", &trace].into_iter().chain(wrong.iter().copied()).collect();
        assert_eq!(hotset(&arguments), if wrong[1].starts_with('-') { 2 } else { 1 }, "{wrong:?}");
    }
    assert_eq!(hotset(&[]), 2);
    assert_eq!(hotset(&["--synthetic", "0"]), 1);
    assert_eq!(hotset(&["--trace", "/no/such/trace.npz"]), 1);
}

#[test]
fn jobs_of_a_file_share_a_cache_and_each_is_reported() {
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str| place.path().join(name).display().to_string();
    let (jobs, json) = (file("jobs.toml"), file("jobs.json"));
    let described = format!(
        "[[job]]\nname = 'slow'\nbatch_time = '90ms'\nstart = '1.5s'\nseed = 4\n\
         [[job]]\ntrace = '{}'\nrun = 'uniform+icache'\nbatch = 100\nbenefit = 3.0\n",
        trace()
    );
    std::fs::write(&jobs, described).unwrap();
    let code =
        hotset(&["--trace", &trace(), "--jobs", &jobs, "--run", "iis,iis[fraction=0.5]", "--json", &json]);
    assert_eq!(code, 0);
    let all: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(all.as_array().unwrap().len(), 2, "one simulation for each pair");
    let [slow, other] = [&all[1][0], &all[1][1]];
    assert_eq!(
        (&slow["name"], &slow["strategy"], &slow["seed"]),
        (&"slow".into(), &"iis[fraction=0.5]".into(), &4.into())
    );
    assert_eq!((&other["name"], &other["strategy"]), (&"job 2".into(), &"uniform".into()));
    assert_eq!((&slow["start"], &other["benefit"]), (&1.5.into(), &3.0.into()));
    assert!(slow["end"].as_f64() > other["end"].as_f64() && slow["reads"].as_u64() > Some(0));
    assert!(slow["shared_hits"][0].as_u64() > Some(0), "it hits what the other one brought");
}

#[test]
fn a_job_that_cannot_be_simulated_is_named() {
    let place = tempfile::tempdir().unwrap();
    let jobs = place.path().join("jobs.toml");
    for wrong in [
        "",
        "job = []",
        "[[job]]\nspeed = 3",
        "[[job]]\nbatch = 0",
        "[[job]]\nbatch_time = '30'",
        "[[job]]\nstart = 'soon'",
        "[[job]]\nbenefit = -1.0",
        "[[job]]\nrun = 'iis+unknown'",
        "[[job]]\nrun = 'uniform+lru'",
        "[[job]]\ntrace = '/no/such/trace.npz'",
    ] {
        let file = jobs.display().to_string();
        let with = if wrong.contains("lru") { "[[job]]\nrun = 'iis+icache'\n" } else { "" };
        std::fs::write(&jobs, format!("{with}{wrong}\n")).unwrap();
        assert_eq!(hotset(&["--trace", &trace(), "--run", "uniform", "--jobs", &file]), 1, "{wrong}");
    }
}

#[test]
fn a_sample_may_be_of_few_bytes_without_a_unit() {
    assert_eq!(hotset(&["--trace", &trace(), "--run", "uniform", "--sample-size", "300"]), 0);
}

#[test]
fn a_made_up_trace_measures_the_simulator() {
    assert_eq!(hotset(&["--synthetic", "5000", "--run", "iis+icache", "--threads", "1"]), 0);
}
