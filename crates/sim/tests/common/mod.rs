//! A small trace that is kept in the repository, and where the shared one is found.

#![allow(dead_code)] // Each test file takes what it needs.

use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use half::f16;
use hotset_core::Rng;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// The samples of the small trace.
pub(crate) const SAMPLES: usize = 1000;
/// Its epochs.
pub(crate) const EPOCHS: usize = 12;

/// Where files of these tests lie.
pub(crate) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// The small trace as a file: `loss`, of which each epoch misses the samples of a dropped last batch, and
/// `reeval`. Every sample has a difficulty; a third of them learn late, so that ranks move.
pub(crate) fn small() -> Vec<u8> {
    let mut difficulty = Rng::new(1, 0, "small difficulty");
    let hard: Vec<f64> = (0..SAMPLES).map(|_| -(1.0 - difficulty.unit()).ln()).collect();
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .last_modified_time(zip::DateTime::default());
    for (array, jitter) in [("loss", "small loss"), ("reeval", "small reeval")] {
        let mut values = Vec::new();
        for epoch in 0..EPOCHS {
            let mut jitter = Rng::new(1, epoch as u64, jitter);
            let mut dropped = vec![false; SAMPLES];
            for id in Rng::new(1, epoch as u64, "small dropped").shuffled_tail(SAMPLES as u32, 8) {
                dropped[id as usize] = array == "loss";
            }
            for (id, hard) in hard.iter().enumerate() {
                let late = if id % 3 == 0 && epoch < 6 { 1.5 } else { 1.0 };
                let loss = 2.3 * hard * late * (0.5 + jitter.unit()) / (1.0 + 0.3 * epoch as f64);
                let loss = if dropped[id] { f16::NAN } else { f16::from_f64(loss) };
                values.extend(loss.to_bits().to_le_bytes());
            }
        }
        writer.start_file(format!("{array}.npy"), options).unwrap();
        writer.write_all(&npy(&values)).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn npy(values: &[u8]) -> Vec<u8> {
    let mut text = format!("{{'descr': '<f2', 'fortran_order': False, 'shape': ({EPOCHS}, {SAMPLES}), }}");
    while (text.len() + 11) % 64 != 0 {
        text.push(' ');
    }
    text.push('\n');
    let length = (text.len() as u16).to_le_bytes();
    [&b"\x93NUMPY\x01\x00"[..], &length, text.as_bytes(), values].concat()
}

/// The trace of a real training: below `$HOTSET_SHARED`, or in `shared` beside the checkout. A test that was asked for
/// fails where it is missing.
pub(crate) fn shared_trace() -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let path =
        std::env::var_os("HOTSET_SHARED").map_or(beside, PathBuf::from).join("traces/resnet18-cifar10.npz");
    assert!(path.exists(), "`{}` is missing: set HOTSET_SHARED to the folder that holds it", path.display());
    path
}
