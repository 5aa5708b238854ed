//! TLS towards origins: errors of the set-up, and the reason why a handshake failed.
//!
//! Does not know connections.

use std::io;

use politesse_base::server::CredentialsError;
use politesse_base::tls::{SelfSigned, TlsSetupError};
use politesse_decision::access::{CertificateFault, NoConnection};
use rustls::CertificateError;
use thiserror::Error;

/// Error in the set-up of connections, with which the proxy does not start.
#[derive(Debug, Error)]
pub enum UpstreamSetupError {
    /// The roots cannot be used, or TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsSetupError),
    /// The credentials for `upstream.parent` cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

/// Returns what a failed handshake, or a read behind it, says about the origin. In TLS 1.3
/// the alert that a client certificate is wanted comes behind the handshake (RFC 8446,
/// section 4.4.2.4).
pub(super) fn handshake_failure(error: &io::Error) -> NoConnection {
    match tls_error(error) {
        // RFC 9209 has a type of its own for each.
        Some(rustls::Error::InvalidCertificate(error)) => NoConnection::Certificate(fault(error)),
        Some(rustls::Error::AlertReceived(_)) => NoConnection::Alert,
        Some(_) | None => NoConnection::Tls,
    }
}

/// Returns the error of rustls that tokio-rustls has put into one of IO.
fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref::<rustls::Error>()
}

/// Returns the reason why a certificate does not hold.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "rustls may add errors, and those without a remedy are one"
)]
fn fault(error: &CertificateError) -> CertificateFault {
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
