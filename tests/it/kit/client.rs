//! A crawler that sends exactly the bytes that a test wants: hand-written HTTP/1.1 over
//! TCP, or over TLS inside CONNECT. Also runs curl.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::Command;
use tokio_rustls::TlsConnector;

use super::program::{Outcome, finish};
use super::proxy::Proxy;
use super::raw_origin::find;
use super::{Digest, assert_contains, certificates, soon, until};

/// A bidirectional byte stream.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// The head of a response, as received.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    /// Field lines, in the order and case received.
    pub(crate) fields: Vec<(String, String)>,
}

/// A response, read to its end.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
    /// Whether the body ended as its framing announced.
    pub(crate) end: End,
    /// Field lines that followed the body.
    pub(crate) trailers: Vec<(String, String)>,
}

/// Whether a response's body was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Whole,
    Broken,
}

impl Head {
    /// Returns the values of all `name` fields, in order.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        field_values(&self.fields, name)
    }

    /// Returns the value of `name`, which must occur exactly once.
    pub(crate) fn value(&self, name: &str) -> &str {
        let values = self.values(name);
        assert_eq!(values.len(), 1, "{name} of {self:?}");
        values[0]
    }
}

impl Reply {
    pub(crate) fn status(&self) -> u16 {
        self.head.status
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts that the proxy itself answered, with `status` and the RFC 9209 error type
    /// `error`.
    pub(crate) fn assert_error(&self, status: u16, error: &str) {
        assert_eq!(self.status(), status, "{} {:?}", self.text(), self.head);
        let said = self.head.value("proxy-status");
        assert!(said.starts_with("politesse;"), "{said}");
        assert_contains(said, &format!("error={error}"));
    }
}

/// One connection from a crawler to the proxy.
pub(crate) struct Crawler {
    stream: Pin<Box<dyn Duplex>>,
    unread: Vec<u8>,
    trailers: Vec<(String, String)>,
}

impl Crawler {
    /// Opens a connection to the proxy for requests in absolute form.
    pub(crate) async fn plain(proxy: &Proxy) -> Self {
        Self::to(proxy.address()).await
    }

    pub(crate) async fn to(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap())
    }

    /// Opens a connection from 127.0.0.`last`, which the proxy sees as another client.
    pub(crate) async fn from(proxy: &Proxy, last: u8) -> Self {
        Self::at([127, 0, 0, last].into(), proxy).await.unwrap()
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        Self::on(stream)
    }

    fn on(stream: impl Duplex + 'static) -> Self {
        Self {
            stream: Box::pin(stream),
            unread: Vec::new(),
            trailers: Vec::new(),
        }
    }

    /// Opens a connection from `source`, another loopback address, which the proxy sees
    /// as another client. `None` if the proxy is at its connection limit.
    pub(crate) async fn at(source: Ipv4Addr, proxy: &Proxy) -> Option<Self> {
        // The proxy may listen on a dual-stack address; IPv4 loopback reaches it there
        // too.
        let proxy = (Ipv4Addr::LOCALHOST, proxy.address().port());
        Self::between(source, proxy.into()).await
    }

    /// Opens a connection from `source` to `address`; `None` if it is refused.
    pub(crate) async fn between(source: Ipv4Addr, address: SocketAddr) -> Option<Self> {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((source, 0).into()).unwrap();
        let stream = socket.connect(address).await.ok()?;
        Some(Self::over(stream))
    }

    /// Opens a CONNECT tunnel from `source`, without TLS. `None` if the proxy refuses the
    /// connection or the CONNECT.
    pub(crate) async fn connect_at(
        source: Ipv4Addr,
        proxy: &Proxy,
        authority: &str,
    ) -> Option<Self> {
        let mut crawler = Self::at(source, proxy).await?;
        let connect = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
        crawler.try_send(connect.as_bytes()).await.ok()?;
        crawler.head().await.filter(|head| head.status == 200)?;
        Some(crawler)
    }

    /// Opens a connection that is reset, not closed, when it is dropped.
    pub(crate) async fn abrupt(proxy: &Proxy) -> Self {
        let stream = TcpStream::connect(proxy.address()).await.unwrap();
        stream.set_zero_linger().unwrap();
        Self::on(stream)
    }

    /// Opens a CONNECT tunnel to `authority`, without TLS. The answer must be 200.
    pub(crate) async fn connect(proxy: &Proxy, authority: &str) -> Self {
        let mut crawler = Self::plain(proxy).await;
        let head = crawler.ask_to_connect(authority, &[]).await;
        assert_eq!(head.status, 200, "CONNECT {authority}: {head:?}");
        crawler
    }

