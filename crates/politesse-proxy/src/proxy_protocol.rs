//! PROXY protocol: the header in which a load balancer states the address of the client
//! whose connection it forwards.
//!
//! Versions 1 and 2 of HAProxy's specification (proxy-protocol.txt). The crate
//! `proxy-header` parses the header. This module finds its end, because the bytes that
//! follow, TLS or a request, must stay in the socket. Does not know which connections
//! have a header.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proxy_header::{ParseConfig, Protocol, ProxyHeader};
use thiserror::Error;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// First bytes of a version 1 header, a line of text.
const V1_START: &[u8] = b"PROXY ";
/// Length of the longest version 1 line, with its line end.
const V1_BYTES_MAX: usize = 107;
/// First bytes of a version 2 header.
const V2_START: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Length of the fixed part of a version 2 header, up to and including its length field.
const V2_FIXED_BYTES: usize = 16;
/// Maximum length of the rest of a version 2 header. The addresses take 36 bytes, or 216
/// for Unix sockets; the largest extensions are the name from a certificate and a unique
/// identifier.
const V2_REST_BYTES_MAX: usize = 536;
/// Length of the longest header.
const HEADER_BYTES_MAX: usize = V2_FIXED_BYTES + V2_REST_BYTES_MAX;

/// Reason why the client of a connection is unknown: the header is absent or unreadable.
#[derive(Debug, Error)]
pub enum ProxyHeaderError {
    /// The first bytes do not begin a PROXY header.
    #[error("the connection does not begin with a PROXY header")]
    Absent,
    /// The connection ended before its header.
    #[error("the connection ended before its PROXY header")]
    Ended,
    /// The header did not arrive in time.
    #[error("no PROXY header within proxy.header_timeout")]
    Timeout,
    /// The header exceeds the length limit.
    #[error(
        "the PROXY header is longer than {HEADER_BYTES_MAX} bytes, or its line than {V1_BYTES_MAX}"
    )]
    TooLong,
    /// The header is valid in neither version.
    #[error("the PROXY header is malformed")]
    Malformed,
    /// The header describes a protocol other than TCP.
    #[error("the PROXY header is not about a TCP connection")]
    NotTcp,
    /// Reading from the connection failed.
    #[error("the connection failed before its PROXY header had come")]
    Failed(#[from] io::Error),
}

/// Reads the header at the start of `stream`, and leaves the bytes after it in the
/// socket.
///
/// Returns the address of the client, or `None` if the header states none: the connection
/// is the balancer's own (a health check), or the client has no IP address.
///
/// # Errors
///
/// [`ProxyHeaderError`], except `Timeout`: the time limit is up to the caller.
pub async fn read_client(stream: &mut TcpStream) -> Result<Option<IpAddr>, ProxyHeaderError> {
    let mut header = Vec::new();
    let mut room = [0; HEADER_BYTES_MAX];
    loop {
        let peeked = stream.peek(&mut room).await?;
        if peeked == 0 {
            return Err(ProxyHeaderError::Ended);
        }
        let known = header.len();
        header.extend_from_slice(&room[..peeked]);
        let length = header_length(&header)?;
        header.truncate(length.unwrap_or(usize::MAX));
        // The bytes were peeked, so this read does not wait.
        stream.read_exact(&mut room[..header.len() - known]).await?;
        if length == Some(header.len()) {
            return client_in(&header);
        }
    }
}

/// Returns the length of the header at the start of `bytes`, or `None` while it is still
/// unknown. In that case all of `bytes` belong to the header.
fn header_length(bytes: &[u8]) -> Result<Option<usize>, ProxyHeaderError> {
    let begins = |start: &[u8]| {
        let seen = bytes.len().min(start.len());
        bytes[..seen] == start[..seen]
    };
    if begins(V1_START) {
        let line = &bytes[..bytes.len().min(V1_BYTES_MAX)];
        return match line.iter().position(|byte| *byte == b'\n') {
            None if line.len() == V1_BYTES_MAX => Err(ProxyHeaderError::TooLong),
            end => Ok(end.map(|end| end + 1)),
        };
    }
    if !begins(V2_START) {
        return Err(ProxyHeaderError::Absent);
    }
    let Some([high, low]) = bytes.get(V2_FIXED_BYTES - 2..V2_FIXED_BYTES) else {
        return Ok(None);
    };
    match usize::from(u16::from_be_bytes([*high, *low])) {
        rest if V2_REST_BYTES_MAX < rest => Err(ProxyHeaderError::TooLong),
        rest => Ok(Some(V2_FIXED_BYTES + rest)),
    }
}

/// Parses a complete header and returns the client that it names.
fn client_in(header: &[u8]) -> Result<Option<IpAddr>, ProxyHeaderError> {
    let parsed = ProxyHeader::parse(header, ParseConfig::default());
    let (parsed, length) = parsed.map_err(|_| ProxyHeaderError::Malformed)?;
    if length != header.len() {
        return Err(ProxyHeaderError::Malformed);
    }
    match parsed.proxied_address() {
        Some(addresses) if addresses.protocol == Protocol::Datagram => {
            Err(ProxyHeaderError::NotTcp)
        }
        addresses => Ok(addresses.map(|addresses| addresses.source.ip().to_canonical())),
    }
}

