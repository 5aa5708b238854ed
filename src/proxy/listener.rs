//! Accepting crawlers, within limits, and serving what they send until told to
//! stop.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::HOST;
use http::{Method, Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ipnet::IpNet;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::activity::ConnectionActivity;
use super::body::ProxyBody;
use super::connect::{self, ConnectError, Interceptor, Protocol};
use super::entrance::ListenerGroup;
use super::exchange::Proxy;
use super::in_order::StartOrder;
use super::problem::{MalformedRequest, Problem};
use super::request::{ConnectionInfo, only_host};
use super::socket::{ClientEnd, Socket};
use crate::descriptors;
use crate::metrics::{Metrics, ResultLabel};
use crate::tasks::Tasks;
use crate::throttle::REPEATING;
use politesse_robots::origin::Origin;

/// Where to listen, for whom, and for how long.
#[derive(Debug, Clone)]
pub struct Options {
    /// The addresses to listen on; port 0 takes any.
    pub listen: Vec<SocketAddr>,
    /// Connections that wait to be accepted, at each address and at the admin
    /// listener.
    pub backlog: NonZeroU32,
    /// Who may connect; others are closed at once and counted.
    pub clients: Vec<IpNet>,
    /// Connections open at one time; more are closed at once and counted.
    pub max_connections: NonZeroUsize,
    /// Commands of `politesse run` that are served at one time.
    pub max_commands: NonZeroUsize,
    /// The longest the first head of a connection may take.
    pub header_timeout: Duration,
    /// The longest a connection may be idle, and any later head take.
    pub idle_timeout: Duration,
    /// The longest that exchanges may go on after a signal to stop.
    pub shutdown_timeout: Duration,
}

/// Bytes of a request's head, target and fields together.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Fields of a request.
const FIELDS_MAX: usize = 256;
/// Streams of one HTTP/2 connection.
const STREAMS_MAX: u32 = 100;
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
const SEND_BUFFER: usize = 64 * 1024;
/// Streams reset before we answered them; more is an attack (CVE-2023-44487).
const PENDING_RESETS_MAX: usize = 20;
const LOCAL_RESETS_MAX: usize = 1024;
/// After a failed `accept` (no descriptors left): time for some to come back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Options {
    fn admit(&self, client: IpAddr) -> bool {
        self.clients.iter().any(|net| net.contains(&client))
    }
}

/// One configuration as it is in force. A request takes it once and keeps it to
/// its end, whatever is reloaded meanwhile; a connection keeps its time limits.
#[derive(Debug)]
pub struct ActiveConfig {
    /// Every exchange goes through it.
    pub proxy: Proxy,
    /// Opens CONNECTs; absent if `https.mode` is `refuse`.
    pub interceptor: Option<Arc<Interceptor>>,
    /// Limits.
    pub options: Options,
}

/// The crawlers' side of a proxy.
#[derive(Debug)]
pub struct ProxyServer {
    /// What requests that come now are conducted by.
    pub in_force: ArcSwap<ActiveConfig>,
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// Connections that are open (`proxy.max_connections`).
    pub open: AtomicUsize,
    /// Where connections run, and hyper's own tasks for them.
    pub tasks: Tasks,
    /// Cancelled when no more may be accepted.
    pub stop: CancellationToken,
    /// Cancelled when what is still going on must end.
    pub abort: CancellationToken,
}

impl ProxyServer {
    /// Accepts on `listener` until told to stop, in a task of its own.
    pub fn listen(self: &Arc<Self>, listener: TcpListener) {
        let entrance = ListenerGroup::configured(&self.stop, &self.abort);
        self.listen_at(listener, Arc::new(entrance));
    }

    /// Accepts on `listener` until `entrance` is stopped, in a task of its own.
    pub fn listen_at(self: &Arc<Self>, listener: TcpListener, entrance: Arc<ListenerGroup>) {
        let crawlers = Arc::clone(self);
        // Nobody waits for an entrance before its listener is closed.
        let open = entrance.connections.token();
        self.tasks.0.spawn(async move {
            let _open = open;
            loop {
                let accepted = tokio::select! {
                    () = entrance.stop.cancelled() => return,
                    accepted = listener.accept() => accepted,
                };
                match accepted {
                    Ok((stream, peer)) => {
                        crawlers.admit(stream, peer.ip().to_canonical(), &entrance);
                    }
                    Err(error) => pause_after(&error).await,
                }
            }
        });
    }

