//! One request for a robots.txt and its response: status, header fields, and as much of
//! the body as is needed.
//!
//! RFC 9309, section 2.5. Does not know what a response means, how long it is used, or
//! which redirects are followed.

use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::time::timeout;

use super::body_text::decoded_text;
use super::shared_answers::FetchClaim;
use politesse_base::clients::client::Client;
use politesse_decision::access::{Cause, StatusMeaning, is_challenge, status_meaning};
use politesse_decision::decide::RobotsPermit;
use politesse_decision::snapshot::{RobotsBody, Validators};
use politesse_directives::BodyDecoder;
use politesse_net::body::ResponseBody;
use politesse_net::client::{HostTurns, Upstream, UpstreamError};
use politesse_pace::{Scheduler, Turn};
use politesse_robots::origin::Host;

pub use politesse_net::client::Asker;

/// Bytes of an encoded body that are read, unless the limit for a file is higher. Some
/// codings turn any number of bytes into nothing.
const CODED_BYTES_MAX: usize = 512 * 1024;

/// First byte of every gzip member (RFC 1952, section 2.3.1). No text starts with it.
const GZIP_FIRST_BYTE: u8 = 0x1F;

/// Longest error page that is read to its end, so that its connection can be reused for
/// the requested page.
const UNREAD_BYTES_MAX: u64 = 64 * 1024;
const UNREAD_TIME_MAX: Duration = Duration::from_secs(1);

/// Request for a robots.txt, or for a URL that it redirects to.
#[derive(Debug)]
pub struct RobotsRequest<'a> {
    /// Permission to request its URL.
    pub permit: RobotsPermit,
    /// Client for which the request is made.
    pub asker: &'a Asker,
    /// Validators of an earlier file, which make the request conditional.
    pub known: Option<&'a Validators>,
    /// Claim on the fetch that the request belongs to, in a fleet. The request is sent
    /// only while the node holds the claim.
    pub claim: Option<&'a Arc<FetchClaim>>,
}

/// Reason why a request for a robots.txt got no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchError {
    /// Another node of the fleet may use the host by now, or may have requested the same
    /// file.
    TurnLost,
    /// The origin counts as unreachable, for this cause.
    Unreachable(Cause),
}

/// Makes the requests of the cache, one at a time, in turn.
///
/// This is a trait so that tests can use origins that fail on cue.
pub trait RobotsFetcher: Send + Sync + 'static {
    /// Permission to make requests to a host now.
    type Turn: Send + Sync;

    /// Waits for a turn at `host` in the share of `client`; `None` if it would not come
    /// soon enough.
    fn turn(
        &self,
        host: &Host,
        client: &Arc<Client>,
    ) -> impl Future<Output = Option<Self::Turn>> + Send;

    /// Returns the approximate wait for a turn at `host` in the share of `client`.
    fn wait(&self, host: &Host, client: &Arc<Client>) -> Duration;

    /// Makes a request in `turn`. The body of the response is empty if its status means
    /// that there is nothing to parse.
    fn fetch(
        &self,
        request: RobotsRequest<'_>,
        turn: &mut Self::Turn,
    ) -> impl Future<Output = Result<Response<RobotsBody>, FetchError>> + Send;
}

/// Fetcher over HTTP.
#[derive(Debug)]
pub struct HttpFetcher {
    /// Sends the requests.
    pub upstream: Arc<Upstream>,
    /// Grants the turns at hosts.
    pub scheduler: Arc<Scheduler>,
    /// Largest number of bytes that are read of a body (RFC 9309, section 2.5).
    pub max_bytes: usize,
}

/// Turn of a fetch at a host, with everything needed to get another one.
#[derive(Debug)]
pub struct FetchTurn {
    /// Client for which the fetch is made, once it makes a request.
    client: Option<Arc<Client>>,
    /// Claim on the fetch, once it makes a request.
    claim: Option<Arc<FetchClaim>>,
    scheduler: Arc<Scheduler>,
    host: Host,
    /// Client in whose share the turn is.
    sharer: Arc<Client>,
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
        let has_claim = self.claim.as_ref().is_none_or(|claim| claim.is_held());
        has_claim && self.turn.as_ref().is_none_or(Turn::holds)
    }

    fn note_connected(&self) {
        if let Some(turn) = &self.turn {
            turn.note_connected();
        }
    }

    async fn renew(&mut self) -> bool {
        // The failed turn ends first: its pause counts from here.
        self.turn = None;
        // Without the claim, another node may have fetched the file in the meantime. The
        // caller must look for its answer before it takes another turn.
        if self.claim.as_ref().is_some_and(|claim| !claim.is_held()) {
            return false;
        }
        let turn = self.scheduler.robots_turn(&self.host, &self.sharer);
        self.turn = turn.await;
        if let Some(turn) = &self.turn {
            turn.mark_sent();
        }
        self.turn.is_some()
    }
}

impl RobotsFetcher for HttpFetcher {
    type Turn = FetchTurn;

    async fn turn(&self, host: &Host, client: &Arc<Client>) -> Option<FetchTurn> {
        Some(FetchTurn {
            client: None,
            claim: None,
            turn: Some(self.scheduler.robots_turn(host, client).await?),
            scheduler: Arc::clone(&self.scheduler),
            host: host.clone(),
            sharer: Arc::clone(client),
        })
    }

    fn wait(&self, host: &Host, client: &Arc<Client>) -> Duration {
        self.scheduler.robots_wait(host, client)
    }

