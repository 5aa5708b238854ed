//! Client for origins: sends permitted requests over its own connections.
//!
//! Invariant 1 (ARCHITECTURE.md): a request is sent only under a [`Permit`] or a
//! [`RobotsPermit`], which also determines its URL. Redirects are returned like any other
//! response. Does not know who decided, or the audit log.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, FROM, HOST, IF_MODIFIED_SINCE, IF_NONE_MATCH, TRANSFER_ENCODING,
    USER_AGENT,
};
use http::{Extensions, HeaderMap, HeaderValue, Method, Response, Version};
use hyper::body::{Body, Incoming};
use tokio::time::timeout;

use super::body::{Lease, ResponseBody};
use super::connect::{Connection, Connector, Purpose, Sender, WantedConnection, http1_origins};
use super::dial::Dialler;
use super::egress::{Egress, NextHop};
use super::exchange::{Exchange, FailedExchange, RequestMessage, Retry};
use super::parent::{Credentials, is_made_on_the_way};
use super::pool::{Pool, PoolLimits};
use super::private::{PrivateScope, authenticates_connection};
use super::upload::Upload;
use politesse_base::clients::client::Client;
use politesse_base::metrics::{Metrics, ResultLabel};
use politesse_base::tasks::Tasks;
use politesse_decision::access::NoConnection;
use politesse_decision::decide::{Permit, RobotsPermit};
use politesse_decision::digest::{CanonicalBytes, Digest};
use politesse_decision::snapshot::Validators;
use politesse_decision::tls_exception::TlsException;
use politesse_robots::origin::Origin;

pub use super::head::{OutgoingHead, TargetForm};
pub use super::tls::{OriginTls, TlsOptions, UpstreamSetupError};
pub use crate::error::UpstreamError;

/// Longest wait for a connection to become ready after its last response.
const READY_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest pause between requests after which a connection is reused. After a longer one
/// the connection is more likely to be dead, and a retry would have to wait for the pause
/// again.
const REUSE_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Limits and TLS trust (`upstream.*`, `https.upstream_roots`).
#[derive(Debug, Clone)]
pub struct Options {
    /// Longest wait for a connection, including TLS.
    pub connect_timeout: Duration,
    /// Longest wait for the head of a response, measured from the end of connecting or
    /// from the last part of the upload.
    pub first_byte_timeout: Duration,
    /// Longest wait for the next part of a response body.
    pub idle_timeout: Duration,
    /// TLS settings.
    pub tls: TlsOptions,
    /// Longest time that an idle connection is kept.
    pub pool_idle_timeout: Duration,
    /// Maximum number of idle connections per origin.
    pub pool_idle_per_origin: NonZeroUsize,
    /// Maximum number of idle connections in total.
    pub pool_idle_total: NonZeroUsize,
    /// Path of the file with the credentials for the parent (`upstream.parent_auth`).
    pub parent_auth: Option<PathBuf>,
}

/// Client for which a robots.txt is requested. The request uses nothing else of the
/// crawler's own request.
#[derive(Debug, Clone, Default)]
pub struct Asker {
    /// Client to which shares are charged; absent for the proxy's own requests.
    pub client: Option<Arc<Client>>,
    /// Digest of the operator's `crawler` entry for it
    /// ([`Identity::digest`](politesse_decision::inquiry::Identity::digest)). Not sent.
    pub entry: Option<Digest>,
    /// `User-Agent` to send.
    pub user_agent: Option<HeaderValue>,
    /// `From` to send (RFC 9110, section 10.1.2).
    pub from: Option<HeaderValue>,
}

impl Asker {
    /// Returns a digest of the fields that are sent for it, because a site may answer
    /// differently depending on them.
    pub fn sender(&self) -> Digest {
        let mut bytes = CanonicalBytes::new();
        for field in [&self.user_agent, &self.from] {
            let value = field.as_ref().map(HeaderValue::as_bytes);
            bytes.optional(value, CanonicalBytes::bytes);
        }
        Digest::of(bytes.as_bytes())
    }
}

/// Turns that one request takes at its host. The first one has been granted already.
pub trait HostTurns: Send {
    /// Returns the client for which the request is made; absent for the proxy's own
    /// requests.
    fn client(&self) -> Option<&Arc<Client>>;

    /// Returns the minimum pause that the host requires before the next turn.
    fn pause(&self) -> Duration;

    /// Returns whether the turn is still valid. After the process was suspended, another
    /// node of the fleet may have taken over the host.
    fn holds(&self) -> bool {
        true
    }

