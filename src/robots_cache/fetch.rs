//! One request for a robots.txt, and what came back.
//!
//! What the answer means, how long it holds and where it may redirect to is
//! the cache's to say.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use thiserror::Error;

use crate::decision::access::{StatusMeaning, status_meaning};
use crate::decision::decide::RobotsPermit;
use crate::pace::{Scheduler, Turn};
use crate::robots_cache::body::{Unreadable, read, skip};
use crate::upstream::body::BodyError;
use crate::upstream::client::{Starts, Upstream, UpstreamError};
use politesse_robots::origin::Host;

pub use crate::upstream::client::{Asker, RobotsQuery};

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
    /// Leave to ask a host now.
    type Turn: Send;

    /// Waits for it; nothing if that would take too long.
    fn turn(&self, host: &Host) -> impl Future<Output = Option<Self::Turn>> + Send;

    /// About how long that would be waited for.
    fn wait(&self, host: &Host) -> Duration;

    /// Spends a permit, in a turn.
    fn fetch(
        &self,
        permit: RobotsPermit,
        query: RobotsQuery<'_>,
        turn: &mut Self::Turn,
    ) -> impl Future<Output = Result<Hop, FetchError>> + Send;
}

/// Fetches over HTTP.
#[derive(Debug)]
pub struct HttpFetcher {
    upstream: Arc<Upstream>,
    scheduler: Arc<Scheduler>,
    max_bytes: usize,
}

impl HttpFetcher {
    /// A fetcher that stops reading after `max_bytes` (RFC 9309, section 2.5),
    /// and asks in turn with all others.
    pub fn new(upstream: Arc<Upstream>, scheduler: Arc<Scheduler>, max_bytes: usize) -> Self {
        Self {
            upstream,
            scheduler,
            max_bytes,
        }
    }
}

/// Leave to ask a host, and whom to ask for another.
#[derive(Debug)]
pub struct Turns {
    scheduler: Arc<Scheduler>,
    host: Host,
    turn: Option<Turn>,
}

impl Starts for Turns {
    fn pause(&self) -> Duration {
        self.turn.as_ref().map_or(Duration::ZERO, Turn::pause)
    }

    async fn again(&mut self) -> bool {
        // The one that failed ends first: its pause counts from here.
        self.turn = None;
        self.turn = self.scheduler.robots_turn(&self.host).await;
        if let Some(turn) = &self.turn {
            turn.mark_sent();
        }
        self.turn.is_some()
    }
}

impl FetchRobots for HttpFetcher {
    type Turn = Turns;

    async fn turn(&self, host: &Host) -> Option<Turns> {
        Some(Turns {
            turn: Some(self.scheduler.robots_turn(host).await?),
            scheduler: Arc::clone(&self.scheduler),
            host: host.clone(),
        })
    }

    fn wait(&self, host: &Host) -> Duration {
        self.scheduler.robots_wait(host)
    }

    async fn fetch(
        &self,
        permit: RobotsPermit,
        query: RobotsQuery<'_>,
        turns: &mut Turns,
    ) -> Result<Hop, FetchError> {
        if let Some(turn) = &turns.turn {
            turn.mark_sent();
        }
        let response = self.upstream.robots(permit, query, turns).await?;
        if let Some(turn) = &turns.turn {
            turn.record_response(&turns.host, &response);
        }
        let (head, body) = response.into_parts();
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
