//! What a process says.

use std::io::{BufRead, BufReader};
use std::process::Child;

/// The first line of it.
pub(super) fn line(process: &mut Child) -> String {
    let out = process.stdout.take().expect("its output");
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line).expect("a line");
    assert!(!line.is_empty(), "it ended before it said where it listens");
    line.trim().to_owned()
}
