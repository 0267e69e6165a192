use super::*;

/// Eight cores and as many workers, batches of 256, 1.2 million samples of 110 KB, 64 GiB of memory and 1 TiB of disk;
/// storage that is no limit, decoding of 3 ms, training of 2,000 a second.
fn usual() -> Measured {
    Measured {
        name: "train".into(),
        samples: 1_200_000,
        complete: true,
        mean_bytes: Some(110_000.0),
        storage: Storage { latency: 0.000_2, requests: Some(40_000.0), bandwidth: Some(3e9), at_a_time: 8.0 },
        preparing: Some(0.003),
        decoding_only: false,
        computing: Some(1.0 / 2_000.0),
        loaded: None,
        starting: 0.0,
        loader: Loader { batch: 256, workers: 8, cores: 8 },
        memory: 64 << 30,
        disk: Some(1 << 40),
        reads: 32,
        epochs: 30,
        opening: Some("hotset.ImageFolder(\"train\"".into()),
        hotset: false,
        notes: Vec::new(),
    }
}

fn judged(measured: &Measured) -> Diagnosis {
    diagnose(measured).unwrap()
}

/// The shares of an epoch are shares, whatever was measured.
fn adds_up(diagnosis: &Diagnosis) {
    let Shares { storage, preparing, starting, computing } = diagnosis.shares;
    assert!((storage + preparing + starting + computing - 1.0).abs() < 1e-6, "{:?}", diagnosis.shares);
    for one in &diagnosis.candidates {
        assert!(one.epoch > 0.0 && one.saves <= 1.0, "{one:?}");
        assert_eq!(one.lossless, one.costs.is_empty(), "{one:?}");
    }
}

#[test]
fn a_fast_disk_is_no_bottleneck() {
    let fast = Measured { computing: Some(1.0 / 1_500.0), ..usual() };
    let found = judged(&fast);
    assert_eq!(found.bottleneck, Bottleneck::Computing);
    assert!(found.verdict.contains("Storage is not your bottleneck"), "{}", found.verdict);
    assert!(found.verdict.contains("Hotset will not help"), "{}", found.verdict);
    assert_eq!((found.best, &found.paste), (None, &None));
    adds_up(&found);
}

#[test]
fn a_limit_of_requests_is_named_and_a_cache_that_fits_removes_it() {
    let bound = Measured {
        samples: 5_000_000,
        mean_bytes: Some(1_500.0),
        storage: Storage { latency: 0.005, requests: Some(3_200.0), bandwidth: None, at_a_time: 16.0 },
        preparing: Some(0.000_1),
        computing: Some(1.0 / 20_000.0),
        loader: Loader { workers: 16, cores: 16, batch: 256 },
        ..usual()
    };
    let found = judged(&bound);
    assert_eq!(found.bottleneck, Bottleneck::Requests, "{:?}", found.rates);
    assert!((0.80..0.88).contains(&found.shares.storage), "20,000 a second beside 3,200: {:?}", found.shares);
    assert!(found.verdict.starts_with("Storage costs you 84 % of an epoch."), "{}", found.verdict);
    let best = &found.candidates[found.best.unwrap()];
    assert_eq!(best.cache.as_deref(), Some("100%"));
    assert!(!text(&found, 100).contains("What changes what is trained"), "nothing of it is needed");
    assert!(found.verdict.contains("removes it from the second epoch"), "{}", found.verdict);
    assert!(found.paste.as_ref().unwrap().contains("cache=\"100%\")"));
    let half =
        found.candidates.iter().find(|one| one.lossless && one.cache.as_deref() == Some("50%")).unwrap();
    assert!((0.45..0.55).contains(&half.saves), "half of the reads, half of the time: {half:?}");
    let ahead = found.candidates.iter().find(|one| one.name == "reading ahead alone").unwrap();
    assert!(ahead.saves < 0.05, "storage gives no more to any reader: {ahead:?}");
    let lossy: Vec<&str> =
        found.candidates.iter().filter(|one| !one.lossless).filter_map(|one| one.pair.as_deref()).collect();
    assert_eq!(lossy.len(), 4);
    let packed = found.candidates.iter().find(|one| one.packages).unwrap();
    assert!(packed.epoch < half.epoch && packed.costs.len() == 2, "{packed:?}");
    adds_up(&found);
}

