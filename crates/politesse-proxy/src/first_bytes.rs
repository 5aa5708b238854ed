//! First bytes of a connection inside a CONNECT: checks that they begin a TLS handshake
//! or an HTTP/1 request.
//!
//! hyper parses a head only after its blank line has arrived, and rustls waits for a
//! complete TLS record. Without this check, an SSH banner would hold its connection until
//! `proxy.header_timeout`. Does not know how the protocols are parsed.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

use thiserror::Error;

/// Error for a connection that does not begin with the expected protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ForeignProtocol {
    /// The first byte is that of TLS, but no ClientHello follows.
    #[error("the bytes begin like TLS, but with no ClientHello")]
    Tls,
    /// The bytes do not begin an HTTP/1 request.
    #[error("the bytes begin neither TLS nor an HTTP/1 request")]
    Http,
}

impl From<ForeignProtocol> for io::Error {
    fn from(foreign: ForeignProtocol) -> Self {
        Self::new(io::ErrorKind::InvalidData, foreign)
    }
}

/// Content type of a TLS handshake record (RFC 8446, section 5.1).
pub const TLS_HANDSHAKE: u8 = 0x16;

/// Length limit for a method. The longest registered one is `UPDATEREDIRECTREF`. Without
/// a limit, bytes without a space would never be refused.
const METHOD_BYTES_MAX: usize = 32;
/// Number of bytes within which a request must be recognised. A longer request line is
/// left to hyper's limits on heads.
const START_BYTES_MAX: usize = 1024;

/// Incremental check of the first bytes of a connection.
///
/// `Debug` omits the bytes: they may be a request head that contains credentials.
pub struct FirstBytes {
    /// Protocol that the bytes must begin; [`ExpectedStart::Anything`] once they have.
    expected: ExpectedStart,
    /// Bytes so far; emptied once they are accepted.
    seen: Vec<u8>,
    /// Set if the bytes are refused.
    refusal: ProtocolRefusal,
}

/// Outcome of the check, set if the bytes were refused.
///
/// Read after the connection has ended, because hyper treats an error before the first
/// byte of a request as an ordinary end.
pub type ProtocolRefusal = Arc<OnceLock<ForeignProtocol>>;

/// Protocol whose start is expected.
#[derive(Debug, Clone, Copy)]
enum ExpectedStart {
    /// TLS ClientHello.
    ClientHello,
    /// Request of HTTP/1.
    Http1,
    /// No check, or no further check.
    Anything,
}

/// Outcome of matching the bytes so far against the start of a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StartMatch {
    /// More bytes are needed.
    Incomplete,
    /// The bytes are the start of the protocol.
    Right,
    /// The bytes cannot be the start of the protocol.
    Wrong,
}

impl fmt::Debug for FirstBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirstBytes")
            .field("expected", &self.expected)
            .field("refusal", &self.refusal)
            .finish_non_exhaustive()
    }
}

impl FirstBytes {
    /// Expects a TLS ClientHello.
    pub fn client_hello() -> Self {
        Self::expecting(ExpectedStart::ClientHello)
    }

    /// Expects an HTTP/1 request.
    pub fn http1() -> Self {
        Self::expecting(ExpectedStart::Http1)
    }

    /// Accepts any bytes. Used if the reader of the connection checks them itself.
    pub fn unchecked() -> Self {
        Self::expecting(ExpectedStart::Anything)
    }

    fn expecting(expected: ExpectedStart) -> Self {
        Self {
            expected,
            seen: Vec::new(),
            refusal: ProtocolRefusal::default(),
        }
    }

    /// Returns the cell that is set if the bytes are refused.
    pub fn refusal(&self) -> ProtocolRefusal {
        Arc::clone(&self.refusal)
    }

    /// Checks the next bytes.
    ///
    /// # Errors
    ///
    /// [`ForeignProtocol`] as soon as the bytes cannot become the expected protocol.
    pub fn check(&mut self, bytes: &[u8]) -> Result<(), ForeignProtocol> {
        let (start, foreign): (fn(&[u8]) -> StartMatch, _) = match self.expected {
            ExpectedStart::ClientHello => (client_hello, ForeignProtocol::Tls),
            ExpectedStart::Http1 => (http1_request, ForeignProtocol::Http),
            ExpectedStart::Anything => return Ok(()),
        };
        // The start is matched again with each part. The size limit keeps this cheap even
        // for a client that sends single bytes.
        let room = START_BYTES_MAX - self.seen.len();
        self.seen.extend(bytes.iter().take(room));
        match start(&self.seen) {
            StartMatch::Incomplete if self.seen.len() < START_BYTES_MAX => Ok(()),
            StartMatch::Incomplete | StartMatch::Right => {
                self.expected = ExpectedStart::Anything;
                self.seen = Vec::new();
                Ok(())
            }
            StartMatch::Wrong => Err(*self.refusal.get_or_init(|| foreign)),
        }
    }
}

/// Matches the start of a TLS record that holds a ClientHello: content type, version,
/// length, and handshake message type (RFC 8446, sections 4 and 5.1).
fn client_hello(bytes: &[u8]) -> StartMatch {
    let is_right = |(at, byte): (usize, &u8)| match at {
        0 => *byte == TLS_HANDSHAKE,
        1 => *byte == 3,
        // SSL 3.0 to TLS 1.3.
        2 => *byte <= 4,
        // A TLS record holds 2^14 bytes at most.
        3 => *byte <= 0x40,
        5 => *byte == 1,
        _ => true,
    };
    if !bytes.iter().enumerate().all(is_right) {
        StartMatch::Wrong
    } else if bytes.len() <= 5 {
        StartMatch::Incomplete
    } else {
        StartMatch::Right
    }
}

