//! Answers to connections for which there is no place: a 503 with `Retry-After`
//! in place of a close that says nothing.
//!
//! RFC 9110, sections 10.2.3 and 15.6.4. A connection that is answered here has
//! no other place, so it is read only as far as its client needs that to see the
//! answer, and for a short time. Does not know which limit was reached.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Connections that are answered at one time. The descriptors of as many are
/// kept for them. Any further one gets the same answer if its client takes it at
/// once.
pub const ANSWERED_MAX: usize = 64;

/// Longest wait for the head of a request: some clients take an answer that comes
/// before it for an error.
const HEAD_WAIT: Duration = Duration::from_secs(1);
/// Longest wait for the client's end after the answer. A close with anything
/// unread resets the connection, and the client may lose the answer.
const END_WAIT: Duration = Duration::from_secs(1);
/// Bytes of a head that are read before the answer.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Bytes that are read after the answer.
const REST_BYTES_MAX: u64 = 256 * 1024;

/// Answers the request that comes over `stream`, and closes the connection so
/// that the client sees the answer. A client that sends nothing gets none.
pub async fn answer_and_close(mut stream: TcpStream, answer: String) {
    let is_asked = timeout(HEAD_WAIT, read_head(&mut stream)).await;
    if !matches!(is_asked, Ok(Ok(true))) {
        return;
    }
    // All of it finds room in the buffer of a socket that nothing was written to.
    if stream.write_all(answer.as_bytes()).await.is_err() || stream.shutdown().await.is_err() {
        return;
    }
    let mut rest = stream.take(REST_BYTES_MAX);
    let mut sink = tokio::io::sink();
    let _ = timeout(END_WAIT, tokio::io::copy(&mut rest, &mut sink)).await;
}

/// Answers over `stream` what can be answered without waiting, and closes it.
pub fn answer_now(stream: &TcpStream, answer: &str) {
    let mut head = [0; HEAD_BYTES_MAX];
    if let Ok(bytes) = stream.try_read(&mut head)
        && head[..bytes].first().is_some_and(u8::is_ascii_alphabetic)
    {
        let _ = stream.try_write(answer.as_bytes());
    }
}

/// Reads to the end of a head. Returns whether it is one of HTTP/1, or its
/// beginning.
async fn read_head(stream: &mut TcpStream) -> io::Result<bool> {
    let mut head = Vec::new();
    while head.len() < HEAD_BYTES_MAX && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            break;
        }
        // A TLS handshake begins with no letter, and its client cannot read the
        // answer.
        if !head[0].is_ascii_alphabetic() {
            return Ok(false);
        }
    }
    Ok(!head.is_empty())
}
