//! Verification of the certificates of origins, and the reason why one does not hold.
//!
//! Every verdict is that of rustls. It calls the issuer of a self-signed certificate
//! unknown, or the certificate that of a CA; here such a certificate has a reason of its
//! own, because another remedy helps. Does not know connections.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use thiserror::Error as ThisError;
use x509_parser::parse_x509_certificate;

use politesse_decision::access::CertificateFault;

/// Verifier that tells self-signed certificates from those of unknown issuers.
#[derive(Debug)]
pub(super) struct OriginVerifier(Arc<WebPkiServerVerifier>);

/// Error of a certificate that its own key has signed, and that is not trusted.
#[derive(Debug, ThisError)]
#[error("the certificate is self-signed")]
struct SelfSigned;

impl OriginVerifier {
    /// Creates a verifier that trusts `roots`.
    ///
    /// # Panics
    ///
    /// If there are no `roots`.
    pub(super) fn new(roots: RootCertStore, provider: Arc<CryptoProvider>) -> Self {
        let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        Self(builder.build().expect("there are roots, and no CRLs"))
    }
}

impl ServerCertVerifier for OriginVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.0
                .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        verified.map_err(|error| {
            let may_be_own = matches!(
                error,
                Error::InvalidCertificate(
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
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Reports whether a certificate is signed by its own key.
fn is_self_signed(certificate: &CertificateDer<'_>) -> bool {
    parse_x509_certificate(certificate).is_ok_and(|(_, parsed)| {
        parsed.issuer() == parsed.subject() && parsed.verify_signature(None).is_ok()
    })
}

/// Returns the reason why a certificate does not hold.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "rustls may add errors, and those without a remedy are one"
)]
pub(super) fn fault(error: &CertificateError) -> CertificateFault {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            CertificateFault::Expired
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            CertificateFault::NotValidYet
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            CertificateFault::Name
        }
        // A bad signature: a trusted root has the name of the issuer, and another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            CertificateFault::Issuer
        }
        CertificateError::Other(other) if other.0.is::<SelfSigned>() => {
            CertificateFault::SelfSigned
        }
        _ => CertificateFault::Other,
    }
}