#[test]
fn a_limit_of_bytes_is_told_from_one_of_requests() {
    let bound = Measured {
        storage: Storage { latency: 0.005, requests: Some(6_000.0), bandwidth: Some(60e6), at_a_time: 30.0 },
        ..usual()
    };
    let found = judged(&bound);
    assert_eq!(found.bottleneck, Bottleneck::Bytes);
    assert!(found.reasons[0].contains("MiB/s"), "{:?}", found.reasons);
    assert!(found.shares.storage > 0.6, "{:?}", found.shares);
    adds_up(&found);
}

#[test]
fn decoding_that_is_the_limit_is_said_and_nothing_is_sold() {
    let bound = Measured { preparing: Some(0.016), ..usual() };
    let found = judged(&bound);
    assert_eq!(found.bottleneck, Bottleneck::Preparing);
    assert!(
        found.verdict.contains("decoding and transforming is: Hotset will not help"),
        "{}",
        found.verdict
    );
    assert!(found.verdict.contains("32 cores"), "{}", found.verdict);
    assert_eq!(found.best, None);
    let few = judged(&Measured { loader: Loader { workers: 4, ..bound.loader }, ..bound });
    assert!(few.reasons.iter().any(|reason| reason.contains("More workers")), "{:?}", few.reasons);
    adds_up(&found);
}

#[test]
fn storage_that_costs_less_than_decoding_and_still_much_is_not_passed_over() {
    let storage = Storage { latency: 0.006, requests: None, bandwidth: None, at_a_time: 128.0 };
    let both = Measured { storage, preparing: Some(0.014), ..usual() };
    let found = judged(&both);
    assert_eq!(found.bottleneck, Bottleneck::Preparing);
    assert!(found.verdict.starts_with("Decoding and transforming is your bottleneck"), "{}", found.verdict);
    assert!(found.verdict.contains("Storage costs another") && found.best.is_some(), "{}", found.verdict);
    assert!(!found.verdict.contains("will not help"), "{}", found.verdict);
    adds_up(&found);
}

#[test]
fn training_that_is_slower_than_slow_storage_is_the_bottleneck() {
    let slow = Storage { latency: 0.02, requests: Some(600.0), bandwidth: Some(60e6), at_a_time: 12.0 };
    let bound = Measured { storage: slow, computing: Some(1.0 / 150.0), ..usual() };
    let found = judged(&bound);
    assert_eq!(found.bottleneck, Bottleneck::Computing, "{:?}", found.shares);
    assert!(found.shares.computing > 0.9, "{:?}", found.shares);
    let faster = judged(&Measured { computing: Some(1.0 / 2_000.0), ..bound });
    assert!(faster.bottleneck.is_storage(), "the same storage with another trainer");
    adds_up(&found);
}

#[test]
fn a_tiny_dataset_needs_no_cache_of_its_own() {
    let tiny = Measured {
        samples: 8_000,
        mean_bytes: Some(1_200.0),
        storage: Storage { latency: 0.005, requests: Some(3_200.0), bandwidth: None, at_a_time: 16.0 },
        preparing: Some(0.000_1),
        computing: Some(1.0 / 20_000.0),
        ..usual()
    };
    let found = judged(&tiny);
    assert_eq!(found.bottleneck, Bottleneck::Tiny);
    assert!(found.verdict.contains("a list once"), "{}", found.verdict);
    assert_eq!(found.candidates[found.best.unwrap()].cache.as_deref(), Some("100%"));
    let many = judged(&Measured { complete: false, ..tiny });
    assert_ne!(many.bottleneck, Bottleneck::Tiny, "more samples than were seen are not tiny");
    adds_up(&found);
}

fn object_store(memory: u64, disk: u64) -> Measured {
    let storage = Storage { latency: 0.03, requests: Some(900.0), bandwidth: Some(80e6), at_a_time: 27.0 };
    Measured { storage, memory, disk: Some(disk), preparing: Some(0.002), ..usual() }
}

