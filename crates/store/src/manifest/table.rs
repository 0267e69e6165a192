//! Tables: CSV, JSON lines and Parquet.

#[cfg(feature = "parquet")]
mod footer;
#[cfg(feature = "parquet")]
mod parquet;

use hotset_core::{Error, Result};
use serde_json::Value;

use super::rows::{Row, Rows};
#[cfg(feature = "parquet")]
use crate::contained::contained;

/// What the column of keys may be called.
const KEYS: [&str; 3] = ["key", "path", "file"];
/// The column of labels, unless another is named.
const LABEL: &str = "label";

/// How a table is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Csv,
    JsonLines,
    Parquet,
}

impl Format {
    /// The format of a file of this name.
    pub(super) fn of(name: &str) -> Result<Self> {
        let lower = name.to_lowercase();
        let ends = |endings: &[&str]| endings.iter().any(|ending| lower.ends_with(ending));
        if ends(&[".csv"]) {
            Ok(Self::Csv)
        } else if ends(&[".jsonl", ".ndjson"]) {
            Ok(Self::JsonLines)
        } else if ends(&[".parquet"]) {
            Ok(Self::Parquet)
        } else {
            Err(Error::invalid(format!(
                "the manifest `{name}` ends in none of `.csv`, `.jsonl`, `.ndjson` and `.parquet`"
            )))
        }
    }
}

/// Which columns of a table to take.
struct Columns<'a> {
    key: &'a str,
    /// `None`: no labels.
    label: Option<&'a str>,
}

impl<'a> Columns<'a> {
    /// Those of the columns that are `there`, by the label that is asked for. Where none is asked for, none is called so
    /// and there are columns that could be it, it must be said which.
    fn choose(there: &[&str], label: &'a str) -> Result<Self> {
        let has = |name: &str| there.contains(&name);
        let key = KEYS.into_iter().find(|name| has(name)).ok_or_else(|| {
            Error::invalid(format!(
                "it has no column `key` (nor `path` nor `file`) among {}; a CSV table needs a head with names",
                shown(there)
            ))
        })?;
        let label = match label {
            "none" => None,
            "" if has(LABEL) => Some(LABEL),
            "" => {
                let others: Vec<&str> = there.iter().copied().filter(|name| may_be_label(name)).collect();
                if let Some(one) = others.first() {
                    return Err(Error::invalid(format!(
                        "it has no column `{LABEL}`, but {}: say which holds the labels, like `label=\"{one}\"`, or that \
                         none does, `label=\"none\"`",
                        shown(&others)
                    )));
                }
                None
            }
            named if has(named) => Some(named),
            named => {
                return Err(Error::invalid(format!(
                    "it has no column `{named}`, which `label` asks for, among {}",
                    shown(there)
                )));
            }
        };
        Ok(Self { key, label })
    }
}

/// Whether a column is none that is known, nor the index of a data frame.
fn may_be_label(name: &str) -> bool {
    let known = KEYS.contains(&name) || matches!(name, "offset" | "length");
    !known && !name.is_empty() && !name.starts_with("__")
}

/// The names of columns, as a message has them; no more than a few.
fn shown(names: &[&str]) -> String {
    const MOST: usize = 12;
    let mut text: Vec<String> = names.iter().take(MOST).map(|name| format!("`{name}`")).collect();
    if names.len() > MOST {
        text.push("...".into());
    }
    text.join(", ")
}

/// Reads a whole table.
pub(super) fn read(format: Format, bytes: Vec<u8>, label: &str) -> Result<Rows> {
    match format {
        Format::Csv => csv(&bytes, label),
        Format::JsonLines => json_lines(&bytes, label),
        #[cfg(feature = "parquet")]
        Format::Parquet => {
            footer::check(&bytes)?;
            contained(|| parquet::read(bytes, label))
                .unwrap_or_else(|| Err(Error::invalid("it is no Parquet: its reader gave up on it")))
        }
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => Err(Error::invalid("this build reads no Parquet; write it as CSV or JSON lines")),
    }
}

fn csv(bytes: &[u8], label: &str) -> Result<Rows> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut reader = csv::ReaderBuilder::new().flexible(false).trim(csv::Trim::Headers).from_reader(bytes);
    let wrong = |error: csv::Error| Error::invalid(format!("it is no CSV: {error}"));
    let head = reader.headers().map_err(wrong)?.clone();
    let at = |name: &str| head.iter().position(|column| column == name);
    let columns = Columns::choose(&head.iter().collect::<Vec<_>>(), label)?;
    let (key, label) = (at(columns.key), columns.label.and_then(at));
    let (offset, length) = (at("offset"), at("length"));
    let mut rows = Rows::default();
    columns.label.unwrap_or_default().clone_into(&mut rows.column);
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(wrong)? {
        let field = |column: Option<usize>| column.and_then(|column| record.get(column));
        let number = |column: Option<usize>, name: &str| match field(column).map(str::trim) {
            None | Some("") => Ok(None),
            Some(text) => text
                .parse()
                .map(Some)
                .map_err(|_| Error::invalid(format!("`{text}` in row `{}` is no `{name}`", rows.len() + 1))),
        };
        let (offset, length) = (number(offset, "offset")?, number(length, "length")?);
        rows.push(Row { key: field(key).unwrap_or(""), label: field(label), offset, length })?;
    }
    Ok(rows)
}

fn json_lines(bytes: &[u8], label: &str) -> Result<Rows> {
    let mut rows = Rows::default();
    for line in bytes.split(|byte| *byte == b'\n') {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let at = rows.len() + 1;
        let wrong = |why: String| Error::invalid(format!("row `{at}` {why}"));
        let value: Value =
            serde_json::from_slice(line).map_err(|error| wrong(format!("is no JSON: {error}")))?;
        let object = value.as_object().ok_or_else(|| wrong("is no JSON object".into()))?;
        let names: Vec<&str> = object.keys().map(String::as_str).collect();
        let columns =
            Columns::choose(&names, label).map_err(|error| wrong(format!("is wrong: {}", error.message)))?;
        let key = object.get(columns.key).and_then(Value::as_str);
        let key = key.ok_or_else(|| wrong(format!("has a `{}` that is no text", columns.key)))?;
        if rows.len() == 0 {
            columns.label.unwrap_or_default().clone_into(&mut rows.column);
        }
        let label = match columns.label.and_then(|name| object.get(name)) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(value @ (Value::Number(_) | Value::Array(_))) => Some(value.to_string()),
            Some(other) => {
                return Err(wrong(format!(
                    "has the label `{other}`, which is no number, no list and no text"
                )));
            }
        };
        let number = |name: &str| match object.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                value.as_u64().map(Some).ok_or_else(|| wrong(format!("has the `{name}` `{value}`")))
            }
        };
        rows.push(Row {
            key,
            label: label.as_deref(),
            offset: number("offset")?,
            length: number("length")?,
        })?;
    }
    Ok(rows)
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
