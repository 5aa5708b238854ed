//! Client connections: serves the requests on a connection, and those on the connection
//! inside each CONNECT, until the connection ends or the server stops.
//!
//! Does not know how a request is answered; `exchange` does.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::{CONNECTION, Entry, HOST, PROXY_AUTHORIZATION};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot::{self, Receiver, Sender};
use tokio_util::io::InspectWriter;

use super::body::ProxyBody;
use super::client_pages::{ClientPage, ClientPages};
use super::connect::{self, ConnectError, InnerConnection, Interceptor, LeafShares, Protocol};
use super::credentials::{CredentialError, LastCredential, VerifiedCredential};
use super::fields;
use super::head_timer::HeadTimer;
use super::own_name::{self, own_path, page_at};
use super::problem::{MalformedRequest, Problem};
use super::progress::{MinimumProgress, StreamTasks, count_slow};
use super::request::{ConnectionInfo, only_host};
use super::server::{ActiveConfig, ConnectionSlot};
use super::socket::{ClientEnd, CutReason, ListenAddress, Socket};
use politesse_base::clients::client::Client;
use politesse_base::clients::shares::Share;
use politesse_base::clock;
use politesse_base::metrics::ResultLabel;
use politesse_base::tasks::OwnWakes;
use politesse_base::throttle::REPEATING;
use politesse_decision::label::CrawlLabel;
use politesse_robots::origin::{Origin, Scheme};

/// Maximum size of a request head in bytes: target and fields together.
// hyper's default is 400 KiB, which is too much for each of thousands of connections.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of fields in a request.
const FIELDS_MAX: usize = 256;
/// Maximum number of concurrent streams on an HTTP/2 connection.
const STREAMS_MAX: u32 = 100;
/// Receive window of an HTTP/2 stream, in bytes.
const STREAM_WINDOW: u32 = 64 * 1024;
/// Receive window of an HTTP/2 connection, in bytes. With a smaller window, uploads that
/// wait for their turns would block uploads that already have theirs.
const CONNECTION_WINDOW: u32 = STREAMS_MAX * STREAM_WINDOW;
/// Bytes buffered for an HTTP/2 stream until the client reads them.
const SEND_BUFFER: usize = 64 * 1024;
/// Time that a displaced connection has to answer its waiting requests and end.
const DISPLACED_GRACE: Duration = Duration::from_secs(2);
/// Maximum number of streams that the client resets before they are answered. More is an
/// attack (CVE-2023-44487).
const PENDING_RESETS_MAX: usize = 20;
/// Maximum number of streams that the proxy resets because of client errors. More is an
/// attack, too.
const LOCAL_RESETS_MAX: usize = 1024;

/// Event that concerns a connection as a whole.
#[derive(Clone, Copy)]
enum ConnectionSignal {
    /// The server stops or drains, so the requests received so far are the last.
    Stop,
    /// The server has stopped, and the time granted to exchanges is over.
    Abort,
    /// The client has reset the connection.
    Reset,
    /// Another client has taken the place of this connection.
    Displaced,
    /// The time limit for the first head has passed, or the time limit for ending after
    /// displacement.
    Deadline,
    /// Another `proxy.progress_window` has passed.
    ProgressTick,
    /// Another `proxy.idle_timeout` has passed.
    IdleTick,
}

/// Reaction of a connection to a signal.
enum Reaction {
    /// The connection continues.
    Continue,
    /// The connection ends after the requests received so far.
    Finish,
    /// Like `Finish`, but within [`DISPLACED_GRACE`].
    FinishSoon,
    /// The connection ends at once and drops its exchanges.
    End,
}

/// Signals that a connection has received so far.
#[derive(Default)]
struct DriveState {
    /// Whether the server is stopping or draining.
    is_stopping: bool,
    /// Whether another client has taken the connection's place.
    is_displaced: bool,
    /// Whether the current deadline ([`ConnectionSignal::Deadline`]) has passed.
    is_past_deadline: bool,
    /// Whether the connection was idle at the previous idle tick.
    was_idle: bool,
}

