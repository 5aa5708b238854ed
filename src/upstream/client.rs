//! The only outgoing requests.
//!
//! Invariant 1: a request leaves for a [`Permit`] or a [`RobotsPermit`], and
//! for nothing else; its URL is the permit's. Responses are handed on as they
//! come, redirects too: where they lead is for whoever asked to ask again.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, FROM, IF_MODIFIED_SINCE, IF_NONE_MATCH, USER_AGENT};
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::again::{Again, Lost};
use super::body::{Lease, ResponseBody};
use super::connect::{Connection, Connector, Sender};
use super::egress::{Egress, NextHop};
use super::head::{check_response, http1_request, http2_request, to_parent};
use super::interim::Flood;
use super::parent::{Credentials, asks_for_credentials, is_made_on_the_way};
use super::pool::{Limits, Pool};
use super::tls::client_config;
use super::upload::{Progress, Upload};
use crate::decision::access::NoConnection;
use crate::decision::decide::{Permit, RobotsPermit};
use crate::decision::snapshot::Validators;
use crate::metrics::{Metrics, ResultLabel};
use crate::tasks::Tasks;
use politesse_robots::origin::{Origin, Target};

pub use super::again::Starts;
pub use super::head::{Form, Outgoing};
pub use super::tls::{Roots, UpstreamSetupError};
pub use crate::upstream::error::UpstreamError;

/// How long a connection may take to be free after its last response.
const READY_TIMEOUT: Duration = Duration::from_secs(1);
/// Behind a longer pause no connection is used again. It is more likely to be
/// dead by then, and to send a request once more takes the pause once more.
const REUSE_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Limits and trust (`upstream.*`, `https.upstream_roots`).
#[derive(Debug, Clone)]
pub struct Options {
    /// The longest wait for a connection, TLS included.
    pub connect_timeout: Duration,
    /// The longest wait for the head of a response, from the end of
    /// connecting, or from the last part of the upload.
    pub first_byte_timeout: Duration,
    /// The longest wait for more of a response body.
    pub idle_timeout: Duration,
    /// Whose certificates are trusted.
    pub roots: Roots,
    /// Whether HTTP/2 is offered.
    pub http2: bool,
    /// How long a free connection is kept.
    pub pool_idle_timeout: Duration,
    /// How many free connections to one origin are kept.
    pub pool_idle_per_origin: NonZeroUsize,
    /// How many free connections are kept in all.
    pub pool_idle_total: NonZeroUsize,
    /// The file with what is shown to the parent (`upstream.parent_auth`).
    pub parent_auth: Option<PathBuf>,
}

/// Who a robots.txt is asked for by: all that such a request takes from a
/// crawler's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Asker {
    /// Where it asks from, if it is not ourselves.
    pub client: Option<IpAddr>,
    /// Its `User-Agent`, as sent.
    pub user_agent: Option<HeaderValue>,
    /// Its `From`, as sent (RFC 9110, section 10.1.2).
    pub from: Option<HeaderValue>,
}

/// What is asked about a robots.txt.
#[derive(Debug, Clone, Copy)]
pub struct RobotsQuery<'a> {
    /// On whose behalf.
    pub asker: &'a Asker,
    /// What need not be sent again (RFC 9110, sections 13.1.2 and 13.1.3);
    /// nothing of the crawler's.
    pub known: Option<&'a Validators>,
}

/// Sends what is permitted, over connections of its own.
pub struct Upstream {
    connector: Connector,
    pool: Arc<Pool>,
    first_byte_timeout: Duration,
    idle_timeout: Duration,
    metrics: Arc<Metrics>,
}

/// A request head and where it goes.
struct Message<'a> {
    target: &'a Target,
    head: &'a Outgoing,
}

/// Whether a connection had an exchange before. One that had may have been
/// closed by the origin while we were writing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Age {
    Fresh,
    Reused,
}

