//! Who may listen where, and who is let in.
//!
//! A node may listen on loopback as it likes. Beyond it there must be TLS, by which the asker knows whom it asks, and a
//! token, by which the owner knows that a node of its own cluster asks. A token is compared in constant time, sent over TLS or
//! to loopback alone, and never shown.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use hotset_core::{Error, Result};
use subtle::ConstantTimeEq;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tonic::metadata::{Ascii, MetadataValue};

/// The shortest token that is not too easy to guess.
const SHORTEST_TOKEN: usize = 16;
const SCHEME: &str = "Bearer ";

/// What a listener proves itself with, as PEM texts.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerTls {
    /// Its certificate, and those between it and the authority.
    pub certificate: String,
    /// The certificate's key.
    pub key: String,
    /// Whose signature lets a client in; `None`: clients need no certificate.
    pub clients: Option<String>,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerTls {{ clients: {} }}", self.clients.is_some())
    }
}

/// What all nodes of a cluster know.
#[derive(Clone)]
pub(super) struct Token(MetadataValue<Ascii>);

impl Token {
    /// Takes a token, if it is one.
    pub(super) fn new(text: &str) -> Result<Self> {
        let wrong = |why: &str| Error::invalid(format!("`peer_token_file` cannot be used: {why}"));
        if text.len() < SHORTEST_TOKEN {
            return Err(wrong(&format!("it has less than {SHORTEST_TOKEN} characters")));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong("it is to have letters, digits and signs of ASCII alone, and no spaces"));
        }
        let mut value: MetadataValue<Ascii> =
            format!("{SCHEME}{text}").parse().map_err(|_| wrong("it cannot be sent"))?;
        // Kept out of the tables of HTTP/2, and out of what is printed.
        value.set_sensitive(true);
        Ok(Self(value))
    }

    /// What is sent.
    pub(super) fn header(&self) -> MetadataValue<Ascii> {
        self.0.clone()
    }

    /// Whether this is what was sent.
    pub(super) fn is(&self, header: Option<&[u8]>) -> bool {
        header.is_some_and(|header| self.0.as_encoded_bytes().ct_eq(header).into())
    }
}

/// Refuses a listener that others could use.
pub(super) fn check_listener(listen: SocketAddr, tls: bool, token: bool) -> Result<()> {
    if listen.ip().is_loopback() || (tls && token) {
        return Ok(());
    }
    let mut missing = Vec::new();
    if !tls {
        missing.extend(["`peer_certificate`", "`peer_key`", "`peer_authority`"]);
    }
    if !token {
        missing.push("`peer_token_file`");
    }
    Err(Error::invalid(format!(
        "cannot listen for other nodes on {listen}: beyond loopback that takes TLS and a token; set {} (paths of \
         files)",
        missing.join(", ")
    )))
}

/// Refuses to ask in the clear where others could listen.
pub(super) fn check_address(address: &str, tls: bool) -> Result<()> {
    let is_loopback = || address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback());
    if tls || is_loopback() {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "cannot ask the node at `{address}`: beyond loopback that takes TLS; set `peer_authority` (the path of a file)"
    )))
}

/// What makes TLS of accepted connections: TLS 1.3 and HTTP/2.
pub(super) fn acceptor(tls: &ServerTls) -> Result<TlsAcceptor> {
    let wrong = |setting: &str, error: &dyn fmt::Display| {
        Error::invalid(format!("`{setting}` cannot be used for other nodes: {error}"))
    };
    let certificates = certificates(&tls.certificate).map_err(|why| wrong("peer_certificate", &why))?;
    let key = PrivateKeyDer::from_pem_slice(tls.key.as_bytes())
        .map_err(|_| wrong("peer_key", &"there is no private key in it"))?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| Error::internal(format!("TLS cannot be used: {error}")))?;
    let builder = match &tls.clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            for certificate in self::certificates(authority).map_err(|why| wrong("peer_authority", &why))? {
                roots.add(certificate).map_err(|error| wrong("peer_authority", &error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| wrong("peer_authority", &error))?)
        }
    };
    let config = builder.with_single_cert(certificates, key);
    let mut config = config.map_err(|error| wrong("peer_certificate` or `peer_key", &error))?;
    config.alpn_protocols.push(b"h2".into());
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(pem: &str) -> std::result::Result<Vec<CertificateDer<'static>>, &'static str> {
    let read: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let read = read.map_err(|_| "it cannot be read as PEM")?;
    if read.is_empty() { Err("there is no certificate in it") } else { Ok(read) }
}

#[cfg(test)]
mod tests {
    use super::{ServerTls, Token, acceptor, check_address, check_listener};

    #[test]
    fn beyond_loopback_a_listener_has_tls_and_a_token_and_what_is_missing_is_named() {
        let message = |listen: &str, tls, token| {
            let listen = listen.parse().expect("an address");
            check_listener(listen, tls, token).err().map(|error| error.message).unwrap_or_default()
        };
        assert_eq!(message("127.0.0.1:0", false, false), "");
        assert_eq!(message("[::1]:0", false, false), "");
        assert_eq!(message("0.0.0.0:7000", true, true), "");
        let neither = message("0.0.0.0:7000", false, false);
        for setting in ["peer_certificate", "peer_key", "peer_authority", "peer_token_file"] {
            assert!(neither.contains(setting), "{neither}");
        }
        let no_token = message("10.0.0.1:7000", true, false);
        assert!(no_token.contains("peer_token_file") && !no_token.contains("peer_certificate"), "{no_token}");
        assert!(message("[::]:7000", false, true).contains("peer_certificate"));
    }

    #[test]
    fn without_tls_only_addresses_of_loopback_are_asked() {
        assert!(check_address("127.0.0.1:1", false).is_ok());
        assert!(check_address("[::1]:1", false).is_ok());
        assert!(check_address("node-1:7000", true).is_ok());
        for address in ["10.0.0.1:1", "localhost:1", "node-1:7000", ""] {
            let message = check_address(address, false).expect_err("refused").message;
            assert!(message.contains("peer_authority"), "{message}");
        }
    }

    #[test]
    fn tokens_are_long_plain_and_compared_whole() -> hotset_core::Result<()> {
        let token = Token::new("0123456789abcdef")?;
        assert!(token.is(Some(b"Bearer 0123456789abcdef")));
        for other in ["Bearer 0123456789abcdeg", "Bearer 0123456789abcde", "0123456789abcdef", ""] {
            assert!(!token.is(Some(other.as_bytes())), "{other}");
        }
        assert!(!token.is(None));
        assert!(!format!("{:?}", token.header()).contains("0123456789"));
        for wrong in ["short", "0123456789 abcdef", "0123456789abcdef\n"] {
            let message = Token::new(wrong).err().map(|error| error.message).unwrap_or_default();
            assert!(message.contains("peer_token_file") && !message.contains(wrong.trim()), "{message}");
        }
        Ok(())
    }

    #[test]
    fn texts_that_are_no_certificates_are_refused_by_their_setting() {
        let tls = |certificate: &str, key: &str| ServerTls {
            certificate: certificate.into(),
            key: key.into(),
            clients: None,
        };
        let message = acceptor(&tls("nothing", "nothing")).err().expect("refused").message;
        assert!(message.contains("peer_certificate"), "{message}");
    }
}
