//! Connection to the archive, and why there is none.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_postgres::{Client, Config, NoTls};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use super::Options;
use super::address::ArchiveAddress;
use crate::audit::AuditError;
use crate::upstream::client::{Roots, UpstreamSetupError, client_config};
use crate::upstream::parent::{CredentialsError, user_and_password};

/// Name under which the server lists the connection; that of the user, too, where no
/// file says another.
const APPLICATION: &str = "politesse";

/// Reason why nothing can be shipped to the archive, or asked of it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ArchiveFailure {
    /// No archive is configured.
    #[error(
        "there is no archive: name one in audit.archive, as in postgres://db.example/politesse"
    )]
    Unnamed,
    /// The file with the name and the password cannot be used.
    #[error("audit.archive_auth cannot be used")]
    Auth(#[source] CredentialsError),
    /// The certificates cannot be used.
    #[error("audit.archive_ca cannot be used")]
    Roots(#[source] UpstreamSetupError),
    /// The server cannot be reached.
    #[error("the archive {0} of audit.archive cannot be reached")]
    Unreached(ArchiveAddress, #[source] io::Error),
    /// The server lets nobody in with these credentials.
    #[error("the archive {0} refuses the name or the password of audit.archive_auth")]
    Refused(ArchiveAddress, #[source] tokio_postgres::Error),
    /// There is no such database.
    #[error(
        "the archive {0} has no such database: make it with `createdb`, or name another in audit.archive"
    )]
    NoDatabase(ArchiveAddress, #[source] tokio_postgres::Error),
    /// No connection was made.
    #[error(
        "no connection to the archive {0} (its certificate is verified by audit.archive_ca; a server without TLS needs ?sslmode=disable in audit.archive)"
    )]
    Connect(ArchiveAddress, #[source] tokio_postgres::Error),
    /// The user may not do what is needed.
    #[error(
        "the user of audit.archive_auth may not write to the archive {0}, or not read it: whoever ships owns the tables, and whoever asks needs SELECT on all of them"
    )]
    Denied(ArchiveAddress, #[source] tokio_postgres::Error),
    /// The database has not all characters.
    #[error(
        "the database of the archive {address} has the encoding {encoding}, and URLs have characters of all kinds: make one with `createdb --encoding UTF8 --template template0`"
    )]
    Encoding {
        /// Address of the archive.
        address: ArchiveAddress,
        /// Encoding of the database.
        encoding: String,
    },
    /// The database has no tables.
    #[error("the archive {0} is empty: nothing was shipped to it yet")]
    Empty(ArchiveAddress),
    /// The tables are of another version of this program.
    #[error(
        "the archive {address} has version {found} of its tables, and this program knows {known}: name another database in audit.archive"
    )]
    Version {
        /// Address of the archive.
        address: ArchiveAddress,
        /// Version of the tables.
        found: i32,
        /// Version that this program knows.
        known: i32,
    },
    /// The server did not answer.
    #[error("the archive gave no answer within audit.archive_timeout")]
    Timeout(#[from] Elapsed),
    /// An order failed.
    #[error("the archive did not do as it was asked")]
    Query(#[from] tokio_postgres::Error),
    /// Another process ships the same record, and was faster.
    #[error("another process ships this record, or removes months, at the same time: try again")]
    Overtaken,
    /// The archive has an entry of this record that the record does not have.
    #[error(
        "the archive has another entry {seq} of this record: a copy of its folder is in use elsewhere, or an older copy was put in its place. Stop this proxy, move the folder of audit.store away, and start it again: a new record begins"
    )]
    Forked {
        /// Number of the entry.
        seq: i64,
    },
    /// A dictionary value of the record, to which an entry refers, is not as it was
    /// written.
    #[error(
        "the record has an entry that refers to row {id} of {dictionary}, which is gone or was changed: `politesse audit verify` tells more"
    )]
    Unsound {
        /// Name of the dictionary.
        dictionary: &'static str,
        /// Number of the value.
        id: i64,
    },
    /// Entries of a removal are not as they were sealed.
    #[error(
        "entries {first} to {last} of node {node} are not as they were sealed: nothing is removed; `politesse audit --archive verify` tells more"
    )]
    Unproved {
        /// Name of the node.
        node: Arc<str>,
        /// First of these entries.
        first: i64,
        /// Last of these entries.
        last: i64,
    },
    /// Somebody else uses what is to be removed.
    #[error(
        "the archive is read or written all the time (by a verify or a fetch, say): nothing is removed; try again later"
    )]
    Busy(#[source] tokio_postgres::Error),
    /// The record has no entry yet.
    #[error("the record is empty: nothing was decided yet")]
    NoRecord,
    /// A node is not known.
    #[error("the archive has no node {name}{}", list_of(known))]
    NoNode {
        /// Name of a node, or id of its record.
        name: String,
        /// Nodes that there are.
        known: Vec<String>,
    },
    /// A question names a rule that stands in very many files.
    #[error("the rule stands in more than {0} places: name a host or a crawler as well")]
    TooManyRulings(usize),
    /// A question has too many answers.
    #[error("there are more than {0} sums: ask for a shorter time, or for fewer keys")]
    TooManySums(usize),
    /// The record cannot be read.
    #[error(transparent)]
    Record(#[from] AuditError),
}

fn list_of(known: &[String]) -> String {
    match known.is_empty() {
        true => ": nothing was shipped to it yet".to_owned(),
        false => format!(": its nodes are {}", known.join(", ")),
    }
}

/// How the archive is reached.
#[derive(Debug, Clone)]
pub struct ArchiveAccess {
    /// Address of the archive.
    pub address: ArchiveAddress,
    /// Longest wait for a connection, or for one window or page.
    pub timeout: Duration,
    config: Config,
    tls: Option<RustlsConnect>,
}

/// Connection to the archive; it ends when this is dropped.
#[derive(Debug)]
pub struct ArchiveConnection {
    /// Client of the database.
    pub client: Client,
    _driver: AbortOnDropHandle<()>,
}

impl ArchiveAccess {
    /// Reads the credentials and the certificates.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure::Unnamed`], [`ArchiveFailure::Auth`], [`ArchiveFailure::Roots`].
    pub fn new(options: &Options) -> Result<Self, ArchiveFailure> {
        let address = options.address.clone().ok_or(ArchiveFailure::Unnamed)?;
        // By this type, since its debug form leaves the password out.
        let mut config = Config::new();
        config
            .dbname(&address.database)
            .application_name(APPLICATION)
            .user(APPLICATION)
            .ssl_mode(match address.is_tls {
                true => SslMode::Require,
                false => SslMode::Disable,
            });
        if let Some(path) = &options.auth {
            let credentials = user_and_password(path).map_err(ArchiveFailure::Auth)?;
            config.user(&credentials.user);
            config.password(&credentials.password);
        }
        let tls = match address.is_tls {
            false => None,
            true => Some(RustlsConnect::new(&address, options.ca.clone())?),
        };
        Ok(Self {
            address,
            timeout: options.timeout,
            config,
            tls,
        })
    }

    /// Connects. To be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`]: the server cannot be reached, or lets nobody in.
    pub async fn connect(&self) -> Result<ArchiveConnection, ArchiveFailure> {
        timeout(self.timeout, self.connect_at_leisure()).await?
    }

    async fn connect_at_leisure(&self) -> Result<ArchiveConnection, ArchiveFailure> {
        let address = &self.address;
        let place = (address.server.host.as_str(), address.server.port);
        let unreached = |error| ArchiveFailure::Unreached(address.clone(), error);
        let stream = TcpStream::connect(place).await.map_err(unreached)?;
        // Small orders follow each other, and each waits for its answer.
        stream.set_nodelay(true).map_err(unreached)?;
        let config = &self.config;
        let failed = |error: tokio_postgres::Error| self.connect_error(error);
        let (client, driver) = match &self.tls {
            Some(tls) => {
                let tls = tls.clone();
                let (client, driver) = config.connect_raw(stream, tls).await.map_err(failed)?;
                (
                    client,
                    tokio::spawn(async { driver.await.unwrap_or_default() }),
                )
            }
            None => {
                let (client, driver) = config.connect_raw(stream, NoTls).await.map_err(failed)?;
                (
                    client,
                    tokio::spawn(async { driver.await.unwrap_or_default() }),
                )
            }
        };
        Ok(ArchiveConnection {
            client,
            _driver: AbortOnDropHandle::new(driver),
        })
    }

    fn connect_error(&self, error: tokio_postgres::Error) -> ArchiveFailure {
        let address = self.address.clone();
        // By code: the texts are in the language of the server.
        match error.code() {
            Some(&SqlState::INVALID_PASSWORD | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION) => {
                ArchiveFailure::Refused(address, error)
            }
            Some(&SqlState::INVALID_CATALOG_NAME) => ArchiveFailure::NoDatabase(address, error),
            _ => ArchiveFailure::Connect(address, error),
        }
    }

    /// Names what the failure of an order means, if `error` is one.
    pub(super) fn explained(&self, error: ArchiveFailure) -> ArchiveFailure {
        if let ArchiveFailure::Query(error) = error {
            return self.query_error(error);
        }
        error
    }

    /// Names what a failed order means, as far as the user can do something about it.
    pub(super) fn query_error(&self, error: tokio_postgres::Error) -> ArchiveFailure {
        let denied = [
            &SqlState::INSUFFICIENT_PRIVILEGE,
            &SqlState::READ_ONLY_SQL_TRANSACTION,
        ];
        if error.code().is_some_and(|code| denied.contains(&code)) {
            return ArchiveFailure::Denied(self.address.clone(), error);
        }
        if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) {
            return ArchiveFailure::Busy(error);
        }
        ArchiveFailure::Query(error)
    }
}