/// Connections whose header has not arrived yet, in order of arrival.
#[derive(Debug, Default)]
pub struct AwaitedHeaders(Mutex<AwaitedState>);

/// State of [`AwaitedHeaders`].
#[derive(Debug, Default)]
struct AwaitedState {
    /// Number of the next connection to arrive.
    next_number: u64,
    /// Tokens that displace the connections, by number and so in order of arrival.
    displaced_by_number: BTreeMap<u64, CancellationToken>,
}

/// Place of a connection among [`AwaitedHeaders`], freed when dropped.
#[derive(Debug)]
pub struct AwaitedHeader {
    headers: Arc<AwaitedHeaders>,
    number: u64,
    /// Cancelled when another connection takes this place.
    pub displaced: CancellationToken,
}

impl AwaitedHeaders {
    /// Adds a connection. If `most` are waiting already, the oldest loses its place: a
    /// balancer sends the header first, so the longest wait is the least likely to
    /// succeed.
    pub fn join(self: &Arc<Self>, most: usize) -> AwaitedHeader {
        let displaced = CancellationToken::new();
        let mut state = self.lock();
        while most <= state.displaced_by_number.len() && state.displace_oldest() {}
        let number = state.next_number;
        state.next_number += 1;
        state.displaced_by_number.insert(number, displaced.clone());
        drop(state);
        AwaitedHeader {
            headers: Arc::clone(self),
            number,
            displaced,
        }
    }

    /// Displaces the oldest waiting connection to free its descriptor. Returns `false` if
    /// none is waiting.
    pub fn displace_oldest(&self) -> bool {
        self.lock().displace_oldest()
    }

    fn lock(&self) -> MutexGuard<'_, AwaitedState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AwaitedState {
    fn displace_oldest(&mut self) -> bool {
        let oldest = self.displaced_by_number.pop_first();
        oldest.is_some_and(|(_, displaced)| {
            displaced.cancel();
            true
        })
    }
}

impl Drop for AwaitedHeader {
    fn drop(&mut self) {
        self.headers.lock().displaced_by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    /// Bytes after the header, which must stay in the socket.
    const REST: &[u8] = b"\x16\x03\x01 and more";

    /// Builds a version 2 header from the command, the family with the protocol, and the
    /// rest.
    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [V2_START, &[command, family], &length, rest].concat()
    }

    /// Builds the header of a TCP connection from 192.0.2.7, with `extra` after the
    /// addresses.
    fn tcp4(extra: &[u8]) -> Vec<u8> {
        let addresses = [192, 0, 2, 7, 192, 0, 2, 1, 0, 0, 0x0c, 0x38];
        v2(0x21, 0x11, &[&addresses, extra].concat())
    }

    fn tcp6(source: &str) -> Vec<u8> {
        let source: std::net::Ipv6Addr = source.parse().unwrap();
        v2(0x21, 0x21, &[&source.octets()[..], &[0; 20]].concat())
    }

    /// Sends `bytes` in parts of `step` bytes and reads the header. Returns the result
    /// and the number of bytes left in the socket.
    async fn sent(bytes: &[u8], step: usize) -> (Result<Option<IpAddr>, ProxyHeaderError>, usize) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        peer.set_nodelay(true).unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let bytes = bytes.to_vec();
        let sending = tokio::spawn(async move {
            for part in bytes.chunks(step) {
                if peer.write_all(part).await.is_err() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        });
        let read = read_client(&mut stream).await;
        sending.await.unwrap();
        let mut rest = Vec::new();
        // A refused connection may end with a reset.
        let _ = stream.read_to_end(&mut rest).await;
        (read, rest.len())
    }

    /// Asserts that the header names `client`, however it is split, and that the bytes
    /// after it stay in the socket.
    async fn assert_names(header: &[u8], client: Option<&str>) {
        let client = client.map(|client| client.parse().unwrap());
        for step in [1, 7, usize::MAX] {
            let (named, rest) = sent(&[header, REST].concat(), step).await;
            assert_eq!(named.unwrap(), client, "{}", header.escape_ascii());
            assert_eq!(rest, REST.len());
        }
    }

    // proxy-protocol.txt, section 2.2; RFC 4291, section 2.5.5.2.
    #[tokio::test]
    async fn version_2_names_the_client_and_later_bytes_stay_unread() {
        assert_names(&tcp4(b""), Some("192.0.2.7")).await;
        assert_names(&tcp4(b"\x05\0\x03abc\x04\0\0"), Some("192.0.2.7")).await;
        assert_names(&tcp4(&[0; V2_REST_BYTES_MAX - 12]), Some("192.0.2.7")).await;
        assert_names(&tcp6("2001:db8::7"), Some("2001:db8::7")).await;
        assert_names(&tcp6("::ffff:192.0.2.7"), Some("192.0.2.7")).await;
        assert_names(&v2(0x20, 0x00, b""), None).await;
        assert_names(&v2(0x20, 0x11, &[0; 12]), None).await;
        assert_names(&v2(0x21, 0x00, b"\x04\0\x01a"), None).await;
        assert_names(&v2(0x21, 0x31, &[0; 216]), None).await;
    }