/// A client connection, or the connection inside a CONNECT.
pub(super) struct ClientConnection {
    /// Slot within the limit on connections.
    slot: Arc<ConnectionSlot>,
    /// Facts about the connection that its requests share.
    info: ConnectionInfo,
    /// Credential that was verified last, to be recognised without verifying it again.
    last_credential: LastCredential,
    /// `proxy.header_timeout`.
    header_timeout: Duration,
    /// `proxy.idle_timeout`.
    idle_timeout: Duration,
    /// Minimum that the client must send or take (`proxy.min_progress`).
    least_progress: MinimumProgress,
}

/// Preparations for the connection inside a CONNECT, made before it is opened.
struct Handshake {
    /// Carries out the TLS handshake.
    interceptor: Arc<Interceptor>,
    /// Origin that the CONNECT names.
    origin: Origin,
    /// Credential sent with the CONNECT.
    credential: Option<VerifiedCredential>,
    /// Label sent with the CONNECT.
    label: Option<CrawlLabel>,
    /// Client that the connection's shares are charged to.
    sharer: Arc<Client>,
    /// Share of the client's handshakes.
    share: Share,
}

impl ClientConnection {
    /// Creates a connection of `client` with the current time limits. Its shares are
    /// charged to `sharer`.
    pub(super) fn new(slot: Arc<ConnectionSlot>, client: IpAddr, sharer: Arc<Client>) -> Self {
        let in_force = slot.server.in_force.load_full();
        Self {
            info: ConnectionInfo {
                client,
                sharer,
                scheme: Scheme::Http,
                place: Arc::clone(&slot.place),
                opened_for: None,
                credential: None,
                end: slot.client_end.clone(),
                label: slot.group.crawl.label.clone(),
                purposes: slot.group.crawl.purposes,
                tally: slot.group.tally.clone(),
                latest_origin: Arc::default(),
                private: Arc::default(),
                activity: Arc::default(),
            },
            slot,
            last_credential: LastCredential::default(),
            header_timeout: in_force.options.header_timeout,
            idle_timeout: in_force.options.idle_timeout,
            least_progress: in_force.options.least_progress,
        }
    }

    /// Creates the connection inside a CONNECT that was sent with `credential`. Its
    /// requests are recorded under `label`.
    fn inside(
        outer: &Self,
        opened: &InnerConnection,
        credential: Option<VerifiedCredential>,
        label: Option<CrawlLabel>,
    ) -> Self {
        let sharer = outer.sharer(credential.as_ref());
        let inner = Self::new(Arc::clone(&outer.slot), outer.info.client, sharer);
        Self {
            info: ConnectionInfo {
                opened_for: Some(opened.origin.clone()),
                credential,
                label,
                // An HTTP/2 client that gives up cancels each request itself.
                end: match opened.protocol {
                    Protocol::Http1 => inner.info.end,
                    Protocol::Http2 => ClientEnd::default(),
                },
                ..inner.info
            },
            ..inner
        }
    }

    /// Serves the requests of a client that uses TLS to the proxy.
    pub(super) async fn serve_tls(mut self, socket: Socket) {
        self.info.scheme = Scheme::Https;
        let in_force = self.slot.server.in_force.load_full();
        // Configurations with a TLS listener but no certificate are refused at load.
        let Some(tls) = in_force.tls.clone() else {
            return;
        };
        let Ok(share) = self.handshake_share(&in_force, &self.info.sharer).await else {
            return;
        };
        // A reload may replace the configuration before this connection ends.
        drop(in_force);
        let accepted = tokio::select! {
            // No request has arrived yet, so both a stop and a client that holds fewer
            // shares can end this connection at once.
            () = self.slot.group.stop.cancelled() => return,
            () = self.slot.place.displaced() => return,
            () = share.displaced() => return self.report_displaced("proxy.max_handshakes"),
            accepted = tls.accept(socket, self.header_timeout) => accepted,
        };
        drop(share);
        match accepted {
            Ok(stream) => self.serve(stream, Protocol::Http1).await,
            Err(error) => {
                let client = self.info.client;
                let cause = std::error::Error::source(&error).map(tracing::field::display);
                tracing::warn!(target: REPEATING, %client, cause, "{error}");
                self.slot.server.metrics.tls_handshake_failures.inc();
            }
        }
    }

