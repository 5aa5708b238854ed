//! Answers to connections that get no place: a 503 with `Retry-After` rather than a
//! silent close.
//!
//! RFC 9110, sections 10.2.3 and 15.6.4. A connection that is answered here counts
//! against no other limit, so it is read only briefly, and only as far as its client
//! needs in order to see the answer. Does not know which limit was reached.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Maximum number of connections that are answered at one time. As many descriptors are
/// reserved for them. A further connection still gets the answer if its request can be
/// read and the answer written without waiting.
pub const ANSWERED_MAX: usize = 64;

/// Longest wait for the head of a request. The head is read first because some clients
/// treat an answer that precedes their request as an error.
const HEAD_WAIT: Duration = Duration::from_secs(1);
/// Longest wait for the client to close after the answer. Closing a socket that holds
/// unread bytes resets the connection, and the client may then lose the answer.
const END_WAIT: Duration = Duration::from_secs(1);
/// Bytes of a head that are read before the answer.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Bytes that are read after the answer.
const REST_BYTES_MAX: u64 = 256 * 1024;

/// Answers the request that arrives over `stream`, and closes the connection in a way
/// that lets the client read the answer. A client that sends no request gets no answer.
pub async fn answer_and_close(mut stream: TcpStream, answer: String) {
    let is_asked = timeout(HEAD_WAIT, read_head(&mut stream)).await;
    if !matches!(is_asked, Ok(Ok(true))) {
        return;
    }
    // The answer fits into the send buffer, because nothing was written to this socket
    // before.
    if stream.write_all(answer.as_bytes()).await.is_err() || stream.shutdown().await.is_err() {
        return;
    }
    let mut rest = stream.take(REST_BYTES_MAX);
    let mut sink = tokio::io::sink();
    let _ = timeout(END_WAIT, tokio::io::copy(&mut rest, &mut sink)).await;
}

/// Answers the request if it can be read, and the answer written, without waiting. The
/// caller closes `stream`.
pub fn answer_now(stream: &TcpStream, answer: &str) {
    let mut head = [0; HEAD_BYTES_MAX];
    if let Ok(bytes) = stream.try_read(&mut head)
        && head[..bytes].first().is_some_and(u8::is_ascii_alphabetic)
    {
        let _ = stream.try_write(answer.as_bytes());
    }
}

/// Reads to the end of a request head. Returns whether the bytes are a head of HTTP/1, or
/// the beginning of one.
async fn read_head(stream: &mut TcpStream) -> io::Result<bool> {
    let mut head = Vec::new();
    while head.len() < HEAD_BYTES_MAX && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            break;
        }
        // A TLS handshake does not begin with a letter, and a TLS client could not read
        // the answer.
        if !head[0].is_ascii_alphabetic() {
            return Ok(false);
        }
    }
    Ok(!head.is_empty())
}
