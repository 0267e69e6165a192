//! The HTTP client of S3: one that takes no credentials to another server.
//!
//! A store may answer with a redirection. The usual client follows it anywhere. To another server it leaves out the header
//! `authorization`, but not session tokens and keys of encryption, which S3 has headers of its own for. This one follows
//! a redirection to the server that it asked, by scheme, host and port; any other comes back as what it is, an answer
//! that is no object. The client is set up from the same options as the usual one.

use std::error::Error;
use std::fmt::Display;
use std::time::Duration;

use object_store::client::{HttpClient, HttpConnector};
use object_store::{ClientConfigKey as Key, ClientOptions};
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{ClientBuilder, NoProxy, Proxy};

/// Redirections in a row.
const MOST: usize = 10;
const AGENT: &str = concat!("hotset/", env!("CARGO_PKG_VERSION"));

/// Follows redirects to the same server alone.
#[derive(Debug)]
pub(super) struct SameServer;

impl HttpConnector for SameServer {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = configured(options).and_then(|builder| {
            builder.redirect(Policy::custom(followed)).build().map_err(|error| error.to_string().into())
        });
        client
            .map(HttpClient::new)
            .map_err(|source| object_store::Error::Generic { store: "HTTP client", source })
    }
}

fn followed(attempt: Attempt<'_>) -> Action {
    let before = attempt.previous();
    let same = before.last().is_some_and(|from| from.origin() == attempt.url().origin());
    if same && before.len() <= MOST { attempt.follow() } else { attempt.stop() }
}

type Told<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn configured(options: &ClientOptions) -> Told<ClientBuilder> {
    let of = |key: Key| options.get_config_value(&key);
    let duration = |key: Key| of(key).map(|text| parsed(&text, humantime::parse_duration(&text))).transpose();
    let flag = |key: Key| of(key).map_or(Ok(false), |text| truth(&text));
    let mut builder = ClientBuilder::new().user_agent(of(Key::UserAgent).unwrap_or(AGENT.to_owned()));
    if let Some(headers) = options.get_default_headers() {
        builder = builder.default_headers(headers.clone());
    }
    if let Some(url) = of(Key::ProxyUrl) {
        if let Some(certificate) = of(Key::ProxyCaCertificate) {
            let certificate = reqwest::tls::Certificate::from_pem(certificate.as_bytes())?;
            builder = builder.tls_certs_merge([certificate]);
        }
        let excluded = of(Key::ProxyExcludes).and_then(|hosts| NoProxy::from_string(&hosts));
        builder = builder.proxy(Proxy::all(url)?.no_proxy(excluded));
    }
    if flag(Key::NoSystemCertificates)? {
        builder = builder.tls_certs_only([]);
    }
    let set = |builder: ClientBuilder,
               value: Option<Duration>,
               with: fn(ClientBuilder, Duration) -> ClientBuilder| {
        match value {
            Some(value) => with(builder, value),
            None => builder,
        }
    };
    builder = set(builder, duration(Key::Timeout)?, ClientBuilder::timeout);
    builder = set(builder, duration(Key::ConnectTimeout)?, ClientBuilder::connect_timeout);
    builder = set(builder, duration(Key::ReadTimeout)?, ClientBuilder::read_timeout);
    builder = set(builder, duration(Key::PoolIdleTimeout)?, |to, value| to.pool_idle_timeout(value));
    builder =
        set(builder, duration(Key::Http2KeepAliveInterval)?, |to, value| to.http2_keep_alive_interval(value));
    builder = set(builder, duration(Key::Http2KeepAliveTimeout)?, ClientBuilder::http2_keep_alive_timeout);
    if let Some(most) = of(Key::PoolMaxIdlePerHost) {
        builder = builder.pool_max_idle_per_host(parsed(&most, most.trim().parse())?);
    }
    if let Some(bytes) = of(Key::Http2MaxFrameSize) {
        builder = builder.http2_max_frame_size(Some(parsed::<u32, _>(&bytes, bytes.trim().parse())?));
    }
    if flag(Key::Http2KeepAliveWhileIdle)? {
        builder = builder.http2_keep_alive_while_idle(true);
    }
    if flag(Key::Http1Only)? {
        builder = builder.http1_only();
    }
    if flag(Key::Http2Only)? {
        builder = builder.http2_prior_knowledge();
    }
    if flag(Key::AllowInvalidCertificates)? {
        builder = builder.danger_accept_invalid_certs(true);
    }
    // A compressed answer has another length than its object.
    builder = builder.no_gzip().no_brotli().no_zstd().no_deflate();
    Ok(builder.https_only(!flag(Key::AllowHttp)?))
}

fn parsed<T, E: Display>(text: &str, value: Result<T, E>) -> Told<T> {
    value.map_err(|error| format!("`{text}` is no value for a setting of the client: {error}").into())
}

fn truth(text: &str) -> Told<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "on" | "yes" | "y" => Ok(true),
        "0" | "false" | "off" | "no" | "n" => Ok(false),
        _ => Err(format!("`{text}` is neither `true` nor `false`").into()),
    }
}
