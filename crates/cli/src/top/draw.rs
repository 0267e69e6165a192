//! Draws a [`View`]: the servers, a line for each job, all about the selected one, the keys.
//!
//! Words and tables are those of `hotset stats`, in the width that there is; what finds no room below is counted. Nothing is
//! said by colour alone, so that a terminal without colours shows as much.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{HighlightSpacing, Paragraph, Row, Table, TableState};

use super::columns::{self, Cell, Fitted, GAP};
use super::view::{JobView, ServerView, State, View};
use crate::figures::{self, wrapped_all};

/// Before the selected job.
const MARK: &str = "> ";
/// Last epochs of the selected job.
const EPOCHS: usize = 4;
/// The longest bar of a server's memory.
const MEMORY: usize = 60;

/// How things look.
#[derive(Debug, Clone, Copy)]
pub(super) struct Palette {
    pub(super) colour: bool,
}

impl Palette {
    fn of(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    fn good(self) -> Style {
        self.of(Color::Green)
    }

    fn passing(self) -> Style {
        self.of(Color::Yellow)
    }

    fn bad(self) -> Style {
        self.of(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn faint(self) -> Style {
        self.of(Color::DarkGray)
    }
}

const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
const REVERSED: Style = Style::new().add_modifier(Modifier::REVERSED);

pub(super) fn draw(frame: &mut Frame<'_>, view: &View, palette: Palette) {
    let area = frame.area();
    let width = usize::from(area.width);
    let servers = servers(view, width, palette);
    // Jobs and the selected one share what servers leave, and neither is without a line while there is one.
    let head = servers.len().min(usize::from(area.height / 2));
    let room = usize::from(area.height).saturating_sub(head + 3);
    let table = if view.jobs.is_empty() { 0 } else { (view.jobs.len() + 1).min((room / 2).max(2)) };
    let rows = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(head as u16),
        Constraint::Length(table as u16),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ]);
    let [title, above, middle, rule, below, foot] = rows.areas(area);
    frame.render_widget(Paragraph::new(self::title(view)).style(REVERSED), title);
    frame.render_widget(Paragraph::new(servers), above);
    jobs(frame, view, middle, palette);
    if let Some(job) = view.selected_job() {
        frame.render_widget(Paragraph::new("─".repeat(width)).style(palette.faint()), rule);
        frame.render_widget(Paragraph::new(selected(job, below, palette)), below);
    }
    frame.render_widget(Paragraph::new(keys(view, width)).style(REVERSED), foot);
}

fn title(view: &View) -> String {
    let servers = figures::counted(view.servers.len() as u64, "server");
    let jobs = figures::counted(view.jobs.len() as u64, "job");
    format!("hotset top: {servers}, {jobs}, every {} s", view.every.as_secs_f64())
}

fn keys(view: &View, width: usize) -> String {
    let sort = view.sort.name();
    let long = format!("q quit  arrows, j, k: select  s sort (now by {sort})");
    if long.chars().count() <= width { long } else { format!("q quit  j/k select  s sort: {sort}") }
}

/// What is to be said first, servers that are gone, and the server of the selected job with its memory.
fn servers<'a>(view: &View, width: usize, palette: Palette) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    if let Some(notice) = &view.notice {
        lines.extend(lines_of(&wrapped_all(std::slice::from_ref(notice), width), STRONG));
    }
    for server in &view.servers {
        if let Some((seconds, why)) = &server.gone {
            let gone = format!(
                "server {} at {} has been gone for {seconds} s: {why}; still asking",
                server.stats.pid, server.socket
            );
            lines.extend(lines_of(&wrapped_all(&[gone], width), palette.bad()));
        }
    }
    if let Some(server) = view.selected_server().filter(|server| server.gone.is_none()) {
        let told = figures::server(&server.socket, Some(&server.stats));
        lines.extend(lines_of(&wrapped_all(&told, width), Style::new()));
        lines.extend(memory(server, width, palette));
        if view.jobs.is_empty() {
            lines.push(Line::raw("  no jobs"));
        }
    }
    lines
}

fn lines_of<'a>(text: &str, style: Style) -> Vec<Line<'a>> {
    text.lines().map(|line| Line::styled(line.to_owned(), style)).collect()
}

