//! What is asked of another node, and what it says.
//!
//! Both nodes hold the plan, so slots of it are asked for and no samples. How this travels is the transport's; what is
//! answered is the engine's.

/// Slots of a plan that both nodes hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The view of the cluster by which the asked node owns these samples.
    pub view: u64,
    /// The job's name.
    pub job: String,
    /// Its epoch.
    pub epoch: u64,
    /// Digest of the epoch's plan.
    pub plan: u64,
    /// Slots of the plan.
    pub slots: Vec<u32>,
}

/// What became of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AnswerKind {
    /// The bytes are there.
    Given,
    /// The owner does not keep it: whoever asks reads it from storage.
    Yours,
    /// The owner has another view of the cluster.
    Stale,
    /// The owner does not know the job, the epoch or the plan.
    Unknown,
    /// It did not come, or not as it should be.
    Failed,
}

/// An owner's answer to one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer<'a> {
    /// What it is.
    pub kind: AnswerKind,
    /// Whether the owner had the bytes before it was asked.
    pub hit: bool,
    /// The sample, if it is given.
    pub bytes: &'a [u8],
}

impl<'a> Answer<'a> {
    /// A sample.
    pub fn given(bytes: &'a [u8], hit: bool) -> Self {
        Self { kind: AnswerKind::Given, hit, bytes }
    }

    /// No sample.
    pub fn without(kind: AnswerKind) -> Self {
        Self { kind, hit: false, bytes: &[] }
    }
}

/// What came for one slot. Only if it is `Given` is its place filled; else what the place holds is unspecified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given {
    /// What it is.
    pub kind: AnswerKind,
    /// Whether the owner had the bytes before it was asked.
    pub hit: bool,
}

impl Given {
    /// Nothing that can be used came.
    pub const FAILED: Self = Self { kind: AnswerKind::Failed, hit: false };
}
