//! Connections of clients: serves the requests of one, and of the connection
//! inside each CONNECT on it, until it ends or the server stops.
//!
//! Does not know what is answered to a request; `exchange` does.

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
use super::client_pages::{ClientPage, GuidePages};
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

/// Bytes of a request's head, target and fields together.
// hyper would take 400 KiB, of each of thousands of connections.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Fields of a request.
const FIELDS_MAX: usize = 256;
/// Streams of one HTTP/2 connection.
const STREAMS_MAX: u32 = 100;
/// Bytes that one HTTP/2 stream may receive before they are read.
const STREAM_WINDOW: u32 = 64 * 1024;
/// Bytes that all streams of an HTTP/2 connection may receive before they are
/// read. With fewer, uploads that wait for their turns would keep those that have theirs
/// from going on.
const CONNECTION_WINDOW: u32 = STREAMS_MAX * STREAM_WINDOW;
/// Bytes that one HTTP/2 stream keeps until the client takes them.
const SEND_BUFFER: usize = 64 * 1024;
/// Time that a connection which has lost its place has to write the answers to
/// requests that waited, and to end.
const DISPLACED_GRACE: Duration = Duration::from_secs(2);
/// Streams reset before we answered them; more is an attack (CVE-2023-44487).
const PENDING_RESETS_MAX: usize = 20;
/// Streams that we reset because of the client's errors; more is an attack, too.
const LOCAL_RESETS_MAX: usize = 1024;

/// Event that concerns a connection as a whole.
#[derive(Clone, Copy)]
enum ConnectionSignal {
    /// The server stops, or is about to: the requests that have come are the last.
    Stop,
    /// The server has stopped, and exchanges have no more time.
    Abort,
    /// The client has reset the connection.
    Reset,
    /// Another client has got the place of the connection.
    Displaced,
    /// The time for the first head, or to end without a place, is over.
    Deadline,
    /// Another `proxy.progress_window` is over.
    ProgressTick,
    /// Another `proxy.idle_timeout` is over.
    IdleTick,
}

/// Reaction of a connection to a signal.
enum Reaction {
    GoOn,
    /// The connection ends with the requests that have come.
    Finish,
    /// As `Finish`, within [`DISPLACED_GRACE`].
    FinishSoon,
    /// The connection ends at once, and drops what is under way.
    End,
}

/// Signals that a connection has had.
#[derive(Default)]
struct DriveState {
    is_stopping: bool,
    is_displaced: bool,
    is_past_deadline: bool,
    was_idle: bool,
}

/// A connection of a client, or the one inside a CONNECT.
pub(super) struct ClientConnection {
    slot: Arc<ConnectionSlot>,
    info: ConnectionInfo,
    last_credential: LastCredential,
    header_timeout: Duration,
    idle_timeout: Duration,
    least_progress: MinimumProgress,
}

/// Parts of a connection inside a CONNECT that is about to be opened.
struct Handshake {
    interceptor: Arc<Interceptor>,
    origin: Origin,
    /// Credential that came with the CONNECT.
    credential: Option<VerifiedCredential>,
    /// Label that came with the CONNECT.
    label: Option<CrawlLabel>,
    /// Client whose shares count for it.
    sharer: Arc<Client>,
    share: Share,
}

impl ClientConnection {
    /// Creates a connection of `client`, whose shares are those of `sharer`, with
    /// the time limits in force.
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