/// How full the memory is: what policies keep, what is passing, and what is free.
fn memory<'a>(server: &ServerView, width: usize, palette: Palette) -> Option<Line<'a>> {
    let stats = &server.stats;
    let whole = stats.capacity.saturating_add(stats.reserve);
    if whole == 0 {
        return None;
    }
    let passing = stats.passing.min(stats.occupied);
    let share = |bytes: u64| bytes as f64 / whole as f64;
    let figures = format!(
        " {:.0} % kept, {:.0} % passing",
        100.0 * share(stats.occupied - passing),
        100.0 * share(passing)
    );
    let room = width.saturating_sub(2 + figures.chars().count()).min(MEMORY);
    let (used, free) = columns::bar(share(stats.occupied), room);
    let (kept, _) = columns::bar(share(stats.occupied - passing), room);
    let passing = "▒".repeat(used.chars().count().saturating_sub(kept.chars().count()));
    Some(Line::from(vec![
        Span::raw("  "),
        Span::styled(kept, palette.good()),
        Span::styled(passing, palette.passing()),
        Span::styled(free, palette.faint()),
        Span::raw(figures),
    ]))
}

/// A line for each job.
fn jobs(frame: &mut Frame<'_>, view: &View, area: Rect, palette: Palette) {
    if view.jobs.is_empty() || area.is_empty() {
        return;
    }
    let columns = columns::fitted(&view.jobs, usize::from(area.width).saturating_sub(MARK.len()));
    let head = Row::new(columns.iter().map(|column| match column.cells.first() {
        Some(Cell::Figure(_)) => Line::raw(column.title).right_aligned(),
        _ => Line::raw(column.title),
    }));
    let rows = view.jobs.iter().enumerate().map(|(at, job)| {
        let style = if job.state == State::Live { Style::new() } else { palette.faint() };
        Row::new(columns.iter().filter_map(move |column| cell(column, at, palette))).style(style)
    });
    let widths = columns.iter().map(|column| Constraint::Length(column.width as u16));
    let table = Table::new(rows, widths)
        .header(head.style(STRONG))
        .column_spacing(GAP as u16)
        .highlight_symbol(MARK)
        .highlight_spacing(HighlightSpacing::Always)
        .row_highlight_style(STRONG);
    let mut state = TableState::new().with_selected(view.selected);
    frame.render_stateful_widget(table, area, &mut state);
}

fn cell<'a>(column: &Fitted, at: usize, palette: Palette) -> Option<Text<'a>> {
    let line = match column.cells.get(at)? {
        Cell::Words(text) => Line::raw(columns::shortened(text, column.width)),
        Cell::Figure(text) => Line::raw(text.clone()).right_aligned(),
        Cell::Progress(progress) => {
            let (filled, rest, figure) = columns::progress(*progress, column.width);
            Line::from(vec![
                Span::styled(filled, palette.good()),
                Span::styled(rest, palette.faint()),
                Span::raw(figure),
            ])
        }
    };
    Some(Text::from(line))
}

/// All about the selected job, as far as there is room.
fn selected<'a>(view: &JobView, area: Rect, palette: Palette) -> Vec<Line<'a>> {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let mut lines = Vec::new();
    let past = match view.state {
        State::Live => None,
        State::Ended(seconds) => Some(format!("ended {seconds} s ago; these are its last figures")),
        State::Gone(seconds) => {
            Some(format!("its server has been gone for {seconds} s; these are its last figures"))
        }
    };
    if let Some(past) = past {
        lines.extend(lines_of(&wrapped_all(&[past], width), palette.bad()));
    }
    lines.extend(lines_of(&figures::job(&view.job, view.rate.as_ref(), EPOCHS, width), Style::new()));
    if let Some(ranks) = view.epoch().and_then(|epoch| figures::ranks(epoch, width)) {
        lines.push(Line::default());
        lines.extend(lines_of(&ranks, Style::new()));
    }
    if lines.len() > height && height > 0 {
        let more = lines.len() + 1 - height;
        lines.truncate(height - 1);
        lines.push(Line::styled(
            format!("and {} below", figures::counted(more as u64, "line")),
            palette.faint(),
        ));
    }
    lines
}

#[cfg(test)]
#[path = "draw_tests.rs"]
mod tests;
