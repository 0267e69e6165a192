//! The engine, whole: its promises, each in a file of its own, in one program. One, since tests that wait leave the
//! processor to others only inside a program, and since each program links all that the engine stands on.
//! `cargo test --release --workspace --test engine -- differential` runs one file.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod benefit;
mod beside;
mod bounds;
mod by_runs;
mod cluster;
mod common;
mod compaction;
mod differential;
mod ends;
mod equal;
mod given;
mod interleavings;
mod jobs;
mod limits;
mod luck;
mod model;
mod packages;
mod packing;
mod peers;
mod playback;
mod probes;
mod regions;
mod remarks;
mod reports;
mod restart;
mod runs;
mod serving;
mod sharing;
mod together;
