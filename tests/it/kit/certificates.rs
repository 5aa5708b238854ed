//! The test CA, and the leaf certificates that it signs for scripted origins.
//!
//! Origins always have a leaf signed by a CA: a verifier refuses a CA's own certificate
//! as a leaf (`CaUsedAsEndEntity`), so a self-signed origin would test something else.

use std::sync::{Arc, OnceLock};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

/// The CA of a test run. Tests configure the proxy to trust it in place of the system's
/// roots.
pub(crate) struct TestCa {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// Validity of an origin's certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Validity {
    Current,
    Expired,
}

impl TestCa {
    /// Returns the CA, which is made at first use.
    pub(crate) fn get() -> &'static Self {
        static CA: OnceLock<TestCa> = OnceLock::new();
        CA.get_or_init(Self::make)
    }

    fn make() -> Self {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "test CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns a server's TLS configuration with the certificate `leaf` and these ALPN
    /// protocols.
    pub(crate) fn server(&self, leaf: &Leaf, alpn: &[&str]) -> Arc<rustls::ServerConfig> {
        let (chain, key) = self.leaf(leaf);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    /// Returns the TLS configuration of a server called `name` that requires a client
    /// certificate and speaks only `version`.
    pub(crate) fn server_for_clients(
        &self,
        name: &str,
        version: &'static rustls::SupportedProtocolVersion,
    ) -> Arc<rustls::ServerConfig> {
        let (chain, key) = self.leaf(&Leaf::of(name));
        let mut roots = rustls::RootCertStore::empty();
        let own = CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap();
        roots.add(own).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::clone(&provider),
        );
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(chain, key)
            .unwrap();
        Arc::new(config)
    }

    /// Returns a certificate for `names` signed by this CA, and its key, both in PEM.
    pub(crate) fn pair(&self, names: &[&str]) -> [String; 2] {
        let names = names.iter().map(ToString::to_string);
        let mut params = CertificateParams::new(names.collect::<Vec<_>>()).unwrap();
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        [certificate.pem(), key.serialize_pem()]
    }

    fn leaf(&self, leaf: &Leaf) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let mut params = CertificateParams::new(leaf.names.clone()).unwrap();
        params.use_authority_key_identifier_extension = true;
        if leaf.validity == Validity::Expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2020, 2, 1);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
        (vec![certificate.der().clone()], key)
    }
}

/// Names and validity of a scripted origin's certificate.
#[derive(Clone)]
pub(crate) struct Leaf {
    pub(crate) names: Vec<String>,
    pub(crate) validity: Validity,
}

impl Leaf {
    /// Returns a certificate for `name` that has not expired.
    pub(crate) fn of(name: &str) -> Self {
        Self {
            names: vec![name.to_owned()],
            validity: Validity::Current,
        }
    }
}

/// Returns a client's TLS configuration that trusts only the certificates in `pem`.
pub(crate) fn client(pem: &str, alpn: &[&str]) -> Arc<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}
