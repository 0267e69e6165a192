//! A diagnosis as one page that needs nothing else to be read.

use super::text::{epoch, other, rates, same};
use super::words::{percent, seconds};
use super::{Candidate, Diagnosis, accuracy};
use crate::report::{Bars, Page};

/// The page.
pub fn page(diagnosis: &Diagnosis) -> String {
    let mut page = Page::new(&format!("Hotset doctor: {}", diagnosis.measured.name));
    page.paragraph(&diagnosis.verdict).heading("Why");
    for reason in &diagnosis.reasons {
        page.paragraph(reason);
    }
    let shares = diagnosis.shares;
    let bar = |name: &str, value: f64| (name.to_owned(), vec![value * 100.0]);
    let bars = Bars {
        title: "What an epoch is spent on".into(),
        x: "% of an epoch".into(),
        parts: vec!["share".into()],
        bars: vec![
            bar("storage", shares.storage),
            bar("preparing", shares.preparing),
            bar("starting workers", shares.starting),
            bar("training", shares.computing),
        ],
    };
    page.plot("What an epoch is spent on", &bars.svg());
    page.settings(&[
        ("storage".into(), percent(shares.storage)),
        ("preparing".into(), percent(shares.preparing)),
        ("starting workers".into(), percent(shares.starting)),
        ("training".into(), percent(shares.computing)),
        ("an epoch as it is".into(), seconds(diagnosis.rates.epoch)),
        ("with all in memory".into(), seconds(diagnosis.rates.epoch_from_memory)),
    ]);
    page.heading("Samples a second");
    let rows: Vec<Vec<String>> = rates(diagnosis)
        .into_iter()
        .map(|(name, value, lowest)| {
            vec![name, value, if lowest { "the lowest".into() } else { String::new() }]
        })
        .collect();
    page.table(&["stage", "samples a second", ""], &rows);
    if diagnosis.storage_matters() {
        let row = |one: &&Candidate| vec![one.name.clone(), epoch(one)];
        page.heading("What trains the same");
        page.table(&["way", "an epoch"], &same(diagnosis).iter().map(row).collect::<Vec<_>>());
        let row = |one: &&Candidate| {
            vec![one.name.clone(), epoch(one), one.does.clone(), accuracy::shown(&one.costs)]
        };
        let rows: Vec<Vec<String>> = other(diagnosis).iter().map(row).collect();
        if !rows.is_empty() {
            page.heading("What changes what is trained: accuracy on your data unknown");
            page.table(&["way", "an epoch", "what it does", "measured elsewhere"], &rows);
        }
    }
    if let Some(paste) = &diagnosis.paste {
        page.heading("To paste");
        page.code(paste);
    }
    page.finish()
}
