//! What can be measured of a dataset without a training: how long its listing is, how fast its storage, and how long decoding
//! takes. A third of the time is for the listing at most; one that does not end in it is broken off, and a part of the dataset
//! is measured instead.

use std::path::Path;
use std::time::{Duration, Instant};

use hotset_core::{Error, Id, Result};
use hotset_sim::doctor::{Storage, seconds};
use hotset_store::measure::{self, Budget, Level};
use hotset_store::{Layout, Opened, Part, Request, is_credential, open, open_part};
use serde::Serialize;

use super::decoding::{self, Decoded, Decoder};
use crate::place;

/// What measuring may cost.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// All of it.
    pub time: Duration,
    /// Bytes from storage.
    pub bytes: u64,
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Survey {
    /// The dataset's place.
    pub place: String,
    /// Samples, all or those seen.
    pub samples: u64,
    /// Whether that is all.
    pub complete: bool,
    /// The mean bytes of a sample.
    pub mean_bytes: f64,
    /// Seconds of the listing.
    pub listing_seconds: f64,
    /// Whether it came from disk.
    pub listing_kept: bool,
    /// How fast storage is.
    pub storage: Storage,
    /// Seconds of one request alone: the median, 90 of 100, 99 of 100.
    pub latency: [f64; 3],
    /// Requests and bytes a second by requests at a time: small requests, and whole samples last.
    pub levels: Vec<[f64; 3]>,
    /// Bytes read.
    pub read_bytes: u64,
    /// Requests that the store refused for now.
    pub refused: u64,
    /// Requests that failed.
    pub failed: u64,
    /// How long decoding takes.
    pub decoding: Option<Decoded>,
    /// The dataset in Python.
    pub opening: Option<String>,
    /// What is to be known of the figures.
    pub notes: Vec<String>,
}

/// The share of the time for the listing, for a part of it if it does not end, and for all but decoding.
const LISTING: f64 = 0.33;
const PARTLY: f64 = 0.15;
const READING: f64 = 0.85;
/// Samples of a dataset that is not listed whole.
const SAMPLES: usize = 50_000;
/// Requests at a time that are tried at most.
const MOST: usize = 128;
/// Samples that are decoded at most.
const DECODED: usize = 64;
/// Whole samples that come at less than this share of the rate of small requests are limited by their bytes.
const BY_BYTES: f64 = 0.8;
/// A first answer so soon came from memory.
const FROM_MEMORY: f64 = 50e-6;

/// Measures a dataset.
pub fn survey(
    request: &Request,
    limits: Limits,
    decoder: Option<&Decoder<'_>>,
    progress: &mut dyn FnMut(&str, f64) -> Result<()>,
) -> Result<Survey> {
    let began = Instant::now();
    let whole = limits.time.as_secs_f64();
    let gone = || (began.elapsed().as_secs_f64() / whole).min(1.0);
    let listed =
        list(request, limits.time, &mut |seen| progress(&format!("listing: {seen} samples"), gone()))?;
    let Listed { opened, samples, complete, .. } = &listed;
    let left = |share: f64| Duration::from_secs_f64((whole * share - began.elapsed().as_secs_f64()).max(1.0));
    let budget = Budget { time: left(READING), bytes: limits.bytes, most: MOST, keep: DECODED };
    let (from, part) = (gone(), READING - gone().min(READING));
    let found =
        measure::measure(opened, budget, &mut |what, share| progress(what, (from + share * part).min(1.0)))?;
    progress("decoding", gone())?;
    let decoded = decoding::measure(opened, &found.kept, left(1.0), decoder)?;

    let mean_bytes = (opened.catalog.bytes() as f64 / opened.catalog.len().max(1) as f64).max(1.0);
    let mut notes = notes(&listed, &found);
    let decoding = match decoded {
        Ok(decoded) => {
            notes.push(format!(
                "Decoding alone ({}): {} of a core for each of {} samples. Transforms come on top: \
                 `hotset.doctor(loader)` in Python measures yours.",
                decoded.by,
                seconds(decoded.seconds),
                decoded.samples
            ));
            Some(decoded)
        }
        Err(why) => {
            notes.push(sentence(&why));
            None
        }
    };
    Ok(Survey {
        place: opened.place.clone(),
        samples: *samples,
        complete: *complete,
        mean_bytes,
        listing_seconds: listed.seconds,
        listing_kept: opened.cached,
        storage: storage(&found, mean_bytes),
        latency: [0.5, 0.9, 0.99].map(|share| found.percentile(share)),
        levels: found.levels.iter().chain(&found.whole).map(shown).collect(),
        read_bytes: found.bytes,
        refused: found.refused,
        failed: found.failed,
        decoding,
        opening: Some(opening(request, opened)),
        notes,
    })
}

