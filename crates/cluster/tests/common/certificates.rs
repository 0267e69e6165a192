//! Certificates for one test, of an authority of its own.

use hotset_cluster::etcd::Tls;
use hotset_cluster::peers::ServerTls;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// An authority, which signs what it is asked to.
pub(crate) struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    /// A certificate for a host, and its key.
    pub(crate) fn identity(&self, host: &str) -> (String, String) {
        let params = CertificateParams::new(vec![host.to_owned()]).expect("parameters");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    /// What a listener on a host needs.
    pub(crate) fn server(&self, host: &str) -> ServerTls {
        let (certificate, key) = self.identity(host);
        ServerTls { certificate, key, clients: None }
    }

    /// What a client needs that has no certificate.
    pub(crate) fn client(&self) -> Tls {
        Tls { authority: self.certificate.clone(), identity: None }
    }
}
