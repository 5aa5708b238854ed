//! TLS of the proxy as a client: the roots that are trusted, the verifier, what is offered.
//!
//! For origins, and for the servers beside them: stores, archives, targets of heads. Only
//! the entries of `upstream.tls` accept a bad certificate. Every verdict is that of rustls.
//! It calls the issuer of a self-signed certificate unknown, or the certificate that of a
//! CA; here such a certificate has an error of its own, because another remedy helps. Does
//! not know connections.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, CipherSuite, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore,
    SignatureScheme, SupportedProtocolVersion,
};
use thiserror::Error;
use x509_parser::parse_x509_certificate;

/// TLS sessions remembered for resumption.
// rustls keeps 256 by default, which is fewer than the origins of a crawl.
const SESSIONS_MAX: usize = 4096;

/// A source of root certificates; origins are verified by those of all sources
/// (`https.upstream_roots`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Roots {
    /// Certificates that the operating system trusts.
    System,
    /// Mozilla's list, as it was when this was built.
    Webpki,
    /// The certificates of a PEM file.
    File(PathBuf),
}

/// Error in the set-up of TLS, with which the proxy does not start.
#[derive(Debug, Error)]
pub enum TlsSetupError {
    /// The file of roots cannot be read.
    #[error("cannot read the roots in {}", path.display())]
    RootsFile {
        /// The file.
        path: PathBuf,
        /// Fault of the file.
        source: pem::Error,
    },
    /// A certificate in the file of roots is none that can be trusted.
    #[error("{} holds a certificate that is no root", path.display())]
    Root {
        /// The file.
        path: PathBuf,
        /// Fault of the file.
        source: rustls::Error,
    },
    /// The file of roots has no certificate in it.
    #[error("{} holds no certificate", path.display())]
    NoRoots {
        /// The file.
        path: PathBuf,
    },
    /// The operating system has no root certificates.
    #[error(
        "the system has no root certificates; install ca-certificates, or set \
         https.upstream_roots to \"webpki\" or to a PEM file"
    )]
    NoSystemRoots(#[source] Option<rustls_native_certs::Error>),
    /// The system's roots cannot be had, or TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Rustls(#[from] rustls::Error),
}

/// Creates the provider of cryptography for both sides of the proxy: the default
/// one of rustls, with AES-128-GCM first (RFC 8446, section 9.1: the one suite
/// that everybody has).
///
/// rustls and OpenSSL put AES-256 first, whose keys are derived by SHA-384. No
/// common processor has instructions for that, and all have them for SHA-256: a
/// handshake costs a third more with it.
pub fn crypto_provider() -> Arc<CryptoProvider> {
    // By name: with two providers in the tree, the default one would panic.
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    let suites = &mut provider.cipher_suites;
    // Stable: TLS 1.3 stays before 1.2 among the others.
    suites.sort_by_key(|suite| !is_aes_128(suite.suite()));
    Arc::new(provider)
}

fn is_aes_128(suite: CipherSuite) -> bool {
    matches!(
        suite,
        CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
    )
}

/// Requirements on a server.
#[derive(Debug, Clone, Copy)]
pub struct ServerRequirements<'a> {
    /// Roots that its certificate is verified by; `None` accepts every certificate.
    pub roots: Option<&'a [Roots]>,
    /// Versions of TLS that are offered.
    pub versions: &'a [&'static SupportedProtocolVersion],
}

/// Creates a configuration that trusts the roots of all `sources`, without protocols to
/// offer.
///
/// # Errors
///
/// [`TlsSetupError`].
pub fn client_config(sources: &[Roots]) -> Result<ClientConfig, TlsSetupError> {
    client_config_for(ServerRequirements {
        roots: Some(sources),
        versions: &[&TLS13, &TLS12],
    })
}

/// Creates a configuration for servers that fulfil `requirements`, without protocols to
/// offer.
///
/// # Errors
///
/// [`TlsSetupError`].
pub fn client_config_for(
    requirements: ServerRequirements<'_>,
) -> Result<ClientConfig, TlsSetupError> {
    let provider = crypto_provider();
    let verifier = ServerVerifier::new(requirements.roots, &provider)?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(requirements.versions)?;
    // rustls calls every verifier but its own dangerous. This one adds a name for an
    // error, and accepts every certificate only where the operator says so.
    let mut config = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
    Ok(config)
}

