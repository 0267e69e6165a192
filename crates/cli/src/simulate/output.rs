//! What a replay says while it runs, and where its reports go.

use std::io::{IsTerminal, Write};
use std::path::Path;

use hotset_core::{Error, Result};
use hotset_sim::outcome::Outcome;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on standard error, shown on a terminal alone.
pub(super) struct Progress(ProgressBar);

fn target() -> ProgressDrawTarget {
    if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() }
}

impl Progress {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), target());
        if let Ok(style) = ProgressStyle::with_template("replaying {bar:40} {pos} of {len} runs, {eta} left")
        {
            bar.set_style(style);
        }
        bar.enable_steady_tick(std::time::Duration::from_millis(200));
        Self(bar)
    }

    pub(super) fn set(&self, done: usize, all: usize) {
        self.0.set_length(all as u64);
        self.0.set_position(done as u64);
    }

    pub(super) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// Counts files while a folder is listed.
pub(super) struct Listing(ProgressBar);

impl Listing {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, target());
        if let Ok(style) = ProgressStyle::with_template("listing {spinner} {pos} samples") {
            bar.set_style(style);
        }
        Self(bar)
    }

    pub(super) fn tell(&self, found: u64) {
        self.0.set_position(found);
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Prints `text`.
pub(super) fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout();
    // A reader that closed the pipe has seen enough.
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    Ok(())
}

/// Writes what a report on standard output has no place for to standard error.
pub(super) fn complain(text: &str) {
    if text.is_empty() {
        return;
    }
    let _ = writeln!(std::io::stderr(), "{}", text.trim());
}

/// Whether a path means standard output.
pub(super) fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

/// Writes a report to `path`, which was given as `setting`.
pub(super) fn write(path: &Path, setting: &str, text: &str) -> Result<()> {
    if is_standard(path) {
        return print(text.trim_end());
    }
    std::fs::write(path, text).map_err(|error| {
        Error::invalid(format!("cannot write `{}`: {error}; give `{setting}` another path", path.display()))
    })
}

/// Settings on one line.
pub(super) fn line(settings: &[(String, String)]) -> String {
    let settings: Vec<String> = settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
    settings.join(", ")
}

/// What runs could not do as asked, each said once.
pub(super) fn notes(outcomes: &[Outcome]) -> Vec<&str> {
    let mut notes: Vec<&str> = Vec::new();
    for note in outcomes.iter().flat_map(|outcome| &outcome.notes) {
        if !notes.contains(&note.as_str()) {
            notes.push(note);
        }
    }
    notes
}
