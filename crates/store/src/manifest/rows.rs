//! The rows of a table, held compactly.

use hotset_core::{Error, Result};

use crate::names::{LONGEST, Names};

const NONE: u64 = u64::MAX;

/// Rows as they were read.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// What the column of labels is called.
    pub(super) column: String,
    keys: Names,
    /// One for each row, or none at all.
    labels: Names,
    offsets: Vec<u64>,
    lengths: Vec<u64>,
}

/// One row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Row<'a> {
    pub(super) key: &'a str,
    pub(super) label: Option<&'a str>,
    pub(super) offset: Option<u64>,
    pub(super) length: Option<u64>,
}

impl Rows {
    pub(super) fn push(&mut self, row: Row<'_>) -> Result<()> {
        let number = self.len() + 1;
        let wrong = |what: &str| Err(Error::invalid(format!("row `{number}` {what}")));
        if row.offset.is_some() && row.length.is_none() {
            return wrong("has an `offset` and no `length`");
        }
        if row.offset == Some(NONE) || row.length == Some(NONE) {
            return wrong("has an `offset` or `length` that is too large");
        }
        if number > 1 && row.label.is_some() != self.labelled() {
            return wrong(if self.labelled() {
                "has no label, and the rows before it have one"
            } else {
                "has a label, and the rows before it have none"
            });
        }
        if !self.keys.push(row.key) || row.label.is_some_and(|label| !self.labels.push(label)) {
            return wrong(&format!("has a key or label longer than `{LONGEST}` bytes"));
        }
        self.offsets.push(row.offset.unwrap_or(NONE));
        self.lengths.push(row.length.unwrap_or(NONE));
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.offsets.len()
    }

    pub(super) fn labelled(&self) -> bool {
        self.labels.len() > 0
    }

    pub(super) fn key(&self, row: usize) -> &str {
        self.keys.get(row)
    }

    pub(super) fn label(&self, row: usize) -> Option<&str> {
        self.labelled().then(|| self.labels.get(row))
    }

    pub(super) fn offset(&self, row: usize) -> Option<u64> {
        Some(self.offsets[row]).filter(|offset| *offset != NONE)
    }

    pub(super) fn length(&self, row: usize) -> Option<u64> {
        Some(self.lengths[row]).filter(|length| *length != NONE)
    }
}