    /// Ends this turn and waits for another one; returns whether one was granted. If not,
    /// the caller must not send the request again: the host would see two requests in one
    /// turn.
    fn renew(&mut self) -> impl Future<Output = bool> + Send;

    /// Returns the connections reserved for the requests of its client's connection;
    /// absent for the proxy's own requests.
    fn private(&self) -> Option<PrivateScope> {
        None
    }

    /// Notes that a connection was opened for the request.
    fn note_connected(&self) {}

    /// Notes that the request is about to be handed to a connection, so that the host may
    /// see it from now on. Called once per attempt.
    fn note_sent(&mut self) {}
}

/// Sends permitted requests over its own connections.
pub struct Upstream {
    connector: Connector,
    pool: Arc<Pool>,
    first_byte_timeout: Duration,
    idle_timeout: Duration,
    metrics: Arc<Metrics>,
}

impl Upstream {
    /// Creates a client without open connections.
    ///
    /// # Errors
    ///
    /// [`UpstreamSetupError`] if the root certificates or the credentials for a parent
    /// cannot be read.
    pub fn new(
        options: &Options,
        egress: Arc<Egress>,
        metrics: Arc<Metrics>,
        tasks: Tasks,
    ) -> Result<Self, UpstreamSetupError> {
        let credentials = options.parent_auth.as_deref().map(Credentials::read);
        Ok(Self {
            connector: Connector {
                egress,
                dialler: Dialler::default(),
                tls: OriginTls::new(&options.tls)?,
                credentials: credentials.transpose()?,
                connect_timeout: options.connect_timeout,
                http1_origins: http1_origins(),
                tasks,
            },
            pool: Arc::new(Pool::new(PoolLimits {
                idle_timeout: options.pool_idle_timeout,
                per_origin: options.pool_idle_per_origin,
                total: options.pool_idle_total,
            })),
            first_byte_timeout: options.first_byte_timeout,
            idle_timeout: options.idle_timeout,
            metrics,
        })
    }

    /// Returns how `origin` is reached if the settings deviate from the default: a
    /// configured address, and its TLS exception. A robots.txt fetched under different
    /// settings may belong to another site.
    pub fn led_to(&self, origin: &Origin) -> Option<String> {
        let address = self.connector.egress.led_to(origin);
        match self.connector.tls.exception(origin) {
            Some(TlsException { terms, .. }) => {
                Some(format!("{}; {terms}", address.unwrap_or_default()))
            }
            None => address,
        }
    }

    /// Closes the idle connections and stops keeping new ones. Called when another
    /// configuration takes effect, because that one may deny their destinations.
    pub fn retire(&self) {
        self.pool.retire();
    }

