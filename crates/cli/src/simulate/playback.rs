//! `hotset simulate --log`: a live run once more, from the log of its cache.
//!
//! What is counted comes from the same objects, told what the log says; what the live run counted stands beside it. Where
//! they are not the same, or where nothing could be compared, the command fails.

use std::path::Path;

use hotset_core::counters::PlanCounters;
use hotset_core::log::{Compared, JobPlayback, Playback};
use hotset_core::{Error, Result};
use hotset_server::cache_log::{Ending, read};
use serde_json::{Value, json};

use super::output;
use crate::table::{Column, folded, width, wrapped};

/// Plays the log at `path` back, prints what came of it, and writes it to `json`.
pub(super) fn run(path: &Path, json: Option<&Path>) -> Result<()> {
    let mut playback = Playback::new();
    let ending = read(path, |event| playback.play(&event))?;
    let notes = notes(&playback, ending);
    if let Some(to) = json {
        let all = as_json(&playback, ending, &notes);
        let text = serde_json::to_string_pretty(&all).map_err(|error| Error::internal(error.to_string()))?;
        output::write(to, "json", &text)?;
    }
    if !json.is_some_and(output::is_standard) {
        output::print(&text(&playback, &notes))?;
    }
    verdict(&playback, path)
}

/// What keeps a log from being played back to its end.
fn notes(playback: &Playback, ending: Ending) -> Vec<String> {
    let cut = match ending {
        Ending::Whole => None,
        Ending::Early => Some(
            "the log has no end: its server was killed, still runs, or could not write on; played back as far as it goes"
                .to_owned(),
        ),
        Ending::Torn(at) => Some(format!("the log is cut short or damaged at byte {at}: played back until there")),
    };
    let ended = playback.ended().map(|why| format!("played back only until here: {why}"));
    ended.into_iter().chain(cut).collect()
}

/// An error if counts differ, or if there is nothing to compare.
fn verdict(playback: &Playback, path: &Path) -> Result<()> {
    let all = || playback.jobs().flat_map(|job| job.epochs().values());
    let differ = all().filter(|compared| !compared.same).count();
    if differ > 0 {
        return Err(Error::invalid(format!(
            "`{}` plays back to other counts than those of the live run in {differ} of {} epochs",
            path.display(),
            all().count()
        )));
    }
    if playback.ended().is_some() || all().count() == 0 {
        let why = playback.ended().unwrap_or("the log has no counts of the live run");
        return Err(Error::invalid(format!("`{}` cannot be compared: {why}", path.display())));
    }
    Ok(())
}

fn text(playback: &Playback, notes: &[String]) -> String {
    let width = width();
    let mut texts: Vec<String> = playback.jobs().map(|job| of_job(playback, job, width)).collect();
    texts.extend(notes.iter().map(|note| wrapped(&format!("note: {note}"), "  ", width)));
    texts.join("\n\n")
}

/// A job's line, and a row for each epoch: those counters that are not 0 throughout.
fn of_job(playback: &Playback, job: &JobPlayback, width: usize) -> String {
    let setup = job.setup();
    let policy = playback.opening().map_or("", |opening| opening.policy.as_str());
    let says = match job.epochs().values().all(|compared| compared.same) {
        true if job.epochs().is_empty() => "nothing to compare with the live run",
        true => "the same counts as in the live run",
        false => "other counts than in the live run",
    };
    let head = format!("job {}, {}+{policy}, seed {}: {says}", setup.job, setup.strategy, setup.seed);
    let counted = job.counters();
    let mut rows: Vec<(String, &PlanCounters, &str)> = Vec::new();
    for (epoch, played) in &counted {
        let compared = job.epochs().get(epoch);
        let verdict = match compared {
            Some(compared) if !compared.same => "differs",
            Some(compared) if compared.played == *played => "the same",
            // The live run notes what it has counted when an epoch begins and when it ends.
            Some(_) => "the same so far as it was noted",
            None => "not noted",
        };
        rows.push((epoch.to_string(), played, verdict));
        if let Some(compared) = compared.filter(|compared| !compared.same) {
            rows.push(("live".to_owned(), &compared.live, ""));
        }
    }
    let value = |counters: &PlanCounters, at: usize| counters.values().nth(at).unwrap_or_default();
    let counter = |(at, &name): (usize, &&'static str)| {
        let values: Vec<u64> = rows.iter().map(|(_, counters, _)| value(counters, at)).collect();
        let shown = values.iter().any(|&value| value > 0);
        shown.then(|| vec![Column::new(name, values.iter().map(u64::to_string).collect())])
    };
    let mut columns: Vec<Vec<Column>> = PlanCounters::NAMES.iter().enumerate().filter_map(counter).collect();
    columns.push(vec![Column::new("live run", rows.iter().map(|row| row.2.to_owned()).collect())]);
    let name = Column::new("epoch", rows.iter().map(|row| row.0.clone()).collect());
    format!("{}\n{}", wrapped(&head, "  ", width), folded(&name, columns, width))
}

fn as_json(playback: &Playback, ending: Ending, notes: &[String]) -> Value {
    let counters = |plan: &PlanCounters| -> Value {
        PlanCounters::NAMES.iter().map(|name| (*name).to_owned()).zip(plan.values()).collect()
    };
    let epoch = |(epoch, compared): (&u64, &Compared)| {
        json!({
            "epoch": epoch,
            "same": compared.same,
            "played": counters(&compared.played),
            "live": counters(&compared.live),
        })
    };
    let job = |job: &JobPlayback| {
        json!({
            "job": job.setup().job,
            "strategy": job.setup().strategy,
            "seed": job.setup().seed,
            "epochs": job.epochs().iter().map(epoch).collect::<Vec<_>>(),
        })
    };
    let same = playback.jobs().flat_map(|job| job.epochs().values()).all(|compared| compared.same);
    json!({
        "policy": playback.opening().map(|opening| &opening.policy),
        "dataset": playback.opening().map(|opening| &opening.dataset),
        "same": same && playback.ended().is_none(),
        "whole": ending == Ending::Whole,
        "notes": notes,
        "jobs": playback.jobs().map(job).collect::<Vec<_>>(),
    })
}
