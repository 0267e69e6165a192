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
use object_store::list::PaginatedListStore;
use object_store::{ClientConfigKey, ClientOptions, HeaderMap, HeaderValue, ObjectStore, RetryConfig};

use super::address::{Address, Kind, check_length, without_credentials};
use super::redirect::SameServer;

/// Names that come up again and again, for messages.
const USUAL: &str = "`aws_access_key_id`, `aws_secret_access_key`, `aws_region`, `aws_endpoint`, \
    `google_service_account`, `azure_storage_account_name`, `azure_storage_account_key`, `timeout`, \
    `connect_timeout`, `allow_http`";

/// Options of web servers, which are ours.
const USER: &str = "http_user";
const PASSWORD: &str = "http_password";

/// Sets every option on a builder, or says which one it does not know.
macro_rules! with_options {
    ($builder:expr, $key:ty, $options:expr) => {{
        let mut builder = $builder;
        for (name, value) in $options {
            let key: $key = name.to_ascii_lowercase().parse().map_err(|_| unknown(name))?;
            builder = builder.with_config(key, value.as_str());
        }
        builder
    }};
}

/// A client of a store.
pub(crate) struct Client {
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// The same, asked for one page of a listing at a time; web servers have none.
    pub(crate) pages: Option<Arc<dyn PaginatedListStore>>,
}

impl Client {
    fn paged<S: ObjectStore + PaginatedListStore + Clone>(store: S) -> Self {
        Self { objects: Arc::new(store.clone()), pages: Some(Arc::new(store)) }
    }
}

/// A client of the store at `address`.
pub(crate) fn connect(address: &Address, options: &BTreeMap<String, String>) -> Result<Client> {
    // The caller tries again: reads by the engine, which knows what still matters.
    for (name, value) in options.iter().filter(|(name, _)| is_address(name)) {
        check_address(name, value)?;
    }
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let base = address.base.as_str();
    // An address with `http://` says that it is to be used.
    let plain = base.starts_with("http://")
        || options.iter().any(|(name, value)| is_address(name) && value.starts_with("http://"));
    let allow = plain.then_some((ClientConfigKey::AllowHttp, "true"));
    let built: object_store::Result<Client> = match address.kind {
        Kind::S3 => {
            let mut builder =
                AmazonS3Builder::from_env().with_url(base).with_retry(retry).with_http_connector(SameServer);
            if let Some((key, value)) = allow {
                builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
            }
            let builder = with_options!(builder, AmazonS3ConfigKey, options);
            for key in [AmazonS3ConfigKey::Endpoint, AmazonS3ConfigKey::S3Endpoint] {
                builder.get_config_value(&key).map_or(Ok(()), |value| check_address(key.as_ref(), &value))?;
            }
            for key in [AmazonS3ConfigKey::AccessKeyId, AmazonS3ConfigKey::Token] {
                check_sendable(key.as_ref(), builder.get_config_value(&key))?;
            }
            let region = builder.get_config_value(&AmazonS3ConfigKey::Region).unwrap_or_default();
            check_length(&region).map_err(|why| Error::invalid(format!("`aws_region`: the name {why}")))?;
            if !region.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
                return Err(Error::invalid(format!("`{region}` for `aws_region` is no name of a region")));
            }
            builder.build().map(Client::paged)
        }
        Kind::Google => {
            let mut builder = GoogleCloudStorageBuilder::from_env().with_url(base).with_retry(retry);
            if let Some((key, value)) = allow {
                builder = builder.with_config(GoogleConfigKey::Client(key), value);
            }
            let builder = with_options!(builder, GoogleConfigKey, options);
            let key = GoogleConfigKey::BearerToken;
            check_sendable(key.as_ref(), builder.get_config_value(&key))?;
            let key = GoogleConfigKey::BaseUrl;
            builder.get_config_value(&key).map_or(Ok(()), |value| check_address(key.as_ref(), &value))?;
            builder.build().map(Client::paged)
        }
        Kind::Azure => {
            let mut builder = MicrosoftAzureBuilder::from_env().with_url(base).with_retry(retry);
            if let Some((key, value)) = allow {
                builder = builder.with_config(AzureConfigKey::Client(key), value);
            }
            let builder = with_options!(builder, AzureConfigKey, options);
            for key in [AzureConfigKey::AccountName, AzureConfigKey::Token] {
                check_sendable(key.as_ref(), builder.get_config_value(&key))?;
            }
            builder.build().map(Client::paged)
        }
        Kind::Http => {
            let (own, options): (BTreeMap<_, _>, BTreeMap<_, _>) =
                options.iter().partition(|(name, _)| matches!(name.as_str(), USER | PASSWORD));
            let mut client = ClientOptions::new();
            if let Some(authorization) = basic(&own)? {
                let mut headers = HeaderMap::new();
                headers.insert("authorization", authorization);
                client = client.with_default_headers(headers);
            }
            let mut builder = HttpBuilder::new().with_url(base).with_client_options(client).with_retry(retry);
            if let Some((key, value)) = allow {
                builder = builder.with_config(key, value);
            }
            let built = with_options!(builder, ClientConfigKey, options).build();
            built.map(|store| Client { objects: Arc::new(store), pages: None })
        }
    };
    built.map_err(|error| {
        Error::invalid(format!(
            "no client can be made for `{}`: {error}; look at `storage_options` and at the environment of the server",
            address.shown()
        ))
    })
}

