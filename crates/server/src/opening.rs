//! A job as a client asks for it.

use std::collections::BTreeMap;

use hotset_core::{Error, Result};
use hotset_engine::{JobRequest, PACKAGE_BYTES};
use hotset_wire::proto;

/// See the module's head.
pub(crate) struct Opening {
    pub(crate) request: JobRequest,
    /// Whether its name means something beyond its training process.
    pub(crate) lasting: bool,
    /// How to reach the place of its packages. May hold credentials: never written down.
    pub(crate) package_options: BTreeMap<String, String>,
}

impl Opening {
    pub(crate) fn new(asked: proto::OpenJob) -> Result<Self> {
        let some = |text: String| (!text.is_empty()).then_some(text);
        let request = JobRequest {
            job: asked.job,
            dataset: asked.dataset,
            cache: asked.cache.parse().map_err(|error: Error| Error::invalid(format!("`cache`: {error}")))?,
            strategy: some(asked.strategy),
            policy: some(asked.policy),
            seed: asked.seed,
            prefetch: asked.prefetch,
            pad: asked.pad,
            strategy_settings: asked.strategy_settings,
            policy_settings: asked.policy_settings,
            epochs: (asked.epochs > 0).then_some(asked.epochs),
            packages: some(asked.packages),
            package_bytes: if asked.package_bytes == 0 { PACKAGE_BYTES } else { asked.package_bytes },
        };
        Ok(Self { request, lasting: asked.lasting, package_options: asked.package_options })
    }
}
