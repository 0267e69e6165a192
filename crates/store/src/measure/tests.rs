use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use super::*;
use crate::layout::Layout;
use crate::open::{Request as Dataset, open};

fn dataset(files: usize, size: usize, options: &[(&str, &str)]) -> (tempfile::TempDir, Opened) {
    let place = tempfile::tempdir().unwrap();
    for file in 0..files {
        std::fs::write(place.path().join(format!("{file:05}")), vec![1; size]).unwrap();
    }
    let opened = opened(place.path(), options);
    (place, opened)
}

fn opened(place: &Path, options: &[(&str, &str)]) -> Opened {
    let options = options.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    let request = Dataset {
        place: place.display().to_string(),
        layout: Layout::Files,
        extensions: Vec::new(),
        label: String::new(),
        root: String::new(),
        storage_options: options.collect::<BTreeMap<_, _>>(),
    };
    open(&request, None, &mut |_| Ok(())).unwrap()
}

fn budget(seconds: f64) -> Budget {
    Budget { time: Duration::from_secs_f64(seconds), bytes: 64 << 20, most: 64, keep: 4 }
}

/// What holds where nothing else takes the cores meanwhile: it is tried up to three times.
fn undisturbed(test: impl Fn()) {
    for _ in 0..2 {
        if catch_unwind(AssertUnwindSafe(&test)).is_ok() {
            return;
        }
    }
    test();
}

#[test]
fn a_limit_of_requests_is_found_and_bytes_are_none() {
    let (_place, opened) = dataset(500, 2_000, &[("throttle.latency", "20ms"), ("throttle.requests", "8")]);
    undisturbed(|| {
        let found = measure(&opened, budget(6.0), &mut |_, _| Ok(())).unwrap();
        assert!((0.019..0.06).contains(&found.latency()), "{found:?}");
        assert_eq!(found.useful().unwrap().at_a_time, 8, "{:?}", found.levels);
        let best = found.useful().unwrap().rate;
        assert!((200.0..440.0).contains(&best), "400 a second at most: {best}");
        assert!(!found.still_growing && found.whole.is_some());
        assert_eq!((found.kept.len(), found.kept[0].1.len()), (4, 2_000));
        assert!(found.seconds < 7.0 && found.bytes <= 64 << 20, "{} s, {} bytes", found.seconds, found.bytes);
    });
}

#[test]
fn a_limit_of_bytes_makes_whole_samples_slower_than_small_requests() {
    let options =
        [("throttle.latency", "2ms"), ("throttle.bandwidth", "20MB/s"), ("throttle.requests", "16")];
    let (_place, opened) = dataset(120, 200_000, &options);
    undisturbed(|| {
        let found = measure(&opened, budget(6.0), &mut |_, _| Ok(())).unwrap();
        let (small, whole) = (found.useful().unwrap().rate, found.whole.unwrap());
        assert!(whole.rate * 3.0 < small, "{whole:?} beside {small}");
        assert!((14e6..24e6).contains(&whole.bandwidth), "{whole:?}");
    });
}

#[test]
fn no_more_bytes_are_read_than_are_allowed_but_for_those_under_way() {
    let (_place, opened) = dataset(50, 1 << 20, &[("throttle.latency", "1ms")]);
    let few = Budget { bytes: 4 << 20, most: 4, ..budget(4.0) };
    let found = measure(&opened, few, &mut |_, _| Ok(())).unwrap();
    assert!(found.bytes <= (4 + 4) << 20, "{}", found.bytes);
}

#[test]
fn a_store_that_answers_faster_than_is_looked_leaves_bytes_for_whole_samples() {
    let (_place, opened) = dataset(50, 1 << 20, &[]);
    let slow_look = &mut |_: &str, _| {
        std::thread::sleep(Duration::from_millis(2));
        Ok(())
    };
    let found = measure(&opened, Budget { bytes: 8 << 20, ..budget(6.0) }, slow_look).unwrap();
    assert!(found.bytes <= (8 + 3) << 20, "{}", found.bytes);
    assert!(found.whole.is_some() && !found.kept.is_empty(), "{:?}", found.levels);
}

