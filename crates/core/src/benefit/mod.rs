//! What a job gains from a cache: how long a mini-batch takes that is read from storage, over one whose bytes are there
//! (iCache III-D, Quiver 4.4).
//!
//! A job whose trainer is slower than storage gains nothing: its *benefit* is 1. Where jobs compete for a cache, those above
//! [`ELIGIBLE`] have what they read admitted, and samples are worth what they are to them. A [`Probe`] measures it, and a
//! [`Gauge`] says when.

mod gauge;
mod probe;

pub use gauge::{Ahead, Gauge};
pub use probe::{Length, Phase, Probe, Progress};

/// The benefit above which a job is eligible.
pub const ELIGIBLE: f64 = 1.5;

/// Whether what a job reads is admitted to its cache, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is: what it gains is not known yet.
    Unmeasured,
    /// It is: it gains enough.
    Gains,
    /// It is: it gains little, but has the cache for itself.
    Alone,
    /// It is: no job of the cache gains enough.
    NoneGains,
    /// It is not: others gain more.
    GainsLittle,
}

impl Standing {
    /// Whether what it reads is admitted.
    pub fn is_eligible(self) -> bool {
        self != Self::GainsLittle
    }

    /// The same in words, of a job with that benefit.
    pub fn words(self, benefit: Option<f64>) -> String {
        let times =
            || format!("read from storage its batches take {:.2} times as long", benefit.unwrap_or(1.0));
        match self {
            Self::Unmeasured => "eligible: what it gains from a cache is not measured yet".into(),
            Self::Gains => format!("eligible: {}", times()),
            Self::Alone => format!("eligible: {}, but no other job wants its cache", times()),
            Self::NoneGains => {
                format!("eligible: {}, but no job of its cache gains more than {ELIGIBLE}", times())
            }
            Self::GainsLittle => {
                format!(
                    "not eligible: {} (at most {ELIGIBLE}), so that jobs that gain more have the memory",
                    times()
                )
            }
        }
    }
}
