//! The body of a robots.txt as it streams in: no more of it than is wanted,
//! whatever it is coded as.
//!
//! RFC 9309, section 2.5. We ask for `identity`; what is coded all the same is
//! decoded, since the rules in it are as good as others (RFC 9110, section
//! 8.4). What is not understood to its end is no file: a part of the rules
//! could allow what the whole disallows.

use std::ops::ControlFlow;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Body;
use http_body_util::BodyExt;
use tokio::time::timeout;

use crate::upstream::body::{BodyError, ResponseBody};
use politesse_directives::Decoding;
use politesse_robots::whole_lines;

/// How much of a coded body is read, unless more of a file is wanted.
const CODED_BYTES_MAX: usize = 512 * 1024;

/// A body nobody reads is read to its end all the same, if it is as short as
/// this, so that its connection can be used for the page.
const UNREAD_BYTES_MAX: u64 = 64 * 1024;
const UNREAD_TIME_MAX: Duration = Duration::from_secs(1);

/// Why a body cannot be read.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// It broke off.
    Broken(BodyError),
    /// Its content coding is not known, or is not what it should be.
    Coding,
}

/// The body up to `max` bytes, cut at a line, and whether that is all.
/// Reading stops there: an endless file ends with its connection.
pub(super) async fn read(
    body: ResponseBody,
    fields: &HeaderMap,
    max: usize,
) -> Result<(Bytes, bool), Unreadable> {
    // One byte more tells that there is more.
    let decoding = Decoding::of(fields, max.saturating_add(1)).map_err(|_| Unreadable::Coding)?;
    let mut bytes = match decoding {
        None => plain(body, max).await.map_err(Unreadable::Broken)?,
        Some(decoding) => decoded(body, decoding, max).await?,
    };
    let whole = bytes.len() <= max;
    if !whole {
        let kept = whole_lines(&bytes, max).len();
        bytes.truncate(kept);
    }
    Ok((bytes.freeze(), whole))
}

/// The bytes as they come, all or more than `max`.
async fn plain(mut body: ResponseBody, max: usize) -> Result<BytesMut, BodyError> {
    let mut bytes = BytesMut::new();
    while bytes.len() <= max
        && let Some(frame) = body.frame().await
    {
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes)
}

/// What the bytes decode to, all or more than `max`.
async fn decoded(
    mut body: ResponseBody,
    mut decoding: Decoding,
    max: usize,
) -> Result<BytesMut, Unreadable> {
    let (mut bytes, mut left) = (BytesMut::new(), max.max(CODED_BYTES_MAX));
    while bytes.len() <= max {
        let Some(frame) = body.frame().await else {
            decoding.finish().map_err(|_| Unreadable::Coding)?;
            return Ok(bytes);
        };
        let Ok(data) = frame.map_err(Unreadable::Broken)?.into_data() else {
            continue;
        };
        let within = data.get(..left).unwrap_or(&data);
        let pushed = decoding.push(within, &mut |piece| {
            bytes.extend_from_slice(piece);
            if max < bytes.len() {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        pushed.map_err(|_| Unreadable::Coding)?;
        left -= within.len();
        if within.len() < data.len() && bytes.len() <= max {
            return Err(Unreadable::Coding);
        }
    }
    Ok(bytes)
}

/// Reads a short body to its end, for the sake of its connection only.
pub(super) async fn skip(mut body: ResponseBody) {
    let short = body.size_hint().upper();
    if short.is_none_or(|bytes| UNREAD_BYTES_MAX < bytes) {
        return;
    }
    let end = async { while let Some(Ok(_)) = body.frame().await {} };
    // Whether it ended is the connection's concern.
    timeout(UNREAD_TIME_MAX, end).await.unwrap_or_default();
}
