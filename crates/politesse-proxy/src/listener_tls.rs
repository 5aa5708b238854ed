//! TLS of the proxy's own listeners: the certificate that clients see when they
//! connect to `https://…` of `proxy.listen`.
//!
//! RFC 9110, section 4.2.2, of a proxy. The files are the operator's, and are read
//! again by a reload: connections that are open keep the certificate that they
//! were shown. Does not know what is sent over a connection.

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

/// Keys of the configuration that name the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsKeys {
    /// Key of the certificate.
    pub cert: &'static str,
    /// Key of its private key.
    pub key: &'static str,
    /// What in the configuration wants them.
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
    /// Certificate and those that lead to its root, in PEM.
    pub cert: Option<PathBuf>,
    /// Its key, in PEM; readable by the owner alone.
    pub key: Option<PathBuf>,
}

impl Options {
    /// Returns the error of a file that is not set, if one is not.
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

/// Reason why there is no certificate to show. Each keeps the proxy from starting,
/// and a reload from being put in force.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the fields are the values of the texts")]
pub enum ListenerTlsError {
    /// A listener wants TLS, and one of the two files is not set.
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
    /// Other users than its owner may read the key.
    #[error("{} ({key}) may be read by others (mode {mode:o}); `chmod 600` it", path.display())]
    Mode {
        key: &'static str,
        path: PathBuf,
        mode: u32,
    },
    /// A file does not hold what it should.
    #[error("{} ({key}) holds no usable {what}: {reason}", path.display())]
    Content {
        key: &'static str,
        path: PathBuf,
        what: &'static str,
        reason: String,
    },
    /// The two files are not of one certificate.
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
    /// TLS cannot be set up: the system has no randomness for the keys of tickets.
    #[error("cannot set up TLS for a listener")]
    Setup(#[source] rustls::Error),
}

/// Reason why a client's TLS session did not begin.
#[derive(Debug, Error)]
pub enum HandshakeError {
    /// It did not end within `proxy.header_timeout`.
    #[error("no TLS handshake with the proxy within proxy.header_timeout")]
    Timeout,
    /// It failed: the client does not trust the certificate, or does not speak TLS.
    #[error("the TLS handshake with the proxy failed")]
    Failed(#[source] io::Error),
}

/// TLS server of the listeners.
#[derive(Debug)]
pub struct ListenerTls {
    config: Arc<ServerConfig>,
    /// Digest of both files, by which a reload finds out whether they changed.
    files: Digest,
    /// Second, since 1970, at which the certificate ends.
    pub ends_at: Option<i64>,
}

impl ListenerTls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// [`ListenerTlsError`], naming the file and its key.
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
        // What a listener without TLS speaks as well. HTTP/2 with a proxy has
        // streams for CONNECT, which are not served.
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

    /// Reports whether `other` was read from files of the same content.
    pub fn is_same(&self, other: &Self) -> bool {
        self.files == other.files
    }

    /// Answers the handshake of a client, within `longest`.
    ///
    /// # Errors
    ///
    /// [`HandshakeError`]. The connection is closed by then.
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

/// Makes the error of two files that were read, and are not used for `error`.
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

/// One of the two files.
struct PemFile<'a> {
    /// Its key in the configuration.
    key: &'static str,
    path: &'a Path,
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

    /// Checks that [no other user](is_exposed) may read the file.
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

    /// Makes the error of a file that holds no `what`.
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

    /// Files of a certificate, and one of another key.
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

        /// Returns the text of the error, without the folder.
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
    fn a_pair_is_read_and_told_from_another() {
        let files = Files::new();
        let first = files.load("cert.pem", "key.pem").unwrap();
        assert!(first.is_same(&files.load("cert.pem", "key.pem").unwrap()));
        let anew = Files::new().load("cert.pem", "key.pem").unwrap();
        assert!(!first.is_same(&anew));
    }

    // Ours: each names the file and the key of the configuration.
    #[test]
    fn every_mistake_in_the_files_is_told_by_file_and_key() {
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
