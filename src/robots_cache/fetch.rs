//! One request for a robots.txt, and what came back: status, header fields, and
//! the body as far as it is wanted.
//!
//! RFC 9309, section 2.5. Does not know what a response means, how long it is
//! used, or which redirects are followed.

use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use http::{HeaderMap, Response};
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::time::timeout;

use crate::clients::client::Client;
use crate::decision::access::{Cause, NoConnection, StatusMeaning, status_meaning};
use crate::decision::decide::RobotsPermit;
use crate::decision::snapshot::{RobotsBody, Validators};
use crate::pace::{Scheduler, Turn};
use crate::upstream::body::{BodyError, ResponseBody};
use crate::upstream::client::{HostTurns, Upstream, UpstreamError};
use politesse_directives::BodyDecoder;
use politesse_robots::origin::Host;

pub use crate::upstream::client::Asker;

/// Bytes of a coded body that are read, unless more of a file is wanted. Some
/// codings turn any number of bytes into nothing.
const CODED_BYTES_MAX: usize = 512 * 1024;

/// An error page this short is read to its end, so that its connection can be
/// used again for the page that was asked for.
const UNREAD_BYTES_MAX: u64 = 64 * 1024;
const UNREAD_TIME_MAX: Duration = Duration::from_secs(1);

/// Makes the requests of the cache, one at a time and in turn.
///
/// A trait so that the cache can be tested with origins that fail on cue.
pub trait RobotsFetcher: Send + Sync + 'static {
    /// Leave to ask a host now.
    type Turn: Send + Sync;

    /// Waits for a turn at `host`; `None` if it would not come soon enough.
    fn turn(&self, host: &Host) -> impl Future<Output = Option<Self::Turn>> + Send;

    /// Returns about how long a turn at `host` would be waited for.
    fn wait(&self, host: &Host) -> Duration;

    /// Makes the request that `permit` is for, in `turn`: a conditional one if
    /// validators of an earlier file are known. The body of the response is
    /// empty where its status has none to parse.
    ///
    /// # Errors
    ///
    /// The cause for which the origin counts as unreachable.
    fn fetch(
        &self,
        permit: RobotsPermit,
        asker: &Asker,
        known: Option<&Validators>,
        turn: &mut Self::Turn,
    ) -> impl Future<Output = Result<Response<RobotsBody>, Cause>> + Send;
}

/// A fetcher over HTTP.
#[derive(Debug)]
pub struct HttpFetcher {
    /// Sends the requests.
    pub upstream: Arc<Upstream>,
    /// Gives the turns at their hosts.
    pub scheduler: Arc<Scheduler>,
    /// Bytes of a body that are read, at most (RFC 9309, section 2.5).
    pub max_bytes: usize,
}

/// Turn of a fetch at a host, with what it takes to get another one.
#[derive(Debug)]
pub struct FetchTurn {
    /// Client that the fetch is made for, once it makes a request.
    client: Option<Arc<Client>>,
    scheduler: Arc<Scheduler>,
    host: Host,
    turn: Option<Turn>,
}

impl HostTurns for FetchTurn {
    fn client(&self) -> Option<&Arc<Client>> {
        self.client.as_ref()
    }

    fn pause(&self) -> Duration {
        self.turn.as_ref().map_or(Duration::ZERO, Turn::pause)
    }

    fn holds(&self) -> bool {
        self.turn.as_ref().is_none_or(Turn::holds)
    }

    async fn again(&mut self) -> bool {
        // The turn that failed ends first: its pause counts from here.
        self.turn = None;
        self.turn = self.scheduler.robots_turn(&self.host).await;
        if let Some(turn) = &self.turn {
            turn.mark_sent();
        }
        self.turn.is_some()
    }
}

impl RobotsFetcher for HttpFetcher {
    type Turn = FetchTurn;

