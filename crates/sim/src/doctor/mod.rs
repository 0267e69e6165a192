//! What a training waits for, and what would help: a verdict from measured rates.
//!
//! [`diagnose`] is a pure function of what was measured. The bottleneck is found as DS-Analyzer finds it (Mohan et al., VLDB
//! 2021): an epoch as it is, one whose samples are all in memory, and one of training alone; what storage costs is the
//! difference of the first two, what preparing costs that of the last two, and the largest is named. The epoch as it is
//! comes from a model of PyTorch's loader (`loader`), and every other way of reading from a replay of the objects that servers
//! run (`candidates`).
//!
//! Ways that train the same samples in an order that is as random as before stand first. Those that change what is
//! trained stand apart, with what they cost elsewhere (`accuracy`): what they cost on other data is not known.
//!
//! Differs from DS-Analyzer: the rate of storage is measured without a loader where a place is named, and the time of a
//! sample is told apart into waiting and computing by the clocks of its thread, not by a second run from memory.

mod accuracy;
mod candidates;
mod loader;
mod measured;
mod page;
mod text;
mod verdict;
mod words;

pub use accuracy::{Cost, costs};
pub use candidates::Candidate;
pub use measured::{Loader, MOST_WORKERS, Measured, Storage};
pub use page::page;
pub use text::text;
pub use verdict::{Bottleneck, Diagnosis, Rates, Shares, diagnose};
pub use words::seconds;

#[cfg(test)]
mod tests;