    /// Serves requests on `stream` until the connection ends.
    pub(super) async fn serve<S>(self, stream: S, protocol: Protocol)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let this = Arc::new(self);
        let served = Arc::clone(&this);
        let respond = move |request| {
            let connection = Arc::clone(&served);
            let waiting = connection.info.activity.begin_request();
            async move {
                let mut response = connection.respond(request).await;
                if connection.slot.server.is_draining() {
                    connection.end_after(protocol, &mut response);
                }
                drop(waiting);
                let activity = Arc::clone(&connection.info.activity);
                Ok::<_, Infallible>(response.map(|body| body.watched_by(activity)))
            }
        };
        match protocol {
            Protocol::Http1 => {
                let server = Arc::clone(&this.slot.server);
                let activity = Arc::clone(&this.info.activity);
                let io = TokioIo::new(HeadTimer::new(
                    stream,
                    server,
                    activity,
                    this.header_timeout,
                ));
                // Requests run one at a time: hyper starts a request after the response
                // to the previous one.
                let connection = http1_builder(this.idle_timeout)
                    .serve_connection(io, service_fn(respond))
                    .with_upgrades();
                this.drive(pin!(connection), |connection| {
                    connection.graceful_shutdown();
                })
                .await;
            }
            Protocol::Http2 => {
                let server = &this.slot.server;
                let tasks = StreamTasks {
                    tasks: server.tasks.clone(),
                    least: this.least_progress,
                    metrics: Arc::clone(&server.metrics),
                };
                let activity = Arc::clone(&this.info.activity);
                let count = move |bytes: &[u8]| activity.add_written(bytes.len());
                let io = TokioIo::new(InspectWriter::new(stream, count));
                let order = StartOrder::default();
                let service = service_fn(move |request| order.next(respond(request)));
                let connection = http2_builder(tasks).serve_connection(io, service);
                this.drive(pin!(connection), |connection| {
                    connection.graceful_shutdown();
                })
                .await;
            }
        }
    }

    /// Runs a connection until it ends: by itself, or because of a stop signal, a missing
    /// first head, idleness or displacement. `finish` makes it end after the requests
    /// received so far.
    async fn drive<C, E>(&self, mut connection: Pin<&mut C>, finish: fn(Pin<&mut C>))
    where
        C: Future<Output = Result<(), E>>,
        E: std::error::Error,
    {
        let group = &self.slot.group;
        let mut stop = pin!(async {
            tokio::select! {
                () = group.stop.cancelled() => {}
                () = self.info.activity.finish.notified() => {}
            }
        });
        let mut abort = pin!(group.abort.cancelled());
        let mut reset = pin!(self.slot.client_end.reset());
        let mut displaced = pin!(self.slot.place.displaced());
        let mut deadline = pin!(tokio::time::sleep(self.header_timeout));
        let mut progress = tokio::time::interval(self.least_progress.window);
        progress.reset();
        let mut idle = tokio::time::interval(self.idle_timeout);
        idle.reset();
        let mut state = DriveState::default();
        let mut wakes = OwnWakes::default();
        loop {
            let next = poll_fn(|cx| {
                wakes.poll(cx, |cx| {
                    if abort.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(ConnectionSignal::Abort);
                    }
                    if reset.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(ConnectionSignal::Reset);
                    }
                    if !state.is_stopping && stop.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(ConnectionSignal::Stop);
                    }
                    if !state.is_displaced && displaced.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(ConnectionSignal::Displaced);
                    }
                    if !state.is_past_deadline && deadline.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(ConnectionSignal::Deadline);
                    }
                    // The ticks are polled last, and progress only after a request has
                    // arrived. Most connections are over by then and never need the
                    // timer.
                    if self.info.activity.has_begun() && progress.poll_tick(cx).is_ready() {
                        return Poll::Ready(ConnectionSignal::ProgressTick);
                    }
                    idle.poll_tick(cx).map(|_| ConnectionSignal::IdleTick)
                })
            });
            let signal = tokio::select! {
                biased;
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a crawler's connection ended badly");
                    }
                    return;
                }
                signal = next => signal,
            };
            match self.react(signal, &mut state) {
                Reaction::Continue => {}
                Reaction::Finish => finish(connection.as_mut()),
                Reaction::FinishSoon => {
                    finish(connection.as_mut());
                    deadline.as_mut().reset(clock::instant() + DISPLACED_GRACE);
                }
                Reaction::End => return,
            }
        }
    }

    fn react(&self, signal: ConnectionSignal, state: &mut DriveState) -> Reaction {
        match signal {
            ConnectionSignal::Abort => self.cut(CutReason::Stop),
            ConnectionSignal::Reset => Reaction::End,
            ConnectionSignal::Stop => {
                state.is_stopping = true;
                Reaction::Finish
            }
            ConnectionSignal::Displaced => {
                state.is_displaced = true;
                state.is_past_deadline = false;
                self.report_displaced("proxy.max_connections");
                if self.info.activity.has_begun() {
                    Reaction::FinishSoon
                } else {
                    Reaction::End
                }
            }
            ConnectionSignal::Deadline => {
                state.is_past_deadline = true;
                let is_silent =
                    !self.info.activity.has_begun() && !self.info.activity.has_half_head();
                if state.is_displaced {
                    self.cut(CutReason::Displaced)
                } else if is_silent {
                    Reaction::End
                } else {
                    Reaction::Continue
                }
            }
            ConnectionSignal::ProgressTick => {
                if !self
                    .info
                    .activity
                    .progress
                    .cut_if_slow(self.least_progress.bytes)
                {
                    return Reaction::Continue;
                }
                count_slow(&self.slot.server.metrics, "response");
                Reaction::End
            }
            ConnectionSignal::IdleTick => {
                let is_idle = self.info.activity.is_idle();
                match (std::mem::replace(&mut state.was_idle, is_idle), is_idle) {
                    // It was asked to finish but is still open, so the client neither
                    // reads nor answers a PING.
                    (true, true) => self.cut(CutReason::Idle),
                    (false, true) => Reaction::Finish,
                    (_, false) => Reaction::Continue,
                }
            }
        }
    }

    fn cut(&self, reason: CutReason) -> Reaction {
        self.info.activity.note_cut(reason);
        Reaction::End
    }

    async fn respond(self: &Arc<Self>, mut request: Request<Incoming>) -> Response<ProxyBody> {
        let in_force = self.slot.server.in_force.load_full();
        hide_credentials(request.headers_mut());
        match self.admit(&request, &in_force) {
            Err(problem) => {
                let client = self.info.client;
                in_force.proxy.turn_away(&problem, &request, client)
            }
            Ok(_) if self.is_for_own_page(&request, &in_force) => {
                self.answer_own_page(&request, &in_force)
            }
            Ok(credential) if request.method() == Method::CONNECT => {
                self.answer_connect(request, &in_force, credential).await
            }
            Ok(credential) if credential != self.info.credential => {
                let proved = ConnectionInfo {
                    sharer: self.sharer(credential.as_ref()),
                    credential,
                    ..self.info.clone()
                };
                in_force.proxy.exchange(request, &proved).await
            }
            Ok(_) => in_force.proxy.exchange(request, &self.info).await,
        }
    }

    /// Makes the connection end after `response` and the other requests received so far.
    ///
    /// The close is announced with a response, never before the first request. Otherwise
    /// the client would reconnect and be turned away again, until a load balancer sends
    /// it elsewhere.
    fn end_after(&self, protocol: Protocol, response: &mut Response<ProxyBody>) {
        match protocol {
            Protocol::Http1 => {
                // A CONNECT or a WebSocket ends by itself.
                let status = response.status();
                if status != StatusCode::SWITCHING_PROTOCOLS && !self.info.activity.has_no_heads() {
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(CONNECTION, close);
                }
            }
            Protocol::Http2 => self.info.activity.finish.notify_one(),
        }
    }

    /// Reports whether a request is for a page of the proxy itself. Requests inside a
    /// CONNECT never are.
    fn is_for_own_page(&self, request: &Request<Incoming>, in_force: &ActiveConfig) -> bool {
        let own = in_force.proxy.options.request.own_name.as_ref();
        let is_outside = self.info.opened_for.is_none();
        is_outside && own.is_some_and(|own| own_path(own, request).is_some())
    }

    /// Answers a request for a page of the proxy itself. No site is contacted, so there
    /// is no decision and no record row.
    fn answer_own_page(
        &self,
        request: &Request<Incoming>,
        in_force: &ActiveConfig,
    ) -> Response<ProxyBody> {
        let page = page_at(
            request
                .uri()
                .path_and_query()
                .map_or("/", PathAndQuery::as_str),
        );
        let local = self.info.end.local_address();
        let reached = local.map(|local| ListenAddress {
            scheme: self.info.scheme,
            address: SocketAddr::new(local.ip().to_canonical(), local.port()),
        });
        let pages = ClientPages {
            proxies: reached.into_iter().collect(),
            ca: in_force.interceptor.as_deref().map(Interceptor::ca),
        };
        let result = page.map_or("not_found", ClientPage::as_str);
        let counted = &in_force.proxy.metrics.own_pages;
        counted.get_or_create(&ResultLabel { result }).inc();
        let name = &in_force.proxy.options.request.fields.name;
        own_name::answer(request, page, &pages, name)
    }

    /// Returns the client that requests with `credential` are charged to.
    fn sharer(&self, credential: Option<&VerifiedCredential>) -> Arc<Client> {
        match credential {
            Some(shown) => self.slot.server.clients.crawler(shown.name()),
            None => Arc::clone(&self.info.sharer),
        }
    }

    /// Checks that the client may use this proxy and returns the credential of the
    /// request, if any.
    fn admit(
        &self,
        request: &Request<Incoming>,
        in_force: &ActiveConfig,
    ) -> Result<Option<VerifiedCredential>, Problem> {
        // `proxy.clients` may have changed since the client connected.
        if !self.slot.group.admits(self.info.client, &in_force.options) {
            return Err(Problem::Client);
        }
        let credentials = &in_force.proxy.crawlers.credentials;
        // Inside a CONNECT, a `Proxy-Authorization` field would be meant for another proxy,
        // so the credential of the CONNECT counts.
        let credential = if self.info.opened_for.is_none() {
            credentials.verify(request.headers(), &self.last_credential)?
        } else if let Some(of_connect) = &self.info.credential {
            credentials.recheck(of_connect)?
        } else {
            None
        };
        let is_wanted = !credentials.are_optional() && !self.slot.group.is_loopback_only;
        if is_wanted && credential.is_none() {
            return Err(CredentialError::Missing.into());
        }
        Ok(credential)
    }

    async fn answer_connect(
        self: &Arc<Self>,
        request: Request<Incoming>,
        in_force: &ActiveConfig,
        credential: Option<VerifiedCredential>,
    ) -> Response<ProxyBody> {
        match self.handshake(&request, in_force, credential).await {
            Ok(handshake) => {
                // Otherwise the bytes of the inner connection would be taken for an
                // overdue head.
                self.info.activity.end_heads();
                self.open(request, handshake);
                Response::new(ProxyBody::whole(""))
            }
            Err(problem) => in_force
                .proxy
                .turn_away(&problem, &request, self.info.client),
        }
    }

    /// Takes one of the shares in TLS handshakes, waiting at most `place_wait`.
    async fn handshake_share(
        &self,
        in_force: &ActiveConfig,
        sharer: &Arc<Client>,
    ) -> Result<Share, Problem> {
        let handshakes = &self.slot.server.entry.handshakes;
        let taken = handshakes.take_within(sharer, in_force.proxy.options.place_wait);
        let share = taken.await.map_err(|refusal| Problem::Overload {
            key: "proxy.max_handshakes",
            refusal,
        })?;
        // Displaceable from the start: most clients that hold many handshakes never send
        // anything.
        share.may_be_displaced(true);
        Ok(share)
    }

    /// Checks a CONNECT request and takes a handshake share for the connection inside it.
    async fn handshake(
        &self,
        request: &Request<Incoming>,
        in_force: &ActiveConfig,
        credential: Option<VerifiedCredential>,
    ) -> Result<Handshake, Problem> {
        let Some(interceptor) = &in_force.interceptor else {
            return Err(Problem::ConnectRefused);
        };
        let origin = self.connect_target(request)?;
        let label = fields::crawl_label(request.headers()).map_err(MalformedRequest::Label)?;
        let sharer = self.sharer(credential.as_ref());
        let share = self.handshake_share(in_force, &sharer).await?;
        Ok(Handshake {
            interceptor: Arc::clone(interceptor),
            origin,
            credential,
            label: label.or_else(|| self.info.label.clone()),
            sharer,
            share,
        })
    }

    /// Returns the origin that a CONNECT names.
    fn connect_target(&self, request: &Request<Incoming>) -> Result<Origin, MalformedRequest> {
        // Some clients omit `Host`. The target alone identifies the origin.
        if request.headers().contains_key(HOST) {
            only_host(request.headers())?;
        }
        let uri = request.uri();
        let is_connect = uri.scheme().is_none()
            && self.info.opened_for.is_none()
            && request.body().is_end_stream();
        match uri.authority().filter(|_| is_connect) {
            // The proxy's own name is accepted here as well: clients cannot read any
            // answer to CONNECT but 200. Requests inside are then refused as misdirected.
            Some(authority) => Ok(connect::authority(authority.as_str())?),
            None => Err(MalformedRequest::Connect),
        }
    }

    /// Spawns a task that serves the connection inside a CONNECT once the client has
    /// received its 200.
    fn open(self: &Arc<Self>, request: Request<Incoming>, handshake: Handshake) {
        let outer = Arc::clone(self);
        let upgrade = hyper::upgrade::on(request);
        let inside = async move {
            // No request has arrived inside yet, so both a stop and a client that holds
            // fewer shares can end this connection at once.
            let leaves = LeafShares {
                shares: &outer.slot.server.entry.leaves,
                client: &handshake.sharer,
            };
            let interceptor = handshake.interceptor;
            let opened = tokio::select! {
                () = outer.slot.group.stop.cancelled() => return,
                () = outer.slot.place.displaced() => return,
                () = handshake.share.displaced() => {
                    return outer.report_displaced("proxy.max_handshakes");
                }
                opened = interceptor.open(upgrade, handshake.origin, leaves) => opened,
            };
            // Otherwise the connection would keep the interceptor of a replaced
            // configuration alive.
            drop(interceptor);
            drop(handshake.share);
            match opened {
                Ok(inner) => {
                    let (credential, label) = (handshake.credential, handshake.label);
                    outer.serve_inside(inner, credential, label).await;
                }
                Err(error) => outer.report(&error),
            }
        };
        // Boxed, because serving a connection may serve one inside it.
        let boxed: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(inside);
        self.slot.server.tasks.0.spawn(boxed);
    }

    async fn serve_inside(
        &self,
        inner: InnerConnection,
        credential: Option<VerifiedCredential>,
        label: Option<CrawlLabel>,
    ) {
        let host = inner.origin.host().to_string();
        Self::inside(self, &inner, credential, label)
            .serve(inner.stream, inner.protocol)
            .await;
        if let Some(source) = inner.refusal.get().copied() {
            self.report(&ConnectError::Foreign { host, source });
        }
    }

    /// Logs that the client has lost a place counted by the limit `key`.
    fn report_displaced(&self, key: &str) {
        tracing::warn!(
            target: REPEATING,
            client = %self.info.client,
            "{key} is reached; a client that holds fewer takes one of the places"
        );
    }

    /// Counts and logs the error that kept the connection inside a CONNECT from carrying
    /// requests.
    fn report(&self, error: &ConnectError) {
        let client = self.info.client;
        let cause = std::error::Error::source(error).map(tracing::field::display);
        if let (Some(tally), ConnectError::Handshake { .. }) = (&self.info.tally, error) {
            tally.add_failed_handshake();
        }
        // Log lines are throttled per call site. Errors caused by clients must not
        // suppress those that are our own fault.
        match error {
            ConnectError::Foreign { .. } => {
                tracing::warn!(target: REPEATING, %client, cause, "{error}");
                return self.slot.server.count_refused("protocol");
            }
            ConnectError::Leaf { .. } => {
                tracing::error!(target: REPEATING, %client, cause, "{error}");
            }
            ConnectError::Upgrade(_)
            | ConnectError::Timeout
            | ConnectError::Broken(_)
            | ConnectError::Overload { .. }
            | ConnectError::Handshake { .. }
            | ConnectError::ServerName { .. } => {
                tracing::warn!(target: REPEATING, %client, cause, "{error}");
            }
        }
        self.slot.server.metrics.tls_handshake_failures.inc();
    }
}