fn shown(level: &Level) -> [f64; 3] {
    [level.at_a_time as f64, level.rate, level.bandwidth]
}

/// A dataset that is listed, whole or in part.
struct Listed {
    opened: Opened,
    samples: u64,
    complete: bool,
    seconds: f64,
}

fn list(request: &Request, time: Duration, tell: &mut dyn FnMut(u64) -> Result<()>) -> Result<Listed> {
    let began = Instant::now();
    let (mut seen, mut over, mut stopped) = (0, false, None);
    let mut look = |found: u64| {
        seen = seen.max(found);
        if let Err(error) = tell(found) {
            stopped = Some(error.clone());
            return Err(error);
        }
        over = began.elapsed() > time.mul_f64(LISTING);
        if over { Err(Error::unavailable("the listing took too long")) } else { Ok(()) }
    };
    let outcome = open(request, place::listings().as_deref(), &mut look);
    let seconds = began.elapsed().as_secs_f64();
    match (outcome, stopped) {
        (_, Some(error)) => Err(error),
        (Ok(opened), _) => {
            Ok(Listed { samples: opened.catalog.len() as u64, opened, complete: true, seconds })
        }
        (Err(_), _) if over => {
            let part = Part { samples: SAMPLES, time: time.mul_f64(PARTLY) };
            let opened = open_part(request, part)?;
            let samples = seen.max(opened.catalog.len() as u64);
            Ok(Listed { opened, samples, complete: false, seconds })
        }
        (Err(error), _) => Err(error),
    }
}

/// The figures of a store that a model of it takes.
fn storage(found: &measure::Measured, mean_bytes: f64) -> Storage {
    let latency = found.latency().max(1e-7);
    let useful = found.useful().map_or(1.0, |level| level.at_a_time as f64);
    // Whole samples are read for longest: where they are as fast, their rate is known best.
    let best = found.whole.as_ref().map_or(0.0, |whole| whole.rate).max(found.best());
    let requests = Some(best).filter(|_| !found.still_growing && best > 0.0);
    // As many at a time as it takes to have the best rate, which lies between two of those that were tried.
    let at_a_time = requests.map_or(useful, |requests| (requests * latency).min(useful)).max(1.0);
    let bandwidth = found.whole.as_ref().and_then(|whole| {
        let wanted = best.min(whole.at_a_time as f64 / latency);
        let large = mean_bytes > measure::SMALL as f64;
        (large && whole.rate < BY_BYTES * wanted).then_some(whole.bandwidth)
    });
    Storage { latency, requests, bandwidth, at_a_time }
}

