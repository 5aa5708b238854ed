//! Origins that answer with given bytes, and an upstream that dials them.

#![expect(
    clippy::unwrap_used,
    missing_docs,
    reason = "a test may panic, and its kit says by names what it does"
)]

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Response};
use http_body_util::{BodyExt, Empty};
use hyper::rt::Executor;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::body::{BodyError, ResponseBody};
use crate::client::{HostTurns, Options, OutgoingHead, TlsOptions, Upstream, UpstreamError};
use crate::egress::{self, Deny, Egress, EgressPorts, Resolve};
use politesse_base::clients::client::Client;
use politesse_base::metrics::Metrics;
use politesse_base::tasks::Tasks;
use politesse_decision::decide::Receipt;
use politesse_decision::decide::{Inquiry, Permit, Policy, Unauthorized, decide};
use politesse_decision::snapshot::{AccessResult, CacheKey, Snapshot};
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::Target;

/// Step of an origin on one connection, one per request. The connection is closed after
/// the last step.
#[derive(Clone, Copy)]
pub enum Step {
    /// Reads a request with its body, and writes these bytes.
    Answer(&'static str),
    /// Reads a request, and waits until the client closes the connection.
    Hold,
    /// Reads a request, and closes without an answer.
    Close,
}

pub const OK: Step = Step::Answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");

/// Origin on loopback, and the requests that it has received.
pub struct RawOrigin {
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
    /// Number of connections that have ended.
    ended: watch::Sender<usize>,
}

impl RawOrigin {
    /// Starts an origin that plays one script per connection. The last script is repeated
    /// for all further connections.
    pub async fn start(scripts: &[&'static [Step]]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = Self {
            address: listener.local_addr().unwrap(),
            requests: Arc::default(),
            connections: Arc::default(),
            ended: watch::Sender::new(0),
        };
        let (requests, connections) = (
            Arc::clone(&origin.requests),
            Arc::clone(&origin.connections),
        );
        let ended = origin.ended.clone();
        let scripts = scripts.to_vec();
        Tasks::default().execute(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let number = connections.fetch_add(1, Ordering::SeqCst);
                let script = scripts[number.min(scripts.len() - 1)];
                let (requests, ended) = (Arc::clone(&requests), ended.clone());
                Tasks::default().execute(async move {
                    play(stream, script, requests).await;
                    ended.send_modify(|ended| *ended += 1);
                });
            }
        });
        origin
    }

    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// Waits until `count` connections have ended.
    pub async fn ended(&self, count: usize) {
        let mut ended = self.ended.subscribe();
        ended.wait_for(|ended| count <= *ended).await.unwrap();
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Plays a script on one stream.
pub async fn play<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    script: &'static [Step],
    requests: Arc<Mutex<Vec<String>>>,
) {
    for step in script {
        let Some(request) = read_request(&mut stream).await else {
            return;
        };
        requests.lock().unwrap().push(request);
        match step {
            Step::Answer(bytes) => stream.write_all(bytes.as_bytes()).await.unwrap(),
            Step::Hold => {
                stream.read_u8().await.unwrap_or_default();
            }
            Step::Close => return,
        }
    }
}

/// Reads a request with its body; `None` at the end of the stream.
async fn read_request<S: AsyncRead + Unpin>(stream: &mut S) -> Option<String> {
    let mut text = String::new();
    while !is_whole(&text) {
        text.push(char::from(stream.read_u8().await.ok()?));
    }
    Some(text)
}

fn is_whole(text: &str) -> bool {
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let head = head.to_ascii_lowercase();
    if head.contains("transfer-encoding: chunked") {
        return body.ends_with("0\r\n\r\n");
    }
    let length = head
        .split_once("content-length: ")
        .map_or("0", |(_, rest)| rest);
    let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
    body.len() >= length
}

/// Upstream to origins with `*.test` names.
pub struct Setup {
    pub upstream: Arc<Upstream>,
    pub metrics: Arc<Metrics>,
    /// Policy that decides its requests.
    pub policy: Policy,
}

pub fn options() -> Options {
    Options {
        connect_timeout: Duration::from_secs(10),
        first_byte_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(10),
        tls: TlsOptions {
            roots: vec![politesse_base::tls::Roots::Webpki],
            exceptions: Vec::new(),
            folder: PathBuf::new(),
            http2: true,
        },
        pool_idle_timeout: Duration::from_secs(60),
        pool_idle_per_origin: NonZeroUsize::new(8).unwrap(),
        pool_idle_total: NonZeroUsize::new(64).unwrap(),
        parent_auth: None,
    }
}

