//! Connection to the archive, with TLS and credentials.
//!
//! Does not know the queries.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_postgres::{Client, Config, NoTls};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use super::Options;
use super::address::ArchiveAddress;
use super::failure::ArchiveFailure;
use politesse_base::server::user_and_password;
use politesse_base::tls::{Roots, client_config};

/// Application name shown by the server. Also the user name, unless the credentials file
/// states another.
const APPLICATION: &str = "politesse";

/// Access data of the archive.
#[derive(Debug, Clone)]
pub struct ArchiveAccess {
    /// Address of the archive.
    pub address: ArchiveAddress,
    /// Longest wait for a connection (`audit.archive_timeout`). Commands and the shipper also
    /// use it as the limit of a query.
    pub timeout: Duration,
    config: Config,
    /// `None` if the address says `sslmode=disable`.
    tls: Option<RustlsConnect>,
}

/// Connection to the archive, closed on drop.
#[derive(Debug)]
pub struct ArchiveConnection {
    /// Database client.
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
        // Holds the password, which its debug form omits.
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

    /// Connects. Must be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`] if the server cannot be reached or refuses the user.
    pub async fn connect(&self) -> Result<ArchiveConnection, ArchiveFailure> {
        timeout(self.timeout, self.connect_untimed()).await?
    }

    /// Connects, without a time limit of its own.
    async fn connect_untimed(&self) -> Result<ArchiveConnection, ArchiveFailure> {
        let address = &self.address;
        let host_and_port = (address.server.host.as_str(), address.server.port);
        let unreached = |error| ArchiveFailure::Unreached(address.clone(), error);
        let stream = TcpStream::connect(host_and_port).await.map_err(unreached)?;
        // Small statements follow each other, and each waits for its response.
        stream.set_nodelay(true).map_err(unreached)?;
        // Otherwise a broken connection would only be noticed after the longest time that
        // a statement may take.
        set_socket_keepalive(&stream, true).map_err(|error| unreached(error.into()))?;
        set_tcp_keepidle(&stream, self.timeout).map_err(|error| unreached(error.into()))?;
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

    /// Classifies an error of connecting.
    fn connect_error(&self, error: tokio_postgres::Error) -> ArchiveFailure {
        let address = self.address.clone();
        match error.code() {
            Some(&SqlState::INVALID_PASSWORD | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION) => {
                ArchiveFailure::Refused(address, error)
            }
            Some(&SqlState::INVALID_CATALOG_NAME) => ArchiveFailure::NoDatabase(address, error),
            None => ArchiveFailure::Connect(address, error),
            Some(_) => error.into(),
        }
    }
}

/// TLS for a connection to the archive, using the same library as all other TLS here.
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
        let config: ClientConfig = client_config(&[roots]).map_err(ArchiveFailure::Roots)?;
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

/// TLS stream in the form that the database client expects.
struct RustlsStream(tokio_rustls::client::TlsStream<TcpStream>);

impl TlsStream for RustlsStream {
    // SCRAM without channel binding is equally safe, because the certificate is always
    // verified.
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