    /// Serves a connection if its peer may connect and there is a place.
    fn admit(self: &Arc<Self>, stream: TcpStream, client: IpAddr, entrance: &Arc<ListenerGroup>) {
        let in_force = self.in_force.load();
        if !entrance.admits(client, |client| in_force.options.admit(client)) {
            tracing::warn!(target: REPEATING, %client, "not in proxy.clients, closed");
            return self.turn_away("client");
        }
        if descriptors::is_reserved(&stream) {
            tracing::warn!(target: REPEATING, %client, "no descriptors are left for crawlers, closed");
            return self.turn_away("descriptors");
        }
        // Without it, Nagle's algorithm and delayed acknowledgements add 40 ms.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "no TCP_NODELAY");
        }
        let most = in_force.options.max_connections;
        let socket = Socket::from(stream);
        let Some(place) = ConnectionSlot::take(self, (&socket, entrance), most) else {
            tracing::warn!(target: REPEATING, %client, "proxy.max_connections are open, closed");
            return self.turn_away("max_connections");
        };
        if let Some(tally) = &entrance.tally {
            tally.add_connection();
        }
        let crawlers = Arc::clone(self);
        self.tasks.0.spawn(async move {
            let leg = ConnectionInfo {
                client,
                opened_for: None,
                end: socket.client_end(),
                tally: place.entrance.tally.clone(),
            };
            crawlers.serve(socket, Protocol::Http1, (leg, place)).await;
        });
    }

    fn turn_away(&self, result: &'static str) {
        self.metrics
            .connections_refused
            .get_or_create(&ResultLabel { result })
            .inc();
    }

    /// Serves the requests of one stream to its end.
    async fn serve<S>(
        self: &Arc<Self>,
        stream: S,
        protocol: Protocol,
        (leg, place): (ConnectionInfo, Arc<ConnectionSlot>),
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let activity = Arc::new(ConnectionActivity::default());
        let connected = Arc::clone(&place);
        let service = {
            let (crawlers, activity) = (Arc::clone(self), Arc::clone(&activity));
            let order = StartOrder::default();
            service_fn(move |request| {
                let (crawlers, leg, place) =
                    (Arc::clone(&crawlers), leg.clone(), Arc::clone(&place));
                let busy = activity.begin();
                order.next(async move {
                    let response = crawlers.respond(request, (&leg, &place)).await;
                    let taken = busy.activity();
                    Ok::<_, Infallible>(response.map(|body| body.noting(taken)))
                })
            })
        };
        let io = TokioIo::new(stream);
        let watched = ConnectionWatch::of(&self.in_force.load().options, &activity, &connected);
        match protocol {
            Protocol::Http1 => {
                let connection = http1_builder(watched.idle_timeout)
                    .serve_connection(io, service)
                    .with_upgrades();
                self.drive(pin!(connection), &watched, |connection| {
                    connection.graceful_shutdown();
                })
                .await;
            }
            Protocol::Http2 => {
                let connection = http2_builder(self.tasks.clone()).serve_connection(io, service);
                self.drive(pin!(connection), &watched, |connection| {
                    connection.graceful_shutdown();
                })
                .await;
            }
        }
    }

    /// Runs a connection to its end, watching for the signal to stop, a first
    /// head that does not come, and idleness.
    async fn drive<C, E>(
        &self,
        mut connection: Pin<&mut C>,
        watched: &ConnectionWatch<'_>,
        finish: fn(Pin<&mut C>),
    ) where
        C: Future<Output = Result<(), E>>,
        E: std::error::Error,
    {
        let entrance = watched.entrance;
        let mut stop = pin!(entrance.stop.cancelled());
        let mut stopping = false;
        let mut first_head = pin!(tokio::time::sleep(watched.header_timeout));
        let mut waiting = true;
        let mut idle = tokio::time::interval(watched.idle_timeout);
        idle.reset();
        let mut was_idle = false;
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a crawler's connection ended badly");
                    }
                    return;
                }
                () = &mut stop, if !stopping => {
                    stopping = true;
                    finish(connection.as_mut());
                }
                () = entrance.abort.cancelled() => return,
                () = watched.socket.reset() => return,
                () = &mut first_head, if waiting => {
                    waiting = false;
                    if !watched.activity.has_begun() {
                        return;
                    }
                }
                _ = idle.tick() => {
                    let is_idle = watched.activity.is_idle();
                    // Asked to finish, and still there: the crawler reads
                    // nothing more, or answers no PING.
                    if is_idle && was_idle {
                        return;
                    }
                    if is_idle {
                        finish(connection.as_mut());
                    }
                    was_idle = is_idle;
                }
            }
        }
    }

    async fn respond(
        self: &Arc<Self>,
        request: Request<Incoming>,
        (leg, place): (&ConnectionInfo, &Arc<ConnectionSlot>),
    ) -> Response<ProxyBody> {
        let in_force = self.in_force.load_full();
        // It could connect when the connection was made.
        let configured = |client| in_force.options.admit(client);
        if !place.entrance.admits(leg.client, configured) {
            return in_force.proxy.turn_away(&Problem::Client, &request);
        }
        if request.method() != Method::CONNECT {
            return in_force.proxy.exchange(request, leg).await;
        }
        match opening(in_force.interceptor.as_ref(), &request, leg) {
            Ok((interceptor, origin)) => {
                let place = (leg.client, Arc::clone(place));
                self.open(request, (interceptor, origin), place);
                Response::new(ProxyBody::whole(""))
            }
            Err(problem) => in_force.proxy.turn_away(&problem, &request),
        }
    }

    /// Serves the inside of a CONNECT, in a task of its own, once the crawler
    /// has its 200. The place among the connections goes with it.
    fn open(
        self: &Arc<Self>,
        request: Request<Incoming>,
        (interceptor, origin): (Arc<Interceptor>, Origin),
        (client, place): (IpAddr, Arc<ConnectionSlot>),
    ) {
        let crawlers = Arc::clone(self);
        let tunnel = hyper::upgrade::on(request);
        let inside = async move {
            // Nothing was asked inside yet, so a stop need not wait.
            let opened = tokio::select! {
                () = place.entrance.stop.cancelled() => return,
                opened = interceptor.open(tunnel, origin) => opened,
            };
            // Those of an earlier configuration end with their last handshake.
            drop(interceptor);
            match opened {
                Ok(opened) => {
                    let host = opened.origin.host().to_string();
                    let leg = ConnectionInfo {
                        client,
                        opened_for: Some(opened.origin),
                        end: client_end(opened.protocol, &place.socket),
                        tally: place.entrance.tally.clone(),
                    };
                    crawlers
                        .serve(opened.stream, opened.protocol, (leg, place))
                        .await;
                    if let Some(source) = opened.refusal.get().copied() {
                        crawlers.note(&ConnectError::Foreign { host, source }, client);
                    }
                }
                Err(error) => {
                    if let (Some(tally), ConnectError::Handshake { .. }) =
                        (&place.entrance.tally, &error)
                    {
                        tally.add_failed_handshake();
                    }
                    crawlers.note(&error, client);
                }
            }
        };
        // Boxed, because serving the inside is serving a stream again.
        let inside: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(inside);
        self.tasks.0.spawn(inside);
    }
}