    /// Creates the connection inside a CONNECT that came with `credential`, whose
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
                // A client that goes cancels its requests itself over HTTP/2.
                end: match opened.protocol {
                    Protocol::Http1 => inner.info.end,
                    Protocol::Http2 => ClientEnd::default(),
                },
                ..inner.info
            },
            ..inner
        }
    }

    /// Serves the requests of a client that speaks TLS to the proxy.
    pub(super) async fn serve_tls(mut self, socket: Socket) {
        self.info.scheme = Scheme::Https;
        let in_force = self.slot.server.in_force.load_full();
        // A listener with TLS has a certificate, or the configuration is refused.
        let Some(tls) = in_force.tls.clone() else {
            return;
        };
        let Ok(share) = self.handshake_share(&in_force, &self.info.sharer).await else {
            return;
        };
        // It may be replaced before this connection ends.
        drop(in_force);
        let accepted = tokio::select! {
            // No request has come yet, so neither a stop nor a client that holds
            // less need wait.
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

    /// Serves the requests of `stream` to its end.
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
                // One after the other: hyper starts a request when the one before
                // was answered.
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

    /// Runs a connection to its end: its own, a signal to stop, a first head
    /// that does not come, idleness, or the loss of its place. `finish` lets it end
    /// with the requests that have come.
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
                    // Not before a request came and another signal did: most
                    // connections are over by then, and need no timer for it.
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
                Reaction::GoOn => {}
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
                    Reaction::GoOn
                }
            }
            ConnectionSignal::ProgressTick => {
                if !self
                    .info
                    .activity
                    .progress
                    .cut_if_slow(self.least_progress.bytes)
                {
                    return Reaction::GoOn;
                }
                count_slow(&self.slot.server.metrics, "response");
                Reaction::End
            }
            ConnectionSignal::IdleTick => {
                let is_idle = self.info.activity.is_idle();
                match (std::mem::replace(&mut state.was_idle, is_idle), is_idle) {
                    // Asked to finish, and still there: the client reads nothing
                    // more, or answers no PING.
                    (true, true) => self.cut(CutReason::Idle),
                    (false, true) => Reaction::Finish,
                    (_, false) => Reaction::GoOn,
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

    /// Has the connection end once `response` and what else has been asked for are
    /// answered.
    ///
    /// Not before a request: a client that was told so before its first would open
    /// another connection, and be told so again, until a balancer sends it elsewhere.
    fn end_after(&self, protocol: Protocol, response: &mut Response<ProxyBody>) {
        match protocol {
            Protocol::Http1 => {
                // What is inside a CONNECT, or a WebSocket, ends by itself.
                let status = response.status();
                if status != StatusCode::SWITCHING_PROTOCOLS && !self.info.activity.has_no_heads() {
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(CONNECTION, close);
                }
            }
            Protocol::Http2 => self.info.activity.finish.notify_one(),
        }
    }

    /// Reports whether a request is for a page of the proxy itself. Inside CONNECT none
    /// is.
    fn is_for_own_page(&self, request: &Request<Incoming>, in_force: &ActiveConfig) -> bool {
        let own = in_force.proxy.options.request.own_name.as_ref();
        let is_outside = self.info.opened_for.is_none();
        is_outside && own.is_some_and(|own| own_path(own, request).is_some())
    }

    /// Answers a request for a page of the proxy itself, which takes no decision and
    /// leaves no row: no site is asked for anything.
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
        let pages = GuidePages {
            proxies: reached.into_iter().collect(),
            ca: in_force.interceptor.as_deref().map(Interceptor::ca),
        };
        let result = page.map_or("not_found", ClientPage::as_str);
        let counted = &in_force.proxy.metrics.own_pages;
        counted.get_or_create(&ResultLabel { result }).inc();
        let name = &in_force.proxy.options.request.fields.name;
        own_name::answer(request, page, &pages, name)
    }

    /// Returns the client whose share counts for requests with `credential`.
    fn sharer(&self, credential: Option<&VerifiedCredential>) -> Arc<Client> {
        match credential {
            Some(shown) => self.slot.server.clients.crawler(shown.name()),
            None => Arc::clone(&self.info.sharer),
        }
    }

    /// Returns the credential of a request whose client may use this proxy.
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
        // Inside CONNECT, the field would be for another proxy.
        let credential = if self.info.opened_for.is_some() {
            credentials.still_valid(self.info.credential.as_ref())
        } else {
            credentials.verify(request.headers(), &self.last_credential)
        }?;
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
                // The bytes of the connection inside must not be taken for a head
                // that is late.
                self.info.activity.end_heads();
                self.open(request, handshake);
                Response::new(ProxyBody::whole(""))
            }
            Err(problem) => in_force
                .proxy
                .turn_away(&problem, &request, self.info.client),
        }
    }

    /// Takes a share of the handshakes that are under way.
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
        // From its first moment: most that hold many never send anything.
        share.may_be_displaced(true);
        Ok(share)
    }

    /// Prepares the opening of the connection inside a CONNECT.
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

    /// Reads the origin that a CONNECT is for.
    fn connect_target(&self, request: &Request<Incoming>) -> Result<Origin, MalformedRequest> {
        // Some clients leave `Host` out, and the target says it all.
        if request.headers().contains_key(HOST) {
            only_host(request.headers())?;
        }
        let uri = request.uri();
        let is_connect = uri.scheme().is_none()
            && self.info.opened_for.is_none()
            && request.body().is_end_stream();
        match uri.authority().filter(|_| is_connect) {
            // Also to the proxy's own name: clients read no answer but 200 here, and
            // every request inside is misdirected.
            Some(authority) => Ok(connect::authority(authority.as_str())?),
            None => Err(MalformedRequest::Connect),
        }
    }

    /// Serves the connection inside a CONNECT, in a task of its own, once the
    /// client has its 200.
    fn open(self: &Arc<Self>, request: Request<Incoming>, handshake: Handshake) {
        let outer = Arc::clone(self);
        let upgrade = hyper::upgrade::on(request);
        let inside = async move {
            // No request has come inside yet, so neither a stop nor a client that
            // holds less need wait.
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
            // An interceptor of an earlier configuration must not live as long
            // as the connections that it opened.
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

    /// Logs that the client has lost a place at the limit `key`.
    fn report_displaced(&self, key: &str) {
        tracing::warn!(
            target: REPEATING,
            client = %self.info.client,
            "{key} are in use, and a client that holds fewer takes the place of one"
        );
    }

    /// Counts and logs why no request could be read from inside a CONNECT.
    fn report(&self, error: &ConnectError) {
        let client = self.info.client;
        let cause = std::error::Error::source(error).map(tracing::field::display);
        if let (Some(tally), ConnectError::Handshake { .. }) = (&self.info.tally, error) {
            tally.add_failed_handshake();
        }
        // Lines are throttled by where they stand in the code: those about
        // clients must not hide one about us.
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

/// Keeps credentials out of what is ever shown of a message.
fn hide_credentials(fields: &mut HeaderMap) {
    // Most requests have none, and looking for a place to write may make the map
    // grow.
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
        // hyper counts from the end of the last exchange, so for all heads but
        // the first this is the limit of idleness, too.
        .header_read_timeout(idle_timeout)
        // A client that closes its sending side after a request still wants the
        // answer.
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

/// Order in which the requests of one connection start: that of their arrival.
///
/// Each HTTP/2 stream is a task of its own, and tasks run in any order. But a
/// request must take its place in a queue before the one that came after it.
#[derive(Debug, Default)]
struct StartOrder {
    latest: Mutex<Option<Receiver<()>>>,
}

/// A request that starts after the one that came before it has.
#[derive(Debug)]
struct OrderedStart<F> {
    request: Pin<Box<F>>,
    /// Closed when the request before has started, or is gone.
    before: Option<Receiver<()>>,
    /// Lets the next request start when it is dropped.
    started: Option<Sender<()>>,
}

impl StartOrder {
    /// Returns `request` as the next one to start.
    fn next<F: Future>(&self, request: F) -> OrderedStart<F> {
        let (started, latest) = oneshot::channel();
        let mut place = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        OrderedStart {
            request: Box::pin(request),
            before: place.replace(latest),
            started: Some(started),
        }
    }
}

impl<F: Future> Future for OrderedStart<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if let Some(before) = &mut self.before {
            // Nothing is ever sent: the channel only closes.
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

    // Ours: whatever prints a message later.
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

    /// Polls each of these once, in this order.
    async fn poll_once<F: Future + Unpin>(several: &mut [F]) {
        poll_fn(|task| {
            for one in &mut *several {
                let _ = Pin::new(one).poll(task);
            }
            Poll::Ready(())
        })
        .await;
    }

    // Ours: order within a crawler.
    #[tokio::test]
    async fn whatever_is_polled_first_begins_in_its_turn() {
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

    // Ours: a request that is gone holds up no other.
    #[tokio::test]
    async fn a_request_that_is_gone_is_passed_over() {
        let order = StartOrder::default();
        let first = order.next(pending::<u8>());
        let second = order.next(async { 2 });
        drop(first);
        assert_eq!(second.await, 2);
    }
}
