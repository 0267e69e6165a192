//! Clients of object stores: from an address, the environment and `storage_options`.
//!
//! Names in `storage_options` are those of the `object_store` crate (`aws_region`, `google_service_account`,
//! `azure_storage_account_name`, `timeout`, ...). What is not set there comes from the environment of the
//! process that reads, which is the server's, under the same names in capitals. Credentials that expire (of an
//! instance, of a web identity) are renewed by that crate as they do.

use std::collections::BTreeMap;
use std::sync::Arc;

use hotset_core::{Error, Result};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::{ClientConfigKey, ObjectStore, RetryConfig};

use super::address::{Address, Kind};

/// Names that come up again and again, for messages.
const USUAL: &str = "`aws_access_key_id`, `aws_secret_access_key`, `aws_region`, `aws_endpoint`, \
    `google_service_account`, `azure_storage_account_name`, `azure_storage_account_key`, `timeout`, \
    `connect_timeout`, `allow_http`";

/// Sets every option on a builder, or says which one it does not know.
macro_rules! with_options {
    ($builder:expr, $key:ty, $options:expr) => {{
        let mut builder = $builder;
        for (name, value) in $options {
            let key: $key = name.to_ascii_lowercase().parse().map_err(|_| unknown(name))?;
            builder = builder.with_config(key, value.clone());
        }
        builder
    }};
}

/// A client of the store at `address`.
pub(crate) fn connect(address: &Address, options: &BTreeMap<String, String>) -> Result<Arc<dyn ObjectStore>> {
    // Whoever asks tries again: reads by the engine, which knows what still matters.
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let base = address.base.as_str();
    // Whoever writes `http://` has said that it is to be used.
    let plain = base.starts_with("http://")
        || options.iter().any(|(name, value)| is_address(name) && value.starts_with("http://"));
    let allow = plain.then_some((ClientConfigKey::AllowHttp, "true"));
    let built: object_store::Result<Arc<dyn ObjectStore>> = match address.kind {
        Kind::S3 => {
            let mut builder = AmazonS3Builder::from_env().with_url(base).with_retry(retry);
            if let Some((key, value)) = allow {
                builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
            }
            with_options!(builder, AmazonS3ConfigKey, options).build().map(|store| Arc::new(store) as _)
        }
        Kind::Google => {
            let mut builder = GoogleCloudStorageBuilder::from_env().with_url(base).with_retry(retry);
            if let Some((key, value)) = allow {
                builder = builder.with_config(GoogleConfigKey::Client(key), value);
            }
            with_options!(builder, GoogleConfigKey, options).build().map(|store| Arc::new(store) as _)
        }
        Kind::Azure => {
            let mut builder = MicrosoftAzureBuilder::from_env().with_url(base).with_retry(retry);
            if let Some((key, value)) = allow {
                builder = builder.with_config(AzureConfigKey::Client(key), value);
            }
            with_options!(builder, AzureConfigKey, options).build().map(|store| Arc::new(store) as _)
        }
        Kind::Http => {
            let mut builder = HttpBuilder::new().with_url(base).with_retry(retry);
            if let Some((key, value)) = allow {
                builder = builder.with_config(key, value);
            }
            with_options!(builder, ClientConfigKey, options).build().map(|store| Arc::new(store) as _)
        }
    };
    built.map_err(|error| {
        Error::invalid(format!(
            "no client can be made for `{}`: {error}; look at `storage_options` and at the environment of the server",
            address.shown()
        ))
    })
}

/// Whether an option says where requests go.
fn is_address(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("endpoint") || name.contains("base_url")
}

fn unknown(name: &str) -> Error {
    Error::invalid(format!(
        "unknown name `{name}` in `storage_options`; usual ones are {USUAL}; see docs/storage.md"
    ))
}

/// Whether an option is a credential: something that may change from one day to the next for the same data, and
/// that is never to be shown or kept.
pub(crate) fn is_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["key", "secret", "token", "sas", "password", "credential", "service_account"]
        .iter()
        .any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    fn connected(place: &str, pairs: &[(&str, &str)]) -> Result<Arc<dyn ObjectStore>> {
        connect(&Address::parse(place).unwrap()?, &options(pairs))
    }

    #[test]
    fn every_kind_of_store_takes_its_options() {
        let s3 = [("aws_access_key_id", "a"), ("AWS_SECRET_ACCESS_KEY", "b"), ("timeout", "300ms")];
        connected("s3://bucket/train", &s3).unwrap();
        connected("http://localhost:1/train", &[("connect_timeout", "1s")]).unwrap();
        let azure = [("azure_storage_account_name", "name"), ("azure_storage_account_key", "a2V5")];
        connected("az://container/train", &azure).unwrap();
        connected("gs://bucket/train", &[("google_skip_signature", "true")]).unwrap();
        let private = [("google_skip_signature", "true"), ("google_base_url", "http://127.0.0.1:1")];
        connected("gs://bucket/train", &private).unwrap();
    }

    #[test]
    fn an_unknown_option_and_a_wrong_value_are_named() {
        let error = connected("s3://bucket", &[("aws_regoin", "x")]).unwrap_err();
        assert!(error.message.contains("`aws_regoin`") && error.message.contains("`aws_region`"));
        let error = connected("s3://bucket", &[("timeout", "soon")]).unwrap_err();
        assert!(
            error.message.contains("soon") && error.message.contains("`s3://bucket`"),
            "{}",
            error.message
        );
    }

    #[test]
    fn credentials_are_known_by_their_names() {
        for name in ["aws_secret_access_key", "AWS_SESSION_TOKEN", "azure_storage_sas_key"] {
            assert!(is_credential(name));
        }
        for name in ["aws_endpoint", "aws_region", "throttle.latency", "fault.seed"] {
            assert!(!is_credential(name));
        }
    }
}
