//! A log's file: its version, then events, each behind its length.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

use hotset_core::log::{Event, decode, encode};
use hotset_core::{Error, Result};

/// What a file begins with; another version has another.
pub(super) const HEAD: &[u8] = b"hotset log 2\n";

/// What all versions begin with.
const ANY: &[u8] = b"hotset log ";

/// How a file ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// With the end of the log.
    Whole,
    /// Behind a whole event, before the end of the log.
    Early,
    /// Within an event, which begins at that byte, or with one that is damaged.
    Torn(u64),
}

/// Appends an event to bytes of a file.
pub(super) fn append(event: &Event, bytes: &mut Vec<u8>) {
    let event = encode(event);
    // A log of so many samples that their sizes do not fit is torn here.
    bytes.extend(u32::try_from(event.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend(event);
}

/// Calls `each` with the events of the log at `path`, as far as they are whole; how it ends.
pub fn read(path: &Path, mut each: impl FnMut(Event)) -> Result<Ending> {
    let shown = path.display();
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => Error::invalid(format!(
            "there is no log `{shown}`: record a run with `hotset serve --record DIRECTORY`, or with \
             HOTSET_RECORD=DIRECTORY for a private server"
        )),
        _ => Error::invalid(format!("cannot read the log `{shown}`: {error}")),
    };
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let mut file = BufReader::with_capacity(1 << 20, file);
    let mut head = [0; HEAD.len()];
    let known = file.read_exact(&mut head).is_ok();
    if !known || head != HEAD {
        let other = known && head.starts_with(ANY);
        return Err(Error::invalid(match other {
            true => format!("`{shown}` was written by another version of Hotset: use that one"),
            false => format!("`{shown}` is no log of a cache: see `hotset serve --record`"),
        }));
    }
    let (mut at, mut bytes, mut ended) = (HEAD.len() as u64, Vec::new(), false);
    while at < length {
        let Some(event) = next(&mut file, length - at, &mut bytes).map_err(failed)? else {
            return Ok(Ending::Torn(at));
        };
        at += 4 + bytes.len() as u64;
        ended = event == Event::End;
        each(event);
    }
    Ok(if ended { Ending::Whole } else { Ending::Early })
}

/// The next event, if it is whole, in a file that has so many bytes left.
fn next(file: &mut impl Read, left: u64, bytes: &mut Vec<u8>) -> std::io::Result<Option<Event>> {
    let mut length = [0; 4];
    let Some(left) = left.checked_sub(4) else { return Ok(None) };
    file.read_exact(&mut length)?;
    let length = u64::from(u32::from_le_bytes(length));
    if length > left {
        return Ok(None);
    }
    bytes.resize(length as usize, 0);
    file.read_exact(bytes)?;
    Ok(decode(bytes))
}
