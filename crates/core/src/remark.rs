//! What a user should know and is no error: shown by `hotset stats` as `note:`, and where it warns said once a run.

/// A remark for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Of one name a run is warned once, however its text changes.
    pub name: &'static str,
    /// What is said, with the setting to change.
    pub text: String,
    /// Whether it is said to the trainer, and not only shown.
    pub warns: bool,
}

impl Remark {
    /// One that is shown where a user looks.
    pub fn note(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, text: text.into(), warns: false }
    }

    /// One that is said to the trainer too.
    pub fn warning(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, text: text.into(), warns: true }
    }
}