fn of_sources(sources: &[Roots]) -> Result<RootCertStore, TlsSetupError> {
    let mut trusted = RootCertStore::empty();
    for source in sources {
        trusted.roots.extend(match source {
            Roots::System => of_system()?.roots,
            Roots::Webpki => webpki_roots::TLS_SERVER_ROOTS.to_vec(),
            Roots::File(path) => from_file(path)?.roots,
        });
    }
    Ok(trusted)
}

/// Reads the certificates that the operating system trusts, or those that
/// `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
fn of_system() -> Result<RootCertStore, TlsSetupError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Systems keep certificates that no verifier takes any more; what is left
    // is what counts.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let cause = found.errors.into_iter().next();
        return Err(TlsSetupError::NoSystemRoots(cause));
    }
    Ok(roots)
}

fn from_file(path: &Path) -> Result<RootCertStore, TlsSetupError> {
    let unreadable = |source| TlsSetupError::RootsFile {
        path: path.to_owned(),
        source,
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
        let added = roots.add(certificate.map_err(unreadable)?);
        added.map_err(|source| TlsSetupError::Root {
            path: path.to_owned(),
            source,
        })?;
    }
    if roots.is_empty() {
        let path = path.to_owned();
        return Err(TlsSetupError::NoRoots { path });
    }
    Ok(roots)
}

/// Verifier that tells self-signed certificates from those of unknown issuers.
#[derive(Debug)]
struct ServerVerifier {
    /// Verifier of certificates; `None` accepts every one.
    certificates: Option<Arc<WebPkiServerVerifier>>,
    /// Signature algorithms of the handshake. A server proves with its signature that it
    /// has the key of its certificate, whether that is verified or not.
    algorithms: WebPkiSupportedAlgorithms,
}

/// Error of a certificate that its own key has signed, and that is not trusted.
#[derive(Debug, Error)]
#[error("the certificate is self-signed")]
pub struct SelfSigned;

impl ServerVerifier {
    /// Creates a verifier that trusts `roots`, or every certificate without any.
    ///
    /// # Panics
    ///
    /// If `roots` is an empty list.
    fn new(roots: Option<&[Roots]>, provider: &Arc<CryptoProvider>) -> Result<Self, TlsSetupError> {
        let certificates = roots.map(|sources| {
            let trusted = Arc::new(of_sources(sources)?);
            let builder =
                WebPkiServerVerifier::builder_with_provider(trusted, Arc::clone(provider));
            Ok::<_, TlsSetupError>(builder.build().expect("there are roots, and no CRLs"))
        });
        Ok(Self {
            certificates: certificates.transpose()?,
            algorithms: provider.signature_verification_algorithms,
        })
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(certificates) = &self.certificates else {
            return Ok(ServerCertVerified::assertion());
        };
        let verified = certificates.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        verified.map_err(|error| {
            let may_be_own = matches!(
                error,
                rustls::Error::InvalidCertificate(
                    CertificateError::UnknownIssuer
                        | CertificateError::BadSignature
                        | CertificateError::Other(_)
                )
            );
            if may_be_own && is_self_signed(end_entity) {
                let fault = OtherError(Arc::new(SelfSigned));
                CertificateError::Other(fault).into()
            } else {
                error
            }
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Reports whether a certificate is signed by its own key.
fn is_self_signed(certificate: &CertificateDer<'_>) -> bool {
    parse_x509_certificate(certificate).is_ok_and(|(_, parsed)| {
        parsed.issuer() == parsed.subject() && parsed.verify_signature(None).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: what the handshake costs most by is not chosen where it need not be.
    #[test]
    fn aes_128_comes_first_and_nothing_is_left_out() {
        let provider = crypto_provider();
        let suites = provider.cipher_suites.iter().map(|suite| suite.suite());
        let suites: Vec<_> = suites.collect();
        assert_eq!(suites[0], CipherSuite::TLS13_AES_128_GCM_SHA256);
        assert!(suites[..3].iter().all(|suite| is_aes_128(*suite)));
        let all = rustls::crypto::aws_lc_rs::default_provider().cipher_suites;
        assert!(all.iter().all(|suite| suites.contains(&suite.suite())));
    }
}