/// TLS for a connection to the archive, by the same library as all other TLS here.
#[derive(Clone)]
struct RustlsConnect {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl std::fmt::Debug for RustlsConnect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RustlsConnect({:?})", self.name)
    }
}

impl RustlsConnect {
    fn new(address: &ArchiveAddress, ca: Option<PathBuf>) -> Result<Self, ArchiveFailure> {
        let roots = ca.map_or(Roots::System, Roots::File);
        let config: ClientConfig = client_config(roots).map_err(ArchiveFailure::Roots)?;
        let name = ServerName::try_from(address.server.host.clone()).map_err(|_| {
            let error = io::Error::other("its host is no name that a certificate can have");
            ArchiveFailure::Unreached(address.clone(), error)
        })?;
        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
            name,
        })
    }
}

impl TlsConnect<TcpStream> for RustlsConnect {
    type Stream = RustlsStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<RustlsStream>> + Send>>;

    fn connect(self, stream: TcpStream) -> Self::Future {
        Box::pin(async move {
            let stream = self.connector.connect(self.name, stream).await?;
            Ok(RustlsStream(stream))
        })
    }
}

/// Stream of TLS, as the client of the database wants it.
struct RustlsStream(tokio_rustls::client::TlsStream<TcpStream>);

impl TlsStream for RustlsStream {
    // SCRAM without it is as safe where the certificate is verified, as it always is.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for RustlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for RustlsStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
