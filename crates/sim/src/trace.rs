//! Loss traces: what every sample's loss was, in every epoch of a real training.
//!
//! A trace is an array of [epochs, ids]. Not a number means that the sample was not trained in that epoch
//! (it was in a dropped last batch): it reports nothing there. A replay serves other samples than the run
//! that made the trace; what it serves reports the loss that the trace has for that epoch.

use std::path::Path;

use hotset_core::id::MOST_SAMPLES;
use hotset_core::{Error, Result, Rng};

use crate::files;

/// The losses of all samples over all epochs.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    samples: usize,
    losses: Vec<f32>,
}

impl Trace {
    /// Reads the array `member` of a `.npz` file, or the one a `.npy` file holds.
    pub fn open(path: &Path, member: &str) -> Result<Self> {
        let array = files::open(path, member, &loss)?;
        let name = path.display();
        match array.shape[..] {
            [_, samples] => Self::new(samples, array.values),
            _ => Err(Error::invalid(format!("its shape is {:?}, not [epochs, ids]", array.shape))),
        }
        .map_err(|error| Error::invalid(format!("cannot use `{name}` as a trace: {error}")))
    }

    /// As [`Self::open`], or `None` where the file has no such array.
    pub fn open_if_there(path: &Path, member: &str) -> Result<Option<Self>> {
        if files::has(path, member) { Self::open(path, member).map(Some) } else { Ok(None) }
    }

    /// A trace from its rows, one after the other.
    pub fn new(samples: usize, losses: Vec<f32>) -> Result<Self> {
        if samples == 0 || losses.is_empty() {
            return Err(Error::invalid("it has no epochs or no samples"));
        }
        if samples as u64 > MOST_SAMPLES || !losses.len().is_multiple_of(samples) {
            return Err(Error::invalid(format!("its {} losses are no rows of {samples}", losses.len())));
        }
        match losses.iter().position(|&value| loss(f64::from(value)).is_err()) {
            Some(at) => Err(Error::invalid(format!(
                "the loss of sample {} in epoch {} is `{}`",
                at % samples,
                at / samples,
                losses[at]
            ))),
            None => Ok(Self { samples, losses }),
        }
    }

    /// A made-up training: every sample has a difficulty of its own, losses fall over the epochs and jitter.
    /// For benchmarks and tests of scale, where no real trace is long enough.
    pub fn synthetic(samples: usize, epochs: usize, seed: u64) -> Result<Self> {
        let mut losses = Vec::new();
        let wanted = samples.checked_mul(epochs).filter(|&wanted| losses.try_reserve_exact(wanted).is_ok());
        if wanted.is_none() {
            return Err(Error::invalid(format!(
                "{epochs} epochs of {samples} samples do not fit the memory"
            )));
        }
        for epoch in 0..epochs {
            let mut difficulty = Rng::new(seed, 0, "synthetic difficulty");
            let mut jitter = Rng::new(seed, epoch as u64, "synthetic jitter");
            let scale = 2.3 / (1.0 + 0.2 * epoch as f64);
            losses.extend((0..samples).map(|_| {
                let hard = -(1.0 - difficulty.unit()).ln();
                (scale * hard * (0.25 + 1.5 * jitter.unit())) as f32
            }));
        }
        Self::new(samples, losses)
    }

    /// How many epochs there are, at least one.
    pub fn epochs(&self) -> usize {
        self.losses.len() / self.samples
    }

    /// How many samples there are, at least one.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// The losses of an epoch, by id; beyond the last epoch the last one's.
    pub fn row(&self, epoch: usize) -> &[f32] {
        let epoch = epoch.min(self.epochs() - 1);
        &self.losses[epoch * self.samples..(epoch + 1) * self.samples]
    }

    /// The first `epochs` alone.
    #[must_use]
    pub fn shortened(mut self, epochs: usize) -> Self {
        self.losses.truncate(epochs.max(1).saturating_mul(self.samples));
        self
    }
}

fn loss(value: f64) -> std::result::Result<f32, &'static str> {
    let loss = value as f32;
    match loss {
        _ if loss.is_infinite() => Err("a loss must be finite; NaN stands for a sample not trained"),
        _ if loss < 0.0 => Err("a loss must not be negative"),
        _ => Ok(loss),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn save(shape: &str, values: &[f32]) -> tempfile::NamedTempFile {
        let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    #[test]
    fn rows_are_epochs_and_not_a_number_is_kept() {
        let file = save("(2, 3)", &[1.0, f32::NAN, 0.0, 4.0, 5.0, 6.0]);
        let trace = Trace::open(file.path(), "loss").unwrap();
        assert_eq!((trace.epochs(), trace.samples()), (2, 3));
        assert!(trace.row(0)[1].is_nan() && trace.row(0)[2] == 0.0);
        assert_eq!((trace.row(1), trace.row(7)), (&[4.0, 5.0, 6.0][..], &[4.0, 5.0, 6.0][..]));
        assert_eq!(trace.shortened(1).epochs(), 1);
    }

    #[test]
    fn what_is_no_trace_is_refused_with_the_place_and_the_reason() {
        for (shape, values, reason) in [
            ("(6,)", vec![1.0; 6], "its shape is [6], not [epochs, ids]"),
            ("(1, 2, 3)", vec![1.0; 6], "its shape is [1, 2, 3]"),
            ("(0, 3)", vec![], "no epochs or no samples"),
            ("(3, 0)", vec![], "no epochs or no samples"),
            ("(2, 2)", vec![1.0, 1.0, 1.0, -0.5], "at [1, 1] is `-0.5`: a loss must not be negative"),
            ("(2, 2)", vec![1.0, f32::INFINITY, 1.0, 1.0], "at [0, 1] is `inf`: a loss must be finite"),
        ] {
            let message = Trace::open(save(shape, &values).path(), "loss").unwrap_err().message;
            assert!(message.contains(reason), "{message}");
        }
        let message = Trace::open(Path::new("/no/such.npz"), "loss").unwrap_err().message;
        assert!(message.contains("`/no/such.npz`: No such file"), "{message}");
        assert!(Trace::new(2, vec![1.0, -1.0]).unwrap_err().message.contains("sample 1 in epoch 0 is `-1`"));
    }

    #[test]
    fn a_synthetic_trace_repeats_from_its_seed_and_is_hard_in_the_same_places() {
        let trace = Trace::synthetic(1000, 3, 5).unwrap();
        assert_eq!(trace, Trace::synthetic(1000, 3, 5).unwrap());
        assert_ne!(trace, Trace::synthetic(1000, 3, 6).unwrap());
        let hardest = |row: &[f32]| {
            let mut ids: Vec<usize> = (0..1000).collect();
            ids.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
            ids.truncate(100);
            ids
        };
        let (first, last) = (hardest(trace.row(0)), hardest(trace.row(2)));
        assert!(first.iter().filter(|id| last.contains(id)).count() > 40);
    }
}
