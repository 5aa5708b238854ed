//! Answers to connections beyond a limit: the client gets a 503 with `Retry-After`
//! (RFC 9110, sections 10.2.3 and 15.6.4) rather than a silent close.
//!
//! `listener` builds the answer, and passes the connection to [`answer_and_close`] while
//! fewer than [`ANSWERED_MAX`] connections are in it, and otherwise to [`answer_now`],
//! which never waits. A connection that is answered here counts against no other limit,
//! so it is read only briefly, and only as far as its client needs in order to see the
//! answer. Does not know which limit was reached, nor what the answer says.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Maximum number of connections that are in [`answer_and_close`] at one time. As many
/// descriptors are reserved for them. A further connection gets [`answer_now`].
pub const ANSWERED_MAX: usize = 64;

/// Longest wait for the whole head of a request. The head is read first because some
/// clients treat an answer that precedes their request as an error.
const HEAD_WAIT: Duration = Duration::from_secs(1);
/// Longest wait for the client to close after the answer. Until then its bytes are read
/// and discarded: closing a socket that holds unread bytes resets the connection, and the
/// client may then lose the answer.
const END_WAIT: Duration = Duration::from_secs(1);
/// Bytes of a head that are read before the answer. A longer head is answered without
/// its end.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Bytes that are read and discarded after the answer.
const REST_BYTES_MAX: u64 = 256 * 1024;

/// Waits for a request over `stream`, writes `answer`, and closes the connection in a way
/// that lets the client read the answer. `answer` is a complete HTTP/1 response. A client
/// that sends no request gets no answer.
///
/// Takes at most `HEAD_WAIT` and `END_WAIT` together.
pub async fn answer_and_close(mut stream: TcpStream, answer: String) {
    let has_request = timeout(HEAD_WAIT, read_head(&mut stream)).await;
    if !matches!(has_request, Ok(Ok(true))) {
        return;
    }
    // Needs no timeout, even if the client does not read: nothing was written to this
    // socket before, so the answer fits into its send buffer.
    if stream.write_all(answer.as_bytes()).await.is_err() || stream.shutdown().await.is_err() {
        return;
    }
    let mut rest = stream.take(REST_BYTES_MAX);
    let mut sink = tokio::io::sink();
    let _ = timeout(END_WAIT, tokio::io::copy(&mut rest, &mut sink)).await;
}

/// Writes `answer`, a complete HTTP/1 response, if the beginning of a request has already
/// arrived. Never waits. The caller closes `stream`, after which the client may lose the
/// answer if more of its bytes arrive.
pub fn answer_now(stream: &TcpStream, answer: &str) {
    let mut head = [0; HEAD_BYTES_MAX];
    if let Ok(bytes) = stream.try_read(&mut head)
        && head[..bytes]
            .first()
            .is_some_and(|&byte| may_begin_method(byte))
    {
        let _ = stream.try_write(answer.as_bytes());
    }
}

/// Reads to the end of a request head, of [`HEAD_BYTES_MAX`], or of the stream. Returns
/// whether anything came that may be HTTP/1. Only the first byte is examined, because the
/// answer does not depend on the request.
async fn read_head(stream: &mut TcpStream) -> io::Result<bool> {
    let mut head = Vec::new();
    while head.len() < HEAD_BYTES_MAX && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            break;
        }
        if !may_begin_method(head[0]) {
            return Ok(false);
        }
    }
    Ok(!head.is_empty())
}

/// Reports whether the first byte of a connection may begin a method, and so a request of
/// HTTP/1. The first byte of a TLS handshake does not: a TLS client could not read the
/// answer.
fn may_begin_method(first_byte: u8) -> bool {
    first_byte.is_ascii_alphabetic()
}
