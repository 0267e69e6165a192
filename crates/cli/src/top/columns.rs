//! The columns of the jobs: which of them find room, and how wide they are.
//!
//! Each has a place from left to right and a turn in which it is taken in: the name and the progress come first, and a narrow
//! terminal has these alone. What room is left over makes the bar longer.

use hotset_core::bytes::human;

use super::view::{JobView, State};
use crate::figures::{percent, scheme, seconds, waited};
use crate::rates::Progress;
use crate::runs::time;

/// Blanks between columns.
pub(super) const GAP: usize = 1;
/// A longer name leaves the room to figures, and has what they leave.
const NAME: usize = 14;
/// The bar at its shortest and longest, without the figure behind it.
const BAR: (usize, usize) = (7, 24);
/// ` 100 %`.
const SHARE: usize = 6;

/// What a column shows of a job.
enum Shown {
    Name,
    Progress,
    Words(fn(&JobView) -> String),
    /// A figure; `-` where there is none.
    Figure(fn(&JobView) -> Option<String>),
}

struct Column {
    title: &'static str,
    /// Those of low turns are taken in first.
    turn: u8,
    /// So that columns stand still while figures grow.
    least: usize,
    shown: Shown,
}

const fn figure(title: &'static str, turn: u8, least: usize, cell: fn(&JobView) -> Option<String>) -> Column {
    Column { title, turn, least, shown: Shown::Figure(cell) }
}

/// From left to right.
const COLUMNS: &[Column] = &[
    Column { title: "job", turn: 0, least: NAME, shown: Shown::Name },
    Column {
        title: "strategy+policy",
        turn: 8,
        least: 15,
        shown: Shown::Words(|view| scheme(&view.job).replace(" + ", "+")),
    },
    figure("epoch", 3, 5, |view| Some(view.progress()?.epoch.to_string())),
    Column { title: "progress", turn: 0, least: BAR.0 + SHARE, shown: Shown::Progress },
    figure("left", 4, 7, |view| Some(time(view.rate?.seconds_left? as u64))),
    figure("samples/s", 1, 9, |view| Some(format!("{:.0}", view.rate?.samples_per_second))),
    figure("hit", 5, 7, |view| share(view, |epoch| epoch.hit)),
    figure("packed", 6, 7, |view| share(view, |epoch| epoch.packed)),
    figure("single", 7, 7, |view| share(view, |epoch| epoch.single)),
    figure("wait", 9, 8, |view| Some(seconds(waited(view.epoch()?)))),
    figure("reads", 11, 8, |view| Some(view.epoch()?.storage_reads.to_string())),
    figure("read", 12, 10, |view| Some(human(view.epoch()?.storage_bytes))),
    figure("read/s", 10, 10, |view| Some(human(view.rate?.storage_bytes_per_second as u64))),
    figure("keeps", 14, 10, |view| Some(human(view.job.resident_bytes))),
    figure("benefit", 13, 8, |view| Some(format!("{:.2}", view.job.benefit?))),
];

fn share(view: &JobView, part: fn(&hotset_wire::proto::EpochStats) -> u64) -> Option<String> {
    let epoch = view.epoch()?;
    Some(percent(epoch, part(epoch)))
}

/// A column that found room.
pub(super) struct Fitted {
    pub(super) title: &'static str,
    pub(super) width: usize,
    pub(super) cells: Vec<Cell>,
}

/// What stands in a column for a job.
#[derive(Debug, PartialEq)]
pub(super) enum Cell {
    Words(String),
    Figure(String),
    Progress(Progress),
}

/// The columns that there is room for in `width`.
pub(super) fn fitted(jobs: &[JobView], width: usize) -> Vec<Fitted> {
    let mut columns: Vec<(u8, Fitted)> =
        COLUMNS.iter().filter_map(|column| Some((column.turn, column.fill(jobs)?))).collect();
    let needs = |columns: &[(u8, Fitted)]| -> usize {
        columns.iter().map(|(_, column)| column.width + GAP).sum::<usize>().saturating_sub(GAP)
    };
    let mut longest = NAME;
    if let Some((_, name)) = columns.first_mut() {
        longest = std::mem::replace(&mut name.width, NAME);
    }
    while needs(&columns) > width {
        let last = columns.iter().map(|(turn, _)| *turn).max().filter(|&turn| turn > 0);
        let Some(last) = last else { break };
        columns.retain(|(turn, _)| *turn != last);
    }
    let mut spare = width.saturating_sub(needs(&columns));
    let mut widen = |title: &str, most: usize| {
        if let Some((_, column)) = columns.iter_mut().find(|(_, column)| column.title == title) {
            let more = most.saturating_sub(column.width).min(spare);
            column.width += more;
            spare -= more;
        }
    };
    widen("job", longest);
    widen("progress", BAR.1 + SHARE);
    // Narrower than the narrowest: the bar goes before the name does.
    let lacks = needs(&columns).saturating_sub(width);
    if let Some((_, progress)) = columns.iter_mut().find(|(_, column)| column.title == "progress") {
        progress.width = progress.width.saturating_sub(lacks).max(SHARE);
    }
    columns.into_iter().map(|(_, column)| column).collect()
}

impl Column {
    /// With a cell for each job; nothing where no job has what it shows.
    fn fill(&self, jobs: &[JobView]) -> Option<Fitted> {
        if self.title == "benefit" && jobs.iter().all(|view| view.job.benefit.is_none()) {
            return None;
        }
        let cells: Vec<Cell> = jobs.iter().map(|view| self.cell(view)).collect();
        let lengths = cells.iter().map(|cell| match cell {
            Cell::Words(text) | Cell::Figure(text) => text.chars().count(),
            Cell::Progress(_) => 0,
        });
        // What stands in for progress is cut rather than that it takes others' room.
        let longest = match self.shown {
            Shown::Progress => 0,
            _ => lengths.max().unwrap_or(0),
        };
        Some(Fitted { title: self.title, width: longest.max(self.least), cells })
    }

    fn cell(&self, view: &JobView) -> Cell {
        match self.shown {
            Shown::Name => Cell::Words(view.job.job.clone()),
            Shown::Words(words) => Cell::Words(words(view)),
            Shown::Figure(figure) => Cell::Figure(figure(view).unwrap_or_else(|| "-".into())),
            Shown::Progress => match (view.state, view.progress()) {
                (State::Ended(seconds), _) => Cell::Words(format!("ended {seconds} s")),
                (State::Gone(seconds), _) => Cell::Words(format!("gone {seconds} s")),
                (State::Live, Some(progress)) => Cell::Progress(progress),
                (State::Live, None) => Cell::Words("no plan".into()),
            },
        }
    }
}

/// `done` of a bar of `width`, and the rest.
pub(super) fn bar(done: f64, width: usize) -> (String, String) {
    let filled = ((done.clamp(0.0, 1.0) * width as f64).round() as usize).min(width);
    ("█".repeat(filled), "░".repeat(width - filled))
}

/// The bar and the figure of a progress.
pub(super) fn progress(progress: Progress, width: usize) -> (String, String, String) {
    let (filled, rest) = bar(progress.share(), width.saturating_sub(SHARE));
    (filled, rest, format!("{:>4} %", progress.percent()))
}

/// A text without its middle, where it is too long: names of trainings differ at their beginnings, those of one training at
/// their ends.
pub(super) fn shortened(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let (begin, end) = (width.saturating_sub(1) / 2, width / 2);
    text.chars().take(begin).chain(['…']).chain(text.chars().skip(length - end)).take(width).collect()
}