    /// Sends a CONNECT with extra field lines, and returns the head of the answer.
    pub(crate) async fn ask_to_connect(&mut self, authority: &str, fields: &[&str]) -> Head {
        let line = format!("CONNECT {authority} HTTP/1.1");
        let host = format!("Host: {authority}");
        let lines = [&[&*line, &host], fields].concat();
        self.send(head_of(&lines).as_bytes()).await;
        self.head().await.expect("an answer to CONNECT")
    }

    /// Opens a CONNECT tunnel, then TLS with the authority's host as server name.
    pub(crate) async fn inside(proxy: &Proxy, authority: &str) -> Self {
        let (host, _) = authority.rsplit_once(':').unwrap();
        Self::tls(proxy, authority, host).await.unwrap()
    }

    /// Opens a CONNECT tunnel, then TLS with `name` in the ClientHello.
    pub(crate) async fn tls(proxy: &Proxy, authority: &str, name: &str) -> std::io::Result<Self> {
        let raw = Self::connect(proxy, authority).await;
        raw.secured(proxy, authority, Some(name)).await
    }

    /// Opens a TLS connection to a listener at `address`, whose certificate the test CA
    /// has signed for that address.
    pub(crate) async fn over_tls(address: SocketAddr) -> std::io::Result<Self> {
        Self::to(address).await.tls_to(address).await
    }

    /// Starts TLS with a listener at `address` over this connection.
    pub(crate) async fn tls_to(self, address: SocketAddr) -> std::io::Result<Self> {
        let config = certificates::client(certificates::TestCa::get().pem(), &["http/1.1"]);
        let name = ServerName::from(address.ip());
        let connecting = TlsConnector::from(config).connect(name, self.stream);
        let stream = soon("TLS handshake with the proxy", connecting).await?;
        Ok(Self::on(stream))
    }

    /// Starts TLS inside a CONNECT tunnel that is already open, with `sni` in the
    /// ClientHello; `None` sends no server name.
    pub(crate) async fn secured(
        self,
        proxy: &Proxy,
        authority: &str,
        sni: Option<&str>,
    ) -> std::io::Result<Self> {
        let mut config = certificates::client(&proxy.ca(), &["http/1.1"]);
        Arc::make_mut(&mut config).enable_sni = sni.is_some();
        let (host, _) = authority.rsplit_once(':').unwrap();
        let name = sni.unwrap_or(host).trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(name).unwrap();
        let connecting = TlsConnector::from(config).connect(name, self.stream);
        let stream = soon("TLS handshake", connecting).await?;
        Ok(Self::on(stream))
    }

