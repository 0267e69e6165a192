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
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    fn named(settings: &JobSettings) -> serde_json::Map<String, Value> {
        serde_json::to_value(settings).unwrap().as_object().unwrap().clone()
    }

    fn nothing() -> JobSettings {
        JobSettings { cache: "0B".into(), ..JobSettings::default() }
    }

    /// With something in every setting that there is.
    fn settings() -> JobSettings {
        let mut all = named(&nothing());
        for value in all.values_mut() {
            *value = match value {
                Value::String(_) => "12.34%".into(),
                Value::Bool(_) => true.into(),
                Value::Number(_) => u64::MAX.into(),
                _ => serde_json::json!({ "name": "value" }),
            };
        }
        serde_json::from_value(all.into()).unwrap()
    }

    #[test]
    fn settings_come_back_as_they_were_given_or_not_given() {
        for settings in [settings(), nothing()] {
            let request = request("job".into(), &settings).unwrap();
            assert_eq!(request.job, "job");
            assert_eq!(message(&request).unwrap(), settings);
        }
    }

    #[test]
    fn every_setting_that_differs_is_named_as_users_call_it() {
        let own = request("job".into(), &settings()).unwrap();
        let mut shown = Vec::new();
        for (setting, value) in named(&nothing()) {
            let mut other = named(&settings());
            other.insert(setting, value);
            let other: JobSettings = serde_json::from_value(other.into()).unwrap();
            shown.extend(own.difference(&request("job".into(), &other).unwrap()));
        }
        assert_eq!(shown.iter().collect::<BTreeSet<_>>().len(), named(&settings()).len(), "{shown:?}");
        assert!(shown.contains(&"settings") && shown.contains(&"package_size"), "{shown:?}");
        assert_eq!(own.difference(&own.clone()), None);
    }

    #[test]
    fn a_cache_that_is_no_amount_is_refused_by_name() {
        let error = request("job".into(), &JobSettings { cache: "8G".into(), ..settings() }).unwrap_err();
        assert!(error.message.starts_with("`cache`: `8G` is no amount"), "{error}");
    }
}