impl ProxyServer {
    /// Counts and logs why no request could be read from inside a CONNECT of
    /// `client`.
    fn note(&self, error: &ConnectError, client: IpAddr) {
        let cause = std::error::Error::source(error).map(tracing::field::display);
        // Lines are throttled by where they stand: those about clients must not
        // hide one about us.
        match error {
            ConnectError::Foreign { .. } => {
                tracing::warn!(target: REPEATING, %client, cause, "{error}");
                return self.turn_away("protocol");
            }
            ConnectError::Leaf { .. } => {
                tracing::error!(target: REPEATING, %client, cause, "{error}");
            }
            ConnectError::Upgrade(_)
            | ConnectError::Timeout(_)
            | ConnectError::Broken(_)
            | ConnectError::Handshake { .. }
            | ConnectError::ServerName { .. } => {
                tracing::warn!(target: REPEATING, %client, cause, "{error}");
            }
        }
        self.metrics.tls_handshake_failures.inc();
    }
}

/// Over HTTP/2 a crawler that goes cancels its requests itself.
fn client_end(protocol: Protocol, socket: &Socket) -> ClientEnd {
    match protocol {
        Protocol::Http1 => socket.client_end(),
        Protocol::Http2 => ClientEnd::default(),
    }
}

/// The origin that a CONNECT opens, and who opens it.
fn opening(
    interceptor: Option<&Arc<Interceptor>>,
    request: &Request<Incoming>,
    leg: &ConnectionInfo,
) -> Result<(Arc<Interceptor>, Origin), Problem> {
    let interceptor = interceptor.ok_or(Problem::ConnectRefused)?;
    // Some clients leave it out, and the target says it all.
    if request.headers().contains_key(HOST) {
        only_host(request.headers())?;
    }
    let uri = request.uri();
    let authority = uri.authority().filter(|_| uri.scheme().is_none());
    match authority {
        Some(authority) if leg.opened_for.is_none() && request.body().is_end_stream() => {
            let origin =
                connect::authority(authority.as_str()).map_err(MalformedRequest::Target)?;
            Ok((Arc::clone(interceptor), origin))
        }
        _ => Err(MalformedRequest::Connect.into()),
    }
}