    pub(crate) fn into_stream(self) -> Pin<Box<dyn Duplex>> {
        self.stream
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Sends bytes that the proxy may stop reading before the end.
    pub(crate) async fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Closes the sending side only.
    pub(crate) async fn finish_sending(&mut self) {
        self.try_finish_sending().await.unwrap();
    }

    /// Closes the sending side, and returns an error if the proxy has already closed.
    pub(crate) async fn try_finish_sending(&mut self) -> std::io::Result<()> {
        self.stream.shutdown().await
    }

    /// Sends a request made of `lines`, each ended by CRLF, and reads the response.
    pub(crate) async fn ask(&mut self, lines: &[&str]) -> Reply {
        self.send(head_of(lines).as_bytes()).await;
        self.reply_to(lines[0].split(' ').next().unwrap()).await
    }

    /// Sends a GET for `target` with `host` as Host field. `target` must be in absolute
    /// form on a plain connection.
    pub(crate) async fn get(&mut self, target: &str, host: &str) -> Reply {
        self.start_get(target, host).await;
        self.reply_to("GET").await
    }

    /// Sends a GET as [`Self::get`] does, without reading the response.
    pub(crate) async fn start_get(&mut self, target: &str, host: &str) {
        let line = format!("GET {target} HTTP/1.1\r\nHost: {host}");
        let request = format!("{line}\r\nUser-Agent: ExampleBot/1.0\r\n\r\n");
        self.send(request.as_bytes()).await;
    }

    /// Reads the next final response, to a request with `method`.
    pub(crate) async fn reply_to(&mut self, method: &str) -> Reply {
        self.try_reply_to(method).await.expect("an answer")
    }

    /// Reads the next final response; `None` if the connection ends before its head is
    /// complete.
    pub(crate) async fn try_reply_to(&mut self, method: &str) -> Option<Reply> {
        let mut head = self.head().await?;
        while (100..200).contains(&head.status) && head.status != 101 {
            head = self.head().await?;
        }
        if method == "HEAD" || matches!(head.status, 204 | 304) {
            return Some(Reply {
                head,
                body: Vec::new(),
                end: End::Whole,
                trailers: Vec::new(),
            });
        }
        let mut body = Vec::new();
        let end = self
            .body(&head, |bytes| body.extend_from_slice(bytes))
            .await;
        let trailers = std::mem::take(&mut self.trailers);
        Some(Reply {
            head,
            body,
            end,
            trailers,
        })
    }

    /// Reads the next head, interim ones included; `None` if the connection ends first.
    pub(crate) async fn head(&mut self) -> Option<Head> {
        loop {
            if let Some(end) = find(&self.unread, b"\r\n\r\n") {
                let bytes: Vec<u8> = self.unread.drain(..end + 4).collect();
                return Some(parse(&bytes[..end]));
            }
            if self.more().await == 0 {
                return None;
            }
        }
    }

    /// Reads a body framed as `head` says, and passes each part to `take`.
    pub(crate) async fn body(&mut self, head: &Head, mut take: impl FnMut(&[u8])) -> End {
        let codings = head.values("transfer-encoding");
        if codings.iter().any(|value| value.ends_with("chunked")) {
            return self.chunked(&mut take).await;
        }
        if let [length] = head.values("content-length")[..] {
            return self.counted(length.parse().unwrap(), &mut take).await;
        }
        while !self.unread.is_empty() || self.more().await > 0 {
            take(&std::mem::take(&mut self.unread));
        }
        End::Whole
    }

    /// Reads a body framed as `head` says, and asserts that it is complete.
    pub(crate) async fn whole_body(&mut self, head: &Head) -> Vec<u8> {
        let mut body = Vec::new();
        let end = self.body(head, |bytes| body.extend_from_slice(bytes)).await;
        assert_eq!(end, End::Whole, "after {} bytes", body.len());
        body
    }

    /// Reads a body without keeping it, and returns its length and digest.
    pub(crate) async fn digest(&mut self, head: &Head) -> (u64, String, End) {
        let mut digest = Digest::new();
        let end = self.body(head, |bytes| digest.update(bytes)).await;
        let (bytes, sha256) = digest.finish();
        (bytes, sha256, end)
    }

    /// Waits until at least `length` unread bytes have arrived, and returns them
    /// unconsumed.
    pub(crate) async fn peek(&mut self, length: usize) -> &[u8] {
        while self.unread.len() < length {
            let count = self.more().await;
            assert!(0 < count, "the connection ended after {:?}", self.unread);
        }
        &self.unread
    }

    /// Reports whether the proxy closes the connection without sending another byte.
    pub(crate) async fn closes(&mut self) -> bool {
        self.unread.is_empty() && self.more().await == 0
    }

    async fn counted(&mut self, length: u64, take: &mut impl FnMut(&[u8])) -> End {
        let mut missing = length;
        while missing > 0 {
            if self.unread.is_empty() && self.more().await == 0 {
                return End::Broken;
            }
            let part = usize::try_from(missing)
                .unwrap_or(usize::MAX)
                .min(self.unread.len());
            take(&self.unread[..part]);
            self.unread.drain(..part);
            missing -= part as u64;
        }
        End::Whole
    }

    async fn chunked(&mut self, take: &mut impl FnMut(&[u8])) -> End {
        loop {
            match self.chunk(take).await {
                None => return End::Broken,
                Some(0) => return self.trailers().await,
                Some(_) => {}
            }
        }
    }

    /// Reads the next chunk, and returns its length, which is 0 for the last one. `None`
    /// if the connection ends first.
    pub(crate) async fn chunk(&mut self, take: &mut impl FnMut(&[u8])) -> Option<u64> {
        let line = self.line().await?;
        let digits = line.split(';').next().unwrap_or_default();
        let length = u64::from_str_radix(digits, 16).unwrap();
        if 0 < length {
            if self.counted(length, take).await == End::Broken {
                return None;
            }
            self.line().await?;
        }
        Some(length)
    }

    async fn trailers(&mut self) -> End {
        while let Some(line) = self.line().await {
            if line.is_empty() {
                return End::Whole;
            }
            self.trailers.push(field(&line));
        }
        End::Broken
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = find(&self.unread, b"\r\n") {
                let bytes: Vec<u8> = self.unread.drain(..end + 2).collect();
                return Some(String::from_utf8_lossy(&bytes[..end]).into_owned());
            }
            if self.more().await == 0 {
                return None;
            }
        }
    }

    /// Reads more bytes; returns 0 at the end, whether closed or reset.
    async fn more(&mut self) -> usize {
        self.unread.reserve(65_536);
        let read = self.stream.read_buf(&mut self.unread);
        soon("bytes from the proxy", read).await.unwrap_or(0)
    }
}

