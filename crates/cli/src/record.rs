//! `hotset record`.

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use hotset_core::{Error, Result};
use hotset_server::record;

use crate::table;

/// Make a loss trace of a recorded run.
///
/// Record a run with `hotset serve --record DIRECTORY`, or with HOTSET_RECORD=DIRECTORY for a private server; each run
/// of a job that reports losses (`sampler.update`) gets a file there. The trace is a NumPy array of [epochs, samples], not a
/// number where a sample was not trained, as `hotset simulate --trace` reads it.
#[derive(Args)]
#[command(after_help = "\
Example:
  HOTSET_RECORD=runs python train.py
  hotset record runs/NAME.reports --out trace.npy
  hotset simulate --trace trace.npy")]
pub(crate) struct Record {
    /// The recording of one run
    #[arg(required = true, value_name = "FILE")]
    recordings: Vec<PathBuf>,
    /// Where to write the trace
    #[arg(long, value_name = "FILE", default_value = "trace.npy")]
    out: PathBuf,
}

impl Record {
    pub(crate) fn run(self) -> Result<()> {
        let [recording] = self.recordings.as_slice() else { return Err(several(&self.recordings)) };
        let (samples, losses) = record::read(recording)?;
        let epochs = losses.len().checked_div(samples).unwrap_or(0);
        if epochs == 0 {
            return Err(Error::invalid(format!(
                "`{}` holds no losses: call `sampler.update(ids, loss)` in the training loop",
                recording.display()
            )));
        }
        let file = std::fs::File::create(&self.out).map_err(|error| self.failed(&error))?;
        let mut out = BufWriter::new(file);
        out.write_all(&head(epochs, samples)).map_err(|error| self.failed(&error))?;
        for loss in losses {
            out.write_all(&loss.to_le_bytes()).map_err(|error| self.failed(&error))?;
        }
        out.flush().map_err(|error| self.failed(&error))?;
        table::print(&format!("{}: {epochs} epochs of {samples} samples\n", self.out.display()));
        Ok(())
    }

    fn failed(&self, error: &std::io::Error) -> Error {
        Error::invalid(format!("cannot write `{}`: {error}; choose another `--out`", self.out.display()))
    }
}

/// Says what the runs are of which one can become a trace.
fn several(recordings: &[PathBuf]) -> Error {
    let shown = recordings.iter().map(|path| match record::read(path) {
        Ok((samples, losses)) => {
            let epochs = losses.len().checked_div(samples).unwrap_or(0);
            format!("\n  {}: {epochs} epochs of {samples} samples", path.display())
        }
        Err(error) => format!("\n  {error}"),
    });
    Error::invalid(format!(
        "a trace is made of one run, and these are {}: name one of them{}",
        recordings.len(),
        shown.collect::<String>()
    ))
}

/// What stands before the values of an array in NumPy's format 1.0: a mark, and a description padded to 64 bytes.
fn head(epochs: usize, samples: usize) -> Vec<u8> {
    let mut text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({epochs}, {samples}), }}");
    let unpadded = 10 + text.len() + 1;
    text.push_str(&" ".repeat(unpadded.next_multiple_of(64) - unpadded));
    text.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.into_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_is_padded_to_sixty_four_bytes() {
        for samples in [1, 50_000, 1_281_167] {
            let head = head(90, samples);
            assert_eq!(head.len() % 64, 0);
            assert_eq!(head.last(), Some(&b'\n'));
        }
    }
}
