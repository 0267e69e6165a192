//! A job's settings between the protocol's message and the engine's request.
//!
//! Both have the same settings by the same names, and are made from each other by name: what is added to the two is
//! carried here, and what is added to one alone is refused by every job that is opened.

use hotset_core::{Error, Result};
use hotset_engine::JobRequest;
use hotset_wire::proto::JobSettings;

/// What a job of that name asks for.
pub(crate) fn request(job: String, settings: &JobSettings) -> Result<JobRequest> {
    let named = serde_json::to_value(settings).map_err(|error| Error::internal(error.to_string()))?;
    let request: JobRequest =
        serde_json::from_value(named).map_err(|error| Error::invalid(error.to_string()))?;
    Ok(JobRequest { job, ..request })
}

/// The settings of a job, to be sent or written down.
pub(crate) fn message(request: &JobRequest) -> Result<JobSettings> {
    serde_json::to_value(request)
        .and_then(serde_json::from_value)
        .map_err(|error| Error::internal(format!("the settings of job `{}`: {error}", request.job)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> JobSettings {
        JobSettings {
            dataset: "dataset".into(),
            cache: "12.34%".into(),
            strategy: "iis".into(),
            policy: "lru".into(),
            seed: u64::MAX,
            prefetch: true,
            pad: true,
            strategy_settings: [("fraction".to_owned(), "0.5".to_owned())].into(),
            policy_settings: [("share".to_owned(), "0.1".to_owned())].into(),
            epochs: 90,
            packages: "/packages".into(),
            package_bytes: 1 << 40,
        }
    }

    #[test]
    fn settings_come_back_as_they_were_given_or_not_given() {
        let none = JobSettings { cache: "0B".into(), ..JobSettings::default() };
        for settings in [settings(), none] {
            let request = request("job".into(), &settings).unwrap();
            assert_eq!(request.job, "job");
            assert_eq!(message(&request).unwrap(), settings);
        }
    }

    #[test]
    fn every_setting_that_differs_is_named() {
        let own = request("job".into(), &settings()).unwrap();
        let named = serde_json::to_value(settings()).unwrap();
        let empty =
            serde_json::to_value(JobSettings { cache: "0B".into(), ..JobSettings::default() }).unwrap();
        for (setting, value) in empty.as_object().unwrap() {
            let mut other = named.clone();
            other[setting] = value.clone();
            let other: JobSettings = serde_json::from_value(other).unwrap();
            let found = own.difference(&request("job".into(), &other).unwrap()).unwrap();
            let shown = match setting.as_str() {
                "strategy_settings" => "settings",
                "package_bytes" => "package_size",
                setting => setting,
            };
            assert_eq!(found, shown);
        }
        assert_eq!(own.difference(&own.clone()), None);
    }

    #[test]
    fn a_cache_that_is_no_amount_is_refused_by_name() {
        let error = request("job".into(), &JobSettings { cache: "8G".into(), ..settings() }).unwrap_err();
        assert!(error.message.starts_with("`cache`: `8G` is no amount"), "{error}");
    }
}
