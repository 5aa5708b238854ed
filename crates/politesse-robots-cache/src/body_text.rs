//! Text of a robots.txt whose body is not what the response declares.
//!
//! Some servers send a compressed file without saying so, or compress it twice. Read as
//! text, such a body would be an empty file and open the whole site. Does not know how a
//! body was received: saved files are read in the same way.

use std::ops::ControlFlow;

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderValue};

use politesse_decision::access::Cause;
use politesse_directives::BodyDecoder;
use politesse_robots::RobotsTxt;

/// First bytes of every gzip member (RFC 1952, section 2.3.1). No text starts with them.
const GZIP_BEGINS: [u8; 2] = [0x1F, 0x8B];

/// Returns the text of a body: the body itself, or its content after removing one layer
/// of gzip. A body longer than `max` bytes may be truncated. At most `max` + 1 bytes of
/// the content are returned; the extra byte shows that there is more.
///
/// # Errors
///
/// [`Cause::Coding`] if gzip cannot be decoded to its end or to `max` bytes, and
/// [`Cause::NotText`] if the result is not text.
pub fn decoded_text(body: Bytes, max: usize) -> Result<Bytes, Cause> {
    let text = if body.starts_with(&GZIP_BEGINS) {
        without_gzip(&body, max.saturating_add(1))?
    } else {
        body
    };
    RobotsTxt::is_text(&text)
        .then_some(text)
        .ok_or(Cause::NotText)
}

fn without_gzip(body: &[u8], limit: usize) -> Result<Bytes, Cause> {
    let gzip = HeaderMap::from_iter([(CONTENT_ENCODING, HeaderValue::from_static("gzip"))]);
    let known = BodyDecoder::for_fields(&gzip, limit).ok().flatten();
    let mut decoder = known.ok_or(Cause::Coding)?;
    let mut text = Vec::new();
    let outcome = decoder.push(body, &mut |piece| {
        text.extend_from_slice(&piece[..piece.len().min(limit - text.len())]);
        if text.len() < limit {
            return ControlFlow::Continue(());
        }
        ControlFlow::Break(())
    });
    // Content that was cut at the limit has no end to check.
    if text.len() < limit {
        outcome
            .and_then(|()| decoder.finish())
            .map_err(|_| Cause::Coding)?;
    }
    Ok(text.into())
}
