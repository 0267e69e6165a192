//! A verdict in words.

use hotset_core::bytes::human;

use super::candidates::{ALIKE, Candidate, WORTH, largest};
use super::{Bottleneck, Diagnosis};

/// A loader that takes so many times as long as a model of it is told of.
const SLOWED: f64 = 1.3;

/// The verdict in a sentence or two.
pub(super) fn verdict(diagnosis: &Diagnosis) -> String {
    let Diagnosis { bottleneck, shares, rates, measured, .. } = diagnosis;
    match bottleneck {
        Bottleneck::Computing => format!(
            "Storage is not your bottleneck, training itself is: Hotset will not help. Training takes {} of an epoch.",
            percent(shares.computing)
        ),
        Bottleneck::Preparing => {
            let what = preparing(diagnosis);
            let cores = match (measured.computing, rates.preparing) {
                (Some(computing), Some(_)) if shares.preparing >= WORTH => {
                    let core = measured.preparing.unwrap_or(0.0) * measured.pace();
                    let needed = (core / computing.max(1e-9)).ceil();
                    format!(" Training would take {needed:.0} cores of {what}.")
                }
                _ => String::new(),
            };
            if diagnosis.storage_matters() {
                let what = format!("{}{}", what[..1].to_uppercase(), &what[1..]);
                return format!(
                    "{what} is your bottleneck, and costs you {} of an epoch.{cores} Storage costs another {}. {}",
                    percent(shares.preparing),
                    percent(shares.storage),
                    cures(diagnosis)
                );
            }
            format!("Storage is not your bottleneck, {what} is: Hotset will not help.{cores}")
        }
        Bottleneck::Tiny => format!(
            "{} The dataset is tiny ({}): any cache that holds it removes that from the second epoch, and so does reading \
             it into a list once.",
            cost(diagnosis),
            all_bytes(diagnosis)
        ),
        Bottleneck::Requests | Bottleneck::Bytes | Bottleneck::Waiting => {
            format!("{} {}", cost(diagnosis), cures(diagnosis))
        }
    }
}

/// What storage costs, or for whom it costs something.
fn cost(diagnosis: &Diagnosis) -> String {
    if diagnosis.conditional {
        let most = rate(diagnosis.rates.fetching_and_preparing);
        return format!(
            "Storage is your bottleneck if training takes more than {most} samples a second; if it takes fewer, Hotset \
             will not help."
        );
    }
    format!("Storage costs you {} of an epoch.", percent(diagnosis.shares.storage))
}

fn preparing(diagnosis: &Diagnosis) -> &'static str {
    if diagnosis.measured.decoding_only { "decoding" } else { "decoding and transforming" }
}

/// What would help, without touching what is trained.
fn cures(diagnosis: &Diagnosis) -> String {
    let ahead =
        diagnosis.candidates.iter().find(|one| one.lossless && one.pair.is_some() && one.share == 0.0);
    let removes = |one: &Candidate| removes(diagnosis, one);
    let mut said = Vec::new();
    if let Some(best) = diagnosis.best.map(|at| &diagnosis.candidates[at]) {
        let what = if removes(best) {
            "removes it".into()
        } else {
            format!("saves {} of an epoch", percent(best.saves))
        };
        let when = if best.share > 0.0 { " from the second epoch" } else { "" };
        let what = format!("{} {what}{when}", named(best));
        said.push(match ahead.filter(|ahead| ahead.name != best.name && ahead.saves >= WORTH) {
            Some(ahead) => format!("{what}, reading ahead alone saves {}", percent(ahead.saves)),
            None => what,
        });
    }
    let fits = largest(&diagnosis.measured) >= 1.0;
    let removed = diagnosis.best.is_some_and(|at| removes(&diagnosis.candidates[at]));
    let bytes = diagnosis.measured.bytes().unwrap_or(f64::INFINITY);
    if !fits && !removed && diagnosis.measured.disk.is_some_and(|free| free as f64 > bytes) {
        said.push(format!(
            "a copy on a local disk would take {} and remove it (copy it yourself: Hotset keeps samples in memory alone)",
            all_bytes(diagnosis)
        ));
    }
    if said.is_empty() {
        return "Without touching what is trained nothing here saves a tenth of an epoch.".into();
    }
    let of = if diagnosis.conditional { ", for a training that takes all it gets" } else { "" };
    format!("Without touching what is trained{of}: {}.", said.join("; "))
}

/// Whether a way leaves next to nothing of what storage costs.
pub(super) fn removes(diagnosis: &Diagnosis, one: &Candidate) -> bool {
    let lost = diagnosis.rates.epoch - diagnosis.rates.epoch_from_memory;
    one.epoch <= diagnosis.rates.epoch_from_memory + ALIKE * lost.max(0.0)
}

fn named(one: &Candidate) -> String {
    match one.cache_bytes {
        Some(bytes) if bytes > 0 => format!("`uniform` with {} of memory", human(bytes)),
        _ => one.name.clone(),
    }
}

/// The bytes of the dataset.
fn all_bytes(diagnosis: &Diagnosis) -> String {
    diagnosis.measured.bytes().map_or_else(|| "not known".into(), |bytes| human(bytes as u64))
}

