//! A scripted origin: answers by path, over plain TCP or TLS, with HTTP/1.1 or HTTP/2.
//! Its own log is the evidence that tests check.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::certificates::{Leaf, TestCa, Validity};
use super::client::field_values;
use super::page::{OutBody, Page};
use super::proxy::{Config, Proxy};
use super::server::Server;
use super::{Digest, clock, soon};

/// One request, as an origin received it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    /// The target as sent, without scheme and authority.
    pub(crate) target: String,
    pub(crate) version: http::Version,
    /// Field lines, with names as sent on HTTP/1.1. hyper groups lines of equal name; a
    /// test of their order needs a raw origin.
    pub(crate) fields: Vec<(String, String)>,
    /// Value of Host or `:authority`.
    pub(crate) authority: String,
    /// Length and SHA-256 of the body; `None` until the whole body has arrived.
    pub(crate) body: Option<(u64, String)>,
    /// Time at which the head had arrived.
    pub(crate) at: Instant,
}

impl Seen {
    /// Returns the values of `name`, in order.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        field_values(&self.fields, name)
    }
}

/// Answers of an origin, prepared before it starts.
#[derive(Clone)]
pub(crate) struct Script {
    robots: Page,
    robots_for: HashMap<String, Page>,
    pages: HashMap<String, Page>,
    /// Pages for the first requests for a target, with the number of those requests.
    at_first: HashMap<String, (usize, Page)>,
    conditional: HashMap<String, Page>,
    leaf: Leaf,
    alpn: Vec<&'static str>,
    is_tls: bool,
}

impl Script {
    /// Returns a script whose robots.txt is `robots`, and whose other paths are short
    /// texts.
    pub(crate) fn robots(robots: &str) -> Self {
        Self::robots_page(Page::text(robots))
    }

    /// Returns a script that answers robots.txt requests with `page`.
    pub(crate) fn robots_page(page: Page) -> Self {
        Self {
            robots: page,
            robots_for: HashMap::new(),
            pages: HashMap::new(),
            at_first: HashMap::new(),
            conditional: HashMap::new(),
            leaf: Leaf::of("o.test"),
            alpn: vec!["h2", "http/1.1"],
            is_tls: false,
        }
    }

    /// Answers robots.txt requests with `page` if their User-Agent contains `token`.
    pub(crate) fn robots_for(mut self, token: &str, page: Page) -> Self {
        self.robots_for.insert(token.to_owned(), page);
        self
    }

    pub(crate) fn page(mut self, target: &str, page: Page) -> Self {
        self.pages.insert(target.to_owned(), page);
        self
    }

    /// Answers the first `count` requests for `target` with `page`.
    pub(crate) fn at_first(mut self, target: &str, count: usize, page: Page) -> Self {
        self.at_first.insert(target.to_owned(), (count, page));
        self
    }

    /// Answers conditional requests for robots.txt with `page`.
    pub(crate) fn robots_if_conditional(self, page: Page) -> Self {
        self.if_conditional("/robots.txt", page)
    }

    /// Answers conditional requests for `target` (RFC 9110, section 13) with `page`,
    /// without evaluating the condition.
    pub(crate) fn if_conditional(mut self, target: &str, page: Page) -> Self {
        self.conditional.insert(target.to_owned(), page);
        self
    }

    /// Sets the name in the origin's certificate; `o.test` by default.
    pub(crate) fn name(self, name: &str) -> Self {
        self.names([name])
    }

    /// Sets several names for the origin's certificate.
    pub(crate) fn names(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.leaf.names = names.into_iter().map(Into::into).collect();
        self
    }

    /// Serves the script over TLS.
    pub(crate) fn tls(mut self) -> Self {
        self.is_tls = true;
        self
    }

    pub(crate) fn expired(mut self) -> Self {
        self.leaf.validity = Validity::Expired;
        self
    }

