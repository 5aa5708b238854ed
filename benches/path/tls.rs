//! Certificate of the origin, and TLS settings of the clients.

use std::sync::Arc;

use anyhow::Context as _;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// CA that signs the origin's certificate, and the configuration of the origin's
/// server.
pub(crate) struct OriginTls {
    pub(crate) authority_pem: String,
    pub(crate) server: Arc<ServerConfig>,
}

impl OriginTls {
    /// Makes a CA and a certificate for `name`.
    ///
    /// # Errors
    ///
    /// If a key cannot be made.
    pub(crate) fn make(name: &str) -> anyhow::Result<Self> {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "bench CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let authority_pem = params.self_signed(&key)?.pem();
        let issuer = Issuer::new(params, key);
        let leaf_key = KeyPair::generate()?;
        let leaf = CertificateParams::new([name.to_owned()])?.signed_by(&leaf_key, &issuer)?;
        let key = PrivateKeyDer::from_pem_slice(leaf_key.serialize_pem().as_bytes())?;
        let mut server = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key)?;
        server.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            authority_pem,
            server: Arc::new(server),
        })
    }
}

/// Returns a client that trusts one CA and resumes no session, so that each handshake
/// is a full one.
///
/// # Errors
///
/// If the text is not a certificate.
pub(crate) fn client(authority_pem: &str) -> anyhow::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_slice(authority_pem.as_bytes());
    roots.add(certificate.context("the proxy's authority")?)?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Returns the algorithms of both ends, without hybrid groups, which few crawlers
/// offer.
fn provider() -> CryptoProvider {
    CryptoProvider {
        kx_groups: vec![aws_lc_rs::kx_group::X25519, aws_lc_rs::kx_group::SECP256R1],
        ..aws_lc_rs::default_provider()
    }
}