/// Matches the start of a request: a method, a space, and a path, or a line that ends
/// with a version (RFC 9112, section 3). Other errors are left to hyper, which answers
/// them.
fn http1_request(bytes: &[u8]) -> StartMatch {
    let line = after_empty_line(bytes);
    let method_length = line.iter().position(|byte| !is_token(*byte));
    let (method, rest) = line.split_at(method_length.unwrap_or(line.len()));
    if METHOD_BYTES_MAX < method.len() {
        return StartMatch::Wrong;
    }
    match rest {
        [] => StartMatch::Incomplete,
        // PRI begins the HTTP/2 preface and is never a method (RFC 9113, section 3.4).
        // HTTP/2 is supported only over TLS.
        [b' ', ..] if method.is_empty() || method == b"PRI" => StartMatch::Wrong,
        [b' ', b'/', ..] => StartMatch::Right,
        [b' ', rest @ ..] => match rest.iter().position(|byte| *byte == b'\n') {
            None => StartMatch::Incomplete,
            Some(end) if ends_with_version(&rest[..end]) => StartMatch::Right,
            Some(_) => StartMatch::Wrong,
        },
        [_, ..] => StartMatch::Wrong,
    }
}

/// Skips the empty line that a server ignores before a request (RFC 9112, section 2.2).
fn after_empty_line(bytes: &[u8]) -> &[u8] {
    match bytes {
        [b'\r', b'\n', rest @ ..] | [b'\n', rest @ ..] => rest,
        [b'\r'] => &[],
        _ => bytes,
    }
}

/// Reports whether the last word of a line is an HTTP version.
fn ends_with_version(line: &[u8]) -> bool {
    let mut words = line.trim_ascii_end().rsplit(|byte| *byte == b' ');
    words.next().is_some_and(|last| last.starts_with(b"HTTP/"))
}

/// Reports whether a byte is allowed in a method (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns after how many bytes, fed one at a time, `first` refuses them.
    fn refused_after(mut first: FirstBytes, bytes: &[u8]) -> Option<usize> {
        let at = bytes.iter().position(|byte| first.check(&[*byte]).is_err());
        at.map(|at| at + 1)
    }

    // Ours.
    #[test]
    fn debug_output_does_not_show_client_bytes() {
        let mut first = FirstBytes::http1();
        first.check(b"sssss").unwrap();
        let shown = format!("{first:?}");
        assert!(!shown.contains("115, 115"), "{shown}");
        assert!(shown.contains("Http1"), "{shown}");
    }

    // RFC 8446, section 5.1.
    #[test]
    fn a_client_hello_is_refused_at_the_first_wrong_byte() {
        assert_eq!(FirstBytes::client_hello().refusal().get(), None);
        for (bytes, refused) in [
            (&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"[..], None),
            (b"\x16\x03\x03\x40\x00\x01", None),
            (b"\x16\x03", None),
            (b"\x16abc", Some(2)),
            (b"\x16\x03\x09", Some(3)),
            (b"\x16\x03\x01\xff", Some(4)),
            (b"\x16\x03\x01\x02\x00\x02", Some(6)),
        ] {
            let whole = FirstBytes::client_hello().check(bytes);
            assert_eq!(whole.is_err(), refused.is_some(), "{bytes:x?}");
            let first = FirstBytes::client_hello();
            assert_eq!(refused_after(first, bytes), refused, "{bytes:x?}");
        }
    }

    // RFC 9112, sections 2.2 and 3; RFC 9113, section 3.4.
    #[test]
    fn a_request_is_refused_at_the_first_wrong_byte() {
        for (bytes, refused) in [
            (&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..], None),
            (b"\r\nGET /", None),
            (b"\nM-SEARCH * HTTP/1.1\r\n\r\n", None),
            (b"GET http://a.test/ HTTP/1.0\n", None),
            (b"GET a b HTTP/1.1\r\n", None),
            (b"GET /a\r\n", None),
            (b"BREW", None),
            (b"SSH-2.0-OpenSSH_9.2\r\n", Some(20)),
            (b"EHLO a.test\r\n", Some(13)),
            (b"QUIT\r\n", Some(5)),
            (b"OPTIONS rtsp://a.test RTSP/1.0\r\n", Some(32)),
            (b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n", Some(36)),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Some(4)),
            (b"*1\r\n$4\r\nPING\r\n", Some(3)),
            (b"\x05\x01\x00", Some(1)),
            (b"\x80\x2e\x01", Some(1)),
            (b"\r\n\r\n", Some(3)),
            (b"\rGET /", Some(2)),
            (b" GET /", Some(1)),
            (&[b'A'; 40], Some(33)),
        ] {
            let shown = bytes.escape_ascii();
            let whole = FirstBytes::http1().check(bytes);
            assert_eq!(whole.is_err(), refused.is_some(), "{shown}");
            assert_eq!(
                refused_after(FirstBytes::http1(), bytes),
                refused,
                "{shown}"
            );
        }
    }

    // Ours: a long request line is left to hyper's limits.
    #[test]
    fn a_line_longer_than_the_checked_bytes_is_accepted() {
        let long = [b"GET http://a.test/", &[b'a'; 4096][..], b"\r\n"].concat();
        assert_eq!(refused_after(FirstBytes::http1(), &long), None);
        assert_eq!(FirstBytes::http1().check(&long), Ok(()));
    }
}
