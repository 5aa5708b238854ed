//! A strict HTTP/1 reader, and an origin that uses it.
//!
//! The proxy's output in both directions must have only one interpretation: lines end in
//! CRLF, there is one framing, and numbers consist of digits. Anything else is a fault,
//! even if a lenient reader would accept it (RFC 9112).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::kit::raw_origin::{After, Bytes, find};
use super::kit::server::Server;
use super::kit::soon;

/// A message as received. Its texts hold each byte as U+0000 to U+00FF.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// Start line and field lines, without the empty line.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: String,
    /// Whether the message ended where its framing says.
    pub(crate) end: End,
}

/// End of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Whole,
    Cut,
}

/// Description of a violation in the bytes that were read.
pub(crate) type Fault = String;

enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

impl Message {
    pub(crate) fn start_line(&self) -> &str {
        self.head.split("\r\n").next().unwrap_or_default()
    }

    /// Returns the method and the target of a request.
    pub(crate) fn asked(&self) -> &str {
        let line = self.start_line();
        line.rsplit_once(' ').map_or(line, |(asked, _)| asked)
    }

    /// Returns the status of a response.
    pub(crate) fn status(&self) -> u16 {
        let digits = self.start_line().split(' ').nth(1);
        digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
    }

    /// Returns the values of `name`, in order.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        let lines = self.head.split("\r\n").skip(1);
        let fields = lines.filter_map(|line| line.split_once(':'));
        let named = fields.filter(|(key, _)| key.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.trim()).collect()
    }

    /// Reports whether a line of the head or the trailers begins with `start`; case does
    /// not matter.
    pub(crate) fn has_line(&self, start: &str) -> bool {
        let start = start.to_ascii_lowercase();
        let mut lines = self.head.split("\r\n").chain(self.trailers.split("\r\n"));
        lines.any(|line| line.to_ascii_lowercase().starts_with(&start))
    }

    /// Returns the framing of a response to a request with `method`, or of a request if
    /// that is `None`.
    fn framing(&self, method: Option<&str>) -> Result<Framing, Fault> {
        let lengths = self.values("content-length");
        let codings = self.values("transfer-encoding");
        let bodiless = method.is_some_and(|method| {
            method == "HEAD" || matches!(self.status(), 100..200 | 204 | 304)
        });
        match (&lengths[..], &codings[..]) {
            (_, []) | ([], _) if bodiless => Ok(Framing::Length(0)),
            ([], []) if method.is_none() => Ok(Framing::Length(0)),
            ([], []) => Ok(Framing::UntilClose),
            ([], ["chunked"]) => Ok(Framing::Chunked),
            ([length], []) => number(length, 10).map(Framing::Length),
            _ => Err(format!("framed by {lengths:?} and {codings:?}")),
        }
    }
}

/// Parses a number that consists of digits, without a leading zero.
fn number(digits: &str, radix: u32) -> Result<usize, Fault> {
    let plain = digits.chars().all(|digit| digit.is_digit(radix));
    let padded = digits.len() > 1 && digits.starts_with('0');
    match usize::from_str_radix(digits, radix) {
        Ok(number) if plain && !padded => Ok(number),
        _ => Err(format!("{digits:?} for a number")),
    }
}

fn text(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// Reads messages from a stream.
pub(crate) struct Reader<S> {
    pub(crate) stream: S,
    unread: Vec<u8>,
}

impl<S: AsyncRead + Unpin> Reader<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            unread: Vec::new(),
        }
    }

    /// Returns the next response, to a request with `method`; `None` if the stream ends
    /// before its head.
    pub(crate) async fn answer(&mut self, method: &str) -> Result<Option<Message>, Fault> {
        let Some(mut message) = self.head().await? else {
            return Ok(None);
        };
        self.rest(&mut message, Some(method)).await?;
        Ok(Some(message))
    }

    /// Reads the next head; the body is not read yet.
    async fn head(&mut self) -> Result<Option<Message>, Fault> {
        while find(&self.unread, b"\r\n\r\n").is_none() {
            if self.more().await == 0 {
                return match &*text(&self.unread) {
                    "" => Ok(None),
                    rest => Err(format!("half a head: {rest:?}")),
                };
            }
        }
        let head = self.lines().await.unwrap_or_default();
        if let Some(line) = head.split("\r\n").find(|line| line.contains(['\r', '\n'])) {
            return Err(format!("a bare CR or LF: {line:?}"));
        }
        Ok(Some(Message {
            head,
            body: Vec::new(),
            trailers: String::new(),
            end: End::Cut,
        }))
    }

    /// Reads the body and the trailers, framed as [`Message::framing`] says.
    async fn rest(&mut self, message: &mut Message, method: Option<&str>) -> Result<(), Fault> {
        message.end = match message.framing(method)? {
            Framing::Length(length) => self.take(length, &mut message.body).await,
            Framing::Chunked => self.chunks(message).await?,
            Framing::UntilClose => {
                while self.more().await > 0 {}
                message.body = std::mem::take(&mut self.unread);
                End::Whole
            }
        };
        Ok(())
    }

    async fn chunks(&mut self, message: &mut Message) -> Result<End, Fault> {
        loop {
            let Some(digits) = self.line().await else {
                return Ok(End::Cut);
            };
            let length = number(&digits, 16)?;
            if length == 0 {
                let trailers = self.lines().await;
                let end = trailers.as_ref().map_or(End::Cut, |_| End::Whole);
                message.trailers = trailers.unwrap_or_default();
                return Ok(end);
            }
            if self.take(length, &mut message.body).await == End::Cut {
                return Ok(End::Cut);
            }
            match self.line().await.as_deref() {
                Some("") => {}
                Some(line) => return Err(format!("{line:?} after a chunk")),
                None => return Ok(End::Cut),
            }
        }
    }

    async fn take(&mut self, length: usize, body: &mut Vec<u8>) -> End {
        while self.unread.len() < length {
            if self.more().await == 0 {
                body.append(&mut self.unread);
                return End::Cut;
            }
        }
        body.extend(self.unread.drain(..length));
        End::Whole
    }

    /// Reads lines up to an empty one; `None` if the stream ends before it.
    async fn lines(&mut self) -> Option<String> {
        let mut lines = Vec::new();
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                return Some(lines.join("\r\n"));
            }
            lines.push(line);
        }
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = find(&self.unread, b"\r\n") {
                let bytes: Vec<u8> = self.unread.drain(..end + 2).collect();
                return Some(text(&bytes[..end]));
            }
            if self.more().await == 0 {
                return None;
            }
        }
    }

    /// Reads more bytes and returns their number; 0 at the end or after an error.
    async fn more(&mut self) -> usize {
        let read = self.stream.read_buf(&mut self.unread);
        soon("bytes or an end", read).await.unwrap_or(0)
    }
}

