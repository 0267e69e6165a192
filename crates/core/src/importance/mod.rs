//! Importance: what each sample is worth to a job, from the losses it reports.
//!
//! A [`Table`] holds the last score of every sample. When a plan is made, a snapshot of it is put in order
//! ([`Ranking`]) and becomes the [`Keys`] that this plan's slots are decided with, however far reports have
//! come by then. [`Volatility`] follows how much the ranks of samples move from epoch to epoch, and says when
//! the set of those that move most has settled.

mod keys;
mod ranking;
mod score;
mod table;
mod volatility;

pub use keys::{Keys, Share};
pub use ranking::Ranking;
pub use score::Score;
pub use table::{CUT, Report, SLICE, Table, cut};
pub use volatility::{OVERLAP, Volatility};