fn head_of(lines: &[&str]) -> String {
    format!("{}\r\n\r\n", lines.join("\r\n"))
}

fn parse(head: &[u8]) -> Head {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap();
    Head {
        status: status.parse().unwrap(),
        fields: lines.map(field).collect(),
    }
}

/// Returns the values of `name` among field lines, in order.
pub(crate) fn field_values<'a>(fields: &'a [(String, String)], name: &str) -> Vec<&'a str> {
    let named = fields
        .iter()
        .filter(|(key, _)| key.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value.as_str()).collect()
}

fn field(line: &str) -> (String, String) {
    let (name, value) = line.split_once(':').unwrap();
    (name.to_owned(), value.trim().to_owned())
}

/// Returns the text of the proxy's `/metrics`.
pub(crate) async fn metrics(proxy: &Proxy) -> String {
    get_admin(proxy.admin(), "/metrics", &[]).await.text()
}

/// Requests `path` from the admin listener at `admin`, with further field lines.
pub(crate) async fn get_admin(admin: SocketAddr, path: &str, fields: &[&str]) -> Reply {
    let (line, host) = (format!("GET {path} HTTP/1.1"), format!("Host: {admin}"));
    let lines = [&[&*line, &*host], fields].concat();
    Crawler::to(admin).await.ask(&lines).await
}

/// Requests `url` as `agent` from 127.0.0.`last`.
pub(crate) async fn get_from(proxy: &Proxy, last: u8, url: &str, agent: &str) -> Reply {
    let source = [127, 0, 0, last].into();
    let mut crawler = Crawler::at(source, proxy).await.unwrap();
    let line = format!("GET {url} HTTP/1.1");
    let agent = format!("User-Agent: {agent}");
    crawler.ask(&[&line, "Host: x", &agent]).await
}

/// Sends SIGHUP, and waits until the new configuration is in force.
pub(crate) async fn reload(proxy: &Proxy) {
    let reloads = async || {
        let text = metrics(proxy).await;
        let name = "politesse_config_reloads_total{result=\"successful\"} ";
        let count = text.lines().find_map(|line| line.strip_prefix(name));
        count.map_or(0, |count| count.parse::<u64>().unwrap())
    };
    let before = reloads().await;
    proxy.signal("HUP").await;
    until("reload", async || (before < reloads().await).then_some(())).await;
}

/// Requests an absolute URL as ExampleBot over a new connection.
pub(crate) async fn get(proxy: &Proxy, url: &str) -> Reply {
    get_as(proxy, "ExampleBot/1.0", url).await
}

/// Requests an absolute URL as `agent` over a new connection.
pub(crate) async fn get_as(proxy: &Proxy, agent: &str, url: &str) -> Reply {
    ask(proxy, "GET", url, &[&format!("User-Agent: {agent}")]).await
}

/// Requests an absolute URL over a new connection, with a method and extra field lines.
/// An `https` URL goes through CONNECT.
pub(crate) async fn ask(proxy: &Proxy, method: &str, url: &str, fields: &[&str]) -> Reply {
    let (scheme, rest) = url.split_once("://").unwrap();
    let authority = rest.split(['/', '?']).next().unwrap();
    let host = format!("Host: {authority}");
    let (mut crawler, target) = if scheme == "https" {
        let port = if authority.contains(':') { "" } else { ":443" };
        let inside = Crawler::inside(proxy, &format!("{authority}{port}")).await;
        (inside, &rest[authority.len()..])
    } else {
        (Crawler::plain(proxy).await, url)
    };
    let line = format!("{method} {target} HTTP/1.1");
    crawler.ask(&[&[&*line, &host], fields].concat()).await
}

/// Requests each URL as ExampleBot, and asserts its status.
pub(crate) async fn assert_statuses(proxy: &Proxy, expected: &[(&str, u16)]) {
    for (url, status) in expected {
        let reply = get(proxy, url).await;
        assert_eq!(reply.status(), *status, "{url}: {}", reply.text());
    }
}

/// Asserts that the proxy's `/metrics` contain `text`.
pub(crate) async fn assert_metric(proxy: &Proxy, text: &str) {
    assert_contains(&metrics(proxy).await, text);
}

/// Runs curl through `proxy`, trusting the proxy's CA.
pub(crate) async fn curl(proxy: &Proxy, arguments: &[&str]) -> Outcome {
    let mut command = Command::new("curl");
    command
        .kill_on_drop(true)
        .args(["--silent", "--show-error", "--max-time", "30", "--proxy"])
        .arg(format!("http://{}", proxy.address()))
        .arg("--cacert")
        .arg(proxy.place().path("certs/ca.pem"))
        .args(arguments);
    finish(command, b"").await
}
