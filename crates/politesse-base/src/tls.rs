//! Client-side TLS of the proxy: trusted roots, certificate verification, and the versions
//! and cipher suites to offer.
//!
//! Used for origins and for other servers: stores, archives, targets of heads. Only entries
//! of `upstream.tls` can accept an invalid certificate. rustls makes every verdict, but it
//! reports a self-signed certificate as one with an unknown issuer, or as a CA certificate.
//! This module reports a separate error, because the remedy differs. Does not know
//! connections.

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

/// Maximum number of TLS sessions kept for resumption.
// The default of rustls is 256, which is less than the number of origins in a crawl.
const SESSIONS_MAX: usize = 4096;

/// Source of root certificates (`https.upstream_roots`). The roots of all configured
/// sources are trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Roots {
    /// Certificates that the operating system trusts.
    System,
    /// Mozilla's list as of the build.
    Webpki,
    /// The certificates of a PEM file.
    File(PathBuf),
}

/// Error in the setup of TLS, which prevents the proxy from starting.
#[derive(Debug, Error)]
pub enum TlsSetupError {
    /// The file of roots cannot be read.
    #[error("cannot read the roots in {}", path.display())]
    RootsFile {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: pem::Error,
    },
    /// A certificate in the file of roots cannot serve as a root.
    #[error("{} contains a certificate that cannot be a root", path.display())]
    Root {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: rustls::Error,
    },
    /// The file of roots contains no certificate.
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
    /// rustls rejects the configuration.
    #[error("TLS cannot be set up")]
    Rustls(#[from] rustls::Error),
}

/// Creates the cryptography provider for both sides of the proxy: the rustls default, but
/// with AES-128-GCM first, the one suite that every implementation has (RFC 8446, section
/// 9.1).
///
/// rustls and OpenSSL put AES-256 first, which derives its keys with SHA-384. Common
/// processors have instructions for SHA-256 but not for SHA-384, which makes a handshake
/// a third more expensive.
pub fn crypto_provider() -> Arc<CryptoProvider> {
    // Named explicitly: with two providers in the dependency tree, the process default
    // would panic.
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    let suites = &mut provider.cipher_suites;
    // The sort is stable, so TLS 1.3 stays before 1.2 among the other suites.
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
    /// Roots to verify its certificate with; `None` accepts every certificate.
    pub roots: Option<&'a [Roots]>,
    /// TLS versions to offer.
    pub versions: &'a [&'static SupportedProtocolVersion],
}

/// Creates a client configuration that trusts the roots of all `sources`. It offers TLS 1.3
/// and 1.2, and no ALPN protocols.
///
/// # Errors
///
/// [`TlsSetupError`] if a source of roots is unusable.
pub fn client_config(sources: &[Roots]) -> Result<ClientConfig, TlsSetupError> {
    client_config_for(ServerRequirements {
        roots: Some(sources),
        versions: &[&TLS13, &TLS12],
    })
}

/// Creates a client configuration for servers that meet `requirements`. It offers no ALPN
/// protocols.
///
/// # Errors
///
/// [`TlsSetupError`] if a source of roots or the list of versions is unusable.
pub fn client_config_for(
    requirements: ServerRequirements<'_>,
) -> Result<ClientConfig, TlsSetupError> {
    let provider = crypto_provider();
    let verifier = ServerVerifier::new(requirements.roots, &provider)?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(requirements.versions)?;
    // rustls calls every custom verifier dangerous. This one only adds a separate error,
    // and accepts every certificate only if the operator configures that.
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

/// Loads the certificates that the operating system trusts, or those in `SSL_CERT_FILE`
/// and `SSL_CERT_DIR` if these variables are set.
fn of_system() -> Result<RootCertStore, TlsSetupError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Systems still ship certificates that verifiers no longer accept. Only the
    // remaining ones are added.
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

/// Verifier that distinguishes self-signed certificates from those of unknown issuers.
#[derive(Debug)]
struct ServerVerifier {
    /// Verifier of certificates; `None` accepts every certificate.
    certificates: Option<Arc<WebPkiServerVerifier>>,
    /// Signature algorithms for the handshake. The signature of the server, which proves
    /// that it has the key of its certificate, is always verified.
    algorithms: WebPkiSupportedAlgorithms,
}

/// Error: the certificate is signed by its own key and is not trusted.
#[derive(Debug, Error)]
#[error("the certificate is self-signed")]
pub struct SelfSigned;

impl ServerVerifier {
    /// Creates a verifier that trusts `roots`. With `None` it accepts every certificate.
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

    // Ours: suites with SHA-384 make a handshake more expensive.
    #[test]
    fn aes_128_suites_come_first_and_no_suite_is_dropped() {
        let provider = crypto_provider();
        let suites = provider.cipher_suites.iter().map(|suite| suite.suite());
        let suites: Vec<_> = suites.collect();
        assert_eq!(suites[0], CipherSuite::TLS13_AES_128_GCM_SHA256);
        assert!(suites[..3].iter().all(|suite| is_aes_128(*suite)));
        let all = rustls::crypto::aws_lc_rs::default_provider().cipher_suites;
        assert!(all.iter().all(|suite| suites.contains(&suite.suite())));
    }
}