    /// Sets the protocols offered over TLS; HTTP/2 and HTTP/1.1 by default.
    pub(crate) fn alpn(mut self, alpn: &[&'static str]) -> Self {
        self.alpn = alpn.to_vec();
        self
    }

    /// Serves the script, over plain TCP unless [`tls`](Self::tls) was called.
    pub(crate) async fn start(self) -> Origin {
        let acceptor = self
            .is_tls
            .then(|| TlsAcceptor::from(TestCa::get().server(&self.leaf, &self.alpn)));
        Origin::start(self, acceptor).await
    }
}

/// Starts `script`, and a proxy that resolves the script's names to it. `lines` are extra
/// lines of the proxy's configuration, as `section.key = value`.
pub(crate) async fn site(script: Script, lines: &[&str]) -> (Origin, Proxy) {
    let names = script.leaf.names.clone();
    let origin = script.start().await;
    let named = names.iter().fold(Config::default(), |config, name| {
        config.resolve(name, origin.address())
    });
    let config = lines.iter().fold(named, |config, line| config.set(line));
    (origin, config.start().await)
}

/// A running scripted origin. Dropping it fails the test if one of its tasks panicked.
pub(crate) struct Origin {
    server: Server,
    desk: Arc<Desk>,
}

/// State shared by all connections of an origin.
struct Desk {
    script: Script,
    log: watch::Sender<Vec<Seen>>,
    connections: watch::Sender<usize>,
    panics: Mutex<Vec<String>>,
}

impl Origin {
    async fn start(script: Script, tls: Option<TlsAcceptor>) -> Self {
        let desk = Arc::new(Desk {
            script,
            log: watch::Sender::new(Vec::new()),
            connections: watch::Sender::new(0),
            panics: Mutex::new(Vec::new()),
        });
        let shared = Arc::clone(&desk);
        let server = Server::start(move |stream| {
            shared.connections.send_modify(|count| *count += 1);
            watched(stream, tls.clone(), Arc::clone(&shared))
        });
        Self {
            server: server.await,
            desk,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns all requests so far, in order of arrival.
    pub(crate) fn log(&self) -> Vec<Seen> {
        self.desk.log.borrow().clone()
    }

    /// Returns the targets of all requests so far, without robots.txt.
    pub(crate) fn targets(&self) -> Vec<String> {
        let log = self.log();
        let pages = log.into_iter().filter(|seen| seen.target != "/robots.txt");
        pages.map(|seen| seen.target).collect()
    }

    /// Returns the number of requests for robots.txt.
    pub(crate) fn robots_fetches(&self) -> usize {
        self.desk.times("/robots.txt")
    }

    /// Returns the number of accepted connections.
    pub(crate) fn connections(&self) -> usize {
        *self.desk.connections.borrow()
    }

    /// Waits until the head of a request for `target` has arrived.
    pub(crate) async fn arrival(&self, target: &str) -> Seen {
        let wanted = |seen: &Seen| seen.target == target;
        self.first(&format!("request for {target}"), wanted).await
    }

    /// Waits until a request for `target` has arrived with its whole body.
    pub(crate) async fn whole(&self, target: &str) -> Seen {
        let whole = |seen: &Seen| seen.target == target && seen.body.is_some();
        self.first(&format!("whole request for {target}"), whole)
            .await
    }

    async fn first(&self, what: &str, wanted: impl Fn(&Seen) -> bool) -> Seen {
        let mut log = self.desk.log.subscribe();
        let found = soon(what, log.wait_for(|log| log.iter().any(&wanted))).await;
        let log = found.unwrap();
        log.iter().find(|seen| wanted(seen)).unwrap().clone()
    }

    /// Asserts that only robots.txt was fetched. A page request that should have been
    /// refused, the worst failure of the proxy, fails here.
    pub(crate) fn assert_only_robots_fetched(&self) {
        let pages = self.targets();
        assert_eq!(pages, [""; 0], "only /robots.txt may reach this origin");
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        let panics = self.desk.panics.lock().unwrap();
        if !std::thread::panicking() {
            assert!(panics.is_empty(), "an origin's task panicked: {panics:?}");
        }
    }
}

/// Serves a connection, and notes a panic of its task.
async fn watched(stream: TcpStream, tls: Option<TlsAcceptor>, desk: Arc<Desk>) {
    let served = tokio::spawn(connection(stream, tls, Arc::clone(&desk)));
    if let Err(error) = served.await
        && error.is_panic()
    {
        desk.panics.lock().unwrap().push(error.to_string());
    }
}

async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, desk: Arc<Desk>) {
    let Some(acceptor) = tls else {
        return serve_h1(stream, desk).await;
    };
    // The proxy aborts the handshake if it rejects the certificate, which tests provoke.
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        serve_h2(stream, desk).await;
    } else {
        serve_h1(stream, desk).await;
    }
}

async fn serve_h1(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, desk: Arc<Desk>) {
    let service = service_fn(move |request| answer(request, Arc::clone(&desk)));
    let served = hyper::server::conn::http1::Builder::new()
        .preserve_header_case(true)
        .max_headers(1_000)
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service);
    // The proxy decides how a connection ends; tests check the log.
    let _ = served.await;
}

