//! One request for a robots.txt, and what came back.
//!
//! What the answer means, how long it holds and where it may redirect to is
//! the cache's to say.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use thiserror::Error;

use super::body::BodyError;
use super::robots_body::{Unreadable, read, skip};
use super::upstream::{Upstream, UpstreamError};
use crate::rules::decision::RobotsPermit;
use crate::rules::robots::access::{StatusMeaning, status_meaning};

pub use super::upstream::{Asker, RobotsQuery};

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
    /// The body has a content coding, though none was asked for, and one that
    /// is not known, or is not what it should be.
    #[error("the body has a content coding that cannot be taken off")]
    Coding,
}

impl From<Unreadable> for FetchError {
    fn from(unreadable: Unreadable) -> Self {
        match unreadable {
            Unreadable::Broken(error) => error.into(),
            Unreadable::Coding => Self::Coding,
        }
    }
}

/// One hop on the way to a robots.txt.
///
/// A trait so that the cache can be tested with origins that fail on cue.
pub trait FetchRobots: Send + Sync + 'static {
    /// Spends a permit.
    fn fetch(
        &self,
        permit: RobotsPermit,
        query: RobotsQuery<'_>,
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
    async fn fetch(&self, permit: RobotsPermit, query: RobotsQuery<'_>) -> Result<Hop, FetchError> {
        let (head, body) = self.upstream.robots(permit, query).await?.into_parts();
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
        (hop.body, hop.whole) = read(body, &hop.headers, self.max_bytes).await?;
        Ok(hop)
    }
}