impl Upstream {
    /// An upstream without connections yet.
    ///
    /// # Errors
    ///
    /// [`UpstreamSetupError`] if the roots, or the credentials for a parent,
    /// cannot be read.
    pub fn new(
        options: Options,
        egress: Arc<Egress>,
        metrics: Arc<Metrics>,
        tasks: Tasks,
    ) -> Result<Self, UpstreamSetupError> {
        let mut tls = client_config(options.roots)?;
        if options.http2 {
            tls.alpn_protocols.push(b"h2".to_vec());
        }
        tls.alpn_protocols.push(b"http/1.1".to_vec());
        let credentials = options.parent_auth.as_deref().map(Credentials::read);
        Ok(Self {
            connector: Connector {
                egress,
                tls: TlsConnector::from(Arc::new(tls)),
                credentials: credentials.transpose()?,
                connect_timeout: options.connect_timeout,
                tasks,
            },
            pool: Arc::new(Pool::new(Limits {
                idle_timeout: options.pool_idle_timeout,
                per_origin: options.pool_idle_per_origin,
                total: options.pool_idle_total,
            })),
            first_byte_timeout: options.first_byte_timeout,
            idle_timeout: options.idle_timeout,
            metrics,
        })
    }

    /// Spends a permit: sends `head` and `body` to the permit's URL, in a start
    /// at its host.
    ///
    /// # Errors
    ///
    /// [`UpstreamError`] if no response can be passed on.
    pub async fn forward<B>(
        &self,
        permit: Permit,
        (head, body): (Outgoing, B),
        starts: &mut impl Starts,
    ) -> Result<Response<ResponseBody>, UpstreamError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let message = Message {
            target: permit.target(),
            head: &head,
        };
        self.counted(message, Upload::new(body), starts).await
    }

    /// Spends a robots permit: asks for its URL, in a start at its host.
    pub(crate) async fn robots(
        &self,
        permit: RobotsPermit,
        query: RobotsQuery<'_>,
        starts: &mut impl Starts,
    ) -> Result<Response<ResponseBody>, UpstreamError> {
        let message = Message {
            target: permit.target(),
            head: &robots_head(query),
        };
        let response = self.counted(message, Upload::default(), starts).await?;
        let from_parent = response.extensions().get() == Some(&NextHop::Parent);
        // A parent's "no" must not be taken for an origin without rules.
        if from_parent && is_made_on_the_way(response.status(), response.headers()) {
            return Err(UpstreamError::NoConnection(NoConnection::Parent));
        }
        Ok(response)
    }

    async fn counted(
        &self,
        message: Message<'_>,
        body: Upload,
        starts: &mut impl Starts,
    ) -> Result<Response<ResponseBody>, UpstreamError> {
        let sent = self.send(&message, body, starts).await;
        let result = match &sent {
            Ok(response) => class(response.status().as_u16()),
            Err(error) => error.as_str(),
        };
        self.metrics
            .upstream_requests
            .get_or_create(&ResultLabel { result })
            .inc();
        sent
    }

    /// Sends a request over a free connection or a new one, and once more over
    /// a new one if that does no harm, and its host may be asked again.
    async fn send(
        &self,
        message: &Message<'_>,
        body: Upload,
        starts: &mut impl Starts,
    ) -> Result<Response<ResponseBody>, UpstreamError> {
        let origin = &message.target.origin;
        let (connection, age) = match self.reusable(origin, starts.pause()).await {
            Some(connection) => (connection, Age::Reused),
            None => (self.connect(origin).await?, Age::Fresh),
        };
        let lost = match self.exchange(connection, message, body).await {
            Ok(response) => return Ok(response),
            Err(lost) => lost,
        };
        let body = match lost.again {
            // The host has seen nothing of it, so this start is not over.
            Again::Unsent(body) => body,
            Again::Harmless if age == Age::Reused && starts.again().await => Upload::default(),
            Again::Harmless | Again::Never => return Err(lost.error),
        };
        self.metrics.upstream_retries.inc();
        let connection = self.connect(origin).await?;
        let sent = self.exchange(connection, message, body).await;
        sent.map_err(|lost| lost.error)
    }

    /// A connection that had an exchange before, where `pause` lets it be used
    /// again; else those that wait for it are closed.
    async fn reusable(&self, origin: &Origin, pause: Duration) -> Option<Connection> {
        if REUSE_PAUSE_MAX < pause {
            self.pool.close(origin);
            return None;
        }
        self.free(origin).await
    }

    /// A connection from the pool that can be written to.
    async fn free(&self, origin: &Origin) -> Option<Connection> {
        while let Some(mut connection) = self.pool.take(origin) {
            let ready = match &mut connection.sender {
                Sender::Http1(sender) if sender.is_ready() => true,
                Sender::Http1(sender) => {
                    matches!(timeout(READY_TIMEOUT, sender.ready()).await, Ok(Ok(())))
                }
                Sender::Http2(sender) => sender.is_ready(),
            };
            if ready {
                return Some(connection);
            }
        }
        None
    }

    async fn connect(&self, origin: &Origin) -> Result<Connection, UpstreamError> {
        let connection = self.connector.connect(origin).await?;
        if let Some(shared) = connection.shared() {
            self.pool.put(origin.clone(), shared);
        }
        Ok(connection)
    }

    /// One request and its response head, over one connection.
    async fn exchange(
        &self,
        mut connection: Connection,
        message: &Message<'_>,
        body: Upload,
    ) -> Result<Response<ResponseBody>, Lost> {
        let upload = body.progress();
        let harmless = body.is_end_stream() && message.head.method.is_idempotent();
        let before = connection.received.bytes();
        let answer = match &mut connection.sender {
            Sender::Http1(sender) => {
                let mut request = http1_request(message.target, message.head, body)?;
                if connection.reader == NextHop::Parent {
                    let credentials = self.connector.credentials.as_ref();
                    request = to_parent(request, message.target, credentials)?;
                }
                let received = connection.received.clone();
                let flood = Flood::watch(&mut request, move || received.enough());
                let answer = sender.try_send_request(request);
                self.head_unless(flood, answer, &upload).await
            }
            Sender::Http2(sender) => {
                let request = http2_request(message.target, message.head, body)?;
                let answer = self.head(sender.try_send_request(request), &upload).await;
                answer.map_err(|lost| {
                    let is_flooded = connection.received.is_flooded();
                    if is_flooded { lost.by_flood() } else { lost }
                })
            }
        };
        // On a shared connection the bytes may belong to anyone; that the
        // response has not begun is all there is to know.
        let silent = connection.is_shared() || connection.received.bytes() == before;
        let mut response = answer.map_err(|lost| lost.repeatable_if(harmless && silent))?;
        check_response(&response)?;
        if connection.reader == NextHop::Parent {
            if asks_for_credentials(response.status()) {
                return Err(UpstreamError::NoConnection(NoConnection::ParentCredentials).into());
            }
            response.extensions_mut().insert(NextHop::Parent);
        }
        let lease = self.lease(&message.target.origin, connection, upload);
        Ok(response.map(|incoming| ResponseBody::new(incoming, self.idle_timeout, lease)))
    }

    /// Waits for the head of a response, unless interim ones flood in.
    async fn head_unless(
        &self,
        flood: Flood,
        answer: impl Future<Output = Result<Response<Incoming>, TrySendError<Request<Upload>>>>,
        upload: &Progress,
    ) -> Result<Response<Incoming>, Lost> {
        tokio::select! {
            biased;
            () = flood.noticed() => Err(UpstreamError::InterimResponses.into()),
            answered = self.head(answer, upload) => answered,
        }
    }

    /// Waits for the head of a response; what the crawler uploads meanwhile
    /// starts the time anew.
    async fn head(
        &self,
        answer: impl Future<Output = Result<Response<Incoming>, TrySendError<Request<Upload>>>>,
        upload: &Progress,
    ) -> Result<Response<Incoming>, Lost> {
        let mut answer = std::pin::pin!(answer);
        loop {
            let frames = upload.frames();
            match timeout(self.first_byte_timeout, &mut answer).await {
                Ok(answered) => return answered.map_err(|error| Lost::of(error, upload)),
                Err(_) if frames < upload.frames() => {}
                Err(_) => return Err(UpstreamError::FirstByteTimeout.into()),
            }
        }
    }

    /// How a connection comes back to the pool; one that is shared is there
    /// already.
    fn lease(&self, origin: &Origin, connection: Connection, upload: Progress) -> Option<Lease> {
        (!connection.is_shared()).then(|| Lease {
            pool: Arc::clone(&self.pool),
            origin: origin.clone(),
            connection,
            upload,
        })
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream")
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

/// The head of our own requests. Nothing of the crawler's goes into it but who
/// it is, so that no crawler's credentials shape what another is judged by.
fn robots_head(query: RobotsQuery<'_>) -> Outgoing {
    let RobotsQuery { asker, known } = query;
    let accept = HeaderValue::from_static("text/plain,*/*;q=0.5");
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
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        if let Some(value) = value {
            headers.append(name, value);
        }
    }
    Outgoing {
        method: Method::GET,
        headers,
        host_at: 0,
        form: Form::Url,
        extensions: Extensions::new(),
    }
}

/// The class of a status (RFC 9110, section 15).
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
