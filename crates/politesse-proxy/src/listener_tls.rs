//! TLS of the proxy's own listeners: the certificate that clients see when they connect
//! to an `https://…` address of `proxy.listen`.
//!
//! RFC 9110, section 4.2.2, applied to a proxy. The operator supplies the files, and a
//! reload reads them again; open connections keep the certificate that they were shown.
//! Does not know what is sent over a connection.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::geteuid;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{InconsistentKeys, ServerConfig};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::ca_files::is_exposed;
use super::certificate::end_of;
use politesse_base::tls::crypto_provider;
use politesse_decision::digest::Digest;

/// Configuration keys that name the certificate files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsKeys {
    /// Key of the certificate file.
    pub cert: &'static str,
    /// Key of the private key file.
    pub key: &'static str,
    /// Setting that requires both files, for error messages.
    pub wanted_by: &'static str,
}

impl TlsKeys {
    /// Keys of the listeners for crawlers.
    pub const PROXY: Self = Self {
        cert: "proxy.tls_cert",
        key: "proxy.tls_key",
        wanted_by: "proxy.listen has an address with https://",
    };
    /// Keys of the admin listener.
    pub const ADMIN: Self = Self {
        cert: "admin.tls_cert",
        key: "admin.tls_key",
        wanted_by: "admin has one of the two files of a certificate",
    };
}

/// Files of the certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Keys that name the files.
    pub keys: TlsKeys,
    /// Path of the PEM file with the certificate and its intermediates.
    pub cert: Option<PathBuf>,
    /// Path of the PEM file with its private key; must be readable by the owner only.
    pub key: Option<PathBuf>,
}

impl Options {
    /// Returns the error for a file that is not set, or `None` if both are set.
    pub fn missing(&self) -> Option<ListenerTlsError> {
        self.cert().and_then(|_| self.key()).err()
    }

    fn cert(&self) -> Result<&Path, ListenerTlsError> {
        self.cert.as_deref().ok_or(self.without(self.keys.cert))
    }

    fn key(&self) -> Result<&Path, ListenerTlsError> {
        self.key.as_deref().ok_or(self.without(self.keys.key))
    }

    fn without(&self, key: &'static str) -> ListenerTlsError {
        let wanted_by = self.keys.wanted_by;
        ListenerTlsError::Missing { wanted_by, key }
    }
}

/// Reason why no listener certificate can be loaded. Each prevents the proxy from
/// starting, and a reload from taking effect.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the fields are the values of the texts")]
pub enum ListenerTlsError {
    /// A listener requires TLS, but one of the two files is not set.
    #[error("{wanted_by}, and {key} is \"none\"")]
    Missing {
        wanted_by: &'static str,
        key: &'static str,
    },
    /// A file cannot be read.
    #[error("cannot read {} ({key})", path.display())]
    Read {
        key: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// Users other than the owner may read the key.
    #[error("{} ({key}) may be read by others (mode {mode:o}); `chmod 600` it", path.display())]
    Mode {
        key: &'static str,
        path: PathBuf,
        mode: u32,
    },
    /// A file lacks the expected content.
    #[error("{} ({key}) holds no usable {what}: {reason}", path.display())]
    Content {
        key: &'static str,
        path: PathBuf,
        what: &'static str,
        reason: String,
    },
    /// The private key does not belong to the certificate.
    #[error(
        "the key in {} ({}) is not that of the first certificate in {} ({})",
        key.display(),
        key_key,
        cert.display(),
        cert_key
    )]
    Pair {
        cert_key: &'static str,
        key_key: &'static str,
        cert: PathBuf,
        key: PathBuf,
    },
    /// TLS cannot be set up: the system provides no randomness for the ticket keys.
    #[error("cannot set up TLS for a listener")]
    Setup(#[source] rustls::Error),
}

