//! A minimal HTTP/2 client that writes frames by hand (RFC 9113, section 4), to send
//! fields that no HTTP/2 library would write.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::kit::client::Duplex;
use super::kit::soon;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// Sends a request with these fields and no body, and returns the body of the answer;
/// `None` if the stream is reset or the connection ends.
pub(crate) async fn ask(mut stream: impl Duplex, fields: &[(String, String)]) -> Option<Vec<u8>> {
    send(&mut stream, fields).await;
    let mut body = Vec::new();
    while let Some((kind, flags, payload)) = soon("a frame", next(&mut stream)).await {
        match kind {
            RST_STREAM | GOAWAY => return None,
            DATA => body.extend(payload),
            _ => {}
        }
        if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
            return Some(body);
        }
    }
    None
}

/// Opens the HTTP/2 connection and sends a request with these fields and no body.
pub(crate) async fn send(stream: &mut impl Duplex, fields: &[(String, String)]) {
    let mut bytes = PREFACE.to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &[]));
    let fields = fields.iter();
    let block = fields.flat_map(|(name, value)| literal(name, value));
    let block: Vec<u8> = block.collect();
    bytes.extend(frame(HEADERS, END_STREAM | END_HEADERS, 1, &block));
    stream.write_all(&bytes).await.unwrap();
    stream.flush().await.unwrap();
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Encodes a field without indexing, with a literal name (RFC 7541, section 6.2.2).
/// U+0000 to U+00FF stand for bytes.
pub(crate) fn literal(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        let letters = text.chars().map(|letter| u8::try_from(letter).unwrap());
        let letters: Vec<u8> = letters.collect();
        let length = u8::try_from(letters.len()).unwrap();
        assert!(length < 127, "needs more than one byte of length");
        bytes.push(length);
        bytes.extend(letters);
    }
    bytes
}

/// Reads the kind, flags and payload of the next frame.
async fn next(stream: &mut impl Duplex) -> Option<(u8, u8, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload).await.ok()?;
    Some((head[3], head[4], payload))
}