fn notes(listed: &Listed, found: &measure::Measured) -> Vec<String> {
    let mut notes = Vec::new();
    let samples = listed.opened.catalog.len();
    if listed.complete && listed.opened.cached {
        notes.push(format!("Listing: {samples} samples, kept from before; {}.", seconds(listed.seconds)));
    } else if listed.complete {
        let rate = samples as f64 / listed.seconds.max(1e-3);
        notes.push(format!("Listing: {samples} samples in {}, {rate:.0} a second.", seconds(listed.seconds)));
    }
    let [median, most, nearly_all] = [0.5, 0.9, 0.99].map(|share| seconds(found.percentile(share)));
    notes.push(format!(
        "One request alone takes {median} in the median, 90 of 100 take {most} at most, 99 take {nearly_all}."
    ));
    if found.still_growing {
        let tried = found.levels.last().map_or(1, |level| level.at_a_time);
        notes.push(format!(
            "More at a time brought more requests a second up to the {tried} that were tried: there may be more."
        ));
    }
    if found.refused > 0 {
        notes.push(format!(
            "The store limits its requests: it refused {} of those that were made. Keep below {} at a time (`hotset \
             serve --concurrency`).",
            found.refused,
            found.levels.iter().find(|level| level.refused > 0.0).map_or(1, |level| level.at_a_time)
        ));
    }
    if let Some(why) = found.failure.as_ref().filter(|_| found.failed > 0) {
        notes.push(format!("{} reads failed; the first: {why}.", found.failed));
    }
    if found.percentile(0.5) < FROM_MEMORY {
        notes.push(
            "Requests came as fast as memory answers: the system keeps these files in its page cache, which it may not \
             do with all of them in a long training."
                .into(),
        );
    } else if found.repeated {
        notes.push(
            "All samples were read, some of them twice: the second time they may have come from memory."
                .into(),
        );
    }
    notes
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

/// Endings of names that `ImageFolder` takes for images.
const IMAGES: [&str; 9] = [".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"];

/// The dataset as it is opened in Python, without its closing bracket.
fn opening(request: &Request, opened: &Opened) -> String {
    let seen = (0..opened.catalog.len().min(1_000) as Id).map(|id| opened.catalog.key(id).to_lowercase());
    let mut folders = seen.map(|key| key.contains('/') && IMAGES.iter().any(|ending| key.ends_with(ending)));
    let class = match request.layout {
        Layout::Images => "ImageFolder",
        Layout::Files if folders.all(|image| image) => "ImageFolder",
        Layout::Files => "Dataset",
        Layout::Shards => "Shards",
        Layout::Manifest => "Manifest",
    };
    let mut text = format!("hotset.{class}({:?}", request.place);
    if !request.root.is_empty() {
        text.push_str(&format!(", root={:?}", request.root));
    }
    if !request.extensions.is_empty() {
        let name = if request.layout == Layout::Shards { "parts" } else { "extensions" };
        text.push_str(&format!(", {name}={:?}", request.extensions));
    }
    // Credentials belong into the environment, and not onto a screen.
    let shown = request.storage_options.iter().filter(|(name, _)| !is_credential(name));
    let options: Vec<String> = shown.map(|(name, value)| format!("{name:?}: {value:?}")).collect();
    if !options.is_empty() {
        text.push_str(&format!(", storage_options={{{}}}", options.join(", ")));
    }
    text
}

/// Bytes that are free where `directory` lies.
pub(super) fn free(directory: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(directory).ok()?;
    found.f_bavail.checked_mul(found.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(at_a_time: usize, rate: f64, bandwidth: f64) -> Level {
        Level { at_a_time, rate, bandwidth, answers: 100, refused: 0.0 }
    }

    #[test]
    fn a_limit_of_bytes_is_one_where_whole_samples_come_more_slowly() {
        let small = |rates: &[f64]| {
            rates.iter().enumerate().map(|(at, rate)| level(1 << at, *rate, 0.0)).collect::<Vec<_>>()
        };
        let found = measure::Measured {
            latencies: vec![0.005; 10],
            levels: small(&[200.0, 400.0, 800.0, 1_600.0, 3_200.0, 3_200.0, 3_200.0]),
            whole: Some(level(16, 900.0, 99e6)),
            ..Default::default()
        };
        let bytes = storage(&found, 110_000.0);
        assert_eq!((bytes.bandwidth, bytes.requests), (Some(99e6), Some(3_200.0)));
        assert!((bytes.at_a_time - 16.0).abs() < 1e-6, "{bytes:?}");
        let requests = measure::Measured { whole: Some(level(16, 3_100.0, 341e6)), ..found.clone() };
        assert_eq!(storage(&requests, 110_000.0).bandwidth, None);
        let more = measure::Measured { still_growing: true, ..requests };
        assert_eq!(storage(&more, 110_000.0).requests, None, "no limit was met");
    }
}