    async fn fetch(
        &self,
        request: RobotsRequest<'_>,
        turns: &mut FetchTurn,
    ) -> Result<Response<RobotsBody>, FetchError> {
        let RobotsRequest {
            permit,
            asker,
            known,
            claim,
        } = request;
        turns.client.clone_from(&asker.client);
        turns.claim = claim.cloned();
        if let Some(turn) = &turns.turn {
            turn.mark_sent();
        }
        let response = self.upstream.robots(permit, asker, known, turns).await?;
        if let Some(turn) = &turns.turn {
            turn.record_response(&turns.host, &response);
        }
        let (head, body) = response.into_parts();
        let is_file = status_meaning(head.status.as_u16()) == StatusMeaning::Parse;
        let body = if is_file && !is_challenge(&head.headers) {
            read(body, &head.headers, self.max_bytes).await?
        } else {
            skip(body).await;
            RobotsBody::default()
        };
        Ok(Response::from_parts(head, body))
    }
}

impl From<Cause> for FetchError {
    fn from(cause: Cause) -> Self {
        Self::Unreachable(cause)
    }
}

impl From<UpstreamError> for FetchError {
    fn from(error: UpstreamError) -> Self {
        if matches!(error, UpstreamError::TurnLost) {
            return Self::TurnLost;
        }
        Self::Unreachable(error.into())
    }
}

/// Reads up to `max` bytes of a body, truncated at a line. Reading stops there: the
/// connection of an endless file is closed.
///
/// A body that is encoded although `identity` was requested is decoded, because its rules
/// are as valid as others (RFC 9110, section 8.4). A body that cannot be decoded to its
/// end is not a file, because a part of the rules could allow what the whole disallows.
async fn read(mut body: ResponseBody, fields: &HeaderMap, max: usize) -> Result<RobotsBody, Cause> {
    let codings = codings(fields);
    // One extra byte shows that there is more.
    let mut decoder =
        BodyDecoder::for_fields(&codings, max.saturating_add(1)).map_err(|_| Cause::Coding)?;
    let mut may_be_text = is_gzip(&codings);
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
        if may_be_text && let Some(&first) = data.first() {
            may_be_text = false;
            decoder = decoder.filter(|_| first == GZIP_FIRST_BYTE);
        }
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
        // The encoded bytes exceeded their limit before the file reached its own, so
        // rules may be missing.
        if within.len() < data.len() && bytes.len() <= max {
            return Err(Cause::Coding);
        }
    }
    let text = decoded_text(bytes.freeze(), max)?;
    Ok(if body.is_unclosed() {
        RobotsBody::unclosed(text, max)
    } else {
        RobotsBody::within(text, max)
    })
}

/// Returns the fields that name the codings of a robots.txt. Names that sites write for a
/// file without a coding are left out: such a file must not count as unreachable.
fn codings(fields: &HeaderMap) -> HeaderMap {
    let lines = fields.get_all(CONTENT_ENCODING).into_iter();
    let names = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b','));
    let is_coding = |name: &&[u8]| {
        let none = [&b"none"[..], b"utf-8", b"identity", b""];
        !none.iter().any(|none| name.eq_ignore_ascii_case(none))
    };
    let codings = names.map(<[u8]>::trim_ascii).filter(is_coding);
    let values = codings.filter_map(|name| HeaderValue::from_bytes(name).ok());
    // A field may name thousands of codings. One more than the decoder accepts is enough
    // to make it refuse.
    values
        .take(BodyDecoder::CODINGS_MAX + 1)
        .map(|value| (CONTENT_ENCODING, value))
        .collect()
}

/// Returns whether gzip is the only coding. Some sites declare it for plain text.
fn is_gzip(codings: &HeaderMap) -> bool {
    let mut names = codings.values();
    let is_gzip = names.next().is_some_and(|name| {
        let name = name.as_bytes();
        name.eq_ignore_ascii_case(b"gzip") || name.eq_ignore_ascii_case(b"x-gzip")
    });
    is_gzip && names.next().is_none()
}

/// Reads a short body to its end so that its connection can be reused.
async fn skip(mut body: ResponseBody) {
    let length = body.size_hint().upper();
    if length.is_none_or(|bytes| UNREAD_BYTES_MAX < bytes) {
        return;
    }
    let end = async { while let Some(Ok(_)) = body.frame().await {} };
    // A body that does not end in time only costs its connection.
    timeout(UNREAD_TIME_MAX, end).await.unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::shared_answers::{Claim, SharedAnswers};
    use crate::tests::kit::inquiry;
    use crate::tests::shared_shelf::{SharedShelf, TIMES};
    use politesse_base::tasks::Tasks;
    use politesse_decision::snapshot::CacheKey;
    use politesse_pace::options::Options;

    // Ours: another node may have fetched the file by then.
    #[tokio::test(start_paused = true)]
    async fn a_turn_does_not_hold_without_the_claim_on_its_fetch() {
        let scheduler = Scheduler::new(Options::default(), Arc::default(), Tasks::default());
        let origin = inquiry("http://a.test/", "ExampleBot").target.origin;
        let key = CacheKey::new(origin.clone(), None);
        let shelf = Arc::new(SharedShelf::default());
        let answers = SharedAnswers::new(shelf.link(0));
        let Claim::Taken(claim) = answers.claim(&key).await else {
            panic!("nobody else claims it");
        };
        let client = Client::proxy();
        let mut turn = FetchTurn {
            client: None,
            claim: Some(claim),
            turn: scheduler.robots_turn(origin.host(), &client).await,
            scheduler: Arc::new(scheduler),
            host: origin.host().clone(),
            sharer: client,
        };
        assert!(turn.holds() && turn.renew().await);
        advance(TIMES.claim).await;
        assert!(!turn.holds() && !turn.renew().await);
        assert!(turn.turn.is_none());
    }
}