    // proxy-protocol.txt, section 2.1.
    #[tokio::test]
    async fn version_1_names_the_client_and_later_bytes_stay_unread() {
        let longest = format!(
            "PROXY TCP6 {0} {0} 65535 65535\r\n",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
        );
        for (line, client) in [
            (
                "PROXY TCP4 192.0.2.7 192.0.2.1 0 3128\r\n",
                Some("192.0.2.7"),
            ),
            ("PROXY TCP6 2001:db8::7 ::1 5 6\r\n", Some("2001:db8::7")),
            ("PROXY TCP6 ::ffff:192.0.2.7 ::1 5 6\r\n", Some("192.0.2.7")),
            (&longest, Some("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")),
            ("PROXY UNKNOWN\r\n", None),
            ("PROXY UNKNOWN a b c\r\n", None),
        ] {
            assert_names(line.as_bytes(), client).await;
        }
    }

    // proxy-protocol.txt, section 2; the bounds are ours.
    #[tokio::test]
    async fn malformed_headers_are_refused() {
        let absent = "does not begin with";
        let malformed = "is malformed";
        let long = [b"PROXY UNKNOWN ", &[b'a'; 200][..]].concat();
        for (bytes, error) in [
            (&b"GET / HTTP/1.1\r\n"[..], absent),
            (b"P", "ended before"),
            (b"PROXYTCP4 192.0.2.7 192.0.2.1 1 2\r\n", absent),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", absent),
            (b"\x16\x03\x01\x02\0", absent),
            (b"\r\n\r\n\0\r\nQUIT\r", absent),
            (b"", "ended before"),
            (b"PROXY TCP4 192.0.2.7", "ended before"),
            (b"PROXY TCP4 192.0.2.7 192.0.2.1 1 2\n", malformed),
            (b"PROXY TCP4 192.0.2.7 192.0.2.1 1 65536\r\n", malformed),
            (b"PROXY TCP4 2001:db8::7 ::1 1 2\r\n", malformed),
            (b"PROXY UDP4 192.0.2.7 192.0.2.1 1 2\r\n", malformed),
            (b"PROXY \n", malformed),
            (&long, "longer than"),
            (&tcp4(b"")[..20], "ended before"),
            (&tcp4(b"")[..13], "ended before"),
            (&v2(0x21, 0x11, &[0; 11]), malformed),
            (&v2(0x11, 0x11, &[0; 12]), malformed),
            (&v2(0x22, 0x11, &[0; 12]), malformed),
            (&v2(0x21, 0x41, &[0; 12]), malformed),
            (&v2(0x21, 0x12, &[0; 12]), "not about a TCP"),
            (&tcp4(&[0; V2_REST_BYTES_MAX - 11]), "longer than"),
        ] {
            for step in [1, usize::MAX] {
                let told = sent(bytes, step).await.0.unwrap_err().to_string();
                assert!(told.contains(error), "{}: {told}", bytes.escape_ascii());
            }
        }
    }

    proptest! {
        // Ours: how the bytes are split changes neither the length nor the error, no
        // length exceeds the bound, and no input causes a panic.
        #[test]
        fn the_header_length_does_not_depend_on_how_bytes_arrive(
            start in prop_oneof![Just(V1_START), Just(V2_START), Just(&b""[..])],
            rest in prop::collection::vec(prop_oneof![any::<u8>(), 0..4_u8, Just(b'\n')], 0..700),
        ) {
            let bytes = [start, &rest].concat();
            let first = (1..=bytes.len()).find_map(|end| match header_length(&bytes[..end]) {
                Ok(None) => None,
                Ok(Some(length)) => Some(Ok(length)),
                Err(error) => Some(Err(error.to_string())),
            });
            let whole = header_length(&bytes).map_err(|error| error.to_string());
            match first {
                Some(Ok(length)) => {
                    prop_assert!(length <= HEADER_BYTES_MAX);
                    prop_assert_eq!(whole, Ok(Some(length)));
                    if let Some(header) = bytes.get(..length) {
                        let _ = client_in(header);
                    }
                }
                Some(Err(error)) => prop_assert_eq!(whole, Err(error)),
                None => prop_assert!(bytes.len() < HEADER_BYTES_MAX),
            }
        }
    }

    // Ours.
    #[tokio::test]
    async fn the_oldest_connection_without_a_header_is_displaced() {
        let headers = Arc::new(AwaitedHeaders::default());
        let [first, second] = [headers.join(2), headers.join(2)];
        drop(second);
        let third = headers.join(2);
        assert!(!first.displaced.is_cancelled());
        let fourth = headers.join(2);
        first.displaced.cancelled().await;
        drop(first);
        assert!(!third.displaced.is_cancelled() && !fourth.displaced.is_cancelled());
        assert!(headers.displace_oldest());
        let waiting = timeout(Duration::ZERO, fourth.displaced.cancelled()).await;
        assert!(third.displaced.is_cancelled() && waiting.is_err());
        drop((third, fourth));
        assert!(!headers.displace_oldest());
    }
}
