//! An origin without an HTTP library: records the bytes it receives, and sends the bytes
//! that a test gives, valid or not.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::proxy::{Proxy, resolve};
use super::server::Server;

/// Bytes of an answer, and what happens to the connection after them.
#[derive(Clone)]
pub(crate) struct Bytes {
    pub(crate) bytes: Vec<u8>,
    pub(crate) after: After,
}

/// Whether a raw origin keeps the connection open after an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    KeepOpen,
    Close,
}

type Reply = Arc<dyn Fn(&str) -> Bytes + Send + Sync>;

const ROBOTS: &[u8] = b"GET /robots.txt ";

/// A raw origin. Its record has one entry per connection: the bytes received there.
pub(crate) struct RawOrigin {
    server: Server,
    record: watch::Sender<Vec<Vec<u8>>>,
}

impl RawOrigin {
    /// Starts an origin that calls `reply` with the target of each complete request.
    pub(crate) async fn start(reply: impl Fn(&str) -> Bytes + Send + Sync + 'static) -> Self {
        let record = watch::Sender::new(Vec::new());
        let shared = record.clone();
        let reply: Reply = Arc::new(reply);
        let server = Server::start(move |stream| {
            let connection = Connection::open(stream, &shared);
            connection.serve(Arc::clone(&reply), shared.clone())
        });
        Self {
            server: server.await,
            record,
        }
    }

    /// Starts an origin that answers `robots` for robots.txt and `page` for all other
    /// targets.
    pub(crate) async fn with(robots: &str, page: Bytes) -> Self {
        let robots = Bytes::text(robots);
        Self::start(move |target| {
            // A request that comes through a proxy has its target in absolute form.
            if target.ends_with("/robots.txt") {
                robots.clone()
            } else {
                page.clone()
            }
        })
        .await
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns all requests as received, connection by connection, without those for
    /// robots.txt.
    pub(crate) fn requests(&self) -> Vec<Vec<u8>> {
        let mut requests = self.all_requests();
        requests.retain(|request| !request.starts_with(ROBOTS));
        requests
    }

    /// Returns only the requests for robots.txt.
    pub(crate) fn robots_requests(&self) -> Vec<Vec<u8>> {
        let mut requests = self.all_requests();
        requests.retain(|request| request.starts_with(ROBOTS));
        requests
    }

    fn all_requests(&self) -> Vec<Vec<u8>> {
        let record = self.record.borrow();
        record.iter().flat_map(|bytes| split(bytes)).collect()
    }

    /// Returns the number of connections opened so far.
    pub(crate) fn connections(&self) -> usize {
        self.record.borrow().len()
    }

    /// Returns the request lines without the version, robots.txt left out.
    pub(crate) fn lines(&self) -> Vec<String> {
        let requests = self.requests();
        requests.iter().map(|request| line(request)).collect()
    }
}

impl Bytes {
    /// Returns a plain text answer with status 200.
    pub(crate) fn text(body: &str) -> Self {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        Self::of((head + body).as_bytes())
    }

    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.to_vec(),
            after: After::KeepOpen,
        }
    }

    pub(crate) fn closing(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.to_vec(),
            after: After::Close,
        }
    }
}

/// Starts an origin as [`RawOrigin::with`] does, and a proxy that resolves `o.test` to it.
pub(crate) async fn raw_site(robots: &str, page: Bytes) -> (RawOrigin, Proxy) {
    let origin = RawOrigin::with(robots, page).await;
    let proxy = resolve("o.test", origin.address()).start().await;
    (origin, proxy)
}

/// One connection: its index in the record, and the number of answered requests.
struct Connection {
    stream: TcpStream,
    place: usize,
    answered: usize,
}

impl Connection {
    /// Adds an entry to `record` for a new connection.
    fn open(stream: TcpStream, record: &watch::Sender<Vec<Vec<u8>>>) -> Self {
        let place = record.borrow().len();
        record.send_modify(|record| record.push(Vec::new()));
        Self {
            stream,
            place,
            answered: 0,
        }
    }

    async fn serve(mut self, reply: Reply, record: watch::Sender<Vec<Vec<u8>>>) {
        let mut buffer = vec![0; 65_536];
        while let Ok(length @ 1..) = self.stream.read(&mut buffer).await {
            record.send_modify(|record| record[self.place].extend_from_slice(&buffer[..length]));
            let bytes = record.borrow()[self.place].clone();
            let heads = split(&bytes);
            let whole = heads.iter().take_while(|request| is_whole(request)).count();
            for head in &heads[self.answered..whole] {
                let answer = reply(target(head));
                let sent = self.stream.write_all(&answer.bytes).await;
                if sent.is_err() || answer.after == After::Close {
                    return;
                }
            }
            self.answered = whole;
        }
    }
}

/// Splits a connection's bytes into requests. Good enough for requests that the proxy
/// writes, not a general parser.
fn split(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut requests = Vec::new();
    let mut start = 0;
    while let Some(end) = find(&bytes[start..], b"\r\n\r\n") {
        let head = start + end + 4;
        let length = body_length(&bytes[start..head], &bytes[head..]);
        let next = length.map_or(bytes.len(), |length| bytes.len().min(head + length));
        requests.push(bytes[start..next].to_vec());
        start = next;
    }
    requests
}

/// Returns the body's length as its head frames it; `None` while a chunked body is
/// incomplete.
fn body_length(head: &[u8], rest: &[u8]) -> Option<usize> {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    if head.contains("transfer-encoding: chunked") {
        let last = match rest.starts_with(b"0\r\n") {
            true => 0,
            false => find(rest, b"\r\n0\r\n")? + 2,
        };
        return Some(last + find(&rest[last..], b"\r\n\r\n")? + 4);
    }
    let mut lines = head.lines();
    let length = lines.find_map(|line| line.strip_prefix("content-length: "));
    Some(length.map_or(0, |digits| digits.parse().unwrap()))
}

/// Reports whether `request` has all the bytes that its head announces.
fn is_whole(request: &[u8]) -> bool {
    let end = find(request, b"\r\n\r\n").unwrap() + 4;
    let (head, body) = request.split_at(end);
    body_length(head, body).is_some_and(|length| length <= body.len())
}

/// Reads the next head from `stream`; `None` if the connection ends first. `unread` holds
/// the bytes that followed the head before.
pub(crate) async fn read_head(
    stream: &mut (impl AsyncRead + Unpin),
    unread: &mut Vec<u8>,
) -> Option<String> {
    loop {
        if let Some(end) = find(unread, b"\r\n\r\n") {
            let head: Vec<u8> = unread.drain(..end + 4).collect();
            return Some(String::from_utf8_lossy(&head).into_owned());
        }
        if stream.read_buf(unread).await.ok()? == 0 {
            return None;
        }
    }
}

pub(crate) fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let mut windows = bytes.windows(wanted.len());
    windows.position(|window| window == wanted)
}

fn target(head: &[u8]) -> &str {
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let line = std::str::from_utf8(line).unwrap_or_default();
    line.split(' ').nth(1).unwrap_or_default()
}

fn line(request: &[u8]) -> String {
    let text = String::from_utf8_lossy(request);
    let line = text.split('\r').next().unwrap_or_default();
    let without_version = line.rsplit_once(' ').map_or(line, |(line, _)| line);
    without_version.to_owned()
}