#[test]
fn what_fits_memory_is_kept_there() {
    let found = judged(&object_store(512 << 30, 1 << 40));
    assert!(found.bottleneck.is_storage());
    let best = &found.candidates[found.best.unwrap()];
    assert!(best.share <= 100.0, "{best:?}");
    assert!(best.saves > 0.5 && best.first_epoch > best.epoch, "{best:?}");
    assert!(found.verdict.contains("from the second epoch"), "{}", found.verdict);
    assert!(!found.verdict.contains("disk"), "{}", found.verdict);
    assert!(found.reasons.iter().any(|reason| reason.contains("fits the memory")), "{:?}", found.reasons);
    adds_up(&found);
}

#[test]
fn what_fits_a_disk_alone_is_said_without_a_promise() {
    let found = judged(&object_store(32 << 30, 1 << 40));
    assert!(found.bottleneck.is_storage());
    assert!(found.verdict.contains("a copy on a local disk"), "{}", found.verdict);
    assert!(found.verdict.contains("Hotset keeps samples in memory alone"), "{}", found.verdict);
    let most = found.measured.memory as f64 * 0.7;
    for one in &found.candidates {
        assert!(one.cache_bytes.unwrap_or(0) as f64 <= most * 1.001, "no cache beyond memory: {one:?}");
    }
    let none = judged(&object_store(32 << 30, 1 << 30));
    assert!(!none.verdict.contains("disk"), "{}", none.verdict);
    adds_up(&found);
}

#[test]
fn a_loader_that_asks_for_little_at_a_time_needs_workers_or_reading_ahead() {
    let storage = Storage { latency: 0.04, requests: Some(1_600.0), bandwidth: None, at_a_time: 64.0 };
    let waiting = Measured {
        storage,
        preparing: Some(0.000_5),
        mean_bytes: Some(10_000.0),
        loader: Loader { workers: 4, cores: 8, batch: 64 },
        ..usual()
    };
    let found = judged(&waiting);
    assert_eq!(found.bottleneck, Bottleneck::Waiting);
    let workers = found.candidates.iter().find(|one| one.pair.is_none()).unwrap();
    assert!(workers.workers == 32 && workers.saves > 0.7, "{workers:?}");
    let ahead = found.candidates.iter().find(|one| one.name == "reading ahead alone").unwrap();
    assert!(ahead.saves > 0.7, "{ahead:?}");
}

#[test]
fn without_a_trainers_rate_the_verdict_says_for_whom_it_holds() {
    let slow = Measured { computing: None, ..object_store(32 << 30, 1 << 30) };
    let found = judged(&slow);
    assert!(found.conditional && found.bottleneck.is_storage());
    assert!(
        found.verdict.starts_with("Storage is your bottleneck if training takes more than"),
        "{}",
        found.verdict
    );
    assert!(found.reasons.iter().any(|reason| reason.contains("--step")), "{:?}", found.reasons);
    let decoding = judged(&Measured { computing: None, preparing: Some(0.02), ..usual() });
    assert_eq!(decoding.bottleneck, Bottleneck::Preparing);
}

#[test]
fn a_loader_without_workers_does_one_thing_at_a_time() {
    let single =
        Measured { loader: Loader { workers: 0, cores: 8, batch: 256 }, ..object_store(512 << 30, 1 << 40) };
    let found = judged(&single);
    let each = single.fetching() + 0.002 + 1.0 / 2_000.0;
    assert!((found.rates.epoch / (each * 1_200_000.0) - 1.0).abs() < 0.01, "{:?}", found.rates);
    assert_eq!(found.bottleneck, Bottleneck::Waiting);
    adds_up(&found);
}

#[test]
fn every_width_is_kept_where_words_allow_and_the_verdict_comes_first() {
    let found = judged(&object_store(32 << 30, 1 << 40));
    for width in [40, 60, 80, 200] {
        let text = text(&found, width);
        assert!(text.starts_with("Storage costs you"), "{text}");
        let paste = text.find("To paste").unwrap();
        for line in text[..paste].lines().filter(|line| line.trim().contains(' ')) {
            assert!(line.chars().count() <= width.max(40), "{width}: {line}");
        }
        assert!(text.is_ascii() || text.contains('±'), "{text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains("accuracy on your data unknown") && words.contains("measured elsewhere: CIFAR-10")
        );
    }
}