    /// Uses up a permit: sends `head` and `body` to the permit's URL, in a turn at its
    /// host. `head` may be rearranged in memory, but keeps its meaning.
    ///
    /// # Errors
    ///
    /// [`UpstreamError`] if there is no response to forward.
    pub async fn forward<B>(
        &self,
        permit: Permit,
        head: &mut OutgoingHead,
        body: B,
        turns: &mut impl HostTurns,
    ) -> Result<Response<ResponseBody>, UpstreamError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let message = RequestMessage {
            target: permit.target(),
            is_private: authenticates_connection(&head.headers),
            head,
            // Taken from the recorded policy, which may be newer than the options of this
            // client, because the request may have waited through a reload.
            tls: permit.tls_exception(),
            purpose: Purpose::Page,
        };
        self.counted(message, Upload::new(body), turns).await
    }

    /// Uses up a robots permit: requests its URL in a turn at its host. The request is
    /// conditional if validators of an earlier file are known (RFC 9110, sections 13.1.2
    /// and 13.1.3).
    pub async fn robots(
        &self,
        permit: RobotsPermit,
        asker: &Asker,
        known: Option<&Validators>,
        turns: &mut impl HostTurns,
    ) -> Result<Response<ResponseBody>, UpstreamError> {
        let message = RequestMessage {
            target: permit.target(),
            head: &mut robots_head(asker, known),
            tls: self.connector.tls.exception(&permit.target().origin),
            purpose: Purpose::Rules,
            is_private: false,
        };
        let response = self.counted(message, Upload::default(), turns).await?;
        let from_parent = response.extensions().get() == Some(&NextHop::Parent);
        // An error of the parent must not be taken for an origin without rules.
        if from_parent && is_made_on_the_way(response.status(), response.headers()) {
            return Err(UpstreamError::NoConnection(NoConnection::Parent));
        }
        Ok(response)
    }

    async fn counted(
        &self,
        mut message: RequestMessage<'_>,
        body: Upload,
        turns: &mut impl HostTurns,
    ) -> Result<Response<ResponseBody>, UpstreamError> {
        let sent = self.send(&mut message, body, turns).await;
        let result = match &sent {
            Ok(response) => class(response.status().as_u16()),
            Err(error) => error.as_str(),
        };
        self.metrics.upstream_requests.inc(&ResultLabel { result });
        sent
    }

    /// Sends a request over an idle connection or a new one. Retries it once over a new
    /// connection, provided that the host grants another turn where needed, and that a
    /// retry does no harm or the origin asks for it.
    async fn send(
        &self,
        message: &mut RequestMessage<'_>,
        body: Upload,
        turns: &mut impl HostTurns,
    ) -> Result<Response<ResponseBody>, UpstreamError> {
        let idle = self.idle(message, turns).await;
        // The origin may have closed a reused connection while the request was being
        // written.
        let is_reused = idle.is_some();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.connect(message, turns).await?,
        };
        if !turns.holds() {
            connection = Box::pin(self.connect_in_turn(message, turns)).await?;
        }
        self.count_sent(message, turns);
        let failed = match self.exchange(connection, message, body, turns).await {
            Ok(response) => return Ok(response),
            Err(failed) => failed,
        };
        let body = match failed.retry {
            // The host has seen none of it, so this turn is still valid.
            Retry::Unsent(body) => body,
            Retry::Harmless if is_reused && turns.renew().await => Upload::default(),
            // Although the origin did not process the request, its host sees a second
            // one.
            Retry::Unprocessed(body) if turns.renew().await => body,
            Retry::Harmless | Retry::Unprocessed(_) | Retry::Never => return Err(failed.error),
        };
        // Retried only once: if a new connection breaks, its age cannot be the reason.
        self.metrics.upstream_retries.inc();
        let connection = self.connect(message, turns).await?;
        if !turns.holds() {
            return Err(UpstreamError::TurnLost);
        }
        self.count_sent(message, turns);
        let sent = Box::pin(self.exchange(connection, message, body, turns)).await;
        sent.map_err(|failed| failed.error)
    }

    /// Waits for another turn to replace one that was lost, and connects.
    async fn connect_in_turn(
        &self,
        message: &RequestMessage<'_>,
        turns: &mut impl HostTurns,
    ) -> Result<Connection, UpstreamError> {
        if !turns.renew().await {
            return Err(UpstreamError::TurnLost);
        }
        let connection = self.connect(message, turns).await?;
        turns
            .holds()
            .then_some(connection)
            .ok_or(UpstreamError::TurnLost)
    }

    /// Counts a request that is about to be handed to a connection.
    ///
    /// The count is taken before, and never taken back: however the exchange ends, the
    /// recorded count must not be less than the number of requests that hosts have seen.
    fn count_sent(&self, message: &RequestMessage<'_>, turns: &mut impl HostTurns) {
        if message.purpose == Purpose::Page {
            self.metrics.upstream_sent.inc();
        }
        turns.note_sent();
    }

    /// Returns a ready idle connection that the request may use.
    async fn idle(
        &self,
        message: &RequestMessage<'_>,
        turns: &mut impl HostTurns,
    ) -> Option<Connection> {
        let origin = &message.target.origin;
        // Private connections are used even after a long pause: an authentication that
        // spans several requests is lost with its connection.
        if let Some(private) = turns.private() {
            while let Some(mut connection) = private.take(origin, &self.pool) {
                if is_ready(&mut connection.sender).await {
                    return Some(connection);
                }
            }
        }
        if message.is_private {
            return None;
        }
        self.reusable(origin, turns.pause()).await
    }

    /// Returns a ready idle connection if `pause` is short enough for reuse. Otherwise
    /// closes all idle connections to this origin.
    async fn reusable(&self, origin: &Origin, pause: Duration) -> Option<Connection> {
        if REUSE_PAUSE_MAX < pause {
            self.pool.close(origin);
            return None;
        }
        while let Some(mut connection) = self.pool.take(origin) {
            if is_ready(&mut connection.sender).await {
                return Some(connection);
            }
        }
        None
    }

    async fn connect(
        &self,
        message: &RequestMessage<'_>,
        turns: &mut impl HostTurns,
    ) -> Result<Connection, UpstreamError> {
        let client = turns.client().cloned();
        let wanted = WantedConnection {
            origin: &message.target.origin,
            tls: message.tls,
            purpose: message.purpose,
            client: client.as_ref(),
            is_private: message.is_private,
        };
        // Boxed, like everything that most requests skip: the future of an exchange is
        // moved, and a handshake is many times larger than the rest.
        let connection = Box::pin(self.connector.connect(wanted)).await?;
        turns.note_connected();
        // Pooled from the first exchange on, so that requests in the meantime share this
        // connection instead of opening their own.
        if let Some(shared) = connection.shared() {
            self.pool.put(wanted.origin.clone(), shared);
        }
        Ok(connection)
    }

    /// Runs one exchange. At the end of the response body, its connection returns to the
    /// pool or to its owner. A shared connection is in the pool already.
    async fn exchange(
        &self,
        mut connection: Connection,
        message: &mut RequestMessage<'_>,
        body: Upload,
        turns: &mut impl HostTurns,
    ) -> Result<Response<ResponseBody>, FailedExchange> {
        let upload = body.progress();
        let exchange = Exchange {
            connection: &mut connection,
            credentials: self.connector.credentials.as_ref(),
            first_byte_timeout: self.first_byte_timeout,
        };
        let response = exchange.run(message, body).await.inspect_err(|failed| {
            if failed.error.reset_reason() == Some(Reason::HTTP_1_1_REQUIRED) {
                self.connector.require_http1(&message.target.origin);
                self.pool.close(&message.target.origin);
            }
        })?;
        // Origins do not authenticate HTTP/2 connections: requests that need that use
        // HTTP/1.1.
        connection.is_private |= authenticates_connection(response.headers());
        let is_private = connection.is_private;
        let owner = is_private.then(|| turns.private()).flatten();
        let lease = (!connection.is_shared()).then(|| Lease {
            pool: Arc::clone(&self.pool),
            origin: message.target.origin.clone(),
            connection,
            // After an HTTP/1.0 response, hyper would send later requests as HTTP/1.0,
            // which has no chunked bodies.
            may_be_kept: response.version() != Version::HTTP_10 && is_private == owner.is_some(),
            owner,
            ends_body: is_close_delimited(&response),
        });
        Ok(response.map(|incoming| ResponseBody::new(incoming, self.idle_timeout, upload, lease)))
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream")
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

/// Returns the head of a robots.txt request. It contains nothing of the crawler's but its
/// name and contact, so that the credentials of one crawler cannot affect the rules for
/// another.
fn robots_head(asker: &Asker, known: Option<&Validators>) -> OutgoingHead {
    let accept = HeaderValue::from_static("text/plain,*/*;q=0.5");
    // Without a content coding, a file cannot expand to gigabytes. A file that is coded
    // nevertheless is decoded with a limit (docs/decisions/004-content-decoders.md).
    let identity = HeaderValue::from_static("identity");
    let etag = known.and_then(|known| known.etag.clone());
    let last_modified = known.and_then(|known| known.last_modified.clone());
    let fields = [
        (USER_AGENT, asker.user_agent.clone()),
        (FROM, asker.from.clone()),
        (ACCEPT, Some(accept)),
        (ACCEPT_ENCODING, Some(identity)),
        (IF_NONE_MATCH, etag),
        (IF_MODIFIED_SINCE, last_modified),
    ];
    let mut headers = HeaderMap::with_capacity(fields.len() + 1);
    headers.append(HOST, HeaderValue::from_static(""));
    for (name, value) in fields {
        if let Some(value) = value {
            headers.append(name, value);
        }
    }
    OutgoingHead {
        method: Method::GET,
        headers,
        form: TargetForm::Url,
        path: None,
        extensions: Extensions::new(),
    }
}

/// Reports whether a connection is ready for a request. It may need a moment, because the
/// body of the last response can end before hyper has finished with it.
async fn is_ready(sender: &mut Sender) -> bool {
    match sender {
        Sender::Http1(sender) if sender.is_ready() => true,
        Sender::Http1(sender) => matches!(timeout(READY_TIMEOUT, sender.ready()).await, Ok(Ok(()))),
        Sender::Http2(sender) => sender.is_ready(),
    }
}

/// Reports whether the body of an HTTP/1.1 response is delimited only by the end of the
/// connection (RFC 9112, section 6.3).
fn is_close_delimited(response: &Response<Incoming>) -> bool {
    response.body().size_hint().exact().is_none()
        && !response.headers().contains_key(TRANSFER_ENCODING)
}

/// Returns the class of a status (RFC 9110, section 15).
fn class(status: u16) -> &'static str {
    match status {
        100..=199 => "1xx",
        200..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        500..=599 => "5xx",
        _ => "other",
    }
}