async fn serve_h2(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, desk: Arc<Desk>) {
    let service = service_fn(move |request| answer(request, Arc::clone(&desk)));
    let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service);
    let _ = served.await;
}

async fn answer(
    request: http::Request<Incoming>,
    desk: Arc<Desk>,
) -> Result<http::Response<OutBody>, Infallible> {
    let (parts, body) = request.into_parts();
    let seen = seen(&parts);
    let answer = desk.script.answer_to(&seen);
    let page = match desk.script.at_first.get(&seen.target) {
        Some((count, page)) if desk.times(&seen.target) < *count => page.clone(),
        _ => answer,
    };
    let place = desk.enter(seen);
    if let Some(body) = read_whole(body).await {
        desk.log.send_modify(|log| log[place].body = Some(body));
    }
    Ok(page.respond().await)
}

/// Returns the length and digest of a body; `None` if it is aborted.
async fn read_whole(mut body: Incoming) -> Option<(u64, String)> {
    let mut digest = Digest::new();
    while let Some(frame) = body.frame().await {
        if let Some(bytes) = frame.ok()?.data_ref() {
            digest.update(bytes);
        }
    }
    Some(digest.finish())
}

fn seen(parts: &http::request::Parts) -> Seen {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let fields = parts
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), text(value)));
    let host = parts.headers.get("host").map(text);
    let authority = parts.uri.authority().map(ToString::to_string);
    Seen {
        method: parts.method.to_string(),
        target: parts
            .uri
            .path_and_query()
            .map_or_else(|| "*".to_owned(), ToString::to_string),
        version: parts.version,
        fields: fields.collect(),
        authority: host.or(authority).unwrap_or_default(),
        body: None,
        at: clock::instant(),
    }
}

impl Script {
    fn answer_to(&self, seen: &Seen) -> Page {
        let is_conditional = ["if-none-match", "if-modified-since"]
            .into_iter()
            .any(|name| !seen.values(name).is_empty());
        let conditional = self.conditional.get(&seen.target);
        if let Some(page) = conditional.filter(|_| is_conditional) {
            return page.clone();
        }
        if seen.target != "/robots.txt" {
            let page = self.pages.get(&seen.target).cloned();
            return page.unwrap_or_else(|| Page::text(&format!("this is {}\n", seen.target)));
        }
        let agent = seen.values("user-agent").join(" ");
        let mut special = self.robots_for.iter();
        let special = special.find(|(token, _)| agent.contains(token.as_str()));
        special.map_or(&self.robots, |(_, page)| page).clone()
    }
}

impl Desk {
    /// Returns the number of requests for `target`.
    fn times(&self, target: &str) -> usize {
        let log = self.log.borrow();
        log.iter().filter(|seen| seen.target == target).count()
    }

    /// Appends a request to the log, and returns its index.
    fn enter(&self, seen: Seen) -> usize {
        let mut place = 0;
        self.log.send_modify(|log| {
            place = log.len();
            log.push(seen);
        });
        place
    }
}
