//! TLS to the admin listener of this machine. Accepts exactly the certificate in
//! `admin.tls_cert`, regardless of its name and issuer.
//!
//! The command reads the proxy's configuration, so it has that certificate; the root
//! that browsers trust may be only on other machines.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use politesse_base::tls::crypto_provider;

/// Opens TLS over `stream` to the listener at `address`, which must present the first
/// certificate in the file at `path`.
///
/// # Errors
///
/// The file has no certificate, or the handshake fails.
pub(super) async fn connect(
    stream: TcpStream,
    address: SocketAddr,
    path: &Path,
) -> io::Result<TlsStream<TcpStream>> {
    let certificate = CertificateDer::from_pem_file(path).map_err(io::Error::other)?;
    let provider = crypto_provider();
    let verifier = PinnedCertificate {
        certificate,
        provider: Arc::clone(&provider),
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    let name = ServerName::IpAddress(address.ip().into());
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

/// Verifier that accepts a single certificate.
#[derive(Debug)]
struct PinnedCertificate {
    /// The accepted certificate.
    certificate: CertificateDer<'static>,
    /// Verifies signatures.
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if *end_entity == self.certificate {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
