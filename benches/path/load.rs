//! Clients that send one request after another through the proxy.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::kinds::{Connection, ExchangeKind, Scheme};
use crate::origin::GATHERING;

/// Host name of the origin.
pub(crate) const HOST: &str = "o.test";

/// Fields of every request, as a crawler sends them.
const FIELDS: &str = "Host: o.test\r\nUser-Agent: ExampleBot/1.0 (+http://bench.test/bot)\r\n\
     Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\nAccept-Language: en\r\n\
     X-Request-ID: 7f3\r\n\r\n";

/// Size of the buffer for bodies, which also has to hold a response head with the
/// beginning of its body.
const BUFFER: usize = 64 << 10;

/// Proxy under load.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) proxy: SocketAddr,
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) kind: &'static ExchangeKind,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Target {
    /// Sends `requests` requests from every client.
    ///
    /// # Errors
    ///
    /// If a response is not 200, or a connection breaks.
    pub(crate) async fn load(self, requests: usize) -> anyhow::Result<()> {
        let mut clients = JoinSet::new();
        for client in 0..self.kind.clients {
            clients.spawn(self.clone().crawl(client, requests));
        }
        while let Some(outcome) = clients.join_next().await {
            outcome.context("a client")??;
        }
        Ok(())
    }

    async fn crawl(self, client: usize, requests: usize) -> anyhow::Result<()> {
        let mut buffer = vec![0; BUFFER];
        let mut stream = self.connect().await?;
        self.exchange(&mut stream, &format!("/{GATHERING}"), &mut buffer)
            .await?;
        for number in 0..requests {
            if self.kind.connection == Connection::New {
                stream.shutdown().await?;
                stream = self.connect().await?;
            }
            // Crawlers seldom request a page twice.
            let path = format!("/{}/{client:02}{number:04}", self.kind.page);
            self.exchange(&mut stream, &path, &mut buffer).await?;
        }
        Ok(())
    }

    async fn connect(&self) -> anyhow::Result<Box<dyn Stream>> {
        let mut tcp = TcpStream::connect(self.proxy).await?;
        tcp.set_nodelay(true)?;
        if self.kind.scheme == Scheme::Plain {
            return Ok(Box::new(tcp));
        }
        let connect = format!("CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\n\r\n");
        tcp.write_all(connect.as_bytes()).await?;
        let mut head = [0; 4096];
        let mut length = 0;
        while !head[..length].ends_with(b"\r\n\r\n") {
            let read = tcp.read(&mut head[length..]).await?;
            ensure!(read > 0, "the proxy ended a CONNECT");
            length += read;
        }
        let name = ServerName::try_from(HOST)?;
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        Ok(Box::new(connector.connect(name, tcp).await?))
    }

    async fn exchange(
        &self,
        stream: &mut (dyn Stream + 'static),
        path: &str,
        buffer: &mut [u8],
    ) -> anyhow::Result<()> {
        let origin = match self.kind.scheme {
            Scheme::Plain => format!("http://{HOST}"),
            Scheme::Intercepted => String::new(),
        };
        let request = format!("GET {origin}{path} HTTP/1.1\r\n{FIELDS}");
        stream.write_all(request.as_bytes()).await?;
        stream.flush().await?;
        let mut filled = 0;
        let response = loop {
            let read = stream.read(&mut buffer[filled..]).await?;
            ensure!(read > 0, "the proxy ended a connection");
            filled += read;
            if let Some(length) = response_bytes(&buffer[..filled]) {
                break length;
            }
        };
        let head = String::from_utf8_lossy(&buffer[..filled.min(200)]);
        ensure!(head.starts_with("HTTP/1.1 200"), "{head}");
        let mut received = filled;
        while received < response {
            let read = stream.read(buffer).await?;
            ensure!(read > 0, "the proxy ended a body");
            received += read;
        }
        Ok(())
    }
}

/// Returns the length of a response, head included, once its head has arrived.
fn response_bytes(response: &[u8]) -> Option<usize> {
    let head = response.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&response[..head]).ok()?;
    let mut fields = text.lines().filter_map(|line| line.split_once(": "));
    let (_, length) = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"))?;
    Some(head + 4 + length.parse::<usize>().ok()?)
}