/// Marks credentials as sensitive, so that no log or debug output shows them.
fn hide_credentials(fields: &mut HeaderMap) {
    // Most requests have none, and `entry` may grow the map even if the field is absent.
    if fields.contains_key(PROXY_AUTHORIZATION)
        && let Entry::Occupied(mut field) = fields.entry(PROXY_AUTHORIZATION)
    {
        field.iter_mut().for_each(|value| value.set_sensitive(true));
    }
}

fn http1_builder(idle_timeout: Duration) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // hyper measures from the end of the previous exchange. For all heads but the
        // first, this is therefore also the idle timeout.
        .header_read_timeout(idle_timeout)
        // A half-closed client still expects the answer to its request.
        .half_close(true)
        .preserve_header_case(true)
        .title_case_headers(true)
        .auto_date_header(false)
        .max_headers(FIELDS_MAX)
        .max_buf_size(HEAD_BYTES_MAX);
    builder
}

fn http2_builder(tasks: StreamTasks) -> http2::Builder<StreamTasks> {
    let mut builder = http2::Builder::new(tasks);
    builder
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_local_error_reset_streams(LOCAL_RESETS_MAX);
    builder
}

/// Start order of the requests on one connection: the order in which they arrived.
///
/// Each HTTP/2 stream is a separate task, and tasks run in any order. A request must
/// nevertheless take its place in a queue before any later one.
#[derive(Debug, Default)]
struct StartOrder {
    /// Receiver that is closed when the latest request has started.
    latest: Mutex<Option<Receiver<()>>>,
}