/// Returns an egress with the default rules, except that these names are resolved to the
/// given addresses.
pub fn egress(names: &[(&str, SocketAddr)]) -> Arc<Egress> {
    let resolve = names.iter().map(|(name, address)| Resolve {
        name: (*name).to_owned(),
        port: None,
        address: address.ip(),
        to_port: Some(address.port()),
    });
    let options = egress::Options {
        own_name: None,
        deny: vec![Deny::Default],
        allow: Vec::new(),
        ports: vec![EgressPorts::Default],
        resolve: resolve.collect(),
        parent: None,
        dns_ttl: Duration::from_secs(30),
        dns_timeout: Duration::from_secs(5),
        dns_lookups: NonZeroUsize::new(4).unwrap(),
        dns_zone_lookups: NonZeroUsize::new(4).unwrap(),
        dns_cache: NonZeroUsize::new(16).unwrap(),
    };
    let lookups = Egress::lookups(&options, Arc::default());
    Arc::new(Egress::new(
        options,
        lookups,
        Arc::default(),
        Tasks::default(),
    ))
}

pub fn setup_with(options: &Options, names: &[(&str, SocketAddr)]) -> Setup {
    let metrics = Arc::new(Metrics::default());
    let upstream = Upstream::new(
        options,
        egress(names),
        Arc::clone(&metrics),
        Tasks::default(),
    );
    Setup {
        upstream: Arc::new(upstream.unwrap()),
        metrics,
        policy: Policy::new(Unauthorized::Allow)
            .with(|terms| terms.tls.clone_from(&options.tls.exceptions)),
    }
}

/// Creates an upstream to one origin, `h.test`.
pub fn setup(origin: &RawOrigin) -> Setup {
    setup_with(&options(), &[("h.test", origin.address)])
}

/// Turns at a host with a pace set by the test.
pub struct Paced {
    pub pause: Duration,
    /// Number of further turns that will be granted.
    pub left: usize,
    /// Number of turns that are lost before anything is sent.
    pub lost: usize,
}

impl Paced {
    /// Turns at a host without a pace.
    pub fn freely() -> Self {
        Self {
            pause: Duration::ZERO,
            left: usize::MAX,
            lost: 0,
        }
    }
}

impl HostTurns for Paced {
    fn client(&self) -> Option<&Arc<Client>> {
        None
    }

    fn pause(&self) -> Duration {
        self.pause
    }

    fn holds(&self) -> bool {
        self.lost == 0
    }

    async fn renew(&mut self) -> bool {
        self.lost = self.lost.saturating_sub(1);
        let may = 0 < self.left;
        self.left = self.left.saturating_sub(1);
        may
    }
}

impl Setup {
    pub async fn get(&self, url: &str) -> Result<Response<ResponseBody>, UpstreamError> {
        let mut head = outgoing(Method::GET, &[]);
        self.upstream
            .forward(
                permit_by(&self.policy, url),
                &mut head,
                Empty::<Bytes>::new(),
                &mut Paced::freely(),
            )
            .await
    }

    /// Requests a page and returns its complete body.
    pub async fn page(&self, url: &str) -> String {
        body(self.get(url).await.unwrap()).await.unwrap()
    }
}

pub async fn body(response: Response<ResponseBody>) -> Result<String, BodyError> {
    let bytes = response.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8(bytes.to_vec()).unwrap())
}

pub fn outgoing(method: Method, fields: &[(&'static str, &'static str)]) -> OutgoingHead {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
    OutgoingHead {
        method,
        headers,
        form: crate::client::TargetForm::Url,
        path: None,
        extensions: Extensions::new(),
    }
}

/// Returns a permit to fetch `url`, whose origin has no robots.txt.
pub fn permit(url: &str) -> Permit {
    permit_by(&Policy::new(Unauthorized::Allow), url)
}

fn permit_by(policy: &Policy, url: &str) -> Permit {
    let target: Target = url.parse().unwrap();
    let snapshot = Snapshot {
        key: CacheKey::new(target.origin.clone(), None),
        url: url.to_owned(),
        hops: Vec::new(),
        status: Some(404),
        fetched_at: politesse_base::clock::now(),
        expires_at: politesse_base::clock::now(),
        result: AccessResult::Unavailable,
        stale: None,
        tdm: None,
    };
    let inquiry = Inquiry {
        crawler: Crawler::parse("ExampleBot"),
        target,
        method: "GET".to_owned(),
    };
    let decision = decide(
        &Arc::new(inquiry),
        &Arc::new(snapshot),
        &Arc::new(policy.clone()),
        politesse_base::clock::now(),
    );
    let receipt = Receipt::issue(1, decision.evidence());
    decision.into_permit(&receipt).unwrap()
}
