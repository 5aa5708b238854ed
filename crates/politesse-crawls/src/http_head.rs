//! Heads of HTTP messages in records, and removal of the framing from a body.
//!
//! RFC 9112. Archives contain messages as they were sent, or with the transfer coding
//! removed but its field left in place. Does not know content codings.

use std::io::{self, BufRead, Read};

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Longest head that is read, in bytes.
const HEAD_BYTES_MAX: u64 = 64 * 1024;
/// Largest number of fields that are stored.
const FIELDS_MAX: usize = 256;

/// First line and fields of a message.
#[derive(Debug, Default)]
pub(crate) struct HttpHead {
    first_line: Vec<u8>,
    pub(crate) fields: HeaderMap,
}

impl HttpHead {
    /// Reads a head, up to the empty line that ends it. Malformed fields are ignored.
    pub(crate) fn read(message: &mut impl BufRead) -> io::Result<Self> {
        let mut message = Read::take(message, HEAD_BYTES_MAX);
        let mut head = Self::default();
        message.read_until(b'\n', &mut head.first_line)?;
        let mut line = Vec::new();
        while 0 < message.read_until(b'\n', &mut line)? {
            if line.trim_ascii().is_empty() {
                break;
            }
            if head.fields.len() < FIELDS_MAX {
                head.add_field(&line);
            }
            line.clear();
        }
        Ok(head)
    }

    fn add_field(&mut self, line: &[u8]) {
        let Some(colon) = memchr::memchr(b':', line) else {
            return;
        };
        let name = HeaderName::from_bytes(line[..colon].trim_ascii());
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            self.fields.append(name, value);
        }
    }

    /// Returns the status if this is the head of a response.
    pub(crate) fn status(&self) -> Option<u16> {
        status(&self.first_line)
    }

    /// Returns the first `User-Agent` field, as proxies and servers do.
    pub(crate) fn user_agent(&self) -> Option<String> {
        let value = self.fields.get(USER_AGENT)?;
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
    }

    /// Removes the framing from a body (RFC 9112, section 6.3).
    pub(crate) fn unframe(&self, body: Vec<u8>) -> UnframedBody {
        let is_chunked = self.fields.get_all(TRANSFER_ENCODING).iter().any(|value| {
            let value = value.as_bytes().to_ascii_lowercase();
            value.ends_with(b"chunked")
        });
        // Many archives contain the body without its chunks, but still with the field.
        // Then the body is used unchanged.
        if is_chunked && let Some(body) = dechunk(&body) {
            return body;
        }
        let declared = self.fields.get(CONTENT_LENGTH);
        let length = declared.and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok());
        UnframedBody {
            // A longer body had a content coding that was removed.
            is_whole: is_chunked || length.is_none_or(|length| length <= body.len() as u64),
            bytes: body,
        }
    }
}

/// Body without its framing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnframedBody {
    pub(crate) bytes: Vec<u8>,
    /// Whether the body is complete according to the framing.
    pub(crate) is_whole: bool,
}

/// Parses the status from a status line (RFC 9112, section 4).
pub(crate) fn status(line: &[u8]) -> Option<u16> {
    let mut words = line
        .split(|byte| *byte == b' ')
        .filter(|word| !word.is_empty());
    let version = words.next()?;
    let code = words.next()?.trim_ascii();
    let is_code = version.starts_with(b"HTTP/") && code.len() == 3;
    let code = is_code.then(|| str::from_utf8(code).ok()?.parse().ok())??;
    (100..=599).contains(&code).then_some(code)
}

/// Joins the chunks of a body (RFC 9112, section 7.1). `None` if it does not begin with a
/// chunk.
fn dechunk(framed: &[u8]) -> Option<UnframedBody> {
    let mut bytes = Vec::new();
    let mut rest = framed;
    let mut is_first = true;
    let mut is_whole = false;
    while let Some(chunk) = chunk_head(rest) {
        if chunk.length == 0 {
            is_whole = true;
            is_first = false;
            break;
        }
        let data = rest.get(chunk.head_bytes..)?;
        let length = usize::try_from(chunk.length).unwrap_or(usize::MAX);
        if data.len() < length {
            bytes.extend_from_slice(data);
            is_first = false;
            break;
        }
        bytes.extend_from_slice(&data[..length]);
        rest = without_line_end(&data[length..]);
        is_first = false;
    }
    (!is_first).then_some(UnframedBody { bytes, is_whole })
}

/// Line before a chunk.
struct ChunkHead {
    length: u64,
    /// Length of the line, including its end.
    head_bytes: usize,
}

fn chunk_head(bytes: &[u8]) -> Option<ChunkHead> {
    /// Longest line that can begin a chunk, with its extensions.
    const LINE_BYTES_MAX: usize = 256;
    let end = memchr::memchr(b'\n', &bytes[..bytes.len().min(LINE_BYTES_MAX)])?;
    let size = bytes[..end]
        .split(|byte| *byte == b';')
        .next()?
        .trim_ascii();
    // `from_str_radix` would also accept a sign.
    if !size.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    Some(ChunkHead {
        length: u64::from_str_radix(str::from_utf8(size).ok()?, 16).ok()?,
        head_bytes: end + 1,
    })
}

/// Removes the line end after the data of a chunk.
fn without_line_end(bytes: &[u8]) -> &[u8] {
    let rest = bytes.strip_prefix(b"\r").unwrap_or(bytes);
    rest.strip_prefix(b"\n").unwrap_or(rest)
}
