//! The report as one page: settings, tables and plots, with nothing to fetch.

use std::fmt::Write;

use hotset_core::bytes::human;

use super::chart::{Bars, Lines, Series, escape};
use crate::outcome::{Outcome, Row, rows};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;color:#222;background:#fff;max-width:1240px;\
margin:2em auto;padding:0 1em}h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}figure{margin:1em 0;\
max-width:820px}svg{width:100%;height:auto}table{border-collapse:collapse;font-size:13px}\
th,td{padding:3px 9px;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap}\
th:first-child,td:first-child{text-align:left}dl{display:grid;grid-template-columns:max-content auto;\
gap:2px 14px}dt{color:#555}dd{margin:0}.wide{overflow-x:auto}";

/// A page under construction.
pub struct Page {
    html: String,
}

impl Page {
    /// A page with a heading and nothing below it.
    pub fn new(title: &str) -> Self {
        let title = escape(title);
        let html = format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
             <style>{STYLE}</style></head><body><h1>{title}</h1>\n"
        );
        Self { html }
    }

    /// Adds a heading.
    pub fn heading(&mut self, text: &str) -> &mut Self {
        let _ = writeln!(self.html, "<h2>{}</h2>", escape(text));
        self
    }

    /// Adds a paragraph.
    pub fn paragraph(&mut self, text: &str) -> &mut Self {
        let _ = writeln!(self.html, "<p>{}</p>", escape(text));
        self
    }

    /// Adds lines of code as they stand.
    pub fn code(&mut self, text: &str) -> &mut Self {
        let _ = writeln!(self.html, "<pre>{}</pre>", escape(text));
        self
    }

    /// Adds names and values.
    pub fn settings(&mut self, settings: &[(String, String)]) -> &mut Self {
        self.html.push_str("<dl>");
        for (name, value) in settings {
            let _ = write!(self.html, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
        }
        self.html.push_str("</dl>\n");
        self
    }

    /// Adds a table.
    pub fn table(&mut self, head: &[&str], rows: &[Vec<String>]) -> &mut Self {
        self.html.push_str("<div class=\"wide\"><table><thead><tr>");
        for cell in head {
            let _ = write!(self.html, "<th>{}</th>", escape(cell));
        }
        self.html.push_str("</tr></thead><tbody>");
        for row in rows {
            self.html.push_str("<tr>");
            for cell in row {
                let _ = write!(self.html, "<td>{}</td>", escape(cell));
            }
            self.html.push_str("</tr>");
        }
        self.html.push_str("</tbody></table></div>\n");
        self
    }

    /// Adds a plot under its title.
    pub fn plot(&mut self, title: &str, svg: &str) -> &mut Self {
        let _ = writeln!(self.html, "<h2>{}</h2><figure>{svg}</figure>", escape(title));
        self
    }

    /// The whole page.
    pub fn finish(&self) -> String {
        format!("{}</body></html>\n", self.html)
    }
}

/// The page of a comparison; means from epoch `first` on.
pub fn compare(settings: &[(String, String)], outcomes: &[Outcome], first: usize) -> String {
    let rows = rows(outcomes, first);
    let mut page = Page::new("Hotset: which strategy, policy and cache size");
    page.settings(settings);
    page.heading("Means of an epoch").paragraph(&format!(
        "Over the epochs from {first} on, and over all seeds. A serving is a hit (no storage read was made for \
         it), packed (it came in a package of many) or single (a read of its own). The papers' hit ratio \
         counts packed servings as hits; coverage is the share of the dataset that an epoch serves at least once."
    ));
    page.table(
        &[
            "strategy+policy",
            "cache",
            "seeds",
            "served",
            "hit",
            "packed",
            "single",
            "hit (paper's)",
            "coverage",
            "storage reads",
            "fewest, most",
            "requests",
            "bytes read",
            "waste of packages",
            "epoch s",
            "wait s",
        ],
        &rows.iter().map(cells).collect::<Vec<_>>(),
    );
    let shares = cache_shares(outcomes);
    if shares.len() > 1 {
        let line = |value: &dyn Fn(&Row) -> f64| by_cache(&rows, &shares, value);
        let plot = |title: &str, y: &str, series| {
            Lines {
                title: title.into(),
                x: "cache, % of the dataset".into(),
                y: y.into(),
                series,
                markers: true,
            }
            .svg()
        };
        let title = "Storage reads an epoch, by cache size";
        page.plot(title, &plot(title, "samples fetched", line(&|row| row.mean.storage_reads)));
        let title = "Hit ratio by cache size";
        page.plot(title, &plot(title, "hits, % of servings", line(&|row| 100.0 * row.mean.hit_ratio())));
        let title = "Modelled seconds an epoch, by cache size";
        page.plot(title, &plot(title, "seconds", line(&|row| row.mean.seconds)));
    }
    for (cache, _) in &shares {
        let here: Vec<&Row> = rows.iter().filter(|row| &row.cache == cache).collect();
        let title = format!("Where servings come from, cache {cache}");
        page.plot(
            &title,
            &bars(&title, "servings an epoch", &["hit", "packed", "single"], &here, &|row| {
                vec![row.mean.hit, row.mean.packed, row.mean.single]
            }),
        );
        let title = format!("Modelled time of an epoch, cache {cache}");
        page.plot(
            &title,
            &bars(&title, "seconds", &["computing", "wait"], &here, &|row| {
                vec![row.mean.seconds - row.mean.wait, row.mean.wait]
            }),
        );
        let series: Vec<Series> = outcomes
            .iter()
            .filter(|outcome| &outcome.cache == cache && outcome.seed == outcomes[0].seed)
            .map(|outcome| Series {
                name: format!("{}+{}", outcome.strategy, outcome.policy),
                points: (0..)
                    .zip(&outcome.epochs)
                    .map(|(at, epoch)| (f64::from(at), epoch.counters.plan.storage_reads as f64))
                    .collect(),
            })
            .collect();
        let title = format!("Storage reads, epoch by epoch, cache {cache}, one seed");
        let (x, y) = ("epoch".to_owned(), "samples fetched".to_owned());
        page.plot(&title, &Lines { title: title.clone(), x, y, series, markers: false }.svg());
    }
    page.finish()
}

fn cells(row: &Row) -> Vec<String> {
    let mean = &row.mean;
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    vec![
        row.pair(),
        row.cache.clone(),
        row.seeds.to_string(),
        format!("{:.0}", mean.served),
        percent(mean.hit_ratio()),
        format!("{:.0}", mean.packed),
        format!("{:.0}", mean.single),
        percent(mean.papers_hit_ratio()),
        percent(mean.coverage),
        format!("{:.0}", mean.storage_reads),
        format!("{:.0}, {:.0}", row.reads_range.0, row.reads_range.1),
        format!("{:.0}", mean.storage_requests),
        human(mean.storage_bytes as u64),
        percent(mean.package_waste),
        format!("{:.2}", mean.seconds),
        format!("{:.2}", mean.wait),
    ]
}

/// Every cache size once, with its share of the dataset in percent.
fn cache_shares(outcomes: &[Outcome]) -> Vec<(String, f64)> {
    let mut shares: Vec<(String, f64)> = Vec::new();
    for outcome in outcomes {
        if !shares.iter().any(|(cache, _)| *cache == outcome.cache) {
            shares
                .push((outcome.cache.clone(), 100.0 * outcome.capacity as f64 / outcome.bytes.max(1) as f64));
        }
    }
    shares
}

fn by_cache(rows: &[Row], shares: &[(String, f64)], value: &dyn Fn(&Row) -> f64) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        let Some((_, share)) = shares.iter().find(|(cache, _)| *cache == row.cache) else { continue };
        let (name, point) = (row.pair(), (*share, value(row)));
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => series.push(Series { name, points: vec![point] }),
        }
    }
    for one in &mut series {
        one.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    series
}

fn bars(title: &str, x: &str, parts: &[&str], rows: &[&Row], values: &dyn Fn(&Row) -> Vec<f64>) -> String {
    let bars = Bars {
        title: title.into(),
        x: x.into(),
        parts: parts.iter().map(|&part| part.to_owned()).collect(),
        bars: rows.iter().map(|row| (row.pair(), values(row))).collect(),
    };
    bars.svg()
}
