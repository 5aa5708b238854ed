//! TLS to origins: the terms for each host, setup errors, and the reasons why a handshake
//! failed.
//!
//! Does not know connections.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use politesse_base::server::CredentialsError;
use politesse_base::tls::{
    Roots, SelfSigned, ServerRequirements, TlsSetupError, client_config_for,
};
use politesse_decision::access::{CertificateFault, NoConnection};
use politesse_decision::tls_exception::{TlsException, TlsTerms, TlsVersion};
use politesse_robots::origin::Origin;
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, CertificateError};
use thiserror::Error;
use tokio_rustls::TlsConnector;

/// TLS settings for origins (`https.upstream_roots`, `upstream.tls`, `upstream.http2`).
#[derive(Debug, Clone)]
pub struct TlsOptions {
    /// Trusted root certificates.
    pub roots: Vec<Roots>,
    /// Exceptions for some hosts. The first one that matches applies.
    pub exceptions: Vec<TlsException>,
    /// Folder against which the paths of exception roots are resolved.
    pub folder: PathBuf,
    /// Whether HTTP/2 is offered.
    pub http2: bool,
}

impl TlsOptions {
    /// Returns the root certificate files used for the exceptions.
    pub fn exception_roots(&self) -> impl Iterator<Item = PathBuf> {
        let roots = self.exceptions.iter();
        roots.filter_map(|exception| self.roots_of(&exception.terms))
    }

    fn roots_of(&self, terms: &TlsTerms) -> Option<PathBuf> {
        terms.roots.as_ref().map(|path| self.folder.join(path))
    }

    /// Creates a connector with the given terms, or with the default ones.
    fn connector(&self, terms: Option<&TlsTerms>) -> Result<TlsConnector, TlsSetupError> {
        let file = terms.and_then(|terms| self.roots_of(terms));
        let own = file.map(|path| vec![Roots::File(path)]);
        let is_verified = terms.is_none_or(|terms| terms.verify);
        let versions = [&TLS13, &TLS12];
        let earliest = terms.and_then(|terms| terms.min_version);
        let mut config = client_config_for(ServerRequirements {
            roots: is_verified.then(|| own.as_ref().unwrap_or(&self.roots).as_slice()),
            versions: match earliest {
                Some(TlsVersion::V13) => &versions[..1],
                Some(TlsVersion::V12) | None => &versions,
            },
        })?;
        if self.http2 {
            config.alpn_protocols.push(b"h2".to_vec());
        }
        // After h2, because the list is in order of preference (RFC 7301, section 3.1).
        config.alpn_protocols.push(b"http/1.1".to_vec());
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

/// TLS connectors for origins, one per set of terms, so that no session is resumed under
/// terms other than those it was created with.
pub struct OriginTls {
    usual: TlsConnector,
    exceptional: HashMap<TlsTerms, TlsConnector>,
    exceptions: Vec<TlsException>,
}

impl OriginTls {
    /// Creates the connectors for all terms in `options`.
    ///
    /// # Errors
    ///
    /// [`TlsSetupError`].
    pub fn new(options: &TlsOptions) -> Result<Self, TlsSetupError> {
        let mut exceptional = HashMap::new();
        for exception in &options.exceptions {
            let terms = &exception.terms;
            // Thousands of hosts may share the same terms, and each connector has its own
            // roots and session store.
            if !exceptional.contains_key(terms) {
                exceptional.insert(terms.clone(), options.connector(Some(terms))?);
            }
        }
        Ok(Self {
            usual: options.connector(None)?,
            exceptional,
            exceptions: options.exceptions.clone(),
        })
    }

    /// Returns the exception for `origin`, if any.
    pub(super) fn exception(&self, origin: &Origin) -> Option<&TlsException> {
        let mut exceptions = self.exceptions.iter();
        exceptions.find(|exception| exception.is_for(origin))
    }

    /// Returns the connector for a host with this exception, or without one. `None` if
    /// these options lack its terms: the request waited through a reload and was decided
    /// under the new configuration.
    pub(super) fn connector(&self, exception: Option<&TlsException>) -> Option<&TlsConnector> {
        match exception {
            Some(exception) => self.exceptional.get(&exception.terms),
            None => Some(&self.usual),
        }
    }
}

/// Setup error that prevents the proxy from starting.
#[derive(Debug, Error)]
pub enum UpstreamSetupError {
    /// The roots are unusable, or TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsSetupError),
    /// The credentials for `upstream.parent` are unusable.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

/// Returns the conclusion about the origin from a failed handshake, or from a failed read
/// after it. In TLS 1.3, the alert that a client certificate is required arrives after
/// the handshake (RFC 8446, section 4.4.2.4).
pub(super) fn handshake_failure(error: &io::Error) -> NoConnection {
    match tls_error(error) {
        // RFC 9209 has a separate type for each.
        Some(rustls::Error::InvalidCertificate(error)) => NoConnection::Certificate(fault(error)),
        // The origin supports no common version.
        Some(rustls::Error::AlertReceived(AlertDescription::ProtocolVersion)) => NoConnection::Tls,
        Some(rustls::Error::AlertReceived(_)) => NoConnection::Alert,
        Some(_) | None => NoConnection::Tls,
    }
}

/// Returns the rustls error that tokio-rustls wrapped in an I/O error.
fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref::<rustls::Error>()
}

/// Returns the reason why a certificate is invalid.
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
        // A bad signature means that a trusted root has the issuer's name but a different
        // key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            CertificateFault::Issuer
        }
        CertificateError::Other(other) if other.0.is::<SelfSigned>() => {
            CertificateFault::SelfSigned
        }
        _ => CertificateFault::Other,
    }
}
