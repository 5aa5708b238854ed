//! One request for a robots.txt, and what came back.
//!
//! What the answer means, how long it holds and where it may redirect to is
//! the cache's to say.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use http_body::Body;
use http_body_util::BodyExt;
use thiserror::Error;
use tokio::time::timeout;

use super::body::{BodyError, ResponseBody};
use super::upstream::{Upstream, UpstreamError};
use crate::rules::decision::RobotsPermit;
use crate::rules::robots::access::{StatusMeaning, status_meaning};
use crate::rules::robots::whole_lines;

pub use super::upstream::Asker;

/// A body nobody reads is read to its end all the same, if it is as short as
/// this, so that its connection can be used for the page.
const UNREAD_OCTETS_MAX: u64 = 64 * 1024;
const UNREAD_TIME_MAX: Duration = Duration::from_secs(1);

/// What one request for a robots.txt brought.
#[derive(Debug, Clone)]
pub struct Hop {
    /// The status.
    pub status: u16,
    /// The fields.
    pub headers: HeaderMap,
    /// The body, cut at the last whole line within the limit; empty where the
    /// status has none to parse.
    pub body: Bytes,
    /// Whether `body` is all of it.
    pub whole: bool,
}

/// Why a request for a robots.txt brought nothing that could be used. Each
/// variant makes the origin unreachable (RFC 9309, section 2.3.1.4).
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FetchError {
    /// There was no response.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The response broke off.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The body has a content coding, though none was asked for.
    #[error("the body has a content coding")]
    Coding,
}

/// One hop on the way to a robots.txt.
///
/// A trait so that the cache can be tested with origins that fail on cue.
pub trait FetchRobots: Send + Sync + 'static {
    /// Spends a permit, on behalf of `asker`.
    fn fetch(
        &self,
        permit: RobotsPermit,
        asker: &Asker,
    ) -> impl Future<Output = Result<Hop, FetchError>> + Send;
}

/// Fetches over HTTP.
#[derive(Debug)]
pub struct HttpFetcher {
    upstream: Arc<Upstream>,
    max_bytes: usize,
}

impl HttpFetcher {
    /// A fetcher that stops reading after `max_bytes` (RFC 9309, section 2.5).
    pub fn new(upstream: Arc<Upstream>, max_bytes: usize) -> Self {
        Self {
            upstream,
            max_bytes,
        }
    }
}

impl FetchRobots for HttpFetcher {
    async fn fetch(&self, permit: RobotsPermit, asker: &Asker) -> Result<Hop, FetchError> {
        let (head, body) = self.upstream.robots(permit, asker).await?.into_parts();
        let mut hop = Hop {
            status: head.status.as_u16(),
            headers: head.headers,
            body: Bytes::new(),
            whole: true,
        };
        if status_meaning(hop.status) != StatusMeaning::Parse {
            skip(body).await;
            return Ok(hop);
        }
        if is_coded(&hop.headers) {
            return Err(FetchError::Coding);
        }
        (hop.body, hop.whole) = read(body, self.max_bytes).await?;
        Ok(hop)
    }
}

/// RFC 9110, section 8.4.
fn is_coded(fields: &HeaderMap) -> bool {
    fields
        .get_all(CONTENT_ENCODING)
        .iter()
        .flat_map(|value| value.as_bytes().split(|&octet| octet == b','))
        .map(<[u8]>::trim_ascii)
        .any(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"))
}

/// The body up to `max`, and whether that is all. Reading stops there: an
/// endless file ends with its connection.
async fn read(mut body: ResponseBody, max: usize) -> Result<(Bytes, bool), BodyError> {
    let mut octets = BytesMut::new();
    while octets.len() <= max {
        let Some(frame) = body.frame().await else {
            return Ok((octets.freeze(), true));
        };
        if let Ok(data) = frame?.into_data() {
            octets.extend_from_slice(&data);
        }
    }
    let kept = whole_lines(&octets, max).len();
    octets.truncate(kept);
    Ok((octets.freeze(), false))
}

/// Reads a short body to its end, for the sake of its connection only.
async fn skip(mut body: ResponseBody) {
    let short = body.size_hint().upper();
    if short.is_none_or(|octets| UNREAD_OCTETS_MAX < octets) {
        return;
    }
    let end = async { while let Some(Ok(_)) = body.frame().await {} };
    // Whether it ended is the connection's concern.
    timeout(UNREAD_TIME_MAX, end).await.unwrap_or_default();
}