/// A request that starts only after the previous request has started.
#[derive(Debug)]
struct OrderedStart<F> {
    /// The request, not polled before its start.
    request: Pin<Box<F>>,
    /// Closed when the previous request has started or was dropped.
    before: Option<Receiver<()>>,
    /// Lets the next request start when dropped.
    started: Option<Sender<()>>,
}

impl StartOrder {
    /// Wraps `request` so that it starts after all earlier ones.
    fn next<F: Future>(&self, request: F) -> OrderedStart<F> {
        let (started, latest) = oneshot::channel();
        let mut previous = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        OrderedStart {
            request: Box::pin(request),
            before: previous.replace(latest),
            started: Some(started),
        }
    }
}

impl<F: Future> Future for OrderedStart<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if let Some(before) = &mut self.before {
            // The channel never carries a value: it only closes.
            let _ = ready!(Pin::new(before).poll(cx));
            self.before = None;
        }
        let polled = self.request.as_mut().poll(cx);
        self.started = None;
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::pending;

    use super::*;

    // Ours: no later debug output can show a credential.
    #[test]
    fn a_credential_in_a_field_is_not_shown() {
        let mut fields = HeaderMap::new();
        for value in ["Basic c2VjcmV0", "Bearer secret"] {
            fields.append(PROXY_AUTHORIZATION, value.parse().unwrap());
        }
        fields.insert("x-other", "shown".parse().unwrap());
        hide_credentials(&mut fields);
        let text = format!("{fields:?}");
        assert!(text.contains("shown"), "{text}");
        assert!(
            !text.contains("c2VjcmV0") && !text.contains("secret"),
            "{text}"
        );
    }

    /// Polls each future once, in this order.
    async fn poll_once<F: Future + Unpin>(several: &mut [F]) {
        poll_fn(|task| {
            for one in &mut *several {
                let _ = Pin::new(one).poll(task);
            }
            Poll::Ready(())
        })
        .await;
    }

    // Ours: requests of a crawler keep their order.
    #[tokio::test]
    async fn requests_start_in_arrival_order_even_if_polled_in_reverse() {
        let (order, begun) = (StartOrder::default(), RefCell::new(Vec::new()));
        let begin = |number| {
            let begun = &begun;
            order.next(async move {
                begun.borrow_mut().push(number);
                pending::<()>().await;
            })
        };
        let mut requests = [1, 2, 3].map(begin);
        requests.reverse();
        for _ in 0..3 {
            poll_once(&mut requests).await;
        }
        assert_eq!(*begun.borrow(), [1, 2, 3]);
    }

    // Ours: a dropped request does not block the next one.
    #[tokio::test]
    async fn a_dropped_request_does_not_block_the_next_one() {
        let order = StartOrder::default();
        let first = order.next(pending::<u8>());
        let second = order.next(async { 2 });
        drop(first);
        assert_eq!(second.await, 2);
    }
}