#[test]
fn a_page_needs_nothing_else_and_a_name_is_no_markup() {
    let found =
        judged(&Measured { name: "<script>alert(1)</script>".into(), ..object_store(32 << 30, 1 << 40) });
    // The name of SVG's own markup is no address that is asked.
    let page = page(&found).replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    assert!(page.starts_with("<!doctype html>") && page.contains("What trains the same"));
    for outside in ["<script", "http://", "https://", "src=", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn figures_that_no_measurement_gives_are_refused_by_name() {
    type Spoil = fn(&mut Measured);
    let wrong: [(&str, Spoil); 6] = [
        ("samples", |it| it.samples = 0),
        ("mean_bytes", |it| it.mean_bytes = Some(f64::NAN)),
        ("storage.latency", |it| it.storage.latency = -1.0),
        ("storage.bandwidth", |it| it.storage.bandwidth = Some(0.0)),
        ("loader.batch", |it| it.loader.batch = 0),
        ("computing", |it| it.computing = Some(f64::INFINITY)),
    ];
    for (name, spoil) in wrong {
        let mut measured = usual();
        spoil(&mut measured);
        let error = diagnose(&measured).unwrap_err();
        assert!(error.message.contains(&format!("`{name}`")), "{error}");
    }
}

#[test]
fn what_was_measured_goes_out_and_in_as_json() {
    let found = judged(&usual());
    let json = serde_json::to_value(&found).unwrap();
    let back: Measured = serde_json::from_value(json["measured"].clone()).unwrap();
    assert_eq!(back, found.measured);
    assert_eq!(json["bottleneck"], "computing");
}

#[test]
fn workers_that_start_cost_every_way_but_one_that_storage_bounds() {
    let storage = Storage { latency: 0.01, requests: Some(800.0), bandwidth: None, at_a_time: 8.0 };
    let short = Measured {
        samples: 6_000,
        mean_bytes: Some(12_000.0),
        storage,
        preparing: None,
        computing: Some(0.000_2),
        loader: Loader { batch: 64, workers: 8, cores: 2 },
        starting: 0.75,
        ..usual()
    };
    let found = judged(&short);
    adds_up(&found);
    assert!((found.shares.starting - 0.75 / found.rates.epoch).abs() < 1e-9);
    let way = |name: &str| found.candidates.iter().find(|one| one.name == name).unwrap();
    // The server reads on while workers start: 7.5 s for 6,000 samples, and no more.
    assert!((7.4..7.7).contains(&way("reading ahead alone").epoch), "{:?}", way("reading ahead alone"));
    let kept = way("`uniform`, 100% in memory").epoch;
    assert!((kept - found.rates.epoch_from_memory).abs() < 1e-9 && kept > 0.75, "{kept}");
    let single = judged(&Measured { samples: 2_000, ..short });
    assert!(
        single.reasons.iter().any(|reason| reason.contains("persistent_workers")),
        "{:?}",
        single.reasons
    );
}

#[test]
fn without_bytes_caches_are_shares_and_none_is_promised_to_fit() {
    let storage = Storage { latency: 0.02, requests: Some(400.0), bandwidth: None, at_a_time: 8.0 };
    let unknown = Measured { mean_bytes: None, storage, opening: None, memory: 1 << 30, ..usual() };
    let found = judged(&unknown);
    assert_eq!(found.bottleneck, Bottleneck::Requests);
    assert!(found.candidates.iter().all(|one| one.cache_bytes.is_none() && !one.packages));
    assert!(!found.reasons.iter().any(|reason| reason.contains("fits the memory")), "{:?}", found.reasons);
    assert_eq!(found.paste, None, "nothing says how the dataset is opened");
    let bandwidth = Storage { bandwidth: Some(1e6), ..storage };
    assert!(
        diagnose(&Measured { storage: bandwidth, ..unknown }).is_err(),
        "a rate of bytes needs their number"
    );
}

#[test]
fn a_loader_that_was_run_says_more_than_a_model_of_it() {
    let seen = Measured { loaded: Some(300.0), ..object_store(512 << 30, 1 << 40) };
    let found = judged(&seen);
    assert!((found.rates.epoch * 300.0 / 1_200_000.0 - 1.0).abs() < 0.02, "{:?}", found.rates);
    assert_eq!(found.rates.fetching_and_preparing, 300.0);
    adds_up(&found);
}