/// What identifies this client to a web server; the client leaves it out where it follows a redirection to another server.
fn basic(own: &BTreeMap<&String, &String>) -> Result<Option<HeaderValue>> {
    let of =
        |wanted: &str| own.iter().find(|(name, _)| name.as_str() == wanted).map(|(_, value)| value.as_str());
    let (user, password) = match (of(USER), of(PASSWORD)) {
        (None, None) => return Ok(None),
        (Some(user), password) if !user.contains(':') => (user, password.unwrap_or("")),
        _ => {
            return Err(Error::invalid(format!(
                "`{PASSWORD}` in `storage_options` needs `{USER}`, a name without a colon"
            )));
        }
    };
    let mut header =
        HeaderValue::try_from(format!("Basic {}", base64(format!("{user}:{password}").as_bytes())))
            .map_err(|_| Error::internal("base64 cannot be sent"))?;
    header.set_sensitive(true);
    Ok(Some(header))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().chain([&0; 2]).take(3).fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit)) & 63;
            text.push(if digit <= three.len() { char::from(DIGITS[value as usize]) } else { '=' });
        }
    }
    text
}

/// Whether an option says where requests go.
fn is_address(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("endpoint") || name.contains("base_url")
}

/// Refuses what is no address of a server: clients do not look, and panic when they use it.
fn check_address(name: &str, value: &str) -> Result<()> {
    let written = value.strip_prefix("http://").or_else(|| value.strip_prefix("https://"));
    let host = written.map(|rest| rest.split_once('/').map_or(rest, |(host, _)| host)).unwrap_or_default();
    let port = host.rsplit_once(':').filter(|_| !host.ends_with(']')).map(|(_, port)| port);
    check_length(value).map_err(|why| Error::invalid(format!("`{name}`: the address {why}")))?;
    let usable = !host.is_empty()
        && !host.starts_with(':')
        && host.chars().all(|c| c.is_ascii_alphanumeric() || "._-:[]".contains(c))
        && port.is_none_or(|port| port.parse::<u16>().is_ok())
        && value.chars().all(|c| c.is_ascii_graphic() && !"<>\"{}|\\^`?#".contains(c));
    if usable {
        return Ok(());
    }
    let value = without_credentials(value);
    Err(Error::invalid(format!(
        "`{value}` for `{name}` is no address of a server; write it like `http://10.0.0.5:9000`"
    )))
}

/// Refuses what no request can carry, like a key with the line break of the file it was read from, for the same
/// reason. The value is not shown.
fn check_sendable(name: &str, value: Option<String>) -> Result<()> {
    if value.is_none_or(|value| value.chars().all(|c| c.is_ascii_graphic())) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "`{name}` holds a blank, a line break or another character that cannot be sent; look at `storage_options` \
         and at the environment of the server"
    )))
}

fn unknown(name: &str) -> Error {
    Error::invalid(format!(
        "unknown name `{name}` in `storage_options`; usual ones are {USUAL}; see docs/storage.md"
    ))
}

/// Whether an option is a credential: something that may change from one day to the next for the same data, and
/// that is never to be shown or kept.
pub fn is_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["key", "secret", "token", "sas", "password", "credential", "service_account", USER]
        .iter()
        .any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    fn connected(place: &str, pairs: &[(&str, &str)]) -> Result<()> {
        connect(&Address::parse(place).unwrap()?, &options(pairs)).map(drop)
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
    fn what_is_no_address_or_region_is_refused_by_name_and_not_tried() {
        let wrong =
            ["127.0.0.1:9", "localhost", "http://", "http://:9", "http://a b", "http://a:port", "ftp://a"];
        for value in wrong.into_iter().chain(["http://a:99999", "http://a/ü", "http://a?b"]) {
            for (place, name) in [("s3://bucket", "aws_endpoint"), ("gs://bucket", "google_base_url")] {
                let error = connected(place, &[(name, value)]).unwrap_err();
                assert!(error.message.contains(&format!("`{value}` for `{name}`")), "{}", error.message);
            }
        }
        for value in
            ["http://10.0.0.5:9000", "https://s3.host/some/path", "http://[::1]:9000", "http://[::1]"]
        {
            connected("s3://bucket", &[("aws_endpoint", value)]).unwrap();
        }
        assert!(
            connected("s3://bucket", &[("aws_region", "eu west")]).unwrap_err().message.contains("`eu west`")
        );
    }

    #[test]
    fn credentials_that_cannot_be_sent_are_refused_and_not_shown() {
        for (place, name) in [
            ("s3://bucket", "aws_access_key_id"),
            ("s3://bucket", "aws_session_token"),
            ("gs://bucket", "google_bearer_token"),
            ("az://container", "azure_storage_token"),
        ] {
            let error = connected(place, &[(name, "a-secret\n"), ("timeout", "1s")]).unwrap_err();
            assert!(error.message.contains(&format!("`{name}`")), "{}", error.message);
            assert!(!error.message.contains("a-secret"), "{}", error.message);
        }
    }

    #[test]
    fn a_name_and_a_password_for_a_web_server_are_sent_as_basic() {
        for (plain, coded) in
            [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("abc", "YWJj"), ("me:ü?>", "bWU6w7w/Pg==")]
        {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        connected("http://localhost:1", &[(USER, "me"), (PASSWORD, "hunter2")]).unwrap();
        for wrong in [&[(PASSWORD, "hunter2")][..], &[(USER, "m:e"), (PASSWORD, "hunter2")]] {
            let error = connected("http://localhost:1", wrong).unwrap_err();
            assert!(error.message.contains("`http_user`") && !error.message.contains("hunter2"), "{error}");
        }
        assert!(is_credential(USER) && is_credential(PASSWORD));
        let error = connected("s3://bucket", &[("aws_endpoint", "http://me:hunter2@host:9")]).unwrap_err();
        assert!(error.message.contains("`http://…@host:9`") && !error.message.contains("hunter2"), "{error}");
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