/// Reason why a client's TLS handshake failed.
#[derive(Debug, Error)]
pub enum HandshakeError {
    /// The handshake did not finish within `proxy.header_timeout`.
    #[error("no TLS handshake with the proxy within proxy.header_timeout")]
    Timeout,
    /// The handshake failed: the client distrusts the certificate, or does not use TLS.
    #[error("the TLS handshake with the proxy failed")]
    Failed(#[source] io::Error),
}

/// TLS server of the listeners.
#[derive(Debug)]
pub struct ListenerTls {
    /// Configuration of rustls with the certificate and key.
    config: Arc<ServerConfig>,
    /// Digest of both files. Tells a reload whether they changed.
    files: Digest,
    /// Expiry of the certificate, in seconds since 1970.
    pub ends_at: Option<i64>,
}

impl ListenerTls {
    /// Reads the certificate and its key.
    ///
    /// # Errors
    ///
    /// [`ListenerTlsError`], which names the file and its configuration key.
    pub fn load(options: &Options) -> Result<Self, ListenerTlsError> {
        let cert = PemFile::read(options.keys.cert, options.cert()?)?;
        let key = PemFile::read(options.keys.key, options.key()?)?;
        key.check_mode()?;
        let chain = CertificateDer::pem_slice_iter(&cert.pem)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| cert.unusable("certificate", &error))?;
        let ends_at = chain.first().and_then(end_of);
        let private =
            PrivateKeyDer::from_pem_slice(&key.pem).map_err(|error| key.unusable("key", &error))?;
        let mut config = ServerConfig::builder_with_provider(crypto_provider())
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(ListenerTlsError::Setup)?
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .map_err(|error| unusable_pair(&cert, &key, &error))?;
        // HTTP/1.1 only, as on a listener without TLS. HTTP/2 to a proxy uses a stream
        // for each CONNECT, which is not supported.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.ignore_client_order = true;
        let ticketer = rustls::crypto::aws_lc_rs::Ticketer::new();
        config.ticketer = ticketer.map_err(ListenerTlsError::Setup)?;
        config.send_tls13_tickets = 1;
        Ok(Self {
            config: Arc::new(config),
            files: Digest::of(&[cert.pem, key.pem].concat()),
            ends_at,
        })
    }

    /// Reports whether `other` was loaded from files with the same content.
    pub fn is_same(&self, other: &Self) -> bool {
        self.files == other.files
    }

    /// Completes a client's TLS handshake within `longest`.
    ///
    /// # Errors
    ///
    /// [`HandshakeError`]. The connection is closed in that case.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        socket: S,
        longest: Duration,
    ) -> Result<TlsStream<S>, HandshakeError> {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.config));
        timeout(longest, acceptor.accept(socket))
            .await
            .map_err(|_| HandshakeError::Timeout)?
            .map_err(HandshakeError::Failed)
    }
}

/// Builds the error for two files that could be read but that rustls rejects with
/// `error`.
fn unusable_pair(cert: &PemFile<'_>, key: &PemFile<'_>, error: &rustls::Error) -> ListenerTlsError {
    if *error == rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) {
        return ListenerTlsError::Pair {
            cert_key: cert.key,
            key_key: key.key,
            cert: cert.path.to_owned(),
            key: key.path.to_owned(),
        };
    }
    let is_about_certificate = matches!(
        error,
        rustls::Error::NoCertificatesPresented | rustls::Error::InvalidCertificate(_)
    );
    if is_about_certificate {
        cert.unusable("certificate", error)
    } else {
        key.unusable("key", error)
    }
}

/// Certificate file or private key file.
struct PemFile<'a> {
    /// Configuration key that names this file.
    key: &'static str,
    path: &'a Path,
    /// Content of the file.
    pem: Vec<u8>,
}

impl<'a> PemFile<'a> {
    fn read(key: &'static str, path: &'a Path) -> Result<Self, ListenerTlsError> {
        let pem = std::fs::read(path).map_err(|source| {
            let path = path.to_owned();
            ListenerTlsError::Read { key, path, source }
        })?;
        Ok(Self { key, path, pem })
    }