#[test]
fn slow_answers_are_measured_within_the_time() {
    let (_place, opened) = dataset(40, 100, &[("throttle.latency", "2s")]);
    undisturbed(|| {
        let began = Instant::now();
        let found = measure(&opened, budget(12.0), &mut |_, _| Ok(())).unwrap();
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
        assert!((2.0..2.3).contains(&found.latency()), "{:?}", found.latencies);
        let last = found.levels.last().unwrap();
        assert!(last.at_a_time >= 4 && last.rate > 1.2, "more at a time bring more: {:?}", found.levels);
    });
}

#[test]
fn a_store_that_never_answers_is_given_up_when_the_time_is_over() {
    let (_place, opened) = dataset(3, 100, &[("throttle.latency", "1h")]);
    undisturbed(|| {
        let began = Instant::now();
        let error = measure(&opened, budget(1.0), &mut |_, _| Ok(())).unwrap_err();
        assert!(error.message.contains("no answer in 1 s") && error.message.contains("`seconds`"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(4));
    });
}

#[test]
fn a_store_that_refuses_many_at_a_time_is_asked_for_fewer() {
    /// Takes so many at a time and refuses the rest.
    struct Limited(std::sync::atomic::AtomicUsize);
    impl crate::store::Store for Limited {
        fn read(
            &self,
            _: crate::store::Location<'_>,
            _: &mut [u8],
        ) -> std::result::Result<(), crate::store::ReadError> {
            use std::sync::atomic::Ordering;
            let now = self.0.fetch_add(1, Ordering::SeqCst);
            if now < 4 {
                std::thread::sleep(Duration::from_millis(20));
            }
            self.0.fetch_sub(1, Ordering::SeqCst);
            if now < 4 { Ok(()) } else { Err(crate::store::ReadError::Busy("503".into())) }
        }
    }
    let (_place, opened) = dataset(100, 500, &[]);
    let opened = Opened { store: Arc::new(Limited(0.into())), ..opened };
    undisturbed(|| {
        let found = measure(&opened, budget(5.0), &mut |_, _| Ok(())).unwrap();
        assert!(found.refused > 0 && found.failed == 0);
        assert_eq!(found.useful().unwrap().at_a_time, 4, "{:?}", found.levels);
        assert_eq!(found.levels.last().unwrap().at_a_time, 8, "no more after the first refusals");
    });
}

#[test]
fn what_fails_is_counted_with_the_first_reason_and_nothing_but_failures_is_an_error() {
    let (place, opened) = dataset(40, 100, &[("throttle.latency", "1ms")]);
    for file in 0..10 {
        std::fs::remove_file(place.path().join(format!("{file:05}"))).unwrap();
    }
    let found = measure(&opened, budget(3.0), &mut |_, _| Ok(())).unwrap();
    assert!(found.failed > 0 && found.failure.unwrap().contains("gone since it was listed"));
    for file in 10..40 {
        std::fs::remove_file(place.path().join(format!("{file:05}"))).unwrap();
    }
    let error = measure(&opened, budget(3.0), &mut |_, _| Ok(())).unwrap_err();
    assert!(error.to_string().contains("gone since it was listed"), "{error}");
}

#[test]
fn progress_hears_every_stage_and_its_error_ends_it() {
    let (_place, opened) = dataset(40, 100, &[("throttle.latency", "30ms")]);
    let mut stages = Vec::new();
    let mut progress = |stage: &str, gone: f64| {
        assert!((0.0..=1.0).contains(&gone));
        if stages.last().is_none_or(|last: &String| last != stage) {
            stages.push(stage.to_owned());
        }
        Ok(())
    };
    measure(&opened, budget(3.0), &mut progress).unwrap();
    assert_eq!(stages.first().map(String::as_str), Some("one request at a time"));
    assert_eq!(stages.last().map(String::as_str), Some("whole samples"));
    let error = measure(&opened, budget(3.0), &mut |_, _| Err(Error::unavailable("stopped"))).unwrap_err();
    assert_eq!(error.message, "stopped");
}
