//! The reports that came after a job's state was written.
//!
//! Each report is appended before it is acknowledged, behind its length and a part of its hash. The log starts
//! empty with every new state. A last entry that was cut short by a kill was never acknowledged, and is left out.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use hotset_core::{Error, Result};
use hotset_store::regular;
use hotset_wire::proto::Report;
use prost::Message;

use super::reading;
use crate::lock::assert_unlocked;

/// Bytes before each entry: its length, and the beginning of its hash.
const HEAD: usize = 4 + 8;

/// A log that is open for more.
pub(crate) struct Log {
    file: File,
    /// Bytes of whole entries.
    length: u64,
}

impl Log {
    /// An empty log at `path`.
    pub(crate) fn new(path: &Path) -> Result<Self> {
        assert_unlocked();
        regular::create(path).map(|file| Self { file, length: 0 }).map_err(|error| failed(path, &error))
    }

    /// A log that goes on after its first `length` bytes.
    pub(crate) fn go_on(path: &Path, length: u64) -> Result<Self> {
        assert_unlocked();
        let opened = regular::go_on(path).and_then(|mut file| {
            file.set_len(length)?;
            io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
            Ok(file)
        });
        opened.map(|file| Self { file, length }).map_err(|error| failed(path, &error))
    }

    /// Appends one report, whole or, if the process is killed, not at all.
    pub(crate) fn append(&mut self, report: &Report) -> io::Result<()> {
        self.append_entry(&entry(report)?)
    }

    /// The same of a report that is an entry already.
    pub(crate) fn append_entry(&mut self, entry: &[u8]) -> io::Result<()> {
        assert_unlocked();
        let written = self.file.write_all(entry);
        if written.is_err() {
            // Half an entry would hide all that come after it.
            let _ = self.file.set_len(self.length);
            let _ = io::Seek::seek(&mut self.file, io::SeekFrom::Start(self.length));
        } else {
            self.length += entry.len() as u64;
        }
        written
    }
}

/// A report as a log has it.
pub(crate) fn entry(report: &Report) -> io::Result<Vec<u8>> {
    let body = report.encode_to_vec();
    let mut entry = Vec::with_capacity(HEAD + body.len());
    entry.extend(u32::try_from(body.len()).map_err(io::Error::other)?.to_le_bytes());
    entry.extend(&blake3::hash(&body).as_bytes()[..8]);
    entry.extend(body);
    Ok(entry)
}

/// Whether a report was made before the place of a run, an epoch and the slots that each rank had trained of it.
pub(crate) fn before(report: &Report, (epoch, position): (u64, u64)) -> bool {
    report.epoch < epoch || report.epoch == epoch && report.upto <= position
}

/// The reports of a log, and how many of its bytes they take; what follows a damaged entry is left out.
pub(crate) fn read(path: &Path) -> Result<(Vec<Report>, u64)> {
    let bytes = match reading::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        Err(error) => return Err(failed(path, &error)),
    };
    let mut reports = Vec::new();
    let mut rest = bytes.as_slice();
    while let Some((report, after)) = first(rest) {
        reports.push(report);
        rest = after;
    }
    Ok((reports, (bytes.len() - rest.len()) as u64))
}

/// The first report in `bytes`, if it is whole, and what follows it.
fn first(bytes: &[u8]) -> Option<(Report, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (hash, rest) = rest.split_first_chunk::<8>()?;
    let (body, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let fits = &blake3::hash(body).as_bytes()[..8] == hash;
    Some((fits.then(|| Report::decode(body).ok()).flatten()?, rest))
}

fn failed(path: &Path, error: &io::Error) -> Error {
    Error::unavailable(format!("cannot use the report log `{}`: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn report(epoch: u64) -> Report {
        Report { job: "job".into(), epoch, ids: vec![1, 2], scores: vec![0.5, 1.5], ..Report::default() }
    }

    #[test]
    fn a_log_cut_anywhere_gives_the_reports_before_the_cut_and_goes_on_there() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("job.log");
        let mut log = Log::new(&path).unwrap();
        (1..4).for_each(|epoch| log.append(&report(epoch)).unwrap());
        let whole = fs::read(&path).unwrap();
        let each = whole.len() / 3;
        for cut in 0..=whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let (reports, length) = read(&path).unwrap();
            assert_eq!((reports.len(), length), (cut / each, (cut / each * each) as u64));
            Log::go_on(&path, length).unwrap().append(&report(9)).unwrap();
            let (reports, _) = read(&path).unwrap();
            assert_eq!(reports.last(), Some(&report(9)));
            assert_eq!(reports.len(), cut / each + 1);
        }
    }

    #[test]
    fn a_flipped_bit_ends_the_log_there() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("job.log");
        let mut log = Log::new(&path).unwrap();
        (0..2).for_each(|epoch| log.append(&report(epoch)).unwrap());
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2 + HEAD + 3;
        bytes[middle] ^= 4;
        fs::write(&path, bytes).unwrap();
        assert_eq!(read(&path).unwrap().0, [report(0)]);
    }
}