    /// Checks that [no other user](is_exposed) can read the file.
    fn check_mode(&self) -> Result<(), ListenerTlsError> {
        let path = self.path.to_owned();
        let metadata = match self.path.metadata() {
            Ok(metadata) => metadata,
            Err(source) => {
                let key = self.key;
                return Err(ListenerTlsError::Read { key, path, source });
            }
        };
        if is_exposed(&metadata, geteuid()) {
            let (key, mode) = (self.key, metadata.mode() & 0o777);
            return Err(ListenerTlsError::Mode { key, path, mode });
        }
        Ok(())
    }

    /// Builds the error for a file that holds no usable `what`.
    fn unusable(&self, what: &'static str, reason: &dyn std::error::Error) -> ListenerTlsError {
        ListenerTlsError::Content {
            key: self.key,
            path: self.path.to_owned(),
            what,
            reason: reason.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// A certificate, its key, and an unrelated key, as PEM files.
    struct Files {
        folder: tempfile::TempDir,
    }

    impl Files {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec!["proxy.test".to_owned()]).unwrap();
            let files = Self { folder };
            files.write("cert.pem", &params.self_signed(&key).unwrap().pem());
            files.write("key.pem", &key.serialize_pem());
            files.write("other.pem", &KeyPair::generate().unwrap().serialize_pem());
            files.write("empty.pem", "");
            files
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        }

        /// Loads two files. An error is returned as its text, without the folder.
        fn load(&self, cert: &str, key: &str) -> Result<ListenerTls, String> {
            let path = |name: &str| (!name.is_empty()).then(|| self.folder.path().join(name));
            let options = Options {
                keys: TlsKeys::PROXY,
                cert: path(cert),
                key: path(key),
            };
            ListenerTls::load(&options).map_err(|error| {
                let folder = format!("{}/", self.folder.path().display());
                error.to_string().replace(&folder, "")
            })
        }
    }

    // Ours.
    #[test]
    fn a_pair_equals_itself_and_differs_from_another() {
        let files = Files::new();
        let first = files.load("cert.pem", "key.pem").unwrap();
        assert!(first.is_same(&files.load("cert.pem", "key.pem").unwrap()));
        let anew = Files::new().load("cert.pem", "key.pem").unwrap();
        assert!(!first.is_same(&anew));
    }

    // Ours: each error names the file and its configuration key.
    #[test]
    fn every_file_error_names_the_file_and_its_key() {
        let files = Files::new();
        for (cert, key, told) in [
            (
                "",
                "key.pem",
                "proxy.listen has an address with https://, and proxy.tls_cert is \"none\"",
            ),
            (
                "cert.pem",
                "",
                "proxy.listen has an address with https://, and proxy.tls_key is \"none\"",
            ),
            (
                "gone.pem",
                "key.pem",
                "cannot read gone.pem (proxy.tls_cert)",
            ),
            (
                "cert.pem",
                "gone.pem",
                "cannot read gone.pem (proxy.tls_key)",
            ),
            (
                "empty.pem",
                "key.pem",
                "empty.pem (proxy.tls_cert) holds no usable certificate: ",
            ),
            (
                "cert.pem",
                "empty.pem",
                "empty.pem (proxy.tls_key) holds no usable key: ",
            ),
            (
                "cert.pem",
                "cert.pem",
                "cert.pem (proxy.tls_key) holds no usable key: ",
            ),
            (
                "cert.pem",
                "other.pem",
                "the key in other.pem (proxy.tls_key) is not that of the first certificate in \
                 cert.pem (proxy.tls_cert)",
            ),
        ] {
            let error = files.load(cert, key).unwrap_err();
            assert!(
                error.starts_with(told),
                "{error:?} should begin with {told:?}"
            );
        }
        let path = files.folder.path().join("key.pem");
        for mode in [0o640, 0o604, 0o644, 0o620] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = files.load("cert.pem", "key.pem").unwrap_err();
            let told = format!("key.pem (proxy.tls_key) may be read by others (mode {mode:o})");
            assert!(error.starts_with(&told), "{error}");
        }
    }
}