    async fn turn(&self, host: &Host) -> Option<FetchTurn> {
        Some(FetchTurn {
            client: None,
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
        asker: &Asker,
        known: Option<&Validators>,
        turns: &mut FetchTurn,
    ) -> Result<Response<RobotsBody>, Cause> {
        turns.client.clone_from(&asker.client);
        if let Some(turn) = &turns.turn {
            turn.mark_sent();
        }
        let response = self.upstream.robots(permit, asker, known, turns).await?;
        if let Some(turn) = &turns.turn {
            turn.record_response(&turns.host, &response);
        }
        let (head, body) = response.into_parts();
        let body = if status_meaning(head.status.as_u16()) == StatusMeaning::Parse {
            read(body, &head.headers, self.max_bytes).await?
        } else {
            skip(body).await;
            RobotsBody::default()
        };
        Ok(Response::from_parts(head, body))
    }
}

impl From<UpstreamError> for Cause {
    fn from(error: UpstreamError) -> Self {
        match error {
            UpstreamError::NoConnection(cause) => Self::NoConnection(cause),
            UpstreamError::Prohibited(_) => Self::NoConnection(NoConnection::Prohibited),
            UpstreamError::Target => Self::RedirectTarget,
            UpstreamError::FirstByteTimeout | UpstreamError::TurnLost => Self::Timeout,
            UpstreamError::Incomplete(_)
            | UpstreamError::Protocol(_)
            | UpstreamError::AmbiguousFraming
            | UpstreamError::ResponseHeaderSize
            | UpstreamError::ResponseCoding
            | UpstreamError::InterimResponses
            | UpstreamError::UnaskedUpgrade
            | UpstreamError::RequestBody => Self::Broken,
        }
    }
}

impl From<BodyError> for Cause {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Stalled => Self::Timeout,
            BodyError::Incomplete(_) | BodyError::Reset => Self::Broken,
        }
    }
}

/// Reads a body up to `max` bytes, cut at a line. Reading stops there: the
/// connection of an endless file is closed.
///
/// A body that is coded, though `identity` was asked for, is decoded: the rules
/// in it are as good as others (RFC 9110, section 8.4). What cannot be decoded
/// to its end is no file, since a part of the rules could allow what the whole
/// disallows.
async fn read(mut body: ResponseBody, fields: &HeaderMap, max: usize) -> Result<RobotsBody, Cause> {
    // One byte more tells that there is more.
    let mut decoder =
        BodyDecoder::for_fields(fields, max.saturating_add(1)).map_err(|_| Cause::Coding)?;
    let (mut bytes, mut coded_left) = (BytesMut::new(), max.max(CODED_BYTES_MAX));
    while bytes.len() <= max {
        let Some(frame) = body.frame().await else {
            let end = decoder.map_or(Ok(()), |decoder| decoder.finish());
            end.map_err(|_| Cause::Coding)?;
            break;
        };
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        let Some(decoder) = &mut decoder else {
            bytes.extend_from_slice(&data);
            continue;
        };
        let within = data.get(..coded_left).unwrap_or(&data);
        let pushed = decoder.push(within, &mut |piece| {
            bytes.extend_from_slice(piece);
            if max < bytes.len() {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        pushed.map_err(|_| Cause::Coding)?;
        coded_left -= within.len();
        // The coded bytes went beyond their bound before the file reached its
        // own. Rules may be missing.
        if within.len() < data.len() && bytes.len() <= max {
            return Err(Cause::Coding);
        }
    }
    Ok(RobotsBody::within(bytes.freeze(), max))
}

/// Reads a short body to its end for the sake of its connection.
async fn skip(mut body: ResponseBody) {
    let length = body.size_hint().upper();
    if length.is_none_or(|bytes| UNREAD_BYTES_MAX < bytes) {
        return;
    }
    let end = async { while let Some(Ok(_)) = body.frame().await {} };
    // A body that does not end in time closes its connection, and no more.
    timeout(UNREAD_TIME_MAX, end).await.unwrap_or_default();
}