/// A request as the origin received it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Number of its connection, counted from 0.
    pub(crate) connection: usize,
    pub(crate) message: Message,
}

/// An origin that reads strictly and answers once a request is complete.
pub(crate) struct StrictOrigin {
    server: Server,
    desk: Arc<Desk>,
}

/// State that all connections of an origin share.
struct Desk {
    answer: Box<dyn Fn(&Message) -> Bytes + Send + Sync>,
    seen: Mutex<Vec<Seen>>,
    faults: Mutex<Vec<Fault>>,
    /// Number of connections ever opened, and number open now.
    connections: watch::Sender<(usize, usize)>,
}

impl StrictOrigin {
    /// Starts an origin that serves `answer` over plain TCP, or over TLS with an acceptor.
    pub(crate) async fn start(
        tls: Option<TlsAcceptor>,
        answer: impl Fn(&Message) -> Bytes + Send + Sync + 'static,
    ) -> Self {
        let desk = Arc::new(Desk {
            answer: Box::new(answer),
            seen: Mutex::default(),
            faults: Mutex::default(),
            connections: watch::Sender::new((0, 0)),
        });
        let shared = Arc::clone(&desk);
        let server = Server::start(move |stream| {
            let place = shared.open_connection();
            connection(stream, tls.clone(), Arc::clone(&shared), place)
        });
        Self {
            server: server.await,
            desk,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns all requests, truncated ones included, except those for robots.txt.
    pub(crate) fn pages(&self) -> Vec<Seen> {
        let mut seen = self.desk.seen.lock().unwrap().clone();
        seen.retain(|seen| seen.message.asked() != "GET /robots.txt");
        seen
    }

    /// Returns the faults in the requests so far.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        self.desk.faults.lock().unwrap().clone()
    }

    /// Returns how many connections were ever opened.
    pub(crate) fn connections(&self) -> usize {
        self.desk.connections.borrow().0
    }

    /// Waits until the proxy has no connection to this origin.
    pub(crate) async fn left_alone(&self) {
        let mut connections = self.desk.connections.subscribe();
        let closed = connections.wait_for(|(_, open)| *open == 0);
        drop(soon("end of the connections", closed).await.unwrap());
    }
}

/// Serves the connection with the number `place`.
async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, desk: Arc<Desk>, place: usize) {
    match tls {
        None => desk.serve(Reader::new(stream), place).await,
        Some(acceptor) => {
            // A failed handshake counts as a connection without a request.
            if let Ok(stream) = acceptor.accept(stream).await {
                desk.serve(Reader::new(stream), place).await;
            }
        }
    }
    desk.connections.send_modify(|(_, open)| *open -= 1);
}

impl Desk {
    /// Counts a new connection, and returns its number.
    fn open_connection(&self) -> usize {
        self.connections.send_modify(|(opened, open)| {
            *opened += 1;
            *open += 1;
        });
        self.connections.borrow().0 - 1
    }

    async fn serve<S>(&self, mut reader: Reader<S>, connection: usize)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        loop {
            match self.request(&mut reader, connection).await {
                Ok(Some(message)) if message.end == End::Whole => {
                    let answer = (self.answer)(&message);
                    // The proxy may hang up on an invalid response.
                    if reader.stream.write_all(&answer.bytes).await.is_err() {
                        return;
                    }
                    if answer.after == After::Close {
                        let _ = reader.stream.shutdown().await;
                    }
                }
                Ok(_) => return,
                Err(fault) => return self.faults.lock().unwrap().push(fault),
            }
        }
    }

    /// Reads the next request, and logs it as soon as its head has come.
    async fn request<S>(
        &self,
        reader: &mut Reader<S>,
        connection: usize,
    ) -> Result<Option<Message>, Fault>
    where
        S: AsyncRead + Unpin,
    {
        let Some(mut message) = reader.head().await? else {
            return Ok(None);
        };
        let place = {
            let mut seen = self.seen.lock().unwrap();
            seen.push(Seen {
                connection,
                message: message.clone(),
            });
            seen.len() - 1
        };
        reader.rest(&mut message, None).await?;
        self.seen.lock().unwrap()[place].message = message.clone();
        Ok(Some(message))
    }
}