/// What a connection is watched for, within the limits it began with.
struct ConnectionWatch<'a> {
    activity: &'a ConnectionActivity,
    socket: &'a Socket,
    entrance: &'a ListenerGroup,
    header_timeout: Duration,
    idle_timeout: Duration,
}

impl<'a> ConnectionWatch<'a> {
    fn of(options: &Options, activity: &'a ConnectionActivity, place: &'a ConnectionSlot) -> Self {
        Self {
            activity,
            socket: &place.socket,
            entrance: &place.entrance,
            header_timeout: options.header_timeout,
            idle_timeout: options.idle_timeout,
        }
    }
}

async fn pause_after(error: &io::Error) {
    tracing::warn!(target: REPEATING, %error, "cannot accept");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

fn http1_builder(idle: Duration) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(idle)
        .half_close(true)
        .preserve_header_case(true)
        .title_case_headers(true)
        .auto_date_header(false)
        .max_headers(FIELDS_MAX)
        .max_buf_size(HEAD_BYTES_MAX);
    builder
}

fn http2_builder(tasks: Tasks) -> http2::Builder<Tasks> {
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

/// A place among the open connections, given back when the last stream that
/// needs it has ended.
struct ConnectionSlot {
    crawlers: Arc<ProxyServer>,
    socket: Socket,
    entrance: Arc<ListenerGroup>,
    _open: TaskTrackerToken,
}

impl ConnectionSlot {
    /// A place, if fewer than `most` are taken.
    fn take(
        crawlers: &Arc<ProxyServer>,
        (socket, entrance): (&Socket, &Arc<ListenerGroup>),
        most: NonZeroUsize,
    ) -> Option<Arc<Self>> {
        let one_more = |open: usize| (open < most.get()).then_some(open + 1);
        let (ordering, open) = (Ordering::Relaxed, &crawlers.open);
        open.fetch_update(ordering, ordering, one_more).ok()?;
        crawlers.metrics.connections.inc();
        Some(Arc::new(Self {
            crawlers: Arc::clone(crawlers),
            socket: socket.clone(),
            entrance: Arc::clone(entrance),
            _open: entrance.connections.token(),
        }))
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.crawlers.open.fetch_sub(1, Ordering::Relaxed);
        self.crawlers.metrics.connections.dec();
    }
}