/// Why, in sentences.
pub(super) fn reasons(diagnosis: &Diagnosis) -> Vec<String> {
    let Diagnosis { measured, rates, bottleneck, .. } = diagnosis;
    let mut reasons = Vec::new();
    let storage = &measured.storage;
    match bottleneck {
        Bottleneck::Requests => reasons.push(format!(
            "Storage answers {} requests a second, however many are made at a time; {} at a time are of use.",
            rate(storage.requests.unwrap_or(rates.fetching)),
            rate(storage.at_a_time)
        )),
        Bottleneck::Bytes => reasons.push(format!(
            "Storage gives {}/s, which is {} samples a second of {}.",
            human(storage.bandwidth.unwrap_or(0.0) as u64),
            rate(measured.most()),
            human(measured.mean_bytes.unwrap_or(0.0) as u64)
        )),
        Bottleneck::Waiting => reasons.push(format!(
            "A sample takes {} to come, and {} of them are asked for at a time; storage answers {} at a time and more.",
            seconds(measured.fetching()),
            measured.loader.workers.max(1),
            rate(storage.at_a_time)
        )),
        Bottleneck::Preparing => {
            if let Some(preparing) = measured.preparing {
                let Some(hands) = rates.preparing else { return reasons };
                reasons.push(format!(
                    "A sample takes {} of a core; {} workers on {} cores prepare {} a second.",
                    seconds(preparing),
                    measured.loader.workers,
                    measured.loader.cores,
                    rate(hands)
                ));
            }
            let idle = measured.loader.cores > measured.loader.workers.max(1);
            reasons.push(if idle {
                format!("More workers would help: there are {} cores.", measured.loader.cores)
            } else {
                "What helps is fewer bytes to decode (smaller images kept on disk), a faster decoder, decoding on the \
                 GPU, or more cores."
                    .into()
            });
        }
        Bottleneck::Computing | Bottleneck::Tiny => {}
    }
    let fits = largest(measured);
    if diagnosis.storage_matters() && measured.mean_bytes.is_some() {
        reasons.push(if fits >= 1.0 {
            format!(
                "The dataset ({}) fits the memory that is free ({}).",
                all_bytes(diagnosis),
                human(measured.memory)
            )
        } else {
            format!(
                "The memory that is free ({}) holds {} of the dataset ({}) beside the training.",
                human(measured.memory),
                percent(fits),
                all_bytes(diagnosis)
            )
        });
    }
    if measured.pace() >= SLOWED {
        reasons.push(format!(
            "The loader took {:.1} times as long as its samples one by one would: other work on the machine, or a storage \
             that is slower for many at a time.",
            measured.pace()
        ));
    }
    if diagnosis.shares.starting >= ALIKE {
        reasons.push(format!(
            "Workers that start and end take {} of each epoch ({}): `persistent_workers=True` keeps them.",
            percent(diagnosis.shares.starting),
            seconds(measured.starting)
        ));
    }
    if diagnosis.conditional {
        reasons.push(
            "How fast the training takes samples is not known here: give `--step 30ms`, the time of a step, or measure \
             your own loop with `hotset.doctor(loader, step=...)`."
                .into(),
        );
    }
    if !measured.complete {
        reasons.push(format!(
            "The listing did not end in its time: sizes are those of {} samples that were seen, and there are more.",
            rate(measured.samples as f64)
        ));
    }
    reasons.extend(measured.notes.iter().cloned());
    reasons
}

/// The lines of Python for the best way.
pub(super) fn paste(diagnosis: &Diagnosis) -> Option<String> {
    let best = &diagnosis.candidates[diagnosis.best?];
    let batch = diagnosis.measured.loader.batch;
    let Some(cache) = &best.cache else {
        return Some(format!("loader = DataLoader(..., batch_size={batch}, num_workers={})", best.workers));
    };
    let opening = diagnosis.measured.opening.clone()?;
    Some(format!(
        "train = {opening}, cache=\"{cache}\")\n\
         sampler = hotset.Sampler(train, seed=0)\n\
         loader = DataLoader(train, batch_size={batch}, sampler=sampler, num_workers={})",
        best.workers
    ))
}

/// A share in whole hundredths; something is never nothing.
pub(super) fn percent(share: f64) -> String {
    match share * 100.0 {
        little if little > 0.0 && little < 1.0 => "less than 1 %".into(),
        most => format!("{most:.0} %"),
    }
}

/// A number with three digits that count, and thousands apart.
pub(super) fn rate(value: f64) -> String {
    if value < 10.0 {
        return format!("{value:.1}");
    }
    let step = 10f64.powf(value.log10().floor() - 2.0).max(1.0);
    let whole = format!("{:.0}", (value / step).round() * step);
    let mut apart = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            apart.push(',');
        }
        apart.push(digit);
    }
    apart
}

/// A time with its unit.
pub fn seconds(value: f64) -> String {
    match value {
        long if long >= 5_400.0 => format!("{:.1} h", long / 3_600.0),
        some if some >= 100.0 => format!("{:.0} min", some / 60.0),
        some if some >= 10.0 => format!("{some:.0} s"),
        some if some >= 1.0 => format!("{some:.1} s"),
        short if short >= 0.01 => format!("{:.0} ms", short * 1e3),
        short if short >= 0.001 => format!("{:.1} ms", short * 1e3),
        tiny => format!("{:.0} us", tiny * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_digits_that_count() {
        assert_eq!(
            [rate(3_234.0), rate(999.4), rate(12.34), rate(1_234_567.0), rate(0.53)],
            ["3,230", "999", "12", "1,230,000", "0.5"]
        );
        assert_eq!([percent(0.621), percent(0.003), percent(0.0)], ["62 %", "less than 1 %", "0 %"]);
        let times = [0.00002, 0.0052, 0.25, 2.04, 45.0, 300.0, 36_000.0].map(seconds);
        assert_eq!(times, ["20 us", "5.2 ms", "250 ms", "2.0 s", "45 s", "5 min", "10.0 h"]);
    }
}
